//! A component is looked at without a server.

use leasehold_parts::digest_of;
use leasehold_tests::http::text;
use leasehold_tests::server::Server;
use leasehold_tests::shape::{modest, shaped_with_files};
use serde_json::{Value, json};

#[test]
fn a_component_is_inspected_without_a_server() {
    let Some(server) = Server::new(&[]) else {
        return;
    };
    let file = server.path().join("shape.wasm");
    let component = shaped_with_files(&modest());
    std::fs::write(&file, &component).expect("a file");
    let looked = server.json(&["plugin", "inspect", &file.display().to_string()]);
    assert_eq!(looked["key"], "shape", "{looked}");
    assert_eq!(
        looked["parts"],
        json!(["origins", "operations", "credentials"])
    );
    let digest = digest_of(&component);
    assert_eq!(
        json!(format!("sha256:{}", text(&looked["digest"]))),
        json!(digest)
    );
    assert_eq!(looked["size"], json!(component.len()));
    assert_eq!(looked["capabilities"], json!(["files"]));
    assert_eq!(looked["source"]["signedBy"], Value::Null, "{looked}");
    let named = |list: &str| -> Vec<String> {
        let all = looked[list].as_array().cloned().unwrap_or_default();
        let of_ours = |name: &String| name.starts_with("leasehold:");
        let mut all: Vec<String> = all.iter().map(text).filter(of_ours).collect();
        all.sort();
        all
    };
    assert_eq!(
        named("exports"),
        [
            "leasehold:provider/files@0.1.0",
            "leasehold:provider/lifecycle@0.1.0"
        ]
    );
    assert_eq!(
        named("imports"),
        [
            "leasehold:provider/http@0.1.0",
            "leasehold:provider/types@0.1.0"
        ]
    );
    let list = |name: &str| -> String {
        let all = looked[name].as_array().cloned().unwrap_or_default();
        all.iter().map(text).collect::<Vec<_>>().join(", ")
    };
    // Everything that it asks for is shown, as words and as what names them.
    let asks = looked["asks"].as_array().cloned().unwrap_or_default();
    for words in [
        "send requests without any credential to https://*.acme.dev:443",
        "use the credential in /key toward /api, as header authorization: Bearer {}",
        "act on what it made by the operation DELETE /boxes/{resource} at /api",
        "keep, for the lease's life, credentials that POST /sessions at /api",
        "move files into and out of its leases",
        "use up to 32 MiB of memory, 1000 ms of CPU time, 8 requests and buffered bodies of 1 MiB",
        "it declares no check of `owned`",
    ] {
        assert!(
            asks.iter().any(|ask| text(ask).contains(words)),
            "{words}: {asks:?}"
        );
    }
    assert_eq!(text(&looked["requestDigest"]).len(), 64, "{looked}");
    let words = server.run(&["plugin", "inspect", &file.display().to_string()]);
    for line in [
        format!("(sandbox driver), {} bytes\n", component.len()),
        format!("\n{digest}\n"),
        "\nsignature: not given\n".to_owned(),
        "\ncapabilities: files\n".to_owned(),
        format!("\nimports: {}\n", list("imports")),
        format!("\nexports: {}\n", list("exports")),
        format!("\nrequest digest: {}\n", text(&looked["requestDigest"])),
    ] {
        assert!(words.stdout.contains(&line), "{line:?}: {words:?}");
    }
    for ask in &asks {
        assert!(words.stdout.contains(&text(ask)), "{ask}: {words:?}");
    }
    std::fs::write(&file, b"nothing").expect("a file");
    let refused = server.run(&["plugin", "inspect", &file.display().to_string()]);
    assert_eq!(refused.code, 2, "{refused:?}");
    assert!(refused.stderr.contains("not a component"), "{refused:?}");
}

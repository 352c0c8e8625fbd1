//! What is wrong with a grant or a name is said as what it is.

use leasehold_tests::http::text;
use leasehold_tests::server::Server;
use leasehold_tests::shape::{modest, shaped};
use serde_json::json;

use crate::plugin;

#[test]
fn what_is_wrong_with_a_grant_or_a_name_is_said_as_what_it_is() {
    let Some(server) = Server::start() else {
        return;
    };
    let file = server.path().join("shape.wasm");
    std::fs::write(&file, shaped(&modest())).expect("a file");
    let file = file.display().to_string();
    let told = |args: &[&str]| {
        let ran = server.run(&[&["plugin"], args].concat());
        (ran.code, ran.stderr)
    };
    // A part that is not asked for cannot be left out: whoever does so read something else.
    let asked = "ssh is not asked for; it asks for origins, operations, credentials";
    let (code, words) = told(&["install", &file, "--yes", "--without", "ssh"]);
    assert!(code == 2 && words.contains(asked), "{code}: {words}");
    assert_eq!(server.get("/api/plugins"), json!([]));
    server
        .upload(
            "POST",
            "/api/plugins",
            "application/wasm",
            &shaped(&modest()),
        )
        .expect(201);
    let (code, words) = told(&["grant", "shape", "--yes", "--without", "ssh"]);
    assert!(code == 2 && words.contains(asked), "{code}: {words}");
    assert_eq!(plugin(&server)["status"], "pending");
    let (code, words) = told(&["grant", "shape", "--yes", "--without", "origins"]);
    assert_eq!(code, 0, "{words}");
    assert_eq!(plugin(&server)["granted"]["origins"], json!([]));

    let (code, words) = told(&["grant", ""]);
    assert!(
        code == 2 && words.contains("a value is required"),
        "{code}: {words}"
    );
    for (args, words) in [
        (
            ["deny", "shape"],
            "there is no pending revision of plugin `shape`",
        ),
        (
            ["rollback", "shape"],
            "there is no previous revision of plugin `shape`",
        ),
    ] {
        let (code, told) = told(&args);
        assert!(code == 3 && told.contains(words), "{code}: {told}");
    }
    let body = json!({ "requestDigest": "0" });
    let nothing = server.call("POST", "/api/plugins/shape/grant", Some(&body));
    assert_eq!(
        text(&nothing.json()["error"]),
        "there is no pending revision of plugin `shape`"
    );
    // What looks like the name of something elsewhere is no file that is missing.
    for (name, words) in [
        ("OCI://127.0.0.1:5000/a:1", "write oci:// in lower case"),
        ("https://127.0.0.1:5000/a:1", "write oci://host/name:tag"),
        ("docker://127.0.0.1:5000/a", "write oci://host/name:tag"),
        ("oci://127.0.0.1:5000/a:1 ", "has white space around it"),
        (" oci://127.0.0.1:5000/a:1", "has white space around it"),
        ("none.wasm", "No such file"),
    ] {
        for command in ["inspect", "install"] {
            let (code, told) = told(&[command, name]);
            assert!(
                code == 2 && told.contains(words),
                "{command} {name}: {code}: {told}"
            );
        }
    }
    // A signature that cannot be one is not sent at all.
    let large = server.path().join("large.sig");
    std::fs::write(&large, vec![b'A'; 3 << 20]).expect("a file");
    let none = server.path().join("none.sig");
    std::fs::write(&none, "not one").expect("a file");
    for (signature, words) in [
        (&large, "has more than 1048576 bytes"),
        (&none, "what was given as its signature is none"),
    ] {
        let signature = signature.display().to_string();
        let (code, told) = told(&["install", &file, "--signature", &signature, "--yes"]);
        let is_named = told.contains(words) && told.contains(&signature);
        assert!(code == 2 && is_named, "{code}: {told}");
    }
    let text_of = server.upload("POST", "/api/plugins", "text/plain", b"component");
    assert_eq!(text_of.code(), "unsupported_media_type", "{}", text_of.body);
    for kind in ["application/wasm", "application/json", "`text/plain`"] {
        assert!(text_of.body.contains(kind), "{}", text_of.body);
    }
    let (code, told) = told(&["push", &file, "oci://localhost:5055/a:1", "--plain-http"]);
    let mend = "written as one, as 127.0.0.1:5055; localhost:5055 is not";
    assert!(code == 2 && told.contains(mend), "{code}: {told}");
}

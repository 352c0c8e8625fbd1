//! Signatures: what a source asks for is what is installed, and nothing else is even compiled.

use leasehold_parts::{FalseRegistry, RegistryOptions, descriptor, manifest};
use leasehold_tests::http::{Answer, text};
use leasehold_tests::server::Server;
use leasehold_tests::shape::{changed, modest, shaped};
use leasehold_tests::signing::KeyPair;
use serde_json::{Value, json};

use crate::house::{House, by_both, pushed, registry, source};

/// A refusal whose code says that it is about signatures, and what it says.
#[track_caller]
fn unsigned(answer: &Answer) -> String {
    assert_eq!(answer.code(), "signature_refused", "{}", answer.body);
    assert_eq!(answer.status, 422);
    text(&answer.json()["error"])
}

#[test]
fn unsigned_and_wrongly_signed_plugins_of_a_registry_are_refused_and_the_old_one_serves_on() {
    let Some(registry) = registry(&RegistryOptions::default()) else {
        return;
    };
    let Some(house) = House::with(&source(&registry.authority(), "['acme']", "")) else {
        return;
    };
    let name = |end: &str| format!("oci://{}/acme/shape:{end}", registry.authority());
    let first = house.shape("first.wasm", &modest());
    house.push_signed(&house.acme, &first, &name("1.0"), &[]);
    let serving = house.granted(&name("1.0"));
    let box_ = house.environment();

    let next = house.shape("next.wasm", &changed(json!({ "version": "2.0.0" })));
    pushed(house.push(&next, &name("2.0"), &[]));
    for answer in [house.inspect(&name("2.0")), house.install(&name("2.0"), "")] {
        let told = unsigned(&answer);
        assert!(
            told.contains("it is not signed, and must be by the key acme"),
            "{told}"
        );
    }
    let stranger = KeyPair::generate();
    house.push_signed(&stranger, &next, &name("2.0"), &[]);
    let told = unsigned(&house.install(&name("2.0"), ""));
    assert!(told.contains("another key made them"), "{told}");
    let cli = house
        .server
        .run(&["plugin", "install", &name("2.0"), "--yes"]);
    assert_eq!(cli.code, 2, "{cli:?}");
    // Signed for another repository: what was signed names the place.
    let elsewhere = format!("oci://{}/other/shape:2.0", registry.authority());
    let payload = house.folder.path().join("payload").display().to_string();
    house.push(&next, &name("2.0"), &["--payload", &payload]);
    let signature = house
        .acme
        .sign(&std::fs::read(&payload).expect("the payload"));
    let signature = house.file("signature", signature);
    pushed(house.push(&next, &elsewhere, &["--signature", &signature]));
    unsigned(&house.install(&elsewhere, ""));

    let now = house.plugin();
    assert_eq!(
        (&now["digest"], &now["pending"]),
        (&serving["digest"], &Value::Null)
    );
    assert_eq!(now["revisions"].as_array().map(Vec::len), Some(1), "{now}");
    let place = |name: &str| format!("{}/{name}", registry.authority());
    let mut refused = by_both(&["signature"], &place("acme/shape"));
    refused.insert(["signature", &place("other/shape"), "installPlugin"].map(str::to_owned));
    assert_eq!(house.turned_down("registry.denied"), refused);
    house.server.acquire(&box_).expect(201);
    // Signed by the key that counts, beside the stranger's signature, it is installed.
    house.push_signed(&house.acme, &next, &name("2.0"), &[]);
    let upgraded = house.install(&name("2.0"), "").expect(201);
    assert_eq!(upgraded["version"], "2.0.0", "{upgraded}");
}

#[test]
fn a_signature_for_another_manifest_or_place_is_refused_although_the_right_key_made_it() {
    let registry = FalseRegistry::start().expect("a registry");
    let Some(house) = House::with(&source(&registry.authority(), "['acme']", "")) else {
        return;
    };
    let component = shaped(&modest());
    let digest = registry.publish("acme/shape", "1.0", &component);
    let place = format!("{}/acme/shape", registry.authority());
    let other = leasehold_parts::digest_of(b"another manifest");
    let payload = |digest: &str, place: &str| {
        json!({ "critical": { "identity": { "docker-reference": place },
            "image": { "docker-manifest-digest": digest },
            "type": "cosign container image signature" }, "optional": null })
        .to_string()
    };
    let sign = |payload: &str| {
        let kind = "application/vnd.dev.cosign.simplesigning.v1+json";
        let mut layer = descriptor(kind, payload.as_bytes());
        let signature = house.acme.sign(payload.as_bytes());
        layer["annotations"] = json!({ "dev.cosignproject.cosign/signature": signature });
        registry.lay_blob("acme/shape", payload.as_bytes());
        let tag = digest.replace(':', "-") + ".sig";
        registry.lay_manifest("acme/shape", &tag, &manifest(&[layer]));
    };
    let name = format!("oci://{place}:1.0");
    for (payload, words) in [
        (payload(&other, &place), other.clone()),
        (
            payload(&digest, "elsewhere.example/acme/shape"),
            "elsewhere.example".to_owned(),
        ),
        ("{}".to_owned(), "not a payload".to_owned()),
    ] {
        sign(&payload);
        registry.take_heard();
        let told = unsigned(&house.install(&name, ""));
        assert!(told.contains(&words), "{told}");
        let asked = registry.take_heard();
        let blob = leasehold_parts::digest_of(&component);
        assert!(
            !asked.iter().any(|one| one.contains(&blob)),
            "it was fetched: {asked:?}"
        );
    }
    assert_eq!(house.server.get("/api/plugins"), json!([]));
    sign(&payload(&digest, &place));
    let waits = house.install(&name, "").expect(201);
    assert_eq!(waits["source"]["signedBy"], "acme");
}

#[test]
fn the_same_component_again_says_by_whom_it_is_signed_and_where_that_was_found() {
    let registry = FalseRegistry::start().expect("a registry");
    let settings = source(&registry.authority(), "['acme']", "");
    let Some(house) = House::with(&settings) else {
        return;
    };
    let component = shaped(&modest());
    let send = || {
        house
            .server
            .upload("POST", "/api/plugins", "application/wasm", &component)
            .expect(201)
    };
    let waits = send();
    assert_eq!(waits["source"]["reference"], Value::Null, "{waits}");
    house.server.json(&["plugin", "grant", "shape", "--yes"]);

    // The same bytes, signed, from the registry: nothing is compared or granted anew, and what is shown is true.
    let digest = registry.publish("acme/shape", "1.0", &component);
    let place = format!("{}/acme/shape", registry.authority());
    let payload = json!({ "critical": { "identity": { "docker-reference": place },
        "image": { "docker-manifest-digest": digest },
        "type": "cosign container image signature" }, "optional": null })
    .to_string();
    let kind = "application/vnd.dev.cosign.simplesigning.v1+json";
    let mut layer = descriptor(kind, payload.as_bytes());
    let signature = house.acme.sign(payload.as_bytes());
    layer["annotations"] = json!({ "dev.cosignproject.cosign/signature": signature });
    registry.lay_blob("acme/shape", payload.as_bytes());
    let tag = digest.replace(':', "-") + ".sig";
    registry.lay_manifest("acme/shape", &tag, &manifest(&[layer]));
    let pulled = house.install(&format!("oci://{place}:1.0"), "").expect(201);
    let is_signed = |plugin: &Value| {
        assert_eq!(
            plugin["source"]["reference"],
            json!(format!("oci://{place}:1.0@{digest}"))
        );
        assert_eq!(
            (
                &plugin["source"]["signedBy"],
                &plugin["source"]["signedDigest"]
            ),
            (&json!("acme"), &json!(digest))
        );
        assert_eq!(plugin["revisions"].as_array().map(Vec::len), Some(1));
        assert_eq!(plugin["status"], "working");
    };
    is_signed(&pulled);
    // As a file once more, which nobody signed: the signature that was verified is no less true.
    is_signed(&send());
    let all = house.server.get("/api/activity?limit=500&subject=shape");
    let came: Vec<&Value> = all["items"]
        .as_array()
        .into_iter()
        .flatten()
        .filter(|one| one["action"] == "plugin.came_again")
        .map(|one| &one["details"])
        .collect();
    assert_eq!(came.len(), 2, "{all}");
    assert_eq!(came[1]["source"]["signed"]["key"], "acme", "{all}");
    assert_eq!(came[1]["before"]["registry"], Value::Null, "{all}");
    assert_eq!(
        (&came[0]["source"]["signed"], &came[0]["kept"]),
        (&Value::Null, &json!(true)),
        "{all}"
    );
}

#[test]
fn a_file_needs_a_signature_where_the_settings_ask_for_one() {
    let Some(house) = House::with("[plugins.files]\nsigned-by = ['acme']\n") else {
        return;
    };
    let component = shaped(&modest());
    let file = house.file("shape.wasm", &component);
    let send = |path: &str| {
        house
            .server
            .upload("POST", path, "application/wasm", &component)
    };
    for path in ["/api/plugins", "/api/plugins/inspect"] {
        let told = unsigned(&send(path));
        assert!(told.contains("must be by the key acme"), "{told}");
    }
    let stranger = house.file("stranger.sig", KeyPair::generate().sign(&component));
    let refused = house
        .server
        .run(&["plugin", "install", &file, "--signature", &stranger]);
    assert_eq!(refused.code, 2, "{refused:?}");
    assert!(
        refused.stderr.contains("none of its signatures"),
        "{refused:?}"
    );
    assert_eq!(house.server.get("/api/plugins"), json!([]));
    let digest = leasehold_parts::digest_of(&component);
    let refused = by_both(&["signature"], digest.trim_start_matches("sha256:"));
    assert_eq!(house.turned_down("component.refused"), refused);

    let good = house.file("good.sig", house.acme.sign(&component) + "\n");
    let installed = house
        .server
        .json(&["plugin", "install", &file, "--signature", &good, "--yes"]);
    assert_eq!(installed["source"]["signedBy"], "acme", "{installed}");
    assert_eq!(
        installed["source"]["signedDigest"],
        json!(format!("sha256:{}", text(&installed["digest"])))
    );
    assert_eq!(installed["source"]["registry"], Value::Null);
}

#[test]
fn a_signature_that_nobody_looks_at_is_not_taken_as_if_somebody_did() {
    let Some(server) = Server::start() else {
        return;
    };
    let component = shaped(&modest());
    let refused = server.upload(
        "POST",
        "/api/plugins?signature=AAAA",
        "application/wasm",
        &component,
    );
    assert_eq!(refused.code(), "invalid", "{}", refused.body);
    assert_eq!(
        refused.json()["details"]["violations"][0]["pointer"],
        "/signature"
    );
}

#[test]
fn a_file_is_looked_at_with_its_signature_and_a_key_without_a_server() {
    let Some(server) = Server::new(&[]) else {
        return;
    };
    let component = shaped(&modest());
    let write = |name: &str, bytes: &[u8]| {
        let path = server.path().join(name);
        std::fs::write(&path, bytes).expect("a file");
        path.display().to_string()
    };
    let (acme, stranger) = (KeyPair::generate(), KeyPair::generate());
    let file = write("shape.wasm", &component);
    let signature = write("shape.sig", acme.sign(&component).as_bytes());
    let key = write("acme.pub", acme.public().as_bytes());
    let other = write("other.pub", stranger.public().as_bytes());
    let inspect = |flags: &[&str]| server.run(&[&["plugin", "inspect", &file], flags].concat());
    let good = inspect(&["--signature", &signature, "--key", &key]);
    assert!(
        good.stdout.contains(&format!("signed by the key {key}")),
        "{good:?}"
    );
    let bad = inspect(&["--signature", &signature, "--key", &other]);
    assert_eq!(bad.code, 2, "{bad:?}");
    for half in [&["--signature", &signature][..], &["--key", &key]] {
        assert_eq!(inspect(half).code, 2, "{half:?}");
    }
    let no_key = inspect(&["--signature", &signature, "--key", &file]);
    assert!(no_key.stderr.contains("shape.wasm"), "{no_key:?}");
    assert!(inspect(&[]).stdout.contains("\nsignature: not given\n"));
}

#[test]
fn a_server_whose_settings_name_a_key_that_is_none_does_not_start() {
    let folder = tempfile::tempdir().expect("a folder");
    let key = folder.path().join("acme.pub");
    let file = folder.path().join("leasehold.toml");
    let table = format!("[plugins.keys]\nacme = '{}'\n", key.display());
    std::fs::write(&file, table).expect("a file");
    for (text, words) in [
        (None, "plugins.keys.acme"),
        (Some("no key"), "BEGIN PUBLIC KEY"),
    ] {
        if let Some(text) = text {
            std::fs::write(&key, text).expect("a file");
        }
        let Some(mut server) = Server::new(&["--config", &file.display().to_string()]) else {
            return;
        };
        server.spawn();
        assert_eq!(server.wait_end().code(), Some(2), "{}", server.log());
        assert!(server.log().contains(words), "{}", server.log());
    }
}

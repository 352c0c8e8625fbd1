//! Docker's registry: publishing, installing, upgrading, going back, removing; with an account, and over TLS.

use leasehold_parts::{Registry, RegistryOptions};
use leasehold_tests::http::text;
use leasehold_tests::shape::{Wider, changed, exclusive, modest, shaped, wider};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use serde_json::json;

use crate::house::{House, pushed, registry, source};

const ACCOUNT: &str = "username = 'ci'\npassword-secret = 'registry'";

/// A registry with an account, a server that has it, and the flags to publish there.
fn with_account(signed_by: &str) -> Option<(Registry, House, Vec<String>)> {
    let registry = registry(&RegistryOptions {
        account: true,
        tls: None,
    })?;
    let house = House::with(&source(&registry.authority(), signed_by, ACCOUNT))?;
    let password = house.file("password", format!("{}\n", Registry::PASSWORD));
    let flags = [
        "--username",
        Registry::USERNAME,
        "--password-file",
        &password,
    ];
    let flags = flags.iter().map(|&flag| flag.to_owned()).collect();
    house.server.json(&[
        "secret",
        "set",
        "registry",
        "--instance",
        "--purpose",
        "password",
        "--file",
        &password,
    ]);
    Some((registry, house, flags))
}

#[test]
fn a_signed_plugin_is_published_installed_granted_upgraded_rolled_back_and_removed() {
    let Some((registry, house, flags)) = with_account("['acme']") else {
        return;
    };
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let name = format!("oci://{}/acme/shape", registry.authority());
    let first = house.shape("first.wasm", &modest());
    let pinned = house.push_signed(&house.acme, &first, &format!("{name}:1.0"), &flags);
    assert!(
        pinned.starts_with(&format!("{name}:1.0@sha256:")),
        "{pinned}"
    );

    // It waits, and shows where it came from and who signed it.
    let waits = house.install(&format!("{name}:1.0"), "").expect(201);
    assert_eq!(waits["status"], "pending", "{waits}");
    let source = &waits["source"];
    assert_eq!(source["reference"], json!(pinned), "{source}");
    assert_eq!(source["registry"], json!(registry.authority()));
    assert_eq!(
        (&source["repository"], &source["tag"], &source["signedBy"]),
        (&json!("acme/shape"), &json!("1.0"), &json!("acme"))
    );
    assert_eq!(source["signedDigest"], source["manifestDigest"]);
    let shown = house.server.run(&["plugin", "show", "shape"]);
    assert!(
        shown.stdout.contains(&pinned) && shown.stdout.contains("signed by the key acme"),
        "{shown:?}"
    );
    house.server.json(&["plugin", "grant", "shape", "--yes"]);
    let box_ = house.environment();
    let old = house.server.acquire(&box_).expect(201);

    // One that asks for no more serves at once, and back is one step.
    let second = house.shape(
        "second.wasm",
        &changed(json!({ "version": "1.1.0", "memoryMib": 16 })),
    );
    let second_pinned = house.push_signed(&house.acme, &second, &format!("{name}:1.1"), &flags);
    let now = house
        .server
        .json(&["plugin", "install", &format!("{name}:1.1")]);
    assert_eq!(
        (&now["version"], &now["source"]["reference"]),
        (&json!("1.1.0"), &json!(second_pinned))
    );
    let revisions = now["revisions"].as_array().cloned().unwrap_or_default();
    let first = revisions.last().cloned().unwrap_or_default();
    assert_eq!(
        (&first["source"]["tag"], &first["state"]),
        (&json!("1.0"), &json!("previous"))
    );
    let back = house.server.json(&["plugin", "rollback", "shape"]);
    assert_eq!(back["source"]["reference"], json!(pinned));

    // What it was is known after a start, and the registry is not asked for it.
    let mut house = house;
    drop(registry);
    house.server.restart();
    assert_eq!(house.plugin()["source"]["reference"], json!(pinned));
    assert_eq!(
        house.server.release(&text(&old["id"]))["status"],
        "released"
    );
    house
        .server
        .call("DELETE", &format!("/api/environments/{box_}"), None)
        .expect(200);
    house.server.json(&["plugin", "remove", "shape"]);
    assert_eq!(
        house.server.call("GET", "/api/plugins/shape", None).status,
        404
    );
}

#[test]
fn each_kind_of_wider_upgrade_waits_in_words_serves_once_granted_and_is_one_step_back() {
    let Some(registry) = registry(&RegistryOptions::default()) else {
        return;
    };
    let Some(house) = House::with(&source(&registry.authority(), "['acme']", "")) else {
        return;
    };
    let name = format!("oci://{}/acme/shape", registry.authority());
    let first = house.shape("first.wasm", &modest());
    house.push_signed(&house.acme, &first, &format!("{name}:1.0"), &[]);
    let first = text(&house.granted(&format!("{name}:1.0"))["digest"]);
    // Publishes it, and shows it waiting beside the old one; answers its digest.
    let waits = |at: usize, words: &str, component: &[u8]| {
        let file = house.file("wider.wasm", component);
        let tag = format!("wider-{at}");
        house.push_signed(&house.acme, &file, &format!("{name}:{tag}"), &[]);
        let waits = house.install(&format!("{name}:{tag}"), "").expect(201);
        let told = waits["pending"]["wider"].as_array().cloned();
        let told = told.unwrap_or_default();
        let in_words = told.iter().any(|one| text(one).contains(words));
        assert!(in_words, "{words}: {told:?}");
        let source = &waits["pending"]["source"];
        assert_eq!(
            (&source["tag"], &source["signedBy"]),
            (&json!(tag), &json!("acme")),
            "{words}"
        );
        assert_eq!(waits["digest"], json!(first), "{words}: the old one serves");
        assert_eq!(waits["source"]["tag"], json!("1.0"), "{words}");
        text(&waits["pending"]["digest"])
    };
    let grants_and_goes_back = |words: &str, digest: &str, between: &dyn Fn()| {
        let granted = house.server.json(&["plugin", "grant", "shape", "--yes"]);
        assert_eq!(granted["digest"], json!(digest), "{words}");
        assert_eq!(granted["pending"], json!(null), "{words}");
        between();
        let back = house.server.json(&["plugin", "rollback", "shape"]);
        assert_eq!(back["digest"], json!(first), "{words}");
        assert_eq!(back["source"]["tag"], json!("1.0"), "{words}");
    };
    // Another driver is refused while an environment of the old one is there.
    let other = shaped(&changed(json!({ "driver": "plugin" })));
    let box_ = house.environment();
    let file = house.file("other.wasm", &other);
    house.push_signed(&house.acme, &file, &format!("{name}:other"), &[]);
    let refused = house.install(&format!("{name}:other"), "");
    assert_eq!(refused.code(), "plugin_in_use", "{}", refused.body);
    let path = format!("/api/environments/{box_}");
    house.server.call("DELETE", &path, None).expect(200);
    let words = "leases plugin environments instead of sandbox";
    let digest = waits(0, words, &other);
    grants_and_goes_back(words, &digest, &|| {
        assert_eq!(house.plugin()["driver"], "plugin");
    });

    let box_ = house.environment();
    let leased = |digest: &str, words: &str| {
        let lease = house.server.acquire(&box_).expect(201);
        assert_eq!(lease["pluginDigest"], json!(digest), "{words}");
        text(&lease["id"])
    };
    for (at, Wider { words, component }) in wider().into_iter().enumerate() {
        let digest = waits(at + 1, words, &component);
        let old = leased(&first, words);
        grants_and_goes_back(words, &digest, &|| {
            // A check of what the environment has no address for holds for no lease.
            if !words.contains("the check") {
                let new = leased(&digest, words);
                assert_eq!(house.server.release(&new)["status"], "released", "{words}");
            }
        });
        assert_eq!(house.server.release(&old)["status"], "released", "{words}");
        let again = leased(&first, words);
        house.server.release(&again);
    }
}

#[test]
fn an_upgrade_that_would_lease_an_account_to_several_waits_in_words_for_its_own_grant() {
    let Some(registry) = registry(&RegistryOptions::default()) else {
        return;
    };
    let Some(house) = House::with(&source(&registry.authority(), "'anyone'", "")) else {
        return;
    };
    let name = format!("oci://{}/acme/shape", registry.authority());
    let alone = house.shape("alone.wasm", &exclusive());
    pushed(house.push(&alone, &format!("{name}:1.0"), &[]));
    let first = text(&house.granted(&format!("{name}:1.0"))["digest"]);
    let shared = changed(json!({ "ssh": true, "version": "2.0.0" }));
    let shared = house.shape("shared.wasm", &shared);
    pushed(house.push(&shared, &format!("{name}:2.0"), &[]));
    let waits = house.install(&format!("{name}:2.0"), "").expect(201);
    let told = waits["pending"]["wider"].to_string();
    assert!(told.contains("leases may share an account"), "{told}");
    assert_eq!(waits["digest"], json!(first));
    let granted = house.server.json(&["plugin", "grant", "shape", "--yes"]);
    assert_eq!(granted["version"], json!("2.0.0"));
    let back = house.server.json(&["plugin", "rollback", "shape"]);
    assert_eq!(back["digest"], json!(first));
}

#[test]
fn what_was_shown_is_installed_also_where_its_tag_has_moved_since() {
    let Some(registry) = registry(&RegistryOptions::default()) else {
        return;
    };
    let Some(house) = House::with(&source(&registry.authority(), "'anyone'", "")) else {
        return;
    };
    let name = format!("oci://{}/shape:latest", registry.authority());
    let first = house.shape("first.wasm", &modest());
    let ran = house.push(&first, &name, &[]);
    let digest = pushed(ran);
    let shown = house.inspect(&name).expect(200);
    assert_eq!(shown["source"]["reference"], json!(digest));
    assert_eq!(shown["source"]["signedBy"], json!(null));
    // The same again sends nothing and names the same.
    let again = house.push(&first, &name, &[]);
    assert!(again.stdout.contains("\"blobsSent\": 0"), "{again:?}");
    assert_eq!(pushed(again), digest);

    let moved = house.shape(
        "moved.wasm",
        &changed(json!({ "ssh": true, "version": "6.6.6" })),
    );
    assert_ne!(pushed(house.push(&moved, &name, &[])), digest);
    // By its tag, what was read and granted is not what is there.
    let grant = text(&shown["requestDigest"]);
    let refused = house.install(&name, &format!("?grant={grant}"));
    assert_eq!(refused.code(), "grant_mismatch", "{}", refused.body);
    assert_eq!(house.server.get("/api/plugins"), json!([]));
    // By its digest, it is.
    let installed = house
        .install(&digest, &format!("?grant={grant}"))
        .expect(201);
    assert_eq!(
        (&installed["version"], &installed["status"]),
        (&json!("1.0.0"), &json!("working"))
    );
}

#[test]
fn an_account_is_needed_its_password_is_a_secret_of_the_instance_and_each_use_is_on_record() {
    let Some((registry, house, flags)) = with_account("'anyone'") else {
        return;
    };
    let name = format!("oci://{}/shape:1", registry.authority());
    let file = house.shape("shape.wasm", &modest());
    let nobody = house.push(&file, &name, &[]);
    assert!(nobody.stderr.contains("its source has none"), "{nobody:?}");
    assert_eq!(nobody.code, 4, "{nobody:?}");
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    pushed(house.push(&file, &name, &flags));
    // As `docker login` keeps it.
    let kept = json!({ "auths": { registry.authority(): {
        "auth": "Y2k6Y2FuYXJ5LXBhc3N3b3Jk" } } });
    house.file("config.json", kept.to_string());
    let docker = house
        .server
        .leasehold()
        .env("DOCKER_CONFIG", house.folder.path())
        .args(["plugin", "push", &file, &name, "--plain-http"])
        .output()
        .expect("the client runs");
    assert!(docker.status.success(), "{docker:?}");

    house.granted(&name);
    let access = house
        .server
        .json(&["secret", "access", "registry", "--instance"]);
    let access = access["items"]
        .as_array()
        .cloned()
        .unwrap_or(access.as_array().cloned().unwrap_or_default());
    assert_eq!(access.len(), 2, "looked at, and installed: {access:?}");
    assert_eq!(
        (&access[0]["purpose"], &access[0]["companyId"]),
        (&json!("pull"), &json!(null))
    );
    assert_eq!(
        access[0]["destinations"],
        json!([format!("registry://{}", registry.authority())])
    );

    // A wrong password is told as that, and the old revision serves on.
    let wrong = house.file("wrong", "canary-wrong");
    house.server.json(&[
        "secret",
        "rotate",
        "registry",
        "--instance",
        "--file",
        &wrong,
    ]);
    let refused = house.install(&name, "");
    assert_eq!(refused.code(), "target_unauthenticated", "{}", refused.body);
    assert_eq!(refused.json()["details"]["reason"], "unauthenticated");
    let used = house
        .server
        .run(&["secret", "delete", "registry", "--instance"]);
    assert_eq!(used.code, 5, "{used:?}");
    assert!(used.stderr.contains("plugins.sources"), "{used:?}");
    house
        .server
        .json(&["secret", "delete", "registry", "--instance", "--force"]);
    let missing = house.install(&name, "");
    assert_eq!(missing.code(), "secret_missing", "{}", missing.body);
    assert_eq!(house.plugin()["status"], "working");
    let (log, database) = (house.server.log(), house.server.data().join("leasehold.db"));
    let database = std::fs::read(database).expect("the database");
    for canary in [Registry::PASSWORD, "canary-wrong"] {
        assert!(!log.contains(canary), "{log}");
        let bytes = canary.as_bytes();
        assert!(!database.windows(bytes.len()).any(|some| some == bytes));
    }
}

#[test]
fn a_registry_over_tls_is_trusted_by_the_authority_of_its_source_and_by_no_other() {
    let issued = || {
        let mut params = CertificateParams::new(Vec::new()).expect("parameters");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key");
        CertifiedIssuer::self_signed(params, key).expect("an authority")
    };
    let (ours, theirs) = (issued(), issued());
    let key = KeyPair::generate().expect("a key");
    let params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).expect("parameters");
    let certificate = params.signed_by(&key, &ours).expect("a certificate");
    let Some(registry) = registry(&RegistryOptions {
        account: false,
        tls: Some((certificate.pem(), key.serialize_pem())),
    }) else {
        return;
    };
    let folder = tempfile::tempdir().expect("a folder");
    let ca = |name: &str, pem: String| {
        let path = folder.path().join(name);
        std::fs::write(&path, pem).expect("a file");
        path.display().to_string()
    };
    let (ours, theirs) = (ca("ours", ours.pem()), ca("theirs", theirs.pem()));
    let table = |ca: &str| {
        format!(
            "[[plugins.sources]]\nregistry = '{}'\nsigned-by = 'anyone'\nca = '{ca}'\n",
            registry.authority()
        )
    };
    let Some(house) = House::with(&table(&ours)) else {
        return;
    };
    let name = format!("oci://{}/shape:1", registry.authority());
    let file = house.shape("shape.wasm", &modest());
    let push = |ca: &str| {
        house
            .server
            .run(&["--json", "plugin", "push", &file, &name, "--ca", ca])
    };
    let stranger = push(&theirs);
    assert_eq!(stranger.code, 1, "{stranger:?}");
    assert!(
        stranger.stderr.contains("signed by no authority"),
        "{stranger:?}"
    );
    pushed(push(&ours));
    house.granted(&name);
    let Some(house) = House::with(&table(&theirs)) else {
        return;
    };
    let refused = house.install(&name, "");
    assert_eq!(refused.code(), "untrusted_peer", "{}", refused.body);
}

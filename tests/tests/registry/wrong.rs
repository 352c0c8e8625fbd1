//! A registry that does what it should not, asked by a server: every fault is told, nothing of it is kept, and what served
//! goes on serving.

use leasehold_parts::{FalseRegistry, Hang, MANIFEST, Reply, descriptor, digest_of, manifest};
use leasehold_tests::http::text;
use leasehold_tests::shape::{changed, modest, shaped};
use serde_json::{Value, json};

use crate::house::{House, by_both, source};

#[test]
fn each_fault_of_a_registry_is_told_and_leaves_the_old_revision_serving_and_nothing_else() {
    let registry = FalseRegistry::start().expect("a registry");
    let settings = source(&registry.authority(), "'anyone'", "");
    let Some(house) = House::with(&settings) else {
        return;
    };
    registry.publish("shape", "1.0", &shaped(&modest()));
    let name = |tag: &str| format!("oci://{}/shape:{tag}", registry.authority());
    let serving = house.granted(&name("1.0"));
    let box_ = house.environment();
    let done = "/api/activity?outcome=done&limit=500";
    let activity = || house.server.get(done)["items"].to_string();
    let before = activity();

    let next = shaped(&changed(json!({ "version": "2.0.0" })));
    let mut swapped = next.clone();
    if let Some(last) = swapped.last_mut() {
        *last ^= 1;
    }
    let blob = format!("/v2/shape/blobs/{}", digest_of(&next));
    let tag = "/v2/shape/manifests/2.0".to_owned();
    let challenge = Reply::refusal(401, "UNAUTHORIZED").with(
        "www-authenticate",
        "Bearer realm=\"https://auth.example/token\"",
    );
    let image = manifest(&[descriptor("application/vnd.oci.image.layer.v1.tar", b"x")]);
    let faults = [
        (&blob, Reply::new(200, swapped), "registry_failed", "digest"),
        (
            &blob,
            Reply::new(200, &next[..1000]).of_length(next.len()),
            "registry_failed",
            "truncated",
        ),
        (
            &blob,
            Reply::new(200, &next[..1000]),
            "registry_failed",
            "size",
        ),
        (
            &blob,
            Reply::new(200, next.clone()).with("content-encoding", "gzip"),
            "registry_failed",
            "encoded",
        ),
        (
            &blob,
            Reply::new(307, "").with("location", "https://169.254.169.254/latest"),
            "egress_denied",
            "unreachable",
        ),
        (
            &blob,
            Reply::new(307, "").with("location", "http://127.0.0.1:9/blob"),
            "egress_denied",
            "redirect",
        ),
        (&tag, challenge, "egress_denied", "realm"),
        (
            &tag,
            Reply::refusal(401, "UNAUTHORIZED").with("www-authenticate", "Basic realm=x"),
            "target_unauthenticated",
            "no-credential",
        ),
        (
            &tag,
            Reply::refusal(403, "DENIED"),
            "target_unauthenticated",
            "denied",
        ),
        (
            &tag,
            Reply::refusal(404, "MANIFEST_UNKNOWN"),
            "not_found",
            "not-found",
        ),
        (
            &tag,
            Reply::refusal(429, "TOOMANYREQUESTS").with("retry-after", "23"),
            "rate_limited",
            "rate-limited",
        ),
        (
            &tag,
            Reply::refusal(500, "UNKNOWN"),
            "target_unavailable",
            "failed",
        ),
        (
            &tag,
            Reply::new(200, image.to_string()).with("content-type", MANIFEST),
            "invalid_component",
            "not-a-component",
        ),
        (&tag, Reply::new(200, "{}"), "registry_failed", "malformed"),
        (
            &tag,
            Reply::new(200, vec![b' '; 5 << 20]),
            "registry_failed",
            "too-large",
        ),
    ];
    for (path, reply, code, reason) in faults {
        registry.publish("shape", "2.0", &next);
        registry.lay(path, reply);
        for refused in [house.inspect(&name("2.0")), house.install(&name("2.0"), "")] {
            assert_eq!(refused.code(), code, "{reason}: {}", refused.body);
            assert_eq!(
                refused.json()["details"]["reason"],
                reason,
                "{}",
                refused.body
            );
            let waits = refused.head.contains("retry-after: 23");
            assert_eq!(waits, reason == "rate-limited", "{}", refused.head);
        }
        let now = house.plugin();
        assert_eq!(now["digest"], serving["digest"], "{reason}");
        assert_eq!(now["revisions"].as_array().map(Vec::len), Some(1), "{now}");
    }
    // What was looked at and what is fetched next are not the same bytes.
    registry.publish("shape", "2.0", &next);
    let shown = house.inspect(&name("2.0")).expect(200);
    registry.publish(
        "shape",
        "2.0",
        &shaped(&changed(json!({ "version": "6.6.6" }))),
    );
    let grant = text(&shown["requestDigest"]);
    let refused = house.install(&name("2.0"), &format!("?grant={grant}"));
    assert_eq!(refused.code(), "grant_mismatch", "{}", refused.body);

    assert_eq!(activity(), before, "nothing of it was done");
    // What this server's own rules refused is on record, and not what the registry did not give.
    let place = format!("{}/shape", registry.authority());
    let mut refused = by_both(&["address", "digest", "realm", "redirect"], &place);
    refused.insert(["grant", &place, "installPlugin"].map(str::to_owned));
    assert_eq!(house.turned_down("registry.denied"), refused);
    house.server.acquire(&box_).expect(201);
}

#[test]
fn a_registry_that_hangs_is_given_up_when_the_time_of_the_settings_is_over() {
    let registry = FalseRegistry::start().expect("a registry");
    let settings = source(&registry.authority(), "'anyone'", "");
    let Some(mut house) = House::with(&settings) else {
        return;
    };
    let file = house.folder.path().join("leasehold.toml");
    let patient = std::fs::read_to_string(&file).expect("the settings");
    let hasty = patient.replace("pull-seconds = 60", "pull-seconds = 1");
    std::fs::write(&file, hasty).expect("the settings");
    house.server.restart();
    let component = shaped(&modest());
    registry.publish("shape", "1.0", &component);
    let name = format!("oci://{}/shape:1.0", registry.authority());
    let blob = format!("/v2/shape/blobs/{}", digest_of(&component));
    for reply in [
        Reply::new(200, "").hanging(Hang::BeforeTheHead),
        Reply::new(200, &component[..10])
            .of_length(component.len())
            .hanging(Hang::AfterTheBody),
    ] {
        registry.lay(&blob, reply);
        let refused = house.install(&name, "");
        assert_eq!(refused.code(), "target_unavailable", "{}", refused.body);
        assert_eq!(
            refused.json()["details"]["reason"],
            "deadline",
            "{}",
            refused.body
        );
    }
    assert_eq!(house.server.get("/api/plugins"), json!([]));
}

#[test]
fn what_is_no_source_is_refused_by_its_field_before_anybody_is_asked() {
    let registry = FalseRegistry::start().expect("a registry");
    let other = FalseRegistry::start().expect("a registry");
    let settings = source(
        &registry.authority(),
        "'anyone'",
        "repositories = ['acme/']",
    );
    let Some(house) = House::with(&settings) else {
        return;
    };
    for (reference, words) in [
        (
            format!("oci://{}/acme/shape:1", other.authority()),
            "is no source of this server",
        ),
        (
            format!("oci://{}/shape:1", registry.authority()),
            "only acme/ may be used",
        ),
        (
            format!("oci://{}/acmes/shape:1", registry.authority()),
            "only acme/ may be used",
        ),
        (
            format!("{}/acme/shape:1", registry.authority()),
            "is not a reference",
        ),
        (
            format!("oci://{}/acme/Shape", registry.authority()),
            "the repository",
        ),
    ] {
        for refused in [house.inspect(&reference), house.install(&reference, "")] {
            assert_eq!(refused.code(), "invalid", "{}", refused.body);
            let violation = &refused.json()["details"]["violations"][0];
            assert_eq!(violation["pointer"], "/reference", "{}", refused.body);
            assert!(
                text(&violation["message"]).contains(words),
                "{}",
                refused.body
            );
        }
    }
    assert!(registry.heard().is_empty() && other.heard().is_empty());
    let place = |registry: &FalseRegistry, name: &str| format!("{}/{name}", registry.authority());
    let mut refused = by_both(&["source"], &place(&other, "acme/shape"));
    refused.extend(by_both(&["source"], &place(&registry, "shape")));
    refused.extend(by_both(&["source"], &place(&registry, "acmes/shape")));
    assert_eq!(house.turned_down("registry.denied"), refused);
    let both = house.server.call(
        "POST",
        "/api/plugins?signature=AAAA",
        Some(&json!({ "reference": format!("oci://{}/acme/shape:1", registry.authority()) })),
    );
    assert_eq!(both.code(), "bad_request", "{}", both.body);
    // Nobody but an administrator fetches anything.
    house.server.company();
    let made = house
        .server
        .json(&["token", "create", "m", "--role", "member"]);
    let token = format!("Bearer {}", text(&made["secret"]));
    let headers = [
        ("host", "localhost"),
        ("content-type", "application/json"),
        ("authorization", token.as_str()),
    ];
    let body: Value =
        json!({ "reference": format!("oci://{}/acme/shape:1", registry.authority()) });
    for path in ["/api/plugins", "/api/plugins/inspect"] {
        let refused = house.server.tcp("POST", path, &headers, &body.to_string());
        assert_eq!(refused.status, 403, "{}", refused.body);
    }
    assert!(registry.heard().is_empty());
}

#[test]
fn what_the_command_showed_is_what_it_installs_whatever_the_tag_stands_for_then() {
    let registry = FalseRegistry::start().expect("a registry");
    let Some(house) = House::with(&source(&registry.authority(), "'anyone'", "")) else {
        return;
    };
    let shown = shaped(&modest());
    let swapped = shaped(&changed(json!({ "ssh": true, "version": "6.6.6" })));
    let reply = |component: &[u8]| {
        registry.lay_blob("shape", component);
        let layer = descriptor("application/wasm", component);
        let manifest = manifest(&[layer]);
        registry.lay_manifest("shape", "unused", &manifest);
        Reply::new(200, manifest.to_string()).with("content-type", MANIFEST)
    };
    let each = vec![reply(&shown), reply(&swapped)];
    registry.lay_each("/v2/shape/manifests/1.0", each);
    let name = format!("oci://{}/shape:1.0", registry.authority());
    let installed = house.server.json(&["plugin", "install", &name, "--yes"]);
    assert_eq!(
        (&installed["version"], &installed["source"]["tag"]),
        (&json!("1.0.0"), &json!("1.0")),
        "{installed}"
    );
}

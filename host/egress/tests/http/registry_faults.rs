//! What a registry may do wrong, each told as what it is, and never a component handed on.

use leasehold_egress::{Stage, publication, signing_payload};
use leasehold_parts::{Hang, MANIFEST, Reply, descriptor, digest_of, manifest};
use serde_json::json;

use crate::registry_lab::{COMPONENT, Lab, ms};
use crate::server::within;

#[tokio::test]
async fn a_component_is_pulled_by_tag_and_by_digest_and_each_name_is_resolved_once() {
    let lab = Lab::published();
    let pull = lab.begin(":1.0").await.unwrap();
    let digest = pull.resolved().manifest.to_string();
    assert_eq!(pull.resolved().component.to_string(), digest_of(COMPONENT));
    assert_eq!(pull.component().await.unwrap(), COMPONENT);
    let tag = format!("GET {}", lab.path("manifests/1.0"));
    let blob = format!("GET {}", lab.component_path());
    assert_eq!(lab.registry.take_heard(), [tag, blob]);
    let pinned = lab.begin(&format!(":gone@{digest}")).await.unwrap();
    assert_eq!(pinned.component().await.unwrap(), COMPONENT);
    assert!(lab.resolved().is_empty() && lab.dialled_elsewhere().is_empty());
}

#[tokio::test]
async fn each_status_is_told_as_what_it_is() {
    for (status, code, reason, words) in [
        (403, "DENIED", "denied", "DENIED"),
        (
            404,
            "MANIFEST_UNKNOWN",
            "not-found",
            "(404), MANIFEST_UNKNOWN",
        ),
        (429, "TOOMANYREQUESTS", "rate-limited", "wait 17 s"),
        (500, "UNKNOWN", "failed", "(500), UNKNOWN"),
        (503, "UNAVAILABLE", "failed", "503"),
        (418, "TEAPOT", "unexpected", "418, which"),
    ] {
        for at in ["manifests/1.0", "blob"] {
            let lab = Lab::published();
            let path = match at {
                "blob" => lab.component_path(),
                path => lab.path(path),
            };
            lab.registry.lay(
                &path,
                Reply::refusal(status, code).with("retry-after", "17"),
            );
            let (is, told) = lab.refused().await;
            assert_eq!(is, reason, "{at}: {told}");
            assert!(told.contains(words), "{at}: {told}");
            assert!(!told.contains("words of its own"), "{told}");
        }
    }
}

#[tokio::test]
async fn a_retry_after_that_is_a_date_is_read_too() {
    let lab = Lab::published();
    let past = "Sun, 06 Nov 1994 08:49:37 GMT";
    let reply = Reply::refusal(429, "TOOMANYREQUESTS").with("retry-after", past);
    lab.registry.lay(&lab.path("manifests/1.0"), reply);
    let (_, told) = lab.refused().await;
    assert!(told.contains("wait 0 s"), "{told}");
}

#[tokio::test]
async fn other_bytes_than_were_named_are_refused_wherever_they_are_swapped() {
    // The blob is another one of the same size.
    let lab = Lab::published();
    let mut swapped = COMPONENT.to_vec();
    swapped[9] ^= 1;
    lab.registry
        .lay(&lab.component_path(), Reply::new(200, swapped));
    let (reason, told) = lab.refused().await;
    assert_eq!(reason, "digest", "{told}");
    assert!(told.contains(&digest_of(COMPONENT)), "{told}");

    // The manifest is another one than its digest says.
    let lab = Lab::published();
    let other = manifest(&[descriptor("application/wasm", b"other")]);
    let asked = digest_of(b"what was asked for");
    let reply = Reply::new(200, other.to_string()).with("content-type", MANIFEST);
    lab.registry
        .lay(&lab.path(&format!("manifests/{asked}")), reply);
    let error = lab.begin(&format!("@{asked}")).await.unwrap_err();
    assert_eq!(error.why.reason(), "digest", "{error}");

    // The header names another manifest than comes.
    let lab = Lab::published();
    let reply = Reply::new(200, other.to_string())
        .with("content-type", MANIFEST)
        .with("docker-content-digest", &asked);
    lab.registry.lay(&lab.path("manifests/1.0"), reply);
    let (reason, told) = lab.refused().await;
    assert_eq!(reason, "digest", "{told}");
    assert!(told.contains("Docker-Content-Digest"), "{told}");
}

#[tokio::test]
async fn an_answer_of_another_size_or_without_an_end_is_told_as_that() {
    let whole = || Reply::new(200, COMPONENT);
    let longer = [COMPONENT, b"more"].concat();
    for (what, reply, reason) in [
        (
            "truncated",
            Reply::new(200, &COMPONENT[..20]).of_length(COMPONENT.len()),
            "truncated",
        ),
        ("short", Reply::new(200, &COMPONENT[..20]), "size"),
        ("long", Reply::new(200, longer.clone()), "size"),
        ("empty", Reply::new(200, ""), "size"),
        (
            "lied longer",
            whole().of_length(COMPONENT.len() + 9),
            "size",
        ),
        ("lied shorter", whole().of_length(9), "size"),
    ] {
        let lab = Lab::published();
        lab.registry.lay(&lab.component_path(), reply);
        let (is, told) = within(lab.refused()).await;
        assert_eq!(is, reason, "{what}: {told}");
    }
}

#[tokio::test]
async fn what_is_larger_than_is_taken_is_refused_before_it_is_fetched() {
    let mut lab = Lab::published();
    lab.settings.component = COMPONENT.len() as u64 - 1;
    let (reason, told) = lab.refused().await;
    assert_eq!(reason, "too-large", "{told}");
    let asked = lab.registry.take_heard();
    assert!(
        !asked.iter().any(|one| one.contains("/blobs/")),
        "{asked:?}"
    );

    let giant = vec![b' '; (4 << 20) + 1];
    for reply in [
        Reply::new(200, giant.clone()),
        // It says that it is small, and is endless.
        Reply::new(200, "").of_length(5 << 20),
    ] {
        let lab = Lab::published();
        lab.registry.lay(&lab.path("manifests/1.0"), reply);
        let (reason, told) = within(lab.refused()).await;
        assert_eq!(reason, "too-large", "{told}");
    }
}

#[tokio::test]
async fn a_compressed_answer_is_refused_because_nobody_asked_for_one() {
    for path in ["manifests/1.0", "blob"] {
        let lab = Lab::published();
        let path = match path {
            "blob" => lab.component_path(),
            path => lab.path(path),
        };
        lab.registry
            .lay(&path, Reply::new(200, "x").with("content-encoding", "gzip"));
        let (reason, told) = lab.refused().await;
        assert_eq!(reason, "encoded", "{told}");
        assert!(told.contains("gzip"), "{told}");
    }
}

#[tokio::test]
async fn what_is_no_plugin_or_no_manifest_is_told_as_that() {
    let image = manifest(&[descriptor(
        "application/vnd.oci.image.layer.v1.tar+gzip",
        b"x",
    )]);
    for (body, reason) in [
        (image.to_string(), "not-a-component"),
        ("<html>not found</html>".to_owned(), "malformed"),
        ("{}".to_owned(), "malformed"),
    ] {
        let lab = Lab::published();
        let reply = Reply::new(200, body).with("content-type", MANIFEST);
        lab.registry.lay(&lab.path("manifests/1.0"), reply);
        let (is, told) = lab.refused().await;
        assert_eq!(is, reason, "{told}");
    }
}

#[tokio::test]
async fn an_index_leads_to_its_component_by_digest() {
    let lab = Lab::published();
    let one = lab.begin(":1.0").await.unwrap().resolved().clone();
    let (bytes, kind) = (
        manifest(&[descriptor("application/wasm", COMPONENT)]).to_string(),
        "application/vnd.oci.image.index.v1+json",
    );
    let mut entry = descriptor(MANIFEST, bytes.as_bytes());
    entry["platform"] = json!({ "architecture": "wasm", "os": "wasip2" });
    let index = json!({ "schemaVersion": 2, "mediaType": kind, "manifests": [entry] }).to_string();
    let reply = Reply::new(200, index.clone()).with("content-type", kind);
    lab.registry.lay(&lab.path("manifests/many"), reply);
    let pull = lab.begin(":many").await.unwrap();
    // What is signed and recorded is what the name stands for.
    assert_eq!(
        pull.resolved().manifest.to_string(),
        digest_of(index.as_bytes())
    );
    assert_eq!(pull.resolved().component, one.component);
    assert_eq!(pull.component().await.unwrap(), COMPONENT);
}

#[tokio::test]
async fn a_registry_that_hangs_is_given_up_at_each_stage_by_its_deadline() {
    let cut = || {
        Reply::new(200, "{")
            .of_length(100)
            .hanging(Hang::AfterTheBody)
    };
    let mute = || Reply::new(200, "").hanging(Hang::BeforeTheHead);
    let challenge = |lab: &Lab| {
        let realm = format!("Bearer realm=\"http://{}/token\"", lab.registry.authority());
        crate::registry_lab::challenge(&realm)
    };
    for (stage, path) in [
        (Stage::Manifest, "manifests/1.0"),
        (Stage::Signature, "signature"),
        (Stage::Component, "blob"),
        (Stage::Token, "token"),
    ] {
        for (how, reply) in [("before its head", mute()), ("in its body", cut())] {
            let mut lab = Lab::published();
            let manifest = lab.begin(":1.0").await.unwrap().resolved().manifest;
            let path = match path {
                "blob" => lab.component_path(),
                "signature" => lab.path(&format!("manifests/sha256-{}.sig", manifest.hex())),
                "token" => {
                    lab.registry
                        .lay(&lab.path("manifests/1.0"), challenge(&lab));
                    "/token".to_owned()
                }
                path => lab.path(path),
            };
            let reply = match stage {
                // Of the size that the manifest says.
                Stage::Component => reply.of_length(COMPONENT.len()),
                _ => reply,
            };
            lab.registry.lay(&path, reply);
            lab.settings.total = ms(900);
            let error = within(lab.pull()).await.unwrap_err();
            assert_eq!(error.stage, stage, "{how}: {error}");
            assert_eq!(error.why.reason(), "deadline", "{how}: {error}");
            assert!(error.to_string().contains("900 ms"), "{error}");
        }
    }
}

#[tokio::test]
async fn a_silent_registry_and_one_that_stops_are_told_apart_by_their_own_deadlines() {
    let mut lab = Lab::published();
    lab.settings.http.first_byte = ms(200);
    lab.registry.lay(
        &lab.path("manifests/1.0"),
        Reply::new(200, "").hanging(Hang::BeforeTheHead),
    );
    let (reason, told) = within(lab.refused()).await;
    assert_eq!(reason, "unreachable", "{told}");
    assert!(
        told.contains("did not begin") && told.contains("200 ms"),
        "{told}"
    );

    let mut lab = Lab::published();
    lab.settings.http.idle = ms(200);
    let reply = Reply::new(200, &COMPONENT[..20]).of_length(COMPONENT.len());
    lab.registry
        .lay(&lab.component_path(), reply.hanging(Hang::AfterTheBody));
    let (reason, told) = within(lab.refused()).await;
    assert_eq!(reason, "truncated", "{told}");
    assert!(
        told.contains("after 20 bytes") && told.contains("200 ms"),
        "{told}"
    );
}

#[tokio::test]
async fn of_many_signatures_the_newest_are_looked_at() {
    let lab = Lab::published();
    let resolved = lab.begin(":1.0").await.unwrap().resolved().clone();
    let tag = format!("sha256-{}.sig", resolved.manifest.hex());
    let layers: Vec<_> = (0..40)
        .map(|n| {
            let payload = format!("payload {n}").into_bytes();
            lab.registry.lay_blob("acme/tool", &payload);
            let kind = "application/vnd.dev.cosign.simplesigning.v1+json";
            let mut one = descriptor(kind, &payload);
            one["annotations"] = json!({ "dev.cosignproject.cosign/signature": "c2ln" });
            one
        })
        .collect();
    lab.registry
        .lay_manifest("acme/tool", &tag, &manifest(&layers));
    let (_, found) = lab.pull().await.unwrap();
    let payloads: Vec<&[u8]> = found.iter().map(|f| f.payload.as_ref()).collect();
    assert_eq!(
        (payloads.len(), payloads[0], payloads[31]),
        (32, &b"payload 8"[..], &b"payload 39"[..])
    );
}

#[tokio::test]
async fn signatures_are_those_that_lie_beside_the_manifest_and_unharmed() {
    let lab = Lab::published();
    let resolved = lab.begin(":1.0").await.unwrap().resolved().clone();
    let tag = format!("sha256-{}.sig", resolved.manifest.hex());
    assert!(lab.pull().await.unwrap().1.is_empty(), "there are none yet");
    let payload = signing_payload(&lab.reference(":1.0"), &resolved.manifest);
    let kind = "application/vnd.dev.cosign.simplesigning.v1+json";
    let mut signed = descriptor(kind, &payload);
    signed["annotations"] = json!({ "dev.cosignproject.cosign/signature": "c2ln" });
    // What is no signature is passed over.
    let unsigned = descriptor(kind, b"without an annotation");
    let mut other = descriptor("application/json", b"of another type");
    other["annotations"] = signed["annotations"].clone();
    let layers = [unsigned, other, signed];
    lab.registry
        .lay_manifest("acme/tool", &tag, &manifest(&layers));
    let path = lab.registry.lay_blob("acme/tool", &payload);
    let (_, found) = lab.pull().await.unwrap();
    assert_eq!(found.len(), 1);
    assert_eq!(
        (found[0].payload.as_ref(), found[0].signature.as_str()),
        (&payload[..], "c2ln")
    );

    let mut swapped = payload.clone();
    swapped[3] ^= 1;
    lab.registry.lay(&path, Reply::new(200, swapped));
    let error = lab.pull().await.unwrap_err();
    assert_eq!(
        (error.stage, error.why.reason()),
        (Stage::Signature, "digest")
    );
    lab.registry.lay(&path, Reply::refusal(500, "UNKNOWN"));
    let error = lab.pull().await.unwrap_err();
    assert_eq!(
        error.why.reason(),
        "failed",
        "a signature that cannot be read is not none"
    );
    let giant = vec![b' '; (64 << 10) + 1];
    let mut large = descriptor(kind, &giant);
    large["annotations"] = json!({ "dev.cosignproject.cosign/signature": "c2ln" });
    lab.registry
        .lay_manifest("acme/tool", &tag, &manifest(&[large]));
    let error = lab.pull().await.unwrap_err();
    assert_eq!(error.why.reason(), "too-large");
}

#[tokio::test]
async fn a_push_that_a_registry_leads_elsewhere_or_refuses_ends_before_anything_is_named() {
    let component = publication(COMPONENT.into(), &[], &[]);
    for (location, reason) in [
        (None, "redirect"),
        (Some("http://127.0.0.1:9/upload".to_owned()), "redirect"),
        (Some("https://store.example/upload".to_owned()), "redirect"),
    ] {
        let lab = Lab::with_account();
        let mut reply = Reply::new(202, "");
        if let Some(location) = &location {
            reply = reply.with("location", location);
        }
        lab.registry.lay(&lab.path("blobs/uploads/"), reply);
        let path = lab.component_path();
        lab.registry.lay(&path, Reply::new(404, ""));
        let error = lab.push(":1.0", &component).await.unwrap_err();
        assert_eq!(error.why.reason(), reason, "{location:?}: {error}");
        let asked = lab.registry.take_heard();
        assert!(!asked.iter().any(|one| one.starts_with("PUT")), "{asked:?}");
        assert!(lab.resolved().is_empty() && lab.dialled_elsewhere().is_empty());
    }
    let lab = Lab::with_account();
    let other = format!("@{}", digest_of(b"another manifest"));
    let error = lab.push(&other, &component).await.unwrap_err();
    assert_eq!(error.why.reason(), "other-digest");
    let both = [digest_of(b"another manifest"), component.digest.to_string()];
    for digest in both {
        assert!(error.to_string().contains(&digest), "{error}");
    }
    // Where signatures of another manifest lie, no component is put.
    for end in ["", ".sig", ".att"] {
        let tag = format!(":sha256-{}{end}", "0".repeat(64));
        let error = lab.push(&tag, &component).await.unwrap_err();
        assert_eq!(error.why.reason(), "reserved-tag", "{tag}: {error}");
    }
    assert!(lab.registry.take_heard().is_empty());
}

/// The signatures in the manifests that were put at a path, in order.
fn put_at(lab: &Lab, path: &str) -> Vec<Vec<String>> {
    let put = lab.registry.heard();
    let put = put
        .iter()
        .filter(|heard| heard.method == "PUT" && heard.path == path);
    put.map(|heard| {
        let manifest: serde_json::Value = serde_json::from_slice(&heard.body).unwrap();
        let layers = manifest["layers"].as_array().unwrap().iter();
        layers
            .map(|layer| {
                let annotation = &layer["annotations"]["dev.cosignproject.cosign/signature"];
                annotation.as_str().unwrap().to_owned()
            })
            .collect()
    })
    .collect()
}

#[tokio::test]
async fn a_signature_that_somebody_elses_took_the_place_of_is_put_there_again_beside_it() {
    let component = publication(COMPONENT.into(), &[], &[]);
    let (taken, absent) = (Reply::new(201, ""), Reply::new(404, ""));
    let lab = Lab::new();
    let payload = signing_payload(&lab.reference(":1.0"), &component.digest);
    let there = |signatures: &[&str]| {
        let layers: Vec<_> = signatures
            .iter()
            .map(|signature| {
                let kind = "application/vnd.dev.cosign.simplesigning.v1+json";
                let mut layer = descriptor(kind, &payload);
                layer["annotations"] = json!({ "dev.cosignproject.cosign/signature": signature });
                layer
            })
            .collect();
        Reply::new(200, manifest(&layers).to_string()).with("content-type", MANIFEST)
    };
    // Takes every blob.
    let begun = Reply::new(202, "").with("location", "/upload");
    lab.registry.lay(&lab.path("blobs/uploads/"), begun);
    lab.registry.lay("/upload", taken.clone());
    lab.registry.lay(&lab.path("manifests/1.0"), taken.clone());
    let path = lab.path(&format!("manifests/sha256-{}.sig", component.digest.hex()));
    let push = || async {
        let (client, reference) = (lab.client(), lab.reference(":1.0"));
        within(client.push(&lab.source, &reference, &component, Some("ours"))).await
    };
    // Looked at and put there; looked at again, another stands there alone; put there again, and there it is.
    lab.registry.lay_each(
        &path,
        vec![
            absent,
            taken.clone(),
            there(&["theirs"]),
            taken.clone(),
            there(&["theirs", "ours"]),
        ],
    );
    push().await.unwrap();
    assert_eq!(put_at(&lab, &path), [vec!["ours"], vec!["theirs", "ours"]]);
    // What is there already is not written once more.
    lab.registry.take_heard();
    push().await.unwrap();
    assert!(put_at(&lab, &path).is_empty());
    // Somebody who never lets it be is given up, and nothing is said to be there.
    let mut never = Vec::new();
    for _ in 0..20 {
        never.extend([there(&["theirs"]), taken.clone()]);
    }
    lab.registry.lay_each(&path, never);
    lab.registry.take_heard();
    let error = push().await.unwrap_err();
    assert_eq!(error.why.reason(), "contended", "{error}");
    assert_eq!(put_at(&lab, &path).len(), 5);
    let named = lab.registry.take_heard();
    let tag = format!("PUT {}", lab.path("manifests/1.0"));
    assert!(
        !named.contains(&tag),
        "the component is not named: {named:?}"
    );
}

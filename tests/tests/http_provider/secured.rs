//! An endpoint with an authority and an identity of its own, before a backend that lets in nobody without one.

use leasehold_tests::canary::Canaries;
use leasehold_tests::front::{Authority, Front, Identity};
use leasehold_tests::http::{Answer, text};
use serde_json::{Value, json};

use super::{API, House, TOKEN, files_below};

/// A pasted secret.
fn pasted(value: &str) -> Value {
    json!({ "type": "secret_value", "value": value })
}

/// An environment of the cabin provider at this endpoint.
fn environment(house: &House, name: &str, endpoint: &Value) -> Answer {
    house.server.environment(&json!({
        "name": name, "driver": "sandbox", "provider": API,
        "config": { "endpoint": endpoint, "token": pasted(TOKEN) },
    }))
}

#[test]
fn a_backend_that_demands_a_client_certificate_is_leased_from_with_it_and_by_nobody_else() {
    let Some(house) = House::new() else { return };
    let server = &house.server;
    let (ours, clients, strangers) = (Authority::new(), Authority::new(), Authority::new());
    let front = Front::before(house.rooms.port(), &ours, &clients);
    let url = format!("{}/v1", front.url());
    let endpoint = |ca: &Authority, identity: &Identity| {
        json!({
            "url": url, "ca": ca.pem(),
            "clientCertificate": identity.certificate, "clientKey": pasted(&identity.key),
        })
    };
    let known = clients.identity("leasehold");
    let unknown = strangers.identity("leasehold");
    let made = environment(&house, "known", &endpoint(&ours, &known)).expect(201);
    let lease = server.acquire(&text(&made["id"])).expect(201);
    let id = text(&lease["id"]);
    assert_eq!(
        lease["proof"], "owned",
        "the host's own look goes the same way: {lease}"
    );
    let ran = server
        .exec(&id, &json!({ "argv": ["sh", "-c", "exit 3"] }))
        .expect(200);
    assert_eq!(
        ran["execution"]["exitCode"], 3,
        "its stream does too: {ran}"
    );
    assert_eq!(server.release(&id)["status"], "released");
    let (admitted, refused) = front.handshakes();
    assert!(admitted > 1 && refused == 0, "{admitted} {refused}");

    // Without the right identity, or toward somebody that another authority vouches for, nothing is asked.
    let heard = house.rooms.heard().len();
    for (name, endpoint, code) in [
        (
            "stranger",
            endpoint(&ours, &unknown),
            "target_unauthenticated",
        ),
        (
            "nobody",
            json!({ "url": url, "ca": ours.pem() }),
            "target_unauthenticated",
        ),
        ("impostor", endpoint(&strangers, &known), "untrusted_peer"),
        ("system", json!(url), "untrusted_peer"),
    ] {
        let made = environment(&house, name, &endpoint);
        let refused = server.acquire(&text(&made.expect(201)["id"]));
        // A system that was just bootstrapped trusts nobody at all.
        let bare = name == "system" && refused.code() == "failed_precondition";
        assert!(bare || refused.code() == code, "{name}: {}", refused.body);
    }
    assert_eq!(house.rooms.heard().len(), heard, "nothing was asked");
    house.keeps_no_secret();
    let line = |pem: &str| pem.lines().nth(2).unwrap_or_default().as_bytes().to_vec();
    let keys = Canaries::new(vec![
        ("key", line(&known.key)),
        ("other key", line(&unknown.key)),
    ]);
    keys.absent_from(&files_below(server.path()));
    let company = format!("/api/companies/{}/environments", server.company());
    let shown = format!(
        "{}{}",
        server.get(&company),
        server.get("/api/activity?limit=500")
    );
    assert_eq!(keys.in_bytes(shown.as_bytes()), Vec::<&str>::new());
    assert!(
        shown.contains("BEGIN CERTIFICATE"),
        "what is no secret is shown"
    );
}

#[test]
fn an_identity_that_is_none_is_refused_by_its_field_without_a_word_of_it() {
    let Some(house) = House::new() else { return };
    let clients = Authority::new();
    let (one, other) = (clients.identity("one"), clients.identity("other"));
    let with = |certificate: &str, key: Value| json!({ "url": "https://127.0.0.1:9/v1", "ca": clients.pem(), "clientCertificate": certificate, "clientKey": key });
    // What can be seen without the secret is seen when it is saved.
    for (endpoint, at) in [
        (with(&one.certificate, json!(one.key)), "clientKey"),
        (
            json!({ "url": "https://127.0.0.1:9", "clientKey": pasted(&one.key) }),
            "clientKey",
        ),
        (json!({ "url": "https://127.0.0.1:9", "ca": "none" }), "ca"),
        (
            json!({ "url": "http://127.0.0.1:9", "ca": clients.pem() }),
            "url",
        ),
    ] {
        let refused = environment(&house, at, &endpoint);
        assert_eq!(refused.status, 422, "{at}: {}", refused.body);
        let violations = refused.json()["details"]["violations"].clone();
        let pointer = format!("/config/endpoint/{at}");
        let all = violations.as_array().into_iter().flatten();
        assert!(
            all.clone().any(|one| one["pointer"] == pointer),
            "{at}: {violations}"
        );
        assert!(!refused.body.contains("BEGIN PRIVATE"), "{}", refused.body);
    }
    // The rest when it is used.
    for (name, endpoint, at) in [
        (
            "mixed",
            with(&one.certificate, pasted(&other.key)),
            "clientKey",
        ),
        (
            "no key",
            with(&one.certificate, pasted("canary-no-key-at-all")),
            "clientKey",
        ),
        (
            "no certificate",
            with("none", pasted(&one.key)),
            "clientCertificate",
        ),
    ] {
        let made = text(&environment(&house, name, &endpoint).expect(201)["id"]);
        let refused = house.server.acquire(&made);
        assert_eq!(refused.status, 422, "{name}: {}", refused.body);
        let pointer = &refused.json()["details"]["violations"][0]["pointer"];
        assert_eq!(
            pointer,
            &format!("/config/endpoint/{at}"),
            "{name}: {}",
            refused.body
        );
        assert!(!refused.body.contains("canary"), "{name}: {}", refused.body);
    }
}

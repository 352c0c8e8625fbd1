//! `Idempotency-Key`: done once, answered again, and no secret kept for it.

use std::sync::Barrier;

use serde_json::json;

use crate::edits::with_environment;
use crate::server::{Answer, Server};

fn post(server: &Server, path: &str, key: &str, body: &str) -> Answer {
    server.with("POST", path, &[("idempotency-key", key)], body)
}

fn names(server: &Server) -> Vec<String> {
    let all = server.operator("GET", "/api/companies", "").json();
    let names = all.as_array().unwrap().iter();
    names
        .map(|c| c["name"].as_str().unwrap().to_owned())
        .collect()
}

#[test]
fn a_request_is_done_once_for_its_key_and_answered_again_also_after_a_restart() {
    let mut server = Server::start();
    let made = post(&server, "/api/companies", "\"k-1\"", r#"{"name":"one"}"#);
    assert_eq!(made.status, 201, "{}", made.body);
    assert_eq!(made.header("idempotency-replayed"), None);
    let same = |server: &Server| {
        let again = post(server, "/api/companies", "k-1", r#"{"name":"one"}"#);
        assert_eq!(again.status, 201, "{}", again.body);
        assert_eq!(again.json(), made.json());
        assert_eq!(again.header("idempotency-replayed"), Some("true"));
        assert_eq!(again.header("content-type"), Some("application/json"));
    };
    same(&server);
    server.end_by("KILL");
    server.again();
    same(&server);
    for other in [r#"{"name":"two"}"#, r#"{"name":"one" }"#] {
        let other = post(&server, "/api/companies", "k-1", other);
        assert_eq!(
            (other.status, other.code().as_str()),
            (422, "idempotency_mismatch"),
            "{}",
            other.body
        );
    }
    let elsewhere = post(&server, "/api/secrets", "k-1", r#"{"name":"one"}"#);
    assert_eq!(
        elsewhere.code(),
        "idempotency_mismatch",
        "{}",
        elsewhere.body
    );
    assert_eq!(names(&server), ["one"]);
    // Somebody else's key is another key.
    let (_, token) = server.token_of("admin", None);
    let headers = [
        ("authorization", &*format!("Bearer {token}")),
        ("content-type", "application/json"),
        ("idempotency-key", "k-1"),
    ];
    let theirs = server.tcp("POST", "/api/companies", &headers, r#"{"name":"two"}"#);
    assert_eq!(theirs.status, 201, "{}", theirs.body);
}

#[test]
fn what_was_refused_made_nothing_and_its_key_is_free() {
    let server = Server::start();
    server.company("taken");
    for (body, status) in [
        (r#"{"name":""}"#, 422),
        (r#"{"name":"taken"}"#, 409),
        ("{", 400),
        (r#"{"name":"free"}"#, 201),
    ] {
        let answer = post(&server, "/api/companies", "k", body);
        assert_eq!(answer.status, status, "{body} {}", answer.body);
    }
}

#[test]
fn each_kind_of_thing_is_created_once_for_its_key() {
    let server = Server::start();
    let company = server.company("acme");
    let of_company = |kind: &str| format!("/api/companies/{company}/{kind}");
    let secret = json!({"name": "rotated", "value": "v"}).to_string();
    let secret = server.operator("POST", &of_company("secrets"), &secret);
    let versions = format!(
        "/api/secrets/{}/versions",
        secret.json()["id"].as_str().unwrap()
    );
    let named = r#"{"name":"once","value":"v"}"#;
    for (path, body) in [
        (of_company("secrets"), named),
        ("/api/secrets".to_owned(), named),
        (versions, r#"{"value":"w"}"#),
        (of_company("agents"), "{}"),
        (of_company("projects"), "{}"),
        (of_company("workspaces"), "{}"),
        (of_company("issues"), "{}"),
        (of_company("runs"), "{}"),
    ] {
        let key = path.replace('/', ".");
        let made = post(&server, &path, &key, body);
        assert_eq!(made.status, 201, "{path}: {}", made.body);
        let again = post(&server, &path, &key, body);
        assert_eq!(
            (again.status, again.json()),
            (201, made.json()),
            "{path}: {}",
            again.body
        );
        assert_eq!(again.header("idempotency-replayed"), Some("true"), "{path}");
    }
}

#[test]
fn of_many_at_once_under_one_key_one_is_done() {
    let Some((server, company, _)) = with_environment() else {
        return;
    };
    let path = format!("/api/companies/{company}/environments");
    let body = r#"{"name":"twin","driver":"sandbox","provider":"null"}"#;
    let start = Barrier::new(8);
    let answers: Vec<Answer> = std::thread::scope(|scope| {
        let all: Vec<_> = (0..8)
            .map(|_| {
                scope.spawn(|| {
                    start.wait();
                    post(&server, &path, "twin", body)
                })
            })
            .collect();
        all.into_iter().map(|one| one.join().unwrap()).collect()
    });
    let first: Vec<_> = answers
        .iter()
        .filter(|a| a.status == 201 && a.header("idempotency-replayed").is_none())
        .collect();
    assert_eq!(first.len(), 1, "{answers:?}");
    for answer in &answers {
        match answer.status {
            201 => assert_eq!(answer.json(), first[0].json()),
            _ => assert_eq!(
                (answer.code().as_str(), answer.header("retry-after")),
                ("idempotency_in_progress", Some("1")),
                "{}",
                answer.body
            ),
        }
    }
    let rows = server.operator("GET", &path, "").json();
    let made = |row: &&serde_json::Value| row["driver"] != "local";
    assert_eq!(rows.as_array().unwrap().iter().filter(made).count(), 2);
}

#[test]
fn a_token_is_shown_once_and_neither_it_nor_a_secret_is_kept_for_a_key() {
    let server = Server::start();
    let body = r#"{"name":"ci","role":"admin"}"#;
    let made = post(&server, "/api/tokens", "t", body);
    assert_eq!(made.status, 201, "{}", made.body);
    let text = made.json()["secret"].as_str().unwrap().to_owned();
    let again = post(&server, "/api/tokens", "t", body);
    assert_eq!(
        (again.status, again.code().as_str()),
        (409, "idempotency_spent"),
        "{}",
        again.body
    );
    assert_eq!(again.json()["details"]["id"], made.json()["token"]["id"]);
    let canary = "canary-of-a-secret-5d1";
    let secret = json!({"name": "s", "value": canary}).to_string();
    let kept = post(&server, "/api/secrets", "s", &secret);
    assert_eq!(kept.status, 201, "{}", kept.body);
    let id = kept.json()["id"].as_str().unwrap().to_owned();
    let versions = format!("/api/secrets/{id}/versions");
    let newer = json!({"value": format!("{canary}-2")}).to_string();
    for _ in 0..2 {
        let rotated = post(&server, &versions, "v", &newer);
        assert_eq!(
            (rotated.status, &rotated.json()["version"]),
            (201, &2.into()),
            "{}",
            rotated.body
        );
    }
    let listed = server.operator("GET", "/api/tokens", "").json();
    assert_eq!(listed.as_array().unwrap().len(), 1);
    for entry in std::fs::read_dir(server.home.path().join("data/leasehold")).unwrap() {
        let path = entry.unwrap().path();
        if !path.is_file() || path.ends_with("operator.token") {
            continue;
        }
        let bytes = std::fs::read(&path).unwrap();
        for hidden in [canary, &text] {
            let found = bytes.windows(hidden.len()).any(|w| w == hidden.as_bytes());
            assert!(!found, "{}", path.display());
        }
    }
}

#[test]
fn a_lease_takes_the_header_as_its_key_and_what_takes_none_says_so() {
    let Some((server, _, path)) = with_environment() else {
        return;
    };
    let leases = format!("{path}/leases");
    let made = post(&server, &leases, "\"run-1\"", "{}");
    assert_eq!(made.status, 201, "{}", made.body);
    let again = server.operator("POST", &leases, r#"{"idempotencyKey":"run-1"}"#);
    assert_eq!(again.json()["id"], made.json()["id"], "{}", again.body);
    let other = post(&server, &leases, "run-1", r#"{"ttlSeconds":60}"#);
    assert_eq!(
        (other.status, other.code().as_str()),
        (422, "idempotency_mismatch"),
        "{}",
        other.body
    );
    assert_eq!(other.json()["details"]["leaseId"], made.json()["id"]);
    let two = post(&server, &leases, "run-1", r#"{"idempotencyKey":"run-2"}"#);
    assert_eq!((two.status, two.code().as_str()), (422, "invalid"));
    let lease = made.json()["id"].as_str().unwrap().to_owned();
    let release = format!("/api/environment-leases/{lease}/release");
    let refused = post(&server, &release, "k", "");
    assert_eq!(
        (refused.status, refused.code().as_str()),
        (400, "bad_request"),
        "{}",
        refused.body
    );
    let unreadable = post(&server, "/api/companies", "a b", r#"{"name":"x"}"#);
    assert_eq!(unreadable.status, 400, "{}", unreadable.body);
    assert_eq!(names(&server), ["acme"]);
}

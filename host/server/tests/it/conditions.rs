//! Conditions of a request: `If-Match` and `Idempotency-Key` are looked at by what says so, and refused by everything else.

use std::sync::Barrier;

use serde_json::{Value, json};

use crate::edits::with_environment;
use crate::server::{Answer, Server};

const LOOKS_AT_IF_MATCH: [&str; 2] = ["deleteEnvironment", "updateEnvironment"];

/// Method, path and description of every operation that asks who its caller is.
fn operations(server: &Server) -> Vec<(String, String, Value)> {
    let document = server.tcp("GET", "/api/openapi.json", &[], "").json();
    let mut all = Vec::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            let id = operation["operationId"].as_str().unwrap();
            if id == "healthz" || id == "readyz" {
                continue;
            }
            let filled = path.split('/').map(|part| match part {
                "{companyId}" => "com_x",
                "{environmentId}" => "env_x",
                "{executionId}" => "exe-x",
                "{leaseId}" => "lease_x",
                "{secretId}" => "sec_x",
                "{tokenId}" => "tok_x",
                "{version}" => "1",
                other if other.starts_with('{') => "x",
                other => other,
            });
            let path = filled.collect::<Vec<_>>().join("/");
            all.push((method.to_uppercase(), path, operation.clone()));
        }
    }
    assert!(all.len() > 80, "{}", all.len());
    all
}

/// Whether an operation is described with this header.
fn describes(operation: &Value, header: &str) -> bool {
    let parameters = operation["parameters"].as_array();
    parameters
        .into_iter()
        .flatten()
        .any(|p| p["in"] == "header" && p["name"] == header)
}

fn refused(answer: &Answer, header: &str, operation: &str) {
    assert_eq!(
        (answer.status, answer.code().as_str()),
        (400, "bad_request"),
        "{operation}: {}",
        answer.body
    );
    let said = answer.json()["error"].as_str().unwrap().to_owned();
    assert!(
        said.contains(header) && said.contains(operation),
        "{operation}: {said}"
    );
}

#[test]
fn a_precondition_is_refused_by_every_operation_that_looks_at_none() {
    let server = Server::start();
    let mut looks = Vec::new();
    for (method, path, operation) in operations(&server) {
        let id = operation["operationId"].as_str().unwrap().to_owned();
        if describes(&operation, "If-Match") {
            looks.push(id);
            continue;
        }
        let answer = server.with(&method, &path, &[("if-match", "\"1-1\"")], "");
        refused(&answer, "If-Match", &id);
    }
    looks.sort();
    assert_eq!(looks, LOOKS_AT_IF_MATCH);
}

#[test]
fn an_idempotency_key_is_refused_by_everything_that_changes_something_and_keeps_none() {
    let server = Server::start();
    let (mut takes, mut refuses) = (0, Vec::new());
    for (method, path, operation) in operations(&server) {
        if method == "GET" {
            continue;
        }
        if describes(&operation, "Idempotency-Key") {
            takes += 1;
            continue;
        }
        let id = operation["operationId"].as_str().unwrap();
        let answer = server.with(&method, &path, &[("idempotency-key", "\"k\"")], "");
        refused(&answer, "Idempotency-Key", id);
        refuses.push(method);
    }
    assert_eq!(takes, 13);
    for method in ["PATCH", "PUT", "DELETE", "POST"] {
        assert!(refuses.iter().any(|found| found == method), "{method}");
    }
}

#[test]
fn a_deletion_is_of_what_was_read_or_of_nothing() {
    let Some((server, company, path)) = with_environment() else {
        return;
    };
    let delete = |path: &str, tag: &str| server.with("DELETE", path, &[("if-match", tag)], "");
    for (tag, status) in [
        ("\"2-1\"", 412),
        ("\"2\"", 412),
        ("\"1-2\"", 412),
        ("W/\"1-1\"", 400),
        ("1", 400),
    ] {
        let answer = delete(&path, tag);
        assert_eq!(answer.status, status, "{tag} {}", answer.body);
    }
    let missed = delete(&path, "\"2-1\"");
    assert_eq!(missed.code(), "revision_mismatch");
    assert_eq!(
        missed.json()["details"],
        json!({"code": "revision_mismatch", "revision": 1, "targetRevision": 1})
    );
    assert_eq!(server.operator("GET", &path, "").status, 200);
    assert_eq!(delete(&path, "\"7\", \"1-1\"").status, 200);
    assert_eq!(delete(&path, "*").status, 404);
    // Beside a change of the same moment one of the two is made, and the other knows it.
    let all = format!("/api/companies/{company}/environments");
    let draft = r#"{"name":"twin","driver":"sandbox","provider":"null"}"#;
    for round in 0..25 {
        let made = server.operator("POST", &all, draft);
        let path = format!("/api/environments/{}", made.json()["id"].as_str().unwrap());
        let start = Barrier::new(2);
        let (deleted, patched) = std::thread::scope(|scope| {
            let patching = scope.spawn(|| {
                start.wait();
                server.operator("PATCH", &path, r#"{"description":"x"}"#)
            });
            start.wait();
            let deleted = delete(&path, "\"1-1\"");
            (deleted, patching.join().unwrap())
        });
        match (deleted.status, patched.status) {
            (200, 404) => {}
            (412, 200) => assert_eq!(server.operator("DELETE", &path, "").status, 200),
            other => panic!("round {round}: {other:?} {} {}", deleted.body, patched.body),
        }
    }
}

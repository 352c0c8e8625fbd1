//! Edits: nothing that somebody wrote is lost, nothing that is the server's own is written, and what was read is what is
//! changed.

use std::collections::BTreeSet;
use std::os::unix::net::UnixStream;
use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering};

use leasehold_parts::skipped;
use serde_json::{Value, json};

use crate::leased::component;
use crate::server::{Answer, Server, ask};

/// A server with an environment of the null provider: the company's id, and the environment's path.
pub fn with_environment() -> Option<(Server, String, String)> {
    let Some(component) = component("null") else {
        skipped("`cargo xtask components`");
        return None;
    };
    let server = Server::start();
    let installed = server
        .home
        .leasehold()
        .args(["plugin", "install", "--yes", component.to_str().unwrap()])
        .output()
        .unwrap();
    assert!(installed.status.success(), "{installed:?}");
    let company = server.company("acme");
    let made = server.operator(
        "POST",
        &format!("/api/companies/{company}/environments"),
        r#"{"name":"nothing","driver":"sandbox","provider":"null"}"#,
    );
    assert_eq!(made.status, 201, "{}", made.body);
    let path = format!("/api/environments/{}", made.json()["id"].as_str().unwrap());
    Some((server, company, path))
}

impl Server {
    /// A request over the Unix socket, as the operator, with headers.
    pub fn with(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Answer {
        let mut all = vec![("host", "localhost")];
        all.extend(headers);
        if !body.is_empty() {
            all.push(("content-type", "application/json"));
        }
        let stream = UnixStream::connect(self.home.socket()).unwrap();
        ask(stream, method, path, &all, body).unwrap()
    }
}

impl Answer {
    /// The value of a header; none when it is not there.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| {
            let (found, value) = line.split_once(':')?;
            (found == name).then_some(value.trim())
        })
    }
}

fn revisions(row: &Value) -> (i64, i64) {
    let number = |key: &str| row[key].as_i64().unwrap();
    (number("revision"), number("targetRevision"))
}

#[test]
fn a_thousand_patches_beside_a_thousand_probes_lose_nothing_and_let_nothing_forged_in() {
    const PAIRS: usize = 1000;
    const AT_ONCE: usize = 8;
    let Some((server, company, path)) = with_environment() else {
        return;
    };
    let probe = format!("{path}/probe");
    let next = AtomicUsize::new(0);
    let wrong = |answer: &Answer| format!("{} {}", answer.status, answer.body);
    let work = || {
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            if at >= PAIRS {
                return;
            }
            std::thread::scope(|scope| {
                let probing = scope.spawn(|| server.operator("POST", &probe, ""));
                let patch = json!({"envVars": {(format!("V{at}")): at.to_string()}});
                let patched = server.operator("PATCH", &path, &patch.to_string());
                assert_eq!(patched.status, 200, "{}", wrong(&patched));
                if at.is_multiple_of(10) {
                    for forged in [
                        json!({"metadata": {"Platform_Qualification": {"os": "linux"}}}),
                        json!({"metadata": {"mine": [{"managedSandboxProvider": "null"}]}}),
                        json!({"targetRevision": 1}),
                    ] {
                        let refused = server.operator("PATCH", &path, &forged.to_string());
                        assert_eq!(refused.status, 422, "{}", wrong(&refused));
                    }
                }
                let probed = probing.join().unwrap();
                assert_eq!(
                    (probed.status, &probed.json()["ok"]),
                    (200, &true.into()),
                    "{}",
                    wrong(&probed)
                );
            });
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(work);
        }
    });
    let row = server.operator("GET", &path, "").json();
    let kept = row["envVars"].as_object().unwrap();
    assert_eq!(kept.len(), PAIRS);
    for at in 0..PAIRS {
        assert_eq!(kept[&format!("V{at}")], at.to_string());
    }
    let counted = 1 + i64::try_from(PAIRS).unwrap();
    assert_eq!(revisions(&row), (counted, counted));
    assert_eq!(row["metadata"], Value::Null);
    let left = format!("/api/companies/{company}/environment-leases?status=active");
    assert_eq!(server.operator("GET", &left, "").json()["items"], json!([]));
}

#[test]
fn of_two_patches_of_one_revision_exactly_one_is_made() {
    let Some((server, _, path)) = with_environment() else {
        return;
    };
    for round in 0..25 {
        let read = server.operator("GET", &path, "");
        let tag = read.header("etag").unwrap().to_owned();
        let start = Barrier::new(2);
        let patch = |name: &str| {
            start.wait();
            let body = json!({ "name": name }).to_string();
            server.with("PATCH", &path, &[("if-match", &tag)], &body)
        };
        let [a, b] = std::thread::scope(|scope| {
            let a = scope.spawn(|| patch("a"));
            let b = scope.spawn(|| patch("b"));
            [a.join().unwrap(), b.join().unwrap()]
        });
        let (won, lost) = match a.status {
            200 => (&a, &b),
            _ => (&b, &a),
        };
        assert_eq!(
            (won.status, lost.status, lost.code().as_str()),
            (200, 412, "revision_mismatch"),
            "round {round}: {} {}",
            won.body,
            lost.body
        );
        let now = server.operator("GET", &path, "");
        assert_eq!(now.json(), won.json());
        assert_eq!(now.header("etag"), won.header("etag"));
        let told = &lost.json()["details"];
        assert_eq!(revisions(told), revisions(&now.json()));
    }
}

#[test]
fn if_match_is_one_of_what_was_read_or_any_and_what_cannot_be_read_is_refused() {
    let Some((server, _, path)) = with_environment() else {
        return;
    };
    let patch = |tags: &[&str]| {
        let headers: Vec<_> = tags.iter().map(|tag| ("if-match", *tag)).collect();
        server.with("PATCH", &path, &headers, r#"{"description":"x"}"#)
    };
    for (tags, status) in [
        (&["\"1-1\""][..], 200),
        (&["\"1-1\""], 412),
        (&["\"2\""], 200),
        (&["\"1\", \"3-1\""], 200),
        (&["\"9\"", "\"4-1\""], 200),
        (&["*"], 200),
        (&["\"6-2\""], 412),
        (&["\"something else\""], 400),
        (&["\"something-else\""], 412),
        (&["W/\"6-1\""], 400),
        (&["6"], 400),
        (&["*", "\"6-1\""], 400),
        (&[""], 400),
        (&[], 200),
    ] {
        let answer = patch(tags);
        assert_eq!(answer.status, status, "{tags:?} {}", answer.body);
        if status == 400 {
            assert!(answer.body.contains("If-Match"), "{}", answer.body);
        }
    }
    let none = server.with(
        "PATCH",
        "/api/environments/env_none",
        &[("if-match", "*")],
        "{}",
    );
    assert_eq!(none.status, 404, "{}", none.body);
    // A rotation changes the tag, and not the revision alone.
    let row = server.operator("GET", &path, "").json();
    assert_eq!(
        revisions(&row),
        (7, 1),
        "what changes no target raises no target"
    );
}

#[test]
fn a_patch_merges_one_level_deep_and_another_driver_starts_anew() {
    let Some((server, _, path)) = with_environment() else {
        return;
    };
    let patch = |body: Value| server.operator("PATCH", &path, &body.to_string());
    for (body, shown, raised) in [
        (
            json!({"envVars": {"A": "1", "B": "2"}, "metadata": {"team": {"a": 1}}}),
            json!({"envVars": {"A": "1", "B": "2"}, "metadata": {"team": {"a": 1}}}),
            true,
        ),
        (
            json!({"envVars": {"A": null, "C": "3"}}),
            json!({"envVars": {"B": "2", "C": "3"}}),
            true,
        ),
        (
            json!({"metadata": {"other": {"Team": "x", "deep": [{"key": 1}]}}}),
            json!({"metadata": {"other": {"Team": "x", "deep": [{"key": 1}]}}}),
            false,
        ),
        (
            json!({"description": "d"}),
            json!({"description": "d"}),
            false,
        ),
        (
            json!({"description": null}),
            json!({"description": null}),
            false,
        ),
        (json!({"metadata": null}), json!({"metadata": null}), false),
        (json!({}), json!({}), false),
    ] {
        let before = server.operator("GET", &path, "").json();
        let answer = patch(body.clone());
        assert_eq!(answer.status, 200, "{body} {}", answer.body);
        let now = answer.json();
        for (field, value) in shown.as_object().unwrap() {
            assert_eq!(&now[field], value, "{body}");
        }
        let (revision, target) = revisions(&before);
        assert_eq!(
            revisions(&now),
            (revision + 1, target + i64::from(raised)),
            "{body}"
        );
    }
    for (body, status, pointer) in [
        (json!({"config": {"bogus": 1}}), 422, "/config"),
        (json!({"driver": "ssh"}), 422, "/driver"),
        (json!({"nam": "x"}), 422, "nam"),
        (json!({"name": 7}), 422, "/name"),
        (json!([]), 422, ""),
    ] {
        let answer = patch(body.clone());
        assert_eq!(answer.status, status, "{body} {}", answer.body);
        assert!(answer.body.contains(pointer), "{body} {}", answer.body);
    }
}

/// What the server says of its rows and nobody else does, as the API and the database spell it.
const SERVERS: &[&str] = &[
    "id",
    "companyId",
    "company_id",
    "revision",
    "targetRevision",
    "target_revision",
    "status",
    "createdAt",
    "created_at",
    "updatedAt",
    "updated_at",
    "createdBy",
    "created_by",
    "mac",
    "hash",
    "endpoints",
    "warnings",
    "version",
    "versions",
    "latest",
    "latestVersion",
    "sealed",
    "wrapped",
    "revokedAt",
    "lastUsedAt",
    "expiresAt",
    "secret",
    "tokenId",
    "epoch",
    "acquisition",
    "resource",
    "handle",
    "workspace",
    "proof",
    "provider",
    "providerLeaseId",
    "pluginDigest",
    "released",
    "releasedAt",
    "acquiredAt",
    "cleanupStatus",
    "outcome",
    "exitCode",
    "granted",
    "qualification",
    "platformQualification",
    "platformQualificationRecorded",
    "__proto__",
    "constructor",
];

/// Those that a body may say all the same, as they are the client's there.
const SAID: &[(&str, &[&str])] = &[
    ("createEnvironment", &["status", "provider", "companyId"]),
    ("updateEnvironment", &["status", "provider", "companyId"]),
    ("probeDraft", &["status", "provider", "companyId"]),
    ("createToken", &["companyId"]),
    ("selectEnvironment", &["provider"]),
    ("acquireLease", &["companyId"]),
    ("createAgent", &["id"]),
    ("createProject", &["id"]),
    ("createWorkspace", &["id"]),
    ("createIssue", &["id"]),
    ("createRun", &["id"]),
    ("grantPlugin", &["revision"]),
    ("updateSecretVersion", &["status"]),
];

#[test]
fn no_body_takes_a_column_that_is_the_servers_own() {
    let Some((server, company, path)) = with_environment() else {
        return;
    };
    let document = server.tcp("GET", "/api/openapi.json", &[], "").json();
    let environment = path.rsplit('/').next().unwrap();
    let mut walked = BTreeSet::new();
    for (route, item) in document["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            let schema = &operation["requestBody"]["content"]["application/json"]["schema"];
            let Some(schema) = schema["$ref"].as_str() else {
                continue;
            };
            let schema = document.pointer(schema.trim_start_matches('#')).unwrap();
            let id = operation["operationId"].as_str().unwrap();
            assert_eq!(
                schema["additionalProperties"], false,
                "{id} says that it takes anything"
            );
            let said = SAID.iter().find(|(name, _)| *name == id);
            let said = said.map_or(&[][..], |(_, fields)| fields);
            let route = route
                .replace("{companyId}", &company)
                .replace("{environmentId}", environment)
                .replace("{leaseId}", "lease_x")
                .replace("{executionId}", "exe-x")
                .replace("{secretId}", "sec_x")
                .replace("{version}", "1");
            let route = route
                .split('{')
                .map(|part| part.split_once('}').map_or(part, |(_, rest)| rest));
            let route = route.collect::<Vec<_>>().join("x");
            for field in SERVERS {
                if said.contains(field) {
                    continue;
                }
                let known = schema["properties"].get(field).is_some();
                assert!(!known, "{id} takes {field}");
                let body = json!({ (*field): "1" }).to_string();
                let answer = server.operator(&method.to_uppercase(), &route, &body);
                // What is not there is told first by some.
                if answer.status != 404 {
                    assert_eq!(answer.status, 422, "{id} {field}: {}", answer.body);
                    let unknown = format!("unknown field `{field}`");
                    assert!(answer.body.contains(&unknown), "{id}: {}", answer.body);
                }
            }
            walked.insert(id.to_owned());
        }
    }
    assert!(walked.len() >= 15, "{walked:?}");
    for (name, _) in SAID {
        assert!(walked.contains(*name), "{name}");
    }
}

//! The server does what its own OpenAPI document says: schemathesis asks every operation by it, with what the document
//! allows and with what it does not, as each kind of actor.
//!
//! No answer is a 5xx, and none has a status, a type or a shape that the document does not give. Every operation is asked
//! with the id of something that is there, so that it can succeed, and all do but those on a list. What is made up runs
//! nowhere: commands are asked of a lease of the null provider, and on the one real machine runs what this test began there.

#![allow(
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking, also in what it calls"
)]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use leasehold_parts::skipped;
use leasehold_tests::http::text;
use leasehold_tests::machine::Machine;
use leasehold_tests::server::Server;
use leasehold_tests::wait::until;
use serde_json::{Value, json};

/// What is looked at in every answer.
const CHECKS: &str = "not_a_server_error,status_code_conformance,content_type_conformance,\
                      response_schema_conformance";
/// `fetchHostKey` connects to whatever host is made up; the bodies of `putFiles` (an archive) and of
/// `checkActivityExport` (its lines) cannot be made up; the two streams have no end.
const LEFT_OUT: [&str; 5] = [
    "fetchHostKey",
    "putFiles",
    "checkActivityExport",
    "streamActivity",
    "streamCompanyActivity",
];

/// What nothing that is made up can bring to succeed: only a lease whose cleanup waits is abandoned; no provider and none of its
/// drivers is guessed; nothing waits for a grant, has an earlier revision or is being worked on; what is
/// no component is not looked at; and the null provider runs no command.
const NEVER: [&str; 11] = [
    "abandonLease",
    "createEnvironment",
    "denyPlugin",
    "getProgress",
    "grantPlugin",
    "inspectPlugin",
    "installPlugin",
    "probeDraft",
    "rollbackPlugin",
    "runCommand",
    "streamCommand",
];

struct Rooms {
    server: Server,
    company: String,
    /// Of each parameter, what is there.
    there: Vec<(&'static str, String)>,
    /// Of an operation that ends something, or needs another thing than the rest: which.
    own: Vec<(&'static str, &'static str, String)>,
    command: Child,
    _machine: Machine,
}

impl Drop for Rooms {
    fn drop(&mut self) {
        let _ = self.command.kill();
        let _ = self.command.wait();
    }
}

/// A server with one of each thing, and another of each that is ended.
fn rooms() -> Option<Rooms> {
    let machine = Machine::start()?;
    let server = Server::start()?;
    server.install("null").expect(201);
    let company = server.company();
    let of_company = |what: &str| format!("/api/companies/{company}/{what}");
    let make = |path: &str, body: &Value| server.call("POST", path, Some(body)).expect(201);
    let secret = text(&server.secret("value", "of no worth")["secretId"]);
    let versions = format!("/api/secrets/{secret}/versions");
    make(&versions, &json!({ "value": "of none either" }));
    let unused = text(&server.secret("unused", "of no worth")["secretId"]);
    let null = |name: &str| {
        let draft = json!({ "name": name, "driver": "sandbox", "provider": "null" });
        text(&server.environment(&draft).expect(201)["id"])
    };
    let (environment, changed, spare) = (null("null"), null("changed"), null("spare"));
    let acquire = |environment: &str| text(&server.acquire(environment).expect(201)["id"]);
    let (lease, released) = (acquire(&environment), acquire(&environment));
    for other in ["cabin", "lodge"] {
        server.install(other).expect(201);
    }
    let token = json!({ "name": "spare", "role": "admin" });
    let token = text(&make("/api/tokens", &token)["token"]["id"]);
    let mut there = vec![
        ("companyId", company.clone()),
        ("environmentId", environment),
        ("leaseId", lease),
        ("secretId", secret),
        ("key", "null".to_owned()),
        ("version", "1".to_owned()),
        ("tokenId", token),
        ("progressId", "nothing".to_owned()),
    ];
    for (plural, parameter) in [
        ("agents", "agentId"),
        ("projects", "projectId"),
        ("workspaces", "workspaceId"),
        ("issues", "issueId"),
        ("runs", "runId"),
    ] {
        there.push((
            parameter,
            text(&make(&of_company(plural), &json!({}))["id"]),
        ));
    }
    let over = text(&make(&of_company("runs"), &json!({}))["id"]);
    // A command that goes on, on a real machine.
    let parent = machine.directory("leases");
    let box_ = machine.environment(&server, &parent, machine.sshd.port());
    let real = acquire(&box_);
    let command = server
        .leasehold()
        .args(["exec", &real, "--", "sleep", "3600"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("the command starts");
    let running = until("a command that runs", || {
        let all = server.executions(&real);
        let running = all.iter().find(|one| one["outcome"] == "running");
        running.map(|one| text(&one["id"]))
    });
    there.push(("executionId", running));
    let own = vec![
        ("updateEnvironment", "path.environmentId", changed),
        ("deleteEnvironment", "path.environmentId", spare),
        ("probeEnvironment", "query.companyId", company.clone()),
        ("deleteSecret", "path.secretId", unused),
        ("disablePlugin", "path.key", "lodge".to_owned()),
        ("removePlugin", "path.key", "cabin".to_owned()),
        ("releaseLease", "path.leaseId", released),
        ("abandonLease", "path.leaseId", "lease_gone".to_owned()),
        ("endRun", "path.runId", over),
        ("createStreamTicket", "path.leaseId", real.clone()),
        ("getFiles", "path.leaseId", real.clone()),
        ("observeLease", "path.leaseId", real),
        ("resolveEnvironment", "query.name", "box".to_owned()),
    ];
    Some(Rooms {
        server,
        company,
        there,
        own,
        command,
        _machine: machine,
    })
}

impl Rooms {
    /// Ids of what is there, for every operation.
    fn configuration(&self) -> String {
        let mut text = "[parameters]\n".to_owned();
        for (parameter, id) in &self.there {
            text.push_str(&format!("\"path.{parameter}\" = \"{id}\"\n"));
        }
        for (operation, parameter, id) in &self.own {
            let more = match *operation {
                "getFiles" => ", \"query.path\" = \".\"",
                _ => "",
            };
            text.push_str(&format!(
                "[[operations]]\ninclude-operation-id = \"{operation}\"\nparameters = {{ \"{parameter}\" = \"{id}\"{more} }}\n"
            ));
        }
        text
    }

    /// How often each operation was done, by its name.
    fn done(&self) -> BTreeMap<String, u64> {
        let document = self.server.get("/api/openapi.json");
        let metrics = self.server.call("GET", "/metrics", None).body;
        let mut done = BTreeMap::new();
        for (path, item) in document["paths"].as_object().expect("paths") {
            for (method, operation) in item.as_object().expect("methods") {
                let labels = format!(
                    "method=\"{}\",route=\"{path}\",status=\"2",
                    method.to_uppercase()
                );
                let counts = metrics
                    .lines()
                    .filter(|line| line.contains("http_requests_total{") && line.contains(&labels))
                    .filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok());
                done.insert(text(&operation["operationId"]), counts.sum());
            }
        }
        done
    }

    fn token(&self, role: &str) -> String {
        let company = (role != "admin").then_some(&self.company);
        let draft = json!({ "name": role, "role": role, "companyId": company });
        let made = self.server.call("POST", "/api/tokens", Some(&draft));
        text(&made.expect(201)["secret"])
    }

    /// Asks everything as somebody; answers how many requests were made.
    fn ask(&self, python: &Path, actor: &str, token: Option<&str>) -> u64 {
        let folder = self.server.path().join(format!("asked-as-{actor}"));
        std::fs::create_dir(&folder).expect("a folder");
        let settings = folder.join("schemathesis.toml");
        std::fs::write(&settings, self.configuration()).expect("a file");
        let mut command = Command::new(python);
        command
            .args(["-m", "schemathesis.cli", "--config-file"])
            .arg(&settings)
            .arg("run")
            .arg(format!(
                "http://127.0.0.1:{}/api/openapi.json",
                self.server.port()
            ))
            .args(["--checks", CHECKS, "--phases", "examples,coverage,fuzzing"])
            .args(["--seed", "4", "--generation-database", "none"])
            .args(["--max-examples", "6"])
            .args(["--continue-on-failure", "--no-shrink", "--no-color"])
            .args(["--warnings", "off", "--request-timeout", "30"])
            .current_dir(&folder)
            .env("PYTHONDONTWRITEBYTECODE", "1");
        for operation in LEFT_OUT {
            command.args(["--exclude-operation-id", operation]);
        }
        if let Some(token) = token {
            command
                .arg("--header")
                .arg(format!("Authorization: Bearer {token}"));
        }
        let output = command.output().expect("schemathesis runs");
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(
            output.status.success(),
            "{actor}: {said}{}",
            String::from_utf8_lossy(&output.stderr)
        );
        let generated = said
            .lines()
            .filter_map(|line| line.trim().split_once(" generated, "))
            .find_map(|(count, _)| count.parse().ok());
        generated.unwrap_or_else(|| panic!("{actor}: {said}"))
    }
}

#[test]
fn every_answer_to_every_actor_is_as_the_api_describes_itself_and_none_is_the_servers_failure() {
    let Some(python) = std::env::var_os("LEASEHOLD_SCHEMATHESIS").map(PathBuf::from) else {
        skipped("schemathesis, which `cargo xtask test` installs");
        return;
    };
    let Some(rooms) = rooms() else { return };
    let before = rooms.done();
    let actors = ["admin", "member", "agent"].map(|role| (role, Some(rooms.token(role))));
    let everybody = actors.into_iter().chain([("nobody", None)]);
    std::thread::scope(|scope| {
        for (actor, token) in everybody {
            let (rooms, python) = (&rooms, &python);
            scope.spawn(move || {
                let asked = rooms.ask(python, actor, token.as_deref());
                assert!(asked > 500, "{actor} asked {asked} times");
            });
        }
    });
    // It was no walk past closed doors.
    let never: Vec<String> = rooms
        .done()
        .into_iter()
        .filter(|(operation, count)| {
            *count == before[operation] && !LEFT_OUT.contains(&operation.as_str())
        })
        .map(|(operation, _)| operation)
        .collect();
    assert_eq!(never, NEVER, "what nobody could do");
    let log = rooms.server.log();
    for trouble in ["panicked", "inside the server"] {
        assert!(!log.contains(trouble), "{trouble}: {log}");
    }
}

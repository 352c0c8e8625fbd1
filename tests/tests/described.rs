//! The server does what its own OpenAPI document says: schemathesis asks every operation by it, with what the document
//! allows and with what it does not, as each kind of actor.
//!
//! No answer is a 5xx, and none has a status, a type or a shape that the document does not give. Only the null provider is
//! there, so that nothing runs on this machine.

#![allow(
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking, also in what it calls"
)]

use std::path::{Path, PathBuf};
use std::process::Command;

use leasehold_parts::skipped;
use leasehold_tests::http::text;
use leasehold_tests::server::Server;
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

struct Rooms {
    server: Server,
    company: String,
    environment: String,
    lease: String,
    secret: Value,
}

/// A server with one of each thing.
fn rooms() -> Option<Rooms> {
    let server = Server::start()?;
    server.install("null").expect(201);
    let company = server.company();
    let secret = server.secret("value", "of no worth")["secretId"].clone();
    let draft = json!({ "name": "null", "driver": "sandbox", "provider": "null" });
    let environment = text(&server.environment(&draft).expect(201)["id"]);
    let lease = text(&server.acquire(&environment).expect(201)["id"]);
    Some(Rooms {
        server,
        company,
        environment,
        lease,
        secret,
    })
}

impl Rooms {
    /// Ids of what is there, for every operation that does not end it.
    fn configuration(&self) -> String {
        let spared = [
            ("deleteEnvironment", "environmentId", "env_gone"),
            ("deleteSecret", "secretId", "sec_gone"),
            ("disablePlugin", "key", "gone"),
            ("removePlugin", "key", "gone"),
            ("releaseLease", "leaseId", "lease_gone"),
            ("abandonLease", "leaseId", "lease_gone"),
        ];
        let mut text = format!(
            "[parameters]\n\"path.companyId\" = \"{}\"\n\"path.environmentId\" = \"{}\"\n\"path.leaseId\" = \"{}\"\n\
             \"path.secretId\" = {}\n\"path.key\" = \"null\"\n",
            self.company, self.environment, self.lease, self.secret
        );
        for (operation, parameter, id) in spared {
            text.push_str(&format!(
                "[[operations]]\ninclude-operation-id = \"{operation}\"\nparameters = {{ \"path.{parameter}\" = \"{id}\" }}\n"
            ));
        }
        text
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
            .args(["--checks", CHECKS, "--phases", "coverage,fuzzing"])
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
    // It was no walk past closed doors: most operations did something for the administrator.
    let metrics = rooms.server.call("GET", "/metrics", None).body;
    let mut done: Vec<&str> = metrics
        .lines()
        .filter(|line| line.contains("http_requests_total{") && line.contains("status=\"2"))
        .filter_map(|line| line.split("status=").next())
        .collect();
    done.sort_unstable();
    done.dedup();
    assert!(done.len() >= 35, "{done:#?}");
    let log = rooms.server.log();
    for trouble in ["panicked", "inside the server"] {
        assert!(!log.contains(trouble), "{trouble}: {log}");
    }
}

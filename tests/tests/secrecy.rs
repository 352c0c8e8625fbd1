//! A canary in every secret: its bytes are looked for wherever they must not be.
//!
//! What the components see is asked of one that puts all that it sees into everything that it can say. A search that finds
//! nothing proves nothing by itself, so each is shown to find what is there.

#![allow(
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking, also in what it calls"
)]

use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use leasehold_parts::{Format, KeyPair, Kind};
use leasehold_tests::http::text;
use leasehold_tests::machine::Machine;
use leasehold_tests::server::Server;
use leasehold_tests::wait::until;
use serde_json::{Value, json};

const PASSPHRASE: &str = "canary-Passphrase-8d1f0c";
const TOKEN: &str = "canary-Token-'\"$`-51ab77";
const INPUT: &str = "canary-Input-c0ffee-92";

/// Every secret's bytes: each by a name, and a part that is long enough to be no coincidence.
fn canaries(key: &KeyPair) -> Vec<(&'static str, Vec<u8>)> {
    // A line from the middle of the private half: no part of it is in the public one.
    let lines: Vec<&str> = key.private.lines().collect();
    vec![
        ("passphrase", PASSPHRASE.into()),
        ("token", TOKEN.into()),
        // Text that was quoted or escaped on the way.
        ("token's start", b"canary-Token-".to_vec()),
        ("token's end", b"-51ab77".to_vec()),
        ("input", INPUT.into()),
        ("private key", lines[lines.len() - 3].into()),
    ]
}

/// Names of the canaries in these bytes.
fn found(bytes: &[u8], canaries: &[(&'static str, Vec<u8>)]) -> Vec<&'static str> {
    canaries
        .iter()
        .filter(|(_, canary)| bytes.windows(canary.len()).any(|window| window == canary))
        .map(|(name, _)| *name)
        .collect()
}

/// Every file below a directory with its bytes.
fn files(directory: &Path, all: &mut Vec<(String, Vec<u8>)>) {
    for entry in std::fs::read_dir(directory).expect("a directory").flatten() {
        let path = entry.path();
        if path.is_dir() {
            files(&path, all);
        } else if path.is_file() {
            all.push((
                path.display().to_string(),
                std::fs::read(&path).unwrap_or_default(),
            ));
        }
    }
}

/// Says that it is over when it goes, also by a panic.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// Arguments of every process of this machine, which both sides are.
fn arguments() -> Vec<u8> {
    let mut all = Vec::new();
    for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        all.extend(std::fs::read(entry.path().join("cmdline")).unwrap_or_default());
        all.push(b'\n');
    }
    all
}

/// A server at its most talkative, and all that its API answered.
struct Heard {
    server: Server,
    answers: Mutex<String>,
}

impl Heard {
    fn call(&self, method: &str, path: &str, body: Option<&Value>) -> Value {
        let answer = self.server.call(method, path, body);
        let mut answers = self.answers.lock().expect("answers");
        answers.push_str(&answer.head);
        answers.push_str(&answer.body);
        answer.json()
    }

    /// Everything that can be read.
    fn read_all(&self) {
        let company = self.server.company();
        let of_company = |what: &str| format!("/api/companies/{company}/{what}");
        for path in [
            "/api/plugins".to_owned(),
            "/api/companies".to_owned(),
            "/api/activity?limit=500".to_owned(),
            "/api/tokens".to_owned(),
            "/metrics".to_owned(),
            of_company("secrets"),
            of_company("environments"),
            of_company("environments/capabilities"),
            of_company("environment-leases"),
            of_company("activity"),
        ] {
            self.call("GET", &path, None);
        }
        for environment in self
            .server
            .get(&of_company("environments"))
            .as_array()
            .into_iter()
            .flatten()
        {
            let id = text(&environment["id"]);
            self.call("GET", &format!("/api/environments/{id}/secret-refs"), None);
        }
        for lease in self.server.leases() {
            let id = text(&lease["id"]);
            self.call(
                "GET",
                &format!("/api/environment-leases/{id}/observation"),
                None,
            );
            self.call(
                "GET",
                &format!("/api/environment-leases/{id}/executions"),
                None,
            );
        }
    }
}

/// The SSH provider's whole life with every secret in use; a command that has them runs while others look.
fn use_everything(heard: &Heard, machine: &Machine, environment: &str, looks: &dyn Fn()) {
    let probed = heard.call(
        "POST",
        &format!("/api/environments/{environment}/probe"),
        None,
    );
    assert_eq!(probed["ok"], true, "{probed}");
    let lease = heard.call(
        "POST",
        &format!("/api/environments/{environment}/leases"),
        Some(&json!({})),
    );
    let lease = text(&lease["id"]);
    let signs = machine.directory("signs");
    let (ready, go) = (signs.join("ready"), signs.join("go"));
    let script = format!(
        "printf %s \"$TOKEN$EXTRA\" | wc -c; wc -c; touch {}; while [ ! -e {} ]; do sleep 0.05; done",
        ready.display(),
        go.display(),
    );
    let body = json!({ "argv": ["sh", "-c", script], "env": { "EXTRA": TOKEN }, "stdin": INPUT });
    std::thread::scope(|scope| {
        let path = format!("/api/environment-leases/{lease}/executions");
        let body = &body;
        let ran = scope.spawn(move || heard.call("POST", &path, Some(body)));
        until("the command", || ready.exists().then_some(()));
        looks();
        std::fs::write(&go, "").expect("a file");
        let ran = ran.join().expect("an answer");
        let counts: Vec<usize> = text(&ran["stdout"])
            .split_whitespace()
            .filter_map(|word| word.parse().ok())
            .collect();
        assert_eq!(counts, [TOKEN.len() * 2, INPUT.len()], "it had them: {ran}");
    });
    heard.read_all();
    let released = heard.call(
        "POST",
        &format!("/api/environment-leases/{lease}/release"),
        None,
    );
    assert_eq!(released["status"], "released", "{released}");
}

/// A component that tells all that it sees, with the same secrets. What it answers to a command must contain `shown`.
fn hunt(heard: &Heard, environment: &str, shown: &str) {
    let call = |method: &str, path: &str, body: Option<&Value>| heard.call(method, path, body);
    let probed = call(
        "POST",
        &format!("/api/environments/{environment}/probe"),
        None,
    );
    assert!(
        probed.to_string().contains("username"),
        "it shows its configuration: {probed}"
    );
    let lease = call(
        "POST",
        &format!("/api/environments/{environment}/leases"),
        Some(&json!({})),
    );
    let lease = text(&lease["id"]);
    assert!(!lease.is_empty());
    let body = json!({ "argv": ["true"], "env": { "EXTRA": "plain" }, "stdin": INPUT });
    let ran = call(
        "POST",
        &format!("/api/environment-leases/{lease}/executions"),
        Some(&body),
    );
    assert!(ran.to_string().contains(shown), "{ran}");
    heard.read_all();
    call(
        "POST",
        &format!("/api/environment-leases/{lease}/release"),
        None,
    );
    heard.read_all();
}

#[test]
fn no_secret_is_in_a_component_the_database_the_log_an_answer_or_a_processs_arguments() {
    let Some(machine) = Machine::start() else {
        return;
    };
    let Some(server) = Server::start_with(&["--log-level", "trace"]) else {
        return;
    };
    let key = KeyPair::generate(Kind::Ed25519, Format::OpenSsh, PASSPHRASE).expect("a key");
    machine
        .sshd
        .authorize(&machine.sshd.worker().name, &key.public)
        .expect("authorized");
    let canaries = canaries(&key);
    assert_eq!(
        found(
            format!("{PASSPHRASE} {}", key.private).as_bytes(),
            &canaries
        ),
        ["passphrase", "private key"]
    );

    let heard = Heard {
        server,
        answers: Mutex::default(),
    };
    let server = &heard.server;
    let mut target = machine.target(&server.secret("key", &key.private), machine.sshd.port());
    target["passphrase"] = server.secret("passphrase", PASSPHRASE);
    let token = server.secret("token", TOKEN);
    let draft = |provider: &str, config: Value| json!({ "name": provider, "driver": "ssh", "provider": provider, "config": config, "envVars": { "TOKEN": token } });
    server.install("ssh").expect(201);
    server.install("hostile-canary-hunter").expect(201);
    let config = json!({ "target": target, "remoteWorkspacePath": machine.directory("leases") });
    let ssh = text(&server.environment(&draft("ssh", config)).expect(201)["id"]);
    let hunter = |name: &str, spoilt: Option<&str>| {
        let mut config = json!({ "target": target, "token": token });
        if let Some(spoilt) = spoilt {
            config["at"] = spoilt.into();
        }
        let mut draft = draft("hostile-canary-hunter", config);
        draft["name"] = name.into();
        text(&server.environment(&draft).expect(201)["id"])
    };
    // One that is shown the command, and one that talks on the way, in every export.
    let quiet = hunter("quiet", Some("nothing"));
    let loud = hunter("loud", None);

    let (over, seen) = (AtomicBool::new(false), Mutex::new(Vec::new()));
    let look = || {
        seen.lock()
            .expect("names")
            .extend(found(&arguments(), &canaries))
    };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::SeqCst) {
                look();
            }
        });
        let _over = Over(&over);
        use_everything(&heard, &machine, &ssh, &|| {
            assert!(
                String::from_utf8_lossy(&arguments()).contains("printf %s"),
                "the command's arguments are seen"
            );
            look();
        });
        hunt(&heard, &quiet, "TOKEN");
        hunt(&heard, &loud, "context");
    });
    assert_eq!(
        seen.into_inner().expect("names"),
        Vec::<&str>::new(),
        "in a process's arguments"
    );
    let answers = heard.answers.lock().expect("answers").clone();
    assert_eq!(
        found(answers.as_bytes(), &canaries),
        Vec::<&str>::new(),
        "in an answer"
    );
    let mut kept = Vec::new();
    files(server.path(), &mut kept);
    assert!(
        kept.iter()
            .any(|(name, bytes)| name.ends_with("leasehold.db-wal") && !bytes.is_empty())
    );
    assert!(kept.iter().any(|(name, bytes)| name.ends_with("log")
        && found(bytes, &[("level", b"TRACE".to_vec())]) == ["level"]));
    for (name, bytes) in &kept {
        assert_eq!(found(bytes, &canaries), Vec::<&str>::new(), "in {name}");
    }
    // The other side keeps files too: records of commands, its log.
    assert_eq!(
        found(machine.sshd.log().as_bytes(), &canaries),
        Vec::<&str>::new(),
        "in sshd's log"
    );
}

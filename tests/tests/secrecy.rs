//! A canary in every secret: its bytes are looked for wherever they must not be.
//!
//! What is in a component's memory is asked of one that looks through all of it in each of its exports, and that puts all
//! that it sees into everything that it can say. A search that finds nothing proves nothing by itself, so each is shown to
//! find what is there.

#![allow(
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking, also in what it calls"
)]

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use leasehold_parts::{Format, KeyPair, Kind};
use leasehold_tests::canary::{
    Canaries, Seen, contains, files_below, hunted, processes, with_descendants,
};
use leasehold_tests::heard::Heard;
use leasehold_tests::http::text;
use leasehold_tests::machine::Machine;
use leasehold_tests::server::Server;
use leasehold_tests::wait::{Go, until};
use serde_json::{Value, json};

const PASSPHRASE: &str = "canary-Passphrase-8d1f0c";
const TOKEN: &str = "canary-Token-'\"$`-51ab77";
const INPUT: &str = "canary-Input-c0ffee-92";
/// No secret: what every search must find.
const CONTROL: &str = "open-Word-4711";
/// What is legitimately in the environment of the command that was given it, and nowhere else.
const OF_THE_COMMAND: [&str; 3] = ["token", "token's start", "token's end"];

/// Every secret's bytes: each by a name, and a part that is long enough to be no coincidence.
fn canaries(key: &KeyPair) -> Canaries {
    // A line from the middle of the private half: no part of it is in the public one.
    let lines: Vec<&str> = key.private.lines().collect();
    Canaries::new(vec![
        ("passphrase", PASSPHRASE.into()),
        ("token", TOKEN.into()),
        // Text that was quoted or escaped on the way.
        ("token's start", b"canary-Token-".to_vec()),
        ("token's end", b"-51ab77".to_vec()),
        ("input", INPUT.into()),
        ("private key", lines[lines.len() - 3].into()),
    ])
}

/// Says that it is over when it goes, also by a panic.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// A command that has every secret runs on a lease of the SSH provider: what is on both sides while it does.
fn look_while_it_runs(heard: &Heard, machine: &Machine, canaries: &Canaries) {
    let all = processes();
    let is_command = |one: &Seen| one.arguments.starts_with(b"sh\0-c\0printf %s ");
    let of_command = with_descendants(&all, is_command);
    let mut shown = 0;
    for one in &all {
        let said = String::from_utf8_lossy(&one.arguments).replace('\0', " ");
        assert_eq!(canaries.in_bytes(&one.arguments), NONE, "in `{said}`");
        let allowed = of_command.contains(&one.pid);
        let forbidden = match allowed {
            true => canaries.without(&OF_THE_COMMAND),
            false => canaries.without(&[]),
        };
        let found = forbidden.in_bytes(&one.environment);
        assert_eq!(found, NONE, "in the environment of `{said}`");
        shown += usize::from(allowed && contains(&one.environment, TOKEN.as_bytes()));
        // A script or an input that a shell put into a file, and unlinked.
        if one.has("LEASEHOLD_LEASE") {
            canaries.absent_from(&one.open_files());
        }
    }
    assert!(shown > 0, "the command's own environment is seen");
    assert!(all.iter().any(|one| one.pid == heard.server.pid()));

    // On the target: the workspace, the records, the account's home, sshd's log.
    let parent = machine.directory("leases");
    let whole = parent.ancestors().nth(2).expect("the machine's folder");
    let there = files_below(whole);
    let stands = |what: &str| {
        there
            .iter()
            .any(|(path, _)| path.starts_with(&parent) && path.to_string_lossy().contains(what))
    };
    for what in ["/.leasehold/owner", "/.leasehold/x/exe-", "/work/noted"] {
        assert!(stands(what), "{what} is looked at");
    }
    let noted = |(path, bytes): &(PathBuf, Vec<u8>)| {
        path.ends_with("work/noted") && contains(bytes, CONTROL.as_bytes())
    };
    assert!(there.iter().any(noted), "what a command writes is seen");
    canaries.absent_from(&there);

    look_at_what_is_kept(heard, canaries);
}

const NONE: Vec<&str> = Vec::new();

/// What the server keeps: database, log, compiled components, all that is in its folders.
fn look_at_what_is_kept(heard: &Heard, canaries: &Canaries) {
    let kept = files_below(heard.server.path());
    let has = |what: &str, bytes: &str| {
        kept.iter().any(|(path, there)| {
            path.to_string_lossy().contains(what) && contains(there, bytes.as_bytes())
        })
    };
    assert!(has("leasehold.db", CONTROL), "the database is read");
    assert!(has("leasehold.db-wal", ""), "so is what is not in it yet");
    assert!(has("/compiled/", "ELF"), "so are compiled components");
    assert!(has("/log", "TRACE"), "so is the log, at its most talkative");
    canaries.absent_from(&kept);
}

/// The SSH provider's whole life with every secret in use; a command that has them runs while others look.
fn use_everything(heard: &Heard, machine: &Machine, environment: &str, looks: &dyn Fn()) {
    let probed = heard.watch(&format!("/api/environments/{environment}/probe"));
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
        "printf %s \"$TOKEN$EXTRA\" | wc -c; wc -c; echo {CONTROL} >noted; touch {}; \
         while [ ! -e {} ]; do sleep 0.05; done",
        ready.display(),
        go.display(),
    );
    let body = json!({ "argv": ["sh", "-c", script], "env": { "EXTRA": TOKEN }, "stdin": INPUT });
    std::thread::scope(|scope| {
        let path = format!("/api/environment-leases/{lease}/executions");
        let body = &body;
        let ran = scope.spawn(move || heard.call("POST", &path, Some(body)));
        // Whatever fails here, the command ends, and so does the wait for it.
        let _go = Go(&go);
        until("the command", || ready.exists().then_some(()));
        looks();
        heard.read_all();
        std::fs::write(&go, "").expect("a file");
        let ran = ran.join().expect("an answer");
        let counts: Vec<usize> = text(&ran["stdout"])
            .split_whitespace()
            .filter_map(|word| word.parse().ok())
            .collect();
        assert_eq!(counts, [TOKEN.len() * 2, INPUT.len()], "it had them: {ran}");
    });
    heard.read_all();
    let counts = "printf %s \"$TOKEN\" | wc -c";
    let streamed = heard
        .server
        .run(&["exec", &lease, "--", "sh", "-c", counts]);
    assert_eq!(streamed.stdout.trim(), TOKEN.len().to_string());
    heard.note(&streamed.stderr);
    let released = heard.call(
        "POST",
        &format!("/api/environment-leases/{lease}/release"),
        None,
    );
    assert_eq!(released["status"], "released", "{released}");
}

/// A component that tells all that it sees, with the same secrets, in every call that the server makes of it. What it
/// answers to a command must contain `shown`.
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
        Some(&json!({ "ttlSeconds": 600 })),
    );
    let lease = text(&lease["id"]);
    assert!(!lease.is_empty());
    let of_lease = |what: &str| format!("/api/environment-leases/{lease}/{what}");
    let longer = json!({ "ttlSeconds": 3600 });
    call("POST", &of_lease("renew"), Some(&longer));
    let body = json!({ "argv": ["true"], "env": { "EXTRA": "plain" }, "stdin": INPUT });
    let ran = call("POST", &of_lease("executions"), Some(&body));
    assert!(ran.to_string().contains(shown), "{ran}");
    let executions = call("GET", &of_lease("executions"), None);
    let signal = format!("/api/executions/{}/signal", text(&executions[0]["id"]));
    call("POST", &signal, Some(&json!({ "signal": "TERM" })));
    let files = of_lease("files?path=.");
    let put = heard
        .server
        .upload("PUT", &files, "application/x-tar", &[0; 1024]);
    heard.keep(put);
    heard.read_all();
    call("POST", &of_lease("release"), None);
    heard.read_all();
}

#[test]
fn no_secret_is_in_a_component_the_database_the_log_an_answer_a_process_or_on_the_target() {
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
    let both = format!("{PASSPHRASE} {}", key.private);
    assert_eq!(
        canaries.in_bytes(both.as_bytes()),
        ["passphrase", "private key"]
    );

    let heard = Heard::new(server, "ssh");
    let server = &heard.server;
    let mut target = machine.target(&server.secret("key", &key.private), machine.sshd.port());
    target["passphrase"] = server.secret("passphrase", PASSPHRASE);
    let token = server.secret("token", TOKEN);
    let draft = |provider: &str, config: Value| {
        json!({
            "name": provider,
            "description": CONTROL,
            "driver": "ssh",
            "provider": provider,
            "config": config,
            "envVars": { "TOKEN": token },
        })
    };
    server.install("ssh").expect(201);
    server.install("hostile-canary-hunter").expect(201);
    let config = json!({ "target": target, "remoteWorkspacePath": machine.directory("leases") });
    let ssh = text(&server.environment(&draft("ssh", config)).expect(201)["id"]);
    let mut hunt_for = canaries.told();
    hunt_for["control"] =
        Canaries::new(vec![("control", CONTROL.into())]).told()["control"].clone();
    let hunter = |name: &str, key: &str, value: Value| {
        // Kept with the environment: its provider is asked about the configuration before there is a secret.
        let pasted = json!({ "type": "secret_value", "value": TOKEN });
        let mut config =
            json!({ "target": target, "token": pasted, "word": CONTROL, "hunt": hunt_for });
        config[key] = value;
        let mut draft = draft("hostile-canary-hunter", config);
        draft["name"] = name.into();
        let made = server.environment(&draft).expect(201);
        assert_eq!(made["config"]["found"], "control", "in check-config");
        text(&made["id"])
    };
    // One that is shown the command, one that talks on the way, in every export, and one that makes nothing.
    let quiet = hunter("quiet", "at", "nothing".into());
    let loud = hunter("loud", "loud", true.into());
    let refusing = hunter("refusing", "refuse", true.into());

    let over = AtomicBool::new(false);
    let seen = Mutex::new(BTreeSet::new());
    // Between any two steps: arguments of all, and environments: of a command or a probe without its own variable.
    let look = || {
        for one in processes() {
            let mut found = canaries.in_bytes(&one.arguments);
            // What a probe runs on the machine has the same variables, so that it finds what a command would.
            let has_variables = one.has("LEASEHOLD_EXECUTION") || one.has("TOKEN");
            found.extend(match has_variables {
                true => canaries.without(&OF_THE_COMMAND).in_bytes(&one.environment),
                false => canaries.in_bytes(&one.environment),
            });
            let said = String::from_utf8_lossy(&one.arguments).replace('\0', " ");
            let mut seen = seen.lock().expect("names");
            seen.extend(found.into_iter().map(|name| (name, said.clone())));
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::SeqCst) {
                look();
            }
        });
        let _over = Over(&over);
        use_everything(&heard, &machine, &ssh, &|| {
            look_while_it_runs(&heard, &machine, &canaries);
        });
        hunt(&heard, &quiet, "TOKEN");
        hunt(&heard, &loud, "context");
        let refused = server.acquire(&refusing);
        assert_eq!(heard.keep(refused).0, 502);
        until("its list", || {
            hunted(&server.log()).contains_key("list").then_some(())
        });
        heard.read_all();
    });
    assert_eq!(
        seen.into_inner().expect("names"),
        BTreeSet::new(),
        "in a process"
    );
    let told = hunted(&server.log());
    for export in [
        "probe",
        "acquire",
        "keep-alive",
        "inspect",
        "release",
        "list",
        "start",
        "state-of",
        "signal",
        "put",
        "get",
        "start of a command",
    ] {
        let found = told.get(export);
        let only = BTreeSet::from(["control".to_owned()]);
        assert_eq!(found, Some(&only), "in memory in {export}: {told:?}");
    }
    heard.everything_was_read();
    let answers = heard.answers();
    assert_eq!(canaries.in_bytes(answers.as_bytes()), NONE, "in an answer");
    look_at_what_is_kept(&heard, &canaries);
    let parent = machine.directory("leases");
    let whole = parent.ancestors().nth(2).expect("the machine's folder");
    canaries.absent_from(&files_below(whole));
}

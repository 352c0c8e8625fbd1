//! The main job by the command line, with a look at every answer: every step, and also with `kill -9` of the server
//! between any two.

use std::io::Write;
use std::process::{Output, Stdio};

use leasehold_tests::http::text;
use leasehold_tests::machine::{Machine, listed, only_known_workspaces};
use leasehold_tests::server::{Server, component};
use serde_json::json;

/// Runs the client with this input.
fn with_input(server: &Server, arguments: &[&str], input: &[u8]) -> Output {
    let mut child = server
        .leasehold()
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the client runs");
    child
        .stdin
        .take()
        .expect("a pipe")
        .write_all(input)
        .expect("it reads");
    child.wait_with_output().expect("it ends")
}

/// The main job and what belongs to it; `between` comes between any two steps.
fn walk(server: &mut Server, machine: &Machine, mut between: impl FnMut(&mut Server)) {
    let parent = machine.directory("leases");
    let wasm = server.path().join("ssh.wasm");
    std::fs::write(&wasm, component("ssh").expect("it was built")).expect("a file");

    let shown = server.run(&["plugin", "inspect", &wasm.display().to_string()]);
    assert!(
        shown.stdout.contains("Granting it allows it to:"),
        "{}",
        shown.stderr
    );
    between(server);
    let waits = server.json(&["plugin", "install", &wasm.display().to_string()]);
    assert_eq!(waits["status"], "pending", "nobody was asked: {waits}");
    between(server);
    server.json(&["plugin", "install", "--yes", &wasm.display().to_string()]);
    between(server);
    server.json(&["company", "create", "acme"]);
    between(server);
    let stored = with_input(
        server,
        &["secret", "set", "build-key"],
        machine.sshd.key().private.as_bytes(),
    );
    assert!(
        stored.status.success(),
        "{}",
        String::from_utf8_lossy(&stored.stderr)
    );
    between(server);
    let port = machine.sshd.port().to_string();
    let shown = server.run(&["env", "host-key", "127.0.0.1", "--port", &port]);
    assert!(
        machine
            .sshd
            .fingerprints()
            .iter()
            .any(|known| shown.stdout.contains(known)),
        "{}",
        shown.stdout
    );
    between(server);
    let parent_text = parent.display().to_string();
    let mut create = vec![
        "env",
        "create",
        "--name",
        "build box",
        "--driver",
        "ssh",
        "--host",
        "127.0.0.1",
    ];
    create.extend([
        "--port",
        &port,
        "--user",
        &machine.sshd.worker().name,
        "--key",
        "build-key",
    ]);
    create.extend(["--workspace", &parent_text, "--var", "CI=1"]);
    let fingerprints = machine.sshd.fingerprints();
    for fingerprint in &fingerprints {
        create.extend(["--fingerprint", fingerprint]);
    }
    server.json(&create);
    between(server);
    let probed = server.json(&["probe", "build box"]);
    assert_eq!(probed["ok"], true, "{probed}");
    assert!(listed(&parent).is_empty(), "a probe changes nothing");
    between(server);
    let lease = server.json(&["lease", "acquire", "build box", "--ttl", "30m"]);
    assert_eq!(
        (&lease["status"], &lease["proof"]),
        (&json!("active"), &json!("owned")),
        "{lease}"
    );
    let lease = text(&lease["id"]);
    only_known_workspaces(server, &parent);
    between(server);

    let ran = server.run(&[
        "exec",
        &lease,
        "--",
        "sh",
        "-c",
        "echo out $CI; echo err >&2; exit 7",
    ]);
    assert_eq!(
        (ran.code, ran.stdout.as_str(), ran.stderr.as_str()),
        (7, "out 1\n", "err\n")
    );
    between(server);
    let killed = server.run(&["exec", &lease, "--", "sh", "-c", "kill -9 $$"]);
    assert_eq!(killed.code, 137, "{}", killed.stderr);
    between(server);
    let echoed = with_input(server, &["exec", &lease, "--", "cat"], b"typed");
    assert_eq!(echoed.stdout, b"typed");
    between(server);
    copy_there_and_back(server, &lease, &mut between);
    server.json(&["lease", "renew", &lease, "--ttl", "1h"]);
    between(server);
    let executions = server.json(&["lease", "executions", &lease]);
    let executions = executions.as_array().expect("a list");
    assert_eq!(executions.len(), 4, "{executions:?}");
    assert!(
        executions.iter().all(|one| one["outcome"] != "unknown"),
        "{executions:?}"
    );
    between(server);
    only_known_workspaces(server, &parent);
    let released = server.json(&["lease", "release", &lease]);
    assert_eq!(released["status"], "released", "{released}");
    assert!(listed(&parent).is_empty());
    between(server);
    let again = server.json(&["lease", "release", &lease]);
    assert_eq!(again["status"], "released", "what is gone is gone");
    let gone = server.run(&["exec", &lease, "--", "true"]);
    assert_eq!(gone.code, 125, "{}", gone.stderr);
    between(server);
    let chain = server.get("/api/activity/chain");
    assert!(chain["rows"].as_u64() > Some(8), "{chain}");
    for action in ["plugin.installed", "lease.released"] {
        let activity = server.json(&["activity"]).to_string();
        assert!(activity.contains(action), "{action}: {activity}");
    }
}

/// A file and a folder in, a command that sees them, and out again.
fn copy_there_and_back(server: &mut Server, lease: &str, between: &mut impl FnMut(&mut Server)) {
    let folder = server.path().join("source");
    std::fs::create_dir_all(folder.join("deep")).expect("a folder");
    std::fs::write(folder.join("deep/file"), [0u8, 255, 10, 13]).expect("a file");
    let there = format!("{lease}:.");
    let copied = server.run(&["cp", &folder.display().to_string(), &there]);
    assert_eq!(copied.code, 0, "{}", copied.stderr);
    between(server);
    let seen = server.run(&["exec", lease, "--", "wc", "-c", "source/deep/file"]);
    assert!(
        seen.stdout.starts_with('4'),
        "{} {}",
        seen.stdout,
        seen.stderr
    );
    between(server);
    let back = server.path().join("back");
    std::fs::create_dir_all(&back).expect("a folder");
    let from = format!("{lease}:source/deep/file");
    let copied = server.run(&["cp", &from, &back.display().to_string()]);
    assert_eq!(copied.code, 0, "{}", copied.stderr);
    assert_eq!(
        std::fs::read(back.join("file")).expect("a file"),
        [0u8, 255, 10, 13]
    );
    between(server);
}

#[test]
fn the_main_job_runs_by_the_command_line() {
    let Some(machine) = Machine::start() else {
        return;
    };
    let Some(mut server) = Server::start() else {
        return;
    };
    walk(&mut server, &machine, |_| {});
}

#[test]
fn the_main_job_runs_though_the_server_is_killed_between_any_two_steps() {
    let Some(machine) = Machine::start() else {
        return;
    };
    let Some(mut server) = Server::start() else {
        return;
    };
    walk(&mut server, &machine, Server::restart);
}

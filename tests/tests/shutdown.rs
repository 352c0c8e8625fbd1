//! A signal at any moment: the server ends in order and in time, and the next start finds everything.

#![allow(
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking, also in what it calls"
)]

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use leasehold_tests::http::text;
use leasehold_tests::machine::{Machine, listed, only_known_workspaces};
use leasehold_tests::server::Server;
use leasehold_tests::wait::until;
use leasehold_tests::wire::{State, Wire};
use rustix::process::Signal;
use serde_json::json;

/// Numbers of `openat` and `openat2`.
const OPENS: [u32; 2] = [
    if cfg!(target_arch = "x86_64") {
        257
    } else {
        56
    },
    437,
];

const SIGNALS: [Signal; 4] = [Signal::TERM, Signal::INT, Signal::HUP, Signal::QUIT];

#[test]
fn a_signal_at_any_moment_of_a_start_ends_it_and_the_next_start_works() {
    let Some(mut server) = Server::start() else {
        return;
    };
    server.install("null").expect(201);
    server.kill();
    // Each line of the log is a moment of the start.
    let mut moments = 0;
    for signal in SIGNALS.into_iter().cycle() {
        let before = server.log().lines().count();
        server.spawn();
        let reached = until("the moment", || {
            let lines = server.log().lines().count() - before;
            (lines >= moments).then_some(true).or_else(|| {
                server
                    .try_call("GET", "/readyz", None)
                    .filter(|a| a.status == 200)
                    .map(|_| false)
            })
        });
        server.signal(signal);
        let status = server.wait_end();
        // Before the very first line the signals may not be caught yet.
        assert!(
            status.success() || moments == 0,
            "{signal:?} at moment {moments}: {status}"
        );
        moments += 1;
        if !reached || moments > 8 {
            break;
        }
    }
    assert!(moments > 2, "only {moments} moments: {}", server.log());
    server.spawn();
    server.wait_ready();
    assert_eq!(server.get("/api/plugins")[0]["key"], "null");
}

#[test]
fn a_signal_while_a_command_streams_tells_its_client_and_the_next_start_has_its_code() {
    let Some(machine) = Machine::start() else {
        return;
    };
    let Some(mut server) = Server::start_with(&["--shutdown-grace", "1"]) else {
        return;
    };
    let parent = machine.directory("leases");
    let environment = machine.environment(&server, &parent, machine.sshd.port());
    let lease = text(&server.acquire(&environment).expect(201)["id"]);
    for (number, signal) in SIGNALS.into_iter().enumerate() {
        let go = machine.directory("signs").join(format!("go-{number}"));
        let script = format!(
            "echo started; while [ ! -e {} ]; do sleep 0.05; done; exit 9",
            go.display()
        );
        let mut client = server
            .leasehold()
            .args(["exec", &lease, "--", "sh", "-c", &script])
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("the client runs");
        let mut line = String::new();
        BufReader::new(client.stdout.take().expect("a pipe"))
            .read_line(&mut line)
            .expect("a line");
        assert_eq!(line, "started\n");
        server.signal(signal);
        assert!(server.wait_end().success(), "{signal:?}: {}", server.log());
        assert_eq!(
            client.wait().expect("it ends").code(),
            Some(125),
            "{signal:?}"
        );
        server.spawn();
        server.wait_ready();
        std::fs::write(&go, "").expect("a file");
        let executions = server.executions(&lease);
        assert_eq!(executions.len(), number + 1);
        for execution in executions {
            let settled = server.wait_execution(&text(&execution["id"]), "exited");
            assert_eq!(settled["exitCode"], 9, "{signal:?}: {settled}");
        }
    }
    only_known_workspaces(&server, &parent);
    assert_eq!(server.release(&lease)["status"], "released");
    assert!(listed(&parent).is_empty());
}

#[test]
fn a_signal_while_a_lease_is_acquired_from_a_silent_machine_leaves_a_record_that_comes_to_an_end() {
    let Some(machine) = Machine::start() else {
        return;
    };
    let Some(mut server) = Server::start_with(&["--shutdown-grace", "1"]) else {
        return;
    };
    let parent = machine.directory("leases");
    let wire = Wire::to(machine.sshd.port());
    let environment = machine.environment(&server, &parent, wire.port());
    wire.set(State::Silent);
    std::thread::scope(|scope| {
        let asking = scope.spawn(|| {
            let path = format!("/api/environments/{environment}/leases");
            server.try_call("POST", &path, Some(&json!({})))
        });
        until("the server to knock", || (wire.held() > 0).then_some(()));
        server.signal(Signal::TERM);
        let answer = asking.join().expect("no panic");
        assert!(answer.is_none_or(|answer| answer.status >= 400));
    });
    assert!(server.wait_end().success(), "{}", server.log());
    wire.set(State::Up);
    server.spawn();
    server.wait_ready();
    let leases = server.leases();
    assert_eq!(leases.len(), 1, "{leases:?}");
    let lease = text(&leases[0]["id"]);
    until("the lease to end", || {
        ["failed", "released"]
            .contains(&text(&server.lease(&lease)["status"]).as_str())
            .then_some(())
    });
    assert!(listed(&parent).is_empty());
    let next = text(&server.acquire(&environment).expect(201)["id"]);
    assert_eq!(server.release(&next)["status"], "released");
}

#[test]
fn a_signal_while_a_release_waits_for_its_machine_ends_the_server_and_the_release_goes_on_later() {
    let Some(machine) = Machine::start() else {
        return;
    };
    let Some(mut server) = Server::start_with(&["--shutdown-grace", "1"]) else {
        return;
    };
    let parent = machine.directory("leases");
    let wire = Wire::to(machine.sshd.port());
    let environment = machine.environment(&server, &parent, wire.port());
    let lease = text(&server.acquire(&environment).expect(201)["id"]);
    wire.set(State::Silent);
    std::thread::scope(|scope| {
        let asking = scope.spawn(|| {
            let path = format!("/api/environment-leases/{lease}/release");
            server.try_call("POST", &path, None)
        });
        until("the server to knock", || (wire.held() > 0).then_some(()));
        server.signal(Signal::INT);
        let _ = asking.join().expect("no panic");
    });
    assert!(server.wait_end().success(), "{}", server.log());
    wire.set(State::Up);
    server.spawn();
    server.wait_ready();
    server.wait_lease(&lease, "released");
    assert!(listed(&parent).is_empty());
}

#[test]
fn a_second_signal_ends_a_start_that_the_file_system_holds_in_a_read() {
    let Some(mut server) = Server::new(&[]) else {
        return;
    };
    // Nobody ever writes here: to open it never ends, as of a file on a network that is gone.
    let key = server.path().join("config/leasehold/master.key");
    let folder = key.parent().expect("a folder");
    std::fs::create_dir_all(folder).expect("a folder");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o700);
    std::fs::set_permissions(folder, mode).expect("a mode");
    let made = std::process::Command::new("mkfifo")
        .args(["-m", "600"])
        .arg(&key)
        .status();
    assert!(made.expect("mkfifo runs").success());
    for (first, second) in [(Signal::TERM, Signal::INT), (Signal::INT, Signal::TERM)] {
        let before = server.log().len();
        server.spawn();
        let said = |server: &Server, words: &str| server.log()[before..].contains(words);
        // The same call of the system with the same registers, look after look: its first thread stands in an open.
        let mut looks: Vec<String> = Vec::new();
        until("the read", || {
            let call = std::fs::read_to_string(format!("/proc/{}/syscall", server.pid())).ok()?;
            let opens = OPENS
                .iter()
                .any(|number| call.starts_with(&format!("{number} ")));
            if !opens || looks.last().is_some_and(|last| *last != call) {
                looks.clear();
            }
            looks.push(call);
            (opens && looks.len() > 5).then_some(())
        });
        server.signal(first);
        until("the first signal", || {
            said(&server, "ending in order").then_some(())
        });
        assert!(server.ended().is_none(), "the read holds it");
        server.signal(second);
        let status = server.wait_end();
        assert_eq!(status.code(), Some(1), "{status}");
        assert!(
            said(&server, "ended at once by a second signal"),
            "{}",
            server.log()
        );
    }
    std::fs::remove_file(&key).expect("it was there");
    server.begin();
}

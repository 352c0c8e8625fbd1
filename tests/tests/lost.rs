//! What is lost on the way: a connection, the server, the target. Unknown is said, shown, and settled by the truth.

#![allow(
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking, also in what it calls"
)]

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

use leasehold_tests::http::text;
use leasehold_tests::machine::{Machine, listed, marked};
use leasehold_tests::server::Server;
use leasehold_tests::wait::until;
use leasehold_tests::wire::{State, Wire};
use serde_json::{Value, json};

/// A server that reaches a machine by a wire.
struct House {
    machine: Machine,
    wire: Wire,
    server: Server,
    environment: String,
    parent: PathBuf,
}

impl House {
    fn new() -> Option<House> {
        let machine = Machine::start()?;
        let server = Server::start()?;
        let wire = Wire::to(machine.sshd.port());
        let parent = machine.directory("leases");
        let environment = machine.environment(&server, &parent, wire.port());
        Some(House {
            machine,
            wire,
            server,
            environment,
            parent,
        })
    }

    fn acquire(&self) -> String {
        text(&self.server.acquire(&self.environment).expect(201)["id"])
    }

    /// Where a command that is waiting looks.
    fn go(&self) -> PathBuf {
        self.machine.directory("signs").join("go")
    }

    /// Starts a command that says `started`, waits for a sign, and exits with 9; when it has said so.
    fn start_waiting(&self, lease: &str) -> Child {
        let script = format!(
            "echo started; while [ ! -e {} ]; do sleep 0.05; done; exit 9",
            self.go().display()
        );
        let mut child = self
            .server
            .leasehold()
            .args(["exec", lease, "--", "sh", "-c", &script])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the client runs");
        let mut line = String::new();
        let mut stdout = BufReader::new(child.stdout.take().expect("a pipe"));
        stdout.read_line(&mut line).expect("a line");
        assert_eq!(line, "started\n");
        child
    }

    fn only_execution(&self, lease: &str) -> Value {
        let executions = self.server.executions(lease);
        assert_eq!(executions.len(), 1, "{executions:?}");
        executions[0].clone()
    }
}

fn touch(file: &Path) {
    std::fs::write(file, "").expect("a file");
}

/// Its code and what it said.
fn end_of(child: Child) -> (Option<i32>, String) {
    let output = child.wait_with_output().expect("it ends");
    (
        output.status.code(),
        String::from_utf8_lossy(&output.stderr).into_owned(),
    )
}

#[test]
fn a_command_whose_connection_is_cut_is_unknown_and_later_settled_by_how_it_really_ended() {
    let Some(house) = House::new() else { return };
    let lease = house.acquire();
    let running = house.start_waiting(&lease);
    house.wire.set(State::Down);
    // The client is told that nobody knows, and not that it failed or went well.
    let (code, said) = end_of(running);
    assert_eq!(code, Some(125), "{said}");
    assert!(said.contains("unknown"), "{said}");
    let execution = house.only_execution(&lease);
    assert_eq!(execution["outcome"], "unknown", "{execution}");

    house.wire.set(State::Up);
    touch(&house.go());
    let settled = house
        .server
        .wait_execution(&text(&execution["id"]), "exited");
    assert_eq!(settled["exitCode"], 9, "{settled}");
    assert_eq!(house.server.release(&lease)["status"], "released");
}

#[test]
fn a_command_whose_session_is_killed_on_the_machine_is_settled_by_how_it_really_ended() {
    let Some(house) = House::new() else { return };
    let lease = house.acquire();
    let running = house.start_waiting(&lease);
    house.machine.sshd.cut();
    touch(&house.go());
    // The machine answers again at once, so that the truth is there before the client is told anything.
    let (code, said) = end_of(running);
    assert_eq!(code, Some(9), "{said}");
    let execution = house.only_execution(&lease);
    assert_eq!(
        (&execution["outcome"], &execution["exitCode"]),
        (&json!("exited"), &json!(9))
    );
}

#[test]
fn a_command_that_is_cut_off_on_its_way_there_never_began_and_that_is_what_is_said() {
    let Some(house) = House::new() else { return };
    let lease = house.acquire();
    let ran = house.machine.directory("signs").join("ran");
    // Half of what it is given arrives.
    let body = json!({
        "argv": ["sh", "-c", format!("touch {}", ran.display())],
        "env": { "LONG": "x".repeat(100_000) },
    });
    for passes in [0, 1_000, 30_000, 60_000, 90_000] {
        house.wire.cut_after(passes);
        let answer = house.server.exec(&lease, &body);
        // Refused, or begun as far as could be told and lost after that: in no case an end that nobody saw.
        let told = text(&answer.json()["execution"]["outcome"]);
        assert!(
            answer.status >= 400 || ["unknown", "not_started"].contains(&told.as_str()),
            "{passes}: {}",
            answer.body
        );
        house.wire.set(State::Up);
        let execution = until("a new execution", || {
            house.server.executions(&lease).first().cloned()
        });
        let settled = until("the truth", || {
            let now = house
                .server
                .get(&format!("/api/executions/{}", text(&execution["id"])));
            let open = ["running", "unknown"].contains(&text(&now["outcome"]).as_str());
            (!open).then_some(now)
        });
        assert_eq!(settled["outcome"], "not_started", "{passes}: {settled}");
        assert!(!ran.exists(), "{passes}: it ran");
    }
    let executions = house.server.executions(&lease);
    assert_eq!(executions.len(), 5, "{executions:?}");
    assert!(
        executions.iter().all(|one| one["outcome"] == "not_started"),
        "{executions:?}"
    );
    assert_eq!(
        house
            .server
            .exec(&lease, &json!({ "argv": ["true"] }))
            .expect(200)["execution"]["exitCode"],
        0
    );
    assert_eq!(house.server.release(&lease)["status"], "released");
}

#[test]
fn a_command_that_runs_while_the_server_is_killed_is_found_again_with_its_code() {
    let Some(mut house) = House::new() else {
        return;
    };
    let lease = house.acquire();
    let running = house.start_waiting(&lease);
    house.server.kill();
    let (code, said) = end_of(running);
    assert_eq!(code, Some(125), "{said}");
    assert!(said.contains("may still run"), "{said}");
    house.server.restart();
    let execution = house.only_execution(&lease);
    assert_ne!(
        execution["outcome"], "exited",
        "it still waits: {execution}"
    );
    touch(&house.go());
    let settled = house
        .server
        .wait_execution(&text(&execution["id"]), "exited");
    assert_eq!(settled["exitCode"], 9, "{settled}");
    let again = house
        .server
        .exec(&lease, &json!({ "argv": ["true"] }))
        .expect(200);
    assert_eq!(again["execution"]["exitCode"], 0, "the lease goes on");
}

#[test]
fn a_release_while_the_machine_is_away_waits_in_sight_and_is_confirmed_once_it_is_back() {
    let Some(house) = House::new() else { return };
    let lease = house.acquire();
    house.wire.set(State::Down);
    let ran = house.server.run(&["lease", "release", &lease]);
    assert_eq!(ran.code, 1, "{}", ran.stderr);
    assert!(ran.stderr.contains("not confirmed"), "{}", ran.stderr);
    let waiting = house.server.lease(&lease);
    assert_eq!(waiting["cleanupStatus"], "failed", "{waiting}");
    assert!(!text(&waiting["failureReason"]).is_empty(), "{waiting}");
    until("a second try", || {
        (house.server.lease(&lease)["cleanupAttempts"].as_u64()? > 1).then_some(())
    });
    let metrics = house.server.call("GET", "/metrics", None).body;
    let counted = metrics
        .lines()
        .any(|line| line.contains("pending_cleanup") && line.ends_with(" 1"));
    assert!(counted, "{metrics}");
    assert_eq!(
        listed(&house.parent).len(),
        1,
        "it is still there, as is said"
    );
    // Nothing starts on it, and nothing else is leased there meanwhile.
    assert_eq!(
        house
            .server
            .exec(&lease, &json!({ "argv": ["true"] }))
            .code(),
        "lease_not_active"
    );
    assert_eq!(
        house.server.acquire(&house.environment).code(),
        "target_in_use"
    );

    house.wire.set(State::Up);
    house.server.wait_lease(&lease, "released");
    assert!(listed(&house.parent).is_empty());
    let next = house.acquire();
    assert_eq!(house.server.release(&next)["status"], "released");
}

#[test]
fn a_release_that_waits_goes_on_after_the_server_was_killed() {
    let Some(mut house) = House::new() else {
        return;
    };
    let lease = house.acquire();
    house.wire.set(State::Down);
    house.server.release(&lease);
    house.server.kill();
    house.wire.set(State::Up);
    house.server.restart();
    house.server.wait_lease(&lease, "released");
    assert!(listed(&house.parent).is_empty());
}

#[test]
fn a_release_ends_what_still_runs_and_says_that_it_was_killed() {
    let Some(house) = House::new() else { return };
    let lease = house.acquire();
    let running = house.start_waiting(&lease);
    assert_eq!(house.server.release(&lease)["status"], "released");
    assert!(listed(&house.parent).is_empty());
    assert!(marked(&house.parent).is_empty());
    // Whoever was watching is told the same as the record.
    let (code, said) = end_of(running);
    assert_eq!(code, Some(128 + 9), "{said}");
    let execution = house.only_execution(&lease);
    assert_eq!(
        (
            &execution["outcome"],
            &execution["signal"],
            &execution["cancelled"]
        ),
        (&json!("signalled"), &json!("KILL"), &json!(true)),
        "{execution}"
    );
}

#[test]
fn people_who_wait_see_what_is_being_done_and_nothing_of_it_stays() {
    let Some(house) = House::new() else { return };
    let server = &house.server;
    let asked = |id: &str| server.call("GET", &format!("/api/progress/{id}"), None);
    let connecting = |value: &Value| text(&value["progress"]["text"]).starts_with("connecting to ");
    let path = format!(
        "/api/environments/{}/leases?progressId=mine",
        house.environment
    );
    let admin = server.call(
        "POST",
        "/api/tokens",
        Some(&json!({ "name": "other", "role": "admin" })),
    );
    let other = format!("Bearer {}", text(&admin.expect(201)["secret"]));
    assert_eq!(asked("mine").status, 404);

    house.wire.set(State::Silent);
    std::thread::scope(|scope| {
        let acquiring = scope.spawn(|| server.call("POST", &path, Some(&json!({}))));
        let work = until("the acquire's progress", || {
            let now = asked("mine").json();
            connecting(&now).then_some(now)
        });
        let lease = server.lease(&text(&work["leaseId"]));
        assert_eq!(lease["status"], "acquiring", "{lease}");
        assert_eq!(lease["progress"], work["progress"]);
        // What somebody else calls so is something else.
        let host = format!("localhost:{}", server.port());
        let headers = [("host", host.as_str()), ("authorization", other.as_str())];
        assert_eq!(
            server.tcp("GET", "/api/progress/mine", &headers, "").status,
            404
        );
        house.wire.set(State::Up);
        if acquiring.join().expect("an answer").status == 201 {
            server.release(&text(&lease["id"]));
        }
        assert_eq!(asked("mine").status, 404);
        until("the line to be gone", || {
            server.lease(&text(&lease["id"]))["progress"]
                .is_null()
                .then_some(())
        });
    });

    let lease = house.acquire();
    assert!(server.lease(&lease)["progress"].is_null());
    house.wire.set(State::Silent);
    std::thread::scope(|scope| {
        let releasing = scope.spawn(|| server.release(&lease));
        until("the release's progress", || {
            connecting(&server.lease(&lease)).then_some(())
        });
        house.wire.set(State::Up);
        releasing.join().expect("an answer");
    });
    server.wait_lease(&lease, "released");
    until("the line to be gone", || {
        server.lease(&lease)["progress"].is_null().then_some(())
    });

    house.wire.set(State::Silent);
    std::thread::scope(|scope| {
        let path = format!(
            "/api/environments/{}/probe?progressId=probe",
            house.environment
        );
        let probing = scope.spawn(move || server.call("POST", &path, None));
        until("the probe's progress", || {
            connecting(&asked("probe").json()).then_some(())
        });
        house.wire.set(State::Up);
        probing.join().expect("an answer").expect(200);
    });
    assert_eq!(asked("probe").status, 404);
}

#[test]
fn an_abandoned_cleanup_is_no_longer_tried_and_stands_in_the_activity_with_its_reason() {
    let Some(house) = House::new() else { return };
    let lease = house.acquire();
    let early = house
        .server
        .run(&["lease", "abandon", &lease, "--reason", "why not"]);
    assert_eq!(
        early.code, 5,
        "a lease in use is not abandoned: {}",
        early.stderr
    );
    let running = house.start_waiting(&lease);
    house.wire.set(State::Down);
    house.server.release(&lease);
    let ran = house.server.run(&[
        "lease",
        "abandon",
        &lease,
        "--reason",
        "the machine was sold",
    ]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert_eq!(house.server.lease(&lease)["status"], "abandoned");
    // Nobody looked, so nobody can tell what became of its command.
    assert_eq!(end_of(running).0, Some(125));
    assert_eq!(house.only_execution(&lease)["outcome"], "unknown");
    touch(&house.go());
    let activity = house.server.get("/api/activity").to_string();
    assert!(activity.contains("lease.abandoned"), "{activity}");
    assert!(activity.contains("the machine was sold"), "{activity}");
    // The target is free for the next lease, and what was abandoned is left alone.
    house.wire.set(State::Up);
    let next = house.acquire();
    assert_eq!(house.server.release(&next)["status"], "released");
    assert_eq!(house.server.lease(&lease)["status"], "abandoned");
    assert_eq!(
        listed(&house.parent).len(),
        1,
        "what was abandoned is the operator's to remove"
    );
}

#[test]
fn who_took_a_key_for_a_probe_is_known_though_the_server_is_killed_while_it_knocks() {
    let Some(mut house) = House::new() else {
        return;
    };
    let company = house.server.company();
    let secrets = house
        .server
        .get(&format!("/api/companies/{company}/secrets"));
    let accesses = format!("/api/secrets/{}/accesses", text(&secrets[0]["id"]));
    assert_eq!(house.server.get(&accesses)["items"], json!([]));
    house.wire.set(State::Silent);
    // Whoever asks hears nothing.
    let mut asking = UnixStream::connect(house.server.socket()).expect("a server");
    let ask = format!(
        "POST /api/environments/{}/probe HTTP/1.1\r\nhost: localhost\r\ncontent-length: 0\r\n\r\n",
        house.environment
    );
    asking.write_all(ask.as_bytes()).expect("it listens");
    until("the server to knock", || {
        (house.wire.held() > 0).then_some(())
    });
    house.server.restart();
    let had = house.server.get(&accesses)["items"].clone();
    assert_eq!(had[0]["purpose"], "probe", "{had}");
    assert_eq!(had[0]["configPath"], "/target/privateKey", "{had}");
    assert_eq!(had.as_array().map(Vec::len), Some(1), "{had}");
}

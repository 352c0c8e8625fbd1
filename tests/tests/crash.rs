//! `kill -9` of the server at each of its journal writes, while it acquires, runs a command and releases.
//!
//! The database's own writes are what is counted: the server is killed before each sync (the record is with the kernel,
//! and nothing was done on it yet) and in the middle of each transaction before it (what was done is not recorded). After
//! every kill it is started again, and what it then says must be what is on the target.

#![allow(
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking, also in what it calls"
)]

use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use leasehold_tests::http::text;
use leasehold_tests::machine::{Machine, listed, marked, only_known_workspaces};
use leasehold_tests::server::Server;
use leasehold_tests::trace::{self, Call, Trace};
use leasehold_tests::wait::until;
use serde_json::{Value, json};

/// Servers that are killed at once, each with a database and a directory of its own.
const AT_ONCE: usize = 3;

/// One server and what it leases.
struct House {
    server: Server,
    environment: String,
    parent: PathBuf,
    witness: PathBuf,
}

impl House {
    fn new(machine: &Machine, number: usize) -> Option<House> {
        let server = Server::start()?;
        let parent = machine.directory(&format!("leases-{number}"));
        let witness = machine.directory(&format!("witness-{number}")).join("ran");
        let environment = machine.environment(&server, &parent, machine.sshd.port());
        Some(House {
            server,
            environment,
            parent,
            witness,
        })
    }

    /// The main job. Answers whether the server lived to its end.
    fn job(&self) -> bool {
        let call = |path: &str, body: &Value| self.server.try_call("POST", path, Some(body));
        let Some(made) = call(
            &format!("/api/environments/{}/leases", self.environment),
            &json!({}),
        ) else {
            return false;
        };
        let lease = text(&made.expect(201)["id"]);
        let script = format!(
            "echo $LEASEHOLD_EXECUTION >>{}; exit 7",
            self.witness.display()
        );
        let body = json!({ "argv": ["sh", "-c", script] });
        let Some(ran) = call(
            &format!("/api/environment-leases/{lease}/executions"),
            &body,
        ) else {
            return false;
        };
        assert_eq!(ran.expect(200)["execution"]["exitCode"], 7);
        let path = format!("/api/environment-leases/{lease}/release");
        let Some(released) = self.server.try_call("POST", &path, None) else {
            return false;
        };
        assert_eq!(released.expect(200)["status"], "released");
        true
    }

    /// How often a command really ran.
    fn runs_of(&self, execution: &str) -> usize {
        let ran = std::fs::read_to_string(&self.witness).unwrap_or_default();
        ran.lines().filter(|line| *line == execution).count()
    }

    /// Waits until nothing is between two states any more, then holds everything that is said against the target.
    fn settle_and_check(&self) {
        let server = &self.server;
        until("every lease to be in a state that lasts", || {
            let lasting = ["active", "released", "failed"];
            let leases = server.leases();
            leases
                .iter()
                .all(|lease| lasting.contains(&text(&lease["status"]).as_str()))
                .then_some(())
        });
        until("no marked process to be left", || {
            marked(&self.parent).is_empty().then_some(())
        });
        only_known_workspaces(server, &self.parent);
        for lease in server.leases() {
            for execution in server.executions(&text(&lease["id"])) {
                let id = text(&execution["id"]);
                let settled = until(&format!("{id} to be settled"), || {
                    let now = server.get(&format!("/api/executions/{id}"));
                    let open = ["running", "unknown"].contains(&text(&now["outcome"]).as_str());
                    (!open).then_some(now)
                });
                let runs = self.runs_of(&id);
                match settled["outcome"].as_str() {
                    Some("exited") => {
                        assert_eq!((&settled["exitCode"], runs), (&json!(7), 1), "{settled}")
                    }
                    Some("not_started") => assert_eq!(runs, 0, "{settled}"),
                    _ => {
                        panic!("it ran {runs} times, and all that is said is {settled} of {lease}")
                    }
                }
            }
        }
        for lease in server.leases() {
            if lease["status"] == "active" {
                server.release(&text(&lease["id"]));
                server.wait_lease(&text(&lease["id"]), "released");
            }
        }
        assert!(
            listed(&self.parent).is_empty(),
            "something is left of leases that were released"
        );
    }

    /// The job with a kill at this call, and everything that follows. Answers whether the kill came.
    fn survive(&mut self, call: &Call) -> bool {
        let trace = Trace::attach(&self.server, Some(call));
        let lived = self.job();
        drop(trace);
        let killed = !lived || self.server.ended().is_some();
        self.server.restart();
        self.settle_and_check();
        killed
    }
}

/// Where to kill: before each sync, and in the middle of what is written before each.
fn points(seen: &[Call]) -> Vec<Call> {
    let mut points = Vec::new();
    let mut writes: Vec<&Call> = Vec::new();
    for call in seen {
        if call.name == "pwrite64" {
            writes.push(call);
            continue;
        }
        points.extend(writes.get(writes.len() / 2).map(|&call| call.clone()));
        points.push(call.clone());
        writes.clear();
    }
    points
}

fn work(
    machine: &Machine,
    number: usize,
    points: &[Call],
    next: &AtomicUsize,
    kills: &Mutex<Vec<Call>>,
) {
    let mut house = House::new(machine, number).expect("it was there before");
    while let Some(call) = points.get(next.fetch_add(1, Ordering::SeqCst)) {
        if house.survive(call) {
            kills.lock().expect("a list").push(call.clone());
        }
    }
}

fn recorded(house: &House) -> Vec<Call> {
    let trace = Trace::attach(&house.server, None);
    assert!(house.job(), "nobody kills this one");
    trace.finish()
}

fn is_sync(call: &Call) -> bool {
    call.name != "pwrite64"
}

#[test]
fn killed_at_any_journal_write_nothing_is_left_unknown_and_every_state_is_true() {
    if !trace::available() {
        return;
    }
    let Some(machine) = Machine::start() else {
        return;
    };
    let Some(mut house) = House::new(&machine, 0) else {
        return;
    };
    // Twice: the first job after a start writes what later ones do not.
    recorded(&house);
    let seen = recorded(&house);
    let points = points(&seen);
    let syncs = seen.iter().filter(|call| is_sync(call)).count();
    assert!(
        syncs >= 6,
        "intent, active, begun, settled, releasing, released: {seen:?}"
    );

    let (next, kills) = (AtomicUsize::new(0), Mutex::default());
    std::thread::scope(|scope| {
        for number in 1..=AT_ONCE {
            let (machine, points, next, kills) = (&machine, &points, &next, &kills);
            scope.spawn(move || work(machine, number, points, next, kills));
        }
    });
    let kills = kills.into_inner().expect("a list");
    println!(
        "{} kills at {} points of {syncs} transactions",
        kills.len(),
        points.len()
    );
    // Work in the background writes too, so that the last ones may come after the job.
    assert!(
        kills.len() + 4 >= points.len(),
        "only {kills:?} of {points:?}"
    );

    // Behind the last write there is nothing more to kill at.
    let past = Call {
        nth: syncs * 4,
        ..seen.into_iter().rfind(is_sync).expect("a sync")
    };
    assert!(!house.survive(&past), "the job writes more than was seen");
}

/// The mark of the machine's own side, so that a change of it does not make the checks above hold for nothing.
#[test]
fn a_running_command_is_seen_by_the_looks_that_these_tests_trust() {
    let Some(machine) = Machine::start() else {
        return;
    };
    let Some(house) = House::new(&machine, 0) else {
        return;
    };
    if !machine.sshd.is_isolated() {
        return;
    }
    let server = &house.server;
    let lease = text(&server.acquire(&house.environment).expect(201)["id"]);
    only_known_workspaces(server, &house.parent);
    let go = house.witness.with_file_name("go");
    let body = json!({ "argv": ["sh", "-c", waiting_for(&go)] });
    std::thread::scope(|scope| {
        let ran = scope.spawn(|| server.exec(&lease, &body));
        until("its processes", || {
            (!marked(&house.parent).is_empty()).then_some(())
        });
        std::fs::write(&go, "").expect("a file");
        assert_eq!(
            ran.join().expect("an answer").expect(200)["execution"]["exitCode"],
            0
        );
    });
    server.release(&lease);
    assert!(marked(&house.parent).is_empty() && listed(&house.parent).is_empty());
}

fn waiting_for(file: &Path) -> String {
    format!("while [ ! -e {} ]; do sleep 0.05; done", file.display())
}

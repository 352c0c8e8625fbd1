//! What the command read is what it changes: where somebody else was in between, nothing is done, and it says so.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::Output;
use std::sync::atomic::{AtomicBool, Ordering};

use leasehold_parts::skipped;
use serde_json::{Value, json};

use crate::edits::with_environment;
use crate::leased::Leased;
use crate::rows::{at_terminal, told};
use crate::server::Server;

/// A way to the server on which, before the first request of this method, something else happens.
fn between<T>(
    server: &Server,
    method: &str,
    meanwhile: impl Fn() + Sync,
    work: impl FnOnce(&str) -> T,
) -> T {
    let place = server.home.path().join("between.sock");
    let _ = std::fs::remove_file(&place);
    let listener = UnixListener::bind(&place).unwrap();
    let (over, met) = (AtomicBool::new(false), AtomicBool::new(false));
    let serve = |mut client: UnixStream| {
        let mut head = Vec::new();
        let mut bytes = [0; 4096];
        while !head.windows(4).any(|end| end == b"\r\n\r\n") {
            match client.read(&mut bytes) {
                Ok(0) | Err(_) => return,
                Ok(count) => head.extend_from_slice(&bytes[..count]),
            }
        }
        if head.starts_with(format!("{method} ").as_bytes()) && !met.swap(true, Ordering::SeqCst) {
            meanwhile();
        }
        let mut onward = UnixStream::connect(server.home.socket()).unwrap();
        onward.write_all(&head).unwrap();
        let (mut from, mut to) = (client.try_clone().unwrap(), onward.try_clone().unwrap());
        std::thread::scope(|scope| {
            scope.spawn(move || {
                let _ = std::io::copy(&mut from, &mut to);
                let _ = to.shutdown(Shutdown::Write);
            });
            let _ = std::io::copy(&mut onward, &mut client);
            let _ = client.shutdown(Shutdown::Both);
        });
    };
    let done = std::thread::scope(|scope| {
        scope.spawn(|| {
            for client in listener.incoming() {
                if over.load(Ordering::SeqCst) {
                    return;
                }
                let client = client.unwrap();
                scope.spawn(|| serve(client));
            }
        });
        let done = work(place.to_str().unwrap());
        over.store(true, Ordering::SeqCst);
        let _ = UnixStream::connect(&place);
        done
    });
    assert!(met.load(Ordering::SeqCst), "no {method} was sent");
    done
}

/// The command over that way.
fn run(server: &Server, place: &str, args: &[&str]) -> Output {
    let way = format!("unix:{place}");
    let mut command = server.home.leasehold();
    command.args(["--server", &way]).args(args);
    command.output().unwrap()
}

/// It did nothing, and says what happened and what to do.
fn missed(out: &Output) {
    let said = String::from_utf8_lossy(&out.stderr);
    assert_eq!(out.status.code(), Some(5), "{said}");
    for words in ["changed meanwhile", "nothing was done", "look at it again"] {
        assert!(said.contains(words), "{said}");
    }
}

fn patch(server: &Server, path: &str, body: &Value) {
    let answer = server.operator("PATCH", path, &body.to_string());
    assert_eq!(answer.status, 200, "{}", answer.body);
}

#[test]
fn a_key_is_trusted_for_the_machine_that_was_asked_and_a_target_is_changed_as_it_was_read() {
    let Some(leased) = Leased::new() else {
        return;
    };
    let server = &leased.server;
    let path = format!("/api/environments/{}", leased.environment);
    let before = server.operator("GET", &path, "").json()["config"]["target"].clone();
    let print = before["hostKeys"]["fingerprints"][0].clone();
    let print = print.as_str().unwrap();
    // It trusts somebody else's key alone, and then it is another machine.
    let stranger = "SHA256:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";
    let mut other = before.clone();
    other["hostKeys"] = json!({ "fingerprints": [stranger], "knownHosts": "" });
    patch(server, &path, &json!({ "config": { "target": other } }));
    let now = || server.operator("GET", &path, "").json()["config"]["target"].clone();
    let shown = String::from_utf8(
        run(
            server,
            server.home.socket().to_str().unwrap(),
            &["env", "trust", "box", "--fingerprint", stranger],
        )
        .stderr,
    )
    .unwrap();
    let prints = leased.sshd.fingerprints();
    let print = prints
        .iter()
        .find(|known| shown.contains(known.as_str()))
        .map_or(print, String::as_str);
    other["host"] = json!("machine.invalid");
    let moved = || patch(server, &path, &json!({ "config": { "target": other } }));
    let trust = ["env", "trust", "box", "--fingerprint", print];
    let out = between(server, "PATCH", moved, |place| run(server, place, &trust));
    missed(&out);
    assert_eq!(now(), other, "the other's word stands");
    // So it is where one field of a target is changed.
    other["port"] = json!(2022);
    let update = ["env", "update", "box", "--user", "somebody"];
    let out = between(server, "PATCH", moved_to(server, &path, &other), |place| {
        run(server, place, &update)
    });
    missed(&out);
    assert_eq!(now(), other);
    told(server, &update);
    other["username"] = json!("somebody");
    assert_eq!(now(), other);
}

fn moved_to<'a>(server: &'a Server, path: &'a str, target: &'a Value) -> impl Fn() + Sync + 'a {
    move || patch(server, path, &json!({ "config": { "target": target } }))
}

#[test]
fn a_label_is_laid_over_what_was_read_and_what_stands_on_nothing_over_whatever_is_there() {
    let Some((server, _, path)) = with_environment() else {
        return;
    };
    let now = || server.operator("GET", &path, "").json();
    told(
        &server,
        &["env", "update", "nothing", "--label", "zone=west"],
    );
    let theirs = json!({ "labels": { "zone": "east", "disk": "big" }, "team": 7 });
    let meanwhile = || patch(&server, &path, &json!({ "metadata": theirs }));
    let label = ["env", "update", "nothing", "--label", "zone=north"];
    let out = between(&server, "PATCH", meanwhile, |place| {
        run(&server, place, &label)
    });
    missed(&out);
    assert_eq!(now()["metadata"], theirs);
    told(&server, &label);
    assert_eq!(
        now()["metadata"],
        json!({ "labels": { "zone": "north", "disk": "big" }, "team": 7 })
    );
    let meanwhile = || patch(&server, &path, &json!({ "name": "nil" }));
    let describe = ["env", "update", "nothing", "--description", "empty"];
    let out = between(&server, "PATCH", meanwhile, |place| {
        run(&server, place, &describe)
    });
    assert!(out.status.success(), "{out:?}");
    let both = now();
    assert_eq!(
        (&both["name"], &both["description"]),
        (&json!("nil"), &json!("empty"))
    );
}

#[test]
fn what_somebody_was_shown_is_deleted_and_not_what_it_became_while_they_thought() {
    let Some((server, _, path)) = with_environment() else {
        return;
    };
    if !Path::new("/usr/bin/script").exists() {
        skipped("script");
        return;
    }
    let meanwhile = || {
        patch(
            &server,
            &path,
            &json!({ "description": "in use after all" }),
        )
    };
    let delete = |place: &str| {
        let way = format!("unix:{place}");
        let args = ["--server", &way, "env", "delete", "nothing"];
        at_terminal(&server, &args, "y\n")
    };
    let code = between(&server, "DELETE", meanwhile, delete);
    assert_eq!(code, Some(5));
    assert_eq!(server.operator("GET", &path, "").status, 200);
    let code = between(&server, "DELETE", || {}, delete);
    assert_eq!(code, Some(0));
    assert_eq!(server.operator("GET", &path, "").status, 404);
}

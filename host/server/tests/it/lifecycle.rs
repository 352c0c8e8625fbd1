//! Start and end: a signal at any moment ends the server in order, and the next start finds nothing in the way.

use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::process::Child;

use crate::server::{Home, Server, ask, signal, wait_for};

fn pid(child: &Child) -> i32 {
    child.id().try_into().unwrap()
}

fn status_of(home: &Home, path: &str) -> Option<u16> {
    let stream = UnixStream::connect(home.socket()).ok()?;
    ask(stream, "GET", path, &[("host", "localhost")], "").map(|answer| answer.status)
}

/// A moment of the start, and how a test sees that it has come.
type Moment = (&'static str, fn(&Home) -> Option<()>);

const MOMENTS: &[Moment] = &[
    ("at once", |_| Some(())),
    ("once the data directory is there", |home| {
        home.path()
            .join("data/leasehold/lock")
            .exists()
            .then_some(())
    }),
    ("once the socket is there", |home| {
        home.socket().exists().then_some(())
    }),
    ("once it is alive", |home| {
        (status_of(home, "/healthz")? == 200).then_some(())
    }),
    ("once it is ready", |home| {
        (status_of(home, "/readyz")? == 200).then_some(())
    }),
];

#[test]
fn any_signal_at_any_moment_ends_it_and_the_next_start_works() {
    for name in ["INT", "TERM", "HUP", "QUIT"] {
        for (moment, come) in MOMENTS {
            let home = Home::new();
            let mut child = home.spawn(&[]);
            wait_for(moment, || come(&home));
            signal(pid(&child), name);
            let status = wait_for("the end", || {
                let ended = child.try_wait().unwrap();
                if ended.is_none() && *moment == "at once" {
                    // Whoever ignores a signal hands that down: until it is caught it is lost.
                    signal(pid(&child), name);
                }
                ended
            });
            // Before it could catch anything there was nothing to end; and it may have been asked twice.
            let asked_twice = home.log().contains("signalled again");
            let at_once = *moment == "at once" && (status.signal().is_some() || asked_twice);
            assert!(
                status.success() || at_once,
                "{name} {moment}: {status} {}",
                home.log()
            );
            assert!(
                !home.socket().exists() || at_once,
                "{name} {moment} left its socket"
            );
            let mut next = home.spawn(&[]);
            wait_for("the next start", || {
                (status_of(&home, "/readyz")? == 200).then_some(())
            });
            signal(pid(&next), "TERM");
            assert!(wait_for("its end", || next.try_wait().unwrap()).success());
        }
    }
}

#[test]
fn a_server_that_was_killed_leaves_nothing_that_keeps_the_next_from_starting() {
    let home = Home::new();
    let mut child = home.spawn(&[]);
    wait_for("readiness", || {
        (status_of(&home, "/readyz")? == 200).then_some(())
    });
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(home.socket().exists());
    let mut next = home.spawn(&[]);
    wait_for("readiness", || {
        (status_of(&home, "/readyz")? == 200).then_some(())
    });
    signal(pid(&next), "TERM");
    assert!(wait_for("its end", || next.try_wait().unwrap()).success());
}

#[test]
fn a_second_server_on_the_same_directory_is_refused_and_the_first_serves_on() {
    let server = Server::start();
    let out = server
        .home
        .leasehold()
        .args(["serve", "--listen", "off"])
        .output()
        .unwrap();
    assert_eq!(out.status.code(), Some(1));
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(said.contains("another server uses it"), "{said}");
    assert_eq!(server.operator("GET", "/readyz", "").status, 200);
}

#[test]
fn an_open_request_is_answered_before_the_server_ends() {
    let mut server = Server::start();
    // A request whose head is complete and whose body is not: it runs until the body has come.
    let mut stream = UnixStream::connect(server.home.socket()).unwrap();
    use std::io::{Read, Write};
    let body = r#"{"name":"late"}"#;
    let head = format!(
        "POST /api/companies HTTP/1.1\r\nhost: localhost\r\nexpect: 100-continue\r\n\
         content-type: application/json\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).unwrap();
    let mut first = [0; 25];
    stream.read_exact(&mut first).unwrap();
    assert!(
        first.starts_with(b"HTTP/1.1 100"),
        "{}",
        String::from_utf8_lossy(&first)
    );
    signal(server.pid(), "TERM");
    wait_for("the doors' closing", || {
        UnixStream::connect(server.home.socket())
            .is_err()
            .then_some(())
    });
    stream.write_all(body.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    // It is told that the server is going, or done; it is never left without an answer.
    assert!(answer.starts_with("HTTP/1.1 "), "{answer}");
    assert!(server.ended().success());
}

#[test]
fn a_second_signal_ends_it_at_once_with_a_failure_and_the_next_start_works() {
    use std::io::{Read, Write};
    // Longer than any test waits: only the second signal can end it.
    let mut server = Server::start_with(&["--shutdown-grace", "3600"]);
    let mut stream = UnixStream::connect(server.home.socket()).unwrap();
    let head = "POST /api/companies HTTP/1.1\r\nhost: localhost\r\nexpect: 100-continue\r\n\
                content-type: application/json\r\ncontent-length: 9\r\n\r\n";
    stream.write_all(head.as_bytes()).unwrap();
    let mut first = [0; 12];
    stream.read_exact(&mut first).unwrap();
    signal(server.pid(), "INT");
    wait_for("the doors' closing", || {
        UnixStream::connect(server.home.socket())
            .is_err()
            .then_some(())
    });
    let ended = server.end_by("TERM");
    assert_eq!(ended.code(), Some(1), "{ended}");
    let log = server.home.log();
    assert!(log.contains("ended at once by a second signal"), "{log}");
    let mut next = server.home.spawn(&[]);
    wait_for("the next start", || {
        (status_of(&server.home, "/readyz")? == 200).then_some(())
    });
    signal(pid(&next), "TERM");
    assert!(wait_for("its end", || next.try_wait().unwrap()).success());
}

#[test]
fn a_server_that_is_still_starting_is_alive_and_says_that_it_is_not_ready() {
    let Some(component) = crate::leased::component("ssh") else {
        leasehold_parts::skipped("`cargo xtask components`");
        return;
    };
    let mut server = Server::start();
    let component = component.to_str().unwrap();
    let out = server
        .home
        .leasehold()
        .args(["plugin", "install", "--yes", component])
        .output()
        .unwrap();
    assert!(out.status.success(), "{out:?}");
    server.end_by("TERM");
    // It has to compile before it is ready.
    std::fs::remove_dir_all(server.home.path().join("data/leasehold/compiled")).unwrap();
    let mut next = server.home.spawn(&[]);
    let mut early = Vec::new();
    wait_for("readiness", || {
        let ready = status_of(&server.home, "/readyz")?;
        if ready != 200 {
            let alive = status_of(&server.home, "/healthz")?;
            early.push((ready, alive));
        }
        (ready == 200).then_some(())
    });
    assert!(!early.is_empty(), "it was never seen to start");
    assert!(early.iter().all(|told| *told == (503, 200)), "{early:?}");
    signal(pid(&next), "TERM");
    assert!(wait_for("its end", || next.try_wait().unwrap()).success());
}

#[test]
fn a_database_without_its_master_key_keeps_the_server_from_starting_and_it_says_so() {
    let home = Home::new();
    let mut child = home.spawn(&[]);
    wait_for("readiness", || {
        (status_of(&home, "/readyz")? == 200).then_some(())
    });
    signal(pid(&child), "TERM");
    assert!(wait_for("its end", || child.try_wait().unwrap()).success());
    let key = home.path().join("config/leasehold/master.key");
    std::fs::write(&key, [7; 32]).unwrap();
    let out = home
        .leasehold()
        .args(["serve", "--listen", "127.0.0.1:0"])
        .output()
        .unwrap();
    assert_eq!(out.status.code(), Some(1));
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(said.contains("master key"), "{said}");
    assert!(!said.contains("listening"), "{said}");
    assert!(!home.socket().exists());
}

#[test]
fn what_others_can_look_into_is_refused_as_a_data_directory() {
    let home = Home::new();
    let open = home.path().join("open");
    std::fs::create_dir(&open).unwrap();
    crate::server::open_to_all(&open);
    let out = home
        .leasehold()
        .args([
            "serve",
            "--listen",
            "off",
            "--data-dir",
            open.to_str().unwrap(),
        ])
        .output()
        .unwrap();
    assert_eq!(out.status.code(), Some(1));
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(
        said.contains("0755") && said.contains("chmod 700"),
        "{said}"
    );
}

#[test]
fn settings_come_from_flags_then_environment_then_file() {
    let home = Home::new();
    std::fs::create_dir_all(home.path().join("config/leasehold")).unwrap();
    let file = home.path().join("config/leasehold/leasehold.toml");
    std::fs::write(&file, "listen = \"not an address\"\n").unwrap();
    let run = |flag: Option<&str>, variable: Option<&str>| {
        let mut command = home.leasehold();
        command.arg("serve");
        if let Some(flag) = flag {
            command.args(["--listen", flag]);
        }
        if let Some(variable) = variable {
            command.env("LEASEHOLD_LISTEN", variable);
        }
        let out = command.output().unwrap();
        (
            out.status.code(),
            String::from_utf8_lossy(&out.stderr).into_owned(),
        )
    };
    let (code, said) = run(None, None);
    assert_eq!(code, Some(2));
    assert!(said.contains("not an address"), "{said}");
    let (code, said) = run(None, Some("203.0.113.9:1"));
    assert_eq!(code, Some(2));
    assert!(
        said.contains("203.0.113.9:1") && said.contains("--allowed-host"),
        "{said}"
    );
    let (code, said) = run(Some("203.0.113.8:1"), Some("203.0.113.9:1"));
    assert_eq!(code, Some(2));
    assert!(said.contains("203.0.113.8:1"), "{said}");
}

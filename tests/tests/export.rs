//! The activity as somebody takes it away or checks it: all of it, or it is seen to have broken off; and an edited chain is
//! nobody's mistake but that of whoever edited it.

#![allow(
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking, also in what it calls"
)]

use std::io::{Read, Write};
use std::net::TcpStream;

use leasehold_tests::http::text;
use leasehold_tests::rows;
use leasehold_tests::server::Server;
use leasehold_tests::wait::{LONG, until};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

/// Rows that are put in: with [`PADDING`] many times what the system keeps of a connection that nobody reads.
const ROWS: usize = 12_000;
/// Bytes of each row's details.
const PADDING: usize = 4 << 10;

/// A server with a long activity, and how many rows that has. Most rows are copies without a proof, which an export does
/// not look at.
fn long() -> Option<(Server, usize)> {
    let mut server = Server::start()?;
    server.company();
    server.kill();
    let file = server.data().join("leasehold.db");
    let sql = format!(
        "WITH RECURSIVE more(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM more WHERE n < {ROWS}),
              last AS (SELECT * FROM activity ORDER BY position DESC LIMIT 1)
         INSERT INTO activity (replica, sequence, at, company_id, actor_kind, actor_id, actor, action, subject_kind,
                               subject, details, outcome, times, mac)
         SELECT replica, sequence + n, at, company_id, actor_kind, actor_id, actor, 'company.renamed', subject_kind,
                subject, json_object('name', hex(zeroblob({PADDING} / 2))), outcome, times, mac FROM last, more"
    );
    assert_eq!(rows::edit(&file, &sql), ROWS as u64);
    let all = rows::ask(&file, "SELECT CAST(count(*) AS TEXT) FROM activity");
    server.begin();
    Some((server, all[0].parse().expect("a number")))
}

/// An export that was begun and is not read on.
struct Begun(TcpStream);

impl Begun {
    fn new(server: &Server, bearer: &str) -> Begun {
        let port = server.port();
        let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("the server listens");
        stream.set_read_timeout(Some(LONG)).expect("a time");
        let head = format!(
            "GET /api/activity/export HTTP/1.1\r\nhost: localhost:{port}\r\nconnection: close\r\n\
             authorization: Bearer {bearer}\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).expect("it is sent");
        let mut first = [0; 15];
        stream.read_exact(&mut first).expect("an answer");
        assert_eq!(&first, b"HTTP/1.1 200 OK");
        Begun(stream)
    }

    /// Everything that comes yet: how many rows, and whether that was all by its own encoding.
    fn rest(mut self) -> (usize, bool) {
        let mut rest = Vec::new();
        // Whether the end is in order is what is asked.
        let _ = self.0.read_to_end(&mut rest);
        let mark = b"\"position\":";
        let rows = rest.windows(mark.len()).filter(|some| some == mark).count();
        (rows, rest.ends_with(b"\r\n0\r\n\r\n"))
    }
}

#[test]
fn a_long_export_is_whole_and_one_whose_token_or_server_ends_is_seen_to_have_broken_off() {
    let Some((mut server, all)) = long() else {
        return;
    };
    let token = |name: &str| {
        let draft = json!({ "name": name, "role": "admin" });
        let made = server.call("POST", "/api/tokens", Some(&draft)).expect(201);
        (text(&made["token"]["id"]), text(&made["secret"]))
    };
    let ((id, ended), (_, whole), (_, stopped)) =
        (token("ended"), token("whole"), token("stopped"));
    let of_ended = Begun::new(&server, &ended);
    let of_whole = Begun::new(&server, &whole);
    let path = format!("/api/tokens/{id}");
    assert_eq!(server.call("DELETE", &path, None).status, 204);
    let (rows, in_order) = of_ended.rest();
    assert!(rows < all && !in_order, "{rows} of {all}");
    // With the rows of the tokens themselves.
    let (rows, in_order) = of_whole.rest();
    assert!(rows >= all + 3 && in_order, "{rows} of {all}");
    let of_stopped = Begun::new(&server, &stopped);
    server.signal(Signal::TERM);
    let (rows, in_order) = of_stopped.rest();
    assert!(rows < all && !in_order, "{rows} of {all}");
    assert!(server.wait_end().success());
}

#[test]
fn an_export_that_breaks_off_leaves_the_file_that_was_there_as_it_was() {
    let Some((mut server, all)) = long() else {
        return;
    };
    let folder = server.path().join("exports");
    std::fs::create_dir(&folder).expect("a folder");
    let file = folder.join("export.ndjson");
    let name = file.display().to_string();
    std::fs::write(&file, "of before\n").expect("a file");
    // What stands in the folder besides.
    let beside = || {
        let all = std::fs::read_dir(&folder).expect("lists");
        let other = all.filter_map(|entry| entry.ok().map(|entry| entry.path()));
        other.filter(|path| *path != file).collect::<Vec<_>>()
    };
    let client = server
        .leasehold()
        .args(["activity", "export", &name])
        .stderr(std::process::Stdio::piped())
        .spawn()
        .expect("the client runs");
    let pid = i32::try_from(client.id()).ok().and_then(Pid::from_raw);
    let pid = pid.expect("an id");
    let part = until("the beginning of the export", || {
        let part = std::fs::metadata(beside().first()?).ok()?;
        (part.len() > 0).then_some(part)
    });
    let mode = std::os::unix::fs::PermissionsExt::mode(&part.permissions());
    assert_eq!(mode & 0o777, 0o600, "its owner's alone");
    // Held in the middle, so that the server is gone before its end.
    kill_process(pid, Signal::STOP).expect("the client runs");
    server.kill();
    kill_process(pid, Signal::CONT).expect("the client runs");
    let ended = client.wait_with_output().expect("it ends");
    assert!(!ended.status.success(), "{ended:?}");
    assert!(!ended.stderr.is_empty(), "it says so");
    let kept = std::fs::read_to_string(&file).expect("the file");
    assert_eq!(kept, "of before\n");
    assert_eq!(beside(), Vec::<std::path::PathBuf>::new());

    server.begin();
    let ran = server.run(&["activity", "export", &name]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let export = std::fs::read_to_string(&file).expect("the file");
    assert_eq!(export.lines().count(), all);
    assert_eq!(beside(), Vec::<std::path::PathBuf>::new(), "it was moved");
}

#[test]
fn a_chain_that_was_edited_is_told_as_that_also_to_whoever_kept_a_head_of_it() {
    let Some(mut server) = Server::start() else {
        return;
    };
    server.company();
    let head = server.get("/api/activity/head");
    let kept = format!(
        "?sequence={}&head={}",
        head["sequence"],
        text(&head["head"])
    );
    let check = |server: &Server, query: &str| {
        server.call("GET", &format!("/api/activity/chain{query}"), None)
    };
    check(&server, &kept).expect(200);
    let other = format!("?sequence=1&head={}", "0".repeat(64));
    let refused = check(&server, &other);
    assert_eq!(
        (refused.status, &*refused.code()),
        (409, "conflict"),
        "{}",
        refused.body
    );
    server.kill();
    let file = server.data().join("leasehold.db");
    let edit = "UPDATE activity SET actor = 'somebody else' WHERE sequence = 1";
    assert_eq!(rows::edit(&file, edit), 1);
    server.begin();
    for query in ["", &kept, &other] {
        let edited = check(&server, query);
        assert_eq!(edited.code(), "storage_corrupt", "{query}: {}", edited.body);
    }
}

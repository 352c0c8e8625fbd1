//! The activity as its readers meet it: it can be followed over any end of the server, and what was taken away is proven. What
//! is written into it of refusals is in `recorded`.

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Instant;

use serde_json::{Value, json};

use crate::server::{Answer, DEADLINE, Server, wait_for};

pub fn get(server: &Server, token: &str, path: &str) -> Answer {
    let authorization = format!("Bearer {token}");
    server.tcp("GET", path, &[("authorization", &authorization)], "")
}

pub fn items(answer: &Answer) -> Vec<Value> {
    assert_eq!(answer.status, 200, "{}", answer.body);
    answer.json()["items"].as_array().unwrap().clone()
}

/// An event: its id, its kind, its data.
#[derive(Debug, PartialEq)]
struct Event {
    id: Option<i64>,
    kind: Option<String>,
    data: Value,
}

/// Asks for a stream: the status line, and what comes after it.
fn opened(
    server: &Server,
    token: &str,
    path: &str,
    last: Option<&str>,
) -> (String, BufReader<TcpStream>) {
    let mut stream = TcpStream::connect(("127.0.0.1", server.port)).unwrap();
    stream.set_read_timeout(Some(DEADLINE)).unwrap();
    let last = last.map_or(String::new(), |id| format!("last-event-id: {id}\r\n"));
    let head = format!(
        "GET {path} HTTP/1.1\r\nhost: localhost:{}\r\nconnection: close\r\nauthorization: Bearer {token}\r\n{last}\r\n",
        server.port
    );
    stream.write_all(head.as_bytes()).unwrap();
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.read_line(&mut line).unwrap();
    (line, reader)
}

/// The status and the body of a stream that is refused; one that begins is not waited for.
fn refusal(server: &Server, token: &str, path: &str, last: Option<&str>) -> (u16, String) {
    let (line, mut rest) = opened(server, token, path, last);
    let status = line.split(' ').nth(1).unwrap().parse().unwrap();
    assert_ne!(status, 200, "{path} {last:?}");
    let mut answer = String::new();
    rest.read_to_string(&mut answer).unwrap();
    (status, answer)
}

/// A client that follows the activity.
struct Follower(BufReader<TcpStream>);

impl Follower {
    fn new(server: &Server, token: &str, path: &str, last: Option<i64>) -> Follower {
        let last = last.map(|id| id.to_string());
        let (line, reader) = opened(server, token, path, last.as_deref());
        assert!(line.starts_with("HTTP/1.1 200 "), "{line}");
        Follower(reader)
    }

    /// The next event; none when the stream has ended. What is only said to be alive is not waited for for ever.
    fn next(&mut self) -> Option<Event> {
        let until = Instant::now() + DEADLINE;
        let mut event = Event {
            id: None,
            kind: None,
            data: Value::Null,
        };
        loop {
            let mut line = String::new();
            match self.0.read_line(&mut line) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => panic!("nothing came"),
                Err(_) | Ok(0) => return None,
                Ok(_) => assert!(Instant::now() < until, "nothing came"),
            }
            let line = line.trim_end();
            // The encoding's own lines between say nothing.
            match line.split_once(": ") {
                Some(("id", id)) => event.id = Some(id.parse().unwrap()),
                Some(("event", kind)) => event.kind = Some(kind.to_owned()),
                Some(("data", data)) => event.data = serde_json::from_str(data).unwrap(),
                _ if line.is_empty() && event.id.is_some() => return Some(event),
                _ if line.is_empty() && event.kind.is_some() => return Some(event),
                _ => {}
            }
        }
    }

    /// The next row.
    fn row(&mut self) -> Value {
        let until = Instant::now() + DEADLINE;
        loop {
            let event = self.next().expect("a row");
            if event.kind.as_deref() == Some("activity") {
                assert_eq!(event.id, event.data["position"].as_i64());
                return event.data;
            }
            assert_eq!(event.kind, None, "{event:?}");
            assert!(Instant::now() < until, "no row came");
        }
    }
}

#[test]
fn a_wrong_filter_is_refused_by_its_name() {
    let server = Server::start();
    for (query, named) in [
        ("outcome=fine", "?outcome"),
        ("since=yesterday", "?since"),
        ("until=2026-13-01T00:00:00Z", "?until"),
        ("limit=0", "?limit"),
        ("limit=1001", "?limit"),
        ("after=1&before=2", "?before"),
        ("colour=red", "colour"),
        ("after=x", "?after"),
    ] {
        let answer = server.operator("GET", &format!("/api/activity?{query}"), "");
        assert_eq!(answer.status, 400, "{query}: {}", answer.body);
        assert!(answer.body.contains(named), "{query}: {}", answer.body);
    }
    let moment = "action=company.&since=2020-01-01T00:00:00Z&until=2100-01-01T00:00:00%2B02:00";
    server.company("acme");
    let all = server.operator("GET", &format!("/api/activity?{moment}"), "");
    assert_eq!(items(&all).len(), 1);
}

#[test]
fn who_follows_misses_nothing_and_sees_nothing_twice_over_a_kill() {
    let mut server = Server::start();
    let token = server.home.token();
    let mut follower = Follower::new(
        &server,
        &token,
        "/api/activity/stream?action=company.",
        None,
    );
    let first = follower.next().unwrap();
    assert_eq!((first.id.is_some(), first.kind), (true, None), "from where");
    let mut seen = Vec::new();
    server.company("one");
    seen.push(follower.row());
    // The second is committed, and the server killed before it is read.
    server.company("two");
    server.end_by("KILL");
    drop(follower);
    server.again();
    server.company("three");
    let last = seen[0]["position"].as_i64();
    let mut follower = Follower::new(
        &server,
        &token,
        "/api/activity/stream?after=0&action=company.",
        last,
    );
    seen.push(follower.row());
    seen.push(follower.row());
    server.company("four");
    seen.push(follower.row());
    let listed = server.operator("GET", "/api/activity?after=0&action=company.", "");
    assert_eq!(seen, items(&listed));
    assert_eq!(seen.len(), 4);
    // It is told when the server is stopped, and holds nothing up.
    let ended = std::thread::scope(|scope| {
        let ended = scope.spawn(|| {
            std::iter::from_fn(|| follower.next())
                .find(|event| event.kind.as_deref() == Some("error"))
        });
        assert!(server.end_by("TERM").success());
        ended.join().unwrap().unwrap()
    });
    assert_eq!(ended.data["details"]["code"], "shutting_down");
}

#[test]
fn a_stream_shows_what_its_reader_may_see_and_ends_with_its_token() {
    let server = Server::start();
    let (own, foreign) = (server.company("own"), server.company("foreign"));
    let (id, member) = server.token_of("member", Some(&own));
    let path = format!("/api/companies/{own}/activity/stream?after=0&action=company.");
    let mut follower = Follower::new(&server, &member, &path, None);
    assert_eq!(follower.row()["subjectId"], *own);
    for company in [&foreign, &own] {
        let renamed = server.operator(
            "PATCH",
            &format!("/api/companies/{company}"),
            &json!({"name": format!("{company} now")}).to_string(),
        );
        assert_eq!(renamed.status, 200, "{}", renamed.body);
    }
    let row = follower.row();
    assert_eq!(
        (&row["subjectId"], &row["changed"]),
        (&json!(own), &json!(["name"]))
    );
    assert_eq!(
        server
            .operator("DELETE", &format!("/api/tokens/{id}"), "")
            .status,
        204
    );
    let last = follower.next().unwrap();
    assert_eq!(last.kind.as_deref(), Some("error"), "{last:?}");
    assert_eq!(last.data["details"]["code"], "unauthenticated");
    assert_eq!(follower.next(), None);
    let operator = server.home.token();
    for wrong in ["soon", "-1", "1.5", ""] {
        let (status, answer) = refusal(&server, &operator, "/api/activity/stream", Some(wrong));
        assert_eq!(status, 400, "{wrong:?}");
        assert!(answer.contains("Last-Event-ID"), "{wrong:?}: {answer}");
        assert!(answer.contains("bad_request"), "{wrong:?}: {answer}");
    }
}

#[test]
fn what_happens_to_what_all_companies_share_stands_in_the_activity_of_each_and_nothing_else_of_the_instance()
 {
    let server = Server::start();
    let (own, foreign) = (server.company("own"), server.company("foreign"));
    let (_, member) = server.token_of("member", Some(&own));
    let (_, stranger) = server.token_of("member", Some(&foreign));
    let path = format!("/api/companies/{own}/activity");
    let after = items(&server.operator("GET", "/api/activity?limit=1", ""));
    let after = after[0]["position"].as_i64().unwrap();
    let mut follower = Follower::new(
        &server,
        &member,
        &format!("{path}/stream?after={after}"),
        None,
    );
    let list = server.operator("GET", &format!("/api/companies/{own}/environments"), "");
    let local = list.json()[0]["id"].as_str().unwrap().to_owned();
    // What a member of another company asks for there is the instance's to know, though the row is shared.
    let knocked = get(&server, &stranger, &format!("/api/companies/{own}"));
    assert_eq!(knocked.status, 404);
    let refused = server.tcp(
        "PATCH",
        &format!("/api/environments/{local}"),
        &[
            ("authorization", &format!("Bearer {stranger}")),
            ("content-type", "application/json"),
        ],
        r#"{"description":"theirs"}"#,
    );
    assert_eq!(refused.status, 403, "{}", refused.body);
    // Nor what another company does with it.
    let probe = format!("/api/environments/{local}/probe?companyId={foreign}");
    let probed = server.operator("POST", &probe, "");
    assert_eq!(probed.status, 200, "{}", probed.body);
    let (_, role) = server.token_of("admin", None);
    assert_eq!(get(&server, &role, "/api/tokens").status, 200);
    let renamed = server.operator(
        "PATCH",
        &format!("/api/environments/{local}"),
        r#"{"description":"the server's own"}"#,
    );
    assert_eq!(renamed.status, 200, "{}", renamed.body);
    let row = follower.row();
    assert_eq!(
        (&row["action"], &row["subjectId"], &row["changed"]),
        (
            &json!("environment.updated"),
            &json!(local),
            &json!(["description"])
        ),
        "{row}"
    );
    let page = items(&get(&server, &member, &format!("{path}?after={after}")));
    assert_eq!(page, [row]);
    let backward = items(&get(&server, &member, &format!("{path}?limit=2")));
    let actions: Vec<_> = backward.iter().map(|row| row["action"].clone()).collect();
    assert_eq!(actions, ["environment.updated", "token.created"]);
    let everything = items(&server.operator("GET", &format!("/api/activity?after={after}"), ""));
    assert!(everything.len() > 3, "{everything:?}");
}

#[test]
fn readers_that_stopped_reading_keep_nobody_from_anything_and_lose_their_places_with_their_token() {
    let server = Server::start();
    let own = server.company("own");
    let path = format!("/api/companies/{own}/agents");
    // More than fits between the two ends of a connection.
    std::thread::scope(|scope| {
        for _ in 0..10 {
            scope.spawn(|| {
                for _ in 0..300 {
                    let body = json!({ "name": "x".repeat(90) }).to_string();
                    assert_eq!(server.operator("POST", &path, &body).status, 201);
                }
            });
        }
    });
    let members: Vec<_> = (0..4)
        .map(|_| server.token_of("member", Some(&own)))
        .collect();
    let stalled = |member: &str| {
        let place = std::net::SocketAddr::from(([127, 0, 0, 1], server.port));
        let stream = rustix::net::socket(
            rustix::net::AddressFamily::INET,
            rustix::net::SocketType::STREAM,
            None,
        )
        .unwrap();
        rustix::net::sockopt::set_socket_recv_buffer_size(&stream, 2304).unwrap();
        rustix::net::connect(&stream, &place).unwrap();
        let mut stream = TcpStream::from(stream);
        write!(
            stream,
            "GET /api/companies/{own}/activity/stream?after=0 HTTP/1.1\r\nhost: localhost:{}\r\n\
             authorization: Bearer {member}\r\n\r\n",
            server.port
        )
        .unwrap();
        let mut begun = [0; 12];
        std::io::Read::read_exact(&mut stream, &mut begun).unwrap();
        assert_eq!(&begun, b"HTTP/1.1 200");
        stream
    };
    let stream = format!("/api/companies/{own}/activity/stream");
    let is_full = |token: &str| {
        let full = get(&server, token, &stream);
        assert_eq!((full.status, &*full.code()), (503, "too_many_connections"));
    };
    let (id, member) = &members[0];
    let mut kept: Vec<TcpStream> = (0..16).map(|_| stalled(member)).collect();
    is_full(member);
    for (_, member) in &members[1..] {
        kept.extend((0..16).map(|_| stalled(member)));
    }
    let (_, other) = server.token_of("member", Some(&own));
    is_full(&other);
    // Every way to the database is used more often than there are connections to it.
    for _ in 0..8 {
        assert_eq!(server.operator("GET", "/api/companies", "").status, 200);
        assert_eq!(get(&server, member, &path).status, 200);
    }
    server.operator("DELETE", &format!("/api/tokens/{id}"), "");
    // Its places are free, though its clients are still connected.
    wait_for("a place", || {
        let mut stream = TcpStream::connect(("127.0.0.1", server.port)).unwrap();
        write!(
            stream,
            "GET /api/companies/{own}/activity/stream HTTP/1.1\r\nhost: localhost:{}\r\nauthorization: Bearer {other}\r\n\r\n",
            server.port
        )
        .unwrap();
        let mut line = String::new();
        BufReader::new(stream).read_line(&mut line).unwrap();
        line.starts_with("HTTP/1.1 200 ").then_some(())
    });
    assert_eq!(kept.len(), 64);
}

#[test]
fn as_many_follow_as_the_server_takes_and_the_next_is_told() {
    let server = Server::start();
    let token = server.home.token();
    let path = "/api/activity/stream";
    let mut all: Vec<Follower> = (0..64)
        .map(|_| {
            let mut follower = Follower::new(&server, &token, path, None);
            follower.next().unwrap();
            follower
        })
        .collect();
    for path in [path, "/api/activity/export"] {
        let (status, answer) = refusal(&server, &token, path, None);
        assert_eq!(status, 503, "{path}");
        assert!(answer.contains("too_many_connections"), "{path}: {answer}");
    }
    // They do not keep others from anything else, and their places come back.
    assert_eq!(get(&server, &token, "/api/activity").status, 200);
    all.pop();
    wait_for("a place", || {
        let (line, _) = opened(&server, &token, path, None);
        line.starts_with("HTTP/1.1 200 ").then_some(())
    });
}

#[test]
fn a_stream_takes_the_filters_of_a_page_and_leaves_out_none_of_many_rows() {
    let server = Server::start();
    let token = server.home.token();
    let acme = server.company("acme");
    let (_, member) = server.token_of("member", Some(&acme));
    assert_eq!(get(&server, &member, "/api/tokens").status, 403);
    // More than a stream reads at once.
    let many: Vec<String> = (0..130).map(|n| server.company(&format!("{n}"))).collect();
    let last = many.last().unwrap();
    for filter in [
        "actor=member".to_owned(),
        "action=token.".to_owned(),
        "subjectKind=token".to_owned(),
        format!("subject={last}"),
        "outcome=denied".to_owned(),
    ] {
        let page = server.operator("GET", &format!("/api/activity?after=0&{filter}"), "");
        let first = items(&page).into_iter().next().expect(&filter);
        let path = format!("/api/activity/stream?after=0&{filter}");
        let followed = Follower::new(&server, &token, &path, None).row();
        assert_eq!(followed, first, "{filter}");
        assert_ne!(
            followed["position"], 1,
            "{filter}: the first of all is another"
        );
    }
    let path = "/api/activity/stream?after=0&action=company.created";
    let mut follower = Follower::new(&server, &token, path, None);
    for id in [&acme].into_iter().chain(&many) {
        assert_eq!(follower.row()["subjectId"], **id);
    }
    // By pages too, in both directions: each once.
    let walk = |from: &str, by: &str| {
        let (mut all, mut next) = (Vec::new(), from.to_owned());
        loop {
            let path = format!("/api/activity?action=company.created&limit=40{next}");
            let page = server.operator("GET", &path, "");
            let rows = items(&page);
            let goes_on = page.json()["next"].as_i64();
            let ids = rows.iter().map(|row| row["subjectId"].clone());
            all.extend(ids);
            assert!(all.len() <= many.len() + 1, "{by}: none comes twice");
            match goes_on {
                Some(position) if !rows.is_empty() => next = format!("&{by}={position}"),
                _ => return all,
            }
        }
    };
    let mut wanted: Vec<Value> = [&acme]
        .into_iter()
        .chain(&many)
        .map(|id| json!(id))
        .collect();
    assert_eq!(walk("&after=0", "after"), wanted);
    wanted.reverse();
    assert_eq!(walk("", "before"), wanted);
}

/// The command with these arguments: whether it went well, what it printed and what it complained.
pub fn leasehold(server: &Server, args: &[&str]) -> (bool, String, String) {
    let out = server.home.leasehold().args(args).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (out.status.success(), text(&out.stdout), text(&out.stderr))
}

#[test]
fn a_kept_head_and_an_export_prove_later_what_was_there() {
    let mut server = Server::start();
    let folder = server.home.path().to_owned();
    let file = |name: &str| folder.join(name).to_str().unwrap().to_owned();
    let (database, backup) = (file("data/leasehold/leasehold.db"), file("backup.db"));
    server.company("a");
    server.company("b");
    assert!(server.end_by("TERM").success());
    std::fs::copy(&database, &backup).unwrap();
    server.again();
    server.company("c");
    let (head, export) = (file("head.json"), file("export.ndjson"));
    let done = |args: &[&str]| {
        let (well, out, complaint) = leasehold(&server, args);
        assert!(well, "{args:?}: {complaint}");
        out
    };
    std::fs::write(&head, done(&["activity", "head"])).unwrap();
    done(&["activity", "export", &export]);
    let lines = std::fs::read_to_string(&export).unwrap();
    assert!(lines.lines().count() >= 3, "{lines}");
    assert_eq!(
        done(&["activity", "export"]),
        lines,
        "to standard output too"
    );
    server.company("d");
    let kept = ["activity", "verify", "--head", &head];
    done(&kept);
    // A variable for `serve` is no reason to look at the files.
    std::fs::write(file("settings.toml"), "").unwrap();
    let mut with_settings = server.home.leasehold();
    let told = with_settings
        .env("LEASEHOLD_CONFIG", file("settings.toml"))
        .args(kept)
        .output();
    assert!(told.as_ref().unwrap().status.success(), "{told:?}");
    let of_export = ["activity", "verify", "--head", &head, "--export", &export];
    let told = done(&of_export);
    assert!(told.contains("main"), "{told}");

    let refused = |server: &Server, args: &[&str], why: &str| {
        let (well, out, complaint) = leasehold(server, args);
        assert!(!well, "{args:?}: {out}");
        assert!(complaint.contains(why), "{args:?}: {complaint}");
    };
    let wrong = file("wrong.ndjson");
    let check = ["activity", "verify", "--head", &head, "--export", &wrong];
    let cut: String = lines
        .lines()
        .take(lines.lines().count() - 1)
        .map(|line| format!("{line}\n"))
        .collect();
    for (text, why) in [
        (
            lines.replacen("\"name\":\"b\"", "\"name\":\"x\"", 1),
            "was edited",
        ),
        (
            lines
                .lines()
                .skip(2)
                .chain(lines.lines().take(1))
                .fold(String::new(), |all, line| all + line + "\n"),
            "does not follow",
        ),
        (cut, "kept head is missing"),
    ] {
        std::fs::write(&wrong, text).unwrap();
        refused(&server, &check, why);
    }
    // It is the caller's word, and no failure of the server.
    let other = "0".repeat(64);
    for (method, path) in [("GET", "chain"), ("POST", "check-export")] {
        let path = format!("/api/activity/{path}?sequence=1&head={other}");
        let headers = [("content-type", "application/x-ndjson")];
        let refused = server.with(method, &path, &headers, "");
        assert_eq!(
            (refused.status, &*refused.code()),
            (409, "conflict"),
            "{path}: {}",
            refused.body
        );
    }
    let offline = ["activity", "verify", "--offline", "--head", &head];
    refused(&server, &offline, "another server uses it");
    assert!(server.end_by("TERM").success());
    let (well, out, complaint) = leasehold(&server, &offline);
    assert!(well, "{complaint}");
    let rows = lines.lines().count() + 1;
    assert!(out.contains(&format!("ROWS      {rows}\n")), "{out}");
    // The same where nothing but the server's own variables say where its files are.
    let mut elsewhere = server.home.leasehold();
    let (data, key) = (file("data/leasehold"), file("config/leasehold/master.key"));
    elsewhere
        .env_remove("XDG_CONFIG_HOME")
        .env_remove("XDG_DATA_HOME")
        .env("LEASEHOLD_CONFIG", file("settings.toml"))
        .env("LEASEHOLD_DATA_DIR", data)
        .env("LEASEHOLD_MASTER_KEY", key);
    let told = elsewhere.args(offline).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&told.stdout), out, "{told:?}");
    // An old copy is put back, and the next start lets it grow again.
    std::fs::copy(&backup, &database).unwrap();
    refused(&server, &offline, "kept head is missing");
    server.again();
    server.company("e");
    refused(&server, &kept, "kept head is missing");
    let (well, _, complaint) = leasehold(&server, &["activity", "verify"]);
    assert!(well, "without the head nothing is missed: {complaint}");
    // What was taken away before is proven still.
    let (well, _, complaint) = leasehold(&server, &of_export);
    assert!(well, "{complaint}");
}

#[test]
fn the_command_finds_rows_and_follows_them_over_a_restart() {
    let mut server = Server::start();
    let acme = server.company("acme");
    let (well, out, _) = leasehold(
        &server,
        &[
            "activity",
            "-C",
            "acme",
            "--action",
            "company.",
            "--outcome",
            "done",
        ],
    );
    assert!(well && out.contains(&acme), "{out}");
    let (well, _, complaint) = leasehold(&server, &["activity", "--outcome", "fine"]);
    assert!(!well && complaint.contains("outcome"), "{complaint}");

    let said = server.home.path().join("said");
    let mut watching = server
        .home
        .leasehold()
        .args(["--json", "activity", "watch", "--after", "0"])
        .stdout(std::fs::File::create(&said).unwrap())
        .spawn()
        .unwrap();
    let told = || std::fs::read_to_string(&said).unwrap();
    wait_for("the first row", || told().contains(&acme).then_some(()));
    server.end_by("KILL");
    server.again();
    let other = server.company("other");
    wait_for("the row after the restart", || {
        told().contains(&other).then_some(())
    });
    watching.kill().unwrap();
    watching.wait().unwrap();
    assert_eq!(
        told().matches("\"company.created\"").count(),
        2,
        "{}",
        told()
    );
}

//! The activity as its readers meet it: what was refused is in it, it can be followed over any end of the server, and what
//! was taken away is proven.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;

use serde_json::{Value, json};

use crate::leased::Leased;
use crate::server::{Answer, DEADLINE, Server, wait_for};

fn get(server: &Server, token: &str, path: &str) -> Answer {
    let authorization = format!("Bearer {token}");
    server.tcp("GET", path, &[("authorization", &authorization)], "")
}

fn items(answer: &Answer) -> Vec<Value> {
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

/// A client that follows the activity.
struct Follower(BufReader<TcpStream>);

impl Follower {
    fn new(server: &Server, token: &str, path: &str, last: Option<i64>) -> Follower {
        let mut stream = TcpStream::connect(("127.0.0.1", server.port)).unwrap();
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
        let last = last.map_or(String::new(), |id| format!("last-event-id: {id}\r\n"));
        let head = format!(
            "GET {path} HTTP/1.1\r\nhost: localhost:{}\r\nauthorization: Bearer {token}\r\n{last}\r\n",
            server.port
        );
        stream.write_all(head.as_bytes()).unwrap();
        let mut reader = BufReader::new(stream);
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        assert!(line.starts_with("HTTP/1.1 200 "), "{line}");
        Follower(reader)
    }

    /// The next event; none when the stream has ended.
    fn next(&mut self) -> Option<Event> {
        let mut event = Event {
            id: None,
            kind: None,
            data: Value::Null,
        };
        loop {
            let mut line = String::new();
            if self.0.read_line(&mut line).unwrap_or(0) == 0 {
                return None;
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
        loop {
            let event = self.next().expect("a row");
            if event.kind.as_deref() == Some("activity") {
                assert_eq!(event.id, event.data["position"].as_i64());
                return event.data;
            }
            assert_eq!(event.kind, None, "{event:?}");
        }
    }
}

#[test]
fn what_the_policy_refuses_is_in_the_activity_with_who_what_and_which_row() {
    let server = Server::start();
    let (own, foreign) = (server.company("own"), server.company("foreign"));
    let (member_id, member) = server.token_of("member", Some(&own));
    let (_, stranger) = server.token_of("member", Some(&foreign));
    let (gone_id, gone) = server.token_of("admin", None);
    server.operator("DELETE", &format!("/api/tokens/{gone_id}"), "");
    for _ in 0..3 {
        assert_eq!(get(&server, &member, "/api/secrets/sec_1").status, 403);
    }
    let hidden = format!("/api/companies/{foreign}");
    assert_eq!(get(&server, &member, &hidden).status, 404);
    assert_eq!(get(&server, &gone, "/api/companies").status, 401);
    let guess = "lho_".to_owned() + &"0".repeat(64);
    assert_eq!(get(&server, &guess, "/api/companies").status, 401);
    // What is not there is nobody's to be refused, and what is left out of a list neither.
    assert_eq!(
        server.operator("GET", "/api/companies/com_none", "").status,
        404
    );
    assert_eq!(get(&server, &member, "/api/companies").status, 200);

    let denied = server.operator("GET", "/api/activity?outcome=denied&after=0", "");
    let mut told: Vec<Value> = items(&denied)
        .into_iter()
        .map(|row| {
            json!([
                row["action"],
                row["actorId"],
                row["subjectKind"],
                row["subjectId"],
                row["details"]["operation"],
                row["details"]["code"],
                row["companyId"],
            ])
        })
        .collect();
    told.sort_by_key(Value::to_string);
    told.dedup();
    let mut wanted = vec![
        json!([
            "access.denied",
            member_id,
            "secret",
            "sec_1",
            "getSecret",
            "forbidden",
            own
        ]),
        json!([
            "access.denied",
            member_id,
            "company",
            foreign,
            "getCompany",
            "not_found",
            null
        ]),
        json!(["token.refused", null, "token", gone_id, null, null, null]),
        json!(["token.refused", null, "token", "unknown", null, null, null]),
    ];
    wanted.sort_by_key(Value::to_string);
    assert_eq!(told, wanted, "{}", denied.body);
    assert!(!denied.body.contains(&gone) && !denied.body.contains(&guess));

    // Its own company sees what one of its people tried, and neither sees that it knocked at the other's.
    let of = |token: &str, company: &str| {
        let path = format!("/api/companies/{company}/activity?action=access.");
        items(&get(&server, token, &path)).len()
    };
    assert!(of(&member, &own) >= 1);
    assert_eq!(of(&stranger, &foreign), 0);
}

#[test]
fn a_question_for_a_host_key_and_an_export_are_in_the_activity_with_their_end() {
    let server = Server::start();
    let (own, foreign) = (server.company("own"), server.company("foreign"));
    let nowhere = r#"{"host":"127.0.0.1","port":1}"#;
    let asked = server.operator("POST", "/api/ssh/host-key", nowhere);
    assert_eq!(asked.status, 502, "{}", asked.body);
    if leasehold_parts::Sshd::available() {
        let sshd = leasehold_parts::Sshd::start(&leasehold_parts::Options::default()).unwrap();
        let body = json!({"host": "127.0.0.1", "port": sshd.port()}).to_string();
        let shown = server.operator("POST", "/api/ssh/host-key", &body);
        assert_eq!(shown.status, 200, "{}", shown.body);
        let rows = server.operator("GET", "/api/activity?action=ssh.&outcome=done", "");
        let rows = items(&rows);
        assert_eq!(rows.len(), 1, "{rows:?}");
        let place = format!("127.0.0.1:{}", sshd.port());
        assert_eq!(
            (&rows[0]["subjectId"], &rows[0]["details"]["fingerprints"]),
            (&json!(place), &json!(1))
        );
    } else {
        leasehold_parts::skipped("openssh-server");
    }
    let failed = server.operator("GET", "/api/activity?action=ssh.&outcome=failed", "");
    let failed = items(&failed);
    assert_eq!(failed.len(), 1, "{failed:?}");
    let row = &failed[0];
    assert_eq!(
        json!([
            row["action"],
            row["actorKind"],
            row["companyId"],
            row["subjectKind"],
            row["subjectId"],
            row["details"]
        ]),
        json!([
            "ssh.host_key_fetched",
            "local-operator",
            null,
            "machine",
            "127.0.0.1:1",
            {"host": "127.0.0.1", "port": 1, "fingerprints": 0}
        ])
    );
    let export = server.operator("GET", &format!("/api/companies/{own}/export"), "");
    assert_eq!(export.status, 200, "{}", export.body);
    // Its own people see that it was taken away, and others do not.
    let of = |company: &str| {
        let (_, member) = server.token_of("member", Some(company));
        let path = format!("/api/companies/{company}/activity?action=company.exported");
        items(&get(&server, &member, &path))
    };
    let seen = of(&own);
    assert_eq!(seen.len(), 1, "{seen:?}");
    assert_eq!(
        (
            &seen[0]["subjectId"],
            &seen[0]["outcome"],
            &seen[0]["actor"]
        ),
        (&json!(own), &json!("done"), &row["actor"])
    );
    assert_eq!(of(&foreign), [] as [Value; 0]);
}

#[test]
fn what_came_under_a_foreign_name_or_from_a_foreign_page_is_recorded_and_pushes_no_refused_token_out()
 {
    let server = Server::start();
    for n in 0..40 {
        let name = format!("evil-{n}.example");
        let refused = server.tcp("GET", "/api/companies", &[("host", &name)], "");
        assert_eq!(refused.code(), "host_not_allowed", "{}", refused.body);
    }
    let page = [
        ("origin", "http://evil.example"),
        ("content-type", "application/json"),
    ];
    for _ in 0..3 {
        let refused = server.tcp("POST", "/api/companies", &page, "{}");
        assert_eq!(refused.code(), "origin_not_allowed", "{}", refused.body);
    }
    let guess = "lho_".to_owned() + &"0".repeat(64);
    assert_eq!(get(&server, &guess, "/api/companies").status, 401);

    let denied = server.operator("GET", "/api/activity?outcome=denied&after=0&limit=500", "");
    let rows = items(&denied);
    let of = |kind: &str| {
        let of = rows.iter().filter(|row| row["subjectKind"] == kind);
        of.collect::<Vec<_>>()
    };
    let names = of("host");
    assert!((20..=21).contains(&names.len()), "{}", denied.body);
    let first = names
        .iter()
        .find(|row| row["subjectId"] == "evil-0.example");
    let first = first.unwrap();
    assert_eq!(
        (
            &first["action"],
            &first["actorKind"],
            &first["details"]["route"]
        ),
        (
            &json!("door.refused"),
            &json!("nobody"),
            &json!("/api/companies")
        )
    );
    let pages = of("origin");
    let times = pages.iter().map(|row| row["times"].as_i64().unwrap());
    assert!(times.sum::<i64>() >= 1, "{}", denied.body);
    for page in pages {
        assert_eq!(page["subjectId"], "http://evil.example", "{page}");
        assert_eq!(page["actor"], "a foreign page", "{page}");
        let details = &page["details"];
        assert_eq!(
            (&details["code"], &details["method"], &details["route"]),
            (
                &json!("origin_not_allowed"),
                &json!("POST"),
                &json!("/api/companies")
            )
        );
    }
    assert_eq!(of("token").len(), 1, "{}", denied.body);
}

#[test]
fn a_target_that_shows_another_key_than_it_should_is_recorded_as_refused_and_members_are_not_told_where()
 {
    let Some(leased) = Leased::new() else { return };
    let server = &leased.server;
    let (port, print) = (
        leased.sshd.port().to_string(),
        &leased.sshd.key().fingerprint,
    );
    let account = leased.sshd.worker().name.clone();
    let place = leased.sshd.directory(&account, "others").unwrap();
    let mut create = vec!["env", "create", "--name", "false", "--host", "127.0.0.1"];
    create.extend(["--port", &port, "--user", &account, "--key", "key"]);
    create.extend([
        "--workspace",
        place.to_str().unwrap(),
        "--fingerprint",
        print,
    ]);
    let (well, _, complaint) = leasehold(server, &create);
    assert!(well, "{complaint}");
    let path = format!("/api/companies/{}/environments", leased.company);
    let listed = server.operator("GET", &path, "").json();
    let listed = listed.as_array().unwrap().iter();
    let found = listed.clone().find(|one| one["name"] == "false").unwrap();
    let id = found["id"].as_str().unwrap();
    let probed = server.operator("POST", &format!("/api/environments/{id}/probe"), "");
    assert_eq!(probed.json()["ok"], false, "{}", probed.body);

    let denied = server.operator("GET", "/api/activity?action=egress.denied&after=0", "");
    let rows = items(&denied);
    let row = rows.iter().find(|row| row["details"]["environment"] == id);
    let row = row.unwrap_or_else(|| panic!("none of it: {}", denied.body));
    assert_eq!(
        (&row["outcome"], &row["companyId"]),
        (&json!("denied"), &json!(leased.company))
    );
    assert_eq!(
        (&row["details"]["act"], &row["details"]["plugin"]),
        (&json!("open"), &json!("ssh"))
    );
    let told = row["details"]["target"].as_str().unwrap();
    assert!(told.ends_with(&format!("@127.0.0.1:{port}")), "{row}");
    let reason = row["details"]["reason"].as_str().unwrap();
    assert!(reason.contains("host key"), "{row}");
    // Its company's members see that, and not where.
    let (_, member) = server.token_of("member", Some(&leased.company));
    let path = format!(
        "/api/companies/{}/activity?action=egress.denied",
        leased.company
    );
    let seen = get(server, &member, &path);
    assert!(!items(&seen).is_empty(), "{}", seen.body);
    for hidden in [&format!("127.0.0.1:{port}"), "host key"] {
        assert!(!seen.body.contains(hidden), "{hidden}: {}", seen.body);
    }
}

#[test]
fn refusals_are_not_lost_when_the_server_is_ended_in_order() {
    let mut server = Server::start();
    let own = server.company("own");
    let (_, member) = server.token_of("member", Some(&own));
    for _ in 0..40 {
        assert_eq!(get(&server, &member, "/api/tokens").status, 403);
    }
    assert!(server.end_by("TERM").success());
    server.again();
    let denied = server.operator("GET", "/api/activity?outcome=denied", "");
    let times = items(&denied)
        .iter()
        .map(|row| row["times"].as_i64().unwrap())
        .sum::<i64>();
    assert_eq!(times, 40, "{}", denied.body);
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
    let wrong = [
        ("authorization", format!("Bearer {}", server.home.token())),
        ("last-event-id", "soon".to_owned()),
    ];
    let wrong: Vec<(&str, &str)> = wrong.iter().map(|(n, v)| (*n, v.as_str())).collect();
    let refused = server.tcp("GET", "/api/activity/stream", &wrong, "");
    assert_eq!((refused.status, &*refused.code()), (400, "bad_request"));
    assert!(refused.body.contains("Last-Event-ID"), "{}", refused.body);
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
    let refused = get(&server, &token, path);
    assert_eq!(
        (refused.status, &*refused.code()),
        (503, "too_many_connections")
    );
    // They do not keep others from anything else, and their places come back.
    assert_eq!(get(&server, &token, "/api/activity").status, 200);
    all.pop();
    wait_for("a place", || {
        let mut stream = TcpStream::connect(("127.0.0.1", server.port)).unwrap();
        let host = server.port;
        write!(
            stream,
            "GET {path} HTTP/1.1\r\nhost: localhost:{host}\r\nauthorization: Bearer {token}\r\n\r\n"
        )
        .unwrap();
        let mut line = String::new();
        BufReader::new(stream).read_line(&mut line).unwrap();
        line.starts_with("HTTP/1.1 200 ").then_some(())
    });
}

/// The command with these arguments: whether it went well, what it printed and what it complained.
fn leasehold(server: &Server, args: &[&str]) -> (bool, String, String) {
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

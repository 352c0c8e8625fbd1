//! Who is asking: nobody is believed for where a request comes from.

use std::process::Command;

use crate::server::{Server, is_root, open_to_all};

const JSON: (&str, &str) = ("content-type", "application/json");

fn bearer(token: &str) -> String {
    format!("Bearer {token}")
}

#[test]
fn a_foreign_host_is_refused_on_every_path_whatever_else_it_carries() {
    let server = Server::start();
    let token = bearer(&server.home.token());
    for path in [
        "/healthz",
        "/readyz",
        "/api/openapi.json",
        "/api/companies",
        "/nowhere",
    ] {
        for host in [
            "evil.example",
            "localhost",
            "localhost:1",
            "127.0.0.1.evil.example",
        ] {
            let headers = [("host", host), ("authorization", token.as_str())];
            let answer = server.tcp("GET", path, &headers, "");
            assert_eq!(
                (answer.status, answer.code().as_str()),
                (403, "host_not_allowed"),
                "{host} {path}"
            );
        }
    }
    assert_eq!(server.tcp("GET", "/healthz", &[], "").status, 200);
}

#[test]
fn a_page_of_another_origin_can_neither_write_nor_open_a_websocket() {
    let server = Server::start();
    let token = bearer(&server.home.token());
    let own = format!("http://localhost:{}", server.port);
    let body = r#"{"name":"acme"}"#;
    let stream = "/api/environment-leases/lease_x/executions/stream";
    let upgrade = [
        ("connection", "upgrade, close"),
        ("upgrade", "websocket"),
        ("sec-websocket-version", "13"),
        ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
    ];
    for foreign in [
        ("origin", "http://evil.example"),
        ("origin", "http://localhost:3000"),
        ("origin", "null"),
        ("sec-fetch-site", "cross-site"),
        ("sec-fetch-site", "same-site"),
    ] {
        let headers = [("authorization", token.as_str()), JSON, foreign];
        let answer = server.tcp("POST", "/api/companies", &headers, body);
        assert_eq!(
            (answer.status, answer.code().as_str()),
            (403, "origin_not_allowed"),
            "{foreign:?}"
        );
        for credentials in [None, Some(("authorization", token.as_str()))] {
            let headers: Vec<_> = upgrade
                .into_iter()
                .chain([foreign])
                .chain(credentials)
                .collect();
            let answer = server.tcp("GET", stream, &headers, "");
            assert_eq!(
                (answer.status, answer.code().as_str()),
                (403, "origin_not_allowed"),
                "{foreign:?}"
            );
        }
    }
    let headers = [
        ("authorization", token.as_str()),
        JSON,
        ("origin", own.as_str()),
    ];
    assert_eq!(
        server.tcp("POST", "/api/companies", &headers, body).status,
        201
    );
}

#[test]
fn a_body_needs_a_type_that_a_page_cannot_send_unasked() {
    let server = Server::start();
    let token = bearer(&server.home.token());
    let body = r#"{"name":"acme"}"#;
    for kind in [
        None,
        Some("text/plain"),
        Some("application/x-www-form-urlencoded"),
        Some("multipart/form-data; boundary=x"),
        Some("application/wasm"),
    ] {
        let mut headers = vec![("authorization", token.as_str())];
        headers.extend(kind.map(|kind| ("content-type", kind)));
        let answer = server.tcp("POST", "/api/companies", &headers, body);
        assert_eq!(
            (answer.status, answer.code().as_str()),
            (415, "unsupported_media_type"),
            "{kind:?}"
        );
    }
    let headers = [
        ("authorization", token.as_str()),
        ("content-type", "application/json; charset=utf-8"),
    ];
    assert_eq!(
        server.tcp("POST", "/api/companies", &headers, body).status,
        201
    );
}

#[test]
fn without_a_token_nobody_is_known_over_tcp_and_a_wrong_one_is_never_a_fallback() {
    let server = Server::start();
    let answer = server.tcp("GET", "/api/companies", &[], "");
    assert_eq!(
        (answer.status, answer.code().as_str()),
        (401, "unauthenticated")
    );
    assert!(
        answer.head.contains("www-authenticate: bearer"),
        "{}",
        answer.head
    );
    let own = server.home.token();
    for wrong in [
        "Bearer lho_".to_owned() + &"0".repeat(64),
        "Bearer lht_nobody".to_owned(),
        "Bearer ".to_owned(),
        format!("Basic {own}"),
        own.clone(),
        bearer(&own[..own.len() - 1]),
    ] {
        let answer = server.tcp("GET", "/api/companies", &[("authorization", &wrong)], "");
        assert_eq!(answer.status, 401, "{wrong}");
    }
    // On the socket a token outweighs the peer, so that a wrong one is an error there too.
    let stream = std::os::unix::net::UnixStream::connect(server.home.socket()).unwrap();
    let headers = [
        ("host", "localhost"),
        ("authorization", "Bearer lht_nobody"),
    ];
    let answer = crate::server::ask(stream, "GET", "/api/companies", &headers, "").unwrap();
    assert_eq!(answer.status, 401);
    assert_eq!(
        server
            .tcp(
                "GET",
                "/api/companies",
                &[("authorization", &bearer(&own))],
                ""
            )
            .status,
        200
    );
}

#[test]
fn a_revoked_token_is_nobodys_from_the_next_request_on() {
    let server = Server::start();
    let (id, secret) = server.token_of("admin", None);
    let authorization = bearer(&secret);
    let headers = [("authorization", authorization.as_str())];
    assert_eq!(
        server.tcp("GET", "/api/whoami", &headers, "").json()["role"],
        "admin"
    );
    assert_eq!(
        server
            .operator("DELETE", &format!("/api/tokens/{id}"), "")
            .status,
        204
    );
    assert_eq!(server.tcp("GET", "/api/whoami", &headers, "").status, 401);
}

#[test]
fn a_company_that_a_token_is_not_in_does_not_exist_for_it() {
    let server = Server::start();
    let (own, foreign) = (server.company("own"), server.company("foreign"));
    let (_, member) = server.token_of("member", Some(&own));
    let (_, agent) = server.token_of("agent", Some(&own));
    let get = |token: &str, path: &str| {
        let authorization = bearer(token);
        server
            .tcp("GET", path, &[("authorization", &authorization)], "")
            .status
    };
    let environments = |company: &str| format!("/api/companies/{company}/environments");
    assert_eq!(get(&member, &environments(&own)), 200);
    assert_eq!(get(&member, &environments(&foreign)), 404);
    assert_eq!(get(&agent, &environments(&own)), 403);
    assert_eq!(get(&agent, &environments(&foreign)), 403);
    assert_eq!(get(&member, &format!("/api/companies/{own}/secrets")), 403);
    assert_eq!(get(&member, "/api/activity"), 403);
    assert_eq!(get(&member, "/metrics"), 403);
    for plugins in ["grant", "deny", "rollback", "reset", "enable"] {
        let path = format!("/api/plugins/x/{plugins}");
        let authorization = bearer(&member);
        let headers = [
            ("authorization", authorization.as_str()),
            ("content-type", "application/json"),
        ];
        let asked = server.tcp("POST", &path, &headers, r#"{"requestDigest":"0"}"#);
        assert_eq!(asked.status, 403, "{path}");
    }
    let mine = server.tcp(
        "GET",
        "/api/companies",
        &[("authorization", &bearer(&member))],
        "",
    );
    let mine = mine.json();
    assert_eq!(
        (mine.as_array().unwrap().len(), &mine[0]["id"]),
        (1, &own.as_str().into())
    );
}

#[test]
fn who_may_not_do_a_thing_is_told_so_whatever_else_is_wrong_with_the_request() {
    let server = Server::start();
    let own = server.company("own");
    let (_, agent) = server.token_of("agent", Some(&own));
    let authorization = bearer(&agent);
    let headers = [
        ("authorization", authorization.as_str()),
        ("content-type", "application/json"),
    ];
    let document = server.tcp("GET", "/api/openapi.json", &[], "").json();
    let mut walked = 0;
    for (path, item) in document["paths"].as_object().unwrap() {
        // What an agent may: its leases, its commands, the end of its run, and to ask who it is.
        let its_own = [
            "/leases",
            "-leases",
            "executions",
            "/runs/{runId}/end",
            "whoami",
            "tickets",
            "progress",
            "/select",
            "/runs/{runId}/end",
        ];
        if its_own.iter().any(|part| path.contains(part)) && !path.ends_with("/abandon") {
            continue;
        }
        for method in item.as_object().unwrap().keys() {
            let method = method.to_ascii_uppercase();
            if method == "GET" {
                continue;
            }
            let place: Vec<&str> = path
                .split('/')
                .map(|part| match part {
                    "{companyId}" => own.as_str(),
                    part if part.starts_with('{') => "x",
                    part => part,
                })
                .collect();
            let place = place.join("/") + "?bogus=1";
            let refused = server.tcp(&method, &place, &headers, "{");
            assert_eq!(refused.status, 403, "{method} {place}: {}", refused.body);
            walked += 1;
        }
    }
    assert!(walked > 20, "{walked}");
}

#[test]
fn another_user_of_this_machine_without_the_token_file_is_nobody() {
    if !is_root("another_user_of_this_machine") {
        return;
    }
    let server = Server::start();
    // The worst case: somebody has opened every door on the way to the socket.
    let mut path = server.home.socket();
    open_to_all(&path);
    while path.pop() && path.starts_with(server.home.path()) {
        open_to_all(&path);
    }
    let place = format!("unix:{}", server.home.socket().display());
    let token_file = server.home.path().join("data/leasehold/operator.token");
    // Where the build puts the command, other users may not be able to go.
    let command = server.home.path().join("leasehold");
    std::fs::copy(env!("CARGO_BIN_EXE_leasehold"), &command).unwrap();
    let as_other = |command: &str, args: &[&str]| {
        let out = Command::new("setpriv")
            .args(["--reuid=65534", "--regid=65534", "--clear-groups", command])
            .args(args)
            .current_dir("/")
            .output()
            .unwrap();
        (
            out.status.code(),
            String::from_utf8_lossy(&out.stderr).into_owned(),
        )
    };
    let ask = ["--server", place.as_str(), "company", "list"];
    let (code, said) = as_other(command.to_str().unwrap(), &ask);
    assert_eq!(code, Some(4), "{said}");
    assert!(said.contains("does not say who sends it"), "{said}");
    assert_ne!(as_other("cat", &[token_file.to_str().unwrap()]).0, Some(0));
    // The same request by this user is the operator's.
    assert_eq!(server.operator("GET", "/api/companies", "").status, 200);
}

#[test]
fn what_a_token_began_to_send_does_nothing_once_the_token_has_ended() {
    use std::io::{Read, Write};
    let server = Server::start();
    let begin = |token: &str, headers: &str| {
        let body = r#"{"name":"reborn","role":"admin"}"#;
        let mut stream = std::net::TcpStream::connect(("127.0.0.1", server.port)).unwrap();
        stream
            .set_read_timeout(Some(crate::server::DEADLINE))
            .unwrap();
        let head = format!(
            "POST /api/tokens HTTP/1.1\r\nhost: localhost:{}\r\nauthorization: Bearer {token}\r\n\
             content-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n{headers}\r\n",
            server.port,
            body.len()
        );
        let (most, last) = body.split_at(body.len() - 1);
        stream.write_all((head + most).as_bytes()).unwrap();
        (stream, last.to_owned())
    };
    let end = |(mut stream, last): (std::net::TcpStream, String)| {
        // The refusal may be there before the rest is sent.
        let _ = stream.write_all(last.as_bytes());
        let mut answer = String::new();
        let _ = stream.read_to_string(&mut answer);
        answer
    };
    let admitted = |token: &str| {
        let used = || {
            let all = server.operator("GET", "/api/tokens", "").json();
            let all = all.as_array().unwrap().clone();
            let own = all.into_iter().find(|row| row["id"] == token)?;
            (!own["lastUsedAt"].is_null()).then_some(())
        };
        crate::server::wait_for("its head to be looked at", used);
    };
    for headers in ["", "idempotency-key: once\r\n"] {
        let (id, token) = server.token_of("admin", None);
        let open = begin(&token, headers);
        admitted(&id);
        let revoked = server.operator("DELETE", &format!("/api/tokens/{id}"), "");
        assert_eq!(revoked.status, 204);
        let answer = end(open);
        assert!(answer.starts_with("HTTP/1.1 401 "), "{answer}");
        assert!(answer.contains("unauthenticated"), "{answer}");
    }
    let short = r#"{"name":"short","role":"admin","expiresInSeconds":2}"#;
    let short = server.operator("POST", "/api/tokens", short).json();
    let token = short["secret"].as_str().unwrap();
    let open = begin(token, "");
    let authorization = bearer(token);
    let headers = [("authorization", authorization.as_str())];
    crate::server::wait_for("its expiry", || {
        let answer = server.tcp("GET", "/api/companies", &headers, "");
        (answer.status == 401).then_some(())
    });
    let answer = end(open);
    assert!(answer.starts_with("HTTP/1.1 401 "), "{answer}");
    let tokens = server.operator("GET", "/api/tokens", "");
    assert!(!tokens.body.contains("reborn"), "{}", tokens.body);
    // One whose token is good is answered.
    let (_, token) = server.token_of("admin", None);
    let answer = end(begin(&token, ""));
    assert!(answer.starts_with("HTTP/1.1 201 "), "{answer}");
}

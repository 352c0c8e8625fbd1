//! Who may: on a server with a real lease, seen from a page of somewhere else and from another user of the machine.
//!
//! That every path is guarded is tested beside the server; here it is the whole, up to the command that must not run.

#![allow(
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking, also in what it calls"
)]

use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use leasehold_parts::{has, skipped};
use leasehold_tests::http::text;
use leasehold_tests::server::Server;
use serde_json::json;

/// A server with a lease of the null provider.
fn leased() -> Option<(Server, String)> {
    let server = Server::start()?;
    server.install("null").expect(201);
    let draft = json!({ "name": "null", "driver": "sandbox", "provider": "null", "config": {} });
    let environment = text(&server.environment(&draft).expect(201)["id"]);
    let lease = text(&server.acquire(&environment).expect(201)["id"]);
    Some((server, lease))
}

#[test]
fn a_page_of_another_origin_gets_no_websocket_and_changes_nothing_of_a_lease() {
    let Some((server, lease)) = leased() else {
        return;
    };
    let (token, host) = (
        format!("Bearer {}", server.token()),
        format!("localhost:{}", server.port()),
    );
    let stream = format!("/api/environment-leases/{lease}/executions/stream");
    let (own, foreign) = (format!("http://{host}"), "http://evil.example");
    let upgrade = |origin: &str, host: &str| {
        let headers = [
            ("host", host),
            ("origin", origin),
            ("authorization", token.as_str()),
            ("connection", "upgrade"),
            ("upgrade", "websocket"),
            ("sec-websocket-version", "13"),
            ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
        ];
        server.tcp("GET", &stream, &headers, "")
    };
    for (origin, host, code) in [
        (foreign, host.as_str(), "origin_not_allowed"),
        ("null", host.as_str(), "origin_not_allowed"),
        (own.as_str(), "evil.example", "host_not_allowed"),
    ] {
        let answer = upgrade(origin, host);
        assert_eq!(
            (answer.status, answer.code().as_str()),
            (403, code),
            "{origin} {host}"
        );
    }
    let release = format!("/api/environment-leases/{lease}/release");
    let headers = [
        ("host", host.as_str()),
        ("origin", foreign),
        ("authorization", token.as_str()),
    ];
    assert_eq!(
        server.tcp("POST", &release, &headers, "").code(),
        "origin_not_allowed"
    );
    assert_eq!(server.lease(&lease)["status"], "active");
    assert_eq!(server.executions(&lease), Vec::<serde_json::Value>::new());
    let headers = [
        ("host", host.as_str()),
        ("origin", own.as_str()),
        ("authorization", token.as_str()),
    ];
    assert_eq!(
        server.tcp("POST", &release, &headers, "").expect(200)["status"],
        "released"
    );
}

#[test]
fn another_user_of_the_machine_is_nobody_to_the_socket_to_the_port_and_to_the_files() {
    if !rustix::process::geteuid().is_root() || !has("setpriv") {
        skipped("root and setpriv, to be another user");
        return;
    }
    let Some((server, lease)) = leased() else {
        return;
    };
    // The worst case: somebody has opened every door on the way to the socket, and the program is there for all.
    let program = server.path().join("leasehold");
    std::fs::copy(server.leasehold().get_program(), &program).expect("a copy");
    for place in [
        server.path().to_owned(),
        server.path().join("data"),
        server.data(),
    ] {
        std::fs::set_permissions(place, std::fs::Permissions::from_mode(0o755)).expect("a mode");
    }
    std::fs::set_permissions(server.socket(), std::fs::Permissions::from_mode(0o666))
        .expect("a mode");
    let as_nobody = |command: &[&str]| {
        let output = Command::new("setpriv")
            .args([
                "--reuid=65534",
                "--regid=65534",
                "--clear-groups",
                "env",
                "-i",
            ])
            .args(command)
            .output()
            .expect("setpriv runs");
        (
            output.status.code(),
            String::from_utf8_lossy(&output.stderr).into_owned(),
        )
    };
    let program = program.display().to_string();
    let (socket, port) = (
        format!("--server=unix:{}", server.socket().display()),
        format!("--server=http://127.0.0.1:{}", server.port()),
    );
    for place in [&socket, &port] {
        for wish in [
            vec!["company", "list"],
            vec!["lease", "release", &lease],
            vec!["lease", "get", &lease],
        ] {
            let (code, said) = as_nobody(&[&[program.as_str(), place], wish.as_slice()].concat());
            assert_eq!(code, Some(4), "{place} {wish:?}: {said}");
        }
        let (code, said) = as_nobody(&[&program, place, "exec", &lease, "--", "true"]);
        assert_eq!(code, Some(125), "{place}: {said}");
    }
    for file in ["operator.token", "leasehold.db"] {
        let file = server.data().join(file).display().to_string();
        assert_ne!(as_nobody(&["cat", &file]).0, Some(0), "{file} can be read");
    }
    assert_eq!(server.lease(&lease)["status"], "active");
    assert!(server.executions(&lease).is_empty());
}

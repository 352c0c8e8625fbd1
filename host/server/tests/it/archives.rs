//! Archives and paths that are refused: what a client sent is told as wrong, and not as a fault of the target.

use std::os::unix::net::UnixStream;

use crate::leased::Leased;
use crate::server::{Answer, Server, ask};

/// A ustar header of an entry without content, and the end of the archive.
fn archive(name: &str, kind: u8, link: &str) -> String {
    let mut header = vec![0u8; 512];
    let mut put =
        |at: usize, text: &str| header[at..at + text.len()].copy_from_slice(text.as_bytes());
    put(0, name);
    put(100, "0000644");
    put(108, "0000000");
    put(116, "0000000");
    put(124, "00000000000");
    put(136, "00000000000");
    put(148, "        ");
    put(157, link);
    put(257, "ustar\u{0}00");
    header[156] = kind;
    let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
    header[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
    header.resize(512 + 1024, 0);
    String::from_utf8(header).unwrap()
}

fn upload(server: &Server, path: &str, body: &str) -> Answer {
    let headers = [("host", "localhost"), ("content-type", "application/x-tar")];
    let stream = UnixStream::connect(server.home.socket()).unwrap();
    ask(stream, "PUT", path, &headers, body).unwrap()
}

#[test]
fn an_archive_or_a_path_that_is_refused_is_the_clients_own_mistake() {
    let Some(leased) = Leased::new() else { return };
    let server = &leased.server;
    let fine = archive("note", b'0', "");
    let put =
        |path: &str, body: &str| upload(server, &leased.path(&format!("/files?path={path}")), body);
    assert_eq!(put(".", &fine).status, 204);
    for (name, kind, link) in [
        ("../out", b'0', ""),
        ("/etc/out", b'0', ""),
        ("link", b'2', "../../out"),
        ("link", b'1', "nowhere"),
        ("device", b'3', ""),
    ] {
        let answer = put(".", &archive(name, kind, link));
        assert_eq!(
            (answer.status, answer.code().as_str()),
            (422, "invalid"),
            "{name}: {}",
            answer.body
        );
    }
    let answer = put(".", "\u{1f}garbage that is no archive");
    assert_eq!(
        (answer.status, answer.code().as_str()),
        (422, "invalid"),
        "{}",
        answer.body
    );
    let get = |path: &str| server.operator("GET", &leased.path(&format!("/files?path={path}")), "");
    for path in ["/etc", "..", "a/../../b", "/"] {
        for answer in [put(path, &fine), get(path)] {
            assert_eq!(
                (answer.status, answer.code().as_str()),
                (400, "bad_request"),
                "{path}: {}",
                answer.body
            );
            assert_eq!(
                answer.json()["details"]["violations"][0]["pointer"],
                "?path",
                "{path}: {}",
                answer.body
            );
        }
    }
    assert_eq!(get("nothing-here").status, 404);
}

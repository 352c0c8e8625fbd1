//! A backend that gives back what it got, in every way that HTTP has: the component sees none of it.

use std::convert::Infallible;
use std::io;

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE};
use bytes::Bytes;
use futures_util::stream;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::{Request, Response};
use leasehold_contract::{Code, Content, HttpLines, NoStream, Piece};
use tokio::io::AsyncReadExt;

use crate::rules_lab::{KEY, Lab};
use crate::server::{Reply, reply};

/// The key that a request carries, and the way that it names.
fn heard(request: &Request<Incoming>) -> (String, String) {
    let value = request.headers().get("authorization").unwrap();
    let key = value.to_str().unwrap().strip_prefix("Bearer ").unwrap();
    let way = request.uri().path().rsplit('/').next().unwrap();
    (key.to_owned(), way.to_owned())
}

fn encoded(key: &str, way: &str) -> String {
    match way {
        "plain" => key.to_owned(),
        "base64" => STANDARD.encode(key),
        "base64url" => URL_SAFE.encode(format!("x:{key}")),
        "percent" => key.bytes().map(|b| format!("%{b:02x}")).collect(),
        "escaped" => key.bytes().map(|b| format!("\\u{b:04x}")).collect(),
        "slash" => key.replace('/', "\\/"),
        "hex" => key.bytes().map(|b| format!("{b:02x}")).collect(),
        "upper" => key.to_ascii_uppercase(),
        _ => panic!("no such way: {way}"),
    }
}

const WAYS: &[&str] = &[
    "plain",
    "base64",
    "base64url",
    "percent",
    "escaped",
    "slash",
    "hex",
    "upper",
];

/// In a header, in chunks of three bytes, and in a trailer.
fn echo(text: &str) -> Response<Reply> {
    let body = format!("{{\"line\":\"{text}\"}}\n{text}\n");
    let mut frames: Vec<Result<Frame<Bytes>, io::Error>> = body
        .as_bytes()
        .chunks(3)
        .map(|c| Ok(Frame::data(Bytes::copy_from_slice(c))))
        .collect();
    let mut trailers = hyper::HeaderMap::new();
    trailers.insert("x-trailer", text.parse().unwrap());
    frames.push(Ok(Frame::trailers(trailers)));
    Response::builder()
        .status(200)
        .header("x-echo", text)
        .header("trailer", "x-trailer")
        .body(StreamBody::new(stream::iter(frames)).boxed())
        .unwrap()
}

/// Whether any part of the key shows that is worth something.
fn shows(text: &str) -> bool {
    WAYS.iter().any(|way| {
        let echoed = encoded(KEY, way);
        echoed
            .as_bytes()
            .windows(12)
            .any(|part| text.as_bytes().windows(12).any(|w| w == part))
    })
}

async fn lab() -> Lab {
    Lab::leased(|request| async move {
        let (key, way) = heard(&request);
        echo(&encoded(&key, &way))
    })
    .await
}

#[tokio::test]
async fn an_echo_in_header_body_chunks_or_trailer_shows_nothing() {
    let lab = lab().await;
    let call = lab.call();
    for way in WAYS {
        let request = lab.ask("GET", &format!("/{way}"));
        let response = call.http_send(request).await.unwrap();
        let text = format!(
            "{:?} {}",
            response.head,
            String::from_utf8_lossy(response.body.as_bytes())
        );
        assert!(
            text.contains("[redacted]") && !shows(&text),
            "{way}: {text}"
        );
    }
}

#[tokio::test]
async fn an_echo_by_lines_shows_nothing() {
    let lab = lab().await;
    let call = lab.call();
    for way in WAYS {
        let request = lab.ask("GET", &format!("/{way}"));
        let mut lines: Box<dyn HttpLines> = call.http_open(request).await.unwrap();
        let mut text = format!("{:?}", lines.head());
        while let Some(line) = lines.next().await.unwrap() {
            text.push_str(&line);
        }
        assert!(
            text.contains("[redacted]") && !shows(&text),
            "{way}: {text}"
        );
    }
}

#[tokio::test]
async fn an_echo_over_several_lines_shows_no_part_of_a_value_and_no_line_is_lost() {
    let lab = Lab::leased(|request| async move {
        let (key, way) = heard(&request);
        let text = encoded(&key, &way);
        let broken: Vec<String> = text
            .as_bytes()
            .chunks(12)
            .map(|part| String::from_utf8_lossy(part).into_owned())
            .collect();
        reply(
            200,
            format!("first\n{}\nlast canary\nend", broken.join("\r\n")),
        )
    })
    .await;
    let call = lab.call();
    for way in ["plain", "base64", "base64url", "hex", "percent"] {
        let request = lab.ask("GET", &format!("/{way}"));
        let mut lines: Box<dyn HttpLines> = call.http_open(request).await.unwrap();
        let mut all = Vec::new();
        while let Some(line) = lines.next().await.unwrap() {
            all.push(line);
        }
        // Its first characters may have left before it was known: four of any others never do.
        let whole = encoded(KEY, way);
        let shown = |part: &[u8]| {
            let mut lines = all.iter().map(String::as_bytes);
            lines.any(|line| line.windows(8).any(|w| w == part))
        };
        let parts = whole.as_bytes().windows(8).skip(4 * 3);
        assert!(!parts.into_iter().any(shown), "{way}: {all:?}");
        assert_eq!(
            all.first().map(String::as_str),
            Some("first"),
            "{way}: {all:?}"
        );
        assert_eq!(
            all.last().map(String::as_str),
            Some("end"),
            "{way}: {all:?}"
        );
        assert!(
            all.iter().any(|line| line.contains("[redacted]")),
            "{way}: {all:?}"
        );
        assert!(
            all.iter().any(|line| line == "last canary"),
            "{way}: {all:?}"
        );
    }
}

#[tokio::test]
async fn an_echo_in_what_is_said_instead_of_switching_shows_nothing() {
    // Cut at each place of the key, too: the transport tells the first 4 KiB.
    let lab = Lab::leased(|request| async move {
        let (key, _) = heard(&request);
        let before = request.uri().query().unwrap().parse::<usize>().unwrap();
        reply(403, format!("{}{key} and more", "x".repeat(before)))
    })
    .await;
    let call = lab.call();
    for before in [0, 4060, 4066, 4070, 4075, 4080, 4085, 4090, 4095, 4096] {
        let request = lab.ask("GET", &format!("/boxes/box-1/attach?{before}"));
        for none in [
            call.upgrade(request.clone(), "tcp".into()).await.err(),
            call.websocket(request, Vec::new()).await.err(),
        ] {
            let Some(NoStream::Refused { status, body }) = none else {
                panic!("{none:?}");
            };
            assert_eq!(status, 403);
            assert!(!body.contains("canary"), "{before}: {body}");
        }
    }
}

#[tokio::test]
async fn an_echo_in_an_encoding_is_not_shown_and_not_told() {
    let lab = Lab::leased(|request| async move {
        let (key, way) = heard(&request);
        let coding = match way.as_str() {
            "header" => key.clone(),
            // Where a long text is cut.
            "long" => format!("{}{key}", "x".repeat(380)),
            _ => "gzip".to_owned(),
        };
        Response::builder()
            .header("content-encoding", coding)
            .body(
                http_body_util::Full::new(Bytes::from(key))
                    .map_err(|never: Infallible| match never {})
                    .boxed(),
            )
            .unwrap()
    })
    .await;
    let call = lab.call();
    for way in ["header", "long", "gzip"] {
        let request = lab.ask("GET", &format!("/{way}"));
        let errors = [
            call.http_send(request.clone()).await.unwrap_err(),
            call.http_open(request.clone()).await.err().unwrap(),
            call.http_download(request).await.err().unwrap(),
        ];
        for error in errors {
            assert_eq!(error.code, Code::Unavailable);
            assert!(!shows(&error.message), "{error}");
        }
    }
}

#[tokio::test]
async fn a_download_of_an_echo_is_not_sent_on() {
    let lab = Lab::leased(|request| async move {
        if request.method() == "PUT" {
            let body = request.into_body().collect().await;
            let got = body.map(|b| b.to_bytes().len());
            return reply(200, format!("{got:?}"));
        }
        let (key, way) = heard(&request);
        reply(
            200,
            format!("{}{}", "x".repeat(100_000), encoded(&key, &way)),
        )
    })
    .await;
    let call = lab.call();
    for way in ["plain", "base64", "escaped"] {
        let (_, bytes) = call
            .http_download(lab.ask("GET", &format!("/{way}")))
            .await
            .unwrap();
        let sent = call
            .http_upload(
                lab.ask("PUT", "/boxes/box-1/file"),
                vec![Piece::Bytes(bytes)],
            )
            .await;
        let error = sent.unwrap_err();
        assert!(error.message.contains("credential"), "{error}");
    }
    // Read by the host it is as it came.
    let (_, mut bytes) = call.http_download(lab.ask("GET", "/plain")).await.unwrap();
    let mut whole = String::new();
    bytes.read_to_string(&mut whole).await.unwrap();
    assert!(whole.ends_with(KEY));
}

#[tokio::test]
async fn a_minted_value_is_kept_by_the_host_and_used_by_its_placeholder() {
    const MINTED: &str = "minted-session-0123456789";
    let lab = Lab::leased(|request| async move {
        match request.headers().get("x-session") {
            Some(session) => reply(200, format!("hello {}", session.to_str().unwrap())),
            None => reply(
                200,
                format!("{{\"token\":\"{MINTED}\",\"again\":\"{MINTED}\"}}"),
            ),
        }
    })
    .await;
    let call = lab.call();
    let mut request = lab.ask("POST", "/boxes/box-1/token");
    request.keep.push(("/token".into(), "session".into()));
    let response = call.http_send(request).await.unwrap();
    let Content::Text(text) = &response.body else {
        panic!("{:?}", response.body);
    };
    assert!(!text.contains(MINTED), "{text}");
    let json: serde_json::Value = serde_json::from_str(text).unwrap();
    let token = json["token"].as_str().unwrap().to_owned();
    assert_eq!(json["again"], token.as_str());
    assert!(lab.log.all().contains(&format!("kept session {MINTED}")));

    let mut request = lab.ask("GET", "/who");
    request.headers.push(("x-session".into(), token));
    let response = call.http_send(request).await.unwrap();
    assert_eq!(response.body, Content::Text("hello [redacted]".into()));
}

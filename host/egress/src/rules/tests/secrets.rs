//! Where a secret may stand in a request.

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE, URL_SAFE_NO_PAD};

use super::*;

fn percent(text: &str) -> String {
    text.bytes().map(|b| format!("%{b:02X}")).collect()
}

fn units(text: &str) -> String {
    text.encode_utf16().map(|u| format!("\\u{u:04x}")).collect()
}

#[test]
fn a_credential_stands_whole_in_its_site() {
    let rules = rules();
    for (name, value, want) in [
        (
            "Authorization",
            format!("Bearer {KEY_TOKEN}"),
            format!("Bearer {KEY}"),
        ),
        ("x-api-key", KEY_TOKEN.to_owned(), KEY.to_owned()),
        (
            "Cookie",
            format!("session={KEY_TOKEN}; v=1"),
            format!("session={KEY}; v=1"),
        ),
        (
            "authorization",
            format!(
                "Basic {}",
                STANDARD.encode(format!("admin:{PASSWORD_TOKEN}"))
            ),
            format!("Basic {}", STANDARD.encode(format!("admin:{PASSWORD}"))),
        ),
    ] {
        let request = with_header(ask("GET", API), name, &value);
        let judged = judge(&rules, &request).unwrap_or_else(|e| panic!("{name}: {e}"));
        let name = name.to_ascii_lowercase();
        assert_eq!(header(&judged.wire, &name), Some(want.as_str()));
        assert!(judged.wire.carries_secret);
    }
}

#[test]
fn registry_credentials_are_written_by_the_host() {
    let request = with_header(
        ask("POST", &at("/images/create")),
        "X-Registry-Auth",
        REGISTRY_TOKEN,
    );
    let judged = judge(&rules(), &request).expect("its site");
    let value = header(&judged.wire, "x-registry-auth").expect("the header");
    let json: serde_json::Value =
        serde_json::from_slice(&URL_SAFE.decode(value).expect("base64url")).expect("JSON");
    assert_eq!(
        json,
        serde_json::json!({"username": "puller", "password": REGISTRY, "serveraddress": "registry.example"})
    );
}

#[test]
fn a_placeholder_in_the_wrong_header_or_the_wrong_shape_is_refused() {
    let rules = rules();
    let basic = |text: String| format!("Basic {}", STANDARD.encode(text));
    let (half, rest) = KEY_TOKEN.split_at(20);
    for headers in [
        vec![("x-other", KEY_TOKEN.to_owned())],
        vec![("authorization", KEY_TOKEN.to_owned())],
        vec![("authorization", format!("bearer {KEY_TOKEN}"))],
        vec![("authorization", format!("Bearer {KEY_TOKEN} "))],
        vec![("authorization", format!("Bearer  {KEY_TOKEN}"))],
        vec![("authorization", format!("Bearer x{KEY_TOKEN}"))],
        vec![(
            "authorization",
            format!("Bearer {KEY_TOKEN}, x={KEY_TOKEN}"),
        )],
        vec![("authorization", format!("Bearer {PASSWORD_TOKEN}"))],
        vec![("authorization", format!("Bearer {PAYLOAD_TOKEN}"))],
        vec![("authorization", "Bearer invented".to_owned())],
        vec![("cookie", "a=b".to_owned())],
        vec![("cookie", format!("session={KEY_TOKEN}"))],
        vec![("x-api-key", format!("{KEY_TOKEN}{KEY_TOKEN}"))],
        vec![("x-api-key", REGISTRY_TOKEN.to_owned())],
        vec![("x-registry-auth", KEY_TOKEN.to_owned())],
        vec![(
            "x-registry-auth",
            URL_SAFE.encode(format!("{{\"password\":\"{REGISTRY_TOKEN}\"}}")),
        )],
        vec![("x-registry-auth", "e30=".to_owned())],
        vec![("authorization", basic(format!("admin:{KEY_TOKEN}")))],
        vec![("authorization", basic(format!("other:{PASSWORD_TOKEN}")))],
        vec![("authorization", basic(format!("admin:x{PASSWORD_TOKEN}")))],
        vec![("authorization", basic(format!("{PASSWORD_TOKEN}:admin")))],
        vec![("authorization", basic("admin:plain".to_owned()))],
        vec![("authorization", "Basic ???".to_owned())],
        vec![("x-other", STANDARD.encode(KEY_TOKEN))],
        vec![("x-other", STANDARD.encode(format!("ab{KEY_TOKEN}")))],
        vec![("x-other", URL_SAFE_NO_PAD.encode(format!("a{KEY_TOKEN}")))],
        vec![("x-other", percent(KEY_TOKEN))],
        vec![("x-other", units(KEY_TOKEN))],
        vec![("x-other", KEY_TOKEN.to_ascii_uppercase())],
        vec![("x-one", half.to_owned()), ("x-two", rest.to_owned())],
        vec![
            ("authorization", format!("Bearer {KEY_TOKEN}")),
            ("authorization", format!("Bearer {KEY_TOKEN}")),
        ],
        vec![(KEY_TOKEN, "x".to_owned())],
    ] {
        let mut request = ask("GET", API);
        for (name, value) in &headers {
            request = with_header(request, name, value);
        }
        refused(&rules, &request);
    }
}

#[test]
fn a_credential_goes_to_its_own_endpoints_only() {
    let rules = rules();
    for url in [OTHER, "https://other.example/v1/boxes"] {
        let bearer = with_header(
            ask("GET", url),
            "authorization",
            &format!("Bearer {KEY_TOKEN}"),
        );
        let error = refused(&rules, &bearer);
        assert!(error.message.contains("only to /api"), "{error}");
        let basic = format!(
            "Basic {}",
            STANDARD.encode(format!("admin:{PASSWORD_TOKEN}"))
        );
        refused(
            &rules,
            &with_header(ask("GET", url), "authorization", &basic),
        );
    }
}

#[test]
fn a_credential_that_was_not_granted_works_nowhere() {
    let mut less = facts();
    Arc::make_mut(&mut less.asked).credentials.clear();
    let rules = rules_of(less, Reach::Act, Some(&lease()));
    let bearer = with_header(
        ask("GET", API),
        "authorization",
        &format!("Bearer {KEY_TOKEN}"),
    );
    refused(&rules, &bearer);
}

#[test]
fn headers_that_frame_or_forge_are_the_hosts() {
    let rules = rules();
    for name in [
        "Host",
        "content-length",
        "Transfer-Encoding",
        "TE",
        "trailer",
        "connection",
        "keep-alive",
        "upgrade",
        "expect",
        "accept-encoding",
        "proxy-authorization",
        "Proxy-Connection",
        "content_length",
        "transfer_encoding",
        "sec-websocket-key",
        "http2-settings",
        "",
        "a b",
        "a:b",
        "a\r\nb",
        "ä",
    ] {
        refused(&rules, &with_header(ask("GET", API), name, "x"));
    }
    for value in ["a\r\nx: y", "a\nb", "a\0b", "a\u{7f}", "\u{1}"] {
        refused(&rules, &with_header(ask("GET", API), "x-any", value));
    }
    let mut many = ask("GET", API);
    for i in 0..65 {
        many = with_header(many, &format!("x-{i}"), "1");
    }
    refused(&rules, &many);
    refused(
        &rules,
        &with_header(ask("GET", API), "x-long", &"x".repeat(9000)),
    );
    let plain = with_header(ask("GET", API), "Accept", "text/plain, */*;q=0.5");
    judge(&rules, &plain).expect("an ordinary header");
}

#[test]
fn a_value_with_a_line_end_fills_no_header() {
    for bad in [
        "key-with\r\nx: injected",
        "key-with\nline-end",
        "key-with\0nul",
    ] {
        let mut facts = facts();
        facts.values[0].value = Value::Text(Secret::new(bad.into()));
        let rules = rules_of(facts, Reach::Act, Some(&lease()));
        let bearer = with_header(
            ask("GET", API),
            "authorization",
            &format!("Bearer {KEY_TOKEN}"),
        );
        let error = refused(&rules, &bearer);
        assert!(error.message.contains("control character"), "{error}");
        assert!(!error.message.contains("injected"), "{error}");
    }
}

#[test]
fn a_placeholder_in_a_url_is_refused() {
    let rules = rules();
    for token in [KEY_TOKEN, PAYLOAD_TOKEN, REGISTRY_TOKEN] {
        for url in [
            at(&format!("/x/{token}")),
            at(&format!("/x/{}", percent(token))),
            at(&format!("/x/{}", token.to_ascii_uppercase())),
            at(&format!("/x?k={token}")),
            at(&format!("/x?k={}", percent(token))),
            at(&format!("/x?k={}", STANDARD.encode(token))),
            at(&format!("/x?{token}")),
            format!("https://{token}.files.example/x"),
        ] {
            refused(&rules, &ask("GET", &url));
        }
        let mut pair = ask("GET", API);
        pair.query.push(("k".into(), token.into()));
        refused(&rules, &pair);
        let mut name = ask("GET", API);
        name.query.push((token.into(), "v".into()));
        refused(&rules, &name);
        let mut pieces = ask("GET", API);
        pieces.query.push(("a".into(), token[..18].into()));
        pieces.query.push(("b".into(), token[18..].into()));
        refused(&rules, &pieces);
    }
}

#[test]
fn a_payload_fills_the_strings_of_a_json_body_for_the_leases_own() {
    let rules = rules();
    let text = format!(
        "{{ \"env\": {{\"TOKEN\": \"{PAYLOAD_TOKEN}\", \"URL\": \"x={PAYLOAD_TOKEN}&y\"}}, \"n\": 1.0e400, \"k\" : [true] }}"
    );
    let judged = judge(
        &rules,
        &with_body(ask("POST", &at("/boxes/box-1/exec")), &text),
    )
    .expect("its own");
    let out = body(&judged.wire);
    assert!(out.contains("\"n\": 1.0e400, \"k\" : [true] }"), "{out}");
    let escaped = serde_json::to_string(PAYLOAD).expect("a string");
    assert!(out.contains(&format!("\"TOKEN\": {escaped}")), "{out}");
    let inner = escaped.trim_matches('"').trim_end_matches('\\');
    assert!(out.contains(&format!("\"x={inner}")), "{out}");
    assert!(judged.wire.carries_secret);

    // The same placeholder written with an escape is the same string.
    let escape = format!("{{\"a\":\"\\u006c{}\"}}", &PAYLOAD_TOKEN[1..]);
    let judged = judge(
        &rules,
        &with_body(ask("POST", &at("/boxes/box-1/exec")), &escape),
    );
    assert!(body(&judged.expect("its own").wire).contains("canary-payload"));
}

#[test]
fn a_placeholder_anywhere_else_in_a_body_is_refused() {
    let rules = rules();
    let own = at("/boxes/box-1/exec");
    let typed = |kind: &str, body: &str| {
        with_header(with_body(ask("POST", &own), body), "content-type", kind)
    };
    let json = |body: String| with_body(ask("POST", &own), &body);
    let p = PAYLOAD_TOKEN;
    for request in [
        // A payload that is not in a string of plain JSON.
        json(format!("{{\"{p}\":1}}")),
        json(format!("{{\"a\":\"{}\"}}", STANDARD.encode(p))),
        json(format!(
            "{{\"a\":\"{}\"}}",
            STANDARD.encode(format!("TOKEN={p}"))
        )),
        json(format!("{{\"a\":\"{}\"}}", percent(p))),
        json(format!("{{\"a\":\"{}\"}}", p.to_ascii_uppercase())),
        json(format!("{{\"a\":\"{}{p}{}\"}}", &p[..20], &p[20..])),
        json(format!("{{\"a\":\"{p}\",\"a\":1}}")),
        json(format!("{{\"a\":\"{p}\"")),
        json(p.to_owned()),
        json(format!("{}\"{p}\"{}", "[".repeat(65), "]".repeat(65))),
        typed("text/plain", p),
        typed("application/x-www-form-urlencoded", &format!("a={p}")),
        typed(
            "application/json; charset=utf-16",
            &format!("{{\"a\":\"{p}\"}}"),
        ),
        typed(
            "application/merge-patch+json",
            &format!("{{\"a\":\"{p}\"}}"),
        ),
        with_header(
            json(format!("{{\"a\":\"{p}\"}}")),
            "content-encoding",
            "identity",
        ),
        // A request that is not for the lease's own environment.
        with_body(
            ask("POST", &at("/images/create")),
            &format!("{{\"a\":\"{p}\"}}"),
        ),
        with_body(
            ask("POST", &at("/search/boxes")),
            &format!("{{\"a\":\"{p}\"}}"),
        ),
        // A credential in any body: a label or a variable of a sandbox.
        json(format!("{{\"env\":{{\"K\":\"{KEY_TOKEN}\"}}}}")),
        json(format!("{{\"env\":[\"K={KEY_TOKEN}\"]}}")),
        json(format!("{{\"env\":{{\"K\":\"{}\"}}}}", units(KEY_TOKEN))),
        json(format!("{{\"cmd\":\"echo {PASSWORD_TOKEN}\"}}")),
        typed("text/plain", REGISTRY_TOKEN),
        typed("text/plain", &STANDARD.encode(KEY_TOKEN)),
    ] {
        refused(&rules, &request);
    }
    let mut bytes = typed("application/octet-stream", "");
    bytes.body = Content::Bytes([&[0xff, 0xfe], KEY_TOKEN.as_bytes()].concat());
    refused(&rules, &bytes);
    let labels = format!(r#"{{"labels":{{"leasehold-owner":"owner-mac","k":"{KEY_TOKEN}"}}}}"#);
    refused(
        &acquiring(),
        &with_body(ask("POST", &at("/boxes")), &labels),
    );
}

#[test]
fn a_body_without_placeholders_goes_out_as_it_came() {
    let rules = rules();
    for (kind, body) in [
        ("text/plain", "lhp-unknown, lhp-0123"),
        ("application/json", "{\"a\":1,\"a\":2}"),
        ("application/json", "not JSON"),
    ] {
        let request = with_body(ask("DELETE", &at("/boxes/box-1")), body);
        let request = with_header(request, "content-type", kind);
        let judged = judge(&rules, &request).expect(kind);
        assert_eq!(super::body(&judged.wire), body);
        assert!(!judged.wire.carries_secret);
    }
    let mut large = ask("DELETE", &at("/boxes/box-1"));
    large.body = Content::Bytes(vec![b'x'; (8 << 20) + 1]);
    refused(&rules, &large);
}

#[test]
fn a_placeholder_in_the_pieces_of_an_upload_is_refused() {
    let rules = rules();
    let upload = ask("DELETE", &at("/boxes/box-1"));
    let inline = |text: &str| Piece::Inline(Content::Text(text.into()));
    for pieces in [
        vec![inline(KEY_TOKEN)],
        vec![inline(&PAYLOAD_TOKEN[..10]), inline(&PAYLOAD_TOKEN[10..])],
        vec![inline(&STANDARD.encode(KEY_TOKEN))],
    ] {
        let judged = rules.judge(&upload, pieces, Form::Upload).1;
        assert!(judged.is_err());
    }
    let beside = with_body(upload, "x");
    assert!(
        rules
            .judge(&beside, vec![inline("y")], Form::Upload)
            .1
            .is_err()
    );
}

#[tokio::test]
async fn a_download_with_a_credential_in_it_is_not_sent_on() {
    use tokio::io::AsyncReadExt;
    let upload = ask("DELETE", &at("/boxes/box-1"));
    let stream = std::io::Cursor::new(format!("before {KEY} after").into_bytes());
    let pieces = vec![Piece::Bytes(Box::pin(stream))];
    let judged = rules()
        .judge(&upload, pieces, Form::Upload)
        .1
        .expect("an upload");
    let Body::Pieces(pieces) = judged.wire.body else {
        panic!("pieces stay pieces");
    };
    for piece in pieces {
        if let Piece::Bytes(mut stream) = piece {
            let mut out = Vec::new();
            stream
                .read_to_end(&mut out)
                .await
                .expect_err("a credential passed");
            assert!(out.is_empty());
        }
    }
}

#[test]
fn placeholders_are_random_and_survive_wherever_they_are_written() {
    let all: std::collections::BTreeSet<String> = (0..1000)
        .map(|_| placeholder().expect("randomness"))
        .collect();
    assert_eq!(all.len(), 1000);
    for one in all {
        assert_eq!(one.len(), super::super::facts::LENGTH);
        assert!(
            one.bytes()
                .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
        );
    }
}

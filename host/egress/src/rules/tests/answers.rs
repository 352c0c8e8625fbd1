//! What of an answer a component sees.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::*;
use crate::rules::finder::REMOVED;

fn expects(rules: &Rules, request: &HttpRequest) -> Expects {
    judge(rules, request).expect("let through").expects
}

fn create() -> HttpRequest {
    with_body(
        ask("POST", &at("/boxes")),
        r#"{"labels":{"leasehold-owner":"owner-mac"}}"#,
    )
}

#[test]
fn an_id_is_taken_from_the_answer_and_is_the_leases_from_then_on() {
    for (body, id) in [
        (r#"{"id":"box-9","id2":"x"}"#, "box-9"),
        (r#"{"id":12345678901234567890}"#, "12345678901234567890"),
        (r#"{"i\u0064":"\u0062ox"}"#, "box"),
    ] {
        let rules = acquiring();
        let delete = ask("DELETE", &at(&format!("/boxes/{id}")));
        refused(&rules, &delete);
        let seen = rules
            .answered(&expects(&rules, &create()), answer(201, body), None)
            .expect(body);
        assert!(
            matches!(seen.found.as_slice(), [Found::Created(made)] if made == id),
            "{:?}",
            seen.found
        );
        judge(&rules, &delete).expect("it is its own now");
        assert_eq!(refused(&rules, &create()).code, Code::AlreadyExists);
    }
}

#[test]
fn a_child_is_the_leases_from_its_answer_on() {
    let rules = rules();
    let start = ask("POST", &at("/boxes/box-1/exec/exec-7/start"));
    refused(&rules, &start);
    let exec = expects(&rules, &ask("POST", &at("/boxes/box-1/exec")));
    let seen = rules
        .answered(&exec, answer(200, r#"{"execId":"exec-7"}"#), None)
        .expect("an id");
    assert!(matches!(seen.found.as_slice(), [Found::Child(id)] if id == "exec-7"));
    judge(&rules, &start).expect("it is its own now");
}

#[test]
fn an_id_that_only_repeats_the_request_makes_nothing_the_leases() {
    let labels = r#""labels":{"leasehold-owner":"owner-mac"}"#;
    let make = |more: &str| with_body(ask("POST", &at("/boxes")), &format!("{{{more},{labels}}}"));
    let exec = |body: &str| with_body(ask("POST", &at("/boxes/box-1/exec")), body);
    let queried = |mut request: HttpRequest| {
        request.query.push(("name".into(), "box-2".into()));
        request
    };
    for (rules, request, body) in [
        (acquiring(), make(r#""name":"box-2""#), r#"{"id":"box-2"}"#),
        (
            acquiring(),
            make(r#""name":"\u0062ox-2""#),
            r#"{"id":"bo\u0078-2"}"#,
        ),
        (
            acquiring(),
            make(r#""a":[{"b":"box-2"}]"#),
            r#"{"id":"box-2"}"#,
        ),
        (acquiring(), make(r#""box-2":1"#), r#"{"id":"box-2"}"#),
        (acquiring(), make(r#""id":7"#), r#"{"id":7}"#),
        (acquiring(), queried(create()), r#"{"id":"box-2"}"#),
        (
            acquiring(),
            with_header(create(), "x-name", "box-2"),
            r#"{"id":"box-2"}"#,
        ),
        (
            rules(),
            exec(r#"{"id":"exec-2"}"#),
            r#"{"execId":"exec-2"}"#,
        ),
        (
            rules(),
            with_header(exec("id=exec-2&x"), "content-type", "text/plain"),
            r#"{"execId":"exec-2"}"#,
        ),
        (
            rules(),
            ask("POST", &at("/boxes/box-1/exec?id=%65xec-2")),
            r#"{"execId":"exec-2"}"#,
        ),
    ] {
        let error = rules
            .answered(&expects(&rules, &request), answer(201, body), None)
            .expect_err(body);
        assert_eq!(error.code, Code::OutcomeUnknown, "{body}: {error}");
        assert!(error.message.contains("the request said itself"), "{error}");
        for path in ["/boxes/box-2", "/boxes/7"] {
            refused(&rules, &ask("DELETE", &at(path)));
        }
        refused(&rules, &ask("POST", &at("/boxes/box-1/exec/exec-2/start")));
    }
    // Names that the host chose are as good as the backend's own, and so is a number that stands there by chance.
    for (rules, request, body) in [
        (acquiring(), make(r#""name":"acq-1""#), r#"{"id":"acq-1"}"#),
        (
            acquiring(),
            make(r#""name":"x-acq-1.net""#),
            r#"{"id":"x-acq-1.net"}"#,
        ),
        (
            acquiring(),
            make(r#""size":7,"version":"7""#),
            r#"{"id":7}"#,
        ),
        (rules(), exec(r#"{"id":"exe-1"}"#), r#"{"execId":"exe-1"}"#),
    ] {
        let seen = rules.answered(&expects(&rules, &request), answer(201, body), None);
        assert_eq!(seen.expect(body).found.len(), 1, "{body}");
    }
}

#[test]
fn the_answer_to_a_creation_without_a_readable_id_is_not_a_success() {
    for body in [
        "",
        "{}",
        "not JSON",
        r#"{"id":null}"#,
        r#"{"id":{"a":1}}"#,
        r#"{"id":""}"#,
        r#"{"id":".."}"#,
        r#"{"id":"a/b"}"#,
        r#"{"id":"a b"}"#,
        r#"{"id":"a","id":"b"}"#,
        r#"{"id":-1.5e3,"x":"\ud800"}"#,
    ] {
        let rules = acquiring();
        let error = rules
            .answered(&expects(&rules, &create()), answer(201, body), None)
            .expect_err(body);
        assert_eq!(error.code, Code::OutcomeUnknown, "{body}: {error}");
    }
    let rules = acquiring();
    let expects = expects(&rules, &create());
    for (status, body) in [(409, "<html>"), (500, ""), (422, r#"{"id":"box-2"}"#)] {
        let seen = rules
            .answered(&expects, answer(status, body), None)
            .expect("an answer");
        assert!(seen.found.is_empty(), "{status} made nothing");
    }
    refused(&rules, &ask("DELETE", &at("/boxes/box-2")));
}

#[test]
fn a_server_that_echoes_what_it_got_tells_nothing() {
    let rules = rules();
    let expects = expects(&rules, &ask("GET", API));
    let payload = serde_json::to_string(PAYLOAD).expect("a string");
    for echo in [
        KEY.to_owned(),
        format!("{{\"authorization\":\"Bearer {KEY}\"}}"),
        STANDARD.encode(KEY),
        STANDARD.encode(format!("admin:{PASSWORD}")),
        STANDARD.encode(format!(
            "{{\"username\":\"puller\",\"password\":\"{REGISTRY}\",\"serveraddress\":\"registry.example\"}}"
        )),
        KEY.bytes().map(|b| format!("%{b:02x}")).collect(),
        crate::hex(KEY.as_bytes()),
        KEY.to_ascii_uppercase(),
        payload,
        PAYLOAD.to_owned(),
    ] {
        let mut response = answer(200, &format!("{{\"echo\":\"{echo}\"}}"));
        response.head.headers.push(("x-echo".into(), echo.clone()));
        response.head.headers.push((format!("x-{KEY}"), "1".into()));
        let seen = rules.answered(&expects, response, None).expect("an answer");
        assert!(seen.found.is_empty());
        let text = shown(&seen.response);
        assert!(text.matches(REMOVED).count() >= 2, "{text}");
        for secret in [KEY, PASSWORD, REGISTRY, "canary-payload"] {
            assert!(!text.to_ascii_lowercase().contains(secret), "{text}");
            assert!(!text.contains(&STANDARD.encode(secret)[..12]), "{text}");
        }
        // A line of a stream, a head before its body, and an error on the way.
        assert!(rules.text(echo.clone()).contains(REMOVED));
        let error = Error::new(Code::Unavailable, format!("the server said: {echo}"));
        assert!(rules.error(error).message.contains(REMOVED));
        let head = HttpHead {
            status: 200,
            headers: vec![("x-echo".into(), echo.clone())],
        };
        let head = rules.began(&expects, head).expect("a head");
        assert!(head.headers[0].1.contains(REMOVED), "{head:?}");
    }
}

#[test]
fn an_answer_in_an_encoding_that_nobody_asked_for_is_not_shown() {
    let rules = rules();
    let packed = |coding: &str| {
        let mut response = answer(200, "x");
        response
            .head
            .headers
            .push(("Content-Encoding".into(), coding.into()));
        response
    };
    let read = expects(&rules, &ask("GET", API));
    let act = expects(&rules, &ask("DELETE", &at("/boxes/box-1")));
    for coding in ["gzip", "br", "identity, gzip", "x"] {
        let error = rules
            .answered(&read, packed(coding), None)
            .expect_err(coding);
        assert_eq!(error.code, Code::Unavailable);
        let error = rules
            .answered(&act, packed(coding), None)
            .expect_err(coding);
        assert_eq!(error.code, Code::OutcomeUnknown);
        rules.began(&read, packed(coding).head).expect_err(coding);
    }
    rules
        .answered(&read, packed("Identity"), None)
        .expect("identity is none");
}

const MINTED: &str = "minted-token-abcdef0123456789";

fn mint(rules: &Rules, keep: &[(&str, &str)], body: &str) -> Seen {
    let mut request = ask("POST", &at("/boxes/box-1/token"));
    for (pointer, name) in keep {
        request.keep.push(((*pointer).into(), (*name).into()));
    }
    let mut response = answer(200, body);
    response
        .head
        .headers
        .push(("x-token".into(), MINTED.into()));
    rules
        .answered(&expects(rules, &request), response, None)
        .expect("a mint")
}

/// The placeholder that stands in a text.
fn token_in(text: &str) -> &str {
    let from = text.find("lhp-").expect("a placeholder");
    &text[from..from + 36]
}

#[test]
fn what_an_answer_mints_is_a_placeholder_wherever_it_stands() {
    let rules = rules();
    let encoded = STANDARD.encode(MINTED);
    let body = format!(
        "{{\"token\": \"{MINTED}\", \"url\":\"https://x/?t={MINTED}\", \"same\":[\"\\u006dinted-token-abcdef0123456789\"], \"b\":\"{encoded}\", \"n\": 1.50, \"parts\":{{\"pin\":123456, \"x\":[\"second-token-zyx\"]}}}}"
    );
    let seen = mint(&rules, &[], &body);
    let text = shown(&seen.response);
    for value in [MINTED, &encoded, "123456", "second-token", "\\u006dinted"] {
        assert!(!text.contains(value), "{value}: {text}");
    }
    assert!(text.contains("\"n\": 1.50"), "{text}");
    let token = token_in(&text).to_owned();
    assert!(text.contains(&format!("?t={token}")), "{text}");
    assert!(
        text.contains(&format!("(\"x-token\", \"{token}\")")),
        "{text}"
    );
    assert!(seen.found.is_empty(), "nothing is kept unasked");

    // It works in its site, toward its endpoint.
    let request = with_header(ask("GET", API), "x-session", &token);
    let judged = judge(&rules, &request).expect("its site");
    assert!(
        [MINTED, "123456", "second-token-zyx"]
            .contains(&header(&judged.wire, "x-session").unwrap_or_default())
    );
    refused(&rules, &with_header(ask("GET", OTHER), "x-session", &token));
    refused(&rules, &with_header(ask("GET", API), "x-preview", &token));
    refused(&rules, &ask("GET", &at(&format!("/x?t={token}"))));
    refused(
        &rules,
        &with_body(
            ask("POST", &at("/boxes/box-1/exec")),
            &format!("\"{token}\""),
        ),
    );

    // Later answers of the call do not show it either.
    let later = rules.answered(
        &expects(&rules, &ask("GET", API)),
        answer(200, MINTED),
        None,
    );
    assert!(!shown(&later.expect("an answer").response).contains(MINTED));
}

#[test]
fn a_minted_value_is_kept_for_later_calls_under_its_own_mint() {
    let rules = rules();
    let seen = mint(
        &rules,
        &[("/token", "session")],
        &format!("{{\"token\":\"{MINTED}\"}}"),
    );
    let [Found::Kept(kept)] = seen.found.as_slice() else {
        panic!("{:?}", seen.found);
    };
    assert_eq!(kept.name, "session");
    assert_eq!(kept.value.expose(), MINTED);
    assert!(!format!("{kept:?}").contains(MINTED));

    let again = placeholder().expect("randomness");
    let later = |kept: Kept| {
        let mut facts = facts();
        facts.kept.push(KeptValue {
            placeholder: again.clone(),
            kept,
        });
        rules_of(facts, Reach::Act, Some(&lease()))
    };
    let request = with_header(ask("GET", API), "x-session", &again);
    let judged = judge(&later(kept.clone()), &request).expect("its site");
    assert_eq!(header(&judged.wire, "x-session"), Some(MINTED));
    refused(
        &later(kept.clone()),
        &with_header(ask("GET", OTHER), "x-session", &again),
    );
    // Of a mint that the grant has no more, it is worth nothing.
    let mut gone = kept.clone();
    gone.mint.path = "/boxes/{resource}/old".into();
    refused(&later(gone), &request);
}

#[test]
fn of_an_object_that_is_minted_no_part_is_kept_and_not_without_bound() {
    let rules = rules();
    let seen = mint(
        &rules,
        &[("/parts", "p")],
        r#"{"parts":["a-first-part","a-second-part"]}"#,
    );
    assert!(seen.found.is_empty(), "{:?}", seen.found);
    let expects = expects(&rules, &ask("POST", &at("/boxes/box-1/token")));
    let many = |n: usize| {
        let parts: Vec<String> = (0..n).map(|i| format!("part-number-{i}")).collect();
        rules.answered(
            &expects,
            answer(200, &serde_json::json!({ "parts": parts }).to_string()),
            None,
        )
    };
    many(64).expect("as many as there may be");
    assert_eq!(many(65).expect_err("one more").code, Code::OutcomeUnknown);
    for round in 0..40 {
        let token = format!("token-of-round-{round}");
        let parts: Vec<String> = (0..30).map(|i| format!("{token}-{i}")).collect();
        let answer = answer(200, &serde_json::json!({ "parts": parts }).to_string());
        if rules.answered(&expects, answer, None).is_err() {
            return;
        }
    }
    panic!("a call has placeholders without bound");
}

#[test]
fn keep_names_what_a_mint_of_this_answer_has() {
    let rules = rules();
    let keep = |url: String, method: &str, pointer: &str, name: &str| {
        let mut request = ask(method, &url);
        request.keep.push((pointer.into(), name.into()));
        request
    };
    for request in [
        keep(at("/boxes/box-1"), "DELETE", "/token", "a"),
        keep(at("/boxes/box-1/token"), "POST", "/other", "a"),
        keep(at("/boxes/box-1/token"), "POST", "/token", ""),
        keep(at("/boxes/box-1/token"), "POST", "/token", "a b"),
        keep("https://a.files.example/x".into(), "GET", "/token", "a"),
    ] {
        refused(&rules, &request);
    }
    let leaseless = rules_of(facts(), Reach::Act, None);
    refused(
        &leaseless,
        &keep(at("/boxes/box-1/preview"), "GET", "/token", "a"),
    );
}

#[test]
fn a_mint_is_not_read_past() {
    let rules = rules();
    // Somebody else's, or a spelling that a careless server takes for its own.
    for path in [
        "/boxes/box-2/preview",
        "/Boxes/box-1/preview",
        "/boxes/box-1/preview/",
        "/boxes/box-1/PREVIEW",
    ] {
        let error = refused(&rules, &ask("GET", &at(path)));
        assert!(error.message.contains("mint"), "{error}");
    }
    let own = ask("GET", &at("/boxes/box-1/preview"));
    for form in [Form::Open, Form::Download] {
        refused_as(&rules, &own, form);
    }
    let expects = expects(&rules, &own);
    for body in [
        format!("{{\"token\":\"{MINTED}\",\"token\":\"x\"}}"),
        format!("token={MINTED}"),
        format!("{{\"token\":\"{MINTED}\"}} {{}}"),
    ] {
        rules
            .answered(&expects, answer(200, &body), None)
            .expect_err("not the JSON it should be");
    }
    let mut bytes = answer(200, "");
    bytes.body = Content::Bytes([&[0xff], MINTED.as_bytes()].concat());
    rules.answered(&expects, bytes, None).expect_err("no text");
    let page = rules
        .answered(&expects, answer(502, "<html>bad gateway"), None)
        .expect("a proxy's page");
    assert!(page.found.is_empty());
}

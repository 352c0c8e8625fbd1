//! Where a request may go.

use super::*;

#[test]
fn a_request_goes_below_an_endpoint_that_an_administrator_typed() {
    let rules = rules();
    for (url, target) in [
        ("https://api.example/v1", "/v1"),
        ("https://api.example/v1/", "/v1/"),
        ("https://api.example:443/v1/boxes?a=b", "/v1/boxes?a=b"),
        ("https://API.example/v1/b%6Fxes", "/v1/boxes"),
        ("https://api.example/v1/a%20b", "/v1/a%20b"),
    ] {
        let judged = judge(&rules, &ask("GET", url)).expect(url);
        assert_eq!(judged.wire.target, target, "{url}");
        assert!(judged.wire.destination.typed);
        assert!(!judged.wire.carries_secret);
        assert_eq!(judged.expects.effect, Effect::Reads);
    }
}

#[test]
fn no_spelling_leaves_the_endpoint() {
    let rules = rules();
    for url in [
        // Another origin.
        "https://evil.example/v1/boxes",
        "http://api.example/v1/boxes",
        "https://api.example:8443/v1/boxes",
        "https://api.example.evil.example/v1",
        "https://evil.example#https://api.example/v1",
        "https://api.example@evil.example/v1",
        "https://evil.example\\@api.example/v1",
        "https://api.example./v1",
        "https://api%2eexample/v1",
        "//api.example/v1",
        "file:///v1",
        "unix:///v1",
        "https:api.example/v1",
        " https://api.example/v1",
        "https://api.example/v1\r\nx: y",
        // Another path.
        "https://api.example/",
        "https://api.example/v10",
        "https://api.example/v2/boxes",
        "https://api.example/V1/boxes",
        "https://api.example/v1/../admin",
        "https://api.example/v1/%2e%2e/admin",
        "https://api.example/v1/.%2E/admin",
        "https://api.example/v1/..;/admin",
        "https://api.example/v1/..%2fadmin",
        "https://api.example/v1/%252e%252e/admin",
        "https://api.example/v1%2f..%2fadmin",
        "https://api.example/v1/x\\..\\..\\admin",
        "https://api.example/v1//admin",
        "https://api.example//v1/boxes",
        // One that nobody typed.
        "https://default.example/",
    ] {
        let error = refused(&rules, &ask("GET", url));
        assert_eq!(error.code, Code::PermissionDenied, "{url}: {error}");
    }
}

#[test]
fn a_refusal_says_what_was_asked_and_what_is_allowed() {
    let error = refused(&rules(), &ask("GET", "https://evil.example/v1/x?token=abc"));
    assert_eq!(
        error.message,
        "GET /v1/x https://evil.example: the destination is neither a configured endpoint nor an approved origin; \
         endpoints are: https://api.example/v1 (/api), https://default.example/ (/default), https://other.example/ \
         (/other); approved origins are: https://*.files.example:443"
    );
    let error = refused(&rules(), &ask("GET", "https://api.example/v2"));
    assert!(
        error.message.contains("outside of every endpoint"),
        "{error}"
    );
    let error = refused(&rules(), &ask("GET", "https://default.example/x"));
    assert!(error.message.contains("save the environment"), "{error}");
}

#[test]
fn an_approved_origin_is_read_and_carries_nothing() {
    let rules = rules();
    let url = "https://a.files.example/x";
    let judged = judge(&rules, &ask("GET", url)).expect("approved");
    assert!(!judged.wire.destination.typed);
    for request in [
        ask("POST", url),
        with_body(ask("GET", url), "x"),
        with_header(
            ask("GET", url),
            "authorization",
            &format!("Bearer {KEY_TOKEN}"),
        ),
        with_header(ask("GET", url), "x-api-key", KEY_TOKEN),
        with_header(ask("GET", url), "authorization", "Bearer plain"),
        ask("GET", &format!("{url}?k={PAYLOAD_TOKEN}")),
        ask("GET", "https://files.example/x"),
        ask("GET", "http://a.files.example/x"),
    ] {
        refused(&rules, &request);
    }
    refused_as(&rules, &ask("GET", url), Form::WebSocket);
    refused_as(&rules, &ask("GET", url), Form::Upgrade);
    refused_as(&rules, &ask("GET", url), Form::Upload);
}

#[test]
fn a_function_that_reaches_nothing_gets_no_look_at_anything() {
    let rules = rules_of(facts(), Reach::Nothing, None);
    for url in [API, OTHER, "https://a.files.example/x"] {
        let error = refused(&rules, &ask("GET", url));
        assert!(error.message.contains("reaches nothing"), "{error}");
    }
}

#[test]
fn of_two_endpoints_at_one_origin_the_nearer_counts_and_the_other_still_guards() {
    let mut both = facts();
    both.endpoints
        .insert("/wide".into(), endpoint("https://api.example", true));
    Arc::make_mut(&mut both.asked).operations.push(Operation {
        endpoint: "/wide".into(),
        ..operation("POST", "/v1/free", Role::Shared)
    });
    let rules = rules_of(both, Reach::Act, Some(&lease()));
    let (about, judged) = rules.judge(&ask("DELETE", &at("/boxes/box-1")), Vec::new(), Form::Send);
    judged.expect("an operation of the nearer");
    assert_eq!(about.pointer, "/api");
    // A mint of one endpoint holds where the request goes to the other.
    let other = refused(&rules, &ask("GET", &at("/boxes/box-2/preview")));
    assert!(other.message.contains("mint"), "{other}");
}

//! What a request may do.

use super::*;

const LABELS: &str = r#"{"labels":{"leasehold-owner":"owner-mac"}}"#;

fn effect(rules: &Rules, method: &str, path: &str) -> Effect {
    judge(rules, &ask(method, &at(path)))
        .unwrap_or_else(|e| panic!("{method} {path}: {e}"))
        .expects
        .effect
}

#[test]
fn what_acts_names_this_leases_own() {
    let rules = rules();
    assert_eq!(effect(&rules, "DELETE", "/boxes/box-1"), Effect::Acts);
    assert_eq!(effect(&rules, "DELETE", "/boxes/box%2D1"), Effect::Acts);
    assert_eq!(effect(&rules, "PUT", "/by-name/acq-1"), Effect::Acts);
    assert_eq!(
        effect(&rules, "POST", "/boxes/box-1/exec/exec-1/start"),
        Effect::Acts
    );
    assert_eq!(effect(&rules, "POST", "/images/create"), Effect::Shared);
    assert_eq!(effect(&rules, "POST", "/search/boxes"), Effect::Reads);
    assert_eq!(effect(&rules, "GET", "/boxes/box-2"), Effect::Reads);
    assert_eq!(effect(&rules, "HEAD", "/anything"), Effect::Reads);
}

#[test]
fn somebody_elses_resource_is_not_acted_on_however_it_is_written() {
    let rules = rules();
    for (method, path) in [
        ("DELETE", "/boxes/box-2"),
        ("DELETE", "/boxes/box-1/../box-2"),
        ("DELETE", "/boxes/box-1%2f..%2fbox-2"),
        ("DELETE", "/boxes/box-2;/box-1"),
        ("DELETE", "/boxes/box-2%3bbox-1"),
        ("DELETE", "/boxes/box-2?id=box-1"),
        ("DELETE", "/boxes//box-1"),
        ("DELETE", "/boxes/box-1/"),
        ("DELETE", "/boxes/BOX-1"),
        ("DELETE", "/boxes/*"),
        ("DELETE", "/boxes/{resource}"),
        ("DELETE", "/boxes"),
        ("DELETE", "/boxes/exec-1"),
        ("DELETE", "/boxes/acq-1"),
        ("PUT", "/by-name/acq-2"),
        ("PUT", "/by-name/box-1"),
        ("POST", "/boxes/box-2/exec"),
        ("POST", "/boxes/box-2/exec/exec-1/start"),
        ("POST", "/boxes/box-1/exec/exec-2/start"),
        ("POST", "/boxes/box-1/exec/box-1/start"),
        ("PATCH", "/boxes/box-1"),
        ("delete", "/boxes/box-1"),
        ("DELETE ", "/boxes/box-1"),
        ("DELETE\r\nx", "/boxes/box-1"),
        ("", "/boxes/box-1"),
        ("CONNECT", "/boxes/box-1"),
        ("TRACE", "/boxes/box-1"),
        ("M-SEARCH", "/boxes/box-1"),
    ] {
        let error = refused(&rules, &ask(method, &at(path)));
        assert_eq!(error.code, Code::PermissionDenied, "{method} {path}");
    }
    let error = refused(&rules, &ask("DELETE", &at("/boxes/box-2")));
    assert!(error.message.contains("resource box-1"), "{error}");
    let error = refused(&rules, &ask("PATCH", &at("/boxes/box-1")));
    assert!(
        error.message.contains("DELETE /boxes/{resource} (act)"),
        "{error}"
    );
}

#[test]
fn no_operation_makes_a_method_of_what_is_none() {
    for method in [
        "CONNECT",
        "TRACE",
        "TRACK",
        "delete",
        "DELETE ",
        "DE\r\nLETE",
        "A-METHOD-OF-17-LETTERS",
    ] {
        let mut facts = facts();
        Arc::make_mut(&mut facts.asked).operations.push(operation(
            method,
            "/boxes/{resource}/x",
            Role::Act,
        ));
        let rules = rules_of(facts, Reach::Act, Some(&lease()));
        refused(&rules, &ask(method, &at("/boxes/box-1/x")));
    }
}

#[test]
fn a_request_is_not_made_another_by_a_header_or_a_query() {
    let rules = rules();
    for name in [
        "X-HTTP-Method-Override",
        "x_http_method_override",
        "x-original-url",
        "X-Rewrite-URL",
    ] {
        refused(&rules, &with_header(ask("GET", API), name, "DELETE"));
    }
    for query in [
        "_method=DELETE",
        "a=b&_METHOD=DELETE",
        "%5fmethod=x",
        "_%6Dethod",
    ] {
        refused(
            &rules,
            &ask("POST", &at(&format!("/images/create?{query}"))),
        );
    }
    let mut pair = ask("POST", &at("/images/create"));
    pair.query.push(("_method".into(), "DELETE".into()));
    refused(&rules, &pair);
}

#[test]
fn a_function_that_looks_uses_reads_alone() {
    let rules = rules_of(facts(), Reach::Read, Some(&lease()));
    assert_eq!(effect(&rules, "GET", "/boxes"), Effect::Reads);
    assert_eq!(effect(&rules, "POST", "/search/boxes"), Effect::Reads);
    for (method, path) in [
        ("DELETE", "/boxes/box-1"),
        ("POST", "/images/create"),
        ("POST", "/boxes"),
        ("PUT", "/by-name/acq-1"),
    ] {
        refused(&rules, &ask(method, &at(path)));
    }
    for form in [Form::WebSocket, Form::Upgrade] {
        refused_as(&rules, &ask("GET", &at("/boxes/box-1/attach")), form);
    }
    // Not even by an operation that reads: a stream takes bytes both ways.
    refused_as(&rules, &ask("POST", &at("/search/boxes")), Form::Upgrade);
}

#[test]
fn only_acquire_makes_an_environment_and_only_one_and_with_the_owner_label() {
    let create = with_body(ask("POST", &at("/boxes")), LABELS);
    let made = judge(&acquiring(), &create).expect("acquire makes one");
    assert!(matches!(made.expects.effect, Effect::Creates(_)));
    assert_eq!(body(&made.wire), LABELS);
    assert_eq!(header(&made.wire, "content-type"), Some("application/json"));

    let not_acquire = HttpFacts {
        resource: None,
        ..facts()
    };
    let error = refused(&rules_of(not_acquire, Reach::Act, Some(&lease())), &create);
    assert!(error.message.contains("acquire alone"), "{error}");
    let mut known = facts();
    known.acquiring = true;
    let second = refused(&rules_of(known, Reach::Act, Some(&lease())), &create);
    assert_eq!(second.code, Code::AlreadyExists, "{second}");
    for request in [create.clone(), ask("DELETE", &at("/boxes/box-1"))] {
        let leaseless = HttpFacts {
            acquiring: true,
            ..facts()
        };
        let error = refused(&rules_of(leaseless, Reach::Act, None), &request);
        assert_eq!(error.code, Code::FailedPrecondition, "{error}");
    }

    for body in [
        "",
        "{}",
        r#"{"labels":{}}"#,
        r#"{"labels":{"leasehold-owner":"other-mac"}}"#,
        r#"{"labels":{"leasehold-owner":["owner-mac"]}}"#,
        r#"{"labels":{"Leasehold-Owner":"owner-mac"}}"#,
        r#"{"x":{"labels":{"leasehold-owner":"owner-mac"}}}"#,
        r#"{"labels":{"leasehold-owner":"owner-mac","leasehold-owner":"x"}}"#,
        r#"{"labels":{"leasehold-owner":"owner-mac"},"labels":{}}"#,
        r#"{"labels":{"leasehold-owner":"owner-mac"}} {}"#,
    ] {
        refused(&acquiring(), &with_body(ask("POST", &at("/boxes")), body));
    }
    let escaped = r#"{"labels":{"leasehold-own\u0065r":"owner\u002dmac"}}"#;
    judge(
        &acquiring(),
        &with_body(ask("POST", &at("/boxes")), escaped),
    )
    .expect("the same text");
    let form = with_header(
        create.clone(),
        "content-type",
        "application/x-www-form-urlencoded",
    );
    refused(&acquiring(), &form);
    let packed = with_header(create.clone(), "content-encoding", "gzip");
    refused(&acquiring(), &packed);
}

#[test]
fn what_makes_something_is_never_let_through_as_something_less() {
    let rules = acquiring();
    // `POST /*` is granted as shared, and a careless server takes each of these for `POST /boxes`.
    for path in ["/BOXES", "/boxes/", "/Boxes"] {
        let error = refused(&rules, &with_body(ask("POST", &at(path)), LABELS));
        assert!(error.message.contains("exactly that path"), "{error}");
    }
    assert_eq!(effect(&rules, "POST", "/things"), Effect::Shared);
    for form in [Form::Open, Form::Download, Form::Upgrade, Form::Upload] {
        let mut request = ask("POST", &at("/boxes"));
        if form != Form::Upload {
            request = with_body(request, LABELS);
        }
        refused_as(&rules, &request, form);
    }
}

#[test]
fn a_stream_needs_an_operation_even_by_get() {
    let rules = rules();
    for form in [Form::WebSocket, Form::Upgrade] {
        for path in [
            "/boxes/box-2/attach",
            "/boxes/box-1/logs",
            "/boxes/box-2/exec/exec-1",
        ] {
            refused_as(&rules, &ask("GET", &at(path)), form);
        }
        let own = ask("GET", &at("/boxes/box-1/attach"));
        rules.judge(&own, Vec::new(), form).1.expect("its own");
    }
    // Its method and body are not used.
    let request = with_body(
        ask("DELETE", "wss://api.example/v1/boxes/box-1/attach"),
        "x",
    );
    let judged = rules
        .judge(&request, Vec::new(), Form::WebSocket)
        .1
        .expect("its own");
    assert_eq!(judged.wire.method, "GET");
    assert!(matches!(judged.wire.body, Body::Empty));

    let mut none = facts();
    Arc::make_mut(&mut none.asked).streams = false;
    let rules = rules_of(none, Reach::Act, Some(&lease()));
    let error = refused_as(
        &rules,
        &ask("GET", &at("/boxes/box-1/attach")),
        Form::WebSocket,
    );
    assert!(error.message.contains("not granted"), "{error}");
}

#[test]
fn a_read_carries_no_body() {
    let rules = rules();
    for method in ["GET", "HEAD"] {
        refused(&rules, &with_body(ask(method, API), "x"));
    }
    let mut upload = ask("GET", API);
    upload.method = "GET".into();
    let piece = vec![Piece::Inline(Content::Text("x".into()))];
    assert!(rules.judge(&upload, piece, Form::Upload).1.is_err());
}

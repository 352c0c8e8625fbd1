//! The same provider in Rust, JavaScript and Python: what one does the others do, against the same backend.

use leasehold_parts::Fault;
use leasehold_tests::canary::contains;
use leasehold_tests::http::text;
use leasehold_tests::wait::until;
use serde_json::{Value, json};

use crate::{House, PAYLOAD, TOKEN};

/// One room of tests for each language.
macro_rules! in_each_language {
    ($($test:ident)+) => {
        in_each_language!(rust "cabin": $($test)+);
        in_each_language!(javascript "cabin-js": $($test)+);
        in_each_language!(python "cabin-py": $($test)+);
    };
    ($language:ident $provider:literal: $($test:ident)+) => {
        mod $language {
            $(#[test]
            fn $test() {
                super::$test($provider);
            })+
        }
    };
}

in_each_language! {
    a_room_is_leased_used_and_released_and_the_token_stands_in_its_site_alone
    a_backend_that_gives_the_token_back_gives_it_to_nobody
    a_token_that_is_wrong_is_said_to_be_and_nothing_is_made
    what_the_schema_cannot_check_the_provider_does
    each_status_of_a_backend_means_the_same_whoever_asked
    a_backend_that_is_down_keeps_the_lease_waiting_in_sight_until_it_is_up
    killed_while_a_room_is_made_the_server_finds_it_again_and_there_are_never_two
    a_room_whose_making_was_never_answered_is_found_by_its_label_and_removed
    an_answer_that_the_provider_does_not_understand_is_its_own_fault_and_says_what_it_was
}

fn a_room_is_leased_used_and_released_and_the_token_stands_in_its_site_alone(provider: &str) {
    let Some(house) = House::of(provider, TOKEN) else {
        return;
    };
    let server = &house.server;
    let (probed, found) = house.probe("draft", &json!({}));
    assert_eq!(probed["ok"], true, "{probed}");
    let good = [
        ["reach", "info", "the API answers"],
        [
            "authenticate",
            "info",
            "the token is good; there are 0 rooms",
        ],
    ];
    assert_eq!(found, good);
    assert_eq!(
        house.rooms.rooms(),
        Vec::<String>::new(),
        "a probe leaves nothing"
    );

    let lease = house.acquire();
    let id = text(&lease["id"]);
    assert_eq!(house.rooms.rooms().len(), 1);
    assert_eq!(
        lease["proof"], "owned",
        "the host itself found its label: {lease}"
    );
    let seen = server.get(&format!("/api/environment-leases/{id}/observation"));
    assert_eq!(seen["condition"], "ready", "{seen}");

    let script = "printf %s \"$PAYLOAD\" | wc -c; echo aside >&2; pwd >where; exit 7";
    let ran = server
        .exec(&id, &json!({ "argv": ["sh", "-c", script] }))
        .expect(200);
    assert_eq!(ran["execution"]["exitCode"], 7, "{ran}");
    assert_eq!(text(&ran["stdout"]).trim(), PAYLOAD.len().to_string());
    assert_eq!(text(&ran["stderr"]), "aside\n");

    let released = server.release(&id);
    assert_eq!(released["status"], "released", "{released}");
    assert_eq!(house.rooms.rooms(), Vec::<String>::new());

    // On the wire: in its header and nowhere else; the payload in a body for the lease's own and nowhere else.
    let mut payloads = 0;
    for heard in house.rooms.heard() {
        assert_eq!(heard.header("authorization"), format!("Bearer {TOKEN}"));
        for (name, value) in &heard.headers {
            assert!(
                name == "authorization" || !value.contains(TOKEN),
                "{heard:?}"
            );
            assert!(
                !value.contains(PAYLOAD) && !value.contains("lhp-"),
                "{heard:?}"
            );
        }
        assert!(
            !heard.path.contains(TOKEN) && !heard.path.contains("lhp-"),
            "{heard:?}"
        );
        assert!(!contains(&heard.body, TOKEN.as_bytes()), "{heard:?}");
        assert!(
            !contains(&heard.body, b"lhp-"),
            "no placeholder leaves: {heard:?}"
        );
        payloads += usize::from(contains(&heard.body, PAYLOAD.as_bytes()));
    }
    assert_eq!(payloads, 1, "the command had its variable");
    house.keeps_no_secret();
    let answers = format!(
        "{lease}{probed}{seen}{ran}{released}{}",
        server.get("/api/activity")
    );
    assert!(
        !answers.contains(TOKEN) && !answers.contains(PAYLOAD),
        "{answers}"
    );
}

fn a_backend_that_gives_the_token_back_gives_it_to_nobody(provider: &str) {
    let Some(house) = House::of(provider, TOKEN) else {
        return;
    };
    house.rooms.set_fault(Fault::Echo);
    let lease = house.acquire();
    let id = text(&lease["id"]);
    let ran = house
        .server
        .exec(&id, &json!({ "argv": ["true"] }))
        .expect(200);
    // One that fails is told with what the backend said.
    house.rooms.make_room("other");
    let released = house.server.release(&id);
    assert_eq!(released["status"], "released", "{released}");
    assert!(!format!("{lease}{ran}{released}").contains(TOKEN));
    house.keeps_no_secret();
}

fn a_token_that_is_wrong_is_said_to_be_and_nothing_is_made(provider: &str) {
    let Some(house) = House::of(provider, "canary-Wrong-0123456789") else {
        return;
    };
    let (probed, found) = house.probe("draft", &json!({}));
    assert_eq!(probed["ok"], false, "{probed}");
    let [[reached, ..], [step, severity, message]] = found.as_slice() else {
        panic!("{probed}");
    };
    assert_eq!(
        [reached, step, severity],
        ["reach", "authenticate", "failure"]
    );
    assert!(message.contains("/rooms answered 401: "), "{probed}");
    let refused = house.server.acquire(&house.environment);
    assert_eq!(refused.code(), "target_unauthenticated", "{}", refused.body);
    assert!(refused.body.contains("401"), "{}", refused.body);
    assert!(!refused.body.contains("canary-Wrong"), "{}", refused.body);
    assert_eq!(house.acts(), Vec::<String>::new());
    assert_eq!(house.server.leases()[0]["status"], "failed");
    // Rotated, it is good from the next call on.
    let secrets = format!("/api/companies/{}/secrets", house.server.company());
    let all = house.server.get(&secrets);
    let token = all
        .as_array()
        .into_iter()
        .flatten()
        .find(|s| s["name"] == "token");
    let id = text(&token.expect("it is there")["id"]);
    house
        .server
        .call(
            "POST",
            &format!("/api/secrets/{id}/versions"),
            Some(&json!({ "value": TOKEN })),
        )
        .expect(201);
    house.acquire();
}

fn what_the_schema_cannot_check_the_provider_does(provider: &str) {
    let Some(house) = House::of(provider, TOKEN) else {
        return;
    };
    // Every violation at once, each where it stands.
    let refused = house.draft(
        "wrong",
        &json!({ "leasehold-x": "1", "leasehold-a/b~c": "2", "team": "blue" }),
    );
    assert_eq!(refused.status, 422, "{}", refused.body);
    let violations = refused.json()["details"]["violations"].as_array().cloned();
    let mut pointers: Vec<String> = violations
        .iter()
        .flatten()
        .map(|one| text(&one["pointer"]))
        .collect();
    pointers.sort();
    let wrong = [
        "/config/labels/leasehold-a~1b~0c",
        "/config/labels/leasehold-x",
    ];
    assert_eq!(pointers, wrong, "{}", refused.body);
    // What is saved is what the provider made of it, and that is what rooms are labelled with.
    let saved = house
        .draft("right", &json!({ "team": "  blue " }))
        .expect(201);
    assert_eq!(saved["config"]["labels"]["team"], "blue", "{saved}");
    let lease = house.server.acquire(&text(&saved["id"])).expect(201);
    assert_eq!(
        lease["proof"], "owned",
        "the host's own label stands beside it: {lease}"
    );
    let heard = house.rooms.heard();
    let made = heard
        .iter()
        .find(|one| one.method == "POST")
        .expect("a room was asked for");
    let made: Value = serde_json::from_slice(&made.body).expect("JSON");
    assert_eq!(made["labels"]["team"], "blue", "{made}");
}

fn each_status_of_a_backend_means_the_same_whoever_asked(provider: &str) {
    let Some(house) = House::of(provider, TOKEN) else {
        return;
    };
    // A request that changes nothing, and one that may have made a room: of that one nobody can tell after a 500.
    for (method, status, code) in [
        ("GET", 401, "target_unauthenticated"),
        ("GET", 402, "quota_exceeded"),
        ("GET", 403, "egress_denied"),
        ("GET", 405, "unsupported"),
        ("GET", 409, "failed_precondition"),
        ("GET", 412, "failed_precondition"),
        ("GET", 418, "provider_failed"),
        ("GET", 423, "busy"),
        ("GET", 425, "target_unavailable"),
        ("GET", 429, "rate_limited"),
        ("GET", 501, "unsupported"),
        ("GET", 408, "target_unavailable"),
        ("GET", 500, "target_unavailable"),
        ("GET", 503, "target_unavailable"),
        ("GET", 507, "quota_exceeded"),
        ("POST", 503, "target_unavailable"),
        ("POST", 500, "outcome_unknown"),
        ("POST", 408, "outcome_unknown"),
    ] {
        house.rooms.set_fault(Fault::Refuse(method, status));
        let refused = house.server.acquire(&house.environment);
        assert_eq!(refused.code(), code, "{method} {status}: {}", refused.body);
        let said = format!("{method} {}/rooms answered {status}: ", house.rooms.url());
        assert!(
            text(&refused.json()["error"]).contains(&said),
            "{}",
            refused.body
        );
        // Who says how long to wait is believed.
        assert!(
            refused.head.contains("retry-after: 7\r\n"),
            "{}",
            refused.head
        );
        house.rooms.set_fault(Fault::None);
    }
}

fn a_backend_that_is_down_keeps_the_lease_waiting_in_sight_until_it_is_up(provider: &str) {
    let Some(house) = House::of(provider, TOKEN) else {
        return;
    };
    let id = text(&house.acquire()["id"]);
    house.rooms.set_fault(Fault::Down);
    let (probed, found) = house.probe("draft", &json!({}));
    assert_eq!(probed["ok"], false, "{probed}");
    let steps: Vec<&str> = found.iter().map(|[step, ..]| step.as_str()).collect();
    assert_eq!(steps, ["reach"], "{probed}");
    let seen = house.server.call(
        "GET",
        &format!("/api/environment-leases/{id}/observation"),
        None,
    );
    assert!(seen.status >= 500, "{}", seen.body);
    let waiting = house.server.release(&id);
    assert_eq!(waiting["status"], "pending_cleanup", "{waiting}");
    assert_eq!(house.rooms.rooms().len(), 1);
    house.rooms.set_fault(Fault::None);
    house.server.wait_lease(&id, "released");
    assert_eq!(house.rooms.rooms(), Vec::<String>::new());
}

fn killed_while_a_room_is_made_the_server_finds_it_again_and_there_are_never_two(provider: &str) {
    let Some(mut house) = House::of(provider, TOKEN) else {
        return;
    };
    house.rooms.set_fault(Fault::LoseCreate);
    std::thread::scope(|scope| {
        let asked = scope.spawn(|| {
            let path = format!("/api/environments/{}/leases", house.environment);
            house.server.try_call("POST", &path, Some(&json!({})))
        });
        until("the room", || (house.rooms.made() == 1).then_some(()));
        house.server.signal(rustix::process::Signal::KILL);
        assert!(asked.join().expect("no panic").is_none(), "nobody answered");
    });
    house.rooms.set_fault(Fault::None);
    house.server.restart();
    let id = text(&house.server.leases()[0]["id"]);
    let adopted = house.server.wait_lease(&id, "active");
    assert_eq!((house.rooms.made(), house.rooms.rooms().len()), (1, 1));
    assert_eq!(adopted["proof"], "owned", "{adopted}");
    let ran = house
        .server
        .exec(&id, &json!({ "argv": ["true"] }))
        .expect(200);
    assert_eq!(ran["execution"]["exitCode"], 0, "{ran}");
    assert_eq!(house.server.release(&id)["status"], "released");
    assert_eq!((house.rooms.made(), house.rooms.rooms().len()), (1, 0));
}

fn a_room_whose_making_was_never_answered_is_found_by_its_label_and_removed(provider: &str) {
    let Some(house) = House::of(provider, TOKEN) else {
        return;
    };
    house.rooms.set_fault(Fault::LoseCreate);
    let path = format!("/api/environments/{}/leases", house.environment);
    let body = json!({ "timeoutMs": 1000 });
    let lost = house.server.call("POST", &path, Some(&body));
    assert!(lost.status >= 500, "{}", lost.body);
    let id = text(&house.server.leases()[0]["id"]);
    let ended = house.server.wait_lease(&id, "released");
    assert_eq!(
        (house.rooms.made(), house.rooms.rooms().len()),
        (1, 0),
        "{ended}"
    );
    house.rooms.set_fault(Fault::None);
}

fn an_answer_that_the_provider_does_not_understand_is_its_own_fault_and_says_what_it_was(
    provider: &str,
) {
    let Some(house) = House::of(provider, TOKEN) else {
        return;
    };
    house.rooms.set_fault(Fault::Strange);
    // In Rust it is an error; in the others a bug that nobody caught, with what they wrote to standard error.
    let (code, words) = match provider {
        "cabin" => ("provider_failed", "missing field `rooms`"),
        "cabin-js" => ("component_trapped", "cannot read property"),
        _ => ("component_trapped", "KeyError: 'rooms'"),
    };
    let refused = house.server.acquire(&house.environment);
    assert_eq!(refused.code(), code, "{}", refused.body);
    assert!(
        text(&refused.json()["error"]).contains(words),
        "{}",
        refused.body
    );
    let (probed, found) = house.probe("draft", &json!({}));
    assert!(
        found
            .iter()
            .any(|[_, severity, message]| severity == "failure" && message.contains(words)),
        "{probed}"
    );
    // The next call is a fresh instance: nothing of the fault is left.
    house.rooms.set_fault(Fault::None);
    house.acquire();
}

//! The cabin provider gone astray, in the languages whose mistakes show at run time: what becomes of them, and what such a
//! component is shown of a secret.

use leasehold_parts::Fault;
use leasehold_tests::http::text;
use serde_json::json;

use crate::{House, PAYLOAD, TOKEN};

/// A house of a provider gone astray, and an environment of each of its ways.
fn astray(provider: &str, way: &str) -> Option<(House, String)> {
    let house = House::of(provider, TOKEN)?;
    let environment = text(&house.draft(way, &json!({ "astray": way })).expect(201)["id"]);
    Some((house, environment))
}

/// Calls that go astray end as a trap that tells what the component wrote to standard error, with where it was.
fn told_with_its_words(provider: &str, way: &str, words: &[&str]) {
    let Some((house, environment)) = astray(provider, way) else {
        return;
    };
    let refused = house.server.acquire(&environment);
    assert_eq!(refused.code(), "component_trapped", "{}", refused.body);
    let (probed, found) = house.probe("draft", &json!({ "astray": way }));
    let [[step, severity, message]] = found.as_slice() else {
        panic!("{probed}");
    };
    assert_eq!(
        [step.as_str(), severity.as_str()],
        ["provider", "failure"],
        "{probed}"
    );
    for words in words {
        assert!(
            text(&refused.json()["error"]).contains(words),
            "{words}: {}",
            refused.body
        );
        assert!(message.contains(words), "{words}: {message}");
    }
    // Nobody else is worse off: the same plugin serves an environment that leads it nowhere.
    assert_eq!(house.acts(), Vec::<String>::new());
    house.acquire();
}

#[test]
fn an_exception_in_javascript_is_told_with_its_message_and_its_stack() {
    told_with_its_words(
        "cabin-js-astray",
        "exception",
        &[
            "cannot read property 'room' of undefined",
            "at exception (/examples/astray.js:",
        ],
    );
}

#[test]
fn an_exception_in_python_is_told_with_its_message_and_its_traceback() {
    let words = [
        "AttributeError",
        "'Context' object has no attribute 'nothing'",
        "astray.py",
    ];
    told_with_its_words("cabin-py-astray", "exception", &words);
}

#[test]
fn what_is_thrown_and_is_no_error_of_the_contract_is_a_trap() {
    told_with_its_words("cabin-js-astray", "text", &["expected object"]);
    told_with_its_words("cabin-py-astray", "text", &["RuntimeError: thrown as text"]);
}

#[test]
fn a_value_without_a_part_that_its_type_has_is_a_trap_that_says_so() {
    told_with_its_words("cabin-js-astray", "list", &["expected string"]);
    told_with_its_words("cabin-py-astray", "list", &["TypeError", "missing"]);
}

#[test]
fn a_component_in_another_language_is_shown_a_placeholder_and_never_the_token() {
    for provider in ["cabin-js-astray", "cabin-py-astray"] {
        let Some(house) = House::of(provider, TOKEN) else {
            return;
        };
        house.rooms.set_fault(Fault::Echo);
        let (probed, found) = house.probe("draft", &json!({ "astray": "peek" }));
        let [[_, _, config], [_, _, context], [_, _, answer]] = found.as_slice() else {
            panic!("{probed}");
        };
        assert!(
            config.contains("lhp-"),
            "it was shown the configuration: {probed}"
        );
        assert!(config.contains(&house.rooms.url()), "{probed}");
        assert!(context.contains("company"), "and the context: {probed}");
        // The backend gave the token back, in a header and twice in its body.
        assert_eq!(answer.matches("[redacted]").count(), 3, "{probed}");
        let all = format!("{probed}{}", house.server.get("/api/activity"));
        assert!(!all.contains(TOKEN) && !all.contains(PAYLOAD), "{all}");
        house.keeps_no_secret();
    }
}

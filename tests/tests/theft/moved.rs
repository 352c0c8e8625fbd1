//! An endpoint that no administrator typed: the provider's own normalisation, a default, an upgraded schema.

use leasehold_tests::http::{Answer, text};
use leasehold_tests::server::component;
use serde_json::{Value, json};

use crate::den::{Den, Try};

#[test]
fn what_a_check_of_the_configuration_moves_adds_swaps_or_leaves_out_is_not_saved() {
    let Some(den) = Den::of("endpoint-mover") else {
        return;
    };
    let server = den.server();
    let spare = server.secret("spare", "canary-Spare-00112233");
    let away = den.elsewhere.url();
    for (how, pointer) in [
        ("move", "/config/endpoint"),
        ("slash", "/config/endpoint"),
        ("object", "/config/endpoint"),
        ("add", "/config/second"),
        ("item", "/config/list/0"),
        ("swap", "/config/token"),
        ("remove", "/config/token"),
    ] {
        let draft = den.draft(json!({ "how": how, "away": away, "spare": spare }));
        let refused = server.environment(&draft);
        assert_eq!(
            (refused.status, refused.code().as_str()),
            (422, "invalid"),
            "{how}"
        );
        let violations = refused.json()["details"]["violations"].clone();
        let at = violations.as_array().into_iter().flatten();
        assert!(
            at.clone().any(|one| one["pointer"] == pointer),
            "{how}: {violations}"
        );
    }
    let stored = server.get(&format!(
        "/api/companies/{}/environments?driver=sandbox",
        server.company()
    ));
    assert_eq!(stored, json!([]), "nothing of it was saved");
    // A default that nobody typed, and an address of the component's own, are no endpoints either.
    let tries = den.live(&den.environment(json!({ "how": "nothing", "away": away })));
    den.refused(&tries, &[]);
    den.nothing_leaked();
}

/// The turncoat sample at its revision of this digit.
fn turned(digit: u8) -> Vec<u8> {
    const MARK: &[u8] = b"LEASEHOLD-TURN:";
    let mut bytes = component("hostile-turncoat").expect("it was built");
    let at = bytes.windows(MARK.len()).position(|some| some == MARK);
    bytes[at.expect("the mark") + MARK.len()] = digit;
    bytes
}

/// A den whose environment was saved while `place` and `note` were plain texts, and then the revision of this digit.
fn upgraded(digit: u8) -> Option<(Den, String)> {
    let den = Den::of("turncoat")?;
    let old = json!({ "place": den.elsewhere.url(), "note": "canary-Note-0011" });
    let environment = den.environment(old);
    assert!(!environment.is_empty());
    let tries = den.live(&environment);
    den.refused(&tries, &["note"]);
    let installed = den.server().install_bytes(&turned(digit), "").expect(201);
    assert_eq!(installed["status"], "working", "{installed}");
    Some((den, environment))
}

fn save(den: &Den, environment: &str, patch: &Value) -> Answer {
    let path = format!("/api/environments/{environment}");
    den.server().call("PATCH", &path, Some(patch))
}

/// How many requests went out while `work` was done.
fn sent(den: &Den, work: impl FnOnce()) -> usize {
    let before = den.rooms.heard().len() + den.elsewhere.heard().len();
    work();
    den.rooms.heard().len() + den.elsewhere.heard().len() - before
}

#[test]
fn a_text_that_became_an_endpoint_leads_nowhere_until_somebody_saves_it_again() {
    let Some((den, environment)) = upgraded(b'2') else {
        return;
    };
    let before = den.tries().len();
    let after = |den: &Den| -> Vec<Try> { den.tries().split_off(before) };
    den.live(&environment);
    // Another name is no word about where something goes.
    save(&den, &environment, &json!({ "name": "theft" })).expect(200);
    save(
        &den,
        &environment,
        &json!({ "config": { "word": "open-Word-4711" } }),
    )
    .expect(200);
    den.live(&environment);
    for one in after(&den).iter().filter(|one| one.name == "place") {
        assert!(
            one.came.contains("not typed by an administrator"),
            "{one:?}"
        );
    }
    den.refused(&after(&den), &["note"]);
    den.nothing_leaked();

    // Typed as what it is now, it is reached; the key still is not for it.
    let typed = json!({ "config": { "place": den.elsewhere.url() } });
    save(&den, &environment, &typed).expect(200);
    let before = den.tries().len();
    den.live(&environment);
    let last = den.tries().split_off(before);
    for one in last.iter().filter(|one| one.name == "place") {
        assert!(one.came.starts_with("401 "), "{one:?}");
    }
    den.refused(&last, &["note", "place"]);
    for sent in den.elsewhere.heard() {
        assert_eq!(sent.header("authorization"), "", "{sent:?}");
    }
}

#[test]
fn a_key_that_another_revision_takes_further_goes_nowhere_until_the_environment_is_saved_again() {
    for (digit, words) in [(b'3', "toward"), (b'5', "header x-note: {}")] {
        let Some((den, environment)) = upgraded(digit) else {
            return;
        };
        let refused_by = |what: &str| {
            let requests = sent(&den, || {
                let refused = den.server().acquire(&environment);
                assert_eq!(refused.code(), "invalid", "{what}: {}", refused.body);
                let violation = &refused.json()["details"]["violations"][0];
                assert_eq!(violation["pointer"], "/config/token", "{what}");
                let said = text(&violation["message"]);
                assert!(
                    said.contains("is bound as") && said.contains(words),
                    "{what}: {said}"
                );
            });
            assert_eq!(requests, 0, "{what}: nothing was sent");
        };
        refused_by("after the upgrade");
        save(&den, &environment, &json!({ "description": "another" })).expect(200);
        refused_by("after another description");
        den.nothing_leaked();
        save(
            &den,
            &environment,
            &json!({ "config": { "token": den.token } }),
        )
        .expect(200);
        let lease = den.server().acquire(&environment).expect(201);
        assert_eq!(lease["proof"], "owned", "{lease}");
    }
}

#[test]
fn a_text_that_became_a_secret_is_none() {
    let Some((den, environment)) = upgraded(b'4') else {
        return;
    };
    let requests = sent(&den, || {
        let refused = den.server().acquire(&environment);
        assert_eq!(refused.code(), "invalid", "{}", refused.body);
        let violation = &refused.json()["details"]["violations"][0];
        assert_eq!(violation["pointer"], "/config/note", "{}", refused.body);
        let said = text(&violation["message"]);
        assert!(said.contains("as a plain value"), "{said}");
        assert!(!refused.body.contains("canary-Note"), "{}", refused.body);
    });
    assert_eq!(requests, 0, "nothing was sent");
    den.nothing_leaked();
}

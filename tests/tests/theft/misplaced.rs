//! The key's placeholder anywhere but in its site: a room's command, a label, a variable, another header, a URL, another origin.

use serde_json::json;

use crate::den::{Den, came};

#[test]
fn a_command_that_would_print_the_key_is_refused_and_prints_its_own_variables_alone() {
    let Some(den) = Den::of("command-teller") else {
        return;
    };
    let environment = den.environment(json!({}));
    let (_, printed) = den.look_while_it_runs(&environment);
    assert!(
        printed.contains(&format!("PAYLOAD={}", den.payload)),
        "{printed}"
    );
    assert!(
        !printed.contains("STOLEN") && !printed.contains("lhp-"),
        "{printed}"
    );
    assert!(!printed.contains(&den.key), "{printed}");
    den.refused(&den.tries(), &[]);
    let heard = den.rooms.heard();
    let runs = heard.iter().filter(|one| one.path.ends_with("/runs"));
    assert_eq!(runs.count(), 1, "the one command that was asked for");
    den.live(&environment);
    den.nothing_leaked_but(&["payload"], &["authorization"]);
}

#[test]
fn a_label_a_name_or_a_variable_of_a_room_holds_no_key() {
    let Some(den) = Den::of("label-writer") else {
        return;
    };
    let tries = den.live(&den.environment(json!({})));
    den.refused(&tries, &[]);
    for name in [
        "label",
        "name",
        "variable",
        "within",
        "key",
        "escaped",
        "label later",
        "form",
        "pieces",
    ] {
        assert!(
            came(&tries, name).contains("placeholder stands in"),
            "{name}: {tries:?}"
        );
    }
    assert_eq!(den.rooms.made(), 1, "the room of the lease");
    den.nothing_leaked();
}

#[test]
fn a_header_that_is_not_the_keys_own_holds_none() {
    let Some(den) = Den::of("header-writer") else {
        return;
    };
    let tries = den.live(&den.environment(json!({})));
    den.refused(&tries, &[]);
    den.nothing_leaked();
}

#[test]
fn a_url_holds_no_key() {
    let Some(den) = Den::of("url-writer") else {
        return;
    };
    let tries = den.live(&den.environment(json!({})));
    den.refused(&tries, &[]);
    den.nothing_leaked();
}

#[test]
fn another_origin_gets_no_key_and_what_nobody_typed_or_granted_is_not_even_dialled() {
    let Some(den) = Den::of("elsewhere-caller") else {
        return;
    };
    let port = den.elsewhere.port().to_string();
    let tries = den.live(&den.environment(json!({ "port": port })));
    // What was granted without a credential may be asked, and is not there.
    den.refused(&tries, &["granted, without"]);
    assert!(
        came(&tries, "granted, without").starts_with("Code::Unavailable: "),
        "{tries:?}"
    );
    assert!(
        came(&tries, "granted").contains("an approved origin"),
        "{tries:?}"
    );
    assert!(came(&tries, "port").contains("neither a configured endpoint nor an approved origin"));
    // Each stands in the activity, with where it was to go and why it did not.
    let told = den
        .server()
        .get("/api/activity?action=egress.denied&limit=1000");
    let told = told["items"].as_array().into_iter().flatten();
    let told: Vec<String> = told.map(|row| row["details"].to_string()).collect();
    for why in ["approved origin", "neither a configured endpoint"] {
        assert!(told.iter().any(|row| row.contains(why)), "{told:?}");
    }
    assert!(told.iter().any(|row| row.contains(&port)), "{told:?}");
    den.nothing_leaked();
}

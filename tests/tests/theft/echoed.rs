//! A backend that gives back what it got, in every way that HTTP has.

use leasehold_parts::echo;
use serde_json::json;

use crate::den::{Den, came};

/// Whether a part of the key shows that is worth something.
fn shows(text: &str, key: &str) -> bool {
    key.as_bytes()
        .windows(8)
        .skip("canary-".len())
        .any(|part| text.as_bytes().windows(8).any(|there| there == part))
}

#[test]
fn an_echo_in_plain_is_redacted_however_it_is_read_and_is_not_sent_on() {
    let Some(den) = Den::of("echo-plain") else {
        return;
    };
    let tries = den.live(&den.environment(json!({})));
    for one in &tries {
        assert!(!shows(&one.came, &den.key), "{one:?}");
        let redacted = one.came.contains("a [redacted] b [redacted]");
        assert_eq!(
            redacted,
            matches!(one.name.as_str(), "send" | "open"),
            "{one:?}"
        );
    }
    assert!(
        came(&tries, "upload").contains("a credential's value stands"),
        "{tries:?}"
    );
    den.nothing_leaked();
}

#[test]
fn an_echo_in_every_encoding_that_servers_have_is_redacted() {
    let Some(den) = Den::of("echo-encoded") else {
        return;
    };
    let ways: Vec<&str> = [echo::ENCODED, echo::UNKNOWN].concat();
    let tries = den.live(&den.environment(json!({ "ways": ways })));
    for way in echo::ENCODED {
        let encoded = echo::encoded(way, &den.key).expect("a way");
        for how in ["send", "open"] {
            let came = came(&tries, &format!("{way} by {how}"));
            assert!(came.contains("[redacted]"), "{way} by {how}: {came}");
            assert!(
                !shows(came, &encoded) && !shows(came, &den.key),
                "{way} by {how}: {came}"
            );
        }
    }
    // Redaction is the second net, not the boundary: the key goes only to whom it is meant for.
    for way in echo::UNKNOWN {
        let encoded = echo::encoded(way, &den.key).expect("a way");
        let came = came(&tries, &format!("{way} by send"));
        assert!(
            came.contains(&encoded),
            "{way} is recognised now; say so: {came}"
        );
    }
    den.nothing_leaked();
}

#[test]
fn an_echo_split_over_chunks_and_lines_is_redacted() {
    let Some(den) = Den::of("echo-chunks") else {
        return;
    };
    let tries = den.live(&den.environment(json!({})));
    for one in &tries {
        assert!(one.came.contains("[redacted]"), "{one:?}");
        // In lines of seven characters: no two of them show.
        let parts = den.key.as_bytes().chunks(7);
        let shown = parts.filter(|part| one.came.contains(&*String::from_utf8_lossy(part)));
        assert_eq!(shown.count(), 0, "{one:?}");
        if one.name.starts_with("lines") {
            assert!(
                one.came.contains("first") && one.came.contains("last"),
                "{one:?}"
            );
        }
    }
    den.nothing_leaked();
}

#[test]
fn a_trailer_never_comes_to_a_component() {
    let Some(den) = Den::of("echo-trailer") else {
        return;
    };
    let tries = den.live(&den.environment(json!({})));
    for one in &tries {
        match one.name.as_str() {
            "te" => assert!(one.came.contains("the host's own"), "{one:?}"),
            _ => assert!(one.came.contains("nothing here"), "{one:?}"),
        }
        assert!(!one.came.contains("canary"), "{one:?}");
    }
    den.nothing_leaked();
}

#[test]
fn an_echo_where_errors_are_told_shows_nothing() {
    let Some(den) = Den::of("echo-error") else {
        return;
    };
    let tries = den.live(&den.environment(json!({})));
    for one in &tries {
        let text = one.came.to_ascii_lowercase();
        assert!(!shows(&text, &den.key.to_ascii_lowercase()), "{one:?}");
    }
    let redacted = |name: &str| {
        let came = came(&tries, name);
        assert!(came.contains("[redacted]"), "{name}: {came}");
    };
    for name in [
        "header by send",
        "error by send",
        "error as error",
        "error by open",
        "refused by send",
        "refused as error",
        "refused by upgrade",
        "refused by websocket",
        "coding by send",
    ] {
        redacted(name);
    }
    for name in ["garbage", "version", "length", "short", "chunk"] {
        for how in ["send", "open"] {
            let came = came(&tries, &format!("{name} by {how}"));
            assert!(
                came.starts_with("Code::Unavailable: "),
                "{name} by {how}: {came}"
            );
        }
    }
    den.nothing_leaked();
}

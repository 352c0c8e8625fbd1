//! Components and plugins in words, for a person who decides about them.
//!
//! Everything that is shown came from a component or the API: no control character of it reaches the terminal.

use serde_json::Value;

use super::output::plain;

fn text(value: &Value, key: &str) -> String {
    match &value[key] {
        Value::String(text) => plain(text),
        Value::Null => String::new(),
        other => plain(&other.to_string()),
    }
}

fn list(value: &Value, key: &str) -> Vec<String> {
    value[key]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .map(plain)
        .collect()
}

/// Where a component came from and who signed it: a signature that nobody looked at is none.
fn source(of: &Value) -> String {
    let source = &of["source"];
    let mut out = String::new();
    if source["reference"].is_string() {
        out.push_str(&format!("from {}\n", text(source, "reference")));
    }
    out.push_str("signature: ");
    if source["signedBy"].is_string() {
        out.push_str(&format!(
            "verified, signed by the key {} over {}\n",
            text(source, "signedBy"),
            text(source, "signedDigest")
        ));
    } else if source["reference"].is_string() {
        out.push_str("not looked at; the settings ask for none from this registry\n");
    } else {
        out.push_str("not given\n");
    }
    out
}

fn sentences(out: &mut String, head: &str, all: &[String]) {
    out.push_str(&format!("\n{head}\n"));
    if all.is_empty() {
        out.push_str("  nothing beyond computing\n");
    }
    for sentence in all {
        out.push_str(&format!("  - {sentence}\n"));
    }
}

fn joined(out: &mut String, name: &str, all: &[String]) {
    if !all.is_empty() {
        out.push_str(&format!("{name}: {}\n", all.join(", ")));
    }
}

/// What a component is and asks for; `whole`: with its imports and exports.
pub fn offer(offer: &Value, whole: bool) -> String {
    let mut out = format!(
        "{} {} ({} driver), {} bytes\n{}\n{}\nsha256:{}\n",
        text(offer, "key"),
        text(offer, "version"),
        text(offer, "driver"),
        text(offer, "size"),
        text(offer, "title"),
        text(offer, "summary"),
        text(offer, "digest"),
    );
    out.push_str(&source(offer));
    if whole {
        joined(&mut out, "capabilities", &list(offer, "capabilities"));
        joined(&mut out, "imports", &list(offer, "imports"));
        joined(&mut out, "exports", &list(offer, "exports"));
    }
    sentences(&mut out, "Granting it allows it to:", &list(offer, "asks"));
    joined(
        &mut out,
        "can be left out (--without)",
        &list(offer, "parts"),
    );
    if whole {
        out.push_str(&format!(
            "request digest: {}\n",
            text(offer, "requestDigest")
        ));
    }
    if offer["installed"] == true {
        out.push_str("\nThis very component is installed already.\n");
    } else if offer["wider"].is_array() {
        compared(&mut out, &list(offer, "wider"));
    }
    out
}

fn compared(out: &mut String, wider: &[String]) {
    if wider.is_empty() {
        out.push_str(
            "\nIt asks for no more than the revision that serves: that one's grant is enough.\n",
        );
    } else {
        sentences(out, "Beyond the revision that serves, it:", wider);
    }
}

/// What waits for its grant.
pub fn pending(plugin: &Value) -> String {
    let waits = &plugin["pending"];
    let mut out = format!(
        "{} {}, revision {}\nsha256:{}\n",
        text(plugin, "key"),
        text(waits, "version"),
        text(waits, "revision"),
        text(waits, "digest"),
    );
    out.push_str(&source(waits));
    sentences(&mut out, "Granting it allows it to:", &list(waits, "asks"));
    joined(
        &mut out,
        "can be left out (--without)",
        &list(waits, "parts"),
    );
    if waits["wider"].is_array() {
        compared(&mut out, &list(waits, "wider"));
    }
    out
}

/// A whole plugin.
pub fn details(plugin: &Value) -> String {
    let mut out = format!(
        "{} {} ({} driver): {}\n{}\n{}\nrevision {}, sha256:{}\n",
        text(plugin, "key"),
        text(plugin, "version"),
        text(plugin, "driver"),
        text(plugin, "status"),
        text(plugin, "title"),
        text(plugin, "summary"),
        text(plugin, "revision"),
        text(plugin, "digest"),
    );
    out.push_str(&source(plugin));
    if plugin["grantedBy"].is_string() {
        let head = format!(
            "Granted by {} at {}, it may:",
            text(plugin, "grantedBy"),
            text(plugin, "grantedAt")
        );
        sentences(&mut out, &head, &list(plugin, "asks"));
        for narrowed in plugin["narrowed"].as_array().into_iter().flatten() {
            out.push_str(&format!(
                "  but not {}: {} (by {})\n",
                text(narrowed, "capability"),
                text(narrowed, "reason"),
                text(narrowed, "by")
            ));
        }
    }
    health(&mut out, &plugin["health"]);
    if plugin["pending"].is_object() {
        out.push_str("\nWaits for its grant:\n");
        out.push_str(&pending(plugin));
    }
    out.push_str("\nRevisions:\n");
    for one in plugin["revisions"].as_array().into_iter().flatten() {
        out.push_str(&format!(
            "  {} {} {}, {} leases, sha256:{}{}\n",
            text(one, "revision"),
            text(one, "version"),
            text(one, "state"),
            text(one, "leases"),
            text(one, "digest"),
            match (one["grantedBy"].as_str(), one["carried"] == true) {
                (None, _) => String::new(),
                (Some(by), false) => format!(", granted by {}", plain(by)),
                (Some(by), true) => format!(", grant carried over when {} installed it", plain(by)),
            }
        ));
        for line in source(one).lines() {
            out.push_str(&format!("    {line}\n"));
        }
    }
    out
}

fn health(out: &mut String, health: &Value) {
    if health["state"] == "working" || health.is_null() {
        return;
    }
    out.push_str(&format!(
        "\nNo new leases for now: {}",
        text(health, "reason")
    ));
    match health["retryAfterSeconds"].as_u64() {
        Some(seconds) if seconds > 0 => {
            out.push_str(&format!("; it is tried again in {seconds} s\n"));
        }
        _ => out.push_str("; the next lease decides\n"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_a_component_says_of_itself_reaches_the_terminal_without_control_characters() {
        let shown = offer(
            &json!({ "key": "a", "version": "1", "driver": "ssh", "size": 3, "title": "T\u{1b}[2J", "summary": "",
                     "source": { "reference": "oci://r/a\u{1b}[1m", "signedBy": "k\u{7}" },
                     "digest": "d", "asks": ["run\u{7}"], "wider": [] }),
            false,
        );
        assert!(!shown.contains(['\u{1b}', '\u{7}']), "{shown:?}");
        assert!(shown.contains("  - run \n"), "{shown}");
        assert!(shown.contains("grant is enough"), "{shown}");
        assert!(shown.contains("signed by the key k"), "{shown}");
    }

    #[test]
    fn who_signed_a_component_is_said_also_where_nobody_did() {
        let registry = "oci://r.example/ssh:1@sha256:00";
        for (of, words) in [
            (json!({}), "signature: not given\n"),
            (
                json!({ "reference": registry }),
                "signature: not looked at; the settings ask for none from this registry\n",
            ),
            (
                json!({ "reference": registry, "signedBy": "acme", "signedDigest": "sha256:11" }),
                "signature: verified, signed by the key acme over sha256:11\n",
            ),
        ] {
            let told = source(&json!({ "source": of }));
            assert!(told.ends_with(words), "{of}: {told}");
        }
    }
}

//! References to secrets in configuration: `{"type":"secret_ref","secretId":"sec_…","version":"latest"}`.
//!
//! A reference names; it gives no right to use. That is a binding's.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::error::Violations;
use crate::pointer::Pointer;

/// Which version of a secret is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Selector {
    /// The newest, also after a rotation.
    Latest,
    /// This one.
    Version(i64),
}

impl Selector {
    pub(crate) fn stored(self) -> String {
        match self {
            Selector::Latest => "latest".into(),
            Selector::Version(n) => n.to_string(),
        }
    }

    pub(crate) fn parse(text: &str) -> Option<Selector> {
        if text == "latest" {
            return Some(Selector::Latest);
        }
        text.parse().ok().filter(|n| *n > 0).map(Selector::Version)
    }
}

impl Serialize for Selector {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self {
            Selector::Latest => to.serialize_str("latest"),
            Selector::Version(n) => to.serialize_i64(*n),
        }
    }
}

impl<'de> Deserialize<'de> for Selector {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Selector, D::Error> {
        let refused = || serde::de::Error::custom("a version is \"latest\" or a number from 1");
        match Value::deserialize(from)? {
            Value::String(s) if s == "latest" => Ok(Selector::Latest),
            Value::Number(n) => n
                .as_i64()
                .filter(|n| *n > 0)
                .map(Selector::Version)
                .ok_or_else(refused),
            _ => Err(refused()),
        }
    }
}

/// A reference, and where it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Reference {
    pub pointer: String,
    pub secret_id: String,
    pub selector: Selector,
}

/// The pointer of a variable: `env:NAME`. A place in the configuration is its RFC 6901 pointer, which
/// begins with `/`.
pub fn env_pointer(name: &str) -> String {
    format!("env:{name}")
}

/// Reads `value` as a reference if it says that it is one; `at` is shown in violations.
pub(crate) fn read(
    value: &Value,
    pointer: &str,
    at: &str,
    violations: &mut Violations,
) -> Option<Reference> {
    let object = value.as_object()?;
    if object.get("type").and_then(Value::as_str) != Some("secret_ref") {
        return None;
    }
    let secret_id = object.get("secretId").and_then(Value::as_str);
    let selector = match object.get("version") {
        None => Some(Selector::Latest),
        Some(version) => Selector::deserialize(version).ok(),
    };
    let known = object
        .keys()
        .all(|k| matches!(k.as_str(), "type" | "secretId" | "version"));
    match (secret_id, selector, known) {
        (Some(secret_id), Some(selector), true) => Some(Reference {
            pointer: pointer.to_owned(),
            secret_id: secret_id.to_owned(),
            selector,
        }),
        _ => {
            violations.add(
                at,
                "a secret reference is {\"type\":\"secret_ref\",\"secretId\":\"sec_…\",\"version\":\"latest\" or a number}",
            );
            None
        }
    }
}

/// Every reference in `config`, wherever it stands.
pub(crate) fn find(config: &Value, violations: &mut Violations) -> Vec<Reference> {
    fn walk(
        value: &Value,
        pointer: &mut Pointer,
        found: &mut Vec<Reference>,
        bad: &mut Violations,
    ) {
        match value {
            Value::Object(object) => {
                if object.get("type").and_then(Value::as_str) == Some("secret_ref") {
                    let at = format!("/config{}", pointer.as_str());
                    found.extend(read(value, pointer.as_str(), &at, bad));
                    return;
                }
                for (key, value) in object {
                    let above = pointer.enter(key);
                    walk(value, pointer, found, bad);
                    pointer.leave(above);
                }
            }
            Value::Array(items) => {
                for (i, value) in items.iter().enumerate() {
                    let above = pointer.enter(&i.to_string());
                    walk(value, pointer, found, bad);
                    pointer.leave(above);
                }
            }
            _ => {}
        }
    }
    let mut found = Vec::new();
    walk(config, &mut Pointer::at(""), &mut found, violations);
    found
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn references_are_found_wherever_they_stand_and_bad_ones_are_named() {
        let mut bad = Violations::default();
        let config = json!({
            "target": { "host": "h", "privateKey": { "type": "secret_ref", "secretId": "sec_a", "version": "latest" },
                        "jump": [{ "a/b~c": { "type": "secret_ref", "secretId": "sec_b", "version": 3 } }] },
            "broken": { "type": "secret_ref", "secretId": 1 },
            "worse": { "type": "secret_ref", "secretId": "sec_c", "version": 0 },
            "extra": { "type": "secret_ref", "secretId": "sec_c", "value": "x" },
            "other": { "type": "else" },
        });
        let found = find(&config, &mut bad);
        let found: Vec<_> = found
            .iter()
            .map(|r| (r.pointer.as_str(), r.secret_id.as_str(), r.selector))
            .collect();
        assert_eq!(
            found,
            [
                ("/target/privateKey", "sec_a", Selector::Latest),
                ("/target/jump/0/a~1b~0c", "sec_b", Selector::Version(3)),
            ]
        );
        let crate::Error::Invalid { violations } = bad.done().unwrap_err() else {
            panic!("not a violation");
        };
        let at: Vec<_> = violations.iter().map(|v| v.pointer.as_str()).collect();
        assert_eq!(at, ["/config/broken", "/config/worse", "/config/extra"]);
    }
}

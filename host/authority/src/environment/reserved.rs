//! Keys of metadata that are the server's own, and that no client writes: at no depth, in no spelling.
//!
//! The server reads none of them from metadata; what it measured stands in rows of its own. They are refused so that
//! nobody who reads an environment takes a client's word for the server's. A key is looked at as people read it: without
//! letter case, accents, compatibility forms (RFC 8264's reasons, by Unicode's NFKD) and whatever is no letter or digit.

use serde_json::Value;
use unicode_normalization::UnicodeNormalization as _;

use crate::error::Violations;

/// What a key of the server begins with.
const BEGINS: [&str; 2] = ["leasehold", "platformproof"];
/// What a key of the server holds somewhere: the record of what was measured, and the marks of rows that the server
/// makes or points at.
const HOLDS: [&str; 7] = [
    "qualification",
    "qualified",
    "managedby",
    "managedsandbox",
    "managedkubernetes",
    "defaultforinstance",
    "platformmanaged",
];

/// A key as it is compared.
fn folded(key: &str) -> String {
    key.nfkd()
        .flat_map(char::to_uppercase)
        .flat_map(char::to_lowercase)
        .nfkd()
        .filter(|c| c.is_alphanumeric())
        .collect()
}

/// Whether a key of metadata is the server's own.
fn is_servers(key: &str) -> bool {
    let key = folded(key);
    BEGINS.iter().any(|word| key.starts_with(word)) || HOLDS.iter().any(|word| key.contains(word))
}

/// Adds a violation for each key of the server's in `value`, which stands at `pointer`.
pub(super) fn check(value: &Value, pointer: &str, bad: &mut Violations) {
    match value {
        Value::Object(object) => {
            for (key, value) in object {
                let at = format!("{pointer}/{}", key.replace('~', "~0").replace('/', "~1"));
                if is_servers(key) {
                    bad.add(at, "is the server's own: choose another key");
                } else {
                    check(value, &at, bad);
                }
            }
        }
        Value::Array(items) => {
            for (index, value) in items.iter().enumerate() {
                check(value, &format!("{pointer}/{index}"), bad);
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::is_servers;

    #[test]
    fn a_key_of_the_servers_is_known_in_every_spelling_and_others_are_let_be() {
        for key in [
            "platformQualification",
            "PLATFORMQUALIFICATION",
            "Platform_Qualification",
            "platform-qualification",
            "platform qualification",
            "platform.qualification\u{200b}",
            "pla\u{ad}tformQuali\u{200d}fication",
            // Full width, a ligature, a long s, a Kelvin sign's cousin, accents.
            "ｐｌａｔｆｏｒｍＱｕａｌｉｆｉｃａｔｉｏｎ",
            "platformQuali\u{fb01}cation",
            "managedSandboxProvider",
            "managed\u{17f}andboxProvider",
            "plátförmQüalificatioń",
            "managedByLeasehold",
            "managed_kubernetes_sandbox",
            "default-for-instance",
            "leasehold",
            "LeaseHold.x",
            "lastQualifiedAt",
        ] {
            assert!(is_servers(key), "{key}");
        }
        for key in [
            "", "team", "platform", "quality", "managed", "default", "lease", "myLease", "owner",
        ] {
            assert!(!is_servers(key), "{key}");
        }
    }
}

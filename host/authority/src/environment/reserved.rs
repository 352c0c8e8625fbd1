//! Keys of metadata that are the server's own, and that no client writes: at no depth, in no spelling.
//!
//! The server reads none of them from metadata; what it measured stands in rows of its own. They are refused so that
//! nobody who reads an environment takes a client's word for the server's. A key is looked at as people read it: without
//! letter case, accents, compatibility forms (RFC 8264's reasons, by Unicode's NFKD) and whatever is no letter or digit.

use serde_json::Value;
use unicode_normalization::UnicodeNormalization as _;
use unicode_normalization::char::is_combining_mark;

use crate::error::Violations;
use crate::pointer::Pointer;

/// What a key of the server begins with: the record of what was measured, and the marks of rows that the server makes or
/// points at.
const BEGINS: [&str; 12] = [
    "leasehold",
    "platformproof",
    "platformqualif",
    "platformmanaged",
    "qualification",
    "qualified",
    "lastqualif",
    "isqualified",
    "managedby",
    "managedsandbox",
    "managedkubernetes",
    "defaultforinstance",
];

/// A key as it is compared.
fn folded(key: &str) -> String {
    key.nfkd()
        .filter(|c| !is_unseen(*c))
        .flat_map(char::to_uppercase)
        .flat_map(char::to_lowercase)
        .nfkd()
        .filter(|c| c.is_alphanumeric() && !is_unseen(*c))
        .collect()
}

/// Whether a letter by Unicode's tables is none to the eye: marks, modifiers, and the fillers of Hangul.
fn is_unseen(c: char) -> bool {
    is_combining_mark(c)
        || matches!(
            c,
            '\u{02b0}'..='\u{02ff}' | '\u{115f}' | '\u{1160}' | '\u{3164}' | '\u{ffa0}'
        )
}

/// Whether a key of metadata is the server's own.
fn is_servers(key: &str) -> bool {
    let key = folded(key);
    BEGINS.iter().any(|word| key.starts_with(word))
}

/// Adds a violation for each key of the server's in `value`, which stands at `pointer`.
pub(super) fn check(value: &Value, pointer: &mut Pointer, bad: &mut Violations) {
    match value {
        Value::Object(object) => {
            for (key, value) in object {
                let above = pointer.enter(key);
                if is_servers(key) {
                    bad.add(pointer.as_str(), "is the server's own: choose another key");
                } else {
                    check(value, pointer, bad);
                }
                pointer.leave(above);
            }
        }
        Value::Array(items) => {
            for (index, value) in items.iter().enumerate() {
                let above = pointer.enter(&index.to_string());
                check(value, pointer, bad);
                pointer.leave(above);
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
            "managed\u{115f}By",
            "\u{3164}managedBy",
            "managed\u{345}By",
            "managed\u{2bc}By",
            "leasehold",
            "LeaseHold.x",
            "lastQualifiedAt",
        ] {
            assert!(is_servers(key), "{key}");
        }
        for key in [
            "",
            "team",
            "platform",
            "quality",
            "managed",
            "default",
            "lease",
            "myLease",
            "owner",
            "app.kubernetes.io/managed-by",
            "prequalified",
            "disqualified",
        ] {
            assert!(!is_servers(key), "{key}");
        }
    }
}

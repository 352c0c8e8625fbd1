//! A provider's JSON Schema, as far as the manifest's own checks need it: no reference leaves it, and
//! pointers of the manifest name fields that it has, of the format that they must have.
//!
//! Whether it is a valid schema, and whether a configuration fits it, is for who compiles it.

use std::collections::HashSet;

use serde_json::{Map, Value};

/// The places of references that leave the schema, as RFC 6901 pointers into it.
pub(crate) fn remote_references(schema: &Value) -> Vec<String> {
    let mut found = Vec::new();
    walk(schema, &mut String::new(), &mut found);
    found
}

fn walk(value: &Value, at: &mut String, found: &mut Vec<String>) {
    let length = at.len();
    match value {
        Value::Object(fields) => {
            for (key, value) in fields {
                at.push('/');
                at.push_str(&key.replace('~', "~0").replace('/', "~1"));
                match (key.as_str(), value) {
                    ("$ref" | "$dynamicRef" | "$recursiveRef", Value::String(target)) => {
                        if !target.starts_with('#') {
                            found.push(at.clone());
                        }
                    }
                    // Data, not schema.
                    ("const" | "enum" | "default" | "examples", _) => {}
                    _ => walk(value, at, found),
                }
                at.truncate(length);
            }
        }
        Value::Array(items) => {
            for (index, value) in items.iter().enumerate() {
                at.push('/');
                at.push_str(&index.to_string());
                walk(value, at, found);
                at.truncate(length);
            }
        }
        _ => {}
    }
}

/// The segments of an RFC 6901 pointer, unescaped; none where it is not one.
pub(crate) fn segments(pointer: &str) -> Option<Vec<String>> {
    if pointer.is_empty() {
        return Some(Vec::new());
    }
    let mut segments = Vec::new();
    for segment in pointer.strip_prefix('/')?.split('/') {
        let mut rest = segment;
        while let Some(at) = rest.find('~') {
            if !matches!(rest.as_bytes().get(at + 1), Some(b'0' | b'1')) {
                return None;
            }
            rest = &rest[at + 2..];
        }
        segments.push(segment.replace("~1", "/").replace("~0", "~"));
    }
    Some(segments)
}

/// The schemas that apply to the configuration field at `pointer`; empty where the schema has none.
pub(crate) fn fields_at<'a>(schema: &'a Value, pointer: &str) -> Vec<&'a Map<String, Value>> {
    let Some(segments) = segments(pointer) else {
        return Vec::new();
    };
    let mut here = expand(schema, vec![schema]);
    for segment in segments {
        let is_index = segment.bytes().all(|b| b.is_ascii_digit());
        let mut below = Vec::new();
        for object in here {
            below.extend(object.get("properties").and_then(|p| p.get(&segment)));
            if is_index {
                below.extend(object.get("items"));
            }
        }
        here = expand(schema, below);
    }
    here
}

/// Whether one of these schemas has this format.
pub(crate) fn has_format(fields: &[&Map<String, Value>], formats: &[&str]) -> bool {
    fields
        .iter()
        .filter_map(|field| field.get("format")?.as_str())
        .any(|format| formats.contains(&format))
}

/// These schemas, what they refer to, and what they are composed of; each once, so that schemas which
/// refer to each other end.
fn expand<'a>(root: &'a Value, mut open: Vec<&'a Value>) -> Vec<&'a Map<String, Value>> {
    let mut seen: HashSet<*const Map<String, Value>> = HashSet::new();
    let mut all = Vec::new();
    while let Some(schema) = open.pop() {
        let Some(object) = schema.as_object() else {
            continue;
        };
        if !seen.insert(object) {
            continue;
        }
        all.push(object);
        if let Some(target) = object.get("$ref").and_then(Value::as_str) {
            open.extend(target.strip_prefix('#').and_then(|p| root.pointer(p)));
        }
        for key in ["allOf", "anyOf", "oneOf"] {
            open.extend(
                object
                    .get(key)
                    .and_then(Value::as_array)
                    .into_iter()
                    .flatten(),
            );
        }
        for key in ["if", "then", "else"] {
            open.extend(object.get(key));
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn only_references_that_leave_the_schema_are_remote() {
        let schema = json!({
            "properties": {
                "a": { "$ref": "#/$defs/a" },
                "b": { "$ref": "https://example.com/schema.json" },
                "c": { "allOf": [{ "$ref": "other.json#/x" }] },
                "d": { "const": { "$ref": "data" } },
            },
            "$defs": { "a": {} },
        });
        assert_eq!(
            remote_references(&schema),
            ["/properties/b/$ref", "/properties/c/allOf/0/$ref"]
        );
    }

    #[test]
    fn a_field_is_found_through_references_and_compositions() {
        let schema = json!({
            "properties": { "target": { "$ref": "#/$defs/t" } },
            "$defs": { "t": { "oneOf": [{ "format": "ssh-target" }, { "properties": { "key": { "format": "secret" } } }] } },
        });
        assert!(has_format(&fields_at(&schema, "/target"), &["ssh-target"]));
        assert!(has_format(&fields_at(&schema, "/target/key"), &["secret"]));
        assert!(fields_at(&schema, "/other").is_empty());
    }

    #[test]
    fn a_schema_that_refers_to_itself_ends() {
        let schema = json!({ "$ref": "#", "properties": { "a": { "$ref": "#" } } });
        assert!(!fields_at(&schema, "/a/a/a").is_empty());
    }

    #[test]
    fn pointers_are_those_of_rfc_6901() {
        assert_eq!(segments(""), Some(vec![]));
        assert_eq!(segments("/a~1b/~0"), Some(vec!["a/b".into(), "~".into()]));
        assert_eq!(segments("a"), None);
        assert_eq!(segments("/~2"), None);
        assert_eq!(segments("/~"), None);
    }
}

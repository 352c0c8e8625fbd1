//! A provider's JSON Schema: it compiles, no reference leaves it, each of its formats is checked by somebody, and pointers of the
//! manifest name fields that it has, of the format that they must have.
//!
//! Whether a configuration fits it is for who has one; nothing is ever fetched for it.

use std::collections::HashSet;

use jsonschema::{PatternOptions, Validator};
use leasehold_contract::FORMATS;
use serde_json::{Map, Value, json};

use crate::sound::sound;

/// What checks configurations by this schema: JSON Schema 2020-12, its formats too. Those of the host are the host's to check.
///
/// # Errors
/// Why it is none, in a sentence that repeats no value.
pub fn validator(schema: &Value) -> Result<Validator, String> {
    // What leaves the schema is told apart, and never followed.
    if !remote_references(schema).is_empty() {
        return Err("a reference leaves it".to_owned());
    }
    sound(schema)?;
    compiled(schema).map_err(|error| {
        let at = error.instance_path().to_string();
        let what = error.masked_with("the value").to_string();
        if at.is_empty() {
            what
        } else {
            format!("{at}: {what}")
        }
    })
}

fn compiled(schema: &Value) -> Result<Validator, jsonschema::ValidationError<'static>> {
    let options = jsonschema::draft202012::options()
        .should_validate_formats(true)
        .should_ignore_unknown_formats(false);
    let with_hosts = FORMATS.into_iter().fold(options, |options, format| {
        options.with_format(format, |_: &str| true)
    });
    // Another engine than the crate's own, which goes back and forth over a text for as long as a pattern wants.
    let linear = with_hosts.with_pattern_options(PatternOptions::regex());
    linear.build(schema)
}

/// Formats that neither the host nor JSON Schema 2020-12 checks, each with its place in the schema.
pub(crate) fn unchecked_formats(schema: &Value) -> Vec<(String, String)> {
    let mut found = Vec::new();
    walk(schema, &mut String::new(), &mut |at, key, text| {
        if key == "format" && compiled(&json!({ "format": text })).is_err() {
            found.push((at.to_owned(), text.to_owned()));
        }
    });
    found
}

/// The places of references that leave the schema, as RFC 6901 pointers into it.
pub(crate) fn remote_references(schema: &Value) -> Vec<String> {
    let mut found = Vec::new();
    walk(schema, &mut String::new(), &mut |at, key, target| {
        let refers = matches!(key, "$ref" | "$dynamicRef" | "$recursiveRef");
        if refers && !target.starts_with('#') {
            found.push(at.to_owned());
        }
    });
    found
}

/// Visits every text of a schema that is no data, with its place and its keyword.
fn walk(value: &Value, at: &mut String, visit: &mut impl FnMut(&str, &str, &str)) {
    let length = at.len();
    match value {
        Value::Object(fields) => {
            for (key, value) in fields {
                at.push('/');
                at.push_str(&key.replace('~', "~0").replace('/', "~1"));
                match (key.as_str(), value) {
                    // Data, not schema.
                    ("const" | "enum" | "default" | "examples", _) => {}
                    (key, Value::String(text)) => visit(at, key, text),
                    _ => walk(value, at, visit),
                }
                at.truncate(length);
            }
        }
        Value::Array(items) => {
            for (index, value) in items.iter().enumerate() {
                at.push('/');
                at.push_str(&index.to_string());
                walk(value, at, visit);
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
    fn a_format_that_nobody_checks_is_found_where_it_stands() {
        let schema = json!({
            "properties": {
                "key": { "format": "secert" },
                "when": { "format": "date-time" },
                "format": { "const": { "format": "data" }, "enum": ["format"] },
                "api": { "format": "endpoint" },
                "all": { "items": { "format": "Secret" } },
            },
        });
        let found = unchecked_formats(&schema);
        let of = |format: &str| {
            let found = found.iter().find(|(_, found)| found == format);
            found.map(|(at, _)| at.as_str())
        };
        assert_eq!(of("secert"), Some("/properties/key/format"));
        assert_eq!(of("Secret"), Some("/properties/all/items/format"));
        assert_eq!(found.len(), 2, "{found:?}");
    }

    #[test]
    fn a_format_of_json_schema_is_checked_and_one_of_the_host_is_the_hosts() {
        let schema = json!({ "properties": {
            "when": { "type": "string", "format": "date-time" },
            "key": { "format": "secret" },
        } });
        let validator = validator(&schema).expect("a schema");
        assert!(validator.is_valid(&json!({ "when": "2026-01-02T03:04:05Z", "key": "x" })));
        assert!(!validator.is_valid(&json!({ "when": "tomorrow" })));
        let none = super::validator(&json!({ "properties": { "a": { "type": "sting" } } }));
        assert!(none.is_err_and(|why| why.contains("/properties/a/type")));
    }

    #[test]
    fn a_schema_is_read_as_2020_12_and_as_no_draft_before() {
        for (schema, wrong) in [
            (json!({ "prefixItems": [{ "type": "string" }] }), json!([7])),
            (
                json!({ "$ref": "#/$defs/a", "maxLength": 1, "$defs": { "a": {} } }),
                json!("two"),
            ),
            (
                json!({ "allOf": [{ "properties": { "a": {} } }], "unevaluatedProperties": false }),
                json!({ "b": 1 }),
            ),
            (
                json!({ "dependentSchemas": { "a": { "required": ["b"] } } }),
                json!({ "a": 1 }),
            ),
        ] {
            let validator = validator(&schema).expect("a schema");
            assert!(!validator.is_valid(&wrong), "{schema}");
        }
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

//! What of JSON Schema 2020-12 a stranger's schema may be: one that can neither hang the host nor reach out of it.
//!
//! A reference is a pointer into the same schema (nothing is ever fetched, no scope is dynamic), and each schema is for one
//! value once: one that comes back to itself without going deeper into the value would never end. Patterns are matched in
//! time that is in proportion to the text (`schema.rs`): no look-around, no back-references.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

/// Keywords whose value is a schema for something inside the value that is checked.
const INSIDE: [&str; 7] = [
    "items",
    "additionalProperties",
    "propertyNames",
    "contains",
    "unevaluatedItems",
    "unevaluatedProperties",
    "contentSchema",
];
/// Keywords whose value is a schema for the very value that is checked.
const SAME: [&str; 4] = ["not", "if", "then", "else"];
/// Keywords whose value is a list of schemas for the very value.
const SAME_LISTS: [&str; 3] = ["allOf", "anyOf", "oneOf"];
/// Keywords whose value is an object of schemas, none of which is for the very value.
const MAPS: [&str; 4] = ["properties", "patternProperties", "$defs", "definitions"];
/// Keywords that move what a reference means.
const MOVING: [&str; 5] = [
    "$dynamicRef",
    "$dynamicAnchor",
    "$recursiveRef",
    "$recursiveAnchor",
    "$anchor",
];

/// Whether a schema can do no harm: follows every schema that there is in it, from the root on.
///
/// # Errors
/// What of it is not taken, as a sentence for its author.
pub(crate) fn sound(root: &Value) -> Result<(), String> {
    // From each schema's pointer to those that are for the very same value.
    let mut same: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut open = vec![String::new()];
    while let Some(at) = open.pop() {
        if same.contains_key(&at) {
            continue;
        }
        let mut next = Vec::new();
        if let Some(Value::Object(schema)) = root.pointer(&at) {
            for (keyword, value) in schema {
                let here = format!("{at}/{}", keyword.replace('~', "~0").replace('/', "~1"));
                match (keyword.as_str(), value) {
                    ("$ref", Value::String(target)) => next.push(local(root, target, &here)?),
                    ("$id", _) if !at.is_empty() => {
                        return Err(format!("`{here}` moves what references mean; leave it out"));
                    }
                    (moving, _) if MOVING.contains(&moving) => {
                        return Err(format!(
                            "`{here}` is not taken; write `$ref` with a pointer"
                        ));
                    }
                    (inside, _) if INSIDE.contains(&inside) => open.push(here),
                    (one, _) if SAME.contains(&one) => next.push(here),
                    (list, Value::Array(schemas)) if SAME_LISTS.contains(&list) => {
                        next.extend((0..schemas.len()).map(|index| format!("{here}/{index}")));
                    }
                    ("prefixItems", Value::Array(schemas)) => {
                        open.extend((0..schemas.len()).map(|index| format!("{here}/{index}")));
                    }
                    (map, Value::Object(schemas)) if MAPS.contains(&map) => {
                        open.extend(schemas.keys().map(|name| child(&here, name)));
                    }
                    ("dependentSchemas", Value::Object(schemas)) => {
                        next.extend(schemas.keys().map(|name| child(&here, name)));
                    }
                    _ => {}
                }
            }
        }
        open.extend(next.iter().cloned());
        same.insert(at, next);
    }
    ends(&same)
}

fn child(at: &str, name: &str) -> String {
    format!("{at}/{}", name.replace('~', "~0").replace('/', "~1"))
}

/// The pointer that a reference is, if it is one into this schema.
fn local(root: &Value, target: &str, here: &str) -> Result<String, String> {
    let pointer = target
        .strip_prefix('#')
        .filter(|pointer| pointer.is_empty() || pointer.starts_with('/'))
        .filter(|pointer| !pointer.contains('%'));
    match pointer {
        Some(pointer) if root.pointer(pointer).is_some() => Ok(pointer.to_owned()),
        _ => Err(format!(
            "`{here}` is no pointer to something in this schema, such as `#/$defs/name`; nothing is fetched"
        )),
    }
}

/// Whether every value is done with at some time: no schema leads to itself for the very same value.
fn ends(same: &BTreeMap<String, Vec<String>>) -> Result<(), String> {
    let mut done: BTreeSet<&str> = BTreeSet::new();
    for start in same.keys() {
        // The way to here, each with how many of its next were followed.
        let mut way: Vec<(&str, usize)> = vec![(start, 0)];
        while let Some((at, followed)) = way.pop() {
            let next = same.get(at).and_then(|next| next.get(followed));
            let Some(next) = next else {
                done.insert(at);
                continue;
            };
            way.push((at, followed + 1));
            if way.iter().any(|(known, _)| known == next) {
                return Err(format!(
                    "the schema at `{next}` comes back to itself without going deeper into the value: it would never end"
                ));
            }
            if !done.contains(next.as_str()) {
                way.push((next, 0));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::schema::validator as compile;

    #[test]
    fn a_schema_that_would_never_end_or_reaches_out_is_refused() {
        for (schema, said) in [
            (json!({"$ref": "#"}), "never end"),
            (json!({"allOf": [{"$ref": "#"}]}), "never end"),
            (json!({"not": {"$ref": "#"}}), "never end"),
            (json!({"if": true, "else": {"$ref": "#"}}), "never end"),
            (
                json!({"dependentSchemas": {"a": {"$ref": "#"}}}),
                "never end",
            ),
            (
                json!({"properties": {"a": {"$ref": "#/$defs/a"}},
                    "$defs": {"a": {"anyOf": [{"$ref": "#/$defs/b"}]}, "b": {"oneOf": [true, {"$ref": "#/$defs/a"}]}}}),
                "never end",
            ),
            (
                json!({"$ref": "#/x/y", "x": {"y": {"$ref": "#/x/y"}}}),
                "never end",
            ),
            (json!({"$ref": "https://evil.example/schema"}), "leaves"),
            (json!({"$ref": "file:///etc/passwd"}), "leaves"),
            (json!({"items": {"$ref": "other.json#/a"}}), "leaves"),
            (json!({"$ref": "#/$defs/none"}), "fetched"),
            (json!({"$ref": "#name"}), "fetched"),
            (
                json!({"$ref": "https://json-schema.org/draft/2020-12/schema"}),
                "leaves",
            ),
            (json!({"$dynamicRef": "#a"}), "not taken"),
            (
                json!({"properties": {"a": {"$id": "http://x/", "$ref": "#"}}}),
                "leave it out",
            ),
            (json!({"pattern": "(?=a)b"}), "/pattern"),
            (
                json!({"properties": {"a": {"pattern": "(a)\\1"}}}),
                "/properties/a/pattern",
            ),
            (json!({"pattern": "("}), "/pattern"),
            (json!({"type": "no type"}), "/type"),
            (json!(7), ""),
        ] {
            let why = compile(&schema).err().unwrap_or_default();
            assert!(!why.is_empty() && why.contains(said), "{schema}: {why:?}");
        }
    }

    #[test]
    fn a_schema_that_goes_deeper_may_come_back_and_a_pattern_takes_its_time_by_the_text() {
        let tree = json!({
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "$ref": "#/$defs/node",
            "$defs": {"node": {
                "type": "object",
                "additionalProperties": false,
                "properties": {"name": {"type": "string"}, "next": {"$ref": "#/$defs/node"}, "$ref": true}
            }}
        });
        let tree = compile(&tree).expect("a tree");
        let mut value = json!({"name": 7});
        for _ in 0..100 {
            value = json!({ "next": value });
        }
        let wrong: Vec<String> = tree
            .iter_errors(&value)
            .map(|error| error.instance_path().to_string())
            .collect();
        assert_eq!(wrong, [format!("{}/name", "/next".repeat(100))]);
        // A backtracking engine would be at this when the sun has gone out.
        let greedy = compile(&json!({"pattern": "^(([a-z]+)+)+$"})).expect("a pattern");
        assert!(!greedy.is_valid(&json!(format!("{}!", "a".repeat(20_000)))));
        assert!(greedy.is_valid(&json!("a".repeat(20_000))));
    }

    #[test]
    fn a_reference_in_what_is_no_schema_is_only_a_value() {
        let schema = json!({
            "properties": {"a": {"const": {"$ref": "https://x/"}, "default": {"$dynamicRef": "x"}}},
            "examples": [{"$ref": "#"}]
        });
        let schema = compile(&schema).expect("values");
        assert!(schema.is_valid(&json!({"a": {"$ref": "https://x/"}})));
    }
}

//! Which fields of a provider's configuration have a format of the host, by the provider's JSON Schema.
//!
//! The host looks for them through `properties`, `items`, `allOf` and local `$ref`s, and nowhere else. Pure; whether
//! the schema is valid is for who compiles it.

use std::collections::BTreeMap;

use serde_json::Value;

/// The formats that mean something to the host.
pub const FORMATS: [&str; 5] = [
    "secret",
    "endpoint",
    "engine-endpoint",
    "registry",
    "ssh-target",
];

/// The most places of a schema that are looked at.
const PLACES: usize = 20_000;

/// What of a schema is not looked through: a format of the host behind one of these would have no power.
const UNSEEN: [&str; 16] = [
    "anyOf",
    "oneOf",
    "not",
    "if",
    "then",
    "else",
    "prefixItems",
    "contains",
    "patternProperties",
    "additionalProperties",
    "additionalItems",
    "unevaluatedItems",
    "unevaluatedProperties",
    "propertyNames",
    "dependentSchemas",
    "contentSchema",
];

/// The fields with a format of the host, by the shape of their pointer (`/items/*/key`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Formats {
    /// Shape of the pointer and format. Where a schema comes back to itself, that is an entry too.
    pub fields: BTreeMap<String, String>,
    /// Pointers into the schema: formats of the host that stand where the host does not look, and references that it
    /// does not follow.
    pub unseen: Vec<String>,
    /// Whether the schema is so large that not all of it was looked at.
    pub cut: bool,
}

impl Formats {
    /// Looks through a schema.
    pub fn of(schema: &Value) -> Formats {
        let mut walk = Walk {
            root: schema,
            found: Formats::default(),
            places: 0,
            following: vec![String::new()],
        };
        walk.look(schema, "", "");
        walk.found.unseen.sort();
        walk.found.unseen.dedup();
        walk.found
    }
}

struct Walk<'a> {
    root: &'a Value,
    found: Formats,
    places: usize,
    /// References that are being followed.
    following: Vec<String>,
}

fn format_of(schema: &Value) -> Option<&str> {
    let format = schema.get("format")?.as_str()?;
    FORMATS.contains(&format).then_some(format)
}

fn step(at: &str, name: &str) -> String {
    format!("{at}/{}", name.replace('~', "~0").replace('/', "~1"))
}

impl<'a> Walk<'a> {
    fn more(&mut self) -> bool {
        self.places += 1;
        self.found.cut |= self.places > PLACES;
        !self.found.cut
    }

    fn field(&mut self, field: &str, what: &str) {
        let entry = self.found.fields.entry(field.to_owned()).or_default();
        if entry.is_empty() {
            what.clone_into(entry);
        } else if entry != what {
            // Two that differ: neither is what it was.
            entry.push('+');
            entry.push_str(what);
        }
    }

    fn look(&mut self, schema: &'a Value, field: &str, at: &str) {
        if !self.more() {
            return;
        }
        if let Some(format) = format_of(schema) {
            self.field(field, format);
            return;
        }
        if let Some(target) = schema.get("$ref").and_then(Value::as_str) {
            self.follow(target, field, at);
        }
        if schema.get("$dynamicRef").is_some() {
            self.found.unseen.push(format!("{at}/$dynamicRef"));
        }
        for (index, part) in list(schema, "allOf").enumerate() {
            self.look(part, field, &format!("{at}/allOf/{index}"));
        }
        for (name, below) in schema
            .get("properties")
            .and_then(Value::as_object)
            .into_iter()
            .flatten()
        {
            let at = step(&format!("{at}/properties"), name);
            self.look(below, &step(field, name), &at);
        }
        if let Some(items) = schema.get("items") {
            self.look(items, &format!("{field}/*"), &format!("{at}/items"));
        }
        for key in UNSEEN {
            if let Some(behind) = schema.get(key) {
                self.search(behind, &step(at, key));
            }
        }
    }

    fn follow(&mut self, target: &str, field: &str, at: &str) {
        let Some(local) = target.strip_prefix('#') else {
            return;
        };
        if self.following.iter().any(|on_the_way| on_the_way == local) {
            self.field(field, &format!("again #{local}"));
            return;
        }
        let Some(schema) = self.root.pointer(local) else {
            self.found.unseen.push(format!("{at}/$ref"));
            return;
        };
        self.following.push(local.to_owned());
        self.look(schema, field, local);
        self.following.pop();
    }

    /// Looks for formats of the host where none may stand.
    fn search(&mut self, value: &'a Value, at: &str) {
        if !self.more() {
            return;
        }
        match value {
            Value::Object(object) => {
                if format_of(value).is_some() {
                    self.found.unseen.push(step(at, "format"));
                }
                if let Some(local) = object
                    .get("$ref")
                    .and_then(Value::as_str)
                    .and_then(|target| target.strip_prefix('#'))
                    && !self.following.iter().any(|on_the_way| on_the_way == local)
                    && let Some(schema) = self.root.pointer(local)
                {
                    self.following.push(local.to_owned());
                    self.search(schema, local);
                    self.following.pop();
                }
                for (name, below) in object {
                    // Data, not schema.
                    if !matches!(name.as_str(), "const" | "enum" | "default" | "examples") {
                        self.search(below, &step(at, name));
                    }
                }
            }
            Value::Array(items) => {
                for (index, below) in items.iter().enumerate() {
                    self.search(below, &format!("{at}/{index}"));
                }
            }
            _ => {}
        }
    }
}

fn list<'a>(schema: &'a Value, key: &str) -> impl Iterator<Item = &'a Value> + use<'a> {
    schema
        .get(key)
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn fields(schema: &Value) -> Vec<(String, String)> {
        Formats::of(schema).fields.into_iter().collect()
    }

    #[test]
    fn fields_are_found_where_the_host_looks_for_them() {
        let schema = json!({
            "properties": {
                "plain": { "type": "string", "format": "uri" },
                "api": { "$ref": "#/$defs/api" },
                "keys": { "items": { "properties": { "a/b": { "format": "secret" } } } },
            },
            "allOf": [{ "properties": { "box": { "format": "ssh-target" } } }],
            "$defs": { "api": { "format": "endpoint" }, "unused": { "format": "registry" } },
        });
        let found = |path: &str, format: &str| (path.to_owned(), format.to_owned());
        assert_eq!(
            fields(&schema),
            [
                found("/api", "endpoint"),
                found("/box", "ssh-target"),
                found("/keys/*/a~1b", "secret"),
            ]
        );
        assert!(Formats::of(&schema).unseen.is_empty());
    }

    #[test]
    fn formats_behind_a_condition_are_told_with_their_place() {
        for (key, value, at) in [
            ("anyOf", json!([{ "format": "secret" }]), "/anyOf/0/format"),
            (
                "then",
                json!({ "properties": { "x": { "format": "endpoint" } } }),
                "/then/properties/x/format",
            ),
            (
                "patternProperties",
                json!({ ".*": { "format": "ssh-target" } }),
                "/patternProperties/.*/format",
            ),
            ("oneOf", json!([{ "$ref": "#/$defs/k" }]), "/$defs/k/format"),
            ("$ref", json!("#anchor"), "/$ref"),
            ("$dynamicRef", json!("#anchor"), "/$dynamicRef"),
        ] {
            let schema = json!({ key: value, "$defs": { "k": { "format": "secret" } } });
            assert_eq!(Formats::of(&schema).unseen, [at], "{key}");
        }
        let data = json!({ "oneOf": [{ "const": { "format": "secret" } }] });
        assert!(Formats::of(&data).unseen.is_empty());
    }

    #[test]
    fn a_schema_that_comes_back_to_itself_ends_and_is_told_apart_from_one_that_does_not() {
        let plain = json!({ "properties": { "a": { "format": "secret" } } });
        let turning =
            json!({ "properties": { "a": { "format": "secret" }, "more": { "$ref": "#" } } });
        assert_ne!(fields(&plain), fields(&turning));
        assert!(!Formats::of(&turning).cut);
    }

    #[test]
    fn a_schema_that_grows_without_end_is_cut_and_says_so() {
        let mut defs = serde_json::Map::new();
        for level in 0..40 {
            let next = json!({ "$ref": format!("#/$defs/l{}", level + 1) });
            defs.insert(
                format!("l{level}"),
                json!({ "properties": { "x": next, "y": next } }),
            );
        }
        defs.insert("l40".to_owned(), json!({ "format": "secret" }));
        let schema = json!({ "$ref": "#/$defs/l0", "$defs": defs });
        assert!(Formats::of(&schema).cut);
    }
}

//! The shape sample: a provider whose manifest a test writes into its bytes.

use serde_json::{Value, json};

use crate::server::component;

/// What stands before the manifest in the sample.
const MARK: &[u8] = b"LEASEHOLD-SHAPE:";
/// How long mark and manifest are.
const LENGTH: usize = 4096;

/// The sample with this manifest.
///
/// # Panics
/// When it was not built, or the manifest is too long for it.
pub fn shaped(shape: &Value) -> Vec<u8> {
    let mut bytes = component("shape").expect("shape was built");
    let at = bytes
        .windows(MARK.len())
        .position(|some| some == MARK)
        .expect("the mark");
    let mut text = MARK.to_vec();
    text.extend(shape.to_string().bytes());
    assert!(text.len() <= LENGTH, "the shape has {} bytes", text.len());
    text.resize(LENGTH, b' ');
    bytes[at..at + LENGTH].copy_from_slice(&text);
    bytes
}

/// A provider that asks for a little of everything.
pub fn modest() -> Value {
    json!({
        "version": "1.0.0",
        "origins": ["https://*.acme.dev:443"],
        "memoryMib": 32,
        "schema": { "type": "object", "properties": {
            "api": { "type": "string", "format": "endpoint" },
            "key": { "type": "string", "format": "secret" },
            "where": { "type": "string" },
        }},
        "credentials": [["/key", "authorization", "Bearer {}", "/api"]],
        "operations": [["/api", "DELETE", "/boxes/{resource}"]],
    })
}

/// The same with members replaced.
pub fn changed(members: Value) -> Value {
    let mut shape = modest();
    if let (Value::Object(shape), Value::Object(members)) = (&mut shape, members) {
        shape.extend(members);
    }
    shape
}

/// Everything that is wider than [`modest`], with words that the difference is told in.
pub fn wider() -> Vec<(&'static str, Value)> {
    let field = |name: &str, format: &str| {
        let mut shape = modest();
        shape["schema"]["properties"][name]["format"] = json!(format);
        shape
    };
    let mut without_api = modest();
    if let Some(properties) = without_api["schema"]["properties"].as_object_mut() {
        properties.remove("api");
    }
    without_api["credentials"] = json!([]);
    without_api["operations"] = json!([]);
    vec![
        (
            "https://other.dev:443",
            changed(json!({ "origins": ["https://*.acme.dev:443", "https://other.dev:443"] })),
        ),
        ("SSH", changed(json!({ "ssh": true }))),
        ("byte streams", changed(json!({ "streams": true }))),
        ("33 MiB", changed(json!({ "memoryMib": 33 }))),
        (
            "adds: the operation POST /boxes/{resource}",
            changed(
                json!({ "operations": [["/api", "DELETE", "/boxes/{resource}"],
                ["/api", "POST", "/boxes/{resource}"]] }),
            ),
        ),
        (
            "takes away: the operation DELETE",
            changed(json!({ "operations": [] })),
        ),
        (
            "as header x-key",
            changed(json!({ "credentials": [["/key", "x-key", "{}", "/api"]] })),
        ),
        ("/where of format endpoint", field("where", "endpoint")),
        ("/where of format secret", field("where", "secret")),
        ("/where of format ssh-target", field("where", "ssh-target")),
        ("no longer has the field /api", without_api),
    ]
}

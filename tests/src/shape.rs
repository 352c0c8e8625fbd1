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
    shaped_of("shape", shape)
}

/// The same of `shape-files`, which exports `files` too.
///
/// # Panics
/// As [`shaped`].
pub fn shaped_with_files(shape: &Value) -> Vec<u8> {
    shaped_of("shape-files", shape)
}

fn shaped_of(sample: &str, shape: &Value) -> Vec<u8> {
    let mut bytes = component(sample).expect("the sample was built");
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
        "mints": [["/api", "POST", "/sessions", "/token"]],
        "checks": [],
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

/// A component that asks for more than [`modest`].
pub struct Wider {
    /// What the difference is told in.
    pub words: &'static str,
    /// Its bytes.
    pub component: Vec<u8>,
}

/// A provider that asks for SSH, and leases an account to one at a time.
pub fn exclusive() -> Value {
    changed(json!({ "ssh": true, "exclusiveTarget": true }))
}

/// Each kind of what is wider than [`modest`], but two: another driver is refused while an environment is there, and only
/// what is [`exclusive`] can be so no more.
///
/// # Panics
/// As [`shaped`].
pub fn wider() -> Vec<Wider> {
    let field = |name: &str, format: &str| {
        let mut shape = modest();
        shape["schema"]["properties"][name]["format"] = json!(format);
        shape
    };
    let mut without_api = modest();
    if let Some(properties) = without_api["schema"]["properties"].as_object_mut() {
        properties.remove("api");
    }
    for list in ["credentials", "operations", "mints"] {
        without_api[list] = json!([]);
    }
    let operation = |method: &str| json!(["/api", method, "/boxes/{resource}"]);
    let mint = |pointer: &str| json!(["/api", "POST", "/sessions", pointer]);
    let shapes = [
        (
            "https://other.dev:443",
            changed(json!({ "origins": ["https://*.acme.dev:443", "https://other.dev:443"] })),
        ),
        ("SSH", changed(json!({ "ssh": true }))),
        ("byte streams", changed(json!({ "streams": true }))),
        ("33 MiB of memory", changed(json!({ "memoryMib": 33 }))),
        ("1001 ms of CPU time", changed(json!({ "cpu": 1001 }))),
        ("9 requests", changed(json!({ "exchanges": 9 }))),
        ("2 MiB of a buffered body", changed(json!({ "bodyMib": 2 }))),
        (
            "adds: the operation POST /boxes/{resource}",
            changed(json!({ "operations": [operation("DELETE"), operation("POST")] })),
        ),
        (
            "takes away: the operation DELETE",
            changed(json!({ "operations": [] })),
        ),
        (
            "adds: credentials that POST /sessions at /api answers in /other",
            changed(json!({ "mints": [mint("/token"), mint("/other")] })),
        ),
        (
            "takes away: credentials that POST /sessions at /api answers in /token",
            changed(json!({ "mints": [] })),
        ),
        (
            "adds: the check of `owned` by GET /boxes/{resource}",
            changed(json!({ "checks": [["/api", "/boxes/{resource}"]] })),
        ),
        (
            "as header x-key",
            changed(json!({ "credentials": [["/key", "x-key", "{}", "/api"]] })),
        ),
        ("/where of format endpoint", field("where", "endpoint")),
        ("/where of format secret", field("where", "secret")),
        ("/where of format ssh-target", field("where", "ssh-target")),
        ("no longer has the field /api", without_api),
    ];
    let mut all: Vec<Wider> = shapes
        .iter()
        .map(|(words, shape)| Wider {
            words,
            component: shaped(shape),
        })
        .collect();
    all.push(Wider {
        words: "exports files",
        component: shaped_with_files(&modest()),
    });
    all
}

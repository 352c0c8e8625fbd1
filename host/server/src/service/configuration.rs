//! What a configuration means to the host: its schema's formats, the secrets that it refers to, and what a
//! component may see of it.
//!
//! A provider's JSON Schema is checked here, before any call, and so are the host's own formats (`ssh-target`,
//! `endpoint`, `engine-endpoint`, `registry`, `secret`), whose inside the provider does not describe. This room never resolves a secret and never calls a
//! component. Invariant: what [`stand_ins`] gives to `check-config` and what [`put_back`] takes from it hold no
//! secret and no way to move a target.

use leasehold_authority::SecretUse;
use leasehold_contract::{Credential, FieldViolation, Site};
use serde_json::Value;

use super::endpoints;

/// The formats of configuration fields that mean something to the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// A machine reached by SSH: target, trust and identity in one object.
    SshTarget,
    /// A credential: a reference to a secret of the company.
    Secret,
    /// A URL that may be called.
    Endpoint,
    /// A container engine, behind the engine policy.
    EngineEndpoint,
    /// A container registry: server, user name and password in one object.
    Registry,
}

impl Format {
    fn parse(format: &str) -> Option<Format> {
        Some(match format {
            "ssh-target" => Format::SshTarget,
            "secret" => Format::Secret,
            "endpoint" => Format::Endpoint,
            "engine-endpoint" => Format::EngineEndpoint,
            "registry" => Format::Registry,
            _ => return None,
        })
    }

    fn as_str(self) -> &'static str {
        match self {
            Format::SshTarget => "ssh-target",
            Format::Secret => "secret",
            Format::Endpoint => "endpoint",
            Format::EngineEndpoint => "engine-endpoint",
            Format::Registry => "registry",
        }
    }
}

/// A field of a configuration that has one of the host's formats.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    /// RFC 6901 pointer into the configuration.
    pub pointer: String,
    /// What it is.
    pub format: Format,
}

/// The fields with a format of the host that `config` has, by its provider's schema.
///
/// Formats are found through `properties`, `items`, `allOf` and local `$ref`s: where a schema hides one behind a
/// condition it is not seen, and the value stays what it is, a plain value without any power.
pub fn fields(schema: &Value, config: &Value) -> Vec<Field> {
    let mut found = Vec::new();
    walk(schema, schema, config, &mut String::new(), 0, &mut found);
    found
}

fn walk(
    root: &Value,
    schema: &Value,
    value: &Value,
    pointer: &mut String,
    depth: usize,
    found: &mut Vec<Field>,
) {
    if depth > 32 {
        return;
    }
    if let Some(format) = schema
        .get("format")
        .and_then(Value::as_str)
        .and_then(Format::parse)
    {
        if !found.iter().any(|f| f.pointer == *pointer) {
            found.push(Field {
                pointer: pointer.clone(),
                format,
            });
        }
        return;
    }
    if let Some(target) = schema.get("$ref").and_then(Value::as_str)
        && let Some(local) = target.strip_prefix('#')
        && let Some(schema) = root.pointer(local)
    {
        walk(root, schema, value, pointer, depth + 1, found);
    }
    if let Some(all) = schema.get("allOf").and_then(Value::as_array) {
        for schema in all {
            walk(root, schema, value, pointer, depth + 1, found);
        }
    }
    if let (Some(properties), Some(object)) = (
        schema.get("properties").and_then(Value::as_object),
        value.as_object(),
    ) {
        for (name, schema) in properties {
            if let Some(value) = object.get(name) {
                let length = pointer.len();
                pointer.push('/');
                pointer.push_str(&escape(name));
                walk(root, schema, value, pointer, depth + 1, found);
                pointer.truncate(length);
            }
        }
    }
    if let (Some(items), Some(array)) = (schema.get("items"), value.as_array()) {
        for (index, value) in array.iter().enumerate() {
            let length = pointer.len();
            pointer.push('/');
            pointer.push_str(&index.to_string());
            walk(root, items, value, pointer, depth + 1, found);
            pointer.truncate(length);
        }
    }
}

/// A reference token of a JSON pointer (RFC 6901, section 3).
fn escape(name: &str) -> String {
    name.replace('~', "~0").replace('/', "~1")
}

/// Checks `config` against its provider's schema (JSON Schema 2020-12; no remote `$ref` is ever fetched).
///
/// # Errors
/// Every violation at once, each with a pointer. Values are never repeated in the messages.
pub fn check(schema: &Value, config: &Value) -> Result<(), Vec<FieldViolation>> {
    let validator = leasehold_runtime::validator(schema).map_err(|_| {
        vec![FieldViolation {
            pointer: String::new(),
            message: "the provider's configuration schema cannot be compiled; ask its author"
                .to_owned(),
        }]
    })?;
    // A schema speaks of the secret itself; what is written is a reference, whose text is not looked at.
    let mut shown = config.clone();
    let fields = fields(schema, config);
    let mut references = Vec::new();
    for field in fields.iter().filter(|field| field.format == Format::Secret) {
        if let Some(value) = shown
            .pointer_mut(&field.pointer)
            .filter(|value| value.is_object())
        {
            *value = Value::String(String::new());
            references.push(field.pointer.as_str());
        }
    }
    // Of an endpoint it speaks of the URL.
    for field in fields
        .iter()
        .filter(|field| matches!(field.format, Format::Endpoint | Format::EngineEndpoint))
    {
        if let Some(value) = shown.pointer_mut(&field.pointer)
            && let Some(url) = value.get("url").filter(|url| url.is_string()).cloned()
        {
            *value = url;
            references.push(field.pointer.as_str());
        }
    }
    let mut violations: Vec<FieldViolation> = validator
        .iter_errors(&shown)
        .filter(|error| !references.contains(&error.instance_path().as_str()))
        .map(|error| FieldViolation {
            pointer: error.instance_path().to_string(),
            message: error.masked_with("the value").to_string(),
        })
        .collect();
    for field in &fields {
        let Some(value) = config.pointer(&field.pointer) else {
            continue;
        };
        let wrong = match field.format {
            Format::Endpoint => endpoints::check(value),
            Format::Registry => endpoints::check_registry(value),
            Format::EngineEndpoint => endpoints::check_engine(value),
            Format::SshTarget | Format::Secret => Vec::new(),
        };
        violations.extend(wrong.into_iter().map(|v| FieldViolation {
            pointer: format!("{}{}", field.pointer, v.pointer),
            message: v.message,
        }));
    }
    violations.truncate(50);
    if violations.is_empty() {
        Ok(())
    } else {
        Err(violations)
    }
}

/// The secret fields inside an `ssh-target`: always references.
const SSH_SECRETS: [&str; 2] = ["privateKey", "passphrase"];
/// The field inside an `ssh-target` that may be plain text or a reference.
const SSH_CERTIFICATE: &str = "certificate";

/// Every place of a configuration where a secret may stand, with the sites it works in and where it goes. That a
/// reference stands there, and none anywhere else, is the authority's to check.
///
/// # Errors
/// A plain value where a secret belongs, every one at once; the value is not repeated.
pub fn secret_uses(
    schema: &Value,
    credentials: &[Credential],
    config: &Value,
) -> Result<Vec<SecretUse>, Vec<FieldViolation>> {
    let mut uses = Vec::new();
    let mut violations = Vec::new();
    let all = fields(schema, config);
    for field in &all {
        let Some(value) = config.pointer(&field.pointer) else {
            continue;
        };
        match field.format {
            Format::SshTarget => ssh_uses(&field.pointer, value, 0, &mut uses, &mut violations),
            Format::Secret => {
                let (sites, destinations) = rights(credentials, &field.pointer, &all, config);
                uses.push(SecretUse {
                    pointer: field.pointer.clone(),
                    sites,
                    destinations,
                });
            }
            Format::Endpoint | Format::EngineEndpoint => {
                uses.extend(endpoints::secret_uses(&field.pointer, value));
            }
            Format::Registry => {
                let (_, to) = rights(credentials, &field.pointer, &all, config);
                uses.extend(endpoints::registry_uses(&field.pointer, value, to));
            }
        }
    }
    if violations.is_empty() {
        Ok(uses)
    } else {
        Err(violations)
    }
}

/// Where in a message a credential may stand and toward whom, in the words that its encryption is bound to.
fn rights(
    credentials: &[Credential],
    pointer: &str,
    all: &[Field],
    config: &Value,
) -> (Vec<String>, Vec<String>) {
    let mut sites = vec!["credential".to_owned()];
    let mut to = Vec::new();
    for credential in credentials.iter().filter(|c| c.pointer == pointer) {
        sites.extend(credential.sites.iter().map(|site| match site {
            Site::Header(name, template) => format!("header {name}: {template}"),
            Site::Basic(user) => format!("basic {user}"),
            Site::RegistryAuth => "registry-auth".to_owned(),
            Site::SshUsername => "ssh-username".to_owned(),
        }));
        for field in all.iter().filter(|f| credential.to.contains(&f.pointer)) {
            let url = config.pointer(&field.pointer).and_then(endpoints::url_of);
            to.extend(url.map(|url| url.trim_end_matches('/').to_owned()));
        }
    }
    sites.sort();
    sites.dedup();
    to.sort();
    to.dedup();
    (sites, to)
}

/// The pointers of the endpoints that a configuration has: who saves it has typed them.
pub fn typed_endpoints(schema: &Value, config: &Value) -> Vec<String> {
    fields(schema, config)
        .into_iter()
        .filter(|field| matches!(field.format, Format::Endpoint | Format::EngineEndpoint))
        .map(|field| field.pointer)
        .collect()
}

/// Whom an `ssh-target` leads to.
fn ssh_destination(target: &Value) -> String {
    let text = |key: &str| target.get(key).and_then(Value::as_str).unwrap_or_default();
    let port = target.get("port").and_then(Value::as_u64).unwrap_or(22);
    format!("ssh://{}@{}:{port}", text("username"), text("host"))
}

/// Whether a variable is one of the host's own, which mark the processes of a lease.
pub fn is_hosts_variable(name: &str) -> bool {
    name.starts_with("LEASEHOLD_")
}

fn ssh_uses(
    pointer: &str,
    value: &Value,
    depth: usize,
    uses: &mut Vec<SecretUse>,
    violations: &mut Vec<FieldViolation>,
) {
    let Some(object) = value.as_object() else {
        return;
    };
    let destination = ssh_destination(value);
    for key in SSH_SECRETS.into_iter().chain([SSH_CERTIFICATE]) {
        let Some(value) = object.get(key).filter(|v| !v.is_null()) else {
            continue;
        };
        let pointer = format!("{pointer}/{key}");
        if value.is_string() {
            if key != SSH_CERTIFICATE {
                violations.push(FieldViolation {
                    pointer,
                    message: "is a plain value: store it as a secret of the company and put {\"type\":\"secret_ref\",\"secretId\":\"sec_…\",\"version\":\"latest\"} here, or have it kept with the environment by {\"type\":\"secret_value\",\"value\":\"…\"}".to_owned(),
                });
            }
            continue;
        }
        uses.push(SecretUse {
            pointer,
            sites: vec![format!("ssh-target/{key}")],
            destinations: vec![destination.clone()],
        });
    }
    if depth < 8
        && let Some(jump) = object.get("jump").and_then(Value::as_array)
    {
        for (index, hop) in jump.iter().enumerate() {
            ssh_uses(
                &format!("{pointer}/jump/{index}"),
                hop,
                depth + 1,
                uses,
                violations,
            );
        }
    }
}

/// What `check-config` is given: the configuration with every field of a format of the host reduced to what a
/// component may know.
pub fn stand_ins(
    schema: &Value,
    config: &Value,
    reduce: impl Fn(&Field, &Value) -> Value,
) -> Value {
    let mut given = config.clone();
    for field in fields(schema, config) {
        if let Some(value) = given.pointer_mut(&field.pointer) {
            *value = reduce(&field, value);
        }
    }
    given
}

/// Puts the true values back into what `check-config` answered.
///
/// # Errors
/// Where the component changed, moved, added or removed a field of a format of the host: nothing of its answer is
/// used then.
pub fn put_back(
    schema: &Value,
    config: &Value,
    given: &Value,
    mut answer: Value,
) -> Result<Value, Vec<FieldViolation>> {
    let mut violations = Vec::new();
    let before = fields(schema, config);
    for field in fields(schema, &answer) {
        if !before.contains(&field) {
            violations.push(FieldViolation {
                pointer: field.pointer,
                message: format!(
                    "the provider added a field of format `{}`, which only an administrator may; nothing was saved",
                    field.format.as_str()
                ),
            });
        }
    }
    for field in before {
        if answer.pointer(&field.pointer) != given.pointer(&field.pointer) {
            violations.push(FieldViolation {
                pointer: field.pointer,
                message: format!(
                    "the provider changed a field of format `{}`, which only an administrator may; nothing was saved",
                    field.format.as_str()
                ),
            });
            continue;
        }
        if let (Some(place), Some(value)) = (
            answer.pointer_mut(&field.pointer),
            config.pointer(&field.pointer),
        ) {
            *place = value.clone();
        }
    }
    if !answer.is_object() {
        violations.push(FieldViolation {
            pointer: String::new(),
            message: "the provider's normalised configuration is not an object; nothing was saved"
                .to_owned(),
        });
    }
    if violations.is_empty() {
        Ok(answer)
    } else {
        Err(violations)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn schema() -> Value {
        json!({
            "type": "object",
            "properties": {
                "target": { "type": "object", "format": "ssh-target" },
                "path": { "type": "string", "pattern": "^/" },
                "hops": { "type": "array", "items": { "$ref": "#/$defs/hop" } }
            },
            "required": ["target"],
            "additionalProperties": false,
            "$defs": { "hop": { "type": "object", "format": "ssh-target" } }
        })
    }

    fn target() -> Value {
        json!({ "host": "10.0.0.5", "username": "ci", "privateKey": { "type": "secret_ref", "secretId": "sec_1", "version": "latest" } })
    }

    #[test]
    fn formats_are_found_through_properties_items_and_refs() {
        let config = json!({ "target": target(), "path": "/x", "hops": [target()] });
        let pointers: Vec<String> = fields(&schema(), &config)
            .into_iter()
            .map(|f| f.pointer)
            .collect();
        assert_eq!(pointers, ["/target", "/hops/0"]);
    }

    #[test]
    fn a_value_never_stands_in_a_violation() {
        let violations =
            check(&schema(), &json!({ "target": {}, "path": "canary" })).expect_err("a pattern");
        assert!(
            violations.iter().all(|v| !v.message.contains("canary")),
            "{violations:?}"
        );
        assert_eq!(violations[0].pointer, "/path");
    }

    #[test]
    fn a_schema_that_asks_for_text_takes_a_reference_to_a_secret() {
        let schema = json!({
            "type": "object",
            "properties": { "token": { "type": "string", "minLength": 8, "format": "secret" } },
            "required": ["token"]
        });
        let reference = json!({ "type": "secret_ref", "secretId": "sec_1", "version": "latest" });
        check(&schema, &json!({ "token": reference })).expect("a reference");
        check(&schema, &json!({})).expect_err("it is required");
        check(&schema, &json!({ "token": 7 })).expect_err("it is text");
    }

    #[test]
    fn a_use_names_its_site_and_its_destination() {
        let config = json!({ "target": target() });
        let uses = secret_uses(&schema(), &[], &config).expect("well-formed");
        assert_eq!(uses.len(), 1);
        assert_eq!(uses[0].pointer, "/target/privateKey");
        assert_eq!(uses[0].destinations, ["ssh://ci@10.0.0.5:22"]);
    }

    #[test]
    fn a_plain_private_key_is_refused_with_the_mend() {
        let config =
            json!({ "target": { "host": "h", "username": "u", "privateKey": "-----BEGIN" } });
        let violations = secret_uses(&schema(), &[], &config).expect_err("plain");
        assert!(
            violations[0].message.contains("store it as a secret"),
            "{violations:?}"
        );
        assert!(!violations[0].message.contains("BEGIN"));
    }

    #[test]
    fn a_component_that_moves_the_target_is_refused() {
        let config = json!({ "target": target(), "path": "/x" });
        let reduce = |_: &Field, _: &Value| json!({ "host": "10.0.0.5" });
        let given = stand_ins(&schema(), &config, reduce);
        let mut moved = given.clone();
        moved["target"]["host"] = json!("evil");
        let violations = put_back(&schema(), &config, &given, moved).expect_err("moved");
        assert_eq!(violations[0].pointer, "/target");
        let mut normal = given.clone();
        normal["path"] = json!("/y");
        let saved = put_back(&schema(), &config, &given, normal).expect("allowed");
        assert_eq!(saved["target"], target());
        assert_eq!(saved["path"], "/y");
    }

    #[test]
    fn a_component_that_adds_a_target_is_refused() {
        let config = json!({ "target": target() });
        let reduce = |_: &Field, v: &Value| v.clone();
        let given = stand_ins(&schema(), &config, reduce);
        let mut more = given.clone();
        more["hops"] = json!([{ "host": "evil" }]);
        assert!(put_back(&schema(), &config, &given, more).is_err());
    }

    #[test]
    fn a_credential_is_bound_to_its_sites_and_to_the_urls_that_it_goes_to() {
        let schema = json!({
            "type": "object",
            "properties": {
                "api": { "type": "string", "format": "endpoint" },
                "other": { "type": "string", "format": "endpoint" },
                "token": { "type": "string", "format": "secret" }
            }
        });
        let credential = Credential {
            pointer: "/token".to_owned(),
            sites: vec![Site::Header("authorization".into(), "Bearer {}".into())],
            to: vec!["/api".to_owned()],
        };
        let reference = json!({ "type": "secret_ref", "secretId": "sec_1", "version": "latest" });
        let config = json!({
            "api": { "url": "https://api.example/v1/" },
            "other": "https://other.example", "token": reference
        });
        check(&schema, &config).expect("an endpoint of either form");
        let uses = secret_uses(&schema, &[credential], &config).expect("well-formed");
        assert_eq!(uses[0].destinations, ["https://api.example/v1"]);
        assert_eq!(
            uses[0].sites,
            ["credential", "header authorization: Bearer {}"]
        );
        assert_eq!(typed_endpoints(&schema, &config), ["/api", "/other"]);
    }

    #[test]
    fn a_container_engine_is_a_field_of_its_own_whose_key_goes_to_it_alone() {
        let schema = json!({
            "type": "object",
            "properties": { "engine": { "type": "string", "format": "engine-endpoint" } }
        });
        let config = json!({ "engine": "unix:///run/podman/podman.sock" });
        check(&schema, &config).expect("a socket");
        assert_eq!(typed_endpoints(&schema, &config), ["/engine"]);
        let wrong = check(&schema, &json!({ "engine": "unix:///run/../x.sock" }));
        assert_eq!(
            wrong.expect_err("a path of one spelling")[0].pointer,
            "/engine"
        );
        let key = json!({ "type": "secret_ref", "secretId": "sec_1", "version": "latest" });
        let config = json!({ "engine": {
            "url": "https://engine.example:2376/", "clientCertificate": "x", "clientKey": key
        } });
        check(&schema, &config).expect("an engine over TLS");
        let uses = secret_uses(&schema, &[], &config).expect("well-formed");
        assert_eq!(uses[0].pointer, "/engine/clientKey");
        assert_eq!(uses[0].destinations, ["https://engine.example:2376"]);
    }
}

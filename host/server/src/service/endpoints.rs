//! Fields of format `endpoint`, `engine-endpoint` and `registry`: what an administrator may write, what secrets stand inside, and what a
//! component sees of it.
//!
//! An endpoint is a URL, or `{url, ca, clientCertificate, clientKey}`, and so is an engine's, whose URL may be `unix:///path`; a
//! registry is `{server, username, password}`: an engine asks whichever realm its registry names, so that none is typed.
//! Nothing is resolved or reached here. Invariant (P8): what a component sees holds no key and no certificate.

use std::sync::Arc;

use leasehold_authority::SecretUse;
use leasehold_contract::{Error, FieldViolation};
use leasehold_egress::{Endpoint, Secret, TlsSettings, Value as CredentialValue};
use serde_json::{Map, Value, json};

/// What may stand in the object of an endpoint, and whether it may be a secret.
const ENDPOINT: [(&str, Kept); 4] = [
    ("url", Kept::Plain),
    ("ca", Kept::Plain),
    ("clientCertificate", Kept::Either),
    ("clientKey", Kept::Secret),
];
/// What may stand in a registry.
const REGISTRY: [(&str, Kept); 3] = [
    ("server", Kept::Plain),
    ("username", Kept::Plain),
    ("password", Kept::Secret),
];

/// How a part of a field is written.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kept {
    /// As text.
    Plain,
    /// As a reference to a secret.
    Secret,
    /// As either.
    Either,
}

fn is_reference(value: &Value) -> bool {
    value.get("type").and_then(Value::as_str) == Some("secret_ref")
}

fn violation(pointer: impl Into<String>, message: impl Into<String>) -> FieldViolation {
    FieldViolation {
        pointer: pointer.into(),
        message: message.into(),
    }
}

/// The URL of an endpoint as it is written, of either form.
pub(crate) fn url_of(value: &Value) -> Option<&str> {
    value
        .as_str()
        .or_else(|| value.get("url").and_then(Value::as_str))
}

/// What a component sees of an endpoint: the URL, which it may use as it is.
pub(crate) fn reduced(value: &Value) -> Value {
    match url_of(value) {
        Some(url) => url.trim_end_matches('/').into(),
        None => Value::Null,
    }
}

/// What a component sees of a container engine: the URL, or the origin that stands in for its socket.
pub(crate) fn reduced_engine(value: &Value) -> Value {
    match url_of(value).map(|url| Endpoint::engine(url, true, None)) {
        Some(Ok(endpoint)) => endpoint.url.into(),
        // It was checked when it was saved.
        Some(Err(_)) | None => Value::Null,
    }
}

/// What a component sees of a registry: no password; a placeholder is put there for each call.
pub(crate) fn reduced_registry(value: &Value) -> Value {
    let mut seen = Map::new();
    for key in ["server", "username"] {
        if let Some(text) = value.get(key).filter(|text| text.is_string()) {
            seen.insert(key.to_owned(), text.clone());
        }
    }
    if value.get("password").is_some() {
        seen.insert("password".to_owned(), json!(""));
    }
    Value::Object(seen)
}

/// The parts of an object, each of which is known and written as it may be.
fn check_parts(value: &Value, known: &[(&str, Kept)], wrong: &mut Vec<FieldViolation>) {
    for (key, part) in value.as_object().into_iter().flatten() {
        let at = format!("/{}", key.replace('~', "~0").replace('/', "~1"));
        let Some((_, kept)) = known.iter().find(|(name, _)| name == key) else {
            let names: Vec<&str> = known.iter().map(|(name, _)| *name).collect();
            wrong.push(violation(
                at,
                format!("is not known here; there are {}", names.join(", ")),
            ));
            continue;
        };
        match (kept, is_reference(part), part.is_string()) {
            (Kept::Plain | Kept::Either, false, true) | (Kept::Secret | Kept::Either, true, _) => {}
            (Kept::Plain, ..) => wrong.push(violation(at, "must be text")),
            (Kept::Secret, ..) => wrong.push(violation(
                at,
                "is a plain value: store it as a secret of the company and put {\"type\":\"secret_ref\",\"secretId\":\"sec_…\",\"version\":\"latest\"} here, or have it kept with the environment by {\"type\":\"secret_value\",\"value\":\"…\"}",
            )),
            (Kept::Either, ..) => wrong.push(violation(at, "must be text or a secret reference")),
        }
    }
}

/// How a URL becomes an endpoint.
type Read = fn(&str, bool, Option<Arc<TlsSettings>>) -> Result<Endpoint, Error>;

/// What is wrong with an endpoint as it is written, by pointers into it.
pub(crate) fn check(value: &Value) -> Vec<FieldViolation> {
    if url_of(value).is_some_and(|url| url.starts_with("unix://")) {
        let at = if value.is_string() { "" } else { "/url" };
        return vec![violation(
            at,
            "is a Unix socket: sockets are those of container engines, which a provider reaches by a field of format engine-endpoint; give an http:// or https:// URL",
        )];
    }
    check_as(value, Endpoint::of)
}

/// The same of a container engine.
pub(crate) fn check_engine(value: &Value) -> Vec<FieldViolation> {
    check_as(value, Endpoint::engine)
}

fn check_as(value: &Value, read: Read) -> Vec<FieldViolation> {
    let mut wrong = Vec::new();
    check_parts(value, &ENDPOINT, &mut wrong);
    let at = if value.is_string() { "" } else { "/url" };
    let Some(url) = url_of(value) else {
        wrong.retain(|v| v.pointer != "/url");
        wrong.push(violation(
            at,
            "must be a URL, or {\"url\":\"https://…\",\"ca\":\"…\",\"clientCertificate\":\"…\",\"clientKey\":…}",
        ));
        return wrong;
    };
    // The certificate and the key may be secrets still: they are looked at when they are used.
    let part = |key: &str| value.get(key).and_then(Value::as_str);
    let tls = match (part("ca"), value.get("clientKey").is_some()) {
        (Some(ca), _) => match TlsSettings::new(Some(ca), None) {
            Ok(tls) => Some(tls),
            Err(error) => {
                wrong.push(violation("/ca", error.message));
                return wrong;
            }
        },
        (None, true) => TlsSettings::new(None, None).ok(),
        (None, false) => None,
    };
    if value.get("clientKey").is_some() != value.get("clientCertificate").is_some() {
        wrong.push(violation(
            "/clientKey",
            "and clientCertificate belong together; give both or neither",
        ));
    }
    if let Err(error) = read(url, true, tls) {
        wrong.push(violation(at, error.message));
    }
    wrong
}

/// What is wrong with a registry as it is written, by pointers into it.
pub(crate) fn check_registry(value: &Value) -> Vec<FieldViolation> {
    let mut wrong = Vec::new();
    check_parts(value, &REGISTRY, &mut wrong);
    for violation in wrong.iter_mut().filter(|v| v.pointer == "/realm") {
        violation.message = "is not taken: the engine that is given the password asks the realm that the registry names, and this host cannot hold it to one; leave it out".to_owned();
    }
    let server = value.get("server").and_then(Value::as_str);
    if server
        .is_none_or(|s| s.is_empty() || s.contains(['/', '@']) || s.contains(char::is_whitespace))
    {
        wrong.retain(|v| v.pointer != "/server");
        wrong.push(violation(
            "/server",
            "must be the registry's host, and its port where it has one of its own",
        ));
    }
    if value.get("password").is_some() != value.get("username").is_some() {
        wrong.push(violation(
            "/password",
            "and username belong together; give both or neither",
        ));
    }
    wrong
}

/// The secrets inside an endpoint, which go where its URL says.
pub(crate) fn secret_uses(pointer: &str, value: &Value) -> Vec<SecretUse> {
    let url = url_of(value).unwrap_or_default().trim_end_matches('/');
    inside(
        pointer,
        value,
        "endpoint",
        &["clientCertificate", "clientKey"],
        vec![url.to_owned()],
    )
}

/// The secrets inside a registry, which go to its server by way of the endpoints that the manifest names.
pub(crate) fn registry_uses(pointer: &str, value: &Value, mut to: Vec<String>) -> Vec<SecretUse> {
    to.extend(
        value
            .get("server")
            .and_then(Value::as_str)
            .map(|server| format!("registry://{server}")),
    );
    to.sort();
    to.dedup();
    inside(pointer, value, "registry", &["password"], to)
}

fn inside(
    pointer: &str,
    value: &Value,
    format: &str,
    keys: &[&str],
    destinations: Vec<String>,
) -> Vec<SecretUse> {
    keys.iter()
        .filter(|key| value.get(**key).is_some_and(Value::is_object))
        .map(|key| SecretUse {
            pointer: format!("{pointer}/{key}"),
            sites: vec![format!("{format}/{key}")],
            destinations: destinations.clone(),
        })
        .collect()
}

/// An endpoint whose secrets were put in their places.
///
/// # Errors
/// A certificate or key that is none, by pointers into the field; no value is repeated.
pub(crate) fn resolve(value: &Value, typed: bool) -> Result<Endpoint, FieldViolation> {
    resolve_as(value, typed, Endpoint::of)
}

/// The same of a container engine.
///
/// # Errors
/// As [`resolve`].
pub(crate) fn resolve_engine(value: &Value, typed: bool) -> Result<Endpoint, FieldViolation> {
    resolve_as(value, typed, Endpoint::engine)
}

fn resolve_as(value: &Value, typed: bool, read: Read) -> Result<Endpoint, FieldViolation> {
    let part = |key: &str| value.get(key).and_then(Value::as_str);
    let identity = match (part("clientCertificate"), part("clientKey")) {
        (Some(chain), Some(key)) => Some((chain, Secret::new(key.to_owned()))),
        _ => None,
    };
    let tls = match (part("ca"), &identity) {
        (None, None) => None,
        (ca, identity) => Some(
            TlsSettings::new(ca, identity.as_ref().map(|(chain, key)| (*chain, key))).map_err(
                |error| {
                    let key = ["clientKey", "clientCertificate", "ca"]
                        .into_iter()
                        .find(|key| error.message.starts_with(key));
                    violation(
                        key.map(|key| format!("/{key}")).unwrap_or_default(),
                        error.message,
                    )
                },
            )?,
        ),
    };
    read(url_of(value).unwrap_or_default(), typed, tls)
        .map_err(|error| violation("", error.message))
}

/// The credential of a registry whose password was put in its place; none where it has none.
pub(crate) fn resolve_registry(value: &Value) -> Option<CredentialValue> {
    let part = |key: &str| value.get(key).and_then(Value::as_str).map(str::to_owned);
    Some(CredentialValue::Registry {
        server: part("server")?,
        username: part("username")?,
        password: Secret::new(part("password")?),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(value: &Value) -> Vec<String> {
        check(value).into_iter().map(|v| v.pointer).collect()
    }

    #[test]
    fn an_endpoint_that_egress_would_not_reach_is_not_saved() {
        for url in ["http://127.0.0.1:8080", "https://api.example.com/v1/"] {
            assert_eq!(at(&json!(url)), Vec::<String>::new(), "{url}");
            assert_eq!(at(&json!({ "url": url })), Vec::<String>::new(), "{url}");
        }
        for url in [
            "",
            "api.example.com",
            "ftp://h/",
            "http://user:pw@h/",
            "http://h/?a=b",
            "http://h/#x",
            "http://h/a//b",
            "http://h./",
            "unix:///var/run/docker.sock",
        ] {
            assert_eq!(at(&json!(url)), [""], "{url}");
            assert_eq!(at(&json!({ "url": url })), ["/url"], "{url}");
        }
    }

    #[test]
    fn an_engine_is_a_socket_or_an_origin_and_a_component_is_told_no_path() {
        let wrong = |value: &Value| -> Vec<String> {
            check_engine(value).into_iter().map(|v| v.pointer).collect()
        };
        for url in [
            "unix:///run/podman/podman.sock",
            "https://engine.example:2376/",
            "http://127.0.0.1:2375",
        ] {
            assert_eq!(wrong(&json!(url)), Vec::<String>::new(), "{url}");
            assert_eq!(wrong(&json!({ "url": url })), Vec::<String>::new(), "{url}");
        }
        for url in [
            "",
            "unix://run/x.sock",
            "unix:///run/../x.sock",
            "unix:/run/x.sock",
            "http://engine.example:2375",
            "https://engine.example/v1.41",
            "tcp://127.0.0.1:2375",
        ] {
            assert_eq!(wrong(&json!(url)), [""], "{url}");
            assert_eq!(wrong(&json!({ "url": url })), ["/url"], "{url}");
        }
        let key = json!({ "type": "secret_ref", "secretId": "sec_1", "version": "latest" });
        let socket =
            json!({ "url": "unix:///run/x.sock", "clientCertificate": "y", "clientKey": key });
        assert_eq!(wrong(&socket), ["/url"], "a socket has no TLS");
        let seen = reduced_engine(&json!("unix:///run/podman/podman.sock"));
        let seen = seen.as_str().expect("an origin");
        assert!(
            seen.ends_with(".socket.invalid") && !seen.contains("podman"),
            "{seen}"
        );
        assert_eq!(
            reduced_engine(&json!({ "url": "https://h:2376/" })),
            "https://h:2376"
        );
    }

    #[test]
    fn a_key_in_plain_and_a_part_that_nobody_knows_are_named() {
        let value = json!({ "url": "https://h", "clientKey": "-----BEGIN canary", "port": 1 });
        let wrong = check(&value);
        let at: Vec<&str> = wrong.iter().map(|v| v.pointer.as_str()).collect();
        assert_eq!(at, ["/clientKey", "/port", "/clientKey"]);
        assert!(
            wrong.iter().all(|v| !v.message.contains("canary")),
            "{wrong:?}"
        );
        assert_eq!(
            self::at(&json!({ "url": "https://h", "ca": "none" })),
            ["/ca"]
        );
    }

    #[test]
    fn a_component_sees_a_url_and_a_registry_without_its_password() {
        let reference = json!({ "type": "secret_ref", "secretId": "sec_1", "version": "latest" });
        let endpoint = json!({ "url": "https://h/v1/", "ca": "x", "clientKey": reference, "clientCertificate": "y" });
        assert_eq!(reduced(&endpoint), "https://h/v1");
        let registry = json!({ "server": "r.example", "username": "u", "password": reference });
        assert_eq!(check_registry(&registry), Vec::new());
        let mut held = registry.clone();
        held["realm"] = json!("https://auth.example");
        let wrong = check_registry(&held);
        let at: Vec<&str> = wrong.iter().map(|v| v.pointer.as_str()).collect();
        assert_eq!(
            at,
            ["/realm"],
            "what nobody holds an engine to is not taken"
        );
        assert!(wrong[0].message.contains("leave it out"), "{wrong:?}");
        assert_eq!(
            reduced_registry(&registry),
            json!({ "server": "r.example", "username": "u", "password": "" })
        );
        let uses = registry_uses("/r", &registry, vec!["https://h".into()]);
        assert_eq!(uses[0].destinations, ["https://h", "registry://r.example"]);
    }
}

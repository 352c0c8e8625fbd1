//! The rules as a hostile component meets them: one table per kind of trick, over one provider with everything in its
//! manifest. Nothing is sent; what would be is looked at.

mod answers;
mod destinations;
mod operations;
mod secrets;

use leasehold_contract::{
    Code, Content, Creation, Credential, Error, HttpHead, HttpRequest, HttpResponse, Mint,
    Operation, Piece, Role, Site,
};
use tokio_util::sync::CancellationToken;

use super::*;
use crate::http::{Body, Parsed, Wire};
use crate::rules::operations::{Effect, Form};
use crate::secret::Secret;

/// The API key's value, and what the component has of it.
const KEY: &str = "canary-key-0123456789abcdef";
const KEY_TOKEN: &str = "lhp-000102030405060708090a0b0c0d0e0f";
/// A password for Basic.
const PASSWORD: &str = "canary-password-9876543210";
const PASSWORD_TOKEN: &str = "lhp-101112131415161718191a1b1c1d1e1f";
/// A registry's.
const REGISTRY: &str = "canary-registry-5566778899";
const REGISTRY_TOKEN: &str = "lhp-202122232425262728292a2b2c2d2e2f";
/// A variable of the lease.
const PAYLOAD: &str = "canary-payload \"quoted\"\nnext";
const PAYLOAD_TOKEN: &str = "lhp-303132333435363738393a3b3c3d3e3f";

const API: &str = "https://api.example/v1";
const OTHER: &str = "https://other.example";

fn endpoint(url: &str, typed: bool) -> Endpoint {
    let origin = Parsed::of(url).expect("a URL").origin;
    Endpoint {
        url: url.to_owned(),
        destination: Destination {
            origin,
            typed,
            tls: None,
            unix: None,
            engine: false,
        },
    }
}

fn operation(method: &str, path: &str, role: Role) -> Operation {
    Operation {
        endpoint: "/api".to_owned(),
        method: method.to_owned(),
        path: path.to_owned(),
        role,
    }
}

fn creation(id: &str, labels: Option<&str>) -> Creation {
    Creation {
        id: id.to_owned(),
        labels: labels.map(str::to_owned),
    }
}

fn facts() -> HttpFacts {
    let api = vec!["/api".to_owned()];
    let asked = HttpAsked {
        operations: vec![
            // The laxest first: the order must not matter.
            operation("POST", "/*", Role::Shared),
            operation(
                "POST",
                "/boxes",
                Role::Create(creation("/id", Some("/labels"))),
            ),
            operation("DELETE", "/boxes/{resource}", Role::Act),
            operation(
                "POST",
                "/boxes/{resource}/exec",
                Role::CreateChild(creation("/execId", None)),
            ),
            operation("POST", "/boxes/{resource}/exec/{child}/start", Role::Act),
            operation("PUT", "/by-name/{acquisition}", Role::Act),
            operation("POST", "/boxes/{resource}/token", Role::Act),
            operation("GET", "/boxes/{resource}/attach", Role::Act),
            operation("POST", "/search/boxes", Role::Read),
            operation("POST", "/images/create", Role::Shared),
        ],
        credentials: vec![
            Credential {
                pointer: "/apiKey".into(),
                sites: vec![
                    Site::Header("authorization".into(), "Bearer {}".into()),
                    Site::Header("X-Api-Key".into(), "{}".into()),
                    Site::Header("cookie".into(), "session={}; v=1".into()),
                ],
                to: api.clone(),
            },
            Credential {
                pointer: "/password".into(),
                sites: vec![Site::Basic("/user".into())],
                to: api.clone(),
            },
            Credential {
                pointer: "/registry".into(),
                sites: vec![Site::RegistryAuth],
                to: api.clone(),
            },
        ],
        mints: vec![
            Mint {
                endpoint: "/api".into(),
                method: "POST".into(),
                path: "/boxes/{resource}/token".into(),
                pointers: vec!["/token".into(), "/parts".into()],
                sites: vec![Site::Header("x-session".into(), "{}".into())],
                to: api.clone(),
            },
            Mint {
                endpoint: "/api".into(),
                method: "GET".into(),
                path: "/boxes/{resource}/preview".into(),
                pointers: vec!["/token".into()],
                sites: vec![Site::Header("x-preview".into(), "{}".into())],
                to: api,
            },
        ],
        origins: vec!["https://*.files.example:443".into()],
        streams: true,
    };
    HttpFacts {
        asked: Arc::new(asked),
        endpoints: [
            ("/api".to_owned(), endpoint(API, true)),
            ("/other".to_owned(), endpoint(OTHER, true)),
            (
                "/default".to_owned(),
                endpoint("https://default.example", false),
            ),
        ]
        .into(),
        values: vec![
            CredentialValue {
                pointer: "/apiKey".into(),
                placeholder: KEY_TOKEN.into(),
                value: Value::Text(Secret::new(KEY.into())),
            },
            CredentialValue {
                pointer: "/password".into(),
                placeholder: PASSWORD_TOKEN.into(),
                value: Value::Text(Secret::new(PASSWORD.into())),
            },
            CredentialValue {
                pointer: "/registry".into(),
                placeholder: REGISTRY_TOKEN.into(),
                value: Value::Registry {
                    server: "registry.example".into(),
                    username: "puller".into(),
                    password: Secret::new(REGISTRY.into()),
                },
            },
        ],
        users: [("/user".to_owned(), "admin".to_owned())].into(),
        kept: Vec::new(),
        resource: Some("box-1".into()),
        children: ["exec-1".to_owned()].into(),
        acquiring: false,
    }
}

fn lease() -> LeaseScope {
    LeaseScope {
        lease: "lea_1".into(),
        acquisition: "acq-1".into(),
        epoch: 1,
        owner_label: "owner-mac".into(),
        labels: Vec::new(),
        closed: CancellationToken::new(),
    }
}

fn payloads() -> Payloads {
    let mut payloads = Payloads::none();
    payloads.insert(PAYLOAD_TOKEN, PAYLOAD);
    payloads
}

fn rules_of(facts: HttpFacts, reach: Reach, lease: Option<&LeaseScope>) -> Rules {
    let asked = facts.asked.clone();
    Rules::new(
        Arc::new(facts),
        asked,
        &payloads(),
        reach,
        lease,
        Some("exe-1"),
        &Arc::default(),
    )
    .expect("facts that hold")
}

/// Those of a call that may act on box-1.
fn rules() -> Rules {
    rules_of(facts(), Reach::Act, Some(&lease()))
}

/// Those of an acquire that has made nothing yet.
fn acquiring() -> Rules {
    let facts = HttpFacts {
        acquiring: true,
        resource: None,
        children: Default::default(),
        ..facts()
    };
    rules_of(facts, Reach::Act, Some(&lease()))
}

fn ask(method: &str, url: &str) -> HttpRequest {
    HttpRequest {
        method: method.into(),
        url: url.into(),
        query: Vec::new(),
        headers: Vec::new(),
        body: Content::None,
        timeout: None,
        keep: Vec::new(),
    }
}

fn at(path: &str) -> String {
    format!("{API}{path}")
}

fn with_header(mut request: HttpRequest, name: &str, value: &str) -> HttpRequest {
    request.headers.push((name.into(), value.into()));
    request
}

fn with_body(mut request: HttpRequest, body: &str) -> HttpRequest {
    request.body = Content::Text(body.into());
    request
}

fn judge(rules: &Rules, request: &HttpRequest) -> Result<Judged, Error> {
    rules.judge(request, Vec::new(), Form::Send).1
}

fn refused(rules: &Rules, request: &HttpRequest) -> Error {
    refused_as(rules, request, Form::Send)
}

/// The refusal of a request: a value that names no secret.
fn refused_as(rules: &Rules, request: &HttpRequest, form: Form) -> Error {
    match rules.judge(request, Vec::new(), form).1 {
        Ok(judged) => panic!("{request:?} was let through as {}", sent(&judged.wire)),
        Err(error) => {
            for secret in [KEY, PASSWORD, REGISTRY, PAYLOAD] {
                assert!(!error.message.contains(secret), "{}", error.message);
            }
            error
        }
    }
}

/// All that would be on the wire, as text.
fn sent(wire: &Wire) -> String {
    let mut out = format!(
        "{} {} {}",
        wire.method, wire.destination.origin, wire.target
    );
    for (name, value) in &wire.headers {
        out.push_str(&format!("\n{name}: {}", value.expose()));
    }
    if let Body::Full(bytes) = &wire.body {
        out.push_str(&format!("\n\n{}", String::from_utf8_lossy(bytes)));
    }
    out
}

fn header<'a>(wire: &'a Wire, name: &str) -> Option<&'a str> {
    wire.headers
        .iter()
        .find(|(n, _)| n == name)
        .map(|(_, v)| v.expose().as_str())
}

fn body(wire: &Wire) -> &str {
    match &wire.body {
        Body::Full(bytes) => std::str::from_utf8(bytes).expect("text"),
        _ => "",
    }
}

fn answer(status: u16, body: &str) -> HttpResponse {
    HttpResponse {
        head: HttpHead {
            status,
            headers: vec![("content-type".into(), "application/json".into())],
        },
        body: Content::of(body.as_bytes().to_vec()),
    }
}

/// All of an answer as text.
fn shown(response: &HttpResponse) -> String {
    format!(
        "{:?} {}",
        response.head,
        String::from_utf8_lossy(response.body.as_bytes())
    )
}

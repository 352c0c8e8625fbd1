//! Tests of the manifest's checks.

use leasehold_contract::{Check, Claim, Driver, Expectation, Features, Limits, Request};
use serde_json::json;

use super::*;

fn sound() -> Manifest {
    Manifest {
        key: "acme".into(),
        version: "1.2.3".into(),
        title: "Acme".into(),
        summary: "Machines of Acme".into(),
        driver: Driver::Sandbox,
        config_schema: json!({
            "$schema": DIALECT,
            "properties": {
                "api": { "format": "endpoint" },
                "key": { "format": "secret" },
                "image": { "type": "string" },
            },
        }),
        image: None,
        request: Request {
            origins: vec!["https://*.acme.dev:443".into()],
            ssh: false,
            streams: false,
            limits: Limits {
                memory_mib: 64,
                cpu: 1000,
                exchanges: 10,
                body_mib: 8,
            },
        },
        credentials: vec![Credential {
            pointer: "/key".into(),
            sites: vec![Site::Header("authorization".into(), "Bearer {}".into())],
            to: vec!["/api".into()],
        }],
        mints: vec![],
        operations: vec![Operation {
            endpoint: "/api".into(),
            method: "POST".into(),
            path: "/v1/boxes".into(),
            role: Role::Create(Creation {
                id: "/id".into(),
                labels: Some("/labels".into()),
            }),
        }],
        checks: vec![Check {
            claim: Claim::Owned,
            endpoint: "/api".into(),
            path: "/v1/boxes/{resource}?full=1".into(),
            credential: Some("/key".into()),
            expect: vec![
                Expectation::Status(200),
                Expectation::OwnerLabel("/labels".into()),
            ],
            apart: 0,
        }],
        features: Features {
            stdin: true,
            ..Features::default()
        },
        acquire_timeout: 60_000,
    }
}

fn attach(method: &str) -> Operation {
    Operation {
        endpoint: "/api".into(),
        method: method.into(),
        path: "/v1/boxes/{resource}/attach".into(),
        role: Role::Act,
    }
}

fn wrong(change: impl FnOnce(&mut Manifest)) -> Vec<String> {
    let mut manifest = sound();
    change(&mut manifest);
    let capabilities = Capabilities {
        execution: true,
        ..Capabilities::default()
    };
    violations(&manifest, capabilities, &Ceilings::default())
        .into_iter()
        .map(|v| v.pointer)
        .collect()
}

#[test]
fn a_sound_manifest_has_no_violation() {
    assert_eq!(wrong(|_| {}), Vec::<String>::new());
}

#[test]
fn a_get_that_opens_a_stream_is_an_operation_that_acts() {
    let none: Vec<String> = Vec::new();
    let granted = wrong(|m| {
        m.request.streams = true;
        m.operations.push(attach("GET"));
    });
    assert_eq!(granted, none);
}

#[test]
fn registry_credentials_are_of_a_field_of_format_registry() {
    let none: Vec<String> = Vec::new();
    let registry = wrong(|m| {
        m.config_schema["properties"]["registry"] = json!({ "format": "registry" });
        m.credentials.push(Credential {
            pointer: "/registry".into(),
            sites: vec![Site::RegistryAuth],
            to: vec!["/api".into()],
        });
    });
    assert_eq!(registry, none);
}

#[test]
fn every_rule_flips_the_verdict_and_names_its_field() {
    type Change = Box<dyn FnOnce(&mut Manifest)>;
    let cases: Vec<(&str, Change)> = vec![
        ("/key", Box::new(|m| m.key = "Acme".into())),
        ("/key", Box::new(|m| m.key = "-a".into())),
        ("/key", Box::new(|m| m.key = String::new())),
        ("/version", Box::new(|m| m.version = "1.2".into())),
        ("/title", Box::new(|m| m.title = String::new())),
        ("/title", Box::new(|m| m.title = "x".repeat(81))),
        ("/summary", Box::new(|m| m.summary = "a\u{1b}[31m".into())),
        ("/acquire-timeout", Box::new(|m| m.acquire_timeout = 0)),
        (
            "/config-schema/properties/x/$ref",
            Box::new(|m| m.config_schema["properties"]["x"] = json!({ "$ref": "http://e/x" })),
        ),
        (
            "/config-schema/oneOf/0/properties/x/format",
            Box::new(|m| {
                m.config_schema["oneOf"] =
                    json!([{ "properties": { "x": { "format": "secret" } } }]);
            }),
        ),
        (
            "/operations/0/path",
            Box::new(|m| m.operations[0].path = "/v1/%62oxes".into()),
        ),
        (
            "/operations/0/path",
            Box::new(|m| m.operations[0].path = "/v1/boxes;v=1".into()),
        ),
        (
            "/checks/0/path",
            Box::new(|m| m.checks[0].path = "/v1/%62oxes/{resource}".into()),
        ),
        (
            "/config-schema/properties/key/format",
            Box::new(|m| m.config_schema["properties"]["key"] = json!({ "format": "secert" })),
        ),
        (
            "/config-schema",
            Box::new(|m| m.config_schema["properties"]["image"] = json!({ "type": "sting" })),
        ),
        ("/checks/0/apart", Box::new(|m| m.checks[0].apart = 1000)),
        (
            "/mints/0/sites/0",
            Box::new(|m| {
                m.mints.push(Mint {
                    endpoint: "/api".into(),
                    method: "POST".into(),
                    path: "/v1/tokens".into(),
                    pointers: vec!["/token".into()],
                    sites: vec![Site::RegistryAuth],
                    to: vec!["/api".into()],
                });
            }),
        ),
        (
            "/config-schema/$schema",
            Box::new(|m| {
                m.config_schema["$schema"] = json!("http://json-schema.org/draft-07/schema#")
            }),
        ),
        (
            "/request/limits/memory-mib",
            Box::new(|m| m.request.limits.memory_mib = 4096),
        ),
        (
            "/request/limits/cpu",
            Box::new(|m| m.request.limits.cpu = 0),
        ),
        (
            "/request/origins/0",
            Box::new(|m| m.request.origins[0] = "https://acme.dev".into()),
        ),
        (
            "/request/origins/0",
            Box::new(|m| m.request.origins[0] = "ftp://acme.dev:21".into()),
        ),
        (
            "/request/origins/0",
            Box::new(|m| m.request.origins[0] = "https://a*.dev:443".into()),
        ),
        (
            "/request/origins/0",
            Box::new(|m| m.request.origins[0] = "https://u@a.dev:443".into()),
        ),
        (
            "/credentials/0/pointer",
            Box::new(|m| m.credentials[0].pointer = "/image".into()),
        ),
        (
            "/credentials/0/pointer",
            Box::new(|m| m.credentials[0].pointer = "key".into()),
        ),
        (
            "/credentials/0/to/0",
            Box::new(|m| m.credentials[0].to[0] = "/nowhere".into()),
        ),
        (
            "/credentials/0/to",
            Box::new(|m| m.credentials[0].to.clear()),
        ),
        (
            "/credentials/0/sites",
            Box::new(|m| m.credentials[0].sites.clear()),
        ),
        (
            "/credentials/0/sites/0",
            Box::new(|m| m.credentials[0].sites[0] = Site::Header("host".into(), "{}".into())),
        ),
        (
            "/credentials/0/sites/0",
            Box::new(|m| m.credentials[0].sites[0] = Site::Header("x-key".into(), "none".into())),
        ),
        (
            "/credentials/1/pointer",
            Box::new(|m| m.credentials.push(m.credentials[0].clone())),
        ),
        (
            "/operations/0/method",
            Box::new(|m| m.operations[0].method = "GET".into()),
        ),
        (
            "/operations/0/method",
            Box::new(|m| m.operations[0].method = "post".into()),
        ),
        (
            "/operations/0/path",
            Box::new(|m| m.operations[0].path = "/v1?x=1".into()),
        ),
        (
            "/operations/0/path",
            Box::new(|m| m.operations[0].path = "/v1/x{resource}".into()),
        ),
        (
            "/operations/0/method",
            Box::new(|m| {
                m.request.streams = true;
                m.operations[0].method = "GET".into();
            }),
        ),
        (
            "/operations/0/method",
            Box::new(|m| {
                m.operations[0] = attach("GET");
            }),
        ),
        (
            "/operations/0/method",
            Box::new(|m| {
                m.request.streams = true;
                m.operations[0] = attach("HEAD");
            }),
        ),
        (
            "/operations/0/path",
            Box::new(|m| m.operations[0].path = "/v1//x".into()),
        ),
        (
            "/operations/0/path",
            Box::new(|m| m.operations[0].path = "/v1/%2e".into()),
        ),
        (
            "/operations/0/path",
            Box::new(|m| m.operations[0].path = "/v1/x;y".into()),
        ),
        (
            "/credentials/0/pointer",
            Box::new(|m| m.credentials[0].sites = vec![Site::RegistryAuth]),
        ),
        (
            "/credentials/0/sites",
            Box::new(|m| m.credentials[0].sites.push(Site::RegistryAuth)),
        ),
        (
            "/operations/0/path",
            Box::new(|m| m.operations[0].path = "/v1/../x".into()),
        ),
        (
            "/operations/0/path",
            Box::new(|m| m.operations[0].role = Role::Act),
        ),
        (
            "/operations",
            Box::new(|m| m.operations.push(m.operations[0].clone())),
        ),
        (
            "/checks/0/expect",
            Box::new(|m| m.checks[0].expect = vec![Expectation::Status(200)]),
        ),
        (
            "/checks/0/credential",
            Box::new(|m| m.checks[0].credential = Some("/api".into())),
        ),
        (
            "/checks/0/path",
            Box::new(|m| m.checks[0].path = "/v1?{resource}=1".into()),
        ),
        (
            "/checks/0/path",
            Box::new(|m| m.checks[0].path = "/v1/{path}".into()),
        ),
        (
            "/image/field",
            Box::new(|m| {
                m.image = Some(leasehold_contract::ImageBinding {
                    kind: leasehold_contract::ImageKind::OciImage,
                    field: "/nowhere".into(),
                    excludes: vec![],
                    identity_fields: vec![],
                });
            }),
        ),
    ];
    for (n, (pointer, change)) in cases.into_iter().enumerate() {
        let found = wrong(change);
        assert!(
            found.iter().any(|f| f == pointer),
            "case {n}: {pointer} not in {found:?}"
        );
    }
}

#[test]
fn a_feature_of_commands_needs_the_export() {
    let found = violations(&sound(), Capabilities::default(), &Ceilings::default());
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].pointer, "/features");
}

#[test]
fn a_check_that_would_not_be_made_as_it_says_is_refused() {
    let gone = |apart: u32| Check {
        claim: Claim::Gone,
        endpoint: "/api".into(),
        path: "/v1/boxes/{resource}".into(),
        credential: None,
        expect: vec![Expectation::Status(404)],
        apart,
    };
    assert_eq!(wrong(|m| m.checks.push(gone(60_000))), Vec::<String>::new());
    assert_eq!(wrong(|m| m.checks.push(gone(60_001))), ["/checks/1/apart"]);
    assert_eq!(wrong(|m| m.checks = vec![gone(0)]), ["/checks/0/claim"]);
    let no_header = |m: &mut Manifest| m.credentials[0].sites = vec![Site::RegistryAuth];
    assert!(wrong(no_header).contains(&"/checks/0/credential".to_owned()));
}

#[test]
fn every_violation_is_told_at_once() {
    let found = wrong(|m| {
        m.key = String::new();
        m.version = "x".into();
        m.title = String::new();
    });
    assert_eq!(found, ["/key", "/version", "/title"]);
}

//! Tests of the comparison of two requests.

use leasehold_contract::{
    Claim, Creation, Driver, Expectation, Features, ImageKind, Limits, Request, Role, Site,
};
use serde_json::json;

use super::*;

fn manifest() -> Manifest {
    Manifest {
        key: "acme".into(),
        version: "1.0.0".into(),
        title: "Acme".into(),
        summary: String::new(),
        driver: Driver::Sandbox,
        config_schema: json!({ "properties": {
            "api": { "format": "endpoint" },
            "key": { "format": "secret" },
            "image": { "type": "string" },
            "where": { "type": "string" },
        }}),
        image: Some(ImageBinding {
            kind: ImageKind::OciImage,
            field: "/image".into(),
            excludes: vec![],
            identity_fields: vec![],
        }),
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
        mints: vec![Mint {
            endpoint: "/api".into(),
            method: "POST".into(),
            path: "/token".into(),
            pointers: vec!["/token".into()],
            sites: vec![Site::RegistryAuth],
            to: vec!["/api".into()],
        }],
        operations: vec![
            Operation {
                endpoint: "/api".into(),
                method: "POST".into(),
                path: "/boxes".into(),
                role: Role::Create(Creation {
                    id: "/id".into(),
                    labels: None,
                }),
            },
            Operation {
                endpoint: "/api".into(),
                method: "DELETE".into(),
                path: "/boxes/{resource}".into(),
                role: Role::Act,
            },
        ],
        checks: vec![Check {
            claim: Claim::Owned,
            endpoint: "/api".into(),
            path: "/boxes/{resource}".into(),
            credential: None,
            expect: vec![Expectation::OwnerLabel("/labels".into())],
            apart: 0,
        }],
        features: Features {
            exclusive_target: true,
            ..Features::default()
        },
        acquire_timeout: 1000,
    }
}

fn current() -> Revision {
    Revision {
        digest: "a".repeat(64),
        key: "acme".into(),
        number: 1,
        version: "1.0.0".into(),
        driver: Driver::Sandbox,
        manifest: manifest(),
        capabilities: vec!["execution".into()],
        size: 1,
        grant: None,
        source: crate::plugin::Source::default(),
        installed_at: 0,
        removed_at: None,
    }
}

fn told(change: impl FnOnce(&mut Manifest)) -> Vec<String> {
    let mut new = manifest();
    change(&mut new);
    wider(&current(), &new, &["execution".into()])
}

#[test]
fn the_same_request_and_a_narrower_one_need_no_new_grant() {
    type Change = fn(&mut Manifest);
    let changes: [(&str, Change); 8] = [
        ("nothing", |_| {}),
        ("words", |m| {
            m.version = "2.0.0".into();
            m.title = "Other".into();
            m.acquire_timeout = 9;
        }),
        ("no origin", |m| m.request.origins.clear()),
        ("an origin below", |m| {
            m.request.origins = vec!["https://eu.acme.dev:443".into()];
        }),
        ("less memory", |m| m.request.limits.memory_mib = 8),
        ("another order", |m| m.operations.reverse()),
        ("a plain field", |m| {
            m.config_schema["properties"]["size"] = json!({ "type": "integer" });
        }),
        ("a schema that says the same otherwise", |m| {
            m.config_schema = json!({
                "allOf": [{ "properties": { "api": { "$ref": "#/$defs/e" }, "image": {} } }],
                "properties": { "key": { "format": "secret", "title": "Key" }, "where": {} },
                "$defs": { "e": { "format": "endpoint" } },
            });
        }),
    ];
    for (what, change) in changes {
        assert_eq!(told(change), Vec::<String>::new(), "{what}");
    }
    assert!(wider(&current(), &manifest(), &[]).is_empty(), "no export");
}

#[test]
fn every_kind_of_wider_request_is_told_in_words() {
    type Change = fn(&mut Manifest);
    let changes: [(&str, Change); 27] = [
        ("https://acme.dev:443", |m| {
            m.request.origins.push("https://acme.dev:443".into());
        }),
        ("SSH", |m| m.request.ssh = true),
        ("streams", |m| m.request.streams = true),
        ("65 MiB of memory", |m| m.request.limits.memory_mib = 65),
        ("1001 ms of CPU", |m| m.request.limits.cpu = 1001),
        ("11 requests", |m| m.request.limits.exchanges = 11),
        ("9 MiB of a buffered body", |m| {
            m.request.limits.body_mib = 9
        }),
        ("plugin environments", |m| m.driver = Driver::Plugin),
        ("share an account", |m| m.features.exclusive_target = false),
        (
            "adds: the credential in /key toward /api, as header x-key: {}",
            |m| {
                m.credentials[0].sites = vec![Site::Header("x-key".into(), "{}".into())];
            },
        ),
        ("toward /api and /where", |m| {
            m.credentials[0].to.push("/where".into());
        }),
        ("takes away: the credential in /key", |m| {
            m.credentials.clear()
        }),
        ("answers in /token and /other", |m| {
            m.mints[0].pointers.push("/other".into());
        }),
        ("takes away: credentials that POST /token", |m| {
            m.mints.clear()
        }),
        ("adds: the operation PUT /boxes/{resource}", |m| {
            m.operations[1].method = "PUT".into();
        }),
        ("id in /other", |m| {
            m.operations[0].role = Role::Create(Creation {
                id: "/other".into(),
                labels: None,
            });
        }),
        ("takes away: the operation DELETE", |m| {
            m.operations.pop();
        }),
        ("no lease owns", |m| m.operations[1].role = Role::Shared),
        ("takes away: the check of `owned`", |m| m.checks.clear()),
        ("the owner label in /elsewhere", |m| {
            m.checks[0].expect = vec![Expectation::OwnerLabel("/elsewhere".into())];
        }),
        ("adds: the check of `owned` by GET /boxes/{resource}", |m| {
            m.checks[0].apart = 5;
        }),
        ("by /where, which was by /image", |m| {
            if let Some(image) = &mut m.image {
                image.field = "/where".into();
            }
        }),
        ("no image", |m| m.image = None),
        ("the field /where of format endpoint", |m| {
            m.config_schema["properties"]["where"]["format"] = json!("endpoint");
        }),
        ("the field /where of format ssh-target", |m| {
            m.config_schema["properties"]["where"]["format"] = json!("ssh-target");
        }),
        ("makes the field /key endpoint; it was secret", |m| {
            m.config_schema["properties"]["key"]["format"] = json!("endpoint");
        }),
        ("no longer has the field /api", |m| {
            m.config_schema["properties"]["api"] = json!({ "type": "string" });
        }),
    ];
    for (what, change) in changes {
        let said = told(change).join("\n");
        assert!(said.contains(what), "{what}: {said:?}");
    }
    let more = ["execution".to_owned(), "files".to_owned()];
    let said = wider(&current(), &manifest(), &more);
    assert_eq!(said.len(), 1, "{said:?}");
    assert!(said[0].contains("exports files"), "{said:?}");
}

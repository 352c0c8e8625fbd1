//! What installing a component grants, in sentences that a person can weigh, and the digest that names them.
//!
//! Pure: from a manifest to text. Nothing that a component asks for may be missing here; a new kind of request needs
//! a sentence before it can be granted.

use leasehold_authority::Source;
use leasehold_contract::{Check, Claim, FieldViolation, Grant, Manifest, Operation, Part, Role};
use leasehold_runtime::Prepared;
use sha2::{Digest, Sha256};

use super::engines;
use super::error::ServiceError;
use super::model::PluginOffer;

/// What a component is and asks for, compared with nothing.
pub(crate) fn of(prepared: Prepared, size: u64, source: Source) -> PluginOffer {
    let digest = prepared.digest_hex();
    let capabilities: Vec<String> = prepared
        .capabilities
        .names()
        .into_iter()
        .map(str::to_owned)
        .collect();
    let asks = asks(&prepared.manifest, &capabilities);
    PluginOffer {
        request_digest: request_digest(&digest, &asks),
        digest,
        size,
        source,
        parts: parts(&Grant::asked(&prepared.manifest)),
        manifest: prepared.manifest.as_ref().clone(),
        capabilities,
        imports: prepared.imports,
        exports: prepared.exports,
        asks,
        installed: false,
        wider: None,
    }
}

/// The parts that are in a grant.
pub(crate) fn parts(grant: &Grant) -> Vec<Part> {
    Part::ALL
        .into_iter()
        .filter(|part| grant.has(*part))
        .collect()
}

/// The parts of a list as it is written: `ssh,streams`.
///
/// # Errors
/// One that is no part, by its field.
pub(crate) fn read_parts(list: &[String]) -> Result<Vec<Part>, ServiceError> {
    list.iter()
        .map(|text| {
            text.parse().map_err(|message| ServiceError::Invalid {
                violations: vec![FieldViolation {
                    pointer: "/without".to_owned(),
                    message: format!("{:?} {message}", text.chars().take(40).collect::<String>()),
                }],
            })
        })
        .collect()
}

/// The sentences, in a fixed order.
pub fn asks(manifest: &Manifest, capabilities: &[String]) -> Vec<String> {
    let mut asks = Vec::new();
    if manifest.request.ssh {
        asks.push(
            "run scripts over SSH on the machines that an environment of it names, as the accounts named there; what they do there is trust"
                .to_owned(),
        );
    }
    if manifest.request.streams {
        asks.push("open byte streams to the endpoints that an environment of it names".to_owned());
    }
    asks.extend(engines::asks(manifest));
    for origin in &manifest.request.origins {
        asks.push(format!("send requests without any credential to {origin}"));
    }
    for credential in &manifest.credentials {
        asks.push(format!("use {}", credential.in_words()));
    }
    for operation in &manifest.operations {
        let what = match &operation.role {
            Role::Create(_) => "make an environment",
            Role::CreateChild(_) => "make something that belongs to an environment",
            Role::Act => "act on what it made",
            Role::Read => "read",
            Role::Shared => "change something that no lease owns",
        };
        asks.push(format!("{what} by {}", operation.in_words()));
    }
    for mint in &manifest.mints {
        asks.push(format!("keep, for the lease's life, {}", mint.in_words()));
    }
    for check in &manifest.checks {
        asks.push(format!("be proven by {}", check.in_words()));
    }
    if capabilities.iter().any(|c| c == "execution") {
        asks.push(
            "start commands in its leases; whoever runs code there, this provider included, can read the variables and the input that a command is given"
                .to_owned(),
        );
    }
    if capabilities.iter().any(|c| c == "files") {
        asks.push("move files into and out of its leases".to_owned());
    }
    let limits = manifest.request.limits;
    asks.push(format!(
        "use up to {} MiB of memory, {} ms of CPU time, {} requests and buffered bodies of {} MiB in one call",
        limits.memory_mib, limits.cpu, limits.exchanges, limits.body_mib
    ));
    if manifest.request.ssh && !manifest.features.exclusive_target {
        asks.push("lease one account of a machine to several at a time".to_owned());
    }
    let owned = |check: &Check| check.claim == Claim::Owned;
    let creates = |operation: &Operation| matches!(operation.role, Role::Create(_));
    // What is made over SSH is the host's own workspace, which it finds itself.
    let by_host = manifest.request.ssh && !manifest.operations.iter().any(creates);
    if !by_host && !manifest.checks.iter().any(owned) {
        asks.push(
            "be believed about what it makes with a backend: it declares no check of `owned`, so such leases are claimed, \
             never proven"
                .to_owned(),
        );
    }
    asks
}

/// Names one offer: the component's digest and everything that the sentences were made from.
pub fn request_digest(digest: &str, asks: &[String]) -> String {
    let mut hash = Sha256::new();
    hash.update(digest.as_bytes());
    for ask in asks {
        hash.update([0]);
        hash.update(ask.as_bytes());
    }
    hash.finalize()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

#[cfg(test)]
mod tests {
    use leasehold_contract::{
        Creation, Credential, Driver, Expectation, Features, Limits, Mint, Request, Site,
    };
    use serde_json::json;

    use super::*;

    fn manifest() -> Manifest {
        let header = || vec![Site::Header("authorization".into(), "Bearer {}".into())];
        Manifest {
            key: "acme".into(),
            version: "1.0.0".into(),
            title: "Acme".into(),
            summary: String::new(),
            driver: Driver::Sandbox,
            config_schema: json!({}),
            image: None,
            request: Request {
                origins: vec!["https://acme.example".into()],
                ssh: true,
                streams: true,
                limits: Limits {
                    memory_mib: 1,
                    cpu: 1,
                    exchanges: 1,
                    body_mib: 1,
                },
            },
            credentials: vec![Credential {
                pointer: "/key".into(),
                sites: header(),
                to: vec!["/api".into()],
            }],
            mints: vec![Mint {
                endpoint: "/api".into(),
                method: "POST".into(),
                path: "/sessions".into(),
                pointers: vec!["/key".into()],
                sites: header(),
                to: vec!["/api".into()],
            }],
            operations: vec![Operation {
                endpoint: "/api".into(),
                method: "POST".into(),
                path: "/boxes".into(),
                role: Role::Create(Creation {
                    id: "/id".into(),
                    labels: None,
                }),
            }],
            checks: vec![Check {
                claim: Claim::Owned,
                endpoint: "/api".into(),
                path: "/boxes/{resource}".into(),
                credential: Some("/key".into()),
                expect: vec![Expectation::OwnerLabel("/labels".into())],
                apart: 0,
            }],
            features: Features::default(),
            acquire_timeout: 1,
        }
    }

    #[test]
    fn whatever_of_a_request_changes_is_read_in_the_sentences() {
        let said = |change: fn(&mut Manifest)| {
            let mut manifest = manifest();
            change(&mut manifest);
            asks(&manifest, &[])
        };
        let all = [
            said(|_| {}),
            said(|m| m.request.ssh = false),
            said(|m| m.request.streams = false),
            said(|m| m.request.origins.clear()),
            said(|m| m.request.limits.memory_mib = 2),
            said(|m| m.request.limits.cpu = 2),
            said(|m| m.request.limits.exchanges = 2),
            said(|m| m.request.limits.body_mib = 2),
            said(|m| m.credentials[0].to.push("/other".into())),
            said(|m| m.mints[0].pointers.push("/other".into())),
            said(|m| m.operations[0].path = "/machines".into()),
            said(|m| m.checks[0].path = "/machines/{resource}".into()),
            said(|m| m.checks[0].claim = Claim::Gone),
            said(|m| m.checks.clear()),
            said(|m| m.features.exclusive_target = true),
        ];
        for (n, one) in all.iter().enumerate() {
            assert!(!all[..n].contains(one), "{one:#?}");
        }
        let claimed = |m: &Manifest| asks(m, &[]).iter().any(|ask| ask.contains("claimed"));
        assert!(!claimed(&manifest()));
        let mut gone = manifest();
        gone.checks[0].claim = Claim::Gone;
        assert!(claimed(&gone), "who is never found to own it is believed");
    }
}

//! What installing a component grants, in sentences that a person can weigh, and the digest that names them.
//!
//! Pure: from a manifest to text. Nothing that a component asks for may be missing here; a new kind of request needs
//! a sentence before it can be granted.

use leasehold_authority::Source;
use leasehold_contract::{FieldViolation, Grant, Manifest, Part, Role, Site};
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
        let sites: Vec<String> = credential.sites.iter().map(site).collect();
        asks.push(format!(
            "use the credential in {} toward {}, as {}",
            credential.pointer,
            credential.to.join(" and "),
            sites.join(" or ")
        ));
    }
    for operation in &manifest.operations {
        let what = match &operation.role {
            Role::Create(_) => "make an environment",
            Role::CreateChild(_) => "make something that belongs to an environment",
            Role::Act => "act on what it made",
            Role::Read => "read",
            Role::Shared => "change something that no lease owns",
        };
        asks.push(format!(
            "{what} by {} {} at {}",
            operation.method, operation.path, operation.endpoint
        ));
    }
    for mint in &manifest.mints {
        asks.push(format!(
            "keep credentials that {} {} at {} answers, for the lease's life",
            mint.method, mint.path, mint.endpoint
        ));
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
        "use up to {} MiB of memory and {} ms of CPU time in one call",
        limits.memory_mib, limits.cpu
    ));
    if manifest.checks.is_empty() && !manifest.request.ssh {
        asks.push(
            "be believed about what it made: it declares no checks, so its leases are claimed, never proven"
                .to_owned(),
        );
    }
    asks
}

fn site(site: &Site) -> String {
    match site {
        Site::Header(name, template) => format!("header {name}: {template}"),
        Site::Basic(user) => format!("Basic authentication with the user name of {user}"),
        Site::RegistryAuth => "registry authentication".to_owned(),
        Site::SshUsername => "SSH user name".to_owned(),
    }
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

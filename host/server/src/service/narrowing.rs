//! What can be leased now, and what of a provider's declaration is not there: by exports, grant, configuration, health, or what
//! this version of the host does.
//!
//! Each of them can only take away. Asking allocates nothing and calls no component.

use leasehold_authority::Authority;
use leasehold_contract::{Ceiling, Features, Grant, Manifest, Part};
use leasehold_egress::HostRoots;

use super::engines;
use super::error::ServiceError;
use super::loaded::Loaded;
use super::model::{Capabilities, Narrowing, ProviderCapabilities, Withheld};
use super::plugins::Catalog;

fn narrowed(capability: &str, by: &str, reason: impl Into<String>) -> Narrowing {
    Narrowing {
        capability: capability.to_owned(),
        by: by.to_owned(),
        reason: reason.into(),
    }
}

/// What of a request is not in its grant, or above the instance's ceiling.
pub(crate) fn of_grant(
    manifest: &Manifest,
    grant: &Grant,
    ceiling: &Ceiling,
    host_roots: &HostRoots,
) -> Vec<Narrowing> {
    let asked = Grant::asked(manifest);
    let effective = grant.below(ceiling);
    let mut all = Vec::new();
    for part in Part::ALL.into_iter().filter(|part| asked.has(*part)) {
        if !grant.has(part) {
            all.push(narrowed(
                part.as_str(),
                "grant",
                format!(
                    "whoever granted the plugin left {} out of what it asks for",
                    part.as_str()
                ),
            ));
        } else if !effective.has(part) {
            all.push(narrowed(
                part.as_str(),
                "configuration",
                format!(
                    "the server's settings allow it to no provider (plugins.allow-{})",
                    part.as_str()
                ),
            ));
        }
    }
    if let Some(reason) = engines::narrowed(manifest, host_roots) {
        all.push(narrowed("engine-endpoint", "configuration", reason));
    }
    if effective.limits != grant.limits {
        all.push(narrowed(
            "limits",
            "configuration",
            "the server's settings allow less in one call than was granted",
        ));
    }
    all
}

/// Interfaces that a component may export and that this host does not call yet.
const UNUSED: [&str; 6] = [
    "suspension",
    "images",
    "setup",
    "tasks",
    "ports",
    "accounts",
];

/// Each feature by its name in the contract, whether it is declared, and whether it means anything without commands.
fn features_of(features: &Features) -> [(&'static str, bool, bool); 5] {
    [
        ("stdin", features.stdin, true),
        ("tty", features.tty, true),
        ("separate-stderr", features.separate_stderr, true),
        ("signal-group", features.signal_group, true),
        ("exclusive-target", features.exclusive_target, false),
    ]
}

/// What can be leased now, and what is installed and cannot.
pub(crate) async fn capabilities(
    authority: &Authority,
    catalog: &Catalog,
    host_roots: &HostRoots,
) -> Result<Capabilities, ServiceError> {
    let mut providers = Vec::new();
    let mut withheld = Vec::new();
    for installed in authority.plugins().list().await? {
        let loaded = catalog.loaded_current(&installed);
        let (by, reason) = match loaded {
            _ if !installed.enabled => ("grant", "it is disabled: it takes no new leases"),
            _ if installed.current.is_none() => ("grant", "it waits for its grant"),
            Some(loaded) => {
                providers.push(of_provider(&loaded, catalog.ceiling(), host_roots));
                continue;
            }
            None => (
                "health",
                "its component cannot be loaded; the server's log says why",
            ),
        };
        withheld.push(Withheld {
            key: installed.key,
            by: by.to_owned(),
            reason: reason.to_owned(),
        });
    }
    Ok(Capabilities {
        providers,
        withheld,
    })
}

fn of_provider(loaded: &Loaded, ceiling: &Ceiling, host_roots: &HostRoots) -> ProviderCapabilities {
    let manifest = loaded.manifest();
    let exported = loaded.capabilities();
    let mut all = of_grant(manifest, &loaded.granted, ceiling, host_roots);
    let (unused, used): (Vec<&str>, Vec<&str>) = exported
        .names()
        .into_iter()
        .partition(|interface| UNUSED.contains(interface));
    all.extend(unused.into_iter().map(|interface| {
        let why = "this version of the host does not call it yet";
        narrowed(interface, "host", why)
    }));
    let interfaces = used.into_iter().map(str::to_owned).collect();
    let mut features = Vec::new();
    for (feature, declared, needs_execution) in features_of(&manifest.features) {
        if !declared {
            continue;
        }
        if needs_execution && !exported.execution {
            all.push(narrowed(
                feature,
                "exports",
                "the component does not export `execution`",
            ));
        } else {
            features.push(feature.to_owned());
        }
    }
    let health = loaded.health();
    if health.tripped {
        all.push(narrowed(
            "leases",
            "health",
            format!(
                "no new leases for now: {}",
                health
                    .reason
                    .as_deref()
                    .unwrap_or("it failed again and again")
            ),
        ));
    }
    ProviderCapabilities {
        key: manifest.key.clone(),
        version: manifest.version.clone(),
        driver: manifest.driver.as_str().to_owned(),
        title: manifest.title.clone(),
        summary: manifest.summary.clone(),
        digest: loaded.digest_hex(),
        interfaces,
        features,
        narrowed: all,
        config_schema: manifest.config_schema.clone(),
    }
}

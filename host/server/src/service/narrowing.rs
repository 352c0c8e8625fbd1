//! What can be leased now, and what of a provider's declaration is not there: by exports, grant, configuration, health, or what
//! this version of the host does.
//!
//! Each of them can only take away. Asking allocates nothing and calls no component.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use leasehold_authority::{
    Authority, Environment, EnvironmentDriver, EnvironmentFilter, EnvironmentStatus, Plugin,
};
use leasehold_contract::{Ceiling, Driver, Grant, Manifest, Part, Role};
use leasehold_egress::HostRoots;
use serde_json::Value;

use super::capability::{
    Bound, Capability, Effective, FEATURES, INTERFACES, OF_COMMANDS, SERVED, Set, Term,
};
use super::engines;
use super::error::ServiceError;
use super::loaded::Loaded;
use super::model::{
    Capabilities, EnvironmentCapabilities, Narrowing, ProviderCapabilities, Withheld,
};
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

/// The interfaces that a component exports.
fn exported(loaded: &Loaded) -> Set {
    loaded
        .capabilities()
        .names()
        .into_iter()
        .filter_map(Capability::parse)
        .collect()
}

/// The features that a provider declares.
fn declared(manifest: &Manifest) -> Set {
    let features = &manifest.features;
    [
        (features.stdin, Capability::Stdin),
        (features.tty, Capability::Tty),
        (features.separate_stderr, Capability::SeparateStderr),
        (features.attach, Capability::Attach),
        (features.signal_group, Capability::SignalGroup),
        (features.exclusive_target, Capability::ExclusiveTarget),
        (features.reuse, Capability::Reuse),
    ]
    .into_iter()
    .filter_map(|(declared, feature)| declared.then_some(feature))
    .collect()
}

/// What cannot be without a part of a grant: the lease, where machines are reached by SSH alone or the backend cannot be
/// asked to make anything; commands, where they run over streams. Of other parts the contract does not say what needs
/// them.
fn needs(manifest: &Manifest, part: Part) -> Set {
    let creates = || {
        let mut roles = manifest.operations.iter().map(|operation| &operation.role);
        roles.any(|role| matches!(role, Role::Create(_)))
    };
    match part {
        Part::Ssh if manifest.driver == Driver::Ssh => Set::EMPTY.with(Capability::Lifecycle),
        Part::Operations if creates() => Set::EMPTY.with(Capability::Lifecycle),
        Part::Streams => Set::EMPTY.with(Capability::Execution),
        _ => Set::EMPTY,
    }
}

/// What a provider comes to, before and after what takes all of it: what its environment's own row says is told first.
#[derive(Clone, Debug)]
struct Standing {
    driver: Option<Driver>,
    before: Effective,
    /// What takes everything, where something does.
    last: Option<Bound>,
    whole: Effective,
}

impl Standing {
    /// One of which nothing can be leased.
    fn nothing(by: Term, reason: impl Into<Arc<str>>) -> Standing {
        let last = Bound::nothing(by, reason);
        Standing {
            driver: None,
            before: Effective::of([]),
            whole: Effective::of([&last]),
            last: Some(last),
        }
    }

    fn of(loaded: &Loaded, ceiling: &Ceiling) -> Standing {
        let manifest = loaded.manifest();
        let lifecycle = Set::EMPTY.with(Capability::Lifecycle);
        let exports = lifecycle.or(exported(loaded)).or(FEATURES);
        let features = lifecycle.or(INTERFACES).or(declared(manifest));
        let mut bounds = vec![
            Bound {
                by: Term::Exports,
                leaves: exports,
                reason: "the component does not export what it needs".into(),
            },
            Bound {
                by: Term::Features,
                leaves: features,
                reason: "the provider does not declare it".into(),
            },
            Bound {
                by: Term::Host,
                leaves: SERVED,
                reason: "this version of the host does not call it yet".into(),
            },
        ];
        let asked = Grant::asked(manifest);
        let effective = loaded.granted.below(ceiling);
        for part in Part::ALL.into_iter().filter(|part| asked.has(*part)) {
            let needs = needs(manifest, part);
            let name = part.as_str();
            if !loaded.granted.has(part) {
                let why = format!("it needs {name}, which whoever granted the plugin left out");
                bounds.push(Bound::without(Term::Grant, needs, why));
            } else if !effective.has(part) {
                let why = format!(
                    "it needs {name}, which the server's settings allow to no provider (plugins.allow-{name})"
                );
                bounds.push(Bound::without(Term::Configuration, needs, why));
            }
        }
        let health = loaded.health();
        // One whose time to be left alone is over may be tried: how else would it be seen to work again?
        let health = loaded.works().is_err().then(|| {
            let reason = health.reason.as_deref();
            let reason = reason.unwrap_or("it failed again and again");
            Bound::nothing(
                Term::Health,
                format!("its provider takes no new leases for now: {reason}"),
            )
        });
        let before = Effective::of(&bounds);
        Standing {
            driver: Some(manifest.driver),
            whole: health
                .iter()
                .fold(before.clone(), |all, bound| all.narrowed(bound)),
            before,
            last: health,
        }
    }

    /// What one environment of it comes to: its own row can only take away.
    fn with(&self, environment: &Environment, closed: bool) -> Cow<'_, Effective> {
        let mut bounds = of_row(environment, self.driver);
        if closed {
            let why = "a secret of it is another company's";
            bounds.push(Bound::nothing(Term::Configuration, why));
        }
        if bounds.is_empty() {
            return Cow::Borrowed(&self.whole);
        }
        Cow::Owned(
            bounds
                .iter()
                .chain(&self.last)
                .fold(self.before.clone(), |all, bound| all.narrowed(bound)),
        )
    }
}

/// What keeps everybody from leasing anything of a component by what it is and what it was granted, whatever its health.
pub(crate) fn unleasable(loaded: &Loaded, ceiling: &Ceiling) -> Option<(Term, Arc<str>)> {
    let standing = Standing::of(loaded, ceiling);
    let taken = standing.before.taken(Capability::Lifecycle)?;
    Some((taken.by, Arc::clone(&taken.reason)))
}

/// What an environment's own row takes.
fn of_row(environment: &Environment, driver: Option<Driver>) -> Vec<Bound> {
    let mut bounds = Vec::new();
    let configuration = |reason: &str| Bound::nothing(Term::Configuration, reason);
    if environment.driver == EnvironmentDriver::Local {
        bounds.push(configuration(
            "it is the server's own machine, which nobody leases",
        ));
    }
    if environment.status != EnvironmentStatus::Active {
        bounds.push(configuration("it is archived"));
    }
    if let Some(driver) = driver
        && driver.as_str() != environment.driver.as_str()
    {
        bounds.push(configuration(
            "its provider leases environments of another driver by now",
        ));
    }
    let shared = environment.config.get("allowSharedAccount");
    if shared.and_then(Value::as_bool) == Some(true) {
        let alone = Set::EMPTY.with(Capability::ExclusiveTarget);
        let why = "it allows others on the same account (allowSharedAccount)";
        bounds.push(Bound::without(Term::Configuration, alone, why));
    }
    bounds
}

/// What every provider comes to, for one company.
#[derive(Clone, Debug)]
pub(crate) struct Standings {
    by_key: HashMap<String, Standing>,
    /// One that is not installed.
    of_none: Standing,
    /// Shared environments that use another company's secret.
    closed: HashSet<String>,
}

/// What every provider comes to.
pub(crate) async fn standings(
    authority: &Authority,
    catalog: &Catalog,
    company: &str,
) -> Result<Standings, ServiceError> {
    let installed = authority.plugins().list().await?;
    let by_key = installed
        .into_iter()
        .map(|installed| {
            let standing = match (catalog.loaded_current(&installed), withheld_by(&installed)) {
                (_, Some((by, reason))) => Standing::nothing(by, format!("its provider: {reason}")),
                (Some(loaded), None) => Standing::of(&loaded, catalog.ceiling()),
                (None, None) => {
                    Standing::nothing(Term::Health, format!("its provider: {UNLOADED}"))
                }
            };
            (installed.key, standing)
        })
        .collect();
    let why = "no plugin of its provider's key is installed";
    Ok(Standings {
        by_key,
        of_none: Standing::nothing(Term::Exports, why),
        closed: authority.secrets().closed_to(company).await?,
    })
}

/// What one environment comes to, by the standing of its provider.
pub(crate) fn effective<'a>(
    standings: &'a Standings,
    environment: &Environment,
) -> Cow<'a, Effective> {
    standings
        .by_key
        .get(&environment.provider)
        .unwrap_or(&standings.of_none)
        .with(environment, standings.closed.contains(&environment.id))
}

/// Of a provider that failed again and again.
pub(crate) const LEFT_ALONE: &str = "it failed again and again, and is left alone for a while";
/// Of one whose component is not there.
pub(crate) const UNLOADED: &str = "its component cannot be loaded; the server's log says why";

/// Why nobody may lease of it, whatever it is.
fn withheld_by(installed: &Plugin) -> Option<(Term, &'static str)> {
    if !installed.enabled {
        Some((Term::Grant, "it is disabled: it takes no new leases"))
    } else if installed.current.is_none() {
        Some((Term::Grant, "it waits for its grant"))
    } else {
        None
    }
}

/// What can be leased now, and what is installed and cannot.
pub(crate) async fn capabilities(
    authority: &Authority,
    catalog: &Catalog,
    host_roots: &HostRoots,
    company: &str,
) -> Result<Capabilities, ServiceError> {
    let mut providers = Vec::new();
    let mut withheld = Vec::new();
    for installed in authority.plugins().list().await? {
        let (by, reason) = match (withheld_by(&installed), catalog.loaded_current(&installed)) {
            (Some((by, reason)), _) => (by, reason.to_owned()),
            (None, Some(loaded)) if loaded.works().is_err() => {
                (Term::Health, LEFT_ALONE.to_owned())
            }
            (None, Some(loaded)) => {
                if let Some((by, reason)) = loaded.unleasable(catalog.ceiling()) {
                    withheld.push(Withheld {
                        key: installed.key,
                        by: by.as_str().to_owned(),
                        reason: reason.to_string(),
                    });
                    continue;
                }
                providers.push(of_provider(&loaded, catalog.ceiling(), host_roots));
                continue;
            }
            (None, None) => (Term::Health, UNLOADED.to_owned()),
        };
        withheld.push(Withheld {
            key: installed.key,
            by: by.as_str().to_owned(),
            reason,
        });
    }
    let standings = standings(authority, catalog, company).await?;
    let all = authority.environments();
    let all = all.list(company, &EnvironmentFilter::default()).await?;
    let environments = all.iter().map(|environment| EnvironmentCapabilities {
        id: environment.id.clone(),
        name: environment.name.clone(),
        assignable: environment.status == EnvironmentStatus::Active
            && environment.driver != EnvironmentDriver::Local,
        effective: effective(&standings, environment).into_owned(),
    });
    Ok(Capabilities {
        providers,
        withheld,
        environments: environments.collect(),
    })
}

fn of_provider(loaded: &Loaded, ceiling: &Ceiling, host_roots: &HostRoots) -> ProviderCapabilities {
    let manifest = loaded.manifest();
    let mut all = of_grant(manifest, &loaded.granted, ceiling, host_roots);
    let standing = Standing::of(loaded, ceiling);
    let (exported, declared) = (exported(loaded), declared(manifest));
    all.extend(exported.but(SERVED).iter().map(|interface| {
        let why = "this version of the host does not call it yet";
        narrowed(interface.as_str(), "host", why)
    }));
    let silent = match exported.has(Capability::Execution) {
        true => Set::EMPTY,
        false => OF_COMMANDS,
    };
    let served = declared.and(SERVED);
    all.extend(served.and(silent).iter().map(|feature| {
        let why = "the component does not export `execution`";
        narrowed(feature.as_str(), "exports", why)
    }));
    let names = |set: Set| set.iter().map(|one| one.as_str().to_owned()).collect();
    let interfaces = names(exported.and(SERVED));
    let features = names(served.but(silent));
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
        effective: standing.whole,
        config_schema: manifest.config_schema.clone(),
    }
}

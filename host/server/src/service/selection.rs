//! Which environments can do what a lease needs, the best first, and of every other why not.
//!
//! Asking reads rows and compares sets: nothing is leased, started or reached, no component is called and no secret is
//! looked at. The choice itself is a pure function ([`among`]); an environment is in exactly one of its two lists.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use leasehold_authority::{Environment, EnvironmentDriver, EnvironmentFilter, EnvironmentStatus};
use serde_json::{Map, Value, json};

use super::Service;
use super::capability::{Capability, Effective, Set, Taken};
use super::error::ServiceError;
use super::narrowing::{self, Standings};

/// What somebody needs of an environment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Requirement {
    /// Without these it is none.
    pub(crate) required: Set,
    /// With more of these it is the better.
    pub(crate) preferred: Set,
    /// What it must have been measured to be.
    pub(crate) platform: Option<Platform>,
    /// That a lease of it can be had again.
    pub(crate) reuse: bool,
    /// What `metadata.labels` must say of it, each letter by letter.
    pub(crate) labels: BTreeMap<String, String>,
    /// Of this driver alone.
    pub(crate) driver: Option<EnvironmentDriver>,
    /// Of this provider alone.
    pub(crate) provider: Option<String>,
}

/// A platform that was measured; what is not said is any.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Platform {
    /// Such as `linux`.
    pub(crate) os: Option<String>,
    /// Such as `x86_64`.
    pub(crate) architecture: Option<String>,
    /// Such as `glibc`.
    pub(crate) libc: Option<String>,
}

/// Something that an environment does not have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Lack {
    /// A capability; or `platform`, `label`, `driver`, `provider`: a condition.
    pub(crate) what: &'static str,
    /// The term that took it; of a condition, what the condition is about.
    pub(crate) by: &'static str,
    /// For a person.
    pub(crate) reason: Arc<str>,
}

/// An environment that can do it.
#[derive(Clone, Debug)]
pub(crate) struct Candidate {
    pub(crate) environment_id: String,
    pub(crate) name: String,
    pub(crate) driver: EnvironmentDriver,
    pub(crate) provider: String,
    /// All that it can do.
    pub(crate) capabilities: Set,
    /// Which of the preferred.
    pub(crate) preferred: Set,
    /// Which of the preferred not, and why.
    pub(crate) lacks: Vec<Lack>,
    /// Whether a lease has it for itself now.
    pub(crate) in_use: bool,
}

/// An environment that cannot.
#[derive(Clone, Debug)]
pub(crate) struct Excluded {
    pub(crate) environment_id: String,
    pub(crate) name: String,
    /// One at least.
    pub(crate) lacks: Vec<Lack>,
    /// Whether anybody could be assigned it: it is active, and not the server's own machine.
    pub(crate) assignable: bool,
}

/// Every environment of a company, in one of two lists.
#[derive(Clone, Debug, Default)]
pub(crate) struct Selection {
    /// The best first.
    pub(crate) candidates: Vec<Candidate>,
    /// By name.
    pub(crate) excluded: Vec<Excluded>,
}

impl Requirement {
    /// All that must be there: the lease itself, too.
    fn needs(&self) -> Set {
        let reuse = match self.reuse {
            true => Set::EMPTY.with(Capability::Reuse),
            false => Set::EMPTY,
        };
        self.required.with(Capability::Lifecycle).or(reuse)
    }

    /// The same requirement is the same text, in whatever order it was written.
    pub(crate) fn canonical(&self) -> String {
        let names = |set: Set| set.iter().map(Capability::as_str).collect::<Vec<_>>();
        let platform = self.platform.as_ref();
        json!({
            "required": names(self.required),
            "preferred": names(self.preferred),
            "platform": platform.map(|p| [&p.os, &p.architecture, &p.libc]),
            "reuse": self.reuse,
            "labels": self.labels,
            "driver": self.driver.map(EnvironmentDriver::as_str),
            "provider": self.provider,
        })
        .to_string()
    }

    /// The conditions that are no capabilities.
    fn conditions(&self, environment: &Environment, lacks: &mut Vec<Lack>) {
        let mut lack = |what, by, reason: String| {
            lacks.push(Lack {
                what,
                by,
                reason: reason.into(),
            });
        };
        if let Some(driver) = self.driver
            && driver != environment.driver
        {
            let is = environment.driver.as_str();
            let why = format!("its driver is {is}, not {}", driver.as_str());
            lack("driver", "driver", why);
        }
        if let Some(provider) = &self.provider
            && *provider != environment.provider
        {
            let why = format!("its provider is {}, not {provider}", environment.provider);
            lack("provider", "provider", why);
        }
        let none = Map::new();
        let labels = environment.metadata.as_ref().and_then(|m| m.get("labels"));
        let labels = labels.and_then(Value::as_object).unwrap_or(&none);
        for (name, wanted) in &self.labels {
            match labels.get(name).and_then(Value::as_str) {
                Some(is) if is == wanted => {}
                Some(_) => lack("label", "labels", format!("its label {name:?} is another")),
                None => lack("label", "labels", format!("it has no label {name:?}")),
            }
        }
        if self.platform.is_some() {
            let why =
                "its platform was never measured: no probe of this version of the host records one";
            lack("platform", "qualification", why.to_owned());
        }
    }
}

fn lacking(effective: &Effective, wanted: Set) -> Vec<Lack> {
    effective
        .missing()
        .filter(|(capability, _)| wanted.has(*capability))
        .map(|(capability, taken)| lack_of(capability, taken))
        .collect()
}

fn lack_of(capability: Capability, taken: &Taken) -> Lack {
    Lack {
        what: capability.as_str(),
        by: taken.by.as_str(),
        reason: Arc::clone(&taken.reason),
    }
}

/// Chooses among these. `in_use` has the environments that a lease has for
/// itself.
pub(crate) fn among(
    environments: &[Environment],
    standings: &Standings,
    in_use: &HashSet<String>,
    requirement: &Requirement,
) -> Selection {
    let needs = requirement.needs();
    let mut selection = Selection::default();
    for environment in environments {
        let effective = narrowing::effective(standings, environment);
        let has = effective.has();
        let mut lacks = if has.has(Capability::Lifecycle) {
            lacking(&effective, needs)
        } else {
            // What cannot be leased lacks everything for one reason.
            let lifecycle = Capability::Lifecycle;
            let taken = effective.taken(lifecycle);
            taken.map(|t| lack_of(lifecycle, t)).into_iter().collect()
        };
        requirement.conditions(environment, &mut lacks);
        let (environment_id, name) = (environment.id.clone(), environment.name.clone());
        if lacks.is_empty() {
            selection.candidates.push(Candidate {
                in_use: in_use.contains(&environment_id),
                environment_id,
                name,
                driver: environment.driver,
                provider: environment.provider.clone(),
                capabilities: has,
                preferred: has.and(requirement.preferred),
                lacks: lacking(&effective, requirement.preferred),
            });
        } else {
            selection.excluded.push(Excluded {
                environment_id,
                name,
                lacks,
                assignable: environment.status == EnvironmentStatus::Active
                    && !environment.is_local(),
            });
        }
    }
    selection.candidates.sort_by(|a, b| {
        let free = a.in_use.cmp(&b.in_use);
        let better = b.preferred.len().cmp(&a.preferred.len());
        free.then(better)
            .then_with(|| (&a.name, &a.environment_id).cmp(&(&b.name, &b.environment_id)))
    });
    selection
}

impl Service {
    /// The environments of a company that can do this, and of every other why not.
    ///
    /// # Errors
    /// The authority's: there is no such company.
    pub(crate) async fn select(
        &self,
        company: &str,
        requirement: &Requirement,
    ) -> Result<Selection, ServiceError> {
        self.accepting()?;
        let environments = self.authority().environments();
        let all = environments
            .list(company, &EnvironmentFilter::default())
            .await?;
        let standings = narrowing::standings(self.authority(), self.catalog(), company).await?;
        let in_use = self.authority().leases().alone_in_use().await?;
        Ok(among(&all, &standings, &in_use, requirement))
    }
}

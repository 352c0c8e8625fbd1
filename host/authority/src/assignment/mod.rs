//! Assignment: which environment an agent, a project, a workspace or an issue is to have, and what decides where several
//! say something.
//!
//! The rows are minimal: an id that the client gives or that is made, a company, a name, and links. They decide where work
//! goes, so they are authenticated. Invariants: an environment is assigned only where the company sees it, while it is
//! active, and never the server's own machine; what is of another company is not there.

mod resolve;
mod row;

use std::sync::Arc;

use serde_json::json;

pub use resolve::{Level, Resolution, Said, WhoseAssignment};
pub use row::{Assignee, AssigneeKind, AssignmentCounts, Links};
pub(crate) use row::{clear, counts, counts_of_others, load, sign_again, store};

use crate::activity::Entry;
use crate::actor::Actor;
use crate::environment::{self, EnvironmentDriver, EnvironmentMemory, EnvironmentStatus};
use crate::error::{Error, Result, Violations, code};
use crate::keys::Keys;
use crate::store::{Store, Tx, is_unique_violation};
use crate::{company, id, idempotency, name};

/// A new row.
#[derive(Clone, Debug, Default)]
pub struct NewAssignee {
    /// The client's own id, 1 to 200 bytes; none: one is made.
    pub id: Option<String>,
    /// For a person, 1 to 100 characters.
    pub name: Option<String>,
    /// What it belongs to.
    pub links: Links,
    /// What is assigned to it; nothing to a run.
    pub environment: Option<String>,
}

/// What of a row shall change; absent fields stay.
#[derive(Clone, Debug, Default)]
pub struct AssigneePatch {
    /// Another name; `Some(None)` removes it.
    pub name: Option<Option<String>>,
    /// Another environment; `Some(None)` clears it.
    pub environment: Option<Option<String>>,
}

/// A page of rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AssigneePage {
    /// In the order in which they were made.
    pub items: Vec<Assignee>,
    /// Where the next page begins; none at the end.
    pub next: Option<String>,
}

/// The rows that environments are assigned to.
#[derive(Clone)]
pub struct Assignees {
    pub(crate) store: Arc<Store>,
    pub(crate) keys: Arc<Keys>,
    pub(crate) environments: Arc<EnvironmentMemory>,
}

fn checked_id(pointer: &str, id: &str) -> Result<()> {
    if id.is_empty() || id.len() > 200 || id.chars().any(char::is_control) {
        return Err(Error::invalid(
            pointer,
            "must be 1 to 200 bytes without control characters",
        ));
    }
    Ok(())
}

/// Fails unless `id` is an environment that may be assigned in `company`.
async fn may_be_assigned(
    tx: &mut Tx,
    memory: &EnvironmentMemory,
    company: &str,
    id: &str,
) -> Result<()> {
    let environment = environment::load(&mut tx.db, &tx.keys, id).await?;
    let environment = memory.shown(environment)?;
    if !environment::is_seen_by(&environment, company) {
        return Err(Error::not_found("environment", id));
    }
    if environment.driver == EnvironmentDriver::Local {
        return Err(Error::invalid(
            "/environmentId",
            "is the server's own machine, which nobody leases: assign another environment",
        ));
    }
    if environment.status != EnvironmentStatus::Active {
        return Err(Error::conflict(
            code::ENVIRONMENT_INACTIVE,
            format!(
                "environment {:?} is archived: make it active before it is assigned",
                environment.name
            ),
        ));
    }
    Ok(())
}

/// Fails unless what a row belongs to is there, in its company.
async fn check_links(tx: &mut Tx, kind: AssigneeKind, company: &str, links: &Links) -> Result<()> {
    let mut bad = Violations::default();
    for (linked, to) in links.each() {
        let pointer = format!("/{}Id", linked.as_str());
        if !kind.may_belong_to(linked) {
            bad.add(
                pointer,
                format!("is no link of {} {}", kind.article(), kind.as_str()),
            );
        } else if !row::is_there(tx, linked, to, company).await? {
            let to: String = to.chars().take(80).collect();
            bad.add(
                pointer,
                format!("names no {} of this company: {to:?}", linked.as_str()),
            );
        }
    }
    bad.done()
}

impl Assignees {
    /// Makes a row, with what is assigned to it.
    ///
    /// # Errors
    /// A conflict where the id is taken; [`Error::NotFound`] of an environment of another company, a conflict of an
    /// archived one; [`Error::Invalid`] of links that lead nowhere.
    pub async fn create(
        &self,
        actor: &Actor,
        kind: AssigneeKind,
        company: &str,
        new: NewAssignee,
    ) -> Result<Assignee> {
        actor.may(kind.creates())?;
        if let Some(id) = &new.id {
            checked_id("/id", id)?;
        }
        let name = new.name.map(|n| name::checked("/name", &n)).transpose()?;
        if kind == AssigneeKind::Run && new.environment.is_some() {
            return Err(Error::invalid(
                "/environmentId",
                "is of no run: assign the environment to what the run belongs to",
            ));
        }
        let (actor, company) = (actor.clone(), company.to_owned());
        let (given, links, environment) = (new.id, new.links, new.environment);
        let memory = Arc::clone(&self.environments);
        let claim = idempotency::current();
        self.store
            .write(move |tx| {
                Box::pin(async move {
                    company::must_exist(&mut tx.db, &company).await?;
                    check_links(tx, kind, &company, &links).await?;
                    if let Some(environment) = &environment {
                        may_be_assigned(tx, &memory, &company, environment).await?;
                    }
                    let made = Assignee {
                        id: match given {
                            Some(id) => id,
                            None => id::fresh(kind.prefix())?,
                        },
                        kind,
                        company_id: company,
                        name,
                        environment_id: environment,
                        links,
                        ended_at: None,
                        created_at: tx.now(),
                        updated_at: tx.now(),
                    };
                    row::insert(tx, &made).await.map_err(|e| match e {
                        Error::Storage(e) if is_unique_violation(&e, "assignees.kind") => {
                            Error::conflict(
                                code::CONFLICT,
                                format!("the id {:?} is taken: choose another", made.id),
                            )
                        }
                        other => other,
                    })?;
                    idempotency::made(tx, claim.as_ref(), &made.id).await?;
                    tx.record(
                        &actor,
                        Entry::new(
                            kind.created(),
                            Some(&made.company_id),
                            kind.as_str(),
                            &made.id,
                            json!({ "environment": made.environment_id }),
                        ),
                    )
                    .await?;
                    Ok(made)
                })
            })
            .await
    }

    /// Assigns an environment, clears what is assigned, or gives another name.
    ///
    /// # Errors
    /// [`Error::NotFound`] of the row or of an environment of another company, a conflict of an archived one.
    pub async fn update(
        &self,
        actor: &Actor,
        kind: AssigneeKind,
        id: &str,
        patch: AssigneePatch,
    ) -> Result<Assignee> {
        let Some(operation) = kind.updates() else {
            return Err(Error::not_found("assignment", id));
        };
        actor.may(operation)?;
        let name = match patch.name {
            None => None,
            Some(None) => Some(None),
            Some(Some(name)) => Some(Some(name::checked("/name", &name)?)),
        };
        let environment = patch.environment;
        let memory = Arc::clone(&self.environments);
        let (actor, id) = (actor.clone(), id.to_owned());
        self.store
            .write(move |tx| {
                Box::pin(async move {
                    let before = row::load(&mut tx.db, &tx.keys, kind, &id).await?;
                    if let Some(Some(environment)) = &environment
                        && before.environment_id.as_ref() != Some(environment)
                    {
                        may_be_assigned(tx, &memory, &before.company_id, environment).await?;
                    }
                    let after = Assignee {
                        name: name.unwrap_or_else(|| before.name.clone()),
                        environment_id: environment
                            .unwrap_or_else(|| before.environment_id.clone()),
                        updated_at: tx.now(),
                        ..before.clone()
                    };
                    let changed: Vec<&str> = [
                        ("name", after.name != before.name),
                        (
                            "environmentId",
                            after.environment_id != before.environment_id,
                        ),
                    ]
                    .into_iter()
                    .filter_map(|(field, differs)| differs.then_some(field))
                    .collect();
                    if changed.is_empty() {
                        return Ok(before);
                    }
                    row::store(tx, &after).await?;
                    tx.record(
                        &actor,
                        Entry::new(
                            kind.updated(),
                            Some(&after.company_id),
                            kind.as_str(),
                            &id,
                            json!({
                                "changed": changed,
                                "environment": after.environment_id,
                                "before": before.environment_id,
                            }),
                        ),
                    )
                    .await?;
                    Ok(after)
                })
            })
            .await
    }

    /// One row.
    pub async fn get(&self, kind: AssigneeKind, id: &str) -> Result<Assignee> {
        row::load(self.store.read(), &self.keys, kind, id).await
    }

    /// A company's rows of a kind. `cursor` is `next` of the page before.
    pub async fn list(
        &self,
        kind: AssigneeKind,
        company: &str,
        cursor: Option<&str>,
        limit: u32,
    ) -> Result<AssigneePage> {
        company::must_exist(self.store.read(), company).await?;
        row::page(self.store.read(), &self.keys, kind, company, cursor, limit).await
    }

    /// How many rows an environment is assigned to, by kind: what its deletion would clear.
    pub async fn assigned(&self, environment: &str) -> Result<AssignmentCounts> {
        row::counts(self.store.read(), environment).await
    }
}

//! The rows that the server keeps itself: its own machine, and the one environment of its settings.
//!
//! There is one of each at most. The first is never leased, so that nothing can fall back to the server's own host; of the
//! second people change the variables and nothing else. Both are shared by all companies. Who asks for a change here is the
//! server, at its start and whenever a provider comes or goes.

use std::sync::Arc;

use serde_json::json;

use super::draft::{
    self, EnvironmentDraft, EnvironmentDriver, EnvironmentSecrets, EnvironmentStatus,
};
use super::row::{self, Environment};
use super::{Environments, check_provider, default, load};
use crate::activity::Entry;
use crate::actor::Actor;
use crate::error::{Error, Result, code};
use crate::policy::Operation;
use crate::store::Tx;
use crate::{id, secret};

/// The provider of the local environment, which is no plugin; and the name that it has unless that is taken.
pub const LOCAL: &str = "local";

/// The managed environment as the settings want it.
#[derive(Debug)]
pub struct Managed {
    /// Its name, driver, provider and configuration; its variables are people's.
    pub draft: EnvironmentDraft,
    /// What in the configuration is the host's own.
    pub secrets: EnvironmentSecrets,
}

/// Whether a save may make `draft` of what is there.
pub(super) fn may_become(before: &Environment, draft: &EnvironmentDraft) -> Result<()> {
    let local = draft.driver == EnvironmentDriver::Local;
    if local != before.is_local() {
        return Err(Error::invalid(
            "/driver",
            "the server's own machine stays what it is, and nothing else becomes it",
        ));
    }
    let same = draft.name == before.name
        && draft.description == before.description
        && draft.driver == before.driver
        && draft.provider == before.provider
        && draft.config == before.config
        && draft.metadata == before.metadata
        && draft.status == before.status;
    if before.managed && !same {
        return Err(platform_managed(before));
    }
    Ok(())
}

/// Whether people may delete it; what stands in the way of a deletion otherwise is in the blast radius.
pub(super) fn may_go(environment: &Environment) -> Result<()> {
    if environment.managed {
        return Err(platform_managed(environment));
    }
    Ok(())
}

fn platform_managed(environment: &Environment) -> Error {
    Error::conflict(
        code::ENVIRONMENT_PLATFORM_MANAGED,
        format!(
            "environment {:?} is kept by the server as its settings say: only its envVars can be changed here",
            environment.name
        ),
    )
}

/// A name that no environment has: `wanted`, or that with a number.
async fn free_name(tx: &mut Tx, wanted: &str, but: Option<&str>) -> Result<String> {
    let mut name = wanted.to_owned();
    let mut number = 1;
    loop {
        match row::name_is_free(tx, None, &name, but).await {
            Ok(()) => return Ok(name),
            Err(Error::Conflict { .. }) => {
                number += 1;
                name = format!("{wanted} {number}");
            }
            Err(other) => return Err(other),
        }
    }
}

async fn find(tx: &mut Tx, sql: &'static str) -> Result<Option<Environment>> {
    let id: Option<String> = sqlx::query_scalar(sql).fetch_optional(&mut tx.db).await?;
    match id {
        Some(id) => load(&mut tx.db, &tx.keys, &id).await.map(Some),
        None => Ok(None),
    }
}

async fn find_managed(tx: &mut Tx) -> Result<Option<Environment>> {
    find(tx, "SELECT id FROM environments WHERE managed = 1").await
}

impl Environments {
    /// The server's own machine as an environment, made where it is not there yet.
    pub async fn ensure_local(&self, actor: &Actor) -> Result<Environment> {
        actor.may(Operation::CreateEnvironment)?;
        let actor = actor.clone();
        let memory = Arc::clone(&self.memory);
        self.store
            .write(move |tx| {
                Box::pin(async move {
                    let known =
                        find(tx, "SELECT id FROM environments WHERE driver = 'local'").await?;
                    if let Some(local) = known {
                        return Ok(local);
                    }
                    let draft = EnvironmentDraft {
                        name: free_name(tx, LOCAL, None).await?,
                        description: Some(
                            "The server's own machine. It is looked at and never leased."
                                .to_owned(),
                        ),
                        driver: EnvironmentDriver::Local,
                        provider: LOCAL.to_owned(),
                        config: serde_json::Map::new(),
                        env_vars: serde_json::Map::new(),
                        metadata: None,
                        status: EnvironmentStatus::Active,
                    };
                    let now = tx.now();
                    let local = Environment::of(id::fresh("env_")?, None, draft, Vec::new(), now);
                    row::insert(tx, &local).await?;
                    created(tx, &actor, &local).await?;
                    memory.forget_after(tx);
                    Ok(local)
                })
            })
            .await
    }

    /// Why nobody makes another local environment.
    pub(super) async fn no_other_local(&self, company: Option<&str>) -> Result<Error> {
        if company.is_some() {
            return Ok(Error::invalid(
                "/companyId",
                "the server's own machine belongs to no company: it is there for all, and is never leased",
            ));
        }
        let known: Option<String> =
            sqlx::query_scalar("SELECT id FROM environments WHERE driver = 'local'")
                .fetch_optional(self.store.read())
                .await?;
        Ok(match known {
            Some(id) => Error::conflict_with(
                code::ENVIRONMENT_LOCAL,
                "there is one local environment, and it is there already",
                json!({ "environmentId": id }),
            ),
            None => Error::conflict(
                code::ENVIRONMENT_LOCAL,
                "the one local environment is made by the server itself, at its start",
            ),
        })
    }

    /// The environment of the settings, where there is one.
    pub async fn managed(&self) -> Result<Option<Environment>> {
        let id: Option<String> =
            sqlx::query_scalar("SELECT id FROM environments WHERE managed = 1")
                .fetch_optional(self.store.read())
                .await?;
        match id {
            Some(id) => load(self.store.read(), &self.keys, &id).await.map(Some),
            None => Ok(None),
        }
    }

    /// Makes the environment of the settings what they want, and active; where it is so already, nothing is written. Its
    /// variables stay.
    pub async fn keep_managed(&self, actor: &Actor, wanted: Managed) -> Result<Environment> {
        actor.may(Operation::UpdateEnvironment)?;
        let Managed { draft, secrets } = wanted;
        let EnvironmentSecrets {
            uses, endpoints, ..
        } = secrets;
        let checked = draft::check(draft, uses)?;
        let actor = actor.clone();
        let memory = Arc::clone(&self.memory);
        self.store
            .write(move |tx| {
                Box::pin(async move {
                    check_provider(tx, &checked.draft).await?;
                    let before = find_managed(tx).await?;
                    let but = before.as_ref().map(|e| e.id.as_str());
                    let name = free_name(tx, &checked.draft.name, but).await?;
                    let d = checked.draft;
                    let now = tx.now();
                    let Some(before) = before else {
                        let draft = EnvironmentDraft { name, ..d };
                        let mut made =
                            Environment::of(id::fresh("env_")?, None, draft, endpoints, now);
                        made.managed = true;
                        row::insert(tx, &made).await?;
                        secret::bind(tx, &actor, None, &made.id, checked.wanted, false, false)
                            .await?;
                        created(tx, &actor, &made).await?;
                        memory.forget_after(tx);
                        return Ok(made);
                    };
                    let target = d.provider != before.provider
                        || d.driver != before.driver
                        || d.config != before.config
                        || endpoints != before.endpoints;
                    let differences = [
                        ("name", name != before.name),
                        ("target", target),
                        ("status", before.status != EnvironmentStatus::Active),
                    ];
                    let changed: Vec<&str> = differences
                        .iter()
                        .filter_map(|(field, differs)| differs.then_some(*field))
                        .collect();
                    if changed.is_empty() {
                        return Ok(before);
                    }
                    if target {
                        // The variables' bindings stay: they are people's.
                        let mut wanted = checked.wanted;
                        let own = draft::variables(&before.env_vars)?;
                        wanted.extend(own);
                        secret::bind(tx, &actor, None, &before.id, wanted, true, false).await?;
                    }
                    let kept = Environment {
                        name,
                        driver: d.driver,
                        provider: d.provider,
                        config: d.config,
                        endpoints,
                        status: EnvironmentStatus::Active,
                        revision: before.revision + 1,
                        target_revision: before.target_revision + i64::from(target),
                        updated_at: now,
                        ..before
                    };
                    row::store(tx, &kept).await?;
                    updated(tx, &actor, &kept, &changed).await?;
                    memory.forget_after(tx);
                    Ok(kept)
                })
            })
            .await
    }

    /// Archives the environment of the settings, as what it needs is not there. Where there is none, or it is archived,
    /// nothing is written.
    pub async fn archive_managed(&self, actor: &Actor, why: &str) -> Result<()> {
        actor.may(Operation::UpdateEnvironment)?;
        match self.managed().await? {
            Some(e) if e.status == EnvironmentStatus::Active => {}
            _ => return Ok(()),
        }
        let (actor, why) = (actor.clone(), why.to_owned());
        let memory = Arc::clone(&self.memory);
        self.store
            .write(move |tx| {
                Box::pin(async move {
                    let Some(before) = find_managed(tx).await? else {
                        return Ok(());
                    };
                    if before.status == EnvironmentStatus::Archived {
                        return Ok(());
                    }
                    let archived = Environment {
                        status: EnvironmentStatus::Archived,
                        revision: before.revision + 1,
                        updated_at: tx.now(),
                        ..before
                    };
                    row::store(tx, &archived).await?;
                    tx.record(
                        &actor,
                        Entry::new(
                            "environment.updated",
                            None,
                            "environment",
                            &archived.id,
                            json!({ "changed": ["status"], "status": archived.status, "why": why }),
                        ),
                    )
                    .await?;
                    memory.forget_after(tx);
                    Ok(())
                })
            })
            .await
    }

    /// From now on nobody is shown, and nobody uses, any environment but the managed one.
    pub fn show_managed_only(&self) {
        self.memory.show_managed_only();
    }

    /// The environment that is leased where nothing says otherwise: of a company and of the instance.
    pub async fn defaults(&self, company: Option<&str>) -> Result<super::Defaults> {
        default::read(&self.store, &self.keys, company).await
    }
}

async fn created(tx: &mut Tx, actor: &Actor, environment: &Environment) -> Result<()> {
    tx.record(
        actor,
        Entry::new(
            "environment.created",
            None,
            "environment",
            &environment.id,
            json!({
                "name": environment.name,
                "driver": environment.driver,
                "provider": environment.provider,
                "configKeys": environment.config.len(),
                "envVars": environment.env_vars.len(),
            }),
        ),
    )
    .await
}

async fn updated(
    tx: &mut Tx,
    actor: &Actor,
    environment: &Environment,
    changed: &[&str],
) -> Result<()> {
    tx.record(
        actor,
        Entry::new(
            "environment.updated",
            None,
            "environment",
            &environment.id,
            json!({
                "changed": changed,
                "status": environment.status,
                "targetRevision": environment.target_revision,
            }),
        ),
    )
    .await
}

//! Deleting an environment, and what stands in the way.
//!
//! Leases outlive their environment as records, never as live use: while one is not ended, the environment
//! stays. The count and the deletion are one transaction.

use std::sync::Arc;

use serde::Serialize;
use serde_json::json;
use sqlx::{Row as _, SqliteConnection};

use super::{Environment, EnvironmentDriver, Environments, default, load, standing};
use crate::activity::Entry;
use crate::actor::Actor;
use crate::assignment;
use crate::error::{Error, Result, code};
use crate::keys::Keys;
use crate::policy::Operation;
use crate::secret::{self, NamedUses};
use crate::store::Row;

/// What a deletion would touch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct BlastRadius {
    /// The environment.
    pub environment_id: String,
    /// Whether nothing stands in the way.
    pub can_delete: bool,
    /// What does: `managed_local`, `platform_managed`, `instance_default`, `active_lease`, `pending_sandbox_cleanup`,
    /// `reusable_sandbox_lease`.
    pub delete_blocked_reasons: Vec<&'static str>,
    /// What points at it.
    pub static_references: StaticReferences,
    /// What it is used for now.
    pub active_runtime_use: ActiveRuntimeUse,
    /// Leases whose release is not confirmed yet.
    pub pending_cleanup_lease_count: i64,
    /// Leases that nobody uses and that are kept to be used again.
    pub reusable_sandbox_lease_count: i64,
    /// For whom these are kept: the oldest [`HOLDERS`].
    pub reusable_sandbox_lease_holders: Vec<LeaseHolder>,
    /// Leases that have ended; they stay as records.
    pub ended_lease_count: i64,
    /// Secrets that stay, and that nothing uses once it is gone; by name.
    pub secrets_used_by_nothing_else: Vec<UnusedSecret>,
}

/// A secret that nothing else uses.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct UnusedSecret {
    /// Which secret.
    pub secret_id: String,
    /// Its name.
    pub name: String,
}

/// What points at an environment without using it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct StaticReferences {
    /// Whether it is the row of the server's own machine, which stays.
    pub is_managed_local: bool,
    /// Whether it is what the instance leases where nothing says otherwise.
    pub is_instance_default: bool,
    /// Companies whose default it is; they have none then.
    pub company_default_count: i64,
    /// Agents that it is assigned to; they stay without it.
    pub agent_default_count: i64,
    /// Projects that it is assigned to.
    pub project_selection_count: i64,
    /// Workspaces that it is assigned to.
    pub execution_workspace_selection_count: i64,
    /// Issues that it is assigned to.
    pub issue_selection_count: i64,
    /// Bindings of secrets that would go; the secrets stay.
    pub secret_binding_count: i64,
}

/// What an environment is used for now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ActiveRuntimeUse {
    /// Leases that are being acquired, in use or being released.
    pub active_lease_count: i64,
    /// Whether there is any.
    pub has_active_runtime_use: bool,
}

/// For whom a lease is kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LeaseHolder {
    /// The lease.
    pub lease_id: String,
    /// The client's own name of who acquired it.
    pub agent_id: Option<String>,
    /// The client's own.
    pub run_id: Option<String>,
    /// The client's own.
    pub workspace_id: Option<String>,
    /// The client's own.
    pub issue_id: Option<String>,
}

/// Holders that are told at most.
pub const HOLDERS: i64 = 100;

impl BlastRadius {
    /// Whether leases that are kept to be used again are all that stands in the way: whoever consents may end them.
    pub fn only_reusable(&self) -> bool {
        self.delete_blocked_reasons == [REUSABLE]
    }
}

const REUSABLE: &str = "reusable_sandbox_lease";

async fn radius(
    db: &mut SqliteConnection,
    keys: &Keys,
    named: &NamedUses,
    environment: &Environment,
) -> Result<BlastRadius> {
    let id = &environment.id;
    type Counts = (i64, i64, i64, i64, i64, i64, i64);
    let (defaults, of_companies, active, pending, reusable, ended, bindings): Counts = sqlx::query_as(
        "SELECT (SELECT COUNT(*) FROM default_environments WHERE environment_id = $1 AND company_id = ''),
                (SELECT COUNT(*) FROM default_environments WHERE environment_id = $1 AND company_id <> ''),
                (SELECT COUNT(*) FROM leases WHERE environment_id = $1
                     AND status IN ('acquiring', 'active', 'releasing')),
                (SELECT COUNT(*) FROM leases WHERE environment_id = $1 AND status = 'pending_cleanup'),
                (SELECT COUNT(*) FROM leases WHERE environment_id = $1 AND status = 'retained'),
                (SELECT COUNT(*) FROM leases WHERE environment_id = $1
                     AND status IN ('released', 'failed', 'abandoned')),
                (SELECT COUNT(*) FROM secret_bindings WHERE environment_id = $1)",
    )
    .bind(id)
    .fetch_one(&mut *db)
    .await?;
    let rows = sqlx::query(
        "SELECT id, agent, run, workspace_ref, issue FROM leases
         WHERE environment_id = $1 AND status = 'retained' ORDER BY created_at, id LIMIT $2",
    )
    .bind(id)
    .bind(HOLDERS)
    .fetch_all(&mut *db)
    .await?;
    let holder = |row: &Row| {
        Ok(LeaseHolder {
            lease_id: row.try_get("id")?,
            agent_id: row.try_get("agent")?,
            run_id: row.try_get("run")?,
            workspace_id: row.try_get("workspace_ref")?,
            issue_id: row.try_get("issue")?,
        })
    };
    let assigned = assignment::counts(&mut *db, id).await?;
    let unused = secret::of_nothing_else(&mut *db, keys, named, id).await?;
    let local = environment.driver == EnvironmentDriver::Local;
    let reasons: Vec<&'static str> = [
        ("managed_local", i64::from(local)),
        (
            "platform_managed",
            i64::from(standing::is_kept(environment)),
        ),
        ("instance_default", defaults),
        ("active_lease", active),
        ("pending_sandbox_cleanup", pending),
        (REUSABLE, reusable),
    ]
    .into_iter()
    .filter_map(|(reason, count)| (count > 0).then_some(reason))
    .collect();
    Ok(BlastRadius {
        environment_id: id.to_owned(),
        can_delete: reasons.is_empty(),
        delete_blocked_reasons: reasons,
        static_references: StaticReferences {
            is_managed_local: local,
            is_instance_default: defaults > 0,
            company_default_count: of_companies,
            agent_default_count: assigned.agents,
            project_selection_count: assigned.projects,
            execution_workspace_selection_count: assigned.workspaces,
            issue_selection_count: assigned.issues,
            secret_binding_count: bindings,
        },
        active_runtime_use: ActiveRuntimeUse {
            active_lease_count: active,
            has_active_runtime_use: active > 0,
        },
        pending_cleanup_lease_count: pending,
        reusable_sandbox_lease_count: reusable,
        reusable_sandbox_lease_holders: rows.iter().map(holder).collect::<Result<_>>()?,
        ended_lease_count: ended,
        secrets_used_by_nothing_else: unused
            .into_iter()
            .map(|secret| UnusedSecret {
                secret_id: secret.id,
                name: secret.name,
            })
            .collect(),
    })
}

/// Why it stays, in words.
fn refusal(environment: &Environment, radius: &BlastRadius) -> String {
    let name = &environment.name;
    if radius.static_references.is_managed_local {
        return format!(
            "environment {name:?} stays: it is the server's own machine, which is always there"
        );
    }
    let mut why = Vec::new();
    if radius.static_references.is_instance_default {
        why.push("it is the instance's default: choose another default first".to_owned());
    }
    for (count, what) in [
        (radius.active_runtime_use.active_lease_count, "live leases"),
        (
            radius.pending_cleanup_lease_count,
            "leases that wait for cleanup",
        ),
        (
            radius.reusable_sandbox_lease_count,
            "leases that are kept to be used again (destroyReusableSandboxLeases=true ends those)",
        ),
    ] {
        if count > 0 {
            why.push(format!("it has {count} {what}: release them first"));
        }
    }
    format!("environment {name:?} stays: {}", why.join("; "))
}

impl Environments {
    /// What a deletion would touch.
    pub async fn blast_radius(&self, id: &str) -> Result<BlastRadius> {
        let mut db = self.store.read().acquire().await?;
        let environment = load(&mut *db, &self.keys, id).await?;
        let environment = self.memory.shown(environment)?;
        radius(&mut db, &self.keys, &self.named, &environment).await
    }

    /// Deletes an environment, the bindings of its secrets and what assigns it; answers what it was. Refused while a lease
    /// of it has not ended: details are the [`BlastRadius`].
    pub async fn delete(&self, actor: &Actor, id: &str) -> Result<Environment> {
        self.remove(actor, id, None).await
    }

    /// The same, if it is still as it was read. [`Error::Stale`]: it was changed meanwhile.
    pub async fn delete_as_read(&self, actor: &Actor, read: &Environment) -> Result<Environment> {
        let revisions = (read.revision, read.target_revision);
        self.remove(actor, &read.id, Some(revisions)).await
    }

    async fn remove(
        &self,
        actor: &Actor,
        id: &str,
        expected: Option<(i64, i64)>,
    ) -> Result<Environment> {
        actor.may(Operation::DeleteEnvironment)?;
        let (actor, id) = (actor.clone(), id.to_owned());
        let memory = Arc::clone(&self.memory);
        let named = Arc::clone(&self.named);
        self.store
            .write(move |tx| {
                Box::pin(async move {
                    let environment = memory.shown(load(&mut tx.db, &tx.keys, &id).await?)?;
                    let now = (environment.revision, environment.target_revision);
                    if expected.is_some_and(|expected| expected != now) {
                        return Err(Error::stale(
                            "environment",
                            format!("environment {id} was changed meanwhile: read it again"),
                        ));
                    }
                    standing::may_go(&environment)?;
                    let keys = Arc::clone(&tx.keys);
                    let radius = radius(&mut tx.db, &keys, &named, &environment).await?;
                    if !radius.can_delete {
                        return Err(Error::conflict_with(
                            code::ENVIRONMENT_NOT_DELETABLE,
                            refusal(&environment, &radius),
                            serde_json::to_value(&radius)?,
                        ));
                    }
                    default::forget(tx, &id).await?;
                    assignment::clear(tx, &id).await?;
                    sqlx::query("DELETE FROM environments WHERE id = $1")
                        .bind(&id)
                        .execute(&mut tx.db)
                        .await?;
                    tx.record(
                        &actor,
                        Entry::new(
                            "environment.deleted",
                            environment.company_id.as_deref(),
                            "environment",
                            &id,
                            json!({
                                "name": environment.name,
                                "secretBindings": radius.static_references.secret_binding_count,
                            }),
                        ),
                    )
                    .await?;
                    memory.forget_after(tx);
                    Ok(environment)
                })
            })
            .await
    }
}

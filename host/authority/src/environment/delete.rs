//! Deleting an environment, and what stands in the way.
//!
//! Leases outlive their environment as records, never as live use: while one is not ended, the environment
//! stays. The count and the deletion are one transaction.

use std::sync::Arc;

use serde::Serialize;
use serde_json::json;

use super::{Environment, Environments, default, load, standing};
use crate::activity::Entry;
use crate::actor::Actor;
use crate::error::{Error, Result, code};
use crate::policy::Operation;
use crate::store::Db;

/// What a deletion would touch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct BlastRadius {
    /// The environment.
    pub environment_id: String,
    /// Whether nothing stands in the way.
    pub can_delete: bool,
    /// What does: `managed_local`, `instance_default`, `active_lease`, `pending_cleanup`.
    pub delete_blocked_reasons: Vec<&'static str>,
    /// Leases that are being acquired, in use, kept or being released.
    pub active_lease_count: i64,
    /// Leases whose release is not confirmed yet.
    pub pending_cleanup_lease_count: i64,
    /// Leases that have ended; they stay as records.
    pub ended_lease_count: i64,
    /// Bindings of secrets that would go; the secrets stay.
    pub secret_binding_count: i64,
}

async fn radius<'e>(db: impl sqlx::Executor<'e, Database = Db>, id: &str) -> Result<BlastRadius> {
    let (local, default, active, pending, ended, bindings): (i64, i64, i64, i64, i64, i64) = sqlx::query_as(
        "SELECT (SELECT COUNT(*) FROM environments WHERE id = $1 AND driver = 'local'),
                (SELECT COUNT(*) FROM default_environments WHERE environment_id = $1 AND company_id = ''),
                (SELECT COUNT(*) FROM leases WHERE environment_id = $1
                     AND status IN ('acquiring', 'active', 'releasing', 'retained')),
                (SELECT COUNT(*) FROM leases WHERE environment_id = $1 AND status = 'pending_cleanup'),
                (SELECT COUNT(*) FROM leases WHERE environment_id = $1
                     AND status IN ('released', 'failed', 'abandoned')),
                (SELECT COUNT(*) FROM secret_bindings WHERE environment_id = $1)",
    )
    .bind(id)
    .fetch_one(db)
    .await?;
    let reasons: Vec<&'static str> = [
        ("managed_local", local),
        ("instance_default", default),
        ("active_lease", active),
        ("pending_cleanup", pending),
    ]
    .into_iter()
    .filter_map(|(reason, count)| (count > 0).then_some(reason))
    .collect();
    Ok(BlastRadius {
        environment_id: id.to_owned(),
        can_delete: reasons.is_empty(),
        delete_blocked_reasons: reasons,
        active_lease_count: active,
        pending_cleanup_lease_count: pending,
        ended_lease_count: ended,
        secret_binding_count: bindings,
    })
}

impl BlastRadius {
    /// What stands in the way of deleting the environment of this name.
    fn in_words(&self, name: &str) -> String {
        let why = self
            .delete_blocked_reasons
            .iter()
            .map(|reason| match *reason {
                "managed_local" => {
                    "it is the server's own machine, which is always there".to_owned()
                }
                "instance_default" => {
                    "it is the instance's default: choose another default first".to_owned()
                }
                "active_lease" => format!(
                    "{} leases of it are live: release them first",
                    self.active_lease_count
                ),
                _ => format!(
                    "{} leases of it wait for their cleanup: let that end first",
                    self.pending_cleanup_lease_count
                ),
            });
        format!(
            "environment {name:?} stays: {}",
            why.collect::<Vec<_>>().join("; ")
        )
    }
}

impl Environments {
    /// What a deletion would touch.
    pub async fn blast_radius(&self, id: &str) -> Result<BlastRadius> {
        self.get(id).await?;
        radius(self.store.read(), id).await
    }

    /// Deletes an environment and the bindings of its secrets; answers what it was. Refused while a lease
    /// of it has not ended: details are the [`BlastRadius`].
    pub async fn delete(&self, actor: &Actor, id: &str) -> Result<Environment> {
        actor.may(Operation::DeleteEnvironment)?;
        let (actor, id) = (actor.clone(), id.to_owned());
        let memory = Arc::clone(&self.memory);
        self.store
            .write(move |tx| {
                Box::pin(async move {
                    let environment = memory.shown(load(&mut tx.db, &tx.keys, &id).await?)?;
                    standing::may_go(&environment)?;
                    let radius = radius(&mut tx.db, &id).await?;
                    if !radius.can_delete {
                        return Err(Error::conflict_with(
                            code::ENVIRONMENT_NOT_DELETABLE,
                            radius.in_words(&environment.name),
                            serde_json::to_value(&radius)?,
                        ));
                    }
                    default::forget(tx, &id).await?;
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
                                "secretBindings": radius.secret_binding_count,
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

//! What uses a secret, and deleting it.
//!
//! An environment uses what is bound in it; a lease what it pinned, until it has ended; the settings what they name. Nothing but
//! [`Secrets::delete`] deletes a secret, and that only when nothing uses it or when it is forced: then the bindings and
//! pins go with it, and whoever needs the value is told that it is missing.

use std::sync::Arc;

use serde::Serialize;
use serde_json::{Value, json};
use sqlx::SqliteConnection;

use super::{NamedUses, Secret, Secrets, Selector, row};
use crate::activity::Entry;
use crate::actor::Actor;
use crate::environment;
use crate::error::{Error, Result, code};
use crate::keys::Keys;
use crate::policy::Operation;
use crate::store::Db;

/// Ids in the details of an answer at most.
const NAMED: usize = 20;

/// A place of an environment where a secret is bound.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct EnvironmentUse {
    /// Which environment.
    pub environment_id: String,
    /// Its name.
    pub name: String,
    /// Whose it is; none where all companies share it.
    pub company_id: Option<String>,
    /// A pointer into its configuration, or `env:NAME`.
    pub pointer: String,
    /// Which version is meant.
    pub selector: Selector,
    /// Which version that is now.
    pub version: i64,
}

/// A place of a lease that pinned a secret and has not ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LeaseUse {
    /// Which lease.
    pub lease_id: String,
    /// Its status.
    pub status: String,
    /// Whose it is.
    pub company_id: String,
    /// The environment that it was acquired from.
    pub environment_id: String,
    /// A pointer into its configuration, or `env:NAME`.
    pub pointer: String,
    /// The version that it pinned.
    pub version: i64,
}

/// What uses a secret, or one version of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SecretUses {
    /// By environment and place.
    pub environments: Vec<EnvironmentUse>,
    /// By lease and place.
    pub leases: Vec<LeaseUse>,
    /// The settings of the server that name it.
    pub settings: Vec<String>,
}

impl SecretUses {
    /// Whether nothing does.
    pub fn is_empty(&self) -> bool {
        self.environments.is_empty() && self.leases.is_empty() && self.settings.is_empty()
    }

    /// The ids of the environments, each once.
    pub fn environment_ids(&self) -> Vec<&str> {
        once(self.environments.iter().map(|u| u.environment_id.as_str()))
    }

    /// The ids of the leases, each once.
    pub fn lease_ids(&self) -> Vec<&str> {
        once(self.leases.iter().map(|u| u.lease_id.as_str()))
    }

    pub(super) fn in_words(&self) -> String {
        let count = |n: usize, what: &str| match n {
            1 => format!("1 {what}"),
            n => format!("{n} {what}s"),
        };
        let mut words = format!(
            "{} and {}",
            count(self.environment_ids().len(), "environment"),
            count(self.lease_ids().len(), "unreleased lease")
        );
        if !self.settings.is_empty() {
            words.push_str(&format!(
                ", and by the settings ({})",
                self.settings.join("; ")
            ));
        }
        words
    }

    pub(super) fn details(&self) -> Value {
        let first = |ids: Vec<&str>| ids.into_iter().take(NAMED).collect::<Value>();
        let mut details = json!({ "environments": first(self.environment_ids()), "leases": first(self.lease_ids()) });
        if !self.settings.is_empty() {
            details["settings"] = self.settings.iter().take(NAMED).cloned().collect();
        }
        details
    }
}

/// Each id once; they come in order.
fn once<'a>(ids: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut ids: Vec<&str> = ids.collect();
    ids.dedup();
    ids
}

/// What uses a secret, of one version where that is given.
pub(super) async fn of(
    db: &mut SqliteConnection,
    id: &str,
    version: Option<i64>,
) -> Result<SecretUses> {
    let rows: Vec<(String, String, Option<String>, String, String, i64)> = sqlx::query_as(
        "SELECT b.environment_id, e.name, e.company_id, b.pointer, b.selector, b.version
         FROM secret_bindings b JOIN environments e ON e.id = b.environment_id
         WHERE b.secret_id = $1 AND ($2 IS NULL OR b.version = $2) ORDER BY b.environment_id, b.pointer",
    )
    .bind(id)
    .bind(version)
    .fetch_all(&mut *db)
    .await?;
    let environments = rows
        .into_iter()
        .map(
            |(environment_id, name, company_id, pointer, selector, version)| {
                Ok(EnvironmentUse {
                    selector: Selector::parse(&selector).ok_or_else(|| {
                        Error::corrupt(format!(
                            "the binding at {pointer} of environment {environment_id}"
                        ))
                    })?,
                    environment_id,
                    name,
                    company_id,
                    pointer,
                    version,
                })
            },
        )
        .collect::<Result<_>>()?;
    let rows: Vec<(String, String, String, String, String, i64)> = sqlx::query_as(
        "SELECT p.lease_id, l.status, l.company_id, l.environment_id, p.pointer, p.version
         FROM lease_secrets p JOIN leases l ON l.id = p.lease_id
         WHERE p.secret_id = $1 AND ($2 IS NULL OR p.version = $2) ORDER BY p.lease_id, p.pointer",
    )
    .bind(id)
    .bind(version)
    .fetch_all(&mut *db)
    .await?;
    let leases = rows
        .into_iter()
        .map(
            |(lease_id, status, company_id, environment_id, pointer, version)| LeaseUse {
                lease_id,
                status,
                company_id,
                environment_id,
                pointer,
                version,
            },
        )
        .collect();
    Ok(SecretUses {
        environments,
        leases,
        settings: Vec::new(),
    })
}

/// The secrets that this environment uses, its leases may, and nothing else does: no other environment, no unreleased lease
/// of one, no setting. By name.
pub(crate) async fn of_nothing_else(
    db: &mut SqliteConnection,
    keys: &Keys,
    named: &NamedUses,
    environment: &str,
) -> Result<Vec<Secret>> {
    let ids: Vec<(String,)> = sqlx::query_as(
        "SELECT DISTINCT s.id FROM secrets s JOIN secret_bindings b ON b.secret_id = s.id
         WHERE b.environment_id = $1
           AND NOT EXISTS (SELECT 1 FROM secret_bindings o
                           WHERE o.secret_id = s.id AND o.environment_id <> $1)
           AND NOT EXISTS (SELECT 1 FROM lease_secrets p JOIN leases l ON l.id = p.lease_id
                           WHERE p.secret_id = s.id AND l.environment_id <> $1)",
    )
    .bind(environment)
    .fetch_all(&mut *db)
    .await?;
    let mut secrets = Vec::with_capacity(ids.len());
    for (id,) in ids {
        let secret = row::load(&mut *db, keys, &id).await?;
        if named.of(&secret).is_empty() {
            secrets.push(secret);
        }
    }
    secrets.sort_by(|a, b| (&a.name, &a.id).cmp(&(&b.name, &b.id)));
    Ok(secrets)
}

/// How many environments and unreleased leases use a secret, or one version of it.
pub(super) async fn counts<'e>(
    db: impl sqlx::Executor<'e, Database = Db>,
    id: &str,
    version: Option<i64>,
) -> Result<(i64, i64)> {
    Ok(sqlx::query_as(
        "SELECT (SELECT COUNT(DISTINCT environment_id) FROM secret_bindings
                     WHERE secret_id = $1 AND ($2 IS NULL OR version = $2)),
                (SELECT COUNT(DISTINCT lease_id) FROM lease_secrets
                     WHERE secret_id = $1 AND ($2 IS NULL OR version = $2))",
    )
    .bind(id)
    .bind(version)
    .fetch_one(db)
    .await?)
}

impl Secrets {
    /// What uses a secret: what deleting it by force would break.
    pub async fn uses(&self, id: &str) -> Result<SecretUses> {
        let mut db = self.store.read().acquire().await?;
        let secret = row::load(&mut *db, &self.keys, id).await?;
        let mut uses = of(&mut db, id, None).await?;
        uses.settings = self.named.of(&secret);
        Ok(uses)
    }

    /// Deletes a secret with all its versions. Refused while an environment, an unreleased lease or the settings use it,
    /// unless it is forced; answers what used it. What was forced away is missing from then on.
    pub async fn delete(&self, actor: &Actor, id: &str, force: bool) -> Result<SecretUses> {
        actor.may(Operation::DeleteSecret)?;
        let (actor, id) = (actor.clone(), id.to_owned());
        let memory = Arc::clone(&self.environments);
        let named = Arc::clone(&self.named);
        self.store
            .write(move |tx| {
                Box::pin(async move {
                    let keys = Arc::clone(&tx.keys);
                    let secret = row::load(&mut tx.db, &keys, &id).await?;
                    let mut uses = of(&mut tx.db, &id, None).await?;
                    uses.settings = named.of(&secret);
                    if !uses.is_empty() && !force {
                        return Err(Error::conflict_with(
                            code::SECRET_IN_USE,
                            format!(
                                "secret {:?} is used by {}: take it out of there and release the leases first, or delete it by force and put up with what breaks",
                                secret.name,
                                uses.in_words()
                            ),
                            uses.details(),
                        ));
                    }
                    for sql in [
                        "DELETE FROM secret_bindings WHERE secret_id = $1",
                        "DELETE FROM lease_secrets WHERE secret_id = $1",
                        "DELETE FROM secrets WHERE id = $1",
                    ] {
                        sqlx::query(sql).bind(&id).execute(&mut tx.db).await?;
                    }
                    for environment in uses.environment_ids() {
                        environment::raise_target(tx, environment, Arc::clone(&memory)).await?;
                    }
                    let mut details = uses.details();
                    details["name"] = secret.name.into();
                    details["forced"] = (!uses.is_empty()).into();
                    tx.record(
                        &actor,
                        Entry::new(
                            "secret.deleted",
                            secret.company_id.as_deref(),
                            "secret",
                            &id,
                            details,
                        ),
                    )
                    .await?;
                    Ok(uses)
                })
            })
            .await
    }
}

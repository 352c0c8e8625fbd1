//! Secrets of a company: values that are kept sealed, in versions, and used only where they are bound.
//!
//! Use goes through a binding: the data key wrapped for one place (pointer, sites, destinations) of one
//! environment or one lease. Only the save of an environment by an administrator makes one; moving a
//! destination needs a new one; a rotation re-binds what follows `latest` after the old binding verified. A
//! value is in memory only, in buffers that are wiped; it is in no error, no log and no activity.

mod binding;
mod reference;
mod resolve;
mod seal;

use std::sync::Arc;

use serde::Serialize;
use serde_json::json;
use sqlx::Row as _;
use zeroize::Zeroizing;

pub(crate) use binding::{Wanted, bind, drop_pins, pin_for_lease};
pub(crate) use reference::{Reference, find as find_references, read as read_reference};
pub use reference::{Selector, env_pointer};
pub use resolve::{Pin, Resolved};

use self::seal::Aad;
use crate::activity::Entry;
use crate::actor::Actor;
use crate::environment::EnvironmentMemory;
use crate::error::{Error, Result, code};
use crate::keys::{Key, Keys};
use crate::store::{Db, Row, Store, Tx, is_unique_violation, now_ms};
use crate::{company, id, name};

/// Bytes of a value at most.
pub const MAX_VALUE: usize = 64 * 1024;

/// A secret's record; never a value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Secret {
    /// `sec_…`.
    pub id: String,
    /// Whose it is.
    pub company_id: String,
    /// Unique in the company.
    pub name: String,
    /// For a person.
    pub description: Option<String>,
    /// The newest version; versions count from 1.
    pub latest_version: i64,
    /// Milliseconds since the epoch.
    pub created_at: i64,
    /// When the last version was put, or the record changed.
    pub updated_at: i64,
}

/// The secrets.
#[derive(Clone)]
pub struct Secrets {
    pub(crate) store: Arc<Store>,
    pub(crate) keys: Arc<Keys>,
    pub(crate) environments: Arc<EnvironmentMemory>,
}

fn secret(row: &Row) -> Result<Secret> {
    Ok(Secret {
        id: row.try_get("id")?,
        company_id: row.try_get("company_id")?,
        name: row.try_get("name")?,
        description: row.try_get("description")?,
        latest_version: row.try_get("latest")?,
        created_at: row.try_get("created_at")?,
        updated_at: row.try_get("updated_at")?,
    })
}

async fn load<'e>(db: impl sqlx::Executor<'e, Database = Db>, id: &str) -> Result<Secret> {
    let row = sqlx::query("SELECT * FROM secrets WHERE id = $1")
        .bind(id)
        .fetch_optional(db)
        .await?
        .ok_or_else(|| Error::not_found("secret", id))?;
    secret(&row)
}

fn check_value(value: &[u8]) -> Result<()> {
    if value.is_empty() || value.len() > MAX_VALUE {
        return Err(Error::invalid(
            "/value",
            format!("must be 1 to {MAX_VALUE} bytes, and has {}", value.len()),
        ));
    }
    Ok(())
}

/// Seals `value` as a version and keeps it.
async fn put(
    tx: &mut Tx,
    company: &str,
    secret: &str,
    version: i64,
    value: &[u8],
    by: &Actor,
) -> Result<Key> {
    let key = seal::data_key()?;
    let sealed = seal::seal(&key, &Aad::value(company, secret, version), value)?;
    let wrapped = seal::seal(
        &tx.keys.secrets,
        &Aad::kept(company, secret, version),
        &key[..],
    )?;
    sqlx::query(concat!(
        "INSERT INTO secret_versions (secret_id, version, sealed, wrapped, created_by, created_at)
         VALUES ($1, $2, $3, $4, $5, ",
        now_ms!(),
        ")"
    ))
    .bind(secret)
    .bind(version)
    .bind(sealed)
    .bind(wrapped)
    .bind(&by.display)
    .execute(&mut tx.db)
    .await?;
    Ok(key)
}

impl Secrets {
    /// Keeps a value as the first version of a new secret.
    pub async fn create(
        &self,
        actor: &Actor,
        company: &str,
        name: &str,
        description: Option<&str>,
        value: Zeroizing<Vec<u8>>,
    ) -> Result<Secret> {
        actor.require_manage()?;
        let name = name::checked("/name", name)?;
        let description = name::description("/description", description)?;
        check_value(&value)?;
        let (actor, company) = (actor.clone(), company.to_owned());
        self.store
            .write(move |tx| {
                Box::pin(async move {
                    company::must_exist(&mut tx.db, &company).await?;
                    let id = id::fresh("sec_")?;
                    sqlx::query(concat!(
                        "INSERT INTO secrets (id, company_id, name, description, latest, created_at, updated_at)
                         VALUES ($1, $2, $3, $4, 1, ",
                        now_ms!(),
                        ", ",
                        now_ms!(),
                        ")"
                    ))
                    .bind(&id)
                    .bind(&company)
                    .bind(&name)
                    .bind(&description)
                    .execute(&mut tx.db)
                    .await
                    .map_err(|e| {
                        if is_unique_violation(&e, "secrets.name") {
                            Error::conflict(
                                code::SECRET_NAME_TAKEN,
                                format!("the company has a secret named {name:?} already"),
                            )
                        } else {
                            e.into()
                        }
                    })?;
                    put(tx, &company, &id, 1, &value, &actor).await?;
                    tx.record(
                        &actor,
                        Entry::new(
                            "secret.created",
                            Some(&company),
                            "secret",
                            &id,
                            json!({ "name": name }),
                        ),
                    )
                    .await?;
                    load(&mut tx.db, &id).await
                })
            })
            .await
    }

    /// Rotates: keeps a value as the newest version and moves every environment binding that follows
    /// `latest` to it, which raises their target revision. Leases keep what they were acquired with.
    pub async fn put_version(
        &self,
        actor: &Actor,
        id: &str,
        value: Zeroizing<Vec<u8>>,
    ) -> Result<Secret> {
        actor.require_manage()?;
        check_value(&value)?;
        let (actor, id) = (actor.clone(), id.to_owned());
        let memory = Arc::clone(&self.environments);
        self.store
            .write(move |tx| {
                Box::pin(async move {
                    let secret = load(&mut tx.db, &id).await?;
                    let version = secret.latest_version + 1;
                    let key = put(tx, &secret.company_id, &id, version, &value, &actor).await?;
                    sqlx::query(concat!(
                        "UPDATE secrets SET latest = $2, updated_at = ",
                        now_ms!(),
                        " WHERE id = $1"
                    ))
                    .bind(&id)
                    .bind(version)
                    .execute(&mut tx.db)
                    .await?;
                    let moved =
                        binding::follow_latest(tx, &secret, version, &key, memory).await?;
                    tx.record(
                        &actor,
                        Entry::new(
                            "secret.rotated",
                            Some(&secret.company_id),
                            "secret",
                            &id,
                            json!({ "name": secret.name, "version": version, "environments": moved }),
                        ),
                    )
                    .await?;
                    load(&mut tx.db, &id).await
                })
            })
            .await
    }

    /// One secret.
    pub async fn get(&self, id: &str) -> Result<Secret> {
        load(self.store.read(), id).await
    }

    /// A company's secrets by name.
    pub async fn list(&self, company: &str) -> Result<Vec<Secret>> {
        company::must_exist(self.store.read(), company).await?;
        let rows = sqlx::query("SELECT * FROM secrets WHERE company_id = $1 ORDER BY name")
            .bind(company)
            .fetch_all(self.store.read())
            .await?;
        rows.iter().map(secret).collect()
    }

    /// Deletes a secret with all its versions. Refused while an environment or an unreleased lease uses it.
    pub async fn delete(&self, actor: &Actor, id: &str) -> Result<()> {
        actor.require_manage()?;
        let (actor, id) = (actor.clone(), id.to_owned());
        self.store
            .write(move |tx| {
                Box::pin(async move {
                    let secret = load(&mut tx.db, &id).await?;
                    let environments: Vec<String> = sqlx::query_scalar(
                        "SELECT DISTINCT environment_id FROM secret_bindings WHERE secret_id = $1 ORDER BY 1 LIMIT 20",
                    )
                    .bind(&id)
                    .fetch_all(&mut tx.db)
                    .await?;
                    let leases: Vec<String> = sqlx::query_scalar(
                        "SELECT DISTINCT lease_id FROM lease_secrets WHERE secret_id = $1 ORDER BY 1 LIMIT 20",
                    )
                    .bind(&id)
                    .fetch_all(&mut tx.db)
                    .await?;
                    if !environments.is_empty() || !leases.is_empty() {
                        return Err(Error::conflict_with(
                            code::SECRET_IN_USE,
                            format!(
                                "secret {:?} is used by {} environments and {} unreleased leases: take it out of the environments and release the leases first",
                                secret.name,
                                environments.len(),
                                leases.len()
                            ),
                            json!({ "environments": environments, "leases": leases }),
                        ));
                    }
                    sqlx::query("DELETE FROM secrets WHERE id = $1")
                        .bind(&id)
                        .execute(&mut tx.db)
                        .await?;
                    tx.record(
                        &actor,
                        Entry::new(
                            "secret.deleted",
                            Some(&secret.company_id),
                            "secret",
                            &id,
                            json!({ "name": secret.name }),
                        ),
                    )
                    .await
                })
            })
            .await
    }
}

//! Bindings: the right to use one version of a secret at one place.
//!
//! Keeps the rule that a credential's destinations and sites are part of its encryption: they are in the
//! associated data of the wrapped key, so an edited binding row opens nothing.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::json;
use sqlx::Row as _;

use super::access::{self, Accessor, Note};
use super::reference::Selector;
use super::seal::{self, Aad, Holder, Place};
use super::{Secret, row, version};
use crate::activity::Entry;
use crate::actor::Actor;
use crate::environment::{self, EnvironmentMemory};
use crate::error::{Error, Result, code};
use crate::keys::Key;
use crate::store::{Db, Tx, now_ms};

/// A use that an environment's configuration asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Wanted {
    pub pointer: String,
    pub secret_id: String,
    pub selector: Selector,
    pub sites: Vec<String>,
    pub destinations: Vec<String>,
    /// Where the reference stands in the request, for a violation.
    pub at: String,
}

struct Bound {
    secret_id: String,
    selector: String,
    version: i64,
    sites: String,
    destinations: String,
    wrapped: Vec<u8>,
}

async fn bound(tx: &mut Tx, environment: &str) -> Result<BTreeMap<String, Bound>> {
    let rows = sqlx::query("SELECT * FROM secret_bindings WHERE environment_id = $1")
        .bind(environment)
        .fetch_all(&mut tx.db)
        .await?;
    rows.iter()
        .map(|row| {
            Ok((
                row.try_get("pointer")?,
                Bound {
                    secret_id: row.try_get("secret_id")?,
                    selector: row.try_get("selector")?,
                    version: row.try_get("version")?,
                    sites: row.try_get("sites")?,
                    destinations: row.try_get("destinations")?,
                    wrapped: row.try_get("wrapped")?,
                },
            ))
        })
        .collect()
}

/// Makes the bindings of an environment exactly `wanted`. What stays the same keeps its binding; everything
/// else is bound anew or unbound, and recorded. `as_before` says that the references are those that are stored: then one
/// whose secret was deleted by force may stay as it is, without a binding. With `moved` the environment was another
/// company's until now, and whatever it refers to is bound anew. Returns whether anything changed.
pub(crate) async fn bind(
    tx: &mut Tx,
    actor: &Actor,
    company: Option<&str>,
    environment: &str,
    wanted: Vec<Wanted>,
    as_before: bool,
    moved: bool,
) -> Result<bool> {
    let keys = Arc::clone(&tx.keys);
    let mut before = bound(tx, environment).await?;
    let mut changed = false;
    let mut violations = crate::error::Violations::default();
    for want in wanted {
        let sites = serde_json::to_string(&want.sites)?;
        let destinations = serde_json::to_string(&want.destinations)?;
        let selector = want.selector.stored();
        let old = before.remove(&want.pointer);
        if let Some(old) = &old
            && !moved
            && old.secret_id == want.secret_id
            && old.selector == selector
            && old.sites == sites
            && old.destinations == destinations
        {
            continue;
        }
        let secret = match row::load(&mut tx.db, &keys, &want.secret_id).await {
            Ok(secret) if company.is_none_or(|company| secret.serves(company)) => secret,
            Err(Error::NotFound { .. }) if as_before => continue,
            Ok(_) | Err(Error::NotFound { .. }) => {
                violations.add(
                    want.at,
                    format!("the company has no secret {:?}", want.secret_id),
                );
                continue;
            }
            Err(e) => return Err(e),
        };
        let version = match want.selector {
            Selector::Latest => secret.latest_version,
            Selector::Version(n) => n,
        };
        let key = match version::usable(tx, &secret, version).await? {
            Ok((_, key)) => key,
            Err(why) => {
                violations.add(want.at, why);
                continue;
            }
        };
        let aad = Aad::place(
            company.unwrap_or_default(),
            &Place {
                holder: Holder::Environment(environment),
                pointer: &want.pointer,
                secret: &secret.id,
                version,
                sites: &sites,
                destinations: &destinations,
            },
        );
        let wrapped = seal::seal(&tx.keys.secrets, &aad, &key[..])?;
        sqlx::query(concat!(
            "INSERT INTO secret_bindings (environment_id, pointer, secret_id, selector, version, sites,
                                          destinations, wrapped, bound_by, bound_at)
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, ",
            now_ms!(),
            ")
             ON CONFLICT (environment_id, pointer) DO UPDATE SET secret_id = excluded.secret_id,
                 selector = excluded.selector, version = excluded.version, sites = excluded.sites,
                 destinations = excluded.destinations, wrapped = excluded.wrapped,
                 bound_by = excluded.bound_by, bound_at = excluded.bound_at"
        ))
        .bind(environment)
        .bind(&want.pointer)
        .bind(&secret.id)
        .bind(&selector)
        .bind(version)
        .bind(&sites)
        .bind(&destinations)
        .bind(wrapped)
        .bind(&actor.display)
        .execute(&mut tx.db)
        .await?;
        changed = true;
        tx.record(
            actor,
            Entry::new(
                "secret.bound",
                company,
                "secret",
                &secret.id,
                json!({
                    "name": secret.name, "version": version, "environment": environment,
                    "pointer": want.pointer, "sites": want.sites, "destinations": want.destinations,
                }),
            ),
        )
        .await?;
    }
    violations.done()?;
    for (pointer, old) in before {
        sqlx::query("DELETE FROM secret_bindings WHERE environment_id = $1 AND pointer = $2")
            .bind(environment)
            .bind(&pointer)
            .execute(&mut tx.db)
            .await?;
        changed = true;
        tx.record(
            actor,
            Entry::new(
                "secret.unbound",
                company,
                "secret",
                &old.secret_id,
                json!({ "environment": environment, "pointer": pointer }),
            ),
        )
        .await?;
    }
    Ok(changed)
}

/// Moves every binding that follows `latest` to a new version, after the old one verified. Returns how many
/// environments that touched.
pub(super) async fn follow_latest(
    tx: &mut Tx,
    secret: &Secret,
    version: i64,
    key: &Key,
    memory: Arc<EnvironmentMemory>,
) -> Result<usize> {
    let rows = sqlx::query(
        "SELECT b.*, e.company_id FROM secret_bindings b JOIN environments e ON e.id = b.environment_id
         WHERE b.secret_id = $1 AND b.selector = 'latest' ORDER BY b.environment_id",
    )
    .bind(&secret.id)
    .fetch_all(&mut tx.db)
    .await?;
    let mut environments = Vec::new();
    for row in rows {
        let environment: String = row.try_get("environment_id")?;
        let company: Option<String> = row.try_get("company_id")?;
        let company = company.unwrap_or_default();
        let pointer: String = row.try_get("pointer")?;
        let sites: String = row.try_get("sites")?;
        let destinations: String = row.try_get("destinations")?;
        let old = Place {
            holder: Holder::Environment(&environment),
            pointer: &pointer,
            secret: &secret.id,
            version: row.try_get("version")?,
            sites: &sites,
            destinations: &destinations,
        };
        // An edited row must not be blessed by the rotation.
        seal::unwrap_key(
            &tx.keys.secrets,
            &Aad::place(&company, &old),
            row.try_get("wrapped")?,
            &format!(
                "the binding of secret {} at {pointer} of environment {environment}",
                secret.id
            ),
        )?;
        let wrapped = seal::seal(
            &tx.keys.secrets,
            &Aad::place(&company, &Place { version, ..old }),
            &key[..],
        )?;
        sqlx::query(
            "UPDATE secret_bindings SET version = $3, wrapped = $4
             WHERE environment_id = $1 AND pointer = $2",
        )
        .bind(&environment)
        .bind(&pointer)
        .bind(version)
        .bind(wrapped)
        .execute(&mut tx.db)
        .await?;
        if environments.last() != Some(&environment) {
            environments.push(environment);
        }
    }
    for environment in &environments {
        environment::raise_target(tx, environment, Arc::clone(&memory)).await?;
    }
    Ok(environments.len())
}

/// Fails where a secret that an environment uses is another company's than the one that it is used for: an environment
/// that all companies share may use a company's secret, for that company alone. Nothing is opened. A company's own
/// environment was saved with no secret of another one, and an edit of either row is noticed where they are believed.
pub(super) async fn serve<'e>(
    db: impl sqlx::Executor<'e, Database = Db>,
    environment: &str,
    company: &str,
) -> Result<()> {
    let foreign: Option<String> = sqlx::query_scalar(
        "SELECT b.pointer FROM secret_bindings b
         JOIN environments e ON e.id = b.environment_id JOIN secrets s ON s.id = b.secret_id
         WHERE b.environment_id = $1 AND e.company_id IS NULL AND s.company_id <> $2 ORDER BY b.pointer LIMIT 1",
    )
    .bind(environment)
    .bind(company)
    .fetch_optional(db)
    .await?;
    match foreign {
        None => Ok(()),
        Some(pointer) => Err(foreign_secret(&pointer, company)),
    }
}

pub(super) fn foreign_secret(pointer: &str, company: &str) -> Error {
    Error::conflict(
        code::ENVIRONMENT_COMPANY_MISMATCH,
        format!(
            "the environment's secret at {pointer} belongs to another company than {company}: use it for that company, \
             or put a secret of the instance there"
        ),
    )
}

/// Copies the environment's bindings to a lease, wrapped for it: what it was acquired with, whatever the
/// environment becomes. On record as accesses of `by`. `owner` is whose the environment is, `company` whose the lease:
/// of one that all share they differ, and then no secret of another company is had. Returns pointer and version of each.
pub(crate) async fn pin_for_lease(
    tx: &mut Tx,
    owner: Option<&str>,
    company: &str,
    environment: &str,
    lease: &str,
    by: &Accessor,
) -> Result<BTreeMap<String, (String, i64)>> {
    serve(&mut tx.db, environment, company).await?;
    let mut versions = BTreeMap::new();
    for (pointer, b) in bound(tx, environment).await? {
        let place = |holder| Place {
            holder,
            pointer: &pointer,
            secret: &b.secret_id,
            version: b.version,
            sites: &b.sites,
            destinations: &b.destinations,
        };
        let key = seal::unwrap_key(
            &tx.keys.secrets,
            &Aad::place(
                owner.unwrap_or_default(),
                &place(Holder::Environment(environment)),
            ),
            &b.wrapped,
            &format!("the binding of a secret at {pointer} of environment {environment}"),
        )?;
        let wrapped = seal::seal(
            &tx.keys.secrets,
            &Aad::place(company, &place(Holder::Lease(lease))),
            &key[..],
        )?;
        sqlx::query(
            "INSERT INTO lease_secrets (lease_id, pointer, secret_id, version, sites, destinations, wrapped)
             VALUES ($1, $2, $3, $4, $5, $6, $7)",
        )
        .bind(lease)
        .bind(&pointer)
        .bind(&b.secret_id)
        .bind(b.version)
        .bind(&b.sites)
        .bind(&b.destinations)
        .bind(wrapped)
        .execute(&mut tx.db)
        .await?;
        let note = Note {
            at: tx.now(),
            secret: b.secret_id.clone(),
            version: b.version,
            company: company.to_owned(),
            environment: Some(environment.to_owned()),
            by: by.clone(),
            pointer: pointer.clone(),
            destinations: b.destinations,
        };
        access::write(&mut tx.db, &note).await?;
        versions.insert(pointer, (b.secret_id, b.version));
    }
    Ok(versions)
}

/// Takes a lease's pins away: it has ended.
pub(crate) async fn drop_pins(tx: &mut Tx, lease: &str) -> Result<()> {
    sqlx::query("DELETE FROM lease_secrets WHERE lease_id = $1")
        .bind(lease)
        .execute(&mut tx.db)
        .await?;
    Ok(())
}

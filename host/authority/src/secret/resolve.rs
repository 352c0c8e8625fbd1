//! The value, for whoever holds a binding.
//!
//! Answers only for a place that was bound, or for a lease what it pinned; a draft probe by an
//! administrator is the one use without a binding. Whoever has a value is recorded.

use std::collections::HashSet;
use std::sync::Arc;

use serde::Serialize;
use serde_json::json;
use sqlx::Row as _;
use zeroize::Zeroizing;

use super::access::{self, Accessor, Note};
use super::reference::Selector;
use super::seal::{self, Aad, Holder, Place};
use super::{Secrets, binding, row, version};
use crate::activity::Entry;
use crate::actor::Actor;
use crate::error::{Error, Result};
use crate::policy::Operation;
use crate::store::{Row, now_ms};

/// Where a secret may be used; no value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Pin {
    /// An RFC 6901 pointer into the configuration, or `env:NAME`.
    pub pointer: String,
    /// Which secret.
    pub secret_id: String,
    /// Which version of it.
    pub version: i64,
    /// Where in a message.
    pub sites: Vec<String>,
    /// Toward whom.
    pub destinations: Vec<String>,
}

/// A value with the place that it is for.
pub struct Resolved {
    /// The value; wiped when dropped.
    pub value: Zeroizing<Vec<u8>>,
    /// Where it may be used. Whoever uses it compares.
    pub pin: Pin,
}

impl std::fmt::Debug for Resolved {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Resolved")
            .field("pin", &self.pin)
            .finish_non_exhaustive()
    }
}

fn pin(row: &Row) -> Result<Pin> {
    Ok(Pin {
        pointer: row.try_get("pointer")?,
        secret_id: row.try_get("secret_id")?,
        version: row.try_get("version")?,
        sites: serde_json::from_str(row.try_get("sites")?)?,
        destinations: serde_json::from_str(row.try_get("destinations")?)?,
    })
}

impl Secrets {
    /// The value that is bound at `pointer` of an environment.
    pub async fn resolve(
        &self,
        environment: &str,
        pointer: &str,
        by: &Accessor,
    ) -> Result<Resolved> {
        let row = sqlx::query(concat!(
            "SELECT b.*, v.sealed, e.company_id, s.company_id AS scope, ",
            now_ms!(),
            " AS now FROM secret_bindings b
             JOIN environments e ON e.id = b.environment_id
             JOIN secrets s ON s.id = b.secret_id
             JOIN secret_versions v ON v.secret_id = b.secret_id AND v.version = b.version
             WHERE b.environment_id = $1 AND b.pointer = $2"
        ))
        .bind(environment)
        .bind(pointer)
        .fetch_optional(self.store.read())
        .await?
        .ok_or_else(|| Error::not_found("secret binding", pointer))?;
        self.open(&row, Holder::Environment(environment), environment, by)
    }

    /// The value that a lease pinned at `pointer` when it was acquired. None is left once it has ended.
    pub async fn resolve_pinned(
        &self,
        lease: &str,
        pointer: &str,
        by: &Accessor,
    ) -> Result<Resolved> {
        let row = sqlx::query(concat!(
            "SELECT p.*, v.sealed, l.company_id, l.environment_id, s.company_id AS scope, ",
            now_ms!(),
            " AS now FROM lease_secrets p
             JOIN leases l ON l.id = p.lease_id
             JOIN secrets s ON s.id = p.secret_id
             JOIN secret_versions v ON v.secret_id = p.secret_id AND v.version = p.version
             WHERE p.lease_id = $1 AND p.pointer = $2"
        ))
        .bind(lease)
        .bind(pointer)
        .fetch_optional(self.store.read())
        .await?
        .ok_or_else(|| Error::not_found("secret of the lease", pointer))?;
        let environment: String = row.try_get("environment_id")?;
        self.open(&row, Holder::Lease(lease), &environment, by)
    }

    fn open(
        &self,
        row: &Row,
        holder: Holder<'_>,
        environment: &str,
        by: &Accessor,
    ) -> Result<Resolved> {
        let pin = pin(row)?;
        let owner: Option<String> = row.try_get("company_id")?;
        let scope: Option<String> = row.try_get("scope")?;
        let destinations: String = row.try_get("destinations")?;
        let what = format!("the binding of secret {} at {}", pin.secret_id, pin.pointer);
        // What all companies share is used for one of them, and no other's secret is.
        let company = owner
            .as_ref()
            .or(by.company.as_ref())
            .cloned()
            .ok_or_else(|| {
                Error::invalid(
                    "?companyId",
                    "the environment is shared by all companies: say for which of them",
                )
            })?;
        if owner.is_none() && scope.as_ref().is_some_and(|own| *own != company) {
            return Err(binding::foreign_secret(&pin.pointer, &company));
        }
        let place = Place {
            holder,
            pointer: &pin.pointer,
            secret: &pin.secret_id,
            version: pin.version,
            sites: row.try_get("sites")?,
            destinations: &destinations,
        };
        let key = seal::unwrap_key(
            &self.keys.secrets,
            &Aad::place(owner.as_deref().unwrap_or_default(), &place),
            row.try_get("wrapped")?,
            &what,
        )?;
        let version = format!("version {} of secret {}", pin.version, pin.secret_id);
        let sealed: Option<&[u8]> = row.try_get("sealed")?;
        let value = seal::open(
            &key,
            &Aad::value(
                scope.as_deref().unwrap_or_default(),
                &pin.secret_id,
                pin.version,
            ),
            sealed.ok_or_else(|| Error::corrupt(&version))?,
            &version,
        )?;
        self.accesses.note(
            &self.store,
            Note {
                at: row.try_get("now")?,
                secret: pin.secret_id.clone(),
                version: pin.version,
                company,
                environment: Some(environment.to_owned()),
                by: by.clone(),
                pointer: pin.pointer.clone(),
                destinations,
            },
        );
        Ok(Resolved { value, pin })
    }

    /// Whether an environment can be used for a company: no secret of it is another company's. Nothing is opened.
    ///
    /// # Errors
    /// [`code::ENVIRONMENT_COMPANY_MISMATCH`](crate::code::ENVIRONMENT_COMPANY_MISMATCH), which names the place.
    pub async fn serve(&self, environment: &str, company: &str) -> Result<()> {
        binding::serve(self.store.read(), environment, company).await
    }

    /// The shared environments that use a secret of another company than this one: they do not serve it.
    ///
    /// # Errors
    /// The database's.
    pub async fn closed_to(&self, company: &str) -> Result<HashSet<String>> {
        let closed: Vec<String> = sqlx::query_scalar(
            "SELECT DISTINCT b.environment_id FROM secret_bindings b
             JOIN environments e ON e.id = b.environment_id JOIN secrets s ON s.id = b.secret_id
             WHERE e.company_id IS NULL AND s.company_id <> $1",
        )
        .bind(company)
        .fetch_all(self.store.read())
        .await?;
        Ok(closed.into_iter().collect())
    }

    /// The places that are bound in an environment.
    pub async fn bound_pointers(&self, environment: &str) -> Result<Vec<Pin>> {
        let rows =
            sqlx::query("SELECT * FROM secret_bindings WHERE environment_id = $1 ORDER BY pointer")
                .bind(environment)
                .fetch_all(self.store.read())
                .await?;
        rows.iter().map(pin).collect()
    }

    /// The places that a lease pinned.
    pub async fn pinned_pointers(&self, lease: &str) -> Result<Vec<Pin>> {
        let rows = sqlx::query("SELECT * FROM lease_secrets WHERE lease_id = $1 ORDER BY pointer")
            .bind(lease)
            .fetch_all(self.store.read())
            .await?;
        rows.iter().map(pin).collect()
    }

    /// The value for the probe of a draft that is not saved, on an administrator's word. `pointer` and
    /// `destinations` say what for, and are recorded.
    pub async fn resolve_draft(
        &self,
        actor: &Actor,
        company: &str,
        secret_id: &str,
        selector: Selector,
        pointer: &str,
        destinations: &[String],
    ) -> Result<Resolved> {
        actor.may(Operation::ProbeDraft)?;
        let (by, company, secret_id, pointer) = (
            actor.clone(),
            company.to_owned(),
            secret_id.to_owned(),
            pointer.to_owned(),
        );
        let destinations = destinations.to_vec();
        self.store
            .write(move |tx| {
                Box::pin(async move {
                    let keys = Arc::clone(&tx.keys);
                    let secret = row::load(&mut tx.db, &keys, &secret_id).await?;
                    if !secret.serves(&company) {
                        return Err(Error::not_found("secret", &secret_id));
                    }
                    let version = match selector {
                        Selector::Latest => secret.latest_version,
                        Selector::Version(n) => n,
                    };
                    let (found, key) = version::usable(tx, &secret, version)
                        .await?
                        .map_err(|why| Error::invalid(&pointer, why))?;
                    let value = seal::open(
                        &key,
                        &Aad::value(secret.scope(), &secret_id, version),
                        found.sealed.as_deref().unwrap_or_default(),
                        &found.what(),
                    )?;
                    let note = Note {
                        at: tx.now(),
                        secret: secret_id.clone(),
                        version,
                        company: company.clone(),
                        environment: None,
                        by: Accessor::of(&by, "probe of a draft"),
                        pointer: pointer.clone(),
                        destinations: serde_json::to_string(&destinations)?,
                    };
                    access::write(&mut tx.db, &note).await?;
                    tx.record(
                        &by,
                        Entry::new(
                            "secret.used_in_draft",
                            Some(&company),
                            "secret",
                            &secret_id,
                            json!({ "version": version, "pointer": pointer, "destinations": destinations }),
                        ),
                    )
                    .await?;
                    Ok(Resolved {
                        value,
                        pin: Pin {
                            pointer,
                            secret_id,
                            version,
                            sites: Vec::new(),
                            destinations,
                        },
                    })
                })
            })
            .await
    }
}

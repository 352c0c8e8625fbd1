//! Defaults: what is leased where nothing says otherwise, of a company and of the whole instance.
//!
//! A default is an environment that whoever it is for sees, that is active, and that somebody can lease. It decides where
//! an agent's work goes, so its row is authenticated. What reads it looks again: it may have been archived since.

use sqlx::{Row as _, SqliteConnection};

use serde_json::json;

use super::{Environments, load};
use crate::activity::Entry;
use crate::actor::Actor;
use crate::company;
use crate::environment::EnvironmentStatus;
use crate::error::{Error, Result};
use crate::keys::{Keys, Mac};
use crate::policy::Operation;
use crate::store::{Row, Store, Tx, now_ms};

/// The ids of the environments that are the defaults.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Defaults {
    /// Of the instance.
    pub instance: Option<String>,
    /// Of the company that was asked for.
    pub company: Option<String>,
}

/// Of the instance, as the rows call it.
const INSTANCE: &str = "";

fn mac(keys: &Keys, of: &str, environment: &str) -> Mac {
    Mac::new(&keys.targets, "default-environment")
        .text(of)
        .text(environment)
}

fn believed(keys: &Keys, row: &Row) -> Result<(String, String)> {
    let (of, environment): (String, String) =
        (row.try_get("company_id")?, row.try_get("environment_id")?);
    if !mac(keys, &of, &environment).verifies(row.try_get("mac")?) {
        return Err(Error::corrupt(format!(
            "the default environment of {}",
            if of.is_empty() { "the instance" } else { &of }
        )));
    }
    Ok((of, environment))
}

pub(super) async fn read(store: &Store, keys: &Keys, company: Option<&str>) -> Result<Defaults> {
    if let Some(company) = company {
        company::must_exist(store.read(), company).await?;
    }
    let rows =
        sqlx::query("SELECT * FROM default_environments WHERE company_id = '' OR company_id = $1")
            .bind(company)
            .fetch_all(store.read())
            .await?;
    let mut defaults = Defaults::default();
    for row in &rows {
        let (of, environment) = believed(keys, row)?;
        if of == INSTANCE {
            defaults.instance = Some(environment);
        } else {
            defaults.company = Some(environment);
        }
    }
    Ok(defaults)
}

/// What was a company's default is none any more; the instance's stands in the way of a deletion.
pub(super) async fn forget(tx: &mut Tx, environment: &str) -> Result<()> {
    sqlx::query("DELETE FROM default_environments WHERE environment_id = $1 AND company_id <> ''")
        .bind(environment)
        .execute(&mut tx.db)
        .await?;
    Ok(())
}

/// Authenticates every row under other keys, each after it verified under the old. Returns how many.
pub(super) async fn sign_again(db: &mut SqliteConnection, old: &Keys, new: &Keys) -> Result<u64> {
    let rows = sqlx::query("SELECT * FROM default_environments")
        .fetch_all(&mut *db)
        .await?;
    for row in &rows {
        let (of, environment) = believed(old, row)?;
        let mac = mac(new, &of, &environment).done();
        sqlx::query("UPDATE default_environments SET mac = $2 WHERE company_id = $1")
            .bind(&of)
            .bind(&mac[..])
            .execute(&mut *db)
            .await?;
    }
    Ok(rows.len() as u64)
}

impl Environments {
    /// Makes an environment the default of a company, or of the instance; none: there is no default.
    ///
    /// # Errors
    /// [`Error::Invalid`] of an environment that is archived, that not all whom it is for see, or that nobody leases.
    pub async fn set_default(
        &self,
        actor: &Actor,
        company: Option<&str>,
        environment: Option<&str>,
    ) -> Result<()> {
        actor.may(match company {
            Some(_) => Operation::SetDefaultEnvironment,
            None => Operation::UpdateInstanceSettings,
        })?;
        let (actor, company, environment) = (
            actor.clone(),
            company.map(str::to_owned),
            environment.map(str::to_owned),
        );
        let memory = std::sync::Arc::clone(&self.memory);
        self.store
            .write(move |tx| {
                Box::pin(async move {
                    if let Some(company) = &company {
                        company::must_exist(&mut tx.db, company).await?;
                    }
                    let of = company.as_deref().unwrap_or(INSTANCE);
                    match &environment {
                        Some(id) => {
                            let found = match load(&mut tx.db, &tx.keys, id).await {
                                Ok(found) if memory.shows(&found) => found,
                                Ok(_) | Err(Error::NotFound { .. }) => return Err(foreign(id)),
                                Err(other) => return Err(other),
                            };
                            if found.company_id.is_some() && found.company_id != company {
                                return Err(match company {
                                    Some(_) => foreign(id),
                                    None => Error::invalid(
                                        "/defaultEnvironmentId",
                                        "belongs to one company; the instance's default is one that all companies share",
                                    ),
                                });
                            }
                            if found.is_local() {
                                return Err(Error::invalid(
                                    "/defaultEnvironmentId",
                                    "is the server's own machine, which is never leased",
                                ));
                            }
                            if found.status != EnvironmentStatus::Active {
                                return Err(Error::invalid(
                                    "/defaultEnvironmentId",
                                    "is archived: make it active first",
                                ));
                            }
                            let mac = mac(&tx.keys, of, id).done();
                            sqlx::query(concat!(
                                "INSERT INTO default_environments (company_id, environment_id, set_by, set_at, mac)
                                 VALUES ($1, $2, $3, ",
                                now_ms!(),
                                ", $4)
                                 ON CONFLICT (company_id) DO UPDATE SET environment_id = excluded.environment_id,
                                     set_by = excluded.set_by, set_at = excluded.set_at, mac = excluded.mac"
                            ))
                            .bind(of)
                            .bind(id)
                            .bind(&actor.display)
                            .bind(&mac[..])
                            .execute(&mut tx.db)
                            .await?;
                        }
                        None => {
                            sqlx::query("DELETE FROM default_environments WHERE company_id = $1")
                                .bind(of)
                                .execute(&mut tx.db)
                                .await?;
                        }
                    }
                    let (action, kind, subject) = match &company {
                        Some(company) => ("company.default_environment_set", "company", company.as_str()),
                        None => ("instance.default_environment_set", "instance", "instance"),
                    };
                    tx.record(
                        &actor,
                        Entry::new(
                            action,
                            company.as_deref(),
                            kind,
                            subject,
                            json!({ "environment": environment }),
                        ),
                    )
                    .await
                })
            })
            .await
    }
}

fn foreign(id: &str) -> Error {
    let shown: String = id.chars().take(80).collect();
    Error::invalid(
        "/defaultEnvironmentId",
        format!("{shown:?} is no environment that is seen here"),
    )
}

//! Companies: the tenants. Everything that is not the instance's belongs to one.

use std::sync::Arc;

use serde::Serialize;
use serde_json::json;
use sqlx::Row as _;

use crate::activity::Entry;
use crate::actor::Actor;
use crate::error::{Error, Result, code};
use crate::policy::Operation;
use crate::store::{Db, Row, Store, is_unique_violation, now_ms};
use crate::{id, idempotency, name};

/// A tenant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Company {
    /// `com_…`.
    pub id: String,
    /// Unique in the instance.
    pub name: String,
    /// Milliseconds since the epoch.
    pub created_at: i64,
    /// Milliseconds since the epoch.
    pub updated_at: i64,
}

/// The companies.
#[derive(Clone)]
pub struct Companies {
    pub(crate) store: Arc<Store>,
}

fn company(row: &Row) -> Result<Company> {
    Ok(Company {
        id: row.try_get("id")?,
        name: row.try_get("name")?,
        created_at: row.try_get("created_at")?,
        updated_at: row.try_get("updated_at")?,
    })
}

async fn load<'e>(db: impl sqlx::Executor<'e, Database = Db>, id: &str) -> Result<Company> {
    let row = sqlx::query("SELECT * FROM companies WHERE id = $1")
        .bind(id)
        .fetch_optional(db)
        .await?
        .ok_or_else(|| Error::not_found("company", id))?;
    company(&row)
}

/// Fails with [`Error::NotFound`] when there is no such company.
pub(crate) async fn must_exist<'e>(
    db: impl sqlx::Executor<'e, Database = Db>,
    id: &str,
) -> Result<()> {
    load(db, id).await.map(|_| ())
}

fn taken(name: &str) -> impl Fn(sqlx::Error) -> Error {
    move |e| {
        if is_unique_violation(&e, "companies.name") {
            Error::conflict(
                code::COMPANY_NAME_TAKEN,
                format!("a company named {name:?} exists already"),
            )
        } else {
            e.into()
        }
    }
}

impl Companies {
    /// Makes a company. The name is 1 to 100 characters and unique.
    pub async fn create(&self, actor: &Actor, name: &str) -> Result<Company> {
        actor.may(Operation::CreateCompany)?;
        let name = name::checked("/name", name)?;
        let actor = actor.clone();
        let claim = idempotency::current();
        self.store
            .write(move |tx| {
                Box::pin(async move {
                    let id = id::fresh("com_")?;
                    idempotency::made(tx, claim.as_ref(), &id).await?;
                    sqlx::query(concat!(
                        "INSERT INTO companies (id, name, created_at, updated_at) VALUES ($1, $2, ",
                        now_ms!(),
                        ", ",
                        now_ms!(),
                        ")"
                    ))
                    .bind(&id)
                    .bind(&name)
                    .execute(&mut tx.db)
                    .await
                    .map_err(taken(&name))?;
                    tx.record(
                        &actor,
                        Entry::new(
                            "company.created",
                            Some(&id),
                            "company",
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

    /// One company.
    pub async fn get(&self, id: &str) -> Result<Company> {
        load(self.store.read(), id).await
    }

    /// All companies by name.
    pub async fn list(&self) -> Result<Vec<Company>> {
        let rows = sqlx::query("SELECT * FROM companies ORDER BY name")
            .fetch_all(self.store.read())
            .await?;
        rows.iter().map(company).collect()
    }

    /// Gives a company another name.
    pub async fn rename(&self, actor: &Actor, id: &str, name: &str) -> Result<Company> {
        actor.may(Operation::RenameCompany)?;
        let name = name::checked("/name", name)?;
        let (actor, id) = (actor.clone(), id.to_owned());
        self.store
            .write(move |tx| {
                Box::pin(async move {
                    let before = load(&mut tx.db, &id).await?;
                    sqlx::query(concat!(
                        "UPDATE companies SET name = $2, updated_at = ",
                        now_ms!(),
                        " WHERE id = $1"
                    ))
                    .bind(&id)
                    .bind(&name)
                    .execute(&mut tx.db)
                    .await
                    .map_err(taken(&name))?;
                    tx.record(
                        &actor,
                        Entry::new(
                            "company.renamed",
                            Some(&id),
                            "company",
                            &id,
                            json!({ "changed": ["name"], "name": name, "before": before.name }),
                        ),
                    )
                    .await?;
                    load(&mut tx.db, &id).await
                })
            })
            .await
    }
}

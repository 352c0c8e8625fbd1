//! The environment's row: its type, its authentication, its way to the database and the lists in memory.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};

use serde::Serialize;
use serde_json::{Map, Value};
use sqlx::{Row as _, SqliteConnection};

use super::draft::{EnvironmentDraft, EnvironmentDriver, EnvironmentStatus};
use crate::company;
use crate::error::{Error, Result, code};
use crate::keys::{Keys, Mac};
use crate::store::{Db, Row, Store, Tx};

/// How long a list from memory is good without asking the database: another process may have written.
const TRUSTED: Duration = Duration::from_secs(2);

/// A configured target.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Environment {
    /// `env_…`.
    pub id: String,
    /// Whose it is; none where all companies share it.
    pub company_id: Option<String>,
    /// Unique in what any company sees.
    pub name: String,
    /// For a person.
    pub description: Option<String>,
    /// The kind of environment.
    pub driver: EnvironmentDriver,
    /// The key of the plugin.
    pub provider: String,
    /// What the provider's schema describes; secrets are references.
    pub config: Map<String, Value>,
    /// Variables of every command.
    pub env_vars: Map<String, Value>,
    /// The client's own.
    pub metadata: Option<Map<String, Value>>,
    /// Whether new leases may be made.
    pub status: EnvironmentStatus,
    /// Counts saves, from 1.
    pub revision: i64,
    /// Counts what changed the target, from 1.
    pub target_revision: i64,
    /// Pointers of what was a field of format `endpoint` when somebody typed this configuration: only these are reached.
    #[serde(skip)]
    pub endpoints: Vec<String>,
    /// Whether the server made it from its settings, and keeps it as they say.
    pub managed: bool,
    /// Milliseconds since the epoch.
    pub created_at: i64,
    /// Milliseconds since the epoch.
    pub updated_at: i64,
}

/// Which environments to list; the default takes all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EnvironmentFilter {
    /// Of this status only.
    pub status: Option<EnvironmentStatus>,
    /// Of this driver only.
    pub driver: Option<EnvironmentDriver>,
    /// Of this provider only.
    pub provider: Option<String>,
}

impl EnvironmentFilter {
    pub(super) fn takes(&self, e: &Environment) -> bool {
        self.status.is_none_or(|s| s == e.status)
            && self.driver.is_none_or(|d| d == e.driver)
            && self.provider.as_ref().is_none_or(|p| *p == e.provider)
    }
}

/// Fails where a company that sees an environment of this owner sees another of this name already.
pub(super) async fn name_is_free(
    tx: &mut Tx,
    company: Option<&str>,
    name: &str,
    but: Option<&str>,
) -> Result<()> {
    let other: Option<String> = sqlx::query_scalar(
        "SELECT id FROM environments
         WHERE name = $1 AND ($2 IS NULL OR company_id IS NULL OR company_id = $2)
           AND id IS DISTINCT FROM $3 LIMIT 1",
    )
    .bind(name)
    .bind(company)
    .bind(but)
    .fetch_optional(&mut tx.db)
    .await?;
    if other.is_none() {
        return Ok(());
    }
    Err(Error::conflict(
        code::ENVIRONMENT_NAME_TAKEN,
        match company {
            Some(_) => format!(
                "the company has, or shares, an environment named {name:?} already: choose another name"
            ),
            None => format!(
                "some company has, or all share, an environment named {name:?} already: choose another name"
            ),
        },
    ))
}

impl Environment {
    /// Whether nobody ever leases it: it is the server's own machine.
    pub fn is_local(&self) -> bool {
        self.driver == EnvironmentDriver::Local
    }

    pub(super) fn of(
        id: String,
        company: Option<String>,
        draft: EnvironmentDraft,
        endpoints: Vec<String>,
        now: i64,
    ) -> Environment {
        Environment {
            id,
            company_id: company,
            name: draft.name,
            description: draft.description,
            driver: draft.driver,
            provider: draft.provider,
            config: draft.config,
            env_vars: draft.env_vars,
            metadata: draft.metadata,
            status: draft.status,
            revision: 1,
            target_revision: 1,
            endpoints,
            managed: false,
            created_at: now,
            updated_at: now,
        }
    }
}

/// The columns that are JSON, as text.
struct Texts {
    config: String,
    env_vars: String,
    metadata: Option<String>,
    endpoints: String,
}

impl Texts {
    fn of(e: &Environment) -> Result<Texts> {
        Ok(Texts {
            config: serde_json::to_string(&e.config)?,
            env_vars: serde_json::to_string(&e.env_vars)?,
            metadata: e.metadata.as_ref().map(serde_json::to_string).transpose()?,
            endpoints: serde_json::to_string(&e.endpoints)?,
        })
    }

    fn mac(&self, keys: &Keys, e: &Environment) -> Mac {
        let mac = Mac::new(&keys.targets, "environment")
            .text(&e.id)
            // An id is never empty.
            .text(e.company_id.as_deref().unwrap_or_default())
            .text(&e.name)
            .text_or(e.description.as_deref())
            .text(e.driver.as_str())
            .text(&e.provider)
            .text(&self.config)
            .text(&self.env_vars)
            .text_or(self.metadata.as_deref())
            .text(e.status.as_str())
            .int(e.revision)
            .int(e.target_revision);
        let mac = with_endpoints(mac, &self.endpoints);
        if e.managed { mac.text("managed") } else { mac }
    }
}

/// Adds the endpoints where there are any: rows from before there were any stay what they are.
pub(crate) fn with_endpoints(mac: Mac, endpoints: &str) -> Mac {
    match endpoints {
        "[]" => mac,
        some => mac.text("endpoints").text(some),
    }
}

fn environment(keys: &Keys, row: &Row) -> Result<Environment> {
    let id: String = row.try_get("id")?;
    let corrupt = || Error::corrupt(format!("environment {id}"));
    let texts = Texts {
        config: row.try_get("config")?,
        env_vars: row.try_get("env_vars")?,
        metadata: row.try_get("metadata")?,
        endpoints: row.try_get("endpoints")?,
    };
    let environment = Environment {
        id: id.clone(),
        company_id: row.try_get("company_id")?,
        name: row.try_get("name")?,
        description: row.try_get("description")?,
        driver: EnvironmentDriver::parse(row.try_get("driver")?).ok_or_else(corrupt)?,
        provider: row.try_get("provider")?,
        config: serde_json::from_str(&texts.config).map_err(|_| corrupt())?,
        env_vars: serde_json::from_str(&texts.env_vars).map_err(|_| corrupt())?,
        metadata: texts
            .metadata
            .as_deref()
            .map(serde_json::from_str)
            .transpose()
            .map_err(|_| corrupt())?,
        status: EnvironmentStatus::parse(row.try_get("status")?).ok_or_else(corrupt)?,
        revision: row.try_get("revision")?,
        target_revision: row.try_get("target_revision")?,
        endpoints: serde_json::from_str(&texts.endpoints).map_err(|_| corrupt())?,
        managed: row.try_get("managed")?,
        created_at: row.try_get("created_at")?,
        updated_at: row.try_get("updated_at")?,
    };
    if !texts.mac(keys, &environment).verifies(row.try_get("mac")?) {
        return Err(corrupt());
    }
    Ok(environment)
}

/// Whether a company sees this environment: its own, or one that all share.
pub(crate) fn is_seen_by(environment: &Environment, company: &str) -> bool {
    environment
        .company_id
        .as_deref()
        .is_none_or(|owner| owner == company)
}

/// One environment.
pub(crate) async fn load<'e>(
    db: impl sqlx::Executor<'e, Database = Db>,
    keys: &Keys,
    id: &str,
) -> Result<Environment> {
    let row = sqlx::query("SELECT * FROM environments WHERE id = $1")
        .bind(id)
        .fetch_optional(db)
        .await?
        .ok_or_else(|| Error::not_found("environment", id))?;
    environment(keys, &row)
}

pub(super) async fn insert(tx: &mut Tx, e: &Environment) -> Result<()> {
    let texts = Texts::of(e)?;
    let mac = texts.mac(&tx.keys, e).done();
    sqlx::query(
        "INSERT INTO environments (id, company_id, name, description, driver, provider, config, env_vars,
             metadata, status, revision, target_revision, created_at, updated_at, mac,
             endpoints, managed)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17)",
    )
    .bind(&e.id)
    .bind(&e.company_id)
    .bind(&e.name)
    .bind(&e.description)
    .bind(e.driver.as_str())
    .bind(&e.provider)
    .bind(&texts.config)
    .bind(&texts.env_vars)
    .bind(&texts.metadata)
    .bind(e.status.as_str())
    .bind(e.revision)
    .bind(e.target_revision)
    .bind(e.created_at)
    .bind(e.updated_at)
    .bind(&mac[..])
    .bind(&texts.endpoints)
    .bind(e.managed)
    .execute(&mut tx.db)
    .await?;
    Ok(())
}

/// Writes all that may change of a row.
pub(super) async fn store(tx: &mut Tx, e: &Environment) -> Result<()> {
    let texts = Texts::of(e)?;
    let mac = texts.mac(&tx.keys, e).done();
    sqlx::query(
        "UPDATE environments SET name = $2, description = $3, driver = $4, provider = $5, config = $6,
             env_vars = $7, metadata = $8, status = $9, revision = $10, target_revision = $11,
             updated_at = $12, mac = $13, endpoints = $14, company_id = $15
         WHERE id = $1",
    )
    .bind(&e.id)
    .bind(&e.name)
    .bind(&e.description)
    .bind(e.driver.as_str())
    .bind(&e.provider)
    .bind(&texts.config)
    .bind(&texts.env_vars)
    .bind(&texts.metadata)
    .bind(e.status.as_str())
    .bind(e.revision)
    .bind(e.target_revision)
    .bind(e.updated_at)
    .bind(&mac[..])
    .bind(&texts.endpoints)
    .bind(&e.company_id)
    .execute(&mut tx.db)
    .await?;
    Ok(())
}

/// The target of an environment has changed: a secret that it uses was rotated.
pub(crate) async fn raise_target(
    tx: &mut Tx,
    id: &str,
    memory: Arc<EnvironmentMemory>,
) -> Result<()> {
    let mut environment = load(&mut tx.db, &tx.keys, id).await?;
    environment.target_revision += 1;
    store(tx, &environment).await?;
    memory.forget_after(tx);
    Ok(())
}

/// The target of every environment of a provider has changed: another revision of it is current.
pub(crate) async fn raise_for_provider(
    tx: &mut Tx,
    provider: &str,
    memory: Arc<EnvironmentMemory>,
) -> Result<()> {
    let rows = sqlx::query("SELECT * FROM environments WHERE provider = $1")
        .bind(provider)
        .fetch_all(&mut tx.db)
        .await?;
    for row in &rows {
        let mut environment = environment(&tx.keys, row)?;
        environment.target_revision += 1;
        store(tx, &environment).await?;
    }
    memory.forget_after(tx);
    Ok(())
}

/// Authenticates every row under other keys, each after it verified under the old. Returns how many.
pub(crate) async fn sign_again(db: &mut SqliteConnection, old: &Keys, new: &Keys) -> Result<u64> {
    let rows = sqlx::query("SELECT * FROM environments")
        .fetch_all(&mut *db)
        .await?;
    for row in &rows {
        let environment = environment(old, row)?;
        let mac = Texts::of(&environment)?.mac(new, &environment).done();
        sqlx::query("UPDATE environments SET mac = $2 WHERE id = $1")
            .bind(&environment.id)
            .bind(&mac[..])
            .execute(&mut *db)
            .await?;
    }
    Ok(rows.len() as u64 + super::default::sign_again(db, old, new).await?)
}

struct Remembered {
    list: Arc<[Environment]>,
    generation: u64,
    asked: Instant,
}

/// The lists of what companies see, in memory until something changes; and whether that is the server's own alone.
#[derive(Default)]
pub(crate) struct EnvironmentMemory {
    generation: AtomicU64,
    lists: RwLock<HashMap<String, Remembered>>,
    managed_only: AtomicBool,
}

impl EnvironmentMemory {
    /// From now on nothing is there but what the server keeps itself to be leased.
    pub fn show_managed_only(&self) {
        self.managed_only.store(true, Ordering::SeqCst);
        self.generation.fetch_add(1, Ordering::SeqCst);
    }

    /// Whether anybody is shown this one.
    pub fn shows(&self, environment: &Environment) -> bool {
        environment.managed || !self.managed_only.load(Ordering::SeqCst)
    }

    /// The same one, where anybody is shown it.
    pub fn shown(&self, environment: Environment) -> Result<Environment> {
        if self.shows(&environment) {
            Ok(environment)
        } else {
            Err(Error::not_found("environment", &environment.id))
        }
    }

    /// Forgets every list once the transaction is durable.
    pub fn forget_after(self: &Arc<Self>, tx: &mut Tx) {
        let memory = Arc::clone(self);
        tx.after_commit(move || {
            memory.generation.fetch_add(1, Ordering::SeqCst);
        });
    }

    pub async fn of_company(
        &self,
        store: &Store,
        keys: &Keys,
        company: &str,
    ) -> Result<Arc<[Environment]>> {
        // Read before the database is: a change in between makes the answer old, not wrong for ever.
        let generation = self.generation.load(Ordering::SeqCst);
        {
            let lists = self.lists.read().unwrap_or_else(PoisonError::into_inner);
            if let Some(known) = lists.get(company)
                && known.generation == generation
                && known.asked.elapsed() < TRUSTED
            {
                return Ok(Arc::clone(&known.list));
            }
        }
        let asked = Instant::now();
        company::must_exist(store.read(), company).await?;
        let rows = sqlx::query(
            "SELECT * FROM environments WHERE company_id = $1 OR company_id IS NULL ORDER BY name",
        )
        .bind(company)
        .fetch_all(store.read())
        .await?;
        let list: Arc<[Environment]> = rows
            .iter()
            .map(|row| environment(keys, row))
            .filter(|row| row.as_ref().map_or(true, |e| self.shows(e)))
            .collect::<Result<_>>()?;
        self.lists
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(
                company.to_owned(),
                Remembered {
                    list: Arc::clone(&list),
                    generation,
                    asked,
                },
            );
        Ok(list)
    }
}

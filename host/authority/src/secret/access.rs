//! Who had which value, for what; never the value.
//!
//! A resolve is noted in memory and written within [`DELAY`], many in one transaction, so that no call waits for a
//! commit of its own. A process that is killed loses what was noted in that time and nothing earlier; an end in order,
//! whoever reads, and whoever uses a value without a lease ([`Secrets::record_accesses`]) write it first. The record outlives
//! the secret.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::Serialize;
use sqlx::{Row as _, SqliteConnection};

use super::{Secrets, row};
use crate::actor::Actor;
use crate::error::{Error, Result};
use crate::store::{Row, Store};

/// How long a note waits for others to be written with.
const DELAY: Duration = Duration::from_secs(1);
/// Notes that wait at most, where the database takes none.
const WAITING: usize = 16 * 1024;

/// On whose behalf a value is resolved, and for what.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Accessor {
    /// Who.
    pub actor: Actor,
    /// For what: `lease`, `release`, `probe`, …
    pub purpose: &'static str,
    /// For which lease.
    pub lease: Option<String>,
    /// For which run of the client's.
    pub run: Option<String>,
    /// For which company, where the environment is shared by all.
    pub company: Option<String>,
}

impl Accessor {
    /// Somebody, for no lease.
    pub fn of(actor: &Actor, purpose: &'static str) -> Accessor {
        Accessor {
            actor: actor.clone(),
            purpose,
            lease: None,
            run: None,
            company: None,
        }
    }
}

/// A value that somebody had.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Access {
    /// Grows in the order in which it was written: the cursor of a reader.
    pub position: i64,
    /// When, in milliseconds since the epoch.
    pub at: i64,
    /// Which secret.
    pub secret_id: String,
    /// Which version of it.
    pub version: i64,
    /// The company that it was used for; empty where that was the instance itself.
    pub company_id: String,
    /// The environment; none for a draft.
    pub environment_id: Option<String>,
    /// The lease.
    pub lease_id: Option<String>,
    /// The client's run.
    pub run: Option<String>,
    /// `local-operator`, `token` or `system`.
    pub actor_kind: String,
    /// The token's id.
    pub actor_id: Option<String>,
    /// For a person.
    pub actor: String,
    /// `lease`, `release`, `probe`, …
    pub purpose: String,
    /// A pointer into the configuration, or `env:NAME`; for the instance itself, the setting that names the secret.
    pub pointer: String,
    /// Toward whom.
    pub destinations: Vec<String>,
}

/// Which accesses to list, the newest first.
#[derive(Clone, Debug, Default)]
pub struct AccessFilter {
    /// Before this position.
    pub before: Option<i64>,
    /// At most this many, 1 to 1000; 0 means 100.
    pub limit: u32,
}

/// What is noted of a resolve.
#[derive(Clone)]
pub(super) struct Note {
    pub at: i64,
    pub secret: String,
    pub version: i64,
    pub company: String,
    pub environment: Option<String>,
    pub by: Accessor,
    pub pointer: String,
    /// JSON text, as stored.
    pub destinations: String,
}

/// The notes that are not written yet.
#[derive(Default)]
pub(crate) struct AccessLog {
    waiting: Mutex<Vec<Note>>,
    scheduled: AtomicBool,
}

impl AccessLog {
    fn lock(&self) -> MutexGuard<'_, Vec<Note>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes a resolve, to be written soon.
    pub(super) fn note(self: &Arc<Self>, store: &Arc<Store>, note: Note) {
        self.lock().push(note);
        if self.scheduled.swap(true, Ordering::AcqRel) {
            return;
        }
        let (log, store) = (Arc::clone(self), Arc::downgrade(store));
        tokio::spawn(async move {
            loop {
                tokio::time::sleep(DELAY).await;
                let Some(store) = store.upgrade() else { return };
                // From here on a note starts a writer of its own.
                log.scheduled.store(false, Ordering::Release);
                match log.flush(&store).await {
                    Ok(()) | Err(Error::Closed) => return,
                    Err(error) => {
                        tracing::warn!(%error, "accesses of secrets wait to be written");
                        if log.scheduled.swap(true, Ordering::AcqRel) {
                            return;
                        }
                    }
                }
            }
        });
    }

    /// Writes what waits. What cannot be written goes on waiting.
    pub(crate) async fn flush(self: &Arc<Self>, store: &Store) -> Result<()> {
        let notes = Arc::new(std::mem::take(&mut *self.lock()));
        if notes.is_empty() {
            return Ok(());
        }
        let batch = Arc::clone(&notes);
        let written = store
            .write(move |tx| {
                Box::pin(async move {
                    for note in &*batch {
                        write(&mut tx.db, note).await?;
                    }
                    Ok(())
                })
            })
            .await;
        if written.is_err() {
            let notes = Arc::unwrap_or_clone(notes);
            let mut waiting = self.lock();
            let room = WAITING.saturating_sub(waiting.len());
            if notes.len() > room {
                tracing::error!(
                    lost = notes.len() - room,
                    "accesses of secrets are not recorded"
                );
            }
            waiting.splice(0..0, notes.into_iter().take(room));
        }
        written
    }
}

/// Adds a row.
pub(super) async fn write(db: &mut SqliteConnection, note: &Note) -> Result<()> {
    sqlx::query(
        "INSERT INTO secret_accesses (at, secret_id, version, company_id, environment, lease_id, run, actor_kind,
                                      actor_id, actor, purpose, pointer, destinations)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)",
    )
    .bind(note.at)
    .bind(&note.secret)
    .bind(note.version)
    .bind(&note.company)
    .bind(&note.environment)
    .bind(&note.by.lease)
    .bind(&note.by.run)
    .bind(note.by.actor.kind_str())
    .bind(note.by.actor.token_id())
    .bind(&note.by.actor.display)
    .bind(note.by.purpose)
    .bind(&note.pointer)
    .bind(&note.destinations)
    .execute(db)
    .await?;
    Ok(())
}

fn access(row: &Row) -> Result<Access> {
    Ok(Access {
        position: row.try_get("position")?,
        at: row.try_get("at")?,
        secret_id: row.try_get("secret_id")?,
        version: row.try_get("version")?,
        company_id: row.try_get("company_id")?,
        environment_id: row.try_get("environment")?,
        lease_id: row.try_get("lease_id")?,
        run: row.try_get("run")?,
        actor_kind: row.try_get("actor_kind")?,
        actor_id: row.try_get("actor_id")?,
        actor: row.try_get("actor")?,
        purpose: row.try_get("purpose")?,
        pointer: row.try_get("pointer")?,
        destinations: serde_json::from_str(row.try_get("destinations")?)?,
    })
}

impl Secrets {
    /// Writes what was noted, now: for whoever is about to use a value of which nothing durable tells yet, as a lease's pins
    /// do of what it takes.
    pub async fn record_accesses(&self) -> Result<()> {
        self.accesses.flush(&self.store).await
    }

    /// Who had a secret's value, the newest first, also of one that was deleted. What was noted before the call is in it.
    ///
    /// # Errors
    /// [`Error::NotFound`] for an id that no secret ever had.
    pub async fn accesses(&self, id: &str, filter: &AccessFilter) -> Result<Vec<Access>> {
        self.accesses.flush(&self.store).await?;
        match row::load(self.store.read(), &self.keys, id).await {
            Err(Error::NotFound { .. }) if self.was_deleted(id).await? => {}
            loaded => drop(loaded?),
        }
        let limit = match filter.limit {
            0 => 100,
            n => n.min(1000),
        };
        let rows = sqlx::query(
            "SELECT * FROM secret_accesses WHERE secret_id = $1 AND position < $2
             ORDER BY position DESC LIMIT $3",
        )
        .bind(id)
        .bind(filter.before.unwrap_or(i64::MAX))
        .bind(i64::from(limit))
        .fetch_all(self.store.read())
        .await?;
        rows.iter().map(access).collect()
    }

    /// Whether there was a secret of this id once: somebody had it, or its deletion is on record.
    async fn was_deleted(&self, id: &str) -> Result<bool> {
        let known: bool = sqlx::query_scalar(
            "SELECT EXISTS (SELECT 1 FROM secret_accesses WHERE secret_id = $1)
                 OR EXISTS (SELECT 1 FROM activity WHERE subject_kind = 'secret' AND subject = $1
                                                     AND action = 'secret.deleted')",
        )
        .bind(id)
        .fetch_one(self.store.read())
        .await?;
        Ok(known)
    }
}

//! What is written before something is done: that a request may create, and the ids of what may exist.
//!
//! Each is durable before the call returns, and refused at a superseded epoch, so that nobody who was taken
//! over creates anything that the journal does not know (P1, P4).

use leasehold_contract::Thing;
use serde::Serialize;
use sqlx::Row as _;

use super::machine::Status;
use super::{Leases, apply};
use crate::error::{Error, Result};
use crate::store::{Db, Tx, now_ms};

/// Bytes of a reference at most.
const REFERENCE: usize = 16 * 1024;
/// Entries of one lease at most: a provider that journals without end is stopped.
const ENTRIES: i64 = 100_000;

/// How a lease stands, read in one statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing {
    /// Where it stands.
    pub status: Status,
    /// Its epoch.
    pub epoch: u32,
    /// When its use ends, in milliseconds since the epoch.
    pub expires_at: Option<i64>,
    /// Whether that time is over by the database's clock.
    pub expired: bool,
    /// Whether a request that may have created something was sent.
    pub unsafe_sent: bool,
}

/// Something that the provider said may exist.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct JournalEntry {
    /// Its place in the lease's journal, from 1.
    pub sequence: i64,
    /// The epoch at which it was written.
    pub epoch: i64,
    /// What it is about.
    pub thing: Thing,
    /// The backend's own name of it.
    pub resource: String,
    /// What finds it again.
    pub reference: Option<String>,
    /// When, in milliseconds since the epoch.
    pub at: i64,
}

fn thing_str(thing: Thing) -> &'static str {
    match thing {
        Thing::Environment => "environment",
        Thing::Command => "command",
        Thing::Image => "image",
        Thing::Other => "other",
    }
}

fn thing(text: &str) -> Option<Thing> {
    [
        Thing::Environment,
        Thing::Command,
        Thing::Image,
        Thing::Other,
    ]
    .into_iter()
    .find(|t| thing_str(*t) == text)
}

pub(super) async fn standing<'e>(
    db: impl sqlx::Executor<'e, Database = Db>,
    lease: &str,
) -> Result<Standing> {
    let row = sqlx::query(concat!(
        "SELECT status, epoch, expires_at, unsafe_sent,
                (expires_at IS NOT NULL AND expires_at <= ",
        now_ms!(),
        ") AS expired FROM leases WHERE id = $1"
    ))
    .bind(lease)
    .fetch_optional(db)
    .await?
    .ok_or_else(|| Error::not_found("lease", lease))?;
    let corrupt = || Error::corrupt(format!("lease {lease}"));
    Ok(Standing {
        status: Status::parse(row.try_get("status")?).ok_or_else(corrupt)?,
        epoch: u32::try_from(row.try_get::<i64, _>("epoch")?).map_err(|_| corrupt())?,
        expires_at: row.try_get("expires_at")?,
        expired: row.try_get("expired")?,
        unsafe_sent: row.try_get("unsafe_sent")?,
    })
}

/// Fails with [`Error::Stale`] unless `epoch` is the lease's and the lease has not ended.
pub(super) fn holds(lease: &str, standing: &Standing, epoch: u32) -> Result<()> {
    if standing.epoch == epoch && !standing.status.is_terminal() {
        return Ok(());
    }
    Err(Error::stale(
        "lease",
        format!(
            "epoch {epoch} of lease {lease} is over: it is {} at epoch {}",
            standing.status.as_str(),
            standing.epoch
        ),
    ))
}

impl Leases {
    /// How a lease stands now.
    pub async fn standing(&self, lease: &str) -> Result<Standing> {
        standing(self.store.read(), lease).await
    }

    /// Marks durably, before the first of a call's requests that may create or change something, that it
    /// is sent. Costs a write once for a lease. [`Error::Stale`]: send nothing.
    pub async fn unsafe_sent(&self, lease: &str, epoch: u32) -> Result<()> {
        let now = standing(self.store.read(), lease).await?;
        holds(lease, &now, epoch)?;
        if now.unsafe_sent {
            return Ok(());
        }
        let id = lease.to_owned();
        self.store
            .write(move |tx| {
                Box::pin(async move {
                    holds(&id, &standing(&mut tx.db, &id).await?, epoch)?;
                    sqlx::query(concat!(
                        "UPDATE leases SET unsafe_sent = TRUE, updated_at = ",
                        now_ms!(),
                        " WHERE id = $1"
                    ))
                    .bind(&id)
                    .execute(&mut tx.db)
                    .await?;
                    Ok(())
                })
            })
            .await
    }

    /// Records durably that `resource` may exist. Of a command, `resource` is the execution's id and
    /// `reference` what finds it again: the execution gets it too. [`Error::Stale`]: create nothing more.
    pub async fn journal(
        &self,
        lease: &str,
        epoch: u32,
        thing: Thing,
        resource: &str,
        reference: Option<&str>,
    ) -> Result<()> {
        apply::check_resource(resource)?;
        if reference.is_some_and(|r| {
            r.len() > REFERENCE || serde_json::from_str::<serde::de::IgnoredAny>(r).is_err()
        }) {
            return Err(Error::invalid(
                "/reference",
                format!("must be JSON of at most {REFERENCE} bytes"),
            ));
        }
        let (id, resource) = (lease.to_owned(), resource.to_owned());
        let reference = reference.map(str::to_owned);
        self.store
            .write(move |tx| {
                Box::pin(async move {
                    holds(&id, &standing(&mut tx.db, &id).await?, epoch)?;
                    append(tx, &id, epoch, thing, &resource, reference.as_deref()).await
                })
            })
            .await
    }

    /// A lease's journal, oldest first.
    pub async fn journalled(&self, lease: &str) -> Result<Vec<JournalEntry>> {
        let rows = sqlx::query("SELECT * FROM lease_journal WHERE lease_id = $1 ORDER BY sequence")
            .bind(lease)
            .fetch_all(self.store.read())
            .await?;
        rows.iter()
            .map(|row| {
                Ok(JournalEntry {
                    sequence: row.try_get("sequence")?,
                    epoch: row.try_get("epoch")?,
                    thing: thing(row.try_get("thing")?)
                        .ok_or_else(|| Error::corrupt(format!("the journal of lease {lease}")))?,
                    resource: row.try_get("resource")?,
                    reference: row.try_get("reference")?,
                    at: row.try_get("at")?,
                })
            })
            .collect()
    }
}

/// Adds an entry to a lease's journal.
pub(super) async fn append(
    tx: &mut Tx,
    lease: &str,
    epoch: u32,
    thing: Thing,
    resource: &str,
    reference: Option<&str>,
) -> Result<()> {
    let sequence: i64 = sqlx::query_scalar(
        "SELECT COALESCE(MAX(sequence), 0) + 1 FROM lease_journal WHERE lease_id = $1",
    )
    .bind(lease)
    .fetch_one(&mut tx.db)
    .await?;
    if sequence > ENTRIES {
        return Err(Error::invalid(
            "",
            format!("the journal of lease {lease} is full: {ENTRIES} entries"),
        ));
    }
    sqlx::query(concat!(
        "INSERT INTO lease_journal (lease_id, sequence, epoch, thing, resource, reference, at)
         VALUES ($1, $2, $3, $4, $5, $6, ",
        now_ms!(),
        ")"
    ))
    .bind(lease)
    .bind(sequence)
    .bind(i64::from(epoch))
    .bind(thing_str(thing))
    .bind(resource)
    .bind(reference)
    .execute(&mut tx.db)
    .await?;
    if thing == Thing::Command {
        sqlx::query("UPDATE executions SET reference = $3 WHERE id = $1 AND lease_id = $2")
            .bind(resource)
            .bind(lease)
            .bind(reference)
            .execute(&mut tx.db)
            .await?;
    }
    Ok(())
}

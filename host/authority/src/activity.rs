//! What happened, in an order that cannot be rewritten.
//!
//! Every change of the authority adds its row in the same transaction. The rows of one replica are a chain:
//! each MAC covers the row and the MAC before it, under a key derived from the master key, so an edited,
//! moved or removed row is found by [`Activity::verify`]; a removed end is found by comparing with a
//! [`Head`] that was kept elsewhere. Details hold names, ids and counts, never a secret's value.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use sqlx::{Row as _, SqliteConnection};

use crate::actor::Actor;
use crate::error::{Error, Result};
use crate::keys::{Keys, Mac};
use crate::store::{Db, Row, Store, Tx};

/// The end of a replica's chain. Kept elsewhere, it proves later that nothing was cut off.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Head {
    /// The last row's number; 0 when there is none.
    pub sequence: i64,
    /// The last row's MAC; empty when there is none.
    pub mac: Vec<u8>,
}

impl Head {
    /// Of a chain without rows.
    fn none() -> Head {
        Head {
            sequence: 0,
            mac: Vec::new(),
        }
    }
}

/// Something that happened, to be recorded.
#[derive(Clone, Debug)]
pub struct Entry {
    /// `environment.created`, `lease.active`, …
    pub action: &'static str,
    /// The company that it belongs to; none for what belongs to the instance.
    pub company: Option<String>,
    /// The kind of thing, such as `environment`.
    pub subject_kind: &'static str,
    /// Its id.
    pub subject: String,
    /// A JSON object: names, ids, counts.
    pub details: Value,
}

impl Entry {
    /// What happened to which thing; `details` is a JSON object of names, ids and counts, never a secret.
    pub fn new(
        action: &'static str,
        company: Option<&str>,
        subject_kind: &'static str,
        subject: &str,
        details: Value,
    ) -> Entry {
        Entry {
            action,
            company: company.map(str::to_owned),
            subject_kind,
            subject: subject.to_owned(),
            details,
        }
    }
}

/// A recorded row.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ActivityRow {
    /// Grows in the order of commits: the cursor of a reader.
    pub position: i64,
    /// Whose chain.
    pub replica: String,
    /// Its place in the chain, from 1.
    pub sequence: i64,
    /// When, in milliseconds since the epoch.
    pub at: i64,
    /// The company; none for the instance.
    pub company_id: Option<String>,
    /// `local-operator`, `token` or `system`.
    pub actor_kind: String,
    /// The token's id.
    pub actor_id: Option<String>,
    /// For a person.
    pub actor: String,
    /// What happened.
    pub action: String,
    /// To what kind of thing.
    pub subject_kind: String,
    /// To which.
    pub subject: String,
    /// Names, ids, counts.
    pub details: Value,
}

/// Which rows to list.
#[derive(Clone, Debug, Default)]
pub struct ActivityFilter {
    /// Of this company only.
    pub company: Option<String>,
    /// Of this thing only.
    pub subject: Option<String>,
    /// After this position, oldest first.
    pub after: Option<i64>,
    /// Before this position, newest first; taken when `after` is none.
    pub before: Option<i64>,
    /// At most this many, 1 to 1000; 0 means 100.
    pub limit: u32,
}

/// What [`Activity::verify`] found in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verified {
    /// How many rows, over all replicas.
    pub rows: u64,
    /// The end of this replica's chain.
    pub head: Head,
}

/// The activity.
#[derive(Clone)]
pub struct Activity {
    pub(crate) store: Arc<Store>,
    pub(crate) keys: Arc<Keys>,
    pub(crate) replica: Arc<str>,
}

#[expect(clippy::too_many_arguments, reason = "the row")]
fn mac(
    keys: &Keys,
    previous: &[u8],
    replica: &str,
    sequence: i64,
    at: i64,
    company: Option<&str>,
    actor: (&str, Option<&str>, &str),
    action: &str,
    subject: (&str, &str),
    details: &str,
) -> Mac {
    Mac::new(&keys.activity, "activity")
        .bytes(previous)
        .text(replica)
        .int(sequence)
        .int(at)
        .text_or(company)
        .text(actor.0)
        .text_or(actor.1)
        .text(actor.2)
        .text(action)
        .text(subject.0)
        .text(subject.1)
        .text(details)
}

impl Tx {
    /// Adds a row to the activity of this transaction.
    pub async fn record(&mut self, actor: &Actor, entry: Entry) -> Result<()> {
        let (at, keys, replica) = (
            self.now(),
            Arc::clone(&self.keys),
            Arc::clone(&self.replica),
        );
        self.head = append(&mut self.db, &keys, &replica, &self.head, at, actor, entry).await?;
        Ok(())
    }
}

/// Adds a row to a replica's chain behind `head`, and answers the new end.
pub(crate) async fn append(
    db: &mut SqliteConnection,
    keys: &Keys,
    replica: &str,
    head: &Head,
    at: i64,
    actor: &Actor,
    entry: Entry,
) -> Result<Head> {
    let sequence = head.sequence + 1;
    let details = entry.details.to_string();
    let mac = mac(
        keys,
        &head.mac,
        replica,
        sequence,
        at,
        entry.company.as_deref(),
        (actor.kind_str(), actor.token_id(), &actor.display),
        entry.action,
        (entry.subject_kind, &entry.subject),
        &details,
    )
    .done();
    sqlx::query(
        "INSERT INTO activity (replica, sequence, at, company_id, actor_kind, actor_id, actor, action,
                               subject_kind, subject, details, mac)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)",
    )
    .bind(replica)
    .bind(sequence)
    .bind(at)
    .bind(entry.company)
    .bind(actor.kind_str())
    .bind(actor.token_id())
    .bind(&actor.display)
    .bind(entry.action)
    .bind(entry.subject_kind)
    .bind(entry.subject)
    .bind(details)
    .bind(&mac[..])
    .execute(db)
    .await?;
    Ok(Head {
        sequence,
        mac: mac.to_vec(),
    })
}

/// Rows of a chain that are looked at together.
const PAGE: i64 = 500;

async fn replicas<'e>(db: impl sqlx::Executor<'e, Database = Db>) -> Result<Vec<String>> {
    Ok(
        sqlx::query_scalar("SELECT DISTINCT replica FROM activity ORDER BY replica")
            .fetch_all(db)
            .await?,
    )
}

async fn page<'e>(
    db: impl sqlx::Executor<'e, Database = Db>,
    replica: &str,
    after: i64,
) -> Result<Vec<Row>> {
    Ok(sqlx::query(
        "SELECT * FROM activity WHERE replica = $1 AND sequence > $2 ORDER BY sequence LIMIT $3",
    )
    .bind(replica)
    .bind(after)
    .bind(PAGE)
    .fetch_all(db)
    .await?)
}

/// Authenticates every chain anew, each row after it followed under the old keys. Returns how many rows, and the ends
/// that the chains had: an end that was kept elsewhere is found again by them.
pub(crate) async fn sign_again(
    db: &mut SqliteConnection,
    old: &Keys,
    new: &Keys,
) -> Result<(u64, Vec<(String, Head)>)> {
    let (mut rows, mut heads) = (0, Vec::new());
    for replica in replicas(&mut *db).await? {
        let (mut before, mut after) = (Head::none(), Head::none());
        loop {
            let page = page(&mut *db, &replica, before.sequence).await?;
            if page.is_empty() {
                break;
            }
            for stored in &page {
                before = follow(old, &replica, &before, stored)?;
                let mac = stored_mac(new, &replica, &after, stored)?.done();
                after = Head {
                    sequence: before.sequence,
                    mac: mac.to_vec(),
                };
                sqlx::query("UPDATE activity SET mac = $2 WHERE position = $1")
                    .bind(stored.try_get::<i64, _>("position")?)
                    .bind(&mac[..])
                    .execute(&mut *db)
                    .await?;
                rows += 1;
            }
        }
        heads.push((replica, before));
    }
    Ok((rows, heads))
}

/// The MAC that a stored row must have behind `last`.
fn stored_mac(keys: &Keys, replica: &str, last: &Head, stored: &Row) -> Result<Mac> {
    Ok(mac(
        keys,
        &last.mac,
        replica,
        stored.try_get("sequence")?,
        stored.try_get("at")?,
        stored.try_get("company_id")?,
        (
            stored.try_get("actor_kind")?,
            stored.try_get("actor_id")?,
            stored.try_get("actor")?,
        ),
        stored.try_get("action")?,
        (stored.try_get("subject_kind")?, stored.try_get("subject")?),
        stored.try_get("details")?,
    ))
}

fn follow(keys: &Keys, replica: &str, last: &Head, stored: &Row) -> Result<Head> {
    let sequence: i64 = stored.try_get("sequence")?;
    let mac: Vec<u8> = stored.try_get("mac")?;
    let expected = stored_mac(keys, replica, last, stored)?;
    if sequence != last.sequence + 1 || !expected.verifies(&mac) {
        return Err(Error::corrupt(format!(
            "row {sequence} of the activity chain of replica {replica:?}"
        )));
    }
    Ok(Head { sequence, mac })
}

/// The end of a replica's chain as it is stored.
pub(crate) async fn stored_head<'e>(
    db: impl sqlx::Executor<'e, Database = Db>,
    replica: &str,
) -> Result<Head> {
    let last: Option<(i64, Vec<u8>)> = sqlx::query_as(
        "SELECT sequence, mac FROM activity WHERE replica = $1 ORDER BY sequence DESC LIMIT 1",
    )
    .bind(replica)
    .fetch_optional(db)
    .await?;
    Ok(match last {
        Some((sequence, mac)) => Head { sequence, mac },
        None => Head::none(),
    })
}

fn row(row: &Row) -> Result<ActivityRow> {
    Ok(ActivityRow {
        position: row.try_get("position")?,
        replica: row.try_get("replica")?,
        sequence: row.try_get("sequence")?,
        at: row.try_get("at")?,
        company_id: row.try_get("company_id")?,
        actor_kind: row.try_get("actor_kind")?,
        actor_id: row.try_get("actor_id")?,
        actor: row.try_get("actor")?,
        action: row.try_get("action")?,
        subject_kind: row.try_get("subject_kind")?,
        subject: row.try_get("subject")?,
        details: serde_json::from_str(&row.try_get::<String, _>("details")?)?,
    })
}

impl Activity {
    /// Records something that the server did by itself, such as a probe.
    pub async fn record(&self, actor: &Actor, entry: Entry) -> Result<()> {
        let actor = actor.clone();
        self.store
            .write(move |tx| Box::pin(async move { tx.record(&actor, entry).await }))
            .await
    }

    /// Rows of a filter: with `after` the oldest first, else the newest first.
    pub async fn list(&self, filter: &ActivityFilter) -> Result<Vec<ActivityRow>> {
        let limit = match filter.limit {
            0 => 100,
            n => n.min(1000),
        };
        let sql = if filter.after.is_some() {
            "SELECT * FROM activity
             WHERE position > $1 AND ($2 IS NULL OR company_id = $2) AND ($3 IS NULL OR subject = $3)
             ORDER BY position LIMIT $4"
        } else {
            "SELECT * FROM activity
             WHERE position < $1 AND ($2 IS NULL OR company_id = $2) AND ($3 IS NULL OR subject = $3)
             ORDER BY position DESC LIMIT $4"
        };
        let rows = sqlx::query(sql)
            .bind(filter.after.or(filter.before).unwrap_or(i64::MAX))
            .bind(&filter.company)
            .bind(&filter.subject)
            .bind(i64::from(limit))
            .fetch_all(self.store.read())
            .await?;
        rows.iter().map(row).collect()
    }

    /// The end of this replica's chain, to be kept outside the database.
    pub async fn head(&self) -> Result<Head> {
        stored_head(self.store.read(), &self.replica).await
    }

    /// Walks every chain. [`Error::Corrupt`] names the first row that does not follow; so it does when
    /// `kept`, an earlier head of this replica, is not in the chain.
    pub async fn verify(&self, kept: Option<&Head>) -> Result<Verified> {
        let (mut rows, mut head) = (0, Head::none());
        let mut kept_seen = kept.is_none_or(|k| k.sequence == 0);
        for replica in replicas(self.store.read()).await? {
            let mut last = Head::none();
            loop {
                let page = page(self.store.read(), &replica, last.sequence).await?;
                if page.is_empty() {
                    break;
                }
                for stored in &page {
                    last = follow(&self.keys, &replica, &last, stored)?;
                    rows += 1;
                    kept_seen |= *replica == *self.replica && kept == Some(&last);
                }
            }
            if *replica == *self.replica {
                head = last;
            }
        }
        if !kept_seen {
            return Err(Error::corrupt(format!(
                "the activity chain of replica {:?} (its kept head is missing)",
                self.replica
            )));
        }
        Ok(Verified { rows, head })
    }
}

//! The chain: each row's MAC covers the row and the MAC before it, under a key derived from the master key.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use sqlx::{Row as _, SqliteConnection};

use super::{Activity, ActivityOutcome, Entry};
use crate::actor::Actor;
use crate::error::{Error, Result};
use crate::keys::{Keys, Mac};
use crate::store::{Db, Row};

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
    pub(super) fn none() -> Head {
        Head {
            sequence: 0,
            mac: Vec::new(),
        }
    }
}

/// What [`Activity::verify`] found in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verified {
    /// How many rows, over all replicas.
    pub rows: u64,
    /// The end of this replica's chain.
    pub head: Head,
}

/// On whose behalf, as a row says it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct By {
    kind: &'static str,
    id: Option<Arc<str>>,
    name: Arc<str>,
}

impl By {
    pub(crate) fn of(actor: &Actor) -> By {
        By {
            kind: actor.kind_str(),
            id: actor.token_id().map(Into::into),
            name: actor.display.as_str().into(),
        }
    }

    /// Of whom nothing is proven.
    pub(super) fn nobody() -> By {
        By::nobody_like("nobody")
    }

    /// Of one kind of whom nothing is proven.
    pub(super) fn nobody_like(name: &'static str) -> By {
        By {
            kind: "nobody",
            id: None,
            name: name.into(),
        }
    }

    /// Of many, where there are too many to name each.
    pub(super) fn others() -> By {
        By::nobody_like("others")
    }

    /// What names it best.
    pub(super) fn name(&self) -> &str {
        self.id.as_deref().unwrap_or(&self.name)
    }
}

/// What a new row has besides what happened.
pub(crate) struct Link<'a> {
    /// When, by the database.
    pub at: i64,
    /// Who.
    pub by: &'a By,
    /// How often.
    pub times: i64,
}

/// All that a row's MAC covers, but the MAC before it.
pub(super) struct Covered<'a> {
    pub replica: &'a str,
    pub sequence: i64,
    pub at: i64,
    pub company: Option<&'a str>,
    pub actor: (&'a str, Option<&'a str>, &'a str),
    pub action: &'a str,
    pub subject: (&'a str, &'a str),
    pub details: &'a str,
    pub outcome: &'a str,
    pub times: i64,
}

impl Covered<'_> {
    pub(super) fn mac(&self, keys: &Keys, previous: &[u8]) -> Mac {
        let mac = Mac::new(&keys.activity, "activity")
            .bytes(previous)
            .text(self.replica)
            .int(self.sequence)
            .int(self.at)
            .text_or(self.company)
            .text(self.actor.0)
            .text_or(self.actor.1)
            .text(self.actor.2)
            .text(self.action)
            .text(self.subject.0)
            .text(self.subject.1)
            .text(self.details);
        if self.outcome == ActivityOutcome::Done.as_str() && self.times == 1 {
            // As it was before there were these.
            return mac;
        }
        mac.text(self.outcome).int(self.times)
    }
}

/// Adds a row to a replica's chain behind `head`, and answers the new end.
pub(crate) async fn append(
    db: &mut SqliteConnection,
    keys: &Keys,
    replica: &str,
    head: &Head,
    link: &Link<'_>,
    entry: Entry,
) -> Result<Head> {
    let sequence = head.sequence + 1;
    let details = entry.details.to_string();
    let by = link.by;
    let covered = Covered {
        replica,
        sequence,
        at: link.at,
        company: entry.company.as_deref(),
        actor: (by.kind, by.id.as_deref(), &by.name),
        action: entry.action,
        subject: (entry.subject_kind, &entry.subject),
        details: &details,
        outcome: entry.outcome.as_str(),
        times: link.times,
    };
    let mac = covered.mac(keys, &head.mac).done();
    sqlx::query(
        "INSERT INTO activity (replica, sequence, at, company_id, actor_kind, actor_id, actor, action,
                               subject_kind, subject, details, outcome, times, mac)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14)",
    )
    .bind(replica)
    .bind(sequence)
    .bind(link.at)
    .bind(&entry.company)
    .bind(by.kind)
    .bind(by.id.as_deref())
    .bind(&*by.name)
    .bind(entry.action)
    .bind(entry.subject_kind)
    .bind(&entry.subject)
    .bind(&details)
    .bind(entry.outcome.as_str())
    .bind(link.times)
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
    let covered = Covered {
        replica,
        sequence: stored.try_get("sequence")?,
        at: stored.try_get("at")?,
        company: stored.try_get("company_id")?,
        actor: (
            stored.try_get("actor_kind")?,
            stored.try_get("actor_id")?,
            stored.try_get("actor")?,
        ),
        action: stored.try_get("action")?,
        subject: (stored.try_get("subject_kind")?, stored.try_get("subject")?),
        details: stored.try_get("details")?,
        outcome: stored.try_get("outcome")?,
        times: stored.try_get("times")?,
    };
    Ok(covered.mac(keys, &last.mac))
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

impl Activity {
    /// The end of this replica's chain, to be kept outside the database.
    pub async fn head(&self) -> Result<Head> {
        self.denials.before_reading(&self.store).await;
        stored_head(self.store.search(), &self.replica).await
    }

    /// Walks every chain. [`Error::Corrupt`] names the first row that does not follow; so it does when
    /// `kept`, an earlier head of this replica, is not in the chain.
    pub async fn verify(&self, kept: Option<&Head>) -> Result<Verified> {
        let (mut rows, mut head) = (0, Head::none());
        let mut kept_seen = kept.is_none_or(|k| k.sequence == 0);
        for replica in replicas(self.store.search()).await? {
            let mut last = Head::none();
            loop {
                let page = page(self.store.search(), &replica, last.sequence).await?;
                if page.is_empty() {
                    break;
                }
                for stored in &page {
                    last = follow(&self.keys, &replica, &last, stored)?;
                    rows += 1;
                    kept_seen |= *replica == *self.replica && kept == Some(&last);
                    if !kept_seen && stored.try_get::<&str, _>("action")? == REKEYED {
                        kept_seen =
                            kept.is_some_and(|kept| ended_with(stored, &self.replica, kept));
                    }
                }
            }
            if *replica == *self.replica {
                head = last;
            }
        }
        if !kept_seen {
            return Err(kept_is_missing(&self.replica));
        }
        Ok(Verified { rows, head })
    }
}

/// The action of a row that has the ends of the chains as they were under another master key.
const REKEYED: &str = "instance.rekeyed";

/// Whether a row of [`REKEYED`] says that the replica's chain ended with this head.
fn ended_with(stored: &Row, replica: &str, kept: &Head) -> bool {
    let Ok(details) = stored.try_get::<&str, _>("details") else {
        return false;
    };
    let details: serde_json::Value = serde_json::from_str(details).unwrap_or_default();
    let end = &details["ends"][replica];
    end["sequence"] == kept.sequence && end["mac"] == kept.mac_hex()
}

/// A head that was kept is nowhere in its chain.
pub(super) fn kept_is_missing(replica: &str) -> Error {
    Error::corrupt(format!(
        "the activity chain of replica {replica:?} (its kept head is missing)"
    ))
}

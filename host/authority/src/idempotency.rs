//! Idempotency keys: the same request under the same key is done once, and answered the same again.
//!
//! As draft-ietf-httpapi-idempotency-key-header has it. A key belongs to the actor that sent it and lives for a day. Its
//! row is claimed before the work, told of in the transaction that makes something, and ends with the answer. So after a
//! crash at any moment the row says what is true: not made, and the key is free again; or made, and it is not made a second
//! time. Invariants: of a request only a keyed digest is stored, and no answer that shows a secret; what a row says is
//! believed only with its authentication. The key of the digests outlives a change of the master key.
//!
//! Leases have keys of their own (`lease`), which live as long as the lease's record.

use std::future::Future;
use std::sync::Arc;

use serde_json::json;
use sqlx::{Row as _, SqliteConnection};

use crate::actor::{Actor, ActorKind};
use crate::error::{Error, Result, code};
use crate::keys::{Keys, Mac};
use crate::store::{Row, Store, Tx};

/// How long a key is known, in milliseconds.
const LIFE_MS: i64 = 24 * 60 * 60 * 1000;

tokio::task_local! {
    /// The key under which this task works.
    static CLAIM: Claim;
}

/// A key that was claimed for one request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    actor: String,
    key: String,
}

/// What a key says of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Begun {
    /// It is new: do it, then [`Idempotency::end`].
    Fresh(Claim),
    /// It was done: this was its answer, a status and a body.
    Answered(u16, String),
}

/// How a request under a key ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended<'a> {
    /// It was refused: the key is free again, if nothing was made.
    Refused,
    /// It was done, and answered this.
    Answered(u16, &'a str),
    /// It was done, and its answer is not to be kept.
    Hidden,
}

/// The idempotency keys.
#[derive(Clone)]
pub struct Idempotency {
    pub(crate) store: Arc<Store>,
    pub(crate) keys: Arc<Keys>,
}

/// A row as it is authenticated.
struct Known {
    request: Vec<u8>,
    claimed_by: Option<String>,
    made: Option<String>,
    status: Option<i64>,
    answer: Option<String>,
}

impl Known {
    fn mac(&self, keys: &Keys, claim: &Claim) -> Mac {
        Mac::new(&keys.targets, "idempotency key")
            .text(&claim.actor)
            .text(&claim.key)
            .bytes(&self.request)
            .text_or(self.made.as_deref())
            .int_or(self.status)
            .text_or(self.answer.as_deref())
    }

    fn read(keys: &Keys, claim: &Claim, row: &Row) -> Result<Known> {
        let known = Known {
            request: row.try_get("request")?,
            claimed_by: row.try_get("claimed_by")?,
            made: row.try_get("made")?,
            status: row.try_get("status")?,
            answer: row.try_get("answer")?,
        };
        if !known.mac(keys, claim).verifies(row.try_get("mac")?) {
            return Err(Error::corrupt("an idempotency key"));
        }
        Ok(known)
    }

    /// What to answer whoever asks again.
    fn answer(self, claim: &Claim, request: &[u8]) -> Result<Begun> {
        let key = &claim.key;
        if self.request != request {
            return Err(Error::conflict(
                code::IDEMPOTENCY_MISMATCH,
                format!("idempotency key {key:?} was used for another request: use a new key"),
            ));
        }
        if self.claimed_by.is_some() {
            return Err(Error::conflict(
                code::IDEMPOTENCY_IN_PROGRESS,
                format!(
                    "the request of idempotency key {key:?} is being worked on: ask again in a moment"
                ),
            ));
        }
        match (self.status.map(u16::try_from), self.answer) {
            (Some(Ok(status)), Some(answer)) => Ok(Begun::Answered(status, answer)),
            _ => {
                let made = self.made.unwrap_or_default();
                Err(Error::conflict_with(
                    code::IDEMPOTENCY_SPENT,
                    format!(
                        "the request of idempotency key {key:?} was done and made {made}; its answer is not shown again: \
                         look at {made}, or send another key to make another"
                    ),
                    json!({ "id": made }),
                ))
            }
        }
    }
}

impl Claim {
    fn of(actor: &Actor, key: &str) -> Claim {
        let actor = match &actor.kind {
            ActorKind::Token { id, .. } => id.clone(),
            ActorKind::LocalOperator | ActorKind::System => actor.kind_str().to_owned(),
        };
        Claim {
            actor,
            key: key.to_owned(),
        }
    }

    /// Runs work under this key: what it makes in this task is told of with it.
    pub async fn during<F: Future>(self, work: F) -> F::Output {
        CLAIM.scope(self, work).await
    }
}

/// The key under which this task works, if it works under one.
pub(crate) fn current() -> Option<Claim> {
    CLAIM.try_with(Clone::clone).ok()
}

async fn load(tx: &mut Tx, claim: &Claim) -> Result<Option<Known>> {
    let row =
        sqlx::query("SELECT * FROM idempotency_keys WHERE actor = $1 AND idempotency_key = $2")
            .bind(&claim.actor)
            .bind(&claim.key)
            .fetch_optional(&mut tx.db)
            .await?;
    row.map(|row| Known::read(&tx.keys, claim, &row))
        .transpose()
}

async fn store(tx: &mut Tx, claim: &Claim, known: &Known) -> Result<()> {
    let mac = known.mac(&tx.keys, claim).done();
    sqlx::query(
        "INSERT INTO idempotency_keys (actor, idempotency_key, request, claimed_by, made, status, answer, created_at, mac)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)
         ON CONFLICT (actor, idempotency_key) DO UPDATE
         SET claimed_by = $4, made = $5, status = $6, answer = $7, mac = $9",
    )
    .bind(&claim.actor)
    .bind(&claim.key)
    .bind(&known.request)
    .bind(&known.claimed_by)
    .bind(&known.made)
    .bind(known.status)
    .bind(&known.answer)
    .bind(tx.now())
    .bind(&mac[..])
    .execute(&mut tx.db)
    .await?;
    Ok(())
}

/// Tells, in the transaction that makes something, what was made under a key. The task that asked for it takes
/// [`current`] before it hands its work to the writer.
pub(crate) async fn made(tx: &mut Tx, claim: Option<&Claim>, id: &str) -> Result<()> {
    let Some(claim) = claim else { return Ok(()) };
    let Some(mut known) = load(tx, claim).await? else {
        return Ok(());
    };
    known.made = Some(id.to_owned());
    store(tx, claim, &known).await
}

/// Nobody works under this replica's name yet: what was not made is free again, and of what was made the answer is lost.
pub(crate) async fn lapse(db: &mut SqliteConnection, replica: &str) -> Result<()> {
    sqlx::query("DELETE FROM idempotency_keys WHERE claimed_by = $1 AND made IS NULL")
        .bind(replica)
        .execute(&mut *db)
        .await?;
    sqlx::query("UPDATE idempotency_keys SET claimed_by = NULL WHERE claimed_by = $1")
        .bind(replica)
        .execute(&mut *db)
        .await?;
    Ok(())
}

/// Authenticates every row under other keys, each after it verified under the old. The digests of requests stay: their
/// key is carried over. Returns how many.
pub(crate) async fn sign_again(db: &mut SqliteConnection, old: &Keys, new: &Keys) -> Result<u64> {
    let rows = sqlx::query("SELECT * FROM idempotency_keys")
        .fetch_all(&mut *db)
        .await?;
    for row in &rows {
        let claim = Claim {
            actor: row.try_get("actor")?,
            key: row.try_get("idempotency_key")?,
        };
        let mac = Known::read(old, &claim, row)?.mac(new, &claim).done();
        sqlx::query(
            "UPDATE idempotency_keys SET mac = $3 WHERE actor = $1 AND idempotency_key = $2",
        )
        .bind(&claim.actor)
        .bind(&claim.key)
        .bind(&mac[..])
        .execute(&mut *db)
        .await?;
    }
    Ok(rows.len() as u64)
}

impl Idempotency {
    /// Claims a key of `actor` for a request, whose parts are `request`; or answers what is known of the request.
    ///
    /// # Errors
    /// Conflicts: `idempotency_mismatch`, `idempotency_in_progress`, and `idempotency_spent` with `id` in its details.
    pub async fn begin(&self, actor: &Actor, key: &str, request: &[&[u8]]) -> Result<Begun> {
        let digest = request
            .iter()
            .fold(
                Mac::new(&self.keys.requests, "idempotent request"),
                |mac, part| mac.bytes(part),
            )
            .done();
        let claim = Claim::of(actor, key);
        self.store
            .write(move |tx| {
                Box::pin(async move {
                    sqlx::query("DELETE FROM idempotency_keys WHERE created_at <= $1")
                        .bind(tx.now() - LIFE_MS)
                        .execute(&mut tx.db)
                        .await?;
                    if let Some(known) = load(tx, &claim).await? {
                        return known.answer(&claim, &digest);
                    }
                    let known = Known {
                        request: digest.to_vec(),
                        claimed_by: Some(tx.replica.to_string()),
                        made: None,
                        status: None,
                        answer: None,
                    };
                    store(tx, &claim, &known).await?;
                    Ok(Begun::Fresh(claim))
                })
            })
            .await
    }

    /// Ends the work under a key.
    ///
    /// # Errors
    /// The database's. The key then stays claimed until the server starts again.
    pub async fn end(&self, claim: Claim, ended: Ended<'_>) -> Result<()> {
        let answer = match ended {
            Ended::Answered(status, body) => Some((i64::from(status), body.to_owned())),
            Ended::Refused | Ended::Hidden => None,
        };
        let free = ended == Ended::Refused;
        self.store
            .write(move |tx| {
                Box::pin(async move {
                    let Some(mut known) = load(tx, &claim).await? else {
                        return Ok(());
                    };
                    if free && known.made.is_none() {
                        sqlx::query(
                            "DELETE FROM idempotency_keys WHERE actor = $1 AND idempotency_key = $2",
                        )
                        .bind(&claim.actor)
                        .bind(&claim.key)
                        .execute(&mut tx.db)
                        .await?;
                        return Ok(());
                    }
                    known.claimed_by = None;
                    (known.status, known.answer) = answer.unzip();
                    store(tx, &claim, &known).await
                })
            })
            .await
    }
}

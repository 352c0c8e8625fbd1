//! Bearer tokens.
//!
//! A token is shown once, when it is made; the database has its keyed hash alone. The row is
//! authenticated, so that nobody makes an admin of an agent, or a revoked token good again, by editing it.
//! [`Tokens::authenticate`] answers from memory where it can: a revocation in this process holds at once,
//! one by another process on the same database within [`TRUSTED`]. Whatever was begun with a token and goes on
//! learns of its end by [`Tokens::until_revoked`].

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};

use serde::Serialize;
use serde_json::json;
use sqlx::Row as _;
use tokio::sync::Notify;
use zeroize::Zeroizing;

use crate::activity::Entry;
use crate::actor::{Actor, ActorKind, Role};
use crate::error::{Error, Result};
use crate::keys::{Keys, Mac};
use crate::store::{Db, Row, Store};
use crate::{company, id, name};

/// How long an answer from memory is good without asking the database.
pub const TRUSTED: Duration = Duration::from_secs(2);
/// How often the database is asked whether a token that is in use for long is good still.
const ASKED_AGAIN: Duration = Duration::from_secs(10);
/// Answers in memory at most.
const REMEMBERED: usize = 4096;
/// How every token begins.
const PREFIX: &str = "lht_";

/// What to make.
#[derive(Clone, Debug)]
pub struct NewToken {
    /// For a person, 1 to 100 characters.
    pub name: String,
    /// What it allows.
    pub role: Role,
    /// The company of a member or an agent; none for an admin.
    pub company: Option<String>,
}

/// A token's record; never the token.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Token {
    /// `tok_…`.
    pub id: String,
    /// For a person.
    pub name: String,
    /// What it allows.
    pub role: Role,
    /// The company of a member or an agent.
    pub company_id: Option<String>,
    /// Who made it.
    pub created_by: String,
    /// Milliseconds since the epoch.
    pub created_at: i64,
    /// When it was revoked, if it was.
    pub revoked_at: Option<i64>,
}

struct Known {
    actor: Actor,
    generation: u64,
    asked: Instant,
}

/// Answers that [`Tokens::authenticate`] remembers.
#[derive(Default)]
pub(crate) struct TokenMemory {
    generation: AtomicU64,
    /// Wakes whoever waits for the end of a token.
    revoked: Notify,
    known: RwLock<HashMap<[u8; 32], Known>>,
}

/// The tokens.
#[derive(Clone)]
pub struct Tokens {
    pub(crate) store: Arc<Store>,
    pub(crate) keys: Arc<Keys>,
    pub(crate) memory: Arc<TokenMemory>,
}

fn hash(keys: &Keys, token: &str) -> [u8; 32] {
    Mac::new(&keys.tokens, "bearer").text(token).done()
}

fn row_mac(keys: &Keys, token: &Token, hash: &[u8]) -> Mac {
    Mac::new(&keys.tokens, "token")
        .text(&token.id)
        .text(&token.name)
        .text(token.role.as_str())
        .text_or(token.company_id.as_deref())
        .bytes(hash)
        .int_or(token.revoked_at)
}

fn token(keys: &Keys, row: &Row) -> Result<(Token, Vec<u8>)> {
    let token = Token {
        id: row.try_get("id")?,
        name: row.try_get("name")?,
        role: Role::parse(row.try_get("role")?)?,
        company_id: row.try_get("company_id")?,
        created_by: row.try_get("created_by")?,
        created_at: row.try_get("created_at")?,
        revoked_at: row.try_get("revoked_at")?,
    };
    let hash: Vec<u8> = row.try_get("hash")?;
    if !row_mac(keys, &token, &hash).verifies(row.try_get("mac")?) {
        return Err(Error::corrupt(format!("token {}", token.id)));
    }
    Ok((token, hash))
}

async fn load<'e>(
    db: impl sqlx::Executor<'e, Database = Db>,
    keys: &Keys,
    id: &str,
) -> Result<(Token, Vec<u8>)> {
    let row = sqlx::query("SELECT * FROM tokens WHERE id = $1")
        .bind(id)
        .fetch_optional(db)
        .await?
        .ok_or_else(|| Error::not_found("token", id))?;
    token(keys, &row)
}

impl Tokens {
    /// Makes a token and shows it, for the only time.
    pub async fn create(&self, actor: &Actor, new: NewToken) -> Result<(Token, Zeroizing<String>)> {
        actor.require_manage()?;
        let name = name::checked("/name", &new.name)?;
        match (new.role, &new.company) {
            (Role::Admin, Some(_)) => {
                return Err(Error::invalid(
                    "/companyId",
                    "an admin token is good in every company: leave the company out, or make a member or agent token of it",
                ));
            }
            (Role::Member | Role::Agent, None) => {
                return Err(Error::invalid(
                    "/companyId",
                    "a member or agent token belongs to a company: name its id",
                ));
            }
            _ => {}
        }
        let mut bytes = Zeroizing::new([0u8; 32]);
        id::random(&mut bytes[..])?;
        let bearer = Zeroizing::new(format!("{PREFIX}{}", id::base32(&bytes[..])));
        let hash = hash(&self.keys, &bearer);
        let actor = actor.clone();
        let made = self
            .store
            .write(move |tx| {
                Box::pin(async move {
                    if let Some(company) = &new.company {
                        company::must_exist(&mut tx.db, company).await?;
                    }
                    let token = Token {
                        id: id::fresh("tok_")?,
                        name,
                        role: new.role,
                        company_id: new.company,
                        created_by: actor.display.clone(),
                        created_at: tx.now(),
                        revoked_at: None,
                    };
                    let mac = row_mac(&tx.keys, &token, &hash).done();
                    sqlx::query(
                        "INSERT INTO tokens (id, company_id, name, role, hash, created_by, created_at, mac)
                         VALUES ($1, $2, $3, $4, $5, $6, $7, $8)",
                    )
                    .bind(&token.id)
                    .bind(&token.company_id)
                    .bind(&token.name)
                    .bind(token.role.as_str())
                    .bind(&hash[..])
                    .bind(&token.created_by)
                    .bind(token.created_at)
                    .bind(&mac[..])
                    .execute(&mut tx.db)
                    .await?;
                    tx.record(
                        &actor,
                        Entry::new(
                            "token.created",
                            token.company_id.as_deref(),
                            "token",
                            &token.id,
                            json!({ "name": token.name, "role": token.role }),
                        ),
                    )
                    .await?;
                    Ok(token)
                })
            })
            .await?;
        Ok((made, bearer))
    }

    /// The tokens of a company, or all; revoked ones too.
    pub async fn list(&self, company: Option<&str>) -> Result<Vec<Token>> {
        let rows = sqlx::query(
            "SELECT * FROM tokens WHERE $1 IS NULL OR company_id = $1 ORDER BY created_at, id",
        )
        .bind(company)
        .fetch_all(self.store.read())
        .await?;
        rows.iter()
            .map(|row| token(&self.keys, row).map(|(token, _)| token))
            .collect()
    }

    /// Ends a token for good. Revoked already is success.
    pub async fn revoke(&self, actor: &Actor, id: &str) -> Result<Token> {
        actor.require_manage()?;
        let (actor, id) = (actor.clone(), id.to_owned());
        let memory = Arc::clone(&self.memory);
        self.store
            .write(move |tx| {
                Box::pin(async move {
                    let (mut token, hash) = load(&mut tx.db, &tx.keys, &id).await?;
                    if token.revoked_at.is_some() {
                        return Ok(token);
                    }
                    token.revoked_at = Some(tx.now());
                    let mac = row_mac(&tx.keys, &token, &hash).done();
                    sqlx::query("UPDATE tokens SET revoked_at = $2, mac = $3 WHERE id = $1")
                        .bind(&id)
                        .bind(token.revoked_at)
                        .bind(&mac[..])
                        .execute(&mut tx.db)
                        .await?;
                    tx.record(
                        &actor,
                        Entry::new(
                            "token.revoked",
                            token.company_id.as_deref(),
                            "token",
                            &id,
                            json!({ "name": token.name }),
                        ),
                    )
                    .await?;
                    tx.after_commit(move || {
                        memory.generation.fetch_add(1, Ordering::SeqCst);
                        memory.revoked.notify_waiters();
                    });
                    Ok(token)
                })
            })
            .await
    }

    /// Whether the token of this id may be used: it is there, authentic and not revoked.
    pub async fn is_good(&self, id: &str) -> Result<bool> {
        match load(self.store.read(), &self.keys, id).await {
            Ok((token, _)) => Ok(token.revoked_at.is_none()),
            Err(Error::NotFound { .. } | Error::Corrupt { .. }) => Ok(false),
            Err(other) => Err(other),
        }
    }

    /// Waits until the token of this id is not good any more: a revocation by this process ends the wait at once, one by
    /// another process on the same database within ten seconds. While the database does not answer, nothing is known of a
    /// revocation.
    pub async fn until_revoked(&self, id: &str) {
        loop {
            let mut revoked = std::pin::pin!(self.memory.revoked.notified());
            // Heard from before the question on, so that none comes between.
            revoked.as_mut().enable();
            if matches!(self.is_good(id).await, Ok(false)) {
                return;
            }
            tokio::select! {
                () = revoked => {}
                () = tokio::time::sleep(ASKED_AGAIN) => {}
            }
        }
    }

    /// Whose token this is; none when it is nobody's, or revoked.
    pub async fn authenticate(&self, bearer: &str) -> Result<Option<Actor>> {
        // What cannot be a token costs no database query.
        if !bearer.starts_with(PREFIX) || bearer.len() != PREFIX.len() + 52 {
            return Ok(None);
        }
        let hash = hash(&self.keys, bearer);
        let generation = self.memory.generation.load(Ordering::SeqCst);
        {
            let known = self
                .memory
                .known
                .read()
                .unwrap_or_else(PoisonError::into_inner);
            if let Some(k) = known.get(&hash)
                && k.generation == generation
                && k.asked.elapsed() < TRUSTED
            {
                return Ok(Some(k.actor.clone()));
            }
        }
        let asked = Instant::now();
        let row = sqlx::query("SELECT * FROM tokens WHERE hash = $1")
            .bind(&hash[..])
            .fetch_optional(self.store.read())
            .await?;
        let actor = match row {
            Some(row) => {
                let (token, _) = token(&self.keys, &row)?;
                token.revoked_at.is_none().then_some(Actor {
                    display: token.name,
                    kind: ActorKind::Token {
                        id: token.id,
                        role: token.role,
                        company: token.company_id,
                    },
                })
            }
            None => None,
        };
        let mut known = self
            .memory
            .known
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        match &actor {
            Some(actor) => {
                if known.len() >= REMEMBERED {
                    known.clear();
                }
                known.insert(
                    hash,
                    Known {
                        actor: actor.clone(),
                        generation,
                        asked,
                    },
                );
            }
            None => {
                known.remove(&hash);
            }
        }
        Ok(actor)
    }
}

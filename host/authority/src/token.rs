//! Bearer tokens.
//!
//! A token is shown once, when it is made; the database has its keyed hash alone. The row is
//! authenticated, so that nobody makes an admin of an agent, or a revoked token good again, by editing it.
//! [`Tokens::authenticate`] answers from memory where it can: a revocation in this process holds at once,
//! one by another process on the same database within [`TRUSTED`]. Whatever was begun with a token and goes on
//! learns of its end by [`Tokens::until_revoked`].

use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};

use serde_json::json;
use sqlx::{Row as _, SqliteConnection};
use tokio::sync::Notify;
use zeroize::Zeroizing;

use crate::activity::{Activity, Entry};
use crate::actor::{Actor, ActorKind, Role};
use crate::error::{Error, Result};
use crate::keys::{Keys, Mac};
use crate::policy::Operation;
use crate::store::{Db, Row, Store, now_ms};
use crate::{company, id, idempotency, name};

/// How long an answer from memory is good without asking the database.
pub const TRUSTED: Duration = Duration::from_secs(2);
/// How often the database is asked whether a token that is in use for long is good still.
const ASKED_AGAIN: Duration = Duration::from_secs(10);
/// How often the use of a token is written down, in milliseconds.
const USE_NOTED_MS: i64 = 60_000;
/// Answers in memory at most.
const REMEMBERED: usize = 4096;
/// How every token begins.
const PREFIX: &str = "lht_";

/// What to make.
#[derive(Clone, Debug)]
pub struct NewToken {
    /// For a person, 1 to 100 characters.
    pub name: String,
    /// What it makes of its holder.
    pub role: Role,
    /// How long it is good, in seconds; none: until it is revoked.
    pub expires_in: Option<u64>,
}

/// A token's record; never the token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Token {
    /// `tok_…`.
    pub id: String,
    /// For a person.
    pub name: String,
    /// What it makes of its holder.
    pub role: Role,
    /// Who made it.
    pub created_by: String,
    /// Milliseconds since the epoch.
    pub created_at: i64,
    /// When it ends by itself, if it does.
    pub expires_at: Option<i64>,
    /// When a request last came with it, to the minute.
    pub last_used_at: Option<i64>,
    /// When it was revoked, if it was.
    pub revoked_at: Option<i64>,
}

impl Token {
    /// Whether it is good at a moment of the database's.
    fn is_good(&self, now: i64) -> bool {
        self.revoked_at.is_none() && self.expires_at.is_none_or(|end| end > now)
    }

    /// How long it is yet until it expires, and `most` at most.
    fn life(&self, now: i64, most: Duration) -> Duration {
        self.expires_at.map_or(most, |end| {
            let left = u64::try_from(end.saturating_sub(now)).unwrap_or(0);
            most.min(Duration::from_millis(left))
        })
    }
}

struct Known {
    actor: Actor,
    generation: u64,
    /// The answer is good until then.
    until: Instant,
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
    pub(crate) activity: Activity,
}

fn hash(keys: &Keys, token: &str) -> [u8; 32] {
    Mac::new(&keys.bearers, "bearer").text(token).done()
}

/// Over all but `last_used_at`, which decides nothing.
fn row_mac(keys: &Keys, token: &Token, hash: &[u8]) -> Mac {
    let companies = token.role.companies();
    let mac = Mac::new(&keys.tokens, "token")
        .text(&token.id)
        .text(&token.name)
        .text(token.role.as_str())
        .text_or(companies.first().copied())
        .bytes(hash)
        .int_or(token.revoked_at);
    let (run, expires_at) = (token.role.run(), token.expires_at);
    if companies.len() < 2 && run.is_none() && expires_at.is_none() {
        // As it was before there were these.
        return mac;
    }
    let mac = mac.text_or(run).int_or(expires_at);
    let others = companies.iter().skip(1);
    others.fold(mac, |mac, company| mac.text(company))
}

fn role(row: &Row) -> Result<Role> {
    let mut companies: BTreeSet<String> =
        serde_json::from_str(&row.try_get::<String, _>("companies")?)?;
    let run: Option<String> = row.try_get("run")?;
    match (row.try_get("role")?, companies.len()) {
        ("admin", 0) => Ok(Role::Admin),
        ("member", 1..) => Ok(Role::Member { companies }),
        ("agent", 1) => Ok(Role::Agent {
            company: companies.pop_first().unwrap_or_default(),
            run,
        }),
        _ => Err(Error::corrupt("a token's role")),
    }
}

fn token(keys: &Keys, row: &Row) -> Result<(Token, Vec<u8>)> {
    let token = Token {
        id: row.try_get("id")?,
        name: row.try_get("name")?,
        role: role(row)?,
        created_by: row.try_get("created_by")?,
        created_at: row.try_get("created_at")?,
        expires_at: row.try_get("expires_at")?,
        last_used_at: row.try_get("last_used_at")?,
        revoked_at: row.try_get("revoked_at")?,
    };
    let hash: Vec<u8> = row.try_get("hash")?;
    if !row_mac(keys, &token, &hash).verifies(row.try_get("mac")?) {
        return Err(Error::corrupt(format!("token {}", token.id)));
    }
    Ok((token, hash))
}

/// The token, the database's time, and the token's hash.
/// Whether the activity has the revocation of a row of `tokens`.
macro_rules! was_revoked {
    () => {
        "EXISTS (SELECT 1 FROM activity WHERE subject = tokens.id AND action = 'token.revoked') AS was_revoked"
    };
}

async fn load<'e>(
    db: impl sqlx::Executor<'e, Database = Db>,
    keys: &Keys,
    id: &str,
) -> Result<(Token, i64, Vec<u8>)> {
    let row = sqlx::query(concat!(
        "SELECT *, ",
        now_ms!(),
        " AS now, ",
        was_revoked!(),
        " FROM tokens WHERE id = $1"
    ))
    .bind(id)
    .fetch_optional(db)
    .await?
    .ok_or_else(|| Error::not_found("token", id))?;
    let (token, hash) = token(keys, &row)?;
    is_the_newest(&token, &row)?;
    Ok((token, row.try_get("now")?, hash))
}

/// An older row that was put back is authentic, and the activity, which is a chain, says what became of it.
fn is_the_newest(token: &Token, row: &Row) -> Result<()> {
    if token.revoked_at.is_none() && row.try_get("was_revoked")? {
        return Err(Error::corrupt(format!("token {}", token.id)));
    }
    Ok(())
}

/// The longest life that a token can be given, in seconds.
const LONGEST_LIFE: u64 = 100 * 366 * 24 * 3600;

/// The company of a token that is bound to just one, for the company's own activity.
fn only(role: &Role) -> Option<&str> {
    match role.companies()[..] {
        [one] => Some(one),
        _ => None,
    }
}

fn check(new: &NewToken) -> Result<()> {
    if let Role::Member { companies } = &new.role
        && companies.is_empty()
    {
        return Err(Error::invalid(
            "/companyIds",
            "a member's token is bound to companies: name one at least",
        ));
    }
    if let Some(run) = new.role.run()
        && (run.is_empty() || run.len() > 200 || run.chars().any(char::is_control))
    {
        return Err(Error::invalid(
            "/runId",
            "must be 1 to 200 bytes without control characters",
        ));
    }
    if new.expires_in.is_some_and(|seconds| seconds > LONGEST_LIFE) {
        return Err(Error::invalid(
            "/expiresInSeconds",
            format!(
                "must be at most {LONGEST_LIFE}, which is 100 years: leave it out for a token that does not expire"
            ),
        ));
    }
    if new.expires_in == Some(0) {
        return Err(Error::invalid(
            "/expiresInSeconds",
            "is 0; give at least 1, or leave it out for a token that does not expire",
        ));
    }
    Ok(())
}

/// Authenticates every row under other keys, each after it verified under the old. The hashes stay: their key is
/// carried over. Returns how many.
pub(crate) async fn sign_again(db: &mut SqliteConnection, old: &Keys, new: &Keys) -> Result<u64> {
    let rows = sqlx::query("SELECT * FROM tokens")
        .fetch_all(&mut *db)
        .await?;
    for row in &rows {
        let (token, hash) = token(old, row)?;
        let mac = row_mac(new, &token, &hash).done();
        sqlx::query("UPDATE tokens SET mac = $2 WHERE id = $1")
            .bind(&token.id)
            .bind(&mac[..])
            .execute(&mut *db)
            .await?;
    }
    Ok(rows.len() as u64)
}

impl Tokens {
    /// Makes a token and shows it, for the only time.
    pub async fn create(&self, actor: &Actor, new: NewToken) -> Result<(Token, Zeroizing<String>)> {
        actor.may(Operation::CreateToken)?;
        let name = name::checked("/name", &new.name)?;
        check(&new)?;
        let mut bytes = Zeroizing::new([0u8; 32]);
        id::random(&mut bytes[..])?;
        let bearer = Zeroizing::new(format!("{PREFIX}{}", id::base32(&bytes[..])));
        let hash = hash(&self.keys, &bearer);
        let actor = actor.clone();
        let claim = idempotency::current();
        let made = self
            .store
            .write(move |tx| {
                Box::pin(async move {
                    for company in new.role.companies() {
                        company::must_exist(&mut tx.db, company).await?;
                    }
                    let life = new.expires_in.map(|seconds| seconds.saturating_mul(1000));
                    let token = Token {
                        id: id::fresh("tok_")?,
                        name,
                        role: new.role,
                        created_by: actor.display.clone(),
                        created_at: tx.now(),
                        expires_at: life.map(|ms| tx.now().saturating_add_unsigned(ms)),
                        last_used_at: None,
                        revoked_at: None,
                    };
                    idempotency::made(tx, claim.as_ref(), &token.id).await?;
                    let mac = row_mac(&tx.keys, &token, &hash).done();
                    sqlx::query(
                        "INSERT INTO tokens (id, companies, run, name, role, hash, created_by, created_at, expires_at, mac)
                         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)",
                    )
                    .bind(&token.id)
                    .bind(serde_json::to_string(&token.role.companies())?)
                    .bind(token.role.run())
                    .bind(&token.name)
                    .bind(token.role.as_str())
                    .bind(&hash[..])
                    .bind(&token.created_by)
                    .bind(token.created_at)
                    .bind(token.expires_at)
                    .bind(&mac[..])
                    .execute(&mut tx.db)
                    .await?;
                    tx.record(
                        &actor,
                        Entry::new(
                            "token.created",
                            only(&token.role),
                            "token",
                            &token.id,
                            json!({
                                "name": token.name,
                                "role": token.role.as_str(),
                                "companies": token.role.companies(),
                                "run": token.role.run(),
                                "expiresAt": token.expires_at,
                            }),
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
            "SELECT * FROM tokens
             WHERE $1 IS NULL OR EXISTS (SELECT 1 FROM json_each(companies) WHERE value = $1)
             ORDER BY created_at, id",
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
        actor.may(Operation::RevokeToken)?;
        let (actor, id) = (actor.clone(), id.to_owned());
        let memory = Arc::clone(&self.memory);
        self.store
            .write(move |tx| {
                Box::pin(async move {
                    let (mut token, _, hash) = load(&mut tx.db, &tx.keys, &id).await?;
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
                    // Whoever put something of their own into the database keeps no token alive by it.
                    let (now, ..) = load(&mut tx.db, &tx.keys, &id).await?;
                    if now.revoked_at != token.revoked_at {
                        return Err(Error::corrupt(format!("token {id}")));
                    }
                    tx.record(
                        &actor,
                        Entry::new(
                            "token.revoked",
                            only(&token.role),
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

    /// Whether the token of this id may be used: it is there, authentic, not expired and not revoked.
    pub async fn is_good(&self, id: &str) -> Result<bool> {
        Ok(self.good_for(id).await?.is_some())
    }

    /// For how long the token of this id can be good yet without being asked for again; none: it is not.
    async fn good_for(&self, id: &str) -> Result<Option<Duration>> {
        match load(self.store.read(), &self.keys, id).await {
            Ok((token, now, _)) => Ok(token.is_good(now).then(|| token.life(now, ASKED_AGAIN))),
            Err(Error::NotFound { .. } | Error::Corrupt { .. }) => Ok(None),
            Err(other) => Err(other),
        }
    }

    /// Waits until the token of this id is not good any more: its expiry and a revocation by this process end the wait at
    /// once, a revocation by another process on the same database within ten seconds. While the database does not answer,
    /// nothing is known of either.
    pub async fn until_revoked(&self, id: &str) {
        loop {
            let mut revoked = std::pin::pin!(self.memory.revoked.notified());
            // Heard from before the question on, so that none comes between.
            revoked.as_mut().enable();
            let again = match self.good_for(id).await {
                Ok(None) => return,
                Ok(Some(life)) => life,
                Err(_) => ASKED_AGAIN,
            };
            tokio::select! {
                () = revoked => {}
                () = tokio::time::sleep(again) => {}
            }
        }
    }

    /// Writes down that a token is in use, once a minute at most, behind the request that it came with.
    fn note_use(&self, token: &Token, now: i64) {
        let due = |last: i64| now.saturating_sub(last) >= USE_NOTED_MS;
        if !token.last_used_at.is_none_or(due) {
            return;
        }
        let (store, id) = (Arc::clone(&self.store), token.id.clone());
        tokio::spawn(async move {
            let written = store
                .write(move |tx| {
                    Box::pin(async move {
                        sqlx::query("UPDATE tokens SET last_used_at = $2 WHERE id = $1")
                            .bind(&id)
                            .bind(now)
                            .execute(&mut tx.db)
                            .await?;
                        Ok(())
                    })
                })
                .await;
            if let Err(error) = written {
                tracing::debug!(%error, "a token's last use");
            }
        });
    }

    /// Notes for the activity that somebody came with a token that nobody has.
    pub fn refused_unknown(&self) {
        let details = json!({ "reason": "unknown" });
        let entry = Entry::new("token.refused", None, "token", "unknown", details);
        self.activity.deny_nobody(entry);
    }

    /// The same of one that was good once: whoever has it is no longer who it says.
    fn refused_ended(&self, token: &Token) {
        let reason = match token.revoked_at {
            Some(_) => "revoked",
            None => "expired",
        };
        self.activity.deny_nobody(Entry::new(
            "token.refused",
            only(&token.role),
            "token",
            &token.id,
            json!({ "name": token.name, "reason": reason }),
        ));
    }

    /// Whose token this is; none when it is nobody's, expired or revoked.
    pub async fn authenticate(&self, bearer: &str) -> Result<Option<Actor>> {
        // What cannot be a token costs no database query.
        if !bearer.starts_with(PREFIX) || bearer.len() != PREFIX.len() + 52 {
            self.refused_unknown();
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
                && k.until > Instant::now()
            {
                return Ok(Some(k.actor.clone()));
            }
        }
        let asked = Instant::now();
        let row = sqlx::query(concat!(
            "SELECT *, ",
            now_ms!(),
            " AS now, ",
            was_revoked!(),
            " FROM tokens WHERE hash = $1"
        ))
        .bind(&hash[..])
        .fetch_optional(self.store.read())
        .await?;
        let mut trusted = TRUSTED;
        let actor = match row {
            Some(row) => {
                let (token, _) = token(&self.keys, &row)?;
                is_the_newest(&token, &row)?;
                let now = row.try_get("now")?;
                trusted = token.life(now, TRUSTED);
                let good = token.is_good(now);
                if good {
                    self.note_use(&token, now);
                } else {
                    self.refused_ended(&token);
                }
                good.then_some(Actor {
                    display: token.name,
                    kind: ActorKind::Token {
                        id: token.id,
                        role: token.role,
                    },
                })
            }
            None => {
                self.refused_unknown();
                None
            }
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
                        until: asked + trusted,
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

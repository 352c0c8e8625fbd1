//! Executions: commands, journalled before they start, with one outcome each (P7).
//!
//! Nothing begins on a lease that is not active, has expired or is at another epoch; that is decided in the
//! statement that writes the journal row (P3). An outcome is written once; only *unknown* may change later,
//! into a true one. Arguments are stored; of variables the names alone.

use std::sync::Arc;

use serde::Serialize;
use serde_json::{Value, json};
use sqlx::Row as _;

use crate::activity::{ActivityOutcome, Entry};
use crate::actor::Actor;
use crate::error::{Error, Result, code};
use crate::id;
use crate::lease::Leases;
use crate::policy::Operation;
use crate::store::{Db, Row, Store, Tx, now_ms};

/// Bytes of all arguments together at most.
const ARGV: usize = 128 * 1024;
/// Bytes of a reference at most.
const REFERENCE: usize = 16 * 1024;

/// A command to begin.
#[derive(Clone, Debug, Default)]
pub struct NewExecution {
    /// Program and arguments, no shell.
    pub argv: Vec<String>,
    /// The names of its variables; never their values.
    pub env_names: Vec<String>,
    /// Where it starts; none: the lease's workspace.
    pub cwd: Option<String>,
    /// Whether there is input.
    pub stdin: bool,
    /// Whether it has a terminal.
    pub tty: bool,
}

/// How a command ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "kind", content = "value")]
pub enum Outcome {
    /// With this status, 0 to 255.
    Exited(i32),
    /// By this signal, POSIX name without SIG.
    Signalled(String),
    /// The backend ended it for its memory.
    OutOfMemory,
    /// Proven: it never ran and never will.
    NotStarted(String),
    /// Nobody can tell.
    Unknown(String),
}

impl Outcome {
    fn columns(&self) -> (&'static str, Option<i32>, Option<&str>, Option<&str>) {
        match self {
            Outcome::Exited(code) => ("exited", Some(*code), None, None),
            Outcome::Signalled(signal) => ("signalled", None, Some(signal), None),
            Outcome::OutOfMemory => ("out_of_memory", None, None, None),
            Outcome::NotStarted(reason) => ("not_started", None, None, Some(reason)),
            Outcome::Unknown(reason) => ("unknown", None, None, Some(reason)),
        }
    }

    /// Whether it is [`Outcome::Unknown`].
    pub fn is_unknown(&self) -> bool {
        matches!(self, Outcome::Unknown(_))
    }

    fn bounded(self) -> Outcome {
        let tame = |text: String, max: usize| -> String {
            text.chars()
                .map(|c| if c.is_control() { ' ' } else { c })
                .take(max)
                .collect()
        };
        match self {
            Outcome::Signalled(signal) => Outcome::Signalled(tame(signal, 40)),
            Outcome::NotStarted(reason) => Outcome::NotStarted(tame(reason, 1000)),
            Outcome::Unknown(reason) => Outcome::Unknown(tame(reason, 1000)),
            other => other,
        }
    }
}

/// Where an execution stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ExecutionStatus {
    /// Journalled; it may have started.
    Begun,
    /// It started.
    Running,
    /// It has its outcome.
    Settled,
}

/// A command's record. Times are milliseconds since the epoch.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Execution {
    /// `exe-…`; the id that the provider is told.
    pub id: String,
    /// On which lease.
    pub lease_id: String,
    /// Whose it is.
    pub company_id: String,
    /// The lease's epoch when it began.
    pub epoch: u32,
    /// Program and arguments.
    pub argv: Vec<String>,
    /// The names of its variables.
    pub env_names: Vec<String>,
    /// Where it starts; none: the lease's workspace.
    pub cwd: Option<String>,
    /// Whether there is input.
    pub stdin: bool,
    /// Whether it has a terminal.
    pub tty: bool,
    /// Where it stands.
    pub status: ExecutionStatus,
    /// What the provider finds it by, opaque JSON.
    pub reference: Option<String>,
    /// How it ended.
    pub outcome: Option<Outcome>,
    /// Whether somebody asked for its end.
    pub cancelled: bool,
    /// Who began it.
    pub created_by: String,
    /// When it was journalled.
    pub begun_at: i64,
    /// When it started.
    pub started_at: Option<i64>,
    /// When its outcome was written.
    pub settled_at: Option<i64>,
}

/// An execution that has its outcome.
#[derive(Clone, Debug, PartialEq)]
pub struct Settled {
    /// The execution.
    pub execution: Execution,
    /// Whether this call wrote the outcome; false: another had come first, and stands.
    pub first: bool,
}

/// The executions.
#[derive(Clone)]
pub struct Executions {
    pub(crate) store: Arc<Store>,
    pub(crate) leases: Leases,
}

fn execution(row: &Row) -> Result<Execution> {
    let id: String = row.try_get("id")?;
    let corrupt = || Error::corrupt(format!("execution {id}"));
    let reason = || -> Result<String> {
        Ok(row
            .try_get::<Option<String>, _>("reason")?
            .unwrap_or_default())
    };
    let outcome = match row.try_get::<Option<&str>, _>("outcome")? {
        None => None,
        Some("exited") => Some(Outcome::Exited(row.try_get("exit_code")?)),
        Some("signalled") => Some(Outcome::Signalled(row.try_get("signal")?)),
        Some("out_of_memory") => Some(Outcome::OutOfMemory),
        Some("not_started") => Some(Outcome::NotStarted(reason()?)),
        Some("unknown") => Some(Outcome::Unknown(reason()?)),
        Some(_) => return Err(corrupt()),
    };
    let status = match row.try_get("status")? {
        "begun" => ExecutionStatus::Begun,
        "running" => ExecutionStatus::Running,
        "settled" => ExecutionStatus::Settled,
        _ => return Err(corrupt()),
    };
    Ok(Execution {
        lease_id: row.try_get("lease_id")?,
        company_id: row.try_get("company_id")?,
        epoch: u32::try_from(row.try_get::<i64, _>("epoch")?).map_err(|_| corrupt())?,
        argv: serde_json::from_str(row.try_get("argv")?)?,
        env_names: serde_json::from_str(row.try_get("env_names")?)?,
        cwd: row.try_get("cwd")?,
        stdin: row.try_get("stdin")?,
        tty: row.try_get("tty")?,
        status,
        reference: row.try_get("reference")?,
        outcome,
        cancelled: row.try_get("cancelled")?,
        created_by: row.try_get("created_by")?,
        begun_at: row.try_get("begun_at")?,
        started_at: row.try_get("started_at")?,
        settled_at: row.try_get("settled_at")?,
        id,
    })
}

async fn load<'e>(db: impl sqlx::Executor<'e, Database = Db>, id: &str) -> Result<Execution> {
    let row = sqlx::query("SELECT * FROM executions WHERE id = $1")
        .bind(id)
        .fetch_optional(db)
        .await?
        .ok_or_else(|| Error::not_found("execution", id))?;
    execution(&row)
}

fn check(new: &NewExecution) -> Result<()> {
    let mut bad = crate::error::Violations::default();
    let size: usize = new.argv.iter().map(|a| a.len() + 1).sum();
    if new.argv.first().is_none_or(String::is_empty) {
        bad.add("/argv", "must begin with a program");
    }
    if size > ARGV {
        bad.add("/argv", format!("must be at most {ARGV} bytes together"));
    }
    if new.argv.iter().any(|a| a.contains('\0')) {
        bad.add("/argv", "may not contain NUL");
    }
    for name in &new.env_names {
        if name.is_empty() || name.len() > 256 || name.contains(['=', '\0']) {
            bad.add(
                "/env",
                "a variable's name is 1 to 256 bytes without = and NUL",
            );
            break;
        }
    }
    if new
        .cwd
        .as_ref()
        .is_some_and(|c| c.is_empty() || c.len() > 4096 || c.contains('\0'))
    {
        bad.add("/cwd", "must be a path of 1 to 4096 bytes");
    }
    bad.done()
}

impl Executions {
    /// Journals a command before it starts. Conflict `lease_state` or `lease_expired`, or
    /// [`Error::Stale`]: start nothing.
    pub async fn begin(
        &self,
        actor: &Actor,
        lease: &str,
        epoch: u32,
        new: NewExecution,
    ) -> Result<Execution> {
        check(&new)?;
        let (leases, actor, lease) = (self.leases.clone(), actor.clone(), lease.to_owned());
        self.store
            .write(move |tx| {
                Box::pin(async move {
                    let held = leases.load_for(tx, &actor, Operation::RunCommand, &lease).await?;
                    let id = id::fresh("exe-")?;
                    let journalled = sqlx::query(concat!(
                        "INSERT INTO executions (id, lease_id, company_id, epoch, argv, env_names, cwd, stdin,
                                                 tty, status, created_by, begun_at, claimed_by, claim_epoch)
                         SELECT $1, l.id, l.company_id, l.epoch, $4, $5, $6, $7, $8, 'begun', $9, ",
                        now_ms!(),
                        ", $10, 1 FROM leases l
                         WHERE l.id = $2 AND l.epoch = $3 AND l.status = 'active'
                           AND (l.expires_at IS NULL OR l.expires_at > ",
                        now_ms!(),
                        ")"
                    ))
                    .bind(&id)
                    .bind(&lease)
                    .bind(i64::from(epoch))
                    .bind(serde_json::to_string(&new.argv)?)
                    .bind(serde_json::to_string(&new.env_names)?)
                    .bind(&new.cwd)
                    .bind(new.stdin)
                    .bind(new.tty)
                    .bind(&actor.display)
                    .bind(&*tx.replica)
                    .execute(&mut tx.db)
                    .await?
                    .rows_affected();
                    if journalled == 0 {
                        return Err(leases.why_unusable(&held, epoch));
                    }
                    sqlx::query(concat!(
                        "UPDATE leases SET last_used_at = ",
                        now_ms!(),
                        " WHERE id = $1"
                    ))
                    .bind(&lease)
                    .execute(&mut tx.db)
                    .await?;
                    let execution = load(&mut tx.db, &id).await?;
                    record(
                        tx,
                        &actor,
                        "execution.begun",
                        &execution,
                        json!({
                            "lease": lease, "program": new.argv.first(), "arguments": new.argv.len() - 1,
                            "envNames": new.env_names, "tty": new.tty,
                        }),
                    )
                    .await?;
                    Ok(execution)
                })
            })
            .await
    }

    /// It started, and this finds it again. An execution that is settled by now stays so.
    pub async fn started(&self, id: &str, reference: &str) -> Result<Execution> {
        if reference.len() > REFERENCE
            || serde_json::from_str::<serde::de::IgnoredAny>(reference).is_err()
        {
            return Err(Error::invalid(
                "/reference",
                format!("must be JSON of at most {REFERENCE} bytes"),
            ));
        }
        let (id, reference) = (id.to_owned(), reference.to_owned());
        self.store
            .write(move |tx| {
                Box::pin(async move {
                    sqlx::query(concat!(
                        "UPDATE executions SET reference = $2,
                             status = CASE status WHEN 'begun' THEN 'running' ELSE status END,
                             started_at = COALESCE(started_at, ",
                        now_ms!(),
                        ") WHERE id = $1"
                    ))
                    .bind(&id)
                    .bind(&reference)
                    .execute(&mut tx.db)
                    .await?;
                    load(&mut tx.db, &id).await
                })
            })
            .await
    }

    /// Writes the outcome, if there is none yet: the first one stands.
    pub async fn settle(&self, actor: &Actor, id: &str, outcome: Outcome) -> Result<Settled> {
        self.write_outcome(actor, id, outcome, Replace::Nothing)
            .await
    }

    /// Puts a true outcome in the place of *unknown*, on the word of the provider's `state-of`. Of an
    /// execution without an outcome this is [`Self::settle`]; a true outcome stands, and another one is a
    /// conflict.
    pub async fn settle_unknown(
        &self,
        actor: &Actor,
        id: &str,
        outcome: Outcome,
    ) -> Result<Execution> {
        let wanted = outcome.clone().bounded();
        let settled = self
            .write_outcome(actor, id, outcome, Replace::Unknown)
            .await?;
        match &settled.execution.outcome {
            Some(stands) if *stands == wanted || wanted.is_unknown() => Ok(settled.execution),
            stands => Err(Error::conflict_with(
                code::EXECUTION_SETTLED,
                format!("execution {id} has its outcome already"),
                json!({ "outcome": stands }),
            )),
        }
    }

    async fn write_outcome(
        &self,
        actor: &Actor,
        id: &str,
        outcome: Outcome,
        replace: Replace,
    ) -> Result<Settled> {
        let outcome = outcome.bounded();
        let (actor, id) = (actor.clone(), id.to_owned());
        self.store
            .write(move |tx| {
                Box::pin(async move {
                    let (kind, exit_code, signal, reason) = outcome.columns();
                    let replaces = replace == Replace::Unknown && !outcome.is_unknown();
                    let written = sqlx::query(concat!(
                        "UPDATE executions SET status = 'settled', outcome = $2, exit_code = $3, signal = $4,
                             reason = $5, settled_at = ",
                        now_ms!(),
                        ", claimed_until = NULL
                         WHERE id = $1 AND (status <> 'settled' OR ($6 AND outcome = 'unknown'))"
                    ))
                    .bind(&id)
                    .bind(kind)
                    .bind(exit_code)
                    .bind(signal)
                    .bind(reason)
                    .bind(replaces)
                    .execute(&mut tx.db)
                    .await?
                    .rows_affected();
                    let execution = load(&mut tx.db, &id).await?;
                    if written == 1 {
                        record(
                            tx,
                            &actor,
                            "execution.settled",
                            &execution,
                            json!({
                                "lease": execution.lease_id, "outcome": outcome,
                                "cancelled": execution.cancelled,
                            }),
                        )
                        .await?;
                    }
                    Ok(Settled {
                        execution,
                        first: written == 1,
                    })
                })
            })
            .await
    }

    /// Notes that somebody asked for its end. What ended it is the outcome's to say.
    pub async fn cancel(&self, actor: &Actor, id: &str) -> Result<Execution> {
        let (leases, actor, id) = (self.leases.clone(), actor.clone(), id.to_owned());
        self.store
            .write(move |tx| {
                Box::pin(async move {
                    let before = load(&mut tx.db, &id).await?;
                    leases
                        .load_for(tx, &actor, Operation::SignalExecution, &before.lease_id)
                        .await?;
                    if before.cancelled || before.status == ExecutionStatus::Settled {
                        return Ok(before);
                    }
                    sqlx::query("UPDATE executions SET cancelled = TRUE WHERE id = $1")
                        .bind(&id)
                        .execute(&mut tx.db)
                        .await?;
                    let execution = load(&mut tx.db, &id).await?;
                    record(
                        tx,
                        &actor,
                        "execution.cancelled",
                        &execution,
                        json!({ "lease": execution.lease_id }),
                    )
                    .await?;
                    Ok(execution)
                })
            })
            .await
    }

    /// One execution.
    pub async fn get(&self, id: &str) -> Result<Execution> {
        load(self.store.read(), id).await
    }

    /// The executions of a lease, newest first, at most 1000.
    pub async fn list(&self, lease: &str) -> Result<Vec<Execution>> {
        let rows = sqlx::query(
            "SELECT * FROM executions WHERE lease_id = $1 ORDER BY begun_at DESC, id DESC LIMIT 1000",
        )
        .bind(lease)
        .fetch_all(self.store.read())
        .await?;
        rows.iter().map(execution).collect()
    }

    /// A page of the executions of a lease, the newest first: those before the one of the id `behind`, `limit` at most; and
    /// whether there are more.
    pub async fn page(
        &self,
        lease: &str,
        behind: Option<&str>,
        limit: u32,
    ) -> Result<(Vec<Execution>, bool)> {
        let mut rows = sqlx::query(
            "SELECT * FROM executions WHERE lease_id = $1
                 AND ($2 IS NULL OR (begun_at, id) < (SELECT begun_at, id FROM executions WHERE id = $2))
             ORDER BY begun_at DESC, id DESC LIMIT $3",
        )
        .bind(lease)
        .bind(behind)
        .bind(i64::from(limit) + 1)
        .fetch_all(self.store.read())
        .await?;
        let more = rows.len() > limit as usize;
        rows.truncate(limit as usize);
        let page: Result<Vec<Execution>> = rows.iter().map(execution).collect();
        Ok((page?, more))
    }

    /// What `state-of` should be asked about: executions without an outcome, or with an unknown one, on
    /// leases that are active. After a restart, these were open.
    pub async fn open(&self) -> Result<Vec<Execution>> {
        let rows = sqlx::query(
            "SELECT e.* FROM executions e JOIN leases l ON l.id = e.lease_id
             WHERE (e.status <> 'settled' OR e.outcome = 'unknown') AND l.status = 'active'
             ORDER BY e.begun_at",
        )
        .fetch_all(self.store.read())
        .await?;
        rows.iter().map(execution).collect()
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Replace {
    Nothing,
    Unknown,
}

async fn record(
    tx: &mut Tx,
    actor: &Actor,
    action: &'static str,
    execution: &Execution,
    details: Value,
) -> Result<()> {
    let entry = Entry::new(
        action,
        Some(&execution.company_id),
        "execution",
        &execution.id,
        details,
    );
    // A command that ran is done, whatever it answered.
    let outcome = match &execution.outcome {
        Some(Outcome::NotStarted(_)) => ActivityOutcome::Failed,
        Some(Outcome::Unknown(_)) => ActivityOutcome::Unknown,
        _ => ActivityOutcome::Done,
    };
    tx.record(actor, entry.ended(outcome)).await
}

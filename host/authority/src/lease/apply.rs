//! The machine's steps, stored: one transaction each, with the activity row.
//!
//! A step is taken only at the epoch that the caller holds; whoever was superseded gets [`Error::Stale`] and
//! has to stop. What the machine answers as stored effects is done here; the rest is handed to the caller.

use serde::Serialize;
use serde_json::{Value, json};

use super::clock::usable;
use super::machine::{Effect, Event, Proof, State, Status, step};
use super::{CLAIM_MS, Lease, Leases, record};
use crate::activity::{ActivityOutcome, Entry};
use crate::actor::Actor;
use crate::error::{Error, Result, code};
use crate::policy::Operation;
use crate::secret;
use crate::store::{Tx, now_ms};

/// Bytes of a handle at most.
const HANDLE: usize = 16 * 1024;
/// Characters of a reason or failure that are kept.
const REASON: usize = 1000;

/// A step that was taken.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Transition {
    /// The lease after it.
    pub lease: Lease,
    /// Where it stood before.
    pub before: Status,
    /// What follows; the caller does those that are not stored.
    pub effects: Vec<Effect>,
}

/// Who does the work that a step asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Handling {
    /// The caller, now: the lease is claimed for this replica.
    Mine,
    /// Whoever claims work next.
    Queued,
}

/// What becomes of the claim on a lease.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Claim {
    Keep,
    Take,
    Free,
}

/// A text of somebody else's, bounded and without control characters.
fn bounded(text: &str) -> String {
    text.chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .take(REASON)
        .collect()
}

fn tamed(event: Event) -> Event {
    match event {
        Event::AcquireFailed { reason } => Event::AcquireFailed {
            reason: bounded(&reason),
        },
        Event::ReconcileFailed { reason, jitter } => Event::ReconcileFailed {
            reason: bounded(&reason),
            jitter,
        },
        Event::Release { reason } => Event::Release {
            reason: bounded(&reason),
        },
        Event::ReleaseUnconfirmed { reason, jitter } => Event::ReleaseUnconfirmed {
            reason: bounded(&reason),
            jitter,
        },
        Event::Abandon { reason } => Event::Abandon {
            reason: bounded(&reason),
        },
        other => other,
    }
}

pub(super) fn check_resource(resource: &str) -> Result<()> {
    let good = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    if resource.is_empty() || resource.len() > 128 || !resource.chars().all(good) {
        return Err(Error::invalid(
            "/resource",
            "the backend's id of a resource must be 1 to 128 of A-Za-z0-9._-",
        ));
    }
    Ok(())
}

fn check(event: &Event) -> Result<()> {
    let with = match event {
        Event::Activated(with) => with,
        Event::Candidates { owned, .. } => {
            return owned
                .iter()
                .try_for_each(|resource| check_resource(resource));
        }
        _ => return Ok(()),
    };
    check_resource(&with.resource)?;
    if with.handle.len() > HANDLE
        || serde_json::from_str::<serde::de::IgnoredAny>(&with.handle).is_err()
    {
        return Err(Error::invalid(
            "/handle",
            format!(
                "the provider's handle must be JSON of at most {HANDLE} bytes, and has {}",
                with.handle.len()
            ),
        ));
    }
    if with.workspace.len() > 4096 || with.workspace.contains('\0') {
        return Err(Error::invalid(
            "/workspace",
            "the provider's workspace must be a path of at most 4096 bytes",
        ));
    }
    Ok(())
}

impl Leases {
    /// Takes the step of `event` at `epoch`. [`Error::Stale`]: the epoch is superseded, stop. A conflict
    /// `lease_state`: the lease's state does not allow it.
    pub async fn apply(
        &self,
        actor: &Actor,
        lease: &str,
        epoch: u32,
        event: Event,
    ) -> Result<Transition> {
        check(&event)?;
        let event = tamed(event);
        let (shared, actor, id) = (self.clone(), actor.clone(), lease.to_owned());
        self.store
            .write(move |tx| {
                Box::pin(async move {
                    let lease = shared
                        .load_for(tx, &actor, Operation::AcquireLease, &id)
                        .await?;
                    shared.fence(&lease, epoch)?;
                    let event = with_journal(tx, &id, event).await?;
                    shared.step_in(tx, &actor, lease, event, Claim::Keep).await
                })
            })
            .await
    }

    /// Ends the use of a lease whoever works on it: the epoch rises, and release is the caller's or is
    /// queued. Ended or ending already is success; what waits for cleanup is tried again at once.
    pub async fn request_release(
        &self,
        actor: &Actor,
        lease: &str,
        reason: &str,
        handling: Handling,
    ) -> Result<Transition> {
        let event = tamed(Event::Release {
            reason: reason.to_owned(),
        });
        let (shared, actor, id) = (self.clone(), actor.clone(), lease.to_owned());
        self.store
            .write(move |tx| {
                Box::pin(async move {
                    let lease = shared
                        .load_for(tx, &actor, Operation::ReleaseLease, &id)
                        .await?;
                    // One who is releasing it already goes on; the claim is not taken from under it.
                    let claim = match (handling, lease.status) {
                        (_, Status::Releasing) => Claim::Keep,
                        (Handling::Mine, _) => Claim::Take,
                        (Handling::Queued, _) => Claim::Free,
                    };
                    shared.step_in(tx, &actor, lease, event, claim).await
                })
            })
            .await
    }

    /// A person gives up on a cleanup, and takes the responsibility for what may be left.
    pub async fn abandon(&self, actor: &Actor, lease: &str, reason: &str) -> Result<Transition> {
        actor.may(Operation::AbandonLease)?;
        if reason.trim().is_empty() {
            return Err(Error::invalid(
                "/reason",
                "must say why the cleanup is given up",
            ));
        }
        let event = tamed(Event::Abandon {
            reason: reason.to_owned(),
        });
        let (shared, actor, id) = (self.clone(), actor.clone(), lease.to_owned());
        self.store
            .write(move |tx| {
                Box::pin(async move {
                    let lease = shared
                        .load_for(tx, &actor, Operation::AbandonLease, &id)
                        .await?;
                    shared.step_in(tx, &actor, lease, event, Claim::Keep).await
                })
            })
            .await
    }

    /// The lease, if `actor` may do `operation` with it.
    pub(crate) async fn load_for(
        &self,
        tx: &mut Tx,
        actor: &Actor,
        operation: Operation,
        id: &str,
    ) -> Result<Lease> {
        let lease = record::load(&mut tx.db, &self.keys, &self.host, id).await?;
        actor.may_on(operation, lease.scope(), "lease", id)?;
        Ok(lease)
    }

    pub(super) fn fence(&self, lease: &Lease, epoch: u32) -> Result<()> {
        if lease.epoch == epoch {
            return Ok(());
        }
        Err(Error::stale(
            "lease",
            format!(
                "lease {} is at epoch {}, not {epoch}: somebody else works on it",
                lease.id, lease.epoch
            ),
        ))
    }

    /// Takes a step in a transaction: state, stored effects, activity.
    pub(super) async fn step_in(
        &self,
        tx: &mut Tx,
        actor: &Actor,
        lease: Lease,
        event: Event,
        claim: Claim,
    ) -> Result<Transition> {
        let before = lease.status;
        let (after, effects) = step(&lease.state(), &event).map_err(|refused| {
            Error::conflict_with(
                code::LEASE_STATE,
                format!("lease {}: {refused}", lease.id),
                json!({ "status": refused.status }),
            )
        })?;
        let idle = after == lease.state() && effects.is_empty();
        if idle && (claim != Claim::Take || after.status.is_terminal()) {
            return Ok(Transition {
                lease,
                before,
                effects,
            });
        }
        let retry = effects.iter().find_map(|e| match e {
            Effect::Retry { after, .. } => Some(i64::try_from(*after).unwrap_or(i64::MAX)),
            Effect::AskAgain { after } => Some(*after),
            _ => None,
        });
        let claim = match claim {
            Claim::Take if !after.status.is_terminal() => Claim::Take,
            Claim::Keep if keeps_working(before, after.status, retry) => Claim::Keep,
            _ => Claim::Free,
        };
        let mut settled = 0;
        for effect in &effects {
            match effect {
                Effect::StartClock => self.start_clock(tx, &lease, &event).await?,
                Effect::SettleExecutions => settled = settle_executions(tx, &lease.id).await?,
                Effect::FreeTarget => free_target(tx, &lease.id).await?,
                _ => {}
            }
        }
        if let Some(entry) = entry(&lease, before, &after, &event, &effects, settled) {
            tx.record(actor, entry).await?;
        }
        let lease = self
            .store_state(tx, &lease.id, &after, retry, claim)
            .await?;
        Ok(Transition {
            lease,
            before,
            effects,
        })
    }

    async fn store_state(
        &self,
        tx: &mut Tx,
        id: &str,
        after: &State,
        retry: Option<i64>,
        claim: Claim,
    ) -> Result<Lease> {
        let row = sqlx::query(concat!(
            "UPDATE leases SET status = $2, epoch = $3, unsafe_sent = $4, resource = $5, absent_since = $6,
                 attempts = $7, reason = $8, failure = $9,
                 next_attempt_at = CASE WHEN $10 THEN ",
            now_ms!(),
            " + $11 ELSE NULL END,
                 released_at = CASE WHEN $12 THEN ",
            now_ms!(),
            " ELSE NULL END,
                 claimed_by = CASE $13 WHEN 'take' THEN $14 WHEN 'free' THEN NULL ELSE claimed_by END,
                 claim_epoch = CASE $13 WHEN 'take' THEN claim_epoch + 1 ELSE claim_epoch END,
                 claimed_until = CASE $13 WHEN 'take' THEN ",
            now_ms!(),
            " + $15 WHEN 'free' THEN NULL ELSE claimed_until END,
                 updated_at = ",
            now_ms!(),
            " WHERE id = $1 RETURNING *"
        ))
        .bind(id)
        .bind(after.status.as_str())
        .bind(i64::from(after.epoch))
        .bind(after.unsafe_sent)
        .bind(&after.resource)
        .bind(after.absent_since)
        .bind(i64::from(after.attempts))
        .bind(&after.reason)
        .bind(&after.failure)
        .bind(retry.is_some())
        .bind(retry.unwrap_or(0))
        .bind(after.status.is_terminal())
        .bind(match claim {
            Claim::Keep => "keep",
            Claim::Take => "take",
            Claim::Free => "free",
        })
        .bind(&*tx.replica)
        .bind(CLAIM_MS)
        .fetch_one(&mut tx.db)
        .await?;
        record::lease(&self.keys, &self.host, &row)
    }

    /// Time to live begins: the least of what was asked and what the backend attested, less a margin.
    async fn start_clock(&self, tx: &mut Tx, lease: &Lease, event: &Event) -> Result<()> {
        let Event::Activated(with) = event else {
            return Ok(());
        };
        let attested = with
            .attested_ttl
            .map(|ttl| i64::try_from(usable(ttl).as_millis()).unwrap_or(i64::MAX / 4));
        let least = match (lease.ttl, attested) {
            (Some(host), Some(attested)) => Some(host.min(attested)),
            (host, attested) => host.or(attested),
        };
        sqlx::query(concat!(
            "UPDATE leases SET handle = $2, workspace = $3, proof = $4, acquired_at = ",
            now_ms!(),
            ", last_used_at = ",
            now_ms!(),
            ", host_until = ",
            now_ms!(),
            " + $5, attested_until = ",
            now_ms!(),
            " + $6, expires_at = ",
            now_ms!(),
            " + $7 WHERE id = $1"
        ))
        .bind(&lease.id)
        .bind(&with.handle)
        .bind(&with.workspace)
        .bind(match with.proof {
            Proof::Owned => "owned",
            Proof::Claimed => "claimed",
        })
        .bind(lease.ttl)
        .bind(attested)
        .bind(least)
        .execute(&mut tx.db)
        .await?;
        Ok(())
    }
}

/// What the journal names is read from the journal, whatever the caller said.
async fn with_journal(tx: &mut Tx, lease: &str, event: Event) -> Result<Event> {
    let Event::Candidates {
        owned, at, apart, ..
    } = event
    else {
        return Ok(event);
    };
    let journalled = sqlx::query_scalar(
        "SELECT DISTINCT resource FROM lease_journal WHERE lease_id = $1 AND thing = 'environment'",
    )
    .bind(lease)
    .fetch_all(&mut tx.db)
    .await?;
    Ok(Event::Candidates {
        owned,
        journalled,
        at,
        apart,
    })
}

/// Whether whoever works on the lease goes on after a step: not when it is in use or ended, not when the next
/// try has a time, and not when its use was just ended, which is work for whoever claims it.
fn keeps_working(before: Status, after: Status, retry: Option<i64>) -> bool {
    let ended_use = after == Status::Releasing && before != Status::Releasing;
    !after.is_terminal() && after != Status::Active && retry.is_none() && !ended_use
}

async fn settle_executions(tx: &mut Tx, lease: &str) -> Result<u64> {
    Ok(sqlx::query(concat!(
        "UPDATE executions SET status = 'settled', outcome = 'unknown',
             reason = 'the lease ended before the outcome was known', settled_at = ",
        now_ms!(),
        " WHERE lease_id = $1 AND status <> 'settled'"
    ))
    .bind(lease)
    .execute(&mut tx.db)
    .await?
    .rows_affected())
}

async fn free_target(tx: &mut Tx, lease: &str) -> Result<()> {
    sqlx::query("DELETE FROM resource_claims WHERE lease_id = $1")
        .bind(lease)
        .execute(&mut tx.db)
        .await?;
    sqlx::query("DELETE FROM lease_kept WHERE lease_id = $1")
        .bind(lease)
        .execute(&mut tx.db)
        .await?;
    secret::drop_pins(tx, lease).await
}

/// What the activity has of a step; none for what is recorded elsewhere or changes nothing to see.
fn entry(
    lease: &Lease,
    before: Status,
    after: &State,
    event: &Event,
    effects: &[Effect],
    settled: u64,
) -> Option<Entry> {
    let action = match (after.status, event) {
        (_, Event::UnsafeSent) => return None,
        (_, Event::Takeover) => "lease.taken_over",
        (status, _) if status != before => match status {
            Status::Acquiring => "lease.acquiring",
            Status::Active => "lease.active",
            Status::Releasing => "lease.releasing",
            Status::Retained => "lease.retained",
            Status::PendingCleanup => "lease.pending_cleanup",
            Status::Released => "lease.released",
            Status::Failed => "lease.failed",
            Status::Abandoned => "lease.abandoned",
        },
        (_, Event::Candidates { .. }) if effects.is_empty() => return None,
        (_, Event::Candidates { .. }) => "lease.reconciled",
        (_, Event::Release { .. }) if effects.is_empty() => return None,
        _ => "lease.cleanup_retried",
    };
    let mut details = json!({
        "environment": lease.environment_id, "status": after.status, "epoch": after.epoch,
    });
    let mut put = |key: &str, value: Value| {
        if let Some(object) = details.as_object_mut() {
            object.insert(key.to_owned(), value);
        }
    };
    if let Some(resource) = &after.resource {
        put("resource", json!(resource));
    }
    if let Some(reason) = &after.reason {
        put("reason", json!(reason));
    }
    if let Some(failure) = &after.failure {
        put("failure", json!(failure));
    }
    if let Event::Activated(with) = event {
        put("proof", json!(with.proof));
    }
    if settled > 0 {
        put("executionsUnknown", json!(settled));
    }
    for effect in effects {
        match effect {
            Effect::Adopt { resource } => put("adopted", json!(resource)),
            Effect::Destroy { resources } => put("destroyed", json!(resources)),
            Effect::Retry { attempt, after } => {
                put("attempt", json!(attempt));
                put("retryAfter", json!(after));
            }
            _ => {}
        }
    }
    let outcome = match after.status {
        Status::Failed if before != Status::Failed => ActivityOutcome::Failed,
        _ => ActivityOutcome::Done,
    };
    let entry = Entry::new(action, Some(&lease.company_id), "lease", &lease.id, details);
    Some(entry.ended(outcome))
}

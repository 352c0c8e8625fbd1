//! Time and work: renewal, expiry, and who works on what has to be ended or found again.
//!
//! Every decision by time is the database's, in the statement that acts on it. Expiry halts while the
//! clocks cannot be believed. Work is claimed for a while and by name; taking it over raises the epoch.

use std::sync::PoisonError;
use std::time::Duration;

use serde_json::json;

use super::apply::{Claim, Transition};
use super::clock::{Trust, usable};
use super::machine::{Event, Status};
use super::{CLAIM_MS, Lease, Leases, record, ttl_ms};
use crate::activity::Entry;
use crate::actor::Actor;
use crate::error::{Error, Result, code};
use crate::policy::Operation;
use crate::store::now_ms;

/// What a look for expired leases did.
#[derive(Clone, Debug, PartialEq)]
pub enum Expiry {
    /// The clocks agree; these leases' use ended, and their release is queued. Close their streams.
    Done(Vec<Transition>),
    /// The wall clock was set by this many milliseconds: nothing expires until the clocks have agreed for a
    /// minute.
    Halted(i64),
}

/// `expires_at` as the least of the two clocks that bound it, either of which may be absent.
macro_rules! least {
    ($host:expr, $attested:expr) => {
        concat!(
            "CASE WHEN ",
            $attested,
            " IS NULL THEN ",
            $host,
            " WHEN ",
            $host,
            " IS NULL OR ",
            $attested,
            " < ",
            $host,
            " THEN ",
            $attested,
            " ELSE ",
            $host,
            " END"
        )
    };
}

impl Leases {
    /// Moves the end of an active lease to `ttl` from now, if it still ends at `expected` and has not ended.
    /// What the backend attested bounds it. [`Error::Stale`]: somebody else renewed it, read it again.
    pub async fn renew(
        &self,
        actor: &Actor,
        lease: &str,
        expected: Option<i64>,
        ttl: Duration,
    ) -> Result<Lease> {
        let ttl = ttl_ms(ttl)?;
        let (shared, actor, id) = (self.clone(), actor.clone(), lease.to_owned());
        self.store
            .write(move |tx| {
                Box::pin(async move {
                    shared.load_for(tx, &actor, Operation::RenewLease, &id).await?;
                    let renewed = sqlx::query(concat!(
                        "UPDATE leases SET host_until = ",
                        now_ms!(),
                        " + $3, expires_at = ",
                        least!("(CAST(unixepoch('subsec') * 1000 AS INTEGER) + $3)", "attested_until"),
                        ", updated_at = ",
                        now_ms!(),
                        " WHERE id = $1 AND status = 'active' AND expires_at IS NOT DISTINCT FROM $2
                          AND (expires_at IS NULL OR expires_at > ",
                        now_ms!(),
                        ")"
                    ))
                    .bind(&id)
                    .bind(expected)
                    .bind(ttl)
                    .execute(&mut tx.db)
                    .await?
                    .rows_affected();
                    let lease = shared.load_for(tx, &actor, Operation::RenewLease, &id).await?;
                    if renewed == 0 {
                        return Err(not_renewed(&lease, expected));
                    }
                    tx.record(
                        &actor,
                        Entry::new(
                            "lease.renewed",
                            Some(&lease.company_id),
                            "lease",
                            &id,
                            json!({ "changed": ["expiresAt"], "before": expected, "expiresAt": lease.expires_at }),
                        ),
                    )
                    .await?;
                    Ok(lease)
                })
            })
            .await
    }

    /// Stores how long the backend said, to a keep-alive, that it will keep the environment; none: it did not
    /// say, and only the host's own time bounds it. An expired lease does not come back.
    pub async fn kept_alive(
        &self,
        actor: &Actor,
        lease: &str,
        epoch: u32,
        attested: Option<Duration>,
    ) -> Result<Lease> {
        let attested =
            attested.map(|ttl| i64::try_from(usable(ttl).as_millis()).unwrap_or(i64::MAX / 4));
        let (shared, actor, id) = (self.clone(), actor.clone(), lease.to_owned());
        self.store
            .write(move |tx| {
                Box::pin(async move {
                    let before = shared
                        .load_for(tx, &actor, Operation::RenewLease, &id)
                        .await?;
                    shared.fence(&before, epoch)?;
                    let kept = sqlx::query(concat!(
                        "UPDATE leases SET attested_until = ",
                        now_ms!(),
                        " + $2, expires_at = ",
                        least!(
                            "host_until",
                            "(CAST(unixepoch('subsec') * 1000 AS INTEGER) + $2)"
                        ),
                        ", updated_at = ",
                        now_ms!(),
                        " WHERE id = $1 AND status = 'active'
                          AND (expires_at IS NULL OR expires_at > ",
                        now_ms!(),
                        ")"
                    ))
                    .bind(&id)
                    .bind(attested)
                    .execute(&mut tx.db)
                    .await?
                    .rows_affected();
                    if kept == 0 {
                        return Err(not_usable(&before));
                    }
                    shared
                        .load_for(tx, &actor, Operation::RenewLease, &id)
                        .await
                })
            })
            .await
    }

    /// Ends the use of at most `limit` leases whose time is over.
    pub async fn expire_due(&self, limit: u32) -> Result<Expiry> {
        let wall = self.store.now().await?;
        let trust = self
            .guard
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .observe(wall, self.started.elapsed());
        if let Trust::Parted(drift) = trust {
            tracing::error!(
                drift_ms = drift,
                "the wall clock was set: no lease expires until the clocks have agreed for a minute"
            );
            return Ok(Expiry::Halted(drift));
        }
        let due: bool = sqlx::query_scalar(concat!(
            "SELECT EXISTS (SELECT 1 FROM leases WHERE status = 'active' AND expires_at IS NOT NULL
                            AND expires_at <= ",
            now_ms!(),
            ")"
        ))
        .fetch_one(self.store.read())
        .await?;
        if !due {
            return Ok(Expiry::Done(Vec::new()));
        }
        let shared = self.clone();
        self.store
            .write(move |tx| {
                Box::pin(async move {
                    let rows = sqlx::query(concat!(
                        "SELECT * FROM leases WHERE status = 'active' AND expires_at IS NOT NULL
                         AND expires_at <= ",
                        now_ms!(),
                        " ORDER BY expires_at LIMIT $1"
                    ))
                    .bind(i64::from(limit))
                    .fetch_all(&mut tx.db)
                    .await?;
                    let actor = Actor::system("expiry");
                    let mut ended = Vec::with_capacity(rows.len());
                    for row in &rows {
                        let lease = record::lease(&shared.keys, &shared.host, row)?;
                        let event = Event::Release {
                            reason: "expired".into(),
                        };
                        ended.push(
                            shared
                                .step_in(tx, &actor, lease, event, Claim::Free)
                                .await?,
                        );
                    }
                    Ok(Expiry::Done(ended))
                })
            })
            .await
    }

    /// Claims at most `limit` leases that nobody works on and that are due: acquiring after a crash,
    /// releasing, waiting for cleanup. Each is at a new epoch, which is the caller's.
    pub async fn claim_work(&self, limit: u32) -> Result<Vec<Lease>> {
        macro_rules! due {
            ($what:literal, $rest:literal) => {
                concat!(
                    "SELECT ",
                    $what,
                    " FROM leases
                     WHERE status IN ('acquiring', 'releasing', 'pending_cleanup')
                       AND (claimed_until IS NULL OR claimed_until <= ",
                    now_ms!(),
                    ")
                       AND (next_attempt_at IS NULL OR next_attempt_at <= ",
                    now_ms!(),
                    ") ",
                    $rest
                )
            };
        }
        let any: Option<i64> = sqlx::query_scalar(due!("1", "LIMIT 1"))
            .fetch_optional(self.store.read())
            .await?;
        if any.is_none() {
            return Ok(Vec::new());
        }
        let shared = self.clone();
        self.store
            .write(move |tx| {
                Box::pin(async move {
                    let rows = sqlx::query(due!(
                        "*",
                        "ORDER BY COALESCE(next_attempt_at, updated_at) LIMIT $1"
                    ))
                    .bind(i64::from(limit))
                    .fetch_all(&mut tx.db)
                    .await?;
                    let actor = Actor::system("reconciler");
                    let mut claimed = Vec::with_capacity(rows.len());
                    for row in &rows {
                        let lease = record::lease(&shared.keys, &shared.host, row)?;
                        let step = shared
                            .step_in(tx, &actor, lease, Event::Takeover, Claim::Take)
                            .await?;
                        claimed.push(step.lease);
                    }
                    Ok(claimed)
                })
            })
            .await
    }

    /// Keeps this replica's claim for another [`super::CLAIM`]. [`Error::Stale`]: it is lost, stop.
    pub async fn heartbeat(&self, lease: &str, epoch: u32) -> Result<()> {
        let id = lease.to_owned();
        self.store
            .write(move |tx| {
                Box::pin(async move {
                    let kept = sqlx::query(concat!(
                        "UPDATE leases SET claimed_until = ",
                        now_ms!(),
                        " + $4 WHERE id = $1 AND epoch = $2 AND claimed_by = $3
                          AND status IN ('acquiring', 'releasing', 'pending_cleanup')"
                    ))
                    .bind(&id)
                    .bind(i64::from(epoch))
                    .bind(&*tx.replica)
                    .bind(CLAIM_MS)
                    .execute(&mut tx.db)
                    .await?
                    .rows_affected();
                    if kept == 1 {
                        Ok(())
                    } else {
                        Err(Error::stale(
                            "lease",
                            format!("the claim on lease {id} at epoch {epoch} is over"),
                        ))
                    }
                })
            })
            .await
    }
}

impl Leases {
    /// Why nothing may start on a lease at `epoch`, given that it may not.
    pub(crate) fn why_unusable(&self, lease: &Lease, epoch: u32) -> Error {
        match self.fence(lease, epoch) {
            Err(superseded) if lease.status == Status::Active => superseded,
            _ => not_usable(lease),
        }
    }
}

fn not_usable(lease: &Lease) -> Error {
    if lease.status == Status::Active {
        Error::conflict(
            code::LEASE_EXPIRED,
            format!("lease {} has expired", lease.id),
        )
    } else {
        Error::conflict_with(
            code::LEASE_STATE,
            format!(
                "lease {} is {}, not active",
                lease.id,
                lease.status.as_str()
            ),
            json!({ "status": lease.status }),
        )
    }
}

fn not_renewed(lease: &Lease, expected: Option<i64>) -> Error {
    if lease.status == Status::Active && lease.expires_at != expected {
        return Error::stale(
            "expiry",
            format!(
                "lease {} has another end by now than the one that was given: it was renewed meanwhile, read it again",
                lease.id,
            ),
        );
    }
    not_usable(lease)
}

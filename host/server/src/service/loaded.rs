//! A component as calls use it: with what its revision was granted, and the breaker that hears what its calls come to.
//!
//! Invariant: what a call may do is never more than the grant, and below the instance's ceiling but for teardown, which is
//! never stopped.

use std::sync::{Arc, OnceLock};
use std::time::Instant;

use leasehold_authority::{Actor, Authority, Entry};
use leasehold_contract::{Ceiling, Grant, Purpose};
use leasehold_runtime::{Plugin, Watch};
use serde_json::json;
use tokio::sync::Notify;
use tokio_util::task::TaskTracker;

use super::breaker::{Breaker, Change, Health, Trial, Verdict};
use super::capability::Term;
use super::error::ServiceError;
use super::narrowing;

/// A component that can be called, with what its calls may do.
#[derive(Clone)]
pub(crate) struct Loaded {
    plugin: Plugin,
    /// What was granted.
    pub(crate) granted: Arc<Grant>,
    /// The same below the instance's ceiling.
    pub(crate) effective: Arc<Grant>,
    breaker: Arc<Breaker>,
    reports: Arc<Reports>,
    /// Why nobody can lease of it, looked at once: neither what it exports nor its grant changes under it.
    unleasable: Arc<OnceLock<Option<Taken>>>,
}

/// The term that takes everything, and why.
pub(crate) type Taken = (Term, Arc<str>);

/// Where a change of a breaker is written down.
struct Reports {
    authority: Authority,
    tasks: TaskTracker,
    changed: Arc<Notify>,
}

impl std::ops::Deref for Loaded {
    type Target = Plugin;

    fn deref(&self) -> &Plugin {
        &self.plugin
    }
}

impl std::fmt::Debug for Loaded {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.plugin.fmt(f)
    }
}

impl Loaded {
    pub(crate) fn new(
        plugin: Plugin,
        grant: &Grant,
        ceiling: &Ceiling,
        breaker: Arc<Breaker>,
        authority: Authority,
        tasks: TaskTracker,
        changed: Arc<Notify>,
    ) -> Loaded {
        Loaded {
            plugin,
            granted: Arc::new(grant.clone()),
            effective: Arc::new(grant.below(ceiling)),
            breaker,
            reports: Arc::new(Reports {
                authority,
                tasks,
                changed,
            }),
            unleasable: Arc::default(),
        }
    }

    pub(crate) fn breaker(&self) -> &Arc<Breaker> {
        &self.breaker
    }

    /// What a call for this purpose may do. Teardown has what was granted, also where the instance's ceiling came down
    /// since: it is never stopped.
    pub(crate) fn grant_for(&self, purpose: Purpose) -> Arc<Grant> {
        match purpose {
            Purpose::Cleanup | Purpose::Reconcile => Arc::clone(&self.granted),
            _ => Arc::clone(&self.effective),
        }
    }

    /// Whether a new lease may be made now; holds the trial where this one is to decide.
    pub(crate) fn admit(&self) -> Result<Option<Trial>, ServiceError> {
        self.breaker
            .admit(Instant::now())
            .map_err(|stopped| ServiceError::Tripped {
                key: self.manifest().key.clone(),
                reason: stopped.reason,
                retry_after: stopped.retry_after,
            })
    }

    /// Whether something new may be pointed at it: it does not fail again and again. One whose time to be left alone is
    /// over may be tried.
    pub(crate) fn works(&self) -> Result<(), ServiceError> {
        let health = self.health();
        match health.retry_after {
            Some(retry_after) if health.tripped && !retry_after.is_zero() => {
                Err(ServiceError::Tripped {
                    key: self.manifest().key.clone(),
                    reason: health.reason.unwrap_or_default(),
                    retry_after,
                })
            }
            _ => Ok(()),
        }
    }

    /// What of it, or of its grant, keeps everybody from leasing anything of it, if something does.
    pub(crate) fn unleasable(&self, ceiling: &Ceiling) -> Option<Taken> {
        self.unleasable
            .get_or_init(|| narrowing::unleasable(self, ceiling))
            .clone()
    }

    /// How it does.
    pub(crate) fn health(&self) -> Health {
        self.breaker.health(Instant::now())
    }

    /// Tells the breaker what a call came to. That teardown was answered says nothing: the lists after each failed
    /// acquire would outweigh the failures.
    pub(crate) fn watch(&self, purpose: Purpose, deadline_is_ours: bool, trial: bool) -> Watch {
        let loaded = self.clone();
        let teardown = matches!(purpose, Purpose::Cleanup | Purpose::Reconcile);
        Arc::new(move |outcome| {
            let verdict = match Verdict::of(outcome, deadline_is_ours) {
                Verdict::Answered if teardown => Verdict::Silent,
                verdict => verdict,
            };
            if let Some(change) = loaded.breaker.ended(Instant::now(), verdict, trial) {
                loaded.report(&change);
            }
        })
    }

    fn report(&self, change: &Change) {
        self.reports.changed.notify_one();
        let key = self.manifest().key.clone();
        let digest = self.digest_hex();
        let (action, details) = match change {
            Change::Tripped {
                reason,
                backoff,
                trips,
            } => {
                tracing::warn!(
                    provider = key,
                    digest,
                    reason,
                    trips,
                    seconds = backoff.as_secs(),
                    "plugin takes no new leases for now"
                );
                (
                    "plugin.tripped",
                    json!({ "digest": digest, "reason": reason, "trips": trips, "seconds": backoff.as_secs() }),
                )
            }
            Change::Recovered => {
                tracing::info!(provider = key, digest, "plugin takes new leases again");
                ("plugin.recovered", json!({ "digest": digest }))
            }
        };
        let authority = self.reports.authority.clone();
        self.reports.tasks.spawn(async move {
            let entry = Entry::new(action, None, "plugin", &key, details);
            let recorded = authority
                .activity()
                .record(&Actor::system("breaker"), entry)
                .await;
            if let Err(error) = recorded {
                tracing::warn!(provider = key, action, %error, "not recorded");
            }
        });
    }
}

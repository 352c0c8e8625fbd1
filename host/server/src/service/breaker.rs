//! The breaker of one revision: a component that crashes or hangs again and again takes no new leases for a while.
//!
//! It counts calls that trapped, ran into a limit or did not answer in time. Once there are enough of them in the window,
//! and no more calls that were answered between them, it trips; after its backoff one lease is let through as a trial,
//! whose acquire decides. Teardown and leases that exist never ask it. What it knows is in memory: a start of the server
//! begins anew. Its reason is the kind of failure alone, never what a component said for one company.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use leasehold_runtime::{Failure, Outcome, Phase as CallPhase};

use crate::settings::BreakerSettings;

/// What a call says about its component.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It answered, be it with an error of its own.
    Answered,
    /// It failed, and how.
    Failed(String),
    /// Nothing: it was not its doing.
    Silent,
}

impl Verdict {
    /// Of a call's end. Running out of time blames nobody where a client chose the time or used it up, or where the call
    /// went out: a machine that is dead must not cost everybody else its provider.
    pub(crate) fn of(outcome: Outcome<'_>, deadline_is_ours: bool) -> Verdict {
        match outcome.result {
            Ok(()) | Err(Failure::Provider(_)) => Verdict::Answered,
            Err(Failure::Trap { code, .. }) => Verdict::Failed(format!("it crashed ({code})")),
            Err(Failure::Limit { which, .. }) => {
                Verdict::Failed(format!("it ran into its limit ({which})"))
            }
            Err(Failure::Timeout { phase, .. })
                if deadline_is_ours && !outcome.went_out && *phase != CallPhase::Queue =>
            {
                Verdict::Failed(format!("it did not answer in time ({phase})"))
            }
            Err(_) => Verdict::Silent,
        }
    }
}

/// What the end of a call changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// New leases are stopped.
    Tripped {
        /// The last failure.
        reason: String,
        /// For how long.
        backoff: Duration,
        /// How many times in a row.
        trips: u32,
    },
    /// Its trial was answered: new leases are made again.
    Recovered,
}

/// How a revision does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Health {
    /// Whether new leases are stopped, a trial or not.
    pub tripped: bool,
    /// Whether a trial is under way or due.
    pub trial: bool,
    /// The last failure, where it is tripped.
    pub reason: Option<String>,
    /// How long until a trial is let through.
    pub retry_after: Option<Duration>,
    /// Failures that count now.
    pub failures: u32,
    /// How many times it tripped since the server started.
    pub trips_total: u64,
}

/// Why no lease is let through.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Stopped {
    pub(crate) reason: String,
    /// How long until it is worth asking again.
    pub(crate) retry_after: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Closed,
    Open { until: Instant },
    HalfOpen { taken: bool },
}

struct State {
    phase: Phase,
    /// When calls failed, newest last, and how many were answered since the failure before.
    failures: VecDeque<(Instant, u32)>,
    reason: String,
    /// In a row.
    trips: u32,
    trips_total: u64,
    /// Tells a trial of now from one of before a reset.
    trial: u64,
}

/// The breaker of one revision.
pub(crate) struct Breaker {
    settings: BreakerSettings,
    /// Calls that were answered since the last failure.
    answered: AtomicU32,
    state: Mutex<State>,
}

/// The one lease that is let through after the backoff. Dropped without a verdict, another may try.
pub(crate) struct Trial {
    breaker: Arc<Breaker>,
    number: u64,
}

impl Drop for Trial {
    fn drop(&mut self) {
        let mut state = self.breaker.lock();
        if state.trial == self.number && state.phase == (Phase::HalfOpen { taken: true }) {
            state.phase = Phase::HalfOpen { taken: false };
        }
    }
}

/// While a trial is under way, the next one is told to wait so long.
const TRIAL: Duration = Duration::from_secs(5);

impl Breaker {
    pub(crate) fn new(settings: BreakerSettings) -> Breaker {
        Breaker {
            settings,
            answered: AtomicU32::new(0),
            state: Mutex::new(State {
                phase: Phase::Closed,
                failures: VecDeque::new(),
                reason: String::new(),
                trips: 0,
                trips_total: 0,
                trial: 0,
            }),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a new lease may be made now; a trial where it is to decide.
    pub(crate) fn admit(self: &Arc<Breaker>, now: Instant) -> Result<Option<Trial>, Stopped> {
        let mut state = self.lock();
        let retry_after = match state.phase {
            Phase::Closed => return Ok(None),
            Phase::Open { until } if now < until => until - now,
            Phase::HalfOpen { taken: true } => TRIAL,
            Phase::Open { .. } | Phase::HalfOpen { taken: false } => {
                state.phase = Phase::HalfOpen { taken: true };
                state.trial += 1;
                return Ok(Some(Trial {
                    breaker: Arc::clone(self),
                    number: state.trial,
                }));
            }
        };
        Err(Stopped {
            reason: state.reason.clone(),
            retry_after,
        })
    }

    /// Takes note of a call's end; `trial` where it was the acquire of the trial.
    pub(crate) fn ended(&self, now: Instant, verdict: Verdict, trial: bool) -> Option<Change> {
        match verdict {
            Verdict::Silent => None,
            Verdict::Answered if !trial => {
                self.answered.fetch_add(1, Ordering::Relaxed);
                None
            }
            Verdict::Answered => {
                let mut state = self.lock();
                if !matches!(state.phase, Phase::HalfOpen { .. }) {
                    return None;
                }
                state.phase = Phase::Closed;
                state.failures.clear();
                state.trips = 0;
                Some(Change::Recovered)
            }
            Verdict::Failed(reason) => self.failed(now, reason, trial),
        }
    }

    fn failed(&self, now: Instant, reason: String, trial: bool) -> Option<Change> {
        let answered = self.answered.swap(0, Ordering::Relaxed);
        let mut state = self.lock();
        match state.phase {
            Phase::HalfOpen { .. } if trial => {}
            Phase::HalfOpen { .. } | Phase::Open { .. } => return None,
            Phase::Closed => {
                state.failures.push_back((now, answered));
                let enough = self.settings.failures as usize;
                while state.failures.len() > enough
                    || (state.failures.front())
                        .is_some_and(|(at, _)| now.duration_since(*at) > self.settings.window)
                {
                    state.failures.pop_front();
                }
                // Those that were answered before the first of them say nothing about the time since.
                let between: u64 = state
                    .failures
                    .iter()
                    .skip(1)
                    .map(|(_, answered)| u64::from(*answered))
                    .sum();
                if state.failures.len() < enough || between > enough as u64 {
                    return None;
                }
            }
        }
        let doubled = 1u32.checked_shl(state.trips).unwrap_or(u32::MAX);
        let backoff = self
            .settings
            .backoff
            .saturating_mul(doubled)
            .min(self.settings.longest);
        state.trips = state.trips.saturating_add(1);
        state.trips_total += 1;
        state.failures.clear();
        state.reason.clone_from(&reason);
        state.phase = Phase::Open {
            until: now + backoff,
        };
        Some(Change::Tripped {
            reason,
            backoff,
            trips: state.trips,
        })
    }

    /// A person says that it is well. Whether it was tripped.
    pub(crate) fn reset(&self) -> bool {
        let mut state = self.lock();
        let was = state.phase != Phase::Closed;
        state.phase = Phase::Closed;
        state.failures.clear();
        state.trips = 0;
        state.trial += 1;
        was
    }

    /// How it does.
    pub(crate) fn health(&self, now: Instant) -> Health {
        let state = self.lock();
        let tripped = state.phase != Phase::Closed;
        let retry_after = match state.phase {
            Phase::Open { until } => Some(until.saturating_duration_since(now)),
            Phase::Closed | Phase::HalfOpen { .. } => None,
        };
        let counting = state
            .failures
            .iter()
            .filter(|(at, _)| now.duration_since(*at) <= self.settings.window);
        Health {
            tripped,
            trial: tripped && retry_after.is_none_or(|left| left.is_zero()),
            reason: tripped.then(|| state.reason.clone()),
            retry_after,
            failures: u32::try_from(counting.count()).unwrap_or(u32::MAX),
            trips_total: state.trips_total,
        }
    }
}

#[cfg(test)]
#[path = "breaker_tests.rs"]
mod tests;

//! What calls came to, as counters that are read for metrics.
//!
//! Counters only: nothing is decided by them. All are relaxed atomics; a snapshot is not one instant.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use serde::Serialize;

use crate::failure::Failure;

/// Calls by what became of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Tally {
    /// Answered.
    pub ok: u64,
    /// The provider's own error.
    pub provider: u64,
    /// Broken off by the component.
    pub trap: u64,
    /// Out of time.
    pub timeout: u64,
    /// Ran into a limit.
    pub limit: u64,
    /// No slot for an instance.
    pub busy: u64,
    /// An answer or an argument against the contract.
    pub malformed: u64,
    /// The host's fault, or a component that does not fit.
    pub host: u64,
    /// Let go of by its caller.
    pub cancelled: u64,
}

/// A reading of the counters of one plugin, or of all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Stats {
    /// Calls that ended.
    pub calls: Tally,
    /// Calls that wait or run now.
    pub in_flight: u64,
    /// Calls that had to wait for their turn.
    pub queued: u64,
    /// How long they waited, all together.
    pub queue_time: Duration,
    /// CPU time that components used.
    pub cpu_time: Duration,
    /// The most memory that one call had, in bytes.
    pub memory_peak: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Counters {
    ok: AtomicU64,
    provider: AtomicU64,
    trap: AtomicU64,
    timeout: AtomicU64,
    limit: AtomicU64,
    busy: AtomicU64,
    malformed: AtomicU64,
    host: AtomicU64,
    cancelled: AtomicU64,
    in_flight: AtomicU64,
    queued: AtomicU64,
    queue_nanos: AtomicU64,
    cpu_nanos: AtomicU64,
    memory_peak: AtomicU64,
}

impl Counters {
    pub(crate) fn snapshot(&self) -> Stats {
        Stats {
            calls: Tally {
                ok: self.ok.load(Relaxed),
                provider: self.provider.load(Relaxed),
                trap: self.trap.load(Relaxed),
                timeout: self.timeout.load(Relaxed),
                limit: self.limit.load(Relaxed),
                busy: self.busy.load(Relaxed),
                malformed: self.malformed.load(Relaxed),
                host: self.host.load(Relaxed),
                cancelled: self.cancelled.load(Relaxed),
            },
            in_flight: self.in_flight.load(Relaxed),
            queued: self.queued.load(Relaxed),
            queue_time: Duration::from_nanos(self.queue_nanos.load(Relaxed)),
            cpu_time: Duration::from_nanos(self.cpu_nanos.load(Relaxed)),
            memory_peak: self.memory_peak.load(Relaxed),
        }
    }

    pub(crate) fn began(&self) {
        self.in_flight.fetch_add(1, Relaxed);
    }

    pub(crate) fn waited(&self, span: Duration) {
        self.queued.fetch_add(1, Relaxed);
        self.queue_nanos.fetch_add(nanos(span), Relaxed);
    }

    pub(crate) fn remember_memory(&self, peak: usize) {
        self.memory_peak.fetch_max(peak as u64, Relaxed);
    }

    /// `None`: the caller let go of it.
    pub(crate) fn ended(&self, outcome: Option<Result<(), &Failure>>, cpu: Duration) {
        self.in_flight.fetch_sub(1, Relaxed);
        self.cpu_nanos.fetch_add(nanos(cpu), Relaxed);
        let counter = match outcome {
            None => &self.cancelled,
            Some(Ok(())) => &self.ok,
            Some(Err(failure)) => match failure {
                Failure::Provider(_) => &self.provider,
                Failure::Trap { .. } => &self.trap,
                Failure::Timeout { .. } => &self.timeout,
                Failure::Limit { .. } => &self.limit,
                Failure::Busy(_) => &self.busy,
                Failure::Answer { .. } | Failure::Argument { .. } => &self.malformed,
                Failure::Incompatible(_) | Failure::Host(_) => &self.host,
            },
        };
        counter.fetch_add(1, Relaxed);
    }
}

fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

//! CPU time of one call, and fairness between calls that use much of it.
//!
//! The call's future is measured from outside: only the time inside a poll counts, so that a component
//! that waits in the host costs nothing. At every tick of the engine's clock that it meets, a running
//! component is asked here: over its budget it is interrupted, otherwise it yields and goes on when it
//! has a turn. Turns are one fewer than cores, so that components which never stop computing leave
//! a core to everything else; a call that ends between two ticks needs none.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use wasmtime::UpdateDeadline;

use crate::failure::Phase;
use crate::ticker::TICK;

/// The most that a poll which met no tick before costs, in nanoseconds. Who computes meets one within a tick; what
/// passed beyond that, the thread stood still on a machine that has more to do than cores.
const UNMET: u64 = 2 * TICK.as_nanos() as u64;

pub(crate) struct Meter {
    budget: u64,
    origin: Instant,
    /// Nanoseconds used by the polls that are over.
    used: AtomicU64,
    /// When the present poll began, on the clock that `busy` chooses.
    entered: AtomicU64,
    /// Has met a tick: from then on the thread's CPU clock is read at every poll. Before, the wall
    /// clock stands in for it, as far as [`UNMET`]: that clock is fifteen times cheaper.
    busy: AtomicBool,
    entered_busy: AtomicBool,
    exhausted: AtomicBool,
    phase: AtomicU8,
    turns: Arc<Semaphore>,
    turn: Mutex<Option<OwnedSemaphorePermit>>,
}

impl Meter {
    pub(crate) fn new(budget: Duration, turns: Arc<Semaphore>) -> Meter {
        Meter {
            budget: u64::try_from(budget.as_nanos()).unwrap_or(u64::MAX),
            origin: Instant::now(),
            used: AtomicU64::new(0),
            entered: AtomicU64::new(0),
            busy: AtomicBool::new(false),
            entered_busy: AtomicBool::new(false),
            exhausted: AtomicBool::new(false),
            phase: AtomicU8::new(Phase::Queue as u8),
            turns,
            turn: Mutex::new(None),
        }
    }

    pub(crate) fn enter(&self, phase: Phase) {
        self.phase.store(phase as u8, Relaxed);
    }

    pub(crate) fn phase(&self) -> Phase {
        match self.phase.load(Relaxed) {
            0 => Phase::Queue,
            1 => Phase::Instantiate,
            _ => Phase::Call,
        }
    }

    /// When the call began.
    pub(crate) fn origin(&self) -> Instant {
        self.origin
    }

    /// CPU time of all polls that are over.
    pub(crate) fn cpu(&self) -> Duration {
        Duration::from_nanos(self.used.load(Relaxed))
    }

    /// Whether it was interrupted for its budget.
    pub(crate) fn exhausted(&self) -> bool {
        self.exhausted.load(Relaxed)
    }

    /// Polls `future` to its end and counts.
    pub(crate) async fn measure<F: Future>(&self, future: F) -> F::Output {
        /// Lets the turn go however the call ends, also when its future is dropped.
        struct LetGo<'a>(&'a Meter);
        impl Drop for LetGo<'_> {
            fn drop(&mut self) {
                self.0.take_turn();
            }
        }
        let _let_go = LetGo(self);
        let mut future = pin!(future);
        poll_fn(|context| {
            self.poll_begins();
            let poll = future.as_mut().poll(context);
            self.poll_ends();
            if poll.is_pending() {
                self.take_turn();
            }
            poll
        })
        .await
    }

    /// What to do with a component that met a tick.
    pub(crate) fn tick(self: &Arc<Self>) -> UpdateDeadline {
        let spent = self.used.load(Relaxed).saturating_add(self.in_this_poll());
        if spent > self.budget {
            self.exhausted.store(true, Relaxed);
            return UpdateDeadline::Interrupt;
        }
        self.busy.store(true, Relaxed);
        self.take_turn();
        let meter = Arc::clone(self);
        UpdateDeadline::YieldCustom(
            1,
            Box::pin(async move {
                tokio::task::yield_now().await;
                let turn = Arc::clone(&meter.turns).acquire_owned().await.ok();
                *meter.turn.lock().unwrap_or_else(PoisonError::into_inner) = turn;
            }),
        )
    }

    fn take_turn(&self) {
        if self.busy.load(Relaxed) {
            self.turn
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .take();
        }
    }

    fn poll_begins(&self) {
        let busy = self.busy.load(Relaxed);
        self.entered_busy.store(busy, Relaxed);
        self.entered.store(self.clock(busy), Relaxed);
    }

    fn poll_ends(&self) {
        self.used.fetch_add(self.in_this_poll(), Relaxed);
    }

    fn in_this_poll(&self) -> u64 {
        let busy = self.entered_busy.load(Relaxed);
        let passed = self.clock(busy).saturating_sub(self.entered.load(Relaxed));
        if busy { passed } else { passed.min(UNMET) }
    }

    fn clock(&self, busy: bool) -> u64 {
        if busy {
            let now = clock_gettime(ClockId::ThreadCPUTime);
            let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
            let nanos = u64::try_from(now.tv_nsec).unwrap_or(0);
            seconds.saturating_mul(1_000_000_000).saturating_add(nanos)
        } else {
            u64::try_from(self.origin.elapsed().as_nanos()).unwrap_or(u64::MAX)
        }
    }
}

impl std::fmt::Debug for Meter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Meter")
            .field("cpu", &self.cpu())
            .field("phase", &self.phase())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_thread_that_stood_still_has_used_little() {
        let meter = Meter::new(Duration::from_millis(100), Arc::new(Semaphore::new(1)));
        // As where another process has the core.
        let stands_still = async { std::thread::sleep(Duration::from_millis(150)) };
        meter.measure(stands_still).await;
        assert_eq!(meter.cpu(), 2 * TICK);
    }
}

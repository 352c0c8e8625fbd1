//! One worker at a time on one lease in this process: an acquire that is still under way and the release that
//! overtook it must not act on the target at once.
//!
//! Between processes the authority's claim says whose turn it is; this only orders tasks of one process.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::OwnedMutexGuard;

/// The leases that somebody works on, or waits to.
#[derive(Default)]
pub(crate) struct Turns {
    of: Mutex<HashMap<String, Arc<tokio::sync::Mutex<()>>>>,
}

impl Turns {
    /// Waits until nobody else works on the lease; the turn ends when the answer is dropped.
    pub(crate) async fn take(&self, lease: &str) -> OwnedMutexGuard<()> {
        let turn = {
            let mut of = self.of.lock().unwrap_or_else(PoisonError::into_inner);
            of.retain(|id, turn| id == lease || Arc::strong_count(turn) > 1);
            of.entry(lease.to_owned()).or_default().clone()
        };
        turn.lock_owned().await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_second_worker_waits_for_the_first_and_other_leases_do_not() {
        let turns = Turns::default();
        let first = turns.take("lease_a").await;
        let _other = turns.take("lease_b").await;
        let mut second = std::pin::pin!(turns.take("lease_a"));
        assert!(futures_util::poll!(second.as_mut()).is_pending());
        drop(first);
        second.await;
    }
}

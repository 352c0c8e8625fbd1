//! One gate per lease and epoch: what is open through it ends when the lease leaves `active` or is taken over.
//!
//! A gate lives in memory only. After a restart no stream is open, so none is missing; a lease that is found active
//! gets a new one when it is first used. Invariant (P4): opening the gate of a newer epoch closes the older one.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use tokio_util::sync::CancellationToken;

/// The gates of all leases that were used since the start.
#[derive(Debug, Default)]
pub struct Gates {
    open: Mutex<HashMap<String, (u32, CancellationToken)>>,
}

impl Gates {
    /// The token that fires when this epoch of the lease ends. A superseded epoch gets one that has fired.
    pub fn token(&self, lease: &str, epoch: u32) -> CancellationToken {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((current, token)) = open.get(lease) {
            if *current == epoch {
                return token.clone();
            }
            if *current > epoch {
                let closed = CancellationToken::new();
                closed.cancel();
                return closed;
            }
            token.cancel();
        }
        let token = CancellationToken::new();
        open.insert(lease.to_owned(), (epoch, token.clone()));
        token
    }

    /// Ends everything that older epochs of the lease have open, and keeps them from opening more.
    pub fn supersede(&self, lease: &str, epoch: u32) {
        let _ = self.token(lease, epoch);
    }

    /// Forgets a lease that is over, after closing its gate.
    pub fn close(&self, lease: &str) {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, token)) = open.remove(lease) {
            token.cancel();
        }
    }

    /// Closes all: the server stops.
    pub fn close_all(&self) {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        for (_, (_, token)) in open.drain() {
            token.cancel();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_newer_epoch_closes_the_older_one_and_an_older_one_stays_closed() {
        let gates = Gates::default();
        let first = gates.token("lease_1", 1);
        assert!(!first.is_cancelled());
        let second = gates.token("lease_1", 2);
        assert!(first.is_cancelled());
        assert!(!second.is_cancelled());
        assert!(gates.token("lease_1", 1).is_cancelled());
        gates.close("lease_1");
        assert!(second.is_cancelled());
    }
}

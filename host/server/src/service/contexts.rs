//! The resolved contexts of active leases, in memory: a command need not resolve secrets and decrypt keys anew.
//!
//! A context is forgotten when its lease is being ended. What is here is never more than what the lease pinned.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

use super::context::Context;

/// Contexts by lease.
#[derive(Default)]
pub(crate) struct Contexts {
    of: RwLock<HashMap<String, Arc<Context>>>,
}

impl Contexts {
    pub(crate) fn get(&self, lease: &str) -> Option<Arc<Context>> {
        self.of
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .get(lease)
            .cloned()
    }

    pub(crate) fn put(&self, lease: &str, context: Arc<Context>) {
        self.of
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(lease.to_owned(), context);
    }

    pub(crate) fn forget(&self, lease: &str) {
        self.of
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(lease);
    }
}

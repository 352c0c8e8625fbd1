//! Leases: the host's record that someone may use one realised environment, for a time.
//!
//! [`machine`] is the life of a lease as a pure function; everything else here stores it. Rows are never
//! deleted. Every step is one transaction with its activity row, taken at an epoch; journal entries and the
//! mark that something unsafe was sent are durable before the call returns (P1).

mod apply;
mod begin;
mod claim;
mod clock;
mod journal;
mod label;
pub mod machine;
mod made;
mod query;
mod record;
mod run;
mod work;

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

pub use apply::{Handling, Transition};
pub use begin::{AcquireIntent, AskedBefore, Begun};
pub use claim::ResourceClaim;
pub use clock::{ClockGuard, Trust, usable};
pub use journal::{JournalEntry, Standing};
pub use label::{
    ACQUISITION as LABEL_ACQUISITION, HOST as LABEL_HOST, LEASE as LABEL_LEASE,
    OWNER as LABEL_OWNER, REQUEST as LABEL_REQUEST,
};
pub use made::{KeptPlace, KeptSecret, Made};
pub use query::{LeaseFilter, LeasePage};
pub(crate) use record::sign_again;
pub use record::{CallerRefs, Lease, PinnedVersion};
pub use run::RunEnd;
pub use work::Expiry;

use crate::error::{Error, Result};
use crate::keys::Keys;
use crate::store::Store;

/// How long a claim on a lease's work holds without a heartbeat.
pub const CLAIM: Duration = Duration::from_secs(60);
const CLAIM_MS: i64 = 60_000;
/// The longest time to live.
const MAX_TTL: Duration = Duration::from_secs(366 * 24 * 3600);

/// The leases.
#[derive(Clone)]
pub struct Leases {
    pub(crate) store: Arc<Store>,
    pub(crate) keys: Arc<Keys>,
    pub(crate) host: Arc<str>,
    pub(crate) incarnation: Arc<str>,
    pub(crate) guard: Arc<Mutex<ClockGuard>>,
    pub(crate) started: Instant,
}

/// A time to live in milliseconds, if it is one.
fn ttl_ms(ttl: Duration) -> Result<i64> {
    if ttl < Duration::from_secs(1) || ttl > MAX_TTL {
        return Err(Error::invalid(
            "/ttlSeconds",
            format!("must be 1 to {}", MAX_TTL.as_secs()),
        ));
    }
    Ok(i64::try_from(ttl.as_millis()).unwrap_or(i64::MAX))
}

//! The null provider: it leases nothing, quickly.
//!
//! It is the smallest whole provider, and what the host's own cost is measured with. It reaches nothing and
//! keeps nothing: the resource of a lease is its acquisition, and it exists as long as the host says so.

use leasehold_provider::*;
use serde::{Deserialize, Serialize};

struct Null;

/// Nothing can be configured.
#[derive(Deserialize)]
struct Config {}

/// Nothing has to be told again.
#[derive(Serialize, Deserialize)]
struct Handle {}

impl Provider for Null {
    type Config = Config;
    type Handle = Handle;

    fn describe() -> Manifest {
        manifest("null", env!("CARGO_PKG_VERSION"))
            .title("Null")
            .summary("Leases nothing, quickly: for trying Leasehold out and for measuring it.")
            .schema(json!({
                "type": "object",
                "additionalProperties": false,
                "properties": {}
            }))
            .limits(Limits {
                memory_mib: 16,
                cpu: 100,
                exchanges: 1,
                body_mib: 1,
            })
            .acquire_timeout(5_000)
            .build()
    }

    fn probe(_: Call<Config>) -> Result<Vec<Finding>> {
        Ok(vec![info("reach", "there is nothing to reach")])
    }

    fn acquire(c: Call<Config>, _ttl: Option<u32>) -> Result<Acquired<Handle>> {
        Ok(acquired(c.acquisition()?, Handle {}, "/"))
    }

    fn inspect(_: Call<Config>, _: Handle) -> Result<Observation> {
        Ok(observation(Condition::Ready))
    }

    fn release(_: Call<Config>, _: Handle) -> Result<()> {
        Ok(())
    }

    fn list(_: Call<Config>, _: Query) -> Result<Page<Handle>> {
        Ok(Page::from_iter([]))
    }
}

provider!(Null);

//! Answers `acquire` with a handle of 1 MiB.

use leasehold_provider::*;
use leasehold_sample_hostile::{Config, Handle, Misdeed};

struct HugeHandle;

impl Misdeed for HugeHandle {
    const NAME: &'static str = "huge-handle";
    const DOES: &'static str = "Answers acquire with a handle of 1 MiB.";

    fn handle(_: &Call<Config>) -> Handle {
        Handle {
            loot: "x".repeat(1 << 20),
        }
    }
}

leasehold_sample_hostile::hostile!(HugeHandle);

//! Waits for ever, without computing.

use leasehold_provider::*;
use leasehold_sample_hostile::{Config, Misdeed};

struct EndlessWait;

impl Misdeed for EndlessWait {
    const NAME: &'static str = "endless-wait";
    const DOES: &'static str = "Waits for ever, without computing.";

    fn spoil(_: &'static str, _: &Call<Config>) -> Result<()> {
        loop {
            // Does not listen to `cancelled`, either.
            let _ = host::sleep(u32::MAX);
        }
    }
}

leasehold_sample_hostile::hostile!(EndlessWait);

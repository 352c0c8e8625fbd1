//! Panics, saying where.

use leasehold_provider::*;
use leasehold_sample_hostile::{Config, Misdeed};

struct TrapEverywhere;

impl Misdeed for TrapEverywhere {
    const NAME: &'static str = "trap-everywhere";
    const DOES: &'static str = "Panics in the export that is named, saying where.";

    #[expect(clippy::panic, reason = "the misdeed")]
    fn spoil(export: &'static str, _: &Call<Config>) -> Result<()> {
        panic!("this provider panics in {export}");
    }
}

leasehold_sample_hostile::hostile!(TrapEverywhere);

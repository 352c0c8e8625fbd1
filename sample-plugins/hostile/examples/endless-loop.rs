//! Computes for ever.

use std::hint::black_box;

use leasehold_provider::*;
use leasehold_sample_hostile::{Config, Misdeed};

struct EndlessLoop;

impl Misdeed for EndlessLoop {
    const NAME: &'static str = "endless-loop";
    const DOES: &'static str = "Computes for ever.";

    fn spoil(_: &'static str, _: &Call<Config>) -> Result<()> {
        let mut n = 0u64;
        loop {
            n = black_box(n.wrapping_add(1));
        }
    }
}

leasehold_sample_hostile::hostile!(EndlessLoop);

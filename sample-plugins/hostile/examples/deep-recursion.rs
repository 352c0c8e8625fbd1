//! Calls itself until the stack is full.

use std::hint::black_box;

use leasehold_provider::*;
use leasehold_sample_hostile::{Config, Misdeed};

struct DeepRecursion;

/// Its frames use next to none of the memory that the component manages itself, so that it is the engine's stack
/// that fills.
#[inline(never)]
fn deeper(depth: u64) -> u64 {
    match depth {
        u64::MAX => 0,
        depth => deeper(depth + 1).rotate_left(7) ^ depth,
    }
}

impl Misdeed for DeepRecursion {
    const NAME: &'static str = "deep-recursion";
    const DOES: &'static str = "Calls itself until the stack is full.";

    fn spoil(_: &'static str, _: &Call<Config>) -> Result<()> {
        black_box(deeper(black_box(0)));
        Ok(())
    }
}

leasehold_sample_hostile::hostile!(DeepRecursion);

//! Takes memory until there is no more.

use std::hint::black_box;

use leasehold_provider::*;
use leasehold_sample_hostile::{Config, Misdeed};

struct MemoryOne;

impl Misdeed for MemoryOne {
    const NAME: &'static str = "memory-one";
    const DOES: &'static str = "Takes memory until there is no more.";

    fn spoil(_: &'static str, _: &Call<Config>) -> Result<()> {
        let mut taken = Vec::new();
        loop {
            taken.push(black_box(vec![1u8; 1 << 20]));
        }
    }
}

leasehold_sample_hostile::hostile!(MemoryOne);

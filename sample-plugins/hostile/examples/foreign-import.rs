//! Imports what is not the host's to give.

use leasehold_provider::*;
use leasehold_sample_hostile::{Config, Misdeed};

/// An interface of somebody else's.
mod foreign {
    wit_bindgen::generate!({
        inline: "
            package acme:drill@1.0.0;
            interface bit { turn: func(times: u32) -> u32; }
            world foreign { import bit; }
        ",
    });
}

struct ForeignImport;

impl Misdeed for ForeignImport {
    const NAME: &'static str = "foreign-import";
    const DOES: &'static str = "Imports what is not the host's to give.";

    fn spoil(_: &'static str, _: &Call<Config>) -> Result<()> {
        let turned = foreign::acme::drill::bit::turn(3);
        Err(Error::internal(format!("turned {turned} times")))
    }
}

leasehold_sample_hostile::hostile!(ForeignImport);

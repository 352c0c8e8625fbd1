//! Acts on its target and then panics, so that the host must find out what it left; panics there too.

use leasehold_provider::*;
use leasehold_sample_hostile::{Config, Misdeed, act};

struct TrapBehind;

impl Misdeed for TrapBehind {
    const NAME: &'static str = "trap-behind";
    const DOES: &'static str = "Acts on its target and then panics.";
    const SSH: bool = true;

    #[expect(clippy::panic, reason = "the misdeed")]
    fn spoil(export: &'static str, _: &Call<Config>) -> Result<()> {
        if export == "acquire" {
            act("/target")?;
        }
        panic!("this provider panics in {export}");
    }
}

leasehold_sample_hostile::hostile!(TrapBehind);

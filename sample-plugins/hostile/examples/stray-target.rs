//! Opens an SSH target that nobody configured.

use leasehold_provider::*;
use leasehold_sample_hostile::{Config, Misdeed};

struct StrayTarget;

impl Misdeed for StrayTarget {
    const NAME: &'static str = "stray-target";
    const DOES: &'static str = "Opens an SSH target that nobody configured.";
    const SSH: bool = true;

    fn spoil(_: &'static str, call: &Call<Config>) -> Result<()> {
        let target = match call.rest.get("stray") {
            Some(Value::String(pointer)) => pointer.clone(),
            _ => "/elsewhere".to_owned(),
        };
        ssh::open(&target)?;
        Err(Error::internal(format!("{target} was opened")))
    }
}

leasehold_sample_hostile::hostile!(StrayTarget);

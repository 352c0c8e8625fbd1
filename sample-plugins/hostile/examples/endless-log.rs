//! Logs for ever: to the host's log and to standard error.

use leasehold_provider::*;
use leasehold_sample_hostile::{Config, Misdeed};

struct EndlessLog;

impl Misdeed for EndlessLog {
    const NAME: &'static str = "endless-log";
    const DOES: &'static str = "Logs for ever.";

    fn spoil(_: &'static str, _: &Call<Config>) -> Result<()> {
        let line = "noise ".repeat(170);
        loop {
            host::log(host::Level::Error, &line, &[("more", &line)]);
            eprintln!("{line}");
        }
    }
}

leasehold_sample_hostile::hostile!(EndlessLog);

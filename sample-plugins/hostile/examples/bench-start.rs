//! Well behaved: starts a command through two resources of the host's, for measuring what a call costs.

use leasehold_provider::*;
use leasehold_sample_hostile::{Config, Misdeed};

struct BenchStart;

impl Misdeed for BenchStart {
    const NAME: &'static str = "bench-start";
    const DOES: &'static str = "Starts a command over SSH and does nothing else.";
    const SSH: bool = true;

    fn start(_: &Call<Config>, command: Command) -> Result<Process> {
        ssh::open("/target")?.start("/", "exec \"$@\"", &command.argv, &command.env, None)
    }
}

leasehold_sample_hostile::hostile!(BenchStart);

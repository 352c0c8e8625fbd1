//! Says strings of 32 MiB wherever it can say one: to the host while it works, and as its answer.

use leasehold_provider::*;
use leasehold_sample_hostile::{Config, Misdeed};

struct HugeStrings;

fn huge() -> String {
    "x".repeat(32 << 20)
}

impl Misdeed for HugeStrings {
    const NAME: &'static str = "huge-strings";
    const DOES: &'static str = "Says strings of 32 MiB wherever it can say one.";

    fn spoil(export: &'static str, _: &Call<Config>) -> Result<()> {
        // In `keep-alive` and `inspect` only the answer is huge; elsewhere what it tells the host is, too.
        match export {
            "keep-alive" | "inspect" => {}
            "release" => host::progress("reach", &huge()),
            "list" => host::journal_environment(&huge())?,
            _ => host::log(host::Level::Info, &huge(), &[]),
        }
        Err(Error::internal(huge()))
    }
}

leasehold_sample_hostile::hostile!(HugeStrings);

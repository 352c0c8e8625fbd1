//! Says lists of a million items: as log fields, as findings, as violations.

use leasehold_provider::*;
use leasehold_sample_hostile::{Config, Misdeed};

struct HugeLists;

const MANY: usize = 1 << 20;

impl Misdeed for HugeLists {
    const NAME: &'static str = "huge-lists";
    const DOES: &'static str = "Says lists of a million items.";

    fn spoil(export: &'static str, _: &Call<Config>) -> Result<()> {
        match export {
            // `findings` below is the misdeed.
            "probe" => Ok(()),
            "acquire" => Err(Error::invalid_config(vec![violation("/a", "b"); MANY])),
            _ => {
                host::log(host::Level::Info, "many", &vec![("key", "value"); MANY]);
                Ok(())
            }
        }
    }

    fn findings(_: &Call<Config>) -> Vec<Finding> {
        vec![info("reach", "again"); MANY]
    }
}

leasehold_sample_hostile::hostile!(HugeLists);

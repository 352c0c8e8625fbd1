//! Panics in `describe`: nothing is known of it but that.

use leasehold_sample_hostile::Misdeed;

struct TrapDescribe;

impl Misdeed for TrapDescribe {
    const NAME: &'static str = "trap-describe";
    const DOES: &'static str = "Panics in describe.";

    #[expect(clippy::panic, reason = "the misdeed")]
    fn describing() {
        panic!("this provider panics in describe");
    }
}

leasehold_sample_hostile::hostile!(TrapDescribe);

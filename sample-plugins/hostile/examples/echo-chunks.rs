//! Asks a server that gives back what it got to say the token in pieces: chunks of three bytes, and lines.

use leasehold_provider::*;
use leasehold_sample_hostile::thief::{ALL, Booty, Config, Theft, api, lines};

struct EchoChunks;

impl Theft for EchoChunks {
    const NAME: &'static str = "echo-chunks";
    const DOES: &'static str =
        "Asks a server that gives back what it got to say the token in pieces.";

    fn steal(_: &str, booty: &mut Booty, call: &Call<Config>, _: &str) {
        for way in ["chunks", "lines"] {
            let echo = || api(call, "GET", &format!("/echo/{way}"));
            booty.send(&format!("{way} by send"), echo());
            let read = echo().lines(&ALL).and_then(|l| lines(&l));
            booty.note(&format!("{way} by open"), read);
        }
    }
}

leasehold_sample_hostile::theft!(EchoChunks);

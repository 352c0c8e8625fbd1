//! Asks a server that gives back what it got to say the token in a trailer, behind the body.

use leasehold_provider::*;
use leasehold_sample_hostile::thief::{ALL, Booty, Config, Theft, api, lines};

struct EchoTrailer;

impl Theft for EchoTrailer {
    const NAME: &'static str = "echo-trailer";
    const DOES: &'static str =
        "Asks a server that gives back what it got to say the token in a trailer.";

    fn steal(_: &str, booty: &mut Booty, call: &Call<Config>, _: &str) {
        let echo = || api(call, "GET", "/echo/trailer");
        booty.send("trailer by send", echo());
        booty.send(
            "trailer that is asked for",
            echo().header("x-want", "trailers"),
        );
        let read = echo().lines(&ALL).and_then(|l| lines(&l));
        booty.note("trailer by open", read);
        booty.send("te", echo().header("te", "trailers"));
    }
}

leasehold_sample_hostile::theft!(EchoTrailer);

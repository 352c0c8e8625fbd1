//! Asks a server that gives back what it got to say the token where errors are told: in a status line, headers, the page of
//! an error, what is said instead of switching protocols, and what is no HTTP at all.

use leasehold_provider::*;
use leasehold_sample_hostile::thief::{ALL, Booty, Config, Theft, api, lines};

struct EchoError;

/// Each a way in which the server writes its answer.
const WAYS: [&str; 11] = [
    "status", "header", "name", "error", "refused", "coding", "garbage", "version", "length",
    "short", "chunk",
];

impl Theft for EchoError {
    const NAME: &'static str = "echo-error";
    const DOES: &'static str =
        "Asks a server that gives back what it got to say the token where errors are told.";

    fn asks(manifest: ManifestBuilder) -> ManifestBuilder {
        manifest.operation("/endpoint", "GET", "/rooms/{resource}/echo/*", act())
    }

    fn steal(export: &str, booty: &mut Booty, call: &Call<Config>, room: &str) {
        for way in WAYS {
            let echo = || api(call, "GET", &format!("/echo/{way}"));
            booty.send(&format!("{way} by send"), echo());
            // As the kit turns a status that was not expected into an error.
            booty.note(
                &format!("{way} as error"),
                echo().send(&[299]).map(|_| String::new()),
            );
            let read = echo().lines(&ALL).and_then(|l| lines(&l));
            booty.note(&format!("{way} by open"), read);
            if export != "inspect" {
                let echo = || api(call, "GET", &format!("/rooms/{room}/echo/{way}"));
                let came = echo().upgrade("tcp").map(|_| "switched".to_owned());
                booty.note(&format!("{way} by upgrade"), came);
                let came = echo().websocket(&["one"]).map(|_| "switched".to_owned());
                booty.note(&format!("{way} by websocket"), came);
            }
        }
    }
}

leasehold_sample_hostile::theft!(EchoError);

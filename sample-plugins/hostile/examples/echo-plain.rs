//! Asks a server that gives back what it got to say the token, and reads the answer in every way that there is.

use leasehold_provider::*;
use leasehold_sample_hostile::thief::{ALL, Booty, Config, Theft, api, lines, said};

struct EchoPlain;

impl Theft for EchoPlain {
    const NAME: &'static str = "echo-plain";
    const DOES: &'static str = "Asks a server that gives back what it got to say the token.";

    fn asks(manifest: ManifestBuilder) -> ManifestBuilder {
        manifest.operation("/endpoint", "PUT", "/rooms/{resource}/file", act())
    }

    fn steal(export: &str, booty: &mut Booty, call: &Call<Config>, room: &str) {
        let echo = || api(call, "GET", "/echo/plain");
        booty.send("send", echo());
        booty.note("open", echo().lines(&ALL).and_then(|l| lines(&l)));
        match echo().download(&ALL) {
            Err(error) => booty.note("download", Err(error)),
            // What is not seen may be sent on, to where it can be seen.
            Ok(bytes) if export != "inspect" => {
                let put = api(call, "PUT", &format!("/rooms/{room}/file"));
                let sent = put.upload(vec![Piece::Bytes(bytes)], &ALL);
                booty.note("upload", sent.map(|answer| said(&answer)));
            }
            Ok(_) => booty.note("download", Ok("bytes".to_owned())),
        }
    }
}

leasehold_sample_hostile::theft!(EchoPlain);

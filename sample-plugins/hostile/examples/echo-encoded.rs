//! Asks a server that gives back what it got to say the token in another encoding.

use leasehold_provider::*;
use leasehold_sample_hostile::thief::{ALL, Booty, Config, Theft, api, lines};

struct EchoEncoded;

impl Theft for EchoEncoded {
    const NAME: &'static str = "echo-encoded";
    const DOES: &'static str =
        "Asks a server that gives back what it got to say the token in another encoding.";

    fn fields() -> Value {
        json!({ "ways": { "type": "array", "items": { "type": "string" } } })
    }

    fn steal(_: &str, booty: &mut Booty, call: &Call<Config>, _: &str) {
        let ways = call.rest.get("ways").and_then(Value::as_array);
        for way in ways.into_iter().flatten().filter_map(Value::as_str) {
            let echo = || api(call, "GET", &format!("/echo/{way}"));
            booty.send(&format!("{way} by send"), echo());
            let read = echo().lines(&ALL).and_then(|l| lines(&l));
            booty.note(&format!("{way} by open"), read);
        }
    }
}

leasehold_sample_hostile::theft!(EchoEncoded);

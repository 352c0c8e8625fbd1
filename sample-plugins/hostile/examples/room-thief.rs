//! Wants one room of somebody else's, which it is told of, and which it says is its own: before it has one, beside its own, and in
//! place of its own when that is to be removed. Nobody can look for himself whose a room is: it names no checks.

use leasehold_provider::*;
use leasehold_sample_hostile::thief::{Booty, Config, Theft, api, run};

struct RoomThief;

/// All that it would do with that room; its own token stands where that has no business.
fn take(export: &str, booty: &mut Booty, call: &Call<Config>) {
    let theirs = format!("/rooms/{}", call.told("room"));
    // The host is told first that it is its own, which it believes of nobody.
    if let Err(error) = host::journal_environment(call.told("room")) {
        booty.note("journal", Err(error));
    }
    booty.send("room", api(call, "DELETE", &theirs));
    let body = json!({ "id": "run", "argv": ["true"] });
    booty.send(
        "command",
        api(call, "POST", &format!("{theirs}/runs")).json(body),
    );
    if export != "inspect" {
        let stream = api(call, "GET", &format!("{theirs}/runs/run/stream"));
        let came = stream.upgrade("room-stream").map(|_| "switched".to_owned());
        booty.note("stream", came);
    }
    let token = call.token.as_str();
    booty.send("url", api(call, "GET", &format!("/rooms/{token}")));
    booty.send(
        "header",
        api(call, "GET", "/rooms").header("x-token", token),
    );
    booty.send("origin", ask("GET", "http://127.0.0.1:9/"));
}

impl Theft for RoomThief {
    const NAME: &'static str = "room-thief";
    const DOES: &'static str = "Wants one room of somebody else's.";
    const CHECKED: bool = false;

    fn fields() -> Value {
        json!({ "room": { "type": "string" }, "how": { "type": "string" } })
    }

    fn before(booty: &mut Booty, call: &Call<Config>) -> Result<()> {
        take("before", booty, call);
        for (name, body) in [
            (
                "body",
                json!({ "name": call.token, "labels": call.labels() }),
            ),
            // A room that nobody could find again.
            ("label", json!({ "name": "x", "labels": {} })),
        ] {
            booty.send(name, api(call, "POST", "/rooms").json(body));
        }
        if call.told("how") == "at once" {
            let theirs = format!("/rooms/{}", call.told("room"));
            api(call, "DELETE", &theirs).send(&[204])?;
        }
        Ok(())
    }

    fn steal(export: &str, booty: &mut Booty, call: &Call<Config>, _: &str) {
        take(export, booty, call);
    }

    fn start(_: &mut Booty, call: &Call<Config>, room: &str, command: &Command) -> Result<Process> {
        let env: Value = command.env.iter().cloned().collect();
        let body = json!({ "id": command.id, "argv": command.argv, "env": env });
        run(call, room, command, body)
    }

    fn release(call: &Call<Config>, own: &str) -> Result<()> {
        let room = match call.told("how") {
            "in place of its own" => call.told("room"),
            _ => own,
        };
        api(call, "DELETE", &format!("/rooms/{room}"))
            .send(&[204, 404])
            .map(drop)
    }
}

leasehold_sample_hostile::theft!(RoomThief);

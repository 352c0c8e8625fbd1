//! Has the backend make a key for its room, keeps it for later calls, uses it as it may, and wants to read it.

use leasehold_provider::*;
use leasehold_sample_hostile::thief::{Booty, Config, Theft, api};

struct MintKeeper;

impl Theft for MintKeeper {
    const NAME: &'static str = "mint-keeper";
    const DOES: &'static str = "Has the backend make a key for its room, and wants to read it.";

    fn asks(manifest: ManifestBuilder) -> ManifestBuilder {
        manifest
            .operation("/endpoint", "POST", "/rooms/{resource}/sessions", act())
            .operation("/endpoint", "PATCH", "/rooms/{resource}", act())
            .mint(Mint {
                endpoint: "/endpoint".to_owned(),
                method: "POST".to_owned(),
                path: "/rooms/{resource}/sessions".to_owned(),
                pointers: vec!["/session".to_owned()],
                sites: vec![header("x-session", "{}")],
                to: vec!["/endpoint".to_owned()],
            })
    }

    fn steal(export: &str, booty: &mut Booty, call: &Call<Config>, room: &str) {
        if export == "acquire" {
            let make = api(call, "POST", &format!("/rooms/{room}/sessions"));
            let made = make.keep("/session", "session").send(&[201]);
            match made.and_then(|answer| Ok((answer.text(), answer.json::<Value>()?))) {
                Err(error) => booty.note("mint", Err(error)),
                Ok((text, made)) => {
                    booty.note("mint", Ok(text));
                    tries(
                        booty,
                        call,
                        room,
                        made["session"].as_str().unwrap_or_default(),
                    );
                }
            }
        }
        match call.kept("session") {
            Some(kept) => {
                booty.note("kept", Ok(kept.to_owned()));
                tries(booty, call, room, kept);
            }
            None => booty.note("kept", Ok("nothing".to_owned())),
        }
    }
}

fn tries(booty: &mut Booty, call: &Call<Config>, room: &str, session: &str) {
    let who = || ask("GET", format!("{}/session", call.endpoint));
    booty.send("session in its site", who().header("x-session", session));
    booty.send("session as the token", who().bearer(Some(session)));
    booty.send(
        "session in another header",
        who().header("x-other", session),
    );
    booty.send("session in a URL", who().query("session", session));
    let body = json!({ "labels": { "session": session } });
    booty.send(
        "session in a label",
        api(call, "PATCH", &format!("/rooms/{room}")).json(body),
    );
}

leasehold_sample_hostile::theft!(MintKeeper);

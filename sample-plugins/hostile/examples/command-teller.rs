//! Puts the token where a command of the room would print it: its arguments, its variables, its input, its directory, its
//! name. Then it runs the command that was asked for, with the variables that it was given.

use std::collections::BTreeMap;

use leasehold_provider::*;
use leasehold_sample_hostile::thief::{Booty, Config, Theft, api, run};

struct CommandTeller;

impl Theft for CommandTeller {
    const NAME: &'static str = "command-teller";
    const DOES: &'static str = "Puts the token where a command of the room would print it.";

    fn steal(_: &str, _: &mut Booty, _: &Call<Config>, _: &str) {}

    fn start(
        booty: &mut Booty,
        call: &Call<Config>,
        room: &str,
        command: &Command,
    ) -> Result<Process> {
        let token = call.token.as_str();
        let shouted = token.to_ascii_uppercase();
        let runs = format!("/rooms/{room}/runs");
        let id = command.id.as_str();
        for (name, body) in [
            ("argument", json!({ "id": id, "argv": ["echo", token] })),
            (
                "script",
                json!({ "id": id, "argv": ["sh", "-c", format!("echo {token}")] }),
            ),
            ("variable", json!({ "id": id, "env": { "STOLEN": token } })),
            (
                "variable's name",
                json!({ "id": id, "env": { token: "x" } }),
            ),
            (
                "variables as list",
                json!({ "id": id, "env": [format!("STOLEN={token}")] }),
            ),
            ("input", json!({ "id": id, "stdin": format!("{token}\n") })),
            ("directory", json!({ "id": id, "cwd": format!("/{token}") })),
            ("name", json!({ "id": token })),
            ("upper", json!({ "id": id, "argv": ["echo", shouted] })),
        ] {
            booty.send(name, api(call, "POST", &runs).json(body));
        }
        // What stands for a payload is for this room's own commands, and for no header or URL.
        let env: BTreeMap<&str, &str> = command
            .env
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()))
            .collect();
        let payload = env.get("PAYLOAD").copied().unwrap_or_default();
        booty.send(
            "payload in a header",
            api(call, "GET", "/rooms").header("x-payload", payload),
        );
        booty.send(
            "payload in a URL",
            api(call, "GET", &format!("/rooms/{payload}")),
        );
        let bare = ask("GET", format!("{}/rooms", call.endpoint));
        booty.send(
            "payload as the token",
            bare.header("authorization", format!("Bearer {payload}")),
        );
        let body = json!({ "id": id, "argv": command.argv, "env": env, "cwd": command.cwd });
        run(call, room, command, body)
    }
}

leasehold_sample_hostile::theft!(CommandTeller);

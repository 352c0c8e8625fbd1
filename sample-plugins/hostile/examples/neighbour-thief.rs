//! Wants the rooms of others: it finds their ids in the list, says that they are its own, and names them in every way that a
//! server might read as theirs.

use leasehold_provider::*;
use leasehold_sample_hostile::thief::{Booty, Config, Theft, api};
use serde::Deserialize;

struct NeighbourThief;

#[derive(Deserialize)]
struct Rooms {
    rooms: Vec<Room>,
}

#[derive(Deserialize)]
struct Room {
    id: String,
}

impl Theft for NeighbourThief {
    const NAME: &'static str = "neighbour-thief";
    const DOES: &'static str = "Wants the rooms of others.";

    fn asks(manifest: ManifestBuilder) -> ManifestBuilder {
        manifest.operation("/endpoint", "DELETE", "/rooms/{child}", act())
    }

    fn steal(export: &str, booty: &mut Booty, call: &Call<Config>, own: &str) {
        let read = api(call, "GET", "/rooms").send(&[200]);
        let all = match read.and_then(|answer| answer.json::<Rooms>()) {
            Ok(all) => all.rooms,
            Err(error) => return booty.note("list", Err(error)),
        };
        for Room { id } in all.into_iter().filter(|room| room.id != own) {
            if let Err(error) = host::journal_environment(&id) {
                booty.note("journal", Err(error));
            }
            let upper = id.to_ascii_uppercase();
            let first: String = id.bytes().take(1).map(|b| format!("%{b:02x}")).collect();
            for (name, path) in [
                ("room", format!("/rooms/{id}")),
                ("slash behind", format!("/rooms/{id}/")),
                ("query", format!("/rooms/{id}?x=1")),
                ("dots", format!("/rooms/{own}/../{id}")),
                ("encoded dots", format!("/rooms/{own}/%2e%2e/{id}")),
                ("encoded slash", format!("/rooms/{own}%2f..%2f{id}")),
                ("twice encoded", format!("/rooms/{own}%252f..%252f{id}")),
                ("empty segment", format!("/rooms//{id}")),
                ("empty segments", format!("//rooms/{id}")),
                ("parameter", format!("/rooms/{own};/../{id}")),
                ("backslash", format!("/rooms/{own}\\..\\{id}")),
                ("null", format!("/rooms/{id}%00{own}")),
                ("case", format!("/Rooms/{id}")),
                ("upper", format!("/rooms/{upper}")),
                ("first letter", format!("/rooms/{first}{}", &id[1..])),
                ("fragment", format!("/rooms/{id}#{own}")),
            ] {
                booty.send(name, api(call, "DELETE", &path));
            }
            let as_get = || api(call, "GET", &format!("/rooms/{id}"));
            booty.send(
                "override",
                as_get().header("x-http-method-override", "DELETE"),
            );
            booty.send("override in the query", as_get().query("_method", "DELETE"));
            let runs = format!("/rooms/{id}/runs");
            let body = json!({ "id": "run", "argv": ["true"] });
            booty.send("command", api(call, "POST", &runs).json(&body));
            if export != "inspect" {
                let stream = api(call, "GET", &format!("{runs}/run/stream"));
                let came = stream.upgrade("room-stream").map(|_| "switched".to_owned());
                booty.note("stream", came);
            }
            // A server that takes the name that it is told answers it: that would be a child.
            let body = json!({ "id": id, "argv": ["true"] });
            booty.send(
                "child",
                api(call, "POST", &format!("/rooms/{own}/runs")).json(body),
            );
            booty.send(
                "room as a child",
                api(call, "DELETE", &format!("/rooms/{id}")),
            );
        }
    }
}

leasehold_sample_hostile::theft!(NeighbourThief);

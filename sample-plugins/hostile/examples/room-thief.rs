//! Wants what is not its own over HTTP: somebody else's room, and its token where it does not belong. `how` says what.

use leasehold_provider::*;
use serde::{Deserialize, Serialize};

struct RoomThief;

#[derive(Deserialize)]
struct Config {
    endpoint: String,
    token: String,
    /// The room that is not its own.
    room: String,
    how: String,
}

#[derive(Serialize, Deserialize)]
struct Handle {}

#[derive(Deserialize)]
struct Room {
    id: String,
}

impl Provider for RoomThief {
    type Config = Config;
    type Handle = Handle;

    fn describe() -> Manifest {
        manifest("hostile-room-thief", env!("CARGO_PKG_VERSION"))
            .schema(json!({
                "type": "object",
                "required": ["endpoint", "token", "room", "how"],
                "properties": {
                    "endpoint": { "type": "string", "format": "endpoint" },
                    "token": { "type": "string", "format": "secret" },
                    "room": { "type": "string" },
                    "how": { "type": "string" }
                }
            }))
            .credential(
                "/token",
                [header("authorization", "Bearer {}")],
                ["/endpoint"],
            )
            .operation(
                "/endpoint",
                "POST",
                "/rooms",
                create("/id", Some("/labels")),
            )
            .operation("/endpoint", "DELETE", "/rooms/{resource}", act())
            .build()
    }

    fn probe(_: Call<Config>) -> Result<Vec<Finding>> {
        Ok(vec![info("reach", "nothing is reached")])
    }

    fn acquire(c: Call<Config>, _ttl: Option<u32>) -> Result<Acquired<Handle>> {
        let rooms = format!("{}/rooms", c.endpoint);
        let theirs = format!("{rooms}/{}", c.room);
        let token = Some(c.token.as_str());
        // The host is told first that it is its own, which it believes of nobody.
        host::journal_environment(&c.room)?;
        if c.how == "release" {
            let body = json!({ "name": c.acquisition()?, "labels": c.labels() });
            let own = ask("POST", rooms).bearer(token).json(body).send(&[201])?;
            return Ok(acquired(own.json::<Room>()?.id, Handle {}, "/"));
        }
        let request = match c.how.as_str() {
            "room" => ask("DELETE", theirs).bearer(token),
            "body" => ask("POST", rooms)
                .bearer(token)
                .json(json!({ "name": c.token, "labels": c.labels() })),
            "url" => ask("GET", format!("{rooms}/{}", c.token)).bearer(token),
            "header" => ask("GET", rooms).header("x-token", &c.token),
            "label" => ask("POST", rooms)
                .bearer(token)
                .json(json!({ "name": "x", "labels": {} })),
            _ => ask("GET", "http://127.0.0.1:9/").bearer(token),
        };
        request.send(&[200, 201, 204]).map(drop)?;
        Ok(acquired(c.room.clone(), Handle {}, "/"))
    }

    fn inspect(_: Call<Config>, _: Handle) -> Result<Observation> {
        Ok(observation(Condition::Ready))
    }

    fn release(c: Call<Config>, _: Handle) -> Result<()> {
        let theirs = ask("DELETE", format!("{}/rooms/{}", c.endpoint, c.room));
        theirs.bearer(Some(c.token.as_str())).send(&[204]).map(drop)
    }

    fn list(_: Call<Config>, _: Query) -> Result<Page<Handle>> {
        Ok(Page::from_iter([]))
    }
}

provider!(RoomThief);

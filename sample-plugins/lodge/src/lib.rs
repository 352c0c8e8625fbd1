//! The lodge provider: it leases rooms as the cabin does, of the same HTTP API, and does in them what the cabin does not.
//!
//! A command has an input and signals, and runs over a WebSocket in the channels of Kubernetes, which tell its end. Files
//! go in and out as archives that the host moves: this component holds none of their bytes.

use std::collections::BTreeMap;

use leasehold_provider::*;
use serde::{Deserialize, Serialize};

/// Where the API is in the configuration.
const API: &str = "/endpoint";
/// Where its token is.
const TOKEN: &str = "/token";
/// The protocol whose channels can be closed, and so a command's input ended.
const CHANNELS: &str = "v5.channel.k8s.io";

struct Lodge;

#[derive(Deserialize)]
struct Config {
    /// The URL, to be used as it is.
    endpoint: String,
    /// A placeholder: egress puts the token in its place.
    token: String,
}

/// What is told again: which room.
#[derive(Serialize, Deserialize)]
struct Handle {
    room: String,
}

/// What finds a command again.
#[derive(Serialize, Deserialize)]
struct Reference {
    run: String,
}

/// A room as the API has it.
#[derive(Deserialize)]
struct Room {
    id: String,
    name: String,
    workspace: String,
    #[serde(default)]
    labels: BTreeMap<String, String>,
}

#[derive(Deserialize)]
struct Rooms {
    rooms: Vec<Room>,
}

/// A command as the API has it.
#[derive(Deserialize)]
struct Run {
    id: String,
    #[serde(default)]
    exit_code: Option<i32>,
}

fn api(c: &Call<Config>, method: &str, path: &str) -> Ask {
    ask(method, format!("{}{path}", c.endpoint)).bearer(Some(&c.token))
}

fn rooms(c: &Call<Config>) -> Result<Vec<Room>> {
    let all: Rooms = api(c, "GET", "/rooms").send(&[200])?.json()?;
    Ok(all.rooms)
}

fn lease_of(room: Room) -> Acquired<Handle> {
    acquired(room.id.clone(), Handle { room: room.id }, room.workspace)
}

impl Provider for Lodge {
    type Config = Config;
    type Handle = Handle;

    fn describe() -> Manifest {
        let runs = "/rooms/{resource}/runs";
        manifest("lodge", env!("CARGO_PKG_VERSION"))
            .title("Lodge")
            .summary("A room of a room server, with commands that are talked to and files that are copied.")
            .schema(json!({
                "type": "object",
                "required": ["endpoint", "token"],
                "additionalProperties": false,
                "properties": {
                    "endpoint": { "type": "string", "format": "endpoint" },
                    "token": { "type": "string", "format": "secret" }
                }
            }))
            .credential(TOKEN, [header("authorization", "Bearer {}")], [API])
            .operation(API, "POST", "/rooms", create("/id", Some("/labels")))
            .operation(API, "DELETE", "/rooms/{resource}", act())
            .operation(API, "POST", runs, create_child("/id", None))
            // A WebSocket begins with a GET, which is an operation all the same: bytes go both ways on it.
            .operation(API, "GET", &format!("{runs}/{{child}}/socket"), act())
            .operation(API, "POST", &format!("{runs}/{{child}}/signal"), act())
            .operation(API, "PUT", "/rooms/{resource}/archive", act())
            .check(
                check(Claim::Owned, API, "/rooms/{resource}")
                    .credential(TOKEN)
                    .expect(owner_label("/labels")),
            )
            .check(
                check(Claim::Gone, API, "/rooms/{resource}")
                    .credential(TOKEN)
                    .expect(status(404)),
            )
            .streams()
            .features(Features::STDIN | Features::SEPARATE_STDERR | Features::SIGNAL_GROUP)
            .acquire_timeout(30_000)
            .build()
    }

    fn probe(c: Call<Config>) -> Result<Vec<Finding>> {
        let seen =
            rooms(&c).map(|rooms| format!("the token is good; there are {} rooms", rooms.len()));
        Ok(vec![finding("authenticate", seen)])
    }

    fn acquire(c: Call<Config>, _ttl: Option<u32>) -> Result<Acquired<Handle>> {
        let name = c.acquisition()?;
        if let Some(room) = rooms(&c)?.into_iter().find(|room| room.name == name) {
            return Ok(lease_of(room));
        }
        let labels: BTreeMap<&str, &str> = c.label_pairs().collect();
        let body = json!({ "name": name, "labels": labels });
        let made: Room = api(&c, "POST", "/rooms").json(body).send(&[201])?.json()?;
        Ok(lease_of(made))
    }

    fn inspect(c: Call<Config>, h: Handle) -> Result<Observation> {
        let found = api(&c, "GET", &format!("/rooms/{}", h.room)).send(&[200, 404])?;
        Ok(match found.found::<Room>()? {
            Some(_) => observation(Condition::Ready),
            None => gone(),
        })
    }

    fn release(c: Call<Config>, h: Handle) -> Result<()> {
        let removed = api(&c, "DELETE", &format!("/rooms/{}", h.room)).send(&[204, 404]);
        removed.map(drop)
    }

    fn list(c: Call<Config>, query: Query) -> Result<Page<Handle>> {
        Ok(rooms(&c)?
            .into_iter()
            .filter(|room| {
                let labels: Vec<(&String, &String)> = room.labels.iter().collect();
                query.wants(&room.id, &labels)
            })
            .map(|room| {
                listed(room.id.clone(), Handle { room: room.id }, Condition::Ready)
                    .labels(room.labels)
            })
            .collect())
    }
}

impl Execution for Lodge {
    type Reference = Reference;

    fn start(c: Call<Config>, h: Handle, command: Command) -> Result<Started<Reference>> {
        let reference = Reference {
            run: command.id.clone(),
        };
        // The name finds it again, whatever becomes of this call. It begins to run when its WebSocket is opened.
        host::journal_command(&command.id, &reference)?;
        let env: BTreeMap<String, String> = command.env.into_iter().collect();
        let body =
            json!({ "id": command.id, "argv": command.argv, "env": env, "cwd": command.cwd });
        let runs = format!("/rooms/{}/runs", h.room);
        let run: Run = api(&c, "POST", &runs).json(body).send(&[201])?.json()?;
        let socket = api(&c, "GET", &format!("{runs}/{}/socket", run.id)).websocket(&[CHANNELS])?;
        let process = socket.process(
            Framing::Channels,
            InputEnd::HalfClose,
            ExitSource::StatusChannel,
        )?;
        Ok(started(process, reference))
    }

    fn state_of(
        c: Call<Config>,
        h: Handle,
        id: String,
        reference: Option<Reference>,
    ) -> Result<State> {
        let run = reference.map_or(id, |reference| reference.run);
        let asked = api(&c, "GET", &format!("/rooms/{}/runs/{run}", h.room)).send(&[200, 404])?;
        Ok(match asked.found::<Run>()? {
            None => State::NotStarted("the room server knows no such command".to_owned()),
            Some(Run {
                exit_code: Some(code),
                ..
            }) => State::Exited(code),
            Some(_) => State::Running,
        })
    }

    fn signal(c: Call<Config>, h: Handle, r: Reference, signal: String) -> Result<()> {
        let path = format!("/rooms/{}/runs/{}/signal", h.room, r.run);
        let sent = api(&c, "POST", &path).json(json!({ "signal": signal }));
        sent.send(&[204]).map(drop)
    }
}

impl Files for Lodge {
    fn put(c: Call<Config>, h: Handle, path: String, archive: Bytes) -> Result<()> {
        let put = api(&c, "PUT", &format!("/rooms/{}/archive", h.room)).query("path", path);
        let body = vec![Piece::Bytes(archive)];
        put.upload(body, &[204]).map(drop)
    }

    fn get(c: Call<Config>, h: Handle, path: String) -> Result<Bytes> {
        let get = api(&c, "GET", &format!("/rooms/{}/archive", h.room)).query("path", path);
        get.download(&[200])
    }
}

provider!(Lodge: execution, files);

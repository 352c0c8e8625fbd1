//! The cabin provider: it leases rooms of a small HTTP API, and runs commands in them.
//!
//! It shows each thing that a backend with an API needs: a token with one site, operations, ids that egress reads, labels
//! that the host's own checks find, and a command whose output streams past the component. The API is that of the room
//! server in `tests/parts`.

use std::collections::BTreeMap;

use leasehold_provider::*;
use serde::{Deserialize, Serialize};

/// Where the API is in the configuration.
const API: &str = "/endpoint";
/// Where its token is.
const TOKEN: &str = "/token";

struct Cabin;

#[derive(Deserialize)]
struct Config {
    /// The URL, to be used as it is.
    endpoint: String,
    /// A placeholder: egress puts the token in its place.
    token: String,
    /// Labels of the administrator's own, on every room beside the host's.
    #[serde(default)]
    labels: BTreeMap<String, String>,
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

impl Provider for Cabin {
    type Config = Config;
    type Handle = Handle;

    fn describe() -> Manifest {
        manifest("cabin", env!("CARGO_PKG_VERSION"))
            .title("Cabin")
            .summary("A room of a room server, made for each lease and removed with it.")
            .schema(json!({
                "type": "object",
                "required": ["endpoint", "token"],
                "additionalProperties": false,
                "properties": {
                    "endpoint": { "type": "string", "format": "endpoint" },
                    "token": { "type": "string", "format": "secret" },
                    "labels": { "type": "object", "additionalProperties": { "type": "string" } }
                }
            }))
            .credential(TOKEN, [header("authorization", "Bearer {}")], [API])
            .operation(API, "POST", "/rooms", create("/id", Some("/labels")))
            .operation(API, "DELETE", "/rooms/{resource}", act())
            .operation(
                API,
                "POST",
                "/rooms/{resource}/runs",
                create_child("/id", None),
            )
            .operation(API, "GET", "/rooms/{resource}/runs/{child}/stream", act())
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
            .features(Features::SEPARATE_STDERR)
            .acquire_timeout(30_000)
            .build()
    }

    fn check_config(c: Call<Config>, mut config: Value) -> Result<Value> {
        let taken: Vec<FieldViolation> = c
            .labels
            .keys()
            .filter(|name| name.starts_with("leasehold-"))
            .map(|name| {
                let pointer = format!("/labels/{}", name.replace('~', "~0").replace('/', "~1"));
                violation(
                    pointer,
                    "begins with leasehold-, as the host's own do: choose another name",
                )
            })
            .collect();
        if !taken.is_empty() {
            return Err(Error::invalid_config(taken));
        }
        if !c.labels.is_empty() {
            let trimmed = c.labels.iter().map(|(name, value)| (name, value.trim()));
            config["labels"] = json!(trimmed.collect::<BTreeMap<_, _>>());
        }
        Ok(config)
    }

    fn probe(c: Call<Config>) -> Result<Vec<Finding>> {
        let answers = info("reach", "the API answers");
        Ok(match rooms(&c) {
            Ok(rooms) => {
                let seen = format!("the token is good; there are {} rooms", rooms.len());
                vec![answers, info("authenticate", seen)]
            }
            // Whoever refuses the token was reached.
            Err(error) if matches!(error.code, Code::Unauthenticated | Code::PermissionDenied) => {
                vec![answers, finding("authenticate", Err::<String, _>(error))]
            }
            Err(error) => vec![finding("reach", Err::<String, _>(error))],
        })
    }

    fn acquire(c: Call<Config>, _ttl: Option<u32>) -> Result<Acquired<Handle>> {
        let name = c.acquisition()?;
        host::progress("room", "making the room");
        // An earlier try may have made it. Whether it is this lease's the host looks for itself.
        if let Some(room) = rooms(&c)?.into_iter().find(|room| room.name == name) {
            return Ok(lease_of(room));
        }
        let mut labels = c.labels.clone();
        labels.extend(
            c.label_pairs()
                .map(|(key, value)| (key.to_owned(), value.to_owned())),
        );
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

impl Execution for Cabin {
    type Reference = Reference;

    fn start(c: Call<Config>, h: Handle, command: Command) -> Result<Started<Reference>> {
        // The name finds it again, whatever becomes of this call. It begins to run when its stream is opened.
        host::journal_command(
            &command.id,
            &Reference {
                run: command.id.clone(),
            },
        )?;
        let env: BTreeMap<String, String> = command.env.into_iter().collect();
        let body =
            json!({ "id": command.id, "argv": command.argv, "env": env, "cwd": command.cwd });
        let runs = format!("/rooms/{}/runs", h.room);
        let run: Run = api(&c, "POST", &runs).json(body).send(&[201])?.json()?;
        let stream = api(&c, "GET", &format!("{runs}/{}/stream", run.id)).upgrade("room-stream")?;
        let process = stream.process(Framing::Docker, InputEnd::None, ExitSource::Ask)?;
        Ok(started(process, Reference { run: run.id }))
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

    fn signal(_: Call<Config>, _: Handle, _: Reference, _: String) -> Result<()> {
        Err(Error::unsupported(
            "a room ends its commands when it is removed",
        ))
    }
}

provider!(Cabin: execution);

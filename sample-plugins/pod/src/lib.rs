//! The pod provider: it leases containers of an engine, and runs commands in them.
//!
//! It shows what a provider of containers needs, and no more: the field by which an engine is reached, the operations that
//! the host's engine policy lets through, a container that the host finds to be the lease's, a command whose stream is an
//! upgraded connection, and files as archives. It makes containers of images that the engine has.

use std::collections::BTreeMap;

use leasehold_provider::*;
use serde::{Deserialize, Serialize};

/// Where the engine is in the configuration.
const ENGINE: &str = "/engine";

struct Pod;

#[derive(Deserialize)]
struct Config {
    /// The origin of the engine, or the one that stands in for its socket.
    engine: String,
    image: String,
}

/// What is told again: which container.
#[derive(Serialize, Deserialize)]
struct Handle {
    container: String,
}

/// What finds a command again: the engine's id of it.
#[derive(Serialize, Deserialize)]
struct Reference {
    exec: String,
}

/// What the engine answers to whoever makes something.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Made {
    id: String,
}

/// A container of a list.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Found {
    id: String,
    state: String,
    #[serde(default)]
    labels: BTreeMap<String, String>,
}

/// A container as it stands.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Container {
    state: Running,
}

/// Whether it runs, or a command in it does.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Running {
    running: bool,
    #[serde(default)]
    exit_code: Option<i32>,
}

fn engine(c: &Call<Config>, method: &str, path: &str) -> Ask {
    ask(method, format!("{}{path}", c.engine))
}

fn own(c: &Call<Config>) -> Result<Vec<Found>> {
    // The host asks for this lease's own, whatever else the engine has.
    engine(c, "GET", "/containers/json")
        .query("all", "1")
        .send(&[200])?
        .json()
}

fn condition(state: &str) -> Condition {
    match state {
        "created" => Condition::Starting,
        "running" => Condition::Ready,
        "exited" => Condition::Stopped,
        _ => Condition::Failed,
    }
}

impl Provider for Pod {
    type Config = Config;
    type Handle = Handle;

    fn describe() -> Manifest {
        manifest("pod", env!("CARGO_PKG_VERSION"))
            .title("Pod")
            .summary("A container of an engine, made for each lease and removed with it.")
            .schema(json!({
                "type": "object",
                "required": ["engine", "image"],
                "additionalProperties": false,
                "properties": {
                    "engine": { "type": "string", "format": "engine-endpoint" },
                    "image": { "type": "string" }
                }
            }))
            .operation(
                ENGINE,
                "POST",
                "/containers/create",
                create("/Id", Some("/Labels")),
            )
            .operation(ENGINE, "POST", "/containers/{resource}/start", act())
            .operation(ENGINE, "DELETE", "/containers/{resource}", act())
            .operation(
                ENGINE,
                "POST",
                "/containers/{resource}/exec",
                create_child("/Id", None),
            )
            .operation(ENGINE, "POST", "/exec/{child}/start", act())
            .operation(ENGINE, "PUT", "/containers/{resource}/archive", act())
            .check(
                check(Claim::Owned, ENGINE, "/containers/{resource}/json")
                    .expect(owner_label("/Config/Labels")),
            )
            .check(check(Claim::Gone, ENGINE, "/containers/{resource}/json").expect(status(404)))
            .streams()
            .features(Features::STDIN | Features::SEPARATE_STDERR)
            .acquire_timeout(60_000)
            .build()
    }

    fn probe(c: Call<Config>) -> Result<Vec<Finding>> {
        let asked = engine(&c, "GET", "/version").send(&[200]);
        Ok(vec![finding(
            "reach",
            asked.map(|_| "the engine answers".to_owned()),
        )])
    }

    fn acquire(c: Call<Config>, _ttl: Option<u32>) -> Result<Acquired<Handle>> {
        // An earlier try may have made it. Whether it is this lease's the host looks for itself.
        let container = match own(&c)?.into_iter().next() {
            Some(found) => found.id,
            None => {
                host::progress("container", "making the container");
                let body = json!({
                    "Image": c.image,
                    "Cmd": ["sleep", "2147483647"],
                    "Labels": c.labels(),
                    "HostConfig": { "NetworkMode": "none" }
                });
                let made = engine(&c, "POST", "/containers/create").query("name", c.acquisition()?);
                made.json(body).send(&[201])?.json::<Made>()?.id
            }
        };
        engine(&c, "POST", &format!("/containers/{container}/start")).send(&[204, 304])?;
        Ok(acquired(container.clone(), Handle { container }, "/"))
    }

    fn inspect(c: Call<Config>, h: Handle) -> Result<Observation> {
        let path = format!("/containers/{}/json", h.container);
        let found = engine(&c, "GET", &path).send(&[200, 404])?;
        Ok(match found.found::<Container>()? {
            Some(found) if found.state.running => observation(Condition::Ready),
            Some(_) => observation(Condition::Stopped),
            None => gone(),
        })
    }

    fn release(c: Call<Config>, h: Handle) -> Result<()> {
        engine(&c, "DELETE", &format!("/containers/{}", h.container))
            .query("force", "1")
            .query("v", "1")
            .send(&[204, 404])
            .map(drop)
    }

    fn list(c: Call<Config>, query: Query) -> Result<Page<Handle>> {
        Ok(own(&c)?
            .into_iter()
            .filter(|found| {
                let labels: Vec<(&String, &String)> = found.labels.iter().collect();
                query.wants(&found.id, &labels)
            })
            .map(|found| {
                let handle = Handle {
                    container: found.id.clone(),
                };
                listed(found.id, handle, condition(&found.state)).labels(found.labels)
            })
            .collect())
    }
}

impl Execution for Pod {
    type Reference = Reference;

    fn start(c: Call<Config>, h: Handle, command: Command) -> Result<Started<Reference>> {
        let env: Vec<String> = command
            .env
            .iter()
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        let body = json!({
            "Cmd": command.argv, "Env": env, "WorkingDir": command.cwd,
            "AttachStdin": command.stdin, "AttachStdout": true, "AttachStderr": true,
        });
        let execs = format!("/containers/{}/exec", h.container);
        let made: Made = engine(&c, "POST", &execs).json(body).send(&[201])?.json()?;
        let reference = Reference { exec: made.id };
        host::journal_command(&command.id, &reference)?;
        let process = engine(&c, "POST", &format!("/exec/{}/start", reference.exec))
            .json(json!({ "Detach": false, "Tty": false }))
            .upgrade("tcp")?
            .process(Framing::Docker, InputEnd::HalfClose, ExitSource::Ask)?;
        Ok(started(process, reference))
    }

    fn state_of(
        c: Call<Config>,
        _: Handle,
        _: String,
        reference: Option<Reference>,
    ) -> Result<State> {
        let Some(Reference { exec }) = reference else {
            return Ok(State::NotStarted(
                "nothing was made that could run".to_owned(),
            ));
        };
        let asked = engine(&c, "GET", &format!("/exec/{exec}/json")).send(&[200, 404])?;
        Ok(match asked.found::<Running>()? {
            Some(Running { running: true, .. }) => State::Running,
            Some(Running {
                exit_code: Some(code),
                ..
            }) => State::Exited(code),
            Some(_) | None => State::Unknown,
        })
    }

    fn signal(_: Call<Config>, _: Handle, _: Reference, _: String) -> Result<()> {
        Err(Error::unsupported(
            "an engine has no way to signal one command; the container is removed with the lease",
        ))
    }
}

impl Files for Pod {
    fn put(c: Call<Config>, h: Handle, path: String, archive: Bytes) -> Result<()> {
        engine(&c, "PUT", &format!("/containers/{}/archive", h.container))
            .query("path", path)
            .upload(vec![Piece::Bytes(archive)], &[200])
            .map(drop)
    }

    fn get(c: Call<Config>, h: Handle, path: String) -> Result<Bytes> {
        engine(&c, "GET", &format!("/containers/{}/archive", h.container))
            .query("path", path)
            .download(&[200])
    }
}

provider!(Pod: execution, files);

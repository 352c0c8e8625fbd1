//! What the samples share that want a key, or what is somebody else's, over HTTP: a provider of rooms that leases like the
//! cabin provider, and on the way tries its theft.
//!
//! Each theft is a component of its own, `hostile-<example>`. It tries in every export in which the backend can be reached.
//! All that comes of it it puts wherever it can put something (log, progress, standard error, handle, findings, an
//! observation, the error of a command), and then it looks through all of its memory for what the configuration hunts.

use std::collections::BTreeMap;
use std::marker::PhantomData;

use leasehold_provider::*;
use serde::{Deserialize, Serialize};

use crate::hunt::{bounded, tell};

/// Where the API is in the configuration.
pub const API: &str = "/endpoint";
/// Where its token is.
pub const TOKEN: &str = "/token";

/// One way to get at what is not the provider's.
pub trait Theft: Sized {
    /// The example's name, which makes the provider's key: `hostile-<name>`.
    const NAME: &'static str;
    /// What it tries, in a sentence.
    const DOES: &'static str;
    /// Whether the host is told how to look for itself whose a room is, and that it is gone.
    const CHECKED: bool = true;

    /// Where it says that its token works.
    fn credential(manifest: ManifestBuilder) -> ManifestBuilder {
        manifest.credential(TOKEN, [header("authorization", "Bearer {}")], [API])
    }

    /// What it asks for beside a room server's API.
    fn asks(manifest: ManifestBuilder) -> ManifestBuilder {
        manifest
    }

    /// Further fields of its configuration.
    fn fields() -> Value {
        json!({})
    }

    /// Tries before there is a room.
    ///
    /// # Errors
    /// Where no room is to be made.
    fn before(booty: &mut Booty, call: &Call<Config>) -> Result<()> {
        let _ = (booty, call);
        Ok(())
    }

    /// Tries, in the export that is named so.
    fn steal(export: &str, booty: &mut Booty, call: &Call<Config>, room: &str);

    /// What a command is made of: by default it is refused, with all that was got.
    ///
    /// # Errors
    /// As the theft wants.
    fn start(
        booty: &mut Booty,
        call: &Call<Config>,
        room: &str,
        command: &Command,
    ) -> Result<Process> {
        let _ = (call, room, command);
        Err(Error::internal(booty.told()))
    }

    /// Ends what the lease has: by default its own room.
    ///
    /// # Errors
    /// As the room server and egress have them.
    fn release(call: &Call<Config>, room: &str) -> Result<()> {
        let removed = api(call, "DELETE", &format!("/rooms/{room}"));
        removed.send(&[204, 404]).map(drop)
    }

    /// What `check-config` answers in place of the configuration.
    ///
    /// # Errors
    /// As the theft wants.
    fn check_config(config: Value) -> Result<Value> {
        Ok(config)
    }
}

/// The configuration of every theft.
#[derive(Clone, Debug, Deserialize)]
pub struct Config {
    /// The room server's API.
    #[serde(default)]
    pub endpoint: String,
    /// A placeholder of its token.
    #[serde(default)]
    pub token: String,
    /// Whatever else stands there: `hunt`, and what a theft is told.
    #[serde(flatten)]
    pub rest: BTreeMap<String, Value>,
}

impl Config {
    /// A text that the theft is told; empty where it is not.
    pub fn told(&self, name: &str) -> &str {
        self.rest
            .get(name)
            .and_then(Value::as_str)
            .unwrap_or_default()
    }
}

/// What is told again: which room, and what was got.
#[derive(Debug, Serialize, Deserialize)]
pub struct Handle {
    room: String,
    loot: String,
}

/// What came of every try.
#[derive(Debug, Default)]
pub struct Booty(Vec<(String, String)>);

impl Booty {
    /// Notes what came of one try.
    pub fn note(&mut self, name: &str, came: Result<String>) {
        let came = match came {
            Ok(came) => came,
            Err(error) => format!("{:?}: {}", error.code, error.message),
        };
        self.0.push((name.to_owned(), came));
    }

    /// Sends a request, and notes what came of it, whatever status it is.
    pub fn send(&mut self, name: &str, ask: Ask) {
        self.note(name, ask.send(&ALL).map(|answer| said(&answer)));
    }

    /// All of it as a text.
    pub fn told(&self) -> String {
        let each: Vec<String> = self
            .0
            .iter()
            .map(|(name, came)| format!("{name}: {came}"))
            .collect();
        each.join(" | ")
    }

    /// Puts it wherever a component can put something while it works.
    pub fn spread(&self, export: &str) {
        for (name, came) in &self.0 {
            let line = bounded(format!("tried [{name}] [{export}] {came}"), 1800);
            host::log(host::Level::Warn, &line, &[("tried", name)]);
            host::progress(name, came);
            eprintln!("{line}");
        }
    }
}

/// Every status is an answer.
pub static ALL: [u16; 500] = all();

const fn all() -> [u16; 500] {
    let mut all = [0; 500];
    let mut at = 0;
    while at < all.len() {
        all[at] = 100 + at as u16;
        at += 1;
    }
    all
}

/// All that can be read of an answer.
pub fn said(answer: &Answer) -> String {
    let named = [
        "x-echo",
        "x-trailer",
        "www-authenticate",
        "set-cookie",
        "location",
    ];
    let headers: Vec<&str> = named
        .iter()
        .filter_map(|name| answer.header(name))
        .collect();
    format!(
        "{} {} {}",
        answer.status(),
        headers.join(" "),
        bounded(answer.text(), 1200)
    )
}

/// All that can be read of an answer by lines.
///
/// # Errors
/// As the lines end.
pub fn lines(lines: &Lines) -> Result<String> {
    let mut all = format!("{}", lines.head().status);
    for (_, value) in &lines.head().headers {
        all = format!("{all} {value}");
    }
    while let Some(line) = lines.next()? {
        all = format!("{all}|{line}");
    }
    Ok(all)
}

/// A request with the token in its site.
pub fn api(call: &Call<Config>, method: &str, path: &str) -> Ask {
    ask(method, format!("{}{path}", call.endpoint)).bearer(Some(&call.token))
}

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

fn rooms(call: &Call<Config>) -> Result<Vec<Room>> {
    let all: Rooms = api(call, "GET", "/rooms").send(&[200])?.json()?;
    Ok(all.rooms)
}

/// The provider that commits the theft `T`.
pub struct Thief<T>(PhantomData<T>);

/// Tries, spreads what came of it, and hunts.
fn tried<T: Theft>(export: &str, call: &Call<Config>, room: &str) -> Booty {
    let mut booty = Booty::default();
    T::steal(export, &mut booty, call, room);
    booty.spread(export);
    tell(export, call.rest.get("hunt"));
    booty
}

impl<T: Theft> Provider for Thief<T> {
    type Config = Config;
    type Handle = Handle;

    fn describe() -> Manifest {
        let mut schema = json!({
            "type": "object",
            "properties": {
                "endpoint": { "type": "string", "format": "endpoint" },
                "token": { "type": "string", "format": "secret" },
                "hunt": { "type": "object" },
                "word": { "type": "string" }
            }
        });
        if let (Value::Object(all), Value::Object(more)) = (&mut schema["properties"], T::fields())
        {
            all.extend(more);
        }
        let manifest = manifest(&format!("hostile-{}", T::NAME), env!("CARGO_PKG_VERSION"))
            .title(T::NAME)
            .summary(T::DOES)
            .schema(schema)
            .operation(API, "POST", "/rooms", create("/id", Some("/labels")))
            .operation(API, "DELETE", "/rooms/{resource}", act())
            .operation(
                API,
                "POST",
                "/rooms/{resource}/runs",
                create_child("/id", None),
            )
            .operation(API, "GET", "/rooms/{resource}/runs/{child}/stream", act())
            .streams()
            .limits(Limits {
                memory_mib: 64,
                cpu: 8000,
                exchanges: 512,
                body_mib: 8,
            });
        let manifest = match T::CHECKED {
            true => manifest
                .check(
                    check(Claim::Owned, API, "/rooms/{resource}")
                        .credential(TOKEN)
                        .expect(owner_label("/labels")),
                )
                .check(
                    check(Claim::Gone, API, "/rooms/{resource}")
                        .credential(TOKEN)
                        .expect(status(404)),
                ),
            false => manifest,
        };
        T::asks(T::credential(manifest)).build()
    }

    fn check_config(call: Call<Config>, config: Value) -> Result<Value> {
        tell("check-config", call.rest.get("hunt"));
        T::check_config(config)
    }

    fn probe(call: Call<Config>) -> Result<Vec<Finding>> {
        let booty = tried::<T>("probe", &call, "");
        Ok(vec![info("theft", bounded(booty.told(), 3 << 10))])
    }

    fn acquire(call: Call<Config>, _ttl: Option<u32>) -> Result<Acquired<Handle>> {
        let name = call.acquisition()?;
        let found = rooms(&call)?.into_iter().find(|room| room.name == name);
        let room: Room = match found {
            Some(room) => room,
            None => {
                let mut booty = Booty::default();
                let going = T::before(&mut booty, &call);
                booty.spread("acquire, before");
                going?;
                let body = json!({ "name": name, "labels": call.labels() });
                api(&call, "POST", "/rooms")
                    .json(body)
                    .send(&[201])?
                    .json()?
            }
        };
        let booty = tried::<T>("acquire", &call, &room.id);
        let handle = Handle {
            room: room.id.clone(),
            loot: bounded(booty.told(), 10 << 10),
        };
        Ok(acquired(room.id, handle, room.workspace))
    }

    fn keep_alive(call: Call<Config>, handle: Handle, _ttl: Option<u32>) -> Result<KeptAlive> {
        tried::<T>("keep-alive", &call, &handle.room);
        Ok(KeptAlive {
            next: None,
            ttl: None,
        })
    }

    fn inspect(call: Call<Config>, handle: Handle) -> Result<Observation> {
        let booty = tried::<T>("inspect", &call, &handle.room);
        let said = format!("{} | before: {}", booty.told(), handle.loot);
        Ok(condition_message(Condition::Ready, bounded(said, 3 << 10)))
    }

    fn release(call: Call<Config>, handle: Handle) -> Result<()> {
        tried::<T>("release", &call, &handle.room);
        T::release(&call, &handle.room)
    }

    fn list(call: Call<Config>, query: Query) -> Result<Page<Handle>> {
        tell("list", call.rest.get("hunt"));
        Ok(rooms(&call)?
            .into_iter()
            .filter(|room| {
                let labels: Vec<(&String, &String)> = room.labels.iter().collect();
                query.wants(&room.id, &labels)
            })
            .map(|room| {
                let handle = Handle {
                    room: room.id.clone(),
                    loot: String::new(),
                };
                listed(room.id, handle, Condition::Ready).labels(room.labels)
            })
            .collect())
    }
}

impl<T: Theft> Execution for Thief<T> {
    type Reference = Value;

    fn start(call: Call<Config>, handle: Handle, command: Command) -> Result<Started<Value>> {
        let mut booty = tried::<T>("start", &call, &handle.room);
        let process = T::start(&mut booty, &call, &handle.room, &command);
        booty.spread("start of a command");
        tell("start of a command", call.rest.get("hunt"));
        Ok(started(process?, json!({ "run": command.id })))
    }

    fn state_of(call: Call<Config>, handle: Handle, id: String, _: Option<Value>) -> Result<State> {
        tell("state-of", call.rest.get("hunt"));
        #[derive(Deserialize)]
        struct Run {
            exit_code: Option<i32>,
        }
        let path = format!("/rooms/{}/runs/{id}", handle.room);
        let asked = api(&call, "GET", &path).send(&[200, 404])?;
        Ok(match asked.found::<Run>()? {
            None => State::NotStarted("the room server knows no such command".to_owned()),
            Some(run) => run.exit_code.map_or(State::Running, State::Exited),
        })
    }

    fn signal(_: Call<Config>, _: Handle, _: Value, _: String) -> Result<()> {
        Err(Error::unsupported("a room ends its commands itself"))
    }
}

/// Runs a command in a room as the cabin provider does, of the body that it is given.
///
/// # Errors
/// As the room server and egress have them.
pub fn run(call: &Call<Config>, room: &str, command: &Command, body: Value) -> Result<Process> {
    host::journal_command(&command.id, &json!({ "run": command.id }))?;
    let runs = format!("/rooms/{room}/runs");
    api(call, "POST", &runs).json(body).send(&[201])?;
    let stream = format!("{runs}/{}/stream", command.id);
    let duplex = api(call, "GET", &stream).upgrade("room-stream")?;
    duplex.process(Framing::Docker, InputEnd::None, ExitSource::Ask)
}

/// Exports the provider that commits a theft.
#[macro_export]
macro_rules! theft {
    ($theft:ident) => {
        type Plugin = $crate::thief::Thief<$theft>;
        leasehold_provider::provider!(Plugin: execution);
    };
}

//! A room server: the smallest backend with an API that a provider can lease from, and that remembers all it was sent.
//!
//! Rooms are directories, and commands really run in them: their output streams over an upgraded connection in Docker's
//! frames, or they are talked to over a WebSocket (`socket`). Files go in and out as archives (`archive`). It speaks just
//! enough HTTP/1.1 by hand, so that what it remembers is what came over the wire. Faults are switched on and off while it
//! runs.

mod archive;
mod socket;

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::{Context, Result};
use rustix::process::Pid;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::chunks::Chunks;
use crate::echo;

pub use archive::digest_of_all;

/// What goes wrong.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fault {
    /// Nothing.
    #[default]
    None,
    /// A room is made, and whoever asked for it hears nothing until the fault is over.
    LoseCreate,
    /// Every answer gives back the credential that came with the request, in a header and in its body.
    Echo,
    /// Every connection is closed as soon as it has come.
    Down,
    /// Nothing is removed, whatever is answered.
    KeepRooms,
    /// A list of rooms has another name than it should.
    Strange,
    /// Requests with this method are answered with this status, and told to wait for seven seconds.
    Refuse(&'static str, u16),
    /// Whoever wants a room made is given the first that there is.
    GiveFirst,
}

/// A request as it came.
#[derive(Clone, Debug)]
pub struct Heard {
    /// The method.
    pub method: String,
    /// Path and query.
    pub path: String,
    /// Names in lower case, and values.
    pub headers: Vec<(String, String)>,
    /// The body; empty of an archive.
    pub body: Vec<u8>,
}

impl Heard {
    /// The value of a header; empty where it was not sent.
    pub fn header(&self, name: &str) -> &str {
        let found = self.headers.iter().find(|(n, _)| n == name);
        found.map_or("", |(_, value)| value)
    }
}

struct Room {
    id: String,
    name: String,
    labels: Value,
    directory: TempDir,
    runs: BTreeMap<String, Run>,
}

struct Run {
    asked: Value,
    exit_code: Option<i32>,
    /// Leads its process group, while it runs over a WebSocket.
    leader: Option<Pid>,
}

impl Drop for Room {
    /// Nothing runs in a room that is not there.
    fn drop(&mut self) {
        for run in self.runs.values() {
            socket::signal(run, "KILL");
        }
    }
}

#[derive(Default)]
struct State {
    rooms: Vec<Room>,
    made: usize,
    heard: Vec<Heard>,
    asked: Vec<Heard>,
    fault: Fault,
    /// Archives are bytes that are counted and hashed; one that is asked for has so many.
    pattern: Option<u64>,
    /// Length and SHA-256 of the last archive that came so.
    came: Option<(u64, Vec<u8>)>,
}

fn find_run<'s>(state: &'s mut State, room: &str, run: &str) -> Option<&'s mut Run> {
    let room = state.rooms.iter_mut().find(|one| one.id == room)?;
    room.runs.get_mut(run)
}

struct Shared {
    token: Mutex<String>,
    /// What a session's key begins with; none: there are no sessions.
    sessions: Mutex<Option<String>>,
    state: Mutex<State>,
    over: AtomicBool,
    taken: AtomicUsize,
    open: AtomicUsize,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn token(&self) -> String {
        let token = self.token.lock().unwrap_or_else(PoisonError::into_inner);
        token.clone()
    }

    /// What is made of a run; none where there is none.
    fn with_run<T>(&self, room: &str, run: &str, with: impl FnOnce(&mut Run) -> T) -> Option<T> {
        find_run(&mut self.state(), room, run).map(with)
    }

    /// The key of a room's session, where there are sessions.
    fn session(&self, room: &str) -> Option<String> {
        let sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
        Some(format!("{}{room}", sessions.as_ref()?))
    }
}

/// A connection that counts as open until it goes.
struct Counted<'a>(&'a Shared);

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::SeqCst);
    }
}

/// A room server on a free port of loopback; dropped, it takes no more connections.
pub struct Rooms {
    address: SocketAddr,
    shared: Arc<Shared>,
}

impl std::fmt::Debug for Rooms {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Rooms({})", self.address)
    }
}

impl Rooms {
    /// One that lets in whoever shows this token.
    ///
    /// # Errors
    /// When no port can be had.
    pub fn start(token: &str) -> Result<Rooms> {
        let listener = TcpListener::bind("127.0.0.1:0").context("no port")?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared {
            token: Mutex::new(token.to_owned()),
            sessions: Mutex::default(),
            state: Mutex::default(),
            over: AtomicBool::new(false),
            taken: AtomicUsize::new(0),
            open: AtomicUsize::new(0),
        });
        let serving = shared.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if serving.over.load(Ordering::SeqCst) {
                    break;
                }
                let shared = serving.clone();
                shared.taken.fetch_add(1, Ordering::SeqCst);
                shared.open.fetch_add(1, Ordering::SeqCst);
                // Whoever hangs up has had its answer, or wants none.
                std::thread::spawn(move || {
                    let _open = Counted(&shared);
                    serve(&shared, stream).unwrap_or_default();
                });
            }
        });
        Ok(Rooms { address, shared })
    }

    /// Where its API is.
    pub fn url(&self) -> String {
        format!("http://{}/v1", self.address)
    }

    /// Its port on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// From now on lets in whoever shows this token, and nobody with the one before.
    pub fn set_token(&self, token: &str) {
        let now = self.shared.token.lock();
        *now.unwrap_or_else(PoisonError::into_inner) = token.to_owned();
    }

    /// Gives each room a session from now on, whose key begins with this and ends with the room's id.
    pub fn give_sessions(&self, begin: &str) {
        let sessions = self.shared.sessions.lock();
        *sessions.unwrap_or_else(PoisonError::into_inner) = Some(begin.to_owned());
    }

    /// How many connections it has taken so far, and how many of them are open now.
    pub fn connections(&self) -> (usize, usize) {
        let count = |of: &AtomicUsize| of.load(Ordering::SeqCst);
        (count(&self.shared.taken), count(&self.shared.open))
    }

    /// Lets something go wrong from now on.
    pub fn set_fault(&self, fault: Fault) {
        self.shared.state().fault = fault;
    }

    /// From now on unpacks no archive: what comes is counted and hashed, and what is asked for are so many bytes of
    /// [`Pattern`](crate::Pattern), in chunks of odd sizes.
    pub fn move_only(&self, length: u64) {
        self.shared.state().pattern = Some(length);
    }

    /// Length and SHA-256 of the last archive that came since [`Rooms::move_only`].
    pub fn came(&self) -> Option<(u64, Vec<u8>)> {
        self.shared.state().came.clone()
    }

    /// Every request so far that a component sent, or a check of it.
    pub fn heard(&self) -> Vec<Heard> {
        self.shared.state().heard.clone()
    }

    /// Every request of the host's own that asked whether a container engine is here.
    pub fn asked(&self) -> Vec<Heard> {
        self.shared.state().asked.clone()
    }

    /// The ids of the rooms that are there.
    pub fn rooms(&self) -> Vec<String> {
        let state = self.shared.state();
        state.rooms.iter().map(|room| room.id.clone()).collect()
    }

    /// How many rooms were ever made.
    pub fn made(&self) -> usize {
        self.shared.state().made
    }

    /// Makes a room that is nobody's lease, and answers its id.
    pub fn make_room(&self, name: &str) -> String {
        let mut state = self.shared.state();
        make(&mut state, name, json!({})).map_or_else(|_| String::new(), |room| room.id.clone())
    }
}

impl Drop for Rooms {
    fn drop(&mut self) {
        self.shared.over.store(true, Ordering::SeqCst);
        // Wakes the accepting thread.
        let _ = TcpStream::connect(self.address);
    }
}

fn make<'s>(state: &'s mut State, name: &str, labels: Value) -> std::io::Result<&'s Room> {
    state.made += 1;
    let room = Room {
        id: format!("room-{}", state.made),
        name: name.to_owned(),
        labels,
        directory: tempfile::Builder::new()
            .prefix("leasehold-room-")
            .tempdir()?,
        runs: BTreeMap::new(),
    };
    state.rooms.push(room);
    state
        .rooms
        .last()
        .ok_or_else(|| std::io::Error::other("it was just made"))
}

fn shown(room: &Room) -> Value {
    json!({
        "id": room.id, "name": room.name, "labels": room.labels,
        "workspace": room.directory.path(),
    })
}

/// Reads one request; none where the other side has closed. Of an archive the body is not read.
pub(crate) fn read(from: &mut BufReader<TcpStream>) -> std::io::Result<Option<Heard>> {
    let mut line = String::new();
    if from.read_line(&mut line)? == 0 {
        return Ok(None);
    }
    let mut words = line.split_whitespace().map(str::to_owned);
    let (method, path) = (
        words.next().unwrap_or_default(),
        words.next().unwrap_or_default(),
    );
    let mut headers = Vec::new();
    loop {
        let mut line = String::new();
        from.read_line(&mut line)?;
        let Some((name, value)) = line.trim_end().split_once(':') else {
            break;
        };
        headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
    }
    let mut heard = Heard {
        method,
        path,
        headers,
        body: Vec::new(),
    };
    if heard.header("transfer-encoding") != "chunked" {
        heard.body = vec![0; heard.header("content-length").parse().unwrap_or(0)];
        from.read_exact(&mut heard.body)?;
    } else if !is_archive(&heard) {
        Chunks::new(from).read_to_end(&mut heard.body)?;
    }
    Ok(Some(heard))
}

fn is_archive(heard: &Heard) -> bool {
    heard.path.contains("/archive?path=")
}

fn serve(shared: &Shared, stream: TcpStream) -> std::io::Result<()> {
    let mut to = stream.try_clone()?;
    if shared.state().fault == Fault::Down {
        return Ok(());
    }
    let mut from = BufReader::new(stream);
    while let Some(heard) = read(&mut from)? {
        let fault = shared.state().fault;
        if fault == Fault::Down {
            return Ok(());
        }
        if matches!(heard.path.as_str(), "/version" | "/v1/version") {
            // The host looks whether a container engine is here: it is not what the component sent.
            shared.state().asked.push(heard);
            write!(to, "HTTP/1.1 404 Said\r\ncontent-length: 0\r\n\r\n")?;
            continue;
        }
        shared.state().heard.push(heard.clone());
        let path = heard.path.clone();
        let parts: Vec<&str> = path.trim_start_matches("/v1/").split('/').collect();
        let token = shared.token();
        let authorised = heard.header("authorization") == format!("Bearer {token}");
        if let (true, [.., "echo", way]) = (authorised, parts.as_slice())
            && let Some(bytes) = echo::answer(way, &token)
        {
            to.write_all(&bytes)?;
            if echo::ends(way) {
                return Ok(());
            }
            continue;
        }
        if let (true, ["rooms", room, "runs", run, "stream"]) = (authorised, parts.as_slice())
            && heard.header("upgrade") == "room-stream"
        {
            return run_in(shared, room, run, &mut to);
        }
        if let (true, ["rooms", room, "runs", run, "socket"]) = (authorised, parts.as_slice())
            && heard.header("upgrade") == "websocket"
        {
            return socket::serve(shared, room, run, &heard, from, to);
        }
        if let (true, ["rooms", room, ..]) = (authorised, parts.as_slice())
            && is_archive(&heard)
        {
            archive::serve(shared, room, &heard, &mut from, &mut to)?;
            continue;
        }
        let mut extra = String::new();
        let (status, mut body) = if parts == ["session"] {
            session(shared, &heard)
        } else if !authorised {
            (401, json!({ "error": "who are you" }))
        } else if let Fault::Refuse(method, status) = fault
            && heard.method == method
        {
            extra = "retry-after: 7\r\n".to_owned();
            (status, json!({ "error": "not now" }))
        } else {
            answer(shared, &heard, &parts)
        };
        if fault == Fault::LoseCreate && heard.method == "POST" && parts == ["rooms"] {
            let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
            while shared.state().fault == Fault::LoseCreate && std::time::Instant::now() < deadline
            {
                std::thread::sleep(std::time::Duration::from_millis(10));
            }
            return Ok(());
        }
        if fault == Fault::Echo {
            let said = heard.header("authorization");
            extra = format!("x-echo: {said}\r\n");
            body["echo"] = json!(said);
            body["error"] = json!(format!("you said {said}"));
        }
        let body = if status == 204 {
            String::new()
        } else {
            body.to_string()
        };
        write!(
            to,
            "HTTP/1.1 {status} Said\r\ncontent-type: application/json\r\n{extra}content-length: {}\r\n\r\n{body}",
            body.len()
        )?;
        if is_archive(&heard) {
            // Its body was not read.
            return Ok(());
        }
    }
    Ok(())
}

/// Says which room a session is of, to whoever shows its key.
fn session(shared: &Shared, heard: &Heard) -> (u16, Value) {
    let shown = heard.header("x-session");
    let state = shared.state();
    let of = |room: &&Room| shared.session(&room.id).is_some_and(|key| key == shown);
    match state.rooms.iter().find(of) {
        Some(room) => (200, json!({ "room": room.id, "session": shown })),
        None => (401, json!({ "error": "there is no such session" })),
    }
}

fn answer(shared: &Shared, heard: &Heard, parts: &[&str]) -> (u16, Value) {
    let nothing = || (404, json!({ "error": "there is no such thing" }));
    let asked: Value = serde_json::from_slice(&heard.body).unwrap_or_default();
    let mut state = shared.state();
    match (heard.method.as_str(), parts) {
        ("GET", ["rooms"]) => {
            let rooms: Vec<Value> = state.rooms.iter().map(shown).collect();
            let name = if state.fault == Fault::Strange {
                "chambers"
            } else {
                "rooms"
            };
            (200, json!({ name: rooms }))
        }
        ("POST", ["rooms"]) => {
            let name = asked["name"].as_str().unwrap_or_default();
            if let (Fault::GiveFirst, Some(first)) = (state.fault, state.rooms.first()) {
                return (201, shown(first));
            }
            if state.rooms.iter().any(|room| room.name == name) {
                return (409, json!({ "error": "the name is taken" }));
            }
            match make(&mut state, name, asked["labels"].clone()) {
                Ok(room) => (201, shown(room)),
                Err(error) => (500, json!({ "error": error.to_string() })),
            }
        }
        ("GET", ["rooms", id]) => match state.rooms.iter().find(|room| room.id == *id) {
            Some(room) => (200, shown(room)),
            None => nothing(),
        },
        ("POST", ["rooms", id, "sessions"]) => match shared.session(id) {
            Some(key) => (
                201,
                json!({ "session": key, "again": format!("its key is {key}") }),
            ),
            None => nothing(),
        },
        ("DELETE", ["rooms", id]) => {
            let keep = state.fault == Fault::KeepRooms;
            let before = state.rooms.len();
            state.rooms.retain(|room| room.id != *id || keep);
            if keep || state.rooms.len() < before {
                (204, Value::Null)
            } else {
                nothing()
            }
        }
        ("POST", ["rooms", id, "runs"]) => {
            let Some(room) = state.rooms.iter_mut().find(|room| room.id == *id) else {
                return nothing();
            };
            let run = asked["id"].as_str().unwrap_or_default().to_owned();
            room.runs.insert(
                run.clone(),
                Run {
                    asked,
                    exit_code: None,
                    leader: None,
                },
            );
            (201, json!({ "id": run }))
        }
        ("POST", ["rooms", id, "runs", run, "signal"]) => {
            let name = asked["signal"].as_str().unwrap_or_default();
            match find_run(&mut state, id, run) {
                Some(run) if socket::signal(run, name) => (204, Value::Null),
                _ => nothing(),
            }
        }
        ("GET", ["rooms", id, "runs", run]) => {
            let room = state.rooms.iter().find(|room| room.id == *id);
            match room.and_then(|room| room.runs.get(*run)) {
                Some(found) => (200, json!({ "id": run, "exit_code": found.exit_code })),
                None => nothing(),
            }
        }
        _ => nothing(),
    }
}

/// The command that was asked for.
fn command_of(asked: &Value) -> Command {
    let argv = asked["argv"].as_array().into_iter().flatten();
    let mut argv = argv.filter_map(Value::as_str);
    let mut command = Command::new(argv.next().unwrap_or("false"));
    command
        .args(argv)
        .current_dir(asked["cwd"].as_str().unwrap_or("/"));
    for (name, value) in asked["env"].as_object().into_iter().flatten() {
        command.env(name, value.as_str().unwrap_or_default());
    }
    command
}

/// Runs a command to its end and sends what it writes, each piece behind Docker's header.
fn run_in(shared: &Shared, room: &str, run: &str, to: &mut TcpStream) -> std::io::Result<()> {
    let Some(asked) = shared.with_run(room, run, |run| run.asked.clone()) else {
        return write!(to, "HTTP/1.1 404 Said\r\ncontent-length: 0\r\n\r\n");
    };
    write!(
        to,
        "HTTP/1.1 101 Said\r\nconnection: upgrade\r\nupgrade: room-stream\r\n\r\n"
    )?;
    let (code, output) = match command_of(&asked).stdin(Stdio::null()).output() {
        Ok(output) => (
            output.status.code().unwrap_or(255),
            vec![(1u8, output.stdout), (2u8, output.stderr)],
        ),
        Err(error) => (127, vec![(2u8, format!("{error}\n").into_bytes())]),
    };
    for (stream, bytes) in output {
        for piece in bytes.chunks(1 << 16) {
            let length = u32::try_from(piece.len()).unwrap_or_default();
            to.write_all(&[stream, 0, 0, 0])?;
            to.write_all(&length.to_be_bytes())?;
            to.write_all(piece)?;
        }
    }
    shared.with_run(room, run, |run| run.exit_code = Some(code));
    Ok(())
}

//! Providers over HTTP in a running server: the cabin provider in each language, and a room server that remembers all it
//! was sent.
//!
//! The token is a canary: it must stand in its site toward the room server and nowhere else. What a component does that
//! wants more, a hostile one shows; what one that is wrong does, the cabin gone astray.

#![allow(
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking, also in what it calls"
)]

mod astray;
mod bodies;
mod languages;
mod pools;
mod secured;
mod sockets;
mod traced;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use leasehold_parts::{Fault, Rooms, skipped};
use leasehold_tests::canary::{Canaries, contains, files_below};
use leasehold_tests::http::{Answer, text};
use leasehold_tests::server::{Server, component};
use leasehold_tests::wait::until;
use serde_json::{Value, json};

const TOKEN: &str = "canary-Token-5e1f90aa7c";
const PAYLOAD: &str = "canary-Payload-77b0d2";
const API: &str = "cabin";

/// A server, a room server, and an environment of it.
struct House {
    server: Server,
    rooms: Rooms,
    provider: String,
    token: Value,
    environment: String,
    _installed: Arc<Server>,
}

/// A server that has this provider, granted, and stands still. The tests that want it at the same time share it: a component
/// of Python takes many seconds to compile.
fn installed(provider: &str) -> Option<Arc<Server>> {
    static SHARED: Mutex<BTreeMap<String, Weak<Server>>> = Mutex::new(BTreeMap::new());
    if component(provider).is_none() {
        skipped("`cargo xtask components`");
        return None;
    }
    let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(there) = shared.get(provider).and_then(Weak::upgrade) {
        return Some(there);
    }
    let mut server = Server::start()?;
    server.install(provider).expect(201);
    server.signal(rustix::process::Signal::TERM);
    assert!(server.wait_end().success(), "{}", server.log());
    let server = Arc::new(server);
    shared.insert(provider.to_owned(), Arc::downgrade(&server));
    Some(server)
}

impl House {
    /// One of the cabin provider.
    fn new() -> Option<House> {
        House::of(API, TOKEN)
    }

    /// One of this provider, where the environment has this token, whether it is good or not.
    fn of(provider: &str, token: &str) -> Option<House> {
        House::with(provider, token, &["--log-level", "trace"])
    }

    /// The same of a server with these flags.
    fn with(provider: &str, token: &str, flags: &[&str]) -> Option<House> {
        let installed = installed(provider)?;
        let mut server = Server::copy_of(&installed, flags)?;
        server.begin();
        let rooms = Rooms::start(TOKEN).expect("a room server");
        let mut house = House {
            _installed: installed,
            token: server.secret("token", token),
            provider: provider.to_owned(),
            environment: String::new(),
            server,
            rooms,
        };
        house.environment = text(&house.draft("rooms", &json!({})).expect(201)["id"]);
        Some(house)
    }

    /// A draft of this name, with these labels of the administrator's own.
    fn written(&self, name: &str, labels: &Value) -> Value {
        let payload = self.server.secret(&format!("payload of {name}"), PAYLOAD);
        let mut config = json!({ "endpoint": self.rooms.url(), "token": self.token });
        if labels.as_object().is_some_and(|labels| !labels.is_empty()) {
            config["labels"] = labels.clone();
        }
        json!({
            "name": name, "driver": "sandbox", "provider": self.provider, "config": config,
            "envVars": { "PAYLOAD": payload },
        })
    }

    /// Asks for an environment as it is written.
    fn draft(&self, name: &str, labels: &Value) -> Answer {
        self.server.environment(&self.written(name, labels))
    }

    /// What the provider's own probe finds, as step, severity and message: of a draft, which is never leased.
    fn probe(&self, name: &str, labels: &Value) -> (Value, Vec<[String; 3]>) {
        let company = self.server.company();
        let path = format!("/api/companies/{company}/environments/probe-config");
        let draft = self.written(name, labels);
        let probed = self.server.call("POST", &path, Some(&draft)).expect(200);
        let findings = probed["details"]["findings"].as_array().cloned();
        let told = findings
            .iter()
            .flatten()
            .map(|one| ["step", "severity", "message"].map(|part| text(&one[part])))
            .collect();
        (probed, told)
    }

    fn acquire(&self) -> Value {
        self.server.acquire(&self.environment).expect(201)
    }

    /// Requests that would change something, as method and path.
    fn acts(&self) -> Vec<String> {
        let heard = self.rooms.heard();
        heard
            .iter()
            .filter(|one| one.method != "GET")
            .map(|one| format!("{} {}", one.method, one.path))
            .collect()
    }

    /// The token is nowhere in what the server keeps: database, log, cache.
    fn keeps_no_secret(&self) {
        let canaries = Canaries::new(vec![("token", TOKEN.into()), ("payload", PAYLOAD.into())]);
        let kept = files_below(self.server.path());
        let log = kept
            .iter()
            .any(|(path, bytes)| path.ends_with("log") && contains(bytes, b"\"DEBUG\""));
        assert!(log, "the log is looked at, at its most talkative");
        canaries.absent_from(&kept);
    }
}

#[test]
fn a_release_is_believed_only_once_the_host_itself_finds_the_room_gone() {
    let Some(house) = House::new() else { return };
    let id = text(&house.acquire()["id"]);
    house.rooms.set_fault(Fault::KeepRooms);
    let waiting = house.server.release(&id);
    assert_eq!(waiting["status"], "pending_cleanup", "{waiting}");
    assert!(
        text(&waiting["failureReason"]).contains("room-1"),
        "{waiting}"
    );
    house.rooms.set_fault(Fault::None);
    house.server.wait_lease(&id, "released");
    assert_eq!(house.rooms.rooms(), Vec::<String>::new());
}

#[test]
fn a_probe_whose_own_lease_is_ended_by_somebody_says_that_and_speaks_of_no_epoch() {
    let Some(house) = House::new() else { return };
    house.rooms.set_fault(Fault::LoseCreate);
    let probed = std::thread::scope(|scope| {
        let path = format!("/api/environments/{}/probe", house.environment);
        let server = &house.server;
        let probing = scope.spawn(move || server.call("POST", &path, None));
        until("the room", || (house.rooms.made() == 1).then_some(()));
        let lease = text(&server.leases()[0]["id"]);
        let ended = format!("/api/environment-leases/{lease}/release");
        let releasing = scope.spawn(move || server.call("POST", &ended, None));
        let probed = probing.join().expect("an answer");
        house.rooms.set_fault(Fault::None);
        releasing.join().expect("an answer");
        house.server.wait_lease(&lease, "released");
        probed.expect(200)
    });
    assert_eq!(probed["ok"], false, "{probed}");
    let finding = &probed["details"]["findings"][0];
    assert_eq!(finding["step"], "acquire", "{probed}");
    let told = text(&finding["message"]);
    assert!(told.contains("that lease was ended"), "{probed}");
    assert!(!probed.to_string().contains("epoch"), "{probed}");
    assert_eq!(house.rooms.rooms(), Vec::<String>::new());
}

#[test]
fn an_address_that_is_none_is_not_saved() {
    let Some(house) = House::new() else { return };
    let token = house.server.secret("another", TOKEN);
    for url in [
        "http://user:pw@127.0.0.1/",
        "unix:///run/x.sock",
        "http://127.0.0.1/?a=b",
    ] {
        let draft = json!({
            "name": url.len().to_string(), "driver": "sandbox", "provider": API,
            "config": { "endpoint": url, "token": token },
        });
        let refused = house.server.environment(&draft);
        assert_eq!(refused.status, 422, "{}", refused.body);
        let pointer = &refused.json()["details"]["violations"][0]["pointer"];
        assert_eq!(pointer, "/config/endpoint", "{}", refused.body);
    }
}

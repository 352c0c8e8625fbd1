//! A provider over HTTP in a running server: the cabin provider and a room server that remembers all it was sent.
//!
//! The token is a canary: it must stand in its site toward the room server and nowhere else. What a component does that
//! wants more, a hostile one shows.

#![allow(
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking, also in what it calls"
)]

use leasehold_parts::{Fault, Rooms};
use leasehold_tests::canary::{Canaries, contains, files_below};
use leasehold_tests::http::{Answer, text};
use leasehold_tests::server::Server;
use leasehold_tests::wait::until;
use serde_json::{Value, json};

const TOKEN: &str = "canary-Token-5e1f90aa7c";
const PAYLOAD: &str = "canary-Payload-77b0d2";
const API: &str = "cabin";

/// A server, a room server, and an environment of it.
struct House {
    server: Server,
    rooms: Rooms,
    environment: String,
}

impl House {
    fn new() -> Option<House> {
        House::with(TOKEN)
    }

    /// As [`House::new`], where the environment has this token, whether it is good or not.
    fn with(token: &str) -> Option<House> {
        let server = Server::start_with(&["--log-level", "trace"])?;
        let rooms = Rooms::start(TOKEN).expect("a room server");
        server.install(API).expect(201);
        let reference = server.secret("token", token);
        let payload = server.secret("payload", PAYLOAD);
        let draft = json!({
            "name": "rooms", "driver": "sandbox", "provider": API,
            "config": { "endpoint": rooms.url(), "token": reference },
            "envVars": { "PAYLOAD": payload },
        });
        let environment = text(&server.environment(&draft).expect(201)["id"]);
        Some(House {
            server,
            rooms,
            environment,
        })
    }

    fn acquire(&self) -> Value {
        self.server.acquire(&self.environment).expect(201)
    }

    fn post(&self, path: &str) -> Answer {
        self.server.call("POST", path, None)
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
            .any(|(path, bytes)| path.ends_with("log") && contains(bytes, b"TRACE"));
        assert!(log, "the log is looked at, at its most talkative");
        canaries.absent_from(&kept);
    }
}

#[test]
fn a_room_is_leased_used_and_released_and_the_token_stands_in_its_site_alone() {
    let Some(house) = House::new() else { return };
    let server = &house.server;
    let probed = house
        .post(&format!("/api/environments/{}/probe", house.environment))
        .expect(200);
    assert_eq!(probed["ok"], true, "{probed}");
    assert_eq!(
        house.rooms.rooms(),
        Vec::<String>::new(),
        "a probe leaves nothing"
    );

    let lease = house.acquire();
    let id = text(&lease["id"]);
    assert_eq!(house.rooms.rooms().len(), 1);
    assert_eq!(
        lease["proof"], "owned",
        "the host itself found its label: {lease}"
    );
    let seen = server.get(&format!("/api/environment-leases/{id}/observation"));
    assert_eq!(seen["condition"], "ready", "{seen}");

    let script = "printf %s \"$PAYLOAD\" | wc -c; echo aside >&2; pwd >where; exit 7";
    let ran = server
        .exec(&id, &json!({ "argv": ["sh", "-c", script] }))
        .expect(200);
    assert_eq!(ran["execution"]["exitCode"], 7, "{ran}");
    assert_eq!(text(&ran["stdout"]).trim(), PAYLOAD.len().to_string());
    assert_eq!(text(&ran["stderr"]), "aside\n");

    let released = server.release(&id);
    assert_eq!(released["status"], "released", "{released}");
    assert_eq!(house.rooms.rooms(), Vec::<String>::new());

    // On the wire: in its header and nowhere else; the payload in a body for the lease's own and nowhere else.
    let mut payloads = 0;
    for heard in house.rooms.heard() {
        assert_eq!(heard.header("authorization"), format!("Bearer {TOKEN}"));
        for (name, value) in &heard.headers {
            assert!(
                name == "authorization" || !value.contains(TOKEN),
                "{heard:?}"
            );
            assert!(
                !value.contains(PAYLOAD) && !value.contains("lhp-"),
                "{heard:?}"
            );
        }
        assert!(
            !heard.path.contains(TOKEN) && !heard.path.contains("lhp-"),
            "{heard:?}"
        );
        assert!(!contains(&heard.body, TOKEN.as_bytes()), "{heard:?}");
        assert!(
            !contains(&heard.body, b"lhp-"),
            "no placeholder leaves: {heard:?}"
        );
        payloads += usize::from(contains(&heard.body, PAYLOAD.as_bytes()));
    }
    assert_eq!(payloads, 1, "the command had its variable");
    house.keeps_no_secret();
    let answers = format!(
        "{lease}{probed}{seen}{ran}{released}{}",
        server.get("/api/activity")
    );
    assert!(
        !answers.contains(TOKEN) && !answers.contains(PAYLOAD),
        "{answers}"
    );
}

#[test]
fn a_backend_that_gives_the_token_back_gives_it_to_nobody() {
    let Some(house) = House::new() else { return };
    house.rooms.set_fault(Fault::Echo);
    let lease = house.acquire();
    let id = text(&lease["id"]);
    let ran = house
        .server
        .exec(&id, &json!({ "argv": ["true"] }))
        .expect(200);
    // One that fails is told with what the backend said.
    house.rooms.make_room("other");
    let released = house.server.release(&id);
    assert_eq!(released["status"], "released", "{released}");
    assert!(!format!("{lease}{ran}{released}").contains(TOKEN));
    house.keeps_no_secret();
}

#[test]
fn a_token_that_is_wrong_is_said_to_be_and_nothing_is_made() {
    let Some(house) = House::with("canary-Wrong-0123456789") else {
        return;
    };
    let refused = house.server.acquire(&house.environment);
    assert!(refused.status >= 400, "{}", refused.body);
    assert!(refused.body.contains("401"), "{}", refused.body);
    assert!(!refused.body.contains("canary-Wrong"), "{}", refused.body);
    assert_eq!(house.acts(), Vec::<String>::new());
    assert_eq!(house.server.leases()[0]["status"], "failed");
    // Rotated, it is good from the next call on.
    let secrets = format!("/api/companies/{}/secrets", house.server.company());
    let all = house.server.get(&secrets);
    let token = all
        .as_array()
        .into_iter()
        .flatten()
        .find(|s| s["name"] == "token");
    let id = text(&token.expect("it is there")["id"]);
    house
        .server
        .call(
            "POST",
            &format!("/api/secrets/{id}/versions"),
            Some(&json!({ "value": TOKEN })),
        )
        .expect(201);
    house.acquire();
}

#[test]
fn a_backend_that_is_down_keeps_the_lease_waiting_in_sight_until_it_is_up() {
    let Some(house) = House::new() else { return };
    let id = text(&house.acquire()["id"]);
    house.rooms.set_fault(Fault::Down);
    let seen = house.server.call(
        "GET",
        &format!("/api/environment-leases/{id}/observation"),
        None,
    );
    assert!(seen.status >= 500, "{}", seen.body);
    let waiting = house.server.release(&id);
    assert_eq!(waiting["status"], "pending_cleanup", "{waiting}");
    assert_eq!(house.rooms.rooms().len(), 1);
    house.rooms.set_fault(Fault::None);
    house.server.wait_lease(&id, "released");
    assert_eq!(house.rooms.rooms(), Vec::<String>::new());
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
fn killed_while_a_room_is_made_the_server_finds_it_again_and_there_are_never_two() {
    let Some(mut house) = House::new() else {
        return;
    };
    house.rooms.set_fault(Fault::LoseCreate);
    std::thread::scope(|scope| {
        let asked = scope.spawn(|| {
            let path = format!("/api/environments/{}/leases", house.environment);
            house.server.try_call("POST", &path, Some(&json!({})))
        });
        until("the room", || (house.rooms.made() == 1).then_some(()));
        house.server.signal(rustix::process::Signal::KILL);
        assert!(asked.join().expect("no panic").is_none(), "nobody answered");
    });
    house.rooms.set_fault(Fault::None);
    house.server.restart();
    let id = text(&house.server.leases()[0]["id"]);
    let adopted = house.server.wait_lease(&id, "active");
    assert_eq!((house.rooms.made(), house.rooms.rooms().len()), (1, 1));
    assert_eq!(adopted["proof"], "owned", "{adopted}");
    let ran = house
        .server
        .exec(&id, &json!({ "argv": ["true"] }))
        .expect(200);
    assert_eq!(ran["execution"]["exitCode"], 0, "{ran}");
    assert_eq!(house.server.release(&id)["status"], "released");
    assert_eq!((house.rooms.made(), house.rooms.rooms().len()), (1, 0));
}

#[test]
fn a_room_whose_making_was_never_answered_is_found_by_its_label_and_removed() {
    let Some(house) = House::new() else { return };
    house.rooms.set_fault(Fault::LoseCreate);
    let path = format!("/api/environments/{}/leases", house.environment);
    let body = json!({ "timeoutMs": 1000 });
    let lost = house.server.call("POST", &path, Some(&body));
    assert!(lost.status >= 500, "{}", lost.body);
    let id = text(&house.server.leases()[0]["id"]);
    let ended = house.server.wait_lease(&id, "released");
    assert_eq!(
        (house.rooms.made(), house.rooms.rooms().len()),
        (1, 0),
        "{ended}"
    );
    house.rooms.set_fault(Fault::None);
}

#[test]
fn a_component_that_wants_somebody_elses_room_or_the_token_elsewhere_gets_neither() {
    let Some(house) = House::new() else { return };
    let server = &house.server;
    let theirs = house.rooms.make_room("theirs");
    server.install("hostile-room-thief").expect(201);
    let reference = server.secret("stolen", TOKEN);
    for how in ["room", "body", "url", "header", "label", "origin"] {
        let draft = json!({
            "name": how, "driver": "sandbox", "provider": "hostile-room-thief",
            "config": {
                "endpoint": house.rooms.url(), "token": reference, "room": theirs, "how": how,
            },
        });
        let environment = text(&server.environment(&draft).expect(201)["id"]);
        let before = house.rooms.heard().len();
        let refused = server.acquire(&environment);
        assert_eq!(refused.code(), "egress_denied", "{how}: {}", refused.body);
        assert_eq!(house.rooms.heard().len(), before, "{how}: nothing was sent");
    }
    assert_eq!(house.rooms.rooms(), [theirs.as_str()]);
    // With a room of its own, after it journalled somebody else's, it has no more right to that one.
    let draft = json!({
        "name": "release", "driver": "sandbox", "provider": "hostile-room-thief",
        "config": {
            "endpoint": house.rooms.url(), "token": reference, "room": theirs, "how": "release",
        },
    });
    let environment = text(&server.environment(&draft).expect(201)["id"]);
    let lease = server.acquire(&environment).expect(201);
    assert_eq!(lease["proof"], "claimed", "it has no checks: {lease}");
    let waiting = server.release(&text(&lease["id"]));
    assert_eq!(waiting["status"], "pending_cleanup", "{waiting}");
    let why = text(&waiting["failureReason"]);
    assert!(why.contains("this lease's own"), "{waiting}");
    assert!(house.rooms.rooms().contains(&theirs));
    house.keeps_no_secret();
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

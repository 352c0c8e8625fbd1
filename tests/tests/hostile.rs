//! Hostile components, installed in a running server and used as a client does: each comes to its typed end, and the
//! server serves on.

#![allow(
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking, also in what it calls"
)]

use leasehold_tests::http::{Answer, text};
use leasehold_tests::machine::Machine;
use leasehold_tests::server::Server;
use serde_json::{Value, json};

/// A server with the null provider beside whatever is hostile.
struct House {
    server: Server,
    null: String,
}

impl House {
    fn new() -> Option<House> {
        let server = Server::start()?;
        server.install("null").expect(201);
        let draft =
            json!({ "name": "null", "driver": "sandbox", "provider": "null", "config": {} });
        let null = text(&server.environment(&draft).expect(201)["id"]);
        Some(House { server, null })
    }

    /// An environment of a hostile provider that spoils the export named.
    fn environment(&self, name: &str, spoilt: &str) -> String {
        self.server.install(name).expect(201);
        let draft = json!({ "name": name, "driver": "sandbox", "provider": name, "config": { "at": spoilt } });
        text(&self.server.environment(&draft).expect(201)["id"])
    }

    fn acquire(&self, environment: &str, body: &Value) -> Answer {
        self.server.call(
            "POST",
            &format!("/api/environments/{environment}/leases"),
            Some(body),
        )
    }

    /// The server does what it did before.
    #[track_caller]
    fn serves_on(&self) {
        let lease = text(&self.server.acquire(&self.null).expect(201)["id"]);
        assert_eq!(self.server.release(&lease)["status"], "released");
        assert_eq!(self.server.get("/readyz")["status"], "ready");
    }
}

#[test]
fn each_misdeed_in_acquire_comes_to_its_typed_end_and_the_server_serves_on() {
    let Some(house) = House::new() else { return };
    for (name, code, detail) in [
        (
            "hostile-endless-loop",
            "component_limit",
            json!({ "limit": "cpu" }),
        ),
        (
            "hostile-endless-wait",
            "component_timeout",
            json!({ "phase": "call" }),
        ),
        (
            "hostile-endless-log",
            "component_limit",
            json!({ "limit": "cpu" }),
        ),
        (
            "hostile-memory-one",
            "component_limit",
            json!({ "limit": "memory" }),
        ),
        ("hostile-huge-strings", "component_limit", json!({})),
        ("hostile-huge-lists", "component_limit", json!({})),
        ("hostile-deep-recursion", "component_trapped", json!({})),
        ("hostile-trap-everywhere", "component_trapped", json!({})),
        ("hostile-huge-handle", "provider_failed", json!({})),
    ] {
        let environment = house.environment(name, "acquire");
        // Only the wait is to reach its deadline: what computes has its own clock.
        let time = if name == "hostile-endless-wait" {
            1_000
        } else {
            50_000
        };
        let answer = house.acquire(&environment, &json!({ "timeoutMs": time }));
        let said = answer.json();
        assert_eq!(answer.code(), code, "{name}: {said}");
        for (key, value) in detail.as_object().expect("an object") {
            assert_eq!(&said["details"][key], value, "{name}: {said}");
        }
        assert!(
            answer.body.len() < 64 << 10,
            "{name} says {} bytes",
            answer.body.len()
        );
        // What it may have left is looked for, by its own list, until it is certain that there is nothing.
        let lease = text(
            &house
                .server
                .get(&format!("/api/environments/{environment}/leases"))["items"][0]["id"],
        );
        house.server.wait_lease(&lease, "failed");
        house.serves_on();
    }
}

#[test]
fn a_component_with_a_foreign_import_is_refused_by_its_name() {
    let Some(house) = House::new() else { return };
    let refused = house.server.install("hostile-foreign-import");
    assert_eq!(
        (refused.status, refused.code().as_str()),
        (422, "invalid_component"),
        "{}",
        refused.body
    );
    assert!(
        text(&refused.json()["error"]).contains("acme:drill/bit"),
        "{}",
        refused.body
    );
    house.serves_on();
}

#[test]
fn a_provider_that_traps_in_release_leaves_a_lease_that_waits_in_sight_and_can_be_abandoned() {
    let Some(house) = House::new() else { return };
    let environment = house.environment("hostile-trap-everywhere", "release");
    let lease = text(&house.acquire(&environment, &json!({})).expect(201)["id"]);
    let waiting = house.server.release(&lease);
    assert_ne!(waiting["status"], "released", "{waiting}");
    assert!(
        text(&waiting["failureReason"]).contains("panics in release"),
        "{waiting}"
    );
    let path = format!("/api/environment-leases/{lease}/abandon");
    let abandoned = house
        .server
        .call("POST", &path, Some(&json!({ "reason": "it cannot" })))
        .expect(200);
    assert_eq!(abandoned["status"], "abandoned", "{abandoned}");
    house.serves_on();
}

#[test]
fn a_provider_that_traps_in_execution_and_files_gives_typed_errors_and_keeps_its_lease() {
    let Some(house) = House::new() else { return };
    let environment = house.environment("hostile-trap-everywhere", "start");
    let lease = text(&house.acquire(&environment, &json!({})).expect(201)["id"]);
    let ran = house.server.exec(&lease, &json!({ "argv": ["true"] }));
    assert_eq!(ran.code(), "component_trapped", "{}", ran.body);
    // Nobody can tell whether it started something before it crashed.
    let execution = &house.server.executions(&lease)[0];
    assert_eq!(execution["outcome"], "unknown", "{execution}");
    assert_eq!(house.server.release(&lease)["status"], "released");
    house.serves_on();
}

#[test]
fn a_target_that_nobody_configured_is_refused_and_one_that_is_moved_is_not_stored() {
    let Some(machine) = Machine::start() else {
        return;
    };
    let Some(house) = House::new() else { return };
    let server = &house.server;
    let key = server.secret("key", &machine.sshd.key().private);
    let target = machine.target(&key, machine.sshd.port());
    let draft = |name: &str| json!({ "name": name, "driver": "ssh", "provider": name, "config": { "target": target, "at": "acquire" } });
    server.install("hostile-stray-target").expect(201);
    let environment = text(
        &server
            .environment(&draft("hostile-stray-target"))
            .expect(201)["id"],
    );
    let stray = server.acquire(&environment);
    assert_eq!(stray.code(), "egress_denied", "{}", stray.body);

    server.install("hostile-moving-check-config").expect(201);
    let moved = server.environment(&draft("hostile-moving-check-config"));
    assert_eq!(
        (moved.status, moved.code().as_str()),
        (422, "invalid"),
        "{}",
        moved.body
    );
    assert_eq!(
        moved.json()["details"]["violations"][0]["pointer"],
        "/config/target",
        "{}",
        moved.body
    );
    let stored = server
        .get(&format!("/api/companies/{}/environments", server.company()))
        .to_string();
    assert!(!stored.contains("attacker.example"), "{stored}");
    house.serves_on();
}

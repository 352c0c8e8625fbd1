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
use leasehold_tests::wait::until;
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

    /// A hostile environment that spoils the exports named, as it is asked for.
    fn draft(name: &str, spoilt: &str) -> Value {
        json!({
            "name": format!("{name} {spoilt}"),
            "driver": "sandbox",
            "provider": name,
            "config": { "at": spoilt },
        })
    }

    /// An environment of a hostile provider that spoils the exports named.
    #[track_caller]
    fn environment(&self, name: &str, spoilt: &str) -> String {
        self.server.install(name).expect(201);
        let made = self.server.environment(&House::draft(name, spoilt));
        text(&made.expect(201)["id"])
    }

    fn acquire(&self, environment: &str, body: &Value) -> Answer {
        self.server.call(
            "POST",
            &format!("/api/environments/{environment}/leases"),
            Some(body),
        )
    }

    /// The newest lease of an environment.
    fn newest(&self, environment: &str) -> Value {
        let leases = format!("/api/environments/{environment}/leases");
        self.server.get(&leases)["items"][0].clone()
    }

    /// The server does what it did before.
    #[track_caller]
    fn serves_on(&self) {
        let lease = text(&self.server.acquire(&self.null).expect(201)["id"]);
        assert_eq!(self.server.release(&lease)["status"], "released");
        assert_eq!(self.server.get("/readyz")["status"], "ready");
    }
}

/// The code of a refusal, which must be a small one.
#[track_caller]
fn code_of(what: &str, answer: &Answer) -> String {
    let size = answer.body.len();
    assert!(size < 64 << 10, "{what} says {size} bytes");
    answer.code()
}

#[test]
fn each_misdeed_in_acquire_comes_to_its_typed_end_and_the_server_serves_on() {
    let Some(house) = House::new() else { return };
    let mut left = Vec::new();
    for (name, code, detail, value) in [
        ("endless-loop", "component_limit", "limit", "cpu"),
        ("endless-wait", "component_timeout", "phase", "call"),
        ("endless-log", "component_limit", "limit", "cpu"),
        ("memory-one", "component_limit", "limit", "memory"),
        ("memory-many", "component_limit", "limit", "memory"),
        ("huge-strings", "component_limit", "limit", "copied-bytes"),
        ("huge-lists", "component_limit", "limit", "memory"),
        (
            "deep-recursion",
            "component_trapped",
            "trap",
            "stack-overflow",
        ),
        (
            "trap-everywhere",
            "component_trapped",
            "trap",
            "unreachable",
        ),
        ("huge-handle", "provider_failed", "code", "provider_failed"),
    ] {
        let environment = house.environment(&format!("hostile-{name}"), "acquire");
        // Only the wait is to reach its deadline: what computes has its own clock.
        let time = match name {
            "endless-wait" => 1_000,
            _ => 50_000,
        };
        let answer = house.acquire(&environment, &json!({ "timeoutMs": time }));
        let said = answer.json();
        assert_eq!(code_of(name, &answer), code, "{name}: {said}");
        assert_eq!(said["details"][detail], value, "{name}: {said}");
        if name == "huge-handle" {
            assert!(text(&said["error"]).contains("acquire.handle"), "{said}");
        }
        house.serves_on();
        left.push((name, text(&house.newest(&environment)["id"])));
    }
    // None of them reached anything, so that nothing can be left.
    for (name, lease) in left {
        let failed = house.server.lease(&lease);
        assert_eq!(failed["status"], "failed", "{name}: {failed}");
        assert!(
            !text(&failed["failureReason"]).is_empty(),
            "{name}: {failed}"
        );
    }
    house.serves_on();
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
fn a_provider_that_traps_before_there_is_a_lease_is_not_stored_or_found_to_be_unusable() {
    let Some(house) = House::new() else { return };
    let server = &house.server;
    let silent = server.install("hostile-trap-describe");
    assert_eq!(code_of("describe", &silent), "invalid_component");
    assert!(
        silent.body.contains("panics in describe"),
        "{}",
        silent.body
    );
    house.serves_on();

    server.install("hostile-trap-everywhere").expect(201);
    let unchecked = House::draft("hostile-trap-everywhere", "check-config");
    let refused = server.environment(&unchecked);
    assert_eq!(code_of("check-config", &refused), "component_trapped");
    assert!(
        refused.body.contains("panics in check-config"),
        "{}",
        refused.body
    );
    let company = format!("/api/companies/{}/environments", server.company());
    let stored = server.get(&company);
    let saved = stored.as_array().into_iter().flatten();
    let saved = saved.filter(|one| one["driver"] != "local").count();
    assert_eq!(saved, 1, "{stored}");
    house.serves_on();

    let unprobed = House::draft("hostile-trap-everywhere", "probe");
    let report = server
        .call("POST", &format!("{company}/probe-config"), Some(&unprobed))
        .expect(200);
    assert_eq!(report["ok"], false, "{report}");
    let finding = &report["details"]["findings"][0];
    assert_eq!(
        (&finding["step"], &finding["severity"]),
        (&json!("provider"), &json!("failure")),
        "{report}"
    );
    let message = text(&finding["message"]);
    assert!(message.contains("panics in probe"), "{report}");
    house.serves_on();
}

#[test]
fn a_provider_that_traps_in_its_list_leaves_a_lease_that_waits_in_sight_with_the_reason() {
    let Some(machine) = Machine::start() else {
        return;
    };
    let Some(house) = House::new() else { return };
    let server = &house.server;
    server.install("hostile-trap-behind").expect(201);
    let key = server.secret("key", &machine.sshd.key().private);
    let mut draft = House::draft("hostile-trap-behind", "acquire list");
    draft["driver"] = "ssh".into();
    draft["config"]["target"] = machine.target(&key, machine.sshd.port());
    let environment = text(&server.environment(&draft).expect(201)["id"]);
    let answer = house.acquire(&environment, &json!({}));
    assert_eq!(code_of("acquire", &answer), "component_trapped");
    house.serves_on();
    // It acted before it crashed: only its list could say that it left nothing.
    let lease = text(&house.newest(&environment)["id"]);
    let waiting = until("the list to have been asked for", || {
        let lease = server.lease(&lease);
        let reason = text(&lease["failureReason"]);
        reason.contains("panics in list").then_some(lease)
    });
    assert_eq!(waiting["status"], "pending_cleanup", "{waiting}");
    house.serves_on();
}

/// Every export that the server calls on a lease, one after the other, on one lease. (`attach`, `suspend` and `resume`
/// it does not call yet, and `resize` not of a provider without terminals: the runtime's tests call them.)
#[test]
fn a_provider_that_traps_in_each_call_on_a_lease_gives_typed_errors_and_keeps_the_lease() {
    let Some(house) = House::new() else { return };
    let server = &house.server;
    let spoilt = "keep-alive inspect put get start state-of signal";
    let environment = house.environment("hostile-trap-everywhere", spoilt);
    let lease = house.acquire(&environment, &json!({ "ttlSeconds": 600 }));
    let before = lease.expect(201);
    let lease = text(&before["id"]);
    let path = |what: &str| format!("/api/environment-leases/{lease}/{what}");
    let check = |export: &str, answer: &Answer| {
        let code = code_of(export, answer);
        assert_eq!(code, "component_trapped", "{export}: {}", answer.body);
        let said = format!("panics in {export}");
        assert!(answer.body.contains(&said), "{export}: {}", answer.body);
        let now = server.lease(&lease);
        assert_eq!(
            (&now["status"], &now["expiresAt"]),
            (&json!("active"), &before["expiresAt"]),
            "{export}: {now}"
        );
        house.serves_on();
    };

    let longer = json!({ "ttlSeconds": 3600 });
    let renewed = server.call("POST", &path("renew"), Some(&longer));
    check("keep-alive", &renewed);
    check("inspect", &server.call("GET", &path("observation"), None));
    let files = path("files?path=.");
    // An archive of nothing: two blocks of zeros.
    let put = server.upload("PUT", &files, "application/x-tar", &[0; 1024]);
    check("put", &put);
    check("get", &server.call("GET", &files, None));
    check("start", &server.exec(&lease, &json!({ "argv": ["true"] })));

    // Nobody can tell whether it started something before it crashed, and whoever is asked crashes too.
    let id = text(&server.executions(&lease)[0]["id"]);
    let asked = server.get(&format!("/api/executions/{id}?refresh=true"));
    assert_eq!(asked["outcome"], "unknown", "{asked}");
    let log = server.log();
    assert!(log.contains("panics in state-of"), "it was asked: {log}");
    let term = json!({ "signal": "TERM" });
    let signal = server.call("POST", &format!("/api/executions/{id}/signal"), Some(&term));
    check("signal", &signal);

    assert_eq!(server.release(&lease)["status"], "released");
    let after = server.get(&format!("/api/executions/{id}"));
    assert_eq!(after["outcome"], "unknown", "{after}");
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
    assert!(stray.body.contains("/elsewhere"), "{}", stray.body);
    assert!(
        machine.sshd.processes().is_empty(),
        "nobody knocked: {:?}",
        machine.sshd.processes()
    );
    let refused = server.get("/api/activity?action=egress.denied");
    let refused = &refused["items"][0];
    assert_eq!(refused["outcome"], "denied", "{refused}");
    assert_eq!(refused["subjectKind"], "lease", "{refused}");
    assert_eq!(refused["companyId"], server.company(), "{refused}");
    let details = &refused["details"];
    assert_eq!(details["plugin"], "hostile-stray-target", "{refused}");
    assert_eq!(details["environment"], *environment, "{refused}");
    assert!(text(&details["reason"]).contains("/elsewhere"), "{refused}");
    house.serves_on();

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

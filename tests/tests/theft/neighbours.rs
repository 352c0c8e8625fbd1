//! Rooms of others: of other leases, and of nobody's.

use leasehold_parts::Fault;
use leasehold_tests::http::text;
use serde_json::{Value, json};

use crate::den::{Den, came};

/// A lease of the cabin provider at the same room server, with the same key: whose room it is only the host knows.
fn neighbour(den: &Den) -> Value {
    let server = den.server();
    server.install("cabin").expect(201);
    let draft = json!({
        "name": "neighbour", "driver": "sandbox", "provider": "cabin",
        "config": { "endpoint": den.rooms.url(), "token": den.token },
    });
    let environment = text(&server.environment(&draft).expect(201)["id"]);
    server.acquire(&environment).expect(201)
}

#[test]
fn a_room_of_another_lease_and_one_of_nobodys_stay_whatever_is_tried() {
    let Some(den) = Den::of("neighbour-thief") else {
        return;
    };
    let theirs = neighbour(&den);
    let nobodys = den.rooms.make_room("nobody's");
    let before = den.rooms.rooms();
    let tries = den.live(&den.environment(json!({})));
    assert_eq!(den.rooms.rooms(), before, "all that was there is there");
    // What a server answers to one who says it himself was not seen being made.
    let (children, tries): (Vec<_>, Vec<_>) =
        tries.into_iter().partition(|one| one.name == "child");
    for one in children.iter().filter(|one| one.export != "inspect") {
        assert!(one.came.contains("what the request said itself"), "{one:?}");
    }
    den.refused(&tries, &[]);
    assert!(
        came(&tries, "room").contains("this lease's own"),
        "{tries:?}"
    );
    for sent in den.rooms.heard() {
        let acts = !matches!(sent.method.as_str(), "GET" | "HEAD");
        for id in ["room-1", &nobodys] {
            let at = format!("/v1/rooms/{id}");
            assert!(!acts || !sent.path.starts_with(&at), "{sent:?}");
        }
    }
    let ran = den
        .server()
        .exec(&text(&theirs["id"]), &json!({ "argv": ["true"] }))
        .expect(200);
    assert_eq!(ran["execution"]["exitCode"], 0, "{ran}");
    den.nothing_leaked();
}

#[test]
fn a_room_that_one_lease_has_is_not_made_for_another_and_that_is_recorded() {
    let Some(den) = Den::of("echo-plain") else {
        return;
    };
    let server = den.server();
    let first = neighbour(&den);
    den.rooms.set_fault(Fault::GiveFirst);
    let environment = text(
        &server.get(&format!(
            "/api/companies/{}/environments?driver=sandbox",
            server.company()
        ))[0]["id"],
    );
    let refused = server.acquire(&environment);
    assert_eq!(refused.code(), "outcome_unknown", "{}", refused.body);
    // Whose it is the record says, and nobody else: it may be another company's.
    assert!(
        !refused.body.contains(&text(&first["id"])),
        "{}",
        refused.body
    );
    den.rooms.set_fault(Fault::None);
    let second = server
        .leases()
        .into_iter()
        .find(|lease| lease["id"] != first["id"]);
    let second = text(&second.expect("it is on record")["id"]);
    let activity = server.get(&format!("/api/activity?limit=100&subject={second}"));
    let refusal = activity["items"].as_array().into_iter().flatten();
    let refusal: Vec<_> = refusal
        .filter(|one| one["action"] == "lease.claim_refused")
        .collect();
    assert_eq!(refusal.len(), 1, "{activity}");
    assert_eq!(refusal[0]["details"]["holder"], first["id"], "{activity}");
    // What it did not get it does not tear down either.
    let path = format!("/api/environment-leases/{second}/release");
    server.call("POST", &path, None).expect(200);
    assert_eq!(den.rooms.rooms().len(), 1);
    let ran = server
        .exec(&text(&first["id"]), &json!({ "argv": ["true"] }))
        .expect(200);
    assert_eq!(ran["execution"]["exitCode"], 0, "{ran}");
    assert_eq!(server.release(&text(&first["id"]))["status"], "released");
}

#[test]
fn a_room_that_a_component_is_told_of_is_its_own_at_no_time_whatever_it_says() {
    let Some(den) = Den::of("room-thief") else {
        return;
    };
    let server = den.server();
    let theirs = den.rooms.make_room("theirs");
    let is_untouched = || {
        assert!(den.rooms.rooms().contains(&theirs));
        let at = format!("/v1/rooms/{theirs}");
        for sent in den.rooms.heard() {
            assert!(!sent.path.starts_with(&at), "{sent:?}");
        }
    };
    let environment = den.environment(json!({ "room": theirs }));
    let (lease, printed) = den.look_while_it_runs(&environment);
    let payload = format!("PAYLOAD={}", den.payload);
    assert!(
        printed.contains(&payload) && !printed.contains("lhp-"),
        "{printed}"
    );
    assert_eq!(
        server.lease(&lease)["proof"],
        "claimed",
        "it names no checks"
    );
    let tries = den.live(&environment);
    den.refused(&tries, &[]);
    for export in ["acquire, before", "acquire", "inspect", "start", "release"] {
        let at: Vec<_> = tries
            .iter()
            .filter(|one| one.export == export)
            .cloned()
            .collect();
        for name in ["room", "command", "url", "header", "origin"] {
            came(&at, name);
        }
    }
    for name in ["body", "label"] {
        came(&tries, name);
    }
    is_untouched();

    let how = |how: &str| {
        let mut draft = den.draft(json!({ "room": theirs, "how": how }));
        draft["name"] = how.into();
        let made = den.heard.keep(server.environment(&draft));
        text(&made.1["id"])
    };
    // It gives up at once: nothing was made, and the refusal is what is answered.
    let made = den.rooms.made();
    let refused = server.acquire(&how("at once"));
    assert_eq!(refused.code(), "egress_denied", "{}", refused.body);
    den.heard.keep(refused);
    assert_eq!(den.rooms.made(), made);
    // It would end somebody else's room in place of its own.
    let lease = server.acquire(&how("in place of its own")).expect(201);
    let waiting = server.release(&text(&lease["id"]));
    assert_eq!(waiting["status"], "pending_cleanup", "{waiting}");
    let why = text(&waiting["failureReason"]);
    assert!(why.contains("this lease's own"), "{waiting}");
    is_untouched();
    den.heard.read_all();
    den.nothing_leaked_but(&["payload"], &["authorization"]);
}

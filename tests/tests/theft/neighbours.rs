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
    let environment =
        text(&server.get(&format!("/api/companies/{}/environments", server.company()))[0]["id"]);
    let refused = server.acquire(&environment);
    assert_eq!(refused.code(), "outcome_unknown", "{}", refused.body);
    assert!(
        refused.body.contains(&text(&first["id"])),
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
    let refusal = refusal
        .filter(|one| one["action"] == "lease.claim_refused")
        .count();
    assert_eq!(refusal, 1, "{activity}");
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

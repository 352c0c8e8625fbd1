//! Connections that are kept, and what closes them: a rotated key, one that was deleted, another grant.

use std::path::Path;
use std::time::Duration;

use leasehold_tests::http::text;
use leasehold_tests::server::component;
use leasehold_tests::wait::{until, until_within};
use serde_json::json;

use super::{API, House, TOKEN};

const NEXT: &str = "canary-Next-90c1d2e3f4";

/// The id of the company's secret of this name.
fn secret(house: &House, name: &str) -> String {
    let path = format!("/api/companies/{}/secrets", house.server.company());
    let all = house.server.get(&path);
    let found = all
        .as_array()
        .into_iter()
        .flatten()
        .find(|one| one["name"] == name);
    text(&found.expect("it is there")["id"])
}

/// A lease whose calls have left a connection in a pool.
fn pooled(house: &House) -> String {
    let id = text(&house.acquire()["id"]);
    observe(house, &id);
    until("a connection that lies idle", || {
        (house.rooms.connections().1 == 1).then_some(())
    });
    id
}

fn observe(house: &House, lease: &str) {
    let seen = house
        .server
        .get(&format!("/api/environment-leases/{lease}/observation"));
    assert_eq!(seen["condition"], "ready", "{seen}");
}

/// Waits until the room server has no connection any more: not for as long as one may lie idle.
fn all_closed(house: &House) {
    let none = || (house.rooms.connections().1 == 0).then_some(());
    until_within(
        Duration::from_secs(20),
        "every connection to be closed",
        none,
    );
}

#[test]
fn a_connection_is_used_again_and_closed_by_a_rotation_after_which_the_new_key_goes_over_a_new_one()
{
    let Some(house) = House::new() else { return };
    let old = pooled(&house);
    let (taken, _) = house.rooms.connections();
    observe(&house, &old);
    assert_eq!(house.rooms.connections().0, taken, "it is used again");

    let token = secret(&house, "token");
    let value = json!({ "value": NEXT });
    let path = format!("/api/secrets/{token}/versions");
    house.server.call("POST", &path, Some(&value)).expect(201);
    all_closed(&house);
    house.rooms.set_token(NEXT);
    let before = house.rooms.heard().len();
    let new = text(&house.acquire()["id"]);
    for sent in &house.rooms.heard()[before..] {
        assert_eq!(
            sent.header("authorization"),
            format!("Bearer {NEXT}"),
            "{sent:?}"
        );
    }
    assert!(
        house.rooms.connections().0 > taken,
        "over a connection of its own"
    );
    // The lease that was there goes on with the version that it pinned.
    house.rooms.set_token(TOKEN);
    observe(&house, &old);
    let last = house.rooms.heard().pop().expect("it was asked");
    assert_eq!(last.header("authorization"), format!("Bearer {TOKEN}"));
    assert_eq!(house.server.release(&old)["status"], "released");
    house.rooms.set_token(NEXT);
    assert_eq!(house.server.release(&new)["status"], "released");
    house.keeps_no_secret();
}

/// Lets a command go on when it goes.
struct Go<'a>(&'a Path);

impl Drop for Go<'_> {
    fn drop(&mut self) {
        let _ = std::fs::write(self.0, "");
    }
}

#[test]
fn a_stream_of_a_lease_outlives_a_rotation_and_ends_with_its_lease() {
    let Some(house) = House::new() else { return };
    let lease = pooled(&house);
    let signs = tempfile::tempdir().expect("a folder");
    let begun = signs.path().join("begun");
    let go = signs.path().join("go");
    let script = format!(
        "touch {}; while [ ! -e {} ]; do sleep 0.05; done",
        begun.display(),
        go.display()
    );
    std::thread::scope(|scope| {
        let (house, lease) = (&house, &lease);
        let ran = scope.spawn(move || {
            let body = json!({ "argv": ["sh", "-c", script] });
            let path = format!("/api/environment-leases/{lease}/executions");
            house.server.try_call("POST", &path, Some(&body))
        });
        // Whatever fails here, the command ends.
        let _go = Go(&go);
        until("the command", || begun.exists().then_some(()));
        let value = json!({ "value": NEXT });
        let path = format!("/api/secrets/{}/versions", secret(house, "token"));
        house.server.call("POST", &path, Some(&value)).expect(201);
        // What lay idle is closed; the command's own connection is not.
        until("the stream alone", || {
            (house.rooms.connections().1 == 1).then_some(())
        });
        let running = &house.server.executions(lease)[0];
        assert_eq!(running["outcome"], "running", "{running}");
        assert_eq!(house.server.release(lease)["status"], "released");
        ran.join().expect("no panic");
    });
    // What the release used lies idle; the stream is over, and its command was the room server's to end.
    until("the idle one alone", || {
        (house.rooms.connections().1 == 1).then_some(())
    });
}

#[test]
fn a_key_that_is_deleted_by_force_closes_its_connections_and_is_used_no_more() {
    let Some(house) = House::new() else { return };
    let lease = pooled(&house);
    let path = format!("/api/secrets/{}?force=true", secret(&house, "token"));
    house.server.call("DELETE", &path, None).expect(200);
    all_closed(&house);
    let heard = house.rooms.heard().len();
    let seen = format!("/api/environment-leases/{lease}/observation");
    let refused = house.server.call("GET", &seen, None);
    assert_eq!(refused.code(), "secret_missing", "{}", refused.body);
    assert_eq!(
        house.server.acquire(&house.environment).code(),
        "secret_missing"
    );
    assert_eq!(house.rooms.heard().len(), heard, "nothing was sent");
}

#[test]
fn another_grant_closes_the_connections_of_the_one_before_by_granting_and_by_installing_again() {
    let Some(house) = House::new() else { return };
    let bytes = component(API).expect("it was built");
    let digest = text(&house.server.get("/api/plugins/cabin")["digest"]);
    let free = |house: &House| {
        let lease = pooled(house);
        assert_eq!(house.server.release(&lease)["status"], "released");
        // What the release left is pooled too.
        until("what is left to lie idle", || {
            (house.rooms.connections().1 >= 1).then_some(())
        });
    };
    free(&house);
    let narrower = house
        .server
        .install_bytes(&bytes, "&without=streams")
        .expect(201);
    assert_eq!(narrower["digest"], digest, "the same component");
    assert_eq!(
        narrower["granted"]["parts"],
        json!(["operations", "credentials"]),
        "{narrower}"
    );
    all_closed(&house);
    free(&house);
    let grant = ["plugin", "grant", "cabin", "--revision", &digest, "--yes"];
    house.server.json(&grant);
    all_closed(&house);
    let lease = text(&house.acquire()["id"]);
    let ran = house
        .server
        .exec(&lease, &json!({ "argv": ["true"] }))
        .expect(200);
    assert_eq!(ran["execution"]["exitCode"], 0, "{ran}");
}

//! Deleting an environment: what stands in the way is told, what is kept for reuse ends by consent alone, and what is used
//! stays.

#![allow(
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking, also in what it calls"
)]

use leasehold_tests::http::text;
use leasehold_tests::rows;
use leasehold_tests::server::Server;
use serde_json::{Value, json};

/// A server with an environment of the null provider and as many leases of it.
fn leased(count: usize) -> Option<(Server, String, Vec<String>)> {
    let server = Server::start()?;
    server.install("null").expect(201);
    let draft = json!({ "name": "null", "driver": "sandbox", "provider": "null",
        "envVars": { "A": server.secret("a", "of no worth") } });
    let environment = text(&server.environment(&draft).expect(201)["id"]);
    let acquire = |at: usize| {
        let path = format!("/api/environments/{environment}/leases");
        let who = json!({ "agentId": "a", "issueId": format!("issue-{at}") });
        text(&server.call("POST", &path, Some(&who)).expect(201)["id"])
    };
    let leases = (0..count).map(acquire).collect();
    Some((server, environment, leases))
}

/// Has a lease be kept for reuse, which no provider of today asks for, and starts the server again.
fn keep(server: &mut Server, leases: &[String]) {
    server.kill();
    let file = server.data().join("leasehold.db");
    for lease in leases {
        let sql = format!("UPDATE leases SET status = 'retained' WHERE id = '{lease}'");
        assert_eq!(rows::edit(&file, &sql), 1);
    }
    server.begin();
}

#[test]
fn what_stands_in_the_way_is_told_and_ends_by_consent_where_nobody_uses_it() {
    let Some((mut server, environment, leases)) = leased(3) else {
        return;
    };
    let path = format!("/api/environments/{environment}");
    let radius = |server: &Server| server.get(&format!("{path}/delete-blast-radius"));
    let consent = format!("{path}?destroyReusableSandboxLeases=true");
    let [used, kept @ ..] = &leases[..] else {
        panic!("three leases")
    };
    let told = radius(&server);
    assert_eq!(told["deleteBlockedReasons"], json!(["active_lease"]));
    assert_eq!(
        told["activeRuntimeUse"],
        json!({ "activeLeaseCount": 3, "hasActiveRuntimeUse": true })
    );
    assert_eq!(
        told["staticReferences"],
        json!({
            "isManagedLocal": false, "isInstanceDefault": false, "companyDefaultCount": 0, "agentDefaultCount": 0, "projectSelectionCount": 0,
            "executionWorkspaceSelectionCount": 0, "issueSelectionCount": 0, "secretBindingCount": 1,
        })
    );
    keep(&mut server, kept);
    let told = radius(&server);
    assert_eq!(
        told["deleteBlockedReasons"],
        json!(["active_lease", "reusable_sandbox_lease"])
    );
    assert_eq!(told["reusableSandboxLeaseCount"], 2);
    let holders: Vec<&Value> = told["reusableSandboxLeaseHolders"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|holder| &holder["issueId"])
        .collect();
    assert_eq!(holders, ["issue-1", "issue-2"]);
    // While one is used, consent ends none of the others.
    for path in [&path, &consent] {
        let refused = server.call("DELETE", path, None);
        assert_eq!(
            refused.code(),
            "environment_not_deletable",
            "{}",
            refused.body
        );
        let details = &refused.json()["details"];
        assert_eq!(details["destroyedReusableSandboxLeaseCount"], 0);
        assert_eq!(details["reusableSandboxLeaseCount"], 2);
    }
    server.release(used);
    let refused = server.call("DELETE", &path, None);
    assert_eq!(
        refused.json()["details"]["deleteBlockedReasons"],
        json!(["reusable_sandbox_lease"])
    );
    assert!(refused.body.contains("destroyReusableSandboxLeases"));
    let gone = server.call("DELETE", &consent, None).expect(200);
    assert_eq!(
        (&gone["id"], &gone["destroyedReusableSandboxLeaseCount"]),
        (&json!(environment), &json!(2))
    );
    assert_eq!(server.call("GET", &path, None).status, 404);
    for lease in &leases {
        assert_eq!(server.lease(lease)["status"], "released");
    }
    let unreadable = server.call(
        "DELETE",
        &format!("{path}?destroyReusableSandboxLeases=x"),
        None,
    );
    assert_eq!(unreadable.code(), "bad_request", "{}", unreadable.body);
}

#[test]
fn a_kept_lease_whose_end_nobody_confirms_is_told_as_that_and_keeps_its_environment() {
    let Some(mut server) = Server::start() else {
        return;
    };
    let key = "hostile-trap-everywhere";
    server.install(key).expect(201);
    let draft = json!({ "name": "box", "driver": "sandbox", "provider": key, "config": { "at": "release" } });
    let environment = text(&server.environment(&draft).expect(201)["id"]);
    let lease = text(&server.acquire(&environment).expect(201)["id"]);
    keep(&mut server, std::slice::from_ref(&lease));
    let path = format!("/api/environments/{environment}");
    let consent = format!("{path}?destroyReusableSandboxLeases=true");
    let refused = server.call("DELETE", &consent, None);
    assert_eq!(refused.code(), "environment_not_deletable");
    let details = &refused.json()["details"];
    assert_eq!(
        details["deleteBlockedReasons"],
        json!(["pending_sandbox_cleanup"]),
        "{details}"
    );
    assert_eq!(details["destroyedReusableSandboxLeaseCount"], 0);
    assert_eq!(details["pendingCleanupLeaseCount"], 1);
    assert_eq!(server.lease(&lease)["status"], "pending_cleanup");
    server.call("GET", &path, None).expect(200);
}

#[test]
fn the_command_deletes_unasked_where_nobody_is_there_and_ends_leases_only_when_told() {
    let Some((mut server, environment, leases)) = leased(1) else {
        return;
    };
    keep(&mut server, &leases);
    let refused = server.run(&["env", "delete", "null"]);
    assert_eq!(refused.code, 5, "{}", refused.stderr);
    assert!(
        refused.stderr.contains("kept to be used again"),
        "{}",
        refused.stderr
    );
    let gone = server.json(&[
        "env",
        "delete",
        "null",
        "--yes",
        "--destroy-reusable-leases",
    ]);
    assert_eq!(gone["id"], json!(environment));
}

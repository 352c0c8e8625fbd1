//! Plugins that live: what is installed waits for its grant, an upgrade that asks for more too, and one that crashes
//! again and again is left alone. On real components: the shape sample with another manifest written into it.

#![allow(
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking, also in what it calls"
)]

mod crashes;
mod gone;
mod inspected;
mod mistakes;

use std::path::PathBuf;

use leasehold_tests::http::{Answer, text};
use leasehold_tests::machine::{Machine, listed};
use leasehold_tests::server::{Server, component};
use leasehold_tests::shape::{Wider, changed, modest, shaped, wider};
use leasehold_tests::wait::until;
use serde_json::{Value, json};

/// Sends a shape to be installed without a grant.
fn send(server: &Server, shape: &Value) -> Answer {
    server.upload("POST", "/api/plugins", "application/wasm", &shaped(shape))
}

fn install(server: &Server, shape: &Value) -> Value {
    send(server, shape).expect(201)
}

fn plugin(server: &Server) -> Value {
    server.get("/api/plugins/shape")
}

/// What the revisions are now, newest first, with their leases.
fn states(plugin: &Value) -> Vec<(String, u64)> {
    let all = plugin["revisions"].as_array().cloned().unwrap_or_default();
    all.iter()
        .map(|one| (text(&one["state"]), one["leases"].as_u64().unwrap_or(0)))
        .collect()
}

fn is(state: &str, leases: u64) -> (String, u64) {
    (state.to_owned(), leases)
}

fn environment(server: &Server, name: &str, provider: &str, config: &Value) -> String {
    let draft =
        json!({ "name": name, "driver": "sandbox", "provider": provider, "config": config });
    text(&server.environment(&draft).expect(201)["id"])
}

fn capabilities(server: &Server, key: &str) -> Value {
    let path = format!(
        "/api/companies/{}/environments/capabilities",
        server.company()
    );
    let all = server.get(&path)["providers"].clone();
    let found = all
        .as_array()
        .into_iter()
        .flatten()
        .find(|p| p["key"] == key);
    found.cloned().unwrap_or_default()
}

/// What of a provider is narrowed, and by what.
fn narrowed(server: &Server, key: &str) -> Vec<(String, String)> {
    let provider = capabilities(server, key);
    let all = provider["narrowed"].as_array().cloned().unwrap_or_default();
    all.iter()
        .map(|one| (text(&one["capability"]), text(&one["by"])))
        .collect()
}

/// What keeps everybody from leasing anything of a provider, as the capabilities tell it.
fn withheld(server: &Server, key: &str) -> String {
    assert!(capabilities(server, key).is_null(), "{key} is offered");
    let path = format!(
        "/api/companies/{}/environments/capabilities",
        server.company()
    );
    let all = server.get(&path)["withheld"].clone();
    let found = all
        .as_array()
        .into_iter()
        .flatten()
        .find(|one| one["key"] == key);
    found.map(|one| text(&one["by"])).unwrap_or_default()
}

fn actions(server: &Server, subject: &str) -> Vec<String> {
    let all = server.get(&format!("/api/activity?limit=500&subject={subject}"));
    let all = all["items"].as_array().cloned().unwrap_or_default();
    all.iter().map(|one| text(&one["action"])).collect()
}

#[test]
fn an_installation_waits_for_its_grant_also_over_a_crash_and_serves_once_it_is_granted() {
    let Some(mut server) = Server::start() else {
        return;
    };
    let file = server.path().join("shape.wasm");
    std::fs::write(&file, shaped(&modest())).expect("a file");
    let file = file.display().to_string();
    let waits = server.json(&["plugin", "install", &file]);
    assert_eq!(waits["status"], "pending", "{waits}");
    let draft = json!({ "name": "box", "driver": "sandbox", "provider": "shape", "config": {} });
    let early = server.environment(&draft);
    assert_eq!(early.code(), "plugin_pending", "{}", early.body);
    assert!(capabilities(&server, "shape").is_null());

    server.restart();
    let shown = server.run(&["plugin", "show", "shape"]);
    assert!(
        shown.stdout.contains("DELETE /boxes/{resource}") && shown.stdout.contains("pending"),
        "{shown:?}"
    );
    let unasked = server.run(&["plugin", "grant", "shape"]);
    assert_eq!(unasked.code, 2, "{}", unasked.stderr);
    assert!(unasked.stderr.contains("https://*.acme.dev:443"));
    let wrong = json!({ "requestDigest": "0".repeat(64) });
    let wrong = server.call("POST", "/api/plugins/shape/grant", Some(&wrong));
    assert_eq!(wrong.code(), "grant_mismatch", "{}", wrong.body);
    let granted = server.json(&["plugin", "grant", "shape", "--yes", "--without", "origins"]);
    assert_eq!(granted["status"], "working", "{granted}");
    assert_eq!(granted["grantedBy"], "local operator");
    assert_eq!(
        granted["granted"]["parts"],
        json!(["operations", "credentials"])
    );
    assert_eq!(
        narrowed(&server, "shape"),
        [("origins".to_owned(), "grant".to_owned())]
    );
    let box_ = environment(&server, "box", "shape", &json!({}));
    server.acquire(&box_).expect(201);

    server.restart();
    assert_eq!(plugin(&server)["granted"], granted["granted"]);
    let nothing = server.run(&["plugin", "grant", "shape", "--yes"]);
    assert_eq!(nothing.code, 3, "{}", nothing.stderr);
}

#[test]
fn every_kind_of_wider_upgrade_waits_in_words_while_the_old_revision_serves() {
    let Some(server) = Server::start() else {
        return;
    };
    let first = server.install_bytes(&shaped(&modest()), "").expect(201);
    let box_ = environment(&server, "box", "shape", &json!({}));
    for Wider { words, component } in wider() {
        let waits = server
            .upload("POST", "/api/plugins", "application/wasm", &component)
            .expect(201);
        let told = waits["pending"]["wider"].to_string();
        assert!(told.contains(words), "{words}: {told}");
        assert_eq!(waits["digest"], first["digest"], "{words}");
        assert_eq!(waits["status"], "working");
        let lease = server.acquire(&box_).expect(201);
        assert_eq!(lease["pluginDigest"], first["digest"], "{words}");
        server.release(&text(&lease["id"]));
        let denied = server
            .call("POST", "/api/plugins/shape/deny", None)
            .expect(200);
        assert_eq!(denied["pending"], Value::Null);
        assert_eq!(states(&denied)[0], is("collected", 0), "{words}");
    }
    // Granted, it serves.
    let waits = install(
        &server,
        &changed(json!({ "streams": true, "version": "2.0.0" })),
    );
    let body = json!({ "requestDigest": waits["pending"]["requestDigest"] });
    let granted = server
        .call("POST", "/api/plugins/shape/grant", Some(&body))
        .expect(200);
    assert_eq!(
        (granted["version"].clone(), granted["pending"].clone()),
        (json!("2.0.0"), Value::Null)
    );
    let lease = server.acquire(&box_).expect(201);
    assert_eq!(lease["pluginDigest"], granted["digest"]);
}

#[test]
fn an_upgrade_that_asks_for_no_more_serves_at_once_old_leases_end_on_theirs_and_back_is_one_step() {
    let Some(server) = Server::start() else {
        return;
    };
    let first = server
        .install_bytes(&shaped(&modest()), "&without=origins")
        .expect(201);
    let box_ = environment(&server, "box", "shape", &json!({}));
    let old = server.acquire(&box_).expect(201);
    let second = install(
        &server,
        &changed(json!({ "version": "1.1.0", "memoryMib": 16,
            "origins": ["https://eu.acme.dev:443"] })),
    );
    assert_eq!(second["version"], "1.1.0", "{second}");
    assert_eq!(second["granted"]["memoryMib"], 16);
    assert_eq!(second["granted"]["origins"], json!([]), "left out before");
    assert_eq!(second["revisions"][0]["carried"], true);
    assert_eq!(states(&second), [is("current", 0), is("previous", 1)]);
    let new = server.acquire(&box_).expect(201);
    assert_eq!(new["pluginDigest"], second["digest"]);
    assert_eq!(old["pluginDigest"], first["digest"]);

    let back = server.json(&["plugin", "rollback", "shape"]);
    assert_eq!(back["digest"], first["digest"]);
    assert_eq!(states(&back), [is("previous", 1), is("current", 1)]);
    server.json(&["plugin", "rollback", "shape"]);

    // A third leaves the first to its lease alone, and it is collected after that.
    install(
        &server,
        &changed(json!({ "version": "1.2.0", "memoryMib": 16,
            "origins": ["https://eu.acme.dev:443"] })),
    );
    let third = plugin(&server);
    assert_eq!(
        states(&third),
        [is("current", 0), is("previous", 1), is("retiring", 1)]
    );
    assert_eq!(server.release(&text(&old["id"]))["status"], "released");
    let now = until("the first revision to be collected", || {
        let now = plugin(&server);
        (states(&now)[2] == is("collected", 0)).then_some(now)
    });
    assert!(now["revisions"][2]["collectedAt"].is_string(), "{now}");
    assert_eq!(server.release(&text(&new["id"]))["status"], "released");
    let refused = server.call("DELETE", "/api/plugins/shape", None);
    assert_eq!(refused.code(), "plugin_in_use");
    server
        .call("DELETE", &format!("/api/environments/{box_}"), None)
        .expect(200);
    server.json(&["plugin", "remove", "shape"]);
    assert_eq!(server.call("GET", "/api/plugins/shape", None).status, 404);
    let mut told = actions(&server, "shape");
    told.dedup();
    assert!(
        told.contains(&"plugin.collected".to_owned())
            && told.contains(&"plugin.rolled_back".to_owned()),
        "{told:?}"
    );
}

#[test]
fn an_upgrade_that_cannot_be_installed_is_refused_by_its_field_and_leaves_the_old_one_serving() {
    let Some(server) = Server::start() else {
        return;
    };
    let first = server.install_bytes(&shaped(&modest()), "").expect(201);
    let box_ = environment(&server, "box", "shape", &json!({}));
    let mut hidden = modest();
    hidden["schema"]["oneOf"] = json!([{ "properties": { "x": { "format": "secret" } } }]);
    for (words, shape) in [
        (
            "panics in describe",
            changed(json!({ "traps": "describe" })),
        ),
        ("/image", changed(json!({ "image": "/where" }))),
        (
            "/request/limits/memory-mib",
            changed(json!({ "memoryMib": 100_000 })),
        ),
        ("/config-schema/oneOf/0/properties/x/format", hidden),
        (
            "/operations/0/path",
            changed(json!({ "operations": [["/api", "POST", "/boxes/%7Bresource}"]] })),
        ),
    ] {
        let refused = send(&server, &shape);
        assert_eq!(refused.code(), "invalid_component", "{words}");
        let said = text(&refused.json()["error"]);
        assert!(said.contains(words), "{words}: {said}");
    }
    let now = plugin(&server);
    assert_eq!(now["digest"], first["digest"]);
    assert_eq!(states(&now), [is("current", 0)]);
    server.acquire(&box_).expect(201);
}

/// A server whose settings file says this.
fn with_settings(settings: &str) -> Option<(Server, tempfile::TempDir)> {
    let folder = tempfile::tempdir().expect("a folder");
    let file: PathBuf = folder.path().join("leasehold.toml");
    std::fs::write(&file, settings).expect("a file");
    let server = Server::start_with(&["--config", &file.display().to_string()])?;
    Some((server, folder))
}

#[test]
fn a_grant_that_leaves_ssh_out_opens_no_session_and_one_that_has_it_does() {
    let Some(machine) = Machine::start() else {
        return;
    };
    let Some(server) = Server::start() else {
        return;
    };
    let ssh = component("ssh").expect("it was built");
    server.install_bytes(&ssh, "&without=ssh").expect(201);
    let parent = machine.directory("leases");
    let made = json!({ "name": "box", "driver": "ssh", "provider": "ssh", "config": {
        "target": machine.target(&server.secret("key", &machine.sshd.key().private), machine.sshd.port()),
        "remoteWorkspacePath": parent,
    }});
    // Nothing can be leased of it: it is no target, and no session is tried.
    let refused = server.environment(&made);
    assert_eq!(refused.code(), "plugin_narrowed", "{}", refused.body);
    assert!(
        text(&refused.json()["error"]).contains("needs ssh, which whoever granted"),
        "{}",
        refused.body
    );
    assert!(listed(&parent).is_empty());
    let session = format!("session opened for user {}", machine.sshd.worker().name);
    let accepted = |log: &str| log.contains("Accepted publickey") || log.contains(&session);
    assert!(!accepted(&machine.sshd.log()), "{}", machine.sshd.log());
    assert_eq!(withheld(&server, "ssh"), "grant");
    let digest = text(&server.get("/api/plugins/ssh")["digest"]);
    let granted = until("the grant", || {
        let ran = server.run(&[
            "--json",
            "plugin",
            "grant",
            "ssh",
            "--revision",
            &digest,
            "--yes",
        ]);
        (ran.code == 0).then(|| serde_json::from_str::<Value>(&ran.stdout).unwrap_or_default())
    });
    assert_eq!(granted["granted"]["parts"], json!(["ssh"]));
    assert_eq!(narrowed(&server, "ssh"), []);
    let box_ = text(&server.environment(&made).expect(201)["id"]);
    let lease = until("the target to be free", || {
        let answer = server.acquire(&box_);
        (answer.status == 201).then(|| answer.json())
    });
    assert!(accepted(&machine.sshd.log()));
    assert_eq!(listed(&parent).len(), 1);
    // What leases need is not taken from them.
    let taken = server.run(&[
        "plugin",
        "grant",
        "ssh",
        "--revision",
        &digest,
        "--yes",
        "--without",
        "ssh",
    ]);
    assert_eq!(taken.code, 5, "{}", taken.stderr);
    assert_eq!(server.release(&text(&lease["id"]))["status"], "released");
    // What the pool still holds goes with the grant.
    assert_ne!(pooled(&server), 0);
    server.json(&[
        "plugin",
        "grant",
        "ssh",
        "--revision",
        &digest,
        "--yes",
        "--without",
        "ssh",
    ]);
    until("the pool to be empty", || {
        (pooled(&server) == 0).then_some(())
    });
}

/// SSH connections that the server keeps.
fn pooled(server: &Server) -> u32 {
    let metrics = server.call("GET", "/metrics", None).body;
    let line = metrics
        .lines()
        .find_map(|line| line.strip_prefix("leasehold_ssh_connections "));
    line.and_then(|count| count.parse().ok()).expect("a gauge")
}

#[test]
fn settings_that_allow_no_provider_ssh_or_memory_bound_every_grant() {
    let Some((server, _folder)) =
        with_settings("[plugins]\nallow-ssh = false\nmemory-mib = 64\nallow-origins = false\n")
    else {
        return;
    };
    server.install("ssh").expect(201);
    assert_eq!(withheld(&server, "ssh"), "configuration");
    let plugin = server.get("/api/plugins/ssh");
    assert_eq!(plugin["granted"]["parts"], json!([]), "{plugin}");
    let large = send(&server, &changed(json!({ "memoryMib": 65 })));
    assert!(
        text(&large.json()["error"]).contains("this host allows 1 to 64 MiB"),
        "{}",
        large.body
    );
    let draft = json!({ "name": "box", "driver": "ssh", "provider": "ssh", "config": {} });
    let refused = server.environment(&draft);
    assert_eq!(refused.code(), "plugin_narrowed", "{}", refused.body);
    assert!(
        refused.body.contains("plugins.allow-ssh"),
        "{}",
        refused.body
    );
}

//! A provider that is not there: not installed, not granted, disabled, failing, or without what it could do before. It becomes
//! no target, each time in words of its own, what is listed says so at once, and what is leased goes on.

use leasehold_tests::http::text;
use leasehold_tests::rows::edit;
use leasehold_tests::server::Server;
use leasehold_tests::shape::{changed, modest, shaped, shaped_with_files};
use leasehold_tests::wait::until;
use serde_json::{Value, json};

use crate::crashes::trip;
use crate::{environment, install, narrowed, plugin, with_settings};

/// How a provider is not there: how it comes to that, what a list says stands in the way, what a lease and a save are refused
/// with and in which words, and how it returns.
struct Gone {
    how: fn(&Server, &str),
    by: &'static str,
    code: &'static str,
    words: &'static str,
    back: fn(&Server),
}

const WAYS: [Gone; 2] = [
    Gone {
        how: |server, _| {
            server
                .call("POST", "/api/plugins/hostile-trap-everywhere/disable", None)
                .expect(200);
        },
        by: "grant",
        code: "plugin_disabled",
        words: "is disabled",
        back: |server| {
            server
                .call("POST", "/api/plugins/hostile-trap-everywhere/enable", None)
                .expect(200);
        },
    },
    Gone {
        how: |server, bad| {
            trip(server, bad);
        },
        by: "health",
        code: "plugin_tripped",
        words: "takes no new leases for now",
        back: |server| {
            server
                .call("POST", "/api/plugins/hostile-trap-everywhere/reset", None)
                .expect(200);
        },
    },
];

/// The environment of this name, as a list has it.
fn in_list(server: &Server, name: &str) -> Value {
    let all = server.get(&format!("/api/companies/{}/environments", server.company()));
    let found = all
        .as_array()
        .into_iter()
        .flatten()
        .find(|e| e["name"] == name);
    found.cloned().unwrap_or_default()
}

#[test]
fn a_provider_that_is_not_there_becomes_no_target_and_every_list_says_so_at_once() {
    let Some((server, _folder)) = with_settings(
        "[plugins]\nbreaker-failures = 3\nbreaker-backoff-seconds = 3600\nbreaker-longest-backoff-seconds = 3600\n",
    ) else {
        return;
    };
    let key = "hostile-trap-everywhere";
    server.install(key).expect(201);
    let bad = environment(&server, "bad", key, &json!({ "at": "acquire" }));
    let good = environment(&server, "good", key, &json!({ "at": "keep-alive" }));
    let asleep = environment(&server, "asleep", key, &json!({ "at": "keep-alive" }));
    let path = |id: &str| format!("/api/environments/{id}");
    let patch = |id: &str, body: Value| server.call("PATCH", &path(id), Some(&body));
    patch(&asleep, json!({ "status": "archived" })).expect(200);
    let drafts = format!(
        "/api/companies/{}/environments/probe-config",
        server.company()
    );
    let draft = json!({ "name": "new", "driver": "sandbox", "provider": key, "config": { "at": "keep-alive" } });
    let of_company = |what: &str| format!("/api/companies/{}/{what}", server.company());
    let coder = json!({ "id": "coder", "environmentId": good });
    server
        .call("POST", &of_company("agents"), Some(&coder))
        .expect(201);
    let select = of_company("environments/select");
    let leases = of_company("environment-leases");
    for gone in &WAYS {
        let lease = text(&server.acquire(&good).expect(201)["id"]);
        assert_eq!(in_list(&server, "good")["withheld"], Value::Null);
        (gone.how)(&server, &bad);
        let listed = in_list(&server, "good");
        assert_eq!(listed["withheld"]["by"], gone.by, "{listed}");
        assert_eq!(server.get(&path(&good))["withheld"], listed["withheld"]);
        let selected = server.call("POST", &select, Some(&json!({}))).expect(200);
        let excluded = selected["excluded"].as_array().into_iter().flatten();
        let mut of_good = excluded.filter(|one| one["environmentId"] == *good);
        let lack = &of_good.next().expect("it is no candidate")["lacks"][0];
        assert_eq!(
            (&lack["what"], &lack["by"]),
            (&json!("lifecycle"), &json!(gone.by)),
            "{lack}"
        );
        let needs = json!({ "requirement": { "provider": key } });
        let chosen = server.call("POST", &leases, Some(&needs));
        assert_eq!(chosen.code(), "no_candidate", "{}", chosen.body);
        let tries = [
            ("a lease", server.acquire(&good)),
            ("a new environment", server.environment(&draft)),
            ("a draft", server.call("POST", &drafts, Some(&draft))),
            (
                "another configuration",
                patch(&good, json!({ "config": { "at": "list" } })),
            ),
            (
                "an archived one",
                patch(&asleep, json!({ "status": "active" })),
            ),
            (
                "a saved probe",
                server.call("POST", &format!("{}/probe", path(&good)), None),
            ),
        ];
        for (what, refused) in tries {
            assert_eq!(refused.code(), gone.code, "{what}: {}", refused.body);
            assert!(
                refused.body.contains(gone.words),
                "{what}: {}",
                refused.body
            );
        }
        // Nor is it leased where it is assigned, which is told.
        let said = server.get(&of_company("environments/assignment?agent=coder"));
        let levels = said["levels"].as_array().into_iter().flatten();
        let agent = levels.clone().find(|said| said["level"] == "agent");
        let agent = agent.cloned().unwrap_or_default();
        assert_eq!(
            (&said["allowed"], &agent["lacks"][0]["by"]),
            (&json!(false), &json!(gone.by)),
            "{said}"
        );
        let refused = server.call("POST", &leases, Some(&json!({ "agentId": "coder" })));
        assert_eq!(refused.code(), "no_candidate", "{}", refused.body);
        let withheld = server.get(&of_company("environments/capabilities"))["withheld"].clone();
        assert_eq!(
            (&withheld[0]["key"], &withheld[0]["by"]),
            (&json!(key), &json!(gone.by)),
            "{withheld}"
        );
        // What it is called, and that nobody leases it, is no provider's to say.
        patch(&good, json!({ "description": gone.by })).expect(200);
        // What is leased goes on and ends.
        assert_eq!(server.lease(&lease)["status"], "active");
        assert_eq!(server.release(&lease)["status"], "released");
        (gone.back)(&server);
        assert_eq!(
            in_list(&server, "good")["withheld"],
            Value::Null,
            "{}",
            gone.by
        );
    }
}

#[test]
fn a_provider_that_is_not_installed_or_not_granted_becomes_no_target_each_in_its_own_words() {
    let Some(server) = Server::start() else {
        return;
    };
    let draft = json!({ "name": "box", "driver": "sandbox", "provider": "shape", "config": {} });
    let drafts = format!(
        "/api/companies/{}/environments/probe-config",
        server.company()
    );
    let refused = |code: &str, words: &str| {
        let probed = server.call("POST", &drafts, Some(&draft));
        for refused in [server.environment(&draft), probed] {
            assert_eq!(refused.code(), code, "{}", refused.body);
            assert!(refused.body.contains(words), "{}", refused.body);
        }
    };
    refused("plugin_missing", "is installed");
    install(&server, &modest());
    refused("plugin_pending", "waits for its grant");
}

#[test]
fn a_capability_that_an_upgrade_takes_away_is_gone_from_what_is_offered_and_from_no_lease_of_before()
 {
    let Some(server) = Server::start() else {
        return;
    };
    install(&server, &modest());
    server.json(&["plugin", "grant", "shape", "--yes"]);
    let box_ = environment(&server, "box", "shape", &json!({}));
    let first = plugin(&server)["digest"].clone();
    let lease = text(&server.acquire(&box_).expect(201)["id"]);
    let before = server.get(&format!("/api/environments/{box_}"));
    assert_eq!(narrowed(&server, "shape"), []);
    // The next revision has lost its origins, by whoever grants it.
    install(
        &server,
        &changed(json!({ "version": "2.0.0", "memoryMib": 48 })),
    );
    server.json(&["plugin", "grant", "shape", "--yes", "--without", "origins"]);
    assert_eq!(
        narrowed(&server, "shape"),
        [("origins".to_owned(), "grant".to_owned())]
    );
    let now = server.get(&format!("/api/environments/{box_}"));
    assert!(
        now["targetRevision"].as_i64() > before["targetRevision"].as_i64(),
        "{now}"
    );
    assert_eq!(now["revision"], before["revision"]);
    let kept = server.lease(&lease);
    assert_eq!(
        (&kept["status"], &kept["pluginDigest"]),
        (&json!("active"), &first)
    );
    assert_eq!(server.release(&lease)["status"], "released");
}

#[test]
fn a_provider_that_could_not_be_loaded_at_the_start_says_so_and_is_back_without_anybody_asking() {
    let Some(mut server) = Server::start() else {
        return;
    };
    server.install("null").expect(201);
    environment(&server, "box", "null", &json!({}));
    assert_eq!(in_list(&server, "box")["withheld"], Value::Null);
    server.kill();
    // Its bytes are not what was installed, and nothing compiled is left of them.
    let database = server.data().join("leasehold.db");
    edit(&database, "CREATE TABLE kept AS SELECT * FROM components");
    edit(&database, "UPDATE components SET bytes = x'00'");
    std::fs::remove_dir_all(server.data().join("compiled")).expect("what is compiled goes");
    server.spawn();
    server.wait_ready();
    let withheld = in_list(&server, "box")["withheld"].clone();
    assert_eq!(withheld["by"], "health", "{withheld}");
    let said = withheld["reason"].as_str().unwrap_or_default();
    assert!(said.contains("cannot be loaded"), "{withheld}");
    let path = format!("/api/companies/{}/environments/select", server.company());
    let needed = json!({ "required": ["lifecycle"] });
    let candidates = || {
        let chosen = server.call("POST", &path, Some(&needed)).expect(200);
        chosen["candidateCount"].as_i64()
    };
    assert_eq!(candidates(), Some(0));
    let sound = "UPDATE components SET bytes =
                     (SELECT bytes FROM kept WHERE kept.digest = components.digest)";
    edit(&database, sound);
    until("the provider to be back", || {
        (candidates() == Some(1)).then_some(())
    });
    assert_eq!(in_list(&server, "box")["withheld"], Value::Null);
}

#[test]
fn what_an_upgrade_does_not_export_any_more_is_chosen_by_nobody_at_once_and_a_lease_of_before_ends_as_it_began()
 {
    let Some(server) = Server::start() else {
        return;
    };
    let granted = |bytes: &[u8]| {
        server.install_bytes(bytes, "").expect(201);
    };
    granted(&shaped_with_files(&modest()));
    let box_ = environment(&server, "box", "shape", &json!({}));
    let of_company = |what: &str| format!("/api/companies/{}/{what}", server.company());
    let select = |words: &[&str]| {
        let needed = json!({ "required": words });
        server
            .call("POST", &of_company("environments/select"), Some(&needed))
            .expect(200)
    };
    let files = || {
        let told = server.get(&of_company("environments/capabilities"));
        let all = told["environments"].as_array().cloned().unwrap_or_default();
        let found = all
            .into_iter()
            .find(|one| one["environmentId"] == box_.as_str());
        found.unwrap_or_default()["capabilities"]["files"].clone()
    };
    assert_eq!(select(&["files"])["candidateCount"], 1);
    assert_eq!(files(), true);
    let lease = text(&server.acquire(&box_).expect(201)["id"]);
    let before = server.lease(&lease);
    granted(&shaped(&changed(json!({ "version": "2.0.0" }))));
    let without = select(&["files"]);
    assert_eq!(without["candidateCount"], 0, "{without}");
    let lack = without["excluded"]
        .as_array()
        .into_iter()
        .flatten()
        .find(|one| one["environmentId"] == box_.as_str())
        .map(|one| one["lacks"][0].clone())
        .unwrap_or_default();
    assert_eq!(
        (&lack["what"], &lack["by"]),
        (&json!("files"), &json!("exports")),
        "{without}"
    );
    assert_eq!(files(), false);
    assert_eq!(select(&["lifecycle"])["candidateCount"], 1);
    let body = json!({ "requirement": { "required": ["files"] } });
    let refused = server.call("POST", &of_company("environment-leases"), Some(&body));
    assert_eq!(refused.code(), "no_candidate", "{}", refused.body);
    // The lease keeps the revision that made it, and ends by it.
    let kept = server.lease(&lease);
    assert_eq!(kept["pluginDigest"], before["pluginDigest"], "{kept}");
    assert_eq!(server.release(&lease)["status"], "released");
}

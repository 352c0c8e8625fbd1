//! The environment that the server keeps as its settings say, and what is switched off: in a server that is started again
//! with another settings file.

use std::io::Write as _;

use serde_json::{Value, json};

use crate::rows::{ask, environments, id, install, null_draft, told, two};
use crate::server::{Home, Server, wait_for};

/// The settings file that wants a managed sandbox of this provider, with further lines before it.
fn settings(home: &Home, before: &str, provider: &str) {
    let folder = home.path().join("config/leasehold");
    std::fs::create_dir_all(&folder).unwrap();
    let text =
        format!("{before}\n[managed-sandbox]\nprovider = \"{provider}\"\nname = \"house\"\n");
    std::fs::write(folder.join("leasehold.toml"), text).unwrap();
}

/// A server that keeps a managed sandbox of this provider, once that is installed; and a company.
fn managing(before: &str, provider: &str) -> (Server, String) {
    let mut server = Server::start();
    server.end_by("TERM");
    settings(&server.home, before, provider);
    server.again();
    let one = server.company("one");
    (server, one)
}

/// The managed environment as a list has it; null where there is none.
fn managed(server: &Server, company: &str) -> Value {
    let all = server.operator("GET", &environments(company), "").json();
    let mut all = all.as_array().unwrap().clone();
    all.retain(|e| e["managed"] == true);
    assert!(all.len() <= 1, "{all:?}");
    all.pop().unwrap_or_default()
}

#[test]
fn the_managed_environment_comes_and_goes_with_its_provider_at_once() {
    let (mut server, one) = managing("", "null");
    let find = |server: &Server| managed(server, &one);
    assert_eq!(find(&server), Value::Null, "its provider is not there");
    if install(&server, "null").is_none() {
        return;
    }
    let made = find(&server);
    assert_eq!(
        (&made["name"], &made["status"], &made["companyId"]),
        (&json!("house"), &json!("active"), &Value::Null)
    );
    let id = made["id"].as_str().unwrap();
    let path = format!("/api/environments/{id}");
    for patch in [
        r#"{"name":"mine"}"#,
        r#"{"config":{"x":1}}"#,
        r#"{"status":"archived"}"#,
        r#"{"metadata":{"mine":1}}"#,
    ] {
        let refused = server.operator("PATCH", &path, patch);
        assert!(
            (refused.status, &*refused.code()) == (403, "environment_platform_managed")
                || patch.contains("config") && refused.status == 422,
            "{patch}: {}",
            refused.body
        );
    }
    let deleted = server.operator("DELETE", &path, "");
    assert_eq!(
        (deleted.status, &*deleted.code()),
        (403, "environment_platform_managed")
    );
    let saved = server.operator("PATCH", &path, r#"{"envVars":{"MINE":"1"}}"#);
    assert_eq!(saved.status, 200, "{}", saved.body);

    let status = |server: &Server| find(server)["status"].clone();
    let leases = format!("{path}/leases");
    for (gone, back) in [
        ("/api/plugins/null/disable", "/api/plugins/null/enable"),
        ("/api/plugins/null/disable", "restart"),
    ] {
        assert_eq!(server.operator("POST", gone, "").status, 200);
        assert_eq!(status(&server), "archived", "{gone}");
        let leased = server.operator("POST", &leases, "");
        assert_eq!(
            (leased.status, &*leased.code()),
            (409, "environment_inactive")
        );
        if back == "restart" {
            server.end_by("TERM");
            server.again();
            assert_eq!(
                status(&server),
                "archived",
                "a start does not bring it back alone"
            );
            server.operator("POST", "/api/plugins/null/enable", "");
        } else {
            assert_eq!(server.operator("POST", back, "").status, 200);
        }
        let now = find(&server);
        assert_eq!((&now["status"], &now["id"]), (&json!("active"), &json!(id)));
        assert_eq!(now["envVars"], json!({ "MINE": "1" }));
    }
    let leased = server.operator("POST", &leases, "");
    assert_eq!(leased.json()["status"], "active", "{}", leased.body);
    let shown = server.operator("GET", "/api/instance/settings", "").json();
    assert_eq!(shown["managedEnvironmentId"], id, "{shown}");
}

#[test]
fn variables_that_are_saved_while_the_server_takes_its_environment_away_and_back_are_all_kept() {
    let (server, one) = managing("", "null");
    if install(&server, "null").is_none() {
        return;
    }
    let house = managed(&server, &one);
    let path = format!("/api/environments/{}", house["id"].as_str().unwrap());
    let saved = std::thread::scope(|scope| {
        let toggling = scope.spawn(|| {
            for _ in 0..30 {
                for to in ["disable", "enable"] {
                    let path = format!("/api/plugins/null/{to}");
                    assert_eq!(server.operator("POST", &path, "").status, 200, "{to}");
                }
            }
        });
        let mut saved = 0;
        while !toggling.is_finished() {
            let patch = json!({ "envVars": { (format!("V{saved}")): saved.to_string() } });
            let patched = server.operator("PATCH", &path, &patch.to_string());
            assert_eq!(patched.status, 200, "{saved}: {}", patched.body);
            saved += 1;
        }
        toggling.join().unwrap();
        saved
    });
    let now = managed(&server, &one);
    assert_eq!(now["status"], "active");
    let kept = now["envVars"].as_object().unwrap();
    for at in 0..saved {
        assert_eq!(kept[&format!("V{at}")], at.to_string());
    }
    // Each save and each change of the server's own is one revision: none was written over another.
    let revisions = now["revision"].as_i64().unwrap() - house["revision"].as_i64().unwrap();
    assert_eq!(revisions, saved + 60);
}

#[test]
fn where_only_the_managed_environment_is_switched_on_no_other_is_there() {
    let Some((server, one, _)) = two(&[]) else {
        return;
    };
    let mut server = server;
    let own = server.operator("POST", &environments(&one), &null_draft("own").to_string());
    let own = id(&own);
    let leases = format!("/api/environments/{own}/leases");
    let lease = server.operator("POST", &leases, "");
    let lease = id(&lease);
    server.end_by("TERM");
    settings(&server.home, "enable-managed-sandbox-only = true", "null");
    server.again();
    let list = server.operator("GET", &environments(&one), "").json();
    assert_eq!(
        (list.as_array().unwrap().len(), &list[0]["name"]),
        (1, &json!("house")),
        "{list}"
    );
    let path = format!("/api/environments/{own}");
    for (method, path) in [
        ("GET", path.clone()),
        ("DELETE", path.clone()),
        ("POST", leases.clone()),
        ("POST", format!("{path}/probe")),
        ("GET", format!("{path}/secret-refs")),
    ] {
        let hidden = server.operator(method, &path, "");
        assert_eq!(
            (hidden.status, &*hidden.code()),
            (404, "not_found"),
            "{method} {path}"
        );
    }
    let made = server.operator("POST", &environments(&one), &null_draft("more").to_string());
    assert_eq!(
        (made.status, &*made.code()),
        (403, "environments_managed_only")
    );
    let draft = null_draft("").to_string();
    for (path, body) in [
        (format!("{}/probe-config", environments(&one)), &*draft),
        ("/api/ssh/host-key".to_owned(), r#"{"host":"127.0.0.1"}"#),
    ] {
        let refused = server.operator("POST", &path, body);
        assert_eq!(
            (refused.status, &*refused.code()),
            (403, "environments_managed_only"),
            "{path}: {}",
            refused.body
        );
    }
    let assigned = json!({ "id": "coder", "environmentId": own }).to_string();
    let assigned = server.operator("POST", &format!("/api/companies/{one}/agents"), &assigned);
    assert_eq!(
        (assigned.status, &*assigned.code()),
        (404, "not_found"),
        "{}",
        assigned.body
    );
    let house = list[0]["id"].as_str().unwrap();
    let body = json!({ "companyId": one }).to_string();
    let leased = server.operator("POST", &format!("/api/environments/{house}/leases"), &body);
    assert_eq!(leased.status, 201, "{}", leased.body);
    // What was leased before goes on, and is released.
    let released = format!("/api/environment-leases/{lease}/release");
    let released = server.operator("POST", &released, "");
    assert_eq!(released.json()["status"], "released", "{}", released.body);
    let shown: Value = serde_json::from_str(&told(&server, &["instance"])).unwrap();
    assert_eq!(shown["enableManagedSandboxOnly"], true, "{shown}");
}

#[test]
fn a_server_without_environments_answers_nothing_about_them_and_releases_what_was_leased() {
    let Some((server, one, _)) = two(&[]) else {
        return;
    };
    let mut server = server;
    let own = server.operator("POST", &environments(&one), &null_draft("own").to_string());
    let own = id(&own);
    let lease = server.operator("POST", &format!("/api/environments/{own}/leases"), "");
    let lease = id(&lease);
    server.end_by("TERM");
    let folder = server.home.path().join("config/leasehold");
    std::fs::create_dir_all(&folder).unwrap();
    let mut file = std::fs::File::create(folder.join("leasehold.toml")).unwrap();
    writeln!(file, "enable-environments = false").unwrap();
    server.again();
    let document = server.tcp("GET", "/api/openapi.json", &[], "").json();
    let mut asked = 0;
    for (path, item) in document["paths"].as_object().unwrap() {
        let about = path.split('/').any(|part| part == "environments");
        // Those that exist are listed there, and a new one begins there.
        let leases = path.ends_with("{companyId}/environment-leases");
        if !about && !leases && path != "/api/ssh/host-key" {
            continue;
        }
        for method in item.as_object().unwrap().keys() {
            if leases && method == "get" {
                continue;
            }
            let path = path
                .replace("{companyId}", &one)
                .replace("{environmentId}", &own);
            let refused = server.operator(&method.to_uppercase(), &path, "");
            assert_eq!(
                (refused.status, &*refused.code()),
                (403, "environments_disabled"),
                "{method} {path}: {}",
                refused.body
            );
            asked += 1;
        }
    }
    assert!(asked > 10, "{asked}");
    let settings = server.operator("GET", "/api/instance/settings", "").json();
    assert_eq!(settings["enableEnvironments"], false, "{settings}");
    let released = format!("/api/environment-leases/{lease}/release");
    let released = server.operator("POST", &released, "");
    assert_eq!(released.json()["status"], "released", "{}", released.body);
    // A role that may not learns that first.
    let (_, agent) = server.token_of("agent", Some(&one));
    let refused = ask(&server, &agent, "GET", &environments(&one), "");
    assert_eq!((refused.status, &*refused.code()), (403, "forbidden"));
}

#[test]
fn the_managed_environment_goes_with_a_provider_that_breaks_and_is_back_for_its_trial_and_on_a_persons_word()
 {
    let key = "hostile-trap-everywhere";
    let breaker = "[plugins]\nbreaker-failures = 3\nbreaker-backoff-seconds = 1\nbreaker-longest-backoff-seconds = 3600";
    let config = "[managed-sandbox.config]\nat = \"acquire\"";
    let (server, one) = managing(&format!("{breaker}\n{config}"), key);
    if install(&server, key).is_none() {
        return;
    }
    let house = managed(&server, &one);
    assert_eq!(house["status"], "active", "{house}");
    let house = house["id"].as_str().unwrap();
    let leases = format!("/api/environments/{house}/leases");
    let activity = format!("/api/activity?limit=500&subject={house}");
    // How often it was archived because its provider failed.
    let archived = || {
        let all = server.operator("GET", &activity, "").json();
        let all = all["items"].as_array().unwrap().clone();
        let why = |one: &Value| one["details"]["why"].as_str().map(str::to_owned);
        let broken = |why: String| why.contains("failed again and again");
        all.iter()
            .filter_map(why)
            .filter(|why| broken(why.clone()))
            .count()
    };
    let active = || managed(&server, &one)["status"] == "active";
    let mut seen = 0;
    // The second time it stays away twice as long, and so on: until somebody can be quicker than that.
    for _ in 0..4 {
        wait_for("the breaker", || {
            let refused = server.operator("POST", &leases, "");
            (archived() > seen).then_some(()).or_else(|| {
                let code = refused.code();
                let known = [
                    "component_trapped",
                    "plugin_tripped",
                    "environment_inactive",
                ];
                assert!(known.contains(&&*code), "{}", refused.body);
                None
            })
        });
        seen = archived();
        if seen < 4 {
            wait_for("its return for a trial", || active().then_some(()));
        }
    }
    let refused = server.operator("POST", &leases, "");
    assert_eq!(refused.code(), "environment_inactive", "{}", refused.body);
    assert!(!active());
    told(&server, &["plugin", "reset", key]);
    assert!(active(), "a person's word is enough, at once");
}

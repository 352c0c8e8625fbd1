//! The environment that the server keeps as its settings say, and what is switched off: in a server that is started again
//! with another settings file.

use std::io::Write as _;

use serde_json::{Value, json};

use crate::rows::{ask, environments, id, install, null_draft, told, two};
use crate::server::{Home, Server};

/// The settings file that wants a managed sandbox, with further lines before it.
fn settings(home: &Home, before: &str) {
    let folder = home.path().join("config/leasehold");
    std::fs::create_dir_all(&folder).unwrap();
    let text = format!("{before}\n[managed-sandbox]\nprovider = \"null\"\nname = \"house\"\n");
    std::fs::write(folder.join("leasehold.toml"), text).unwrap();
}

/// A server that keeps a managed sandbox of the null provider, once that is installed.
fn managing(before: &str) -> Option<(Server, String)> {
    let mut server = Server::start();
    server.end_by("TERM");
    settings(&server.home, before);
    server.again();
    let one = server.company("one");
    Some((server, one))
}

#[test]
fn the_managed_environment_comes_and_goes_with_its_provider_at_once() {
    let Some((mut server, one)) = managing("") else {
        return;
    };
    let find = |server: &Server| {
        let all = server.operator("GET", &environments(&one), "").json();
        let mut all = all.as_array().unwrap().clone();
        all.retain(|e| e["managed"] == true);
        assert!(all.len() <= 1, "{all:?}");
        all.pop().unwrap_or_default()
    };
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
    settings(&server.home, "enable-managed-sandbox-only = true");
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
        if !path.split('/').any(|part| part == "environments") && path != "/api/ssh/host-key" {
            continue;
        }
        for method in item.as_object().unwrap().keys() {
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

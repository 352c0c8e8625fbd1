//! Environments that no company has alone, over the API: shared ones, the server's own machine, the managed one, the
//! defaults and the switches; and what leaves the server with a company.
//!
//! Of the bugs and gaps that are known of the system that this one re-creates, those that concern rows, and what holds each:
//! - 3 and 26, work that lands on the server's own host: `the_servers_own_machine_is_looked_at_and_never_leased`;
//! - 11, a test without a company leaves secrets unresolved: `a_saved_probe_names_its_company_…`, `a_secret_of_one_company_…`;
//! - 14, a deleted environment takes a shared secret along: `deleting_an_environment_deletes_no_secret` of the authority;
//! - 21, a provider that is missing or in error leaves a managed environment active, or missing until a restart:
//!   `the_managed_environment_comes_and_goes_with_its_provider_at_once`; and is asked for ever:
//!   `a_provider_that_is_not_there_becomes_no_target_…` of the plugins;
//! - a feature flag that the API does not enforce: `a_server_without_environments_…`, `where_only_the_managed_…`;
//! - a list that does not warn of a disabled plugin: `a_provider_that_is_not_there_…` of the plugins;
//! - a host key that has to be pasted by hand: `a_host_key_is_trusted_once_somebody_has_seen_its_fingerprint_…`.

use std::io::Write as _;

use serde_json::{Value, json};

use crate::leased::{Leased, component};
use crate::server::{Answer, Home, Server, wait_for};

/// A server with the null provider and two companies; none where it was not built.
fn two(args: &[&str]) -> Option<(Server, String, String)> {
    let server = Server::start_with(args);
    install(&server, "null")?;
    let (one, other) = (server.company("one"), server.company("other"));
    Some((server, one, other))
}

fn install(server: &Server, name: &str) -> Option<()> {
    let Some(file) = component(name) else {
        leasehold_parts::skipped("`cargo xtask components`");
        return None;
    };
    let file = file.display().to_string();
    let out = run(server, &["plugin", "install", "--yes", &file]);
    assert!(out.status.success(), "{out:?}");
    Some(())
}

fn run(server: &Server, args: &[&str]) -> std::process::Output {
    server.home.leasehold().args(args).output().unwrap()
}

/// The same where it has to work: what it printed.
fn told(server: &Server, args: &[&str]) -> String {
    let out = run(server, args);
    let error = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success(), "{args:?}: {error}");
    String::from_utf8(out.stdout).unwrap()
}

fn ask(server: &Server, token: &str, method: &str, path: &str, body: &str) -> Answer {
    let authorization = format!("Bearer {token}");
    let mut headers = vec![("authorization", authorization.as_str())];
    if !body.is_empty() {
        headers.push(("content-type", "application/json"));
    }
    server.tcp(method, path, &headers, body)
}

fn environments(company: &str) -> String {
    format!("/api/companies/{company}/environments")
}

fn null_draft(name: &str) -> Value {
    json!({ "name": name, "driver": "sandbox", "provider": "null" })
}

fn shared(server: &Server, company: &str, mut draft: Value) -> Answer {
    draft["companyId"] = Value::Null;
    server.operator("POST", &environments(company), &draft.to_string())
}

fn id(answer: &Answer) -> String {
    assert!(matches!(answer.status, 200 | 201), "{}", answer.body);
    answer.json()["id"].as_str().unwrap().to_owned()
}

fn pointer(answer: &Answer) -> (u16, String) {
    let at = &answer.json()["details"]["violations"][0]["pointer"];
    (answer.status, at.as_str().unwrap_or_default().to_owned())
}

/// The names of a list, without the server's own machine.
fn names(answer: &Answer) -> Vec<String> {
    assert_eq!(answer.status, 200, "{}", answer.body);
    let all = answer.json();
    let all = all.as_array().unwrap().iter();
    all.filter(|e| e["driver"] != "local")
        .map(|e| e["name"].as_str().unwrap().to_owned())
        .collect()
}

#[test]
fn a_shared_environment_is_seen_by_every_company_and_its_lease_is_the_one_that_asks() {
    let Some((server, one, other)) = two(&[]) else {
        return;
    };
    let made = shared(&server, &one, null_draft("all"));
    assert_eq!(made.json()["companyId"], Value::Null, "{}", made.body);
    let all = id(&made);
    let own = server.operator("POST", &environments(&one), &null_draft("own").to_string());
    let own = id(&own);
    let taken = server.operator(
        "POST",
        &environments(&other),
        &null_draft("all").to_string(),
    );
    assert_eq!(
        (taken.status, &*taken.code()),
        (409, "environment_name_taken")
    );
    let mut foreign = null_draft("foreign");
    foreign["companyId"] = other.as_str().into();
    let foreign = server.operator("POST", &environments(&one), &foreign.to_string());
    assert_eq!(pointer(&foreign), (422, "/companyId".to_owned()));

    let (_, member) = server.token_of("member", Some(&other));
    let (_, agent) = server.token_of("agent", Some(&other));
    let list = ask(&server, &member, "GET", &environments(&other), "");
    assert_eq!(names(&list), ["all"]);
    let one_of = |id: &str| format!("/api/environments/{id}");
    assert_eq!(ask(&server, &member, "GET", &one_of(&all), "").status, 200);
    assert_eq!(ask(&server, &member, "GET", &one_of(&own), "").status, 404);
    let named = format!("{}/resolve?name=all", environments(&other));
    assert_eq!(ask(&server, &agent, "GET", &named, "").json()["id"], *all);
    let local = format!("{}/resolve?name=local", environments(&other));
    assert_eq!(ask(&server, &agent, "GET", &local, "").status, 404);

    let leases = |id: &str| format!("/api/environments/{id}/leases");
    let unsaid = server.operator("POST", &leases(&all), "");
    assert_eq!(
        pointer(&unsaid),
        (422, "/companyId".to_owned()),
        "{}",
        unsaid.body
    );
    let nobody = server.operator("POST", &leases(&all), r#"{"companyId":"com_none"}"#);
    assert_eq!(pointer(&nobody), (422, "/companyId".to_owned()));
    let of = |company: &str| json!({ "companyId": company }).to_string();
    let by_operator = server.operator("POST", &leases(&all), &of(&one));
    assert_eq!(
        by_operator.json()["companyId"],
        *one,
        "{}",
        by_operator.body
    );
    let by_agent = ask(&server, &agent, "POST", &leases(&all), "");
    assert_eq!(by_agent.json()["companyId"], *other, "{}", by_agent.body);
    let strange = ask(&server, &agent, "POST", &leases(&all), &of(&one));
    assert_eq!(strange.status, 422, "{}", strange.body);
    let hidden = ask(&server, &agent, "POST", &leases(&own), "");
    assert_eq!(hidden.status, 404, "{}", hidden.body);
    let crossed = server.operator("POST", &leases(&own), &of(&other));
    assert_eq!((crossed.status, &*crossed.code()), (404, "not_found"));
    // Each sees the leases of its own company alone.
    let count = |answer: Answer| answer.json()["items"].as_array().unwrap().len();
    assert_eq!(count(server.operator("GET", &leases(&all), "")), 2);
    for token in [&member, &agent] {
        let page = ask(&server, token, "GET", &leases(&all), "");
        assert_eq!(
            page.json()["items"][0]["companyId"],
            *other,
            "{}",
            page.body
        );
        assert_eq!(count(page), 1);
    }
}

#[test]
fn a_secret_of_one_company_stops_a_probe_and_a_lease_for_another_before_anything_is_made() {
    let Some((server, one, other)) = two(&[]) else {
        return;
    };
    let path = format!("/api/companies/{one}/secrets");
    let secret = server.operator("POST", &path, r#"{"name":"token","value":"canary-of-one"}"#);
    let secret = id(&secret);
    let mut draft = null_draft("all");
    draft["envVars"] =
        json!({ "TOKEN": { "type": "secret_ref", "secretId": secret, "version": "latest" } });
    let all = id(&shared(&server, &one, draft));
    let accesses = || {
        let path = format!("/api/secrets/{secret}/accesses");
        server.operator("GET", &path, "").json()["items"].clone()
    };
    let probe = |company: &str| {
        let path = format!("/api/environments/{all}/probe?companyId={company}");
        server.operator("POST", &path, "")
    };
    let leases = format!("/api/environments/{all}/leases");
    let refused = [
        probe(&other),
        server.operator("POST", &leases, &json!({ "companyId": other }).to_string()),
    ];
    for refused in refused {
        assert_eq!(
            (refused.status, &*refused.code()),
            (403, "environment_company_mismatch"),
            "{}",
            refused.body
        );
        assert!(refused.body.contains("env:TOKEN"), "{}", refused.body);
    }
    assert_eq!(
        server.operator("GET", &leases, "").json()["items"],
        json!([])
    );
    assert_eq!(accesses(), json!([]));
    let good = probe(&one);
    assert_eq!(good.json()["ok"], true, "{}", good.body);
    let had = wait_for("the accesses", || {
        let had = accesses();
        (had != json!([])).then_some(had)
    });
    assert!(
        had.as_array()
            .unwrap()
            .iter()
            .all(|a| a["companyId"] == *one),
        "{had}"
    );
}

#[test]
fn a_saved_probe_names_its_company_and_of_a_shared_environment_it_has_to() {
    let Some((server, one, other)) = two(&[]) else {
        return;
    };
    let all = id(&shared(&server, &one, null_draft("all")));
    let own = server.operator("POST", &environments(&one), &null_draft("own").to_string());
    let own = id(&own);
    let probe = |id: &str, query: &str| {
        server.operator("POST", &format!("/api/environments/{id}/probe{query}"), "")
    };
    assert_eq!(pointer(&probe(&all, "")), (422, "?companyId".to_owned()));
    let report = probe(&all, &format!("?companyId={other}"));
    assert_eq!(report.json()["companyId"], *other, "{}", report.body);
    let lease = report.json()["details"]["leaseId"]
        .as_str()
        .unwrap()
        .to_owned();
    let lease = server.operator("GET", &format!("/api/environment-leases/{lease}"), "");
    assert_eq!(lease.json()["companyId"], *other);
    assert_eq!(probe(&own, "").json()["companyId"], *one);
    assert_eq!(probe(&own, &format!("?companyId={other}")).status, 404);
    let activity = server.operator("GET", &format!("/api/companies/{other}/activity"), "");
    assert!(
        activity.body.contains("environment.probed"),
        "{}",
        activity.body
    );
    // By the command too, which asks for no more than the API does.
    told(&server, &["probe", "all", "--company", "other"]);
}

#[test]
fn the_servers_own_machine_is_looked_at_and_never_leased() {
    let Some((mut server, one, _)) = two(&[]) else {
        return;
    };
    let find = |server: &Server| {
        let path = format!("{}?driver=local", environments(&one));
        server.operator("GET", &path, "").json()
    };
    let found = find(&server);
    server.end_by("TERM");
    server.again();
    assert_eq!(find(&server), found, "a start makes it once");
    let local = &found[0];
    assert_eq!(
        (
            found.as_array().unwrap().len(),
            &local["name"],
            &local["companyId"]
        ),
        (1, &json!("local"), &Value::Null)
    );
    let local = local["id"].as_str().unwrap();
    let probed = server.operator(
        "POST",
        &format!("/api/environments/{local}/probe?companyId={one}"),
        "",
    );
    let report = probed.json();
    assert_eq!(report["ok"], true, "{report}");
    assert_eq!(report["details"]["leaseId"], Value::Null);
    let said = |step: &str| {
        let all = report["details"]["findings"].as_array().unwrap();
        let found = all.iter().find(|f| f["step"] == step).unwrap();
        found["message"].as_str().unwrap().to_owned()
    };
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    let here = std::env::current_dir().unwrap();
    assert_eq!(said("host"), host.trim());
    assert_eq!(said("working-directory"), here.to_str().unwrap());
    let leased = server.operator(
        "POST",
        &format!("/api/environments/{local}/leases"),
        &json!({ "companyId": one }).to_string(),
    );
    assert_eq!((leased.status, &*leased.code()), (409, "environment_local"));
    let second = json!({ "name": "second", "driver": "local", "companyId": null });
    let second = server.operator("POST", &environments(&one), &second.to_string());
    assert_eq!((second.status, &*second.code()), (409, "environment_local"));
    let limited = json!({ "name": "mine", "driver": "local" });
    let limited = server.operator("POST", &environments(&one), &limited.to_string());
    assert_eq!(pointer(&limited), (422, "/companyId".to_owned()));
    let path = format!("/api/environments/{local}");
    let gone = server.operator("DELETE", &path, "");
    assert_eq!(
        gone.json()["details"]["deleteBlockedReasons"],
        json!(["managed_local"]),
        "{}",
        gone.body
    );
    let radius = server.operator("GET", &format!("{path}/delete-blast-radius"), "");
    assert_eq!(radius.json()["canDelete"], false);
    let renamed = server.operator("PATCH", &path, r#"{"description":"mine"}"#);
    assert_eq!(renamed.status, 200, "{}", renamed.body);
    let turned = server.operator("PATCH", &path, r#"{"driver":"sandbox","provider":"null"}"#);
    assert_eq!(
        pointer(&turned),
        (422, "/driver".to_owned()),
        "{}",
        turned.body
    );
    let drafted = json!({ "driver": "local", "companyId": null });
    let probe = format!("{}/probe-config", environments(&one));
    let drafted = server.operator("POST", &probe, &drafted.to_string());
    assert_eq!(
        (drafted.status, &*drafted.code()),
        (409, "environment_local")
    );
}

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

#[test]
fn a_default_is_set_by_whoever_manages_and_stands_in_the_way_of_its_deletion() {
    let Some((server, one, other)) = two(&[]) else {
        return;
    };
    let all = id(&shared(&server, &one, null_draft("all")));
    let own = server.operator("POST", &environments(&one), &null_draft("own").to_string());
    let own = id(&own);
    let of = |company: &str| format!("{}/default", environments(company));
    let to = |id: &str| json!({ "defaultEnvironmentId": id }).to_string();
    let foreign = server.operator("PUT", &of(&other), &to(&own));
    assert_eq!(pointer(&foreign), (422, "/defaultEnvironmentId".to_owned()));
    let foreign = server.operator("PATCH", "/api/instance/settings", &to(&own));
    assert_eq!(pointer(&foreign), (422, "/defaultEnvironmentId".to_owned()));
    told(&server, &["env", "default", "own", "--company", "one"]);
    told(
        &server,
        &["env", "default", "all", "--instance", "--company", "one"],
    );
    let (_, member) = server.token_of("member", Some(&one));
    let seen = ask(&server, &member, "GET", &of(&one), "");
    assert_eq!(
        seen.json(),
        json!({ "defaultEnvironmentId": own, "instanceDefaultEnvironmentId": all }),
        "{}",
        seen.body
    );
    let path = format!("/api/environments/{all}");
    let kept = server.operator("DELETE", &path, "");
    assert_eq!(
        (kept.status, &kept.json()["details"]["deleteBlockedReasons"]),
        (409, &json!(["instance_default"])),
        "{}",
        kept.body
    );
    told(&server, &["env", "default", "--none", "--instance"]);
    assert_eq!(server.operator("DELETE", &path, "").status, 200);
    let own = format!("/api/environments/{own}");
    assert_eq!(server.operator("DELETE", &own, "").status, 200);
    let none = server.operator("GET", &of(&one), "").json();
    assert_eq!(
        none,
        json!({ "defaultEnvironmentId": null, "instanceDefaultEnvironmentId": null })
    );
}

#[test]
fn an_export_of_a_company_has_no_environment_and_no_secret_in_it() {
    let Some((server, one, _)) = two(&[]) else {
        return;
    };
    let path = format!("/api/companies/{one}/secrets");
    let body = r#"{"name":"canary-secret","value":"canary-value"}"#;
    assert_eq!(server.operator("POST", &path, body).status, 201);
    let mut draft = null_draft("canary-environment");
    draft["envVars"] = json!({ "CANARY": "canary-variable" });
    draft["metadata"] = json!({ "canary": "canary-metadata" });
    let made = server.operator("POST", &environments(&one), &draft.to_string());
    let made = id(&made);
    let probe = format!("/api/environments/{made}/probe");
    assert_eq!(server.operator("POST", &probe, "").json()["ok"], true);
    let export = server.operator("GET", &format!("/api/companies/{one}/export"), "");
    assert_eq!(export.json()["company"]["name"], "one", "{}", export.body);
    let by_command = told(&server, &["company", "export", "one"]);
    for said in [&export.body, &by_command] {
        for canary in ["canary", "CANARY", "env_", "sec_", "qualification", "null"] {
            assert!(!said.contains(canary), "{canary}: {said}");
        }
    }
}

#[test]
fn variables_are_what_a_probe_uses_as_a_command_does() {
    let Some(leased) = Leased::new() else {
        return;
    };
    let server = &leased.server;
    let path = leased.path("/executions");
    let body = r#"{"argv":["sh","-c","echo $PLAIN; echo ${#SECRET}"]}"#;
    let ran = server.operator("POST", &path, body).json();
    let key = leased.sshd.key().private.len().to_string();
    assert_eq!(
        ran["stdout"].as_str().unwrap(),
        format!("one\n{key}\n"),
        "{ran}"
    );
    // A variable that a command could not have stops the probe too, and says which.
    let secret = server.operator("POST", "/api/secrets", r#"{"name":"spare","value":"one"}"#);
    let secret = id(&secret);
    let of = json!({ "envVars": { "SPARE": { "type": "secret_ref", "secretId": secret, "version": "latest" } } });
    let environment = format!("/api/environments/{}", leased.environment);
    let saved = server.operator("PATCH", &environment, &of.to_string());
    assert_eq!(saved.status, 200, "{}", saved.body);
    let probe = format!("{environment}/probe");
    assert_eq!(server.operator("POST", &probe, "").json()["ok"], true);
    let had = wait_for("the access of the probe", || {
        let path = format!("/api/secrets/{secret}/accesses");
        let had = server.operator("GET", &path, "").json()["items"].clone();
        (had != json!([])).then_some(had)
    });
    assert_eq!(
        (&had[0]["purpose"], &had[0]["configPath"]),
        (&json!("probe"), &json!("env:SPARE")),
        "{had}"
    );
    let gone = server.operator("DELETE", &format!("/api/secrets/{secret}?force=true"), "");
    assert!(gone.status < 300, "{}", gone.body);
    let probed = server.operator("POST", &probe, "");
    assert_eq!(
        (probed.status, &*probed.code()),
        (409, "secret_missing"),
        "{}",
        probed.body
    );
    assert!(probed.body.contains("SPARE"), "{}", probed.body);
}

#[test]
fn a_host_key_is_trusted_once_somebody_has_seen_its_fingerprint_and_not_before() {
    let Some(leased) = Leased::new() else {
        return;
    };
    let server = &leased.server;
    let environment = format!("/api/environments/{}", leased.environment);
    let target = server.operator("GET", &environment, "").json()["config"]["target"].clone();
    let mut untrusting = target.clone();
    let stranger = "SHA256:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";
    untrusting["hostKeys"] = json!({ "fingerprints": [stranger], "knownHosts": "" });
    let patch = json!({ "config": { "target": untrusting } }).to_string();
    let saved = server.operator("PATCH", &environment, &patch);
    assert_eq!(saved.status, 200, "{}", saved.body);
    let probe = || {
        server
            .operator("POST", &format!("{environment}/probe"), "")
            .json()
    };
    let trusted = || {
        server.operator("GET", &environment, "").json()["config"]["target"]["hostKeys"]["fingerprints"].clone()
    };
    assert_eq!(probe()["ok"], false);
    // Nobody is here to ask, and what the machine shows is not what was named: nothing is trusted.
    let asked = run(server, &["env", "trust", "box"]);
    assert_eq!(asked.status.code(), Some(2), "{asked:?}");
    let wrong = run(server, &["env", "trust", "box", "--fingerprint", stranger]);
    assert_eq!(wrong.status.code(), Some(1), "{wrong:?}");
    assert_eq!(trusted(), json!([stranger]));
    assert_eq!(probe()["ok"], false);
    let shown = String::from_utf8(wrong.stderr).unwrap();
    let prints = leased.sshd.fingerprints();
    let print = prints.iter().find(|print| shown.contains(print.as_str()));
    let print = print.unwrap_or_else(|| panic!("{shown}"));
    told(server, &["env", "trust", "box", "--fingerprint", print]);
    assert_eq!(trusted(), json!([stranger, print]));
    let report = probe();
    assert_eq!(report["ok"], true, "{report}");
}

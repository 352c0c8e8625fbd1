//! Environments that no company has alone, over the API: shared ones, the server's own machine, defaults; what a probe of
//! one is, and what leaves the server with a company. The managed one and the switches are in `switched`.

use serde_json::{Value, json};

use crate::leased::{Leased, component};
use crate::server::{Answer, Server, wait_for};

/// A server with the null provider and two companies; none where it was not built.
pub fn two(args: &[&str]) -> Option<(Server, String, String)> {
    let server = Server::start_with(args);
    install(&server, "null")?;
    let (one, other) = (server.company("one"), server.company("other"));
    Some((server, one, other))
}

pub fn install(server: &Server, name: &str) -> Option<()> {
    let Some(file) = component(name) else {
        leasehold_parts::skipped("`cargo xtask components`");
        return None;
    };
    let file = file.display().to_string();
    let out = run(server, &["plugin", "install", "--yes", &file]);
    assert!(out.status.success(), "{out:?}");
    Some(())
}

pub fn run(server: &Server, args: &[&str]) -> std::process::Output {
    server.home.leasehold().args(args).output().unwrap()
}

/// The same where it has to work: what it printed.
pub fn told(server: &Server, args: &[&str]) -> String {
    let out = run(server, args);
    let error = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success(), "{args:?}: {error}");
    String::from_utf8(out.stdout).unwrap()
}

pub fn ask(server: &Server, token: &str, method: &str, path: &str, body: &str) -> Answer {
    let authorization = format!("Bearer {token}");
    let mut headers = vec![("authorization", authorization.as_str())];
    if !body.is_empty() {
        headers.push(("content-type", "application/json"));
    }
    server.tcp(method, path, &headers, body)
}

pub fn environments(company: &str) -> String {
    format!("/api/companies/{company}/environments")
}

pub fn null_draft(name: &str) -> Value {
    json!({ "name": name, "driver": "sandbox", "provider": "null" })
}

fn shared(server: &Server, company: &str, mut draft: Value) -> Answer {
    draft["companyId"] = Value::Null;
    server.operator("POST", &environments(company), &draft.to_string())
}

pub fn id(answer: &Answer) -> String {
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
    let of_other = format!("/api/companies/{other}/environment-leases");
    assert_eq!(count(server.operator("GET", &of_other, "")), 1);
    for token in [&member, &agent] {
        for path in [&leases(&all), &of_other] {
            let page = ask(&server, token, "GET", path, "");
            assert_eq!(
                page.json()["items"][0]["companyId"],
                *other,
                "{}",
                page.body
            );
            assert_eq!(count(page), 1, "{path}");
        }
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
    let denied = server.operator("GET", "/api/activity?action=secret.denied&after=0", "");
    let denied = denied.json()["items"].as_array().cloned().unwrap();
    let mut told: Vec<&str> = Vec::new();
    for row in &denied {
        assert_eq!(
            (&row["subjectId"], &row["companyId"], &row["outcome"]),
            (&json!(all), &json!(other), &json!("denied"))
        );
        told.extend(row["details"]["operation"].as_str());
    }
    told.sort_unstable();
    assert_eq!(told, ["acquireLease", "probeEnvironment"], "{denied:?}");
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
    assert_eq!(pointer(&probe(&all, "")), (400, "?companyId".to_owned()));
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
    // Where a command would find no program, the probe finds none either, with a value or with a secret.
    let environment = format!("/api/environments/{}", leased.environment);
    let with_path = |path: Value| {
        let patch = json!({ "envVars": { "PATH": path } }).to_string();
        let saved = server.operator("PATCH", &environment, &patch);
        assert_eq!(saved.status, 200, "{}", saved.body);
        let report = server.operator("POST", &format!("{environment}/probe"), "");
        report.json()
    };
    let secret = |name: &str, value: &str| {
        let body = json!({ "name": name, "value": value }).to_string();
        let secret = id(&server.operator("POST", "/api/secrets", &body));
        json!({ "type": "secret_ref", "secretId": secret, "version": "latest" })
    };
    let nowhere = "/nowhere/canary-of-a-path";
    for lost in [json!(nowhere), secret("nowhere", nowhere)] {
        let report = with_path(lost);
        assert_eq!(report["ok"], false, "{report}");
        assert!(
            report["summary"].as_str().unwrap().contains("lacks"),
            "{report}"
        );
        assert!(!report.to_string().contains("canary"), "{report}");
    }
    let found = std::env::var("PATH").unwrap();
    let report = with_path(secret("found", &found));
    assert_eq!(report["ok"], true, "{report}");
    with_path(Value::Null);
    // A variable that a command could not have stops the probe too, and says which.
    let secret = server.operator("POST", "/api/secrets", r#"{"name":"spare","value":"one"}"#);
    let secret = id(&secret);
    let of = json!({ "envVars": { "SPARE": { "type": "secret_ref", "secretId": secret, "version": "latest" } } });
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
    // The record tells those that failed from the one that did not.
    let ended = |outcome: &str| {
        let path = format!("/api/activity?action=environment.probed&outcome={outcome}");
        let rows = server.operator("GET", &path, "").json();
        rows["items"].as_array().unwrap().len()
    };
    assert_eq!((ended("failed"), ended("done")), (2, 1));
}

/// Types a command of ours at a terminal, and an answer; its exit code.
pub fn at_terminal(server: &Server, args: &[&str], answer: &str) -> Option<i32> {
    let ours = server.home.leasehold();
    let mut words = vec![ours.get_program().to_str().unwrap().to_owned()];
    words.extend(args.iter().map(|arg| format!("'{arg}'")));
    let mut typed = std::process::Command::new("script")
        .args(["-qec", &words.join(" "), "/dev/null"])
        .env_clear()
        .envs(
            ours.get_envs()
                .filter_map(|(name, value)| Some((name, value?))),
        )
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut keys = typed.stdin.take().unwrap();
    std::io::Write::write_all(&mut keys, answer.as_bytes()).unwrap();
    let out = typed.wait_with_output().unwrap();
    out.status.code()
}

#[test]
fn somebody_at_a_terminal_is_shown_a_new_machines_key_and_asked_before_it_is_trusted() {
    let Some(leased) = Leased::new() else {
        return;
    };
    if std::process::Command::new("script")
        .arg("--version")
        .output()
        .is_err()
    {
        leasehold_parts::skipped("script");
        return;
    }
    let server = &leased.server;
    let path = format!("/api/environments/{}", leased.environment);
    let config = server.operator("GET", &path, "").json()["config"].clone();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let (user, place) = (
        text(&config["target"]["username"]),
        text(&config["remoteWorkspacePath"]),
    );
    let host = format!("127.0.0.1:{}", leased.sshd.port());
    let (host, port) = host.split_once(':').unwrap();
    let create = [
        "env",
        "create",
        "--name",
        "second",
        "--host",
        host,
        "--port",
        port,
        "--user",
        &user,
        "--key",
        "key",
        "--workspace",
        &place,
    ];
    let second = || {
        let all = server
            .operator("GET", &environments(&leased.company), "")
            .json();
        let found = all
            .as_array()
            .unwrap()
            .iter()
            .find(|e| e["name"] == "second");
        found.cloned()
    };
    assert_eq!(at_terminal(server, &create, "n\n"), Some(2));
    assert_eq!(second(), None, "nothing is saved that trusts nothing");
    assert_eq!(at_terminal(server, &create, "y\n"), Some(0));
    let second = second().unwrap();
    let trusted = &second["config"]["target"]["hostKeys"]["fingerprints"];
    let prints = leased.sshd.fingerprints();
    assert_eq!(trusted.as_array().unwrap().len(), 1, "{second}");
    assert!(
        prints.iter().any(|print| trusted[0] == print.as_str()),
        "{second}"
    );
    let probe = format!("/api/environments/{}/probe", second["id"].as_str().unwrap());
    let report = server.operator("POST", &probe, "").json();
    assert_eq!(report["ok"], true, "{report}");
}

#[test]
fn an_environment_becomes_another_companys_own_once_nobody_else_uses_it_and_everybodys_again() {
    let Some((server, one, other)) = two(&[]) else {
        return;
    };
    let all = id(&shared(&server, &one, null_draft("all")));
    let path = format!("/api/environments/{all}");
    let agents = format!("/api/companies/{other}/agents");
    let coder = json!({ "id": "coder", "environmentId": all }).to_string();
    let made = server.operator("POST", &agents, &coder);
    assert_eq!(made.status, 201, "{}", made.body);
    let body = json!({ "companyId": &one }).to_string();
    let kept = server.operator("PATCH", &path, &body);
    assert_eq!(
        (kept.status, &*kept.code()),
        (409, "environment_used_by_other_companies"),
        "{}",
        kept.body
    );
    assert_eq!(kept.json()["details"]["agents"], 1, "{}", kept.body);
    let nobody = server.operator("PATCH", &path, r#"{"companyId":"com_nobody"}"#);
    assert_eq!(pointer(&nobody), (422, "/companyId".to_owned()));
    told(
        &server,
        &["agent", "set", "coder", "-C", "other", "--no-environment"],
    );
    told(
        &server,
        &["env", "update", "-C", "one", "all", "--owner", "one"],
    );
    let (_, member) = server.token_of("member", Some(&other));
    let theirs = names(&ask(&server, &member, "GET", &environments(&other), ""));
    assert_eq!(theirs, [] as [&str; 0]);
    assert_eq!(ask(&server, &member, "GET", &path, "").status, 404);
    told(&server, &["env", "update", "-C", "one", "all", "--shared"]);
    let theirs = names(&ask(&server, &member, "GET", &environments(&other), ""));
    assert_eq!(theirs, ["all"]);
    let row = server.operator("GET", &path, "").json();
    assert_eq!(
        (&row["companyId"], &row["revision"]),
        (&Value::Null, &json!(3))
    );
}

//! Who is somebody, and what by: tokens that are revoked in mid-stream, names that an agent may use, what is named to
//! stay and what to go.

use futures_util::SinkExt;
use serde_json::{Value, json};

use crate::leased::Leased;
use crate::live::{Heard, next, rest, run, shell, text};
use crate::rows::install;
use crate::server::{Answer, DEADLINE, Server, wait_for};

fn revoke(leased: &Leased, id: &str) {
    let gone = leased
        .server
        .operator("DELETE", &format!("/api/tokens/{id}"), "");
    assert_eq!(gone.status, 204, "{}", gone.body);
}

#[test]
fn a_revoked_token_loses_its_open_streams_and_its_command_goes_on() {
    let Some(leased) = Leased::new() else { return };
    let (id, token) = leased.server.token_of("agent", Some(&leased.company));
    run(async {
        let mut socket = leased.open(Some(&token)).await;
        let mut waiting = leased.open(Some(&token)).await;
        let ticket = {
            let authorization = format!("Bearer {token}");
            let headers = [("authorization", authorization.as_str())];
            let answer =
                leased
                    .server
                    .tcp("POST", &leased.path("/executions/ticket"), &headers, "");
            answer.json()["ticket"].as_str().unwrap().to_owned()
        };
        socket
            .send(text(&shell("read line; exit 4")))
            .await
            .unwrap();
        let Heard::Said(started) = next(&mut socket).await else {
            panic!("no start")
        };
        let execution = started["executionId"].as_str().unwrap().to_owned();
        revoke(&leased, &id);
        // One that runs a command, one that has not yet said which, and one that would begin with a ticket of before.
        let mut late = leased.open(None).await;
        late.send(text(&json!({"type": "auth", "token": ticket})))
            .await
            .unwrap();
        for stream in [&mut socket, &mut waiting, &mut late] {
            let (_, _, last, code) = tokio::time::timeout(DEADLINE, rest(stream))
                .await
                .expect("the stream is closed");
            assert_eq!(
                (last["details"]["code"].as_str(), code),
                (Some("unauthenticated"), 1008),
                "{last}"
            );
        }
        // As when a client goes away: the input is over, and the command has an end of its own.
        let ended = wait_for("the command's own end", || {
            let row = leased.execution(&execution);
            (row["outcome"] != "running").then_some(row)
        });
        assert_eq!(
            (&ended["outcome"], &ended["exitCode"]),
            (&json!("exited"), &json!(4)),
            "{ended}"
        );
    });
}

#[test]
fn the_last_frame_of_a_command_whose_lease_is_released_says_how_it_ended() {
    let Some(leased) = Leased::new() else { return };
    run(async {
        let (mut socket, id) = leased.start(shell("echo up; sleep 1000")).await;
        assert_eq!(next(&mut socket).await, Heard::Out(b"up\n".into()));
        let released = leased.server.operator("POST", &leased.path("/release"), "");
        assert_eq!(released.json()["status"], "released", "{}", released.body);
        let (_, _, last, code) = rest(&mut socket).await;
        assert_eq!(
            (
                last["type"].as_str(),
                last["outcome"].as_str(),
                last["signal"].as_str(),
                code
            ),
            (Some("exit"), Some("signalled"), Some("KILL"), 1000),
            "{last}"
        );
        assert_eq!(leased.execution(&id)["outcome"], "signalled");
    });
}

#[test]
fn an_agent_leases_by_name_and_learns_nothing_else() {
    let Some(leased) = Leased::new() else { return };
    let server = &leased.server;
    let foreign = server.company("foreign");
    let (_, agent) = server.token_of("agent", Some(&leased.company));
    let (_, stranger) = server.token_of("agent", Some(&foreign));
    let get = |token: &str, path: &str| {
        let authorization = format!("Bearer {token}");
        server.tcp("GET", path, &[("authorization", &authorization)], "")
    };
    let environments = format!("/api/companies/{}/environments", leased.company);
    let named = format!("{environments}/resolve?name=box");
    let found = get(&agent, &named);
    assert_eq!(
        found.json(),
        json!({ "id": leased.environment, "name": "box" }),
        "{}",
        found.body
    );
    assert_eq!(
        get(&agent, &format!("{environments}/resolve?name=bo")).status,
        404
    );
    assert_eq!(get(&stranger, &named).status, 404);
    assert_eq!(get(&agent, &environments).status, 403);

    let file = server.home.path().join("agent-token");
    std::fs::write(&file, &agent).unwrap();
    let place = format!("http://127.0.0.1:{}", server.port);
    let lease = |name: &str| {
        let out = server
            .home
            .leasehold()
            .args([
                "--server",
                &place,
                "--token-file",
                file.to_str().unwrap(),
                "lease",
                "acquire",
                name,
            ])
            .output()
            .unwrap();
        (
            out.status.code(),
            String::from_utf8_lossy(&out.stderr).into_owned(),
        )
    };
    // The name is known; that the target is in use is what stands in the way.
    let (code, said) = lease("box");
    assert_eq!(
        (code, said.contains(&leased.lease)),
        (Some(5), true),
        "{said}"
    );
    assert_eq!(lease("no such box").0, Some(3));

    let environment = format!("/api/environments/{}", leased.environment);
    let archived = server.operator("PATCH", &environment, r#"{"status":"archived"}"#);
    assert_eq!(archived.status, 200, "{}", archived.body);
    assert_eq!(get(&agent, &named).status, 404);
    assert_eq!(server.operator("GET", &named, "").status, 200);
}

#[test]
fn an_update_changes_what_it_names_and_can_take_back_what_was_allowed() {
    let Some(leased) = Leased::new() else { return };
    let server = &leased.server;
    let update = |args: &[&str]| {
        let out = server
            .home
            .leasehold()
            .args(["env", "update", "box"])
            .args(args)
            .output()
            .unwrap();
        assert!(
            out.status.success(),
            "{args:?}: {}",
            String::from_utf8_lossy(&out.stderr)
        );
        server
            .operator(
                "GET",
                &format!("/api/environments/{}", leased.environment),
                "",
            )
            .json()
    };
    let before = update(&["--description", "d"]);
    assert_eq!(before["envVars"]["PLAIN"], "one", "{before}");
    let now = update(&["--var", "NEW=1", "--allow-shared-account"]);
    assert_eq!(
        (
            &now["envVars"]["PLAIN"],
            &now["envVars"]["NEW"],
            &now["envVars"]["SECRET"]
        ),
        (&json!("one"), &json!("1"), &before["envVars"]["SECRET"])
    );
    assert_eq!(now["config"]["allowSharedAccount"], true);
    let now = update(&["--unset-var", "PLAIN", "--allow-shared-account=false"]);
    assert_eq!(
        (&now["envVars"]["PLAIN"], &now["envVars"]["NEW"]),
        (&Value::Null, &json!("1"))
    );
    assert_eq!(now["config"]["allowSharedAccount"], false);
    let out = server
        .home
        .leasehold()
        .args(["env", "update", "box", "--var", "A=1", "--unset-var", "A"])
        .output()
        .unwrap();
    assert_eq!(out.status.code(), Some(2));
}

#[test]
fn what_is_wrong_with_a_key_is_said_where_the_client_wrote_it() {
    let Some(leased) = Leased::new() else { return };
    let server = &leased.server;
    let environment = format!("/api/environments/{}", leased.environment);
    let keyed = |name: &str, value: &str| {
        let path = format!("/api/companies/{}/secrets", leased.company);
        let body = json!({ "name": name, "value": value }).to_string();
        let secret = server.operator("POST", &path, &body).json();
        let mut target =
            server.operator("GET", &environment, "").json()["config"]["target"].clone();
        target["privateKey"]["secretId"] = secret["id"].clone();
        let changed = json!({ "config": { "target": target, "allowSharedAccount": true } });
        let changed = server.operator("PATCH", &environment, &changed.to_string());
        assert_eq!(changed.status, 200, "{}", changed.body);
    };
    keyed("no-key", "this is no key at all");
    let probe = server.operator("POST", &format!("{environment}/probe"), "");
    assert_eq!(
        probe.json()["details"]["violations"][0]["pointer"],
        "/config/target/privateKey",
        "{}",
        probe.body
    );
    let broken = "-----BEGIN OPENSSH PRIVATE KEY-----\nbm8=\n-----END OPENSSH PRIVATE KEY-----\n";
    keyed("broken-key", broken);
    let probe = server
        .operator("POST", &format!("{environment}/probe"), "")
        .json();
    let finding = probe["details"]["findings"][0]["message"].to_string();
    assert!(finding.contains("/config/target/privateKey"), "{probe}");
    let released = server.operator("POST", &leased.path("/release"), "");
    assert_eq!(released.json()["status"], "released", "{}", released.body);
    let acquired = server.operator("POST", &format!("{environment}/leases"), "");
    assert_eq!(
        (
            acquired.code().as_str(),
            acquired.json()["details"]["violations"][0]["pointer"].as_str()
        ),
        ("invalid_config", Some("/config/target/privateKey")),
        "{}",
        acquired.body
    );
}

#[test]
fn every_mistake_of_a_configuration_is_told_in_one_answer_each_by_its_pointer() {
    let server = Server::start();
    if install(&server, "ssh").is_none() {
        return;
    }
    let company = server.company("acme");
    let draft = json!({
        "name": "box", "driver": "ssh", "provider": "ssh",
        "config": {
            "target": { "host": "h", "username": "u", "port": 99999 },
            "remoteWorkspacePath": "relative",
            "allowSharedAccount": "yes",
            "bogus": 1,
        },
        "envVars": { "LEASEHOLD_MINE": "x" },
    });
    let pointers = |answer: &Answer| {
        assert_eq!(
            (answer.status, answer.code().as_str()),
            (422, "invalid"),
            "{}",
            answer.body
        );
        let violations = answer.json()["details"]["violations"].clone();
        let all = violations.as_array().unwrap().iter();
        let mut all: Vec<String> = all
            .map(|v| {
                assert!(!v["message"].as_str().unwrap().is_empty(), "{v}");
                v["pointer"].as_str().unwrap().to_owned()
            })
            .collect();
        all.sort();
        all
    };
    let expected = [
        "/config",
        "/config/allowSharedAccount",
        "/config/remoteWorkspacePath",
        "/config/target/port",
        "/config/target/privateKey",
        "/envVars/LEASEHOLD_MINE",
    ];
    let all = format!("/api/companies/{company}/environments");
    for path in [all.clone(), format!("{all}/probe-config")] {
        let refused = server.operator("POST", &path, &draft.to_string());
        assert_eq!(pointers(&refused), expected, "{path}");
    }
    let rows = server.operator("GET", &all, "").json();
    assert!(
        rows.as_array()
            .unwrap()
            .iter()
            .all(|row| row["name"] != "box")
    );
}

#[test]
fn a_provider_that_is_disabled_is_withheld_in_sight() {
    let Some(leased) = Leased::new() else { return };
    let server = &leased.server;
    let capabilities = || {
        let path = format!(
            "/api/companies/{}/environments/capabilities",
            leased.company
        );
        server.operator("GET", &path, "").json()
    };
    let offered = capabilities();
    assert_eq!(
        (&offered["providers"][0]["key"], &offered["withheld"]),
        (&json!("ssh"), &json!([]))
    );
    assert_eq!(
        server
            .operator("POST", "/api/plugins/ssh/disable", "")
            .status,
        200
    );
    let now = capabilities();
    assert_eq!(now["providers"], json!([]));
    assert_eq!(
        (&now["withheld"][0]["key"], &now["withheld"][0]["by"]),
        (&json!("ssh"), &json!("grant")),
        "{now}"
    );
}

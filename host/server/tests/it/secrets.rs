//! Secrets as a user meets them: what uses them, rotation on a real target, values that come with an environment, another
//! master key. That no answer holds a value is looked at in `tests/tests/secrecy.rs`.

use std::process::Output;

use leasehold_parts::{Format, KeyPair, Kind, skipped};
use serde_json::{Value, json};

use crate::leased::{Leased, component};
use crate::server::{Home, Server, wait_for};

fn run(home: &Home, args: &[&str]) -> Output {
    home.leasehold().args(args).output().unwrap()
}

#[track_caller]
fn told(home: &Home, args: &[&str]) -> String {
    let out = run(home, args);
    assert!(
        out.status.success(),
        "{args:?}: {}",
        String::from_utf8_lossy(&out.stderr)
    );
    String::from_utf8(out.stdout).unwrap()
}

fn refused(out: &Output) -> (i32, String) {
    let text = String::from_utf8_lossy(&out.stderr).into_owned();
    (out.status.code().unwrap_or(-1), text)
}

/// The fingerprint of the key that the last login was let in by.
fn last_login(leased: &Leased) -> String {
    let log = leased.sshd.log();
    let line = log
        .lines()
        .rfind(|line| line.contains("Accepted publickey"))
        .unwrap_or_default();
    line.rsplit(' ').next().unwrap_or_default().to_owned()
}

#[test]
fn a_rotated_key_ends_the_old_connections_and_the_next_lease_logs_in_by_the_new_one() {
    let Some(leased) = Leased::new() else { return };
    let home = &leased.server.home;
    let old = leased.sshd.key().fingerprint.clone();
    let new = KeyPair::generate(Kind::Ed25519, Format::OpenSsh, "").unwrap();
    let account = leased.sshd.worker().name.clone();
    leased.sshd.authorize(&account, &new.public).unwrap();
    let connected = || {
        let processes = leased.sshd.processes();
        processes.iter().any(|p| p.name.starts_with("sshd"))
    };
    assert!(
        leased
            .exec(&[&leased.lease, "--", "true"])
            .status()
            .unwrap()
            .success()
    );
    assert_eq!(last_login(&leased), old);
    assert!(connected(), "a connection stands in the pool");

    let file = home.path().join("new-key");
    std::fs::write(&file, &new.private).unwrap();
    told(
        home,
        &["secret", "rotate", "key", "--file", file.to_str().unwrap()],
    );
    wait_for("the end of the old connections", || {
        (!connected()).then_some(())
    });

    // The lease pinned the old version, connects with it again, and keeps it from being destroyed.
    assert!(
        leased
            .exec(&[&leased.lease, "--", "true"])
            .status()
            .unwrap()
            .success()
    );
    assert_eq!(last_login(&leased), old);
    let (code, why) = refused(&run(home, &["secret", "destroy", "key", "1"]));
    assert_eq!(code, 5, "{why}");
    assert!(why.contains("1 unreleased lease"), "{why}");
    told(home, &["lease", "release", &leased.lease]);

    let made = leased.server.operator(
        "POST",
        &format!("/api/environments/{}/leases", leased.environment),
        r#"{"runId":"run-7"}"#,
    );
    assert_eq!(made.status, 201, "{}", made.body);
    assert_eq!(last_login(&leased), new.fingerprint);
    told(home, &["secret", "destroy", "key", "1"]);
    let shown = told(home, &["secret", "show", "key"]);
    for part in [
        "destroyed",
        "/target/privateKey",
        "env:SECRET",
        "latest",
        "active",
    ] {
        assert!(shown.contains(part), "{part} is not in {shown}");
    }
    let accesses: Value =
        serde_json::from_str(&told(home, &["secret", "access", "key", "--json"])).unwrap();
    let lease = &made.json()["id"];
    let items = accesses["items"].as_array().unwrap();
    let pinned: Vec<_> = items
        .iter()
        .filter(|a| a["leaseId"] == *lease && a["purpose"] == "lease")
        .collect();
    assert_eq!(pinned.len(), 2, "{accesses}");
    assert_eq!(
        (&pinned[0]["runId"], &pinned[0]["version"]),
        (&json!("run-7"), &json!(2))
    );
}

#[test]
fn a_secret_that_is_deleted_by_force_is_told_before_and_missed_afterwards() {
    let Some(leased) = Leased::new() else { return };
    let home = &leased.server.home;
    let (code, why) = refused(&run(home, &["secret", "delete", "key"]));
    assert_eq!(code, 5, "{why}");
    let before = told(home, &["secret", "delete", "key", "--dry-run"]);
    for part in [&leased.environment, &leased.lease] {
        assert!(before.contains(part.as_str()), "{part} is not in {before}");
    }
    assert!(
        leased
            .exec(&[&leased.lease, "--", "true"])
            .status()
            .unwrap()
            .success()
    );
    let listed = |named: &str| -> Value {
        let told = told(home, &["secret", "access", named, "--json"]);
        serde_json::from_str(&told).unwrap()
    };
    let known: Value = serde_json::from_str(&told(home, &["secret", "list", "--json"])).unwrap();
    let is_key = |secret: &&Value| secret["name"] == "key";
    let id = &known.as_array().unwrap().iter().find(is_key).unwrap()["id"];
    let had = listed("key");
    assert!(!had["items"].as_array().unwrap().is_empty(), "{had}");
    told(home, &["secret", "delete", "key", "--force"]);
    // Who had it can be looked up still, by its id; what never was a secret has no list.
    assert_eq!(listed(id.as_str().unwrap()), had);
    let (code, why) = refused(&run(home, &["secret", "access", "sec_none"]));
    assert_eq!(code, 3, "{why}");
    let once = r#"{"argv":["true"]}"#;
    for (path, body) in [
        (leased.path("/executions"), once),
        (
            format!("/api/environments/{}/leases", leased.environment),
            "",
        ),
        (
            format!("/api/environments/{}/probe", leased.environment),
            "",
        ),
    ] {
        let answer = leased.server.operator("POST", &path, body);
        assert_eq!(
            (answer.status, answer.code().as_str()),
            (409, "secret_missing"),
            "{path}: {}",
            answer.body
        );
        assert!(
            answer.body.contains("/target/privateKey"),
            "{}",
            answer.body
        );
    }
    // What does not need the secret goes on: the environment can be put away.
    told(
        home,
        &["env", "update", &leased.environment, "--status", "archived"],
    );
    let released = leased.server.operator("POST", &leased.path("/release"), "");
    assert_ne!(released.json()["status"], "released", "{}", released.body);
}

/// A server with the SSH component, and a company.
fn with_component() -> Option<Server> {
    let Some(component) = component("ssh") else {
        skipped("`cargo xtask components`");
        return None;
    };
    let server = Server::start();
    told(
        &server.home,
        &["plugin", "install", "--yes", component.to_str().unwrap()],
    );
    server.company("acme");
    Some(server)
}

#[test]
fn a_key_in_a_file_becomes_a_secret_with_its_environment_or_not_at_all() {
    let Some(server) = with_component() else {
        return;
    };
    let home = &server.home;
    let (key, token) = (home.path().join("id"), home.path().join("token"));
    let pair = KeyPair::generate(Kind::Ed25519, Format::OpenSsh, "").unwrap();
    std::fs::write(&key, &pair.private).unwrap();
    std::fs::write(&token, "canary-token").unwrap();
    let variable = format!("TOKEN={}", token.display());
    let create = |name: &str, workspace: &str| {
        let flags = [
            "--host",
            "127.0.0.1",
            "--user",
            "ci",
            "--workspace",
            workspace,
        ];
        let secrets = [
            "--key-file",
            key.to_str().unwrap(),
            "--secret-var-file",
            &variable,
        ];
        let print = ["--fingerprint", &pair.fingerprint];
        let args = [
            &["env", "create", "--name", name],
            &flags[..],
            &secrets,
            &print,
        ]
        .concat();
        run(home, &args)
    };
    let names = || {
        let listed: Value =
            serde_json::from_str(&told(home, &["secret", "list", "--json"])).unwrap();
        let mut names: Vec<String> = listed
            .as_array()
            .unwrap()
            .iter()
            .map(|s| {
                format!(
                    "{} ({})",
                    s["name"].as_str().unwrap(),
                    s["purpose"].as_str().unwrap()
                )
            })
            .collect();
        names.sort();
        names
    };
    let (code, why) = refused(&create("box", "not/absolute"));
    assert_ne!(code, 0);
    assert!(why.contains("remoteWorkspacePath"), "{why}");
    assert_eq!(names(), Vec::<String>::new(), "nothing is left of it");
    let made = create("box", "/srv/leases");
    assert!(made.status.success(), "{}", refused(&made).1);
    assert_eq!(names(), ["box TOKEN (other)", "box privateKey (key)"]);
    let (code, why) = refused(&create("box", "/srv/leases"));
    assert_eq!(code, 5, "{why}");
    assert_eq!(names().len(), 2, "nothing is left of it");
    let company = server.operator("GET", "/api/companies", "").json()[0]["id"].clone();
    let plain = server.operator(
        "POST",
        &format!("/api/companies/{}/environments", company.as_str().unwrap()),
        &json!({
            "name": "wrong", "driver": "ssh",
            "config": {
                "target": { "host": { "type": "secret_value", "value": "canary-host" }, "username": "ci",
                            "hostKeys": { "fingerprints": [pair.fingerprint] } },
                "remoteWorkspacePath": "/srv/leases",
            },
        })
        .to_string(),
    );
    assert_eq!(plain.status, 422, "{}", plain.body);
    assert!(!plain.body.contains("canary"), "{}", plain.body);
    assert_eq!(names().len(), 2, "nothing is left of it");
    for said in [
        server.home.log(),
        server.operator("GET", "/api/activity", "").body,
    ] {
        assert!(!said.contains("canary-token"), "{said}");
    }
}

#[test]
fn the_command_knows_secrets_of_the_instance_their_purposes_and_versions() {
    let server = Server::start();
    server.company("acme");
    let home = &server.home;
    let file = home.path().join("value");
    std::fs::write(&file, "one").unwrap();
    let file = file.to_str().unwrap();
    told(
        home,
        &[
            "secret",
            "set",
            "registry",
            "--instance",
            "--purpose",
            "password",
            "--file",
            file,
        ],
    );
    told(
        home,
        &[
            "secret",
            "set",
            "mine",
            "--purpose",
            "token",
            "--file",
            file,
        ],
    );
    let listed = told(
        home,
        &["secret", "list", "--instance", "--purpose", "password"],
    );
    assert!(
        listed.contains("registry") && !listed.contains("mine"),
        "{listed}"
    );
    let listed = told(home, &["secret", "list", "--purpose", "key"]);
    assert_eq!(listed.lines().count(), 1, "{listed}");
    let (code, why) = refused(&run(
        home,
        &["secret", "disable", "registry", "1", "--instance"],
    ));
    assert_eq!(code, 5, "{why}");
    told(
        home,
        &["secret", "rotate", "registry", "--instance", "--file", file],
    );
    told(home, &["secret", "disable", "registry", "1", "--instance"]);
    let shown = told(home, &["secret", "show", "registry", "--instance"]);
    assert!(
        shown.contains("disabled") && shown.contains("enabled"),
        "{shown}"
    );
    let (code, why) = refused(&run(home, &["secret", "rotate", "nobody", "--file", file]));
    assert_eq!(code, 3, "{why}");
    told(home, &["secret", "delete", "registry", "--instance"]);
    let list = server.operator("GET", "/api/secrets?purpose=bogus", "");
    assert_eq!(list.status, 422, "{}", list.body);
}

#[test]
fn the_master_key_is_changed_while_no_server_runs_and_tokens_stay_valid() {
    let mut server = Server::start();
    server.company("acme");
    let (_, token) = server.token_of("admin", None);
    let key = server.home.path().join("config/leasehold/master.key");
    let old = std::fs::read(&key).unwrap();
    let (_, why) = refused(&run(&server.home, &["secret", "rekey"]));
    assert!(why.contains("another server uses it"), "{why}");
    assert_eq!(std::fs::read(&key).unwrap(), old);
    server.end_by("TERM");
    let said = told(&server.home, &["secret", "rekey"]);
    assert!(
        said.contains("rows are under it") && said.contains("master.key.old-"),
        "{said}"
    );
    assert_ne!(std::fs::read(&key).unwrap(), old);
    server.again();
    let authorization = format!("Bearer {token}");
    let asked = server.tcp(
        "GET",
        "/api/companies",
        &[("authorization", &authorization)],
        "",
    );
    assert_eq!(asked.status, 200, "{}", asked.body);
    assert_eq!(
        server.operator("GET", "/api/activity/chain", "").status,
        200
    );
    server.end_by("TERM");

    // A key that is lost: nothing is made in its place, and nothing of the data is touched.
    let database = server.home.path().join("data/leasehold/leasehold.db");
    let data = std::fs::read(&database).unwrap();
    let kept = std::fs::read(&key).unwrap();
    std::fs::remove_file(&key).unwrap();
    let (code, why) = refused(&run(&server.home, &["secret", "rekey"]));
    assert_ne!(code, 0);
    assert!(why.contains("restore the key"), "{why}");
    let mut child = server.home.spawn(&[]);
    let ended = wait_for("the refusal", || child.try_wait().unwrap());
    assert!(!ended.success());
    assert!(
        server.home.log().contains("restore the key"),
        "{}",
        server.home.log()
    );
    assert!(!key.exists(), "no key is made");
    assert_eq!(std::fs::read(&database).unwrap(), data);
    std::fs::write(&key, kept).unwrap();
    std::fs::set_permissions(&key, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    server.again();
    assert_eq!(
        server.operator("GET", "/api/companies", "").json()[0]["name"],
        "acme"
    );
}

//! Flags of the command: what the API takes can be said by them, and what cannot be is refused before anything is sent.

use serde_json::{Value, json};

use crate::edits::with_environment;
use crate::leased::Leased;
use crate::rows::{run, told};
use crate::server::Server;

/// What it answers as JSON.
fn answer(server: &Server, args: &[&str]) -> Value {
    let out = told(server, &[args, &["--json"]].concat());
    serde_json::from_str(&out).unwrap_or_else(|e| panic!("{args:?}: {e}: {out}"))
}

/// It is a mistake of usage, and the message has these words.
fn wrong(server: &Server, args: &[&str], words: &str) {
    let out = run(server, args);
    let said = String::from_utf8_lossy(&out.stderr);
    assert_eq!(out.status.code(), Some(2), "{args:?}: {said}");
    assert!(said.contains(words), "{args:?}: {said}");
}

#[test]
fn metadata_labels_and_the_status_of_an_environment_are_said_by_flags() {
    let Some((server, ..)) = with_environment() else {
        return;
    };
    let file = server.home.path().join("metadata.json");
    std::fs::write(&file, r#"{"team":{"name":"a"},"labels":{"zone":"east"}}"#).unwrap();
    let file = file.to_str().unwrap();
    let create = ["env", "create", "--driver", "sandbox", "--provider", "null"];
    let made = |name: &str, more: &[&str]| {
        answer(&server, &[&create[..], &["--name", name], more].concat())
    };
    let shelved = made(
        "shelved",
        &[
            "--metadata-file",
            file,
            "--label",
            "disk=big",
            "--status",
            "archived",
        ],
    );
    assert_eq!(
        (&shelved["status"], &shelved["metadata"]),
        (
            &json!("archived"),
            &json!({"team": {"name": "a"}, "labels": {"zone": "east", "disk": "big"}})
        )
    );
    let inline = made("inline", &["--metadata", r#"{"k":1}"#]);
    assert_eq!(inline["metadata"], json!({"k": 1}));
    let update = |more: &[&str]| answer(&server, &[&["env", "update", "inline"], more].concat());
    let now = update(&["--label", "zone=west", "--label", "disk=small=er"]);
    assert_eq!(
        now["metadata"],
        json!({"k": 1, "labels": {"zone": "west", "disk": "small=er"}})
    );
    assert_eq!(
        update(&["--metadata", r#"{"l":2}"#])["metadata"],
        json!({"l": 2})
    );
    let both = ["--metadata", "{}", "--metadata-file", file];
    let with = |more: &[&'static str]| [&["env", "update", "inline"][..], more].concat();
    wrong(
        &server,
        &[&["env", "update", "inline"][..], &both].concat(),
        "cannot be used with",
    );
    wrong(&server, &with(&["--metadata", "[1]"]), "not a JSON object");
    wrong(&server, &with(&["--metadata", "{"]), "not JSON");
    wrong(&server, &with(&["--label", "zone"]), "NAME=VALUE");
    assert_eq!(
        answer(&server, &["env", "get", "inline"])["metadata"],
        json!({"l": 2})
    );
    let listed = |provider: &str| {
        let all = answer(&server, &["env", "list", "--provider", provider]);
        all.as_array().unwrap().len()
    };
    assert_eq!((listed("null"), listed("local"), listed("ssh")), (3, 1, 0));
}

#[test]
fn a_dry_run_tells_what_a_deletion_touches_and_deletes_nothing() {
    let Some((server, company, path)) = with_environment() else {
        return;
    };
    let secrets = format!("/api/companies/{company}/secrets");
    let secret = |name: &str| {
        let body = json!({"name": name, "value": "x"}).to_string();
        let made = server.operator("POST", &secrets, &body);
        made.json()["id"].as_str().unwrap().to_owned()
    };
    let (own, both) = (secret("own"), secret("both"));
    let reference = |id: &str| json!({"type": "secret_ref", "secretId": id, "version": "latest"});
    let vars =
        json!({"envVars": {"A": reference(&own), "B": reference(&both), "C": reference(&own)}});
    assert_eq!(
        server.operator("PATCH", &path, &vars.to_string()).status,
        200
    );
    let other = json!({"name": "other", "driver": "sandbox", "provider": "null", "envVars": {"B": reference(&both)}});
    let all = format!("/api/companies/{company}/environments");
    let other = server.operator("POST", &all, &other.to_string());
    assert_eq!(other.status, 201, "{}", other.body);
    told(&server, &["env", "default", "nothing"]);
    let dry = ["env", "delete", "nothing", "--dry-run"];
    let radius = answer(&server, &dry);
    assert_eq!(
        radius["secretsUsedByNothingElse"],
        json!([{"secretId": own, "name": "own"}])
    );
    assert_eq!(radius["staticReferences"]["companyDefaultCount"], 1);
    assert_eq!(radius["canDelete"], true);
    let said = told(&server, &dry);
    for words in [
        "1 companies whose default it is",
        "3 rights to use secrets",
        &format!("secret own ({own}) stays, and nothing else uses it"),
        "it can be deleted",
    ] {
        assert!(said.contains(words), "{words}: {said}");
    }
    assert!(!said.contains("both"), "{said}");
    assert_eq!(server.operator("GET", &path, "").status, 200);
    wrong(
        &server,
        &[&dry[..], &["--yes"]].concat(),
        "cannot be used with",
    );
    // What stands in the way is told, too.
    let lease = answer(&server, &["lease", "acquire", "nothing"]);
    let said = told(&server, &dry);
    assert!(
        said.contains("it cannot be deleted: active_lease"),
        "{said}"
    );
    told(
        &server,
        &["lease", "release", lease["id"].as_str().unwrap()],
    );
    told(&server, &["env", "delete", "nothing"]);
    assert_eq!(server.operator("GET", &path, "").status, 404);
    // Now nothing else uses the other one.
    let radius = answer(&server, &["env", "delete", "other", "--dry-run"]);
    assert_eq!(
        radius["secretsUsedByNothingElse"],
        json!([{"secretId": both, "name": "both"}])
    );
    assert_eq!(radius["staticReferences"]["companyDefaultCount"], 0);
}

#[test]
fn the_places_where_an_environment_uses_secrets_say_whose_they_are_and_how_they_stand() {
    let Some((server, company, path)) = with_environment() else {
        return;
    };
    let make = |path: &str, name: &str| {
        let body = json!({"name": name, "value": "canary-value"}).to_string();
        let made = server.operator("POST", path, &body);
        made.json()["id"].as_str().unwrap().to_owned()
    };
    let own = make(&format!("/api/companies/{company}/secrets"), "own");
    let everybodys = make("/api/secrets", "everybody's");
    let newer = server.operator(
        "POST",
        &format!("/api/secrets/{own}/versions"),
        r#"{"value":"canary-newer"}"#,
    );
    assert_eq!(newer.status, 201, "{}", newer.body);
    let reference = |id: &str, version: Value| json!({"type": "secret_ref", "secretId": id, "version": version});
    let vars = json!({"envVars": {
        "FIRST": reference(&own, json!(1)),
        "LAST": reference(&own, json!("latest")),
        "SHARED": reference(&everybodys, json!("latest")),
    }});
    let saved = server.operator("PATCH", &path, &vars.to_string());
    assert_eq!(saved.status, 200, "{}", saved.body);
    let refs = server.operator("GET", &format!("{path}/secret-refs"), "");
    assert_eq!(refs.status, 200, "{}", refs.body);
    let of = |place: &str, id: &str, owner: Value, name: &str, selector: &str, version: i64| {
        json!({
            "secretId": id, "companyId": owner, "name": name, "configPath": place,
            "selector": selector, "version": version, "status": "enabled",
        })
    };
    let expected = json!({"refs": [
        of("env:FIRST", &own, json!(company), "own", "1", 1),
        of("env:LAST", &own, json!(company), "own", "latest", 2),
        of("env:SHARED", &everybodys, Value::Null, "everybody's", "latest", 1),
    ]});
    assert_eq!(refs.json(), expected);
    assert_eq!(answer(&server, &["env", "secrets", "nothing"]), expected);
    let table = told(&server, &["env", "secrets", "nothing"]);
    assert_eq!(table.lines().count(), 4, "{table}");
    for words in ["env:FIRST", "everybody's", "enabled", company.as_str()] {
        assert!(table.contains(words), "{words}: {table}");
    }
    assert!(!format!("{}{table}", refs.body).contains("canary"));
}

#[test]
fn a_row_is_made_with_its_environment_and_named_anew() {
    let Some((server, _, path)) = with_environment() else {
        return;
    };
    let environment = path.rsplit('/').next().unwrap();
    for kind in ["agent", "project", "workspace", "issue"] {
        let create = [kind, "create", "--id", kind, "--environment", "nothing"];
        let made = answer(&server, &create);
        assert_eq!(made["environmentId"], environment, "{kind}");
        let named = answer(&server, &[kind, "set", kind, "--name", "anew"]);
        assert_eq!(
            (&named["name"], &named["environmentId"]),
            (&json!("anew"), &json!(environment)),
            "{kind}"
        );
        let bare = ["--no-environment", "--no-name"];
        let bare = answer(&server, &[&[kind, "set", kind][..], &bare].concat());
        assert_eq!(
            (&bare["name"], &bare["environmentId"]),
            (&Value::Null, &Value::Null),
            "{kind}"
        );
        wrong(&server, &[kind, "set", kind], "--environment");
    }
    let run = ["run", "create", "--id", "r", "--environment", "nothing"];
    wrong(&server, &run, "--environment");
}

#[test]
fn a_key_is_sent_by_what_creates_something_and_no_other_command_takes_one() {
    let Some((server, ..)) = with_environment() else {
        return;
    };
    let create = ["company", "create", "twice", "--idempotency-key", "k"];
    assert_eq!(answer(&server, &create), answer(&server, &create));
    let lease = [
        "lease",
        "acquire",
        "nothing",
        "-C",
        "acme",
        "--idempotency-key",
        "l",
    ];
    assert_eq!(answer(&server, &lease)["id"], answer(&server, &lease)["id"]);
    for args in [
        &["company", "list"][..],
        &["company", "rename", "twice", "thrice"],
        &[
            "env",
            "update",
            "nothing",
            "-C",
            "acme",
            "--description",
            "x",
        ],
        &["env", "delete", "nothing", "-C", "acme", "--yes"],
        &["probe", "nothing", "-C", "acme"],
        &["select", "-C", "acme"],
        &["plugin", "disable", "null"],
        &["agent", "set", "a", "--no-environment"],
        &["lease", "release", "lease_x"],
        &["activity"],
        &["whoami"],
    ] {
        let args = [args, &["--idempotency-key", "k"]].concat();
        wrong(&server, &args, "--idempotency-key");
    }
    let exec = ["exec", "--idempotency-key", "k", "lease_x", "true"];
    assert_eq!(run(&server, &exec).status.code(), Some(125));
    let row = answer(&server, &["env", "get", "nothing", "-C", "acme"]);
    assert_eq!(
        (&row["revision"], &row["description"]),
        (&json!(1), &Value::Null)
    );
}

#[test]
fn the_command_tells_who_its_user_is_and_how_a_lease_looks_now() {
    let Some(leased) = Leased::new() else {
        return;
    };
    let server = &leased.server;
    assert_eq!(answer(server, &["whoami"])["kind"], "local-operator");
    let (id, token) = server.token_of("agent", Some(&leased.company));
    let file = server.home.path().join("token");
    std::fs::write(&file, token).unwrap();
    let as_agent = ["--token-file", file.to_str().unwrap(), "whoami"];
    let told_of = answer(server, &as_agent);
    assert_eq!(
        (
            &told_of["role"],
            &told_of["tokenId"],
            &told_of["companyIds"]
        ),
        (&json!("agent"), &json!(id), &json!([leased.company]))
    );
    let seen = answer(server, &["lease", "observe", &leased.lease]);
    assert_eq!(seen["condition"], "ready", "{seen}");
    let said = told(server, &["lease", "observe", &leased.lease]);
    assert!(
        said.starts_with("CONDITION") && said.contains("ready"),
        "{said}"
    );
    let none = run(server, &["lease", "observe", "lease_none"]);
    assert_eq!(none.status.code(), Some(3), "{none:?}");
}

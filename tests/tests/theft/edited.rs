//! Somebody edits rows of the database: what was edited is not believed, is named, and nothing is sent because of it.

use std::path::PathBuf;

use leasehold_tests::http::text;
use leasehold_tests::rows;
use leasehold_tests::server::component;
use leasehold_tests::wait::until;
use serde_json::json;

use crate::den::Den;

/// A database that can be put back as it was.
struct Kept {
    file: PathBuf,
    copy: PathBuf,
}

impl Kept {
    /// Stops the server and keeps what it has.
    fn of(den: &mut Den) -> Kept {
        den.heard.server.kill();
        let file = den.server().data().join("leasehold.db");
        // Everything is in the one file then.
        rows::edit(&file, "PRAGMA wal_checkpoint(TRUNCATE)");
        let copy = den.server().path().join("kept");
        std::fs::copy(&file, &copy).expect("a copy");
        Kept { file, copy }
    }

    fn put_back(&self) {
        for more in ["-wal", "-shm"] {
            let beside = self.file.with_file_name(format!("leasehold.db{more}"));
            let _ = std::fs::remove_file(beside);
        }
        std::fs::copy(&self.copy, &self.file).expect("a copy");
    }
}

/// Starts the server on what was edited. False: it says that it cannot, and ends.
fn starts(den: &mut Den) -> bool {
    let server = &mut den.heard.server;
    server.spawn();
    until("a server, or its end", || {
        if server.ended().is_some() {
            return Some(false);
        }
        let answer = server.try_call("GET", "/readyz", None)?;
        (answer.status == 200).then_some(true)
    })
}

#[test]
fn an_edited_row_is_detected_named_and_sends_nothing() {
    let Some(mut den) = Den::of("echo-plain") else {
        return;
    };
    let environment = den.environment(json!({}));
    den.live(&environment);
    // Another environment with another key, and a company with a third: whose they are must not change by an edit.
    let server = den.server();
    let other = json!({ "type": "secret_value", "value": "canary-Other-44aa55", "name": "other" });
    let mut draft = den.draft(json!({ "token": other }));
    draft["name"] = "other".into();
    server.environment(&draft).expect(201);
    let abroad = server.call("POST", "/api/companies", Some(&json!({ "name": "abroad" })));
    let abroad = text(&abroad.expect(201)["id"]);
    let third = json!({ "name": "third", "value": "canary-Third-66bb77" });
    let path = format!("/api/companies/{abroad}/secrets");
    server.call("POST", &path, Some(&third)).expect(201);
    let away = den.elsewhere.url();
    let own = den.rooms.url();
    let kept = Kept::of(&mut den);

    let key = text(&den.token["secretId"]);
    let named = |name: &str| {
        rows::ask(
            &kept.file,
            &format!("SELECT id FROM secrets WHERE name = '{name}'"),
        )[0]
        .clone()
    };
    let (others, thirds) = (named("other"), named("third"));
    let of_secret = |column: &str, id: &str| {
        format!("(SELECT {column} FROM secret_versions WHERE secret_id = '{id}')")
    };
    let swapped = |from: &str| {
        format!(
            "UPDATE secret_versions SET sealed = {}, wrapped = {}, mac = {} WHERE secret_id = '{key}'",
            of_secret("sealed", from),
            of_secret("wrapped", from),
            of_secret("mac", from),
        )
    };
    let bound = |set: &str| {
        format!(
            "UPDATE secret_bindings SET {set} WHERE environment_id = '{environment}' AND pointer = '/token'"
        )
    };
    let of_environment =
        |set: &str| format!("UPDATE environments SET {set} WHERE id = '{environment}'");
    let edits = [
        ("an endpoint", of_environment(&format!("config = replace(config, '{own}', '{away}')"))),
        ("which endpoints were typed", of_environment("endpoints = '[\"/endpoint\",\"/word\"]'")),
        ("whose an environment is", of_environment(&format!("company_id = '{abroad}'"))),
        ("which provider it is for", of_environment("provider = 'hostile-other'")),
        ("where a key goes", bound(&format!("destinations = '[\"{away}\"]'"))),
        ("a key's sites", bound("sites = '[\"credential\",\"header x-other: {}\"]'")),
        ("which key is bound", bound(&format!("secret_id = '{others}'"))),
        (
            "the binding of another environment",
            bound(&format!("wrapped = (SELECT wrapped FROM secret_bindings WHERE secret_id = '{others}')")),
        ),
        ("a value of another secret", swapped(&others)),
        ("a value of another company", swapped(&thirds)),
        ("one byte of a value", format!(
                "UPDATE secret_versions SET sealed =
                     CAST((CASE substr(sealed, 1, 1) WHEN x'00' THEN x'01' ELSE x'00' END) || substr(sealed, 2) AS BLOB)
                 WHERE secret_id = '{key}'"
            )),
        ("whose a secret is", format!("UPDATE secrets SET company_id = '{abroad}' WHERE id = '{key}'")),
        ("a grant", "UPDATE grants SET granted = replace(granted, '\"origins\":[]', '\"origins\":[\"http://127.0.0.1:1\"]')".to_owned()),
        ("a manifest", "UPDATE plugin_revisions SET manifest = replace(manifest, 'Bearer {}', 'Basic {}')".to_owned()),
        ("what is enabled", "UPDATE plugins SET enabled = 0".to_owned()),
    ];
    for (what, sql) in &edits {
        kept.put_back();
        assert!(rows::edit(&kept.file, sql) > 0, "{what}: {sql}");
        let sent = den.rooms.heard().len();
        let logged = den.server().log().len();
        if starts(&mut den) {
            let refused = den.server().acquire(&environment);
            assert!(refused.status >= 400, "{what}: {}", refused.body);
            assert_eq!(
                refused.code(),
                "storage_corrupt",
                "{what}: {}",
                refused.body
            );
            assert!(
                refused.body.contains("failed its authentication"),
                "{what}: {}",
                refused.body
            );
            den.heard.keep(refused);
        }
        until(&format!("the log to name {what}"), || {
            let log = den.server().log().split_off(logged);
            log.contains("authentication").then_some(())
        });
        assert_eq!(den.rooms.heard().len(), sent, "{what}: nothing was sent");
        den.heard.server.kill();
    }

    // Bytes of a component, which are read again where nothing is compiled.
    kept.put_back();
    let bytes = component("null").expect("it was built");
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(
        rows::edit(
            &kept.file,
            &format!("UPDATE components SET bytes = x'{hex}'")
        ),
        1
    );
    let compiled = den.server().data().join("compiled");
    std::fs::remove_dir_all(&compiled).expect("what was compiled");
    let sent = den.rooms.heard().len();
    if starts(&mut den) {
        let refused = den.server().acquire(&environment);
        assert!(refused.status >= 400, "{}", refused.body);
        assert!(
            refused.body.contains("failed authentication"),
            "{}",
            refused.body
        );
    }
    assert_eq!(den.rooms.heard().len(), sent, "nothing was sent");
    den.heard.server.kill();

    // Put back as it was, all of it works: it is the edits that were noticed.
    kept.put_back();
    assert!(starts(&mut den));
    den.live(&environment);
    den.nothing_leaked();
}

#[test]
fn an_edited_lease_is_neither_used_nor_taken_for_another() {
    let Some(mut den) = Den::of("echo-plain") else {
        return;
    };
    let environment = den.environment(json!({}));
    let acquire = |den: &Den| den.server().acquire(&environment).expect(201);
    let (one, two) = (acquire(&den), acquire(&den));
    let (one, two) = (text(&one["id"]), text(&two["id"]));
    let (own, away) = (den.rooms.url(), den.elsewhere.url());
    let kept = Kept::of(&mut den);
    let of_lease = |set: String| format!("UPDATE leases SET {set} WHERE id = '{one}'");
    for (what, sql) in [
        (
            "an endpoint",
            of_lease(format!("config = replace(config, '{own}', '{away}')")),
        ),
        (
            "which endpoints were typed",
            of_lease("endpoints = '[]'".to_owned()),
        ),
        (
            "its resource",
            format!("UPDATE lease_made SET resource = 'room-2' WHERE lease_id = '{one}'"),
        ),
        (
            "whose a resource is",
            format!(
                "DELETE FROM lease_made WHERE lease_id = '{one}'; UPDATE lease_made SET lease_id = '{one}'"
            ),
        ),
        (
            "a pinned key",
            format!(
                "UPDATE lease_secrets SET destinations = '[\"{away}\"]' WHERE lease_id = '{one}' AND pointer = '/token'"
            ),
        ),
        (
            "the key of another lease",
            format!(
                "UPDATE lease_secrets SET wrapped = (SELECT wrapped FROM lease_secrets WHERE lease_id = '{two}' AND pointer = '/token') WHERE lease_id = '{one}' AND pointer = '/token'"
            ),
        ),
    ] {
        kept.put_back();
        assert!(rows::edit(&kept.file, &sql) > 0, "{what}: {sql}");
        let acts = |den: &Den| {
            den.rooms
                .heard()
                .iter()
                .filter(|one| one.method != "GET")
                .count()
        };
        let before = acts(&den);
        if starts(&mut den) {
            let path = format!("/api/environment-leases/{one}/observation");
            let refused = den.server().call("GET", &path, None);
            assert_eq!(
                refused.code(),
                "storage_corrupt",
                "{what}: {}",
                refused.body
            );
            let released = den.server().call(
                "POST",
                &format!("/api/environment-leases/{one}/release"),
                None,
            );
            assert_ne!(
                released.json()["status"],
                "released",
                "{what}: {}",
                released.body
            );
        }
        assert_eq!(acts(&den), before, "{what}: nothing was done");
        assert_eq!(den.rooms.rooms().len(), 2, "{what}");
        den.heard.server.kill();
    }
    kept.put_back();
    assert!(starts(&mut den));
    for lease in [&one, &two] {
        let path = format!("/api/environment-leases/{lease}/observation");
        assert_eq!(den.server().get(&path)["condition"], "ready");
        assert_eq!(den.server().release(lease)["status"], "released");
    }
    den.nothing_leaked();
}

#[test]
fn without_its_master_key_the_server_says_so_touches_nothing_and_goes_on_once_the_key_is_back() {
    let Some(mut den) = Den::of("echo-plain") else {
        return;
    };
    let environment = den.environment(json!({}));
    let lease = text(&den.server().acquire(&environment).expect(201)["id"]);
    let kept = Kept::of(&mut den);
    let sent = den.rooms.heard().len();
    let key = den.server().path().join("config/leasehold/master.key");
    let away = den.server().path().join("put-away");
    std::fs::rename(&key, &away).expect("the key");
    let logged = den.server().log().len();
    assert!(!starts(&mut den), "it serves without its key");
    den.heard.server.kill();
    let said = den.server().log().split_off(logged);
    assert!(said.contains("master key"), "{said}");
    assert!(said.contains("master.key"), "it names the file: {said}");
    assert!(!key.exists(), "no other key was made");
    let same =
        std::fs::read(&kept.file).expect("a file") == std::fs::read(&kept.copy).expect("a file");
    assert!(same, "nothing of the database was touched");
    assert_eq!(den.rooms.heard().len(), sent, "nothing was sent");

    std::fs::rename(&away, &key).expect("the key");
    assert!(starts(&mut den));
    let path = format!("/api/environment-leases/{lease}/observation");
    assert_eq!(den.server().get(&path)["condition"], "ready");
    assert_eq!(den.server().release(&lease)["status"], "released");
    den.nothing_leaked();
}

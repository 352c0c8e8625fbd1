//! Keys that are not typed as one: what a backend mints for a lease, and the password of a registry.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE;
use leasehold_tests::canary::Canaries;
use leasehold_tests::http::text;
use leasehold_tests::rows;
use serde_json::{Value, json};

use crate::den::{Den, Try, came};

const BEGIN: &str = "canary-Minted-77aa-";

/// Tries of one export.
fn of(tries: &[Try], export: &str) -> Vec<Try> {
    let of = tries.iter().filter(|one| one.export == export);
    of.cloned().collect()
}

#[test]
fn a_key_that_a_backend_mints_is_a_placeholder_for_its_lease_alone_also_after_a_restart() {
    let Some(mut den) = Den::of("mint-keeper") else {
        return;
    };
    den.rooms.give_sessions(BEGIN);
    let environment = den.environment(json!({}));
    let (first, second) = {
        let acquire = || den.server().acquire(&environment).expect(201);
        (text(&acquire()["id"]), text(&acquire()["id"]))
    };
    let minted = of(&den.tries(), "acquire");
    let mint = came(&minted, "mint");
    assert!(
        mint.contains("\"session\":\"lhp-") && mint.contains("its key is lhp-"),
        "{mint}"
    );
    let check = |den: &Den, tries: &[Try], room: &str| {
        let site = came(tries, "session in its site");
        assert!(site.starts_with("200 ") && site.contains(room), "{site}");
        assert!(
            site.contains("[redacted]") && !site.contains("canary"),
            "{site}"
        );
        den.refused(tries, &["mint", "kept", "session in its site"]);
    };
    check(&den, &minted, "room-1");

    // What was kept comes to later calls of its own lease, after a crash too.
    den.heard.server.restart();
    for (lease, room) in [(&first, "room-1"), (&second, "room-2")] {
        let before = of(&den.tries(), "inspect").len();
        let path = format!("/api/environment-leases/{lease}/observation");
        den.heard.call("GET", &path, None);
        let tries = of(&den.tries(), "inspect").split_off(before);
        assert!(came(&tries, "kept").starts_with("lhp-"), "{tries:?}");
        check(&den, &tries, room);
    }
    den.heard.read_all();
    let file = den.server().data().join("leasehold.db");
    let kept = |lease: &str| {
        rows::ask(
            &file,
            &format!("SELECT name FROM lease_kept WHERE lease_id = '{lease}'"),
        )
    };
    assert_eq!(kept(&first), ["session"]);
    // A value of one lease in the row of another opens nothing.
    let sealed =
        |lease: &str| format!("(SELECT sealed FROM lease_kept WHERE lease_id = '{lease}')");
    let swap = format!(
        "UPDATE lease_kept SET sealed = {} WHERE lease_id = '{first}'",
        sealed(&second)
    );
    let whole = rows::ask(
        &file,
        &format!("SELECT hex(sealed) FROM lease_kept WHERE lease_id = '{first}'"),
    );
    den.heard.server.kill();
    assert_eq!(rows::edit(&file, &swap), 1);
    den.heard.server.spawn();
    den.heard.server.wait_ready();
    let before = den.rooms.heard().len();
    let path = format!("/api/environment-leases/{first}/observation");
    let edited = den.server().call("GET", &path, None);
    assert_eq!(edited.code(), "storage_corrupt", "{}", edited.body);
    assert_eq!(den.rooms.heard().len(), before, "nothing was sent");
    den.heard.server.kill();
    let back = format!(
        "UPDATE lease_kept SET sealed = x'{}' WHERE lease_id = '{first}'",
        whole[0]
    );
    assert_eq!(rows::edit(&file, &back), 1);
    den.heard.server.spawn();
    den.heard.server.wait_ready();

    for lease in [&first, &second] {
        assert_eq!(den.server().release(lease)["status"], "released");
        assert_eq!(kept(lease), Vec::<String>::new(), "it ends with its lease");
    }
    den.canaries = Canaries::new(vec![
        ("key", den.key.clone().into()),
        ("minted", BEGIN.into()),
    ]);
    den.nothing_leaked_but(&[], &["authorization", "x-session"]);
    for sent in den.rooms.heard() {
        let shown = sent.header("x-session");
        assert!(shown.is_empty() || sent.path == "/v1/session", "{sent:?}");
    }
}

#[test]
fn a_registrys_password_is_written_into_its_header_by_the_host_and_nowhere_else() {
    let Some(mut den) = Den::of("registry-reader") else {
        return;
    };
    const PASSWORD: &str = "canary-Registry-9911aa";
    let password = json!({ "type": "secret_value", "value": PASSWORD });
    let registry =
        json!({ "server": "registry.example:5000", "username": "puller", "password": password });
    den.canaries = Canaries::new(vec![
        ("key", den.key.clone().into()),
        ("password", PASSWORD.into()),
        (
            "password in base64",
            URL_SAFE.encode(PASSWORD).trim_end_matches('=').into(),
        ),
    ]);
    let environment = den.environment(json!({ "registry": registry }));
    let tries = den.live(&environment);
    den.refused(&tries, &["shown", "its site"]);
    let shown: Value = serde_json::from_str(came(&tries, "shown")).expect("JSON");
    assert_eq!(
        (&shown["server"], &shown["username"]),
        (&json!("registry.example:5000"), &json!("puller"))
    );
    assert!(text(&shown["password"]).starts_with("lhp-"), "{shown}");
    let heard = den.rooms.heard();
    let pulls: Vec<_> = heard
        .iter()
        .filter(|one| one.path == "/v1/images/pull")
        .collect();
    assert!(!pulls.is_empty(), "it is used");
    for pull in pulls {
        let header = pull.header("x-registry-auth");
        let written = URL_SAFE.decode(header).expect("base64url");
        let written: Value = serde_json::from_slice(&written).expect("JSON");
        let whole = json!({ "username": "puller", "password": PASSWORD, "serveraddress": "registry.example:5000" });
        assert_eq!(written, whole);
    }
    den.nothing_leaked_but(&[], &["authorization", "x-registry-auth"]);

    // A plain password, or one without a name, is not saved.
    for (wrong, pointer) in [
        (
            json!({ "server": "r", "username": "u", "password": PASSWORD }),
            "/config/registry/password",
        ),
        (
            json!({ "server": "r", "password": password }),
            "/config/registry/password",
        ),
        (
            json!({ "server": "https://r/x" }),
            "/config/registry/server",
        ),
        (
            json!({ "server": "r", "realms": "x" }),
            "/config/registry/realms",
        ),
    ] {
        let mut draft = den.draft(json!({ "registry": wrong }));
        draft["name"] = "wrong".into();
        let refused = den.server().environment(&draft);
        assert_eq!(refused.status, 422, "{}", refused.body);
        assert_eq!(
            refused.json()["details"]["violations"][0]["pointer"],
            pointer,
            "{}",
            refused.body
        );
        assert!(!refused.body.contains(PASSWORD), "{}", refused.body);
    }
}

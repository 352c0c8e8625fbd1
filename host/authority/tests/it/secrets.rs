//! Secrets: bindings, rotation, pins of leases, and edits.

use leasehold_authority::*;
use serde_json::json;

use crate::place::*;

async fn value(p: &Place, environment: &str, pointer: &str) -> String {
    let resolved = p
        .secrets()
        .resolve(environment, pointer, &by())
        .await
        .unwrap();
    String::from_utf8(resolved.value.to_vec()).unwrap()
}

#[tokio::test]
async fn a_value_is_had_only_where_it_is_bound() {
    let p = Place::new().await;
    let f = p.furnished().await;
    let id = &f.environment.id;
    let resolved = p
        .secrets()
        .resolve(id, "/target/privateKey", &by())
        .await
        .unwrap();
    assert_eq!(&**resolved.value, b"value one");
    assert_eq!(resolved.pin.destinations, ["ssh://ci@10.0.0.5:22"]);
    assert_eq!(resolved.pin.sites, ["ssh-key"]);
    assert!(!format!("{resolved:?}").contains("value one"));
    assert_eq!(value(&p, id, &env_pointer("TOKEN")).await, "value one");
    for nowhere in ["/target/passphrase", "env:CI", ""] {
        assert!(matches!(
            p.secrets().resolve(id, nowhere, &by()).await,
            Err(Error::NotFound { .. })
        ));
    }
    let refs = p.environments().secret_refs(id).await.unwrap();
    assert_eq!(refs.len(), 2);
    assert_eq!((refs[0].name.as_str(), refs[0].version), ("key", 1));
}

#[tokio::test]
async fn another_companys_secret_a_missing_version_and_an_unknown_place_are_refused() {
    let p = Place::new().await;
    let f = p.furnished().await;
    let other = p.company("other").await;
    let foreign = p.secret(&other, "key", "foreign").await;
    let save = |d, uses| {
        let (p, company) = (&p, f.company.clone());
        async move {
            p.environments()
                .create(&operator(), &company, d, uses)
                .await
        }
    };
    assert_eq!(
        pointers(save(draft("a", &foreign), vec![key_use("h")]).await),
        ["/config/target/privateKey", "/envVars/TOKEN"]
    );
    let mut d = draft("a", &f.secret);
    d.env_vars["TOKEN"]["version"] = json!(7);
    assert_eq!(
        pointers(save(d, vec![key_use("h")]).await),
        ["/envVars/TOKEN"]
    );
    assert_eq!(
        pointers(save(draft("a", &f.secret), vec![]).await),
        ["/config/target/privateKey"]
    );
    assert_eq!(
        p.count("SELECT COUNT(*) FROM environments").await,
        1,
        "nothing half done"
    );
    assert_eq!(p.count("SELECT COUNT(*) FROM secret_bindings").await, 2);
}

#[tokio::test]
async fn rotation_moves_what_follows_latest_and_leaves_pins_and_fixed_versions() {
    let p = Place::new().await;
    let f = p.furnished().await;
    let mut fixed = draft("fixed", &f.secret);
    fixed.config["target"]["privateKey"]["version"] = json!(1);
    let fixed = p
        .environments()
        .create(&operator(), &f.company, fixed, vec![key_use("10.0.0.5")])
        .await
        .unwrap();
    let lease = p
        .leases()
        .begin(&operator(), f.intent())
        .await
        .unwrap()
        .lease;
    let rotated = p
        .secrets()
        .put_version(&operator(), &f.secret, bytes("value two"))
        .await
        .unwrap();
    assert_eq!(rotated.latest_version, 2);
    assert_eq!(
        value(&p, &f.environment.id, "/target/privateKey").await,
        "value two"
    );
    assert_eq!(
        value(&p, &fixed.id, "/target/privateKey").await,
        "value one"
    );
    assert_eq!(value(&p, &fixed.id, "env:TOKEN").await, "value two");
    let now = p.environments().get(&f.environment.id).await.unwrap();
    assert!(now.target_revision > f.environment.target_revision);
    assert_eq!(now.revision, f.environment.revision, "it was not saved");
    let pinned = p
        .secrets()
        .resolve_pinned(&lease.id, "/target/privateKey", &by())
        .await
        .unwrap();
    assert_eq!(&**pinned.value, b"value one");
    assert_eq!(pinned.pin.version, 1);
    assert_eq!(
        code_of(p.leases().begin(&operator(), f.intent()).await),
        "environment_changed"
    );
}

#[tokio::test]
async fn a_lease_keeps_its_secrets_after_the_environment_changed_and_loses_them_when_it_ends() {
    let p = Place::new().await;
    let f = p.furnished().await;
    let lease = p
        .leases()
        .begin(&operator(), f.intent())
        .await
        .unwrap()
        .lease;
    p.leases().unsafe_sent(&lease.id, 1).await.unwrap();
    let mut d = f.environment.patched(EnvironmentPatch::default());
    d.config = serde_json::from_value(json!({})).unwrap();
    d.env_vars.clear();
    p.environments()
        .update(
            &operator(),
            &f.environment.id,
            f.environment.revision,
            d,
            vec![],
        )
        .await
        .unwrap();
    assert!(
        p.secrets()
            .resolve(&f.environment.id, "/target/privateKey", &by())
            .await
            .is_err()
    );
    assert_eq!(
        p.secrets().pinned_pointers(&lease.id).await.unwrap().len(),
        2
    );
    let pinned = p
        .secrets()
        .resolve_pinned(&lease.id, "/target/privateKey", &by())
        .await
        .unwrap();
    assert_eq!(pinned.pin.destinations, ["ssh://ci@10.0.0.5:22"]);
    assert_eq!(
        code_of(p.secrets().delete(&operator(), &f.secret, false).await),
        "secret_in_use"
    );
    let t = p
        .leases()
        .request_release(&operator(), &lease.id, "requested", Handling::Mine)
        .await
        .unwrap();
    p.leases()
        .apply(
            &operator(),
            &lease.id,
            t.lease.epoch,
            Event::ReleaseConfirmed,
        )
        .await
        .unwrap();
    assert!(
        p.secrets()
            .resolve_pinned(&lease.id, "/target/privateKey", &by())
            .await
            .is_err()
    );
    p.secrets()
        .delete(&operator(), &f.secret, false)
        .await
        .unwrap();
    assert_eq!(p.count("SELECT COUNT(*) FROM secret_versions").await, 0);
}

#[tokio::test]
async fn another_destination_is_another_binding_and_is_recorded() {
    let p = Place::new().await;
    let f = p.furnished().await;
    let e = &f.environment;
    // The same save again binds nothing anew.
    let saved = p
        .environments()
        .update(
            &operator(),
            &e.id,
            1,
            draft("build box", &f.secret),
            vec![key_use("10.0.0.5")],
        )
        .await
        .unwrap();
    assert_eq!((saved.revision, saved.target_revision), (2, 1));
    let moved = p
        .environments()
        .update(
            &operator(),
            &e.id,
            2,
            draft_to("build box", &f.secret, "10.0.0.9"),
            vec![key_use("10.0.0.9")],
        )
        .await
        .unwrap();
    assert_eq!(moved.target_revision, 2);
    let pin = p
        .secrets()
        .resolve(&e.id, "/target/privateKey", &by())
        .await
        .unwrap()
        .pin;
    assert_eq!(pin.destinations, ["ssh://ci@10.0.0.9:22"]);
    let bound = p
        .activity()
        .list(&ActivityFilter {
            subject: Some(f.secret.clone()),
            ..Default::default()
        })
        .await
        .unwrap();
    let places: Vec<_> = bound
        .iter()
        .filter(|r| r.action == "secret.bound")
        .map(|r| r.details["destinations"][0].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(
        places,
        ["ssh://ci@10.0.0.9:22", "lease", "ssh://ci@10.0.0.5:22"]
    );
}

#[tokio::test]
async fn an_edited_binding_opens_nothing_and_no_rotation_blesses_it() {
    let edits: [&'static str; 4] = [
        r#"UPDATE secret_bindings SET destinations = '["ssh://ci@evil:22"]' WHERE pointer = '/target/privateKey'"#,
        r#"UPDATE secret_bindings SET sites = '["header"]' WHERE pointer = '/target/privateKey'"#,
        "UPDATE secret_bindings SET wrapped = (SELECT wrapped FROM secret_bindings WHERE pointer = 'env:TOKEN') WHERE pointer = '/target/privateKey'",
        "UPDATE secret_bindings SET wrapped = (SELECT wrapped FROM secret_versions) WHERE pointer = '/target/privateKey'",
    ];
    for sql in edits {
        let p = Place::new().await;
        let f = p.furnished().await;
        assert_eq!(p.edit(sql).await, 1);
        assert!(is_corrupt(
            p.secrets()
                .resolve(&f.environment.id, "/target/privateKey", &by())
                .await
        ));
        assert!(is_corrupt(p.leases().begin(&operator(), f.intent()).await));
        assert!(is_corrupt(
            p.secrets()
                .put_version(&operator(), &f.secret, bytes("value two"))
                .await
        ));
        assert_eq!(p.secrets().get(&f.secret).await.unwrap().latest_version, 1);
    }
}

#[tokio::test]
async fn a_version_under_another_secret_opens_nothing() {
    let p = Place::new().await;
    let f = p.furnished().await;
    p.secret(&f.company, "other", "other value").await;
    p.edit(
        "UPDATE secret_versions SET sealed = (SELECT sealed FROM secret_versions v JOIN secrets s
         ON s.id = v.secret_id WHERE s.name = 'other')",
    )
    .await;
    assert!(is_corrupt(
        p.secrets()
            .resolve(&f.environment.id, "/target/privateKey", &by())
            .await
    ));
}

#[tokio::test]
async fn a_draft_gets_a_value_on_an_administrators_word_and_that_is_recorded() {
    let p = Place::new().await;
    let f = p.furnished().await;
    let to = ["ssh://ci@new:22".to_owned()];
    let place = "/target/privateKey";
    let draft = |actor: Actor, company: String| {
        let (p, secret, to) = (&p, f.secret.clone(), to.clone());
        async move {
            p.secrets()
                .resolve_draft(&actor, &company, &secret, Selector::Latest, place, &to)
                .await
        }
    };
    assert!(matches!(
        draft(agent(&f.company), f.company.clone()).await,
        Err(Error::Forbidden { .. })
    ));
    let other = p.company("other").await;
    assert!(matches!(
        draft(operator(), other).await,
        Err(Error::NotFound { .. })
    ));
    let resolved = draft(operator(), f.company.clone()).await.unwrap();
    assert_eq!(&**resolved.value, b"value one");
    let last = &p.activity().list(&ActivityFilter::default()).await.unwrap()[0];
    assert_eq!(last.action, "secret.used_in_draft");
    assert_eq!(last.details["destinations"], json!(to));
}

#[tokio::test]
async fn values_have_bounds_and_names_are_unique_in_a_company() {
    let p = Place::new().await;
    let company = p.company("acme").await;
    p.secret(&company, "key", "x").await;
    let create = |name: &'static str, value| {
        let (p, company) = (&p, company.clone());
        async move {
            p.secrets()
                .create(
                    &operator(),
                    NewSecret {
                        value,
                        ..new_secret(Some(&company), name, "")
                    },
                )
                .await
        }
    };
    assert_eq!(
        code_of(create("key", bytes("y")).await),
        "secret_name_taken"
    );
    assert_eq!(pointers(create("empty", bytes("")).await), ["/value"]);
    assert_eq!(
        pointers(create("big", bytes(&"x".repeat(MAX_VALUE + 1))).await),
        ["/value"]
    );
    let other = p.company("other").await;
    p.secret(&other, "key", "x").await;
    assert_eq!(
        p.secrets().list(Some(&company), None).await.unwrap().len(),
        1
    );
}

/// The bytes of a value are looked for in every file of the database, raw and as text encodings have them.
#[tokio::test]
async fn the_bytes_of_a_secret_are_in_no_file_of_the_database() {
    use sqlx::Connection as _;
    let p = Place::new().await;
    let company = p.company("acme").await;
    let plugin = p.plugin("ssh", b"c").await;
    let canary = "canary-7f3e9a51c2d84b60";
    let secret = p.secret(&company, "key", canary).await;
    let e = p
        .environments()
        .create(
            &operator(),
            &company,
            draft("box", &secret),
            vec![key_use("h")],
        )
        .await
        .unwrap();
    p.secrets()
        .put_version(&operator(), &secret, bytes(&format!("{canary}-2")))
        .await
        .unwrap();
    let e = p.environments().get(&e.id).await.unwrap();
    let f = Furniture {
        company,
        plugin,
        secret: secret.clone(),
        environment: e,
    };
    p.leases().begin(&operator(), f.intent()).await.unwrap();
    p.secrets()
        .resolve(&f.environment.id, "/target/privateKey", &by())
        .await
        .unwrap();
    let hex: String = canary.bytes().map(|b| format!("{b:02x}")).collect();
    let look = || {
        let mut files = 0;
        for entry in std::fs::read_dir(p.temp.path().join("data")).unwrap() {
            let path = entry.unwrap().path();
            let content = std::fs::read(&path).unwrap();
            for needle in [canary, &hex] {
                assert!(
                    !content
                        .windows(needle.len())
                        .any(|w| w == needle.as_bytes()),
                    "{path:?}"
                );
            }
            files += 1;
        }
        files
    };
    assert!(look() >= 4, "database, log, index, lock");
    let url = format!("sqlite://{}", p.database().display());
    let mut db = sqlx::SqliteConnection::connect(&url).await.unwrap();
    sqlx::query("PRAGMA wal_checkpoint(TRUNCATE)")
        .execute(&mut db)
        .await
        .unwrap();
    look();
}

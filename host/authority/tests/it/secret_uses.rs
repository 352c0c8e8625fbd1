//! What uses a secret, who had its value, its versions, and secrets that come with their environment.

use leasehold_authority::*;
use serde_json::json;

use crate::place::*;

async fn lease(p: &Place, f: &Furniture) -> Lease {
    let intent = AcquireIntent {
        caller: CallerRefs {
            run: Some("run-7".into()),
            ..CallerRefs::default()
        },
        ..f.intent()
    };
    p.leases().begin(&operator(), intent).await.unwrap().lease
}

fn missing<T: std::fmt::Debug>(result: Result<T, Error>) -> bool {
    matches!(result, Err(Error::NotFound { .. }))
}

#[tokio::test]
async fn a_secret_of_the_instance_serves_every_company_and_only_where_it_is_bound() {
    let p = Place::new().await;
    let f = p.furnished().await;
    let other = p.company("other").await;
    let own = p
        .secrets()
        .create(&operator(), new_secret(None, "key", "of the instance"))
        .await
        .unwrap();
    assert_eq!(own.company_id, None);
    assert_eq!(
        code_of(
            p.secrets()
                .create(&operator(), new_secret(None, "key", "x"))
                .await
        ),
        "secret_name_taken"
    );
    assert!(matches!(
        p.secrets()
            .create(&agent(&f.company), new_secret(None, "mine", "x"))
            .await,
        Err(Error::Forbidden { .. })
    ));
    let of_instance = p.secrets().list(None, None).await.unwrap();
    assert_eq!(of_instance, std::slice::from_ref(&own));
    for company in [&f.company, &other] {
        let listed = p.secrets().list(Some(company), None).await.unwrap();
        assert!(listed.iter().all(|s| s.id != own.id));
    }
    let mut environments = Vec::new();
    for company in [&f.company, &other] {
        let e = p
            .environments()
            .create(
                &operator(),
                company,
                draft("shared", &own.id),
                vec![key_use("10.0.0.5")],
            )
            .await
            .unwrap();
        let had = p.secrets().resolve(&e.id, "env:TOKEN", &by()).await;
        assert_eq!(&**had.unwrap().value, b"of the instance");
        environments.push(e.id);
    }
    // A rotation follows in both, and what one company has bound opens in no other.
    p.secrets()
        .put_version(&operator(), &own.id, bytes("second"))
        .await
        .unwrap();
    for e in &environments {
        let had = p.secrets().resolve(e, "env:TOKEN", &by()).await;
        assert_eq!(&**had.unwrap().value, b"second");
    }
    environments.sort();
    p.edit(
        "UPDATE secret_bindings SET wrapped = (SELECT wrapped FROM secret_bindings o WHERE o.pointer = 'env:TOKEN'
             AND o.secret_id = secret_bindings.secret_id AND o.environment_id > secret_bindings.environment_id)
         WHERE pointer = 'env:TOKEN' AND secret_id IN (SELECT id FROM secrets WHERE company_id IS NULL)
             AND environment_id = (SELECT MIN(b.environment_id) FROM secret_bindings b
                 WHERE b.secret_id = secret_bindings.secret_id)",
    )
    .await;
    let taken = p
        .secrets()
        .resolve(&environments[0], "env:TOKEN", &by())
        .await;
    assert!(is_corrupt(taken));
}

#[tokio::test]
async fn an_edited_secret_or_version_is_not_believed() {
    let edits: [&'static str; 6] = [
        "UPDATE secrets SET company_id = NULL WHERE name = 'key'",
        "UPDATE secrets SET latest = 1 WHERE name = 'key'",
        "UPDATE secrets SET purpose = 'token' WHERE name = 'key'",
        "UPDATE secret_versions SET status = 'disabled' WHERE version = 2",
        "UPDATE secret_versions SET version = 3 WHERE version = 1",
        "UPDATE secret_versions SET created_by = 'somebody else' WHERE version = 2",
    ];
    for sql in edits {
        let p = Place::new().await;
        let f = p.furnished().await;
        p.secrets()
            .put_version(&operator(), &f.secret, bytes("value two"))
            .await
            .unwrap();
        assert_eq!(p.edit(sql).await, 1, "{sql}");
        assert!(
            is_corrupt(p.secrets().versions(&f.secret).await),
            "{sql} is believed"
        );
    }
}

#[tokio::test]
async fn a_value_of_one_version_under_the_number_of_another_opens_nothing() {
    let p = Place::new().await;
    let f = p.furnished().await;
    p.secrets()
        .put_version(&operator(), &f.secret, bytes("value two"))
        .await
        .unwrap();
    p.edit(
        "UPDATE secret_versions SET (sealed, wrapped) =
             (SELECT sealed, wrapped FROM secret_versions WHERE version = 1) WHERE version = 2",
    )
    .await;
    let id = &f.environment.id;
    assert!(is_corrupt(
        p.secrets().resolve(id, "env:TOKEN", &by()).await
    ));
    // Nor does a binding that is edited to the old version.
    p.edit("UPDATE secret_bindings SET version = 1").await;
    assert!(is_corrupt(
        p.secrets().resolve(id, "env:TOKEN", &by()).await
    ));
}

#[tokio::test]
async fn an_old_version_ends_only_when_nothing_uses_it() {
    let p = Place::new().await;
    let f = p.furnished().await;
    let leased = lease(&p, &f).await;
    let status = |version, status| {
        let (p, secret) = (&p, f.secret.clone());
        async move {
            p.secrets()
                .set_version_status(&operator(), &secret, version, status)
                .await
        }
    };
    assert_eq!(
        code_of(status(1, VersionStatus::Disabled).await),
        "secret_in_use",
        "it is the newest"
    );
    p.secrets()
        .put_version(&operator(), &f.secret, bytes("value two"))
        .await
        .unwrap();
    let versions = p.secrets().versions(&f.secret).await.unwrap();
    let counts: Vec<_> = versions
        .iter()
        .map(|v| (v.version, v.environments, v.leases))
        .collect();
    assert_eq!(counts, [(2, 1, 0), (1, 0, 1)]);
    assert_eq!(
        code_of(status(1, VersionStatus::Destroyed).await),
        "secret_in_use",
        "a lease pinned it"
    );
    p.leases()
        .request_release(&operator(), &leased.id, "requested", Handling::Mine)
        .await
        .unwrap();
    assert_eq!(p.secrets().uses(&f.secret).await.unwrap().leases, []);
    status(1, VersionStatus::Disabled).await.unwrap();
    let pinned_to_1 = |name: &'static str| {
        let (p, company, mut d) = (&p, f.company.clone(), draft(name, &f.secret));
        d.env_vars["TOKEN"]["version"] = json!(1);
        async move {
            p.environments()
                .create(&operator(), &company, d, vec![key_use("10.0.0.5")])
                .await
        }
    };
    assert_eq!(pointers(pinned_to_1("no").await), ["/envVars/TOKEN"]);
    status(1, VersionStatus::Enabled).await.unwrap();
    let e = pinned_to_1("yes").await.unwrap();
    assert_eq!(
        code_of(status(1, VersionStatus::Disabled).await),
        "secret_in_use",
        "an environment names it"
    );
    p.environments().delete(&operator(), &e.id).await.unwrap();
    status(1, VersionStatus::Destroyed).await.unwrap();
    assert_eq!(
        p.count("SELECT COUNT(*) FROM secret_versions WHERE sealed IS NULL AND wrapped IS NULL")
            .await,
        1
    );
    assert_eq!(
        pointers(status(1, VersionStatus::Enabled).await),
        ["/status"]
    );
    assert!(missing(status(9, VersionStatus::Enabled).await));
    let had = p
        .secrets()
        .resolve(&f.environment.id, "env:TOKEN", &by())
        .await;
    assert_eq!(&**had.unwrap().value, b"value two");
}

#[tokio::test]
async fn a_secret_in_use_is_deleted_by_force_alone_and_everyone_else_lives_on() {
    let p = Place::new().await;
    let f = p.furnished().await;
    let leased = lease(&p, &f).await;
    let uses = p.secrets().uses(&f.secret).await.unwrap();
    assert_eq!(uses.environment_ids(), [f.environment.id.as_str()]);
    assert_eq!(uses.lease_ids(), [leased.id.as_str()]);
    assert_eq!((uses.environments.len(), uses.leases.len()), (2, 2));
    assert_eq!(
        code_of(p.secrets().delete(&operator(), &f.secret, false).await),
        "secret_in_use"
    );
    let told = p
        .secrets()
        .delete(&operator(), &f.secret, true)
        .await
        .unwrap();
    assert_eq!(told, uses, "what it said before is what broke");
    assert_eq!(p.count("SELECT COUNT(*) FROM secret_versions").await, 0);
    assert!(missing(
        p.secrets()
            .resolve(&f.environment.id, "env:TOKEN", &by())
            .await
    ));
    assert!(missing(
        p.secrets()
            .resolve_pinned(&leased.id, "env:TOKEN", &by())
            .await
    ));
    // The environment can still be renamed and put away, and mended by another reference.
    let now = p.environments().get(&f.environment.id).await.unwrap();
    assert!(now.target_revision > f.environment.target_revision);
    let mut renamed = now.patched(EnvironmentPatch::default());
    renamed.name = "broken box".into();
    let saved = p
        .environments()
        .update(
            &operator(),
            &now.id,
            now.revision,
            renamed,
            vec![key_use("10.0.0.5")],
        )
        .await
        .unwrap();
    let again = p.secret(&f.company, "key", "new value").await;
    let mended = draft("build box", &again);
    p.environments()
        .update(
            &operator(),
            &now.id,
            saved.revision,
            mended,
            vec![key_use("10.0.0.5")],
        )
        .await
        .unwrap();
    let had = p.secrets().resolve(&now.id, "env:TOKEN", &by()).await;
    assert_eq!(&**had.unwrap().value, b"new value");
    let last = p
        .activity()
        .list(&ActivityFilter {
            subject: Some(f.secret.clone()),
            ..Default::default()
        })
        .await
        .unwrap();
    assert_eq!(last[0].action, "secret.deleted");
    assert_eq!(last[0].details["leases"], json!([leased.id]));
}

#[tokio::test]
async fn deleting_an_environment_deletes_no_secret() {
    let p = Place::new().await;
    let f = p.furnished().await;
    p.environments()
        .delete(&operator(), &f.environment.id)
        .await
        .unwrap();
    assert_eq!(p.secrets().get(&f.secret).await.unwrap().name, "key");
    assert!(p.secrets().uses(&f.secret).await.unwrap().is_empty());
    p.secrets()
        .delete(&operator(), &f.secret, false)
        .await
        .unwrap();
}

#[tokio::test]
async fn whoever_had_a_value_is_on_record_with_what_for() {
    let p = Place::new().await;
    let f = p.furnished().await;
    let leased = lease(&p, &f).await;
    let place = "/target/privateKey";
    let probe = Accessor::of(&operator(), "probe");
    p.secrets()
        .resolve(&f.environment.id, place, &probe)
        .await
        .unwrap();
    let used = Accessor {
        lease: Some(leased.id.clone()),
        run: Some("run-7".into()),
        ..Accessor::of(&agent(&f.company), "use")
    };
    p.secrets()
        .resolve_pinned(&leased.id, place, &used)
        .await
        .unwrap();
    let to = ["ssh://ci@new:22".to_owned()];
    p.secrets()
        .resolve_draft(
            &operator(),
            &f.company,
            &f.secret,
            Selector::Latest,
            place,
            &to,
        )
        .await
        .unwrap();
    let refused = p.secrets().resolve(&f.environment.id, "/no", &probe).await;
    assert!(missing(refused));
    let all = p
        .secrets()
        .accesses(&f.secret, &AccessFilter::default())
        .await
        .unwrap();
    let told = |purpose: &str| -> Vec<&Access> {
        all.iter()
            .filter(|a| a.purpose == purpose && a.pointer == place)
            .collect()
    };
    assert_eq!(all.len(), 5, "two pins and three resolves: {all:?}");
    assert_eq!(told("lease")[0].lease_id.as_ref(), Some(&leased.id));
    assert_eq!(told("lease")[0].run.as_deref(), Some("run-7"));
    assert_eq!(
        told("probe")[0].environment_id.as_ref(),
        Some(&f.environment.id)
    );
    assert_eq!(told("probe")[0].actor_kind, "local-operator");
    let used = told("use")[0];
    assert_eq!(
        (used.actor.as_str(), used.actor_id.as_deref()),
        ("agent", Some("tok_x"))
    );
    assert_eq!((used.version, used.run.as_deref()), (1, Some("run-7")));
    assert_eq!(used.destinations, ["ssh://ci@10.0.0.5:22"]);
    assert_eq!(told("probe of a draft")[0].destinations, to);
    assert!(!format!("{all:?}").contains("value one"));
    // By pages, the newest first.
    let page = |before| AccessFilter { before, limit: 2 };
    let first = p.secrets().accesses(&f.secret, &page(None)).await.unwrap();
    let second = p
        .secrets()
        .accesses(&f.secret, &page(Some(first[1].position)))
        .await
        .unwrap();
    assert_eq!([first, second].concat(), all[..4]);
}

#[tokio::test]
async fn accesses_wait_for_no_commit_and_are_there_after_an_end_in_order() {
    let p = Place::new().await;
    let f = p.furnished().await;
    for _ in 0..3 {
        p.secrets()
            .resolve(&f.environment.id, "env:TOKEN", &by())
            .await
            .unwrap();
    }
    assert_eq!(
        p.count("SELECT COUNT(*) FROM secret_accesses").await,
        0,
        "they are in memory"
    );
    let p = p.again().await;
    assert_eq!(p.count("SELECT COUNT(*) FROM secret_accesses").await, 3);
}

#[tokio::test]
async fn who_had_a_secret_is_known_after_its_deletion_and_of_no_secret_nothing() {
    let p = Place::new().await;
    let f = p.furnished().await;
    p.secrets()
        .resolve(&f.environment.id, "env:TOKEN", &by())
        .await
        .unwrap();
    let all = AccessFilter::default();
    let had = p.secrets().accesses(&f.secret, &all).await.unwrap();
    assert_eq!(had.len(), 1);
    p.secrets()
        .delete(&operator(), &f.secret, true)
        .await
        .unwrap();
    assert_eq!(p.secrets().accesses(&f.secret, &all).await.unwrap(), had);
    // One that nobody ever had is known by its deletion.
    let unused = p.secret(&f.company, "unused", "value").await;
    p.secrets()
        .delete(&operator(), &unused, false)
        .await
        .unwrap();
    assert_eq!(p.secrets().accesses(&unused, &all).await.unwrap(), []);
    assert!(missing(p.secrets().accesses("sec_never", &all).await));
}

#[tokio::test]
async fn a_pasted_value_and_its_environment_are_saved_together_or_not_at_all() {
    let p = Place::new().await;
    let f = p.furnished().await;
    let counts = || async {
        (
            p.count("SELECT COUNT(*) FROM secrets").await,
            p.count("SELECT COUNT(*) FROM secret_versions").await,
            p.count("SELECT COUNT(*) FROM environments").await,
        )
    };
    let before = counts().await;
    let paste = |name: &str, key: serde_json::Value| {
        let mut d = draft(name, &f.secret);
        d.config["target"]["privateKey"] = key;
        d.env_vars["TOKEN"] = json!({ "type": "secret_value", "value": "pasted token" });
        let pasted = take_pasted(Some(&mut d.config), Some(&mut d.env_vars)).unwrap();
        (d, pasted)
    };
    let key = |name: &str| json!({ "type": "secret_value", "value": "pasted key", "name": name, "purpose": "key" });
    let save = |(d, pasted): (EnvironmentDraft, Vec<PastedSecret>), uses| {
        let (p, company) = (&p, f.company.clone());
        let secrets = EnvironmentSecrets {
            uses,
            pasted,
            ..EnvironmentSecrets::default()
        };
        async move {
            p.environments()
                .create(&operator(), &company, d, secrets)
                .await
        }
    };
    let good = || vec![key_use("10.0.0.5")];
    // Its name is taken; the environment's is; the provider has no secret there.
    assert_eq!(
        code_of(save(paste("a", key("key")), good()).await),
        "secret_name_taken"
    );
    assert_eq!(
        code_of(save(paste("build box", key("new")), good()).await),
        "environment_name_taken"
    );
    assert_eq!(
        pointers(save(paste("a", key("new")), vec![]).await),
        ["/config/target/privateKey"]
    );
    assert_eq!(counts().await, before, "nothing is left");

    let e = save(paste("a", key("new")), good()).await.unwrap();
    let had = p
        .secrets()
        .resolve(&e.id, "/target/privateKey", &by())
        .await;
    assert_eq!(&**had.unwrap().value, b"pasted key");
    let refs = p.environments().secret_refs(&e.id).await.unwrap();
    let names: Vec<_> = refs.iter().map(|r| r.name.as_str()).collect();
    assert_eq!(names, ["new", "a TOKEN"]);
    let listed = p
        .secrets()
        .list(Some(&f.company), Some(SecretPurpose::Key))
        .await
        .unwrap();
    assert_eq!(listed.len(), 1);
    assert_eq!(listed[0].name, "new");

    // The same for a change: a stale one leaves nothing, a good one binds the new value.
    let before = counts().await;
    let change = |revision| {
        let (d, pasted) = paste("a", key("newer"));
        let (p, id) = (&p, e.id.clone());
        let secrets = EnvironmentSecrets {
            uses: vec![key_use("10.0.0.5")],
            pasted,
            ..EnvironmentSecrets::default()
        };
        async move {
            p.environments()
                .update(&operator(), &id, revision, d, secrets)
                .await
        }
    };
    assert!(matches!(change(9).await, Err(Error::Stale { .. })));
    assert_eq!(counts().await, before);
    change(e.revision).await.unwrap();
    let refs = p.environments().secret_refs(&e.id).await.unwrap();
    assert_eq!(refs[0].name, "newer");
    assert!(refs[1].name.starts_with("a TOKEN "), "{:?}", refs[1].name);
}

#[tokio::test]
async fn a_secret_that_the_settings_name_is_answered_to_administrators_in_its_newest_version_and_on_record()
 {
    let p = Place::new().await;
    let company = p.company("acme").await;
    let of_company = p.secret(&company, "registry", "of the company").await;
    let ask = async |actor: &Actor| {
        let to = ["registry://r.example".to_owned()];
        let secrets = p.secrets();
        secrets
            .resolve_named(actor, "registry", "pull", "plugins.sources, r.example", &to)
            .await
    };
    let none = ask(&operator()).await;
    assert_eq!(code_of(none), "secret_missing", "that of a company is none");
    let own = p
        .secrets()
        .create(&operator(), new_secret(None, "registry", "first"))
        .await
        .unwrap();
    let first = ask(&operator()).await.unwrap();
    assert_eq!(&first.value[..], b"first");
    p.secrets()
        .put_version(&operator(), &own.id, bytes("second"))
        .await
        .unwrap();
    let second = ask(&operator()).await.unwrap();
    assert_eq!(&second.value[..], b"second");
    assert_ne!(first.version, second.version);
    assert!(matches!(
        ask(&agent(&company)).await,
        Err(Error::Forbidden { .. })
    ));
    let all = p
        .secrets()
        .accesses(&own.id, &AccessFilter::default())
        .await
        .unwrap();
    let told: Vec<_> = all
        .iter()
        .map(|a| (a.version, a.purpose.as_str(), a.pointer.as_str()))
        .collect();
    let place = "plugins.sources, r.example";
    assert_eq!(told, [(2, "pull", place), (1, "pull", place)]);
    assert_eq!(all[0].destinations, ["registry://r.example"]);
    // What the settings name is in use, and one of a company of the same name is not.
    let setting = "plugins.sources, r.example".to_owned();
    let named = [("registry".to_owned(), vec![setting.clone()])];
    p.secrets().set_named_uses(named.into());
    let uses = p.secrets().uses(&own.id).await.unwrap();
    assert_eq!(uses.settings, [setting]);
    let refused = p.secrets().delete(&operator(), &own.id, false).await;
    assert!(
        matches!(&refused, Err(Error::Conflict { code: "secret_in_use", message, .. }) if message.contains("r.example")),
        "{refused:?}"
    );
    assert!(p.secrets().uses(&of_company).await.unwrap().is_empty());
    p.edit("UPDATE secret_versions SET sealed = (SELECT sealed FROM secret_versions WHERE version = 1) WHERE version = 2 AND sealed IS NOT NULL")
        .await;
    assert!(is_corrupt(ask(&operator()).await));
}

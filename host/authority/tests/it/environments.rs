//! Environments: saves, revisions, deletion, and edits.

use leasehold_authority::*;
use leasehold_contract::{Driver, Grant};
use serde_json::{Value, json};

use crate::place::*;

#[tokio::test]
async fn a_save_is_whole_compare_and_set_and_counts_what_changes_the_target() {
    let p = Place::new().await;
    let f = p.furnished().await;
    let id = f.environment.id.clone();
    let patch = |value: Value| -> EnvironmentPatch { serde_json::from_value(value).unwrap() };
    let cases = [
        (
            json!({ "name": "renamed", "description": "d", "metadata": { "team": "x" } }),
            0,
        ),
        (json!({ "config": { "remoteWorkspacePath": "/other" } }), 1),
        (json!({ "envVars": { "CI": "2" } }), 1),
        (json!({ "status": "archived" }), 0),
        (json!({ "config": { "remoteWorkspacePath": null } }), 1),
    ];
    for (change, raised) in cases {
        let before = p.environments().get(&id).await.unwrap();
        let after = p
            .environments()
            .update(
                &operator(),
                &id,
                before.revision,
                before.patched(patch(change.clone())),
                vec![key_use("10.0.0.5")],
            )
            .await
            .unwrap();
        assert_eq!(after.revision, before.revision + 1, "{change}");
        assert_eq!(
            after.target_revision,
            before.target_revision + raised,
            "{change}"
        );
        assert_eq!(p.environments().get(&id).await.unwrap(), after);
    }
    let variables = |e: &Environment| e.env_vars.keys().cloned().collect::<Vec<_>>();
    let now = p.environments().get(&id).await.unwrap();
    assert_eq!(
        (&now.env_vars["CI"], variables(&now)),
        (&json!("2"), variables(&f.environment)),
        "what a patch does not name stays"
    );
    let without = now.patched(patch(json!({ "envVars": { "CI": null, "NEW": "1" } })));
    assert!(!without.env_vars.contains_key("CI") && without.env_vars["NEW"] == "1");
    assert!(now.config.contains_key("target") && !now.config.contains_key("remoteWorkspacePath"));
    assert!(matches!(
        p.environments()
            .update(
                &operator(),
                &id,
                1,
                now.patched(EnvironmentPatch::default()),
                vec![]
            )
            .await,
        Err(Error::Invalid { .. } | Error::Stale { .. })
    ));
    assert!(matches!(
        p.environments()
            .update(
                &operator(),
                &id,
                1,
                now.patched(EnvironmentPatch::default()),
                vec![key_use("10.0.0.5")]
            )
            .await,
        Err(Error::Stale {
            what: "environment",
            ..
        })
    ));
}

#[tokio::test]
async fn another_driver_or_provider_replaces_the_configuration() {
    let p = Place::new().await;
    let f = p.furnished().await;
    let new = revision("null", Driver::Sandbox, b"null");
    let grant = Grant::asked(&new.manifest);
    p.plugins()
        .install(&operator(), new, Some(grant))
        .await
        .unwrap();
    let patch: EnvironmentPatch =
        serde_json::from_value(json!({ "driver": "sandbox", "provider": "null" })).unwrap();
    let draft = f.environment.patched(patch);
    assert!(draft.config.is_empty());
    let id = &f.environment.id;
    let saved = p
        .environments()
        .update(&operator(), id, 1, draft, vec![])
        .await
        .unwrap();
    assert_eq!(saved.target_revision, 2);
    assert_eq!(
        p.secrets().bound_pointers(id).await.unwrap().len(),
        1,
        "the variable's"
    );
}

#[tokio::test]
async fn a_provider_has_to_be_installed_and_lease_the_driver() {
    let p = Place::new().await;
    let f = p.furnished().await;
    let save = |value: Value| {
        let (p, company) = (&p, f.company.clone());
        async move {
            let draft = serde_json::from_value(value).unwrap();
            p.environments()
                .create(&operator(), &company, draft, vec![])
                .await
        }
    };
    assert_eq!(
        pointers(save(json!({ "name": "a", "driver": "ssh", "provider": "none" })).await),
        ["/provider"]
    );
    assert_eq!(
        pointers(save(json!({ "name": "a", "driver": "sandbox", "provider": "ssh" })).await),
        ["/driver"]
    );
    assert_eq!(
        code_of(save(json!({ "name": "build box", "driver": "ssh", "provider": "ssh" })).await),
        "environment_name_taken"
    );
}

#[tokio::test]
async fn a_newer_plugin_revision_and_a_rotation_raise_the_target() {
    let p = Place::new().await;
    let f = p.furnished().await;
    p.plugin("ssh", b"component 2").await;
    let e = p.environments().get(&f.environment.id).await.unwrap();
    assert_eq!(e.target_revision, 2);
    p.secrets()
        .put_version(&operator(), &f.secret, bytes("two"))
        .await
        .unwrap();
    let e = p.environments().get(&f.environment.id).await.unwrap();
    assert_eq!((e.target_revision, e.revision), (3, 1));
}

#[tokio::test]
async fn a_list_shows_every_change_at_once_and_filters() {
    let p = Place::new().await;
    let f = p.furnished().await;
    let all = EnvironmentFilter::default();
    let list = |filter: EnvironmentFilter| {
        let (p, company) = (&p, f.company.clone());
        async move {
            let list = p.environments().list(&company, &filter).await.unwrap();
            list.iter().map(|e| e.name.clone()).collect::<Vec<_>>()
        }
    };
    assert_eq!(list(all.clone()).await, ["build box"]);
    let e = p
        .environments()
        .create(
            &operator(),
            &f.company,
            draft("another", &f.secret),
            vec![key_use("h")],
        )
        .await
        .unwrap();
    assert_eq!(list(all.clone()).await, ["another", "build box"]);
    p.environments().archive(&operator(), &e.id).await.unwrap();
    let archived = EnvironmentFilter {
        status: Some(EnvironmentStatus::Archived),
        ..Default::default()
    };
    assert_eq!(list(archived.clone()).await, ["another"]);
    p.environments().activate(&operator(), &e.id).await.unwrap();
    assert!(list(archived).await.is_empty());
    let sandbox = EnvironmentFilter {
        driver: Some(EnvironmentDriver::Sandbox),
        ..Default::default()
    };
    assert!(list(sandbox).await.is_empty());
    for (provider, found) in [("ssh", 2), ("other", 0)] {
        let of_provider = EnvironmentFilter {
            provider: Some(provider.to_owned()),
            ..Default::default()
        };
        assert_eq!(list(of_provider).await.len(), found, "{provider}");
    }
    p.environments().delete(&operator(), &e.id).await.unwrap();
    assert_eq!(list(all.clone()).await, ["build box"]);
    assert!(matches!(
        p.environments().list("com_none", &all).await,
        Err(Error::NotFound {
            what: "company",
            ..
        })
    ));
}

#[tokio::test]
async fn what_was_changed_since_it_was_read_is_not_deleted() {
    let p = Place::new().await;
    let f = p.furnished().await;
    let environments = p.environments();
    let id = &f.environment.id;
    let archived = environments.archive(&operator(), id).await.unwrap();
    let stale = environments
        .delete_as_read(&operator(), &f.environment)
        .await;
    assert!(matches!(stale, Err(Error::Stale { .. })), "{stale:?}");
    // Neither is what another value of its secret made of it.
    p.secrets()
        .put_version(&operator(), &f.secret, bytes("value two"))
        .await
        .unwrap();
    let stale = environments.delete_as_read(&operator(), &archived).await;
    assert!(matches!(stale, Err(Error::Stale { .. })), "{stale:?}");
    let now = environments.get(id).await.unwrap();
    assert_eq!(now.revision, archived.revision);
    environments
        .delete_as_read(&operator(), &now)
        .await
        .unwrap();
    assert!(matches!(
        environments.get(id).await,
        Err(Error::NotFound { .. })
    ));
}

#[tokio::test]
async fn a_deletion_tells_which_secrets_nothing_else_uses_and_for_whom_it_was_the_default() {
    let p = Place::new().await;
    let f = p.furnished().await;
    let id = &f.environment.id;
    let unused = || async {
        let radius = p.environments().blast_radius(id).await.unwrap();
        let names = radius.secrets_used_by_nothing_else.into_iter();
        names.map(|secret| secret.name).collect::<Vec<_>>()
    };
    assert_eq!(unused().await, ["key"]);
    // A lease of the same environment is no other use; another environment is.
    p.leases().begin(&operator(), f.intent()).await.unwrap();
    assert_eq!(unused().await, ["key"]);
    let other = p
        .environments()
        .create(
            &operator(),
            &f.company,
            draft("other", &f.secret),
            vec![key_use("10.0.0.6")],
        )
        .await
        .unwrap();
    assert_eq!(unused().await, [""; 0]);
    p.environments()
        .delete(&operator(), &other.id)
        .await
        .unwrap();
    assert_eq!(unused().await, ["key"]);
    // One of the instance that the settings name stays in use by them.
    let everybodys = p
        .secrets()
        .create(&operator(), new_secret(None, "registry", "x"))
        .await
        .unwrap();
    let mut draft = draft("build box", &f.secret);
    draft.env_vars.insert("R".into(), reference(&everybodys.id));
    p.environments()
        .update(&operator(), id, 1, draft, vec![key_use("10.0.0.5")])
        .await
        .unwrap();
    assert_eq!(unused().await, ["key", "registry"]);
    let named = [("registry".to_owned(), vec!["plugins.sources".to_owned()])];
    p.secrets().set_named_uses(named.into());
    assert_eq!(unused().await, ["key"]);
    let defaults = || async {
        let radius = p.environments().blast_radius(id).await.unwrap();
        radius.static_references.company_default_count
    };
    assert_eq!(defaults().await, 0);
    p.environments()
        .set_default(&operator(), Some(&f.company), Some(id))
        .await
        .unwrap();
    assert_eq!(defaults().await, 1);
}

#[tokio::test]
async fn an_environment_with_live_leases_is_not_deleted_and_its_records_outlive_it() {
    let p = Place::new().await;
    let f = p.furnished().await;
    let id = &f.environment.id;
    let lease = p
        .leases()
        .begin(&operator(), f.intent())
        .await
        .unwrap()
        .lease;
    p.leases().unsafe_sent(&lease.id, 1).await.unwrap();
    let radius = p.environments().blast_radius(id).await.unwrap();
    assert_eq!(radius.delete_blocked_reasons, ["active_lease"]);
    assert_eq!(
        (
            radius.active_runtime_use.active_lease_count,
            radius.static_references.secret_binding_count
        ),
        (1, 2)
    );
    assert_eq!(
        code_of(p.environments().delete(&operator(), id).await),
        "environment_not_deletable"
    );
    let failed = Event::AcquireFailed {
        reason: "refused".into(),
    };
    let t = p
        .leases()
        .apply(&operator(), &lease.id, 1, failed)
        .await
        .unwrap();
    let radius = p.environments().blast_radius(id).await.unwrap();
    assert_eq!(radius.delete_blocked_reasons, ["pending_sandbox_cleanup"]);
    let ended =
        |radius: &BlastRadius| (radius.pending_cleanup_lease_count, radius.ended_lease_count);
    assert_eq!(ended(&radius), (1, 0));
    p.leases()
        .apply(
            &operator(),
            &lease.id,
            t.lease.epoch,
            Event::ReleaseConfirmed,
        )
        .await
        .unwrap();
    assert_eq!(
        ended(&p.environments().blast_radius(id).await.unwrap()),
        (0, 1)
    );
    let deleted = p.environments().delete(&operator(), id).await.unwrap();
    assert_eq!(deleted.name, "build box");
    assert!(matches!(
        p.environments().get(id).await,
        Err(Error::NotFound { .. })
    ));
    let kept = p.leases().get(&lease.id).await.unwrap();
    assert_eq!(
        (kept.environment_id, kept.environment_name),
        (id.clone(), "build box".into())
    );
    assert_eq!(p.count("SELECT COUNT(*) FROM secret_bindings").await, 0);
    p.secrets()
        .delete(&operator(), &f.secret, false)
        .await
        .unwrap();
}

/// What stands in the way is looked at in the transaction that deletes: a lease that is begun meanwhile keeps its environment.
#[tokio::test]
async fn of_a_lease_and_a_deletion_at_once_just_one_is_made() {
    let p = Place::new().await;
    let mut f = p.furnished().await;
    for round in 0..30 {
        let id = f.environment.id.clone();
        let (environments, leases, by) = (p.environments(), p.leases(), operator());
        let (gone, begun) = match round % 2 {
            0 => tokio::join!(environments.delete(&by, &id), leases.begin(&by, f.intent())),
            _ => {
                let begun = leases.begin(&by, f.intent());
                let gone = environments.delete(&by, &id);
                let (begun, gone) = tokio::join!(begun, gone);
                (gone, begun)
            }
        };
        match (gone, begun) {
            (Ok(_), Err(Error::NotFound { .. })) => {}
            (Err(Error::Conflict { code, .. }), Ok(_)) => {
                assert_eq!(code, "environment_not_deletable");
                assert_eq!(environments.get(&id).await.unwrap().id, id);
            }
            other => panic!("round {round}: {other:?}"),
        }
        let next = draft(&format!("box {round}"), &f.secret);
        let uses = vec![key_use("10.0.0.5")];
        let made = environments.create(&by, &f.company, next, uses).await;
        f.environment = made.unwrap();
    }
}

#[tokio::test]
async fn every_edit_of_an_environment_is_noticed() {
    let edits: [&'static str; 6] = [
        "UPDATE environments SET config = replace(config, '10.0.0.5', '10.6.6.6')",
        r#"UPDATE environments SET env_vars = '{}'"#,
        "UPDATE environments SET company_id = (SELECT id FROM companies WHERE name = 'other')",
        "UPDATE environments SET target_revision = 9",
        "UPDATE environments SET provider = 'other'",
        "UPDATE environments SET config = 'no json'",
    ];
    for sql in edits {
        let p = Place::new().await;
        let f = p.furnished().await;
        p.company("other").await;
        assert_eq!(p.edit(sql).await, 1, "{sql}");
        assert!(
            is_corrupt(p.environments().get(&f.environment.id).await),
            "{sql}"
        );
        assert!(
            is_corrupt(p.leases().begin(&operator(), f.intent()).await),
            "{sql}"
        );
    }
}

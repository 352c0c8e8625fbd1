//! Rows that no company has alone: shared environments, the server's own machine, the managed one, and defaults.

use leasehold_authority::*;
use leasehold_contract::{Driver, Grant};
use serde_json::{Value, json};

use crate::place::*;

fn null_draft(name: &str) -> EnvironmentDraft {
    serde_json::from_value(json!({ "name": name, "driver": "sandbox", "provider": "null" }))
        .unwrap()
}

/// Two companies, the plugins `ssh` and `null`.
async fn two() -> (Place, Furniture, String) {
    let p = Place::new().await;
    let f = p.furnished().await;
    let other = p.company("other").await;
    let new = revision("null", Driver::Sandbox, b"null");
    let grant = Grant::asked(&new.manifest);
    p.plugins()
        .install(&operator(), new, Some(grant))
        .await
        .unwrap();
    (p, f, other)
}

async fn shared(p: &Place, name: &str) -> Environment {
    p.environments()
        .create_shared(&operator(), null_draft(name), vec![])
        .await
        .unwrap()
}

async fn names(p: &Place, company: &str) -> Vec<String> {
    let all = EnvironmentFilter::default();
    let list = p.environments().list(company, &all).await.unwrap();
    list.iter().map(|e| e.name.clone()).collect()
}

fn intent(p: &Plugin, environment: &Environment, company: Option<&str>) -> AcquireIntent {
    AcquireIntent {
        environment: environment.id.clone(),
        company: company.map(str::to_owned),
        target_revision: environment.target_revision,
        plugin_digest: now(p).digest.clone(),
        purpose: leasehold_contract::Purpose::Run,
        exclusive_key: None,
        account_key: None,
        ttl: None,
        caller: CallerRefs::default(),
        idempotency_key: None,
        asked: None,
    }
}

async fn patched(p: &Place, id: &str, patch: Value) -> Result<Environment, Error> {
    let before = p.environments().get(id).await?;
    let draft = before.patched(serde_json::from_value(patch).unwrap());
    p.environments()
        .update(&operator(), id, before.revision, draft, vec![])
        .await
}

#[tokio::test]
async fn a_name_is_unique_in_what_any_company_sees() {
    let (p, f, other) = two().await;
    let all = shared(&p, "all").await;
    assert_eq!(names(&p, &f.company).await, ["all", "build box"]);
    assert_eq!(names(&p, &other).await, ["all"]);
    let taken = "environment_name_taken";
    let environments = p.environments();
    for company in [&f.company, &other] {
        let made = environments
            .create(&operator(), company, null_draft("all"), vec![])
            .await;
        assert_eq!(code_of(made), taken, "a company's against a shared one");
    }
    for name in ["all", "build box"] {
        let made = environments
            .create_shared(&operator(), null_draft(name), vec![])
            .await;
        assert_eq!(code_of(made), taken, "a shared one against {name}");
    }
    // The other company does not see the first one's.
    let twin = environments
        .create(&operator(), &other, null_draft("build box"), vec![])
        .await
        .unwrap();
    assert_eq!(names(&p, &other).await, ["all", "build box"]);
    for (id, name) in [(&all.id, "build box"), (&twin.id, "all")] {
        let renamed = patched(&p, id, json!({ "name": name })).await;
        assert_eq!(code_of(renamed), taken, "a rename");
    }
    let same = patched(&p, &all.id, json!({ "description": "d" })).await;
    assert_eq!(same.unwrap().name, "all", "its own name is no other's");
}

#[tokio::test]
async fn a_lease_of_a_shared_environment_is_the_companys_that_asks() {
    let (p, f, other) = two().await;
    let all = shared(&p, "all").await;
    let null = p.plugins().get("null").await.unwrap();
    let begin = async |who: &Actor, company: Option<&str>| {
        let begun = p.leases().begin(who, intent(&null, &all, company)).await;
        begun.map(|b| b.lease)
    };
    assert_eq!(pointers(begin(&operator(), None).await), ["/companyId"]);
    for company in [&f.company, &other] {
        let lease = begin(&operator(), Some(company)).await.unwrap();
        assert_eq!(&lease.company_id, company);
        let lease = begin(&agent(company), Some(company)).await.unwrap();
        assert_eq!(&lease.company_id, company);
    }
    assert!(matches!(
        begin(&agent(&other), Some(&f.company)).await,
        Err(Error::NotFound { .. })
    ));
    // What one company has is not there for another.
    let ssh = p.plugins().get("ssh").await.unwrap();
    let foreign = intent(&ssh, &f.environment, Some(&other));
    assert!(matches!(
        p.leases().begin(&operator(), foreign).await,
        Err(Error::NotFound {
            what: "environment",
            ..
        })
    ));
}

#[tokio::test]
async fn a_shared_environment_uses_a_companys_secret_for_that_company_alone() {
    let (p, f, other) = two().await;
    let secrets = p.secrets();
    let shared = p
        .environments()
        .create_shared(
            &operator(),
            draft("everybody's", &f.secret),
            vec![key_use("10.0.0.5")],
        )
        .await
        .unwrap();
    let by_for = |company: Option<&str>| Accessor {
        company: company.map(str::to_owned),
        ..by()
    };
    let resolve = async |company: Option<&str>| {
        let by = by_for(company);
        secrets.resolve(&shared.id, "env:TOKEN", &by).await
    };
    let ssh = p.plugins().get("ssh").await.unwrap();
    let mismatch = "environment_company_mismatch";
    secrets.serve(&shared.id, &f.company).await.unwrap();
    assert_eq!(code_of(secrets.serve(&shared.id, &other).await), mismatch);
    assert_eq!(code_of(resolve(Some(&other)).await), mismatch);
    assert_eq!(pointers(resolve(None).await), ["?companyId"]);
    let refused = p
        .leases()
        .begin(&operator(), intent(&ssh, &shared, Some(&other)))
        .await;
    assert_eq!(code_of(refused), mismatch);
    let had = secrets
        .accesses(&f.secret, &AccessFilter::default())
        .await
        .unwrap();
    assert!(had.is_empty(), "{had:?}");
    let value = resolve(Some(&f.company)).await.unwrap();
    assert_eq!(&**value.value, b"value one");
    // It follows the newest version there too, and a lease pins it for its own company.
    secrets
        .put_version(&operator(), &f.secret, bytes("value two"))
        .await
        .unwrap();
    let value = resolve(Some(&f.company)).await.unwrap();
    assert_eq!(&**value.value, b"value two");
    let shared = p.environments().get(&shared.id).await.unwrap();
    let lease = p
        .leases()
        .begin(&operator(), intent(&ssh, &shared, Some(&f.company)))
        .await
        .unwrap()
        .lease;
    let pinned = secrets
        .resolve_pinned(&lease.id, "env:TOKEN", &by())
        .await
        .unwrap();
    assert_eq!(&**pinned.value, b"value two");
    let had = secrets
        .accesses(&f.secret, &AccessFilter::default())
        .await
        .unwrap();
    assert!(had.iter().all(|a| a.company_id == f.company), "{had:?}");
    let uses = secrets.uses(&f.secret).await.unwrap();
    assert!(uses.environments.iter().any(|u| u.company_id.is_none()));
}

#[tokio::test]
async fn a_value_that_comes_with_a_shared_environment_becomes_a_secret_of_the_instance() {
    let (p, _, _) = two().await;
    let mut draft = null_draft("all");
    draft.env_vars.insert(
        "TOKEN".into(),
        json!({ "type": "secret_value", "value": "canary" }),
    );
    let pasted = take_pasted(None, Some(&mut draft.env_vars)).unwrap();
    let secrets = EnvironmentSecrets {
        pasted,
        ..EnvironmentSecrets::default()
    };
    p.environments()
        .create_shared(&operator(), draft, secrets)
        .await
        .unwrap();
    let of_instance = p.secrets().list(None, None).await.unwrap();
    assert_eq!(of_instance[0].name, "all TOKEN");
}

#[tokio::test]
async fn the_servers_own_machine_is_one_row_that_is_never_leased_and_never_goes() {
    let (p, f, _) = two().await;
    let environments = p.environments();
    let taken = null_draft("local");
    environments
        .create(&operator(), &f.company, taken, vec![])
        .await
        .unwrap();
    let local = environments.ensure_local(&operator()).await.unwrap();
    let again = environments.ensure_local(&operator()).await.unwrap();
    assert_eq!(local, again);
    assert_eq!((&*local.name, &local.company_id), ("local 2", &None));
    let draft = |value: Value| -> EnvironmentDraft { serde_json::from_value(value).unwrap() };
    let second = || draft(json!({ "name": "second", "driver": "local", "provider": "local" }));
    let made = environments
        .create_shared(&operator(), second(), vec![])
        .await;
    assert_eq!(code_of(made), "environment_local");
    let made = environments
        .create(&operator(), &f.company, second(), vec![])
        .await;
    assert_eq!(pointers(made), ["/companyId"]);
    let ssh = p.plugins().get("ssh").await.unwrap();
    let leased = p
        .leases()
        .begin(&operator(), intent(&ssh, &local, Some(&f.company)))
        .await;
    assert_eq!(code_of(leased), "environment_local");
    let deleted = environments.delete(&operator(), &local.id).await;
    assert_eq!(code_of(deleted), "environment_not_deletable");
    let radius = environments.blast_radius(&local.id).await.unwrap();
    assert_eq!(radius.delete_blocked_reasons, ["managed_local"]);
    for (patch, pointer) in [
        (
            json!({ "driver": "sandbox", "provider": "null" }),
            "/driver",
        ),
        (json!({ "provider": "null" }), "/provider"),
        (json!({ "config": { "x": 1 } }), "/config"),
        (json!({ "envVars": { "X": "1" } }), "/envVars"),
    ] {
        assert_eq!(
            pointers(patched(&p, &local.id, patch.clone()).await),
            [pointer],
            "{patch}"
        );
    }
    let turned =
        json!({ "driver": "local", "provider": "local", "envVars": { "CI": null, "TOKEN": null } });
    assert_eq!(
        pointers(patched(&p, &f.environment.id, turned).await),
        ["/driver"],
        "nothing else becomes it"
    );
    let renamed = patched(&p, &local.id, json!({ "name": "here" })).await;
    assert_eq!(renamed.unwrap().name, "here");
}

fn managed(name: &str, provider: &str, config: Value) -> Managed {
    let draft =
        json!({ "name": name, "driver": "sandbox", "provider": provider, "config": config });
    Managed {
        draft: serde_json::from_value(draft).unwrap(),
        secrets: EnvironmentSecrets::default(),
    }
}

#[tokio::test]
async fn of_the_managed_environment_people_change_the_variables_and_the_server_the_rest() {
    let (p, _, _) = two().await;
    let environments = p.environments();
    let of_all = p
        .secrets()
        .create(&operator(), new_secret(None, "token", "value"))
        .await
        .unwrap();
    let first = environments
        .keep_managed(
            &operator(),
            managed("sandbox", "null", json!({ "size": 1 })),
        )
        .await
        .unwrap();
    assert!(first.managed && first.company_id.is_none());
    let id = &first.id;
    for patch in [
        json!({ "name": "mine" }),
        json!({ "description": "mine" }),
        json!({ "config": { "size": 2 } }),
        json!({ "status": "archived" }),
        json!({ "metadata": { "mine": true } }),
        // With the very configuration that is there.
        json!({ "provider": "other", "config": { "size": 1 } }),
        json!({ "driver": "ssh", "config": { "size": 1 } }),
    ] {
        let refused = patched(&p, id, patch.clone()).await;
        assert_eq!(code_of(refused), "environment_platform_managed", "{patch}");
    }
    let deleted = environments.delete(&operator(), id).await;
    assert_eq!(code_of(deleted), "environment_platform_managed");
    let variables = json!({ "envVars": { "PLAIN": "1", "TOKEN": reference(&of_all.id) } });
    let saved = patched(&p, id, variables).await.unwrap();
    // The same again writes nothing; another configuration keeps the variables and their bindings.
    let wanted = || managed("sandbox", "null", json!({ "size": 1 }));
    let same = environments
        .keep_managed(&operator(), wanted())
        .await
        .unwrap();
    assert_eq!(same, saved);
    let wanted = managed("sandbox", "null", json!({ "size": 2 }));
    let larger = environments
        .keep_managed(&operator(), wanted)
        .await
        .unwrap();
    assert_eq!((&larger.id, &larger.env_vars), (id, &saved.env_vars));
    assert_eq!(larger.target_revision, saved.target_revision + 1);
    let by = Accessor {
        company: Some(p.company("third").await),
        ..by()
    };
    let value = p.secrets().resolve(id, "env:TOKEN", &by).await.unwrap();
    assert_eq!(&**value.value, b"value");
}

#[tokio::test]
async fn the_managed_environment_is_archived_and_returns_as_the_same() {
    let (p, _, _) = two().await;
    let environments = p.environments();
    environments
        .archive_managed(&operator(), "there is none")
        .await
        .unwrap();
    let wanted = || managed("sandbox", "null", json!({}));
    let first = environments
        .keep_managed(&operator(), wanted())
        .await
        .unwrap();
    for _ in 0..2 {
        environments
            .archive_managed(&operator(), "its provider is gone")
            .await
            .unwrap();
    }
    let archived = environments.get(&first.id).await.unwrap();
    assert_eq!(archived.status, EnvironmentStatus::Archived);
    assert_eq!(archived.revision, first.revision + 1, "once");
    let back = environments
        .keep_managed(&operator(), wanted())
        .await
        .unwrap();
    assert_eq!(
        (&back.id, back.status),
        (&first.id, EnvironmentStatus::Active)
    );
    assert_eq!(back.target_revision, first.target_revision);
    assert_eq!(
        p.edit("UPDATE environments SET managed = 0 WHERE managed = 1")
            .await,
        1
    );
    assert!(is_corrupt(environments.get(&first.id).await));
}

#[tokio::test]
async fn the_managed_environment_can_be_deleted_only_while_it_is_archived_and_is_made_anew() {
    let (p, _, _) = two().await;
    let environments = p.environments();
    let wanted = || managed("sandbox", "null", json!({}));
    let first = environments
        .keep_managed(&operator(), wanted())
        .await
        .unwrap();
    let deleted = environments.delete(&operator(), &first.id).await;
    assert_eq!(code_of(deleted), "environment_platform_managed");
    environments
        .archive_managed(&operator(), "its provider is gone")
        .await
        .unwrap();
    environments.delete(&operator(), &first.id).await.unwrap();
    assert!(environments.managed().await.unwrap().is_none());
    let again = environments
        .keep_managed(&operator(), wanted())
        .await
        .unwrap();
    assert_ne!(again.id, first.id);
    assert!(again.managed && again.status == EnvironmentStatus::Active);
}

#[tokio::test]
async fn where_only_the_managed_environment_is_shown_no_other_is_there() {
    let (p, f, _) = two().await;
    let environments = p.environments();
    let local = environments.ensure_local(&operator()).await.unwrap();
    let wanted = managed("sandbox", "null", json!({}));
    let kept = environments
        .keep_managed(&operator(), wanted)
        .await
        .unwrap();
    assert_eq!(
        names(&p, &f.company).await,
        ["build box", "local", "sandbox"]
    );
    environments.show_managed_only();
    assert_eq!(names(&p, &f.company).await, ["sandbox"]);
    for id in [&f.environment.id, &local.id] {
        let gone = |result: Result<(), Error>| matches!(result, Err(Error::NotFound { .. }));
        assert!(gone(environments.get(id).await.map(drop)));
        assert!(gone(environments.secret_refs(id).await.map(drop)));
        assert!(gone(environments.blast_radius(id).await.map(drop)));
        assert!(gone(environments.delete(&operator(), id).await.map(drop)));
        let draft = f.environment.patched(EnvironmentPatch::default());
        let uses = vec![key_use("10.0.0.5")];
        let saved = environments.update(&operator(), id, 1, draft, uses).await;
        assert!(gone(saved.map(drop)));
        let set = environments
            .set_default(&operator(), Some(&f.company), Some(id))
            .await;
        assert_eq!(pointers(set), ["/defaultEnvironmentId"]);
    }
    environments.get(&kept.id).await.unwrap();
}

#[tokio::test]
async fn a_default_is_what_whoever_it_is_for_sees_and_can_lease() {
    let (p, f, other) = two().await;
    let environments = p.environments();
    let all = shared(&p, "all").await;
    let local = environments.ensure_local(&operator()).await.unwrap();
    let archived = shared(&p, "archived").await;
    environments
        .archive(&operator(), &archived.id)
        .await
        .unwrap();
    let set = async |company: Option<&str>, id: Option<&str>| {
        environments.set_default(&operator(), company, id).await
    };
    let here = Some(f.company.as_str());
    let own = f.environment.id.as_str();
    for (company, id) in [
        (None, own),
        (Some(other.as_str()), own),
        (None, &*local.id),
        (here, &*local.id),
        (None, &*archived.id),
        (here, &*archived.id),
        (here, "env_none"),
    ] {
        assert_eq!(
            pointers(set(company, Some(id)).await),
            ["/defaultEnvironmentId"],
            "{company:?} {id}"
        );
    }
    set(None, Some(&all.id)).await.unwrap();
    set(here, Some(own)).await.unwrap();
    let now = environments.defaults(here).await.unwrap();
    assert_eq!(now.instance.as_ref(), Some(&all.id));
    assert_eq!(now.company.as_deref(), Some(own));
    let elsewhere = environments.defaults(Some(&other)).await.unwrap();
    assert_eq!(
        (elsewhere.instance, elsewhere.company),
        (Some(all.id.clone()), None)
    );
    // The instance's stands in the way of a deletion, a company's goes with it.
    let radius = environments.blast_radius(&all.id).await.unwrap();
    assert_eq!(radius.delete_blocked_reasons, ["instance_default"]);
    let refused = environments.delete(&operator(), &all.id).await;
    assert_eq!(code_of(refused), "environment_not_deletable");
    environments.delete(&operator(), own).await.unwrap();
    assert_eq!(environments.defaults(here).await.unwrap().company, None);
    set(None, None).await.unwrap();
    environments.delete(&operator(), &all.id).await.unwrap();
}

#[tokio::test]
async fn an_edited_default_is_not_believed() {
    let (p, f, _) = two().await;
    let all = shared(&p, "all").await;
    let environments = p.environments();
    let here = Some(f.company.as_str());
    environments
        .set_default(&operator(), here, Some(&f.environment.id))
        .await
        .unwrap();
    let sql = format!(
        "UPDATE default_environments SET environment_id = '{}'",
        all.id
    );
    assert_eq!(p.edit(sql).await, 1);
    assert!(is_corrupt(environments.defaults(here).await));
}

/// What a server of before had: environments of companies only, as they were written then.
const OF_BEFORE: &str = "
    PRAGMA foreign_keys = OFF;
    PRAGMA legacy_alter_table = ON;
    BEGIN;
    DELETE FROM _sqlx_migrations WHERE version >= 5;
    DROP TABLE assignees;
    DROP TABLE idempotency_keys;
    DROP INDEX activity_by_subject;
    ALTER TABLE activity DROP COLUMN outcome;
    ALTER TABLE activity DROP COLUMN times;
    DROP TABLE default_environments;
    CREATE TABLE before (
        id TEXT PRIMARY KEY, company_id TEXT NOT NULL REFERENCES companies (id), name TEXT NOT NULL, description TEXT,
        driver TEXT NOT NULL, provider TEXT NOT NULL, config TEXT NOT NULL, env_vars TEXT NOT NULL, metadata TEXT,
        status TEXT NOT NULL, revision INTEGER NOT NULL, target_revision INTEGER NOT NULL, created_at INTEGER NOT NULL,
        updated_at INTEGER NOT NULL, mac BLOB NOT NULL, endpoints TEXT NOT NULL DEFAULT '[]', UNIQUE (company_id, name));
    INSERT INTO before SELECT id, company_id, name, description, driver, provider, config, env_vars, metadata, status,
        revision, target_revision, created_at, updated_at, mac, endpoints FROM environments;
    DROP TABLE environments;
    ALTER TABLE before RENAME TO environments;
    CREATE INDEX environments_by_provider ON environments (provider);
    COMMIT;";

#[tokio::test]
async fn environments_of_before_they_could_be_shared_stay_what_they_were_with_their_secrets() {
    let p = Place::new().await;
    let f = p.furnished().await;
    p.edit(OF_BEFORE).await;
    let p = p.again().await;
    assert_eq!(
        p.environments().get(&f.environment.id).await.unwrap(),
        f.environment
    );
    let value = p
        .secrets()
        .resolve(&f.environment.id, "/target/privateKey", &by())
        .await
        .unwrap();
    assert_eq!(&**value.value, b"value one");
    assert_eq!(
        p.secrets()
            .bound_pointers(&f.environment.id)
            .await
            .unwrap()
            .len(),
        2
    );
    // The bindings still go with their environment.
    p.environments()
        .delete(&operator(), &f.environment.id)
        .await
        .unwrap();
    assert_eq!(p.count("SELECT COUNT(*) FROM secret_bindings").await, 0);
}

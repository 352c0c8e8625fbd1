//! Environments that become another company's own, or everybody's; and what keeps them as they are.

use leasehold_authority::*;
use leasehold_contract::{Driver, Grant};
use serde_json::{Value, json};

use crate::place::*;

fn null_draft(name: &str) -> EnvironmentDraft {
    serde_json::from_value(json!({ "name": name, "driver": "sandbox", "provider": "null" }))
        .unwrap()
}

/// Two companies, the plugins `ssh` and `null`, and an environment of the latter that both share.
async fn shared() -> (Place, Furniture, String, Environment) {
    let p = Place::new().await;
    let f = p.furnished().await;
    let other = p.company("other").await;
    let new = revision("null", Driver::Sandbox, b"null");
    let grant = Grant::asked(&new.manifest);
    p.plugins()
        .install(&operator(), new, Some(grant))
        .await
        .unwrap();
    let all = p
        .environments()
        .create_shared(&operator(), null_draft("all"), vec![])
        .await
        .unwrap();
    (p, f, other, all)
}

/// The environment as it is, moved.
async fn moved(p: &Place, id: &str, company: Option<&str>) -> Result<Environment, Error> {
    let before = p.environments().get(id).await?;
    let draft = before.patched(EnvironmentPatch::default());
    let uses = match before.provider.as_str() {
        "ssh" => vec![key_use("10.0.0.5")],
        _ => Vec::new(),
    };
    let company = company.map(str::to_owned);
    p.environments()
        .update_and_move(&operator(), id, before.revision, company, draft, uses)
        .await
}

async fn names(p: &Place, company: &str) -> Vec<String> {
    let all = EnvironmentFilter::default();
    let list = p.environments().list(company, &all).await.unwrap();
    list.iter().map(|e| e.name.clone()).collect()
}

async fn in_the_way(p: &Place, id: &str, company: &str) -> Value {
    match moved(p, id, Some(company)).await {
        Err(Error::Conflict { code, details, .. }) => {
            assert_eq!(code, "environment_used_by_other_companies");
            let used = details.as_object().unwrap().iter();
            used.filter(|(_, count)| **count != json!(0) && **count != json!(false))
                .map(|(name, count)| (name.clone(), count.clone()))
                .collect()
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn what_others_use_does_not_become_one_companys_own_until_nobody_else_uses_it() {
    let (p, f, other, all) = shared().await;
    let (id, here) = (all.id.as_str(), f.company.as_str());
    let environments = p.environments();
    let set = async |company: Option<&str>, id: Option<&str>| {
        environments
            .set_default(&operator(), company, id)
            .await
            .unwrap();
    };
    set(None, Some(id)).await;
    assert_eq!(
        in_the_way(&p, id, here).await,
        json!({ "instanceDefault": true })
    );
    set(None, None).await;
    // What the company itself says is no obstacle; what another says is.
    set(Some(here), Some(id)).await;
    set(Some(&other), Some(id)).await;
    assert_eq!(in_the_way(&p, id, here).await, json!({ "companies": 1 }));
    set(Some(&other), None).await;
    let rows = p.assignees();
    for (kind, counted) in [
        (AssigneeKind::Agent, "agents"),
        (AssigneeKind::Project, "projects"),
        (AssigneeKind::Workspace, "workspaces"),
        (AssigneeKind::Issue, "issues"),
    ] {
        for (company, name) in [(here, "ours"), (other.as_str(), "theirs")] {
            let new = NewAssignee {
                id: Some(format!("{name} {counted}")),
                environment: Some(id.to_owned()),
                ..NewAssignee::default()
            };
            rows.create(&operator(), kind, company, new).await.unwrap();
        }
        assert_eq!(in_the_way(&p, id, here).await, json!({ (counted): 1 }));
        let nothing = AssigneePatch {
            environment: Some(None),
            ..AssigneePatch::default()
        };
        let theirs = format!("theirs {counted}");
        rows.update(&operator(), kind, &theirs, nothing)
            .await
            .unwrap();
    }
    let null = p.plugins().get("null").await.unwrap();
    let lease = p
        .leases()
        .begin(
            &operator(),
            AcquireIntent {
                environment: id.to_owned(),
                company: Some(other.clone()),
                target_revision: all.target_revision,
                plugin_digest: now(&null).digest.clone(),
                ..f.intent()
            },
        )
        .await
        .unwrap()
        .lease;
    assert_eq!(in_the_way(&p, id, here).await, json!({ "leases": 1 }));
    p.edit(format!(
        "UPDATE leases SET status = 'released' WHERE id = '{}'",
        lease.id
    ))
    .await;
    let now = moved(&p, id, Some(here)).await.unwrap();
    assert_eq!(now.company_id.as_deref(), Some(here));
    assert_eq!((now.revision, now.target_revision), (2, 1));
    assert_eq!(names(&p, here).await, ["all", "build box"]);
    assert_eq!(names(&p, &other).await, [] as [&str; 0]);
    // And no further, while its own company uses it.
    let ours = in_the_way(&p, id, &other).await;
    let expected =
        json!({ "companies": 1, "agents": 1, "projects": 1, "workspaces": 1, "issues": 1 });
    assert_eq!(ours, expected);
    let back = moved(&p, id, None).await.unwrap();
    assert_eq!(back.company_id, None);
    assert_eq!(names(&p, &other).await, ["all"]);
}

#[tokio::test]
async fn an_environment_that_moves_takes_its_secrets_along_where_they_may_go_and_stays_where_they_may_not()
 {
    let (p, f, other, _) = shared().await;
    let id = f.environment.id.as_str();
    let resolve = async |company: Option<&str>| {
        let by = Accessor {
            company: company.map(str::to_owned),
            ..by()
        };
        let found = p.secrets().resolve(id, "env:TOKEN", &by).await;
        found.map(|found| String::from_utf8(found.value.to_vec()).unwrap())
    };
    assert_eq!(resolve(None).await.unwrap(), "value one");
    let refused = pointers(moved(&p, id, Some(&other)).await);
    assert!(
        !refused.is_empty() && refused.iter().all(|at| at != "/companyId"),
        "{refused:?}"
    );
    assert_eq!(resolve(None).await.unwrap(), "value one");
    let revision = p.environments().get(id).await.unwrap().revision;
    // Shared, it is used with that secret for that company alone, and follows its rotation.
    let shared = moved(&p, id, None).await.unwrap();
    assert_eq!(shared.revision, revision + 1);
    assert_eq!(resolve(Some(&f.company)).await.unwrap(), "value one");
    assert_eq!(
        code_of(resolve(Some(&other)).await),
        "environment_company_mismatch"
    );
    p.secrets()
        .put_version(&operator(), &f.secret, bytes("value two"))
        .await
        .unwrap();
    assert_eq!(resolve(Some(&f.company)).await.unwrap(), "value two");
    let p = p.again().await;
    let own = moved(&p, id, Some(&f.company)).await.unwrap();
    assert_eq!(own.company_id.as_deref(), Some(f.company.as_str()));
    let found = p.secrets().resolve(id, "env:TOKEN", &by()).await.unwrap();
    assert_eq!(&**found.value, b"value two");
}

#[tokio::test]
async fn a_move_is_refused_by_its_field_where_it_cannot_be_and_told_to_both_who_had_and_who_has() {
    let (p, f, other, all) = shared().await;
    let environments = p.environments();
    let local = environments.ensure_local(&operator()).await.unwrap();
    for (id, company) in [
        (&local.id, Some(f.company.as_str())),
        (&all.id, Some("com_nobody")),
    ] {
        assert_eq!(
            pointers(moved(&p, id, company).await),
            ["/companyId"],
            "{id}"
        );
    }
    // Its name is free where it goes, or it does not go.
    let twin = environments
        .create(&operator(), &other, null_draft("build box"), vec![])
        .await
        .unwrap();
    for (id, company) in [(&twin.id, Some(f.company.as_str())), (&twin.id, None)] {
        assert_eq!(
            code_of(moved(&p, id, company).await),
            "environment_name_taken"
        );
    }
    let own = moved(&p, &all.id, Some(&other)).await.unwrap();
    let own = moved(&p, &own.id, Some(&f.company)).await.unwrap();
    for (company, told) in [(&f.company, 1), (&other, 2)] {
        let filter = ActivityFilter {
            company: Some(company.clone()),
            action: Some("environment.updated".into()),
            subject: Some(own.id.clone()),
            ..ActivityFilter::default()
        };
        let rows = p.activity().list(&filter).await.unwrap();
        assert_eq!(rows.len(), told, "{rows:?}");
        assert_eq!(rows[0].details["changed"], json!(["companyId"]));
    }
    p.activity().verify(None).await.unwrap();
}

#[tokio::test]
async fn what_a_lease_that_waits_for_its_cleanup_needs_does_not_change_under_it() {
    let (p, f, _, _) = shared().await;
    let id = f.environment.id.as_str();
    let lease = p
        .leases()
        .begin(&operator(), f.intent())
        .await
        .unwrap()
        .lease;
    let status = async |status: &str| {
        let sql = format!(
            "UPDATE leases SET status = '{status}' WHERE id = '{}'",
            lease.id
        );
        p.edit(sql).await;
    };
    let patched = async |patch: Value, host: &str| {
        let before = p.environments().get(id).await.unwrap();
        let draft = before.patched(serde_json::from_value(patch).unwrap());
        let uses = vec![key_use(host)];
        let saved = p.environments();
        saved
            .update(&operator(), id, before.revision, draft, uses)
            .await
    };
    status("pending_cleanup").await;
    let refused = patched(json!({ "config": { "more": 1 } }), "10.0.0.5").await;
    assert_eq!(code_of(refused), "environment_pending_sandbox_cleanup");
    // What the cleanup does not need is free.
    let renamed = json!({ "name": "another", "status": "archived", "metadata": { "a": 1 } });
    patched(renamed, "10.0.0.5").await.unwrap();
    status("released").await;
    patched(json!({ "config": { "more": 1 } }), "10.0.0.5")
        .await
        .unwrap();
}

//! From nothing to a workspace, and back to nothing.

use std::fs;

use leasehold_contract::{Code, Condition, Driver, Label, Query, Thing};
use serde_json::{Value, json};

use crate::machine::{act, look, machine, provider_error};

#[tokio::test]
async fn the_manifest_asks_for_ssh_and_nothing_else() {
    let Some(m) = machine().await else { return };
    let manifest = m.plugin.manifest();
    assert_eq!(
        (manifest.key.as_str(), manifest.driver),
        ("ssh", Driver::Ssh)
    );
    assert!(manifest.request.ssh && !manifest.request.streams);
    assert!(manifest.request.origins.is_empty() && manifest.operations.is_empty());
    assert!(manifest.features.exclusive_target && manifest.features.signal_group);
    let capabilities = m.plugin.capabilities();
    assert!(capabilities.execution && capabilities.files && !capabilities.suspension);
}

#[tokio::test]
async fn a_configuration_is_put_into_one_spelling_and_its_target_is_left_alone() {
    let Some(m) = machine().await else { return };
    let asked = m.config_at("//srv/./leases/");
    let checked = m.plugin.check_config(&m.setup(&look("a1")), &asked).await;
    let checked: Value = serde_json::from_str(&checked.expect("good")).expect("JSON");
    let asked: Value = serde_json::from_str(&asked).expect("JSON");
    assert_eq!(checked["remoteWorkspacePath"], "/srv/leases");
    assert_eq!(checked["target"], asked["target"]);

    let error = provider_error(
        m.plugin
            .check_config(&m.setup(&look("a1")), &m.config_at("/srv/../etc"))
            .await,
    );
    assert_eq!(error.code, Code::InvalidConfig);
    let violations = error.violations.expect("violations");
    assert_eq!(violations[0].pointer, "/remoteWorkspacePath");
}

#[tokio::test]
async fn a_lease_is_a_directory_that_is_journalled_listed_looked_at_and_removed() {
    let Some(m) = machine().await else { return };
    let (handle, workspace) = m.acquire("a1").await;
    assert!(fs::metadata(&workspace).expect("is there").is_dir());
    assert_eq!(
        *m.journal.lock().expect("a lock"),
        [(Thing::Environment, "a1".to_owned())]
    );

    // Again is the same, and nothing more.
    assert_eq!(m.acquire("a1").await, (handle.clone(), workspace.clone()));
    let (other, _) = m.acquire("b2").await;

    let seen = m
        .plugin
        .inspect(&m.setup(&look("a1")), &m.config(), &handle)
        .await;
    assert_eq!(seen.expect("an answer").condition, Condition::Ready);

    let query = |labels: Vec<Label>, journalled: &[&str]| Query {
        labels,
        journalled: journalled.iter().map(|id| (*id).to_owned()).collect(),
        cursor: None,
    };
    let mine = Label {
        key: "leasehold-owner".into(),
        value: "owner-a1".into(),
    };
    let listed = async |query: Query| {
        let page = m
            .plugin
            .list(&m.setup(&look("a1")), &m.config(), &query)
            .await;
        let mut items = page.expect("a page").items;
        items.sort_by(|a, b| a.resource.cmp(&b.resource));
        items
    };
    let items = listed(query(vec![mine.clone()], &[])).await;
    assert_eq!(items.len(), 1);
    assert_eq!(
        (&items[0].resource, &items[0].handle),
        (&"a1".to_owned(), &handle)
    );
    assert!(items[0].labels.contains(&mine));
    assert_eq!(listed(query(vec![mine], &["b2", "c3"])).await.len(), 2);

    for _ in 0..2 {
        m.plugin
            .release(&m.setup(&act("a1")), &m.config(), &handle)
            .await
            .expect("released, also again");
    }
    let seen = m
        .plugin
        .inspect(&m.setup(&look("a1")), &m.config(), &handle)
        .await;
    assert_eq!(seen.expect("an answer").condition, Condition::Gone);
    let seen = m
        .plugin
        .inspect(&m.setup(&look("b2")), &m.config(), &other)
        .await;
    assert_eq!(seen.expect("an answer").condition, Condition::Ready);
    assert_eq!(fs::read_dir(&m.parent).expect("lists").count(), 1);
}

#[tokio::test]
async fn a_directory_of_workspaces_that_is_not_there_is_empty_and_is_made_when_it_is_needed() {
    let Some(m) = machine().await else { return };
    let path = m.parent.join("not/yet");
    let config = m.config_at(path.to_str().expect("UTF-8"));

    let page = m
        .plugin
        .list(&m.setup(&look("a1")), &config, &Query::default())
        .await;
    assert!(page.expect("a page").items.is_empty());
    let handle = json!({ "parent": path, "resource": "a1", "workspace": path.join("a1/work") });
    let seen = m
        .plugin
        .inspect(&m.setup(&look("a1")), &config, &handle.to_string())
        .await;
    assert_eq!(seen.expect("an answer").condition, Condition::Gone);
    assert!(!path.exists(), "looking makes nothing");

    let made = m.plugin.acquire(&m.setup(&act("a1")), &config, None).await;
    assert!(
        made.expect("a lease")
            .workspace
            .starts_with(path.to_str().expect("UTF-8"))
    );
}

#[tokio::test]
async fn a_directory_that_the_account_may_not_write_to_is_refused_by_name() {
    let Some(m) = machine().await else { return };
    if !m.sshd.is_isolated() {
        leasehold_parts::skipped("root, for a directory of somebody else's");
        return;
    }
    let theirs = m.sshd.directory("root", "theirs").expect("a directory");
    let config = m.config_at(theirs.to_str().expect("UTF-8"));
    let error = provider_error(m.plugin.acquire(&m.setup(&act("a1")), &config, None).await);
    assert_eq!(error.code, Code::PermissionDenied, "{error}");
    assert!(error.message.contains(&m.name()), "{error}");

    let below = theirs.join("deeper");
    let config = m.config_at(below.to_str().expect("UTF-8"));
    let error = provider_error(m.plugin.acquire(&m.setup(&act("a1")), &config, None).await);
    assert!(
        error.message.contains(below.to_str().expect("UTF-8")),
        "{error}"
    );
}

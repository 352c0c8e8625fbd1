//! Plugins: revisions, grants, the current one, and edits.

use leasehold_authority::*;
use leasehold_contract::Driver;
use serde_json::json;

use crate::place::*;

#[tokio::test]
async fn installing_a_digest_twice_is_one_revision_and_a_newer_one_becomes_current() {
    let p = Place::new().await;
    let first = p.plugin("ssh", b"one").await;
    assert_eq!(p.plugin("ssh", b"one").await, first);
    assert_eq!(first.current.granted_by, "local operator");
    assert_eq!(
        first.current.asks,
        json!(["scripts on the configured target"])
    );
    let second = p.plugin("ssh", b"two").await;
    assert_eq!(second.current.number, 2);
    let numbers: Vec<_> = p
        .plugins()
        .revisions("ssh")
        .await
        .unwrap()
        .into_iter()
        .map(|r| r.number)
        .collect();
    assert_eq!(numbers, [2, 1]);
    assert_eq!(
        p.plugins().component_bytes(&digest(b"one")).await.unwrap(),
        b"one"
    );
    // Going back is an install of the older digest, with a grant of its own.
    assert_eq!(p.plugin("ssh", b"one").await.current.digest, digest(b"one"));
    assert_eq!(p.count("SELECT COUNT(*) FROM grants").await, 3);
    assert_eq!(
        p.plugins().current("ssh").await.unwrap().unwrap().digest,
        digest(b"one")
    );
    assert_eq!(p.plugins().current("none").await.unwrap(), None);
    assert_eq!(p.plugins().list().await.unwrap().len(), 1);
}

#[tokio::test]
async fn a_wrong_digest_is_refused() {
    let p = Place::new().await;
    let mut new = revision("ssh", Driver::Ssh, b"one");
    new.bytes = b"other".to_vec();
    assert_eq!(
        pointers(p.plugins().install(&operator(), new).await),
        ["/digest"]
    );
}

#[tokio::test]
async fn a_plugin_in_use_stays_and_one_that_is_not_can_go_and_come_back() {
    let p = Place::new().await;
    let f = p.furnished().await;
    assert_eq!(
        code_of(p.plugins().uninstall(&operator(), "ssh").await),
        "plugin_in_use"
    );
    assert_eq!(
        code_of(
            p.plugins()
                .install(&operator(), revision("ssh", Driver::Sandbox, b"x"))
                .await
        ),
        "plugin_in_use"
    );
    p.environments()
        .delete(&operator(), &f.environment.id)
        .await
        .unwrap();
    p.plugins().uninstall(&operator(), "ssh").await.unwrap();
    assert!(matches!(
        p.plugins().get("ssh").await,
        Err(Error::NotFound { .. })
    ));
    assert!(
        p.plugins()
            .component_bytes(&f.plugin.current.digest)
            .await
            .is_err()
    );
    assert_eq!(p.count("SELECT COUNT(*) FROM components").await, 0);
    let back = p.plugin("ssh", b"component 1").await;
    assert_eq!(back.current.number, 1);
    assert_eq!(
        p.plugins()
            .component_bytes(&back.current.digest)
            .await
            .unwrap(),
        b"component 1"
    );
}

#[tokio::test]
async fn a_disabled_plugin_makes_no_new_lease_and_still_releases() {
    let p = Place::new().await;
    let f = p.furnished().await;
    let lease = p
        .leases()
        .begin(&operator(), f.intent())
        .await
        .unwrap()
        .lease;
    assert!(
        !p.plugins()
            .set_enabled(&operator(), "ssh", false)
            .await
            .unwrap()
            .enabled
    );
    assert_eq!(
        code_of(p.leases().begin(&operator(), f.intent()).await),
        "plugin_disabled"
    );
    let released = p
        .leases()
        .request_release(&operator(), &lease.id, "requested", Handling::Mine)
        .await
        .unwrap();
    assert_eq!(released.lease.status, Status::Failed, "nothing was sent");
    // A newer revision does not enable it.
    assert!(!p.plugin("ssh", b"component 2").await.enabled);
}

#[tokio::test]
async fn every_edit_of_an_installed_plugin_is_noticed() {
    let edits: [(&str, &'static str); 6] = [
        (
            "current",
            "UPDATE plugins SET current_digest = (SELECT digest FROM plugin_revisions WHERE number = 1)",
        ),
        ("enabled", "UPDATE plugins SET enabled = 0"),
        (
            "manifest",
            "UPDATE plugin_revisions SET manifest = replace(manifest, '\"memory_mib\":16', '\"memory_mib\":99')",
        ),
        (
            "capabilities",
            "UPDATE plugin_revisions SET capabilities = '[\"lifecycle\"]'",
        ),
        ("asks", "UPDATE grants SET asks = '[]'"),
        ("who", "UPDATE grants SET granted_by = 'somebody'"),
    ];
    for (what, sql) in edits {
        let p = Place::new().await;
        p.plugin("ssh", b"one").await;
        p.plugin("ssh", b"two").await;
        assert!(p.edit(sql).await > 0, "{what}");
        assert!(is_corrupt(p.plugins().get("ssh").await), "{what}");
        assert!(is_corrupt(p.plugins().list().await), "{what}");
    }
    let p = Place::new().await;
    p.plugin("ssh", b"one").await;
    p.edit("UPDATE components SET bytes = X'00'").await;
    assert!(is_corrupt(
        p.plugins().component_bytes(&digest(b"one")).await
    ));
}

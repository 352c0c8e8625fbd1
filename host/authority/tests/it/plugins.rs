//! Plugins: revisions, grants, what is current, waits or is one step back, and edits.

use leasehold_authority::*;
use leasehold_contract::{Driver, Grant, Part};
use serde_json::json;

use crate::place::*;

/// A revision of the plugin `ssh` that asks for more: streams.
fn wider(body: &[u8]) -> NewRevision {
    let mut new = revision("ssh", Driver::Ssh, body);
    new.manifest.request.streams = true;
    new
}

fn decision(grant: Grant) -> Decision {
    Decision {
        asks: json!(["what was shown"]),
        request_digest: "r2".into(),
        grant,
    }
}

/// The revisions by number, newest first: what each is now and how many leases it has.
async fn standing(p: &Place) -> Vec<(i64, &'static str, i64)> {
    let plugin = p.plugins().get("ssh").await.unwrap();
    let all = p.plugins().history(&plugin).await.unwrap();
    all.iter()
        .map(|s| (s.revision.number, s.state.as_str(), s.leases))
        .collect()
}

async fn install(p: &Place, new: NewRevision) -> Plugin {
    p.plugins().install(&operator(), new, None).await.unwrap()
}

#[tokio::test]
async fn a_digest_granted_twice_is_one_revision_and_a_newer_one_becomes_current() {
    let p = Place::new().await;
    let first = p.plugin("ssh", b"one").await;
    assert_eq!(p.plugin("ssh", b"one").await, first);
    let grant = now(&first).grant.clone().unwrap();
    assert_eq!(grant.by, "local operator");
    assert_eq!(grant.asks, json!(["scripts on the configured target"]));
    assert_eq!(grant.carried_from, None);
    assert!(grant.grant.ssh && !grant.grant.streams);
    assert_eq!(p.count("SELECT COUNT(*) FROM grants").await, 1);
    let second = p.plugin("ssh", b"two").await;
    assert_eq!(now(&second).number, 2);
    assert_eq!(standing(&p).await, [(2, "current", 0), (1, "previous", 0)]);
    assert_eq!(
        p.plugins().component_bytes(&digest(b"one")).await.unwrap(),
        b"one"
    );
    assert_eq!(p.plugins().current("none").await.unwrap(), None);
    assert_eq!(p.plugins().list().await.unwrap().len(), 1);
}

#[tokio::test]
async fn the_same_component_from_elsewhere_is_said_to_come_from_there_and_the_activity_tells_both()
{
    let p = Place::new().await;
    p.plugin("ssh", b"one").await;
    let from = |tag: &str| {
        let mut new = revision("ssh", Driver::Ssh, b"one");
        new.source.registry = Some(RegistryPlace {
            registry: "r.example".into(),
            repository: "acme/ssh".into(),
            tag: Some(tag.into()),
            manifest: "sha256:00".into(),
        });
        new
    };
    let again = install(&p, from("1.0")).await;
    assert_eq!(now(&again).source, from("1.0").source);
    assert_eq!(now(&again).grant, now(&p.plugin("ssh", b"one").await).grant);
    // That last one was a file; and from the registry twice, which is told once.
    install(&p, from("1.1")).await;
    install(&p, from("1.1")).await;
    let filter = ActivityFilter {
        subject: Some("ssh".into()),
        ..ActivityFilter::default()
    };
    let newest_first = p.activity().list(&filter).await.unwrap();
    let came: Vec<(String, String)> = newest_first
        .iter()
        .filter(|row| row.action == "plugin.came_again")
        .map(|row| (tag(&row.details["before"]), tag(&row.details["source"])))
        .collect();
    let told: Vec<(&str, &str)> = came
        .iter()
        .map(|(before, now)| (before.as_str(), now.as_str()))
        .collect();
    assert_eq!(told, [("", "1.1"), ("1.0", ""), ("", "1.0")]);
    // The row is authentic, and the same after a start.
    let p = p.again().await;
    let kept = p.plugins().get("ssh").await.unwrap();
    assert_eq!(now(&kept).source, from("1.1").source);

    // One that waits is told by its newest source too.
    let mut waits = wider(b"two");
    install(&p, waits.clone()).await;
    waits.source = from("2.0").source;
    let plugin = install(&p, waits.clone()).await;
    assert_eq!(plugin.pending.unwrap().source, waits.source);
}

fn tag(source: &serde_json::Value) -> String {
    source["registry"]["tag"].as_str().unwrap_or("").to_owned()
}

#[tokio::test]
async fn a_wrong_digest_is_refused() {
    let p = Place::new().await;
    let mut new = revision("ssh", Driver::Ssh, b"one");
    new.bytes = b"other".to_vec();
    assert_eq!(
        pointers(p.plugins().install(&operator(), new, None).await),
        ["/digest"]
    );
}

#[tokio::test]
async fn what_nobody_granted_waits_and_no_environment_can_be_made_for_it() {
    let p = Place::new().await;
    let company = p.company("acme").await;
    let secret = p.secret(&company, "key", "value one").await;
    let waiting = install(&p, revision("ssh", Driver::Ssh, b"one")).await;
    assert_eq!(waiting.current, None);
    assert_eq!(waiting.pending.as_ref().unwrap().grant, None);
    assert_eq!(p.plugins().current("ssh").await.unwrap(), None);
    let made = p
        .environments()
        .create(
            &operator(),
            &company,
            draft("box", &secret),
            vec![key_use("h")],
        )
        .await;
    assert_eq!(pointers(made), ["/provider"]);
    // It is as durable as anything: another start finds it waiting.
    let again = p.again().await;
    assert_eq!(again.plugins().get("ssh").await.unwrap(), waiting);
    let granted = again
        .plugins()
        .grant(
            &operator(),
            "ssh",
            &digest(b"one"),
            decision(Grant::asked(&waiting.pending.unwrap().manifest)),
        )
        .await
        .unwrap();
    let grant = now(&granted).grant.clone().unwrap();
    assert_eq!(
        (grant.request_digest.as_str(), grant.grant.ssh),
        ("r2", true)
    );
    assert_eq!(granted.pending, None);
}

#[tokio::test]
async fn a_grant_never_holds_more_than_was_asked_for() {
    let p = Place::new().await;
    let everything = Grant {
        ssh: true,
        streams: true,
        origins: vec!["https://*.example.com:443".into()],
        operations: true,
        credentials: true,
        limits: leasehold_contract::Limits {
            memory_mib: u32::MAX,
            cpu: u32::MAX,
            exchanges: u32::MAX,
            body_mib: u32::MAX,
        },
    };
    let new = revision("ssh", Driver::Ssh, b"one");
    let asked = Grant::asked(&new.manifest);
    let plugin = p
        .plugins()
        .install(&operator(), new, Some(everything.clone()))
        .await
        .unwrap();
    assert_eq!(now(&plugin).grant.as_ref().unwrap().grant, asked);
    let plugin = p
        .plugins()
        .grant(
            &operator(),
            "ssh",
            &digest(b"one"),
            decision(everything.without(&[Part::Ssh])),
        )
        .await
        .unwrap();
    assert_eq!(
        now(&plugin).grant.as_ref().unwrap().grant,
        asked.without(&[Part::Ssh])
    );
}

#[tokio::test]
async fn a_request_that_is_not_wider_takes_the_earlier_grant_over_with_what_was_left_out_of_it() {
    let p = Place::new().await;
    let f = p.furnished().await;
    let first = now(&f.plugin).clone();
    let asked = Grant::asked(&first.manifest);
    p.plugins()
        .grant(
            &operator(),
            "ssh",
            &first.digest,
            decision(asked.clone().without(&[Part::Ssh])),
        )
        .await
        .unwrap();
    let target_revision = p
        .environments()
        .get(&f.environment.id)
        .await
        .unwrap()
        .target_revision;
    let mut new = revision("ssh", Driver::Ssh, b"component 2");
    new.manifest.request.limits.memory_mib = 8;
    let upgraded = install(&p, new).await;
    let grant = now(&upgraded).grant.clone().unwrap();
    assert_eq!(now(&upgraded).number, 2);
    assert!(!grant.grant.ssh, "what was left out stays out");
    assert_eq!(grant.grant.limits.memory_mib, 8);
    assert!(grant.carried_from.unwrap().starts_with("grt_"));
    assert_eq!(
        p.environments()
            .get(&f.environment.id)
            .await
            .unwrap()
            .target_revision,
        target_revision + 1
    );
}

#[tokio::test]
async fn a_wider_request_waits_while_the_old_revision_serves_until_it_is_granted_or_denied() {
    let p = Place::new().await;
    let f = p.furnished().await;
    let upgraded = install(&p, wider(b"component 2")).await;
    assert_eq!(now(&upgraded).number, 1);
    assert_eq!(standing(&p).await, [(2, "pending", 0), (1, "current", 0)]);
    let lease = p.leases().begin(&operator(), f.intent()).await.unwrap();
    assert_eq!(lease.lease.plugin_digest, now(&f.plugin).digest);
    // Denied, nothing of it is left but the record.
    let denied = p.plugins().deny(&operator(), "ssh").await.unwrap().unwrap();
    assert_eq!(denied.pending, None);
    p.plugins().collect().await.unwrap();
    assert_eq!(standing(&p).await, [(2, "collected", 0), (1, "current", 1)]);
    assert!(
        p.plugins()
            .component_bytes(&digest(b"component 2"))
            .await
            .is_err()
    );
    assert!(matches!(
        p.plugins().deny(&operator(), "ssh").await,
        Err(Error::NotFound { .. })
    ));
    // Once more, and granted: the lease keeps its revision, a new one takes the new.
    let again = install(&p, wider(b"component 2")).await;
    let pending = again.pending.unwrap();
    assert_eq!(pending.number, 2);
    let granted = p
        .plugins()
        .grant(
            &operator(),
            "ssh",
            &pending.digest,
            decision(Grant::asked(&pending.manifest)),
        )
        .await
        .unwrap();
    assert_eq!(now(&granted).number, 2);
    assert_eq!(standing(&p).await, [(2, "current", 0), (1, "previous", 1)]);
}

#[tokio::test]
async fn a_later_install_takes_the_place_of_the_one_that_waited() {
    let p = Place::new().await;
    p.plugin("ssh", b"one").await;
    install(&p, wider(b"two")).await;
    install(&p, wider(b"three")).await;
    p.plugins().collect().await.unwrap();
    assert_eq!(
        standing(&p).await,
        [(3, "pending", 0), (2, "collected", 0), (1, "current", 0)]
    );
    let late = p
        .plugins()
        .grant(
            &operator(),
            "ssh",
            &digest(b"two"),
            decision(Grant::asked(&wider(b"two").manifest)),
        )
        .await;
    assert!(matches!(late, Err(Error::NotFound { .. })), "{late:?}");
}

#[tokio::test]
async fn going_back_is_one_step_under_the_grant_that_was_there_and_can_be_undone() {
    let p = Place::new().await;
    assert!(p.plugins().rollback(&operator(), "ssh").await.is_err());
    p.plugin("ssh", b"one").await;
    assert!(matches!(
        p.plugins().rollback(&operator(), "ssh").await,
        Err(Error::NotFound { .. })
    ));
    p.plugin("ssh", b"two").await;
    let waiting = install(&p, wider(b"three")).await;
    let back = p.plugins().rollback(&operator(), "ssh").await.unwrap();
    assert_eq!(now(&back).number, 1);
    assert!(now(&back).grant.is_some());
    assert_eq!(back.pending, waiting.pending, "what waits goes on waiting");
    assert_eq!(
        standing(&p).await,
        [(3, "pending", 0), (2, "previous", 0), (1, "current", 0)]
    );
    let forth = p.plugins().rollback(&operator(), "ssh").await.unwrap();
    assert_eq!(now(&forth).number, 2);
    assert_eq!(p.count("SELECT COUNT(*) FROM grants").await, 2);
}

#[tokio::test]
async fn a_revision_is_kept_while_a_lease_needs_it_and_collected_after() {
    let p = Place::new().await;
    let f = p.furnished().await;
    let lease = p
        .leases()
        .begin(&operator(), f.intent())
        .await
        .unwrap()
        .lease;
    p.plugin("ssh", b"component 2").await;
    p.plugin("ssh", b"component 3").await;
    assert_eq!(p.plugins().collect().await.unwrap(), Vec::<String>::new());
    assert_eq!(
        standing(&p).await,
        [(3, "current", 0), (2, "previous", 0), (1, "retiring", 1)]
    );
    p.leases()
        .request_release(&operator(), &lease.id, "requested", Handling::Mine)
        .await
        .unwrap();
    assert_eq!(
        p.plugins().collect().await.unwrap(),
        [now(&f.plugin).digest.clone()]
    );
    assert_eq!(
        standing(&p).await,
        [(3, "current", 0), (2, "previous", 0), (1, "collected", 0)]
    );
    assert_eq!(p.count("SELECT COUNT(*) FROM components").await, 2);
    assert_eq!(p.plugins().collect().await.unwrap(), Vec::<String>::new());
}

#[tokio::test]
async fn nothing_is_taken_from_a_revision_that_leases_need() {
    let p = Place::new().await;
    let f = p.furnished().await;
    let current = now(&f.plugin).clone();
    let asked = Grant::asked(&current.manifest);
    let narrower = decision(asked.clone().without(&[Part::Ssh]));
    let lease = p
        .leases()
        .begin(&operator(), f.intent())
        .await
        .unwrap()
        .lease;
    assert_eq!(
        code_of(
            p.plugins()
                .grant(&operator(), "ssh", &current.digest, narrower.clone())
                .await
        ),
        "plugin_in_use"
    );
    assert_eq!(
        code_of(
            p.plugins()
                .install(
                    &operator(),
                    revision("ssh", Driver::Ssh, b"component 1"),
                    Some(narrower.grant.clone())
                )
                .await
        ),
        "plugin_in_use"
    );
    // Nor from one that is one step back.
    p.plugin("ssh", b"component 2").await;
    assert_eq!(
        code_of(
            p.plugins()
                .install(
                    &operator(),
                    revision("ssh", Driver::Ssh, b"component 1"),
                    Some(narrower.grant.clone())
                )
                .await
        ),
        "plugin_in_use"
    );
    p.plugins().rollback(&operator(), "ssh").await.unwrap();
    p.leases()
        .request_release(&operator(), &lease.id, "requested", Handling::Mine)
        .await
        .unwrap();
    let taken = p
        .plugins()
        .grant(&operator(), "ssh", &current.digest, narrower)
        .await
        .unwrap();
    assert!(!now(&taken).grant.as_ref().unwrap().grant.ssh);
}

#[tokio::test]
async fn a_plugin_in_use_stays_and_one_that_is_not_can_go_and_come_back_without_its_grant() {
    let p = Place::new().await;
    let f = p.furnished().await;
    assert_eq!(
        code_of(p.plugins().uninstall(&operator(), "ssh").await),
        "plugin_in_use"
    );
    let sandbox = revision("ssh", Driver::Sandbox, b"x");
    assert_eq!(
        code_of(p.plugins().install(&operator(), sandbox, None).await),
        "plugin_in_use"
    );
    assert_eq!(
        p.count("SELECT COUNT(*) FROM components").await,
        1,
        "what failed left nothing"
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
    let digest = &now(&f.plugin).digest;
    assert!(p.plugins().component_bytes(digest).await.is_err());
    assert_eq!(p.count("SELECT COUNT(*) FROM components").await, 0);
    let back = install(&p, revision("ssh", Driver::Ssh, b"component 1")).await;
    let pending = back.pending.unwrap();
    assert_eq!((pending.number, pending.grant), (1, None));
    assert_eq!(
        p.plugins().component_bytes(digest).await.unwrap(),
        b"component 1"
    );
    // Never granted and turned down: the plugin is gone.
    assert_eq!(p.plugins().deny(&operator(), "ssh").await.unwrap(), None);
    assert!(p.plugins().list().await.unwrap().is_empty());
}

#[tokio::test]
async fn a_revision_that_waits_says_where_it_came_from_last_and_one_that_comes_back_says_it_anew() {
    let p = Place::new().await;
    let from = |tag: &str| {
        let mut new = revision("ssh", Driver::Ssh, b"one");
        new.source = Source {
            registry: Some(RegistryPlace {
                registry: "r.example".into(),
                repository: "acme/ssh".into(),
                tag: Some(tag.into()),
                manifest: format!("sha256:{}", "a".repeat(64)),
            }),
            signed: None,
        };
        new
    };
    let source = async |new: NewRevision| install(&p, new).await.pending.unwrap().source;
    for tag in ["1.0", "2.0"] {
        assert_eq!(source(from(tag)).await, from(tag).source);
    }
    p.plugins().uninstall(&operator(), "ssh").await.unwrap();
    assert_eq!(source(from("3.0")).await, from("3.0").source);
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
    let edits: [(&str, &'static str); 13] = [
        (
            "current",
            "UPDATE plugins SET current_digest = (SELECT digest FROM plugin_revisions WHERE number = 1)",
        ),
        ("previous", "UPDATE plugins SET previous_digest = NULL"),
        ("pending", "UPDATE plugins SET pending_digest = NULL"),
        ("enabled", "UPDATE plugins SET enabled = 0"),
        (
            "manifest",
            "UPDATE plugin_revisions SET manifest = replace(manifest, '\"memory_mib\":16', '\"memory_mib\":99')",
        ),
        (
            "capabilities",
            "UPDATE plugin_revisions SET capabilities = '[\"lifecycle\"]'",
        ),
        (
            "source",
            "UPDATE plugin_revisions SET source = '{\"registry\":null,\"signed\":{\"key\":\"k\",\"digest\":\"d\"}}'",
        ),
        ("no source", "UPDATE plugin_revisions SET source = NULL"),
        ("asks", "UPDATE grants SET asks = '[]'"),
        ("who", "UPDATE grants SET granted_by = 'somebody'"),
        (
            "what",
            "UPDATE grants SET granted = replace(granted, '\"streams\":false', '\"streams\":true')",
        ),
        (
            "another grant",
            "UPDATE plugin_revisions SET grant_id = (SELECT id FROM grants WHERE digest = plugin_revisions.digest
                 AND id <> grant_id) WHERE number = 2",
        ),
        (
            "no grant",
            "DELETE FROM grants WHERE id = (SELECT grant_id FROM plugin_revisions WHERE number = 2)",
        ),
    ];
    for (what, sql) in edits {
        let p = Place::new().await;
        p.plugin("ssh", b"one").await;
        let two = p.plugin("ssh", b"two").await;
        let less = Grant::asked(&now(&two).manifest).without(&[Part::Ssh]);
        p.plugins()
            .grant(&operator(), "ssh", &digest(b"two"), decision(less))
            .await
            .unwrap();
        install(&p, wider(b"three")).await;
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

#[tokio::test(flavor = "multi_thread")]
async fn who_reads_while_a_plugin_comes_and_goes_sees_it_whole_or_not_at_all() {
    let p = Place::new().await;
    let (plugins, over) = (
        p.plugins().clone(),
        std::sync::atomic::AtomicBool::new(false),
    );
    let over = std::sync::Arc::new(over);
    let readers: Vec<_> = (0..4)
        .map(|_| {
            let (plugins, over) = (plugins.clone(), over.clone());
            tokio::spawn(async move {
                let mut seen = 0;
                while !over.load(std::sync::atomic::Ordering::SeqCst) {
                    match plugins.get("ssh").await {
                        Ok(_) => seen += 1,
                        Err(Error::NotFound { .. }) => {}
                        Err(other) => panic!("{other}"),
                    }
                    plugins.list().await.unwrap();
                }
                seen
            })
        })
        .collect();
    for round in 0..100_u32 {
        p.plugin("ssh", &round.to_le_bytes()).await;
        install(&p, wider(&(round + 1000).to_le_bytes())).await;
        plugins.uninstall(&operator(), "ssh").await.unwrap();
    }
    over.store(true, std::sync::atomic::Ordering::SeqCst);
    let mut seen = 0;
    for reader in readers {
        seen += reader.await.unwrap();
    }
    assert!(seen > 0, "somebody saw it");
}

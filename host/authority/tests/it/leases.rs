//! Leases: the intent, the stored steps, fences, journal and claims.

use std::collections::BTreeSet;
use std::time::Duration;

use leasehold_authority::*;
use leasehold_contract::Thing;

use crate::place::*;

pub fn activation(resource: &str) -> Event {
    Event::Activated(Activation {
        resource: resource.into(),
        handle: r#"{"w":"/srv/leases/x"}"#.into(),
        workspace: "/srv/leases/x/w".into(),
        attested_ttl: None,
        proof: Proof::Owned,
    })
}

pub async fn active(p: &Place, intent: AcquireIntent) -> Lease {
    let lease = p.leases().begin(&operator(), intent).await.unwrap().lease;
    p.leases().unsafe_sent(&lease.id, 1).await.unwrap();
    let resource = lease.acquisition.clone();
    p.leases()
        .apply(&operator(), &lease.id, 1, activation(&resource))
        .await
        .unwrap()
        .lease
}

fn is_stale<T: std::fmt::Debug>(result: Result<T, Error>) -> bool {
    matches!(result, Err(Error::Stale { .. }))
}

#[tokio::test]
async fn an_intent_is_durable_with_all_that_release_will_need() {
    let p = Place::new().await;
    let f = p.furnished().await;
    let begun = p.leases().begin(&operator(), f.intent()).await.unwrap();
    assert!(begun.fresh);
    let p = p.again().await;
    let lease = p.leases().get(&begun.lease.id).await.unwrap();
    assert_eq!((lease.status, lease.epoch), (Status::Acquiring, 1));
    assert_eq!(lease.config, f.environment.config);
    assert_eq!(lease.env_vars, f.environment.env_vars);
    assert_eq!(lease.plugin_digest, now(&f.plugin).digest);
    assert_eq!(lease.secret_versions["/target/privateKey"].version, 1);
    let rest = lease.acquisition.strip_prefix("acq-").unwrap();
    assert_eq!(rest.len(), 26);
    let keys: Vec<_> = lease.labels.iter().map(|l| l.key.as_str()).collect();
    assert_eq!(
        keys,
        [
            LABEL_HOST,
            LABEL_LEASE,
            LABEL_ACQUISITION,
            LABEL_OWNER,
            LABEL_REQUEST
        ]
    );
    for label in &lease.labels {
        assert!((1..=63).contains(&label.value.len()), "{label:?}");
        let good = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
        assert!(label.value.chars().all(good), "{label:?}");
    }
    assert_eq!(lease.labels, begun.lease.labels, "the same after a restart");
    let found = p.leases().owner_of(&lease.labels).await.unwrap().unwrap();
    assert_eq!(found.id, lease.id);
    // The same owner label at another lease's name is nobody's.
    let other = p
        .leases()
        .begin(&operator(), f.intent())
        .await
        .unwrap()
        .lease;
    assert_eq!(
        other.labels[4], lease.labels[4],
        "the same request has the same fingerprint"
    );
    let mut forged = lease.labels.clone();
    forged[1].value = other.id;
    assert_eq!(p.leases().owner_of(&forged).await.unwrap(), None);
}

#[tokio::test]
async fn an_idempotency_key_is_one_lease_and_no_other_request() {
    let p = Place::new().await;
    let f = p.furnished().await;
    let intent = || AcquireIntent {
        idempotency_key: Some("k".into()),
        ttl: Some(Duration::from_secs(60)),
        ..f.intent()
    };
    let first = p.leases().begin(&operator(), intent()).await.unwrap();
    // Also when the environment changed meanwhile: the answer was lost, not the lease.
    p.environments()
        .archive(&operator(), &f.environment.id)
        .await
        .unwrap();
    let again = p.leases().begin(&operator(), intent()).await.unwrap();
    assert_eq!((again.fresh, again.lease.id), (false, first.lease.id));
    let other = AcquireIntent {
        ttl: Some(Duration::from_secs(61)),
        ..intent()
    };
    assert_eq!(
        code_of(p.leases().begin(&operator(), other).await),
        "idempotency_mismatch"
    );
    assert_eq!(
        code_of(p.leases().begin(&operator(), f.intent()).await),
        "environment_inactive"
    );
}

#[tokio::test]
async fn an_account_is_shared_or_one_leases_own_but_never_both() {
    let p = Place::new().await;
    let f = p.furnished().await;
    let account = || Some("ssh:ci@10.0.0.5:22".to_owned());
    let shared = || AcquireIntent {
        account_key: account(),
        ..f.intent()
    };
    let alone = || AcquireIntent {
        exclusive_key: account(),
        account_key: account(),
        ..f.intent()
    };
    let end = async |id: &str| {
        let ended = p
            .leases()
            .request_release(&operator(), id, "requested", Handling::Mine)
            .await
            .unwrap();
        assert!(ended.lease.status.is_terminal());
    };
    let first = p.leases().begin(&operator(), shared()).await.unwrap().lease;
    let second = p.leases().begin(&operator(), shared()).await.unwrap().lease;
    assert_eq!(
        code_of(p.leases().begin(&operator(), alone()).await),
        "target_in_use"
    );
    end(&first.id).await;
    end(&second.id).await;
    let own = p.leases().begin(&operator(), alone()).await.unwrap().lease;
    assert_eq!(
        code_of(p.leases().begin(&operator(), shared()).await),
        "target_in_use"
    );
    end(&own.id).await;
    p.leases().begin(&operator(), shared()).await.unwrap();
}

#[tokio::test]
async fn of_twenty_that_want_one_target_one_gets_it_until_it_has_ended() {
    let p = Place::new().await;
    let f = p.furnished().await;
    let intent = || AcquireIntent {
        exclusive_key: Some("ssh://ci@10.0.0.5:22".into()),
        account_key: Some("ssh://ci@10.0.0.5:22".into()),
        ..f.intent()
    };
    let tries = (0..20).map(|_| {
        let (leases, intent) = (p.leases(), intent());
        tokio::spawn(async move { leases.begin(&operator(), intent).await })
    });
    let mut won = Vec::new();
    for one in tries.collect::<Vec<_>>() {
        match one.await.unwrap() {
            Ok(begun) => won.push(begun.lease),
            Err(Error::Conflict { code, details, .. }) => {
                assert_eq!(code, "target_in_use");
                assert!(details["leaseId"].as_str().unwrap().starts_with("lease_"));
            }
            Err(e) => panic!("{e}"),
        }
    }
    assert_eq!(won.len(), 1);
    let id = won[0].id.clone();
    p.leases().unsafe_sent(&id, 1).await.unwrap();
    let t = p
        .leases()
        .request_release(&operator(), &id, "requested", Handling::Mine)
        .await
        .unwrap();
    let down = Event::ReleaseUnconfirmed {
        reason: "down".into(),
        jitter: Jitter(0),
    };
    let t = p
        .leases()
        .apply(&operator(), &id, t.lease.epoch, down)
        .await
        .unwrap();
    // Waiting for cleanup, something may still be there.
    assert_eq!(
        code_of(p.leases().begin(&operator(), intent()).await),
        "target_in_use"
    );
    p.leases()
        .apply(&operator(), &id, t.lease.epoch, Event::ReleaseConfirmed)
        .await
        .unwrap();
    assert!(p.leases().begin(&operator(), intent()).await.unwrap().fresh);
}

#[tokio::test]
async fn a_whole_life_is_recorded_step_by_step() {
    let p = Place::new().await;
    let f = p.furnished().await;
    let lease = active(
        &p,
        AcquireIntent {
            ttl: Some(Duration::from_secs(600)),
            ..f.intent()
        },
    )
    .await;
    assert_eq!(lease.status, Status::Active);
    assert_eq!(lease.proof, Some(Proof::Owned));
    let acquired = lease.acquired_at.unwrap();
    assert_eq!(lease.expires_at, Some(acquired + 600_000));
    let t = p
        .leases()
        .request_release(&operator(), &lease.id, "requested", Handling::Mine)
        .await
        .unwrap();
    assert_eq!(
        (t.before, t.lease.status, t.lease.epoch),
        (Status::Active, Status::Releasing, 2)
    );
    assert!(t.effects.contains(&Effect::CloseStreams));
    assert_eq!(t.lease.claimed_by.as_deref(), Some("main"));
    // A second one is at it already.
    let again = p
        .leases()
        .request_release(&operator(), &lease.id, "requested", Handling::Mine)
        .await
        .unwrap();
    assert!(again.effects.is_empty());
    assert_eq!(again.lease, t.lease, "its claim is not taken from under it");
    assert_eq!(again.lease.epoch, 2);
    let done = p
        .leases()
        .apply(&operator(), &lease.id, 2, Event::ReleaseConfirmed)
        .await
        .unwrap();
    assert_eq!(done.lease.status, Status::Released);
    assert!(done.lease.released_at.is_some());
    let again = p
        .leases()
        .request_release(&operator(), &lease.id, "requested", Handling::Mine)
        .await
        .unwrap();
    assert_eq!(again.lease, done.lease, "nothing follows an end");
    let rows = p
        .activity()
        .list(&ActivityFilter {
            subject: Some(lease.id),
            after: Some(0),
            ..Default::default()
        })
        .await
        .unwrap();
    let actions: Vec<_> = rows.iter().map(|r| r.action.as_str()).collect();
    assert_eq!(
        actions,
        [
            "lease.begun",
            "lease.active",
            "lease.releasing",
            "lease.released"
        ]
    );
    p.activity().verify(None).await.unwrap();
}

#[tokio::test]
async fn the_backends_own_time_bounds_the_lease_with_a_margin() {
    let p = Place::new().await;
    let f = p.furnished().await;
    for (asked, attested, expected) in [
        (Some(600), Some(100), Some(90)),
        (Some(60), Some(3600), Some(60)),
        (None, Some(3600), Some(3570)),
        (None, None, None),
    ] {
        let lease = p
            .leases()
            .begin(
                &operator(),
                AcquireIntent {
                    ttl: asked.map(Duration::from_secs),
                    ..f.intent()
                },
            )
            .await
            .unwrap()
            .lease;
        let Event::Activated(with) = activation("r") else {
            unreachable!()
        };
        let event = Event::Activated(Activation {
            attested_ttl: attested.map(Duration::from_secs),
            ..with
        });
        let lease = p
            .leases()
            .apply(&operator(), &lease.id, 1, event)
            .await
            .unwrap()
            .lease;
        let until = lease.expires_at.map(|t| t - lease.acquired_at.unwrap());
        assert_eq!(until, expected.map(|s: i64| s * 1000));
    }
}

#[tokio::test]
async fn whoever_was_superseded_can_do_nothing_more() {
    let p = Place::new().await;
    let f = p.furnished().await;
    let lease = p
        .leases()
        .begin(&operator(), f.intent())
        .await
        .unwrap()
        .lease;
    let id = &lease.id;
    // A person releases it while the acquire is under way and nothing was sent yet.
    let t = p
        .leases()
        .request_release(&operator(), id, "requested", Handling::Mine)
        .await
        .unwrap();
    assert_eq!(t.lease.status, Status::Failed);
    let now = t.lease.epoch;
    assert!(
        is_stale(p.leases().unsafe_sent(id, now).await),
        "it has ended"
    );
    assert!(is_stale(
        p.leases()
            .journal(id, now, Thing::Environment, "r", None)
            .await
    ));
    assert!(is_stale(p.leases().unsafe_sent(id, 1).await));
    assert!(is_stale(
        p.leases()
            .journal(id, 1, Thing::Environment, "r", None)
            .await
    ));
    assert!(is_stale(
        p.leases().apply(&operator(), id, 1, activation("r")).await
    ));
    assert!(is_stale(p.leases().heartbeat(id, 1).await));
    let claim = ResourceClaim {
        endpoint: "e".into(),
        account: "a".into(),
        resource: "r".into(),
    };
    assert!(is_stale(
        p.leases().claim_resource(&operator(), id, 1, claim).await
    ));
    assert!(p.leases().journalled(id).await.unwrap().is_empty());
}

#[tokio::test]
async fn a_step_that_the_state_forbids_changes_nothing() {
    let p = Place::new().await;
    let f = p.furnished().await;
    let lease = active(&p, f.intent()).await;
    let events = [
        Event::ReleaseConfirmed,
        activation("another"),
        Event::AcquireFailed { reason: "x".into() },
        Event::Abandon { reason: "x".into() },
    ];
    let rows = p.count("SELECT COUNT(*) FROM activity").await;
    for event in events {
        let result = p.leases().apply(&operator(), &lease.id, 1, event).await;
        assert_eq!(code_of(result), "lease_state");
    }
    assert_eq!(p.leases().get(&lease.id).await.unwrap(), lease);
    assert_eq!(p.count("SELECT COUNT(*) FROM activity").await, rows);
}

#[tokio::test]
async fn what_a_provider_answers_is_bounded() {
    let p = Place::new().await;
    let f = p.furnished().await;
    let lease = p
        .leases()
        .begin(&operator(), f.intent())
        .await
        .unwrap()
        .lease;
    let with = |resource: &str, handle: &str| {
        Event::Activated(Activation {
            resource: resource.into(),
            handle: handle.into(),
            workspace: "/w".into(),
            attested_ttl: None,
            proof: Proof::Claimed,
        })
    };
    let big = format!("\"{}\"", "x".repeat(1024 * 1024));
    for (event, at) in [
        (with("", "{}"), "/resource"),
        (with("a b", "{}"), "/resource"),
        (with("a", "no json"), "/handle"),
        (with("a", &big), "/handle"),
    ] {
        assert_eq!(
            pointers(p.leases().apply(&operator(), &lease.id, 1, event).await),
            [at]
        );
    }
    let reason = format!("a\u{1b}[31m{}", "x".repeat(5000));
    let failed = Event::AcquireFailed { reason };
    let t = p
        .leases()
        .apply(&operator(), &lease.id, 1, failed)
        .await
        .unwrap();
    let kept = t.lease.failure.unwrap();
    assert!(kept.chars().count() <= 1000 && !kept.contains('\u{1b}'));
}

#[tokio::test]
async fn a_resource_belongs_to_one_lease_and_a_second_claim_is_recorded() {
    let p = Place::new().await;
    let f = p.furnished().await;
    let (one, two) = (active(&p, f.intent()).await, active(&p, f.intent()).await);
    let claim = || ResourceClaim {
        endpoint: "ssh://10.0.0.5:22".into(),
        account: "ci".into(),
        resource: "acq-x".into(),
    };
    for _ in 0..2 {
        p.leases()
            .claim_resource(&operator(), &one.id, 1, claim())
            .await
            .unwrap();
    }
    let refused = p
        .leases()
        .claim_resource(&operator(), &two.id, 1, claim())
        .await;
    let told = refused.as_ref().unwrap_err().to_string();
    assert_eq!(code_of(refused), "resource_claimed");
    assert!(!told.contains(&*one.id), "{told}");
    let last = &p.activity().list(&ActivityFilter::default()).await.unwrap()[0];
    assert_eq!(
        (last.action.as_str(), &last.subject),
        ("lease.claim_refused", &two.id)
    );
    assert_eq!(last.details["holder"], one.id.as_str());
    let t = p
        .leases()
        .request_release(&operator(), &one.id, "requested", Handling::Mine)
        .await
        .unwrap();
    p.leases()
        .apply(&operator(), &one.id, t.lease.epoch, Event::ReleaseConfirmed)
        .await
        .unwrap();
    p.leases()
        .claim_resource(&operator(), &two.id, 1, claim())
        .await
        .unwrap();
}

#[tokio::test]
async fn the_journal_keeps_what_may_exist_in_order() {
    let p = Place::new().await;
    let f = p.furnished().await;
    let lease = p
        .leases()
        .begin(&operator(), f.intent())
        .await
        .unwrap()
        .lease;
    for (resource, reference) in [("a", None), ("b", Some(r#"{"x":1}"#))] {
        p.leases()
            .journal(&lease.id, 1, Thing::Environment, resource, reference)
            .await
            .unwrap();
    }
    let p = p.again().await;
    let entries = p.leases().journalled(&lease.id).await.unwrap();
    let seen: Vec<_> = entries
        .iter()
        .map(|e| (e.sequence, e.resource.as_str()))
        .collect();
    assert_eq!(seen, [(1, "a"), (2, "b")]);
    assert_eq!(entries[1].reference.as_deref(), Some(r#"{"x":1}"#));
    let bad = p
        .leases()
        .journal(&lease.id, 1, Thing::Other, "a/b", None)
        .await;
    assert_eq!(pointers(bad), ["/resource"]);
    let bad = p
        .leases()
        .journal(&lease.id, 1, Thing::Other, "a", Some("no json"))
        .await;
    assert_eq!(pointers(bad), ["/reference"]);
}

#[tokio::test]
async fn only_a_person_abandons_and_only_with_a_reason() {
    let p = Place::new().await;
    let f = p.furnished().await;
    let lease = active(&p, f.intent()).await;
    assert_eq!(
        code_of(p.leases().abandon(&operator(), &lease.id, "gone").await),
        "lease_state",
        "it has to be released first"
    );
    p.leases()
        .request_release(&operator(), &lease.id, "requested", Handling::Queued)
        .await
        .unwrap();
    let system = Actor::system("reconciler");
    assert!(matches!(
        p.leases().abandon(&system, &lease.id, "x").await,
        Err(Error::Forbidden { .. })
    ));
    assert!(matches!(
        p.leases().abandon(&agent(&f.company), &lease.id, "x").await,
        Err(Error::Forbidden { .. })
    ));
    assert_eq!(
        pointers(p.leases().abandon(&operator(), &lease.id, " ").await),
        ["/reason"]
    );
    let t = p
        .leases()
        .abandon(&operator(), &lease.id, "the machine is scrap")
        .await
        .unwrap();
    assert_eq!(t.lease.status, Status::Abandoned);
    assert_eq!(t.lease.reason.as_deref(), Some("the machine is scrap"));
}

#[tokio::test]
async fn every_edit_of_what_a_lease_was_acquired_with_is_noticed() {
    let edits: [&'static str; 4] = [
        "UPDATE leases SET config = replace(config, '10.0.0.5', '10.6.6.6')",
        "UPDATE leases SET plugin_digest = 'x'",
        "UPDATE leases SET acquisition = 'acq-x'",
        "UPDATE leases SET company_id = (SELECT id FROM companies WHERE name = 'other')",
    ];
    for sql in edits {
        let p = Place::new().await;
        let f = p.furnished().await;
        p.company("other").await;
        let lease = active(&p, f.intent()).await;
        assert_eq!(p.edit(sql).await, 1);
        assert!(is_corrupt(p.leases().get(&lease.id).await), "{sql}");
    }
}

#[tokio::test]
async fn lists_page_newest_first_and_filter() {
    let p = Place::new().await;
    let f = p.furnished().await;
    let mut ids = Vec::new();
    for _ in 0..7 {
        ids.push(
            p.leases()
                .begin(&operator(), f.intent())
                .await
                .unwrap()
                .lease
                .id,
        );
    }
    p.leases()
        .request_release(&operator(), &ids[0], "requested", Handling::Mine)
        .await
        .unwrap();
    let mut seen = Vec::new();
    let mut filter = LeaseFilter {
        environment: Some(f.environment.id.clone()),
        limit: 3,
        ..Default::default()
    };
    loop {
        let page = p.leases().list(&filter).await.unwrap();
        assert!(page.items.len() <= 3);
        seen.extend(page.items.into_iter().map(|l| l.id));
        match page.next {
            Some(next) => filter.cursor = Some(next),
            None => break,
        }
    }
    seen.sort();
    ids.sort();
    assert_eq!(seen, ids);
    let failed = LeaseFilter {
        statuses: vec![Status::Failed],
        ..Default::default()
    };
    assert_eq!(p.leases().list(&failed).await.unwrap().items.len(), 1);
    let none = LeaseFilter {
        companies: vec!["com_none".into()],
        ..Default::default()
    };
    assert!(p.leases().list(&none).await.unwrap().items.is_empty());
    let bad = LeaseFilter {
        cursor: Some("x".into()),
        ..Default::default()
    };
    assert_eq!(pointers(p.leases().list(&bad).await), ["?cursor"]);
    let counts = p.leases().counts().await.unwrap();
    assert_eq!(
        (counts[&Status::Acquiring], counts[&Status::Failed]),
        (6, 1)
    );
    assert_eq!(counts.len(), 8);
}

#[tokio::test]
async fn leases_of_one_moment_are_each_on_one_page() {
    let p = Place::new().await;
    let f = p.furnished().await;
    let mut begun = tokio::task::JoinSet::new();
    for _ in 0..20 {
        let (leases, intent) = (p.leases(), f.intent());
        begun.spawn(async move { leases.begin(&operator(), intent).await.unwrap().lease });
    }
    let made = begun.join_all().await;
    let moments: BTreeSet<i64> = made.iter().map(|lease| lease.created_at).collect();
    assert!(moments.len() < made.len(), "some share a moment");
    let (mut seen, mut cursor) = (Vec::new(), None);
    loop {
        let filter = LeaseFilter {
            limit: 1,
            cursor,
            ..Default::default()
        };
        let page = p.leases().list(&filter).await.unwrap();
        seen.extend(page.items.into_iter().map(|lease| lease.id));
        cursor = page.next;
        if cursor.is_none() {
            break;
        }
    }
    seen.sort();
    let mut ids: Vec<String> = made.into_iter().map(|lease| lease.id).collect();
    ids.sort();
    assert_eq!(seen, ids);
}

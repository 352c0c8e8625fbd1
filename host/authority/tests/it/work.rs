//! Time and work: renewal, expiry, claims after a crash, retries.

use std::time::Duration;

use leasehold_authority::*;

use crate::leases::active;
use crate::place::*;

const HOUR: Duration = Duration::from_secs(3600);

fn hour(f: &Furniture) -> AcquireIntent {
    AcquireIntent {
        ttl: Some(HOUR),
        ..f.intent()
    }
}

fn ended(expiry: Expiry) -> Vec<Transition> {
    match expiry {
        Expiry::Done(list) => list,
        Expiry::Halted(drift) => panic!("halted by {drift} ms"),
    }
}

#[tokio::test]
async fn renewal_is_compare_and_set_on_the_expiry() {
    let p = Place::new().await;
    let f = p.furnished().await;
    let lease = active(&p, hour(&f)).await;
    let renewed = p
        .leases()
        .renew(&operator(), &lease.id, lease.expires_at, 2 * HOUR)
        .await
        .unwrap();
    assert!(renewed.expires_at.unwrap() >= lease.expires_at.unwrap() + 3_600_000);
    assert!(matches!(
        p.leases()
            .renew(&operator(), &lease.id, lease.expires_at, HOUR)
            .await,
        Err(Error::Stale { what: "expiry", .. })
    ));
    let zero = p
        .leases()
        .renew(&operator(), &lease.id, renewed.expires_at, Duration::ZERO)
        .await;
    assert_eq!(pointers(zero), ["/ttlSeconds"]);
}

#[tokio::test]
async fn renewal_goes_no_further_than_the_backend_attested() {
    let p = Place::new().await;
    let f = p.furnished().await;
    let lease = active(&p, f.intent()).await;
    assert_eq!(lease.expires_at, None);
    let kept = p
        .leases()
        .kept_alive(&operator(), &lease.id, 1, Some(Duration::from_secs(1000)))
        .await
        .unwrap();
    let bound = kept.expires_at.unwrap();
    let renewed = p
        .leases()
        .renew(&operator(), &lease.id, Some(bound), HOUR)
        .await
        .unwrap();
    assert_eq!(renewed.expires_at, Some(bound), "970 s, not an hour");
    let kept = p
        .leases()
        .kept_alive(&operator(), &lease.id, 1, Some(2 * HOUR))
        .await
        .unwrap();
    assert!(
        kept.expires_at.unwrap() > bound,
        "now the host's hour is the least"
    );
    assert!(kept.expires_at.unwrap() <= p.now().await.unwrap() + 3_600_000);
    let kept = p
        .leases()
        .kept_alive(&operator(), &lease.id, 1, None)
        .await
        .unwrap();
    assert!(kept.expires_at.is_some(), "the host's own time holds");
    assert!(matches!(
        p.leases().kept_alive(&operator(), &lease.id, 9, None).await,
        Err(Error::Stale { .. })
    ));
}

#[tokio::test]
async fn an_expired_lease_cannot_be_renewed_or_kept_alive_and_its_release_is_queued() {
    let p = Place::new().await;
    let f = p.furnished().await;
    let (lease, other) = (active(&p, hour(&f)).await, active(&p, hour(&f)).await);
    assert!(ended(p.leases().expire_due(10).await.unwrap()).is_empty());
    p.edit("UPDATE leases SET expires_at = 1, host_until = 1 WHERE rowid = 1")
        .await;
    assert!(p.leases().standing(&lease.id).await.unwrap().expired);
    assert_eq!(
        code_of(
            p.leases()
                .renew(&operator(), &lease.id, Some(1), HOUR)
                .await
        ),
        "lease_expired"
    );
    assert_eq!(
        code_of(
            p.leases()
                .kept_alive(&operator(), &lease.id, 1, Some(HOUR))
                .await
        ),
        "lease_expired"
    );
    let gone = ended(p.leases().expire_due(10).await.unwrap());
    assert_eq!(gone.len(), 1);
    assert_eq!(
        (&gone[0].lease.id, gone[0].lease.status),
        (&lease.id, Status::Releasing)
    );
    assert_eq!(gone[0].lease.reason.as_deref(), Some("expired"));
    assert!(gone[0].effects.contains(&Effect::CloseStreams));
    assert!(ended(p.leases().expire_due(10).await.unwrap()).is_empty());
    let work = p.leases().claim_work(10).await.unwrap();
    assert_eq!(work.len(), 1);
    assert_eq!((&work[0].id, work[0].epoch), (&lease.id, 3));
    assert_eq!(
        p.leases().get(&other.id).await.unwrap().status,
        Status::Active
    );
}

#[tokio::test]
async fn work_under_way_is_nobody_elses_until_its_claim_lapses() {
    let p = Place::new().await;
    let f = p.furnished().await;
    let lease = p
        .leases()
        .begin(&operator(), f.intent())
        .await
        .unwrap()
        .lease;
    assert!(
        p.leases().claim_work(10).await.unwrap().is_empty(),
        "begin has it"
    );
    p.leases().heartbeat(&lease.id, 1).await.unwrap();
    p.edit("UPDATE leases SET claimed_until = 1").await;
    let work = p.leases().claim_work(10).await.unwrap();
    assert_eq!((work.len(), work[0].epoch), (1, 2));
    assert!(matches!(
        p.leases().heartbeat(&lease.id, 1).await,
        Err(Error::Stale { .. })
    ));
    p.leases().heartbeat(&lease.id, 2).await.unwrap();
    assert!(p.leases().claim_work(10).await.unwrap().is_empty());
}

#[tokio::test]
async fn a_restarted_replica_takes_up_its_own_work_at_a_new_epoch() {
    let p = Place::new().await;
    let f = p.furnished().await;
    let acquiring = p
        .leases()
        .begin(&operator(), f.intent())
        .await
        .unwrap()
        .lease;
    let releasing = active(&p, f.intent()).await;
    p.leases()
        .request_release(&operator(), &releasing.id, "requested", Handling::Mine)
        .await
        .unwrap();
    let live = active(&p, f.intent()).await;
    let p = p.again().await;
    let mut work: Vec<_> = p
        .leases()
        .claim_work(10)
        .await
        .unwrap()
        .into_iter()
        .map(|l| (l.id, l.epoch, l.status))
        .collect();
    work.sort();
    let mut expected = vec![
        (acquiring.id, 2, Status::Acquiring),
        (releasing.id, 3, Status::Releasing),
    ];
    expected.sort();
    assert_eq!(work, expected);
    assert_eq!(
        p.leases().get(&live.id).await.unwrap().epoch,
        1,
        "in use, untouched"
    );
}

#[tokio::test]
async fn cleanup_that_is_not_confirmed_comes_back_after_its_delay_for_ever() {
    let p = Place::new().await;
    let f = p.furnished().await;
    let lease = active(&p, f.intent()).await;
    p.leases()
        .request_release(&operator(), &lease.id, "requested", Handling::Queued)
        .await
        .unwrap();
    let mut last = 0;
    for attempt in 1..=12u32 {
        let work = p.leases().claim_work(1).await.unwrap();
        assert_eq!(work.len(), 1, "attempt {attempt}");
        let down = Event::ReleaseUnconfirmed {
            reason: "down".into(),
            jitter: Jitter(1000),
        };
        let t = p
            .leases()
            .apply(&operator(), &lease.id, work[0].epoch, down)
            .await
            .unwrap();
        assert_eq!(
            (t.lease.status, t.lease.attempts),
            (Status::PendingCleanup, attempt)
        );
        let delay = t.lease.next_attempt_at.unwrap() - t.lease.updated_at;
        assert!(
            delay >= last && delay <= 300_000,
            "attempt {attempt}: {delay}"
        );
        last = delay;
        assert!(
            p.leases().claim_work(1).await.unwrap().is_empty(),
            "not due yet"
        );
        p.edit("UPDATE leases SET next_attempt_at = 1").await;
    }
    assert_eq!(last, 300_000);
    assert_eq!(
        p.leases().counts().await.unwrap()[&Status::PendingCleanup],
        1,
        "counted"
    );
    // A person's release tries at once, whatever the delay.
    p.edit("UPDATE leases SET next_attempt_at = 9000000000000")
        .await;
    let t = p
        .leases()
        .request_release(&operator(), &lease.id, "requested", Handling::Mine)
        .await
        .unwrap();
    assert!(t.effects.contains(&Effect::QueueRelease));
    let done = p
        .leases()
        .apply(
            &operator(),
            &lease.id,
            t.lease.epoch,
            Event::ReleaseConfirmed,
        )
        .await
        .unwrap();
    assert_eq!(done.lease.status, Status::Released);
}

#[tokio::test]
async fn an_acquire_whose_answer_was_lost_is_adopted_or_proven_absent() {
    let p = Place::new().await;
    let f = p.furnished().await;
    let lease = p
        .leases()
        .begin(&operator(), f.intent())
        .await
        .unwrap()
        .lease;
    p.leases().unsafe_sent(&lease.id, 1).await.unwrap();
    let p = p.again().await;
    let found = |owned: &[&str], at| Event::Candidates {
        owned: owned.iter().map(|s| (*s).into()).collect(),
        journalled: vec![],
        at,
        apart: 30_000,
    };
    let work = p.leases().claim_work(1).await.unwrap().remove(0);
    let t = p
        .leases()
        .apply(&operator(), &work.id, work.epoch, found(&[], 1))
        .await
        .unwrap();
    assert_eq!(t.effects, [Effect::AskAgain { after: 30_000 }]);
    assert!(
        p.leases().claim_work(1).await.unwrap().is_empty(),
        "asked again later"
    );
    p.edit("UPDATE leases SET next_attempt_at = 1").await;
    let work = p.leases().claim_work(1).await.unwrap().remove(0);
    assert_eq!(work.absent_since, Some(1));
    let t = p
        .leases()
        .apply(&operator(), &work.id, work.epoch, found(&["a"], 2))
        .await
        .unwrap();
    assert_eq!(
        t.effects,
        [Effect::Adopt {
            resource: "a".into()
        }]
    );
    assert_eq!(
        (t.lease.resource.as_deref(), t.lease.absent_since),
        (Some("a"), None)
    );
    let t = p
        .leases()
        .apply(
            &operator(),
            &work.id,
            work.epoch,
            crate::leases::activation("a"),
        )
        .await
        .unwrap();
    assert_eq!(t.lease.status, Status::Active);
}

#[tokio::test]
async fn of_several_that_are_found_the_one_in_the_journal_is_adopted() {
    let p = Place::new().await;
    let f = p.furnished().await;
    let lease = p
        .leases()
        .begin(&operator(), f.intent())
        .await
        .unwrap()
        .lease;
    p.leases().unsafe_sent(&lease.id, 1).await.unwrap();
    p.leases()
        .journal(
            &lease.id,
            1,
            leasehold_contract::Thing::Environment,
            "b",
            None,
        )
        .await
        .unwrap();
    // Whatever the caller says of the journal.
    let found = Event::Candidates {
        owned: vec!["a".into(), "b".into()],
        journalled: vec!["a".into()],
        at: 1,
        apart: 1,
    };
    let t = p
        .leases()
        .apply(&operator(), &lease.id, 1, found)
        .await
        .unwrap();
    assert_eq!(
        t.effects,
        [
            Effect::Destroy {
                resources: vec!["a".into()]
            },
            Effect::Adopt {
                resource: "b".into()
            }
        ]
    );
    let last = &p.activity().list(&ActivityFilter::default()).await.unwrap()[0];
    assert_eq!(last.action, "lease.reconciled");
    assert_eq!(last.details["destroyed"], serde_json::json!(["a"]));
}

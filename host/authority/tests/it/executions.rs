//! Executions: begun only on a lease that may be used, settled once.

use leasehold_authority::*;
use leasehold_contract::Thing;

use crate::leases::active;
use crate::place::*;

fn command() -> NewExecution {
    NewExecution {
        argv: vec!["make".into(), "test".into()],
        env_names: vec!["TOKEN".into()],
        ..Default::default()
    }
}

#[tokio::test]
async fn nothing_begins_outside_active_after_the_expiry_or_at_another_epoch() {
    let p = Place::new().await;
    let f = p.furnished().await;
    let begin = |lease: String, epoch| {
        let p = &p;
        async move {
            p.executions()
                .begin(&operator(), &lease, epoch, command())
                .await
        }
    };
    let acquiring = p
        .leases()
        .begin(&operator(), f.intent())
        .await
        .unwrap()
        .lease;
    assert_eq!(code_of(begin(acquiring.id.clone(), 1).await), "lease_state");
    let lease = active(&p, f.intent()).await;
    assert!(matches!(
        begin(lease.id.clone(), 2).await,
        Err(Error::Stale { .. })
    ));
    let begun = begin(lease.id.clone(), 1).await.unwrap();
    assert_eq!(begun.status, ExecutionStatus::Begun);
    assert_eq!(begun.id.strip_prefix("exe-").unwrap().len(), 26);
    p.edit("UPDATE leases SET expires_at = 1 WHERE status = 'active'")
        .await;
    assert_eq!(code_of(begin(lease.id.clone(), 1).await), "lease_expired");
    p.edit("UPDATE leases SET expires_at = NULL").await;
    p.leases()
        .request_release(&operator(), &lease.id, "requested", Handling::Mine)
        .await
        .unwrap();
    for epoch in [1, 2] {
        assert_eq!(code_of(begin(lease.id.clone(), epoch).await), "lease_state");
    }
    assert_eq!(p.executions().list(&lease.id).await.unwrap().len(), 1);
    assert!(matches!(
        begin("lease_none".into(), 1).await,
        Err(Error::NotFound { .. })
    ));
}

#[tokio::test]
async fn an_execution_has_one_outcome_and_only_unknown_changes_into_a_true_one() {
    let p = Place::new().await;
    let f = p.furnished().await;
    let lease = active(&p, f.intent()).await;
    let x = p.executions();
    let by = operator();
    let begun = x.begin(&by, &lease.id, 1, command()).await.unwrap();
    let started = x.started(&begun.id, r#"{"pid":1}"#).await.unwrap();
    assert_eq!(started.status, ExecutionStatus::Running);
    let first = x
        .settle(&by, &begun.id, Outcome::Unknown("cut".into()))
        .await
        .unwrap();
    assert!(first.first);
    let second = x.settle(&by, &begun.id, Outcome::Exited(0)).await.unwrap();
    assert!(!second.first);
    assert_eq!(
        second.execution.outcome,
        Some(Outcome::Unknown("cut".into()))
    );
    assert_eq!(x.open().await.unwrap().len(), 1);
    // Still unknown is no change.
    x.settle_unknown(&by, &begun.id, Outcome::Unknown("still".into()))
        .await
        .unwrap();
    let settled = x
        .settle_unknown(&by, &begun.id, Outcome::Exited(3))
        .await
        .unwrap();
    assert_eq!(settled.outcome, Some(Outcome::Exited(3)));
    x.settle_unknown(&by, &begun.id, Outcome::Exited(3))
        .await
        .unwrap();
    assert_eq!(
        code_of(x.settle_unknown(&by, &begun.id, Outcome::Exited(0)).await),
        "execution_settled"
    );
    assert_eq!(
        x.get(&begun.id).await.unwrap().outcome,
        Some(Outcome::Exited(3))
    );
    assert!(x.open().await.unwrap().is_empty());
    let outcomes = [
        Outcome::Signalled("KILL".into()),
        Outcome::OutOfMemory,
        Outcome::NotStarted("no such program".into()),
        Outcome::Exited(255),
    ];
    for outcome in outcomes {
        let e = x.begin(&by, &lease.id, 1, command()).await.unwrap();
        let settled = x.settle(&by, &e.id, outcome.clone()).await.unwrap();
        assert_eq!(settled.execution.outcome, Some(outcome.clone()));
        assert_eq!(x.get(&e.id).await.unwrap().outcome, Some(outcome));
    }
}

#[tokio::test]
async fn the_provider_journals_the_reference_before_the_command_can_run() {
    let p = Place::new().await;
    let f = p.furnished().await;
    let lease = active(&p, f.intent()).await;
    let e = p
        .executions()
        .begin(&operator(), &lease.id, 1, command())
        .await
        .unwrap();
    p.leases()
        .journal(&lease.id, 1, Thing::Command, &e.id, Some(r#"{"dir":"x"}"#))
        .await
        .unwrap();
    let p = p.again().await;
    let open = p.executions().open().await.unwrap();
    assert_eq!(open.len(), 1);
    assert_eq!(open[0].reference.as_deref(), Some(r#"{"dir":"x"}"#));
}

#[tokio::test]
async fn the_end_of_a_lease_settles_what_has_no_outcome_as_unknown() {
    let p = Place::new().await;
    let f = p.furnished().await;
    let lease = active(&p, f.intent()).await;
    let e = p
        .executions()
        .begin(&operator(), &lease.id, 1, command())
        .await
        .unwrap();
    let done = p
        .executions()
        .begin(&operator(), &lease.id, 1, command())
        .await
        .unwrap();
    p.executions()
        .settle(&operator(), &done.id, Outcome::Exited(0))
        .await
        .unwrap();
    p.executions().cancel(&operator(), &e.id).await.unwrap();
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
    let e = p.executions().get(&e.id).await.unwrap();
    assert!(e.cancelled && e.outcome.as_ref().unwrap().is_unknown());
    let done = p.executions().get(&done.id).await.unwrap();
    assert_eq!(done.outcome, Some(Outcome::Exited(0)));
    assert!(
        p.executions().open().await.unwrap().is_empty(),
        "nobody can be asked any more"
    );
}

#[tokio::test]
async fn arguments_are_kept_and_of_variables_the_names_alone() {
    let p = Place::new().await;
    let f = p.furnished().await;
    let lease = active(&p, f.intent()).await;
    let e = p
        .executions()
        .begin(&operator(), &lease.id, 1, command())
        .await
        .unwrap();
    assert_eq!(e.argv, ["make", "test"]);
    assert_eq!(e.env_names, ["TOKEN"]);
    let bad = |new: NewExecution| {
        let (p, id) = (&p, lease.id.clone());
        async move { pointers(p.executions().begin(&operator(), &id, 1, new).await) }
    };
    assert_eq!(bad(NewExecution::default()).await, ["/argv"]);
    assert_eq!(
        bad(NewExecution {
            argv: vec!["a\0".into()],
            ..command()
        })
        .await,
        ["/argv"]
    );
    assert_eq!(
        bad(NewExecution {
            env_names: vec!["A=B".into()],
            ..command()
        })
        .await,
        ["/env"]
    );
    assert_eq!(
        bad(NewExecution {
            cwd: Some(String::new()),
            ..command()
        })
        .await,
        ["/cwd"]
    );
}

//! What somebody is told of a lease that stands in the way and may be another's.

use leasehold_authority::*;

use crate::place::*;

#[tokio::test]
async fn whose_lease_is_in_the_way_is_told_to_those_alone_who_may_know_of_it() {
    let p = Place::new().await;
    let f = p.furnished().await;
    let other = p.company("other").await;
    let secret = p.secret(&other, "key", "value").await;
    let theirs = p
        .environments()
        .create(
            &operator(),
            &other,
            draft("their box", &secret),
            vec![key_use("10.0.0.5")],
        )
        .await
        .unwrap();
    let of_run = |run: &str| Actor {
        kind: ActorKind::Token {
            id: "tok_x".into(),
            role: Role::Agent {
                company: f.company.clone(),
                run: Some(run.into()),
            },
        },
        display: "agent".into(),
    };
    let alone = |run: Option<&str>, key: Option<&str>| AcquireIntent {
        exclusive_key: Some("ssh://ci@10.0.0.5:22".into()),
        account_key: Some("ssh://ci@10.0.0.5:22".into()),
        idempotency_key: key.map(str::to_owned),
        caller: CallerRefs {
            run: run.map(str::to_owned),
            ..CallerRefs::default()
        },
        ..f.intent()
    };
    let first = alone(Some("r1"), Some("k"));
    let first = p.leases().begin(&of_run("r1"), first).await.unwrap();
    let lease = first.lease.id;
    let refused = async |who: &Actor, intent: AcquireIntent| {
        let error = p.leases().begin(who, intent).await.unwrap_err();
        let Error::Conflict { code, details, .. } = &error else {
            panic!("{error}")
        };
        (
            *code,
            details["leaseId"].as_str().map(str::to_owned),
            error.to_string(),
        )
    };
    for who in [operator(), of_run("r1"), agent(&f.company)] {
        let (code, told, text) = refused(&who, alone(Some("r1"), None)).await;
        assert_eq!((code, told.as_deref()), ("target_in_use", Some(&*lease)));
        assert!(text.contains(&lease), "{text}");
    }
    let from_there = AcquireIntent {
        environment: theirs.id.clone(),
        ..alone(None, None)
    };
    for (who, intent) in [
        (agent(&other), from_there),
        (of_run("r2"), alone(Some("r2"), None)),
    ] {
        let (code, told, text) = refused(&who, intent).await;
        assert_eq!((code, told), ("target_in_use", None));
        assert!(
            !text.contains("lease_") && !text.contains("acquiring"),
            "{text}"
        );
    }
    let (code, told, text) = refused(&of_run("r2"), alone(Some("r2"), Some("k"))).await;
    assert_eq!((code, told), ("idempotency_mismatch", None));
    assert!(!text.contains("lease_"), "{text}");
}

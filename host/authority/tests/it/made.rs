//! What egress saw of a lease: its resource, its children, and what its calls keep.

use leasehold_authority::*;

use crate::leases::active;
use crate::place::*;

#[tokio::test]
async fn a_lease_has_one_environment_and_only_what_was_seen_counts() {
    let p = Place::new().await;
    let f = p.furnished().await;
    let id = active(&p, f.intent()).await.id;
    let leases = p.leases();
    // What a provider journals is no resource to act on.
    let thing = leasehold_contract::Thing::Environment;
    leases.journal(&id, 1, thing, "room-9", None).await.unwrap();
    assert_eq!(leases.made(&id).await.unwrap(), Made::default());
    leases
        .made_environment(&id, 1, claim("room-1"))
        .await
        .unwrap();
    leases
        .made_environment(&id, 1, claim("room-1"))
        .await
        .unwrap();
    leases.made_child(&id, 1, claim("run-1")).await.unwrap();
    assert_eq!(
        pointers(leases.made_environment(&id, 1, claim("room-2")).await),
        ["/resource"]
    );
    assert_eq!(
        pointers(leases.made_child(&id, 1, claim("../x")).await),
        ["/resource"]
    );
    for stale in [
        leases.made_environment(&id, 2, claim("room-1")).await,
        leases.made_child(&id, 2, claim("run-2")).await,
        leases.keep(&id, 2, kept("session")).await,
    ] {
        assert!(matches!(stale, Err(Error::Stale { .. })), "{stale:?}");
    }
    let p = p.again().await;
    let made = p.leases().made(&id).await.unwrap();
    assert_eq!(made.resource.as_deref(), Some("room-1"));
    assert_eq!(made.children.into_iter().collect::<Vec<_>>(), ["run-1"]);
    let journal = p.leases().journalled(&id).await.unwrap();
    let named: Vec<&str> = journal
        .iter()
        .map(|entry| entry.resource.as_str())
        .collect();
    assert_eq!(named, ["room-9", "room-1"], "what was made is found again");
}

#[tokio::test]
async fn what_one_lease_has_is_neither_made_for_another_nor_a_part_of_it_until_the_first_has_ended()
{
    let p = Place::new().await;
    let f = p.furnished().await;
    let (one, two) = (active(&p, f.intent()).await, active(&p, f.intent()).await);
    let leases = p.leases();
    leases
        .made_environment(&one.id, 1, claim("room-1"))
        .await
        .unwrap();
    for refused in [
        leases.made_environment(&two.id, 1, claim("room-1")).await,
        leases.made_child(&two.id, 1, claim("room-1")).await,
    ] {
        let told = refused.as_ref().unwrap_err().to_string();
        assert_eq!(code_of(refused), "resource_claimed");
        assert!(!told.contains(&*one.id), "{told}");
        let last = &p.activity().list(&ActivityFilter::default()).await.unwrap()[0];
        assert_eq!(
            (last.action.as_str(), &last.subject),
            ("lease.claim_refused", &two.id)
        );
        assert_eq!(last.details["holder"], one.id.as_str());
    }
    assert_eq!(leases.made(&two.id).await.unwrap(), Made::default());
    // Of another account, or at another endpoint, the same id is another thing.
    let elsewhere = ResourceClaim {
        account: "sec_other".into(),
        ..claim("room-1")
    };
    leases.made_child(&two.id, 1, elsewhere).await.unwrap();
    let t = leases
        .request_release(&operator(), &one.id, "requested", Handling::Mine)
        .await
        .unwrap();
    leases
        .apply(&operator(), &one.id, t.lease.epoch, Event::ReleaseConfirmed)
        .await
        .unwrap();
    leases
        .made_environment(&two.id, 1, claim("room-1"))
        .await
        .unwrap();
}

#[tokio::test]
async fn an_edited_row_makes_no_other_resource_the_leases() {
    for edit in [
        "UPDATE lease_made SET resource = 'room-2'",
        "UPDATE lease_made SET kind = 'child'",
    ] {
        let p = Place::new().await;
        let f = p.furnished().await;
        let id = active(&p, f.intent()).await.id;
        p.leases()
            .made_environment(&id, 1, claim("room-1"))
            .await
            .unwrap();
        assert_eq!(p.edit(edit).await, 1);
        assert!(is_corrupt(p.leases().made(&id).await), "{edit}");
    }
}

#[tokio::test]
async fn a_kept_value_is_sealed_for_its_lease_and_its_mint_and_goes_with_the_lease() {
    let p = Place::new().await;
    let f = p.furnished().await;
    let id = active(&p, f.intent()).await.id;
    p.leases().keep(&id, 1, kept("session")).await.unwrap();
    p.leases().keep(&id, 1, kept("session")).await.unwrap();
    let all = p.leases().kept(&id).await.unwrap();
    assert_eq!((all.len(), &all[0].value), (1, &kept("session").value));
    for name in ["leasehold.db", "leasehold.db-wal"] {
        let bytes = std::fs::read(p.database().with_file_name(name)).unwrap();
        let canary: &[u8] = b"canary-minted-value";
        assert!(!bytes.windows(canary.len()).any(|w| w == canary), "{name}");
    }
    assert_eq!(p.edit("UPDATE lease_kept SET pointer = '/other'").await, 1);
    assert!(is_corrupt(p.leases().kept(&id).await));
    let (leases, actor) = (p.leases(), operator());
    let ending = leases.request_release(&actor, &id, "requested", Handling::Mine);
    let epoch = ending.await.unwrap().lease.epoch;
    let gone = leases.apply(&actor, &id, epoch, Event::ReleaseConfirmed);
    gone.await.unwrap();
    assert_eq!(p.count("SELECT COUNT(*) FROM lease_kept").await, 0);
}

#[tokio::test]
async fn which_endpoints_were_typed_is_part_of_what_is_authenticated_and_a_lease_keeps_it() {
    let p = Place::new().await;
    let f = p.furnished().await;
    let secrets = EnvironmentSecrets {
        uses: vec![key_use("10.0.0.5")],
        endpoints: vec!["/api".into()],
        ..EnvironmentSecrets::default()
    };
    let made = p.environments();
    let draft = draft("typed", &f.secret);
    let typed = made
        .create(&operator(), &f.company, draft, secrets)
        .await
        .unwrap();
    let intent = AcquireIntent {
        environment: typed.id.clone(),
        ..f.intent()
    };
    let lease = p.leases().begin(&operator(), intent).await.unwrap().lease;
    assert_eq!(lease.endpoints, ["/api"]);
    let more = "UPDATE environments SET endpoints = '[\"/api\",\"/old\"]' WHERE name = 'typed'";
    assert_eq!(p.edit(more).await, 1);
    assert!(is_corrupt(p.environments().get(&typed.id).await));
    let none = "UPDATE leases SET endpoints = '[]'";
    assert!(p.edit(none).await >= 1);
    assert!(is_corrupt(p.leases().get(&lease.id).await));
}

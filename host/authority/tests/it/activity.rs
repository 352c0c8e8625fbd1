//! The activity: recorded with the change, chained, and listed in the order of commits.

use leasehold_authority::*;
use serde_json::json;

use crate::place::*;

#[tokio::test]
async fn a_change_that_fails_leaves_no_row_and_no_gap() {
    let p = Place::new().await;
    p.company("acme").await;
    let _ = p.companies().create(&operator(), "acme").await;
    p.company("other").await;
    let verified = p.activity().verify(None).await.unwrap();
    assert_eq!((verified.rows, verified.head.sequence), (2, 2));
    assert_eq!(p.activity().head().await.unwrap(), verified.head);
}

#[tokio::test]
async fn the_chain_goes_on_over_a_restart_and_knows_its_earlier_heads() {
    let p = Place::new().await;
    p.company("a").await;
    let kept = p.activity().head().await.unwrap();
    let p = p.again().await;
    p.company("b").await;
    assert_eq!(p.activity().verify(Some(&kept)).await.unwrap().rows, 2);
    p.edit("DELETE FROM activity").await;
    assert!(
        is_corrupt(p.activity().verify(Some(&kept)).await),
        "its end was cut off"
    );
    let p = p.again().await;
    p.company("c").await;
    assert!(
        is_corrupt(p.activity().verify(Some(&kept)).await),
        "and grew again"
    );
}

#[tokio::test]
async fn every_edit_of_a_row_is_noticed() {
    let edits: [&'static str; 7] = [
        "UPDATE activity SET details = '{}' WHERE sequence = 2",
        "UPDATE activity SET at = at + 1 WHERE sequence = 2",
        "UPDATE activity SET actor = 'somebody' WHERE sequence = 2",
        "UPDATE activity SET company_id = NULL WHERE sequence = 2",
        "DELETE FROM activity WHERE sequence = 1",
        "DELETE FROM activity WHERE sequence = 2",
        "UPDATE activity SET sequence = sequence + 10",
    ];
    for sql in edits {
        let p = Place::new().await;
        for name in ["a", "b", "c"] {
            p.company(name).await;
        }
        assert!(p.edit(sql).await > 0);
        assert!(is_corrupt(p.activity().verify(None).await), "{sql}");
    }
}

/// A row of another course of the same database is genuine by itself; the row after it does not follow it.
#[tokio::test]
async fn a_genuine_row_of_another_course_does_not_fit_into_the_chain() {
    let p = Place::new().await;
    p.company("first").await;
    p.authority.close().await;
    let Place { temp, authority } = p;
    drop(authority);
    let database = temp.path().join("data/leasehold.db");
    let other = temp.path().join("data/other.db");
    std::fs::copy(&database, &other).unwrap();
    let course = |database: &'static str, names: [&'static str; 2]| {
        let mut options = options_in(temp.path(), "main");
        options.database = temp.path().join("data").join(database);
        async move {
            let authority = Authority::open(options).await.unwrap();
            for name in names {
                authority
                    .companies()
                    .create(&operator(), name)
                    .await
                    .unwrap();
            }
            authority.close().await;
        }
    };
    course("other.db", ["c", "d"]).await;
    course("leasehold.db", ["a", "b"]).await;
    let authority = Authority::open(options_in(temp.path(), "main"))
        .await
        .unwrap();
    let p = Place { temp, authority };
    assert_eq!(p.activity().verify(None).await.unwrap().rows, 3);
    p.splice(&other, "DELETE FROM activity WHERE sequence = 2")
        .await;
    p.splice(
        &other,
        "INSERT INTO activity SELECT * FROM other.activity WHERE sequence = 2",
    )
    .await;
    assert!(is_corrupt(p.activity().verify(None).await));
    p.splice(&other, "DELETE FROM activity WHERE sequence = 3")
        .await;
    p.activity().verify(None).await.unwrap();
}

#[tokio::test]
async fn rows_are_listed_by_cursor_in_both_directions_and_by_company() {
    let p = Place::new().await;
    let acme = p.company("acme").await;
    p.company("other").await;
    p.activity()
        .record(
            &Actor::system("probe"),
            Entry {
                action: "environment.probed",
                company: Some(acme.clone()),
                subject_kind: "environment",
                subject: "env_x".into(),
                details: json!({ "ok": true }),
            },
        )
        .await
        .unwrap();
    let list = |filter: ActivityFilter| {
        let p = &p;
        async move {
            let rows = p.activity().list(&filter).await.unwrap();
            rows.into_iter()
                .map(|r| (r.position, r.action))
                .collect::<Vec<_>>()
        }
    };
    let all = list(ActivityFilter {
        after: Some(0),
        ..Default::default()
    })
    .await;
    assert_eq!(all.len(), 3);
    let newest = list(ActivityFilter {
        limit: 1,
        ..Default::default()
    })
    .await;
    assert_eq!(newest, [all[2].clone()]);
    let before = ActivityFilter {
        before: Some(newest[0].0),
        limit: 1,
        ..Default::default()
    };
    assert_eq!(list(before).await, [all[1].clone()]);
    let after = ActivityFilter {
        after: Some(all[0].0),
        ..Default::default()
    };
    assert_eq!(list(after).await, all[1..]);
    let own = list(ActivityFilter {
        company: Some(acme),
        ..Default::default()
    })
    .await;
    assert_eq!(own.len(), 2);
    assert_eq!(own[0].1, "environment.probed");
}

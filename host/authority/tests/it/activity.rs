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
    let edits: [&'static str; 10] = [
        "UPDATE activity SET details = '{}' WHERE sequence = 2",
        "UPDATE activity SET at = at + 1 WHERE sequence = 2",
        "UPDATE activity SET actor = 'somebody' WHERE sequence = 2",
        "UPDATE activity SET company_id = NULL WHERE sequence = 2",
        "DELETE FROM activity WHERE sequence = 1",
        "DELETE FROM activity WHERE sequence = 2",
        "UPDATE activity SET sequence = sequence + 10",
        "UPDATE activity SET outcome = 'denied' WHERE sequence = 2",
        "UPDATE activity SET times = 2 WHERE sequence = 2",
        "UPDATE activity SET outcome = 'done' WHERE sequence = 4",
    ];
    for sql in edits {
        let p = Place::new().await;
        for name in ["a", "b", "c"] {
            p.company(name).await;
        }
        p.activity().deny(&operator(), refusal("lease_1"));
        p.activity().head().await.unwrap();
        assert!(p.edit(sql).await > 0);
        assert!(is_corrupt(p.activity().verify(None).await), "{sql}");
    }
}

fn refusal(subject: &str) -> Entry {
    Entry::new("access.denied", None, "lease", subject, json!({}))
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
                outcome: ActivityOutcome::Failed,
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

#[tokio::test]
async fn rows_are_found_by_who_what_when_and_how_it_ended() {
    let p = Place::new().await;
    let acme = p.company("acme").await;
    let probed = |ok: bool| {
        let entry = Entry::new(
            "environment.probed",
            Some(&acme),
            "environment",
            "env_x",
            json!({ "ok": ok }),
        );
        entry.ended(if ok {
            ActivityOutcome::Done
        } else {
            ActivityOutcome::Failed
        })
    };
    let probe = Actor::system("probe");
    p.activity().record(&probe, probed(true)).await.unwrap();
    p.activity().record(&probe, probed(false)).await.unwrap();
    p.activity().deny(&operator(), refusal("lease_1"));
    let all = p.activity().list(&ActivityFilter::default()).await.unwrap();
    assert_eq!(all.len(), 4, "what was refused before the list is in it");
    let mid = all[1].at;
    type Set = fn(&mut ActivityFilter, i64);
    let filters: [(Set, Vec<usize>); 12] = [
        (|f, _| f.actor = Some("probe".into()), vec![1, 2]),
        (|f, _| f.actor = Some("local-operator".into()), vec![0, 3]),
        (|f, _| f.actor = Some("prob".into()), vec![]),
        (|f, _| f.action = Some("environment.".into()), vec![1, 2]),
        (|f, _| f.action = Some("environment%".into()), vec![]),
        (|f, _| f.subject_kind = Some("company".into()), vec![3]),
        (|f, _| f.subject = Some("env_x".into()), vec![1, 2]),
        (|f, _| f.outcome = Some(ActivityOutcome::Failed), vec![1]),
        (|f, _| f.outcome = Some(ActivityOutcome::Denied), vec![0]),
        (|f, at| f.since = Some(at + 86_400_000), vec![]),
        (|f, at| f.until = Some(at + 86_400_000), vec![0, 1, 2, 3]),
        (
            |f, _| {
                f.actor = Some("probe".into());
                f.outcome = Some(ActivityOutcome::Done);
            },
            vec![2],
        ),
    ];
    for (number, (set, wanted)) in filters.into_iter().enumerate() {
        let mut filter = ActivityFilter::default();
        set(&mut filter, mid);
        let found = p.activity().list(&filter).await.unwrap();
        let wanted: Vec<&ActivityRow> = wanted.into_iter().map(|at| &all[at]).collect();
        assert_eq!(found.iter().collect::<Vec<_>>(), wanted, "filter {number}");
    }
    let at = |since, until| ActivityFilter {
        since,
        until,
        ..ActivityFilter::default()
    };
    let from = p.activity().list(&at(Some(mid), None)).await.unwrap();
    let before = p.activity().list(&at(None, Some(mid))).await.unwrap();
    assert_eq!(from.len() + before.len(), 4);
    assert!(from.iter().all(|row| row.at >= mid) && from.contains(&all[1]));
}

#[tokio::test]
async fn a_flood_of_refusals_is_counted_whole_and_written_in_few_rows() {
    let p = Place::new().await;
    let loud = Actor::system("loud");
    for n in 0..10_000 {
        p.activity().deny(&loud, refusal(&format!("lease_{n}")));
    }
    for _ in 0..500 {
        p.activity().deny(&operator(), refusal("lease_1"));
    }
    p.activity().deny_nobody(refusal("lease_1"));
    // An end in order loses none.
    let p = p.again().await;
    let rows = p
        .activity()
        .list(&ActivityFilter {
            outcome: Some(ActivityOutcome::Denied),
            limit: 1000,
            ..ActivityFilter::default()
        })
        .await
        .unwrap();
    let by = |actor: &str| {
        let rows = rows.iter().filter(|row| row.actor == actor);
        let rows: Vec<&ActivityRow> = rows.collect();
        (rows.len(), rows.iter().map(|row| row.times).sum::<i64>())
    };
    let (written, times) = by("loud");
    assert_eq!(times, 10_000);
    assert!((2..=25).contains(&written), "{written}");
    let counted = rows.iter().find(|row| row.action == "denials.counted");
    assert!(counted.is_some_and(|row| row.details["since"].is_i64()));
    let (written, times) = by("local operator");
    assert_eq!((written, times), (1, 500));
    assert_eq!(by("nobody"), (1, 1));
    p.activity().verify(None).await.unwrap();
}

#[tokio::test]
async fn a_refusal_is_written_soon_without_anybody_asking() {
    let p = Place::new().await;
    let mut changes = p.activity().changes();
    changes.borrow_and_update();
    p.activity().deny(&operator(), refusal("lease_1"));
    let written = tokio::time::timeout(std::time::Duration::from_secs(30), changes.changed());
    written.await.unwrap().unwrap();
    assert_eq!(p.count("SELECT count(*) FROM activity").await, 1);
}

#[tokio::test]
async fn a_refusal_that_cannot_be_written_waits_until_it_can() {
    let p = Place::new().await;
    p.edit("CREATE TRIGGER full BEFORE INSERT ON activity BEGIN SELECT RAISE(ABORT, 'full'); END")
        .await;
    let listed = || async { p.activity().list(&ActivityFilter::default()).await.unwrap() };
    p.activity().deny(&operator(), refusal("lease_1"));
    assert_eq!(
        listed().await,
        [],
        "and whoever reads is not refused for it"
    );
    p.activity().deny(&operator(), refusal("lease_1"));
    p.edit("DROP TRIGGER full").await;
    let rows = listed().await;
    let times: i64 = rows.iter().map(|row| row.times).sum();
    assert_eq!(times, 2, "{rows:?}");
    p.activity().verify(None).await.unwrap();
}

#[tokio::test]
async fn a_refusal_takes_a_bounded_row_whatever_was_asked_for() {
    let p = Place::new().await;
    // Of two bytes each, so that the bound is in the middle of one.
    let long = format!("x{}", "é".repeat(10_000));
    let details = json!({ "reason": "x".repeat(10_000) });
    let entry = Entry::new("access.denied", None, "lease", &long, details);
    p.activity().deny(&operator(), entry);
    let rows = p.activity().list(&ActivityFilter::default()).await.unwrap();
    let [row] = &rows[..] else { panic!("{rows:?}") };
    assert_eq!(row.subject, format!("x{}", "é".repeat(99)));
    assert_eq!(row.details, json!({}));
}

#[tokio::test]
async fn a_token_that_is_nobodys_is_told_of_by_its_id_where_it_has_one() {
    let p = Place::new().await;
    let new = NewToken {
        name: "laptop".into(),
        role: Role::Admin,
        expires_in: None,
    };
    let (token, bearer) = p.tokens().create(&operator(), new).await.unwrap();
    p.tokens().revoke(&operator(), &token.id).await.unwrap();
    for wrong in [bearer.as_str(), "lht_guess", "", bearer.as_str()] {
        assert_eq!(p.tokens().authenticate(wrong).await.unwrap(), None);
    }
    let refused = ActivityFilter {
        action: Some("token.refused".into()),
        after: Some(0),
        ..ActivityFilter::default()
    };
    let rows = p.activity().list(&refused).await.unwrap();
    let mut told: Vec<(&str, &str, i64)> = rows
        .iter()
        .map(|row| (&*row.actor_kind, &*row.subject, row.times))
        .collect();
    told.sort();
    let mut wanted = [("nobody", &*token.id, 2), ("nobody", "unknown", 2)];
    wanted.sort();
    assert_eq!(told, wanted);
    let text = serde_json::to_string(&rows).unwrap();
    assert!(!text.contains(&bearer[4..]), "{text}");
}

#[tokio::test]
async fn what_was_exported_is_checked_without_its_rows_and_each_change_of_it_is_found() {
    let p = Place::new().await;
    for name in ["a", "b", "c"] {
        p.company(name).await;
    }
    p.activity().deny(&operator(), refusal("lease_1"));
    let rows = p.activity().export(0, 100).await.unwrap();
    let head = p.activity().head().await.unwrap();
    let lines: Vec<String> = rows
        .iter()
        .map(|row| serde_json::to_string(row).unwrap())
        .collect();
    assert_eq!(lines.len(), 4);
    let second = p.activity().export(rows[0].row.position, 2).await.unwrap();
    assert_eq!(second, rows[1..3], "page by page");
    p.edit("DELETE FROM activity").await;
    let check = |lines: &[String], kept: Option<Head>| {
        let mut check = p.activity().check_export(kept);
        for line in lines {
            check.line(line)?;
        }
        check.done()
    };
    let good = check(&lines, Some(head.clone())).unwrap();
    assert_eq!(good.rows, 4);
    assert_eq!(
        (good.chains["main"].first, &good.chains["main"].head),
        (1, &head)
    );
    // A piece from the middle is proven as a piece.
    assert_eq!(check(&lines[2..], None).unwrap().chains["main"].first, 3);

    let edited = |at: usize, from: &str, to: &str| {
        let mut lines = lines.clone();
        assert!(lines[at].contains(from), "{}", lines[at]);
        lines[at] = lines[at].replacen(from, to, 1);
        lines
    };
    let moved = [0, 2, 1, 3].map(|at| lines[at].clone());
    let twice = [0, 1, 1, 2, 3].map(|at| lines[at].clone());
    let removed = [0, 2, 3].map(|at| lines[at].clone());
    let previous = format!("\"previous\":\"{}\"", rows[1].previous);
    for (what, lines) in [
        (
            "another name",
            edited(1, "\"name\":\"b\"", "\"name\":\"x\""),
        ),
        ("another time", edited(1, "\"at\":1", "\"at\":2")),
        ("an ending", edited(3, "\"denied\"", "\"done\"")),
        ("a count", edited(3, "\"times\":1", "\"times\":9")),
        ("one more member", edited(1, "{", "{\"more\":1,")),
        ("a space", edited(1, ":", ": ")),
        ("no predecessor", edited(1, &previous, "\"previous\":\"\"")),
        ("moved", moved.to_vec()),
        ("twice", twice.to_vec()),
        ("removed", removed.to_vec()),
        ("no row", vec!["{}".to_owned()]),
    ] {
        assert!(
            matches!(check(&lines, None), Err(Error::Invalid { .. })),
            "{what}"
        );
    }
    assert!(is_corrupt(check(&lines[..3], Some(head))), "its end");
}

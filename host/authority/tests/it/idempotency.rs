//! Idempotency keys: what a crash leaves of them, how long they live, and that no edit of a row makes an answer.

use leasehold_authority::*;

use crate::place::*;

async fn begin(p: &Place, key: &str) -> Result<BegunRequest> {
    p.idempotency().begin(&operator(), key, &[b"request"]).await
}

async fn fresh(p: &Place, key: &str) -> Claim {
    match begin(p, key).await.unwrap() {
        BegunRequest::Fresh(claim) => claim,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn after_a_crash_a_key_says_whether_something_was_made() {
    let p = Place::new().await;
    let nothing = fresh(&p, "nothing").await;
    let made = fresh(&p, "made").await;
    for key in ["nothing", "made"] {
        assert_eq!(code_of(begin(&p, key).await), "idempotency_in_progress");
    }
    let company = made.during(p.company("acme")).await;
    drop(nothing);
    let p = p.again().await;
    fresh(&p, "nothing").await;
    match begin(&p, "made").await {
        Err(Error::Conflict { code, details, .. }) => {
            assert_eq!(
                (code, &details["id"]),
                ("idempotency_spent", &company.into())
            );
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn each_thing_that_is_made_under_a_key_is_told_of_with_it() {
    let p = Place::new().await;
    let f = p.furnished().await;
    let (by, company) = (operator(), &f.company);
    let mut made: Vec<(String, String)> = Vec::new();
    let claim = fresh(&p, "environment").await;
    let draft = draft("another", &f.secret);
    let environments = p.environments();
    let environment = environments.create(&by, company, draft, vec![key_use("h")]);
    let environment = claim.during(environment).await.unwrap();
    made.push(("environment".into(), environment.id));
    for kind in [
        AssigneeKind::Agent,
        AssigneeKind::Project,
        AssigneeKind::Workspace,
        AssigneeKind::Issue,
        AssigneeKind::Run,
    ] {
        let claim = fresh(&p, kind.as_str()).await;
        let rows = p.authority.assignees();
        let row = rows.create(&by, kind, company, NewAssignee::default());
        let row = claim.during(row).await.unwrap();
        made.push((kind.as_str().into(), row.id));
    }
    for owner in [Some(&**company), None] {
        let key = format!("secret {owner:?}");
        let claim = fresh(&p, &key).await;
        let secrets = p.secrets();
        let secret = secrets.create(&by, new_secret(owner, "another", "value"));
        made.push((key, claim.during(secret).await.unwrap().id));
    }
    let claim = fresh(&p, "token").await;
    let new = NewToken {
        name: "ci".into(),
        role: Role::Admin,
        expires_in: None,
    };
    let tokens = p.tokens();
    let (token, _) = claim.during(tokens.create(&by, new)).await.unwrap();
    made.push(("token".into(), token.id));
    // The server ends before any of them is answered.
    let p = p.again().await;
    for (key, id) in made {
        match begin(&p, &key).await {
            Err(Error::Conflict { code, details, .. }) => {
                assert_eq!((code, &details["id"]), ("idempotency_spent", &id.into()));
            }
            other => panic!("{key}: {other:?}"),
        }
    }
}

#[tokio::test]
async fn what_failed_is_free_unless_something_was_made_and_an_answer_is_given_again() {
    let p = Place::new().await;
    let keys = p.idempotency();
    let claim = fresh(&p, "a").await;
    keys.end(claim, Ended::Refused).await.unwrap();
    let claim = fresh(&p, "a").await;
    claim.clone().during(p.company("acme")).await;
    keys.end(claim, Ended::Refused).await.unwrap();
    assert_eq!(code_of(begin(&p, "a").await), "idempotency_spent");
    let claim = fresh(&p, "b").await;
    keys.end(claim, Ended::Answered(201, "{}")).await.unwrap();
    let again = BegunRequest::Answered(201, "{}".into());
    assert_eq!(begin(&p, "b").await.unwrap(), again);
    let other = keys.begin(&operator(), "b", &[b"reques", b"t"]).await;
    assert_eq!(code_of(other), "idempotency_mismatch");
    let theirs = keys.begin(&agent("com_x"), "b", &[b"request"]).await;
    assert!(matches!(theirs.unwrap(), BegunRequest::Fresh(_)));
}

#[tokio::test]
async fn a_key_is_known_for_a_day_and_through_a_change_of_the_master_key() {
    let p = Place::new().await;
    for key in ["old", "young"] {
        let claim = fresh(&p, key).await;
        p.idempotency()
            .end(claim, Ended::Answered(201, key))
            .await
            .unwrap();
    }
    let aged = |key: &str, ms: i64| {
        format!(
            "UPDATE idempotency_keys SET created_at = created_at - {ms} WHERE idempotency_key = '{key}'"
        )
    };
    p.edit(aged("old", 24 * 60 * 60 * 1000)).await;
    p.edit(aged("young", 24 * 60 * 60 * 1000 - 600_000)).await;
    let Place { temp, authority } = p;
    authority.close().await;
    drop(authority);
    let by = operator();
    once_free(|| Authority::rekey(options_in(temp.path(), "main"), &by))
        .await
        .unwrap();
    let authority = opened(temp.path()).await.unwrap();
    let p = Place { temp, authority };
    let again = BegunRequest::Answered(201, "young".into());
    assert_eq!(begin(&p, "young").await.unwrap(), again);
    fresh(&p, "old").await;
}

#[tokio::test]
async fn an_edited_row_answers_nobody() {
    let edits: [&'static str; 5] = [
        "UPDATE idempotency_keys SET answer = '{\"id\":\"env_theirs\"}'",
        "UPDATE idempotency_keys SET status = 200",
        "UPDATE idempotency_keys SET made = 'x'",
        "UPDATE idempotency_keys SET request = x'00'",
        "UPDATE idempotency_keys SET idempotency_key = 'b'",
    ];
    for sql in edits {
        let p = Place::new().await;
        let claim = fresh(&p, "a").await;
        let answered = Ended::Answered(201, "{}");
        p.idempotency().end(claim, answered).await.unwrap();
        assert_eq!(p.edit(sql).await, 1, "{sql}");
        let key = if sql.contains("idempotency_key =") {
            "b"
        } else {
            "a"
        };
        assert!(is_corrupt(begin(&p, key).await), "{sql}");
    }
}

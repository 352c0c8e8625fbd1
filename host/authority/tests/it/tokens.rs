//! Bearer tokens: whose they are, for how long, and that no edit of their rows makes more of them.

use std::time::{Duration, Instant};

use leasehold_authority::*;

use crate::place::*;

fn new_token(role: Role) -> NewToken {
    NewToken {
        name: "ci".into(),
        role,
        expires_in: None,
    }
}

#[tokio::test]
async fn a_token_is_somebody_until_it_is_revoked_and_only_its_hash_is_kept() {
    let p = Place::new().await;
    let company = p.company("acme").await;
    let (token, bearer) = p
        .tokens()
        .create(&operator(), new_token(Role::agent(&company)))
        .await
        .unwrap();
    assert!(bearer.starts_with("lht_"));
    for _ in 0..2 {
        let actor = p.tokens().authenticate(&bearer).await.unwrap().unwrap();
        assert_eq!(
            actor.kind,
            ActorKind::Token {
                id: token.id.clone(),
                role: Role::agent(&company),
            }
        );
        assert_eq!(actor.companies(), Some(vec![company.as_str()]));
    }
    let last = if bearer.ends_with('a') { 'b' } else { 'a' };
    let other = format!("{}{last}", &bearer[..bearer.len() - 1]);
    for nobody in ["", "lht_", "x", &other] {
        assert_eq!(p.tokens().authenticate(nobody).await.unwrap(), None);
    }
    let rest = bearer.strip_prefix("lht_").unwrap();
    for file in std::fs::read_dir(p.temp.path().join("data")).unwrap() {
        let content = std::fs::read(file.unwrap().path()).unwrap();
        assert!(!content.windows(rest.len()).any(|w| w == rest.as_bytes()));
    }
    assert!(p.tokens().is_good(&token.id).await.unwrap());
    // Whoever goes on with it hears of its end, and not before.
    let tokens = p.tokens();
    let mut ended = std::pin::pin!(tokens.until_revoked(&token.id));
    assert!(
        tokio::time::timeout(std::time::Duration::from_millis(50), ended.as_mut())
            .await
            .is_err()
    );
    p.tokens().revoke(&operator(), &token.id).await.unwrap();
    tokio::time::timeout(std::time::Duration::from_secs(5), ended)
        .await
        .expect("the end is told at once");
    assert!(!p.tokens().is_good(&token.id).await.unwrap());
    assert!(!p.tokens().is_good("tok_none").await.unwrap());
    assert_eq!(
        p.tokens().authenticate(&bearer).await.unwrap(),
        None,
        "at once"
    );
    let p = p.again().await;
    assert_eq!(p.tokens().authenticate(&bearer).await.unwrap(), None);
    assert!(
        p.tokens().list(Some(&company)).await.unwrap()[0]
            .revoked_at
            .is_some()
    );
}

#[tokio::test]
async fn a_token_that_was_edited_is_nobody() {
    let p = Place::new().await;
    let company = p.company("acme").await;
    let new = new_token(Role::agent(company));
    let (_, bearer) = p.tokens().create(&operator(), new).await.unwrap();
    assert_eq!(
        p.edit("UPDATE tokens SET role = 'admin', companies = '[]'")
            .await,
        1
    );
    assert!(is_corrupt(p.tokens().authenticate(&bearer).await));
}

#[tokio::test]
async fn a_revoked_token_does_not_come_back_by_an_edit() {
    let p = Place::new().await;
    let new = new_token(Role::Admin);
    let (token, bearer) = p.tokens().create(&operator(), new).await.unwrap();
    p.tokens().revoke(&operator(), &token.id).await.unwrap();
    p.edit("UPDATE tokens SET revoked_at = NULL").await;
    assert!(is_corrupt(p.tokens().authenticate(&bearer).await));
}

#[tokio::test]
async fn an_edit_gives_a_token_no_further_company_no_other_run_and_no_longer_life() {
    let p = Place::new().await;
    let (here, there) = (p.company("acme").await, p.company("other").await);
    let role = Role::Agent {
        company: here.clone(),
        run: Some("r1".into()),
    };
    let bound = NewToken {
        expires_in: Some(3600),
        ..new_token(role.clone())
    };
    let (token, bearer) = p.tokens().create(&operator(), bound).await.unwrap();
    let who = p.tokens().authenticate(&bearer).await.unwrap().unwrap();
    assert_eq!(
        (who.run(), who.companies()),
        (Some("r1"), Some(vec![&*here]))
    );
    let member = new_token(Role::member(&here));
    let (_, board) = p.tokens().create(&operator(), member).await.unwrap();
    let p = p.again().await;
    for (edit, bearer) in [
        ("run = NULL", &bearer),
        ("run = 'r2'", &bearer),
        ("expires_at = NULL", &bearer),
        ("expires_at = expires_at + 1", &bearer),
        (&*format!("companies = '[\"{there}\"]'"), &bearer),
        (&*format!("companies = '[\"{here}\",\"{there}\"]'"), &board),
    ] {
        let role = if bearer == &board { "member" } else { "agent" };
        p.edit("CREATE TABLE kept AS SELECT * FROM tokens").await;
        p.edit(&format!("UPDATE tokens SET {edit} WHERE role = '{role}'"))
            .await;
        assert!(is_corrupt(p.tokens().authenticate(bearer).await), "{edit}");
        p.edit("DELETE FROM tokens; INSERT INTO tokens SELECT * FROM kept; DROP TABLE kept")
            .await;
    }
    assert!(p.tokens().is_good(&token.id).await.unwrap(), "put back");
}

#[tokio::test]
async fn a_token_of_several_companies_is_listed_in_each() {
    let p = Place::new().await;
    let (a, b, c) = (
        p.company("a").await,
        p.company("b").await,
        p.company("c").await,
    );
    let companies = [a.clone(), b.clone()].into();
    let new = new_token(Role::Member { companies });
    let (token, bearer) = p.tokens().create(&operator(), new).await.unwrap();
    for company in [&a, &b] {
        assert_eq!(
            p.tokens().list(Some(company)).await.unwrap(),
            std::slice::from_ref(&token)
        );
    }
    assert_eq!(p.tokens().list(Some(&c)).await.unwrap(), []);
    let who = p.tokens().authenticate(&bearer).await.unwrap().unwrap();
    let read = |company| {
        let scope = Scope::Company(company);
        decide(&who, Operation::GetEnvironment, scope)
    };
    assert_eq!(
        (read(&*a), read(&*b)),
        (Ok(View::Blanked), Ok(View::Blanked))
    );
    assert_eq!(read(&*c), Err(Denial::Hidden));
    let nowhere = new_token(Role::Member {
        companies: Default::default(),
    });
    assert_eq!(
        pointers(p.tokens().create(&operator(), nowhere).await),
        ["/companyIds"]
    );
    assert!(matches!(
        p.tokens()
            .create(&operator(), new_token(Role::agent("com_none")))
            .await,
        Err(Error::NotFound {
            what: "company",
            ..
        })
    ));
}

#[tokio::test]
async fn a_token_ends_at_its_expiry_also_where_it_was_known_from_memory() {
    let p = Place::new().await;
    let new = NewToken {
        expires_in: Some(1),
        ..new_token(Role::Admin)
    };
    let (token, bearer) = p.tokens().create(&operator(), new).await.unwrap();
    assert_eq!(token.expires_at, Some(token.created_at + 1000));
    assert!(p.tokens().authenticate(&bearer).await.unwrap().is_some());
    let tokens = p.tokens();
    tokio::time::timeout(Duration::from_secs(5), tokens.until_revoked(&token.id))
        .await
        .expect("whoever goes on with it hears of its end");
    assert_eq!(p.tokens().authenticate(&bearer).await.unwrap(), None);
    assert!(!p.tokens().is_good(&token.id).await.unwrap());
    let none = NewToken {
        expires_in: Some(0),
        ..new_token(Role::Admin)
    };
    assert_eq!(
        pointers(p.tokens().create(&operator(), none).await),
        ["/expiresInSeconds"]
    );
}

#[tokio::test]
async fn the_last_use_of_a_token_is_written_down() {
    let p = Place::new().await;
    let (token, bearer) = p
        .tokens()
        .create(&operator(), new_token(Role::Admin))
        .await
        .unwrap();
    assert_eq!(token.last_used_at, None);
    p.tokens().authenticate(&bearer).await.unwrap();
    let until = Instant::now() + Duration::from_secs(5);
    while p.tokens().list(None).await.unwrap()[0]
        .last_used_at
        .is_none()
    {
        assert!(Instant::now() < until, "never written");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn a_token_from_before_there_were_bounds_is_good_still() {
    let p = Place::new().await;
    let company = p.company("acme").await;
    let agent = new_token(Role::agent(&company));
    let (_, agent) = p.tokens().create(&operator(), agent).await.unwrap();
    let admin = new_token(Role::Admin);
    let (_, admin) = p.tokens().create(&operator(), admin).await.unwrap();
    p.edit(
        "CREATE TABLE former AS
             SELECT id, json_extract(companies, '$[0]') AS company_id, name, role, hash, created_by, created_at,
                    revoked_at, mac FROM tokens;
         DROP TABLE tokens; ALTER TABLE former RENAME TO tokens; DROP INDEX leases_by_run;
         DELETE FROM _sqlx_migrations WHERE version = 4",
    )
    .await;
    let p = p.again().await;
    let who = |bearer| {
        let tokens = p.tokens();
        async move { tokens.authenticate(bearer).await.unwrap().unwrap() }
    };
    assert_eq!(who(&*agent).await.companies(), Some(vec![&*company]));
    assert_eq!(who(&*admin).await.companies(), None);
}

#[tokio::test]
async fn a_revoked_token_stays_so_whatever_row_is_put_back_and_whatever_runs_inside_the_database() {
    let p = Place::new().await;
    let new = || new_token(Role::Admin);
    let (token, text) = p.tokens().create(&operator(), new()).await.unwrap();
    p.edit(format!(
        "CREATE TABLE kept AS SELECT * FROM tokens WHERE id = '{}'",
        token.id
    ))
    .await;
    p.tokens().revoke(&operator(), &token.id).await.unwrap();
    p.edit(format!("DELETE FROM tokens WHERE id = '{}'", token.id))
        .await;
    p.edit("INSERT INTO tokens SELECT * FROM kept").await;
    let p = p.again().await;
    assert!(!p.tokens().is_good(&token.id).await.unwrap());
    let known = p.tokens().authenticate(&text).await;
    assert!(!matches!(known, Ok(Some(_))), "{known:?}");
    // A trigger that keeps the row as it was: the revocation says that it did not happen, and the next start refuses.
    let (other, _) = p.tokens().create(&operator(), new()).await.unwrap();
    p.edit(
        "CREATE TRIGGER keep BEFORE UPDATE OF revoked_at ON tokens BEGIN SELECT RAISE(IGNORE); END",
    )
    .await;
    assert!(is_corrupt(p.tokens().revoke(&operator(), &other.id).await));
    let refused = p.next_start().await;
    assert!(
        matches!(&refused, Err(OpenError::Foreign { what, .. }) if what == "trigger keep"),
        "{refused:?}"
    );
}

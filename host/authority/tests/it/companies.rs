//! Companies, tokens, and what a role may never do.

use leasehold_authority::*;

use crate::place::*;

#[tokio::test]
async fn company_names_are_unique_checked_and_can_change() {
    let p = Place::new().await;
    let acme = p.companies().create(&operator(), " acme ").await.unwrap();
    assert_eq!(acme.name, "acme");
    assert_eq!(
        code_of(p.companies().create(&operator(), "acme").await),
        "company_name_taken"
    );
    for bad in ["", "  ", "a\nb", &"x".repeat(101)] {
        assert_eq!(
            pointers(p.companies().create(&operator(), bad).await),
            ["/name"]
        );
    }
    let other = p.company("other").await;
    assert_eq!(
        code_of(p.companies().rename(&operator(), &other, "acme").await),
        "company_name_taken"
    );
    p.companies()
        .rename(&operator(), &other, "zebra")
        .await
        .unwrap();
    let names: Vec<_> = p
        .companies()
        .list()
        .await
        .unwrap()
        .into_iter()
        .map(|c| c.name)
        .collect();
    assert_eq!(names, ["acme", "zebra"]);
    assert!(matches!(
        p.companies().get("com_none").await,
        Err(Error::NotFound {
            what: "company",
            ..
        })
    ));
}

#[tokio::test]
async fn a_token_is_somebody_until_it_is_revoked_and_only_its_hash_is_kept() {
    let p = Place::new().await;
    let company = p.company("acme").await;
    let new = |role, company| NewToken {
        name: "ci".into(),
        role,
        company,
    };
    let (token, bearer) = p
        .tokens()
        .create(&operator(), new(Role::Agent, Some(company.clone())))
        .await
        .unwrap();
    assert!(bearer.starts_with("lht_"));
    for _ in 0..2 {
        let actor = p.tokens().authenticate(&bearer).await.unwrap().unwrap();
        assert_eq!(
            actor.kind,
            ActorKind::Token {
                id: token.id.clone(),
                role: Role::Agent,
                company: Some(company.clone())
            }
        );
        assert!(actor.can_use(&company) && !actor.can_use("com_other") && !actor.can_manage());
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
    assert_eq!(
        pointers(p.tokens().create(&operator(), new(Role::Agent, None)).await),
        ["/companyId"]
    );
    assert_eq!(
        pointers(
            p.tokens()
                .create(&operator(), new(Role::Admin, Some(company)))
                .await
        ),
        ["/companyId"]
    );
}

#[tokio::test]
async fn a_token_that_was_edited_is_nobody() {
    let p = Place::new().await;
    let company = p.company("acme").await;
    let new = NewToken {
        name: "ci".into(),
        role: Role::Agent,
        company: Some(company),
    };
    let (_, bearer) = p.tokens().create(&operator(), new).await.unwrap();
    assert_eq!(
        p.edit("UPDATE tokens SET role = 'admin', company_id = NULL")
            .await,
        1
    );
    assert!(is_corrupt(p.tokens().authenticate(&bearer).await));
}

#[tokio::test]
async fn a_revoked_token_does_not_come_back_by_an_edit() {
    let p = Place::new().await;
    let new = NewToken {
        name: "ops".into(),
        role: Role::Admin,
        company: None,
    };
    let (token, bearer) = p.tokens().create(&operator(), new).await.unwrap();
    p.tokens().revoke(&operator(), &token.id).await.unwrap();
    p.edit("UPDATE tokens SET revoked_at = NULL").await;
    assert!(is_corrupt(p.tokens().authenticate(&bearer).await));
}

#[tokio::test]
async fn an_agent_manages_nothing_and_another_company_is_not_there() {
    let p = Place::new().await;
    let f = p.furnished().await;
    let agent_here = agent(&f.company);
    assert!(matches!(
        p.companies().create(&agent_here, "x").await,
        Err(Error::Forbidden { .. })
    ));
    assert!(matches!(
        p.secrets()
            .create(&agent_here, &f.company, "x", None, bytes("x"))
            .await,
        Err(Error::Forbidden { .. })
    ));
    assert!(matches!(
        p.environments()
            .delete(&agent_here, &f.environment.id)
            .await,
        Err(Error::Forbidden { .. })
    ));
    assert!(matches!(
        p.plugins().set_enabled(&agent_here, "ssh", false).await,
        Err(Error::Forbidden { .. })
    ));
    assert!(matches!(
        p.leases().begin(&agent("com_other"), f.intent()).await,
        Err(Error::NotFound {
            what: "environment",
            ..
        })
    ));
    let lease = p
        .leases()
        .begin(&agent_here, f.intent())
        .await
        .unwrap()
        .lease;
    assert!(matches!(
        p.leases()
            .request_release(&agent("com_other"), &lease.id, "requested", Handling::Mine)
            .await,
        Err(Error::NotFound { what: "lease", .. })
    ));
    assert_eq!(
        p.leases().get(&lease.id).await.unwrap().epoch,
        1,
        "nothing changed"
    );
}

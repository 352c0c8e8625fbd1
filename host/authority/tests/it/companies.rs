//! Companies, and what a role may never do.

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
            .create(&agent_here, new_secret(Some(&f.company), "x", "x"))
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

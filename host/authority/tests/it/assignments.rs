//! Assignments: rows that are believed, links that lead somewhere, what decides, and what a deletion clears.

use leasehold_authority::*;

use crate::place::*;

fn new(id: &str) -> NewAssignee {
    NewAssignee {
        id: Some(id.to_owned()),
        ..NewAssignee::default()
    }
}

async fn make(p: &Place, kind: AssigneeKind, company: &str, new: NewAssignee) -> Assignee {
    let rows = p.authority.assignees();
    rows.create(&operator(), kind, company, new).await.unwrap()
}

fn to(environment: Option<&str>) -> AssigneePatch {
    AssigneePatch {
        name: None,
        environment: Some(environment.map(str::to_owned)),
    }
}

#[tokio::test]
async fn the_levels_decide_in_their_order_and_links_are_followed() {
    let p = Place::new().await;
    let f = p.furnished().await;
    let rows = p.authority.assignees();
    let company = &f.company;
    make(&p, AssigneeKind::Agent, company, new("a")).await;
    make(&p, AssigneeKind::Project, company, new("p")).await;
    let of_project = |id: &str| NewAssignee {
        links: Links {
            project: Some("p".into()),
            ..Links::default()
        },
        ..new(id)
    };
    make(&p, AssigneeKind::Workspace, company, of_project("w")).await;
    make(&p, AssigneeKind::Issue, company, of_project("i")).await;
    let run = NewAssignee {
        links: Links {
            agent: Some("a".into()),
            workspace: Some("w".into()),
            issue: Some("i".into()),
            project: None,
        },
        ..new("r")
    };
    make(&p, AssigneeKind::Run, company, run).await;
    let whose = WhoseAssignment {
        run: Some("r".into()),
        ..WhoseAssignment::default()
    };
    let decided = async || {
        let resolution = rows.resolve(company, &whose).await.unwrap();
        let decided = resolution.decided();
        decided.map(|said| (said.level, said.by.clone().unwrap_or_default()))
    };
    assert_eq!(decided().await, None);
    p.environments()
        .set_default(&operator(), Some(company), Some(&f.environment.id))
        .await
        .unwrap();
    let default = Some((Level::CompanyDefault, String::new()));
    assert_eq!(decided().await, default);
    let env = Some(f.environment.id.as_str());
    for (kind, id, level) in [
        (AssigneeKind::Agent, "a", Level::Agent),
        (AssigneeKind::Project, "p", Level::Project),
        (AssigneeKind::Issue, "i", Level::Issue),
        (AssigneeKind::Workspace, "w", Level::Workspace),
    ] {
        rows.update(&operator(), kind, id, to(env)).await.unwrap();
        assert_eq!(decided().await, Some((level, id.to_owned())));
    }
    let counts = rows.assigned(&f.environment.id).await.unwrap();
    let each = AssignmentCounts {
        agents: 1,
        projects: 1,
        workspaces: 1,
        issues: 1,
    };
    assert_eq!(counts, each);
    // Another number of each kind, so that none is told in the place of another.
    for (kind, more) in [
        (AssigneeKind::Project, 1),
        (AssigneeKind::Issue, 2),
        (AssigneeKind::Workspace, 3),
    ] {
        for at in 0..more {
            let further = NewAssignee {
                environment: Some(f.environment.id.clone()),
                ..new(&format!("further {at}"))
            };
            make(&p, kind, company, further).await;
        }
    }
    let radius = p.environments().blast_radius(&f.environment.id).await;
    let told = radius.unwrap().static_references;
    assert_eq!(
        (
            told.agent_default_count,
            told.project_selection_count,
            told.issue_selection_count,
            told.execution_workspace_selection_count
        ),
        (1, 2, 3, 4)
    );
    rows.update(&operator(), AssigneeKind::Workspace, "w", to(None))
        .await
        .unwrap();
    assert_eq!(decided().await, Some((Level::Issue, "i".to_owned())));
    // What is named beside a run must be the run's own.
    let other = WhoseAssignment {
        links: Links {
            agent: Some("b".into()),
            ..Links::default()
        },
        ..whose.clone()
    };
    let contradiction = rows.resolve(company, &other).await;
    assert_eq!(pointers(contradiction), ["/agentId"]);
    // A deletion clears what it was assigned to, and the rows are believed after it.
    p.environments()
        .delete(&operator(), &f.environment.id)
        .await
        .unwrap();
    assert_eq!(decided().await, None);
    assert_eq!(
        rows.assigned(&f.environment.id).await.unwrap(),
        AssignmentCounts::default()
    );
}

#[tokio::test]
async fn only_an_active_environment_that_the_company_sees_is_assigned() {
    let p = Place::new().await;
    let f = p.furnished().await;
    let rows = p.authority.assignees();
    let manager = operator();
    let foreign = p.company("foreign").await;
    make(&p, AssigneeKind::Agent, &foreign, new("theirs")).await;
    make(&p, AssigneeKind::Agent, &f.company, new("ours")).await;
    let id = f.environment.id.as_str();
    let stranger = rows.update(&manager, AssigneeKind::Agent, "theirs", to(Some(id)));
    assert!(matches!(
        stranger.await,
        Err(Error::NotFound {
            what: "environment",
            ..
        })
    ));
    let nothing = rows.update(&manager, AssigneeKind::Agent, "ours", to(Some("env_no")));
    assert!(matches!(
        nothing.await,
        Err(Error::NotFound {
            what: "environment",
            ..
        })
    ));
    let local = p.environments().ensure_local(&operator()).await.unwrap();
    let own_machine = rows
        .update(&manager, AssigneeKind::Agent, "ours", to(Some(&local.id)))
        .await;
    assert_eq!(pointers(own_machine), ["/environmentId"]);
    p.environments().archive(&operator(), id).await.unwrap();
    let archived = rows
        .update(&operator(), AssigneeKind::Agent, "ours", to(Some(id)))
        .await;
    assert_eq!(code_of(archived), "environment_inactive");
    p.environments().activate(&operator(), id).await.unwrap();
    let assign = to(Some(id));
    rows.update(&operator(), AssigneeKind::Agent, "ours", assign.clone())
        .await
        .unwrap();
    // One that was archived since may stay, and is renamed beside it.
    p.environments().archive(&operator(), id).await.unwrap();
    let renamed = AssigneePatch {
        name: Some(Some("Ours".into())),
        environment: assign.environment.clone(),
    };
    let row = rows
        .update(&operator(), AssigneeKind::Agent, "ours", renamed)
        .await
        .unwrap();
    assert_eq!(row.name.as_deref(), Some("Ours"));
    let run = NewAssignee {
        environment: Some(id.to_owned()),
        ..new("r")
    };
    let run = rows
        .create(&operator(), AssigneeKind::Run, &f.company, run)
        .await;
    assert_eq!(pointers(run), ["/environmentId"]);
    // Nobody but whoever manages.
    let mine = agent(&f.company);
    let denied = rows
        .update(&mine, AssigneeKind::Agent, "ours", assign)
        .await;
    assert!(matches!(denied, Err(Error::Forbidden { .. })), "{denied:?}");
    let denied = rows
        .create(&mine, AssigneeKind::Run, &f.company, new("r"))
        .await;
    assert!(matches!(denied, Err(Error::Forbidden { .. })), "{denied:?}");
}

#[tokio::test]
async fn ids_are_taken_once_and_links_lead_to_rows_of_the_company() {
    let p = Place::new().await;
    let f = p.furnished().await;
    let rows = p.authority.assignees();
    let foreign = p.company("foreign").await;
    make(&p, AssigneeKind::Project, &foreign, new("p")).await;
    let taken = rows
        .create(&operator(), AssigneeKind::Project, &f.company, new("p"))
        .await;
    assert_eq!(code_of(taken), "conflict");
    let made = make(&p, AssigneeKind::Issue, &f.company, NewAssignee::default()).await;
    assert!(made.id.starts_with("iss_"), "{}", made.id);
    for (kind, links, pointer) in [
        (
            AssigneeKind::Issue,
            Links {
                project: Some("p".into()),
                ..Links::default()
            },
            "/projectId",
        ),
        (
            AssigneeKind::Agent,
            Links {
                issue: Some(made.id.clone()),
                ..Links::default()
            },
            "/issueId",
        ),
        (
            AssigneeKind::Run,
            Links {
                agent: Some("nobody".into()),
                ..Links::default()
            },
            "/agentId",
        ),
    ] {
        let new = NewAssignee {
            links,
            ..NewAssignee::default()
        };
        let wrong = rows.create(&operator(), kind, &f.company, new).await;
        assert_eq!(pointers(wrong), [pointer], "{kind:?}");
    }
    let here = |id: &str| WhoseAssignment {
        links: Links {
            project: Some(id.to_owned()),
            ..Links::default()
        },
        ..WhoseAssignment::default()
    };
    let stranger = rows.resolve(&f.company, &here("p")).await;
    assert!(
        matches!(
            stranger,
            Err(Error::NotFound {
                what: "project",
                ..
            })
        ),
        "{stranger:?}"
    );
    for id in 0..5 {
        make(&p, AssigneeKind::Agent, &f.company, new(&format!("a{id}"))).await;
    }
    let mut seen = Vec::new();
    let mut cursor: Option<String> = None;
    loop {
        let page = rows
            .list(AssigneeKind::Agent, &f.company, cursor.as_deref(), 2)
            .await
            .unwrap();
        seen.extend(page.items.into_iter().map(|row| row.id));
        match page.next {
            Some(next) => cursor = Some(next),
            None => break,
        }
    }
    assert_eq!(seen, ["a0", "a1", "a2", "a3", "a4"]);
    let wrong = rows
        .list(AssigneeKind::Agent, &f.company, Some("x"), 2)
        .await;
    assert_eq!(pointers(wrong), ["?cursor"]);
}

#[tokio::test]
async fn a_row_that_was_edited_in_the_database_decides_nothing() {
    let p = Place::new().await;
    let f = p.furnished().await;
    let rows = p.authority.assignees();
    make(&p, AssigneeKind::Agent, &f.company, new("a")).await;
    let forged = format!(
        "UPDATE assignees SET environment_id = '{}'",
        f.environment.id
    );
    assert_eq!(p.edit(forged).await, 1);
    assert!(is_corrupt(rows.get(AssigneeKind::Agent, "a").await));
    let whose = WhoseAssignment {
        links: Links {
            agent: Some("a".into()),
            ..Links::default()
        },
        ..WhoseAssignment::default()
    };
    assert!(is_corrupt(rows.resolve(&f.company, &whose).await));
}

#[tokio::test]
async fn a_run_that_ends_takes_its_leases_along_in_one_step_and_nothing_begins_for_it_any_more() {
    let p = Place::new().await;
    let f = p.furnished().await;
    let other = p.company("other").await;
    let run = |id: &str| new(id);
    make(&p, AssigneeKind::Run, &f.company, run("r1")).await;
    make(&p, AssigneeKind::Run, &other, run("r2")).await;
    let begin = async |who: &Actor, run: Option<&str>| {
        let caller = CallerRefs {
            run: run.map(str::to_owned),
            ..CallerRefs::default()
        };
        let intent = AcquireIntent {
            caller,
            ..f.intent()
        };
        p.leases().begin(who, intent).await.map(|begun| begun.lease)
    };
    let first = begin(&operator(), Some("r1")).await.unwrap();
    let second = begin(&operator(), Some("r1")).await.unwrap();
    // Of the same name in another company, and of no run.
    let foreign = begin(&operator(), Some("r2")).await.unwrap();
    let free = begin(&operator(), None).await.unwrap();
    // Something unsafe was sent for one of them: it is to be looked for.
    p.leases()
        .unsafe_sent(&first.id, first.epoch)
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
    for stranger in [agent(&other), of_run("r9")] {
        let refused = p.leases().end_run(&stranger, "r1").await;
        assert!(
            matches!(refused, Err(Error::NotFound { .. })),
            "{refused:?}"
        );
    }
    let ended = p.leases().end_run(&of_run("r1"), "r1").await.unwrap();
    assert!(ended.run.ended_at.is_some());
    let mut ids: Vec<&str> = ended.leases.iter().map(|l| &*l.lease.id).collect();
    ids.sort_unstable();
    let mut both = [&*first.id, &*second.id];
    both.sort_unstable();
    assert_eq!(ids, both);
    let status = async |id: &str| p.leases().get(id).await.unwrap().status;
    assert_eq!(status(&first.id).await, Status::Releasing);
    // Nothing was sent for the other: it is over.
    assert_eq!(status(&second.id).await, Status::Failed);
    for untouched in [&foreign, &free] {
        assert_eq!(status(&untouched.id).await, Status::Acquiring);
    }
    assert_eq!(code_of(begin(&operator(), Some("r1")).await), "run_ended");
    begin(&operator(), Some("r2")).await.unwrap();
    // It stays over, whatever is asked and whoever edits it, and its release is worked on.
    let again = p.leases().end_run(&operator(), "r1").await.unwrap();
    assert_eq!(
        (again.leases.len(), again.run.ended_at),
        (0, ended.run.ended_at)
    );
    let work = p.leases().claim_work(10).await.unwrap();
    assert!(work.iter().any(|lease| lease.id == first.id), "{work:?}");
    p.edit("UPDATE assignees SET ended_at = NULL WHERE id = 'r1'")
        .await;
    assert!(is_corrupt(begin(&operator(), Some("r1")).await));
}

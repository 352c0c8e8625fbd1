//! `kill -9` while a server writes: whatever it said is there, and nothing is half done.

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};

use leasehold_authority::*;

use crate::leases::activation;
use crate::place::*;

const ROOT: &str = "LEASEHOLD_TEST_CRASH_ROOT";

/// Not a test of its own: the server that is killed. Says what is durable, after it is.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "run by the test below, in a process of its own"]
async fn a_server_that_writes_until_it_is_killed() {
    let Some(root) = std::env::var_os(ROOT) else {
        return;
    };
    let authority = Authority::open(options_in(root.as_ref(), "main"))
        .await
        .unwrap();
    let company = authority.companies().list().await.unwrap()[0].id.clone();
    let environment = authority
        .environments()
        .list(&company, &EnvironmentFilter::default())
        .await
        .unwrap()[0]
        .clone();
    let plugin = authority.plugins().get("ssh").await.unwrap();
    let f = Furniture {
        company,
        plugin,
        secret: String::new(),
        environment,
    };
    let lives: Vec<_> = (0..4)
        .map(|_| tokio::spawn(live(authority.clone(), f.intent())))
        .collect();
    for life in lives {
        life.await.unwrap().unwrap();
    }
}

/// One lease after another, said step by step.
async fn live(authority: Authority, intent: AcquireIntent) -> Result<(), Error> {
    let (leases, executions, by) = (authority.leases(), authority.executions(), operator());
    loop {
        let lease = leases.begin(&by, intent.clone()).await?.lease;
        println!("begun {}", lease.id);
        leases.unsafe_sent(&lease.id, 1).await?;
        leases
            .apply(&by, &lease.id, 1, activation(&lease.acquisition))
            .await?;
        println!("active {}", lease.id);
        let new = NewExecution {
            argv: vec!["true".into()],
            ..Default::default()
        };
        let execution = executions.begin(&by, &lease.id, 1, new).await?;
        executions
            .settle(&by, &execution.id, Outcome::Exited(0))
            .await?;
        println!("settled {}", execution.id);
        let t = leases
            .request_release(&by, &lease.id, "requested", Handling::Mine)
            .await?;
        leases
            .apply(&by, &lease.id, t.lease.epoch, Event::ReleaseConfirmed)
            .await?;
        println!("released {}", lease.id);
    }
}

#[tokio::test]
async fn whatever_a_killed_server_said_is_true_after_a_restart() {
    let mut p = Place::new().await;
    p.furnished().await;
    for round in 0..6u64 {
        let Place { temp, authority } = p;
        authority.close().await;
        drop(authority);
        let mut server = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "crash::a_server_that_writes_until_it_is_killed"])
            .args(["--ignored", "--nocapture", "--test-threads=1"])
            .env(ROOT, temp.path())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        // Killed in the middle of work: after a number of lines that differs in every round.
        let lines = BufReader::new(server.stdout.take().unwrap()).lines();
        let mut said = Vec::new();
        let is_said = |l: &String| {
            ["begun ", "active ", "settled ", "released "]
                .iter()
                .any(|w| l.starts_with(w))
        };
        for line in lines.map_while(Result::ok).filter(is_said) {
            said.push(line);
            if said.len() as u64 == 40 + round * 37 {
                server.kill().unwrap();
            }
        }
        server.wait().unwrap();
        assert!(said.len() >= 40, "{said:?}");

        let authority = Authority::open(options_in(temp.path(), "main"))
            .await
            .unwrap();
        p = Place { temp, authority };
        p.activity().verify(None).await.unwrap();
        for line in &said {
            let (word, id) = line.split_once(' ').unwrap();
            if word == "settled" {
                let e = p.executions().get(id).await.unwrap();
                assert_eq!(e.outcome, Some(Outcome::Exited(0)), "{line}");
                continue;
            }
            let lease = p.leases().get(id).await.unwrap();
            let reached = match word {
                "begun" => true,
                "active" => lease.acquired_at.is_some(),
                _ => lease.status == Status::Released,
            };
            assert!(reached, "{line}: {:?}", lease.status);
        }
        // Every lease has exactly the steps that its state says, and what was under way is work again.
        let odd = p
            .count(
                "SELECT COUNT(*) FROM leases l WHERE
                   (SELECT COUNT(*) FROM activity a WHERE a.subject = l.id AND a.action = 'lease.begun') <> 1
                   OR (l.acquired_at IS NOT NULL) <> (SELECT COUNT(*) FROM activity a
                       WHERE a.subject = l.id AND a.action = 'lease.active')
                   OR (l.status = 'released') <> (SELECT COUNT(*) FROM activity a
                       WHERE a.subject = l.id AND a.action = 'lease.released')",
            )
            .await;
        assert_eq!(odd, 0);
        let waiting = p
            .count("SELECT COUNT(*) FROM leases WHERE status IN ('acquiring', 'releasing')")
            .await;
        let work = p.leases().claim_work(1000).await.unwrap();
        assert_eq!(work.len() as i64, waiting);
        for lease in work {
            let t = p
                .leases()
                .request_release(&operator(), &lease.id, "crash", Handling::Mine)
                .await
                .unwrap();
            if !t.lease.status.is_terminal() {
                p.leases()
                    .apply(
                        &operator(),
                        &lease.id,
                        t.lease.epoch,
                        Event::ReleaseConfirmed,
                    )
                    .await
                    .unwrap();
            }
        }
    }
}

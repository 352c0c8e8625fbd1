//! Nothing of a lease outlives it, whatever it did to hide; and signals reach all that a command started.

use std::sync::Arc;

use leasehold_contract::{Code, CommandState, Ended, ProcessEvent};
use leasehold_egress::Payloads;
use leasehold_parts::Options;

use crate::lab::{isolated, lab, read, text, until};

/// Ways out of a session, each leaves a `sleep` with a number of its own.
const ESCAPES: [(&str, &str); 7] = [
    ("background", "sleep 7001 & echo on; wait"),
    (
        "setsid",
        "setsid sleep 7002 >/dev/null 2>&1 </dev/null & echo on; sleep 0.2",
    ),
    (
        "double fork",
        "(setsid sh -c 'sleep 7003 & sleep 7103 &' >/dev/null 2>&1 </dev/null &); echo on; sleep 0.2",
    ),
    (
        "empty environment",
        "(env -i sleep 7004 >/dev/null 2>&1 </dev/null &); echo on; sleep 0.2",
    ),
    (
        "elsewhere",
        "cd / && (setsid sleep 7005 >/dev/null 2>&1 </dev/null &); echo on; sleep 0.2",
    ),
    (
        "nohup, ignoring",
        "(trap '' HUP TERM INT; nohup setsid sh -c 'trap \"\" TERM; while :; do sleep 7006; done' >/dev/null 2>&1 </dev/null &); echo on; sleep 0.2",
    ),
    (
        "open file only",
        "exec 9>keep; (cd / && env -i setsid sleep 7007 >/dev/null 2>&1 </dev/null &); echo on; sleep 0.2",
    ),
];

fn sleepers(lab: &crate::lab::Lab) -> Vec<String> {
    let all = lab.sshd.processes();
    all.into_iter()
        .map(|p| p.arguments)
        .filter(|a| a.contains("sleep 7"))
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn release_ends_every_process_of_the_lease_however_it_left_its_session() {
    let Some(lab) = isolated(&Options::default()) else {
        return;
    };
    let (lease, workspace) = lab.leased("a1").await;
    // Another lease of the same account, and a process of nobody's, must live.
    let other = lab.lease(&lab.worker(), "other");
    other.make().await.unwrap();
    let mut bystander = other.start("x", "echo on; exec sleep 8001").await.unwrap();
    bystander.output.next().await.unwrap();
    let session = lab.open(&lab.target(&lab.worker())).await.unwrap();
    crate::lab::run(
        &session,
        "setsid sleep 8002 >/dev/null 2>&1 </dev/null & sleep 0.2",
    )
    .await
    .unwrap();

    let mut held = Vec::new();
    for (n, (name, script)) in ESCAPES.iter().enumerate() {
        let mut process = lease.start(&format!("x{n}"), script).await.unwrap();
        match process.output.next().await {
            Some(ProcessEvent::Stdout(b)) => assert_eq!(&b[..], b"on\n", "{name}"),
            other => panic!("{name}: {other:?}"),
        }
        held.push(process);
    }
    for n in 7001..=7007 {
        until(&format!("sleep {n} runs"), async || {
            sleepers(&lab).iter().any(|s| s.contains(&n.to_string()))
        })
        .await;
    }
    let left = lease.gone().await;
    assert!(
        left.workspace && left.processes.len() >= ESCAPES.len(),
        "{left:?}"
    );

    lease.remove().await.unwrap();
    let gone = lease.gone().await;
    assert!(gone.confirmed(), "{gone:?}");
    assert_eq!(sleepers(&lab), Vec::<String>::new());
    assert!(!std::path::Path::new(&workspace.path).exists());
    let alive = lab.sshd.processes();
    for n in ["sleep 8001", "sleep 8002"] {
        assert!(
            alive.iter().any(|p| p.arguments.contains(n)),
            "{n} is none of its business"
        );
    }
    assert_eq!(other.state("x").await, CommandState::Running);
    lease.remove().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fork_bomb_of_short_lived_processes_is_outrun() {
    let Some(lab) = isolated(&Options::default()) else {
        return;
    };
    let (lease, _) = lab.leased("a1").await;
    let script = "trap '' TERM HUP; f() { sh -c 'sleep 0.3' & sleep 0.1; (f) & }; for i in 1 2 3 4 5; do (while :; do (sleep 7008 & sleep 0.05; kill $!) ; done) & done; echo on; wait";
    let mut process = lease.start("x", script).await.unwrap();
    process.output.next().await.unwrap();
    lease.remove().await.unwrap();
    let gone = lease.gone().await;
    assert!(gone.confirmed(), "{gone:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_signal_reaches_everything_that_the_command_started_and_nothing_else() {
    let Some(lab) = isolated(&Options::default()) else {
        return;
    };
    let (lease, _) = lab.leased("a1").await;
    let mut one = lease
        .start(
            "one",
            "sleep 7011 & setsid sleep 7012 & echo on; wait; echo never",
        )
        .await
        .unwrap();
    one.output.next().await.unwrap();
    let mut two = lease.start("two", "echo on; sleep 7013").await.unwrap();
    two.output.next().await.unwrap();
    lease.signal("one", "TERM").await.unwrap();
    let (out, _, ended) = read(one).await;
    assert_eq!((out.as_str(), ended), ("", Ended::Signalled("TERM".into())));
    assert_eq!(
        lease.state("one").await,
        CommandState::Signalled("TERM".into())
    );
    let left = sleepers(&lab);
    assert!(
        left.iter().all(|s| s.contains("7013")) && !left.is_empty(),
        "{left:?}"
    );
    let e = lease.signal("one", "TERM").await.unwrap_err();
    assert_eq!(e.code, Code::NotFound, "{e}");
    let e = lease.signal("two", "NOPE").await.unwrap_err();
    assert_eq!(e.code, Code::InvalidConfig, "{e}");

    lease.signal("two", "STOP").await.unwrap();
    assert_eq!(lease.state("two").await, CommandState::Running);
    lease.signal("two", "KILL").await.unwrap();
    let (_, _, ended) = read(two).await;
    assert_eq!(ended, Ended::Signalled("KILL".into()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_value_with_every_quote_is_in_no_process_arguments_on_either_side() {
    let Some(lab) = isolated(&Options::default()) else {
        return;
    };
    let (mut lease, _) = lab.leased("a1").await;
    let secret = "canary'\"`$(x)\\-9f3a7c51";
    let mut payloads = Payloads::none();
    payloads.insert("placeholder-0123456789", secret);
    lease.payloads = Arc::new(payloads);
    let script = "printf '%s' \"$TOKEN\"; cat >/dev/null; sleep 7021";
    let mut process = lease
        .start_with(
            "x",
            script,
            &["argument-9f3a7c52"],
            &[("TOKEN", "placeholder-0123456789")],
            None,
        )
        .await
        .unwrap();
    match process.output.next().await {
        Some(ProcessEvent::Stdout(b)) => assert_eq!(&b[..], secret.as_bytes()),
        other => panic!("{other:?}"),
    }
    process.input.end().await.unwrap();
    until("it sleeps", async || !sleepers(&lab).is_empty()).await;
    // Every process of the machine, ours too.
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let line = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line);
        for canary in ["9f3a7c51", "9f3a7c52"] {
            assert!(!line.contains(canary), "{}: {line}", entry.path().display());
        }
    }
    lease.remove().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_takes_too_long_is_stopped_with_what_it_started() {
    let Some(lab) = isolated(&Options::default()) else {
        return;
    };
    let (lease, _) = lab.leased("a1").await;
    let session = lease.session().await;
    let e = session
        .run(
            "setsid sleep 7031 & sleep 7032".into(),
            Vec::new(),
            Vec::new(),
            leasehold_contract::Content::None,
            100,
            Some(std::time::Duration::from_millis(700)),
        )
        .await
        .unwrap_err();
    assert_eq!(e.code, Code::OutcomeUnknown, "{e}");
    assert_eq!(sleepers(&lab), Vec::<String>::new());
    // And the session works on.
    let out = crate::lab::run(&session, "echo on").await.unwrap();
    assert_eq!(text(&out.stdout), "on\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_others_of_the_machine_call_their_processes_and_files_forges_nothing() {
    let Some(lab) = lab(&Options::default()) else {
        return;
    };
    let (lease, workspace) = lab.leased("a1").await;
    // A process whose name is a line of /proc and whose open file is one of ours.
    let script = "cp /bin/sleep \"$(printf 'a) S 1\\n1 (b')\" 2>/dev/null; ./a* 7041 & exec 8>\"$(printf 'x\\nmark /proc/1/environ')\"; echo on; wait";
    let mut process = lease.start("x", script).await.unwrap();
    process.output.next().await.unwrap();
    lease.remove().await.unwrap();
    assert!(lease.gone().await.confirmed());
    assert!(!std::path::Path::new(&workspace.path).exists());
}

//! Supervised commands: their ends, their records, what becomes of them when the stream is lost.

use std::time::Duration;

use leasehold_contract::{Code, CommandState, Ended, ProcessEvent, Size};
use leasehold_parts::Options;

use crate::lab::{Lab, isolated, lab, read, until};

#[tokio::test(flavor = "multi_thread")]
async fn every_exit_status_from_0_to_255_is_told_live_and_by_the_record() {
    let Some(lab) = lab(&Options::default()) else {
        return;
    };
    let (lease, _) = lab.leased("a1").await;
    // 256 commands, eight at a time.
    for chunk in (0..256).collect::<Vec<i32>>().chunks(8) {
        let all = chunk.iter().map(|n| {
            let (id, script) = (format!("x{n}"), format!("exit {n}"));
            let lease = &lease;
            async move { (*n, lease.all(&id, &script).await) }
        });
        for (n, (out, err, ended)) in futures_util::future::join_all(all).await {
            assert_eq!((out.as_str(), err.as_str()), ("", ""), "{n}");
            assert_eq!(ended, Ended::Exited(n));
        }
    }
    for n in [0, 1, 2, 126, 127, 128, 130, 137, 143, 254, 255] {
        assert_eq!(lease.state(&format!("x{n}")).await, CommandState::Exited(n));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_death_by_signal_is_never_taken_for_the_exit_status_that_looks_like_it() {
    let Some(lab) = lab(&Options::default()) else {
        return;
    };
    let (lease, _) = lab.leased("a1").await;
    for signal in [
        "HUP", "INT", "QUIT", "KILL", "TERM", "SEGV", "ABRT", "PIPE", "ALRM", "USR1", "USR2",
    ] {
        let id = format!("x-{}", signal.to_lowercase());
        let (_, _, ended) = lease
            .all(&id, &format!("kill -s {signal} $$; sleep 60"))
            .await;
        assert_eq!(ended, Ended::Signalled(signal.into()));
        assert_eq!(
            lease.state(&id).await,
            CommandState::Signalled(signal.into())
        );
    }
    // A signal that servers have no name for: the record has.
    let (_, _, ended) = lease.all("x-bus", "kill -s BUS $$; sleep 60").await;
    assert_eq!(ended, Ended::Ask);
    assert_eq!(
        lease.state("x-bus").await,
        CommandState::Signalled("BUS".into())
    );
    let (_, _, ended) = lease.all("x-143", "exit 143").await;
    assert_eq!(ended, Ended::Exited(143));
    assert_eq!(lease.state("x-143").await, CommandState::Exited(143));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cut_connection_is_a_lost_stream_and_the_record_settles_it_later() {
    let Some(lab) = isolated(&Options::default()) else {
        return;
    };
    let (lease, workspace) = lab.leased("a1").await;
    for (id, tty) in [("plain", None), ("term", Some(Size { cols: 80, rows: 24 }))] {
        let go = format!("{}/go-{id}", workspace.path);
        let script = format!("echo started; until [ -e {go} ]; do sleep 0.05; done; exit 42");
        let mut process = lease.start_with(id, &script, &[], &[], tty).await.unwrap();
        match process.output.next().await {
            Some(ProcessEvent::Stdout(b)) => assert!(b.starts_with(b"started")),
            other => panic!("{other:?}"),
        }
        lab.sshd.cut();
        let (_, _, ended) = read(process).await;
        assert!(matches!(ended, Ended::Lost(_)), "{id}: {ended:?}");
        assert_eq!(lease.state(id).await, CommandState::Running, "{id}");
        std::fs::write(&go, "").unwrap();
        until("the command has ended", async || {
            lease.state(id).await != CommandState::Running
        })
        .await;
        assert_eq!(lease.state(id).await, CommandState::Exited(42), "{id}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_that_reads_a_terminal_which_hung_up_sees_the_end_of_its_input() {
    let Some(lab) = isolated(&Options::default()) else {
        return;
    };
    let (lease, _) = lab.leased("a1").await;
    let size = Some(Size { cols: 80, rows: 24 });
    let mut process = lease
        .start_with("x", "echo on; cat >/dev/null; exit 6", &[], &[], size)
        .await
        .unwrap();
    process.output.next().await.unwrap();
    lab.sshd.cut();
    until("it has ended", async || {
        lease.state("x").await != CommandState::Running
    })
    .await;
    assert_eq!(lease.state("x").await, CommandState::Exited(6));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_id_starts_once_and_one_that_was_asked_for_first_never_starts() {
    let Some(lab) = lab(&Options::default()) else {
        return;
    };
    let (lease, workspace) = lab.leased("a1").await;
    let script = format!("echo ran >>{}/log", workspace.path);
    let (_, _, ended) = lease.all("x1", &script).await;
    assert_eq!(ended, Ended::Exited(0));
    let e = lease.start("x1", &script).await.unwrap_err();
    assert_eq!(e.code, Code::AlreadyExists, "{e}");

    assert!(matches!(
        lease.state("x2").await,
        CommandState::NotStarted(_)
    ));
    let e = lease.start("x2", &script).await.unwrap_err();
    assert_eq!(e.code, Code::AlreadyExists, "{e}");
    assert!(
        matches!(lease.state("x2").await, CommandState::NotStarted(_)),
        "and it stays so"
    );
    let log = std::fs::read_to_string(format!("{}/log", workspace.path)).unwrap();
    assert_eq!(log, "ran\n", "one command ran, once");
}

#[tokio::test(flavor = "multi_thread")]
async fn of_many_starts_of_one_id_at_once_exactly_one_runs() {
    let Some(lab) = lab(&Options::default()) else {
        return;
    };
    let (lease, workspace) = lab.leased("a1").await;
    let script = format!("echo ran >>{}/log", workspace.path);
    let all = (0..8).map(|_| lease.start("same", &script));
    let mut started = 0;
    for done in futures_util::future::join_all(all).await {
        match done {
            Ok(process) => {
                started += 1;
                read(process).await;
            }
            Err(e) => assert_eq!(e.code, Code::AlreadyExists, "{e}"),
        }
    }
    assert_eq!(started, 1);
    let log = std::fs::read_to_string(format!("{}/log", workspace.path)).unwrap();
    assert_eq!(log, "ran\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_supervisor_that_was_killed_leaves_an_unknown_end_once_nothing_of_the_command_lives() {
    let Some(lab) = isolated(&Options::default()) else {
        return;
    };
    let (lease, _) = lab.leased("a1").await;
    let mut process = lease.start("x", "echo on; exec sleep 600").await.unwrap();
    process.output.next().await.unwrap();
    let supervisor = |lab: &Lab| {
        let all = lab.sshd.processes();
        all.into_iter()
            .find(|p| p.arguments.contains("BEGIN"))
            .map(|p| p.pid)
    };
    let pid = supervisor(&lab).expect("a supervisor");
    std::process::Command::new("kill")
        .args(["-9", &pid.to_string()])
        .status()
        .unwrap();
    assert_eq!(
        lease.state("x").await,
        CommandState::Running,
        "what it started still runs"
    );
    lease.signal("x", "KILL").await.unwrap();
    assert_eq!(lease.state("x").await, CommandState::Unknown);
}

#[tokio::test(flavor = "multi_thread")]
async fn fifty_commands_at_once_each_have_their_own_output_and_end() {
    let Some(lab) = lab(&Options::default()) else {
        return;
    };
    let (lease, _) = lab.leased("a1").await;
    let all = (0..50).map(|n| {
        let lease = &lease;
        async move {
            let script = format!("cat; sleep 0.5; echo out{n}; echo err{n} >&2; exit {n}");
            let mut process = lease.start(&format!("x{n}"), &script).await.unwrap();
            process.input.write(format!("in{n} ").into()).await.unwrap();
            process.input.end().await.unwrap();
            (n, read(process).await)
        }
    });
    for (n, (out, err, ended)) in futures_util::future::join_all(all).await {
        assert_eq!(out, format!("in{n} out{n}\n"));
        assert_eq!(err, format!("err{n}\n"));
        assert_eq!(ended, Ended::Exited(n));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_awk_that_the_supervisor_may_find_tells_the_same_truth() {
    let Some(lab) = lab(&Options::default()) else {
        return;
    };
    let (lease, workspace) = lab.leased("a1").await;
    let tools = std::path::Path::new(&workspace.path).join("../.leasehold/tools");
    let text = std::fs::read_to_string(&tools).unwrap();
    let rest: Vec<&str> = text.lines().skip(1).collect();
    for awk in [
        "/usr/bin/mawk",
        "/usr/bin/gawk",
        "/usr/bin/original-awk",
        "-",
    ] {
        if awk != "-" && !std::path::Path::new(awk).exists() {
            println!("skipped: needs {awk}");
            continue;
        }
        std::fs::write(&tools, format!("{awk}\n{}\n", rest.join("\n"))).unwrap();
        let id = |k: &str| {
            format!(
                "{k}-{}",
                awk.rsplit('/').next().unwrap().replace('-', "none")
            )
        };
        for n in [0, 1, 137, 255] {
            let (_, _, ended) = lease.all(&id(&n.to_string()), &format!("exit {n}")).await;
            assert_eq!(ended, Ended::Exited(n), "{awk}");
        }
        let (_, _, ended) = lease.all(&id("kill"), "kill -9 $$").await;
        let state = lease.state(&id("kill")).await;
        if awk == "-" {
            // All that a plain shell can know.
            assert_eq!(
                (ended, state),
                (Ended::Exited(137), CommandState::Exited(137))
            );
        } else {
            assert_eq!(ended, Ended::Signalled("KILL".into()), "{awk}");
            assert_eq!(state, CommandState::Signalled("KILL".into()), "{awk}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_terminals_interrupt_reaches_the_command_and_not_its_supervisor() {
    let Some(lab) = lab(&Options::default()) else {
        return;
    };
    let (lease, _) = lab.leased("a1").await;
    let size = Some(Size { cols: 80, rows: 24 });
    let script = "trap 'echo caught; exit 9' INT; echo ready; while :; do sleep 0.05; done";
    let mut process = lease.start_with("x", script, &[], &[], size).await.unwrap();
    let mut seen = Vec::new();
    while !seen.windows(5).any(|w| w == b"ready") {
        match process.output.next().await {
            Some(ProcessEvent::Stdout(b)) => seen.extend_from_slice(&b),
            other => panic!("{other:?}"),
        }
    }
    process.input.write("\x03".into()).await.unwrap();
    let (out, _, ended) = read(process).await;
    assert!(out.contains("caught"), "{out:?}");
    assert_eq!(ended, Ended::Exited(9));
    assert_eq!(lease.state("x").await, CommandState::Exited(9));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_terminal_is_resized_while_the_command_runs() {
    let Some(lab) = lab(&Options::default()) else {
        return;
    };
    let (lease, _) = lab.leased("a1").await;
    let size = Some(Size { cols: 80, rows: 24 });
    let script =
        "echo ready; until [ \"$(stty size)\" = '50 132' ]; do sleep 0.05; done; echo seen";
    let mut process = lease.start_with("x", script, &[], &[], size).await.unwrap();
    process.output.next().await.unwrap();
    process
        .input
        .resize(Size {
            cols: 132,
            rows: 50,
        })
        .await
        .unwrap();
    let done = tokio::time::timeout(Duration::from_secs(30), read(process))
        .await
        .unwrap();
    assert!(done.0.contains("seen"));
}

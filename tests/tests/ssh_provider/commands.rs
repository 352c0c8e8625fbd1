//! Commands: what they are given, how they end, and what became of them.

use leasehold_contract::{Code, CommandState, Ended};

use crate::machine::{Way, act, command, look, machine, provider_error};

#[tokio::test]
async fn a_command_runs_in_the_workspace_with_its_arguments_and_variables() {
    let Some(m) = machine().await else { return };
    let (handle, workspace) = m.acquire("a1").await;
    let script = r#"printf '%s|' "$PWD" "$GREETING" "$@"; echo err >&2; exit 37"#;
    let argv = ["sh", "-c", script, "sh", "a b", "", "'\"$HOME*", "-n"];
    let (out, err, ended) = m
        .run("a1", &handle, command("c1", &argv, ""))
        .await
        .expect("runs");
    assert_eq!(out, format!("{workspace}|it's \"me\"|a b||'\"$HOME*|-n|"));
    assert_eq!((err.as_str(), ended), ("err\n", Ended::Exited(37)));
    let state = m
        .plugin
        .state_of(&m.setup(&look("a1")), &m.config(), &handle, "c1", None)
        .await;
    assert_eq!(state.expect("a state"), CommandState::Exited(37));
}

#[tokio::test]
async fn a_command_starts_where_it_says() {
    let Some(m) = machine().await else { return };
    let (handle, workspace) = m.acquire("a1").await;
    let argv = ["mkdir", "sub dir"];
    m.run("a1", &handle, command("c1", &argv, &workspace))
        .await
        .expect("runs");
    for (id, cwd, there) in [
        ("c2", "sub dir", format!("{workspace}/sub dir\n")),
        ("c3", "/", "/\n".to_owned()),
    ] {
        let (out, _, ended) = m
            .run("a1", &handle, command(id, &["pwd"], cwd))
            .await
            .expect("runs");
        assert_eq!((out, ended), (there, Ended::Exited(0)));
    }
}

#[tokio::test]
async fn what_cannot_be_run_ends_as_a_shell_would_end_it_with_one_clear_line() {
    let Some(m) = machine().await else { return };
    let (handle, _) = m.acquire("a1").await;
    for (id, argv, cwd, status, told) in [
        ("c1", "no-such-program", "", 127, "no such program"),
        ("c2", "/no/such/file", "", 127, "no such file"),
        ("c3", "/usr", "", 126, "a directory"),
        ("c4", "/etc/passwd", "", 126, "not executable"),
        ("c5", "true", "no/such/dir", 126, "no such directory"),
    ] {
        let (out, err, ended) = m
            .run("a1", &handle, command(id, &[argv], cwd))
            .await
            .expect("runs");
        assert_eq!((out.as_str(), ended), ("", Ended::Exited(status)), "{err}");
        assert!(
            err.starts_with("leasehold: ") && err.contains(told),
            "{err}"
        );
        assert_eq!(err.lines().count(), 1, "{err}");
    }
}

#[tokio::test]
async fn an_id_starts_one_command_and_what_never_started_is_said_to_be_so() {
    let Some(m) = machine().await else { return };
    let (handle, _) = m.acquire("a1").await;
    m.run("a1", &handle, command("c1", &["true"], ""))
        .await
        .expect("runs");
    let again = provider_error(m.run("a1", &handle, command("c1", &["true"], "")).await);
    assert_eq!(again.code, Code::AlreadyExists, "{again}");

    let state = m
        .plugin
        .state_of(&m.setup(&look("a1")), &m.config(), &handle, "c2", None)
        .await;
    assert!(matches!(
        state.expect("a state"),
        CommandState::NotStarted(_)
    ));
}

#[tokio::test]
async fn a_signal_reaches_everything_that_a_command_started() {
    let Some(m) = machine().await else { return };
    let (handle, _) = m.acquire("a1").await;
    let way = Way {
        execution: Some("c1".into()),
        ..act("a1")
    };
    let script = "sleep 600 & setsid sleep 600 & echo on; wait";
    let started = m
        .plugin
        .start(
            &m.setup(&way),
            &m.config(),
            &handle,
            &command("c1", &["sh", "-c", script], ""),
        )
        .await
        .expect("starts");
    let mut process = started.process;
    // Once it has spoken both children are there or about to be, and marked.
    process.output.next().await.expect("it speaks");
    m.plugin
        .signal(
            &m.setup(&act("a1")),
            &m.config(),
            &handle,
            &started.reference,
            "KILL",
        )
        .await
        .expect("signalled");
    let mut ended = None;
    while let Some(event) = process.output.next().await {
        if let leasehold_contract::ProcessEvent::Ended(how) = event {
            ended = Some(how);
        }
    }
    assert_eq!(ended, Some(Ended::Signalled("KILL".into())));
    let error = provider_error(
        m.plugin
            .signal(
                &m.setup(&act("a1")),
                &m.config(),
                &handle,
                &started.reference,
                "KILL",
            )
            .await,
    );
    assert_eq!(error.code, Code::NotFound, "{error}");
}

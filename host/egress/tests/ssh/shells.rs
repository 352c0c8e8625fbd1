//! Whatever the login shell is and whatever its start files print.

use std::time::Duration;

use leasehold_contract::{Code, Content, Ended, ProcessEvent, Size};
use leasehold_parts::Options;

use crate::lab::{isolated, lab, read, run, text};

const SHELLS: [&str; 6] = ["lease", "bash", "fish", "tcsh", "zsh", "busybox"];

/// Every quote, expansion and line end that some shell makes something of.
const HARD: &str = "a'b\"c`id`$(id)${HOME}\\!!*?[x]{1,2}~;&|<>#%^\t\r\n\nend'\\''\"\"\\";

#[tokio::test(flavor = "multi_thread")]
async fn scripts_run_under_sh_with_arguments_variables_and_stdin_whatever_the_login_shell() {
    let Some(lab) = isolated(&Options::default()) else {
        return;
    };
    for name in SHELLS {
        if lab.sshd.account(name).is_none() {
            leasehold_parts::skipped(name);
            continue;
        }
        let session = lab.open(&lab.target(name)).await.unwrap();
        let out = session
            .run(
                "printf '%s|' \"$@\" \"$VALUE\"; cat; echo err >&2; exit 7".into(),
                vec![HARD.into(), String::new(), "-n".into()],
                vec![("VALUE".into(), HARD.into())],
                Content::Text(format!("stdin {HARD}")),
                65536,
                Some(Duration::from_secs(30)),
            )
            .await
            .unwrap_or_else(|e| panic!("{name}: {e}"));
        assert_eq!(
            text(&out.stdout),
            format!("{HARD}||-n|{HARD}|stdin {HARD}"),
            "{name}"
        );
        assert_eq!(text(&out.stderr), "err\n", "{name}: noise is not protocol");
        assert_eq!(out.status, Some(7), "{name}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_are_supervised_under_every_login_shell_with_and_without_a_terminal() {
    let Some(lab) = isolated(&Options::default()) else {
        return;
    };
    for name in SHELLS {
        if lab.sshd.account(name).is_none() {
            continue;
        }
        let lease = lab.lease(name, "a1");
        let workspace = lease.make().await.unwrap_or_else(|e| panic!("{name}: {e}"));
        let script =
            "pwd; printf '%s' \"$1\" | od -An -c | head -1; printf '%s' \"$V\"; cat; exit 3";
        let mut process = lease
            .start_with("plain", script, &["x y"], &[("V", HARD)], None)
            .await
            .unwrap_or_else(|e| panic!("{name}: {e}"));
        process.input.write("in".into()).await.unwrap();
        process.input.end().await.unwrap();
        let (out, err, ended) = read(process).await;
        assert_eq!(
            out,
            format!("{}\n   x       y\n{HARD}in", workspace.path),
            "{name}"
        );
        assert_eq!((err.as_str(), ended), ("", Ended::Exited(3)), "{name}");

        let size = Some(Size {
            cols: 101,
            rows: 31,
        });
        let script = "stty size; test -t 0 && test -t 1 && echo tty $TERM; printf '%s\\n' \"$V\"; read x; echo got $x; exit 4";
        let mut process = lease
            .start_with("term", script, &[], &[("V", "q'\"\\$x")], size)
            .await
            .unwrap_or_else(|e| panic!("{name}: {e}"));
        // Typed when the command is there: before, the terminal would echo it first.
        let mut early = Vec::new();
        while !early.ends_with(b"q'\"\\$x\r\n") {
            match process.output.next().await {
                Some(ProcessEvent::Stdout(b)) => early.extend_from_slice(&b),
                other => panic!("{name}: {other:?} after {early:?}"),
            }
        }
        process.input.write("typed\n".into()).await.unwrap();
        let (late, _, ended) = read(process).await;
        let out = String::from_utf8(early).unwrap() + &late;
        assert!(
            out.starts_with("31 101\r\ntty xterm-256color\r\nq'\"\\$x\r\n"),
            "{name}: {out:?}"
        );
        assert!(out.contains("got typed\r\n"), "{name}: {out:?}");
        assert!(
            !out.contains("LEASEHOLD") && !out.contains("eval"),
            "{name}: nothing is echoed: {out:?}"
        );
        assert_eq!(ended, Ended::Exited(4), "{name}");
        lease
            .remove()
            .await
            .unwrap_or_else(|e| panic!("{name}: {e}"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_payload_longer_than_a_terminals_line_passes_a_terminal() {
    let Some(lab) = lab(&Options::default()) else {
        return;
    };
    let (lease, _) = lab.leased("a1").await;
    let long: String = (0..30_000)
        .map(|i| char::from(b'a' + (i % 26) as u8))
        .collect();
    let size = Some(Size { cols: 80, rows: 24 });
    let process = lease
        .start_with(
            "x",
            "printf %s \"$V\" | wc -c; printf %s \"$V\" | cksum",
            &[],
            &[("V", &long)],
            size,
        )
        .await
        .unwrap();
    let (out, _, ended) = read(process).await;
    assert!(out.starts_with("30000"), "{out}");
    assert_eq!(ended, Ended::Exited(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_account_that_cannot_run_sh_is_told_with_what_it_printed() {
    let options = Options {
        config: vec!["ForceCommand echo this account is for nothing".into()],
        ..Options::default()
    };
    let Some(lab) = lab(&options) else { return };
    let session = lab.open(&lab.target(&lab.worker())).await.unwrap();
    // Of a long one the channel closes while it is still sent, sooner or later.
    for length in [0, 900, 900, 900, 900].map(|kib: usize| kib << 10) {
        let script = format!("# {}\ntrue", "x".repeat(length));
        let e = run(&session, &script).await.unwrap_err();
        assert_eq!(e.code, Code::FailedPrecondition, "{e}");
        assert!(e.message.contains("this account is for nothing"), "{e}");
    }
}

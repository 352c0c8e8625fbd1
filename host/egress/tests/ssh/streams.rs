//! Bytes: all of them, in order, both ways, at the reader's pace.

use std::time::Duration;

use bytes::Bytes;
use leasehold_contract::{Code, Ended, ExitSource, Framing, InputEnd, ProcessEvent, Wiring};
use leasehold_parts::Options;
use sha2::{Digest, Sha256};

use crate::lab::{isolated, lab, read, run, text, until};

const MIB: usize = 1024 * 1024;

/// The first `n` bytes of the pattern that the remote side makes: a counter per line of 64.
fn pattern(n: usize) -> impl Iterator<Item = Vec<u8>> {
    (0..n / 64).map(|i| format!("{i:063}\n").into_bytes())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gibibyte_of_output_arrives_whole_and_in_order() {
    let Some(lab) = lab(&Options::default()) else {
        return;
    };
    let (lease, _) = lab.leased("a1").await;
    let n = 1024 * MIB;
    let script = format!(
        "awk 'BEGIN {{ for (i = 0; i < {}; i++) printf \"%063d\\n\", i }}'; echo last >&2",
        n / 64
    );
    let mut process = lease.start("x", &script).await.unwrap();
    let mut got = Sha256::new();
    let (mut size, mut err) = (0usize, Vec::new());
    let ended = loop {
        match process.output.next().await.unwrap() {
            ProcessEvent::Stdout(b) => {
                size += b.len();
                got.update(&b);
            }
            ProcessEvent::Stderr(b) => err.extend_from_slice(&b),
            ProcessEvent::Ended(ended) => break ended,
        }
    };
    assert_eq!((size, ended), (n, Ended::Exited(0)));
    assert_eq!(err, b"last\n");
    let mut expected = Sha256::new();
    for line in pattern(n) {
        expected.update(&line);
    }
    assert_eq!(got.finalize(), expected.finalize());
}

#[tokio::test(flavor = "multi_thread")]
async fn sixty_four_mebibytes_of_input_arrive_whole_and_its_end_is_seen() {
    let Some(lab) = lab(&Options::default()) else {
        return;
    };
    let (lease, _) = lab.leased("a1").await;
    let mut process = lease.start("x", "sha256sum; echo done").await.unwrap();
    let mut hash = Sha256::new();
    let mut piece = Vec::new();
    for line in pattern(64 * MIB) {
        piece.extend_from_slice(&line);
        if piece.len() >= 100_000 {
            hash.update(&piece);
            process
                .input
                .write(Bytes::from(std::mem::take(&mut piece)))
                .await
                .unwrap();
        }
    }
    hash.update(&piece);
    process.input.write(Bytes::from(piece)).await.unwrap();
    process.input.end().await.unwrap();
    let (out, _, ended) = read(process).await;
    let expected: String = hash.finalize().iter().map(|b| format!("{b:02x}")).collect();
    assert_eq!(out, format!("{expected}  -\ndone\n"));
    assert_eq!(ended, Ended::Exited(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_that_stops_holds_its_command_back_and_nobody_else() {
    let Some(lab) = isolated(&Options::default()) else {
        return;
    };
    let (lease, workspace) = lab.leased("a1").await;
    // The command writes down how far it has come.
    let script = "i=0; while [ $i -lt 4000 ]; do head -c 65536 /dev/zero; i=$((i+1)); echo $i >progress; done";
    let mut slow = lease.start("slow", script).await.unwrap();
    let progress = || {
        let text = std::fs::read_to_string(format!("{}/progress", workspace.path));
        text.ok()
            .and_then(|t| t.trim().parse::<u64>().ok())
            .unwrap_or(0)
    };
    // It stands still: the same number for a while, far from the end.
    let mut last = (0, 0);
    until("the command stands still", async || {
        let now = progress();
        last = if now == last.0 && now > 0 {
            (now, last.1 + 1)
        } else {
            (now, 0)
        };
        last.1 > 50
    })
    .await;
    let ahead = progress() * 65536;
    assert!(
        ahead < 16 * MIB as u64,
        "{ahead} bytes went ahead of the reader"
    );
    // Others are served meanwhile.
    let (out, _, ended) = lease.all("other", "echo others go on").await;
    assert_eq!((out.as_str(), ended), ("others go on\n", Ended::Exited(0)));
    let session = lease.session().await;
    assert_eq!(
        text(&run(&session, "echo runs too").await.unwrap().stdout),
        "runs too\n"
    );
    // And it goes on when it is read again.
    let mut size = 0;
    loop {
        match slow.output.next().await.unwrap() {
            ProcessEvent::Stdout(b) => size += b.len(),
            ProcessEvent::Stderr(_) => {}
            ProcessEvent::Ended(ended) => {
                assert_eq!(ended, Ended::Exited(0));
                break;
            }
        }
    }
    assert_eq!(size, 4000 * 65536);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dropped_output_lets_go_and_the_command_goes_on() {
    let Some(lab) = lab(&Options::default()) else {
        return;
    };
    let (lease, _) = lab.leased("a1").await;
    let mut process = lease.start("x", "cat; exit 5").await.unwrap();
    drop(process.output);
    process.input.write("abc".into()).await.unwrap();
    assert_eq!(
        lease.state("x").await,
        leasehold_contract::CommandState::Running
    );
    process.input.end().await.unwrap();
    until("it has ended", async || {
        lease.state("x").await == leasehold_contract::CommandState::Exited(5)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn streams_end_and_calls_are_cancelled_when_the_lease_is_no_longer_active() {
    let Some(lab) = lab(&Options::default()) else {
        return;
    };
    let (lease, _) = lab.leased("a1").await;
    let mut reading = lease.start("reading", "echo on; sleep 600").await.unwrap();
    reading.output.next().await.unwrap();
    let mut ignored = lease
        .start("ignored", "cat >/dev/null; sleep 600")
        .await
        .unwrap();
    let session = lease.session().await;
    let waiting = tokio::spawn({
        let session = session.clone();
        async move { run(&session, "sleep 600").await }
    });
    tokio::task::yield_now().await;
    lease.scope.closed.cancel();
    let (_, _, ended) = read(reading).await;
    assert!(
        matches!(&ended, Ended::Lost(why) if why.contains("lease")),
        "{ended:?}"
    );
    assert_eq!(waiting.await.unwrap().unwrap_err().code, Code::Cancelled);
    let e = run(&session, "true").await.unwrap_err();
    assert_eq!(e.code, Code::Cancelled);
    // Input too, even where nobody reads the output.
    until("input is refused", async || {
        ignored.input.write("x".into()).await.is_err()
    })
    .await;
    let Err(e) = lease.start("late", "true").await else {
        panic!("it started")
    };
    assert_eq!(e.code, Code::Cancelled);
}

#[tokio::test(flavor = "multi_thread")]
async fn output_beyond_a_runs_limit_is_read_and_dropped() {
    let Some(lab) = lab(&Options::default()) else {
        return;
    };
    let session = lab.open(&lab.target(&lab.worker())).await.unwrap();
    let out = session
        .run(
            "head -c 5000000 /dev/zero; head -c 3000 /dev/zero >&2; exit 2".into(),
            Vec::new(),
            Vec::new(),
            leasehold_contract::Content::None,
            1000,
            Some(Duration::from_secs(30)),
        )
        .await
        .unwrap();
    assert_eq!(out.stdout.as_bytes().len(), 1000);
    assert_eq!(out.stderr.as_bytes().len(), 1000);
    assert!(out.truncated);
    assert_eq!(out.status, Some(2));
    let killed = run(&session, "kill -9 $$").await.unwrap();
    assert_eq!(
        (killed.status, killed.signal.as_deref()),
        (None, Some("KILL"))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_port_of_the_targets_loopback_is_reached_and_an_empty_one_is_told() {
    let Some(lab) = lab(&Options::default()) else {
        return;
    };
    let session = lab.open(&lab.target(&lab.worker())).await.unwrap();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let echo = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let (mut r, mut w) = stream.split();
        tokio::io::copy(&mut r, &mut w).await.unwrap();
    });
    let duplex = session.forward(port).await.unwrap();
    let plain = Wiring {
        framing: Framing::Merged,
        input_end: InputEnd::HalfClose,
        exit: ExitSource::Ask,
    };
    let mut process = duplex.wire(plain).unwrap();
    process.input.write("there and back".into()).await.unwrap();
    process.input.end().await.unwrap();
    let (out, _, _) = read(process).await;
    assert_eq!(out, "there and back");
    echo.await.unwrap();
    let e = session.forward(port).await.err().unwrap();
    assert_eq!(e.code, Code::Unavailable, "{e}");
}

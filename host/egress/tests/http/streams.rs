//! Upgraded connections: bytes both ways in every framing, with a half-close, and an end with the lease.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use leasehold_contract::{
    Code, Duplex, Ended, ExitSource, Framing, InputEnd, NoStream, Process, ProcessEvent, Wiring,
};
use leasehold_egress::{Body, Bounds};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_util::sync::CancellationToken;

use crate::server::{
    Server, bounds, pool, raw, read_head, reply, serve, transport, until_closed, wire, within,
    write,
};

const SWITCHED: &[u8] = b"HTTP/1.1 101 UPGRADED\r\nconnection: Upgrade\r\nupgrade: tcp\r\n\r\n";

/// Switches every connection and hands it to `then`.
async fn switching<F, R>(then: F) -> Server
where
    F: Fn(TcpStream) -> R + Clone + Send + Sync + 'static,
    R: Future<Output = ()> + Send + 'static,
{
    raw(move |mut stream| {
        let then = then.clone();
        async move {
            read_head(&mut stream).await;
            write(&mut stream, SWITCHED).await;
            then(stream).await;
        }
    })
    .await
}

pub fn wiring(framing: Framing, input_end: InputEnd) -> Wiring {
    Wiring {
        framing,
        input_end,
        exit: ExitSource::Ask,
    }
}

async fn open(server: &Server, bounds: &Bounds) -> Box<dyn Duplex> {
    let duplex = transport()
        .upgrade(&pool(), wire("POST", &server.url()), "tcp", bounds)
        .await;
    duplex.expect("it was not switched")
}

async fn process(server: &Server, framing: Framing, input_end: InputEnd) -> Process {
    open(server, &bounds())
        .await
        .wire(wiring(framing, input_end))
        .unwrap()
}

/// All that a process says until its end.
pub async fn read(process: &mut Process) -> (String, String, Ended) {
    let (mut out, mut err) = (Vec::new(), Vec::new());
    loop {
        match within(process.output.next())
            .await
            .expect("it ended without saying so")
        {
            ProcessEvent::Stdout(bytes) => out.extend_from_slice(&bytes),
            ProcessEvent::Stderr(bytes) => err.extend_from_slice(&bytes),
            ProcessEvent::Ended(ended) => {
                assert_eq!(process.output.next().await, None);
                return (
                    String::from_utf8(out).unwrap(),
                    String::from_utf8(err).unwrap(),
                    ended,
                );
            }
        }
    }
}

#[tokio::test]
async fn the_host_asks_for_the_upgrade_and_sends_the_body_before_it() {
    let server = raw(|mut stream| async move {
        let head = read_head(&mut stream).await;
        let mut body = [0; 2];
        stream.read_exact(&mut body).await.unwrap();
        write(&mut stream, SWITCHED).await;
        write(&mut stream, head.as_bytes()).await;
        write(&mut stream, &body).await;
    })
    .await;
    let mut request = wire("POST", &format!("{}/exec/1/start", server.url()));
    request.body = Body::Full("{}".into());
    let duplex = transport()
        .upgrade(&pool(), request, "tcp", &bounds())
        .await
        .ok()
        .unwrap();
    let mut process = duplex
        .wire(wiring(Framing::Merged, InputEnd::HalfClose))
        .unwrap();
    let (out, _, ended) = read(&mut process).await;
    assert!(out.starts_with("POST /exec/1/start HTTP/1.1\r\n"), "{out}");
    assert!(
        out.contains("\r\nconnection: Upgrade\r\nupgrade: tcp\r\n"),
        "{out}"
    );
    assert!(out.ends_with("\r\n\r\n{}"), "{out}");
    assert_eq!(ended, Ended::Ask);
}

#[tokio::test]
async fn a_half_close_ends_the_input_and_not_the_output() {
    let server = switching(|mut stream| async move {
        let mut all = String::new();
        stream.read_to_string(&mut all).await.unwrap();
        write(&mut stream, all.to_uppercase().as_bytes()).await;
    })
    .await;
    let mut process = process(&server, Framing::Merged, InputEnd::HalfClose).await;
    process.input.write("there ".into()).await.unwrap();
    process.input.write("and back".into()).await.unwrap();
    process.input.end().await.unwrap();
    process.input.end().await.unwrap();
    assert!(process.input.write("more".into()).await.is_err());
    let (out, err, ended) = read(&mut process).await;
    assert_eq!(
        (out.as_str(), err.as_str(), ended),
        ("THERE AND BACK", "", Ended::Ask)
    );
}

#[tokio::test]
async fn bytes_end_the_input_where_the_wiring_says_so_and_nothing_does_where_it_cannot() {
    let server = switching(|mut stream| async move {
        let mut got = Vec::new();
        while !got.ends_with(b"\x04") {
            got.push(stream.read_u8().await.unwrap());
        }
        write(&mut stream, &got).await;
    })
    .await;
    let mut with = process(&server, Framing::Merged, InputEnd::Bytes(vec![4])).await;
    with.input.write("tty".into()).await.unwrap();
    with.input.end().await.unwrap();
    assert_eq!(read(&mut with).await.0, "tty\u{4}");
    let mut without = process(&server, Framing::Merged, InputEnd::None).await;
    let error = without.input.end().await.unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::Unsupported);
    without.input.write("x\u{4}".into()).await.unwrap();
    assert_eq!(read(&mut without).await.0, "x\u{4}");
}

#[tokio::test]
async fn docker_s_framing_survives_one_byte_at_a_time_and_bytes_that_came_with_the_head() {
    let frames = [
        &b"\x01\0\0\0\0\0\0\x03out"[..],
        b"\x02\0\0\0\0\0\0\x04err\n",
        b"\x01\0\0\0\0\0\0\x02!\n",
    ]
    .concat();
    for together in [true, false] {
        let frames = frames.clone();
        let server = raw(move |mut stream| {
            let frames = frames.clone();
            async move {
                read_head(&mut stream).await;
                if together {
                    write(&mut stream, &[SWITCHED, &frames].concat()).await;
                } else {
                    write(&mut stream, SWITCHED).await;
                    for byte in frames {
                        write(&mut stream, &[byte]).await;
                    }
                }
            }
        })
        .await;
        let mut process = process(&server, Framing::Docker, InputEnd::HalfClose).await;
        let (out, err, ended) = read(&mut process).await;
        assert_eq!(
            (out.as_str(), err.as_str(), ended),
            ("out!\n", "err\n", Ended::Ask)
        );
    }
}

#[tokio::test]
async fn marks_switch_between_the_streams() {
    let server = switching(|mut stream| async move {
        for piece in [
            &b"a\x01"[..],
            b"\x01\x01b\x02\x02",
            b"\x02c",
            b"\x01\x01\x01d\x02",
        ] {
            write(&mut stream, piece).await;
        }
    })
    .await;
    let marks = Framing::Marks {
        stdout: vec![1, 1, 1],
        stderr: vec![2, 2, 2],
    };
    let mut process = process(&server, marks, InputEnd::None).await;
    let (out, err, ended) = read(&mut process).await;
    assert_eq!(
        (out.as_str(), err.as_str(), ended),
        ("abd\u{2}", "c", Ended::Ask)
    );
}

#[tokio::test]
async fn a_stream_that_is_cut_off_is_lost_and_not_ended() {
    let inside = switching(|mut stream| async move {
        write(&mut stream, b"\x01\0\0\0\0\0\0\x09half").await;
    })
    .await;
    let mut one = process(&inside, Framing::Docker, InputEnd::HalfClose).await;
    let (out, _, ended) = read(&mut one).await;
    assert_eq!(out, "half");
    assert!(matches!(ended, Ended::Lost(why) if why.contains("inside a frame")));
    let wrong = switching(|mut stream| async move {
        write(&mut stream, b"just text that is long enough").await;
    })
    .await;
    let mut one = process(&wrong, Framing::Docker, InputEnd::HalfClose).await;
    assert!(
        matches!(read(&mut one).await.2, Ended::Lost(why) if why.contains("not framed as Docker"))
    );
}

#[tokio::test]
async fn what_an_upgraded_connection_cannot_carry_is_refused() {
    let server = switching(|mut stream| async move { until_closed(&mut stream).await }).await;
    for wrong in [
        wiring(Framing::Channels, InputEnd::None),
        wiring(Framing::Merged, InputEnd::Bytes(vec![])),
        wiring(Framing::Merged, InputEnd::Bytes(vec![0; 65])),
        Wiring {
            exit: ExitSource::StatusChannel,
            ..wiring(Framing::Merged, InputEnd::None)
        },
        Wiring {
            exit: ExitSource::CloseReason("/x".into()),
            ..wiring(Framing::Merged, InputEnd::None)
        },
    ] {
        let error = open(&server, &bounds())
            .await
            .wire(wrong.clone())
            .err()
            .unwrap();
        assert_eq!(error.code, Code::Unsupported, "{wrong:?}");
    }
}

#[tokio::test]
async fn a_server_that_does_not_switch_is_told_with_what_it_said() {
    let server = serve(|_| async { reply(409, "container is not running") }).await;
    let transport = transport();
    let refused = transport
        .upgrade(&pool(), wire("POST", &server.url()), "tcp", &bounds())
        .await
        .err()
        .unwrap();
    assert_eq!(
        refused,
        NoStream::Refused {
            status: 409,
            body: "container is not running".into()
        }
    );
    let long = serve(|_| async { reply(500, vec![b'x'; 100_000]) }).await;
    match transport
        .upgrade(&pool(), wire("POST", &long.url()), "tcp", &bounds())
        .await
        .err()
        .unwrap()
    {
        NoStream::Refused { status: 500, body } => assert_eq!(body.len(), 4096),
        other => panic!("{other:?}"),
    }
    let other = raw(|mut stream| async move {
        read_head(&mut stream).await;
        write(
            &mut stream,
            b"HTTP/1.1 101 OK\r\nconnection: upgrade\r\nupgrade: h2c\r\n\r\n",
        )
        .await;
        until_closed(&mut stream).await;
    })
    .await;
    match transport
        .upgrade(&pool(), wire("POST", &other.url()), "tcp", &bounds())
        .await
        .err()
        .unwrap()
    {
        NoStream::Failed(error) => assert_eq!(error.code, Code::OutcomeUnknown, "{error}"),
        other => panic!("{other:?}"),
    }
    for protocol in ["", "a b", "a,b", "a\r\nb: c"] {
        match transport
            .upgrade(&pool(), wire("POST", &server.url()), protocol, &bounds())
            .await
            .err()
            .unwrap()
        {
            NoStream::Failed(error) => assert_eq!(error.code, Code::InvalidConfig, "{protocol:?}"),
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn the_end_of_a_lease_closes_its_streams_whether_anybody_reads_or_not() {
    let (closed_there, mut was) = tokio::sync::mpsc::unbounded_channel();
    let server = switching(move |mut stream| {
        let closed_there = closed_there.clone();
        async move {
            until_closed(&mut stream).await;
            closed_there.send(()).unwrap();
        }
    })
    .await;
    for reading in [true, false] {
        let lease = CancellationToken::new();
        let under = Bounds {
            closed: Some(lease.clone()),
            ..bounds()
        };
        let duplex = open(&server, &under).await;
        let mut process = duplex
            .wire(wiring(Framing::Merged, InputEnd::HalfClose))
            .unwrap();
        if reading {
            let (ended, ()) = tokio::join!(read(&mut process), async { lease.cancel() });
            assert!(matches!(ended.2, Ended::Lost(why) if why.contains("no longer active")));
            within(was.recv()).await.unwrap();
        } else {
            lease.cancel();
            within(was.recv()).await.unwrap();
            assert!(process.input.write("late".into()).await.is_err());
            assert!(
                matches!(read(&mut process).await.2, Ended::Lost(why) if why.contains("no longer active"))
            );
        }
    }
    // A duplex that was never made a process.
    let lease = CancellationToken::new();
    let under = Bounds {
        closed: Some(lease.clone()),
        ..bounds()
    };
    let duplex = open(&server, &under).await;
    lease.cancel();
    within(was.recv()).await.unwrap();
    drop(duplex);
    // And one whose process is let go.
    drop(process(&server, Framing::Merged, InputEnd::None).await);
    within(was.recv()).await.unwrap();
}

#[tokio::test]
async fn who_does_not_read_holds_the_other_side_back_both_ways() {
    let sent = Arc::new(AtomicU64::new(0));
    let count = sent.clone();
    let server = switching(move |mut stream| {
        let count = count.clone();
        async move {
            let chunk = vec![b'x'; 64 * 1024];
            while stream.write_all(&chunk).await.is_ok() {
                count.fetch_add(chunk.len() as u64, Ordering::SeqCst);
            }
        }
    })
    .await;
    let mut process = process(&server, Framing::Merged, InputEnd::None).await;
    let taken = Arc::new(AtomicU64::new(0));
    let counter = taken.clone();
    let mut input = process.input;
    let writing = tokio::spawn(async move {
        let chunk = Bytes::from(vec![b'y'; 64 * 1024]);
        while input.write(chunk.clone()).await.is_ok() {
            counter.fetch_add(chunk.len() as u64, Ordering::SeqCst);
        }
    });
    for count in [&sent, &taken] {
        let (mut last, mut still) = (0, 0);
        while still < 20 {
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
            let now = count.load(Ordering::SeqCst);
            still = if now == last && now > 0 { still + 1 } else { 0 };
            last = now;
            assert!(now < 64 * 1024 * 1024, "nothing holds it back");
        }
    }
    // It goes on where it stood.
    assert!(matches!(
        process.output.next().await,
        Some(ProcessEvent::Stdout(_))
    ));
    writing.abort();
}

#[tokio::test]
async fn streams_have_places_of_their_own() {
    let server = switching(|mut stream| async move { until_closed(&mut stream).await }).await;
    let transport = leasehold_egress::Transport::new(leasehold_egress::HttpSettings {
        streams: 1,
        ..crate::server::settings()
    });
    let limit = Bounds {
        total: Some(crate::server::SHORT),
        ..bounds()
    };
    let first = transport
        .upgrade(&pool(), wire("POST", &server.url()), "tcp", &limit)
        .await
        .ok()
        .unwrap();
    let process = first.wire(wiring(Framing::Merged, InputEnd::None)).unwrap();
    match transport
        .upgrade(&pool(), wire("POST", &server.url()), "tcp", &limit)
        .await
        .err()
        .unwrap()
    {
        NoStream::Failed(error) => assert_eq!(error.code, Code::Busy, "{error}"),
        other => panic!("{other:?}"),
    }
    // Half of a process keeps the place.
    drop(process.input);
    assert!(
        transport
            .upgrade(&pool(), wire("POST", &server.url()), "tcp", &limit)
            .await
            .is_err()
    );
    drop(process.output);
    transport
        .upgrade(&pool(), wire("POST", &server.url()), "tcp", &limit)
        .await
        .ok()
        .unwrap();
}

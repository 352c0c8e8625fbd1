//! WebSockets: a real server on the other side, Kubernetes' channels, exits, pings and their absence.

use std::time::Duration;

use bytes::Bytes;
use futures_util::{SinkExt, StreamExt};
use leasehold_contract::{
    Code, Duplex, Ended, ExitSource, Framing, InputEnd, NoStream, Process, Size, Wiring,
};
use leasehold_egress::{Bounds, HttpSettings, Secret, Transport};
use tokio::net::TcpStream;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::handshake::server::{Request, Response};
use tokio_tungstenite::tungstenite::protocol::CloseFrame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_util::sync::CancellationToken;

use crate::server::{
    Server, bounds, pool, raw, read_head, reply, serve, settings, transport, until_closed, wire,
    within, write,
};
use crate::streams::{read, wiring};

const V5: &str = "v5.channel.k8s.io";

type Socket = WebSocketStream<TcpStream>;

/// Accepts WebSockets, in the first protocol that is offered, and hands them to `then`.
async fn sockets<F, R>(then: F) -> Server
where
    F: Fn(Socket) -> R + Clone + Send + Sync + 'static,
    R: Future<Output = ()> + Send + 'static,
{
    raw(move |stream| {
        let then = then.clone();
        async move {
            #[expect(clippy::result_large_err, reason = "the library's own type")]
            let choose = |request: &Request, mut response: Response| {
                if let Some(offered) = request.headers().get("sec-websocket-protocol") {
                    let first = offered.to_str().unwrap().split(", ").next().unwrap();
                    response
                        .headers_mut()
                        .insert("sec-websocket-protocol", first.parse().unwrap());
                }
                Ok(response)
            };
            if let Ok(socket) = tokio_tungstenite::accept_hdr_async(stream, choose).await {
                then(socket).await;
            }
        }
    })
    .await
}

async fn open(
    transport: &Transport,
    server: &Server,
    protocols: &[&str],
    bounds: &Bounds,
) -> Result<Box<dyn Duplex>, NoStream> {
    let protocols: Vec<String> = protocols.iter().map(|p| (*p).to_owned()).collect();
    let mut request = wire("GET", &format!("{}/pty?cols=80", server.url()));
    request.headers = vec![("authorization".into(), Secret::new("Bearer abc".into()))];
    transport
        .websocket(&pool(), request, &protocols, bounds)
        .await
}

async fn process(server: &Server, protocols: &[&str], wiring: Wiring) -> Process {
    let duplex = open(&transport(), server, protocols, &bounds())
        .await
        .ok()
        .unwrap();
    duplex.wire(wiring).unwrap()
}

fn channel(number: u8, text: &str) -> Message {
    Message::Binary([&[number], text.as_bytes()].concat().into())
}

fn channels(input_end: InputEnd, exit: ExitSource) -> Wiring {
    Wiring {
        framing: Framing::Channels,
        input_end,
        exit,
    }
}

/// A command as Kubernetes runs it: echoes its input to both streams, and exits with 3 when its input ends.
async fn kubernetes(mut socket: Socket) {
    for empty in 1..=3 {
        socket
            .send(Message::Binary(vec![empty].into()))
            .await
            .unwrap();
    }
    while let Some(Ok(message)) = socket.next().await {
        let Message::Binary(bytes) = message else {
            continue;
        };
        match bytes[0] {
            0 => {
                socket
                    .send(channel(1, &String::from_utf8_lossy(&bytes[1..])))
                    .await
                    .unwrap();
                socket.send(channel(2, "heard\n")).await.unwrap();
            }
            4 => socket
                .send(channel(1, &String::from_utf8_lossy(&bytes[1..])))
                .await
                .unwrap(),
            255 => {
                assert_eq!(&bytes[1..], [0]);
                let status = r#"{"status":"Failure","reason":"NonZeroExitCode","details":{"causes":[{"reason":"ExitCode","message":"3"}]}}"#;
                socket.send(channel(3, status)).await.unwrap();
                socket.close(None).await.unwrap();
            }
            other => panic!("channel {other}"),
        }
    }
}

#[tokio::test]
async fn a_command_over_channels_is_fed_resized_ended_and_tells_its_exit() {
    let server = sockets(kubernetes).await;
    let mut process = process(
        &server,
        &[V5, "v4.channel.k8s.io"],
        channels(InputEnd::HalfClose, ExitSource::StatusChannel),
    )
    .await;
    process.input.write("hello ".into()).await.unwrap();
    process
        .input
        .resize(Size { cols: 80, rows: 24 })
        .await
        .unwrap();
    process.input.end().await.unwrap();
    let (out, err, ended) = read(&mut process).await;
    assert_eq!(out, r#"hello {"Width":80,"Height":24}"#);
    assert_eq!(err, "heard\n");
    assert_eq!(ended, Ended::Exited(3));
}

#[tokio::test]
async fn a_status_that_came_counts_though_the_connection_breaks_and_none_is_lost() {
    for (status, expected) in [
        (Some(r#"{"status":"Success"}"#), Some(Ended::Exited(0))),
        (None, None),
        (Some("{}"), None),
    ] {
        for orderly in [true, false] {
            let server = sockets(move |mut socket| async move {
                socket.send(channel(1, "out")).await.unwrap();
                if let Some(status) = status {
                    socket.send(channel(3, status)).await.unwrap();
                }
                if orderly {
                    socket.close(None).await.unwrap();
                    while let Some(Ok(_)) = socket.next().await {}
                }
            })
            .await;
            let mut process = process(
                &server,
                &[V5],
                channels(InputEnd::None, ExitSource::StatusChannel),
            )
            .await;
            let (out, _, ended) = read(&mut process).await;
            assert_eq!(out, "out");
            match &expected {
                Some(expected) => assert_eq!(&ended, expected),
                None => assert!(matches!(ended, Ended::Lost(_)), "{ended:?}"),
            }
        }
    }
}

#[tokio::test]
async fn a_close_frame_s_reason_tells_the_exit_where_the_wiring_says_so() {
    for (code, reason, expected) in [
        (CloseCode::Normal, r#"{"exitCode":7}"#, Some(7)),
        (CloseCode::Error, r#"{"exitCode":1,"error":"x"}"#, Some(1)),
        (CloseCode::Normal, "", None),
        (CloseCode::Normal, "bye", None),
    ] {
        let server = sockets(move |mut socket| async move {
            let frame = CloseFrame {
                code,
                reason: reason.into(),
            };
            socket.close(Some(frame)).await.unwrap();
            while let Some(Ok(_)) = socket.next().await {}
        })
        .await;
        let exit = ExitSource::CloseReason("/exitCode".into());
        let mut process = process(
            &server,
            &[],
            Wiring {
                exit,
                ..wiring(Framing::Merged, InputEnd::None)
            },
        )
        .await;
        match (read(&mut process).await.2, expected) {
            (Ended::Exited(code), Some(expected)) => assert_eq!(code, expected),
            (Ended::Lost(why), None) => assert!(why.contains(reason), "{why}"),
            (ended, _) => panic!("{reason}: {ended:?}"),
        }
    }
}

#[tokio::test]
async fn a_socket_without_an_exit_ends_in_order_or_is_lost() {
    for (code, lost) in [
        (CloseCode::Normal, false),
        (CloseCode::Away, false),
        (CloseCode::Error, true),
        (CloseCode::Policy, true),
    ] {
        let server = sockets(move |mut socket| async move {
            socket.send(Message::Text("text ".into())).await.unwrap();
            socket
                .send(Message::Binary(Bytes::from_static(b"bytes")))
                .await
                .unwrap();
            let frame = CloseFrame {
                code,
                reason: "because".into(),
            };
            socket.close(Some(frame)).await.unwrap();
            while let Some(Ok(_)) = socket.next().await {}
        })
        .await;
        let mut process = process(&server, &[], wiring(Framing::Merged, InputEnd::None)).await;
        let (out, _, ended) = read(&mut process).await;
        assert_eq!(out, "text bytes");
        match ended {
            Ended::Ask => assert!(!lost),
            Ended::Lost(why) => assert!(lost && why.contains("because"), "{why}"),
            other => panic!("{other:?}"),
        }
    }
    let server = sockets(|socket| async move { drop(socket) }).await;
    let mut process = process(&server, &[], wiring(Framing::Merged, InputEnd::None)).await;
    assert!(matches!(read(&mut process).await.2, Ended::Lost(_)));
}

#[tokio::test]
async fn input_is_binary_messages_of_a_size_that_servers_take() {
    let server = sockets(|mut socket| async move {
        let (mut total, mut largest) = (0, 0);
        while let Some(Ok(message)) = socket.next().await {
            let Message::Binary(bytes) = message else {
                continue;
            };
            if bytes.as_ref() == [4] {
                break;
            }
            total += bytes.len();
            largest = largest.max(bytes.len());
        }
        let said = format!("{total} {}", largest <= 32 * 1024);
        socket.send(Message::Binary(said.into())).await.unwrap();
        socket.close(None).await.unwrap();
        while let Some(Ok(_)) = socket.next().await {}
    })
    .await;
    let mut process = process(
        &server,
        &[],
        wiring(Framing::Merged, InputEnd::Bytes(vec![4])),
    )
    .await;
    process
        .input
        .write(vec![b'x'; 200_001].into())
        .await
        .unwrap();
    process.input.end().await.unwrap();
    assert_eq!(read(&mut process).await.0, "200001 true");
}

#[tokio::test]
async fn docker_s_frames_and_marks_may_lie_across_messages() {
    let server = sockets(|mut socket| async move {
        for byte in *b"\x01\0\0\0\0\0\0\x03out\x02\0\0\0\0\0\0\x03err" {
            socket
                .send(Message::Binary(vec![byte].into()))
                .await
                .unwrap();
        }
        socket.close(None).await.unwrap();
        while let Some(Ok(_)) = socket.next().await {}
    })
    .await;
    let mut process = process(&server, &[], wiring(Framing::Docker, InputEnd::None)).await;
    let (out, err, ended) = read(&mut process).await;
    assert_eq!(
        (out.as_str(), err.as_str(), ended),
        ("out", "err", Ended::Ask)
    );
}

#[tokio::test]
async fn a_wiring_that_a_socket_cannot_carry_is_refused() {
    let server =
        sockets(|mut socket| async move { while let Some(Ok(_)) = socket.next().await {} }).await;
    for (protocols, wrong) in [
        (&[][..], wiring(Framing::Merged, InputEnd::HalfClose)),
        (
            &["v4.channel.k8s.io"],
            channels(InputEnd::HalfClose, ExitSource::StatusChannel),
        ),
        (
            &[],
            Wiring {
                exit: ExitSource::StatusChannel,
                ..wiring(Framing::Merged, InputEnd::None)
            },
        ),
        (
            &[],
            wiring(
                Framing::Marks {
                    stdout: vec![],
                    stderr: vec![1],
                },
                InputEnd::None,
            ),
        ),
    ] {
        let duplex = open(&transport(), &server, protocols, &bounds())
            .await
            .ok()
            .unwrap();
        assert_eq!(
            duplex.wire(wrong.clone()).err().map(|e| e.code),
            Some(Code::Unsupported),
            "{wrong:?}"
        );
    }
}

/// Accepts every WebSocket by hand with these further headers, then does nothing but read.
async fn by_hand(further: &'static str, accept: Option<&'static str>) -> Server {
    raw(move |mut stream| async move {
        let head = read_head(&mut stream).await;
        let key = head.lines().find_map(|l| l.strip_prefix("sec-websocket-key: ")).unwrap();
        let derived = tokio_tungstenite::tungstenite::handshake::derive_accept_key(key.as_bytes());
        let accept = accept.map_or(derived, str::to_owned);
        let answer = format!(
            "HTTP/1.1 101 OK\r\nconnection: Upgrade\r\nupgrade: WebSocket\r\nsec-websocket-accept: {accept}\r\n{further}\r\n"
        );
        write(&mut stream, answer.as_bytes()).await;
        until_closed(&mut stream).await;
    })
    .await
}

#[tokio::test]
async fn a_handshake_that_is_not_the_one_asked_for_is_refused() {
    let transport = transport();
    for (further, accept, what) in [
        (
            "",
            Some("s3pPLMBiTxaQ9kYGzzhZRbK+xOo="),
            "another WebSocket",
        ),
        ("sec-websocket-protocol: other\r\n", None, "nobody offered"),
        (
            "sec-websocket-extensions: permessage-deflate\r\n",
            None,
            "extensions",
        ),
    ] {
        let server = by_hand(further, accept).await;
        match open(&transport, &server, &[V5], &bounds())
            .await
            .err()
            .unwrap()
        {
            NoStream::Failed(error) => assert!(error.message.contains(what), "{error}"),
            other => panic!("{other:?}"),
        }
    }
    let server = by_hand("", None).await;
    assert!(open(&transport, &server, &[V5], &bounds()).await.is_ok());
    let server = serve(|_| async { reply(403, "no") }).await;
    let refused = open(&transport, &server, &[], &bounds())
        .await
        .err()
        .unwrap();
    assert_eq!(
        refused,
        NoStream::Refused {
            status: 403,
            body: "no".into()
        }
    );
    for protocol in ["", "a, b", "a\r\nb"] {
        match open(&transport, &server, &[protocol], &bounds())
            .await
            .err()
            .unwrap()
        {
            NoStream::Failed(error) => assert_eq!(error.code, Code::InvalidConfig),
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn a_peer_that_answers_no_ping_is_lost_and_one_that_does_is_kept() {
    let pinging = Transport::new(HttpSettings {
        ping: Duration::from_millis(50),
        ..settings()
    });
    let silent = by_hand("", None).await;
    let duplex = open(&pinging, &silent, &[], &bounds()).await.ok().unwrap();
    let mut process = duplex
        .wire(wiring(Framing::Merged, InputEnd::None))
        .unwrap();
    assert!(matches!(read(&mut process).await.2, Ended::Lost(why) if why.contains("pings")));
    // A real server answers pings while it waits for many times the patience.
    let server = sockets(|mut socket| async move {
        let mut pings = 0;
        while let Some(Ok(message)) = socket.next().await {
            pings += usize::from(message.is_ping());
            if pings == 10 {
                socket.close(None).await.unwrap();
            }
        }
    })
    .await;
    let duplex = open(&pinging, &server, &[], &bounds()).await.ok().unwrap();
    let mut process = duplex
        .wire(wiring(Framing::Merged, InputEnd::None))
        .unwrap();
    assert_eq!(read(&mut process).await.2, Ended::Ask);
}

#[tokio::test]
async fn a_message_larger_than_the_bound_is_not_taken() {
    let server = sockets(|mut socket| async move {
        let _ = socket
            .send(Message::Binary(vec![b'x'; 1024 * 1024 + 1].into()))
            .await;
        while let Some(Ok(_)) = socket.next().await {}
    })
    .await;
    let mut process = process(&server, &[], wiring(Framing::Merged, InputEnd::None)).await;
    let (out, _, ended) = read(&mut process).await;
    assert_eq!(out, "");
    assert!(matches!(ended, Ended::Lost(_)), "{ended:?}");
}

#[tokio::test]
async fn the_end_of_a_lease_closes_its_sockets_whether_anybody_reads_or_not() {
    let (gone, mut was) = tokio::sync::mpsc::unbounded_channel();
    let server = sockets(move |mut socket| {
        let gone = gone.clone();
        async move {
            while let Some(Ok(_)) = socket.next().await {}
            gone.send(()).unwrap();
        }
    })
    .await;
    let lease = CancellationToken::new();
    let under = Bounds {
        closed: Some(lease.clone()),
        ..bounds()
    };
    let duplex = open(&transport(), &server, &[V5], &under)
        .await
        .ok()
        .unwrap();
    let mut process = duplex
        .wire(channels(InputEnd::HalfClose, ExitSource::StatusChannel))
        .unwrap();
    lease.cancel();
    within(was.recv()).await.unwrap();
    assert!(process.input.write("late".into()).await.is_err());
    assert!(
        matches!(read(&mut process).await.2, Ended::Lost(why) if why.contains("no longer active"))
    );
    // And one that is let go.
    drop(
        open(&transport(), &server, &[V5], &bounds())
            .await
            .ok()
            .unwrap(),
    );
    within(was.recv()).await.unwrap();
}

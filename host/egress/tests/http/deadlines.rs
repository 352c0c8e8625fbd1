//! Deadlines: each stage that a server can drag out ends on its own, and says which it was.

use std::time::Duration;

use bytes::Bytes;
use leasehold_contract::{Code, Error, HttpLines, Piece};
use leasehold_egress::{Body, Bounds, HttpSettings, Transport, Wire};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio_util::sync::CancellationToken;

use crate::server::{
    SHORT, bounds, fails, lasting, pool, raw, read_head, settings, transport, typed, until_closed,
    wire, within, write,
};

fn with(change: impl FnOnce(&mut HttpSettings)) -> Transport {
    let mut settings = settings();
    change(&mut settings);
    Transport::new(settings)
}

#[track_caller]
fn says(error: &Error, code: Code, what: &str) {
    assert_eq!(error.code, code, "{error}");
    assert!(error.message.contains(what), "{error}");
}

#[tokio::test]
async fn an_address_that_never_answers_ends_on_the_deadline_of_connecting() {
    // A listener whose queue is full drops what asks to connect: a blackhole on loopback.
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let listener = socket.listen(1).unwrap();
    let at = listener.local_addr().unwrap();
    let mut filling = Vec::new();
    while let Ok(connected) = tokio::time::timeout(SHORT, TcpStream::connect(at)).await {
        filling.push(connected.unwrap());
        assert!(filling.len() < 100, "the queue never fills");
    }
    let transport = with(|s| s.connect = SHORT);
    let error = fails(&transport, wire("POST", &format!("http://{at}"))).await;
    says(&error, Code::Unavailable, "not connected within 300 ms");
}

#[tokio::test]
async fn a_silent_tls_server_ends_on_the_deadline_of_the_handshake() {
    let server = raw(|mut stream| async move { until_closed(&mut stream).await }).await;
    let transport = with(|s| s.tls = SHORT);
    let error = fails(&transport, wire("POST", &format!("https://{}", server.at))).await;
    says(
        &error,
        Code::Unavailable,
        "did not finish the TLS handshake within 300 ms",
    );
    assert_eq!(server.accepted(), 1);
}

#[tokio::test]
async fn a_server_that_never_answers_ends_on_the_deadline_of_the_first_byte() {
    let server = raw(|mut stream| async move { until_closed(&mut stream).await }).await;
    let transport = with(|s| s.first_byte = SHORT);
    for (method, code) in [
        ("GET", Code::Unavailable),
        ("HEAD", Code::Unavailable),
        ("POST", Code::OutcomeUnknown),
        ("DELETE", Code::OutcomeUnknown),
    ] {
        let error = fails(&transport, wire(method, &server.url())).await;
        says(&error, code, "did not begin, head and all, within 300 ms");
    }
    let mut post = wire("POST", &server.url());
    post.body = Body::Full(Bytes::from(vec![b'x'; 100_000]));
    let error = fails(&transport, post).await;
    says(&error, Code::OutcomeUnknown, "did not begin");
}

#[tokio::test]
async fn a_head_that_drips_ends_on_the_deadline_of_the_first_byte() {
    let server = raw(|mut stream| async move {
        read_head(&mut stream).await;
        write(&mut stream, b"HTTP/1.1 200 OK\r\nx-slow: ").await;
        while stream.write_all(b"a").await.is_ok() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
    let transport = with(|s| s.first_byte = SHORT);
    let error = fails(&transport, wire("POST", &server.url())).await;
    says(&error, Code::OutcomeUnknown, "did not begin, head and all");
}

/// Begins an answer and then drips its body, or stops.
async fn dripping(drip: bool) -> crate::server::Server {
    raw(move |mut stream| async move {
        read_head(&mut stream).await;
        write(
            &mut stream,
            b"HTTP/1.1 200 OK\r\ncontent-length: 1000000\r\n\r\nab",
        )
        .await;
        if drip {
            while stream.write_all(b"c").await.is_ok() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        }
        until_closed(&mut stream).await;
    })
    .await
}

#[tokio::test]
async fn a_body_that_stops_ends_on_the_idle_deadline() {
    let server = dripping(false).await;
    let transport = with(|s| s.idle = SHORT);
    let error = fails(&transport, wire("GET", &server.url())).await;
    says(&error, Code::Unavailable, "nothing came for 300 ms");
    let error = fails(&transport, wire("POST", &server.url())).await;
    says(&error, Code::OutcomeUnknown, "nothing came for 300 ms");
}

#[tokio::test]
async fn a_body_that_drips_ends_on_the_deadline_of_the_whole() {
    let server = dripping(true).await;
    let transport = transport();
    let limit = Bounds {
        total: Some(SHORT),
        ..bounds()
    };
    let answer = transport
        .exchange(&pool(), wire("GET", &server.url()), &limit)
        .await
        .unwrap();
    says(
        &answer.whole().await.unwrap_err(),
        Code::Unavailable,
        "did not end within the 300 ms",
    );
    let answer = transport
        .exchange(&pool(), wire("GET", &server.url()), &limit)
        .await
        .unwrap();
    let mut lines = answer.lines().unwrap();
    says(
        &lines.next().await.unwrap_err(),
        Code::Unavailable,
        "did not end within the 300 ms",
    );
}

#[tokio::test]
async fn a_download_that_drips_ends_on_the_deadline_of_transfers() {
    let server = dripping(true).await;
    let transport = with(|s| s.transfer = SHORT);
    let limit = Bounds {
        total: Some(Duration::from_millis(200)),
        ..lasting()
    };
    let answer = transport
        .exchange(&pool(), wire("GET", &server.url()), &limit)
        .await
        .unwrap();
    let mut stream = answer.body.into_stream();
    let error = within(stream.read_to_end(&mut Vec::new()))
        .await
        .unwrap_err();
    assert!(
        error.to_string().contains("waiting for 300 ms in all"),
        "{error}"
    );
}

#[tokio::test]
async fn a_reader_that_takes_its_time_costs_the_server_nothing() {
    let server = raw(|mut stream| async move {
        read_head(&mut stream).await;
        write(
            &mut stream,
            b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nab",
        )
        .await;
        until_closed(&mut stream).await;
    })
    .await;
    let transport = with(|s| {
        s.idle = SHORT;
        s.transfer = SHORT;
    });
    let answer = transport
        .exchange(&pool(), wire("GET", &server.url()), &lasting())
        .await
        .unwrap();
    let mut stream = answer.body.into_stream();
    // The subject itself: a pause longer than every deadline of the server's.
    tokio::time::sleep(SHORT * 2).await;
    let mut body = Vec::new();
    stream.read_to_end(&mut body).await.unwrap();
    assert_eq!(body, b"ab");
}

#[tokio::test]
async fn a_server_that_takes_no_more_of_a_body_ends_on_the_idle_deadline() {
    let server = raw(|stream| async move {
        std::future::pending::<()>().await;
        drop(stream);
    })
    .await;
    let transport = with(|s| s.idle = SHORT);
    let mut post = wire("POST", &server.url());
    post.body = Body::Pieces(vec![Piece::Bytes(Box::pin(tokio::io::repeat(b'x')))]);
    let error = fails(&transport, post).await;
    says(
        &error,
        Code::OutcomeUnknown,
        "took nothing of the request for 300 ms",
    );
}

#[tokio::test]
async fn a_source_that_takes_its_time_is_not_the_server_s_silence() {
    let server = crate::server::serve(|request| async move {
        let body = http_body_util::BodyExt::collect(request.into_body())
            .await
            .unwrap();
        crate::server::reply(200, body.to_bytes())
    })
    .await;
    let transport = with(|s| s.idle = SHORT);
    let (mut source, sink) = tokio::io::duplex(16);
    tokio::spawn(async move {
        for word in ["slow ", "but ", "sure"] {
            source.write_all(word.as_bytes()).await.unwrap();
            tokio::time::sleep(SHORT + SHORT / 2).await;
        }
    });
    let mut post = wire("POST", &server.url());
    post.body = Body::Pieces(vec![Piece::Bytes(Box::pin(sink))]);
    let (_, body) = crate::server::ask(&transport, post).await.unwrap();
    assert_eq!(body, "slow but sure");
}

#[tokio::test]
async fn the_time_of_a_request_bounds_every_stage() {
    let silent = raw(|mut stream| async move { until_closed(&mut stream).await }).await;
    let transport = transport();
    let limit = Bounds {
        total: Some(SHORT),
        ..bounds()
    };
    let plain = wire("POST", &silent.url());
    let secure = Wire {
        destination: typed(&format!("https://{}", silent.at)),
        ..wire("POST", &silent.url())
    };
    let error = transport
        .exchange(&pool(), plain, &limit)
        .await
        .err()
        .unwrap();
    says(&error, Code::OutcomeUnknown, "no answer within the 300 ms");
    let error = transport
        .exchange(&pool(), secure, &limit)
        .await
        .err()
        .unwrap();
    says(&error, Code::Unavailable, "not connected within the 300 ms");
}

#[tokio::test]
async fn the_end_of_a_lease_ends_what_it_has_under_way() {
    let (seen, mut came) = tokio::sync::mpsc::unbounded_channel();
    let server = raw(move |mut stream| {
        let seen = seen.clone();
        async move {
            let head = read_head(&mut stream).await;
            if head.starts_with("GET") {
                write(
                    &mut stream,
                    b"HTTP/1.1 200 OK\r\ncontent-length: 1000000\r\n\r\nab",
                )
                .await;
            }
            seen.send("asked").unwrap();
            until_closed(&mut stream).await;
            seen.send("closed").unwrap();
        }
    })
    .await;
    let transport = transport();
    // A request that waits for its answer.
    let closed = CancellationToken::new();
    let limit = Bounds {
        closed: Some(closed.clone()),
        ..bounds()
    };
    let key = pool();
    let (answer, ()) = tokio::join!(
        transport.exchange(&key, wire("POST", &server.url()), &limit),
        async {
            assert_eq!(within(came.recv()).await, Some("asked"));
            closed.cancel();
        }
    );
    says(&answer.err().unwrap(), Code::Cancelled, "no longer active");
    assert_eq!(within(came.recv()).await, Some("closed"));
    // A download that nobody reads just now.
    let closed = CancellationToken::new();
    let limit = Bounds {
        closed: Some(closed.clone()),
        ..lasting()
    };
    let answer = transport
        .exchange(&pool(), wire("GET", &server.url()), &limit)
        .await
        .unwrap();
    let mut stream = answer.body.into_stream();
    assert_eq!(within(came.recv()).await, Some("asked"));
    closed.cancel();
    assert_eq!(within(came.recv()).await, Some("closed"));
    assert!(within(stream.read_to_end(&mut Vec::new())).await.is_err());
    // A call that comes after.
    let error = transport
        .exchange(&pool(), wire("GET", &server.url()), &limit)
        .await
        .err()
        .unwrap();
    says(&error, Code::Cancelled, "no longer active");
}

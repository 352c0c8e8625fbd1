//! Bodies: whole, in order and unchanged both ways, at the reader's pace and within the bounds.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::Response;
use leasehold_contract::{ByteStream, Code, Content, Error, HttpLines, Piece};
use leasehold_egress::{Body, Bounds, Wire};
use sha2::{Digest, Sha256};
use tokio::io::{AsyncRead, AsyncReadExt, ReadBuf};

use crate::server::{
    Server, ask, bounds, fails, lasting, pool, raw, read_head, reply, serve, transport,
    until_closed, wire, write,
};

const MIB: u64 = 1024 * 1024;

/// Bytes of a pattern without a period that chunks could hide, read in odd pieces; counts what is taken.
struct Source {
    length: u64,
    at: u64,
    turn: usize,
    taken: Arc<AtomicU64>,
}

impl Source {
    fn of(length: u64) -> Source {
        Source {
            length,
            at: 0,
            turn: 0,
            taken: Arc::default(),
        }
    }

    /// The bytes from where it stands, which do not depend on how they are cut.
    fn fill(&mut self, mut out: &mut [u8]) {
        while !out.is_empty() {
            // SplitMix64 of the word's number.
            let mut word = (self.at / 8).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            let bytes = (word ^ (word >> 31)).to_le_bytes();
            let bytes = &bytes[(self.at % 8) as usize..];
            let n = bytes.len().min(out.len());
            out[..n].copy_from_slice(&bytes[..n]);
            self.at += n as u64;
            out = &mut out[n..];
        }
    }
}

impl AsyncRead for Source {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.turn += 1;
        let odd = [1, 7, 4096, 65_535, 13, 33_333, 65_536][self.turn % 7];
        let left = self.length - self.at;
        let n = (buf.remaining() as u64).min(odd).min(left) as usize;
        let out = buf.initialize_unfilled_to(n);
        self.fill(out);
        buf.advance(n);
        self.taken.fetch_add(n as u64, Ordering::SeqCst);
        Poll::Ready(Ok(()))
    }
}

async fn digest(mut stream: impl AsyncRead + Unpin) -> io::Result<(u64, Vec<u8>)> {
    let mut hash = Sha256::new();
    let mut length = 0;
    let mut buffer = vec![0; 64 * 1024];
    loop {
        let n = stream.read(&mut buffer).await?;
        if n == 0 {
            return Ok((length, hash.finalize().to_vec()));
        }
        length += n as u64;
        hash.update(&buffer[..n]);
    }
}

/// Sends every body back as it comes.
async fn echo() -> Server {
    serve(|request| async move {
        let length = request.headers().get("content-length").cloned();
        let body = request.into_body().map_err(io::Error::other).boxed();
        let mut answer = Response::new(body);
        if let Some(length) = length {
            answer.headers_mut().insert("x-length", length);
        }
        answer
    })
    .await
}

async fn there_and_back(server: &Server, length: u64) -> Result<(u64, Vec<u8>), Error> {
    let mut post = wire("POST", &server.url());
    post.body = Body::Pieces(vec![Piece::Bytes(Box::pin(Source::of(length)))]);
    let answer = transport().exchange(&pool(), post, &lasting()).await?;
    Ok(digest(answer.body.into_stream()).await.unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bodies_of_every_size_come_back_as_they_went() {
    let server = echo().await;
    for length in [0, 1, 2, 1000, 65_535, 65_536, 65_537, MIB + 1, 64 * MIB - 1] {
        let expected = digest(Source::of(length)).await.unwrap();
        let got = there_and_back(&server, length).await.unwrap();
        assert_eq!(got, expected, "{length} bytes");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gibibyte_comes_back_as_it_went() {
    let server = echo().await;
    let (expected, got) = tokio::join!(
        digest(Source::of(1024 * MIB)),
        there_and_back(&server, 1024 * MIB)
    );
    assert_eq!(got.unwrap(), expected.unwrap());
}

#[tokio::test]
async fn a_source_is_not_read_ahead_of_a_server_that_does_not_read() {
    let server = raw(|stream| async move {
        std::future::pending::<()>().await;
        drop(stream);
    })
    .await;
    let source = Source::of(u64::MAX);
    let taken = source.taken.clone();
    let mut post = wire("POST", &server.url());
    post.body = Body::Pieces(vec![Piece::Bytes(Box::pin(source))]);
    let sending = tokio::spawn(async move { fails(&transport(), post).await });
    settled(&taken).await;
    assert!(
        taken.load(Ordering::SeqCst) < 32 * MIB,
        "{taken:?} bytes were read ahead"
    );
    sending.abort();
}

#[tokio::test]
async fn a_server_is_held_back_by_a_reader_that_does_not_read() {
    let source = Source::of(u64::MAX);
    let taken = source.taken.clone();
    let once = Arc::new(std::sync::Mutex::new(Some(source)));
    let server = raw(move |mut stream| {
        let source = once.lock().unwrap().take();
        async move {
            read_head(&mut stream).await;
            write(&mut stream, b"HTTP/1.1 200 OK\r\n\r\n").await;
            let mut source = source.unwrap();
            let _ = tokio::io::copy(&mut source, &mut stream).await;
        }
    })
    .await;
    let answer = transport()
        .exchange(&pool(), wire("GET", &server.url()), &lasting())
        .await
        .unwrap();
    let stream = answer.body.into_stream();
    settled(&taken).await;
    assert!(
        taken.load(Ordering::SeqCst) < 32 * MIB,
        "{taken:?} bytes were read ahead"
    );
    drop(stream);
}

/// Waits until a count has begun and stands still.
async fn settled(count: &AtomicU64) {
    let mut still = 0;
    let mut last = 0;
    while still < 20 {
        tokio::time::sleep(Duration::from_millis(10)).await;
        let now = count.load(Ordering::SeqCst);
        still = if now == last && now > 0 { still + 1 } else { 0 };
        last = now;
        assert!(now < 1024 * MIB, "it never stands still");
    }
}

fn pieces(parts: Vec<Piece>, server: &Server) -> Wire {
    let mut post = wire("POST", &server.url());
    post.body = Body::Pieces(parts);
    post
}

#[tokio::test]
async fn an_upload_says_its_length_when_all_of_it_is_inline_and_keeps_the_order_of_its_pieces() {
    let server = echo().await;
    let transport = transport();
    let inline = |text: &str| Piece::Inline(Content::Text(text.into()));
    let bytes = |text: &'static str| -> ByteStream { Box::pin(text.as_bytes()) };
    let post = pieces(
        vec![
            inline("a"),
            inline(""),
            Piece::Inline(Content::None),
            inline("bc"),
        ],
        &server,
    );
    let answer = transport.exchange(&pool(), post, &bounds()).await.unwrap();
    assert!(
        answer
            .head
            .headers
            .contains(&("x-length".into(), "3".into())),
        "{:?}",
        answer.head
    );
    assert_eq!(answer.whole().await.unwrap().body.as_bytes(), b"abc");
    let post = pieces(
        vec![
            inline("--x\r\n"),
            Piece::Bytes(bytes("file")),
            Piece::Bytes(bytes("")),
            inline("\r\n--x--"),
            Piece::Bytes(bytes("!")),
        ],
        &server,
    );
    let answer = transport.exchange(&pool(), post, &bounds()).await.unwrap();
    assert!(
        !answer
            .head
            .headers
            .iter()
            .any(|(name, _)| name == "x-length")
    );
    assert_eq!(
        answer.whole().await.unwrap().body.as_bytes(),
        b"--x\r\nfile\r\n--x--!"
    );
}

#[tokio::test]
async fn a_source_that_breaks_breaks_the_request_and_says_why() {
    struct Broken(u64);
    impl AsyncRead for Broken {
        fn poll_read(
            mut self: Pin<&mut Self>,
            _cx: &mut Context<'_>,
            buf: &mut ReadBuf<'_>,
        ) -> Poll<io::Result<()>> {
            if self.0 > 4 * MIB {
                return Poll::Ready(Err(io::Error::other("the disk is gone")));
            }
            let n = buf.remaining();
            buf.initialize_unfilled_to(n);
            buf.advance(n);
            self.0 += n as u64;
            Poll::Ready(Ok(()))
        }
    }
    let server = echo().await;
    let error = fails(
        &transport(),
        pieces(vec![Piece::Bytes(Box::pin(Broken(0)))], &server),
    )
    .await;
    assert_eq!(error.code, Code::OutcomeUnknown, "{error}");
    assert!(error.message.contains("the disk is gone"), "{error}");
}

#[tokio::test]
async fn an_answer_that_ends_too_soon_is_no_answer() {
    for answer in [
        &b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nabc"[..],
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nabcde\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nabc",
        b"HTTP/1.1 200 OK\r\ncontent-",
        b"",
    ] {
        let server = raw(move |mut stream| async move {
            read_head(&mut stream).await;
            write(&mut stream, answer).await;
        })
        .await;
        assert_eq!(
            fails(&transport(), wire("GET", &server.url())).await.code,
            Code::Unavailable
        );
        assert_eq!(
            fails(&transport(), wire("POST", &server.url())).await.code,
            Code::OutcomeUnknown
        );
    }
}

#[tokio::test]
async fn a_body_larger_than_the_bound_is_not_held() {
    let transport = transport();
    let limit = |body| Bounds {
        body: Some(body),
        ..bounds()
    };
    let told = serve(|_| async { reply(200, vec![b'x'; 1001]) }).await;
    let untold = raw(|mut stream| async move {
        read_head(&mut stream).await;
        write(&mut stream, b"HTTP/1.1 200 OK\r\n\r\n").await;
        while tokio::io::AsyncWriteExt::write_all(&mut stream, &[b'x'; 1000])
            .await
            .is_ok()
        {}
    })
    .await;
    for (method, code) in [("GET", Code::QuotaExceeded), ("POST", Code::OutcomeUnknown)] {
        for url in [told.url(), untold.url()] {
            let answer = transport
                .exchange(&pool(), wire(method, &url), &limit(1000))
                .await
                .unwrap();
            let error = answer.whole().await.unwrap_err();
            assert_eq!(error.code, code, "{error}");
        }
    }
    let answer = transport
        .exchange(&pool(), wire("GET", &told.url()), &limit(1001))
        .await
        .unwrap();
    assert_eq!(answer.whole().await.unwrap().body.as_bytes().len(), 1001);
    let answer = transport
        .exchange(&pool(), wire("GET", &untold.url()), &bounds())
        .await
        .unwrap();
    let error = answer.whole().await.unwrap_err();
    assert!(error.message.contains("larger than 8192 KiB"), "{error}");
}

#[tokio::test]
async fn an_answer_to_head_has_no_body_whatever_it_says() {
    let server = raw(|mut stream| async move {
        for _ in 0..2 {
            read_head(&mut stream).await;
            write(
                &mut stream,
                b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n",
            )
            .await;
        }
        until_closed(&mut stream).await;
    })
    .await;
    let transport = transport();
    for _ in 0..2 {
        assert_eq!(
            ask(&transport, wire("HEAD", &server.url())).await.unwrap(),
            (200, String::new())
        );
    }
    assert_eq!(server.accepted(), 1);
}

#[tokio::test]
async fn lines_come_while_the_answer_comes() {
    let (go, may) = tokio::sync::mpsc::unbounded_channel::<&'static [u8]>();
    let may = Arc::new(tokio::sync::Mutex::new(may));
    let server = raw(move |mut stream| {
        let may = may.clone();
        async move {
            read_head(&mut stream).await;
            write(
                &mut stream,
                b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n",
            )
            .await;
            while let Some(piece) = may.lock().await.recv().await {
                write(&mut stream, format!("{:x}\r\n", piece.len()).as_bytes()).await;
                write(&mut stream, piece).await;
                write(&mut stream, b"\r\n").await;
            }
            write(&mut stream, b"0\r\n\r\n").await;
        }
    })
    .await;
    let answer = transport()
        .exchange(&pool(), wire("GET", &server.url()), &bounds())
        .await
        .unwrap();
    let mut lines = answer.lines().unwrap();
    assert_eq!(lines.head().status, 200);
    go.send(b"one\r\ntw").unwrap();
    assert_eq!(lines.next().await.unwrap().as_deref(), Some("one"));
    go.send(b"o\n\n").unwrap();
    assert_eq!(lines.next().await.unwrap().as_deref(), Some("two"));
    assert_eq!(lines.next().await.unwrap().as_deref(), Some(""));
    go.send(b"caf\xc3").unwrap();
    go.send(b"\xa9").unwrap();
    drop(go);
    assert_eq!(lines.next().await.unwrap().as_deref(), Some("caf\u{e9}"));
    assert_eq!(lines.next().await.unwrap(), None);
    assert_eq!(lines.next().await.unwrap(), None);
}

#[tokio::test]
async fn a_line_of_a_mebibyte_is_taken_and_a_longer_one_is_not() {
    for (length, fits) in [(MIB, true), (MIB + 1, false), (3 * MIB, false)] {
        let server = serve(move |_| async move {
            let mut body = vec![b'x'; length as usize];
            body.extend_from_slice(b"\nnext");
            reply(200, Bytes::from(body))
        })
        .await;
        let answer = transport()
            .exchange(&pool(), wire("GET", &server.url()), &bounds())
            .await
            .unwrap();
        let mut lines = answer.lines().unwrap();
        match lines.next().await {
            Ok(Some(line)) => {
                assert!(fits);
                assert_eq!(line.len() as u64, length);
                assert_eq!(lines.next().await.unwrap().as_deref(), Some("next"));
            }
            Ok(None) => panic!("nothing came"),
            Err(error) => {
                assert!(!fits, "{error}");
                assert!(error.message.contains("longer than 1 MiB"), "{error}");
            }
        }
    }
}

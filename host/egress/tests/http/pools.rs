//! Pools: few sockets for many requests, none shared where something differs, and nothing sent twice by mistake.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use leasehold_contract::Code;
use leasehold_egress::{
    Body, Bounds, HttpSettings, PoolKey, PoolScope, TlsSettings, Transport, Wire,
};

use crate::server::{
    ask, bounds, fails, lasting, pool, raw, read_head, reply, serve, settings, transport, until,
    until_closed, wire, within, write,
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_thousand_requests_use_at_most_forty_sockets() {
    let server = serve(|request| async move { reply(200, request.uri().path().to_owned()) }).await;
    let transport = transport();
    let mut going = tokio::task::JoinSet::new();
    let next = Arc::new(AtomicUsize::new(0));
    for _ in 0..150 {
        let (transport, next, url) = (transport.clone(), next.clone(), server.url());
        going.spawn(async move {
            loop {
                let i = next.fetch_add(1, Ordering::SeqCst);
                if i >= 3000 {
                    return;
                }
                let method = if i % 2 == 0 { "GET" } else { "POST" };
                let answer = ask(&transport, wire(method, &format!("{url}/{i}")))
                    .await
                    .unwrap();
                assert_eq!(answer, (200, format!("/{i}")));
            }
        });
    }
    while let Some(done) = going.join_next().await {
        done.unwrap();
    }
    assert!(server.accepted() <= 40, "{} sockets", server.accepted());
}

#[tokio::test]
async fn requests_one_after_another_use_one_connection() {
    let server = serve(|_| async { reply(200, "ok") }).await;
    let transport = transport();
    for _ in 0..50 {
        ask(&transport, wire("POST", &server.url())).await.unwrap();
        until("the connection to lie idle", || transport.idle() == 1).await;
    }
    assert_eq!(server.accepted(), 1);
}

#[tokio::test]
async fn a_connection_is_shared_only_where_everything_is_equal() {
    let server = serve(|_| async { reply(200, "ok") }).await;
    let transport = transport();
    let other = |change: fn(&mut PoolKey)| {
        let mut key = pool();
        change(&mut key);
        key
    };
    let keys = [
        pool(),
        other(|k| k.company = "c2".into()),
        other(|k| k.plugin_revision = "p2".into()),
        other(|k| k.secret_version = "s2".into()),
    ];
    for round in 1..=2 {
        for (i, key) in keys.iter().enumerate() {
            let answer = transport
                .exchange(key, wire("GET", &server.url()), &bounds())
                .await
                .unwrap();
            answer.whole().await.unwrap();
            let stand = if round == 1 { i + 1 } else { keys.len() };
            until("the connection to lie idle", || transport.idle() == stand).await;
        }
    }
    assert_eq!(server.accepted(), keys.len());
    // Another trust is another pool, and a fresh one is none.
    let mut trusting = wire("GET", &server.url());
    trusting.destination.tls =
        Some(TlsSettings::new(Some(&crate::tls::authority().pem()), None).unwrap());
    ask(&transport, trusting).await.unwrap();
    assert_eq!(server.accepted(), keys.len() + 1);
    let fresh = other(|k| k.fresh = true);
    for _ in 0..2 {
        let answer = transport
            .exchange(&fresh, wire("GET", &server.url()), &bounds())
            .await
            .unwrap();
        answer.whole().await.unwrap();
    }
    assert_eq!(server.accepted(), keys.len() + 3);
}

#[tokio::test]
async fn closing_a_scope_closes_its_idle_connections_and_those_in_use_when_their_work_ends() {
    let server = serve(|_| async { reply(200, "ok") }).await;
    let transport = transport();
    let scope = |revision: Option<&str>, version: Option<&str>| PoolScope {
        company: Some("c1".into()),
        plugin_revision: revision.map(str::to_owned),
        secret_version: version.map(str::to_owned),
    };
    ask(&transport, wire("GET", &server.url())).await.unwrap();
    until("the connection to lie idle", || transport.idle() == 1).await;
    transport.close_scope(&scope(Some("p2"), None));
    transport.close_scope(&scope(None, Some("s2")));
    transport.close_scope(&PoolScope {
        company: Some("c2".into()),
        ..scope(None, None)
    });
    assert_eq!(transport.idle(), 1);
    transport.close_scope(&scope(Some("p1"), Some("s1")));
    assert_eq!(transport.idle(), 0);
    // One in use: it ends its work and is not used again.
    let answer = transport
        .exchange(&pool(), wire("GET", &server.url()), &bounds())
        .await
        .unwrap();
    transport.close_scope(&scope(None, None));
    assert_eq!(answer.whole().await.unwrap().body.as_bytes(), b"ok");
    ask(&transport, wire("GET", &server.url())).await.unwrap();
    assert_eq!(server.accepted(), 3);
}

/// Answers the first request of each connection; what it does with the second is `then`. Tells every head it reads.
async fn once_then(then: &'static [u8]) -> (crate::server::Server, Arc<AtomicUsize>) {
    let heads = Arc::new(AtomicUsize::new(0));
    let count = heads.clone();
    let server = raw(move |mut stream| {
        let count = count.clone();
        async move {
            read_head(&mut stream).await;
            count.fetch_add(1, Ordering::SeqCst);
            write(
                &mut stream,
                b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok",
            )
            .await;
            if !read_head(&mut stream).await.is_empty() {
                count.fetch_add(1, Ordering::SeqCst);
                write(&mut stream, then).await;
            }
        }
    })
    .await;
    (server, heads)
}

#[tokio::test]
async fn a_get_on_a_connection_that_died_is_sent_again_and_a_post_is_not() {
    let (server, heads) = once_then(b"").await;
    let transport = transport();
    for expected in [1, 3] {
        assert_eq!(
            ask(&transport, wire("GET", &server.url())).await.unwrap().0,
            200
        );
        assert_eq!(heads.load(Ordering::SeqCst), expected);
        until("the connection to lie idle", || transport.idle() == 1).await;
    }
    let error = fails(&transport, wire("POST", &server.url())).await;
    assert_eq!(error.code, Code::OutcomeUnknown, "{error}");
    assert_eq!(heads.load(Ordering::SeqCst), 4);
}

#[tokio::test]
async fn a_half_answer_is_not_asked_for_again() {
    let (server, heads) = once_then(b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhalf").await;
    let transport = transport();
    ask(&transport, wire("GET", &server.url())).await.unwrap();
    until("the connection to lie idle", || transport.idle() == 1).await;
    assert_eq!(
        fails(&transport, wire("GET", &server.url())).await.code,
        Code::Unavailable
    );
    assert_eq!(heads.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn a_connection_that_the_server_closed_is_replaced_without_a_word() {
    let server = raw(|mut stream| async move {
        read_head(&mut stream).await;
        write(
            &mut stream,
            b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok",
        )
        .await;
    })
    .await;
    let transport = transport();
    for accepted in 1..=5 {
        ask(&transport, wire("POST", &server.url())).await.unwrap();
        until("the close to be seen", || transport.idle() == 0).await;
        assert_eq!(server.accepted(), accepted);
    }
}

#[tokio::test]
async fn a_request_that_must_not_be_sent_twice_takes_no_connection_that_was_long_idle() {
    let server = serve(|_| async { reply(200, "ok") }).await;
    let transport = Transport::new(HttpSettings {
        trusted: Duration::ZERO,
        ..settings()
    });
    ask(&transport, wire("GET", &server.url())).await.unwrap();
    until("the connection to lie idle", || transport.idle() == 1).await;
    ask(&transport, wire("POST", &server.url())).await.unwrap();
    assert_eq!(server.accepted(), 2);
    until("the connections to lie idle", || transport.idle() == 2).await;
    ask(&transport, wire("GET", &server.url())).await.unwrap();
    assert_eq!(server.accepted(), 2);
}

#[tokio::test]
async fn an_idle_connection_is_closed_after_a_while() {
    let (gone, mut was) = tokio::sync::mpsc::unbounded_channel();
    let server = raw(move |mut stream| {
        let gone = gone.clone();
        async move {
            read_head(&mut stream).await;
            write(&mut stream, b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await;
            until_closed(&mut stream).await;
            gone.send(()).unwrap();
        }
    })
    .await;
    let transport = Transport::new(HttpSettings {
        keep: Duration::from_millis(100),
        ..settings()
    });
    ask(&transport, wire("GET", &server.url())).await.unwrap();
    was.recv().await.unwrap();
    assert_eq!(transport.idle(), 0);
}

#[tokio::test]
async fn a_full_pool_is_busy_and_a_download_takes_no_request_s_place() {
    let server = raw(|mut stream| async move {
        read_head(&mut stream).await;
        write(
            &mut stream,
            b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhalf",
        )
        .await;
        until_closed(&mut stream).await;
    })
    .await;
    let transport = Transport::new(HttpSettings {
        connections: 1,
        streams: 1,
        ..settings()
    });
    let limit = |bounds: Bounds| Bounds {
        total: Some(Duration::from_millis(300)),
        ..bounds
    };
    let get = || -> Wire { wire("GET", &server.url()) };
    let request = transport.exchange(&pool(), get(), &bounds()).await.unwrap();
    let download = transport
        .exchange(&pool(), get(), &lasting())
        .await
        .unwrap();
    for full in [limit(bounds()), limit(lasting())] {
        let error = transport
            .exchange(&pool(), get(), &full)
            .await
            .err()
            .unwrap();
        assert_eq!(error.code, Code::Busy, "{error}");
    }
    drop(request);
    transport.exchange(&pool(), get(), &bounds()).await.unwrap();
    drop(download);
    transport
        .exchange(&pool(), get(), &lasting())
        .await
        .unwrap();
}

#[tokio::test]
async fn no_more_connections_lie_idle_than_requests_may_use() {
    let closed = Arc::new(AtomicUsize::new(0));
    let count = closed.clone();
    let server = raw(move |mut stream| {
        let count = count.clone();
        async move {
            read_head(&mut stream).await;
            write(
                &mut stream,
                b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok",
            )
            .await;
            until_closed(&mut stream).await;
            count.fetch_add(1, Ordering::SeqCst);
        }
    })
    .await;
    let transport = Transport::new(HttpSettings {
        connections: 2,
        ..settings()
    });
    let mut downloads = Vec::new();
    for _ in 0..6 {
        let request = wire("GET", &server.url());
        downloads.push(
            transport
                .exchange(&pool(), request, &lasting())
                .await
                .unwrap(),
        );
    }
    assert_eq!(server.accepted(), 6);
    for download in downloads {
        assert_eq!(download.whole().await.unwrap().body.as_bytes(), b"ok");
    }
    until("the others to be closed", || {
        closed.load(Ordering::SeqCst) == 4
    })
    .await;
    assert_eq!(transport.idle(), 2);
}

#[tokio::test]
async fn an_answer_before_the_end_of_the_request_is_told_and_its_connection_is_not_used_again() {
    let server = raw(|mut stream| async move {
        read_head(&mut stream).await;
        write(
            &mut stream,
            b"HTTP/1.1 413 Too Large\r\ncontent-length: 3\r\n\r\nno!",
        )
        .await;
        until_closed(&mut stream).await;
    })
    .await;
    let transport = transport();
    for accepted in 1..=2 {
        let mut post = wire("POST", &server.url());
        let (source, sink) = tokio::io::duplex(16);
        post.body = Body::Pieces(vec![leasehold_contract::Piece::Bytes(Box::pin(sink))]);
        assert_eq!(
            ask(&transport, post).await.unwrap(),
            (413, "no!".to_owned())
        );
        assert_eq!(server.accepted(), accepted);
        drop(source);
    }
}

#[tokio::test]
async fn a_place_is_free_again_however_the_request_that_had_it_ended() {
    let turn = Arc::new(AtomicUsize::new(0));
    let server = raw(move |mut stream| {
        let at = turn.fetch_add(1, Ordering::SeqCst);
        async move {
            read_head(&mut stream).await;
            let answer: &[u8] = match at {
                0 => b"",
                1 => b"this is no HTTP\r\n\r\n",
                2 => b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhalf",
                _ => b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\nok",
            };
            write(&mut stream, answer).await;
        }
    })
    .await;
    let transport = Transport::new(HttpSettings {
        connections: 1,
        ..settings()
    });
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let nobody = format!("http://{}", free.local_addr().unwrap());
    drop(free);
    for url in [nobody, server.url()] {
        for _ in 0..3 {
            let error = fails(&transport, wire("POST", &url)).await;
            assert_ne!(error.code, Code::Busy, "{error}");
        }
    }
    for _ in 0..3 {
        let answer = within(ask(&transport, wire("POST", &server.url()))).await;
        assert_eq!(answer.unwrap(), (200, "ok".to_owned()));
    }
}

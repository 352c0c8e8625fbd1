//! Heads: what of a request is the host's own, and how much of an answer's is taken.

use leasehold_contract::Code;
use leasehold_egress::{Body, Secret};

use crate::server::{
    ask, bounds, fails, pool, raw, read_head, reply, serve, transport, until_closed, wire, write,
};

#[tokio::test]
async fn what_goes_out_is_what_was_asked_and_the_host_s_own_headers() {
    let server = raw(|mut stream| async move {
        let head = read_head(&mut stream).await;
        let answer = format!(
            "HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{head}",
            head.len()
        );
        write(&mut stream, answer.as_bytes()).await;
        until_closed(&mut stream).await;
    })
    .await;
    let mut request = wire("GET", &format!("{}/a%2Fb/../c?x=%20&y", server.url()));
    request.headers = vec![
        ("x-one".into(), Secret::new("1".into())),
        ("x-one".into(), Secret::new("2".into())),
        ("authorization".into(), Secret::new("Bearer abc".into())),
    ];
    let (_, head) = ask(&transport(), request).await.unwrap();
    let agent = concat!("leasehold/", env!("CARGO_PKG_VERSION"));
    let expected = format!(
        "GET /a%2Fb/../c?x=%20&y HTTP/1.1\r\nhost: {}\r\naccept-encoding: identity\r\nuser-agent: {agent}\r\n\
         x-one: 1\r\nx-one: 2\r\nauthorization: Bearer abc\r\n\r\n",
        server.at
    );
    // The URL's standard resolved the dots before anybody compared the path.
    assert_eq!(head, expected.replace("/a%2Fb/../c", "/c"));
}

#[tokio::test]
async fn a_head_that_would_say_something_else_on_the_wire_is_not_sent() {
    let server = serve(|_| async { reply(200, "") }).await;
    let transport = transport();
    let base = || wire("GET", &server.url());
    for (name, value) in [
        ("host", "evil"),
        ("Host", "evil"),
        ("connection", "close"),
        ("content-length", "5"),
        ("transfer-encoding", "chunked"),
        ("te", "trailers"),
        ("trailer", "x"),
        ("upgrade", "h2c"),
        ("expect", "100-continue"),
        ("accept-encoding", "gzip"),
        ("proxy-authorization", "x"),
        ("x y", "1"),
        ("x:y", "1"),
        ("", "1"),
        ("x\r\ny", "1"),
        ("x", "a\r\nb: c"),
        ("x", "a\nb"),
        ("x", "a\0b"),
        ("x", "a\u{7f}b"),
    ] {
        let mut request = base();
        request.headers = vec![(name.into(), Secret::new(value.into()))];
        let error = fails(&transport, request).await;
        assert_eq!(
            error.code,
            Code::InvalidConfig,
            "{name:?}: {value:?}: {error}"
        );
    }
    for method in ["CONNECT", "TRACE", "get", "Get", "", "G T", "GET\r\n"] {
        let mut request = base();
        request.method = method.into();
        assert_eq!(
            fails(&transport, request).await.code,
            Code::InvalidConfig,
            "{method:?}"
        );
    }
    for target in [
        "",
        "x",
        "*",
        "http://evil/",
        "/a b",
        "/a#b",
        "/a\r\nx: y",
        "/\u{fc}",
        "/\t",
    ] {
        let mut request = base();
        request.target = target.into();
        assert_eq!(
            fails(&transport, request).await.code,
            Code::InvalidConfig,
            "{target:?}"
        );
    }
    let mut request = base();
    request.headers = (0..101)
        .map(|i| (format!("x-{i}"), Secret::new("1".into())))
        .collect();
    assert_eq!(fails(&transport, request).await.code, Code::InvalidConfig);
    let mut request = base();
    request.headers = vec![("x".into(), Secret::new("v".repeat(65 * 1024)))];
    assert_eq!(fails(&transport, request).await.code, Code::InvalidConfig);
    for method in ["GET", "HEAD"] {
        let mut request = wire(method, &server.url());
        request.body = Body::Full("x".into());
        assert_eq!(fails(&transport, request).await.code, Code::InvalidConfig);
    }
    assert_eq!(server.accepted(), 0, "something was dialled");
}

#[tokio::test]
async fn a_post_of_nothing_says_its_length_and_a_delete_says_none() {
    let server = raw(|mut stream| async move {
        let head = read_head(&mut stream).await;
        let answer = format!(
            "HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{head}",
            head.len()
        );
        write(&mut stream, answer.as_bytes()).await;
    })
    .await;
    let (_, head) = ask(&transport(), wire("POST", &server.url()))
        .await
        .unwrap();
    assert!(head.contains("\r\ncontent-length: 0\r\n"), "{head}");
    let (_, head) = ask(&transport(), wire("DELETE", &server.url()))
        .await
        .unwrap();
    assert!(!head.contains("content-length"), "{head}");
    assert!(!head.contains("transfer-encoding"), "{head}");
}

/// Answers every request with these bytes.
async fn answering(bytes: Vec<u8>) -> crate::server::Server {
    raw(move |mut stream| {
        let bytes = bytes.clone();
        async move {
            read_head(&mut stream).await;
            write(&mut stream, &bytes).await;
            until_closed(&mut stream).await;
        }
    })
    .await
}

#[tokio::test]
async fn an_answer_whose_head_is_too_large_is_refused() {
    let many: String = (0..101).map(|i| format!("x-{i}: 1\r\n")).collect();
    let long = format!("x: {}\r\n", "v".repeat(65 * 1024));
    for head in [many, long] {
        let server =
            answering(format!("HTTP/1.1 200 OK\r\n{head}content-length: 0\r\n\r\n").into()).await;
        let error = fails(&transport(), wire("GET", &server.url())).await;
        assert_eq!(error.code, Code::Unavailable);
        assert!(
            error
                .message
                .contains("the head of the answer has more than"),
            "{error}"
        );
        let error = fails(&transport(), wire("POST", &server.url())).await;
        assert_eq!(error.code, Code::OutcomeUnknown);
    }
}

#[tokio::test]
async fn an_answer_that_is_no_http_is_refused() {
    for bytes in [
        &b"SSH-2.0-OpenSSH_9.2\r\n\r\n"[..],
        b"HTTP/2.0 200 OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nab",
        b"HTTP/1.1 200 OK\r\nx : 1\r\n\r\n",
    ] {
        let server = answering(bytes.to_vec()).await;
        let error = fails(&transport(), wire("GET", &server.url())).await;
        assert_eq!(error.code, Code::Unavailable, "{error}");
        assert!(error.message.contains("not HTTP/1.1"), "{error}");
    }
    let server = answering(
        b"HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n".to_vec(),
    )
    .await;
    let error = transport()
        .exchange(&pool(), wire("GET", &server.url()), &bounds())
        .await
        .err()
        .unwrap();
    assert!(error.message.contains("nobody asked for"), "{error}");
}

#[tokio::test]
async fn trailers_and_informational_answers_do_not_reach_the_caller() {
    let server = answering(
        b"HTTP/1.1 103 Early Hints\r\nlink: secret\r\n\r\nHTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\
          trailer: x-secret\r\n\r\n2\r\nhi\r\n0\r\nx-secret: secret\r\n\r\n"
            .to_vec(),
    )
    .await;
    let transport = transport();
    let answer = transport
        .exchange(&pool(), wire("GET", &server.url()), &bounds())
        .await
        .unwrap();
    let whole = answer.whole().await.unwrap();
    assert_eq!(whole.body.as_bytes(), b"hi");
    assert_eq!(whole.head.status, 200);
    assert!(!format!("{:?}", whole.head).contains("x-secret: secret"));
    assert!(
        !whole
            .head
            .headers
            .iter()
            .any(|(name, _)| name == "link" || name == "x-secret")
    );
}

#[tokio::test]
async fn an_encoded_answer_is_refused_where_it_would_be_looked_into() {
    let server = answering(
        b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: 2\r\n\r\n\x1f\x8b".to_vec(),
    )
    .await;
    let transport = transport();
    let error = fails(&transport, wire("GET", &server.url())).await;
    assert!(error.message.contains("gzip"), "{error}");
    let answer = transport
        .exchange(&pool(), wire("GET", &server.url()), &bounds())
        .await
        .unwrap();
    assert!(answer.lines().is_err());
}

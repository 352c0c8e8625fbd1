//! Servers on loopback and the requests to them.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use leasehold_egress::{Body, Bounds, Destination, HttpSettings, Parsed, PoolKey, Transport, Wire};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::task::AbortOnDropHandle;

/// A deadline that only a fault reaches.
pub const LONG: Duration = Duration::from_secs(60);
/// A deadline that a test waits for.
pub const SHORT: Duration = Duration::from_millis(300);

pub type Reply = BoxBody<Bytes, io::Error>;

/// A server; dropped, it and its connections end.
pub struct Server {
    pub at: SocketAddr,
    accepted: Arc<AtomicUsize>,
    _task: AbortOnDropHandle<()>,
}

impl Server {
    /// Connections that it has taken so far.
    pub fn accepted(&self) -> usize {
        self.accepted.load(Ordering::SeqCst)
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.at)
    }
}

/// Serves HTTP with hyper.
pub async fn serve<F, R>(handler: F) -> Server
where
    F: Fn(Request<Incoming>) -> R + Clone + Send + Sync + 'static,
    R: Future<Output = Response<Reply>> + Send + 'static,
{
    raw(move |stream| speak(stream, handler.clone())).await
}

/// Speaks HTTP with hyper over one connection.
pub async fn speak<S, F, R>(stream: S, handler: F)
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    F: Fn(Request<Incoming>) -> R + Send + Sync + 'static,
    R: Future<Output = Response<Reply>> + Send + 'static,
{
    let service = service_fn(move |request| {
        let answer = handler(request);
        async move { Ok::<_, io::Error>(answer.await) }
    });
    let _ = hyper::server::conn::http1::Builder::new()
        .serve_connection(TokioIo::new(stream), service)
        .with_upgrades()
        .await;
}

/// Serves whatever `each` does with a connection.
pub async fn raw<F, R>(each: F) -> Server
where
    F: Fn(TcpStream) -> R + Send + Sync + 'static,
    R: Future<Output = ()> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = listener.local_addr().unwrap();
    let accepted = Arc::new(AtomicUsize::new(0));
    let count = accepted.clone();
    let task = tokio::spawn(async move {
        let mut open = tokio::task::JoinSet::new();
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            stream.set_nodelay(true).unwrap();
            count.fetch_add(1, Ordering::SeqCst);
            open.spawn(each(stream));
        }
    });
    Server {
        at,
        accepted,
        _task: AbortOnDropHandle::new(task),
    }
}

/// Reads a request's head from a raw connection.
pub async fn read_head(stream: &mut TcpStream) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        match stream.read_u8().await {
            Ok(byte) => head.push(byte),
            Err(_) => break,
        }
    }
    String::from_utf8(head).unwrap()
}

/// Writes, whoever listens.
pub async fn write(stream: &mut TcpStream, bytes: &[u8]) {
    let _ = stream.write_all(bytes).await;
}

/// Waits until the other side closed.
pub async fn until_closed(stream: &mut TcpStream) {
    let mut sink = [0; 1024];
    while matches!(stream.read(&mut sink).await, Ok(n) if n > 0) {}
}

/// What comes, unless a fault keeps it from coming.
pub async fn within<T>(coming: impl Future<Output = T>) -> T {
    tokio::time::timeout(LONG, coming)
        .await
        .expect("it does not end by itself")
}

/// Asks until it is so.
pub async fn until(what: &str, is: impl Fn() -> bool) {
    let deadline = tokio::time::Instant::now() + LONG;
    while !is() {
        assert!(
            tokio::time::Instant::now() < deadline,
            "waited in vain for {what}"
        );
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

pub fn reply(status: u16, body: impl Into<Bytes>) -> Response<Reply> {
    let body = Full::new(body.into())
        .map_err(|never| match never {})
        .boxed();
    Response::builder().status(status).body(body).unwrap()
}

pub fn pool() -> PoolKey {
    PoolKey {
        company: "c1".into(),
        plugin_revision: "p1".into(),
        secret_version: "s1".into(),
        fresh: false,
    }
}

pub fn transport() -> Transport {
    Transport::new(settings())
}

/// Deadlines that no test meets by chance.
pub fn settings() -> HttpSettings {
    HttpSettings {
        connect: LONG,
        tls: LONG,
        first_byte: LONG,
        idle: LONG,
        total: LONG,
        transfer: LONG,
        ping: LONG,
        ..HttpSettings::default()
    }
}

pub fn bounds() -> Bounds {
    Bounds::default()
}

/// A download's bounds.
pub fn lasting() -> Bounds {
    Bounds {
        lasting: true,
        ..Bounds::default()
    }
}

pub fn typed(url: &str) -> Destination {
    Destination {
        origin: Parsed::of(url).unwrap().origin,
        typed: true,
        tls: None,
        unix: None,
        engine: false,
    }
}

pub fn wire(method: &str, url: &str) -> Wire {
    let parsed = Parsed::of(url).unwrap();
    Wire {
        destination: typed(url),
        method: method.into(),
        target: match &parsed.query {
            Some(query) => format!("{}?{query}", parsed.path),
            None => parsed.path,
        },
        headers: Vec::new(),
        body: Body::Empty,
        carries_secret: false,
    }
}

/// One request and its whole answer, as status and text.
pub async fn ask(
    transport: &Transport,
    wire: Wire,
) -> Result<(u16, String), leasehold_contract::Error> {
    let answer = transport.exchange(&pool(), wire, &bounds()).await?;
    let whole = answer.whole().await?;
    let text = String::from_utf8(whole.body.as_bytes().to_vec()).unwrap();
    Ok((whole.head.status, text))
}

/// The error that a request ends with, and never an answer.
pub async fn fails(transport: &Transport, wire: Wire) -> leasehold_contract::Error {
    within(ask(transport, wire))
        .await
        .expect_err("it was answered")
}

//! Times requests over the wire of egress beside a plain hyper client that holds one connection. Prints one JSON object
//! in microseconds.
//!
//! `exchange [small requests] [large requests]`: a GET with a credential in its header, answered with 200 bytes and with
//! 1 MiB, by a hyper server in a thread of its own. Samples of both sides alternate.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::{BodyExt, Empty, Full};
use hyper::client::conn::http1::SendRequest;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use leasehold_egress::{
    Body, Bounds, Destination, HttpSettings, Parsed, PoolKey, Secret, Transport, Wire,
};
use tokio::net::{TcpListener, TcpStream};

const CREDENTIAL: &str = "Bearer 0123456789abcdef0123456789abcdef";
const CASES: [(&str, usize); 2] = [("small", 200), ("large", 1 << 20)];

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

fn main() -> Outcome<()> {
    let mut arguments = std::env::args().skip(1);
    let small: usize = arguments.next().map_or(Ok(20_000), |n| n.parse())?;
    let large: usize = arguments.next().map_or(Ok(2_000), |n| n.parse())?;
    let at = serve()?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let mut told = serde_json::Map::new();
    for ((name, bytes), requests) in CASES.into_iter().zip([small, large]) {
        let [ours, plain] = runtime.block_on(measure(at, bytes, requests))?;
        let figures = serde_json::json!({
            "requests": requests,
            "p50_us": part(&ours, 50), "p99_us": part(&ours, 99),
            "plain_p50_us": part(&plain, 50), "plain_p99_us": part(&plain, 99),
        });
        told.insert(name.to_owned(), figures);
    }
    println!("{}", serde_json::Value::Object(told));
    Ok(())
}

/// A server in a thread of its own that answers `/n` with n bytes.
fn serve() -> Outcome<SocketAddr> {
    let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
    listener.set_nonblocking(true)?;
    let at = listener.local_addr()?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    std::thread::spawn(move || runtime.block_on(answer(listener)));
    Ok(at)
}

async fn answer(listener: std::net::TcpListener) -> std::io::Result<()> {
    let listener = TcpListener::from_std(listener)?;
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        let answers = service_fn(|request: Request<hyper::body::Incoming>| async move {
            let bytes = request.uri().path()[1..].parse().unwrap_or(0);
            let body = Full::new(Bytes::from(vec![b'x'; bytes]));
            Ok::<_, std::io::Error>(Response::new(body))
        });
        tokio::spawn(
            hyper::server::conn::http1::Builder::new()
                .serve_connection(TokioIo::new(stream), answers),
        );
    }
}

async fn measure(at: SocketAddr, bytes: usize, requests: usize) -> Outcome<[Vec<Duration>; 2]> {
    let transport = Transport::new(HttpSettings::default());
    let stream = TcpStream::connect(at).await?;
    stream.set_nodelay(true)?;
    let (mut plain, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    tokio::spawn(connection);
    let mut times = [Vec::with_capacity(requests), Vec::with_capacity(requests)];
    for n in 0..requests + requests / 10 {
        let began = Instant::now();
        by_egress(&transport, at, bytes).await?;
        let ours = began.elapsed();
        let began = Instant::now();
        by_hyper(&mut plain, at, bytes).await?;
        let theirs = began.elapsed();
        if n >= requests / 10 {
            times[0].push(ours);
            times[1].push(theirs);
        }
    }
    times.iter_mut().for_each(|t| t.sort_unstable());
    Ok(times)
}

async fn by_egress(transport: &Transport, at: SocketAddr, bytes: usize) -> Outcome<()> {
    let parsed = Parsed::of(&format!("http://{at}/{bytes}"))?;
    let pool = PoolKey {
        company: "company".into(),
        plugin_revision: "revision".into(),
        secret_version: "version".into(),
        fresh: false,
    };
    let wire = Wire {
        destination: Destination {
            origin: parsed.origin,
            typed: true,
            tls: None,
            unix: None,
        },
        method: "GET".into(),
        target: parsed.path,
        headers: vec![("authorization".into(), Secret::new(CREDENTIAL.into()))],
        body: Body::Empty,
        carries_secret: true,
    };
    let answer = transport.exchange(&pool, wire, &Bounds::default()).await?;
    let whole = answer.body.whole().await?;
    same(whole.len(), bytes)
}

async fn by_hyper(
    plain: &mut SendRequest<Empty<Bytes>>,
    at: SocketAddr,
    bytes: usize,
) -> Outcome<()> {
    plain.ready().await?;
    let request = Request::get(format!("/{bytes}"))
        .header("host", at.to_string())
        .header("authorization", CREDENTIAL)
        .body(Empty::new())?;
    let answer = plain.send_request(request).await?;
    let whole = answer.into_body().collect().await?.to_bytes();
    same(whole.len(), bytes)
}

fn same(got: usize, expected: usize) -> Outcome<()> {
    match got == expected {
        true => Ok(()),
        false => Err(format!("{got} bytes came where {expected} were sent").into()),
    }
}

fn part(sorted: &[Duration], percent: usize) -> Option<f64> {
    let at = sorted.len().saturating_sub(1) * percent / 100;
    sorted.get(at).map(|time| time.as_nanos() as f64 / 1000.0)
}

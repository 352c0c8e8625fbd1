//! Times requests through the door of egress, and a component's call that makes one, beside a plain hyper client that
//! holds one connection. Prints one JSON object in microseconds.
//!
//! `exchange <cabin.wasm> [small] [large] [waiting]`, each a number of requests. `small` and `large` are a GET with a
//! credential in its header, judged, recorded, sent and answered with 200 bytes or 1 MiB; `stream` is the large one taken
//! as a stream. `waiting` is `inspect` of the component, whose one request is answered after a millisecond. The server is
//! hyper's, in a thread of its own. Samples of both sides alternate; the record is dropped.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use bytes::Bytes;
use http_body_util::{BodyExt, Empty, Full};
use hyper::client::conn::http1::SendRequest;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use leasehold_contract::{Code, Content, Egress, Error, Grant, HttpRequest, Purpose};
use leasehold_egress::{
    CallScope, CredentialValue, EgressRecord, Endpoint, HttpAsked, HttpFacts, HttpScope,
    HttpSettings, Kept, Payloads, Reach, Recorder, Secret, Sink, Ssh, SshSettings, Transport,
    Value, placeholder,
};
use leasehold_runtime::{CallSetup, Prepared, Runtime, Settings};
use tokio::io::AsyncReadExt;
use tokio::net::{TcpListener, TcpStream};

const KEY: &str = "0123456789abcdef0123456789abcdef";
const SMALL: usize = 200;
const LARGE: usize = 1 << 20;
/// How long the backend of a call that waits takes to answer.
const WAIT: Duration = Duration::from_millis(1);
const ROOM: &str = r#"{"id":"room-1","name":"acquisition","workspace":"/rooms/1","labels":{}}"#;

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;
/// Ours and the plain client's.
type Sides = [Vec<Duration>; 2];

fn main() -> Outcome<()> {
    let mut arguments = std::env::args().skip(1);
    let component = arguments.next().ok_or("name the component of cabin")?;
    let component = Bytes::from(std::fs::read(component)?);
    let mut count = |or: usize| arguments.next().map_or(Ok(or), |n| n.parse());
    let (small, large, waiting) = (count(20_000)?, count(2_000)?, count(2_000)?);
    let at = serve()?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let told = runtime.block_on(async {
        let bench = Bench::new(at, component).await?;
        let mut told = serde_json::Map::new();
        let sides = bench.requests(SMALL, small, false).await?;
        told.insert("small".to_owned(), figures(&sides));
        let sides = bench.requests(LARGE, large, false).await?;
        told.insert("large".to_owned(), figures(&sides));
        let sides = bench.requests(LARGE, large, true).await?;
        told.insert("stream".to_owned(), figures(&sides));
        told.insert("waiting".to_owned(), figures(&bench.calls(waiting).await?));
        Outcome::Ok(told)
    })?;
    println!("{}", serde_json::Value::Object(told));
    Ok(())
}

/// A server in a thread of its own that answers `/bytes/n` with n bytes, and anything else after a while with a room.
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
            let wanted = request.uri().path().strip_prefix("/bytes/");
            let body = match wanted.and_then(|n| n.parse().ok()) {
                Some(bytes) => Bytes::from(vec![b'x'; bytes]),
                None => {
                    // Nobody else is served meanwhile, and a timer of tokio's would round it up.
                    std::thread::sleep(WAIT);
                    Bytes::from_static(ROOM.as_bytes())
                }
            };
            Ok::<_, std::io::Error>(Response::new(Full::new(body)))
        });
        tokio::spawn(
            hyper::server::conn::http1::Builder::new()
                .serve_connection(TokioIo::new(stream), answers),
        );
    }
}

/// A recorder and a sink that keep nothing.
struct Dropped;

#[async_trait]
impl Recorder for Dropped {
    async fn record(&self, _record: EgressRecord) -> Result<(), Error> {
        Ok(())
    }
}

#[async_trait]
impl Sink for Dropped {
    async fn created(&self, _resource: &str) -> Result<(), Error> {
        Err(Error::new(Code::Internal, "nothing is made here"))
    }

    async fn child(&self, _id: &str) -> Result<(), Error> {
        Err(Error::new(Code::Internal, "nothing is made here"))
    }

    async fn keep(&self, _kept: Kept) -> Result<(), Error> {
        Err(Error::new(Code::Internal, "nothing is kept here"))
    }
}

/// Both sides, with a connection each.
struct Bench {
    at: SocketAddr,
    egress: Ssh,
    transport: Transport,
    prepared: Prepared,
    /// Read once for a configuration, as in the server.
    asked: Arc<HttpAsked>,
    endpoints: BTreeMap<String, Endpoint>,
}

impl Bench {
    async fn new(at: SocketAddr, component: Bytes) -> Outcome<Bench> {
        let runtime = Runtime::new(Settings::default())?;
        let prepared = runtime.prepare(component).await?;
        let asked = HttpAsked {
            operations: prepared.manifest.operations.clone(),
            credentials: prepared.manifest.credentials.clone(),
            streams: true,
            ..HttpAsked::default()
        };
        let endpoint = Endpoint::of(&format!("http://{at}"), true, None)?;
        Ok(Bench {
            at,
            egress: Ssh::new(SshSettings::default()),
            transport: Transport::new(HttpSettings::default()),
            prepared,
            asked: Arc::new(asked),
            endpoints: [("/endpoint".to_owned(), endpoint)].into(),
        })
    }

    /// What one call may reach, as the server builds it for each, and the placeholder of its credential.
    fn call(&self) -> Result<(Arc<dyn Egress>, String), Error> {
        let placeholder = placeholder()?;
        let facts = HttpFacts {
            asked: self.asked.clone(),
            endpoints: self.endpoints.clone(),
            values: vec![CredentialValue {
                pointer: "/token".to_owned(),
                placeholder: placeholder.clone(),
                value: Value::Text(Secret::new(KEY.to_owned())),
            }],
            ..HttpFacts::default()
        };
        let egress = self.egress.call(CallScope {
            company: "company".to_owned(),
            plugin_revision: "revision".to_owned(),
            grant: Arc::new(Grant {
                ssh: false,
                streams: true,
                origins: Vec::new(),
                operations: true,
                credentials: true,
                limits: self.prepared.manifest.request.limits,
            }),
            secret_version: "version".to_owned(),
            targets: Default::default(),
            http: Some(HttpScope {
                transport: self.transport.clone(),
                facts: Arc::new(facts),
                sink: Arc::new(Dropped),
            }),
            reach: Reach::Read,
            lease: None,
            execution: None,
            fresh: false,
            payloads: Arc::new(Payloads::none()),
            recorder: Arc::new(Dropped),
        });
        Ok((egress, placeholder))
    }

    /// So many requests, each of a call of its own, that are answered with so many bytes.
    async fn requests(&self, bytes: usize, requests: usize, stream: bool) -> Outcome<Sides> {
        let mut plain = self.plain().await?;
        let path = format!("/bytes/{bytes}");
        let mut sides = Sides::default();
        for n in 0..requests + requests / 10 {
            let began = Instant::now();
            let (egress, token) = self.call()?;
            let request = HttpRequest {
                method: "GET".to_owned(),
                url: format!("http://{}{path}", self.at),
                query: Vec::new(),
                headers: vec![("authorization".to_owned(), format!("Bearer {token}"))],
                body: Content::None,
                timeout: None,
                keep: Vec::new(),
            };
            let came = match stream {
                true => streamed(egress.as_ref(), request).await?,
                false => egress.http_send(request).await?.body.as_bytes().len(),
            };
            let ours = began.elapsed();
            let began = Instant::now();
            let theirs = by_hyper(&mut plain, self.at, &path).await?;
            let took = began.elapsed();
            if (came, theirs) != (bytes, bytes) {
                return Err(format!("{came} and {theirs} bytes of {bytes} came").into());
            }
            if n >= requests / 10 {
                sides[0].push(ours);
                sides[1].push(took);
            }
        }
        Ok(sides)
    }

    /// So many calls of the component that wait for one answer each.
    async fn calls(&self, calls: usize) -> Outcome<Sides> {
        let mut plain = self.plain().await?;
        let mut sides = Sides::default();
        for n in 0..calls + calls / 10 {
            let began = Instant::now();
            let (egress, token) = self.call()?;
            let mut setup = CallSetup::refusing(Purpose::Run, Duration::from_secs(30));
            setup.call.company = "company".to_owned();
            setup.egress = egress;
            let config = serde_json::json!({
                "endpoint": format!("http://{}", self.at), "token": token,
            })
            .to_string();
            let plugin = &self.prepared.plugin;
            let inspected = plugin.inspect(&setup, &config, r#"{"room":"room-1"}"#);
            inspected.await?;
            let ours = began.elapsed();
            let began = Instant::now();
            by_hyper(&mut plain, self.at, "/rooms/room-1").await?;
            let theirs = began.elapsed();
            if n >= calls / 10 {
                sides[0].push(ours);
                sides[1].push(theirs);
            }
        }
        Ok(sides)
    }

    async fn plain(&self) -> Outcome<SendRequest<Empty<Bytes>>> {
        let stream = TcpStream::connect(self.at).await?;
        stream.set_nodelay(true)?;
        let (plain, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
        tokio::spawn(connection);
        Ok(plain)
    }
}

/// How many bytes came as a stream.
async fn streamed(egress: &dyn Egress, request: HttpRequest) -> Outcome<usize> {
    let (_, mut body) = egress.http_download(request).await?;
    let (mut piece, mut came) = (vec![0; 64 << 10], 0);
    loop {
        match body.read(&mut piece).await? {
            0 => return Ok(came),
            read => came += read,
        }
    }
}

/// How many bytes came to the plain client.
async fn by_hyper(
    plain: &mut SendRequest<Empty<Bytes>>,
    at: SocketAddr,
    path: &str,
) -> Outcome<usize> {
    plain.ready().await?;
    let request = Request::get(path)
        .header("host", at.to_string())
        .header("authorization", format!("Bearer {KEY}"))
        .body(Empty::new())?;
    let answer = plain.send_request(request).await?;
    Ok(answer.into_body().collect().await?.to_bytes().len())
}

fn figures(sides: &Sides) -> serde_json::Value {
    let part = |side: &Vec<Duration>, percent: usize| {
        let mut sorted = side.clone();
        sorted.sort_unstable();
        let at = sorted.len().saturating_sub(1) * percent / 100;
        sorted.get(at).map(|time| time.as_nanos() as f64 / 1000.0)
    };
    let [ours, plain] = sides;
    serde_json::json!({
        "requests": ours.len(),
        "p50_us": part(ours, 50), "p99_us": part(ours, 99),
        "plain_p50_us": part(plain, 50), "plain_p99_us": part(plain, 99),
    })
}

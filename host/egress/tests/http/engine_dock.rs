//! An engine-shaped recorder behind a socket, and calls of a component that go to it: what comes is written down, and
//! answered as an engine answers.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use http_body_util::BodyExt;
use hyper::Request;
use hyper::body::Incoming;
use leasehold_contract::{
    Content, Creation, Egress, Error, Grant, HttpRequest, Limits, Operation, Role,
};
use leasehold_egress::{
    CallScope, EgressRecord, Endpoint, HostRoots, HttpAsked, HttpFacts, HttpScope, HttpSettings,
    Kept, LeaseScope, Payloads, Reach, Recorder, Sink, Ssh, SshSettings, Transport,
};
use tempfile::TempDir;
use tokio::net::UnixListener;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use crate::server::{LONG, Reply, reply, settings, speak};

/// The container that the engine makes, and that is the lease's.
pub const OWN: &str = "0a1b2c3d4e5f0a1b2c3d4e5f0a1b2c3d4e5f0a1b2c3d4e5f0a1b2c3d4e5f0a1b";
/// A command in it.
pub const EXEC: &str = "e0e1e2e3e4e5e6e7e8e9e0e1e2e3e4e5e6e7e8e9e0e1e2e3e4e5e6e7e8e9e0e1";
/// Somebody else's.
pub const THEIRS: &str = "ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff";
/// The lease's owner label.
pub const OWNER: &str = "owner-mac";
/// A variable of the lease, and what a component has of it.
pub const PAYLOAD: &str = "canary payload-41c2";
pub const PAYLOAD_TOKEN: &str = "lhp-303132333435363738393a3b3c3d3e3f";

/// A request as it came.
#[derive(Clone, Debug)]
pub struct Heard {
    pub line: String,
    pub headers: Vec<(String, String)>,
    pub body: String,
}

/// What egress writes down.
#[derive(Clone, Default)]
struct Book(Arc<Mutex<Vec<String>>>);

#[async_trait]
impl Recorder for Book {
    async fn record(&self, record: EgressRecord) -> Result<(), Error> {
        let place = record.place.unwrap_or_default();
        let how = if record.denied.is_some() {
            "refused"
        } else {
            "let through"
        };
        self.0
            .lock()
            .unwrap()
            .push(format!("{how} {} {place}", record.target));
        Ok(())
    }
}

#[async_trait]
impl Sink for Book {
    async fn created(&self, resource: &str) -> Result<(), Error> {
        self.0.lock().unwrap().push(format!("created {resource}"));
        Ok(())
    }

    async fn child(&self, id: &str) -> Result<(), Error> {
        self.0.lock().unwrap().push(format!("child {id}"));
        Ok(())
    }

    async fn keep(&self, _kept: Kept) -> Result<(), Error> {
        Ok(())
    }
}

/// The engine, and what a call of it has.
pub struct Dock {
    _dir: TempDir,
    pub path: String,
    heard: Arc<Mutex<Vec<Heard>>>,
    accepted: Arc<Mutex<usize>>,
    book: Book,
    pub facts: HttpFacts,
    pub reach: Reach,
    pub roots: HostRoots,
    /// How long a connection may take.
    pub connect: Duration,
    _task: AbortOnDropHandle<()>,
}

fn operation(method: &str, path: &str, role: Role) -> Operation {
    Operation {
        endpoint: "/engine".into(),
        method: method.into(),
        path: path.into(),
        role,
    }
}

fn made(labels: Option<&str>) -> Creation {
    Creation {
        id: "/Id".into(),
        labels: labels.map(str::to_owned),
    }
}

/// What an honest provider declares.
pub fn honest() -> Vec<Operation> {
    vec![
        operation(
            "POST",
            "/containers/create",
            Role::Create(made(Some("/Labels"))),
        ),
        operation("POST", "/containers/{resource}/start", Role::Act),
        operation("POST", "/containers/{resource}/stop", Role::Act),
        operation("POST", "/containers/{resource}/kill", Role::Act),
        operation("POST", "/containers/{resource}/wait", Role::Read),
        operation("DELETE", "/containers/{resource}", Role::Act),
        operation("PUT", "/containers/{resource}/archive", Role::Act),
        operation(
            "POST",
            "/containers/{resource}/exec",
            Role::CreateChild(made(None)),
        ),
        operation("POST", "/exec/{child}/start", Role::Act),
        operation("POST", "/exec/{child}/resize", Role::Act),
        operation("POST", "/images/create", Role::Shared),
    ]
}

/// What one declares that wants everything let through: the engine policy has only itself.
pub fn lax() -> Vec<Operation> {
    let mut all = Vec::new();
    for method in ["POST", "PUT", "DELETE", "GET"] {
        for depth in 1..6 {
            let path = "/*".repeat(depth);
            all.push(operation(method, &path, Role::Shared));
        }
    }
    all
}

impl Dock {
    /// One that a lease without a container goes to.
    pub async fn new() -> Dock {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().canonicalize().unwrap().join("engine.sock");
        let listener = UnixListener::bind(&path).unwrap();
        Dock::behind(dir, path.to_str().unwrap().to_owned(), listener)
    }

    /// One behind a socket that stands already.
    pub fn behind(dir: TempDir, path: String, listener: UnixListener) -> Dock {
        let heard: Arc<Mutex<Vec<Heard>>> = Arc::default();
        let accepted: Arc<Mutex<usize>> = Arc::default();
        let (listening, counted) = (heard.clone(), accepted.clone());
        let task = tokio::spawn(async move {
            let mut open = tokio::task::JoinSet::new();
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                *counted.lock().unwrap() += 1;
                let heard = listening.clone();
                open.spawn(speak(stream, move |request| answer(heard.clone(), request)));
            }
        });
        let endpoint = Endpoint::engine(&format!("unix://{path}"), true, None).unwrap();
        Dock {
            _dir: dir,
            roots: HostRoots::of(&[&path]).unwrap(),
            connect: LONG,
            path,
            heard,
            accepted,
            book: Book::default(),
            facts: HttpFacts {
                asked: Arc::new(HttpAsked {
                    operations: honest(),
                    streams: true,
                    ..HttpAsked::default()
                }),
                endpoints: [("/engine".to_owned(), endpoint)].into(),
                acquiring: true,
                ..HttpFacts::default()
            },
            reach: Reach::Act,
            _task: AbortOnDropHandle::new(task),
        }
    }

    /// One whose lease has a container, and a command in it.
    pub async fn leased() -> Dock {
        let mut dock = Dock::new().await;
        dock.facts.resource = Some(OWN.to_owned());
        dock.facts.children = [EXEC.to_owned()].into();
        dock.facts.acquiring = false;
        dock
    }

    /// Declares these operations instead.
    pub fn declare(&mut self, operations: Vec<Operation>) {
        Arc::make_mut(&mut self.facts.asked).operations = operations;
    }

    /// Everything that came.
    pub fn heard(&self) -> Vec<Heard> {
        self.heard.lock().unwrap().clone()
    }

    /// Connections that it took.
    pub fn accepted(&self) -> usize {
        *self.accepted.lock().unwrap()
    }

    /// What egress wrote down.
    pub fn book(&self) -> Vec<String> {
        self.book.0.lock().unwrap().clone()
    }

    /// A new call.
    pub fn call(&self) -> Arc<dyn Egress> {
        let book = Arc::new(self.book.clone());
        let mut payloads = Payloads::none();
        payloads.insert(PAYLOAD_TOKEN, PAYLOAD);
        Ssh::new(SshSettings::default()).call(CallScope {
            company: "c1".into(),
            plugin_revision: "p1".into(),
            grant: Arc::new(Grant {
                ssh: false,
                streams: true,
                origins: Vec::new(),
                operations: true,
                credentials: true,
                limits: Limits {
                    memory_mib: 64,
                    cpu: 1000,
                    exchanges: 64,
                    body_mib: 8,
                },
            }),
            secret_version: "s1".into(),
            targets: Default::default(),
            http: Some(HttpScope {
                transport: Transport::new(HttpSettings {
                    host_roots: self.roots.clone(),
                    connect: self.connect,
                    ..settings()
                }),
                facts: Arc::new(self.facts.clone()),
                sink: book.clone(),
            }),
            reach: self.reach,
            lease: Some(LeaseScope {
                lease: "lea_1".into(),
                acquisition: "acq-1".into(),
                epoch: 1,
                owner_label: OWNER.into(),
                labels: vec![
                    ("leasehold-lease".into(), "lea_1".into()),
                    ("leasehold-owner".into(), OWNER.into()),
                ],
                closed: CancellationToken::new(),
            }),
            execution: None,
            fresh: false,
            payloads: Arc::new(payloads),
            recorder: book,
        })
    }

    /// A request below the engine's origin as the component has it.
    pub fn ask(&self, method: &str, path: &str) -> HttpRequest {
        HttpRequest {
            method: method.into(),
            url: format!("{}{path}", self.facts.endpoints["/engine"].url),
            query: Vec::new(),
            headers: Vec::new(),
            body: Content::None,
            timeout: None,
            keep: Vec::new(),
        }
    }

    /// One with a body of JSON.
    pub fn post(&self, path: &str, body: &str) -> HttpRequest {
        HttpRequest {
            body: Content::Text(body.to_owned()),
            ..self.ask("POST", path)
        }
    }
}

async fn answer(
    heard: Arc<Mutex<Vec<Heard>>>,
    request: Request<Incoming>,
) -> hyper::Response<Reply> {
    let (head, body) = request.into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    let line = format!("{} {}", head.method, head.uri);
    heard.lock().unwrap().push(Heard {
        line: line.clone(),
        headers: head
            .headers
            .iter()
            .map(|(name, value)| (name.to_string(), value.to_str().unwrap().to_owned()))
            .collect(),
        body: String::from_utf8_lossy(&body).into_owned(),
    });
    let path = head.uri.path();
    if path.ends_with("/containers/create") {
        return reply(201, format!(r#"{{"Id":"{OWN}","Warnings":[]}}"#));
    }
    if path.ends_with("/exec") {
        return reply(201, format!(r#"{{"Id":"{EXEC}"}}"#));
    }
    if path.ends_with("/containers/json") {
        // One that heeds no filter.
        let all = serde_json::json!([
            { "Id": OWN, "Names": ["/acq-1"], "Labels": { "leasehold-owner": OWNER } },
            { "Id": THEIRS, "Names": ["/theirs"], "Command": "canary-theirs", "Labels": {} },
            { "Id": THEIRS, "Labels": { "leasehold-owner": "another-mac" } },
            { "Id": THEIRS, "Labels": null },
        ]);
        return reply(200, all.to_string());
    }
    if head.headers.contains_key("upgrade") {
        return hyper::Response::builder()
            .status(101)
            .header("connection", "upgrade")
            .header("upgrade", "tcp")
            .body(reply(200, "").into_body())
            .unwrap();
    }
    reply(200, "{}")
}

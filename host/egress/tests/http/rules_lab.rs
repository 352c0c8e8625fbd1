//! One call of a component over real HTTP: a backend that can echo, a recorder and a sink, all writing one list of what
//! happened in which order.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use hyper::Request;
use hyper::body::Incoming;
use leasehold_contract::{
    Code, Content, Creation, Credential, Egress, Error, Grant, HttpRequest, Limits, Mint,
    Operation, Role, Site,
};
use leasehold_egress::{
    CallScope, CredentialValue, EgressRecord, Endpoint, HttpAsked, HttpFacts, HttpScope, Kept,
    LeaseScope, Payloads, Reach, Recorder, Secret, Sink, Ssh, SshSettings, Transport, Value,
    placeholder,
};
use tokio_util::sync::CancellationToken;

use crate::server::{Reply, Server, reply, serve, transport, typed};

pub const KEY: &str = "canary-key-0123456789abcdef/+x";

/// What happened, in order.
#[derive(Clone, Default)]
pub struct Log(Arc<Mutex<Vec<String>>>);

impl Log {
    pub fn say(&self, what: impl Into<String>) {
        self.0.lock().unwrap().push(what.into());
    }

    pub fn all(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }
}

/// Writes down, or fails to.
pub struct Book {
    log: Log,
    fails: bool,
}

impl Book {
    fn write(&self, what: String) -> Result<(), Error> {
        if self.fails {
            return Err(Error::new(Code::Unavailable, "the disk is full"));
        }
        self.log.say(what);
        Ok(())
    }
}

#[async_trait]
impl Recorder for Book {
    async fn record(&self, record: EgressRecord) -> Result<(), Error> {
        let EgressRecord {
            target,
            pointer,
            action,
            place,
            denied,
            durable,
            ..
        } = record;
        let how = match (denied, durable) {
            (Some(_), _) => "refused",
            (None, true) => "durable",
            (None, false) => "batched",
        };
        if place.as_deref() == Some("GET /version") && !self.fails {
            // The host's own question whether an engine is here.
            return Ok(());
        }
        let target = target.split("://").next().unwrap_or_default().to_owned();
        self.write(format!(
            "record {how} {} {} {target} {pointer}",
            action.as_str(),
            place.unwrap_or_default()
        ))
    }
}

#[async_trait]
impl Sink for Book {
    async fn created(&self, resource: &str) -> Result<(), Error> {
        self.write(format!("created {resource}"))
    }

    async fn child(&self, id: &str) -> Result<(), Error> {
        self.write(format!("child {id}"))
    }

    async fn keep(&self, kept: Kept) -> Result<(), Error> {
        self.write(format!("kept {} {}", kept.name, kept.value.expose()))
    }
}

/// A backend and what a call of it needs.
pub struct Lab {
    pub server: Server,
    pub transport: Transport,
    pub log: Log,
    pub facts: HttpFacts,
    pub reach: Reach,
    pub lease: LeaseScope,
    pub token: String,
    pub granted: bool,
    pub grant: Grant,
    pub disk_full: bool,
    pub sink_fails: bool,
}

impl Lab {
    /// A backend at `/v1` that answers as `handler` does; every request is in the log before.
    pub async fn new<F, R>(handler: F) -> Lab
    where
        F: Fn(Request<Incoming>) -> R + Clone + Send + Sync + 'static,
        R: Future<Output = hyper::Response<Reply>> + Send + 'static,
    {
        let log = Log::default();
        let heard = log.clone();
        let server = serve(move |request| {
            // The host's own question whether an engine is here is not the component's.
            let asked = !request.uri().path().ends_with("/version");
            let answer = asked.then(|| {
                heard.say(format!("server {} {}", request.method(), request.uri()));
                handler(request)
            });
            async move {
                match answer {
                    Some(answer) => answer.await,
                    None => reply(404, ""),
                }
            }
        })
        .await;
        let token = placeholder().unwrap();
        let api = vec!["/api".to_owned()];
        let operation = |method: &str, path: &str, role| Operation {
            endpoint: "/api".into(),
            method: method.into(),
            path: path.into(),
            role,
        };
        let creation = |id: &str, labels: Option<&str>| Creation {
            id: id.into(),
            labels: labels.map(str::to_owned),
        };
        let asked = HttpAsked {
            operations: vec![
                operation(
                    "POST",
                    "/boxes",
                    Role::Create(creation("/id", Some("/labels"))),
                ),
                operation("DELETE", "/boxes/{resource}", Role::Act),
                operation("PUT", "/boxes/{resource}/file", Role::Act),
                operation("POST", "/boxes/{resource}/token", Role::Act),
                operation("GET", "/boxes/{resource}/attach", Role::Act),
                operation(
                    "POST",
                    "/boxes/{resource}/exec",
                    Role::CreateChild(creation("/id", None)),
                ),
            ],
            credentials: vec![Credential {
                pointer: "/key".into(),
                sites: vec![Site::Header("authorization".into(), "Bearer {}".into())],
                to: api.clone(),
            }],
            mints: vec![Mint {
                endpoint: "/api".into(),
                method: "POST".into(),
                path: "/boxes/{resource}/token".into(),
                pointers: vec!["/token".into()],
                sites: vec![Site::Header("x-session".into(), "{}".into())],
                to: api,
            }],
            streams: true,
            ..HttpAsked::default()
        };
        let facts = HttpFacts {
            asked: Arc::new(asked),
            endpoints: [(
                "/api".to_owned(),
                Endpoint {
                    url: format!("{}/v1", server.url()),
                    destination: typed(&server.url()),
                },
            )]
            .into(),
            values: vec![CredentialValue {
                pointer: "/key".into(),
                placeholder: token.clone(),
                value: Value::Text(Secret::new(KEY.into())),
            }],
            acquiring: true,
            ..HttpFacts::default()
        };
        Lab {
            server,
            transport: transport(),
            log,
            facts,
            reach: Reach::Act,
            lease: LeaseScope {
                lease: "lea_1".into(),
                acquisition: "acq-1".into(),
                epoch: 1,
                owner_label: "owner-mac".into(),
                labels: Vec::new(),
                closed: CancellationToken::new(),
            },
            token,
            granted: true,
            grant: Grant {
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
            },
            disk_full: false,
            sink_fails: false,
        }
    }

    /// As [`Lab::new`], of a lease whose environment is `box-1`.
    pub async fn leased<F, R>(handler: F) -> Lab
    where
        F: Fn(Request<Incoming>) -> R + Clone + Send + Sync + 'static,
        R: Future<Output = hyper::Response<Reply>> + Send + 'static,
    {
        let mut lab = Lab::new(handler).await;
        lab.facts.resource = Some("box-1".into());
        lab.facts.acquiring = false;
        lab
    }

    /// A new call.
    pub fn call(&self) -> Arc<dyn Egress> {
        let book = |fails| {
            Arc::new(Book {
                log: self.log.clone(),
                fails,
            })
        };
        Ssh::new(SshSettings::default()).call(CallScope {
            company: "c1".into(),
            grant: Arc::new(self.grant.clone()),
            plugin_revision: "p1".into(),
            secret_version: "s1".into(),
            targets: Default::default(),
            http: self.granted.then(|| HttpScope {
                transport: self.transport.clone(),
                facts: Arc::new(self.facts.clone()),
                sink: book(self.sink_fails),
            }),
            reach: self.reach,
            lease: Some(self.lease.clone()),
            execution: None,
            fresh: false,
            payloads: Arc::new(Payloads::none()),
            recorder: book(self.disk_full),
        })
    }

    /// A request below the endpoint, with the credential in its site.
    pub fn ask(&self, method: &str, path: &str) -> HttpRequest {
        HttpRequest {
            method: method.into(),
            url: format!("{}/v1{path}", self.server.url()),
            query: Vec::new(),
            headers: vec![("Authorization".into(), format!("Bearer {}", self.token))],
            body: Content::None,
            timeout: None,
            keep: Vec::new(),
        }
    }

    pub fn create(&self) -> HttpRequest {
        HttpRequest {
            body: Content::Text(r#"{"labels":{"leasehold-owner":"owner-mac"}}"#.into()),
            ..self.ask("POST", "/boxes")
        }
    }
}

//! HTTP and its streams through the door: judge, record, send, report what the answer tells the host, answer.
//!
//! The rules decide, the transport sends; here is only their order. Invariants: nothing is sent that is not on record
//! (durably, where it makes something or acts first); the host knows a resource before the component does; nothing
//! reaches the component but through the rules.

use std::collections::VecDeque;
use std::sync::{Arc, OnceLock};

use async_trait::async_trait;
use leasehold_contract::{
    ByteStream, Code, Duplex, Error, HttpHead, HttpLines, HttpRequest, HttpResponse, NoStream,
    Piece,
};

use tracing::Instrument;

use crate::call::{At, CallGate};
use crate::http::{Answer, Bounds, Destination, Lines, PoolKey, Transport, Wire};
use crate::rules::{Caught, Effect, Expects, Form, Found, Judged, LineNet, Rules, Seen, Sink};
use crate::scope::{Action, HttpScope};
use crate::traced::Asked;

/// How much of a refusal's body the transport tells: one that is this long may have been cut.
const REFUSAL: usize = 4 * 1024;

/// HTTP of one call.
pub(crate) struct Web {
    gate: Arc<CallGate>,
    /// Made when the first request is sent.
    rules: OnceLock<Result<Arc<Rules>, Error>>,
}

/// A request that was let through and recorded.
struct Ready<'a> {
    gate: &'a CallGate,
    at: At,
    action: Action,
    transport: &'a Transport,
    sink: &'a dyn Sink,
    rules: Arc<Rules>,
    wire: Wire,
    expects: Expects,
    pool: PoolKey,
    bounds: Bounds,
}

impl Web {
    pub(crate) fn new(gate: Arc<CallGate>) -> Web {
        Web {
            gate,
            rules: OnceLock::new(),
        }
    }

    fn scope(&self) -> Result<&HttpScope, Error> {
        self.gate.scope.http.as_ref().ok_or_else(|| {
            Error::new(
                Code::PermissionDenied,
                "egress lets no HTTP request through: this plugin was granted none",
            )
        })
    }

    fn rules(&self, http: &HttpScope) -> Result<Arc<Rules>, Error> {
        let scope = &self.gate.scope;
        self.rules
            .get_or_init(|| {
                Rules::new(
                    http.facts.clone(),
                    http.facts.asked.within(&scope.grant),
                    &scope.payloads,
                    scope.reach,
                    scope.lease.as_ref(),
                    scope.execution.as_deref(),
                    http.transport.finders(),
                )
                .map(Arc::new)
            })
            .clone()
    }

    /// Judges a request and records it.
    async fn ready(
        &self,
        request: &HttpRequest,
        pieces: Vec<Piece>,
        form: Form,
    ) -> Result<Ready<'_>, Error> {
        let http = self.scope()?;
        let rules = self.rules(http)?;
        let (about, judged) = rules.judge(request, pieces, form);
        let action = match &judged {
            Ok(judged) => action(&judged.expects.effect),
            Err(_) if matches!(request.method.as_str(), "GET" | "HEAD") => Action::HttpRead,
            Err(_) => Action::HttpAct,
        };
        let at = At {
            pointer: about.pointer,
            name: about.target,
        };
        // Of a lease that is over, nothing is on record as let through.
        let judged = judged.and_then(|judged| self.gate.open(&at.name).map(|()| judged));
        let scope = &self.gate.scope;
        let pool = PoolKey {
            company: scope.company.clone(),
            plugin_revision: scope.plugin_revision.clone(),
            secret_version: scope.secret_version.clone(),
            fresh: scope.fresh,
        };
        let bounds = Bounds {
            total: request.timeout,
            body: None,
            lasting: form == Form::Download,
            closed: scope.lease.as_ref().map(|lease| lease.closed.clone()),
        };
        let judged = match judged {
            Ok(judged) => {
                let (to, plain) = (&judged.wire.destination, judged.plain.as_deref());
                self.no_engine(http, (&pool, &bounds), &at, to, plain)
                    .await
                    .map(|()| judged)
            }
            Err(error) => Err(error),
        };
        let (judged, refused) = match judged {
            Ok(judged) => (Some(judged), None),
            Err(error) => (None, Some(error)),
        };
        // A stream by an operation that reads takes bytes both ways all the same.
        let acts = judged.is_some() && (action.acts() || form.is_stream());
        let makes = matches!(action, Action::HttpCreate | Action::HttpCreateChild);
        self.gate
            .enter(&at, action, Some(&about.what), refused, acts, makes)
            .await?;
        let Some(Judged { wire, expects, .. }) = judged else {
            return Err(Error::new(
                Code::Internal,
                "a refusal let a request through",
            ));
        };
        Ok(Ready {
            gate: &self.gate,
            at,
            action,
            transport: &http.transport,
            sink: http.sink.as_ref(),
            rules,
            wire,
            expects,
            pool,
            bounds,
        })
    }

    /// Refuses what would command a container engine without its policy. `plain`: the path that a plain endpoint begins at.
    async fn no_engine(
        &self,
        http: &HttpScope,
        (pool, bounds): (&PoolKey, &Bounds),
        at: &At,
        to: &Destination,
        plain: Option<&str>,
    ) -> Result<(), Error> {
        let Some(base) = plain else { return Ok(()) };
        // The question is the host's own, and on record before it is asked, as anything is.
        let record = self.gate.enter(
            at,
            Action::HttpRead,
            Some("GET /version"),
            None,
            false,
            false,
        );
        http.transport
            .refuse_engine(pool, to, base, bounds, record)
            .await
    }

    /// See `http.send`.
    pub(crate) async fn send(&self, request: HttpRequest) -> Result<HttpResponse, Error> {
        self.ready(&request, Vec::new(), Form::Send)
            .await?
            .whole()
            .await
    }

    /// See `http.upload`.
    pub(crate) async fn upload(
        &self,
        request: HttpRequest,
        pieces: Vec<Piece>,
    ) -> Result<HttpResponse, Error> {
        self.ready(&request, pieces, Form::Upload)
            .await?
            .whole()
            .await
    }

    /// See `http.open`.
    pub(crate) async fn open(&self, request: HttpRequest) -> Result<Box<dyn HttpLines>, Error> {
        let ready = self.ready(&request, Vec::new(), Form::Open).await?;
        let rules = ready.rules.clone();
        let (answer, expects) = ready.begun().await?;
        let head = rules.began(&expects, answer.head.clone())?;
        let lines = answer.lines().map_err(|e| rules.error(e))?;
        Ok(Box::new(Seeing {
            head,
            lines,
            rules,
            net: LineNet::default(),
            ready: VecDeque::new(),
        }))
    }

    /// See `http.download`. The body never comes to the component.
    pub(crate) async fn download(
        &self,
        request: HttpRequest,
    ) -> Result<(HttpHead, ByteStream), Error> {
        let ready = self.ready(&request, Vec::new(), Form::Download).await?;
        let rules = ready.rules.clone();
        let (answer, expects) = ready.begun().await?;
        let head = rules.began(&expects, answer.head)?;
        Ok((head, answer.body.into_stream()))
    }

    /// See `streams.upgrade`.
    pub(crate) async fn upgrade(
        &self,
        request: HttpRequest,
        protocol: String,
    ) -> Result<Box<dyn Duplex>, NoStream> {
        self.stream(&request, Switch::To(&protocol)).await
    }

    /// See `streams.websocket`.
    pub(crate) async fn websocket(
        &self,
        request: HttpRequest,
        protocols: Vec<String>,
    ) -> Result<Box<dyn Duplex>, NoStream> {
        self.stream(&request, Switch::WebSocket(&protocols)).await
    }

    async fn stream(
        &self,
        request: &HttpRequest,
        switch: Switch<'_>,
    ) -> Result<Box<dyn Duplex>, NoStream> {
        let form = match switch {
            Switch::To(_) => Form::Upgrade,
            Switch::WebSocket(_) => Form::WebSocket,
        };
        let ready = self.ready(request, Vec::new(), form).await;
        let Ready {
            gate,
            at,
            action,
            transport,
            rules,
            wire,
            pool,
            bounds,
            ..
        } = ready.map_err(NoStream::Failed)?;
        let told = Asked::http("http stream", &at.name, action.as_str());
        let asked = async {
            match switch {
                Switch::To(protocol) => {
                    answered(transport.upgrade(&pool, wire, protocol, &bounds)).await
                }
                Switch::WebSocket(protocols) => {
                    answered(transport.websocket(&pool, wire, protocols, &bounds)).await
                }
            }
        };
        let streamed = gate
            .asking(&at.name, asked)
            .instrument(told.span().clone())
            .await
            .unwrap_or_else(|failed| Err(NoStream::Failed(failed)))
            .map_err(|none| unstreamed(&rules, none));
        match &streamed {
            Err(NoStream::Failed(error)) => {
                gate.refused_late(&at, action, error).await;
                told.end::<()>(&Err(error.clone()));
            }
            Err(NoStream::Refused { status, .. }) => {
                told.answered(*status);
                told.end(&Ok(()));
            }
            Ok(_) => {
                told.answered(101);
                told.end(&Ok(()));
            }
        }
        streamed
    }
}

/// What a connection is switched to.
#[derive(Clone, Copy)]
enum Switch<'a> {
    /// A protocol of the backend's.
    To(&'a str),
    /// A WebSocket in one of these protocols, or in none where none are given.
    WebSocket(&'a [String]),
}

impl Ready<'_> {
    /// Sends it; returns when the answer begins. What becomes of it is told as `asked`.
    async fn exchange(self, asked: &Asked) -> Result<(Answer, Expects), Error> {
        let Ready {
            gate,
            at,
            action,
            transport,
            rules,
            wire,
            expects,
            pool,
            bounds,
            ..
        } = self;
        let sent = gate.asking(&at.name, transport.exchange(&pool, wire, &bounds));
        match sent.instrument(asked.span().clone()).await {
            Ok(answer) => {
                asked.answered(answer.head.status);
                Ok((answer, expects))
            }
            Err(error) => {
                let error = rules.error(error);
                gate.refused_late(&at, action, &error).await;
                Err(error)
            }
        }
    }

    /// The span of it.
    fn asked(&self) -> Asked {
        Asked::http("http exchange", &self.at.name, self.action.as_str())
    }

    /// Sends it, and answers once the answer has begun.
    async fn begun(self) -> Result<(Answer, Expects), Error> {
        let asked = self.asked();
        let begun = self.exchange(&asked).await;
        asked.end(&begun);
        begun
    }

    /// Sends it, and reports what its answer tells the host before it is given on.
    async fn whole(self) -> Result<HttpResponse, Error> {
        let asked = self.asked();
        let whole = self.reported(&asked).await;
        asked.end(&whole);
        whole
    }

    async fn reported(self, asked: &Asked) -> Result<HttpResponse, Error> {
        let (sink, gate, target) = (self.sink, self.gate, self.at.name.clone());
        let rules = self.rules.clone();
        let (answer, expects) = self.exchange(asked).await?;
        // Before anything of an answer that cannot be looked into gets into a text.
        rules.identity(&expects, &answer.head)?;
        let mut glance = rules.glance();
        let coming = answer.whole_seen(|so_far| glance.look(so_far));
        let response = gate.asking(&target, coming).await;
        let response = response.map_err(|e| rules.error(e))?;
        let Seen { response, found } = rules.answered(&expects, response, Some(&glance))?;
        for found in found {
            let reported = match found {
                Found::Created(resource) => sink.created(&resource).await,
                Found::Child(id) => sink.child(&id).await,
                Found::Kept(kept) => sink.keep(kept).await,
            };
            reported.map_err(|error| unreported(&expects, error))?;
        }
        Ok(response)
    }
}

/// It was done, and the host could not write down what it made.
fn unreported(expects: &Expects, error: Error) -> Error {
    match error.code {
        Code::Cancelled => error,
        _ if !expects.effect.acts() => error,
        _ => Error::new(
            Code::OutcomeUnknown,
            format!(
                "it was done, and could not be written down: {}",
                error.message
            ),
        ),
    }
}

fn action(effect: &Effect) -> Action {
    match effect {
        Effect::Reads => Action::HttpRead,
        Effect::Creates(_) => Action::HttpCreate,
        Effect::CreatesChild(_) => Action::HttpCreateChild,
        Effect::Acts => Action::HttpAct,
        Effect::Shared => Action::HttpShared,
    }
}

/// A stream, or an answer that is none, apart from no answer at all.
async fn answered<T>(
    asked: impl Future<Output = Result<T, NoStream>>,
) -> Result<Result<T, NoStream>, Error> {
    match asked.await {
        Err(NoStream::Failed(error)) => Err(error),
        answer => Ok(answer),
    }
}

fn unstreamed(rules: &Rules, none: NoStream) -> NoStream {
    match none {
        NoStream::Failed(error) => NoStream::Failed(rules.error(error)),
        NoStream::Refused { status, body } => {
            let cut = body.len() >= REFUSAL;
            NoStream::Refused {
                status,
                body: rules.refusal(body, cut),
            }
        }
    }
}

/// Lines as a component may see them.
struct Seeing {
    head: HttpHead,
    lines: Lines,
    rules: Arc<Rules>,
    net: LineNet,
    /// Lines that were looked at together.
    ready: VecDeque<String>,
}

#[async_trait]
impl HttpLines for Seeing {
    fn head(&self) -> &HttpHead {
        &self.head
    }

    async fn next(&mut self) -> Result<Option<String>, Error> {
        loop {
            if let Some(line) = self.ready.pop_front() {
                return Ok(Some(line));
            }
            let line = self.lines.next().await.map_err(|e| self.rules.error(e))?;
            match self.rules.line(&mut self.net, line) {
                Caught::Waits => {}
                Caught::Lines(lines) => self.ready.extend(lines),
                Caught::End => return Ok(None),
                Caught::TooMuch => {
                    return Err(Error::new(
                        Code::Unavailable,
                        "the lines of the answer end again and again in the beginning of a secret",
                    ));
                }
            }
        }
    }
}

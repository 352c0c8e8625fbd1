//! The door's first half: one object per call of a component, which opens sessions to configured targets only and
//! sends requests as the rules have it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use leasehold_contract::{
    ByteStream, Code, Duplex, Egress, Error, HttpHead, HttpLines, HttpRequest, HttpResponse,
    NoStream, Piece, SshSession,
};
use tokio::time::timeout;

use crate::error::{cancelled, failed, quote, unavailable};
use crate::pool::{Pools, Want};
use crate::scope::{Action, CallScope, EgressRecord, LeaseScope, Reach};
use crate::session::Session;
use crate::traced::{Asked, Traced};
use crate::web::Web;

/// [`Egress`] of one call.
pub(crate) struct Call {
    pools: Arc<Pools>,
    gate: Arc<CallGate>,
    web: Web,
}

/// Authorises and records what one call asks for; shared by its sessions.
pub(crate) struct CallGate {
    pub(crate) scope: CallScope,
    acted: AtomicBool,
    /// Who was asked last and has not answered.
    asked: Mutex<Option<String>>,
}

/// Which target an action is for.
pub(crate) struct At {
    /// Of the field in the call's configuration.
    pub(crate) pointer: String,
    /// `user@host:port`, or an origin.
    pub(crate) name: String,
}

impl Call {
    pub(crate) fn new(pools: Arc<Pools>, scope: CallScope) -> Call {
        let gate = Arc::new(CallGate {
            scope,
            acted: AtomicBool::new(false),
            asked: Mutex::default(),
        });
        Call {
            pools,
            web: Web::new(gate.clone()),
            gate,
        }
    }
}

impl CallGate {
    /// Lets an action through, or says why not; either is recorded before it returns.
    pub(crate) async fn pass(
        &self,
        at: &At,
        action: Action,
        place: Option<&str>,
    ) -> Result<(), Error> {
        let refused = self.judge(&at.name, action).err();
        // A script of a function that only looks is trusted to look: what it does is not the host's to see.
        let acts = action.acts() && !(self.scope.reach == Reach::Read && action == Action::Run);
        // A workspace's place is what the host finds it by after a crash, whatever went before.
        let makes = acts && action == Action::MakeWorkspace;
        self.enter(at, action, place, refused, acts, makes).await
    }

    /// Lets through what was judged, or refuses it; either is recorded before it returns: durably where it `acts` first
    /// in this call, and always where it `makes` something.
    pub(crate) async fn enter(
        &self,
        at: &At,
        action: Action,
        place: Option<&str>,
        refused: Option<Error>,
        acts: bool,
        makes: bool,
    ) -> Result<(), Error> {
        let target = at.name.as_str();
        let first = refused.is_none() && acts && !self.acted.swap(true, Ordering::AcqRel);
        let lease = self.scope.lease.as_ref();
        let record = EgressRecord {
            target: target.to_owned(),
            pointer: at.pointer.clone(),
            action,
            place: place.map(str::to_owned),
            denied: refused.as_ref().map(|e| e.message.clone()),
            lease: lease.map(|l| (l.lease.clone(), l.acquisition.clone(), l.epoch)),
            durable: first || makes,
        };
        let recorded = self.scope.recorder.record(record).await;
        if let Some(error) = refused {
            return Err(error);
        }
        if recorded.is_err() && first {
            // The next act is the first again.
            self.acted.store(false, Ordering::Release);
        }
        recorded?;
        // It may have been superseded while the record was written.
        self.open(target)
    }

    /// Records what was let through by what was asked, and refused for where it leads: the address behind a name is known
    /// when it is dialled, and who answers there when it proves to be somebody else.
    pub(crate) async fn refused_late(&self, at: &At, action: Action, error: &Error) {
        if !matches!(error.code, Code::PermissionDenied | Code::UntrustedPeer) {
            return;
        }
        let lease = self.scope.lease.as_ref();
        let record = EgressRecord {
            target: at.name.clone(),
            pointer: at.pointer.clone(),
            action,
            place: None,
            denied: Some(error.message.clone()),
            lease: lease.map(|l| (l.lease.clone(), l.acquisition.clone(), l.epoch)),
            durable: false,
        };
        // It is refused whether it is on record or not.
        let _ = self.scope.recorder.record(record).await;
    }

    fn judge(&self, target: &str, action: Action) -> Result<(), Error> {
        let deny = |why: &str| Err(failed(Code::PermissionDenied, target, why));
        if !self.scope.grant.ssh {
            return deny(
                "SSH is not granted to this provider; an administrator sees and grants it with `leasehold plugin`",
            );
        }
        match self.scope.reach {
            Reach::Nothing => {
                return deny(
                    "this function reaches nothing: egress is closed to describe and check-config",
                );
            }
            Reach::Read if action.acts() && action != Action::Run => {
                return deny(&format!(
                    "this function only looks; it may not {}",
                    action.as_str()
                ));
            }
            Reach::Read | Reach::Act => {}
        }
        self.open(target)
    }

    /// Whether the call's epoch is the lease's still.
    pub(crate) fn open(&self, target: &str) -> Result<(), Error> {
        match &self.scope.lease {
            Some(lease) if lease.closed.is_cancelled() => Err(cancelled(target)),
            _ => Ok(()),
        }
    }

    /// The lease that an action needs.
    pub(crate) fn lease(&self, target: &str, action: Action) -> Result<&LeaseScope, Error> {
        self.scope.lease.as_ref().ok_or_else(|| {
            failed(
                Code::FailedPrecondition,
                target,
                format_args!("{} needs a lease, and this call has none", action.as_str()),
            )
        })
    }

    /// Runs `work`, unless the lease ends first.
    pub(crate) async fn while_open<T>(
        &self,
        target: &str,
        work: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Error> {
        let work = self.asking(target, work);
        match &self.scope.lease {
            None => work.await,
            Some(lease) => tokio::select! {
                biased;
                done = work => done,
                () = lease.closed.cancelled() => Err(cancelled(target)),
            },
        }
    }

    /// Runs `work`, which asks `target` something. Whoever ends the call can tell whom it asked without an answer: also where
    /// the time of the request was over a moment before that of the call.
    pub(crate) async fn asking<T>(
        &self,
        target: &str,
        work: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Error> {
        let set = |asked| *self.asked.lock().unwrap_or_else(PoisonError::into_inner) = asked;
        set(Some(target.to_owned()));
        let done = work.await;
        let silent = |e: &Error| matches!(e.code, Code::Unavailable | Code::OutcomeUnknown);
        if !done.as_ref().is_err_and(silent) {
            set(None);
        }
        done
    }
}

impl Call {
    /// A session to a configured target, and no other. Its name is told to `span` once it is known.
    async fn opened(
        &self,
        span: &tracing::Span,
        target: String,
        username: Option<String>,
        deadline: Option<Duration>,
    ) -> Result<Arc<dyn SshSession>, Error> {
        let Some(configured) = self.gate.scope.targets.get(&target).cloned() else {
            let pointer = quote(target.as_bytes());
            let known: Vec<&str> = self.gate.scope.targets.keys().map(String::as_str).collect();
            let error = Error::new(
                Code::PermissionDenied,
                format!(
                    "{pointer:?} is not a configured ssh-target; configured are: {}",
                    if known.is_empty() {
                        "none".to_owned()
                    } else {
                        known.join(", ")
                    }
                ),
            );
            let record = EgressRecord {
                target: pointer.clone(),
                pointer,
                action: Action::Open,
                place: None,
                denied: Some(error.message.clone()),
                lease: None,
                durable: false,
            };
            self.gate.scope.recorder.record(record).await?;
            return Err(error);
        };
        let at = At {
            pointer: target,
            name: configured.identity(),
        };
        let name = at.name.as_str();
        span.record("leasehold.target", name);
        if username.is_some() {
            return Err(failed(
                Code::Unsupported,
                name,
                "the user name is configured; one from elsewhere is not taken",
            ));
        }
        self.gate.pass(&at, Action::Open, None).await?;
        let scope = &self.gate.scope;
        let route = if scope.fresh {
            self.pools.fresh(configured)
        } else {
            self.pools.route(
                configured,
                &scope.company,
                &scope.plugin_revision,
                &scope.secret_version,
            )
        };
        // A session that cannot be reached is an error here, where the provider expects it.
        let reach = self.gate.while_open(name, route.line(Want::Shared));
        let reached = match deadline {
            None => reach.await,
            Some(limit) => timeout(limit, reach).await.map_err(|_| {
                unavailable(
                    name,
                    format_args!("not connected within {} ms", limit.as_millis()),
                )
            })?,
        };
        if let Err(mut error) = reached.map(drop) {
            self.gate.refused_late(&at, Action::Open, &error).await;
            // What is wrong with a key is known by its place in the target; the provider knows the configuration.
            for violation in error.violations.iter_mut().flatten() {
                violation.pointer.insert_str(0, &at.pointer);
            }
            return Err(error);
        }
        let session = Session::new(Arc::new(route), self.gate.clone(), at);
        Ok(Arc::new(Traced::new(session)))
    }
}

#[async_trait]
impl Egress for Call {
    fn waits_for(&self) -> Option<String> {
        let asked = self.gate.asked.lock();
        asked.unwrap_or_else(PoisonError::into_inner).clone()
    }

    async fn ssh_open(
        &self,
        target: String,
        username: Option<String>,
        deadline: Option<Duration>,
    ) -> Result<Arc<dyn SshSession>, Error> {
        let asked = Asked::ssh(Action::Open, None);
        let span = asked.span().clone();
        asked
            .whole(self.opened(&span, target, username, deadline))
            .await
    }

    async fn http_send(&self, request: HttpRequest) -> Result<HttpResponse, Error> {
        self.web.send(request).await
    }

    async fn http_open(&self, request: HttpRequest) -> Result<Box<dyn HttpLines>, Error> {
        self.web.open(request).await
    }

    async fn http_download(&self, request: HttpRequest) -> Result<(HttpHead, ByteStream), Error> {
        self.web.download(request).await
    }

    async fn http_upload(
        &self,
        request: HttpRequest,
        body: Vec<Piece>,
    ) -> Result<HttpResponse, Error> {
        self.web.upload(request, body).await
    }

    async fn upgrade(
        &self,
        request: HttpRequest,
        protocol: String,
    ) -> Result<Box<dyn Duplex>, NoStream> {
        self.web.upgrade(request, protocol).await
    }

    async fn websocket(
        &self,
        request: HttpRequest,
        protocols: Vec<String>,
    ) -> Result<Box<dyn Duplex>, NoStream> {
        self.web.websocket(request, protocols).await
    }
}

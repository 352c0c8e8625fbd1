//! What a caller gives with a call, and the pair that refuses everything.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use leasehold_contract::{Call, CallHost, Code, Egress, Error, Level, Purpose, SshSession, Thing};
use tracing::Span;

use crate::call::{Function, Named};
use crate::failure::Failure;

/// Removes what a text must not show; applied to whatever a component says.
pub type Redactor = Arc<dyn Fn(&str) -> String + Send + Sync>;

/// What a call came to, for who watches a component.
#[derive(Clone, Copy, Debug)]
pub struct Outcome<'a> {
    /// Nothing, or why it did not answer.
    pub result: Result<(), &'a Failure>,
    /// Whether it asked egress for anything: where it ran out of time, the other side may be what it waited for.
    pub went_out: bool,
}

/// Told what a call came to, as it ends.
pub type Watch = Arc<dyn Fn(Outcome<'_>) + Send + Sync>;

/// Everything that a call needs beside its arguments.
#[derive(Clone)]
pub struct CallSetup {
    /// For whom and why.
    pub call: Call,
    /// What the component may tell the host.
    pub host: Arc<dyn CallHost>,
    /// The component's only way out.
    pub egress: Arc<dyn Egress>,
    /// Time for queueing, instantiation and the call together, from the moment of the call.
    pub deadline: Duration,
    /// Applied to every text that comes from the component.
    pub redactor: Redactor,
    /// Who is told what it came to, if anybody is.
    pub watch: Option<Watch>,
}

impl CallSetup {
    /// The span of this call of `function`, for a collector of traces; never in the log.
    pub(crate) fn span(&self, function: Function, plugin: Option<&Named>) -> Span {
        let call = &self.call;
        tracing::info_span!(
            target: "leasehold::trace",
            "component call",
            otel.name = function.as_str(),
            otel.status_code = tracing::field::Empty,
            "error.type" = tracing::field::Empty,
            leasehold.function = function.as_str(),
            leasehold.plugin.key = plugin.map(|plugin| plugin.key.as_str()),
            leasehold.plugin.revision = plugin.map(|plugin| plugin.revision.as_str()),
            leasehold.company = call.company.as_str(),
            leasehold.environment = call.environment.as_deref(),
            leasehold.lease = call.lease.as_ref().map(|lease| lease.id.as_str()),
        )
    }

    /// A call that reaches nothing and tells nobody: for `describe`, `check-config` and tests.
    pub fn refusing(purpose: Purpose, deadline: Duration) -> CallSetup {
        CallSetup {
            call: Call {
                company: String::new(),
                environment: None,
                lease: None,
                labels: Vec::new(),
                purpose,
                kept: Vec::new(),
            },
            host: Arc::new(Refusing),
            egress: Arc::new(Refusing),
            deadline,
            redactor: Arc::new(str::to_owned),
            watch: None,
        }
    }
}

impl std::fmt::Debug for CallSetup {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CallSetup")
            .field("call", &self.call)
            .field("deadline", &self.deadline)
            .finish_non_exhaustive()
    }
}

/// A host that listens to nothing and an egress that lets nothing through. A refusal is a value.
#[derive(Clone, Copy, Debug, Default)]
pub struct Refusing;

fn refused() -> Error {
    Error::new(
        Code::PermissionDenied,
        "this function may not reach anything outside",
    )
}

#[async_trait]
impl CallHost for Refusing {
    fn log(&self, _level: Level, _message: String, _fields: Vec<(String, String)>) {}

    fn progress(&self, _step: String, _message: String, _done: Option<f64>, _total: Option<f64>) {}

    async fn journal(
        &self,
        _thing: Thing,
        _resource: String,
        _reference: Option<String>,
    ) -> Result<(), Error> {
        Err(refused())
    }

    async fn cancelled(&self) {
        std::future::pending().await
    }
}

#[async_trait]
impl Egress for Refusing {
    async fn ssh_open(
        &self,
        _target: String,
        _username: Option<String>,
        _timeout: Option<Duration>,
    ) -> Result<Arc<dyn SshSession>, Error> {
        Err(refused())
    }
}

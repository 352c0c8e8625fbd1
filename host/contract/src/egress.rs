//! The door: all that a component can reach, as two traits of one object per call.
//!
//! `runtime` holds these objects and knows nothing behind them; `server` builds them from `egress` and
//! `authority`. Every answer is a value: a refusal is an [`Error`], never a trap. An object made for a
//! call that may reach nothing refuses everything with [`crate::Code::PermissionDenied`].

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::call::Content;
use crate::error::{Code, Error};
use crate::http::{Duplex, HttpHead, HttpLines, HttpRequest, HttpResponse, NoStream, Piece};
use crate::observe::CommandState;
use crate::process::{ByteStream, Process, Size};

/// How much a log line matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[expect(missing_docs, reason = "the usual five")]
pub enum Level {
    Trace,
    Debug,
    Info,
    Warn,
    Error,
}

/// What a journal entry is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[expect(missing_docs, reason = "the contract documents each")]
pub enum Thing {
    Environment,
    Command,
    Image,
    Other,
}

/// What a component may tell the host while it works (`interface host` of the contract).
#[async_trait]
pub trait CallHost: Send + Sync + 'static {
    /// A line for the log; the receiver bounds and redacts it.
    fn log(&self, level: Level, message: String, fields: Vec<(String, String)>);
    /// Shown to people who wait.
    fn progress(&self, step: String, message: String, done: Option<f64>, total: Option<f64>);
    /// Records durably, before it returns, that `resource` may exist. [`crate::Code::Cancelled`]: the epoch is over.
    async fn journal(
        &self,
        thing: Thing,
        resource: String,
        reference: Option<String>,
    ) -> Result<(), Error>;
    /// Returns once the call should stop; pending while it should not.
    async fn cancelled(&self);
}

/// A component's only way out. What an implementation does not know, it refuses.
#[async_trait]
pub trait Egress: Send + Sync + 'static {
    /// Opens a session to the `ssh-target` at this JSON pointer of the call's configuration.
    async fn ssh_open(
        &self,
        target: String,
        username: Option<String>,
        timeout: Option<Duration>,
    ) -> Result<Arc<dyn SshSession>, Error>;
    /// See `http.send`.
    async fn http_send(&self, request: HttpRequest) -> Result<HttpResponse, Error> {
        Err(refused(&request))
    }
    /// See `http.open`.
    async fn http_open(&self, request: HttpRequest) -> Result<Box<dyn HttpLines>, Error> {
        Err(refused(&request))
    }
    /// See `http.download`.
    async fn http_download(&self, request: HttpRequest) -> Result<(HttpHead, ByteStream), Error> {
        Err(refused(&request))
    }
    /// See `http.upload`.
    async fn http_upload(
        &self,
        request: HttpRequest,
        _body: Vec<Piece>,
    ) -> Result<HttpResponse, Error> {
        Err(refused(&request))
    }
    /// Whom this call asked, and has no answer of yet, as an administrator typed it: for whoever ends the call meanwhile.
    fn waits_for(&self) -> Option<String> {
        None
    }
    /// See `streams.upgrade`.
    async fn upgrade(
        &self,
        request: HttpRequest,
        _protocol: String,
    ) -> Result<Box<dyn Duplex>, NoStream> {
        Err(NoStream::Failed(refused(&request)))
    }
    /// See `streams.websocket`.
    async fn websocket(
        &self,
        request: HttpRequest,
        _protocols: Vec<String>,
    ) -> Result<Box<dyn Duplex>, NoStream> {
        Err(NoStream::Failed(refused(&request)))
    }
}

/// The answer of an egress that knows no HTTP.
fn refused(_request: &HttpRequest) -> Error {
    Error::new(
        Code::PermissionDenied,
        "egress lets no HTTP request through: this host grants none",
    )
}

/// A directory on a target that carries this host's marker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Workspace {
    /// Where commands start: a directory inside the lease's own.
    pub path: String,
    /// The acquisition that it was made for.
    pub resource: String,
    /// The labels of its marker.
    pub labels: Vec<(String, String)>,
    /// `ready`, or `incomplete` where a crash left it half-made.
    pub condition: String,
}

/// What a short command answered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Output {
    /// Standard output, at most the limit.
    pub stdout: Content,
    /// Standard error, at most the limit.
    pub stderr: Content,
    /// Exit status, where it ended by itself.
    pub status: Option<i32>,
    /// The signal that ended it.
    pub signal: Option<String>,
    /// Whether output beyond the limit was dropped.
    pub truncated: bool,
}

/// `ssh.session` of the contract.
#[async_trait]
pub trait SshSession: Send + Sync + 'static {
    /// See `make-workspace`.
    async fn make_workspace(&self, parent: String) -> Result<Workspace, Error>;
    /// See `list-workspaces`.
    async fn list_workspaces(&self, parent: String) -> Result<Vec<Workspace>, Error>;
    /// See `remove-workspace`.
    async fn remove_workspace(&self, parent: String, resource: String) -> Result<(), Error>;
    /// See `run`.
    async fn run(
        &self,
        script: String,
        args: Vec<String>,
        env: Vec<(String, String)>,
        stdin: Content,
        limit: u32,
        timeout: Option<Duration>,
    ) -> Result<Output, Error>;
    /// See `start`.
    async fn start(
        &self,
        parent: String,
        script: String,
        args: Vec<String>,
        env: Vec<(String, String)>,
        tty: Option<Size>,
    ) -> Result<Process, Error>;
    /// See `state-of`.
    async fn state_of(&self, parent: String, id: String) -> Result<CommandState, Error>;
    /// See `signal`.
    async fn signal(&self, parent: String, id: String, signal: String) -> Result<(), Error>;
    /// See `put`.
    async fn put(&self, root: String, archive: ByteStream) -> Result<(), Error>;
    /// See `get`.
    async fn get(&self, root: String, path: String) -> Result<ByteStream, Error>;
    /// See `forward`: bytes both ways.
    async fn forward(&self, port: u16) -> Result<Box<dyn Duplex>, Error>;
}

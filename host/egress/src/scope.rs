//! What a call may do, for whom, and where its record goes: the server builds it, egress obeys it.
//!
//! A scope is made for one call of a component and never outlives it, except inside the streams that
//! the call handed over: those end with the lease ([`LeaseScope::closed`], invariant P4). Nothing here
//! opens a connection or decides a policy of its own.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use leasehold_contract::{Code, Error, Grant};
use tokio_util::sync::CancellationToken;

use crate::http::Transport;
use crate::rules::{HttpFacts, Sink};
use crate::secret::Secret;
use crate::target::SshTarget;

/// Which kind of function of a component this call serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// `describe`, `check-config`: reaches nothing.
    Nothing,
    /// `probe`, `inspect`, `list`, `state-of`: may connect and run scripts (what a script does is trust), list
    /// workspaces, ask what became of a command and read files; makes, starts, signals and removes nothing. Of HTTP, GET,
    /// HEAD and operations of role `read`.
    Read,
    /// Everything else: all of it.
    Act,
}

/// The lease that a call acts for.
#[derive(Clone, Debug)]
pub struct LeaseScope {
    /// The host's id of the lease.
    pub lease: String,
    /// Names the workspace, `[a-z][a-z0-9-]{0,39}`.
    pub acquisition: String,
    /// The epoch that this call was made under.
    pub epoch: u32,
    /// The MAC that makes a workspace this lease's: 1 to 63 of `A-Za-z0-9._-`. It stands in the marker and in
    /// the environment of everything that is started.
    pub owner_label: String,
    /// Further labels of the marker; keys and values of `A-Za-z0-9._-`, at most 63 each.
    pub labels: Vec<(String, String)>,
    /// Cancelled when the lease leaves `active` or the epoch is superseded: streams end, further calls are `cancelled`.
    pub closed: CancellationToken,
}

/// Secret values that may stand in the variables and the stdin of commands, by their placeholder, and the placeholders that
/// may not.
#[derive(Default)]
pub struct Payloads {
    values: Vec<(String, Secret)>,
    credentials: Vec<String>,
    /// Variables of every script, beside those that a component gives it.
    variables: Vec<(String, String)>,
}

impl std::fmt::Debug for Payloads {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Payloads({})", self.values.len())
    }
}

impl Payloads {
    /// No placeholders at all.
    pub fn none() -> Payloads {
        Payloads::default()
    }

    /// Adds a placeholder (at least 16 characters, random) and what it stands for.
    pub fn insert(&mut self, placeholder: impl Into<String>, value: impl Into<String>) {
        self.values
            .push((placeholder.into(), Secret::new(value.into())));
    }

    /// Names the placeholder of a credential: nothing that goes to a machine may hold it.
    pub fn forbid(&mut self, placeholder: impl Into<String>) {
        self.credentials.push(placeholder.into());
    }

    /// Gives every script of the call these variables, whose values may hold placeholders: a probe sees what a command of
    /// the environment would.
    pub fn give_scripts(&mut self, variables: Vec<(String, String)>) {
        self.variables = variables;
    }

    /// A script's variables: those that all have, and over them the component's own.
    pub(crate) fn of_script(&self, own: Vec<(String, String)>) -> Vec<(String, String)> {
        let others = self.variables.iter();
        let mut all: Vec<_> = others
            .filter(|(name, _)| own.iter().all(|(o, _)| o != name))
            .cloned()
            .collect();
        all.extend(own);
        all
    }

    /// Every placeholder and what it stands for.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &Secret)> {
        self.values.iter().map(|(p, value)| (p.as_str(), value))
    }

    /// `text` with every placeholder replaced by its value; `place` names it (`stdin`).
    ///
    /// # Errors
    /// A credential's placeholder in it.
    pub(crate) fn fill(&self, text: &[u8], place: &str) -> Result<Secret<Vec<u8>>, Error> {
        self.refuse_credentials(text, place)?;
        let mut out = text.to_vec();
        for (placeholder, value) in &self.values {
            if find(&out, placeholder.as_bytes()).is_some() {
                let filled = replace(&out, placeholder.as_bytes(), value.expose().as_bytes());
                // What held earlier values is wiped, not just freed.
                drop(Secret::new(std::mem::replace(&mut out, filled)));
            }
        }
        Ok(Secret::new(out))
    }

    /// Refuses a placeholder where none may stand; `place` names it (`script`, `args[2]`).
    pub(crate) fn refuse(&self, text: &[u8], place: &str) -> Result<(), Error> {
        self.refuse_credentials(text, place)?;
        for (placeholder, _) in &self.values {
            if find(text, placeholder.as_bytes()).is_some() {
                return Err(Error::new(
                    Code::PermissionDenied,
                    format!(
                        "a payload's placeholder stands in {place}; payloads go into the values of variables and into stdin only"
                    ),
                ));
            }
        }
        Ok(())
    }

    fn refuse_credentials(&self, text: &[u8], place: &str) -> Result<(), Error> {
        let stands = |placeholder: &String| find(text, placeholder.as_bytes()).is_some();
        if self.credentials.iter().any(stands) {
            return Err(Error::new(
                Code::PermissionDenied,
                format!(
                    "a credential's placeholder stands in {place}; it goes into its site toward its endpoints, and to no machine"
                ),
            ));
        }
        Ok(())
    }
}

/// Where `needle` begins in `hay`.
pub(crate) fn find(hay: &[u8], needle: &[u8]) -> Option<usize> {
    if needle.is_empty() {
        return None;
    }
    memchr::memmem::find(hay, needle)
}

fn replace(hay: &[u8], needle: &[u8], with: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(hay.len() + with.len());
    let mut rest = hay;
    while let Some(at) = find(rest, needle) {
        out.extend_from_slice(&rest[..at]);
        out.extend_from_slice(with);
        rest = &rest[at + needle.len()..];
    }
    out.extend_from_slice(rest);
    out
}

/// What egress is about to do, or refused to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Open a session: connect, verify the server, authenticate, or take a share of a pooled connection.
    Open,
    /// Make the lease's workspace.
    MakeWorkspace,
    /// List the workspaces below a directory.
    ListWorkspaces,
    /// End the lease's processes and remove its workspace.
    RemoveWorkspace,
    /// Run a script to its end.
    Run,
    /// Start a supervised command.
    Start,
    /// Ask what became of a command.
    StateOf,
    /// Send a signal to a command.
    Signal,
    /// Unpack an archive.
    Put,
    /// Read a tree.
    Get,
    /// Open a port of the target's loopback.
    Forward,
    /// A request over HTTP that changes nothing.
    HttpRead,
    /// One that acts on what is the lease's; refused ones too that would change something.
    HttpAct,
    /// One that makes the lease's environment.
    HttpCreate,
    /// One that makes something of it.
    HttpCreateChild,
    /// One that changes something that no lease owns.
    HttpShared,
}

impl Action {
    /// As it is written in records, `kebab-case`.
    pub fn as_str(self) -> &'static str {
        match self {
            Action::Open => "open",
            Action::MakeWorkspace => "make-workspace",
            Action::ListWorkspaces => "list-workspaces",
            Action::RemoveWorkspace => "remove-workspace",
            Action::Run => "run",
            Action::Start => "start",
            Action::StateOf => "state-of",
            Action::Signal => "signal",
            Action::Put => "put",
            Action::Get => "get",
            Action::Forward => "forward",
            Action::HttpRead => "http-read",
            Action::HttpAct => "http-act",
            Action::HttpCreate => "http-create",
            Action::HttpCreateChild => "http-create-child",
            Action::HttpShared => "http-shared",
        }
    }

    /// Whether it may change something on the target.
    pub fn acts(self) -> bool {
        match self {
            Action::Open
            | Action::ListWorkspaces
            | Action::StateOf
            | Action::Get
            | Action::HttpRead => false,
            Action::MakeWorkspace
            | Action::RemoveWorkspace
            | Action::Run
            | Action::Start
            | Action::Signal
            | Action::Put
            | Action::Forward
            | Action::HttpAct
            | Action::HttpCreate
            | Action::HttpCreateChild
            | Action::HttpShared => true,
        }
    }
}

/// One line of the activity: what was asked of which target and whether it was let through.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EgressRecord {
    /// `user@host:port`, or `scheme://host:port`; what was asked for where no such thing is configured.
    pub target: String,
    /// JSON pointer of the field in the call's configuration; empty for an approved origin.
    pub pointer: String,
    /// What was asked.
    pub action: Action,
    /// The directory that it was asked for, where there is one: `parent` of a workspace or a command, `root` of files.
    /// Durable together with the rest: after a crash the host finds a lease's workspace by it. Of HTTP, method and path.
    pub place: Option<String>,
    /// Why it was refused; none when it was let through.
    pub denied: Option<String>,
    /// The lease, its acquisition and epoch, where the call has one.
    pub lease: Option<(String, String, u32)>,
    /// Must be on disk before [`Recorder::record`] returns: the first act of this call, and whatever makes something.
    /// Others may be written in batches.
    pub durable: bool,
}

/// Where egress writes down what it does, before it does it.
#[async_trait]
pub trait Recorder: Send + Sync + 'static {
    /// Takes a record; durably where it says so. An error refuses the action, and the component gets it.
    async fn record(&self, record: EgressRecord) -> Result<(), Error>;
}

/// HTTP of one call.
#[derive(Clone)]
pub struct HttpScope {
    /// The wire, with its pools.
    pub transport: Transport,
    /// What the call may send, and with which secrets.
    pub facts: Arc<HttpFacts>,
    /// Where what egress saw in answers goes.
    pub sink: Arc<dyn Sink>,
}

/// Everything that egress knows of one call.
#[derive(Clone)]
pub struct CallScope {
    /// Pools are never shared between companies.
    pub company: String,
    /// The installed digest; part of the pool's key.
    pub plugin_revision: String,
    /// What the component may do at all: what was asked for, granted, and not above the instance's ceiling.
    pub grant: Arc<Grant>,
    /// The versions of the secrets that the target is reached with, separated by commas; part of the pool's key.
    pub secret_version: String,
    /// The resolved `ssh-target` fields of the configuration, by JSON pointer.
    pub targets: BTreeMap<String, Arc<SshTarget>>,
    /// HTTP, where the plugin was granted any.
    pub http: Option<HttpScope>,
    /// Which function this is.
    pub reach: Reach,
    /// The lease, where there is one.
    pub lease: Option<LeaseScope>,
    /// The host's id of the command, in `execution.start` only: what makes `start` possible.
    pub execution: Option<String>,
    /// Never use the pool: a probe and a verification see the target as it is now.
    pub fresh: bool,
    /// Payloads of this call.
    pub payloads: Arc<Payloads>,
    /// Where the call's records go.
    pub recorder: Arc<dyn Recorder>,
}

impl std::fmt::Debug for CallScope {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CallScope")
            .field("company", &self.company)
            .field("reach", &self.reach)
            .field("lease", &self.lease)
            .field("execution", &self.execution)
            .field("fresh", &self.fresh)
            .finish_non_exhaustive()
    }
}

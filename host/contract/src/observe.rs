//! What a provider answers about environments and commands.

use serde::{Deserialize, Serialize};

use crate::call::Label;
use crate::process::Process;

/// A moment as the backend told it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Moment {
    /// Seconds since 1970-01-01T00:00:00Z.
    Unix(u32),
    /// RFC 3339.
    Rfc3339(String),
}

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[expect(missing_docs, reason = "the usual three")]
pub enum Severity {
    Info,
    Warning,
    Failure,
}

/// One step of a probe.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// Stable, `kebab-case`.
    pub step: String,
    /// How bad it is; a [`Severity::Failure`] makes the probe fail.
    pub severity: Severity,
    /// For a person. Untrusted.
    pub message: String,
    /// How long the step took, in milliseconds.
    pub duration: Option<u32>,
}

/// What `acquire` answered. Claims of the provider, all of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Acquired {
    /// The backend's own id, 1 to 128 of `A-Za-z0-9._-`.
    pub resource: String,
    /// JSON, at most 16 KiB.
    pub handle: String,
    /// Where commands start.
    pub workspace: String,
    /// How long the backend will keep it, in seconds.
    pub ttl: Option<u32>,
}

/// What `keep-alive` answered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptAlive {
    /// When to call again, in seconds from now; none: never.
    pub next: Option<u32>,
    /// How long the backend will keep it now, in seconds.
    pub ttl: Option<u32>,
}

/// The state of an environment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[expect(missing_docs, reason = "the contract documents each")]
pub enum Condition {
    Starting,
    Ready,
    Stopping,
    Stopped,
    Failed,
    Gone,
}

/// What `inspect` answered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Observation {
    /// What state it is in.
    pub condition: Condition,
    /// What it runs, as the backend names it.
    pub image: Option<String>,
    /// For a person. Untrusted.
    pub message: Option<String>,
}

/// What `list` is asked.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Query {
    /// All of these must stand on it.
    pub labels: Vec<Label>,
    /// Or one of these ids is it.
    pub journalled: Vec<String>,
    /// Where the last page ended.
    pub cursor: Option<String>,
}

/// One environment of a list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Listed {
    /// The backend's own id.
    pub resource: String,
    /// JSON, at most 16 KiB.
    pub handle: String,
    /// The labels that stand on it.
    pub labels: Vec<Label>,
    /// What state it is in.
    pub condition: Condition,
    /// When it was made.
    pub created: Option<Moment>,
}

/// A page of a list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Page {
    /// The environments.
    pub items: Vec<Listed>,
    /// The next cursor; none at the end.
    pub next: Option<String>,
}

/// What `execution.start` answered.
#[derive(Debug)]
pub struct Started {
    /// The running command, taken out of the component's instance.
    pub process: Process,
    /// JSON, at most 16 KiB: what finds the command again.
    pub reference: String,
}

/// What became of a command (`execution.state`; `ssh.command-state` is a part of it).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CommandState {
    /// It runs.
    Running,
    /// It ended with this status, 0 to 255.
    Exited(i32),
    /// It was ended by this signal, POSIX name without SIG.
    Signalled(String),
    /// The backend ended it for its memory.
    OutOfMemory,
    /// Proven: it never ran and never will, with the reason.
    NotStarted(String),
    /// Nobody can tell.
    Unknown,
}

/// What `suspension.resume` answered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Resumed {
    /// It is back, under this handle.
    Same(String),
    /// Proven gone.
    Lost,
}

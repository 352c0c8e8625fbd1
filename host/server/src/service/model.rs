//! What callers give to the service and what it answers, before it becomes JSON.
//!
//! These are plain values: no behaviour, no access decisions. Rows of the authority are passed on as they are.

use bytes::Bytes;
use leasehold_authority::{Execution, Plugin, Revision, RevisionStanding, Source};
use leasehold_contract::{Finding, Grant, Manifest, Part, Size};
use serde::Serialize;
use serde_json::Value;

pub use super::breaker::Health;

/// A component that was looked at and not stored: what it is and what it asks for.
#[derive(Clone, Debug)]
pub struct PluginOffer {
    /// SHA-256 of the component, lower-case hex.
    pub digest: String,
    /// Its size in bytes.
    pub size: u64,
    /// Where it came from, and who signed it.
    pub source: Source,
    /// What it says of itself, checked.
    pub manifest: Manifest,
    /// The interfaces that it exports, such as `execution`.
    pub capabilities: Vec<String>,
    /// Everything that it imports, by name.
    pub imports: Vec<String>,
    /// Everything that it exports, by name.
    pub exports: Vec<String>,
    /// What granting it allows, in plain sentences.
    pub asks: Vec<String>,
    /// The parts of that which a grant can leave out.
    pub parts: Vec<Part>,
    /// SHA-256 of digest and request: a grant names the offer that was shown.
    pub request_digest: String,
    /// Whether this digest is installed already.
    pub installed: bool,
    /// What it asks for beyond the revision that serves now; none where none does.
    pub wider: Option<Vec<String>>,
}

/// What of an offer is granted.
#[derive(Clone, Debug)]
pub struct GrantRequest {
    /// `request_digest` of the offer that was shown.
    pub request_digest: String,
    /// What is left out.
    pub without: Vec<Part>,
}

/// A plugin with everything that there is to see of it.
#[derive(Clone, Debug)]
pub struct PluginDetails {
    /// As the authority has it.
    pub plugin: Plugin,
    /// The revision that serves; the one that waits where none does.
    pub shown: Revision,
    /// Its revisions, newest first.
    pub revisions: Vec<RevisionStanding>,
    /// What waits for its grant.
    pub pending: Option<PendingOffer>,
    /// What calls of the current revision may do, below the instance's ceiling.
    pub effective: Option<Grant>,
    /// What of its request is not there, and by what.
    pub narrowed: Vec<Narrowing>,
    /// How the current revision does; none where it is not loaded.
    pub health: Option<Health>,
}

/// A revision that waits for its grant.
#[derive(Clone, Debug)]
pub struct PendingOffer {
    /// What granting it allows, in plain sentences.
    pub asks: Vec<String>,
    /// The parts of that which a grant can leave out.
    pub parts: Vec<Part>,
    /// Names what is shown.
    pub request_digest: String,
    /// What it asks for beyond the current revision; none where there is none.
    pub wider: Option<Vec<String>>,
}

/// What a probe found.
#[derive(Clone, Debug)]
pub struct ProbeReport {
    /// No finding is a failure, and a lease that the probe took is gone for certain.
    pub ok: bool,
    /// For which company it was.
    pub company: String,
    /// The environment's driver.
    pub driver: String,
    /// The provider's key.
    pub provider: String,
    /// One sentence that names the target.
    pub summary: String,
    /// Step by step.
    pub findings: Vec<Finding>,
    /// The whole probe, in milliseconds.
    pub duration_ms: u64,
    /// The lease that the probe of a sandbox took and released.
    pub lease: Option<String>,
    /// Whether a platform qualification was written.
    pub platform_qualification_recorded: bool,
    /// Why, or why not.
    pub qualification_note: String,
}

/// Who wants a lease and for how long.
#[derive(Clone, Debug, Default)]
pub struct AcquireRequest {
    /// For which company; where the environment is a company's own, that one.
    pub company_id: Option<String>,
    /// When it ends at the latest, in seconds from now; none: when released.
    pub ttl_seconds: Option<u32>,
    /// The same key with the same request answers the same lease.
    pub idempotency_key: Option<String>,
    /// The caller's reference to an agent.
    pub agent_id: Option<String>,
    /// The caller's reference to a run.
    pub run_id: Option<String>,
    /// The caller's reference to a workspace.
    pub workspace_id: Option<String>,
    /// The caller's reference to an issue.
    pub issue_id: Option<String>,
    /// How long acquiring may take, in milliseconds; none: what the provider declares.
    pub timeout_ms: Option<u32>,
    /// What the caller calls this work, to ask how it stands.
    pub progress_id: Option<String>,
}

/// A command to run in a lease.
#[derive(Clone, Debug, Default)]
pub struct ExecRequest {
    /// Program and arguments, no shell.
    pub argv: Vec<String>,
    /// Variables, over those of the environment.
    pub env: Vec<(String, String)>,
    /// Where it starts; none: the lease's workspace.
    pub cwd: Option<String>,
    /// Whether anything will be written to it.
    pub stdin: bool,
    /// The terminal that it gets.
    pub tty: Option<Size>,
    /// After this many milliseconds it is sent TERM, and KILL five seconds later.
    pub timeout_ms: Option<u64>,
}

/// What a running command does.
#[derive(Debug)]
pub enum ExecEvent {
    /// Bytes of standard output.
    Stdout(Bytes),
    /// Bytes of standard error.
    Stderr(Bytes),
    /// The end, as journalled.
    Ended(Box<Execution>),
}

/// A short command's whole answer.
#[derive(Clone, Debug)]
pub struct OneShot {
    /// The execution with its outcome.
    pub execution: Execution,
    /// Standard output, at most the limit.
    pub stdout: Vec<u8>,
    /// Standard error, at most the limit.
    pub stderr: Vec<u8>,
    /// Whether output beyond the limit was dropped.
    pub stdout_truncated: bool,
    /// Whether error output beyond the limit was dropped.
    pub stderr_truncated: bool,
    /// Whether the timeout ended it.
    pub timed_out: bool,
}

/// What can be leased here.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Capabilities {
    /// Every provider that works now.
    pub providers: Vec<ProviderCapabilities>,
    /// Every provider that is installed and takes no new leases.
    pub withheld: Vec<Withheld>,
}

/// A provider that is installed and not offered.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Withheld {
    /// The provider's key.
    pub key: String,
    /// `installation`, where it is not there; `grant`, where it is disabled or not granted; or `health`.
    pub by: String,
    /// For a person.
    pub reason: String,
}

/// What one provider can do.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ProviderCapabilities {
    /// The provider's key.
    pub key: String,
    /// Its version.
    pub version: String,
    /// The driver that environments of it have.
    pub driver: String,
    /// For a person.
    pub title: String,
    /// For a person.
    pub summary: String,
    /// The component's digest.
    pub digest: String,
    /// Interfaces beyond `lifecycle`.
    pub interfaces: Vec<String>,
    /// Declared features, such as `stdin`.
    pub features: Vec<String>,
    /// What was narrowed, and by what.
    pub narrowed: Vec<Narrowing>,
    /// JSON Schema of its configuration.
    pub config_schema: Value,
}

/// A capability that a provider declares and does not have here.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Narrowing {
    /// Which.
    pub capability: String,
    /// `exports`, `grant`, `configuration`, `health`, or `host`: what this version of the host does not use.
    pub by: String,
    /// For a person.
    pub reason: String,
}

/// The key that an SSH server shows.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct HostKeyShown {
    /// `SHA256:…`.
    pub fingerprint: String,
    /// Such as `ssh-ed25519`.
    pub algorithm: String,
    /// A line for `known_hosts`.
    pub known_hosts_line: String,
}

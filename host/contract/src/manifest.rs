//! What a provider says of itself, frozen with its digest.

use serde::{Deserialize, Serialize};

/// The kind of environment that it leases.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[expect(missing_docs, reason = "the contract documents each")]
pub enum Driver {
    Ssh,
    Sandbox,
    Plugin,
}

impl Driver {
    /// The driver as configuration spells it.
    pub fn as_str(self) -> &'static str {
        match self {
            Driver::Ssh => "ssh",
            Driver::Sandbox => "sandbox",
            Driver::Plugin => "plugin",
        }
    }
}

/// What kind of image a field names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[expect(missing_docs, reason = "the contract documents each")]
pub enum ImageKind {
    OciImage,
    Snapshot,
    Opaque,
}

/// How an image is named in the configuration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the contract documents each")]
pub struct ImageBinding {
    pub kind: ImageKind,
    pub field: String,
    pub excludes: Vec<String>,
    pub identity_fields: Vec<String>,
}

/// The most that one call needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// Memory of all memories of the instance together, in MiB.
    pub memory_mib: u32,
    /// CPU time that does not count waiting, in milliseconds.
    pub cpu: u32,
    /// Requests through egress.
    pub exchanges: u32,
    /// The largest buffered body, in MiB.
    pub body_mib: u32,
}

/// What it asks an administrator to allow.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the contract documents each")]
pub struct Request {
    pub origins: Vec<String>,
    pub ssh: bool,
    pub streams: bool,
    pub limits: Limits,
}

/// Where a credential's placeholder works.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[expect(missing_docs, reason = "the contract documents each")]
pub enum Site {
    Header(String, String),
    Basic(String),
    RegistryAuth,
    SshUsername,
}

/// A configuration field of format `secret`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the contract documents each")]
pub struct Credential {
    pub pointer: String,
    pub sites: Vec<Site>,
    pub to: Vec<String>,
}

/// Values in answers that are secrets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the contract documents each")]
pub struct Mint {
    pub endpoint: String,
    pub method: String,
    pub path: String,
    pub pointers: Vec<String>,
    pub sites: Vec<Site>,
    pub to: Vec<String>,
}

/// Where the id and the labels stand.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the contract documents each")]
pub struct Creation {
    pub id: String,
    pub labels: Option<String>,
}

/// What an operation does.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[expect(missing_docs, reason = "the contract documents each")]
pub enum Role {
    Create(Creation),
    CreateChild(Creation),
    Act,
    Read,
    Shared,
}

/// A request other than GET and HEAD that egress lets through.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the contract documents each")]
pub struct Operation {
    pub endpoint: String,
    pub method: String,
    pub path: String,
    pub role: Role,
}

/// What a check verifies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[expect(missing_docs, reason = "the contract documents each")]
pub enum Claim {
    Owned,
    ImageIdentity,
    Platform,
    Gone,
}

/// What an answer to a check must be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[expect(missing_docs, reason = "the contract documents each")]
pub enum Expectation {
    Status(u16),
    Value(String),
    OwnerLabel(String),
    AbsentFrom(String, String),
    File,
    Tar,
}

/// A GET that the host makes by itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the contract documents each")]
pub struct Check {
    pub claim: Claim,
    pub endpoint: String,
    pub path: String,
    pub credential: Option<String>,
    pub expect: Vec<Expectation>,
    pub apart: u32,
}

/// What a provider can do beyond its exports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the contract documents each")]
pub struct Features {
    pub stdin: bool,
    pub tty: bool,
    pub separate_stderr: bool,
    pub attach: bool,
    pub signal_group: bool,
    pub exclusive_target: bool,
    pub reuse: bool,
}

/// What `describe` answered, after the host's checks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// `[a-z0-9][a-z0-9-]{0,62}`.
    pub key: String,
    /// Semantic version of the provider.
    pub version: String,
    /// For a person. Untrusted.
    pub title: String,
    /// For a person. Untrusted.
    pub summary: String,
    /// The kind of environment.
    pub driver: Driver,
    /// JSON Schema 2020-12 of the configuration.
    pub config_schema: serde_json::Value,
    /// How an image is named, if there are images.
    pub image: Option<ImageBinding>,
    /// What it asks for.
    pub request: Request,
    /// Its credentials.
    pub credentials: Vec<Credential>,
    /// Secrets in answers.
    pub mints: Vec<Mint>,
    /// Its operations.
    pub operations: Vec<Operation>,
    /// Its checks.
    pub checks: Vec<Check>,
    /// What it can do beyond its exports.
    pub features: Features,
    /// How long an acquire may take, in milliseconds.
    pub acquire_timeout: u32,
}

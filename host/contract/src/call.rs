//! What the host says with every call of a component.

use serde::{Deserialize, Serialize};

use crate::process::Size;

/// Why the host calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[expect(missing_docs, reason = "the contract documents each")]
pub enum Purpose {
    Run,
    Probe,
    Setup,
    Cleanup,
    Reconcile,
}

/// A label that stands on everything the provider creates.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Label {
    /// Key; the host's own begin with `leasehold-`.
    pub key: String,
    /// At most 63 of `A-Za-z0-9._-`.
    pub value: String,
}

/// The lease that a call acts for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaseRef {
    /// The host's id of the lease.
    pub id: String,
    /// Idempotency key of the thing to create, `[a-z][a-z0-9-]{0,39}`.
    pub acquisition: String,
    /// Fencing token; rises at every takeover.
    pub epoch: u32,
}

/// `types.context` of the contract, without the time, which the runtime fills in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Call {
    /// The company that the call is made for.
    pub company: String,
    /// None for a draft that is not saved.
    pub environment: Option<String>,
    /// Always there in `acquire`, `release` and every call on a handle.
    pub lease: Option<LeaseRef>,
    /// To be put on everything that is created.
    pub labels: Vec<Label>,
    /// Why the host calls.
    pub purpose: Purpose,
    /// Kept values of earlier calls, as fresh placeholders.
    pub kept: Vec<(String, String)>,
}

/// A body or an input: text whenever the bytes are UTF-8.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Content {
    /// Nothing.
    #[default]
    None,
    /// UTF-8.
    Text(String),
    /// Anything else.
    Bytes(Vec<u8>),
}

impl Content {
    /// The content of these bytes: text when they are UTF-8, nothing when there are none.
    pub fn of(bytes: Vec<u8>) -> Content {
        if bytes.is_empty() {
            return Content::None;
        }
        match String::from_utf8(bytes) {
            Ok(text) => Content::Text(text),
            Err(e) => Content::Bytes(e.into_bytes()),
        }
    }

    /// Its bytes.
    pub fn as_bytes(&self) -> &[u8] {
        match self {
            Content::None => &[],
            Content::Text(t) => t.as_bytes(),
            Content::Bytes(b) => b,
        }
    }
}

/// `execution.command` of the contract.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Command {
    /// The host's id of this command, `[a-z0-9-]{1,40}`.
    pub id: String,
    /// Program and arguments, no shell.
    pub argv: Vec<String>,
    /// Variables; values may be placeholders of payloads.
    pub env: Vec<(String, String)>,
    /// Where it starts, inside the environment.
    pub cwd: String,
    /// Whether the host will write to it.
    pub stdin: bool,
    /// The terminal that it gets, if any.
    pub tty: Option<Size>,
}

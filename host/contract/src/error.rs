//! The one error that crosses the contract (`types.error` of `wit/types.wit`).
//!
//! A host-side failure is always a value of this type, never a trap. It keeps no cause chain: what a
//! person may read is in `message`, which is untrusted until bounded and redacted.

use serde::{Deserialize, Serialize};

/// The only kinds of error there are; `types.code` of the contract says what each means.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[expect(missing_docs, reason = "the contract documents each")]
pub enum Code {
    InvalidConfig,
    Unauthenticated,
    PermissionDenied,
    UntrustedPeer,
    NotFound,
    AlreadyExists,
    FailedPrecondition,
    Busy,
    RateLimited,
    QuotaExceeded,
    Unavailable,
    Unsupported,
    Cancelled,
    OutcomeUnknown,
    Internal,
}

impl Code {
    /// The code as the contract spells it, `kebab-case`.
    pub fn as_str(self) -> &'static str {
        match self {
            Code::InvalidConfig => "invalid-config",
            Code::Unauthenticated => "unauthenticated",
            Code::PermissionDenied => "permission-denied",
            Code::UntrustedPeer => "untrusted-peer",
            Code::NotFound => "not-found",
            Code::AlreadyExists => "already-exists",
            Code::FailedPrecondition => "failed-precondition",
            Code::Busy => "busy",
            Code::RateLimited => "rate-limited",
            Code::QuotaExceeded => "quota-exceeded",
            Code::Unavailable => "unavailable",
            Code::Unsupported => "unsupported",
            Code::Cancelled => "cancelled",
            Code::OutcomeUnknown => "outcome-unknown",
            Code::Internal => "internal",
        }
    }
}

impl std::fmt::Display for Code {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

/// One thing that is wrong with a configuration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FieldViolation {
    /// RFC 6901 pointer into the configuration; empty for the whole.
    pub pointer: String,
    /// What is wrong and how to mend it, for a person.
    pub message: String,
}

/// An error as the contract carries it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{code}: {message}")]
pub struct Error {
    /// What kind it is; all that a program should look at.
    pub code: Code,
    /// For a person. Untrusted where it came from a component or a backend.
    pub message: String,
    /// How long the backend asked to wait, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after: Option<u32>,
    /// For [`Code::InvalidConfig`]: every violation at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub violations: Option<Vec<FieldViolation>>,
}

impl Error {
    /// An error of `code` with a message for a person.
    pub fn new(code: Code, message: impl Into<String>) -> Error {
        Error {
            code,
            message: message.into(),
            retry_after: None,
            violations: None,
        }
    }
}

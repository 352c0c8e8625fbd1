//! What can go wrong in the authority, as values.
//!
//! No error ever holds a secret's value: constructors take names, ids and shapes only. A message names
//! the thing, what is wrong with it and how to mend it.

use leasehold_contract::FieldViolation;
use serde_json::{Value, json};

/// Codes of [`Error::Conflict`]: stable, for programs.
pub mod code {
    /// What is stored does not allow it, for a reason that the message gives.
    pub const CONFLICT: &str = "conflict";
    /// A company of this name exists.
    pub const COMPANY_NAME_TAKEN: &str = "company_name_taken";
    /// An environment of this name is there for a company that would see both.
    pub const ENVIRONMENT_NAME_TAKEN: &str = "environment_name_taken";
    /// The company has a secret of this name.
    pub const SECRET_NAME_TAKEN: &str = "secret_name_taken";
    /// The secret is bound to an environment or pinned by a lease; details say which.
    pub const SECRET_IN_USE: &str = "secret_in_use";
    /// A secret that something names is not there, or has no value that may be used.
    pub const SECRET_MISSING: &str = "secret_missing";
    /// Environments or unreleased leases use the plugin; details count them.
    pub const PLUGIN_IN_USE: &str = "plugin_in_use";
    /// No new lease: the plugin is disabled.
    pub const PLUGIN_DISABLED: &str = "plugin_disabled";
    /// No plugin of this key is installed.
    pub const PLUGIN_MISSING: &str = "plugin_missing";
    /// No new lease: the environment is archived.
    pub const ENVIRONMENT_INACTIVE: &str = "environment_inactive";
    /// The environment is no longer what the caller read.
    pub const ENVIRONMENT_CHANGED: &str = "environment_changed";
    /// The environment is shared, and a secret of it is another company's.
    pub const ENVIRONMENT_COMPANY_MISMATCH: &str = "environment_company_mismatch";
    /// The server keeps the environment as its settings say; only its variables can be changed.
    pub const ENVIRONMENT_PLATFORM_MANAGED: &str = "environment_platform_managed";
    /// Others than one company use the environment, so that it cannot become that company's own; details count them.
    pub const ENVIRONMENT_USED_BY_OTHER_COMPANIES: &str = "environment_used_by_other_companies";
    /// Leases of the environment wait for their cleanup; details count them.
    pub const ENVIRONMENT_PENDING_SANDBOX_CLEANUP: &str = "environment_pending_sandbox_cleanup";
    /// Nobody leases the server's own machine.
    pub const ENVIRONMENT_LOCAL: &str = "environment_local";
    /// The row is at another revision than the caller's precondition names; details have `revision`.
    pub const REVISION_MISMATCH: &str = "revision_mismatch";
    /// Leases hold the environment; details have the reasons.
    pub const ENVIRONMENT_NOT_DELETABLE: &str = "environment_not_deletable";
    /// Another lease has the target for itself; details have `leaseId`.
    pub const TARGET_IN_USE: &str = "target_in_use";
    /// Another lease has the resource; details have `leaseId`.
    pub const RESOURCE_CLAIMED: &str = "resource_claimed";
    /// The idempotency key was used with another request; details have `leaseId` of a lease's.
    pub const IDEMPOTENCY_MISMATCH: &str = "idempotency_mismatch";
    /// The request of the idempotency key is being worked on.
    pub const IDEMPOTENCY_IN_PROGRESS: &str = "idempotency_in_progress";
    /// The request of the idempotency key was done, and its answer is not there; details have `id` of what it made.
    pub const IDEMPOTENCY_SPENT: &str = "idempotency_spent";
    /// The lease's state does not allow it; details have `status`.
    pub const LEASE_STATE: &str = "lease_state";
    /// No new lease: the run that it would be for has ended.
    pub const RUN_ENDED: &str = "run_ended";
    /// The lease has expired.
    pub const LEASE_EXPIRED: &str = "lease_expired";
    /// The execution has another outcome already; details have it.
    pub const EXECUTION_SETTLED: &str = "execution_settled";
}

/// An answer other than yes.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Nothing of this kind has this id, or the actor may not know that it exists.
    #[error("no {what} {id:?}")]
    NotFound {
        /// The kind of thing, such as `environment`.
        what: &'static str,
        /// What was asked for.
        id: String,
    },
    /// The state of something else forbids it.
    #[error("{message}")]
    Conflict {
        /// One of [`code`].
        code: &'static str,
        /// For a person.
        message: String,
        /// A JSON object for programs; its keys stand with each [`code`].
        details: Value,
    },
    /// The input is wrong; every violation at once.
    #[error("{}", join(violations))]
    Invalid {
        /// Never empty.
        violations: Vec<FieldViolation>,
    },
    /// The actor may not do this.
    #[error("{message}")]
    Forbidden {
        /// For a person.
        message: String,
    },
    /// The caller's view is superseded: an epoch, a revision or an expiry has moved on.
    #[error("{message}")]
    Stale {
        /// What has moved on: `lease`, `environment`, `expiry`.
        what: &'static str,
        /// For a person.
        message: String,
    },
    /// A row does not carry this host's authentication: it was edited, or belongs to other keys.
    #[error(
        "{what} failed authentication: the database was edited or belongs to another master key"
    )]
    Corrupt {
        /// Which row.
        what: String,
    },
    /// The database has no room left; nothing was changed.
    #[error("the database's disk is full; nothing was changed, free space and try again")]
    Full,
    /// The authority was closed.
    #[error("the authority is closed")]
    Closed,
    /// The database failed; nothing was changed.
    #[error("the database failed: {0}")]
    Storage(#[source] sqlx::Error),
    /// A fault of the authority itself.
    #[error("internal: {0}")]
    Internal(String),
}

/// Shorthand of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

fn join(violations: &[FieldViolation]) -> String {
    let each: Vec<String> = violations
        .iter()
        .map(|v| {
            if v.pointer.is_empty() {
                v.message.clone()
            } else {
                format!("{}: {}", v.pointer, v.message)
            }
        })
        .collect();
    each.join("; ")
}

impl Error {
    pub(crate) fn not_found(what: &'static str, id: &str) -> Error {
        // An id from outside is bounded before it stands in a message.
        let id = id.chars().take(80).collect();
        Error::NotFound { what, id }
    }

    pub(crate) fn conflict(code: &'static str, message: impl Into<String>) -> Error {
        Error::conflict_with(code, message, json!({}))
    }

    pub(crate) fn conflict_with(
        code: &'static str,
        message: impl Into<String>,
        details: Value,
    ) -> Error {
        Error::Conflict {
            code,
            message: message.into(),
            details,
        }
    }

    pub(crate) fn invalid(pointer: impl Into<String>, message: impl Into<String>) -> Error {
        Error::Invalid {
            violations: vec![FieldViolation {
                pointer: pointer.into(),
                message: message.into(),
            }],
        }
    }

    pub(crate) fn forbidden(message: impl Into<String>) -> Error {
        Error::Forbidden {
            message: message.into(),
        }
    }

    pub(crate) fn stale(what: &'static str, message: impl Into<String>) -> Error {
        Error::Stale {
            what,
            message: message.into(),
        }
    }

    pub(crate) fn corrupt(what: impl Into<String>) -> Error {
        Error::Corrupt { what: what.into() }
    }

    /// Whether the whole write that this happened in has to be given up, whoever else shares it.
    pub(crate) fn spoils_the_batch(&self) -> bool {
        matches!(self, Error::Full | Error::Storage(_))
    }

    /// The same failure, for another caller of a shared write.
    pub(crate) fn again(&self) -> Error {
        match self {
            Error::Full => Error::Full,
            Error::Closed => Error::Closed,
            other => Error::Internal(format!("a shared write failed: {other}")),
        }
    }
}

impl From<sqlx::Error> for Error {
    fn from(error: sqlx::Error) -> Error {
        crate::store::classify(error)
    }
}

impl From<serde_json::Error> for Error {
    fn from(error: serde_json::Error) -> Error {
        // Positions only: serde's own text may quote the input.
        Error::Internal(format!(
            "stored JSON does not parse at line {} column {}",
            error.line(),
            error.column()
        ))
    }
}

/// Collects violations so that all are answered at once.
#[derive(Default)]
pub(crate) struct Violations(Vec<FieldViolation>);

impl Violations {
    pub fn add(&mut self, pointer: impl Into<String>, message: impl Into<String>) {
        self.0.push(FieldViolation {
            pointer: pointer.into(),
            message: message.into(),
        });
    }

    /// Takes over the violations of `error`; any other error is answered at once.
    pub fn take(&mut self, error: Error) -> Result<()> {
        match error {
            Error::Invalid { violations } => {
                self.0.extend(violations);
                Ok(())
            }
            other => Err(other),
        }
    }

    pub fn done(self) -> Result<()> {
        if self.0.is_empty() {
            Ok(())
        } else {
            Err(Error::Invalid { violations: self.0 })
        }
    }
}

//! Why the service could not do what was asked.
//!
//! Every variant carries what a program needs to decide and what a person needs to mend it. Texts that came from a
//! component or a backend are bounded and redacted before they get here.

use leasehold_contract::FieldViolation;

/// The service's one error.
#[derive(Debug, thiserror::Error)]
pub enum ServiceError {
    /// The authority refused or failed.
    #[error(transparent)]
    Authority(#[from] leasehold_authority::Error),
    /// The provider, or egress for it, answered with an error.
    #[error("{what}: {error}")]
    Provider {
        /// What was being done, and to what.
        what: String,
        /// Bounded and redacted.
        error: leasehold_contract::Error,
    },
    /// The component failed otherwise: a trap, a limit, a timeout.
    #[error("{what}: {failure}")]
    Component {
        /// What was being done, and to what.
        what: String,
        /// Which kind.
        failure: Box<leasehold_runtime::Failure>,
    },
    /// A component cannot be installed.
    #[error(transparent)]
    Install(Box<leasehold_runtime::InstallError>),
    /// A registry did not give a component.
    #[error(transparent)]
    Registry(Box<leasehold_egress::RegistryError>),
    /// A component is not signed as its source asks.
    #[error("{what}: {why}")]
    Unsigned {
        /// Which component.
        what: String,
        /// What is wrong with its signatures.
        why: leasehold_authority::Unsigned,
    },
    /// What was given cannot work.
    #[error("{}", summary(violations))]
    Invalid {
        /// Every one at once.
        violations: Vec<FieldViolation>,
    },
    /// Not in this state, or not by this version.
    #[error("{message}")]
    Refused {
        /// A stable code of the documented list.
        code: &'static str,
        /// For a person.
        message: String,
    },
    /// The provider failed again and again: no new leases for a while.
    #[error(
        "the provider {key:?} takes no new leases for now: {reason}; it is tried again in {} s, or after \
         `leasehold plugin reset {key}`", retry_after.as_secs().max(1)
    )]
    Tripped {
        /// The provider's key.
        key: String,
        /// How it failed last.
        reason: String,
        /// How long until it is worth asking again.
        retry_after: std::time::Duration,
    },
    /// The server is still starting.
    #[error("the server is starting; ask /readyz until it answers 200")]
    NotReady,
    /// The server is stopping and starts nothing new.
    #[error("the server is shutting down")]
    ShuttingDown,
}

impl From<leasehold_runtime::InstallError> for ServiceError {
    fn from(error: leasehold_runtime::InstallError) -> ServiceError {
        ServiceError::Install(Box::new(error))
    }
}

impl From<leasehold_egress::RegistryError> for ServiceError {
    fn from(error: leasehold_egress::RegistryError) -> ServiceError {
        ServiceError::Registry(Box::new(error))
    }
}

impl ServiceError {
    /// A refusal with a stable code.
    pub fn refused(code: &'static str, message: impl Into<String>) -> ServiceError {
        ServiceError::Refused {
            code,
            message: message.into(),
        }
    }

    /// What a call of a component came to, with what was being done.
    pub fn of(what: impl Into<String>, failure: leasehold_runtime::Failure) -> ServiceError {
        let what = what.into();
        match failure {
            leasehold_runtime::Failure::Provider(error) => ServiceError::Provider { what, error },
            failure => ServiceError::Component {
                what,
                failure: Box::new(failure),
            },
        }
    }
}

fn summary(violations: &[FieldViolation]) -> String {
    match violations {
        [] => "the input is not valid".to_owned(),
        [one] if one.pointer.is_empty() => one.message.clone(),
        [one] => format!("{}: {}", one.pointer, one.message),
        [one, rest @ ..] => {
            format!("{}: {} (and {} more)", one.pointer, one.message, rest.len())
        }
    }
}

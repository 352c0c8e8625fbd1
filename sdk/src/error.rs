//! Errors: one constructor for each code of the contract.
//!
//! An error's text is for a person: what happened, where, and how to mend it. It is untrusted to the host,
//! which bounds and redacts it; a credential cannot be in it, because a component never has one.

use crate::bindings::base::leasehold::provider::types::{Code, Error, FieldViolation};

/// What every function of a provider answers.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// One thing that is wrong with the configuration, for [`Error::invalid_config`]. `pointer` is an RFC 6901
/// pointer into it, empty for the whole; `message` says what is wrong and how to mend it.
pub fn violation(pointer: impl Into<String>, message: impl Into<String>) -> FieldViolation {
    FieldViolation {
        pointer: pointer.into(),
        message: message.into(),
    }
}

macro_rules! constructors {
    ($($(#[$doc:meta])* $name:ident => $code:ident;)*) => {
        impl Error {
            $($(#[$doc])*
            pub fn $name(message: impl Into<String>) -> Error {
                Error::new(Code::$code, message)
            })*
        }
    };
}

impl Error {
    /// An error of this code. Where there is a constructor of the code's own name, prefer that.
    pub fn new(code: Code, message: impl Into<String>) -> Error {
        Error {
            code,
            message: message.into(),
            retry_after: None,
            violations: None,
        }
    }

    /// The configuration cannot work: every violation at once.
    pub fn invalid_config(violations: Vec<FieldViolation>) -> Error {
        let told: Vec<String> = violations
            .iter()
            .map(|v| match v.pointer.as_str() {
                "" => v.message.clone(),
                pointer => format!("{pointer}: {}", v.message),
            })
            .collect();
        Error {
            violations: Some(violations),
            ..Error::new(Code::InvalidConfig, told.join("; "))
        }
    }

    /// How long the backend asked to wait, in milliseconds.
    pub fn retry_after(self, millis: u32) -> Error {
        Error {
            retry_after: Some(millis),
            ..self
        }
    }

    /// The same error with words in front of its message: `context: message`.
    pub fn about(self, context: impl std::fmt::Display) -> Error {
        Error {
            message: format!("{context}: {}", self.message),
            ..self
        }
    }
}

constructors! {
    /// The backend did not accept the credential.
    unauthenticated => Unauthenticated;
    /// The credential is good and not allowed to do this.
    permission_denied => PermissionDenied;
    /// Host key or certificate does not match the policy.
    untrusted_peer => UntrustedPeer;
    /// The backend proved that what the call names does not exist. Of an environment, answer
    /// [`gone`](crate::gone) instead.
    not_found => NotFound;
    /// The acquisition was used before with another request.
    already_exists => AlreadyExists;
    /// The thing is in a state that forbids it.
    failed_precondition => FailedPrecondition;
    /// The backend is doing something else with it.
    busy => Busy;
    /// Too many requests: say how long to wait by [`Error::retry_after`] where the backend did.
    rate_limited => RateLimited;
    /// The account may not have more.
    quota_exceeded => QuotaExceeded;
    /// Not reached, or failing before it did anything: nothing took effect.
    unavailable => Unavailable;
    /// This provider, or this configuration, cannot do it. Never retried.
    unsupported => Unsupported;
    /// The host said stop; pass it on.
    cancelled => Cancelled;
    /// It may or may not have taken effect. The host reconciles; it never assumes.
    outcome_unknown => OutcomeUnknown;
    /// The provider's own fault.
    internal => Internal;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_invalid_configuration_tells_every_violation_in_its_message_too() {
        let error = Error::invalid_config(vec![
            violation("/path", "must be absolute"),
            violation("", "is empty"),
        ]);
        assert_eq!(error.message, "/path: must be absolute; is empty");
        assert_eq!(error.violations.map(|v| v.len()), Some(2));
    }

    #[test]
    fn context_stands_in_front_and_keeps_the_code() {
        let error = Error::unavailable("refused")
            .retry_after(250)
            .about("ci@host:22");
        assert_eq!(error.message, "ci@host:22: refused");
        assert_eq!(error.code, Code::Unavailable);
        assert_eq!(error.retry_after, Some(250));
    }
}

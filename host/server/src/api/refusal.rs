//! From what the service and the authority say to what the API answers.
//!
//! Each of their errors has one code here. What only the operator may see (a database's words, a cause on
//! this machine) goes to the log and not into the answer.

use leasehold_authority::Error as AuthorityError;
use leasehold_contract::{Code, Error as ProviderError};
use leasehold_egress::{RegistryError, RegistryFault};
use leasehold_runtime::{Failure, InstallError};
use serde_json::Value;

use super::errors::{ApiError, ErrorCode};
use crate::service::ServiceError;

impl From<AuthorityError> for ApiError {
    fn from(error: AuthorityError) -> ApiError {
        match error {
            AuthorityError::NotFound { what, id } => ApiError::not_found(what, &id),
            AuthorityError::Conflict {
                code,
                message,
                details,
            } => {
                let mut answer = ApiError::new(listed(code), message);
                if let Value::Object(details) = details {
                    answer.details = details;
                }
                answer
            }
            AuthorityError::Invalid { violations } => ApiError::violations(violations),
            AuthorityError::Forbidden { message } => ApiError::forbidden(message),
            AuthorityError::Stale { what, message } => {
                let code = match what {
                    "environment" => ErrorCode::EnvironmentChanged,
                    _ => ErrorCode::LeaseChanged,
                };
                ApiError::new(code, message)
            }
            AuthorityError::Corrupt { what } => {
                tracing::error!(%what, "a stored row failed its authentication");
                ApiError::new(
                    ErrorCode::StorageCorrupt,
                    format!("{what} failed its authentication and is not believed"),
                )
            }
            AuthorityError::Full => ApiError::new(
                ErrorCode::StorageFull,
                "the disk of the server is full; nothing was changed",
            ),
            AuthorityError::Closed => {
                ApiError::new(ErrorCode::ShuttingDown, "the server is being stopped")
            }
            other => internal(&other),
        }
    }
}

impl From<ServiceError> for ApiError {
    fn from(error: ServiceError) -> ApiError {
        match error {
            ServiceError::Authority(error) => error.into(),
            ServiceError::Provider { what, error } => provider(&what, error),
            ServiceError::Component { what, failure } => component(&what, *failure),
            ServiceError::Install(error) => install(&error),
            ServiceError::Registry(error) => registry(&error),
            ServiceError::Unsigned { .. } => {
                ApiError::new(ErrorCode::SignatureRefused, error.to_string())
            }
            ServiceError::Invalid { violations } => ApiError::violations(violations),
            ServiceError::Refused { code, message } => ApiError::new(listed(code), message),
            ServiceError::Tripped { retry_after, .. } => {
                let seconds = u32::try_from(retry_after.as_secs()).unwrap_or(u32::MAX);
                let mut answer = ApiError::new(ErrorCode::PluginTripped, error.to_string());
                answer.retry_after = Some(seconds.max(1));
                answer
            }
            ServiceError::NotReady => {
                let mut answer = ApiError::new(ErrorCode::NotReady, error.to_string());
                answer.retry_after = Some(1);
                answer
            }
            ServiceError::ShuttingDown => ApiError::new(ErrorCode::ShuttingDown, error.to_string()),
        }
    }
}

/// The listed code of this spelling. One that is not listed is a mistake of ours: the list is the API.
fn listed(code: &str) -> ErrorCode {
    ErrorCode::parse(code).unwrap_or_else(|| {
        tracing::error!(code, "a refusal carries a code that is not listed");
        ErrorCode::Conflict
    })
}

fn internal(error: &dyn std::error::Error) -> ApiError {
    let mut causes = vec![error.to_string()];
    let mut next = error.source();
    while let Some(cause) = next {
        causes.push(cause.to_string());
        next = cause.source();
    }
    tracing::error!(
        causes = causes.join(": "),
        "a request failed inside the server"
    );
    ApiError::new(
        ErrorCode::Internal,
        "the server failed inside this request; its log has the reason",
    )
}

fn provider(what: &str, error: ProviderError) -> ApiError {
    let code = match error.code {
        Code::InvalidConfig => ErrorCode::InvalidConfig,
        Code::Unauthenticated => ErrorCode::TargetUnauthenticated,
        Code::PermissionDenied => ErrorCode::EgressDenied,
        Code::UntrustedPeer => ErrorCode::UntrustedPeer,
        Code::NotFound => ErrorCode::NotFound,
        Code::AlreadyExists => ErrorCode::AlreadyExists,
        Code::FailedPrecondition => ErrorCode::FailedPrecondition,
        Code::Busy => ErrorCode::Busy,
        Code::RateLimited => ErrorCode::RateLimited,
        Code::QuotaExceeded => ErrorCode::QuotaExceeded,
        Code::Unavailable => ErrorCode::TargetUnavailable,
        Code::Unsupported => ErrorCode::Unsupported,
        Code::Cancelled => ErrorCode::Cancelled,
        Code::OutcomeUnknown => ErrorCode::OutcomeUnknown,
        Code::Internal => ErrorCode::ProviderFailed,
    };
    let mut answer = ApiError::new(code, format!("{what}: {}", error.message))
        .with("providerCode", error.code.as_str());
    // A provider's pointers are into the configuration, and a client's into the environment that has it.
    answer.violations = error.violations.unwrap_or_default();
    for violation in &mut answer.violations {
        violation.pointer.insert_str(0, "/config");
    }
    answer.retry_after = error.retry_after.map(|ms| ms.div_ceil(1000));
    answer
}

fn component(what: &str, failure: Failure) -> ApiError {
    let message = format!("{what}: {failure}");
    match failure {
        Failure::Provider(error) => provider(what, error),
        Failure::Trap { code, .. } => {
            ApiError::new(ErrorCode::ComponentTrapped, message).with("trap", code.to_string())
        }
        Failure::Timeout { phase, .. } => {
            ApiError::new(ErrorCode::ComponentTimeout, message).with("phase", phase.to_string())
        }
        Failure::Limit { which, .. } => {
            ApiError::new(ErrorCode::ComponentLimit, message).with("limit", which.to_string())
        }
        Failure::Busy(_) => {
            let mut answer = ApiError::new(ErrorCode::Busy, message);
            answer.retry_after = Some(1);
            answer
        }
        Failure::Incompatible(_) => ApiError::new(ErrorCode::ComponentIncompatible, message),
        Failure::Answer { .. } => ApiError::new(ErrorCode::ProviderFailed, message),
        Failure::Argument { .. } => ApiError::new(ErrorCode::Invalid, message),
        Failure::Host(cause) => {
            tracing::error!(what, cause, "a call of a component failed in the host");
            ApiError::new(
                ErrorCode::Internal,
                format!("{what}: the server failed; its log has the reason"),
            )
        }
    }
}

fn registry(error: &RegistryError) -> ApiError {
    let mut retry_after = None;
    let code = match &error.why {
        RegistryFault::NoCredential { .. }
        | RegistryFault::Unauthenticated { .. }
        | RegistryFault::Denied { .. } => ErrorCode::TargetUnauthenticated,
        RegistryFault::NotFound { .. } => ErrorCode::NotFound,
        RegistryFault::RateLimited { retry_after: wait } => {
            retry_after = wait.map(|wait| u32::try_from(wait.as_secs()).unwrap_or(u32::MAX));
            ErrorCode::RateLimited
        }
        RegistryFault::Wire(error) => match error.code {
            Code::UntrustedPeer => ErrorCode::UntrustedPeer,
            Code::PermissionDenied => ErrorCode::EgressDenied,
            _ => ErrorCode::TargetUnavailable,
        },
        RegistryFault::Failed { .. } | RegistryFault::Deadline(_) | RegistryFault::Contended(_) => {
            ErrorCode::TargetUnavailable
        }
        RegistryFault::Realm(_) | RegistryFault::Redirect(_) => ErrorCode::EgressDenied,
        RegistryFault::NotAComponent(_) => ErrorCode::InvalidComponent,
        RegistryFault::OtherDigest { .. } | RegistryFault::Beside(_) => ErrorCode::Invalid,
        RegistryFault::Unexpected { .. }
        | RegistryFault::Truncated { .. }
        | RegistryFault::Size { .. }
        | RegistryFault::TooLarge { .. }
        | RegistryFault::Digest { .. }
        | RegistryFault::DigestHeader { .. }
        | RegistryFault::Encoded(_)
        | RegistryFault::Malformed(_)
        | RegistryFault::Challenge(_) => ErrorCode::RegistryFailed,
    };
    let mut answer = ApiError::new(code, error.to_string()).with("reason", error.why.reason());
    answer.retry_after = retry_after;
    answer
}

fn install(error: &InstallError) -> ApiError {
    ApiError::new(ErrorCode::InvalidComponent, error.to_string())
}

//! The one list of error codes, and the one shape that every refusal of the API has.
//!
//! `docs/errors.md` shows the list; a test holds the two together. An [`ApiError`] is what a person and a
//! program may read: no path of this machine, no cause chain, no secret. What the operator must see of an
//! internal failure is logged where it is turned into one.

use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use leasehold_contract::FieldViolation;
use serde::Serialize;
use serde_json::{Map, Value};

use crate::access::Refused;

macro_rules! codes {
    ($($name:ident $text:literal $status:literal $meaning:literal,)*) => {
        /// A stable code of the API. Programs look at it; it never changes its meaning.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum ErrorCode {
            $(#[doc = $meaning] $name,)*
        }

        impl ErrorCode {
            /// Every code, in the order of the documentation.
            pub const ALL: &[ErrorCode] = &[$(ErrorCode::$name,)*];

            /// The code as answers spell it.
            pub const fn as_str(self) -> &'static str {
                match self { $(ErrorCode::$name => $text,)* }
            }

            /// The HTTP status that comes with it.
            pub fn status(self) -> StatusCode {
                let number: u16 = match self { $(ErrorCode::$name => $status,)* };
                StatusCode::from_u16(number).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
            }

            /// What it means and what to do, for a person.
            pub const fn meaning(self) -> &'static str {
                match self { $(ErrorCode::$name => $meaning,)* }
            }

            /// The code that is spelled so.
            pub fn parse(text: &str) -> Option<ErrorCode> {
                ErrorCode::ALL.iter().copied().find(|code| code.as_str() == text)
            }
        }
    };
}

codes! {
    BadRequest "bad_request" 400 "The request is not well-formed: a path, a query or a header cannot be read. The message says which.",
    InvalidJson "invalid_json" 400 "The body is not JSON. The message gives line and column.",
    Unauthenticated "unauthenticated" 401 "Nobody is known by what the request carries: no token, or one that is unknown or revoked.",
    Forbidden "forbidden" 403 "The caller is known and may not do this.",
    EnvironmentPlatformManaged "environment_platform_managed" 403 "The server keeps this environment as its settings say; only its envVars can be changed.",
    EnvironmentCompanyMismatch "environment_company_mismatch" 403 "A secret of this shared environment belongs to another company than the one that it is used for.",
    EnvironmentsDisabled "environments_disabled" 403 "Environments are switched off on this server.",
    EnvironmentsManagedOnly "environments_managed_only" 403 "This server has no environment but the one that it keeps itself.",
    HostNotAllowed "host_not_allowed" 403 "The Host header names a host that this server is not. Start it with --allowed-host to add a name.",
    OriginNotAllowed "origin_not_allowed" 403 "A page of another origin sent this request. Only pages of this server may write or open a WebSocket.",
    NotFound "not_found" 404 "There is no such thing, or it belongs to a company that the caller is not in.",
    RouteNotFound "route_not_found" 404 "The API has no such path.",
    MethodNotAllowed "method_not_allowed" 405 "The path exists and does not know this method; the Allow header lists those it knows.",
    RequestTimeout "request_timeout" 408 "The client was silent for too long inside its body.",
    Conflict "conflict" 409 "What is stored now does not allow this. The message says what stands in the way.",
    CompanyNameTaken "company_name_taken" 409 "Another company has this name.",
    EnvironmentNameTaken "environment_name_taken" 409 "Another environment that the company sees has this name.",
    SecretNameTaken "secret_name_taken" 409 "Another secret of the company has this name.",
    IdempotencyInProgress "idempotency_in_progress" 409 "The request of this idempotency key is being worked on. Ask again in a moment.",
    IdempotencySpent "idempotency_spent" 409 "The request of this idempotency key was done, and its answer is not shown again; details.id is what it made.",
    TargetInUse "target_in_use" 409 "Another lease holds this target, and the target is leased to one at a time; details.leaseId names it.",
    ResourceClaimed "resource_claimed" 409 "What the target answered is already the resource of another lease.",
    NoCandidate "no_candidate" 409 "No environment can be leased for what was asked. details.excluded and details.tried say of each why.",
    LeaseState "lease_state" 409 "The lease is not in a state that allows this; details.status is the state.",
    LeaseNotActive "lease_not_active" 409 "The lease is not active: nothing can start on it.",
    ReleaseUnconfirmed "release_unconfirmed" 409 "It is not certain yet that nothing is left; the release is tried again until it is.",
    RunEnded "run_ended" 409 "The run has ended: nothing is leased for it any more.",
    LeaseExpired "lease_expired" 409 "The lease has expired: nothing can start on it any more.",
    LeaseChanged "lease_changed" 409 "The lease was taken over or changed in the meantime. Read it again.",
    ExecutionEnded "execution_ended" 409 "The execution has ended, or no stream of it can be reached.",
    ExecutionSettled "execution_settled" 409 "The execution has another outcome already, which stands.",
    EnvironmentLocal "environment_local" 409 "It is about the server's own machine, which is one environment, always there and never leased.",
    EnvironmentInactive "environment_inactive" 409 "The environment is archived and accepts no leases.",
    EnvironmentChanged "environment_changed" 409 "The environment is no longer what the request was made for. Read it again.",
    EnvironmentNotDeletable "environment_not_deletable" 409 "Leases hold the environment, or the server needs it; details.deleteBlockedReasons lists why.",
    EnvironmentUsedByOtherCompanies "environment_used_by_other_companies" 409 "Others use the environment, so it cannot become one company's own; details count them.",
    EnvironmentPendingSandboxCleanup "environment_pending_sandbox_cleanup" 409 "A lease of this environment waits for its cleanup; its driver, provider and config cannot change until then.",
    SecretInUse "secret_in_use" 409 "The secret, or this version of it, is used by environments, by leases that are not finished, or by the server's settings; details.environments, details.leases and details.settings list some.",
    SecretMissing "secret_missing" 409 "A secret that the environment or the lease needs was deleted by force. The message says where it belongs.",
    PluginInUse "plugin_in_use" 409 "Environments or leases that are not finished use the plugin.",
    PluginDisabled "plugin_disabled" 409 "The plugin is disabled: it takes no new leases. Those that exist can be released.",
    PluginMissing "plugin_missing" 409 "The plugin that this needs is not installed.",
    PluginPending "plugin_pending" 409 "The plugin waits for an administrator's grant.",
    GrantMismatch "grant_mismatch" 409 "What the component asks for is not what was granted. Inspect it again and grant what is shown.",
    AlreadyExists "already_exists" 409 "The target already holds a thing of this name that is not this lease's.",
    FailedPrecondition "failed_precondition" 409 "The target is not in a state that allows this.",
    Cancelled "cancelled" 409 "The operation was cancelled before it was done.",
    RevisionMismatch "revision_mismatch" 412 "The row is no longer what If-Match names; details.revision and details.targetRevision are what it is now.",
    PayloadTooLarge "payload_too_large" 413 "The body, or a frame of a stream, is larger than this path takes. The message gives the limit.",
    UnsupportedMediaType "unsupported_media_type" 415 "The Content-Type is missing or not the one that this path takes.",
    Invalid "invalid" 422 "A field is wrong. details.violations names each with a JSON pointer and says how to mend it.",
    InvalidConfig "invalid_config" 422 "The configuration of the environment is wrong. details.violations names each field.",
    InvalidComponent "invalid_component" 422 "The upload is not a component that this server can install. The message gives the whole cause.",
    ComponentIncompatible "component_incompatible" 422 "The component wants an interface that this server does not have in this version.",
    SignatureRefused "signature_refused" 422 "The component is not signed as the settings ask of where it comes from. The message says by whom it must be, and what is there.",
    IdempotencyMismatch "idempotency_mismatch" 422 "The idempotency key was used before with another request; details.leaseId is what that one made, where it was a lease.",
    ProviderMissing "provider_missing" 422 "No installed plugin offers this provider.",
    Unsupported "unsupported" 422 "The provider or this server cannot do this; the capabilities of the environment say so beforehand.",
    RateLimited "rate_limited" 429 "The target asked to wait. Retry-After says for how long.",
    QuotaExceeded "quota_exceeded" 429 "The account at the target has reached a limit of its own.",
    Internal "internal" 500 "The server failed; its log has the reason under the request's id.",
    StorageCorrupt "storage_corrupt" 500 "A stored row was changed from outside and is not believed. The log names it.",
    TargetUnavailable "target_unavailable" 502 "The target cannot be reached. The message names it and the stage.",
    TargetUnauthenticated "target_unauthenticated" 502 "The target refused the credential that is configured.",
    UntrustedPeer "untrusted_peer" 502 "The target showed a host key or certificate that is not trusted. The message gives its fingerprint.",
    EgressDenied "egress_denied" 502 "The provider tried, or a registry led to, what the grant or the configuration does not allow.",
    OutcomeUnknown "outcome_unknown" 502 "Nobody can tell whether it happened. It is not retried; the record shows it until it is settled.",
    ProviderFailed "provider_failed" 502 "The provider reported a failure of its own.",
    RegistryFailed "registry_failed" 502 "What a registry answered is not what it was asked for: other bytes, too many or too few, or nothing that can be followed. details.reason says which.",
    ComponentTrapped "component_trapped" 502 "The component crashed. The message has the end of its error output.",
    ComponentLimit "component_limit" 502 "The component reached a limit of what one call may use; details.limit names it.",
    NotReady "not_ready" 503 "The server is still starting. Try again in a moment.",
    ShuttingDown "shutting_down" 503 "The server is being stopped and starts nothing new.",
    PluginTripped "plugin_tripped" 503 "The plugin crashed or hung again and again: it takes no new leases for now. Retry-After says when it is tried again.",
    Busy "busy" 503 "All places for calls are taken. Try again in a moment.",
    TooManyConnections "too_many_connections" 503 "The server has as many open streams as it takes.",
    ComponentTimeout "component_timeout" 504 "The component did not answer in time; details.phase says where the time went.",
    StorageFull "storage_full" 507 "The disk of the server is full. Nothing was changed.",
}

impl std::fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Serialize for ErrorCode {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

/// A refusal: `{"error": message, "details": {"code": …, "violations": […], …}}`.
#[derive(Clone, Debug, PartialEq)]
pub struct ApiError(Box<Parts>);

/// What a refusal is made of.
#[derive(Clone, Debug, PartialEq)]
pub struct Parts {
    /// What kind it is.
    pub code: ErrorCode,
    /// One sentence for a person, lower-case, without a full stop.
    pub message: String,
    /// Every field that is wrong, where fields are.
    pub violations: Vec<FieldViolation>,
    /// Further members of `details`.
    pub details: Map<String, Value>,
    /// What `Retry-After` says, in seconds.
    pub retry_after: Option<u32>,
    /// Whom the policy refused what, for the activity; never a part of the answer.
    pub refused: Option<Refused>,
}

impl ApiError {
    /// A refusal of this code with a message.
    pub fn new(code: ErrorCode, message: impl Into<String>) -> ApiError {
        ApiError(Box::new(Parts {
            code,
            message: message.into(),
            violations: Vec::new(),
            details: Map::new(),
            retry_after: None,
            refused: None,
        }))
    }

    /// One wrong field.
    pub fn field(pointer: impl Into<String>, message: impl Into<String>) -> ApiError {
        ApiError::violations(vec![FieldViolation {
            pointer: pointer.into(),
            message: message.into(),
        }])
    }

    /// Wrong fields; the message is made of them. A query that is wrong is a request that is not well-formed.
    pub fn violations(violations: Vec<FieldViolation>) -> ApiError {
        let of_query = violations.iter().any(|v| v.pointer.starts_with('?'));
        let code = match of_query {
            true => ErrorCode::BadRequest,
            false => ErrorCode::Invalid,
        };
        let mut error = ApiError::new(code, sentence(&violations));
        error.violations = violations;
        error
    }

    /// There is no such thing (or it is another company's, which is the same to the caller).
    pub fn not_found(what: &str, id: &str) -> ApiError {
        ApiError::new(
            ErrorCode::NotFound,
            format!("there is no {what} `{}`", shown(id)),
        )
    }

    /// The caller may not.
    pub fn forbidden(message: impl Into<String>) -> ApiError {
        ApiError::new(ErrorCode::Forbidden, message)
    }

    /// With a further member of `details`.
    pub fn with(mut self, key: &str, value: impl Into<Value>) -> ApiError {
        self.details.insert(key.to_owned(), value.into());
        self
    }

    /// Of the policy.
    pub fn of(mut self, refused: Refused) -> ApiError {
        self.refused = Some(refused);
        self
    }

    /// The body that is sent, as frames of a WebSocket carry it too.
    pub fn to_json(&self) -> Value {
        let mut details = Map::new();
        details.insert("code".into(), self.code.as_str().into());
        if !self.violations.is_empty() {
            details.insert(
                "violations".into(),
                self.violations
                    .iter()
                    .map(|v| serde_json::json!({"pointer": v.pointer, "message": v.message}))
                    .collect(),
            );
        }
        details.extend(self.details.clone());
        serde_json::json!({"error": self.message, "details": details})
    }
}

impl std::ops::Deref for ApiError {
    type Target = Parts;

    fn deref(&self) -> &Parts {
        &self.0
    }
}

impl std::ops::DerefMut for ApiError {
    fn deref_mut(&mut self) -> &mut Parts {
        &mut self.0
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let mut response = (self.code.status(), Json(self.to_json())).into_response();
        let headers = response.headers_mut();
        if let Some(seconds) = self.retry_after {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        if self.code == ErrorCode::Unauthenticated {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response.extensions_mut().insert(self.code);
        if let Some(refused) = self.0.refused {
            response.extensions_mut().insert(refused);
        }
        response
    }
}

impl std::fmt::Display for ApiError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} ({})", self.message, self.code)
    }
}

impl std::error::Error for ApiError {}

/// All violations in one line, the first three in words.
pub fn sentence(violations: &[FieldViolation]) -> String {
    let mut parts: Vec<String> = violations
        .iter()
        .take(3)
        .map(|v| match v.pointer.as_str() {
            "" => v.message.clone(),
            pointer => format!("{pointer}: {}", v.message),
        })
        .collect();
    if violations.len() > 3 {
        parts.push(format!("and {} more", violations.len() - 3));
    }
    parts.join("; ")
}

/// What a client sent, fit to be shown again: bounded, without control characters.
pub fn shown(text: &str) -> String {
    let mut out: String = text
        .chars()
        .take(80)
        .map(|c| if c.is_control() { '\u{fffd}' } else { c })
        .collect();
    if text.chars().nth(80).is_some() {
        out.push('…');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_unique_and_found_by_their_text() {
        for code in ErrorCode::ALL {
            assert_eq!(ErrorCode::parse(code.as_str()), Some(*code));
            assert!(code.status().is_client_error() || code.status().is_server_error());
        }
        let mut texts: Vec<_> = ErrorCode::ALL.iter().map(|c| c.as_str()).collect();
        texts.sort_unstable();
        texts.dedup();
        assert_eq!(texts.len(), ErrorCode::ALL.len());
    }

    #[test]
    fn the_documentation_lists_every_code_with_its_status_and_meaning() {
        let documented = include_str!("../../../../docs/errors.md");
        let rows: String = ErrorCode::ALL
            .iter()
            .map(|c| format!("| `{c}` | {} | {} |\n", c.status().as_u16(), c.meaning()))
            .collect();
        assert!(
            documented.contains(&rows),
            "docs/errors.md should hold exactly these rows:\n{rows}"
        );
    }

    #[test]
    fn every_code_that_the_authority_and_the_service_refuse_with_is_listed() {
        let here = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
        let mut sources = vec![here.join("../authority/src/error.rs")];
        for entry in std::fs::read_dir(here.join("src/service")).unwrap() {
            sources.push(entry.unwrap().path());
        }
        let mut seen = 0;
        for source in sources {
            let text = std::fs::read_to_string(&source).unwrap();
            for mark in ["pub const ", "ServiceError::refused("] {
                for rest in text.split(mark).skip(1) {
                    let rest = match mark {
                        "pub const " => rest.split_once(": &str = ").map_or("", |(_, rest)| rest),
                        _ => rest.trim_start(),
                    };
                    let Some(code) = rest.strip_prefix('"').and_then(|r| r.split('"').next())
                    else {
                        continue;
                    };
                    seen += 1;
                    assert!(
                        ErrorCode::parse(code).is_some(),
                        "{code} of {source:?} is not listed"
                    );
                }
            }
        }
        assert!(seen > 15, "{seen}");
    }

    #[test]
    fn a_refusal_has_the_documented_shape() {
        let error = ApiError::field("/name", "is empty; give it a name").with("limit", 3);
        assert_eq!(
            error.to_json(),
            serde_json::json!({
                "error": "/name: is empty; give it a name",
                "details": {
                    "code": "invalid",
                    "violations": [{"pointer": "/name", "message": "is empty; give it a name"}],
                    "limit": 3
                }
            })
        );
    }

    #[test]
    fn what_a_client_sent_is_bounded_before_it_is_shown() {
        assert_eq!(shown("a\u{1b}[2J"), "a\u{fffd}[2J");
        assert_eq!(shown(&"x".repeat(500)).chars().count(), 81);
    }
}

//! What components answer, from the bindings' types to the contract's. Nothing is checked here.

use leasehold_contract as c;

use super::exported::{execution, lifecycle, suspension};
use super::imported::types;

/// An error that a component answered.
pub(crate) fn error(e: types::Error) -> c::Error {
    c::Error {
        code: code(e.code),
        message: e.message,
        retry_after: e.retry_after,
        violations: e.violations.map(|violations| {
            violations
                .into_iter()
                .map(|v| c::FieldViolation {
                    pointer: v.pointer,
                    message: v.message,
                })
                .collect()
        }),
    }
}

fn code(code: types::Code) -> c::Code {
    match code {
        types::Code::InvalidConfig => c::Code::InvalidConfig,
        types::Code::Unauthenticated => c::Code::Unauthenticated,
        types::Code::PermissionDenied => c::Code::PermissionDenied,
        types::Code::UntrustedPeer => c::Code::UntrustedPeer,
        types::Code::NotFound => c::Code::NotFound,
        types::Code::AlreadyExists => c::Code::AlreadyExists,
        types::Code::FailedPrecondition => c::Code::FailedPrecondition,
        types::Code::Busy => c::Code::Busy,
        types::Code::RateLimited => c::Code::RateLimited,
        types::Code::QuotaExceeded => c::Code::QuotaExceeded,
        types::Code::Unavailable => c::Code::Unavailable,
        types::Code::Unsupported => c::Code::Unsupported,
        types::Code::Cancelled => c::Code::Cancelled,
        types::Code::OutcomeUnknown => c::Code::OutcomeUnknown,
        types::Code::Internal => c::Code::Internal,
    }
}

pub(crate) fn findings(findings: Vec<lifecycle::Finding>) -> Vec<c::Finding> {
    findings
        .into_iter()
        .map(|f| c::Finding {
            step: f.step,
            severity: match f.severity {
                lifecycle::Severity::Info => c::Severity::Info,
                lifecycle::Severity::Warning => c::Severity::Warning,
                lifecycle::Severity::Failure => c::Severity::Failure,
            },
            message: f.message,
            duration: f.duration,
        })
        .collect()
}

pub(crate) fn acquired(a: lifecycle::Acquired) -> c::Acquired {
    c::Acquired {
        resource: a.resource,
        handle: a.handle,
        workspace: a.workspace,
        ttl: a.ttl,
    }
}

pub(crate) fn kept_alive(k: lifecycle::KeptAlive) -> c::KeptAlive {
    c::KeptAlive {
        next: k.next,
        ttl: k.ttl,
    }
}

fn condition(condition: lifecycle::Condition) -> c::Condition {
    match condition {
        lifecycle::Condition::Starting => c::Condition::Starting,
        lifecycle::Condition::Ready => c::Condition::Ready,
        lifecycle::Condition::Stopping => c::Condition::Stopping,
        lifecycle::Condition::Stopped => c::Condition::Stopped,
        lifecycle::Condition::Failed => c::Condition::Failed,
        lifecycle::Condition::Gone => c::Condition::Gone,
    }
}

pub(crate) fn observation(o: lifecycle::Observation) -> c::Observation {
    c::Observation {
        condition: condition(o.condition),
        image: o.image,
        message: o.message,
    }
}

pub(crate) fn page(page: lifecycle::Page) -> c::Page {
    c::Page {
        items: page.items.into_iter().map(listed).collect(),
        next: page.next,
    }
}

fn listed(listed: lifecycle::Listed) -> c::Listed {
    c::Listed {
        resource: listed.resource,
        handle: listed.handle,
        labels: listed
            .labels
            .into_iter()
            .map(|label| c::Label {
                key: label.key,
                value: label.value,
            })
            .collect(),
        condition: condition(listed.condition),
        created: listed.created.map(|moment| match moment {
            types::Moment::Unix(seconds) => c::Moment::Unix(seconds),
            types::Moment::Rfc3339(text) => c::Moment::Rfc3339(text),
        }),
    }
}

pub(crate) fn state(state: execution::State) -> c::CommandState {
    match state {
        execution::State::Running => c::CommandState::Running,
        execution::State::Exited(status) => c::CommandState::Exited(status),
        execution::State::Signalled(signal) => c::CommandState::Signalled(signal),
        execution::State::OutOfMemory => c::CommandState::OutOfMemory,
        execution::State::NotStarted(reason) => c::CommandState::NotStarted(reason),
        execution::State::Unknown => c::CommandState::Unknown,
    }
}

pub(crate) fn resumed(resumed: suspension::Resumed) -> c::Resumed {
    match resumed {
        suspension::Resumed::Same(handle) => c::Resumed::Same(handle),
        suspension::Resumed::Lost => c::Resumed::Lost,
    }
}

//! What the host passes, from the contract's types to the bindings'.

use std::time::Duration;

use leasehold_contract as c;

use super::exported::{execution, lifecycle};
use super::imported::{streams, types};

/// The context of a call that has `remaining` left when it begins.
pub(crate) fn context(call: &c::Call, remaining: Duration) -> types::Context {
    types::Context {
        company: call.company.clone(),
        environment: call.environment.clone(),
        lease: call.lease.as_ref().map(|lease| types::LeaseRef {
            id: lease.id.clone(),
            acquisition: lease.acquisition.clone(),
            epoch: lease.epoch,
        }),
        labels: call.labels.iter().map(label).collect(),
        purpose: match call.purpose {
            c::Purpose::Run => types::Purpose::Run,
            c::Purpose::Probe => types::Purpose::Probe,
            c::Purpose::Setup => types::Purpose::Setup,
            c::Purpose::Cleanup => types::Purpose::Cleanup,
            c::Purpose::Reconcile => types::Purpose::Reconcile,
        },
        timeout: millis(remaining),
        kept: call.kept.clone(),
    }
}

/// A span as the contract counts it; the longest there is where it does not fit.
pub(super) fn millis(span: Duration) -> u32 {
    u32::try_from(span.as_millis()).unwrap_or(u32::MAX)
}

fn label(label: &c::Label) -> types::Label {
    types::Label {
        key: label.key.clone(),
        value: label.value.clone(),
    }
}

pub(crate) fn query(query: &c::Query) -> lifecycle::Query {
    lifecycle::Query {
        labels: query.labels.iter().map(label).collect(),
        journalled: query.journalled.clone(),
        cursor: query.cursor.clone(),
    }
}

pub(crate) fn size(size: c::Size) -> streams::Size {
    streams::Size {
        cols: size.cols,
        rows: size.rows,
    }
}

pub(crate) fn command(command: &c::Command) -> execution::Command {
    execution::Command {
        id: command.id.clone(),
        argv: command.argv.clone(),
        env: command.env.clone(),
        cwd: command.cwd.clone(),
        stdin: command.stdin,
        tty: command.tty.map(size),
    }
}

/// An error of the host, for a component.
pub(super) fn error(e: c::Error) -> types::Error {
    types::Error {
        code: match e.code {
            c::Code::InvalidConfig => types::Code::InvalidConfig,
            c::Code::Unauthenticated => types::Code::Unauthenticated,
            c::Code::PermissionDenied => types::Code::PermissionDenied,
            c::Code::UntrustedPeer => types::Code::UntrustedPeer,
            c::Code::NotFound => types::Code::NotFound,
            c::Code::AlreadyExists => types::Code::AlreadyExists,
            c::Code::FailedPrecondition => types::Code::FailedPrecondition,
            c::Code::Busy => types::Code::Busy,
            c::Code::RateLimited => types::Code::RateLimited,
            c::Code::QuotaExceeded => types::Code::QuotaExceeded,
            c::Code::Unavailable => types::Code::Unavailable,
            c::Code::Unsupported => types::Code::Unsupported,
            c::Code::Cancelled => types::Code::Cancelled,
            c::Code::OutcomeUnknown => types::Code::OutcomeUnknown,
            c::Code::Internal => types::Code::Internal,
        },
        message: e.message,
        retry_after: e.retry_after,
        violations: e.violations.map(|violations| {
            violations
                .into_iter()
                .map(|v| types::FieldViolation {
                    pointer: v.pointer,
                    message: v.message,
                })
                .collect()
        }),
    }
}

/// A body of the host, for a component.
pub(super) fn content(content: c::Content) -> types::Content {
    match content {
        c::Content::None => types::Content::None,
        c::Content::Text(text) => types::Content::Text(text),
        c::Content::Bytes(bytes) => types::Content::Bytes(bytes),
    }
}

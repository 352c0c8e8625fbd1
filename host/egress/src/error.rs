//! Turns what went wrong on the way into the contract's error: the code decides what the host may assume,
//! the text names the target, the stage and the mend.

use leasehold_contract::{Code, Error};

/// The most of a remote text that goes into an error.
const QUOTED: usize = 400;

/// Remote text for a message: one line, no control characters, bounded, and marked where cut.
pub(crate) fn quote(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let mut out = String::new();
    let mut gap = false;
    for c in text.trim().chars() {
        if c.is_control() || c.is_whitespace() {
            gap = true;
            continue;
        }
        if out.len() >= QUOTED {
            out.push('…');
            break;
        }
        if std::mem::take(&mut gap) && !out.is_empty() {
            out.push(' ');
        }
        out.push(c);
    }
    out
}

/// Nothing took effect; trying again is safe.
pub(crate) fn unavailable(target: &str, what: impl std::fmt::Display) -> Error {
    Error::new(Code::Unavailable, format!("{target}: {what}"))
}

/// It was asked and no answer came.
pub(crate) fn unknown(target: &str, what: impl std::fmt::Display) -> Error {
    Error::new(Code::OutcomeUnknown, format!("{target}: {what}"))
}

/// Any other code, with the target named.
pub(crate) fn failed(code: Code, target: &str, what: impl std::fmt::Display) -> Error {
    Error::new(code, format!("{target}: {what}"))
}

/// The lease's epoch is over.
pub(crate) fn cancelled(target: &str) -> Error {
    Error::new(
        Code::Cancelled,
        format!("{target}: the lease is no longer active under this epoch"),
    )
}

/// What the operating system of the target said, as the nearest code.
pub(crate) fn code_of(stderr: &str) -> Code {
    let has = |t: &str| stderr.contains(t);
    if has("No space left") || has("Disk quota exceeded") {
        Code::QuotaExceeded
    } else if has("Permission denied")
        || has("Read-only file system")
        || has("Operation not permitted")
    {
        Code::PermissionDenied
    } else if has("No such file") || has("not found") {
        Code::NotFound
    } else {
        Code::FailedPrecondition
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quote_is_one_bounded_line_without_control_characters() {
        assert_eq!(quote(b"\x1b[31mred\r\n\n two\0 "), "[31mred two");
        let long = quote(&vec![b'x'; 10_000]);
        assert!(long.len() < 500 && long.ends_with('…'), "{}", long.len());
    }
}

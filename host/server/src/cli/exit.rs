//! Exit codes, and how a failure is told.

use std::fmt::Display;
use std::process::ExitCode;

/// It is done.
pub const DONE: u8 = 0;
/// It failed.
pub const FAILED: u8 = 1;
/// What was asked for cannot be: a flag, a value, a file.
pub const USAGE: u8 = 2;
/// There is no such thing.
pub const NOT_FOUND: u8 = 3;
/// The caller is not known, or may not.
pub const DENIED: u8 = 4;
/// What is stored stands in the way.
pub const CONFLICT: u8 = 5;
/// The server or the target cannot be reached, or is not ready.
pub const UNAVAILABLE: u8 = 6;
/// `exec` itself failed; other codes of `exec` are the command's.
pub const EXEC_FAILED: u8 = 125;

/// For `--help`.
pub const TABLE: &str = "Exit codes:
  0    done
  1    failed
  2    usage: a flag, a value or a file cannot be
  3    there is no such thing
  4    denied: the caller is not known, or may not do this
  5    conflict: what is stored stands in the way
  6    unavailable: the server or the target cannot be reached, or is not ready
  exec passes the command's own code, 128 + n when signal n ended it, and 125 when exec itself failed";

/// Why a command of the client failed.
#[derive(Debug, thiserror::Error)]
pub enum CliError {
    /// What was given cannot be.
    #[error("{0}")]
    Usage(String),
    /// Something of this machine failed.
    #[error("{0}")]
    Local(String),
    /// Nobody reads the output any more; not worth a word.
    #[error("the output was closed")]
    OutputClosed,
    /// The server cannot be reached.
    #[error(
        "no server answers at {at}: {cause}; start one with `leasehold serve`, or name another with --server"
    )]
    Unreachable {
        /// Where.
        at: String,
        /// Why not.
        cause: String,
    },
    /// The connection broke off.
    #[error("the connection to the server broke off: {0}")]
    Broken(String),
    /// The server refused.
    #[error("{message}{}", lines(violations))]
    Refused {
        /// HTTP status; of a stream, of the code.
        status: u16,
        /// The API's code.
        code: String,
        /// For a person.
        message: String,
        /// Pointer and message.
        violations: Vec<(String, String)>,
    },
    /// The answer is not what the API promises.
    #[error("the server's answer cannot be read: {0}")]
    Answer(String),
}

fn lines(violations: &[(String, String)]) -> String {
    if violations.len() < 2 {
        return String::new();
    }
    violations
        .iter()
        .map(|(pointer, message)| format!("\n  {pointer}: {message}"))
        .collect()
}

impl CliError {
    /// The code that the shell gets.
    pub fn exit_code(&self) -> u8 {
        match self {
            CliError::Usage(_) => USAGE,
            CliError::Local(_) | CliError::Answer(_) | CliError::OutputClosed => FAILED,
            CliError::Unreachable { .. } | CliError::Broken(_) => UNAVAILABLE,
            CliError::Refused { status, .. } => match status {
                400 | 413 | 415 | 422 => USAGE,
                401 | 403 => DENIED,
                404 => NOT_FOUND,
                409 => CONFLICT,
                408 | 429 | 502 | 503 | 504 => UNAVAILABLE,
                _ => FAILED,
            },
        }
    }
}

/// Tells a failure and answers its code.
pub fn report(result: Result<(), CliError>, is_exec: bool) -> ExitCode {
    match result {
        Ok(()) => ExitCode::from(DONE),
        Err(CliError::OutputClosed) if !is_exec => ExitCode::from(DONE),
        Err(e) => {
            let code = if is_exec { EXEC_FAILED } else { e.exit_code() };
            complain(&e, code)
        }
    }
}

/// Says what went wrong, on standard error.
pub fn complain(what: &dyn Display, code: u8) -> ExitCode {
    use std::io::Write;
    let _ = writeln!(std::io::stderr(), "leasehold: {what}");
    ExitCode::from(code)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(status: u16) -> u8 {
        CliError::Refused {
            status,
            code: "x".into(),
            message: "m".into(),
            violations: Vec::new(),
        }
        .exit_code()
    }

    #[test]
    fn every_documented_error_has_the_documented_exit_code() {
        for code in crate::api::errors::ErrorCode::ALL {
            let status = code.status().as_u16();
            let exit = refused(status);
            assert!((FAILED..=UNAVAILABLE).contains(&exit), "{code}");
            assert!(TABLE.contains(&format!("\n  {exit} ")), "{exit}");
        }
        assert_eq!(
            [404, 401, 403, 409, 503, 422, 500].map(refused),
            [
                NOT_FOUND,
                DENIED,
                DENIED,
                CONFLICT,
                UNAVAILABLE,
                USAGE,
                FAILED
            ]
        );
    }
}

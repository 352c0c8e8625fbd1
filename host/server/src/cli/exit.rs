//! Exit codes, and how a failure is told.

use std::fmt::Display;
use std::process::ExitCode;

use crate::api::errors::ErrorCode;

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
/// What the shell tells of a command that a closed pipe ended: of `exec`, when nobody takes the output.
pub const BROKEN_PIPE: u8 = 141;
/// `exec` itself failed; other codes of `exec` are the command's.
pub const EXEC_FAILED: u8 = 125;

/// For `--help`.
pub const TABLE: &str = "Exit codes:
  0    done
  1    failed
  2    usage: a flag, a value or a file cannot be
  3    there is no such thing
  4    denied: the caller is not known or may not do this, or a target or a registry refuses the credential
  5    conflict: what is stored stands in the way
  6    unavailable: the server or the target cannot be reached, or is not ready
  exec passes the command's own code, 128 + n when signal n ended it, 141 when nobody takes its output,
  and 125 when exec itself failed";

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
    /// The Unix socket is another user's.
    #[error(
        "{0}: only the user of the server may use its socket; others name its address, as --server http://127.0.0.1:7717, \
         and bring a token"
    )]
    Forbidden(String),
    /// The connection broke off.
    #[error("the connection to the server broke off: {0}")]
    Broken(String),
    /// The server refused.
    #[error("{}", told(message, violations))]
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

/// The message; where it names several fields, one below the other.
fn told(message: &str, violations: &[(String, String)]) -> String {
    if violations.len() < 2 {
        return message.to_owned();
    }
    let lines = violations
        .iter()
        .map(|(pointer, message)| format!("\n  {pointer}: {message}"));
    "what was given is wrong:".to_owned() + &lines.collect::<String>()
}

/// Failures of a target or a component that trying again does not mend.
const WRONG: [ErrorCode; 6] = [
    ErrorCode::ProviderFailed,
    ErrorCode::RegistryFailed,
    ErrorCode::UntrustedPeer,
    ErrorCode::ComponentTrapped,
    ErrorCode::ComponentLimit,
    ErrorCode::OutcomeUnknown,
];

/// Where whoever asks is not let in: by the target, or to it.
const REFUSED: [ErrorCode; 2] = [ErrorCode::EgressDenied, ErrorCode::TargetUnauthenticated];

impl CliError {
    /// The code that the shell gets.
    pub fn exit_code(&self) -> u8 {
        match self {
            CliError::Usage(_) => USAGE,
            CliError::Local(_) | CliError::Answer(_) | CliError::OutputClosed => FAILED,
            CliError::Forbidden(_) => DENIED,
            CliError::Unreachable { .. } | CliError::Broken(_) => UNAVAILABLE,
            // Of what a target or a component did, only its absence may pass by itself.
            CliError::Refused { code, .. } if REFUSED.iter().any(|c| code == c.as_str()) => DENIED,
            CliError::Refused { code, .. } if WRONG.iter().any(|c| code == c.as_str()) => FAILED,
            CliError::Refused { status, .. } => match status {
                400 | 413 | 415 | 422 => USAGE,
                401 | 403 => DENIED,
                404 => NOT_FOUND,
                409 | 412 => CONFLICT,
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

    fn refused(status: u16, code: &str) -> u8 {
        CliError::Refused {
            status,
            code: code.into(),
            message: "m".into(),
            violations: Vec::new(),
        }
        .exit_code()
    }

    #[test]
    fn every_documented_error_has_the_documented_exit_code() {
        for code in ErrorCode::ALL {
            let exit = refused(code.status().as_u16(), code.as_str());
            assert!((FAILED..=UNAVAILABLE).contains(&exit), "{code}");
            assert!(TABLE.contains(&format!("\n  {exit} ")), "{exit}");
        }
        assert_eq!(
            [404, 401, 403, 409, 412, 503, 422, 500].map(|status| refused(status, "x")),
            [
                NOT_FOUND,
                DENIED,
                DENIED,
                CONFLICT,
                CONFLICT,
                UNAVAILABLE,
                USAGE,
                FAILED
            ]
        );
        // Of a status of its own kind, only what may pass by itself is worth another try.
        for (code, exit) in [
            (ErrorCode::TargetUnavailable, UNAVAILABLE),
            (ErrorCode::EgressDenied, DENIED),
            (ErrorCode::TargetUnauthenticated, DENIED),
            (ErrorCode::UntrustedPeer, FAILED),
            (ErrorCode::OutcomeUnknown, FAILED),
            (ErrorCode::ProviderFailed, FAILED),
            (ErrorCode::RegistryFailed, FAILED),
            (ErrorCode::ComponentTrapped, FAILED),
            (ErrorCode::ComponentLimit, FAILED),
        ] {
            assert_eq!(code.status().as_u16(), 502, "{code}");
            assert_eq!(refused(502, code.as_str()), exit, "{code}");
        }
    }

    #[test]
    fn several_wrong_fields_are_told_once_each() {
        let wrong = |n: usize| CliError::Refused {
            status: 422,
            code: "invalid".into(),
            message: "/a: is bad".into(),
            violations: vec![("/a".into(), "is bad".into()); n],
        };
        assert_eq!(wrong(1).to_string(), "/a: is bad");
        assert_eq!(
            wrong(2).to_string(),
            "what was given is wrong:\n  /a: is bad\n  /a: is bad"
        );
    }
}

//! SSH by the host: it knows the target, verifies the server, holds the key and pools the connections.
//!
//! A component names a target by the pointer of its configuration field and never sees a key. This module
//! re-exports the host's [`Session`] and reads what a short command answered.

use crate::bindings::base::leasehold::provider::ssh as imports;
use crate::bindings::base::leasehold::provider::types::{Content, Error};
use crate::error::Result;

pub use imports::{CommandState, Output, Session, Workspace};

/// Opens a session to the target at this pointer of the configuration, within what is left of the call's time.
///
/// # Errors
/// By stage: `invalid-config` (a key that does not read), `unavailable` (not reached), `untrusted-peer`
/// (host key), `unauthenticated`; `permission-denied` for a target that is not configured.
pub fn open(target: &str) -> Result<Session> {
    Session::open(target, None, None)
}

impl Content {
    /// As text; what is not UTF-8 is replaced.
    pub fn to_text(&self) -> String {
        match self {
            Content::None => String::new(),
            Content::Text(text) => text.clone(),
            Content::Bytes(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        }
    }
}

impl Output {
    /// Its standard output, where it ended with status 0.
    ///
    /// # Errors
    /// `failed-precondition` with how it ended and the last line of its standard error.
    pub fn success(&self) -> Result<String> {
        let ended = match (self.status, &self.signal) {
            (Some(0), None) => return Ok(self.stdout.to_text()),
            (Some(status), _) => format!("the command ended with status {status}"),
            (None, Some(signal)) => format!("the command was ended by SIG{signal}"),
            (None, None) => "the connection was lost before the command ended".to_owned(),
        };
        let stderr = self.stderr.to_text();
        Err(Error::failed_precondition(
            match stderr.trim().lines().last() {
                Some(line) => format!("{ended}: {line}"),
                None => ended,
            },
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn output(status: Option<i32>, signal: Option<&str>, stderr: &str) -> Output {
        Output {
            stdout: Content::Text("out\n".into()),
            stderr: Content::Text(stderr.into()),
            status,
            signal: signal.map(str::to_owned),
            truncated: false,
        }
    }

    #[test]
    fn only_status_zero_is_success() {
        let told = |o: Output| o.success().map_err(|e| e.message);
        assert_eq!(told(output(Some(0), None, "noise")), Ok("out\n".into()));
        assert_eq!(
            told(output(Some(3), None, "a\nno such file\n")),
            Err("the command ended with status 3: no such file".into())
        );
        assert_eq!(
            told(output(None, Some("KILL"), "")),
            Err("the command was ended by SIGKILL".into())
        );
        assert!(told(output(None, None, "")).is_err());
    }
}

//! How a command ended, as WebSocket backends say it: in a status message, or in the reason of the close frame. Pure.

use leasehold_contract::Ended;
use serde_json::Value;

/// From the status message of `channels`: Kubernetes' `Status`, whose failure names the exit code among its causes.
/// None where it does not tell.
pub(super) fn of_status(message: &[u8]) -> Option<Ended> {
    let status: Value = serde_json::from_slice(message).ok()?;
    if status["status"] == "Success" {
        return Some(Ended::Exited(0));
    }
    let cause = status["details"]["causes"]
        .as_array()?
        .iter()
        .find(|cause| cause["reason"] == "ExitCode")?;
    code(&cause["message"])
}

/// From the value at `pointer` of a close frame's reason, which is JSON. None where it does not tell.
pub(super) fn of_reason(reason: &str, pointer: &str) -> Option<Ended> {
    let reason: Value = serde_json::from_str(reason).ok()?;
    code(reason.pointer(pointer)?)
}

/// An exit status, as a number or in digits.
fn code(value: &Value) -> Option<Ended> {
    let code = match value {
        Value::Number(number) => number.as_i64()?,
        Value::String(text) => text.parse().ok()?,
        _ => return None,
    };
    (0..=255)
        .contains(&code)
        .then_some(Ended::Exited(code as i32))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_message_tells_success_and_exit_code_and_nothing_else() {
        let of = |text: &str| of_status(text.as_bytes());
        assert_eq!(of(r#"{"status":"Success"}"#), Some(Ended::Exited(0)));
        let failed = r#"{"status":"Failure","reason":"NonZeroExitCode",
            "details":{"causes":[{"reason":"Other","message":"9"},{"reason":"ExitCode","message":"3"}]}}"#;
        assert_eq!(of(failed), Some(Ended::Exited(3)));
        assert_eq!(of(r#"{"status":"Failure","message":"no container"}"#), None);
        assert_eq!(of("{"), None);
        assert_eq!(of("[]"), None);
    }

    #[test]
    fn a_close_reason_tells_the_code_at_its_pointer() {
        assert_eq!(
            of_reason(r#"{"exitCode":7}"#, "/exitCode"),
            Some(Ended::Exited(7))
        );
        assert_eq!(
            of_reason(r#"{"a":{"b":"0"}}"#, "/a/b"),
            Some(Ended::Exited(0))
        );
        assert_eq!(of_reason(r#"{"exitCode":256}"#, "/exitCode"), None);
        assert_eq!(of_reason(r#"{"exitCode":-1}"#, "/exitCode"), None);
        assert_eq!(of_reason("bye", "/exitCode"), None);
        assert_eq!(of_reason("", ""), None);
    }
}

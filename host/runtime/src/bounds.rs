//! The sizes and shapes of the contract, for what goes to a component and for what comes back.
//!
//! An argument that breaks them is the host's mistake and no call is made; an answer that breaks them
//! is the provider's, told with the field's name. Text for people is cleaned, not refused.

use leasehold_contract::{
    Acquired, Code, Command, CommandState, Error, FieldViolation, Finding, Observation, Page,
    Resumed,
};

use crate::failure::Failure;
use crate::setup::Redactor;
use crate::text::{self, clean};

const JSON: usize = 1 << 20;
const HANDLE: usize = 16 << 10;
const RESOURCE: usize = 128;
const PATH: usize = 4 << 10;
const CURSOR: usize = 4 << 10;
const NAME: usize = 512;
const VIOLATION: usize = 1 << 10;
const VIOLATIONS: usize = 64;
const FINDINGS: usize = 64;
const STEP: usize = 64;
const ITEMS: usize = 1000;
const LABELS: usize = 64;
const LABEL_KEY: usize = 256;
const COMMAND: usize = 2 << 20;

fn argument(field: &'static str, message: impl Into<String>) -> Failure {
    Failure::Argument {
        field,
        message: message.into(),
    }
}

fn answer(field: &'static str, message: impl Into<String>) -> Failure {
    Failure::Answer {
        field,
        message: message.into(),
    }
}

fn too_long(length: usize, limit: usize) -> Option<String> {
    (length > limit).then(|| format!("has {length} bytes; at most {limit} are taken"))
}

fn passed(field: &'static str, text: &str, limit: usize) -> Result<String, Failure> {
    match too_long(text.len(), limit) {
        Some(message) => Err(argument(field, message)),
        None => Ok(text.to_owned()),
    }
}

fn is_json(text: &str) -> bool {
    serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok()
}

/// A configuration that is passed; that it is JSON is known from where it comes.
pub(crate) fn config(config: &str) -> Result<String, Failure> {
    passed("config", config, JSON)
}

/// A handle that is passed.
pub(crate) fn handle(handle: &str) -> Result<String, Failure> {
    passed("handle", handle, HANDLE)
}

/// A reference that is passed.
pub(crate) fn passed_reference(reference: &str) -> Result<String, Failure> {
    passed("reference", reference, HANDLE)
}

/// A path that is passed.
pub(crate) fn path(path: &str) -> Result<String, Failure> {
    if path.contains('\0') {
        return Err(argument("path", "has a NUL byte; no path has one"));
    }
    passed("path", path, PATH)
}

/// A command that is passed.
pub(crate) fn command(command: &Command) -> Result<(), Failure> {
    let id_ok = (1..=40).contains(&command.id.len())
        && command
            .id
            .bytes()
            .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-');
    if !id_ok {
        return Err(argument(
            "command.id",
            format!("is {:?}; it is 1 to 40 of `a-z0-9-`", command.id),
        ));
    }
    if command.argv.is_empty() {
        return Err(argument(
            "command.argv",
            "is empty; its first item is the program",
        ));
    }
    let size = command.argv.iter().map(String::len).sum::<usize>()
        + command
            .env
            .iter()
            .map(|(name, value)| name.len() + value.len())
            .sum::<usize>();
    if let Some(message) = too_long(size, COMMAND) {
        return Err(argument("command.argv and command.env", message));
    }
    Ok(())
}

fn is_signal(signal: &str) -> bool {
    (1..=16).contains(&signal.len())
        && signal
            .bytes()
            .all(|b| b.is_ascii_uppercase() || b.is_ascii_digit())
}

/// A signal that is passed.
pub(crate) fn signal(signal: &str) -> Result<String, Failure> {
    if is_signal(signal) {
        Ok(signal.to_owned())
    } else {
        Err(argument(
            "signal",
            format!("is {signal:?}; it is a POSIX name without SIG, as `TERM`"),
        ))
    }
}

/// Any JSON that was answered.
pub(crate) fn answered_json(field: &'static str, text: String) -> Result<String, Failure> {
    if let Some(message) = too_long(text.len(), JSON) {
        return Err(answer(field, message));
    }
    if !is_json(&text) {
        return Err(answer(field, "is not JSON"));
    }
    Ok(text)
}

/// A handle that was answered.
pub(crate) fn answered_handle(field: &'static str, text: String) -> Result<String, Failure> {
    reference(field, text)
}

/// A reference that was answered: like a handle.
pub(crate) fn reference(field: &'static str, text: String) -> Result<String, Failure> {
    if let Some(message) = too_long(text.len(), HANDLE) {
        return Err(answer(field, message));
    }
    answered_json(field, text)
}

fn is_resource(id: &str) -> bool {
    (1..=RESOURCE).contains(&id.len())
        && id
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-'))
}

fn resource(field: &'static str, id: &str) -> Result<(), Failure> {
    if is_resource(id) {
        return Ok(());
    }
    let shape = if id.len() > RESOURCE {
        format!("has {} bytes", id.len())
    } else {
        format!("is {id:?}")
    };
    Err(answer(
        field,
        format!("{shape}; it is 1 to {RESOURCE} of `A-Za-z0-9._-`"),
    ))
}

/// What a component wants to be journalled.
pub(crate) fn journalled(resource: &str, reference: Option<&str>) -> Result<(), Error> {
    let wrong = |message: String| Err(Error::new(Code::FailedPrecondition, message));
    if !is_resource(resource) {
        return wrong(format!(
            "journal: the resource is 1 to {RESOURCE} of `A-Za-z0-9._-`"
        ));
    }
    if let Some(reference) = reference {
        if let Some(message) = too_long(reference.len(), HANDLE) {
            return wrong(format!("journal: the reference {message}"));
        }
        if !is_json(reference) {
            return wrong("journal: the reference is not JSON".to_owned());
        }
    }
    Ok(())
}

/// The findings of a probe.
pub(crate) fn findings(
    mut findings: Vec<Finding>,
    redactor: &Redactor,
) -> Result<Vec<Finding>, Failure> {
    if findings.len() > FINDINGS {
        return Err(answer(
            "probe",
            format!(
                "has {} findings; at most {FINDINGS} are taken",
                findings.len()
            ),
        ));
    }
    for finding in &mut findings {
        let step = finding.step.as_bytes();
        let kebab = (1..=STEP).contains(&step.len())
            && step[0].is_ascii_lowercase()
            && step
                .iter()
                .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || *b == b'-');
        if !kebab {
            return Err(answer(
                "probe.step",
                format!(
                    "is {:?}; it is kebab-case, at most {STEP} bytes",
                    clean(&finding.step, STEP, redactor)
                ),
            ));
        }
        finding.message = clean(&finding.message, text::MESSAGE, redactor);
    }
    Ok(findings)
}

/// What `acquire` answered.
pub(crate) fn acquired(acquired: Acquired) -> Result<Acquired, Failure> {
    resource("acquire.resource", &acquired.resource)?;
    let handle = answered_handle("acquire.handle", acquired.handle)?;
    let workspace = acquired.workspace;
    if let Some(message) = too_long(workspace.len(), PATH) {
        return Err(answer("acquire.workspace", message));
    }
    if workspace.chars().any(char::is_control) {
        return Err(answer("acquire.workspace", "has a control character"));
    }
    Ok(Acquired {
        resource: acquired.resource,
        handle,
        workspace,
        ttl: acquired.ttl,
    })
}

/// What `inspect` answered.
pub(crate) fn observation(mut observation: Observation, redactor: &Redactor) -> Observation {
    observation.image = observation.image.map(|text| clean(&text, NAME, redactor));
    observation.message = observation
        .message
        .map(|text| clean(&text, text::MESSAGE, redactor));
    observation
}

/// A page of `list`.
pub(crate) fn page(page: Page) -> Result<Page, Failure> {
    if page.items.len() > ITEMS {
        return Err(answer(
            "list.items",
            format!("has {}; at most {ITEMS} are taken", page.items.len()),
        ));
    }
    if let Some(message) = page.next.as_ref().and_then(|n| too_long(n.len(), CURSOR)) {
        return Err(answer("list.next", message));
    }
    for item in &page.items {
        resource("list.items.resource", &item.resource)?;
        if let Some(message) = too_long(item.handle.len(), HANDLE) {
            return Err(answer("list.items.handle", message));
        }
        if !is_json(&item.handle) {
            return Err(answer("list.items.handle", "is not JSON"));
        }
        if item.labels.len() > LABELS {
            return Err(answer(
                "list.items.labels",
                format!("has {}; at most {LABELS} are taken", item.labels.len()),
            ));
        }
        let longest = item
            .labels
            .iter()
            .map(|label| label.key.len().max(label.value.len()))
            .max();
        if let Some(message) = longest.and_then(|l| too_long(l, LABEL_KEY)) {
            return Err(answer("list.items.labels", message));
        }
    }
    Ok(page)
}

/// What `state-of` answered.
pub(crate) fn state(state: CommandState, redactor: &Redactor) -> Result<CommandState, Failure> {
    match state {
        CommandState::Exited(status) if !(0..=255).contains(&status) => Err(answer(
            "state-of.exited",
            format!("is {status}; an exit status is 0 to 255"),
        )),
        CommandState::Signalled(signal) if !is_signal(&signal) => Err(answer(
            "state-of.signalled",
            format!(
                "is {:?}; it is a POSIX name without SIG, as `TERM`",
                clean(&signal, STEP, redactor)
            ),
        )),
        CommandState::NotStarted(reason) => Ok(CommandState::NotStarted(clean(
            &reason,
            text::MESSAGE,
            redactor,
        ))),
        state => Ok(state),
    }
}

/// What `resume` answered.
pub(crate) fn resumed(resumed: Resumed) -> Result<Resumed, Failure> {
    match resumed {
        Resumed::Same(handle) => Ok(Resumed::Same(answered_handle("resume.same", handle)?)),
        Resumed::Lost => Ok(Resumed::Lost),
    }
}

/// An error that a component answered, made fit to show.
pub(crate) fn error(error: Error, redactor: &Redactor) -> Error {
    Error {
        code: error.code,
        message: clean(&error.message, text::MESSAGE, redactor),
        retry_after: error.retry_after,
        violations: error.violations.map(|violations| {
            violations
                .into_iter()
                .take(VIOLATIONS)
                .map(|v| FieldViolation {
                    pointer: clean(&v.pointer, NAME, redactor),
                    message: clean(&v.message, VIOLATION, redactor),
                })
                .collect()
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn acquired_with(resource: &str, handle: &str) -> Result<Acquired, Failure> {
        acquired(Acquired {
            resource: resource.to_owned(),
            handle: handle.to_owned(),
            workspace: "/w".to_owned(),
            ttl: None,
        })
    }

    #[test]
    fn a_handle_is_taken_up_to_sixteen_kibibytes_of_json() {
        let most = format!("\"{}\"", "x".repeat(HANDLE - 2));
        assert!(acquired_with("a", &most).is_ok());
        let more = format!("\"{}\"", "x".repeat(HANDLE - 1));
        assert!(matches!(
            acquired_with("a", &more),
            Err(Failure::Answer {
                field: "acquire.handle",
                ..
            })
        ));
        assert!(matches!(
            acquired_with("a", "{"),
            Err(Failure::Answer {
                field: "acquire.handle",
                ..
            })
        ));
    }

    #[test]
    fn a_resource_is_an_identifier_and_nothing_else() {
        assert!(acquired_with("aB3._-", "{}").is_ok());
        for wrong in ["", "a/b", "a b", "ä", "../x", &"x".repeat(129)] {
            assert!(
                matches!(
                    acquired_with(wrong, "{}"),
                    Err(Failure::Answer {
                        field: "acquire.resource",
                        ..
                    })
                ),
                "{wrong:?}"
            );
        }
    }
}

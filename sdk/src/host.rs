//! What a provider may tell the host while it works, and the only clock that it has.

use serde::Serialize;

use crate::bindings::base::leasehold::provider::host as imports;
use crate::error::Result;

pub use imports::{Level, Thing};

/// Writes a line to the host's log, with further fields. The host bounds and redacts it.
pub fn log(level: Level, message: &str, fields: &[(&str, &str)]) {
    let fields: Vec<(String, String)> = fields
        .iter()
        .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
        .collect();
    imports::log(level, message, &fields);
}

/// Tells people who wait what is being done. `step` is stable and `kebab-case`.
pub fn progress(step: &str, message: &str) {
    imports::progress(step, message, None, None);
}

/// As [`progress`], with how much of it is done, in any unit.
pub fn progress_of(step: &str, message: &str, done: f64, total: Option<f64>) {
    imports::progress(step, message, Some(done), total);
}

/// Records the backend's own name of an environment that may exist from now on, durably, before this returns.
/// Call it before the request that makes it.
///
/// # Errors
/// `cancelled`: this epoch of the lease is over; create nothing more.
pub fn journal_environment(resource: &str) -> Result<()> {
    imports::journal(Thing::Environment, resource, None)
}

/// Records a command that may run from now on, with what finds it again.
///
/// # Errors
/// `cancelled`, as [`journal_environment`]; `internal` where the reference cannot be written as JSON.
pub fn journal_command<R: Serialize>(id: &str, reference: &R) -> Result<()> {
    let reference = crate::call::write_own("reference", reference)?;
    imports::journal(Thing::Command, id, Some(&reference))
}

/// Records something else that may exist from now on.
///
/// # Errors
/// `cancelled`, as [`journal_environment`].
pub fn journal(thing: Thing, resource: &str, reference: Option<&str>) -> Result<()> {
    imports::journal(thing, resource, reference)
}

/// Waits so many milliseconds. Costs no CPU time.
///
/// # Errors
/// `cancelled`: the call should stop.
pub fn sleep(millis: u32) -> Result<()> {
    imports::sleep(millis)
}

/// What is left of the call's time, in milliseconds.
pub fn remaining() -> u32 {
    imports::remaining()
}

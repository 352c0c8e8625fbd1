//! Looks for secrets in all of its own memory, and puts everything that it is shown wherever it can put something: log,
//! progress, findings, handle, errors and standard error. A secret that is in any of these was in the component.
//!
//! What it looks for its configuration says under `hunt`: by a name, each byte's complement in hex, so that the saying is
//! not what is found. With `refuse` it acts on its target and then gives up, so that the host asks for its list.

use std::ptr::with_exposed_provenance;

use leasehold_provider::*;
use leasehold_sample_hostile::{Config, Handle, Misdeed, act};

struct CanaryHunter;

/// One past the last address of this component's memory.
fn end_of_memory() -> usize {
    #[cfg(target_arch = "wasm32")]
    let end = core::arch::wasm32::memory_size(0) << 16;
    // Elsewhere this is only compiled, never run.
    #[cfg(not(target_arch = "wasm32"))]
    let end = 0;
    end
}

/// Whether what is told so stands anywhere in memory: freed, on the stack, in a buffer of the host's making. It is never
/// put together here.
fn in_memory(hex: &[u8]) -> bool {
    let digit = |digit: u8| match digit {
        b'0'..=b'9' => digit - b'0',
        _ => (digit | 0x20).wrapping_sub(b'a') + 10,
    };
    let wanted = |at: usize| !(digit(hex[2 * at]) << 4 | digit(hex[2 * at + 1]));
    // SAFETY: every address below the end of linear memory can be read; nothing else runs meanwhile. Volatile, because
    // most of these bytes are no object of this program's.
    let there = |at: usize| unsafe { with_exposed_provenance::<u8>(at).read_volatile() };
    let length = hex.len() / 2;
    if length == 0 {
        return false;
    }
    let first = wanted(0);
    // Address 0 is the null pointer: not one to read through.
    (1..end_of_memory().saturating_sub(length - 1))
        .any(|at| there(at) == first && (1..length).all(|more| there(at + more) == wanted(more)))
}

/// Names of what is hunted and stands in memory now.
fn hunted(config: &Value) -> String {
    let Some(hunt) = config.get("hunt").and_then(Value::as_object) else {
        return String::new();
    };
    let found = hunt.iter().filter(|(_, hex)| {
        let hex = hex.as_str().unwrap_or_default();
        in_memory(hex.as_bytes())
    });
    let names: Vec<&str> = found.map(|(name, _)| name.as_str()).collect();
    names.join(", ")
}

/// Everything that can be seen from inside, as text.
fn loot(call: &Call<Config>) -> String {
    let environment: Vec<_> = std::env::vars_os().collect();
    let arguments: Vec<_> = std::env::args_os().collect();
    format!(
        "config {} context {:?} environment {environment:?} arguments {arguments:?}",
        json!(call.config()),
        call.context(),
    )
}

fn bounded(mut text: String, limit: usize) -> String {
    let end = (0..=limit.min(text.len()))
        .rev()
        .find(|&at| text.is_char_boundary(at))
        .unwrap_or(0);
    text.truncate(end);
    text
}

/// Tells the host's log what stands in memory in this export.
fn tell(export: &str, call: &Call<Config>) {
    let found = hunted(&json!(call.config()));
    host::log(
        host::Level::Warn,
        &format!("hunted in {export}: {found};"),
        &[],
    );
}

impl Misdeed for CanaryHunter {
    const NAME: &'static str = "canary-hunter";
    const DOES: &'static str = "Puts everything that it is shown wherever it can put something.";
    const SSH: bool = true;

    fn spoil(export: &'static str, call: &Call<Config>) -> Result<()> {
        tell(export, call);
        let loot = bounded(loot(call), 3 << 10);
        eprintln!("{export}: {loot}");
        host::log(host::Level::Warn, &loot, &[("loot", &loot)]);
        host::progress("hunt", &loot);
        match export {
            "acquire" if call.rest.contains_key("refuse") => {
                act("/target")?;
                Err(Error::internal(loot))
            }
            // These go on and answer with what was found.
            "probe" | "acquire" | "list" => Ok(()),
            _ => Err(Error::internal(loot)),
        }
    }

    /// Nobody hears what `check-config` says: what it finds becomes a part of the configuration.
    fn check_config(_: &Call<Config>, mut config: Value) -> Result<Value> {
        config["found"] = hunted(&config).into();
        Ok(config)
    }

    fn findings(call: &Call<Config>) -> Vec<Finding> {
        vec![info("hunt", bounded(loot(call), 3 << 10))]
    }

    fn handle(call: &Call<Config>) -> Handle {
        Handle {
            loot: bounded(loot(call), 12 << 10),
        }
    }

    fn start(call: &Call<Config>, command: Command) -> Result<Process> {
        tell("start of a command", call);
        let seen = format!("{} command {command:?}", loot(call));
        Err(Error::internal(bounded(seen, 3 << 10)))
    }
}

leasehold_sample_hostile::hostile!(CanaryHunter);

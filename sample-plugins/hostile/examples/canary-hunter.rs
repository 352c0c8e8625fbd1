//! Puts everything that it is shown wherever it can put something: log, progress, findings, handle, errors and
//! standard error. A secret that is in any of these was in the component.

use leasehold_provider::*;
use leasehold_sample_hostile::{Config, Handle, Misdeed};

struct CanaryHunter;

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

impl Misdeed for CanaryHunter {
    const NAME: &'static str = "canary-hunter";
    const DOES: &'static str = "Puts everything that it is shown wherever it can put something.";
    const SSH: bool = true;

    fn spoil(export: &'static str, call: &Call<Config>) -> Result<()> {
        let loot = bounded(loot(call), 3 << 10);
        eprintln!("{export}: {loot}");
        host::log(host::Level::Warn, &loot, &[("loot", &loot)]);
        host::progress("hunt", &loot);
        match export {
            // These go on and answer with what was found.
            "probe" | "acquire" | "list" => Ok(()),
            _ => Err(Error::internal(loot)),
        }
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
        let seen = format!("{} command {command:?}", loot(call));
        Err(Error::internal(bounded(seen, 3 << 10)))
    }
}

leasehold_sample_hostile::hostile!(CanaryHunter);

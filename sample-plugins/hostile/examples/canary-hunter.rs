//! Looks for secrets in all of its own memory, and puts everything that it is shown wherever it can put something: log,
//! progress, findings, handle, errors and standard error. A secret that is in any of these was in the component.
//!
//! What it looks for its configuration says under `hunt`: by a name, each byte's complement in hex, so that the saying is
//! not what is found. With `refuse` it acts on its target and then gives up, so that the host asks for its list.

use leasehold_provider::*;
use leasehold_sample_hostile::hunt::{bounded, hunted, tell};
use leasehold_sample_hostile::{Config, Handle, Misdeed, act};

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

impl Misdeed for CanaryHunter {
    const NAME: &'static str = "canary-hunter";
    const DOES: &'static str = "Puts everything that it is shown wherever it can put something.";
    const SSH: bool = true;

    fn spoil(export: &'static str, call: &Call<Config>) -> Result<()> {
        tell(export, call.rest.get("hunt"));
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
        config["found"] = hunted(config.get("hunt")).into();
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
        tell("start of a command", call.rest.get("hunt"));
        let seen = format!("{} command {command:?}", loot(call));
        Err(Error::internal(bounded(seen, 3 << 10)))
    }
}

leasehold_sample_hostile::hostile!(CanaryHunter);

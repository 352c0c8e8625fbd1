//! What the hostile samples share: a provider that behaves well but for one misdeed.
//!
//! Each example is a component of its own, `hostile-<example>`, and misbehaves in the exports that its
//! configuration names, apart by a space: `{"at": "start state-of"}`. Where nothing is named it misbehaves in every
//! export but `describe` and `check-config`. What it does not spoil answers like the null provider's.

//!
//! Those that want a key, or what is somebody else's, are of [`thief`]: they lease rooms over HTTP like the cabin provider.

pub mod hunt;
pub mod thief;

use std::marker::PhantomData;

use leasehold_provider::*;
use serde::{Deserialize, Serialize};

/// One way to misbehave.
pub trait Misdeed: Sized {
    /// The example's name, which makes the provider's key: `hostile-<name>`.
    const NAME: &'static str;
    /// What it does, in a sentence.
    const DOES: &'static str;
    /// Whether it asks to use SSH targets.
    const SSH: bool = false;

    /// Called in `describe`, which knows no configuration, before it answers.
    fn describing() {}

    /// Called in the export that is to be spoilt, before it does its work; what this returns as an error the
    /// export returns.
    ///
    /// # Errors
    /// As the misdeed wants.
    fn spoil(export: &'static str, call: &Call<Config>) -> Result<()> {
        let _ = (export, call);
        Ok(())
    }

    /// What `check-config` answers in place of the configuration.
    ///
    /// # Errors
    /// As the misdeed wants.
    fn check_config(call: &Call<Config>, config: Value) -> Result<Value> {
        if call.at.is_some() {
            spoil::<Self>("check-config", call)?;
        }
        Ok(config)
    }

    /// What `probe` finds.
    fn findings(call: &Call<Config>) -> Vec<Finding> {
        let _ = call;
        vec![info("reach", "there is nothing to reach")]
    }

    /// The handle that `acquire` answers.
    fn handle(call: &Call<Config>) -> Handle {
        let _ = call;
        Handle::default()
    }

    /// What `execution.start` does.
    ///
    /// # Errors
    /// By default `unsupported`.
    fn start(call: &Call<Config>, command: Command) -> Result<Process> {
        let _ = (call, command);
        Err(Error::unsupported("there is nothing to run a command in"))
    }
}

/// The configuration of every hostile sample.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Config {
    /// The exports to spoil, as the contract spells them (`keep-alive`, `start`), apart by a space; none: every one.
    #[serde(default)]
    pub at: Option<String>,
    /// Whatever else stands there, such as `target`.
    #[serde(flatten)]
    pub rest: std::collections::BTreeMap<String, Value>,
}

/// The handle of every hostile sample.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Handle {
    /// What the misdeed put there.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub loot: String,
}

/// The provider that commits the misdeed `M`.
pub struct Hostile<M>(PhantomData<M>);

/// Does something on a target that changes nothing there: from now on the host knows that something may exist.
///
/// # Errors
/// As the target has them.
pub fn act(target: &str) -> Result<()> {
    let output = ssh::open(target)?.run("true", &[], &[], &Content::None, 0, None)?;
    output.success().map(drop)
}

fn spoil<M: Misdeed>(export: &'static str, call: &Call<Config>) -> Result<()> {
    match call.at.as_deref() {
        Some(at) if !at.split(' ').any(|named| named == export) => Ok(()),
        _ => M::spoil(export, call),
    }
}

impl<M: Misdeed> Provider for Hostile<M> {
    type Config = Config;
    type Handle = Handle;

    fn describe() -> Manifest {
        M::describing();
        let manifest = manifest(&format!("hostile-{}", M::NAME), env!("CARGO_PKG_VERSION"))
            .title(M::NAME)
            .summary(M::DOES)
            .schema(json!({
                "type": "object",
                "properties": {
                    "at": { "type": "string", "title": "Exports to spoil" },
                    "target": { "type": "object", "format": "ssh-target" },
                    "token": { "type": "string", "format": "secret" }
                }
            }))
            .features(Features::STDIN);
        match M::SSH {
            true => manifest.driver(Driver::Ssh).ssh().build(),
            false => manifest.build(),
        }
    }

    fn check_config(call: Call<Config>, config: Value) -> Result<Value> {
        M::check_config(&call, config)
    }

    fn probe(call: Call<Config>) -> Result<Vec<Finding>> {
        spoil::<M>("probe", &call)?;
        Ok(M::findings(&call))
    }

    fn acquire(call: Call<Config>, _ttl: Option<u32>) -> Result<Acquired<Handle>> {
        spoil::<M>("acquire", &call)?;
        Ok(acquired(call.acquisition()?, M::handle(&call), "/"))
    }

    fn keep_alive(call: Call<Config>, _: Handle, _ttl: Option<u32>) -> Result<KeptAlive> {
        spoil::<M>("keep-alive", &call)?;
        Ok(KeptAlive {
            next: None,
            ttl: None,
        })
    }

    fn inspect(call: Call<Config>, _: Handle) -> Result<Observation> {
        spoil::<M>("inspect", &call)?;
        Ok(observation(Condition::Ready))
    }

    fn release(call: Call<Config>, _: Handle) -> Result<()> {
        spoil::<M>("release", &call)
    }

    fn list(call: Call<Config>, _: Query) -> Result<Page<Handle>> {
        spoil::<M>("list", &call)?;
        Ok(Page::from_iter([]))
    }
}

impl<M: Misdeed> Execution for Hostile<M> {
    type Reference = Value;

    fn start(call: Call<Config>, _: Handle, command: Command) -> Result<Started<Value>> {
        spoil::<M>("start", &call)?;
        Ok(started(M::start(&call, command)?, json!({})))
    }

    fn attach(call: Call<Config>, _: Handle, _: Value, _: u64, _: u64) -> Result<Process> {
        spoil::<M>("attach", &call)?;
        Err(Error::unsupported("there is no stream"))
    }

    fn state_of(call: Call<Config>, _: Handle, _: String, _: Option<Value>) -> Result<State> {
        spoil::<M>("state-of", &call)?;
        Ok(State::Unknown)
    }

    fn signal(call: Call<Config>, _: Handle, _: Value, _: String) -> Result<()> {
        spoil::<M>("signal", &call)
    }

    fn resize(call: Call<Config>, _: Handle, _: Value, _: Size) -> Result<()> {
        spoil::<M>("resize", &call)
    }
}

impl<M: Misdeed> Files for Hostile<M> {
    fn put(call: Call<Config>, _: Handle, _: String, _: Bytes) -> Result<()> {
        spoil::<M>("put", &call)
    }

    fn get(call: Call<Config>, _: Handle, _: String) -> Result<Bytes> {
        spoil::<M>("get", &call)?;
        Err(Error::not_found("there are no files"))
    }
}

impl<M: Misdeed> Suspension for Hostile<M> {
    fn suspend(call: Call<Config>, handle: Handle) -> Result<Handle> {
        spoil::<M>("suspend", &call)?;
        Ok(handle)
    }

    fn resume(call: Call<Config>, handle: Handle) -> Result<Resumed<Handle>> {
        spoil::<M>("resume", &call)?;
        Ok(Resumed::Same(handle))
    }
}

/// Exports the provider that commits a misdeed, with every interface that there is.
#[macro_export]
macro_rules! hostile {
    ($misdeed:ident) => {
        type Plugin = $crate::Hostile<$misdeed>;
        leasehold_provider::provider!(Plugin: execution, files, suspension);
    };
}

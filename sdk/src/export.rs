//! From the traits to the component: what the contract exports is implemented here once, for every provider.
//!
//! Nothing here decides anything; it parses what comes in and writes what goes out.

use serde_json::Value;

use crate::answer;
use crate::bindings::base::exports::leasehold::provider::lifecycle::{
    self, Finding, KeptAlive, Manifest, Observation, Query,
};
use crate::bindings::base::leasehold::provider::http::Bytes;
use crate::bindings::base::leasehold::provider::streams::{Process, Size};
use crate::bindings::base::leasehold::provider::types::{Context, Error};
use crate::bindings::execution::exports::leasehold::provider::execution;
use crate::bindings::files::exports::leasehold::provider::files;
use crate::bindings::suspension::exports::leasehold::provider::suspension;
use crate::call::{Call, read_own, write_own};
use crate::error::{Result, violation};
use crate::provider::{Execution, Files, Provider, Suspension};

/// Exports a type that implements [`Provider`] as this crate's component, and of the optional interfaces
/// those that are named: `provider!(Boxes)`, `provider!(Boxes: execution, files, suspension)`.
///
/// Once in a crate of `crate-type = ["cdylib"]`, at its root.
#[macro_export]
macro_rules! provider {
    ($provider:ident) => {
        $crate::bindings::base::export!($provider with_types_in $crate::bindings::base);
    };
    ($provider:ident : $($interface:ident),+ $(,)?) => {
        $crate::provider!($provider);
        $($crate::bindings::$interface::export!($provider with_types_in $crate::bindings::$interface);)+
    };
}

impl<T: Provider> lifecycle::Guest for T {
    fn describe() -> Manifest {
        T::describe()
    }

    fn check_config(ctx: Context, config: String) -> Result<String> {
        let value: Value = serde_json::from_str(&config)
            .map_err(|e| Error::invalid_config(vec![violation("", e.to_string())]))?;
        let checked = T::check_config(Call::read(ctx, &config)?, value)?;
        Ok(checked.to_string())
    }

    fn probe(ctx: Context, config: String) -> Result<Vec<Finding>> {
        T::probe(Call::read(ctx, &config)?)
    }

    fn acquire(ctx: Context, config: String, ttl: Option<u32>) -> Result<lifecycle::Acquired> {
        T::acquire(Call::read(ctx, &config)?, ttl)?.lower()
    }

    fn keep_alive(
        ctx: Context,
        config: String,
        handle: String,
        ttl: Option<u32>,
    ) -> Result<KeptAlive> {
        T::keep_alive(Call::read(ctx, &config)?, read_own("handle", &handle)?, ttl)
    }

    fn inspect(ctx: Context, config: String, handle: String) -> Result<Observation> {
        T::inspect(Call::read(ctx, &config)?, read_own("handle", &handle)?)
    }

    fn release(ctx: Context, config: String, handle: String) -> Result<()> {
        T::release(Call::read(ctx, &config)?, read_own("handle", &handle)?)
    }

    fn list(ctx: Context, config: String, query: Query) -> Result<lifecycle::Page> {
        T::list(Call::read(ctx, &config)?, query)?.lower()
    }
}

impl<T: Execution> execution::Guest for T {
    fn start(
        ctx: Context,
        config: String,
        handle: String,
        command: execution::Command,
    ) -> Result<execution::Started> {
        let started = T::start(
            Call::read(ctx, &config)?,
            read_own("handle", &handle)?,
            command,
        )?;
        Ok(execution::Started {
            reference: write_own("reference", &started.reference)?,
            process: started.process,
        })
    }

    fn attach(
        ctx: Context,
        config: String,
        handle: String,
        reference: String,
        stdout: String,
        stderr: String,
    ) -> Result<Process> {
        let offset = |name: &str, text: &str| {
            text.parse::<u64>()
                .map_err(|_| Error::internal(format!("{name} is no decimal offset: {text:?}")))
        };
        T::attach(
            Call::read(ctx, &config)?,
            read_own("handle", &handle)?,
            read_own("reference", &reference)?,
            offset("stdout", &stdout)?,
            offset("stderr", &stderr)?,
        )
    }

    fn state_of(
        ctx: Context,
        config: String,
        handle: String,
        id: String,
        reference: Option<String>,
    ) -> Result<execution::State> {
        let reference = reference
            .map(|reference| read_own("reference", &reference))
            .transpose()?;
        T::state_of(
            Call::read(ctx, &config)?,
            read_own("handle", &handle)?,
            id,
            reference,
        )
    }

    fn signal(
        ctx: Context,
        config: String,
        handle: String,
        reference: String,
        signal: String,
    ) -> Result<()> {
        T::signal(
            Call::read(ctx, &config)?,
            read_own("handle", &handle)?,
            read_own("reference", &reference)?,
            signal,
        )
    }

    fn resize(
        ctx: Context,
        config: String,
        handle: String,
        reference: String,
        size: Size,
    ) -> Result<()> {
        T::resize(
            Call::read(ctx, &config)?,
            read_own("handle", &handle)?,
            read_own("reference", &reference)?,
            size,
        )
    }
}

impl<T: Files> files::Guest for T {
    fn put(
        ctx: Context,
        config: String,
        handle: String,
        path: String,
        archive: Bytes,
    ) -> Result<()> {
        T::put(
            Call::read(ctx, &config)?,
            read_own("handle", &handle)?,
            path,
            archive,
        )
    }

    fn get(ctx: Context, config: String, handle: String, path: String) -> Result<Bytes> {
        T::get(
            Call::read(ctx, &config)?,
            read_own("handle", &handle)?,
            path,
        )
    }
}

impl<T: Suspension> suspension::Guest for T {
    fn suspend(ctx: Context, config: String, handle: String) -> Result<String> {
        let handle = T::suspend(Call::read(ctx, &config)?, read_own("handle", &handle)?)?;
        write_own("handle", &handle)
    }

    fn resume(ctx: Context, config: String, handle: String) -> Result<suspension::Resumed> {
        Ok(
            match T::resume(Call::read(ctx, &config)?, read_own("handle", &handle)?)? {
                answer::Resumed::Same(handle) => {
                    suspension::Resumed::Same(write_own("handle", &handle)?)
                }
                answer::Resumed::Lost => suspension::Resumed::Lost,
            },
        )
    }
}

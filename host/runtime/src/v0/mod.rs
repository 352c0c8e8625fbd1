//! Major version 0 of the contract: its bindings, and the imports behind them.
//!
//! Everything of `wit/` that the rest of the crate touches passes through here, so that
//! another major version is another module beside this one.

mod answers;
mod arguments;
mod described;
mod host;
mod http;
mod ssh;
mod streams;

use semver::Version;
use wasmtime::component::{HasSelf, InstancePre, Linker};

use crate::audit::Capabilities;
use crate::state::State;

/// The package, as imports and exports name it.
pub(crate) const PACKAGE: &str = "leasehold:provider";
/// The version that this host has.
pub(crate) const VERSION: &str = "0.1.0";
/// The interfaces that a component may import.
pub(crate) const IMPORTS: &[&str] = &["types", "host", "http", "ssh", "streams"];

/// Whether a component built against this version fits: minor versions only add.
pub(crate) fn serves(version: &Version) -> bool {
    version.major == 0 && version.minor == 1
}

#[allow(
    clippy::panic,
    clippy::expect_used,
    clippy::unwrap_used,
    reason = "generated; the contract documents it"
)]
mod bindings {
    wasmtime::component::bindgen!({
        path: "../../wit",
        world: "provider-all",
        imports: { default: async | trappable },
        exports: { default: async },
        with: {
            "leasehold:provider/streams.process": crate::state::ProcessEntry,
            "leasehold:provider/streams.duplex": crate::state::DuplexEntry,
            "leasehold:provider/http.bytes": crate::state::BytesEntry,
            "leasehold:provider/http.lines": crate::state::LinesEntry,
            "leasehold:provider/ssh.session": crate::state::SessionEntry,
        },
    });
}

use bindings::exports::leasehold::provider as exported;
use bindings::leasehold::provider as imported;

pub(crate) use answers::{
    acquired, error, findings, kept_alive, observation, page, resumed, state,
};
pub(crate) use arguments::{command, context, query, size};
pub(crate) use described::manifest;
pub(crate) use exported::execution::GuestIndices as ExecutionIndices;
pub(crate) use exported::files::GuestIndices as FilesIndices;
pub(crate) use exported::lifecycle::GuestIndices as LifecycleIndices;
pub(crate) use exported::suspension::GuestIndices as SuspensionIndices;
pub(crate) use imported::types::{Context, Error};

/// Where a component's exports stand. What it does not export is not here.
pub(crate) struct Exports {
    pub(crate) lifecycle: LifecycleIndices,
    pub(crate) execution: Option<ExecutionIndices>,
    pub(crate) files: Option<FilesIndices>,
    pub(crate) suspension: Option<SuspensionIndices>,
}

impl Exports {
    /// Looks up what `capabilities` says is there.
    pub(crate) fn find(
        pre: &InstancePre<State>,
        capabilities: Capabilities,
    ) -> wasmtime::Result<Exports> {
        Ok(Exports {
            lifecycle: LifecycleIndices::new(pre)?,
            execution: match capabilities.execution {
                true => Some(ExecutionIndices::new(pre)?),
                false => None,
            },
            files: match capabilities.files {
                true => Some(FilesIndices::new(pre)?),
                false => None,
            },
            suspension: match capabilities.suspension {
                true => Some(SuspensionIndices::new(pre)?),
                false => None,
            },
        })
    }

    /// Checks the types of every function against an instance, as each call does for those that it needs.
    pub(crate) fn check(
        &self,
        store: &mut wasmtime::Store<State>,
        instance: &wasmtime::component::Instance,
    ) -> wasmtime::Result<()> {
        self.lifecycle.load(&mut *store, instance)?;
        if let Some(execution) = &self.execution {
            execution.load(&mut *store, instance)?;
        }
        if let Some(files) = &self.files {
            files.load(&mut *store, instance)?;
        }
        if let Some(suspension) = &self.suspension {
            suspension.load(&mut *store, instance)?;
        }
        Ok(())
    }
}

/// Defines all that a component may import: ours, and the inert WASI set.
pub(crate) fn add_to_linker(linker: &mut Linker<State>) -> wasmtime::Result<()> {
    wasmtime_wasi::p2::add_to_linker_async(linker)?;
    imported::types::add_to_linker::<State, HasSelf<State>>(linker, |state| state)?;
    imported::host::add_to_linker::<State, HasSelf<State>>(linker, |state| state)?;
    imported::http::add_to_linker::<State, HasSelf<State>>(linker, |state| state)?;
    imported::streams::add_to_linker::<State, HasSelf<State>>(linker, |state| state)?;
    imported::ssh::add_to_linker::<State, HasSelf<State>>(linker, |state| state)
}

impl imported::types::Host for State {}

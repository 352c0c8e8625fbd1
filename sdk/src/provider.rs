//! What a provider implements: [`Provider`], and a trait for each thing that it can do beyond.
//!
//! Every function may be called again with the same arguments, and then answers the same. None of them
//! writes anything of the host's: a provider acts, the host decides and records.

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::answer::{Acquired, Page, Resumed, Started};
use crate::bindings::base::exports::leasehold::provider::lifecycle::{
    Finding, KeptAlive, Manifest, Observation, Query,
};
use crate::bindings::base::leasehold::provider::http::Bytes;
use crate::bindings::base::leasehold::provider::streams::{Process, Size};
use crate::bindings::base::leasehold::provider::types::Error;
use crate::bindings::execution::exports::leasehold::provider::execution::{Command, State};
use crate::call::Call;
use crate::error::Result;

/// The life of an environment.
pub trait Provider {
    /// The configuration, as the manifest's schema promises it.
    type Config: DeserializeOwned;
    /// What the provider wants to be told again about one realised environment: at most 16 KiB of JSON, without
    /// a secret.
    type Handle: Serialize + DeserializeOwned;

    /// What the provider is and asks for; see [`manifest`](crate::manifest()). Called once, at install, with
    /// everything refused.
    fn describe() -> Manifest;

    /// Checks what the schema cannot, and normalises; `config` is the configuration as JSON, to be given back.
    /// Fields of format `secret`, `endpoint` and `ssh-target` must come back as they are. Nothing can be reached
    /// from here.
    ///
    /// # Errors
    /// [`Error::invalid_config`] with every violation at once.
    fn check_config(call: Call<Self::Config>, config: Value) -> Result<Value> {
        let _ = call;
        Ok(config)
    }

    /// Can the target be used? One finding a step; creates nothing and changes nothing.
    ///
    /// # Errors
    /// Only where no step could be tried: what a step found out is a [`Finding`].
    fn probe(call: Call<Self::Config>) -> Result<Vec<Finding>>;

    /// Makes the environment of the call's acquisition, or finds the one that an earlier try made. `ttl`: the
    /// seconds after which the lease will have ended, if known.
    ///
    /// # Errors
    /// [`Error::already_exists`] where the acquisition's name is taken by another request's;
    /// [`Error::outcome_unknown`] where it may have been made.
    fn acquire(call: Call<Self::Config>, ttl: Option<u32>) -> Result<Acquired<Self::Handle>>;

    /// Tells the backend that it is in use and moves its end. By default there is nothing to tell.
    ///
    /// # Errors
    /// Whatever the backend said.
    fn keep_alive(
        call: Call<Self::Config>,
        handle: Self::Handle,
        ttl: Option<u32>,
    ) -> Result<KeptAlive> {
        let _ = (call, handle, ttl);
        Ok(KeptAlive {
            next: None,
            ttl: None,
        })
    }

    /// What condition it is in. What does not exist is [`gone`](crate::gone), never an error.
    ///
    /// # Errors
    /// Whatever kept the answer from being known.
    fn inspect(call: Call<Self::Config>, handle: Self::Handle) -> Result<Observation>;

    /// Ends it; gone already is success.
    ///
    /// # Errors
    /// Whatever left it standing, or unknown.
    fn release(call: Call<Self::Config>, handle: Self::Handle) -> Result<()>;

    /// Everything that the query [wants](Query::wants) and that exists, in whatever condition.
    ///
    /// # Errors
    /// Whatever kept the list from being whole.
    fn list(call: Call<Self::Config>, query: Query) -> Result<Page<Self::Handle>>;
}

/// Running commands. Bytes do not pass through the component: it hands the host a [`Process`].
pub trait Execution: Provider {
    /// What finds a command again after its stream is lost.
    type Reference: Serialize + DeserializeOwned;

    /// Starts a command. Called once for an id; journal what [`Execution::state_of`] needs
    /// ([`host::journal_command`](crate::host::journal_command)) before the command can run.
    ///
    /// # Errors
    /// [`Error::outcome_unknown`] where it may have started.
    fn start(
        call: Call<Self::Config>,
        handle: Self::Handle,
        command: Command,
    ) -> Result<Started<Self::Reference>>;

    /// The stream again after it was lost, from the byte where the host had read each; only asked with
    /// feature `attach`.
    ///
    /// # Errors
    /// By default `unsupported`.
    fn attach(
        call: Call<Self::Config>,
        handle: Self::Handle,
        reference: Self::Reference,
        stdout: u64,
        stderr: u64,
    ) -> Result<Process> {
        let _ = (call, handle, reference, stdout, stderr);
        Err(Error::unsupported("a lost stream cannot be had again"))
    }

    /// What became of a command. `reference` is none where the answer of `start` was lost before anything was
    /// journalled.
    ///
    /// # Errors
    /// Whatever kept the answer from being known for now.
    fn state_of(
        call: Call<Self::Config>,
        handle: Self::Handle,
        id: String,
        reference: Option<Self::Reference>,
    ) -> Result<State>;

    /// Sends a signal (POSIX name without SIG) to a command.
    ///
    /// # Errors
    /// [`Error::not_found`] where nothing of it is left.
    fn signal(
        call: Call<Self::Config>,
        handle: Self::Handle,
        reference: Self::Reference,
        signal: String,
    ) -> Result<()>;

    /// Tells a terminal's size. Not asked where the host owns the channel (SSH).
    ///
    /// # Errors
    /// By default `unsupported`.
    fn resize(
        call: Call<Self::Config>,
        handle: Self::Handle,
        reference: Self::Reference,
        size: Size,
    ) -> Result<()> {
        let _ = (call, handle, reference, size);
        Err(Error::unsupported("the terminal's size cannot be changed"))
    }
}

/// Moving trees of files, as tar archives that the host moves.
pub trait Files: Provider {
    /// Unpacks `archive` below `path`, which exists.
    ///
    /// # Errors
    /// Whatever the backend said; [`Error::outcome_unknown`] where a part may be there.
    fn put(
        call: Call<Self::Config>,
        handle: Self::Handle,
        path: String,
        archive: Bytes,
    ) -> Result<()>;

    /// A tar of `path`.
    ///
    /// # Errors
    /// [`Error::not_found`] where there is no such path.
    fn get(call: Call<Self::Config>, handle: Self::Handle, path: String) -> Result<Bytes>;
}

/// Keeping an environment without running it.
pub trait Suspension: Provider {
    /// Stops it and keeps it; answers the handle that resumes it.
    ///
    /// # Errors
    /// Whatever the backend said.
    fn suspend(call: Call<Self::Config>, handle: Self::Handle) -> Result<Self::Handle>;

    /// Brings it back.
    ///
    /// # Errors
    /// Everything that does not prove the environment lost.
    fn resume(call: Call<Self::Config>, handle: Self::Handle) -> Result<Resumed<Self::Handle>>;
}

//! A loaded component, and each function of the contract as a typed call.
//!
//! Every call checks its arguments, runs in an instance of its own (see `call`), and checks, bounds
//! and redacts the answer. Nothing here decides what an answer means for a lease.

use std::sync::Arc;

use leasehold_contract::{
    Acquired, ByteStream, Code, Command, CommandState, Error, Finding, KeptAlive, Manifest,
    Observation, Page, Process, Query, Resumed, Size, Started,
};

use crate::audit::Capabilities;
use crate::bounds;
use crate::call::{Body, Function};
use crate::failure::Failure;
use crate::setup::CallSetup;
use crate::state::{BytesEntry, ProcessEntry};
use crate::stats::Stats;
use crate::v0;

/// A component that is ready to be called. Cheap to clone; calls of clones share one concurrency limit.
#[derive(Clone)]
pub struct Plugin {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub(crate) body: Body,
    pub(crate) digest: [u8; 32],
    pub(crate) manifest: Arc<Manifest>,
    pub(crate) capabilities: Capabilities,
}

impl std::fmt::Debug for Plugin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Plugin")
            .field("key", &self.inner.manifest.key)
            .field("digest", &self.digest_hex())
            .finish_non_exhaustive()
    }
}

fn without(interface: &str) -> Failure {
    Failure::Provider(Error::new(
        Code::Unsupported,
        format!("the provider does not export {interface}"),
    ))
}

/// A call of one export, whose answer is taken as it is: in an instance of its own, with the call's context first.
macro_rules! call {
    ($plugin:expr, $setup:expr, $function:ident, $guest:ident.$export:ident($($argument:expr),*)) => {
        $plugin.inner.body.run($setup, Function::$function, |made| {
            Box::pin(async move {
                let guest = $guest.load(&mut *made.store, made.instance)?;
                guest.$export(made.store, made.context, $($argument),*).await
            })
        })
    };
}

impl Plugin {
    /// SHA-256 of the component.
    pub fn digest(&self) -> &[u8; 32] {
        &self.inner.digest
    }

    /// SHA-256 of the component, as 64 lower-case hexadecimal digits.
    pub fn digest_hex(&self) -> String {
        crate::text::hex(&self.inner.digest)
    }

    /// What it said of itself when it was installed.
    pub fn manifest(&self) -> &Arc<Manifest> {
        &self.inner.manifest
    }

    /// The optional interfaces that it exports.
    pub fn capabilities(&self) -> Capabilities {
        self.inner.capabilities
    }

    /// What its calls came to since it was loaded.
    pub fn stats(&self) -> Stats {
        self.inner.body.counters.snapshot()
    }

    /// `lifecycle.check-config`: the configuration, normalised. That secrets, endpoints and targets come
    /// back as they were is the caller's to check.
    pub async fn check_config(&self, setup: &CallSetup, config: &str) -> Result<String, Failure> {
        let config = &bounds::config(config)?;
        let guest = &self.inner.body.exports.lifecycle;
        let answer = call!(self, setup, CheckConfig, guest.call_check_config(config)).await?;
        bounds::answered_json("check-config", answer)
    }

    /// `lifecycle.probe`: the findings, in their order.
    pub async fn probe(&self, setup: &CallSetup, config: &str) -> Result<Vec<Finding>, Failure> {
        let config = &bounds::config(config)?;
        let guest = &self.inner.body.exports.lifecycle;
        let answer = call!(self, setup, Probe, guest.call_probe(config)).await?;
        bounds::findings(v0::findings(answer), &setup.redactor)
    }

    /// `lifecycle.acquire`; `ttl` in seconds: when the lease will end at the latest, if known.
    pub async fn acquire(
        &self,
        setup: &CallSetup,
        config: &str,
        ttl: Option<u32>,
    ) -> Result<Acquired, Failure> {
        let config = &bounds::config(config)?;
        let guest = &self.inner.body.exports.lifecycle;
        let answer = call!(self, setup, Acquire, guest.call_acquire(config, ttl)).await?;
        bounds::acquired(v0::acquired(answer))
    }

    /// `lifecycle.keep-alive`; `ttl` in seconds.
    pub async fn keep_alive(
        &self,
        setup: &CallSetup,
        config: &str,
        handle: &str,
        ttl: Option<u32>,
    ) -> Result<KeptAlive, Failure> {
        let config = &bounds::config(config)?;
        let handle = &bounds::handle(handle)?;
        let guest = &self.inner.body.exports.lifecycle;
        let answer = call!(
            self,
            setup,
            KeepAlive,
            guest.call_keep_alive(config, handle, ttl)
        )
        .await?;
        Ok(v0::kept_alive(answer))
    }

    /// `lifecycle.inspect`.
    pub async fn inspect(
        &self,
        setup: &CallSetup,
        config: &str,
        handle: &str,
    ) -> Result<Observation, Failure> {
        let config = &bounds::config(config)?;
        let handle = &bounds::handle(handle)?;
        let guest = &self.inner.body.exports.lifecycle;
        let answer = call!(self, setup, Inspect, guest.call_inspect(config, handle)).await?;
        Ok(bounds::observation(
            v0::observation(answer),
            &setup.redactor,
        ))
    }

    /// `lifecycle.release`.
    pub async fn release(
        &self,
        setup: &CallSetup,
        config: &str,
        handle: &str,
    ) -> Result<(), Failure> {
        let config = &bounds::config(config)?;
        let handle = &bounds::handle(handle)?;
        let guest = &self.inner.body.exports.lifecycle;
        call!(self, setup, Release, guest.call_release(config, handle)).await
    }

    /// `lifecycle.list`: one page.
    pub async fn list(
        &self,
        setup: &CallSetup,
        config: &str,
        query: &Query,
    ) -> Result<Page, Failure> {
        let config = &bounds::config(config)?;
        let guest = &self.inner.body.exports.lifecycle;
        let query = v0::query(query);
        let answer = call!(self, setup, List, guest.call_list(config, &query)).await?;
        bounds::page(v0::page(answer))
    }

    /// `execution.start`. The process is taken out of the instance, which is gone when this returns;
    /// the process lives on.
    pub async fn start(
        &self,
        setup: &CallSetup,
        config: &str,
        handle: &str,
        command: &Command,
    ) -> Result<Started, Failure> {
        let config = &bounds::config(config)?;
        let handle = &bounds::handle(handle)?;
        bounds::command(command)?;
        let guest = self.execution()?;
        let command = v0::command(command);
        let (process, reference) = self
            .inner
            .body
            .run(setup, Function::Start, |made| {
                Box::pin(async move {
                    let guest = guest.load(&mut *made.store, made.instance)?;
                    let answer = guest
                        .call_start(&mut *made.store, made.context, config, handle, &command)
                        .await?;
                    Ok(match answer {
                        Ok(started) => {
                            let process: ProcessEntry =
                                made.store.data_mut().table.delete(started.process)?;
                            Ok((process.0, started.reference))
                        }
                        Err(error) => Err(error),
                    })
                })
            })
            .await?;
        let reference = bounds::reference("start.reference", reference)?;
        Ok(Started { process, reference })
    }

    /// `execution.attach`: the stream again, from the byte where the host had read each.
    pub async fn attach(
        &self,
        setup: &CallSetup,
        config: &str,
        handle: &str,
        reference: &str,
        stdout: u64,
        stderr: u64,
    ) -> Result<Process, Failure> {
        let config = &bounds::config(config)?;
        let handle = &bounds::handle(handle)?;
        let reference = &bounds::passed_reference(reference)?;
        let guest = self.execution()?;
        let (stdout, stderr) = (stdout.to_string(), stderr.to_string());
        self.inner
            .body
            .run(setup, Function::Attach, |made| {
                Box::pin(async move {
                    let guest = guest.load(&mut *made.store, made.instance)?;
                    let answer = guest
                        .call_attach(
                            &mut *made.store,
                            made.context,
                            config,
                            handle,
                            reference,
                            &stdout,
                            &stderr,
                        )
                        .await?;
                    Ok(match answer {
                        Ok(process) => {
                            let process: ProcessEntry =
                                made.store.data_mut().table.delete(process)?;
                            Ok(process.0)
                        }
                        Err(error) => Err(error),
                    })
                })
            })
            .await
    }

    /// `execution.state-of`, by the host's id of the command.
    pub async fn state_of(
        &self,
        setup: &CallSetup,
        config: &str,
        handle: &str,
        id: &str,
        reference: Option<&str>,
    ) -> Result<CommandState, Failure> {
        let config = &bounds::config(config)?;
        let handle = &bounds::handle(handle)?;
        let id = &id.to_owned();
        let reference = reference.map(bounds::passed_reference).transpose()?;
        let reference = reference.as_ref();
        let guest = self.execution()?;
        let answer = call!(
            self,
            setup,
            StateOf,
            guest.call_state_of(config, handle, id, reference)
        )
        .await?;
        bounds::state(v0::state(answer), &setup.redactor)
    }

    /// `execution.signal`; `signal` is a POSIX name without SIG.
    pub async fn signal(
        &self,
        setup: &CallSetup,
        config: &str,
        handle: &str,
        reference: &str,
        signal: &str,
    ) -> Result<(), Failure> {
        let config = &bounds::config(config)?;
        let handle = &bounds::handle(handle)?;
        let reference = &bounds::passed_reference(reference)?;
        let signal = &bounds::signal(signal)?;
        let guest = self.execution()?;
        call!(
            self,
            setup,
            Signal,
            guest.call_signal(config, handle, reference, signal)
        )
        .await
    }

    /// `execution.resize`.
    pub async fn resize(
        &self,
        setup: &CallSetup,
        config: &str,
        handle: &str,
        reference: &str,
        size: Size,
    ) -> Result<(), Failure> {
        let config = &bounds::config(config)?;
        let handle = &bounds::handle(handle)?;
        let reference = &bounds::passed_reference(reference)?;
        let guest = self.execution()?;
        let size = v0::size(size);
        call!(
            self,
            setup,
            Resize,
            guest.call_resize(config, handle, reference, size)
        )
        .await
    }

    /// `files.put`: unpacks a tar below `path`. The deadline covers the whole transfer.
    pub async fn put(
        &self,
        setup: &CallSetup,
        config: &str,
        handle: &str,
        path: &str,
        archive: ByteStream,
    ) -> Result<(), Failure> {
        let config = &bounds::config(config)?;
        let handle = &bounds::handle(handle)?;
        let path = &bounds::path(path)?;
        let guest = self.files()?;
        self.inner
            .body
            .run(setup, Function::Put, |made| {
                Box::pin(async move {
                    let guest = guest.load(&mut *made.store, made.instance)?;
                    let archive = made.store.data_mut().table.push(BytesEntry(archive))?;
                    guest
                        .call_put(made.store, made.context, config, handle, path, archive)
                        .await
                })
            })
            .await
    }

    /// `files.get`: a tar of `path`, read after this has returned.
    pub async fn get(
        &self,
        setup: &CallSetup,
        config: &str,
        handle: &str,
        path: &str,
    ) -> Result<ByteStream, Failure> {
        let config = &bounds::config(config)?;
        let handle = &bounds::handle(handle)?;
        let path = &bounds::path(path)?;
        let guest = self.files()?;
        self.inner
            .body
            .run(setup, Function::Get, |made| {
                Box::pin(async move {
                    let guest = guest.load(&mut *made.store, made.instance)?;
                    let answer = guest
                        .call_get(&mut *made.store, made.context, config, handle, path)
                        .await?;
                    Ok(match answer {
                        Ok(bytes) => {
                            let bytes: BytesEntry = made.store.data_mut().table.delete(bytes)?;
                            Ok(bytes.0)
                        }
                        Err(error) => Err(error),
                    })
                })
            })
            .await
    }

    /// `suspension.suspend`: the handle from now on.
    pub async fn suspend(
        &self,
        setup: &CallSetup,
        config: &str,
        handle: &str,
    ) -> Result<String, Failure> {
        let config = &bounds::config(config)?;
        let handle = &bounds::handle(handle)?;
        let guest = self.suspension()?;
        let answer = call!(self, setup, Suspend, guest.call_suspend(config, handle)).await?;
        bounds::answered_handle("suspend", answer)
    }

    /// `suspension.resume`.
    pub async fn resume(
        &self,
        setup: &CallSetup,
        config: &str,
        handle: &str,
    ) -> Result<Resumed, Failure> {
        let config = &bounds::config(config)?;
        let handle = &bounds::handle(handle)?;
        let guest = self.suspension()?;
        let answer = call!(self, setup, Resume, guest.call_resume(config, handle)).await?;
        bounds::resumed(v0::resumed(answer))
    }

    fn files(&self) -> Result<&v0::FilesIndices, Failure> {
        let exported = self.inner.body.exports.files.as_ref();
        exported.ok_or_else(|| without("files"))
    }

    fn execution(&self) -> Result<&v0::ExecutionIndices, Failure> {
        let exported = self.inner.body.exports.execution.as_ref();
        exported.ok_or_else(|| without("execution"))
    }

    fn suspension(&self) -> Result<&v0::SuspensionIndices, Failure> {
        let exported = self.inner.body.exports.suspension.as_ref();
        exported.ok_or_else(|| without("suspension"))
    }
}

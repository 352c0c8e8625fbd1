//! From bytes to a plugin: parsed, compiled, audited by name, described once, checked, frozen.
//!
//! Compiling is heavy: it runs off the async threads, at most `compilations` at once. `describe` runs
//! with everything refused and is never called again; at a restart the frozen manifest is given back.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use leasehold_contract::{FieldViolation, Limits, Manifest, Purpose};
use sha2::{Digest, Sha256};
use tokio::sync::Semaphore;
use wasmtime::component::Component;

use crate::audit::{self, Capabilities};
use crate::cache::{Compiled, Entry};
use crate::call::{Body, Function, Named};
use crate::engine::{Runtime, Shared};
use crate::failure::{Failure, Incompatible, chain};
use crate::manifest;
use crate::plugin::{Inner, Plugin};
use crate::setup::CallSetup;
use crate::stats::Counters;
use crate::text::hex;
use crate::unserved;
use crate::v0;

/// Time for `describe`, which only writes down what it knows.
const DESCRIBE: Duration = Duration::from_secs(10);

/// CPU time for `describe`.
const DESCRIBE_CPU: Duration = Duration::from_secs(2);

/// Why the bytes of a component could not be had.
pub type SourceError = Box<dyn std::error::Error + Send + Sync>;

/// A component that passed everything and waits for its grant.
#[derive(Clone, Debug)]
pub struct Prepared {
    /// SHA-256 of its bytes.
    pub digest: [u8; 32],
    /// What it says of itself, from now on frozen.
    pub manifest: Arc<Manifest>,
    /// The optional interfaces that it exports.
    pub capabilities: Capabilities,
    /// Everything that it imports, by name.
    pub imports: Vec<String>,
    /// Everything that it exports, by name.
    pub exports: Vec<String>,
    /// Ready to be called.
    pub plugin: Plugin,
}

impl Prepared {
    /// The digest as 64 lower-case hexadecimal digits.
    pub fn digest_hex(&self) -> String {
        hex(&self.digest)
    }
}

/// Why a component is not taken.
#[derive(Debug, thiserror::Error)]
pub enum InstallError {
    /// Larger than this host takes.
    #[error("component has {size} bytes; this host takes {limit}")]
    TooLarge {
        /// Its size in bytes.
        size: usize,
        /// The most in bytes.
        limit: usize,
    },
    /// Not a sound component, and why.
    #[error("not a component: {0}")]
    Unsound(String),
    /// It imports or exports what does not fit.
    #[error(transparent)]
    Incompatible(#[from] Incompatible),
    /// Sound, and needs more of something than any call may use.
    #[error("component needs more than this host allows: {0}")]
    Demanding(String),
    /// `describe` did not answer.
    #[error("describe failed: {0}")]
    Describe(#[source] Failure),
    /// Its manifest is wrong; every violation at once.
    #[error("manifest is wrong: {}", listed(.0))]
    Manifest(Vec<FieldViolation>),
    /// The bytes are not those of the digest.
    #[error("bytes have digest {found}, not {expected}")]
    Digest {
        /// The digest that was asked for.
        expected: String,
        /// The digest of the bytes.
        found: String,
    },
    /// The bytes could not be had.
    #[error("component cannot be read: {0}")]
    Source(#[source] SourceError),
    /// The host's own fault.
    #[error("host failed: {0}")]
    Host(String),
}

fn listed(violations: &[FieldViolation]) -> String {
    violations
        .iter()
        .map(|v| format!("{} {}", v.pointer, v.message))
        .collect::<Vec<_>>()
        .join("; ")
}

impl Runtime {
    /// Takes a component that is not installed yet: everything is checked, nothing is granted.
    ///
    /// # Errors
    /// See [`InstallError`]; nothing is left behind but an entry in the cache.
    pub async fn prepare(&self, bytes: Bytes) -> Result<Prepared, InstallError> {
        let shared = &self.shared;
        if bytes.len() > shared.component_bytes {
            return Err(InstallError::TooLarge {
                size: bytes.len(),
                limit: shared.component_bytes,
            });
        }
        let (digest, component) = {
            let shared = Arc::clone(shared);
            let permit = compiling(&shared).await?;
            off_thread(move || {
                let digest = digest_of(&bytes);
                let component = compiled_or_cached(&shared, digest, &bytes);
                drop(permit);
                component.map(|component| (digest, component))
            })
            .await?
        };
        let (mut body, capabilities) = body_of(shared, &component)?;
        let manifest = Arc::new(describe(&body, capabilities).await?);
        body.named = Some(named(&manifest, &digest));
        body.allowance = shared.allowance(Some(&manifest.request.limits));
        body.counters = Counters::default();
        let ty = component.component_type();
        let (imports, exports) = (ty.imports(&shared.engine), ty.exports(&shared.engine));
        Ok(Prepared {
            digest,
            manifest: Arc::clone(&manifest),
            capabilities,
            imports: imports.map(|(name, _)| name.to_owned()).collect(),
            exports: exports.map(|(name, _)| name.to_owned()).collect(),
            plugin: Plugin {
                inner: Arc::new(Inner {
                    body,
                    digest,
                    manifest,
                    capabilities,
                }),
            },
        })
    }

    /// Loads a component that was installed before, with the manifest that was frozen then and the limits that
    /// were granted. The bytes are asked for only where no compiled form of them is kept.
    ///
    /// # Errors
    /// See [`InstallError`].
    pub async fn load<F, B>(
        &self,
        digest: [u8; 32],
        manifest: Arc<Manifest>,
        limits: Limits,
        bytes: F,
    ) -> Result<Plugin, InstallError>
    where
        F: FnOnce() -> B,
        B: Future<Output = Result<Bytes, SourceError>>,
    {
        let shared = &self.shared;
        let cached = {
            let shared = Arc::clone(shared);
            off_thread(move || Ok(from_cache(&shared, digest))).await?
        };
        let component = match cached {
            Some(component) => component,
            None => {
                let bytes = bytes().await.map_err(InstallError::Source)?;
                let shared = Arc::clone(shared);
                let permit = compiling(&shared).await?;
                off_thread(move || {
                    let found = digest_of(&bytes);
                    if found != digest {
                        return Err(InstallError::Digest {
                            expected: hex(&digest),
                            found: hex(&found),
                        });
                    }
                    let component = compile(&shared, digest, &bytes);
                    drop(permit);
                    component
                })
                .await?
            }
        };
        let (mut body, capabilities) = body_of(shared, &component)?;
        body.named = Some(named(&manifest, &digest));
        body.allowance = shared.allowance(Some(&manifest.request.limits.min(limits)));
        Ok(Plugin {
            inner: Arc::new(Inner {
                body,
                digest,
                manifest,
                capabilities,
            }),
        })
    }
}

async fn compiling(shared: &Shared) -> Result<tokio::sync::OwnedSemaphorePermit, InstallError> {
    Arc::clone(&shared.compilations)
        .acquire_owned()
        .await
        .map_err(|_closed| InstallError::Host("the runtime is closed".to_owned()))
}

async fn off_thread<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, InstallError> + Send + 'static,
) -> Result<T, InstallError> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        Err(error) => Err(InstallError::Host(format!(
            "loading a component broke off: {error}"
        ))),
    }
}

fn digest_of(bytes: &[u8]) -> [u8; 32] {
    Sha256::digest(bytes).into()
}

fn compiled_or_cached(
    shared: &Shared,
    digest: [u8; 32],
    bytes: &[u8],
) -> Result<Component, InstallError> {
    match from_cache(shared, digest) {
        Some(component) => Ok(component),
        None => compile(shared, digest, bytes),
    }
}

fn from_cache(shared: &Shared, digest: [u8; 32]) -> Option<Component> {
    let cache = shared.cache.as_ref()?;
    let compiled: Compiled = cache.load(&Entry::new(digest, &shared.engine))?;
    // SAFETY: these bytes carry the MAC of this host's key, so this host wrote them, as wasmtime's own
    // serialisation of a component compiled for an engine of this very hash; they are private memory
    // that nothing else writes.
    let component = unsafe { Component::deserialize(&shared.engine, compiled.code()) };
    match component {
        Ok(component) => Some(component),
        Err(error) => {
            tracing::debug!(error = %chain(&error).join(": "), "compiled component is of no use");
            None
        }
    }
}

fn compile(shared: &Shared, digest: [u8; 32], bytes: &[u8]) -> Result<Component, InstallError> {
    audit::parse(&shared.engine, bytes).map_err(|unfit| match unfit {
        Ok(incompatible) => InstallError::Incompatible(incompatible),
        Err(unsound) => InstallError::Unsound(unsound),
    })?;
    // Sound by now: what the engine still refuses is larger than its pool's slots.
    let component = Component::from_binary(&shared.engine, bytes)
        .map_err(|e| InstallError::Demanding(chain(&e).join(": ")))?;
    demands(shared, &component)?;
    if let Some(cache) = &shared.cache {
        match component.serialize() {
            Ok(code) => cache.store(&Entry::new(digest, &shared.engine), &code),
            Err(error) => {
                tracing::warn!(error = %chain(&error).join(": "), "component cannot be kept compiled");
            }
        }
    }
    Ok(component)
}

/// Refuses what no instance may have, now rather than at every call.
fn demands(shared: &Shared, component: &Component) -> Result<(), InstallError> {
    let Some(needs) = component.resources_required() else {
        return Ok(());
    };
    let ceilings = &shared.ceilings;
    let memory = needs.max_initial_memory_size.unwrap_or(0);
    let most = u64::from(ceilings.memory_mib) << 20;
    for (what, has, most) in [
        (
            "memories",
            u64::from(needs.num_memories),
            u64::from(ceilings.memories),
        ),
        (
            "tables",
            u64::from(needs.num_tables),
            u64::from(ceilings.tables),
        ),
        ("bytes of initial memory", memory, most),
    ] {
        if has > most {
            return Err(InstallError::Demanding(format!(
                "{has} {what}; at most {most}"
            )));
        }
    }
    Ok(())
}

fn named(manifest: &Manifest, digest: &[u8; 32]) -> Named {
    Named {
        key: manifest.key.clone(),
        revision: crate::text::hex(digest),
    }
}

/// Links a component. Its allowance is that of `describe` until its manifest is known.
fn body_of(
    shared: &Arc<Shared>,
    component: &Component,
) -> Result<(Body, Capabilities), InstallError> {
    audit::imports(&shared.engine, component)?;
    let capabilities = audit::exports(&shared.engine, component)?;
    let misfit = |error| audit::misfit(&shared.engine, component, &error);
    let pre = shared.linker.instantiate_pre(component).map_err(misfit)?;
    let exports = v0::Exports::find(&pre, capabilities).map_err(misfit)?;
    let mut allowance = shared.allowance(None);
    allowance.cpu = allowance.cpu.min(DESCRIBE_CPU);
    let body = Body {
        named: None,
        shared: Arc::clone(shared),
        pre,
        exports,
        permits: Semaphore::new(shared.concurrency_per_plugin),
        allowance,
        counters: Counters::default(),
    };
    Ok((body, capabilities))
}

async fn describe(body: &Body, capabilities: Capabilities) -> Result<Manifest, InstallError> {
    let setup = CallSetup::refusing(Purpose::Setup, DESCRIBE);
    let exports = &body.exports;
    let answered = body
        .run(&setup, Function::Describe, |made| {
            Box::pin(async move {
                if let Err(misfit) = exports.check(made.store, made.instance) {
                    return Ok(Ok(Err(misfit)));
                }
                let guest = exports.lifecycle.load(&mut *made.store, made.instance)?;
                Ok(Ok(Ok(guest.call_describe(made.store).await?)))
            })
        })
        .await
        .map_err(InstallError::Describe)?;
    let described = answered.map_err(|error| {
        InstallError::Incompatible(audit::misfit(
            &body.shared.engine,
            body.pre.component(),
            &error,
        ))
    })?;
    let (schema, mut wrong) = match manifest::config_schema(&described.config_schema) {
        Ok(schema) => (schema, Vec::new()),
        Err(violation) => (serde_json::Value::Bool(true), vec![violation]),
    };
    let manifest = v0::manifest(described, schema);
    if wrong.is_empty() {
        wrong = manifest::violations(&manifest, capabilities, &body.shared.ceilings);
        wrong.extend(unserved::violations(&manifest));
    }
    if wrong.is_empty() {
        Ok(manifest)
    } else {
        Err(InstallError::Manifest(wrong))
    }
}

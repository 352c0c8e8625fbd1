//! Components: looked at, installed, granted, loaded, offered.
//!
//! A component is known by its digest. New leases use the current revision of a key; a lease keeps the one it was
//! acquired with until it ends, so older revisions are loaded on demand. Invariants: nothing is granted but what the
//! caller named as shown ([`offer::request_digest`]); a revision becomes current only after it was loaded, so that one
//! that does not work leaves the old one serving; what a call may do is never more than its revision's grant.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use bytes::Bytes;
use futures_util::StreamExt as _;
use leasehold_authority::{
    Actor, Authority, Decision, Entry, Error as AuthorityError, NewRevision, Plugin as Installed,
    Revision, Source, wider,
};
use leasehold_contract::{Ceiling, FieldViolation, Grant, Manifest, Part};
use leasehold_runtime::{Prepared, Runtime};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tokio::sync::Notify;
use tokio_util::task::TaskTracker;

use super::breaker::Breaker;
use super::error::ServiceError;
use super::loaded::Loaded;
use super::model::{GrantRequest, PluginOffer, Withheld};
use super::offer;
use crate::settings::BreakerSettings;

/// Components that were looked at and are kept for their installation.
const INSPECTED: usize = 2;

/// How an installed plugin stands.
enum Standing {
    Disabled,
    Ungranted,
    /// The digest of what new leases use.
    Current(String),
}

/// The components that are loaded, by digest.
pub(crate) struct Catalog {
    authority: Authority,
    runtime: Runtime,
    ceiling: Ceiling,
    breaker: BreakerSettings,
    tasks: TaskTracker,
    /// Told whenever a breaker trips or is well again.
    changed: Arc<Notify>,
    loaded: RwLock<HashMap<String, Loaded>>,
    /// What is installed, as it was after the last change: only this process makes one.
    standing: RwLock<HashMap<String, Standing>>,
    /// What was looked at last: what was shown is what is installed, without asking the component again.
    inspected: Mutex<VecDeque<Prepared>>,
}

impl Catalog {
    pub(crate) fn new(
        authority: Authority,
        runtime: Runtime,
        ceiling: Ceiling,
        breaker: BreakerSettings,
        tasks: TaskTracker,
    ) -> Catalog {
        Catalog {
            authority,
            runtime,
            ceiling,
            breaker,
            tasks,
            changed: Arc::default(),
            loaded: RwLock::default(),
            standing: RwLock::default(),
            inspected: Mutex::default(),
        }
    }

    pub(crate) fn runtime(&self) -> &Runtime {
        &self.runtime
    }

    pub(crate) fn changed(&self) -> &Notify {
        &self.changed
    }

    pub(crate) fn ceiling(&self) -> &Ceiling {
        &self.ceiling
    }

    /// Loads the current revision of every plugin. One that cannot be loaded is logged and not offered; the others
    /// and the server go on.
    pub(crate) async fn load_all(&self) -> Result<usize, ServiceError> {
        let plugins = self.authority.plugins().list().await?;
        // Reading and authenticating what is compiled is work for every core.
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let loads = plugins
            .iter()
            .filter_map(|plugin| plugin.current.as_ref())
            .map(async |current| {
                if let Err(error) = self.load(current).await {
                    tracing::error!(plugin = %current.key, digest = %current.digest, %error, "plugin cannot be loaded");
                }
            });
        futures_util::stream::iter(loads)
            .buffer_unordered(cores * 2)
            .collect::<()>()
            .await;
        Ok(plugins.len())
    }

    /// Loads what new work would use and what could not be loaded before: the disk was full, a file was not to be read.
    /// Answers how many still cannot be. That they cannot was said in the log when it was first seen.
    pub(crate) async fn load_missing(&self) -> usize {
        let mut missing = Vec::new();
        {
            let standing = self.standing.read().unwrap_or_else(PoisonError::into_inner);
            for standing in standing.values() {
                if let Standing::Current(digest) = standing
                    && self.get(digest).is_none()
                {
                    missing.push(digest.clone());
                }
            }
        }
        let mut left = 0;
        for digest in &missing {
            match self.pinned(digest).await {
                Ok(loaded) => {
                    tracing::info!(
                        plugin = loaded.manifest().key,
                        digest,
                        "plugin is loaded after all"
                    );
                    self.changed.notify_one();
                }
                Err(error) => {
                    tracing::debug!(digest, %error, "plugin still cannot be loaded");
                    left += 1;
                }
            }
        }
        left
    }

    /// The plugin of a granted revision, loaded where it is not yet.
    async fn load(&self, revision: &Revision) -> Result<Loaded, ServiceError> {
        if let Some(loaded) = self.get(&revision.digest) {
            return Ok(loaded);
        }
        let granted = revision
            .grant
            .as_ref()
            .ok_or_else(|| waits(&revision.key))?;
        let loaded = self.made(revision, &granted.grant).await?;
        self.put(loaded.clone());
        Ok(loaded)
    }

    /// The plugin of a revision as it is under `grant`, not yet what calls use.
    async fn made(&self, revision: &Revision, grant: &Grant) -> Result<Loaded, ServiceError> {
        let digest = digest_bytes(&revision.digest)?;
        let authority = self.authority.clone();
        let name = revision.digest.clone();
        let manifest = Arc::new(revision.manifest.clone());
        let plugin = self
            .runtime
            .load(digest, manifest, grant.limits, || async move {
                let bytes = authority.plugins().component_bytes(&name).await?;
                Ok(Bytes::from(bytes))
            })
            .await?;
        // What a breaker knows of these bytes stays true under another grant.
        let breaker = self.get(&revision.digest).map_or_else(
            || Arc::new(Breaker::new(self.breaker)),
            |loaded| Arc::clone(loaded.breaker()),
        );
        Ok(Loaded::new(
            plugin,
            grant,
            &self.ceiling,
            breaker,
            self.authority.clone(),
            self.tasks.clone(),
            Arc::clone(&self.changed),
        ))
    }

    /// The revision that a lease pinned.
    pub(crate) async fn pinned(&self, digest: &str) -> Result<Loaded, ServiceError> {
        if let Some(plugin) = self.get(digest) {
            return Ok(plugin);
        }
        let revision = self.authority.plugins().revision(digest).await?;
        self.load(&revision).await
    }

    /// What new work for a provider key uses.
    ///
    /// # Errors
    /// Four that differ: nothing of this key is installed, it is disabled, nobody granted it, it cannot be loaded here.
    pub(crate) async fn current(&self, key: &str) -> Result<Loaded, ServiceError> {
        let installed = match self.authority.plugins().get(key).await {
            Ok(installed) => installed,
            Err(AuthorityError::NotFound { .. }) => {
                return Err(ServiceError::refused(
                    "plugin_missing",
                    format!(
                        "no provider {key:?} is installed; install its component with `leasehold plugin install`"
                    ),
                ));
            }
            Err(error) => return Err(error.into()),
        };
        if !installed.enabled {
            return Err(ServiceError::refused(
                "plugin_disabled",
                format!(
                    "the provider {key:?} is disabled; enable it with `leasehold plugin enable {key}`"
                ),
            ));
        }
        match &installed.current {
            Some(current) => self.load(current).await,
            None => Err(waits(key)),
        }
    }

    /// Reads anew what is installed, after a change.
    pub(crate) async fn look(&self) -> Result<(), ServiceError> {
        let plugins = self.authority.plugins().list().await?;
        let now = plugins.into_iter().map(|plugin| {
            let standing = match plugin.current {
                _ if !plugin.enabled => Standing::Disabled,
                Some(current) => Standing::Current(current.digest),
                None => Standing::Ungranted,
            };
            (plugin.key, standing)
        });
        *self
            .standing
            .write()
            .unwrap_or_else(PoisonError::into_inner) = now.collect();
        Ok(())
    }

    /// Why nothing new is made with a provider now; none where it works. In memory, for lists.
    pub(crate) fn withheld(&self, key: &str) -> Option<Withheld> {
        let standing = self.standing.read().unwrap_or_else(PoisonError::into_inner);
        let (by, reason) = match standing.get(key) {
            None => ("installation", "it is not installed".to_owned()),
            Some(Standing::Disabled) => {
                ("grant", "it is disabled: it takes no new leases".to_owned())
            }
            Some(Standing::Ungranted) => ("grant", "it waits for its grant".to_owned()),
            Some(Standing::Current(digest)) => match self.get(digest) {
                None => (
                    "health",
                    "its component cannot be loaded; the server's log says why".to_owned(),
                ),
                Some(loaded) => {
                    loaded.works().err()?;
                    (
                        "health",
                        "it failed again and again, and is left alone for a while".to_owned(),
                    )
                }
            },
        };
        Some(Withheld {
            key: key.to_owned(),
            by: by.to_owned(),
            reason,
        })
    }

    fn get(&self, digest: &str) -> Option<Loaded> {
        self.loaded
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .get(digest)
            .cloned()
    }

    fn put(&self, loaded: Loaded) {
        self.loaded
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(loaded.digest_hex(), loaded);
    }

    fn forget(&self, digests: &[String]) {
        let mut loaded = self.loaded.write().unwrap_or_else(PoisonError::into_inner);
        for digest in digests {
            loaded.remove(digest);
        }
    }

    /// Every loaded plugin, for metrics.
    pub(crate) fn loaded(&self) -> Vec<Loaded> {
        self.loaded
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .values()
            .cloned()
            .collect()
    }

    /// What of the current revision is loaded, if it is.
    pub(crate) fn loaded_current(&self, installed: &Installed) -> Option<Loaded> {
        self.get(&installed.current.as_ref()?.digest)
    }

    /// Looks at a component that comes from `source`: everything is checked, nothing is stored.
    pub(crate) async fn inspect(
        &self,
        bytes: Bytes,
        source: Source,
    ) -> Result<PluginOffer, ServiceError> {
        let size = bytes.len() as u64;
        let prepared = self.runtime.prepare(bytes).await?;
        self.keep_inspected(prepared.clone());
        let mut offer = offer::of(prepared, size, source);
        let plugins = self.authority.plugins();
        offer.installed = plugins.revision(&offer.digest).await.is_ok();
        offer.wider = plugins
            .current(&offer.manifest.key)
            .await?
            .map(|current| wider(&current, &offer.manifest, &offer.capabilities));
        Ok(offer)
    }

    /// Installs a component that comes from `source`, with the grant of a person who was shown what it asks for, or without.
    pub(crate) async fn install(
        &self,
        actor: &Actor,
        bytes: Bytes,
        source: Source,
        grant: Option<GrantRequest>,
    ) -> Result<Installed, ServiceError> {
        let prepared = match self.take_inspected(&bytes).await {
            Some(prepared) => prepared,
            None => self.runtime.prepare(bytes.clone()).await?,
        };
        let offer = offer::of(prepared, bytes.len() as u64, source);
        let grant = match grant {
            Some(grant) => {
                is_shown(&grant.request_digest, &offer.request_digest)?;
                Some(allowed(&offer.manifest, &grant.without)?)
            }
            None => None,
        };
        let new = NewRevision {
            digest: offer.digest,
            bytes: bytes.to_vec(),
            manifest: offer.manifest,
            capabilities: offer.capabilities,
            asks: Value::from(offer.asks),
            request_digest: offer.request_digest,
            source: offer.source,
        };
        let installed = self.authority.plugins().install(actor, new, grant).await?;
        if let Some(current) = &installed.current {
            self.renew(current).await?;
        }
        self.collect().await;
        Ok(installed)
    }

    fn keep_inspected(&self, prepared: Prepared) {
        let mut inspected = self
            .inspected
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        inspected.retain(|other| other.digest != prepared.digest);
        inspected.push_front(prepared);
        inspected.truncate(INSPECTED);
    }

    async fn take_inspected(&self, bytes: &Bytes) -> Option<Prepared> {
        let hashed = bytes.clone();
        let digest =
            tokio::task::spawn_blocking(move || -> [u8; 32] { Sha256::digest(&hashed).into() })
                .await
                .ok()?;
        let mut inspected = self
            .inspected
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let at = inspected.iter().position(|one| one.digest == digest)?;
        inspected.remove(at)
    }

    /// Calls from now on go by the grant that a revision has now.
    async fn renew(&self, current: &Revision) -> Result<(), ServiceError> {
        let granted = current.grant.as_ref().ok_or_else(|| waits(&current.key))?;
        if (self.get(&current.digest)).is_some_and(|now| *now.granted == granted.grant) {
            return Ok(());
        }
        let loaded = self.made(current, &granted.grant).await?;
        self.put(loaded);
        Ok(())
    }

    /// Grants what waits, or `revision`.
    pub(crate) async fn grant(
        &self,
        actor: &Actor,
        key: &str,
        revision: Option<&str>,
        grant: GrantRequest,
    ) -> Result<Installed, ServiceError> {
        let installed = self.authority.plugins().get(key).await?;
        let named = |r: &&Revision| revision.is_none_or(|digest| r.digest == digest);
        let target = installed
            .pending
            .as_ref()
            .filter(named)
            .or_else(|| {
                revision?;
                installed.current.as_ref().filter(named)
            })
            .ok_or_else(|| nothing_waits(key, revision))?;
        let asks = offer::asks(&target.manifest, &target.capabilities);
        let request_digest = offer::request_digest(&target.digest, &asks);
        is_shown(&grant.request_digest, &request_digest)?;
        let allowed = allowed(&target.manifest, &grant.without)?;
        // One that does not work here is not made current.
        let loaded = self.made(target, &allowed).await?;
        let decision = Decision {
            asks: Value::from(asks),
            request_digest,
            grant: allowed,
        };
        let installed = self
            .authority
            .plugins()
            .grant(actor, key, &target.digest, decision)
            .await?;
        self.put(loaded);
        self.collect().await;
        Ok(installed)
    }

    /// Turns down what waits.
    pub(crate) async fn deny(
        &self,
        actor: &Actor,
        key: &str,
    ) -> Result<Option<Installed>, ServiceError> {
        let denied = self.authority.plugins().deny(actor, key).await?;
        self.collect().await;
        Ok(denied)
    }

    /// Goes one step back.
    pub(crate) async fn rollback(
        &self,
        actor: &Actor,
        key: &str,
    ) -> Result<Installed, ServiceError> {
        let plugins = self.authority.plugins();
        if let Some(previous) = plugins.get(key).await?.previous {
            self.load(&plugins.revision(&previous).await?).await?;
        }
        Ok(plugins.rollback(actor, key).await?)
    }

    /// A person's word that a plugin works again.
    pub(crate) async fn reset(&self, actor: &Actor, key: &str) -> Result<Installed, ServiceError> {
        let installed = self.authority.plugins().get(key).await?;
        if let Some(loaded) = self.loaded_current(&installed)
            && loaded.breaker().reset()
        {
            let details = json!({ "digest": loaded.digest_hex() });
            let entry = Entry::new("plugin.reset", None, "plugin", key, details);
            self.authority.activity().record(actor, entry).await?;
        }
        Ok(installed)
    }

    pub(crate) async fn set_enabled(
        &self,
        actor: &Actor,
        key: &str,
        enabled: bool,
    ) -> Result<Installed, ServiceError> {
        Ok(self
            .authority
            .plugins()
            .set_enabled(actor, key, enabled)
            .await?)
    }

    pub(crate) async fn remove(&self, actor: &Actor, key: &str) -> Result<(), ServiceError> {
        self.authority.plugins().uninstall(actor, key).await?;
        self.loaded
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .retain(|_, plugin| plugin.manifest().key != key);
        Ok(())
    }

    /// Collects the revisions that nothing needs any more. What fails is tried again by the worker.
    pub(crate) async fn collect(&self) {
        match self.authority.plugins().collect().await {
            Ok(collected) => {
                if !collected.is_empty() {
                    tracing::info!(?collected, "revisions of plugins collected");
                }
                self.forget(&collected);
            }
            Err(error) => {
                tracing::error!(%error, "revisions that nothing needs were not collected");
            }
        }
    }
}

fn waits(key: &str) -> ServiceError {
    ServiceError::refused(
        "plugin_pending",
        format!(
            "the provider {key:?} waits for its grant; look at what it asks for with `leasehold plugin show {key}`, \
             then `leasehold plugin grant {key}`"
        ),
    )
}

fn nothing_waits(key: &str, revision: Option<&str>) -> ServiceError {
    let (what, id) = match revision {
        None => ("pending revision of plugin", key),
        Some(revision) => ("pending or current revision", revision),
    };
    let id = id.chars().take(80).collect();
    AuthorityError::NotFound { what, id }.into()
}

/// What a manifest asks for, without these parts of it.
///
/// # Errors
/// A part that is not asked for: whoever leaves it out read something else.
fn allowed(manifest: &Manifest, without: &[Part]) -> Result<Grant, ServiceError> {
    let asked = Grant::asked(manifest);
    let Some(part) = without.iter().find(|part| !asked.has(**part)) else {
        return Ok(asked.without(without));
    };
    let all: Vec<&str> = offer::parts(&asked).into_iter().map(Part::as_str).collect();
    let all = match all.is_empty() {
        true => "nothing that can be left out".to_owned(),
        false => all.join(", "),
    };
    Err(ServiceError::Invalid {
        violations: vec![FieldViolation {
            pointer: "/without".to_owned(),
            message: format!("{} is not asked for; it asks for {all}", part.as_str()),
        }],
    })
}

/// Fails where a grant names something else than what is shown.
fn is_shown(granted: &str, shown: &str) -> Result<(), ServiceError> {
    if constant_eq(granted, shown) {
        return Ok(());
    }
    Err(ServiceError::refused(
        "grant_mismatch",
        format!(
            "the grant names another offer than this component's {shown}; look at what it asks for again and grant that"
        ),
    ))
}

fn digest_bytes(hex: &str) -> Result<[u8; 32], ServiceError> {
    let corrupt = || AuthorityError::Corrupt {
        what: "the digest of a plugin".to_owned(),
    };
    if hex.len() != 64 || !hex.is_ascii() {
        return Err(corrupt().into());
    }
    let mut digest = [0; 32];
    for (byte, pair) in digest.iter_mut().zip(hex.as_bytes().chunks(2)) {
        *byte = std::str::from_utf8(pair)
            .ok()
            .and_then(|pair| u8::from_str_radix(pair, 16).ok())
            .ok_or_else(corrupt)?;
    }
    Ok(digest)
}

/// Compares without telling by time where two texts differ.
fn constant_eq(a: &str, b: &str) -> bool {
    a.len() == b.len()
        && a.bytes()
            .zip(b.bytes())
            .fold(0, |acc, (a, b)| acc | (a ^ b))
            == 0
}

#[cfg(test)]
#[path = "plugins_tests.rs"]
mod tests;

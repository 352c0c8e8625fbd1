//! Components: looked at, installed with what was shown, loaded, offered.
//!
//! A component is known by its digest. New leases use the current revision of a key; a lease keeps the one it was
//! acquired with until it ends, so older revisions are loaded on demand and never forgotten while the server runs.
//! Invariant: nothing is installed but what the caller named as shown ([`offer::request_digest`]).

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use bytes::Bytes;
use futures_util::StreamExt as _;
use leasehold_authority::{Actor, Authority, NewRevision, Plugin as Installed, Revision};
use leasehold_contract::Features;
use leasehold_runtime::{Plugin, Prepared, Runtime};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use super::error::ServiceError;
use super::model::{Capabilities, Narrowing, PluginOffer, ProviderCapabilities, Withheld};
use super::offer;

/// Components that were looked at and are kept for their installation.
const INSPECTED: usize = 2;

/// The components that are loaded, by digest.
pub(crate) struct Catalog {
    authority: Authority,
    runtime: Runtime,
    loaded: RwLock<HashMap<String, Plugin>>,
    /// What was looked at last: what was shown is what is installed, without asking the component again.
    inspected: Mutex<VecDeque<Prepared>>,
}

impl Catalog {
    pub(crate) fn new(authority: Authority, runtime: Runtime) -> Catalog {
        Catalog {
            authority,
            runtime,
            loaded: RwLock::default(),
            inspected: Mutex::default(),
        }
    }

    pub(crate) fn runtime(&self) -> &Runtime {
        &self.runtime
    }

    /// Loads the current revision of every plugin. One that cannot be loaded is logged and not offered; the others
    /// and the server go on.
    pub(crate) async fn load_all(&self) -> Result<usize, ServiceError> {
        let plugins = self.authority.plugins().list().await?;
        // Reading and authenticating what is compiled is work for every core.
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let loads = plugins.iter().map(async |plugin| {
            if let Err(error) = self.load(&plugin.current).await {
                tracing::error!(plugin = %plugin.key, digest = %plugin.current.digest, %error, "plugin cannot be loaded");
            }
        });
        futures_util::stream::iter(loads)
            .buffer_unordered(cores * 2)
            .collect::<()>()
            .await;
        Ok(plugins.len())
    }

    /// The plugin of a revision, loaded where it is not yet.
    async fn load(&self, revision: &Revision) -> Result<Plugin, ServiceError> {
        if let Some(plugin) = self.get(&revision.digest) {
            return Ok(plugin);
        }
        let digest = digest_bytes(&revision.digest)?;
        let authority = self.authority.clone();
        let name = revision.digest.clone();
        let plugin = self
            .runtime
            .load(digest, Arc::new(revision.manifest.clone()), || async move {
                let bytes = authority.plugins().component_bytes(&name).await?;
                Ok(Bytes::from(bytes))
            })
            .await?;
        self.put(plugin.clone());
        Ok(plugin)
    }

    /// The revision that a lease pinned.
    pub(crate) async fn pinned(&self, digest: &str) -> Result<Plugin, ServiceError> {
        if let Some(plugin) = self.get(digest) {
            return Ok(plugin);
        }
        let revision = self.authority.plugins().revision(digest).await?;
        self.load(&revision).await
    }

    /// What new work for a provider key uses.
    ///
    /// # Errors
    /// Three that differ: nothing of this key is installed, it is disabled, it cannot be loaded here.
    pub(crate) async fn current(&self, key: &str) -> Result<Plugin, ServiceError> {
        let installed = match self.authority.plugins().get(key).await {
            Ok(installed) => installed,
            Err(leasehold_authority::Error::NotFound { .. }) => {
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
        self.load(&installed.current).await
    }

    fn get(&self, digest: &str) -> Option<Plugin> {
        self.loaded
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .get(digest)
            .cloned()
    }

    fn put(&self, plugin: Plugin) {
        self.loaded
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(plugin.digest_hex(), plugin);
    }

    fn forget(&self, key: &str) {
        self.loaded
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .retain(|_, plugin| plugin.manifest().key != key);
    }

    /// Every loaded plugin, for metrics.
    pub(crate) fn loaded(&self) -> Vec<Plugin> {
        self.loaded
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .values()
            .cloned()
            .collect()
    }

    /// Looks at a component: everything is checked, nothing is stored.
    pub(crate) async fn inspect(&self, bytes: Bytes) -> Result<PluginOffer, ServiceError> {
        let size = bytes.len() as u64;
        let prepared = self.runtime.prepare(bytes).await?;
        self.keep_inspected(prepared.clone());
        let installed = self
            .authority
            .plugins()
            .revision(&prepared.digest_hex())
            .await
            .is_ok();
        Ok(offer_of(&prepared, size, installed))
    }

    /// Installs a component with what was shown as its grant.
    pub(crate) async fn install(
        &self,
        actor: &Actor,
        bytes: Bytes,
        grant: &str,
    ) -> Result<Installed, ServiceError> {
        let prepared = match self.take_inspected(&bytes).await {
            Some(prepared) => prepared,
            None => self.runtime.prepare(bytes.clone()).await?,
        };
        let offer = offer_of(&prepared, bytes.len() as u64, false);
        if !constant_eq(grant, &offer.request_digest) {
            return Err(ServiceError::refused(
                "grant_mismatch",
                format!(
                    "the grant names another offer than this component's {}; look at what it asks for again and grant that",
                    offer.request_digest
                ),
            ));
        }
        let installed = self
            .authority
            .plugins()
            .install(
                actor,
                NewRevision {
                    digest: offer.digest,
                    bytes: bytes.to_vec(),
                    manifest: offer.manifest,
                    capabilities: offer.capabilities,
                    asks: Value::from(offer.asks),
                    request_digest: offer.request_digest,
                },
            )
            .await?;
        self.put(prepared.plugin);
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
        self.forget(key);
        Ok(())
    }

    /// What can be leased now, and what is installed and cannot. Asking allocates nothing.
    pub(crate) async fn capabilities(&self) -> Result<Capabilities, ServiceError> {
        let mut providers = Vec::new();
        let mut withheld = Vec::new();
        for installed in self.authority.plugins().list().await? {
            let mut withhold = |by: &str, reason: &str| {
                withheld.push(Withheld {
                    key: installed.key.clone(),
                    by: by.to_owned(),
                    reason: reason.to_owned(),
                });
            };
            if !installed.enabled {
                withhold("grant", "it is disabled: it takes no new leases");
                continue;
            }
            let Some(plugin) = self.get(&installed.current.digest) else {
                withhold(
                    "health",
                    "its component cannot be loaded; the server's log says why",
                );
                continue;
            };
            let manifest = plugin.manifest();
            let exported = plugin.capabilities();
            let interfaces: Vec<String> = exported.names().into_iter().map(str::to_owned).collect();
            let mut narrowed = Vec::new();
            let mut features = Vec::new();
            for (feature, declared, needs_execution) in features_of(&manifest.features) {
                if !declared {
                    continue;
                }
                if needs_execution && !exported.execution {
                    narrowed.push(Narrowing {
                        capability: feature.to_owned(),
                        by: "exports".to_owned(),
                        reason: "the component does not export `execution`".to_owned(),
                    });
                } else if matches!(feature, "attach" | "reuse") {
                    narrowed.push(Narrowing {
                        capability: feature.to_owned(),
                        by: "health".to_owned(),
                        reason: "this version of the host does not use it".to_owned(),
                    });
                } else {
                    features.push(feature.to_owned());
                }
            }
            providers.push(ProviderCapabilities {
                key: installed.key,
                version: manifest.version.clone(),
                driver: manifest.driver.as_str().to_owned(),
                title: manifest.title.clone(),
                summary: manifest.summary.clone(),
                digest: installed.current.digest,
                interfaces,
                features,
                narrowed,
                config_schema: manifest.config_schema.clone(),
            });
        }
        Ok(Capabilities {
            providers,
            withheld,
        })
    }
}

/// Each feature by its name in the contract, whether it is declared, and whether it means anything without commands.
fn features_of(features: &Features) -> [(&'static str, bool, bool); 7] {
    [
        ("stdin", features.stdin, true),
        ("tty", features.tty, true),
        ("separate-stderr", features.separate_stderr, true),
        ("attach", features.attach, true),
        ("signal-group", features.signal_group, true),
        ("exclusive-target", features.exclusive_target, false),
        ("reuse", features.reuse, false),
    ]
}

fn offer_of(prepared: &Prepared, size: u64, installed: bool) -> PluginOffer {
    let digest = prepared.digest_hex();
    let capabilities: Vec<String> = prepared
        .capabilities
        .names()
        .into_iter()
        .map(str::to_owned)
        .collect();
    let asks = offer::asks(&prepared.manifest, &capabilities);
    PluginOffer {
        request_digest: offer::request_digest(&digest, &asks),
        digest,
        size,
        manifest: prepared.manifest.as_ref().clone(),
        capabilities,
        asks,
        installed,
    }
}

fn digest_bytes(hex: &str) -> Result<[u8; 32], ServiceError> {
    let corrupt = || leasehold_authority::Error::Corrupt {
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
mod tests {
    use std::path::PathBuf;

    use cap_std::fs::Dir;
    use leasehold_authority::Options;
    use leasehold_parts::skipped;
    use leasehold_runtime::Settings;

    use super::*;

    fn component() -> Option<Bytes> {
        let folder = std::env::var_os("LEASEHOLD_COMPONENTS").map_or_else(
            || {
                let test = std::env::current_exe().unwrap();
                test.ancestors().nth(3).unwrap().join("components")
            },
            PathBuf::from,
        );
        std::fs::read(folder.join("null.wasm"))
            .ok()
            .map(Bytes::from)
    }

    #[tokio::test]
    async fn a_component_that_was_inspected_is_installed_without_being_asked_again() {
        let Some(bytes) = component() else {
            skipped("`cargo xtask components`");
            return;
        };
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path().join("data");
        std::fs::create_dir(&data).unwrap();
        let authority = Authority::open(Options {
            database: data.join("leasehold.db"),
            data_dir: Dir::open_ambient_dir(&data, cap_std::ambient_authority()).unwrap(),
            master_key: folder.path().join("keys/master.key"),
            replica: "main".to_owned(),
        })
        .await
        .unwrap();
        let runtime = Runtime::new(Settings::default()).unwrap();
        let catalog = Catalog::new(authority, runtime.clone());
        let offer = catalog.inspect(bytes.clone()).await.unwrap();
        assert_eq!(runtime.stats().calls.ok, 1);
        let operator = Actor::local_operator();
        let installed = catalog
            .install(&operator, bytes.clone(), &offer.request_digest)
            .await
            .unwrap();
        assert_eq!(
            (installed.key.as_str(), runtime.stats().calls.ok),
            ("null", 1)
        );
        // Once: what is installed again without another look is asked again.
        catalog
            .install(&operator, bytes, &offer.request_digest)
            .await
            .unwrap();
        assert_eq!(runtime.stats().calls.ok, 2);
    }
}

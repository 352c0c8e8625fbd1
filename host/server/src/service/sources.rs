//! Where a component comes from: bytes that were sent, or a registry; and whether it is signed as its source asks.
//!
//! What may be used at all stands in the settings. The signature is looked at before a component is fetched, and a component
//! that was fetched is handed on only as the bytes that the signed manifest names. Nothing is stored here.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use leasehold_authority::{
    Actor, Authority, Beside, Error as AuthorityError, RegistryPlace, SignaturePolicy, SigningKey,
    Source,
};
use leasehold_contract::FieldViolation;
use leasehold_egress::{
    Reference, Registries, RegistryCredential, RegistrySettings, RegistrySource, Secret,
    TlsSettings,
};

use super::error::ServiceError;
use crate::settings::{ComponentSources, SignedBy, SourceSettings};

/// The largest file with a key or with certificates.
const LARGEST_FILE: u64 = 1 << 20;

/// A component as it is offered to be looked at or installed.
#[derive(Clone, Debug)]
pub enum Offered {
    /// Its bytes.
    Sent {
        /// The component.
        component: Bytes,
        /// A detached signature over it, in base64.
        signature: Option<String>,
    },
    /// Its name in a registry, as it was written.
    Named(String),
}

/// Why the sources of the settings cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SourcesError {
    /// A file cannot be read.
    #[error("{setting}: {}: {error}", path.display())]
    Read {
        /// The setting.
        setting: String,
        /// The file that it names.
        path: PathBuf,
        /// Why not.
        error: std::io::Error,
    },
    /// A file holds something else than it should.
    #[error("{setting}: {}: {message}", path.display())]
    Wrong {
        /// The setting.
        setting: String,
        /// The file that it names.
        path: PathBuf,
        /// What it is not, and how to mend it.
        message: String,
    },
}

struct Registry {
    settings: SourceSettings,
    /// Without the credential, which is read for each pull.
    source: RegistrySource,
    policy: SignaturePolicy,
}

impl Registry {
    /// The setting that it is, for messages and records.
    fn setting(&self) -> String {
        format!("plugins.sources, {}", self.settings.registry)
    }
}

/// The sources of components.
pub(crate) struct Sources {
    registries: Registries,
    known: Vec<Registry>,
    files: SignaturePolicy,
    authority: Authority,
}

fn read(setting: String, path: &Path) -> Result<String, SourcesError> {
    let refused = |error| SourcesError::Read {
        setting: setting.clone(),
        path: path.to_owned(),
        error,
    };
    let found = std::fs::metadata(path).map_err(refused)?;
    // A device or a pipe says no length, and may have no end.
    if !found.is_file() {
        return Err(SourcesError::Wrong {
            message: "is no file; name one with the PEM in it".to_owned(),
            setting,
            path: path.to_owned(),
        });
    }
    let length = found.len();
    if length > LARGEST_FILE {
        return Err(SourcesError::Wrong {
            message: format!("has {length} bytes, and no such file has more than {LARGEST_FILE}"),
            setting,
            path: path.to_owned(),
        });
    }
    std::fs::read_to_string(path).map_err(refused)
}

/// A public key of a file, by its name.
///
/// # Errors
/// The file cannot be read, or holds no such key.
pub(crate) fn key(setting: &str, name: &str, path: &Path) -> Result<SigningKey, SourcesError> {
    let pem = read(setting.to_owned(), path)?;
    SigningKey::read(name, &pem).map_err(|e| SourcesError::Wrong {
        setting: setting.to_owned(),
        path: path.to_owned(),
        message: e.to_string(),
    })
}

fn policy(signed_by: &SignedBy, keys: &BTreeMap<String, SigningKey>) -> SignaturePolicy {
    match signed_by {
        SignedBy::Anyone => SignaturePolicy::Anyone,
        // The settings name no key that is not there.
        SignedBy::Keys(names) => {
            SignaturePolicy::SignedBy(names.iter().filter_map(|n| keys.get(n)).cloned().collect())
        }
    }
}

impl Sources {
    /// Reads the files that the settings name.
    ///
    /// # Errors
    /// One cannot be read, or is not what it should be.
    pub(crate) fn open(
        settings: &ComponentSources,
        component_bytes: usize,
        authority: Authority,
    ) -> Result<Sources, SourcesError> {
        let mut keys = BTreeMap::new();
        for (name, path) in &settings.keys {
            let setting = format!("plugins.keys.{name}");
            keys.insert(name.clone(), key(&setting, name, path)?);
        }
        let mut known = Vec::new();
        for one in &settings.registries {
            let tls = match &one.ca {
                None => None,
                Some(path) => {
                    let setting = format!("plugins.sources, {}, ca", one.registry);
                    let pem = read(setting.clone(), path)?;
                    let tls = TlsSettings::new(Some(&pem), None);
                    Some(tls.map_err(|e| SourcesError::Wrong {
                        setting,
                        path: path.clone(),
                        message: e.message,
                    })?)
                }
            };
            known.push(Registry {
                source: RegistrySource {
                    plain: one.plain_http,
                    tls,
                    realm: one.realm.clone(),
                    ..RegistrySource::new(one.registry.clone())
                },
                policy: policy(&one.signed_by, &keys),
                settings: one.clone(),
            });
        }
        let mut named: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for one in &known {
            if let Some((_, secret)) = &one.settings.account {
                named.entry(secret.clone()).or_default().push(one.setting());
            }
        }
        authority.secrets().set_named_uses(named);
        Ok(Sources {
            registries: Registries::new(RegistrySettings {
                total: settings.pull,
                component: component_bytes as u64,
                ..RegistrySettings::default()
            }),
            known,
            files: policy(&settings.files, &keys),
            authority,
        })
    }

    /// The component that is offered, from where it may come and signed as it must be.
    ///
    /// # Errors
    /// It may not come from there, is not signed by a key that counts, or its registry does not give it.
    pub(crate) async fn take(
        &self,
        actor: &Actor,
        offered: Offered,
    ) -> Result<(Bytes, Source), ServiceError> {
        match offered {
            Offered::Sent {
                component,
                signature,
            } => self.sent(component, signature).await,
            Offered::Named(name) => self.pulled(actor, &name).await,
        }
    }

    async fn sent(
        &self,
        component: Bytes,
        signature: Option<String>,
    ) -> Result<(Bytes, Source), ServiceError> {
        if !self.files.asks() {
            return match signature {
                None => Ok((component, Source::default())),
                Some(_) => Err(invalid(
                    "/signature",
                    "was given, and nobody looks at it: the settings name no keys for components that are sent; \
                     name some with signed-by in [plugins.files], or leave it out",
                )),
            };
        }
        let files = self.files.clone();
        let bytes = component.clone();
        let looking = tokio::task::spawn_blocking(move || files.sent(&bytes, signature.as_deref()));
        let signed = looking
            .await
            .map_err(|e| AuthorityError::Internal(format!("a signature was not looked at: {e}")))?
            .map_err(|why| ServiceError::Unsigned {
                what: "the component".to_owned(),
                why,
            })?;
        let source = Source {
            registry: None,
            signed,
        };
        Ok((component, source))
    }

    async fn pulled(&self, actor: &Actor, name: &str) -> Result<(Bytes, Source), ServiceError> {
        let reference: Reference = name
            .parse()
            .map_err(|e: leasehold_egress::BadReference| invalid("/reference", e.to_string()))?;
        let registry = self.allowed(&reference)?;
        let reference = reference.at(&registry.settings.registry);
        let mut source = registry.source.clone();
        source.credential = self.credential(actor, registry).await?;
        let mut pull = self.registries.pull(&source, &reference).await?;
        let manifest = pull.resolved().manifest.to_string();
        let signed = if registry.policy.asks() {
            let found = pull.signatures().await?;
            let beside: Vec<Beside<'_>> = found
                .iter()
                .map(|one| Beside {
                    payload: &one.payload,
                    signature: &one.signature,
                })
                .collect();
            registry
                .policy
                .pulled(&manifest, &reference.place(), &beside)
                .map_err(|why| ServiceError::Unsigned {
                    what: format!("{reference}, manifest {manifest}"),
                    why,
                })?
        } else {
            None
        };
        let component = pull.component().await?;
        let source = Source {
            registry: Some(RegistryPlace {
                registry: reference.registry().to_string(),
                repository: reference.repository().to_owned(),
                tag: reference.tag().map(str::to_owned),
                manifest,
            }),
            signed,
        };
        Ok((component, source))
    }

    /// The registry of a reference, where it may be used for it.
    fn allowed(&self, reference: &Reference) -> Result<&Registry, ServiceError> {
        let registry = reference.registry();
        let found = self.known.iter().find(|one| one.source.is_named(registry));
        let Some(found) = found else {
            return Err(invalid(
                "/reference",
                format!(
                    "{registry} is no source of this server; whoever runs it can add it to the settings file as \
                     [[plugins.sources]] with registry = \"{registry}\""
                ),
            ));
        };
        if !found.settings.covers(reference.repository()) {
            return Err(invalid(
                "/reference",
                format!(
                    "of {registry} only {} may be used here, by the settings' repositories",
                    found.settings.repositories.join(", ")
                ),
            ));
        }
        Ok(found)
    }

    async fn credential(
        &self,
        actor: &Actor,
        registry: &Registry,
    ) -> Result<Option<RegistryCredential>, ServiceError> {
        let Some((username, secret)) = &registry.settings.account else {
            return Ok(None);
        };
        let setting = registry.setting();
        let mut destinations = vec![format!("registry://{}", registry.settings.registry)];
        destinations.extend(registry.settings.realm.as_ref().map(ToString::to_string));
        let named = self
            .authority
            .secrets()
            .resolve_named(actor, secret, "pull", &setting, &destinations)
            .await?;
        self.authority.secrets().record_accesses().await?;
        let password = std::str::from_utf8(&named.value)
            .map_err(|_| {
                ServiceError::refused(
                    "failed_precondition",
                    format!("the secret {secret:?}, which {setting} names, is no text; put in another version"),
                )
            })?
            .trim_end_matches(['\r', '\n']);
        Ok(Some(RegistryCredential {
            username: username.clone(),
            password: Secret::new(password.to_owned()),
            version: named.version,
        }))
    }
}

fn invalid(pointer: &str, message: impl Into<String>) -> ServiceError {
    ServiceError::Invalid {
        violations: vec![FieldViolation {
            pointer: pointer.to_owned(),
            message: message.into(),
        }],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_or_a_folder_is_no_key_and_is_not_read() {
        for path in ["/dev/zero", "/"] {
            let refused = key("plugins.keys.acme", "acme", Path::new(path));
            let told = refused.err().map(|e| e.to_string()).unwrap_or_default();
            assert!(told.contains("is no file"), "{path}: {told}");
            assert!(told.starts_with("plugins.keys.acme: "), "{path}: {told}");
        }
    }
}

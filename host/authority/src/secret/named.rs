//! Secrets of the instance that the server's settings name, such as a registry's password.
//!
//! There is no binding: who writes the settings decides toward whom such a value goes, and nobody who can only edit the
//! database or call the API can change that. Every use is on record before the value is answered, and what the settings
//! name counts as used.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};

use zeroize::Zeroizing;

use super::access::{self, Accessor, Note};
use super::seal::{self, Aad};
use super::{Secret, Secrets, row, version};
use crate::actor::Actor;
use crate::error::{Error, Result, code};
use crate::policy::Operation;

/// Which secrets of the instance the settings name, each with the settings that do.
#[derive(Debug, Default)]
pub(crate) struct NamedUses(RwLock<BTreeMap<String, Vec<String>>>);

impl NamedUses {
    /// The settings that name this secret.
    pub(super) fn of(&self, secret: &Secret) -> Vec<String> {
        if secret.company_id.is_some() {
            return Vec::new();
        }
        let named = self.0.read().unwrap_or_else(PoisonError::into_inner);
        named.get(&secret.name).cloned().unwrap_or_default()
    }
}

/// A value that the settings name.
pub struct NamedSecret {
    /// The newest value; wiped when dropped.
    pub value: Zeroizing<Vec<u8>>,
    /// Which secret, and which version of it: changes with a rotation.
    pub version: String,
}

impl std::fmt::Debug for NamedSecret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NamedSecret")
            .field("version", &self.version)
            .finish_non_exhaustive()
    }
}

impl Secrets {
    /// Says which secrets of the instance the settings name, by name, each with the settings that do: those are in use from
    /// now on, whether they are there or not.
    pub fn set_named_uses(&self, uses: BTreeMap<String, Vec<String>>) {
        *self.named.0.write().unwrap_or_else(PoisonError::into_inner) = uses;
    }

    /// The newest value of the instance's secret `name`, for an administrator. `setting` names the setting that names it,
    /// and `destinations` toward whom it goes; both are recorded.
    pub async fn resolve_named(
        &self,
        actor: &Actor,
        name: &str,
        purpose: &'static str,
        setting: &str,
        destinations: &[String],
    ) -> Result<NamedSecret> {
        actor.may(Operation::InstallPlugin)?;
        let (by, name, setting) = (actor.clone(), name.to_owned(), setting.to_owned());
        let destinations = serde_json::to_string(destinations)?;
        self.store
            .write(move |tx| {
                Box::pin(async move {
                    let keys = Arc::clone(&tx.keys);
                    let all = row::list(&mut tx.db, &keys, None).await?;
                    let Some(secret) = all.into_iter().find(|secret| secret.name == name) else {
                        return Err(missing(&name, &setting));
                    };
                    let version = secret.latest_version;
                    let (found, key) = version::usable(tx, &secret, version)
                        .await?
                        .map_err(|why| Error::conflict(code::SECRET_MISSING, why))?;
                    let value = seal::open(
                        &key,
                        &Aad::value(secret.scope(), &secret.id, version),
                        found.sealed.as_deref().unwrap_or_default(),
                        &found.what(),
                    )?;
                    let note = Note {
                        at: tx.now(),
                        secret: secret.id.clone(),
                        version,
                        company: String::new(),
                        environment: None,
                        by: Accessor::of(&by, purpose),
                        pointer: setting,
                        destinations,
                    };
                    access::write(&mut tx.db, &note).await?;
                    Ok(NamedSecret {
                        value,
                        version: format!("{}:{version}", secret.id),
                    })
                })
            })
            .await
    }
}

fn missing(name: &str, setting: &str) -> Error {
    Error::conflict(
        code::SECRET_MISSING,
        format!(
            "{setting} names the secret {name:?}, and the instance has none of this name: \
             put it in with `leasehold secret set {name} --instance`"
        ),
    )
}

//! Versions of a secret: rotation, and the end of old ones.
//!
//! The newest version is what `latest` means and is always usable. An older one can be disabled or destroyed once no
//! environment and no lease uses it; the use and the change are one transaction.

use std::sync::Arc;

use serde::Serialize;
use serde_json::json;
use zeroize::Zeroizing;

use super::row::{self, VersionRow};
use super::seal::{self, Aad};
use super::{Secret, Secrets, VersionStatus, binding, check_value, usage};
use crate::activity::Entry;
use crate::actor::Actor;
use crate::error::{Error, Result, code};
use crate::idempotency;
use crate::keys::Key;
use crate::policy::Operation;
use crate::store::Tx;

/// A version's record; never its value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SecretVersion {
    /// Counts from 1.
    pub version: i64,
    /// Whether it may be bound.
    pub status: VersionStatus,
    /// Who put it.
    pub created_by: String,
    /// Milliseconds since the epoch.
    pub created_at: i64,
    /// Environments that use it now.
    pub environments: i64,
    /// Leases that pinned it and have not ended.
    pub leases: i64,
}

/// Seals `value` as a version and keeps it.
pub(super) async fn put(
    tx: &mut Tx,
    secret: &Secret,
    version: i64,
    value: &[u8],
    by: &Actor,
) -> Result<Key> {
    let key = seal::data_key()?;
    let sealed = seal::seal(
        &key,
        &Aad::value(secret.scope(), &secret.id, version),
        value,
    )?;
    let wrapped = seal::seal(
        &tx.keys.secrets,
        &Aad::kept(secret.scope(), &secret.id, version),
        &key[..],
    )?;
    let new = VersionRow {
        secret: secret.id.clone(),
        version,
        status: VersionStatus::Enabled,
        sealed: Some(sealed),
        wrapped: Some(wrapped),
        created_by: by.display.clone(),
        created_at: tx.now(),
    };
    row::insert_version(tx, &new).await?;
    Ok(key)
}

/// A version that may be bound, with its data key; or why it may not, as a sentence.
pub(super) async fn usable(
    tx: &mut Tx,
    secret: &Secret,
    version: i64,
) -> Result<std::result::Result<(VersionRow, Key), String>> {
    let keys = Arc::clone(&tx.keys);
    let Some(found) = row::load_version(&mut tx.db, &keys, &secret.id, version).await? else {
        return Ok(Err(format!(
            "secret {:?} has no version {version}, its newest is {}",
            secret.name, secret.latest_version
        )));
    };
    let Some(wrapped) = found
        .wrapped
        .as_ref()
        .filter(|_| found.status == VersionStatus::Enabled)
    else {
        return Ok(Err(format!(
            "version {version} of secret {:?} is {}: refer to \"latest\" or to another version",
            secret.name,
            found.status.as_str()
        )));
    };
    let key = seal::unwrap_key(
        &keys.secrets,
        &Aad::kept(secret.scope(), &secret.id, version),
        wrapped,
        &found.what(),
    )?;
    Ok(Ok((found, key)))
}

impl Secrets {
    /// Rotates: keeps a value as the newest version and moves every environment binding that follows
    /// `latest` to it, which raises their target revision. Leases keep what they were acquired with.
    pub async fn put_version(
        &self,
        actor: &Actor,
        id: &str,
        value: Zeroizing<Vec<u8>>,
    ) -> Result<Secret> {
        actor.may(Operation::RotateSecret)?;
        check_value("/value", &value)?;
        let (actor, id) = (actor.clone(), id.to_owned());
        let memory = Arc::clone(&self.environments);
        let claim = idempotency::current();
        self.store
            .write(move |tx| {
                Box::pin(async move {
                    idempotency::made(tx, claim.as_ref(), &id).await?;
                    let keys = Arc::clone(&tx.keys);
                    let mut secret = row::load(&mut tx.db, &keys, &id).await?;
                    let version = secret.latest_version + 1;
                    let key = put(tx, &secret, version, &value, &actor).await?;
                    let moved = binding::follow_latest(tx, &secret, version, &key, memory).await?;
                    secret.latest_version = version;
                    secret.updated_at = tx.now();
                    row::store_latest(tx, &secret).await?;
                    tx.record(
                        &actor,
                        Entry::new(
                            "secret.rotated",
                            secret.company_id.as_deref(),
                            "secret",
                            &id,
                            json!({ "name": secret.name, "version": version, "environments": moved }),
                        ),
                    )
                    .await?;
                    Ok(secret)
                })
            })
            .await
    }

    /// Every version of a secret with how much uses it, the newest first.
    pub async fn versions(&self, id: &str) -> Result<Vec<SecretVersion>> {
        row::load(self.store.read(), &self.keys, id).await?;
        let mut all = Vec::new();
        for found in row::list_versions(self.store.read(), &self.keys, id).await? {
            let (environments, leases) =
                usage::counts(self.store.read(), id, Some(found.version)).await?;
            all.push(record(found, environments, leases));
        }
        Ok(all)
    }

    /// Disables, enables or destroys a version. A version that is in use, or the newest, is neither disabled
    /// nor destroyed; one that was destroyed stays so.
    pub async fn set_version_status(
        &self,
        actor: &Actor,
        id: &str,
        version: i64,
        status: VersionStatus,
    ) -> Result<SecretVersion> {
        actor.may(Operation::UpdateSecretVersion)?;
        let (actor, id) = (actor.clone(), id.to_owned());
        self.store
            .write(move |tx| {
                Box::pin(async move {
                    let keys = Arc::clone(&tx.keys);
                    let secret = row::load(&mut tx.db, &keys, &id).await?;
                    let mut found = row::load_version(&mut tx.db, &keys, &id, version)
                        .await?
                        .ok_or_else(|| {
                            Error::not_found("secret version", &version.to_string())
                        })?;
                    let (environments, leases) =
                        usage::counts(&mut tx.db, &id, Some(version)).await?;
                    if found.status == status {
                        return Ok(record(found, environments, leases));
                    }
                    if found.status == VersionStatus::Destroyed {
                        return Err(Error::invalid(
                            "/status",
                            format!("version {version} was destroyed, and nothing brings its value back: put in a new version"),
                        ));
                    }
                    if status != VersionStatus::Enabled {
                        may_end(tx, &secret, version).await?;
                    }
                    found.status = status;
                    if status == VersionStatus::Destroyed {
                        found.sealed = None;
                        found.wrapped = None;
                    }
                    row::store_version(&mut tx.db, &keys, &found).await?;
                    tx.record(
                        &actor,
                        Entry::new(
                            match status {
                                VersionStatus::Enabled => "secret.version_enabled",
                                VersionStatus::Disabled => "secret.version_disabled",
                                VersionStatus::Destroyed => "secret.version_destroyed",
                            },
                            secret.company_id.as_deref(),
                            "secret",
                            &id,
                            json!({ "changed": ["status"], "name": secret.name, "version": version }),
                        ),
                    )
                    .await?;
                    Ok(record(found, environments, leases))
                })
            })
            .await
    }
}

/// Fails while anything uses the version, or may come to use it by `latest`.
async fn may_end(tx: &mut Tx, secret: &Secret, version: i64) -> Result<()> {
    if version == secret.latest_version {
        return Err(Error::conflict(
            code::SECRET_IN_USE,
            format!(
                "version {version} is the newest of secret {:?}, which \"latest\" means: rotate first",
                secret.name
            ),
        ));
    }
    let uses = usage::of(&mut tx.db, &secret.id, Some(version)).await?;
    if uses.is_empty() {
        return Ok(());
    }
    Err(Error::conflict_with(
        code::SECRET_IN_USE,
        format!(
            "version {version} of secret {:?} is used by {}: move the environments to another version and release the leases first",
            secret.name,
            uses.in_words()
        ),
        uses.details(),
    ))
}

fn record(found: VersionRow, environments: i64, leases: i64) -> SecretVersion {
    SecretVersion {
        version: found.version,
        status: found.status,
        created_by: found.created_by,
        created_at: found.created_at,
        environments,
        leases,
    }
}

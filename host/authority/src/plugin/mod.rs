//! Plugins: which components are installed, what each was allowed, and which one is current.
//!
//! A revision is one digest with what was frozen at install. Its grant row says what was shown to whom. All
//! rows are authenticated: an edited digest, manifest, grant or current revision is [`Error::Corrupt`]. A
//! newer digest of the same key becomes current; older ones stay for the leases that they made. Nothing
//! here runs a component.

mod row;

use std::sync::Arc;

use leasehold_contract::{Driver, Manifest};
use serde::Serialize;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use sqlx::Row as _;

use self::row::{
    GrantRow, PluginRow, RevisionRow, grant_mac, plugin_of, put_plugin, revision, revision_mac,
    select_revisions,
};
pub(crate) use self::row::{plugin_row, revision_row, sign_again};
use crate::activity::Entry;
use crate::actor::Actor;
use crate::environment::{self, EnvironmentMemory};
use crate::error::{Error, Result, code};
use crate::id;
use crate::keys::{Keys, same};
use crate::store::{Store, Tx, now_ms};

/// A component to install, as the runtime read it.
#[derive(Clone, Debug)]
pub struct NewRevision {
    /// SHA-256 of the bytes, 64 lower-case hexadecimal digits. Checked.
    pub digest: String,
    /// The component.
    pub bytes: Vec<u8>,
    /// What `describe` answered.
    pub manifest: Manifest,
    /// Exported interfaces and declared features.
    pub capabilities: Vec<String>,
    /// What was shown to whoever allowed it, as the page had it.
    pub asks: Value,
    /// Digest of what was shown.
    pub request_digest: String,
}

/// One installed digest with its grant.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Revision {
    /// SHA-256, hexadecimal.
    pub digest: String,
    /// The provider's key.
    pub key: String,
    /// Counts the revisions of the key, from 1.
    pub number: i64,
    /// The provider's own version.
    pub version: String,
    /// The kind of environment.
    pub driver: Driver,
    /// What `describe` answered.
    pub manifest: Manifest,
    /// Exported interfaces and declared features.
    pub capabilities: Vec<String>,
    /// Bytes of the component.
    pub size: i64,
    /// What was shown when it was last allowed.
    pub asks: Value,
    /// Digest of what was shown.
    pub request_digest: String,
    /// Who allowed it.
    pub granted_by: String,
    /// When, in milliseconds since the epoch.
    pub granted_at: i64,
    /// When it was first installed.
    pub installed_at: i64,
}

/// A provider by its key.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Plugin {
    /// The provider's key.
    pub key: String,
    /// Whether new leases may be made. Teardown is never stopped.
    pub enabled: bool,
    /// What new leases use.
    pub current: Revision,
    /// Milliseconds since the epoch.
    pub created_at: i64,
    /// Milliseconds since the epoch.
    pub updated_at: i64,
}

/// The plugins.
#[derive(Clone)]
pub struct Plugins {
    pub(crate) store: Arc<Store>,
    pub(crate) keys: Arc<Keys>,
    pub(crate) environments: Arc<EnvironmentMemory>,
}

async fn load(tx: &mut Tx, key: &str) -> Result<Plugin> {
    let row = plugin_row(&mut tx.db, &tx.keys, key)
        .await?
        .ok_or_else(|| Error::not_found("plugin", key))?;
    let current = revision_row(&mut tx.db, &tx.keys, &row.current)
        .await?
        .ok_or_else(|| Error::corrupt(format!("plugin {key}")))?;
    Ok(Plugin {
        key: key.to_owned(),
        enabled: row.enabled,
        current,
        created_at: row.created_at,
        updated_at: row.updated_at,
    })
}

async fn usage(tx: &mut Tx, key: &str) -> Result<(i64, i64)> {
    Ok(sqlx::query_as(
        "SELECT (SELECT COUNT(*) FROM environments WHERE provider = $1),
                (SELECT COUNT(*) FROM leases WHERE provider = $1
                     AND status NOT IN ('released', 'failed', 'abandoned'))",
    )
    .bind(key)
    .fetch_one(&mut tx.db)
    .await?)
}

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::new(), |mut text, b| {
        let _ = write!(text, "{b:02x}");
        text
    })
}

impl Plugins {
    /// Installs a component as the current revision of its key, with its grant. Installing what is current
    /// already changes nothing.
    pub async fn install(&self, actor: &Actor, new: NewRevision) -> Result<Plugin> {
        actor.require_manage()?;
        if hex(&Sha256::digest(&new.bytes)) != new.digest {
            return Err(Error::invalid(
                "/digest",
                "must be the SHA-256 of the component in lower-case hexadecimal",
            ));
        }
        let actor = actor.clone();
        let memory = Arc::clone(&self.environments);
        self.store
            .write(move |tx| Box::pin(install(tx, actor, new, memory)))
            .await
    }

    /// All plugins by key.
    pub async fn list(&self) -> Result<Vec<Plugin>> {
        let rows = sqlx::query("SELECT * FROM plugins ORDER BY plugin_key")
            .fetch_all(self.store.read())
            .await?;
        let mut plugins = Vec::with_capacity(rows.len());
        for row in &rows {
            let key: String = row.try_get("plugin_key")?;
            let stored = plugin_of(&self.keys, &key, row)?;
            plugins.push(self.with_current(key, stored).await?);
        }
        Ok(plugins)
    }

    async fn with_current(&self, key: String, row: PluginRow) -> Result<Plugin> {
        let current = revision_row(self.store.read(), &self.keys, &row.current)
            .await?
            .ok_or_else(|| Error::corrupt(format!("plugin {key}")))?;
        if current.key != key {
            return Err(Error::corrupt(format!("plugin {key}")));
        }
        Ok(Plugin {
            key,
            enabled: row.enabled,
            current,
            created_at: row.created_at,
            updated_at: row.updated_at,
        })
    }

    /// One plugin.
    pub async fn get(&self, key: &str) -> Result<Plugin> {
        let row = plugin_row(self.store.read(), &self.keys, key)
            .await?
            .ok_or_else(|| Error::not_found("plugin", key))?;
        self.with_current(key.to_owned(), row).await
    }

    /// What new leases of `key` use; none when it is not installed.
    pub async fn current(&self, key: &str) -> Result<Option<Revision>> {
        match self.get(key).await {
            Ok(plugin) => Ok(Some(plugin.current)),
            Err(Error::NotFound { .. }) => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// One installed revision, current or not.
    pub async fn revision(&self, digest: &str) -> Result<Revision> {
        revision_row(self.store.read(), &self.keys, digest)
            .await?
            .ok_or_else(|| Error::not_found("plugin revision", digest))
    }

    /// The installed revisions of a key, newest first.
    pub async fn revisions(&self, key: &str) -> Result<Vec<Revision>> {
        let rows = sqlx::query(select_revisions!(
            "WHERE r.plugin_key = $1 AND r.removed_at IS NULL ORDER BY r.number DESC"
        ))
        .bind(key)
        .fetch_all(self.store.read())
        .await?;
        rows.iter().map(|row| revision(&self.keys, row)).collect()
    }

    /// The component, checked against its digest.
    pub async fn component_bytes(&self, digest: &str) -> Result<Vec<u8>> {
        self.revision(digest).await?;
        let bytes: Vec<u8> = sqlx::query_scalar("SELECT bytes FROM components WHERE digest = $1")
            .bind(digest)
            .fetch_optional(self.store.read())
            .await?
            .ok_or_else(|| Error::corrupt(format!("component {digest}")))?;
        if !same(hex(&Sha256::digest(&bytes)).as_bytes(), digest.as_bytes()) {
            return Err(Error::corrupt(format!("component {digest}")));
        }
        Ok(bytes)
    }

    /// Lets new leases be made, or stops them. Leases that exist go on, and are torn down.
    pub async fn set_enabled(&self, actor: &Actor, key: &str, enabled: bool) -> Result<Plugin> {
        actor.require_manage()?;
        let (actor, key) = (actor.clone(), key.to_owned());
        self.store
            .write(move |tx| {
                Box::pin(async move {
                    let plugin = load(tx, &key).await?;
                    if plugin.enabled == enabled {
                        return Ok(plugin);
                    }
                    put_plugin(tx, &key, enabled, &plugin.current.digest).await?;
                    let action = if enabled {
                        "plugin.enabled"
                    } else {
                        "plugin.disabled"
                    };
                    tx.record(&actor, Entry::new(action, None, "plugin", &key, json!({})))
                        .await?;
                    load(tx, &key).await
                })
            })
            .await
    }

    /// Removes every revision of a key. Refused while environments or unreleased leases use it.
    pub async fn uninstall(&self, actor: &Actor, key: &str) -> Result<()> {
        actor.require_manage()?;
        let (actor, key) = (actor.clone(), key.to_owned());
        self.store
            .write(move |tx| {
                Box::pin(async move {
                    let plugin = load(tx, &key).await?;
                    let (environments, leases) = usage(tx, &key).await?;
                    if environments + leases > 0 {
                        return Err(Error::conflict_with(
                            code::PLUGIN_IN_USE,
                            format!(
                                "plugin {key:?} is used by {environments} environments and {leases} unreleased leases: delete and release them first, or disable it"
                            ),
                            json!({ "environments": environments, "leases": leases }),
                        ));
                    }
                    sqlx::query(
                        "DELETE FROM components WHERE digest IN
                             (SELECT digest FROM plugin_revisions WHERE plugin_key = $1)",
                    )
                    .bind(&key)
                    .execute(&mut tx.db)
                    .await?;
                    sqlx::query(concat!(
                        "UPDATE plugin_revisions SET removed_at = ",
                        now_ms!(),
                        " WHERE plugin_key = $1 AND removed_at IS NULL"
                    ))
                    .bind(&key)
                    .execute(&mut tx.db)
                    .await?;
                    sqlx::query("DELETE FROM plugins WHERE plugin_key = $1")
                        .bind(&key)
                        .execute(&mut tx.db)
                        .await?;
                    tx.record(
                        &actor,
                        Entry::new(
                            "plugin.uninstalled",
                            None,
                            "plugin",
                            &key,
                            json!({ "digest": plugin.current.digest }),
                        ),
                    )
                    .await
                })
            })
            .await
    }
}

async fn install(
    tx: &mut Tx,
    actor: Actor,
    new: NewRevision,
    memory: Arc<EnvironmentMemory>,
) -> Result<Plugin> {
    let key = new.manifest.key.clone();
    let before = plugin_row(&mut tx.db, &tx.keys, &key).await?;
    if let Some(before) = &before {
        if before.current == new.digest {
            return load(tx, &key).await;
        }
        let current = load(tx, &key).await?.current;
        let (environments, leases) = usage(tx, &key).await?;
        if current.driver != new.manifest.driver && environments + leases > 0 {
            return Err(Error::conflict_with(
                code::PLUGIN_IN_USE,
                format!(
                    "this component leases {} environments, the installed {key:?} leases {} environments and is in use",
                    new.manifest.driver.as_str(),
                    current.driver.as_str()
                ),
                json!({ "environments": environments, "leases": leases }),
            ));
        }
    }
    put_revision(tx, &new).await?;
    let grant = GrantRow {
        id: id::fresh("grt_")?,
        digest: new.digest.clone(),
        asks: new.asks.to_string(),
        request_digest: new.request_digest,
        granted_by: actor.display.clone(),
        granted_at: tx.now(),
    };
    let mac = grant_mac(&tx.keys, &grant).done();
    sqlx::query(
        "INSERT INTO grants (id, digest, asks, request_digest, granted_by, granted_at, mac)
         VALUES ($1, $2, $3, $4, $5, $6, $7)",
    )
    .bind(&grant.id)
    .bind(&grant.digest)
    .bind(&grant.asks)
    .bind(&grant.request_digest)
    .bind(&grant.granted_by)
    .bind(grant.granted_at)
    .bind(&mac[..])
    .execute(&mut tx.db)
    .await?;
    let enabled = before.as_ref().is_none_or(|b| b.enabled);
    put_plugin(tx, &key, enabled, &new.digest).await?;
    environment::raise_for_provider(tx, &key, memory).await?;
    tx.record(
        &actor,
        Entry::new(
            "plugin.installed",
            None,
            "plugin",
            &key,
            json!({
                "digest": new.digest,
                "version": new.manifest.version,
                "grant": grant.id,
                "requestDigest": grant.request_digest,
                "before": before.map(|b| b.current),
            }),
        ),
    )
    .await?;
    load(tx, &key).await
}

/// The revision and the component of `new`, unless they are there; one that was removed comes back.
async fn put_revision(tx: &mut Tx, new: &NewRevision) -> Result<()> {
    let key = &new.manifest.key;
    let known: Option<(String, Option<i64>)> =
        sqlx::query_as("SELECT plugin_key, removed_at FROM plugin_revisions WHERE digest = $1")
            .bind(&new.digest)
            .fetch_optional(&mut tx.db)
            .await?;
    match known {
        Some((known, _)) if known != *key => {
            return Err(Error::corrupt(format!("plugin revision {}", new.digest)));
        }
        Some((_, None)) => return Ok(()),
        Some((_, Some(_))) => {
            sqlx::query("UPDATE plugin_revisions SET removed_at = NULL WHERE digest = $1")
                .bind(&new.digest)
                .execute(&mut tx.db)
                .await?;
        }
        None => {
            let number: i64 = sqlx::query_scalar(
                "SELECT COALESCE(MAX(number), 0) + 1 FROM plugin_revisions WHERE plugin_key = $1",
            )
            .bind(key)
            .fetch_one(&mut tx.db)
            .await?;
            let row = RevisionRow {
                digest: new.digest.clone(),
                key: key.clone(),
                number,
                version: new.manifest.version.clone(),
                driver: new.manifest.driver.as_str().to_owned(),
                manifest: serde_json::to_string(&new.manifest)?,
                capabilities: serde_json::to_string(&new.capabilities)?,
                size: i64::try_from(new.bytes.len()).unwrap_or(i64::MAX),
                installed_at: tx.now(),
            };
            let mac = revision_mac(&tx.keys, &row).done();
            sqlx::query(
                "INSERT INTO plugin_revisions (digest, plugin_key, number, version, driver, manifest,
                                               capabilities, size, installed_at, mac)
                 VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)",
            )
            .bind(&row.digest)
            .bind(&row.key)
            .bind(row.number)
            .bind(&row.version)
            .bind(&row.driver)
            .bind(&row.manifest)
            .bind(&row.capabilities)
            .bind(row.size)
            .bind(row.installed_at)
            .bind(&mac[..])
            .execute(&mut tx.db)
            .await?;
        }
    }
    sqlx::query("INSERT INTO components (digest, size, bytes) VALUES ($1, $2, $3)")
        .bind(&new.digest)
        .bind(i64::try_from(new.bytes.len()).unwrap_or(i64::MAX))
        .bind(&new.bytes)
        .execute(&mut tx.db)
        .await?;
    Ok(())
}

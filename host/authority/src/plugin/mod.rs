//! Plugins: which components are installed, what each was allowed, and which one is current.
//!
//! A revision is one digest with what was frozen at install. It waits until it is granted, or takes over the grant of
//! the current one where it asks for no more; then it is current, and what was current is one step back. All rows are
//! authenticated: an edited digest, manifest, grant or pointer is [`Error::Corrupt`]. A revision stays for the leases
//! that it made and is collected when nothing needs it any more. Nothing here runs a component.

mod change;
mod collect;
mod row;
mod signature;
mod source;
mod wider;

use std::sync::Arc;

use leasehold_contract::{Driver, Grant, Manifest};
use serde::Serialize;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use sqlx::{Row as _, SqliteConnection};

use self::row::{PluginRow, belonging, load, plugin_of, put_plugin, revision, select_revisions};
pub(crate) use self::row::{plugin_row, revision_row, sign_again};
pub use self::signature::{
    Beside, NoKey, SignaturePolicy, Signed, SigningKey, Unsigned, spelled as spelled_signature,
};
pub use self::source::{RegistryPlace, Source};
pub use self::wider::wider;
use crate::activity::Entry;
use crate::actor::Actor;
use crate::environment::EnvironmentMemory;
use crate::error::{Error, Result, code};
use crate::keys::{Keys, same};
use crate::policy::Operation;
use crate::store::{Store, Tx};

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
    /// What it asks for, as it is shown.
    pub asks: Value,
    /// Digest of what is shown.
    pub request_digest: String,
    /// Where it came from.
    pub source: Source,
}

/// What a person was shown of a revision, and how much of it is allowed.
#[derive(Clone, Debug)]
pub struct Decision {
    /// What was shown.
    pub asks: Value,
    /// Digest of what was shown.
    pub request_digest: String,
    /// How much of it; what was not asked for is left out.
    pub grant: Grant,
}

/// What a revision was allowed.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Granted {
    /// The grant's id.
    pub id: String,
    /// What of the request.
    pub grant: Grant,
    /// What was shown when it was allowed.
    pub asks: Value,
    /// Digest of what was shown.
    pub request_digest: String,
    /// The grant of the revision before, where this one asked for no more.
    pub carried_from: Option<String>,
    /// Who allowed it; of one that was carried over, who installed it.
    pub by: String,
    /// When, in milliseconds since the epoch.
    pub at: i64,
}

/// One installed digest.
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
    /// What it was allowed; none while it waits.
    pub grant: Option<Granted>,
    /// Where its component came from.
    pub source: Source,
    /// When it was first installed.
    pub installed_at: i64,
    /// When its component was deleted.
    pub removed_at: Option<i64>,
}

/// What a revision is to its plugin now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum RevisionState {
    /// Waits for its grant.
    Pending,
    /// New leases use it.
    Current,
    /// One step back.
    Previous,
    /// Only the leases that it made need it.
    Retiring,
    /// Its component is deleted; the row is the record.
    Collected,
}

impl RevisionState {
    /// As it is written.
    pub fn as_str(self) -> &'static str {
        match self {
            RevisionState::Pending => "pending",
            RevisionState::Current => "current",
            RevisionState::Previous => "previous",
            RevisionState::Retiring => "retiring",
            RevisionState::Collected => "collected",
        }
    }
}

/// A revision with what it is now and how many leases need it.
#[derive(Clone, Debug, PartialEq)]
pub struct RevisionStanding {
    /// The revision.
    pub revision: Revision,
    /// What it is.
    pub state: RevisionState,
    /// Leases that it made and that have not ended.
    pub leases: i64,
}

/// A provider by its key.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Plugin {
    /// The provider's key.
    pub key: String,
    /// Whether new leases may be made. Teardown is never stopped.
    pub enabled: bool,
    /// What new leases use; none until something was granted.
    pub current: Option<Revision>,
    /// The digest that is one step back.
    pub previous: Option<String>,
    /// What waits for its grant.
    pub pending: Option<Revision>,
    /// Milliseconds since the epoch.
    pub created_at: i64,
    /// Milliseconds since the epoch.
    pub updated_at: i64,
}

impl Plugin {
    fn of(
        key: &str,
        row: PluginRow,
        current: Option<Revision>,
        pending: Option<Revision>,
    ) -> Plugin {
        Plugin {
            key: key.to_owned(),
            enabled: row.enabled,
            current,
            previous: row.previous,
            pending,
            created_at: row.created_at,
            updated_at: row.updated_at,
        }
    }
}

/// The plugins.
#[derive(Clone)]
pub struct Plugins {
    pub(crate) store: Arc<Store>,
    pub(crate) keys: Arc<Keys>,
    pub(crate) environments: Arc<EnvironmentMemory>,
}

/// Revisions of one plugin that are listed.
const HISTORY: i64 = 50;

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

/// A plugin with what serves and what waits.
async fn with_revisions(
    db: &mut SqliteConnection,
    keys: &Keys,
    key: &str,
    row: PluginRow,
) -> Result<Plugin> {
    let mut named = [None, None];
    for (found, digest) in named.iter_mut().zip([&row.current, &row.pending]) {
        if let Some(digest) = digest {
            *found = Some(belonging(revision_row(&mut *db, keys, digest).await?, key)?);
        }
    }
    let [current, pending] = named;
    Ok(Plugin::of(key, row, current, pending))
}

impl Plugins {
    /// All plugins by key.
    pub async fn list(&self) -> Result<Vec<Plugin>> {
        let mut db = self.store.read().begin().await?;
        let rows = sqlx::query("SELECT * FROM plugins ORDER BY plugin_key")
            .fetch_all(&mut *db)
            .await?;
        let mut plugins = Vec::with_capacity(rows.len());
        for row in &rows {
            let key: String = row.try_get("plugin_key")?;
            let stored = plugin_of(&self.keys, &key, row)?;
            plugins.push(with_revisions(&mut db, &self.keys, &key, stored).await?);
        }
        Ok(plugins)
    }

    /// One plugin, with its revisions as they were at one moment: one that is collected meanwhile is not missing from it.
    pub async fn get(&self, key: &str) -> Result<Plugin> {
        let mut db = self.store.read().begin().await?;
        let row = plugin_row(&mut *db, &self.keys, key)
            .await?
            .ok_or_else(|| Error::not_found("plugin", key))?;
        with_revisions(&mut db, &self.keys, key, row).await
    }

    /// What new leases of `key` use; none when nothing of it is installed and granted.
    pub async fn current(&self, key: &str) -> Result<Option<Revision>> {
        match self.get(key).await {
            Ok(plugin) => Ok(plugin.current),
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

    /// The latest revisions of a plugin, newest first, those that are collected too.
    pub async fn history(&self, plugin: &Plugin) -> Result<Vec<RevisionStanding>> {
        let rows = sqlx::query(select_revisions!(
            "WHERE r.plugin_key = $1 ORDER BY r.number DESC LIMIT $2"
        ))
        .bind(&plugin.key)
        .bind(HISTORY)
        .fetch_all(self.store.read())
        .await?;
        let mut all = Vec::with_capacity(rows.len());
        for row in &rows {
            let revision = revision(&self.keys, row)?;
            let named = |of: &Option<Revision>| {
                of.as_ref()
                    .is_some_and(|named| named.digest == revision.digest)
            };
            let state = if revision.removed_at.is_some() {
                RevisionState::Collected
            } else if named(&plugin.current) {
                RevisionState::Current
            } else if named(&plugin.pending) {
                RevisionState::Pending
            } else if plugin.previous.as_deref() == Some(revision.digest.as_str()) {
                RevisionState::Previous
            } else {
                RevisionState::Retiring
            };
            let leases = sqlx::query_scalar(
                "SELECT COUNT(*) FROM leases WHERE plugin_digest = $1
                     AND status NOT IN ('released', 'failed', 'abandoned')",
            )
            .bind(&revision.digest)
            .fetch_one(self.store.read())
            .await?;
            all.push(RevisionStanding {
                revision,
                state,
                leases,
            });
        }
        Ok(all)
    }

    /// The component, checked against its digest.
    pub async fn component_bytes(&self, digest: &str) -> Result<Vec<u8>> {
        let mut db = self.store.read().begin().await?;
        revision_row(&mut *db, &self.keys, digest)
            .await?
            .ok_or_else(|| Error::not_found("plugin revision", digest))?;
        let bytes: Vec<u8> = sqlx::query_scalar("SELECT bytes FROM components WHERE digest = $1")
            .bind(digest)
            .fetch_optional(&mut *db)
            .await?
            .ok_or_else(|| Error::corrupt(format!("component {digest}")))?;
        if !same(hex(&Sha256::digest(&bytes)).as_bytes(), digest.as_bytes()) {
            return Err(Error::corrupt(format!("component {digest}")));
        }
        Ok(bytes)
    }

    /// Lets new leases be made, or stops them. Leases that exist go on, and are torn down.
    pub async fn set_enabled(&self, actor: &Actor, key: &str, enabled: bool) -> Result<Plugin> {
        actor.may(if enabled {
            Operation::EnablePlugin
        } else {
            Operation::DisablePlugin
        })?;
        let (actor, key) = (actor.clone(), key.to_owned());
        self.store
            .write(move |tx| {
                Box::pin(async move {
                    let mut row = plugin_row(&mut tx.db, &tx.keys, &key)
                        .await?
                        .ok_or_else(|| Error::not_found("plugin", &key))?;
                    if row.enabled == enabled {
                        return load(tx, &key).await;
                    }
                    row.enabled = enabled;
                    put_plugin(tx, &key, &row).await?;
                    let action = if enabled {
                        "plugin.enabled"
                    } else {
                        "plugin.disabled"
                    };
                    let details = json!({ "changed": ["enabled"] });
                    tx.record(&actor, Entry::new(action, None, "plugin", &key, details))
                        .await?;
                    load(tx, &key).await
                })
            })
            .await
    }

    /// Removes every revision of a key. Refused while environments or unreleased leases use it.
    pub async fn uninstall(&self, actor: &Actor, key: &str) -> Result<()> {
        actor.may(Operation::RemovePlugin)?;
        let (actor, key) = (actor.clone(), key.to_owned());
        self.store
            .write(move |tx| {
                Box::pin(async move {
                    let row = plugin_row(&mut tx.db, &tx.keys, &key)
                        .await?
                        .ok_or_else(|| Error::not_found("plugin", &key))?;
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
                    sqlx::query("DELETE FROM plugins WHERE plugin_key = $1")
                        .bind(&key)
                        .execute(&mut tx.db)
                        .await?;
                    let collected = collect::unneeded(tx).await?;
                    tx.record(
                        &actor,
                        Entry::new(
                            "plugin.uninstalled",
                            None,
                            "plugin",
                            &key,
                            json!({ "digest": row.current, "collected": collected }),
                        ),
                    )
                    .await
                })
            })
            .await
    }
}

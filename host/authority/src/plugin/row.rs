//! The rows of plugins, revisions and grants: their authentication and their way to the database.
//!
//! Nothing of a row is answered before its MAC has verified.

use leasehold_contract::Manifest;
use sqlx::{Row as _, SqliteConnection};

use super::Revision;
use crate::error::{Error, Result};
use crate::keys::{Keys, Mac};
use crate::store::{Db, Row, Tx, now_ms};

pub(super) fn revision_mac(keys: &Keys, row: &RevisionRow) -> Mac {
    Mac::new(&keys.digests, "revision")
        .text(&row.digest)
        .text(&row.key)
        .int(row.number)
        .text(&row.version)
        .text(&row.driver)
        .text(&row.manifest)
        .text(&row.capabilities)
        .int(row.size)
        .int(row.installed_at)
}

pub(super) struct RevisionRow {
    pub digest: String,
    pub key: String,
    pub number: i64,
    pub version: String,
    pub driver: String,
    pub manifest: String,
    pub capabilities: String,
    pub size: i64,
    pub installed_at: i64,
}

impl RevisionRow {
    fn of(keys: &Keys, row: &Row) -> Result<RevisionRow> {
        let stored = RevisionRow {
            digest: row.try_get("digest")?,
            key: row.try_get("plugin_key")?,
            number: row.try_get("number")?,
            version: row.try_get("version")?,
            driver: row.try_get("driver")?,
            manifest: row.try_get("manifest")?,
            capabilities: row.try_get("capabilities")?,
            size: row.try_get("size")?,
            installed_at: row.try_get("installed_at")?,
        };
        if !revision_mac(keys, &stored).verifies(row.try_get("mac")?) {
            return Err(Error::corrupt(format!("plugin revision {}", stored.digest)));
        }
        Ok(stored)
    }
}

pub(super) fn grant_mac(keys: &Keys, grant: &GrantRow) -> Mac {
    Mac::new(&keys.grants, "grant")
        .text(&grant.id)
        .text(&grant.digest)
        .text(&grant.asks)
        .text(&grant.request_digest)
        .text(&grant.granted_by)
        .int(grant.granted_at)
}

pub(super) struct GrantRow {
    pub id: String,
    pub digest: String,
    pub asks: String,
    pub request_digest: String,
    pub granted_by: String,
    pub granted_at: i64,
}

fn plugin_mac(keys: &Keys, key: &str, enabled: bool, digest: &str) -> Mac {
    Mac::new(&keys.digests, "plugin")
        .text(key)
        .int(i64::from(enabled))
        .text(digest)
}

/// Revisions, each with its newest grant.
macro_rules! select_revisions {
    ($rest:literal) => {
        concat!(
            "SELECT r.*, g.id AS grant_id, g.asks, g.request_digest, g.granted_by, g.granted_at, g.mac AS grant_mac
             FROM plugin_revisions r JOIN grants g ON g.id =
                 (SELECT id FROM grants WHERE digest = r.digest ORDER BY granted_at DESC, id DESC LIMIT 1) ",
            $rest
        )
    };
}
pub(super) use select_revisions;

pub(super) fn revision(keys: &Keys, row: &Row) -> Result<Revision> {
    let stored = RevisionRow::of(keys, row)?;
    let grant = GrantRow {
        id: row.try_get("grant_id")?,
        digest: stored.digest.clone(),
        asks: row.try_get("asks")?,
        request_digest: row.try_get("request_digest")?,
        granted_by: row.try_get("granted_by")?,
        granted_at: row.try_get("granted_at")?,
    };
    if !grant_mac(keys, &grant).verifies(row.try_get("grant_mac")?) {
        return Err(Error::corrupt(format!(
            "the grant of plugin revision {}",
            stored.digest
        )));
    }
    let manifest: Manifest = serde_json::from_str(&stored.manifest)?;
    Ok(Revision {
        digest: stored.digest,
        key: stored.key,
        number: stored.number,
        version: stored.version,
        driver: manifest.driver,
        manifest,
        capabilities: serde_json::from_str(&stored.capabilities)?,
        size: stored.size,
        asks: serde_json::from_str(&grant.asks)?,
        request_digest: grant.request_digest,
        granted_by: grant.granted_by,
        granted_at: grant.granted_at,
        installed_at: stored.installed_at,
    })
}

/// A plugin's own row, authenticated.
pub(crate) struct PluginRow {
    pub enabled: bool,
    pub current: String,
    pub created_at: i64,
    pub updated_at: i64,
}

/// The row of `key`, if it is installed.
pub(crate) async fn plugin_row<'e>(
    db: impl sqlx::Executor<'e, Database = Db>,
    keys: &Keys,
    key: &str,
) -> Result<Option<PluginRow>> {
    let Some(row) = sqlx::query("SELECT * FROM plugins WHERE plugin_key = $1")
        .bind(key)
        .fetch_optional(db)
        .await?
    else {
        return Ok(None);
    };
    plugin_of(keys, key, &row).map(Some)
}

pub(super) fn plugin_of(keys: &Keys, key: &str, row: &Row) -> Result<PluginRow> {
    let plugin = PluginRow {
        enabled: row.try_get("enabled")?,
        current: row.try_get("current_digest")?,
        created_at: row.try_get("created_at")?,
        updated_at: row.try_get("updated_at")?,
    };
    if !plugin_mac(keys, key, plugin.enabled, &plugin.current).verifies(row.try_get("mac")?) {
        return Err(Error::corrupt(format!("plugin {key}")));
    }
    Ok(plugin)
}

/// A revision by its digest; none when it is not installed.
pub(crate) async fn revision_row<'e>(
    db: impl sqlx::Executor<'e, Database = Db>,
    keys: &Keys,
    digest: &str,
) -> Result<Option<Revision>> {
    sqlx::query(select_revisions!(
        "WHERE r.digest = $1 AND r.removed_at IS NULL"
    ))
    .bind(digest)
    .fetch_optional(db)
    .await?
    .map(|row| revision(keys, &row))
    .transpose()
}

pub(super) async fn put_plugin(tx: &mut Tx, key: &str, enabled: bool, digest: &str) -> Result<()> {
    let mac = plugin_mac(&tx.keys, key, enabled, digest).done();
    sqlx::query(concat!(
        "INSERT INTO plugins (plugin_key, enabled, current_digest, created_at, updated_at, mac)
         VALUES ($1, $2, $3, ",
        now_ms!(),
        ", ",
        now_ms!(),
        ", $4)
         ON CONFLICT (plugin_key) DO UPDATE SET enabled = excluded.enabled,
             current_digest = excluded.current_digest, updated_at = excluded.updated_at, mac = excluded.mac"
    ))
    .bind(key)
    .bind(enabled)
    .bind(digest)
    .bind(&mac[..])
    .execute(&mut tx.db)
    .await?;
    Ok(())
}

/// Authenticates every row of plugins, revisions and grants under other keys, removed revisions and old grants too, each
/// after it verified under the old. Returns how many.
pub(crate) async fn sign_again(db: &mut SqliteConnection, old: &Keys, new: &Keys) -> Result<u64> {
    let plugins = sqlx::query("SELECT * FROM plugins")
        .fetch_all(&mut *db)
        .await?;
    for row in &plugins {
        let key: &str = row.try_get("plugin_key")?;
        let plugin = plugin_of(old, key, row)?;
        let mac = plugin_mac(new, key, plugin.enabled, &plugin.current).done();
        sqlx::query("UPDATE plugins SET mac = $2 WHERE plugin_key = $1")
            .bind(key)
            .bind(&mac[..])
            .execute(&mut *db)
            .await?;
    }
    let revisions = sqlx::query("SELECT * FROM plugin_revisions")
        .fetch_all(&mut *db)
        .await?;
    for row in &revisions {
        let stored = RevisionRow::of(old, row)?;
        let mac = revision_mac(new, &stored).done();
        sqlx::query("UPDATE plugin_revisions SET mac = $2 WHERE digest = $1")
            .bind(&stored.digest)
            .bind(&mac[..])
            .execute(&mut *db)
            .await?;
    }
    let grants = sqlx::query("SELECT * FROM grants")
        .fetch_all(&mut *db)
        .await?;
    for row in &grants {
        let grant = GrantRow {
            id: row.try_get("id")?,
            digest: row.try_get("digest")?,
            asks: row.try_get("asks")?,
            request_digest: row.try_get("request_digest")?,
            granted_by: row.try_get("granted_by")?,
            granted_at: row.try_get("granted_at")?,
        };
        if !grant_mac(old, &grant).verifies(row.try_get("mac")?) {
            return Err(Error::corrupt(format!("grant {}", grant.id)));
        }
        let mac = grant_mac(new, &grant).done();
        sqlx::query("UPDATE grants SET mac = $2 WHERE id = $1")
            .bind(&grant.id)
            .bind(&mac[..])
            .execute(&mut *db)
            .await?;
    }
    Ok((plugins.len() + revisions.len() + grants.len()) as u64)
}

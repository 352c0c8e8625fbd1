//! The rows of plugins, revisions and grants: their authentication and their way to the database.
//!
//! Nothing of a row is answered before its MAC has verified. A revision's row names its grant, so that no grant comes
//! back by taking a later one out of the database.

use leasehold_contract::{Grant, Manifest};
use sqlx::{Row as _, SqliteConnection};

use super::{Granted, NewRevision, Plugin, Revision, Source};
use crate::error::{Error, Result};
use crate::id;
use crate::keys::{Keys, Mac};
use crate::store::{Db, Row, Tx, now_ms};

fn revision_mac(keys: &Keys, row: &RevisionRow) -> Mac {
    let mac = Mac::new(&keys.digests, "revision")
        .text(&row.digest)
        .text(&row.key)
        .int(row.number)
        .text(&row.version)
        .text(&row.driver)
        .text(&row.manifest)
        .text(&row.capabilities)
        .int(row.size)
        .text_or(row.grant.as_deref())
        .int(row.installed_at);
    // Rows that are older than the column have none, and no field for it.
    match &row.source {
        Some(source) => mac.text(source),
        None => mac,
    }
}

struct RevisionRow {
    digest: String,
    key: String,
    number: i64,
    version: String,
    driver: String,
    manifest: String,
    capabilities: String,
    size: i64,
    grant: Option<String>,
    source: Option<String>,
    installed_at: i64,
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
            grant: row.try_get("grant_id")?,
            source: row.try_get("source")?,
            installed_at: row.try_get("installed_at")?,
        };
        if !revision_mac(keys, &stored).verifies(row.try_get("mac")?) {
            return Err(Error::corrupt(format!("plugin revision {}", stored.digest)));
        }
        Ok(stored)
    }
}

fn grant_mac(keys: &Keys, grant: &GrantRow) -> Mac {
    Mac::new(&keys.grants, "grant")
        .text(&grant.id)
        .text(&grant.digest)
        .text(&grant.asks)
        .text(&grant.request_digest)
        .text(&grant.granted)
        .text_or(grant.carried_from.as_deref())
        .text(&grant.granted_by)
        .int(grant.granted_at)
}

struct GrantRow {
    id: String,
    digest: String,
    asks: String,
    request_digest: String,
    granted: String,
    carried_from: Option<String>,
    granted_by: String,
    granted_at: i64,
}

impl GrantRow {
    /// The grant `id` of a component in a row that has its columns; `mac` is what the row has to show for it.
    fn of(keys: &Keys, id: String, row: &Row, mac: &[u8]) -> Result<GrantRow> {
        let grant = GrantRow {
            id,
            digest: row.try_get("digest")?,
            asks: row.try_get("asks")?,
            request_digest: row.try_get("request_digest")?,
            granted: row.try_get("granted")?,
            carried_from: row.try_get("carried_from")?,
            granted_by: row.try_get("granted_by")?,
            granted_at: row.try_get("granted_at")?,
        };
        if !grant_mac(keys, &grant).verifies(mac) {
            return Err(Error::corrupt(format!(
                "the grant of plugin revision {}",
                grant.digest
            )));
        }
        Ok(grant)
    }
}

fn plugin_mac(keys: &Keys, key: &str, row: &PluginRow) -> Mac {
    Mac::new(&keys.digests, "plugin")
        .text(key)
        .int(i64::from(row.enabled))
        .text_or(row.current.as_deref())
        .text_or(row.previous.as_deref())
        .text_or(row.pending.as_deref())
}

/// Revisions, each with its grant.
macro_rules! select_revisions {
    ($rest:literal) => {
        concat!(
            "SELECT r.*, g.asks, g.request_digest, g.granted, g.carried_from, g.granted_by, g.granted_at,
                    g.mac AS grant_mac
             FROM plugin_revisions r LEFT JOIN grants g ON g.id = r.grant_id AND g.digest = r.digest ",
            $rest
        )
    };
}
pub(super) use select_revisions;

pub(super) fn revision(keys: &Keys, row: &Row) -> Result<Revision> {
    let stored = RevisionRow::of(keys, row)?;
    let grant = match &stored.grant {
        Some(id) => Some(granted(keys, id, &stored.digest, row)?),
        None => None,
    };
    let manifest: Manifest = serde_json::from_str(&stored.manifest)?;
    let source = match &stored.source {
        Some(source) => serde_json::from_str(source)?,
        None => Source::default(),
    };
    Ok(Revision {
        digest: stored.digest,
        key: stored.key,
        number: stored.number,
        version: stored.version,
        driver: manifest.driver,
        manifest,
        capabilities: serde_json::from_str(&stored.capabilities)?,
        size: stored.size,
        grant,
        source,
        installed_at: stored.installed_at,
        removed_at: row.try_get("removed_at")?,
    })
}

fn granted(keys: &Keys, id: &str, digest: &str, row: &Row) -> Result<Granted> {
    // A grant that is not there has no columns either.
    let mac: Option<&[u8]> = row.try_get("grant_mac")?;
    let Some(mac) = mac else {
        return Err(Error::corrupt(format!(
            "the grant of plugin revision {digest}"
        )));
    };
    let grant = GrantRow::of(keys, id.to_owned(), row, mac)?;
    Ok(Granted {
        id: grant.id,
        grant: serde_json::from_str(&grant.granted)?,
        asks: serde_json::from_str(&grant.asks)?,
        request_digest: grant.request_digest,
        carried_from: grant.carried_from,
        by: grant.granted_by,
        at: grant.granted_at,
    })
}

/// A plugin's own row, authenticated.
#[derive(Clone, Debug)]
pub(crate) struct PluginRow {
    pub enabled: bool,
    pub current: Option<String>,
    pub previous: Option<String>,
    pub pending: Option<String>,
    pub created_at: i64,
    pub updated_at: i64,
}

impl PluginRow {
    /// Of a key that nothing was installed for.
    pub(super) fn empty() -> PluginRow {
        PluginRow {
            enabled: true,
            current: None,
            previous: None,
            pending: None,
            created_at: 0,
            updated_at: 0,
        }
    }
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
        previous: row.try_get("previous_digest")?,
        pending: row.try_get("pending_digest")?,
        created_at: row.try_get("created_at")?,
        updated_at: row.try_get("updated_at")?,
    };
    if !plugin_mac(keys, key, &plugin).verifies(row.try_get("mac")?) {
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

/// The plugin in a transaction.
pub(super) async fn load(tx: &mut Tx, key: &str) -> Result<Plugin> {
    let row = plugin_row(&mut tx.db, &tx.keys, key)
        .await?
        .ok_or_else(|| Error::not_found("plugin", key))?;
    let current = match &row.current {
        Some(digest) => Some(needed(tx, key, digest).await?),
        None => None,
    };
    let pending = match &row.pending {
        Some(digest) => Some(needed(tx, key, digest).await?),
        None => None,
    };
    Ok(Plugin::of(key, row, current, pending))
}

/// A revision that a plugin's row names.
pub(super) async fn needed(tx: &mut Tx, key: &str, digest: &str) -> Result<Revision> {
    let found = revision_row(&mut tx.db, &tx.keys, digest).await?;
    belonging(found, key)
}

/// A revision that a plugin's row of `key` names must be there and be that key's.
pub(super) fn belonging(found: Option<Revision>, key: &str) -> Result<Revision> {
    found
        .filter(|revision| revision.key == key)
        .ok_or_else(|| Error::corrupt(format!("plugin {key}")))
}

pub(super) async fn put_plugin(tx: &mut Tx, key: &str, row: &PluginRow) -> Result<()> {
    let mac = plugin_mac(&tx.keys, key, row).done();
    sqlx::query(concat!(
        "INSERT INTO plugins (plugin_key, enabled, current_digest, previous_digest, pending_digest, created_at,
                              updated_at, mac)
         VALUES ($1, $2, $3, $4, $5, ",
        now_ms!(),
        ", ",
        now_ms!(),
        ", $6)
         ON CONFLICT (plugin_key) DO UPDATE SET enabled = excluded.enabled,
             current_digest = excluded.current_digest, previous_digest = excluded.previous_digest,
             pending_digest = excluded.pending_digest, updated_at = excluded.updated_at, mac = excluded.mac"
    ))
    .bind(key)
    .bind(row.enabled)
    .bind(&row.current)
    .bind(&row.previous)
    .bind(&row.pending)
    .bind(&mac[..])
    .execute(&mut tx.db)
    .await?;
    Ok(())
}

/// What was shown and how much of it is allowed.
pub(super) struct Allowed<'a> {
    pub digest: &'a str,
    pub asks: &'a serde_json::Value,
    pub request_digest: &'a str,
    pub grant: &'a Grant,
    pub carried_from: Option<String>,
    pub by: &'a str,
}

/// Writes a grant down and answers its id.
pub(super) async fn put_grant(tx: &mut Tx, allowed: Allowed<'_>) -> Result<String> {
    let grant = GrantRow {
        id: id::fresh("grt_")?,
        digest: allowed.digest.to_owned(),
        asks: allowed.asks.to_string(),
        request_digest: allowed.request_digest.to_owned(),
        granted: serde_json::to_string(allowed.grant)?,
        carried_from: allowed.carried_from,
        granted_by: allowed.by.to_owned(),
        granted_at: tx.now(),
    };
    let mac = grant_mac(&tx.keys, &grant).done();
    sqlx::query(
        "INSERT INTO grants (id, digest, asks, request_digest, granted, carried_from, granted_by, granted_at, mac)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)",
    )
    .bind(&grant.id)
    .bind(&grant.digest)
    .bind(&grant.asks)
    .bind(&grant.request_digest)
    .bind(&grant.granted)
    .bind(&grant.carried_from)
    .bind(&grant.granted_by)
    .bind(grant.granted_at)
    .bind(&mac[..])
    .execute(&mut tx.db)
    .await?;
    name_grant(tx, allowed.digest, Some(grant.id.clone())).await?;
    Ok(grant.id)
}

/// Makes `grant` a revision's grant.
async fn name_grant(tx: &mut Tx, digest: &str, grant: Option<String>) -> Result<()> {
    rewrite(tx, digest, |row| row.grant = grant).await
}

/// Changes a revision's row, after it verified.
async fn rewrite(tx: &mut Tx, digest: &str, change: impl FnOnce(&mut RevisionRow)) -> Result<()> {
    let row = sqlx::query("SELECT * FROM plugin_revisions WHERE digest = $1")
        .bind(digest)
        .fetch_one(&mut tx.db)
        .await?;
    let mut stored = RevisionRow::of(&tx.keys, &row)?;
    change(&mut stored);
    let mac = revision_mac(&tx.keys, &stored).done();
    sqlx::query(
        "UPDATE plugin_revisions SET grant_id = $2, source = $3, mac = $4 WHERE digest = $1",
    )
    .bind(digest)
    .bind(&stored.grant)
    .bind(&stored.source)
    .bind(&mac[..])
    .execute(&mut tx.db)
    .await?;
    Ok(())
}

/// The revision and the component of `new`, unless they are there, where only its source may be another now; one that was
/// removed comes back without its grant, and from where it came now.
pub(super) async fn put_revision(tx: &mut Tx, new: &NewRevision) -> Result<()> {
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
        Some((_, None)) => return put_source(tx, new).await,
        Some((_, Some(_))) => {
            sqlx::query("UPDATE plugin_revisions SET removed_at = NULL WHERE digest = $1")
                .bind(&new.digest)
                .execute(&mut tx.db)
                .await?;
            let source = serde_json::to_string(&new.source)?;
            rewrite(tx, &new.digest, |row| {
                row.grant = None;
                row.source = Some(source);
            })
            .await?;
        }
        None => insert_revision(tx, new).await?,
    }
    sqlx::query("INSERT INTO components (digest, size, bytes) VALUES ($1, $2, $3)")
        .bind(&new.digest)
        .bind(i64::try_from(new.bytes.len()).unwrap_or(i64::MAX))
        .bind(&new.bytes)
        .execute(&mut tx.db)
        .await?;
    Ok(())
}

/// Where an installed component comes from, where that changes.
pub(super) async fn put_source(tx: &mut Tx, new: &NewRevision) -> Result<()> {
    let known = needed(tx, &new.manifest.key, &new.digest).await?;
    if !known.source.gives_way_to(&new.source) {
        return Ok(());
    }
    let source = serde_json::to_string(&new.source)?;
    rewrite(tx, &new.digest, |row| row.source = Some(source)).await
}

async fn insert_revision(tx: &mut Tx, new: &NewRevision) -> Result<()> {
    let key = &new.manifest.key;
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
        grant: None,
        source: Some(serde_json::to_string(&new.source)?),
        installed_at: tx.now(),
    };
    let mac = revision_mac(&tx.keys, &row).done();
    sqlx::query(
        "INSERT INTO plugin_revisions (digest, plugin_key, number, version, driver, manifest,
                                       capabilities, size, source, installed_at, mac)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)",
    )
    .bind(&row.digest)
    .bind(&row.key)
    .bind(row.number)
    .bind(&row.version)
    .bind(&row.driver)
    .bind(&row.manifest)
    .bind(&row.capabilities)
    .bind(row.size)
    .bind(&row.source)
    .bind(row.installed_at)
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
        let mac = plugin_mac(new, key, &plugin).done();
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
        let grant = GrantRow::of(old, row.try_get("id")?, row, row.try_get("mac")?)?;
        let mac = grant_mac(new, &grant).done();
        sqlx::query("UPDATE grants SET mac = $2 WHERE id = $1")
            .bind(&grant.id)
            .bind(&mac[..])
            .execute(&mut *db)
            .await?;
    }
    Ok((plugins.len() + revisions.len() + grants.len()) as u64)
}

//! The rows of plugins, revisions and grants under other keys.
//!
//! Each MAC verifies under the old key first: what was edited is not blessed.

use sqlx::{Row as _, SqliteConnection};

use super::row::{GrantRow, RevisionRow, grant_mac, plugin_mac, plugin_of, revision_mac};
use crate::error::{Error, Result};
use crate::keys::Keys;

/// Authenticates every row anew, removed revisions and old grants too. Returns how many.
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
        let stored = RevisionRow::of(row)?;
        if !revision_mac(old, &stored).verifies(row.try_get("mac")?) {
            return Err(Error::corrupt(format!("plugin revision {}", stored.digest)));
        }
        let mac = revision_mac(new, &stored).done();
        sqlx::query("UPDATE plugin_revisions SET mac = $2 WHERE digest = $1")
            .bind(&stored.digest)
            .bind(&mac[..])
            .execute(&mut *db)
            .await?;
    }
    let grants = sqlx::query("SELECT id AS grant_id, digest, asks, request_digest, granted_by, granted_at, mac FROM grants")
        .fetch_all(&mut *db)
        .await?;
    for row in &grants {
        let grant = GrantRow::of(row)?;
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

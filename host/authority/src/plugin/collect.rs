//! Collecting revisions: the component of one that nothing needs is deleted, its row stays as the record.
//!
//! Needed is what a plugin's row points to (current, one step back, waiting) and what a lease that has not ended was
//! acquired with. Nothing else keeps a component.

use serde_json::json;

use super::Plugins;
use crate::activity::Entry;
use crate::actor::Actor;
use crate::error::Result;
use crate::store::{Tx, now_ms};

/// Picks the revisions that nothing needs.
macro_rules! unneeded {
    ($select:literal) => {
        concat!(
            $select,
            " FROM plugin_revisions AS r WHERE r.removed_at IS NULL
                  AND NOT EXISTS (SELECT 1 FROM plugins AS p WHERE p.plugin_key = r.plugin_key
                      AND r.digest IN (p.current_digest, p.previous_digest, p.pending_digest))
                  AND NOT EXISTS (SELECT 1 FROM leases AS l WHERE l.plugin_digest = r.digest
                      AND l.status NOT IN ('released', 'failed', 'abandoned'))"
        )
    };
}

/// Collects in this transaction, and answers the digests.
pub(super) async fn unneeded(tx: &mut Tx) -> Result<Vec<String>> {
    let found: Vec<String> = sqlx::query_scalar(unneeded!("SELECT r.digest"))
        .fetch_all(&mut tx.db)
        .await?;
    for digest in &found {
        sqlx::query("DELETE FROM components WHERE digest = $1")
            .bind(digest)
            .execute(&mut tx.db)
            .await?;
        sqlx::query(concat!(
            "UPDATE plugin_revisions SET removed_at = ",
            now_ms!(),
            " WHERE digest = $1"
        ))
        .bind(digest)
        .execute(&mut tx.db)
        .await?;
    }
    Ok(found)
}

impl Plugins {
    /// Collects what nothing needs any more, and answers the digests. Writes only where there is something.
    pub async fn collect(&self) -> Result<Vec<String>> {
        let any: i64 = sqlx::query_scalar(unneeded!("SELECT COUNT(*)"))
            .fetch_one(self.store.read())
            .await?;
        if any == 0 {
            return Ok(Vec::new());
        }
        self.store
            .write(move |tx| {
                Box::pin(async move {
                    let actor = Actor::system("collector");
                    let found = unneeded(tx).await?;
                    for digest in &found {
                        let key: String = sqlx::query_scalar(
                            "SELECT plugin_key FROM plugin_revisions WHERE digest = $1",
                        )
                        .bind(digest)
                        .fetch_one(&mut tx.db)
                        .await?;
                        let details = json!({ "digest": digest });
                        tx.record(
                            &actor,
                            Entry::new("plugin.collected", None, "plugin", &key, details),
                        )
                        .await?;
                    }
                    Ok(found)
                })
            })
            .await
    }
}

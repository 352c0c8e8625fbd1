//! What changes which revision is current: installing, granting, denying, going one step back.
//!
//! Each is one transaction with its activity row, so that a crash leaves the plugin as it was before or after, and a
//! revision that waits goes on waiting. Invariant: a revision becomes current only with a grant, of a person or carried
//! over from the current one because it asks for no more; until then the old one serves.

use std::sync::Arc;

use leasehold_contract::Grant;
use serde_json::json;
use sha2::{Digest as _, Sha256};

use super::row::{
    Allowed, PluginRow, load, needed, plugin_row, put_grant, put_plugin, put_revision, put_source,
};
use super::{Decision, NewRevision, Plugin, Plugins, Revision, hex, usage, wider};
use crate::activity::Entry;
use crate::actor::Actor;
use crate::environment::{self, EnvironmentMemory};
use crate::error::{Error, Result, code};
use crate::policy::Operation;
use crate::store::Tx;

impl Plugins {
    /// Installs a component. With `grant`, of a person who was shown what it asks for, it becomes current; without, it
    /// does so where it asks for no more than the current one, and waits otherwise. Of what waited before nothing is left.
    /// The same component again, from elsewhere, changes what is said of where it comes from.
    pub async fn install(
        &self,
        actor: &Actor,
        new: NewRevision,
        grant: Option<Grant>,
    ) -> Result<Plugin> {
        actor.may(Operation::InstallPlugin)?;
        if hex(&Sha256::digest(&new.bytes)) != new.digest {
            return Err(Error::invalid(
                "/digest",
                "must be the SHA-256 of the component in lower-case hexadecimal",
            ));
        }
        let actor = actor.clone();
        let memory = Arc::clone(&self.environments);
        self.store
            .write(move |tx| Box::pin(install(tx, actor, new, grant, memory)))
            .await
    }

    /// Grants the revision that waits, which becomes current, or grants the current one anew. Taking something from the
    /// current one is refused while leases of it have not ended: they were promised it.
    pub async fn grant(
        &self,
        actor: &Actor,
        key: &str,
        digest: &str,
        decision: Decision,
    ) -> Result<Plugin> {
        actor.may(Operation::GrantPlugin)?;
        let (actor, key, digest) = (actor.clone(), key.to_owned(), digest.to_owned());
        let memory = Arc::clone(&self.environments);
        self.store
            .write(move |tx| Box::pin(grant(tx, actor, key, digest, decision, memory)))
            .await
    }

    /// Turns down the revision that waits: nothing needs it any more, and the current one serves on. A plugin that was
    /// never granted is gone then; none is answered for it.
    pub async fn deny(&self, actor: &Actor, key: &str) -> Result<Option<Plugin>> {
        actor.may(Operation::DenyPlugin)?;
        let (actor, key) = (actor.clone(), key.to_owned());
        self.store
            .write(move |tx| Box::pin(deny(tx, actor, key)))
            .await
    }

    /// Makes the revision that is one step back current, under the grant that it had; the current one is one step back
    /// then.
    pub async fn rollback(&self, actor: &Actor, key: &str) -> Result<Plugin> {
        actor.may(Operation::RollbackPlugin)?;
        let (actor, key) = (actor.clone(), key.to_owned());
        let memory = Arc::clone(&self.environments);
        self.store
            .write(move |tx| Box::pin(rollback(tx, actor, key, memory)))
            .await
    }
}

async fn row_of(tx: &mut Tx, key: &str) -> Result<PluginRow> {
    plugin_row(&mut tx.db, &tx.keys, key)
        .await?
        .ok_or_else(|| Error::not_found("plugin", key))
}

/// Environments that are configured for one driver cannot be leased by another.
async fn same_driver(tx: &mut Tx, current: Option<&Revision>, to: &Revision) -> Result<()> {
    let Some(current) = current.filter(|current| current.driver != to.driver) else {
        return Ok(());
    };
    let (environments, leases) = usage(tx, &to.key).await?;
    if environments + leases == 0 {
        return Ok(());
    }
    Err(Error::conflict_with(
        code::PLUGIN_IN_USE,
        format!(
            "this component leases {} environments, the installed {:?} leases {} environments and is in use",
            to.driver.as_str(),
            to.key,
            current.driver.as_str()
        ),
        json!({ "environments": environments, "leases": leases }),
    ))
}

/// Makes a granted revision current; where it waited it waits no more.
async fn promote(
    tx: &mut Tx,
    key: &str,
    mut row: PluginRow,
    digest: &str,
    memory: Arc<EnvironmentMemory>,
) -> Result<()> {
    if row.current.as_deref() != Some(digest) {
        row.previous = row.current.replace(digest.to_owned());
    }
    if row.pending.as_deref() == Some(digest) {
        row.pending = None;
    }
    put_plugin(tx, key, &row).await?;
    environment::raise_for_provider(tx, key, memory).await
}

/// Whether nothing changes: the current component once more, with nothing granted, or with what was granted before.
fn is_the_same(current: &Revision, digest: &str, grant: Option<&Grant>) -> bool {
    current.digest == digest
        && grant.is_none_or(|grant| {
            let before = current.grant.as_ref();
            before.is_some_and(|before| before.grant == grant.of(&current.manifest))
        })
}

async fn install(
    tx: &mut Tx,
    actor: Actor,
    new: NewRevision,
    person: Option<Grant>,
    memory: Arc<EnvironmentMemory>,
) -> Result<Plugin> {
    let key = new.manifest.key.clone();
    let mut row = plugin_row(&mut tx.db, &tx.keys, &key)
        .await?
        .unwrap_or_else(PluginRow::empty);
    let before = row.current.clone();
    let current = match &before {
        Some(digest) => Some(needed(tx, &key, digest).await?),
        None => None,
    };
    if let Some(current) = &current
        && is_the_same(current, &new.digest, person.as_ref())
    {
        if current.source != new.source {
            put_source(tx, &new).await?;
            let came = json!({
                "digest": new.digest,
                "source": new.source,
                "before": current.source,
                "kept": !current.source.gives_way_to(&new.source),
            });
            let entry = Entry::new("plugin.came_again", None, "plugin", &key, came);
            tx.record(&actor, entry).await?;
        }
        return load(tx, &key).await;
    }
    put_revision(tx, &new).await?;
    let revision = needed(tx, &key, &new.digest).await?;
    same_driver(tx, current.as_ref(), &revision).await?;
    let wider = current
        .as_ref()
        .map(|current| wider(current, &revision.manifest, &revision.capabilities));
    let carried = current
        .as_ref()
        .and_then(|current| current.grant.as_ref())
        .filter(|_| wider.as_ref().is_some_and(Vec::is_empty));
    let granted = match (person, carried) {
        (Some(person), _) => Some((person.of(&revision.manifest), None)),
        (None, Some(earlier)) => {
            let grant = earlier.grant.of(&revision.manifest);
            Some((grant, Some(earlier.id.clone())))
        }
        (None, None) => None,
    };
    let grant_id = match &granted {
        Some((grant, from)) => {
            not_narrower_in_use(tx, &revision, grant).await?;
            let allowed = Allowed {
                digest: &new.digest,
                asks: &new.asks,
                request_digest: &new.request_digest,
                grant,
                carried_from: from.clone(),
                by: &actor.display,
            };
            let id = put_grant(tx, allowed).await?;
            row.pending = None;
            promote(tx, &key, row, &new.digest, memory).await?;
            Some(id)
        }
        None => {
            row.pending = Some(new.digest.clone());
            put_plugin(tx, &key, &row).await?;
            None
        }
    };
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
                "pending": grant_id.is_none(),
                "grant": grant_id,
                "carriedFrom": granted.and_then(|(_, from)| from),
                "requestDigest": new.request_digest,
                "source": new.source,
                "wider": wider,
                "before": before,
            }),
        ),
    )
    .await?;
    load(tx, &key).await
}

/// Fails where a grant takes something from a revision that leases need.
async fn not_narrower_in_use(tx: &mut Tx, revision: &Revision, grant: &Grant) -> Result<()> {
    if (revision.grant.as_ref()).is_none_or(|before| before.grant.is_within(grant)) {
        return Ok(());
    }
    let leases: i64 = sqlx::query_scalar(
        "SELECT COUNT(*) FROM leases WHERE plugin_digest = $1
             AND status NOT IN ('released', 'failed', 'abandoned')",
    )
    .bind(&revision.digest)
    .fetch_one(&mut tx.db)
    .await?;
    if leases == 0 {
        return Ok(());
    }
    Err(Error::conflict_with(
        code::PLUGIN_IN_USE,
        format!(
            "{leases} leases that have not ended need what this takes from plugin {:?}: disable it and release them first",
            revision.key
        ),
        json!({ "leases": leases }),
    ))
}

async fn grant(
    tx: &mut Tx,
    actor: Actor,
    key: String,
    digest: String,
    decision: Decision,
    memory: Arc<EnvironmentMemory>,
) -> Result<Plugin> {
    let row = row_of(tx, &key).await?;
    let before = row.current.clone();
    let is_named = |pointer: &Option<String>| pointer.as_deref() == Some(digest.as_str());
    if !is_named(&row.pending) && !is_named(&row.current) {
        return Err(Error::not_found("pending or current revision", &digest));
    }
    let revision = needed(tx, &key, &digest).await?;
    if let Some(current) = &before {
        let current = needed(tx, &key, current).await?;
        same_driver(tx, Some(&current), &revision).await?;
    }
    let grant = decision.grant.of(&revision.manifest);
    not_narrower_in_use(tx, &revision, &grant).await?;
    let allowed = Allowed {
        digest: &digest,
        asks: &decision.asks,
        request_digest: &decision.request_digest,
        grant: &grant,
        carried_from: None,
        by: &actor.display,
    };
    let id = put_grant(tx, allowed).await?;
    promote(tx, &key, row, &digest, memory).await?;
    tx.record(
        &actor,
        Entry::new(
            "plugin.granted",
            None,
            "plugin",
            &key,
            json!({
                "digest": digest,
                "grant": id,
                "requestDigest": decision.request_digest,
                "before": before,
            }),
        ),
    )
    .await?;
    load(tx, &key).await
}

async fn deny(tx: &mut Tx, actor: Actor, key: String) -> Result<Option<Plugin>> {
    let mut row = row_of(tx, &key).await?;
    let Some(digest) = row.pending.take() else {
        return Err(nothing_waits(&key));
    };
    let gone = row.current.is_none();
    if gone {
        sqlx::query("DELETE FROM plugins WHERE plugin_key = $1")
            .bind(&key)
            .execute(&mut tx.db)
            .await?;
    } else {
        put_plugin(tx, &key, &row).await?;
    }
    tx.record(
        &actor,
        Entry::new(
            "plugin.denied",
            None,
            "plugin",
            &key,
            json!({ "digest": digest }),
        ),
    )
    .await?;
    if gone {
        return Ok(None);
    }
    load(tx, &key).await.map(Some)
}

fn nothing_waits(key: &str) -> Error {
    Error::not_found("pending revision of plugin", key)
}

async fn rollback(
    tx: &mut Tx,
    actor: Actor,
    key: String,
    memory: Arc<EnvironmentMemory>,
) -> Result<Plugin> {
    let row = row_of(tx, &key).await?;
    let (Some(from), Some(to)) = (row.current.clone(), row.previous.clone()) else {
        return Err(Error::not_found("previous revision of plugin", &key));
    };
    let current = needed(tx, &key, &from).await?;
    let previous = needed(tx, &key, &to).await?;
    if previous.grant.is_none() {
        return Err(Error::corrupt(format!("plugin {key}")));
    }
    same_driver(tx, Some(&current), &previous).await?;
    promote(tx, &key, row, &to, memory).await?;
    tx.record(
        &actor,
        Entry::new(
            "plugin.rolled_back",
            None,
            "plugin",
            &key,
            json!({ "from": from, "to": to }),
        ),
    )
    .await?;
    load(tx, &key).await
}

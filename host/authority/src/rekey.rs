//! Another master key for a database, while no server has it open.
//!
//! In order: the new key is durable beside the old; one transaction wraps and authenticates everything anew; the new
//! key takes the old one's place. A crash at any moment leaves a key at its path, and a database that opens: with the
//! old key before the commit, and after it by [`end`], which finds the new key beside the old.
//!
//! What stands outside the database stays valid, by the subkeys that are carried over: tokens that people hold, and
//! owner labels on what leases made.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use cap_std::fs::Dir;
use serde_json::json;
use sqlx::SqliteConnection;

use crate::activity::{self, Entry, Head};
use crate::actor::Actor;
use crate::error::{Error, Result};
use crate::instance::{Instance, identify, take_key};
use crate::keys::{MasterKey, MasterKeyError};
use crate::open::{Authority, OpenError, Options, lock, turn};
use crate::store::{self, now_ms};
use crate::{assignment, environment, idempotency, lease, plugin, secret, token};

/// What a change of the master key did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rekeyed {
    /// Rows that were wrapped or authenticated anew. None where a change that was broken off had only its end left.
    pub rows: Option<u64>,
    /// Where the old key stays. It opens what was copied before, and nothing else any more.
    pub old_key: PathBuf,
}

impl Authority {
    /// Gives the database another master key, or ends what was broken off. Refused while a server has it open.
    ///
    /// # Errors
    /// Nothing has changed then, but for a key beside the old one that the next try takes. A row that does not verify
    /// under the old key is named: it is not blessed by the new one.
    pub async fn rekey(options: Options, actor: &Actor) -> Result<Rekeyed, OpenError> {
        let Options {
            database,
            data_dir,
            master_key,
            replica,
        } = options;
        // From here on nobody opens.
        let _opening = turn(&data_dir).await?;
        let _replicas = every_replica(&data_dir, &replica)?;
        let io = |error| OpenError::Io {
            path: database.clone(),
            error,
        };
        if !store::exists(&database).map_err(io)? {
            return Err(OpenError::NoDatabase(database));
        }
        let old = MasterKey::open(&master_key, &data_dir, false)?;
        let mut db = store::connect(&database)
            .await
            .map_err(|error| OpenError::Schema {
                database: database.clone(),
                error,
            })?;
        let done = async {
            let found = identify(&mut db, &old)
                .await
                .map_err(|e| failed(&database, e))?;
            let Some(instance) = found else {
                let (_, old_key) = end(&mut db, &database, &old, &master_key, &data_dir).await?;
                return Ok(Rekeyed {
                    rows: None,
                    old_key,
                });
            };
            let new = MasterKey::open(&MasterKey::next_path(&master_key), &data_dir, true)?;
            let rows = take_anew(&mut db, &instance, &new, &replica, actor)
                .await
                .map_err(|e| failed(&database, e))?;
            // What the old key wrapped leaves the log, too.
            if let Err(error) = store::empty_log(&mut db).await {
                tracing::warn!(%error, "the database's log still has what the old key wrapped");
            }
            Ok::<_, OpenError>(Rekeyed {
                rows: Some(rows),
                old_key: new.succeed(&old, &master_key)?,
            })
        };
        let done = done.await;
        store::discard(db).await;
        done
    }
}

fn failed(database: &Path, error: Error) -> OpenError {
    OpenError::Storage {
        database: database.to_owned(),
        error: Box::new(error),
    }
}

/// The locks of every replica that ever opened here, and of this one.
fn every_replica(data_dir: &Dir, own: &str) -> Result<Vec<std::fs::File>, OpenError> {
    let io = |error| OpenError::Io {
        path: PathBuf::from("."),
        error,
    };
    let mut names = vec![own.to_owned()];
    for entry in data_dir.entries().map_err(io)? {
        let name = entry.map_err(io)?.file_name();
        let replica = name
            .to_str()
            .and_then(|n| n.strip_prefix("replica-")?.strip_suffix(".lock"));
        names.extend(replica.filter(|r| *r != own).map(str::to_owned));
    }
    names.iter().map(|name| lock(data_dir, name)).collect()
}

/// Everything under the new key, in one transaction.
async fn take_anew(
    db: &mut SqliteConnection,
    instance: &Instance,
    new: &MasterKey,
    replica: &str,
    actor: &Actor,
) -> Result<u64> {
    let mut tx = store::begin(db).await?;
    let old = &instance.keys;
    let keys = take_key(&mut tx, instance, new).await?;
    let mut rows = 1;
    rows += token::sign_again(&mut tx, old, &keys).await?;
    rows += plugin::sign_again(&mut tx, old, &keys).await?;
    rows += secret::re_wrap(&mut tx, old, &keys).await?;
    rows += environment::sign_again(&mut tx, old, &keys).await?;
    rows += assignment::sign_again(&mut tx, old, &keys).await?;
    rows += lease::sign_again(&mut tx, old, &keys).await?;
    rows += idempotency::sign_again(&mut tx, old, &keys).await?;
    let (recorded, heads) = activity::sign_again(&mut tx, old, &keys).await?;
    rows += recorded;
    let ends: BTreeMap<&String, serde_json::Value> = heads
        .iter()
        .map(|(replica, head)| {
            (
                replica,
                json!({ "sequence": head.sequence, "mac": hex(head) }),
            )
        })
        .collect();
    let head = activity::stored_head(&mut *tx, replica).await?;
    let now: i64 = sqlx::query_scalar(concat!("SELECT ", now_ms!()))
        .fetch_one(&mut *tx)
        .await?;
    activity::append(
        &mut tx,
        &keys,
        replica,
        &head,
        &activity::Link {
            at: now,
            by: &activity::By::of(actor),
            times: 1,
        },
        Entry::new(
            "instance.rekeyed",
            None,
            "instance",
            &instance.host,
            json!({ "rows": rows, "ends": ends }),
        ),
    )
    .await?;
    tx.commit().await?;
    Ok(rows)
}

fn hex(head: &Head) -> String {
    head.mac.iter().map(|b| format!("{b:02x}")).collect()
}

/// Ends a change of the master key whose database is the new key's already. Answers who the database is, and where the
/// old key stays.
///
/// # Errors
/// [`OpenError::WrongMasterKey`]: no such change was broken off, and the key that was given is another database's.
pub(crate) async fn end(
    db: &mut SqliteConnection,
    database: &Path,
    old: &MasterKey,
    master_key: &Path,
    data_dir: &Dir,
) -> Result<(Instance, PathBuf), OpenError> {
    let wrong = || OpenError::WrongMasterKey {
        master_key: master_key.to_owned(),
        database: database.to_owned(),
    };
    let new = match MasterKey::open(&MasterKey::next_path(master_key), data_dir, false) {
        Ok(new) => new,
        Err(MasterKeyError::Missing(_)) => return Err(wrong()),
        Err(error) => return Err(error.into()),
    };
    let found = identify(db, &new).await.map_err(|e| failed(database, e))?;
    let instance = found.ok_or_else(wrong)?;
    let old_key = new.succeed(old, master_key)?;
    tracing::info!(old_key = %old_key.display(), "a change of the master key that was broken off is ended");
    Ok((instance, old_key))
}

//! Who a database is: the one row of its instance, and that the master key is its own.
//!
//! The row has the salt that the subkeys are derived with, and, sealed, those that were carried over from another master
//! key. Nothing of it is believed before its MAC has verified.

use sqlx::{Row as _, SqliteConnection};

use crate::error::{Error, Result};
use crate::id;
use crate::keys::{Keys, Mac, MasterKey};
use crate::secret::seal::{self, Aad};
use crate::store::now_ms;

/// Who this database is.
pub(crate) struct Instance {
    pub keys: Keys,
    pub host: String,
    pub incarnation: String,
    pub incarnations: i64,
}

fn instance_mac(
    keys: &Keys,
    host: &str,
    incarnation: &str,
    incarnations: i64,
    carried: Option<&[u8]>,
) -> Mac {
    Mac::new(&keys.instance, "instance")
        .text(host)
        .text(incarnation)
        .int(incarnations)
        .bytes(carried.unwrap_or_default())
}

fn key_check(keys: &Keys) -> Mac {
    Mac::new(&keys.instance, "key-check")
}

/// Makes an empty database somebody.
async fn found(db: &mut SqliteConnection, master: &MasterKey) -> Result<()> {
    let mut salt = [0u8; 32];
    id::random(&mut salt)?;
    let keys = Keys::derive(master, &salt);
    let (host, incarnation) = (id::fresh("host-")?, id::fresh("inc-")?);
    let check = key_check(&keys).done();
    let mac = instance_mac(&keys, &host, &incarnation, 1, None).done();
    // Of two servers that start on an empty database at once, one makes the row and both read it.
    sqlx::query(concat!(
        "INSERT INTO instance (id, host, salt, key_check, incarnation, incarnations, created_at, mac)
         VALUES (1, $1, $2, $3, $4, 1, ",
        now_ms!(),
        ", $5) ON CONFLICT (id) DO NOTHING"
    ))
    .bind(&host)
    .bind(&salt[..])
    .bind(&check[..])
    .bind(&incarnation)
    .bind(&mac[..])
    .execute(&mut *db)
    .await?;
    Ok(())
}

/// Reads who this database is, or makes it somebody. None: the master key is another database's.
pub(crate) async fn identify(
    db: &mut SqliteConnection,
    master: &MasterKey,
) -> Result<Option<Instance>> {
    found(db, master).await?;
    let row = sqlx::query("SELECT * FROM instance WHERE id = 1")
        .fetch_one(&mut *db)
        .await?;
    let mut keys = Keys::derive(master, row.try_get("salt")?);
    if !key_check(&keys).verifies(row.try_get("key_check")?) {
        return Ok(None);
    }
    let (host, incarnation): (String, String) = (row.try_get("host")?, row.try_get("incarnation")?);
    let incarnations: i64 = row.try_get("incarnations")?;
    let carried: Option<&[u8]> = row.try_get("carried")?;
    let mac = instance_mac(&keys, &host, &incarnation, incarnations, carried);
    if !mac.verifies(row.try_get("mac")?) {
        return Err(Error::corrupt("the instance row"));
    }
    if let Some(carried) = carried {
        let what = "the keys in the instance row";
        let carried = seal::open(&keys.carry, &Aad::carried(&host), carried, what)?;
        if !keys.take_over(&carried) {
            return Err(Error::corrupt(what));
        }
    }
    Ok(Some(Instance {
        keys,
        host,
        incarnation,
        incarnations,
    }))
}

/// Writes the instance row for another master key, with what is carried over to it. Answers its subkeys.
pub(crate) async fn take_key(
    db: &mut SqliteConnection,
    instance: &Instance,
    master: &MasterKey,
) -> Result<Keys> {
    let mut salt = [0u8; 32];
    id::random(&mut salt)?;
    let mut keys = Keys::derive(master, &salt);
    let over = instance.keys.carried();
    let carried = seal::seal(&keys.carry, &Aad::carried(&instance.host), &over)?;
    if !keys.take_over(&over) {
        return Err(Error::Internal("subkeys of another length".into()));
    }
    let check = key_check(&keys).done();
    let (host, incarnation) = (&instance.host, &instance.incarnation);
    let count = instance.incarnations;
    let mac = instance_mac(&keys, host, incarnation, count, Some(&carried)).done();
    sqlx::query(
        "UPDATE instance SET salt = $1, key_check = $2, carried = $3, mac = $4 WHERE id = 1",
    )
    .bind(&salt[..])
    .bind(&check[..])
    .bind(&carried)
    .bind(&mac[..])
    .execute(&mut *db)
    .await?;
    Ok(keys)
}

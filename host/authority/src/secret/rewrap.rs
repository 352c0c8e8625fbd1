//! All of it under other keys: the data keys wrapped anew, the rows authenticated anew.
//!
//! Each wrapping and each MAC is opened by the old key first: what was edited is not blessed. Values are sealed by
//! their data keys and stay as they are.

use sqlx::{Row as _, SqliteConnection};

use super::row;
use super::seal::{self, Aad, Holder, Place};
use crate::error::Result;
use crate::keys::Keys;
use crate::store::Row;

/// Takes every secret, version, binding and pin from the old keys to the new. Returns how many rows.
pub(crate) async fn re_wrap(db: &mut SqliteConnection, old: &Keys, new: &Keys) -> Result<u64> {
    let mut rows = 0;
    for secret in row::all(&mut *db, old).await? {
        row::sign(db, new, &secret).await?;
        rows += 1;
        for mut version in row::list_versions(&mut *db, old, &secret.id).await? {
            if let Some(wrapped) = &version.wrapped {
                let aad = Aad::kept(secret.scope(), &secret.id, version.version);
                let key = seal::unwrap_key(&old.secrets, &aad, wrapped, &version.what())?;
                version.wrapped = Some(seal::seal(&new.secrets, &aad, &key[..])?);
            }
            row::store_version(db, new, &version).await?;
            rows += 1;
        }
    }
    let bindings = sqlx::query(
        "SELECT b.*, e.company_id FROM secret_bindings b JOIN environments e ON e.id = b.environment_id",
    )
    .fetch_all(&mut *db)
    .await?;
    for found in &bindings {
        let environment: &str = found.try_get("environment_id")?;
        let wrapped = again(old, new, found, Holder::Environment(environment))?;
        sqlx::query(
            "UPDATE secret_bindings SET wrapped = $3 WHERE environment_id = $1 AND pointer = $2",
        )
        .bind(environment)
        .bind(found.try_get::<&str, _>("pointer")?)
        .bind(wrapped)
        .execute(&mut *db)
        .await?;
        rows += 1;
    }
    let pins = sqlx::query(
        "SELECT p.*, l.company_id FROM lease_secrets p JOIN leases l ON l.id = p.lease_id",
    )
    .fetch_all(&mut *db)
    .await?;
    for found in &pins {
        let lease: &str = found.try_get("lease_id")?;
        let wrapped = again(old, new, found, Holder::Lease(lease))?;
        sqlx::query("UPDATE lease_secrets SET wrapped = $3 WHERE lease_id = $1 AND pointer = $2")
            .bind(lease)
            .bind(found.try_get::<&str, _>("pointer")?)
            .bind(wrapped)
            .execute(&mut *db)
            .await?;
        rows += 1;
    }
    Ok(rows)
}

/// The data key of a place, wrapped by the new key.
fn again(old: &Keys, new: &Keys, found: &Row, holder: Holder<'_>) -> Result<Vec<u8>> {
    let place = Place {
        holder,
        pointer: found.try_get("pointer")?,
        secret: found.try_get("secret_id")?,
        version: found.try_get("version")?,
        sites: found.try_get("sites")?,
        destinations: found.try_get("destinations")?,
    };
    let company: Option<&str> = found.try_get("company_id")?;
    let aad = Aad::place(company.unwrap_or_default(), &place);
    let what = format!(
        "the binding of secret {} at {}",
        place.secret, place.pointer
    );
    let key = seal::unwrap_key(&old.secrets, &aad, found.try_get("wrapped")?, &what)?;
    seal::seal(&new.secrets, &aad, &key[..])
}

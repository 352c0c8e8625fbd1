//! The rows of secrets and their versions: their authentication and their way to the database.
//!
//! Nothing of a row is believed before its MAC has verified: which version is the newest, and whether one may
//! still be bound, decide what a credential is.

use std::str::FromStr;

use serde::{Deserialize, Serialize};
use sqlx::{Row as _, SqliteConnection};

use crate::error::{Error, Result};
use crate::keys::{Keys, Mac};
use crate::store::{Db, Row, Tx};

/// What a value is for; for people and for finding it again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SecretPurpose {
    /// A private key.
    Key,
    /// A password or a passphrase.
    Password,
    /// A bearer token or an API key.
    Token,
    /// A certificate.
    Certificate,
    /// Anything else.
    #[default]
    Other,
}

impl SecretPurpose {
    /// Every purpose, as it is written.
    pub const ALL: [(&'static str, SecretPurpose); 5] = [
        ("key", SecretPurpose::Key),
        ("password", SecretPurpose::Password),
        ("token", SecretPurpose::Token),
        ("certificate", SecretPurpose::Certificate),
        ("other", SecretPurpose::Other),
    ];

    /// As it is stored and written.
    pub fn as_str(self) -> &'static str {
        match self {
            SecretPurpose::Key => "key",
            SecretPurpose::Password => "password",
            SecretPurpose::Token => "token",
            SecretPurpose::Certificate => "certificate",
            SecretPurpose::Other => "other",
        }
    }
}

/// No purpose has this name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a purpose is key, password, token, certificate or other")]
pub struct UnknownPurpose;

impl FromStr for SecretPurpose {
    type Err = UnknownPurpose;

    fn from_str(text: &str) -> Result<SecretPurpose, UnknownPurpose> {
        SecretPurpose::ALL
            .iter()
            .find(|(name, _)| *name == text)
            .map(|(_, purpose)| *purpose)
            .ok_or(UnknownPurpose)
    }
}

/// A secret's record; never a value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Secret {
    /// `sec_…`.
    pub id: String,
    /// Whose it is; none for one of the instance.
    pub company_id: Option<String>,
    /// Unique in the company, or among those of the instance.
    pub name: String,
    /// What the value is for.
    pub purpose: SecretPurpose,
    /// For a person.
    pub description: Option<String>,
    /// The newest version; versions count from 1.
    pub latest_version: i64,
    /// Milliseconds since the epoch.
    pub created_at: i64,
    /// When the last version was put, or the record changed.
    pub updated_at: i64,
}

impl Secret {
    /// Whose it is, as encryption names it: a company's id, or nothing for the instance.
    pub(super) fn scope(&self) -> &str {
        self.company_id.as_deref().unwrap_or_default()
    }

    /// Whether an environment of this company may refer to it.
    pub(super) fn serves(&self, company: &str) -> bool {
        self.company_id.as_deref().is_none_or(|own| own == company)
    }

    fn mac(&self, keys: &Keys) -> Mac {
        Mac::new(&keys.targets, "secret")
            .text(&self.id)
            .text_or(self.company_id.as_deref())
            .text(&self.name)
            .text(self.purpose.as_str())
            .text_or(self.description.as_deref())
            .int(self.latest_version)
    }
}

/// Whether a version may be bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum VersionStatus {
    /// It may.
    Enabled,
    /// It may not, until it is enabled again.
    Disabled,
    /// Its value is gone for ever; the record stays.
    Destroyed,
}

impl VersionStatus {
    /// As it is stored and written.
    pub fn as_str(self) -> &'static str {
        match self {
            VersionStatus::Enabled => "enabled",
            VersionStatus::Disabled => "disabled",
            VersionStatus::Destroyed => "destroyed",
        }
    }

    fn parse(text: &str) -> Option<VersionStatus> {
        [
            VersionStatus::Enabled,
            VersionStatus::Disabled,
            VersionStatus::Destroyed,
        ]
        .into_iter()
        .find(|s| s.as_str() == text)
    }
}

/// A version's row. The sealed value and the wrapped key authenticate themselves.
pub(super) struct VersionRow {
    pub secret: String,
    pub version: i64,
    pub status: VersionStatus,
    pub sealed: Option<Vec<u8>>,
    pub wrapped: Option<Vec<u8>>,
    pub created_by: String,
    pub created_at: i64,
}

impl VersionRow {
    pub fn what(&self) -> String {
        format!("version {} of secret {}", self.version, self.secret)
    }

    fn mac(&self, keys: &Keys) -> Mac {
        Mac::new(&keys.targets, "secret-version")
            .text(&self.secret)
            .int(self.version)
            .text(self.status.as_str())
            .text(&self.created_by)
            .int(self.created_at)
    }
}

fn secret(keys: &Keys, row: &Row) -> Result<Secret> {
    let id: String = row.try_get("id")?;
    let corrupt = || Error::corrupt(format!("secret {id}"));
    let secret = Secret {
        id: id.clone(),
        company_id: row.try_get("company_id")?,
        name: row.try_get("name")?,
        purpose: row
            .try_get::<String, _>("purpose")?
            .parse()
            .map_err(|_| corrupt())?,
        description: row.try_get("description")?,
        latest_version: row.try_get("latest")?,
        created_at: row.try_get("created_at")?,
        updated_at: row.try_get("updated_at")?,
    };
    if !secret.mac(keys).verifies(row.try_get("mac")?) {
        return Err(corrupt());
    }
    Ok(secret)
}

fn version(keys: &Keys, row: &Row) -> Result<VersionRow> {
    let (id, number): (String, i64) = (row.try_get("secret_id")?, row.try_get("version")?);
    let corrupt = || Error::corrupt(format!("version {number} of secret {id}"));
    let version = VersionRow {
        secret: id.clone(),
        version: number,
        status: VersionStatus::parse(row.try_get("status")?).ok_or_else(corrupt)?,
        sealed: row.try_get("sealed")?,
        wrapped: row.try_get("wrapped")?,
        created_by: row.try_get("created_by")?,
        created_at: row.try_get("created_at")?,
    };
    if !version.mac(keys).verifies(row.try_get("mac")?) {
        return Err(corrupt());
    }
    Ok(version)
}

pub(super) async fn load<'e>(
    db: impl sqlx::Executor<'e, Database = Db>,
    keys: &Keys,
    id: &str,
) -> Result<Secret> {
    let row = sqlx::query("SELECT * FROM secrets WHERE id = $1")
        .bind(id)
        .fetch_optional(db)
        .await?
        .ok_or_else(|| Error::not_found("secret", id))?;
    secret(keys, &row)
}

/// Those of a company, or of the instance, by name.
pub(super) async fn list<'e>(
    db: impl sqlx::Executor<'e, Database = Db>,
    keys: &Keys,
    company: Option<&str>,
) -> Result<Vec<Secret>> {
    let rows =
        sqlx::query("SELECT * FROM secrets WHERE company_id IS NOT DISTINCT FROM $1 ORDER BY name")
            .bind(company)
            .fetch_all(db)
            .await?;
    rows.iter().map(|row| secret(keys, row)).collect()
}

/// Every secret of everybody.
pub(super) async fn all(db: &mut SqliteConnection, keys: &Keys) -> Result<Vec<Secret>> {
    let rows = sqlx::query("SELECT * FROM secrets ORDER BY id")
        .fetch_all(db)
        .await?;
    rows.iter().map(|row| secret(keys, row)).collect()
}

/// Authenticates a row under other keys.
pub(super) async fn sign(db: &mut SqliteConnection, keys: &Keys, s: &Secret) -> Result<()> {
    let mac = s.mac(keys).done();
    sqlx::query("UPDATE secrets SET mac = $2 WHERE id = $1")
        .bind(&s.id)
        .bind(&mac[..])
        .execute(db)
        .await?;
    Ok(())
}

pub(super) async fn insert(tx: &mut Tx, s: &Secret) -> Result<()> {
    let mac = s.mac(&tx.keys).done();
    sqlx::query(
        "INSERT INTO secrets (id, company_id, name, purpose, description, latest, created_at, updated_at, mac)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)",
    )
    .bind(&s.id)
    .bind(&s.company_id)
    .bind(&s.name)
    .bind(s.purpose.as_str())
    .bind(&s.description)
    .bind(s.latest_version)
    .bind(s.created_at)
    .bind(s.updated_at)
    .bind(&mac[..])
    .execute(&mut tx.db)
    .await?;
    Ok(())
}

/// Writes that there is a newer version.
pub(super) async fn store_latest(tx: &mut Tx, s: &Secret) -> Result<()> {
    let mac = s.mac(&tx.keys).done();
    sqlx::query("UPDATE secrets SET latest = $2, updated_at = $3, mac = $4 WHERE id = $1")
        .bind(&s.id)
        .bind(s.latest_version)
        .bind(s.updated_at)
        .bind(&mac[..])
        .execute(&mut tx.db)
        .await?;
    Ok(())
}

pub(super) async fn load_version<'e>(
    db: impl sqlx::Executor<'e, Database = Db>,
    keys: &Keys,
    id: &str,
    number: i64,
) -> Result<Option<VersionRow>> {
    sqlx::query("SELECT * FROM secret_versions WHERE secret_id = $1 AND version = $2")
        .bind(id)
        .bind(number)
        .fetch_optional(db)
        .await?
        .map(|row| version(keys, &row))
        .transpose()
}

/// A secret, and whether this version of it may be used.
pub(crate) async fn with_status(
    db: &mut SqliteConnection,
    keys: &Keys,
    id: &str,
    number: i64,
) -> Result<(Secret, VersionStatus)> {
    let secret = load(&mut *db, keys, id).await?;
    let version = load_version(&mut *db, keys, id, number)
        .await?
        .ok_or_else(|| Error::corrupt(format!("version {number} of secret {id}")))?;
    Ok((secret, version.status))
}

/// Every version, the newest first.
pub(super) async fn list_versions<'e>(
    db: impl sqlx::Executor<'e, Database = Db>,
    keys: &Keys,
    id: &str,
) -> Result<Vec<VersionRow>> {
    let rows =
        sqlx::query("SELECT * FROM secret_versions WHERE secret_id = $1 ORDER BY version DESC")
            .bind(id)
            .fetch_all(db)
            .await?;
    rows.iter().map(|row| version(keys, row)).collect()
}

pub(super) async fn insert_version(tx: &mut Tx, v: &VersionRow) -> Result<()> {
    let mac = v.mac(&tx.keys).done();
    sqlx::query(
        "INSERT INTO secret_versions (secret_id, version, status, sealed, wrapped, created_by, created_at, mac)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8)",
    )
    .bind(&v.secret)
    .bind(v.version)
    .bind(v.status.as_str())
    .bind(&v.sealed)
    .bind(&v.wrapped)
    .bind(&v.created_by)
    .bind(v.created_at)
    .bind(&mac[..])
    .execute(&mut tx.db)
    .await?;
    Ok(())
}

/// Writes what may change of a version, under `keys`.
pub(super) async fn store_version(
    db: &mut SqliteConnection,
    keys: &Keys,
    v: &VersionRow,
) -> Result<()> {
    let mac = v.mac(keys).done();
    sqlx::query(
        "UPDATE secret_versions SET status = $3, sealed = $4, wrapped = $5, mac = $6
         WHERE secret_id = $1 AND version = $2",
    )
    .bind(&v.secret)
    .bind(v.version)
    .bind(v.status.as_str())
    .bind(&v.sealed)
    .bind(&v.wrapped)
    .bind(&mac[..])
    .execute(db)
    .await?;
    Ok(())
}

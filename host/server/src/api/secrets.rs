//! Secrets: put in, rotated, shown with what uses them, and deleted. No path of the API ever answers a value.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use leasehold_authority::{
    EnvironmentUse, LeaseUse, NewSecret, Secret, SecretPurpose, SecretUses, SecretVersion,
    Selector, VersionStatus,
};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use zeroize::Zeroizing;

use super::body::{Id, IdAndNumber, Json, Query};
use super::environments::one_of;
use super::errors::ApiError;
use super::pages::{self, PageQuery, Place};
use super::time::Time;
use crate::access::Caller;
use crate::app::App;

/// A secret, without its value.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Secret)]
pub struct SecretView {
    /// `sec_…`
    id: String,
    /// None for a secret of the instance, which environments of any company may refer to.
    company_id: Option<String>,
    /// Unique in its company, or among those of the instance.
    name: String,
    /// `key`, `password`, `token`, `certificate` or `other`
    purpose: &'static str,
    description: Option<String>,
    /// The newest version, from 1.
    version: i64,
    created_at: Time,
    updated_at: Time,
}

impl From<Secret> for SecretView {
    fn from(row: Secret) -> SecretView {
        SecretView {
            id: row.id,
            company_id: row.company_id,
            name: row.name,
            purpose: row.purpose.as_str(),
            description: row.description,
            version: row.latest_version,
            created_at: row.created_at.into(),
            updated_at: row.updated_at.into(),
        }
    }
}

/// A secret as it is put in.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct SecretDraft {
    /// Unique in its company, or among those of the instance.
    name: String,
    description: Option<String>,
    /// `key`, `password`, `token`, `certificate` or `other`, which is the default
    purpose: Option<String>,
    /// The value, as text; a final line break is part of it.
    value: String,
}

/// A new value of a secret.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct SecretValue {
    /// The value, as text; a final line break is part of it.
    value: String,
}

/// Which secrets.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
#[into_params(parameter_in = Query)]
pub struct SecretQuery {
    /// Only those of this purpose.
    purpose: Option<String>,
    /// From the `Link` header of the page before.
    cursor: Option<String>,
    /// At most this many, 1 to 500; 100 without.
    limit: Option<u32>,
}

/// How a secret is deleted.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
#[into_params(parameter_in = Query)]
pub struct DeleteQuery {
    /// Also while environments and leases use it, which then miss it; its uses say beforehand which.
    force: Option<bool>,
}

/// A version of a secret, without its value.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = SecretVersion)]
pub struct VersionView {
    /// From 1.
    version: i64,
    /// `enabled`, `disabled` or `destroyed`
    status: &'static str,
    created_by: String,
    created_at: Time,
    /// Environments that use it now.
    environments: i64,
    /// Leases that pinned it and are not finished.
    leases: i64,
}

impl From<SecretVersion> for VersionView {
    fn from(row: SecretVersion) -> VersionView {
        VersionView {
            version: row.version,
            status: row.status.as_str(),
            created_by: row.created_by,
            created_at: row.created_at.into(),
            environments: row.environments,
            leases: row.leases,
        }
    }
}

/// What a version shall be.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct VersionChange {
    /// `enabled`, `disabled` or `destroyed`, after which nothing brings the value back
    status: String,
}

/// A place of an environment where a secret is used.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = EnvironmentUse)]
pub struct EnvironmentUseView {
    environment_id: String,
    /// The environment's name.
    name: String,
    /// None where all companies share it.
    company_id: Option<String>,
    /// RFC 6901 pointer into the configuration, or `env:NAME`.
    config_path: String,
    /// `latest`, or a number that is pinned.
    selector: String,
    /// The version that is used now.
    version: i64,
}

impl From<EnvironmentUse> for EnvironmentUseView {
    fn from(row: EnvironmentUse) -> EnvironmentUseView {
        EnvironmentUseView {
            environment_id: row.environment_id,
            name: row.name,
            company_id: row.company_id,
            config_path: row.pointer,
            selector: match row.selector {
                Selector::Latest => "latest".into(),
                Selector::Version(number) => number.to_string(),
            },
            version: row.version,
        }
    }
}

/// A place of an unfinished lease where a secret is used.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = LeaseUse)]
pub struct LeaseUseView {
    lease_id: String,
    /// The lease's status.
    status: String,
    company_id: String,
    environment_id: String,
    /// RFC 6901 pointer into the configuration, or `env:NAME`.
    config_path: String,
    /// The version that it was acquired with.
    version: i64,
}

impl From<LeaseUse> for LeaseUseView {
    fn from(row: LeaseUse) -> LeaseUseView {
        LeaseUseView {
            lease_id: row.lease_id,
            status: row.status,
            company_id: row.company_id,
            environment_id: row.environment_id,
            config_path: row.pointer,
            version: row.version,
        }
    }
}

/// What uses a secret.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = SecretUses)]
pub struct SecretUsesView {
    /// How many environments.
    environment_count: usize,
    /// How many unfinished leases.
    lease_count: usize,
    environments: Vec<EnvironmentUseView>,
    leases: Vec<LeaseUseView>,
    /// The settings of the server that name it, such as a source of plugins.
    settings: Vec<String>,
}

impl From<SecretUses> for SecretUsesView {
    fn from(uses: SecretUses) -> SecretUsesView {
        SecretUsesView {
            environment_count: uses.environment_ids().len(),
            lease_count: uses.lease_ids().len(),
            environments: uses.environments.into_iter().map(Into::into).collect(),
            leases: uses.leases.into_iter().map(Into::into).collect(),
            settings: uses.settings,
        }
    }
}

/// The routes.
pub fn router() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(list, create))
        .routes(routes!(list_instance, create_instance))
        .routes(routes!(get, delete))
        .routes(routes!(uses))
        .routes(routes!(versions, put_version))
        .routes(routes!(set_version_status))
}

const PURPOSES: [&str; 5] = ["key", "password", "token", "certificate", "other"];
const STATUSES: [(&str, VersionStatus); 3] = [
    ("enabled", VersionStatus::Enabled),
    ("disabled", VersionStatus::Disabled),
    ("destroyed", VersionStatus::Destroyed),
];

fn hidden(value: String) -> Zeroizing<Vec<u8>> {
    Zeroizing::new(value.into_bytes())
}

fn purpose(pointer: &str, text: Option<&str>) -> Result<Option<SecretPurpose>, ApiError> {
    text.map(|text| text.parse().map_err(|_| one_of(pointer, text, &PURPOSES)))
        .transpose()
}

async fn listed(
    app: &App,
    caller: &Caller,
    company: Option<&str>,
    place: &Place,
    query: SecretQuery,
) -> Result<Response, ApiError> {
    match company {
        Some(company) => caller.sees_known_company(app, company).await?,
        None => caller.sees_all()?,
    };
    let purpose = purpose("?purpose", query.purpose.as_deref())?;
    let secrets = app.service()?.authority().secrets();
    let rows = secrets.list(company, purpose).await?;
    let asked = PageQuery {
        cursor: query.cursor,
        limit: query.limit,
    };
    let page = pages::of(rows, &asked, |row| row.name.clone())?;
    let views: Vec<SecretView> = page.items.into_iter().map(Into::into).collect();
    Ok(place.answer(views, page.next.as_deref()))
}

async fn created(
    app: &App,
    caller: &Caller,
    company: Option<String>,
    body: SecretDraft,
) -> Result<(StatusCode, axum::Json<SecretView>), ApiError> {
    let value = hidden(body.value);
    let new = NewSecret {
        company,
        name: body.name,
        purpose: purpose("/purpose", body.purpose.as_deref())?.unwrap_or_default(),
        description: body.description,
        value,
    };
    let secrets = app.service()?.authority().secrets();
    let row = secrets.create(caller, new).await?;
    Ok((StatusCode::CREATED, axum::Json(row.into())))
}

/// List the secrets of a company
#[utoipa::path(get, path = "/api/companies/{companyId}/secrets", operation_id = "listSecrets", tag = "secrets",
    params(("companyId" = String, Path, description = "The company's id"), SecretQuery),
    responses((status = 200, description = "A page of secrets, by name, without values", body = Vec<SecretView>)))]
async fn list(
    State(app): State<App>,
    caller: Caller,
    Id(company): Id,
    place: Place,
    Query(query): Query<SecretQuery>,
) -> Result<Response, ApiError> {
    listed(&app, &caller, Some(&company), &place, query).await
}

/// Put a secret of a company in
#[utoipa::path(post, path = "/api/companies/{companyId}/secrets", operation_id = "createSecret", tag = "secrets",
    params(("companyId" = String, Path, description = "The company's id")),
    request_body = SecretDraft,
    responses((status = 201, description = "The secret, without its value", body = SecretView)))]
async fn create(
    State(app): State<App>,
    caller: Caller,
    Id(company): Id,
    Json(body): Json<SecretDraft>,
) -> Result<(StatusCode, axum::Json<SecretView>), ApiError> {
    created(&app, &caller, Some(company), body).await
}

/// List the secrets of the instance
///
/// They belong to no company; an environment of any company uses one where an administrator refers to it.
#[utoipa::path(get, path = "/api/secrets", operation_id = "listInstanceSecrets", tag = "secrets",
    params(SecretQuery),
    responses((status = 200, description = "A page of secrets, by name, without values", body = Vec<SecretView>)))]
async fn list_instance(
    State(app): State<App>,
    caller: Caller,
    place: Place,
    Query(query): Query<SecretQuery>,
) -> Result<Response, ApiError> {
    listed(&app, &caller, None, &place, query).await
}

/// Put a secret of the instance in
#[utoipa::path(post, path = "/api/secrets", operation_id = "createInstanceSecret", tag = "secrets",
    request_body = SecretDraft,
    responses((status = 201, description = "The secret, without its value", body = SecretView)))]
async fn create_instance(
    State(app): State<App>,
    caller: Caller,
    Json(body): Json<SecretDraft>,
) -> Result<(StatusCode, axum::Json<SecretView>), ApiError> {
    created(&app, &caller, None, body).await
}

/// Get a secret
#[utoipa::path(get, path = "/api/secrets/{secretId}", operation_id = "getSecret", tag = "secrets",
    params(("secretId" = String, Path, description = "The secret's id")),
    responses((status = 200, description = "The secret, without its value", body = SecretView)))]
async fn get(
    State(app): State<App>,
    caller: Caller,
    Id(id): Id,
) -> Result<axum::Json<SecretView>, ApiError> {
    caller.sees_all()?;
    let row = app.service()?.authority().secrets().get(&id).await?;
    Ok(axum::Json(row.into()))
}

/// List what uses a secret
///
/// This is what deleting it by force would break.
#[utoipa::path(get, path = "/api/secrets/{secretId}/uses", operation_id = "listSecretUses", tag = "secrets",
    params(("secretId" = String, Path, description = "The secret's id")),
    responses((status = 200, description = "Environments and unfinished leases, place by place, and settings", body = SecretUsesView)))]
async fn uses(
    State(app): State<App>,
    caller: Caller,
    Id(id): Id,
) -> Result<axum::Json<SecretUsesView>, ApiError> {
    caller.sees_all()?;
    let uses = app.service()?.authority().secrets().uses(&id).await?;
    Ok(axum::Json(uses.into()))
}

/// List the versions of a secret
#[utoipa::path(get, path = "/api/secrets/{secretId}/versions", operation_id = "listSecretVersions", tag = "secrets",
    params(("secretId" = String, Path, description = "The secret's id"), PageQuery),
    responses((status = 200, description = "A page of versions, the newest first", body = Vec<VersionView>)))]
async fn versions(
    State(app): State<App>,
    caller: Caller,
    Id(id): Id,
    place: Place,
    Query(query): Query<PageQuery>,
) -> Result<Response, ApiError> {
    caller.sees_all()?;
    let rows = app.service()?.authority().secrets().versions(&id).await?;
    let page = pages::of(rows, &query, |row| {
        format!("{:020}", i64::MAX - row.version)
    })?;
    let views: Vec<VersionView> = page.items.into_iter().map(Into::into).collect();
    Ok(place.answer(views, page.next.as_deref()))
}

/// Rotate a secret
///
/// Environments that refer to `latest` use the new value from their next call on, over new connections; leases that
/// exist keep the version they were acquired with, and connect with it again.
#[utoipa::path(post, path = "/api/secrets/{secretId}/versions", operation_id = "rotateSecret", tag = "secrets",
    params(("secretId" = String, Path, description = "The secret's id")),
    request_body = SecretValue,
    responses((status = 201, description = "The secret, with its new version", body = SecretView)))]
async fn put_version(
    State(app): State<App>,
    caller: Caller,
    Id(id): Id,
    Json(body): Json<SecretValue>,
) -> Result<(StatusCode, axum::Json<SecretView>), ApiError> {
    let value = hidden(body.value);
    let row = app.service()?.rotate_secret(&caller, &id, value).await?;
    Ok((StatusCode::CREATED, axum::Json(row.into())))
}

/// Disable, enable or destroy a version of a secret
///
/// Refused for the newest version, and while an environment or an unfinished lease uses it.
#[utoipa::path(patch, path = "/api/secrets/{secretId}/versions/{version}", operation_id = "updateSecretVersion", tag = "secrets",
    params(("secretId" = String, Path, description = "The secret's id"), ("version" = i64, Path, description = "The version's number")),
    request_body = VersionChange,
    responses((status = 200, description = "The version", body = VersionView)))]
async fn set_version_status(
    State(app): State<App>,
    caller: Caller,
    IdAndNumber(id, version): IdAndNumber,
    Json(body): Json<VersionChange>,
) -> Result<axum::Json<VersionView>, ApiError> {
    let status = STATUSES
        .iter()
        .find(|(name, _)| *name == body.status)
        .map(|(_, status)| *status)
        .ok_or_else(|| one_of("/status", &body.status, &STATUSES.map(|(name, _)| name)))?;
    let secrets = app.service()?.authority().secrets();
    let row = secrets
        .set_version_status(&caller, &id, version, status)
        .await?;
    Ok(axum::Json(row.into()))
}

/// Delete a secret
///
/// Refused while an environment, an unfinished lease or the server's settings use it, unless it is forced: then whatever needs it fails with
/// `secret_missing`. The answer is what used it.
#[utoipa::path(delete, path = "/api/secrets/{secretId}", operation_id = "deleteSecret", tag = "secrets",
    params(("secretId" = String, Path, description = "The secret's id"), DeleteQuery),
    responses((status = 200, description = "It is gone; this is what used it", body = SecretUsesView)))]
async fn delete(
    State(app): State<App>,
    caller: Caller,
    Id(id): Id,
    Query(query): Query<DeleteQuery>,
) -> Result<axum::Json<SecretUsesView>, ApiError> {
    let force = query.force.unwrap_or(false);
    let uses = app.service()?.delete_secret(&caller, &id, force).await?;
    Ok(axum::Json(uses.into()))
}

//! Secrets: put in, rotated, bound and deleted. No path of the API ever answers a value.

use axum::extract::State;
use axum::http::StatusCode;
use leasehold_authority::Secret;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use zeroize::Zeroizing;

use super::body::{Id, Json};
use super::errors::ApiError;
use super::time::Time;
use crate::access::{Caller, roles};
use crate::app::App;

/// A secret, without its value.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Secret)]
pub struct SecretView {
    /// `sec_…`
    id: String,
    company_id: String,
    /// Unique in its company.
    name: String,
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
    /// Unique in its company.
    name: String,
    description: Option<String>,
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

/// The routes.
pub fn router() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(list, create))
        .routes(routes!(get, delete))
        .routes(routes!(put_version))
}

fn hidden(value: String) -> Zeroizing<Vec<u8>> {
    Zeroizing::new(value.into_bytes())
}

/// List the secrets of a company
#[utoipa::path(get, path = "/api/companies/{companyId}/secrets", operation_id = "listSecrets", tag = "secrets",
    params(("companyId" = String, Path, description = "The company's id")),
    responses((status = 200, description = "The secrets, without values", body = Vec<SecretView>)))]
async fn list(
    State(app): State<App>,
    caller: Caller,
    Id(company): Id,
) -> Result<axum::Json<Vec<SecretView>>, ApiError> {
    roles::manage(&caller)?;
    let authority = app.service()?.authority();
    authority.companies().get(&company).await?;
    let rows = authority.secrets().list(&company).await?;
    Ok(axum::Json(rows.into_iter().map(Into::into).collect()))
}

/// Put a secret in
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
    let value = hidden(body.value);
    roles::manage(&caller)?;
    let secrets = app.service()?.authority().secrets();
    let row = secrets
        .create(
            &caller,
            &company,
            &body.name,
            body.description.as_deref(),
            value,
        )
        .await?;
    Ok((StatusCode::CREATED, axum::Json(row.into())))
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
    roles::manage(&caller)?;
    let row = app.service()?.authority().secrets().get(&id).await?;
    Ok(axum::Json(row.into()))
}

/// Rotate a secret
///
/// Environments that refer to `latest` use the new value from their next call on; leases that exist keep the
/// version they were acquired with.
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
    roles::manage(&caller)?;
    let secrets = app.service()?.authority().secrets();
    let row = secrets.put_version(&caller, &id, value).await?;
    app.service()?.close_connections(&row.company_id);
    Ok((StatusCode::CREATED, axum::Json(row.into())))
}

/// Delete a secret
///
/// Refused while an environment or an unfinished lease uses it.
#[utoipa::path(delete, path = "/api/secrets/{secretId}", operation_id = "deleteSecret", tag = "secrets",
    params(("secretId" = String, Path, description = "The secret's id")),
    responses((status = 204, description = "It is gone")))]
async fn delete(
    State(app): State<App>,
    caller: Caller,
    Id(id): Id,
) -> Result<StatusCode, ApiError> {
    roles::manage(&caller)?;
    app.service()?
        .authority()
        .secrets()
        .delete(&caller, &id)
        .await?;
    Ok(StatusCode::NO_CONTENT)
}

//! Who had the value of a secret, for what. Never the value.

use axum::extract::State;
use leasehold_authority::{Access, AccessFilter};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::body::{Id, Query};
use super::errors::ApiError;
use super::time::Time;
use crate::access::Caller;
use crate::app::App;

/// A value that somebody had.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = SecretAccess)]
pub struct AccessView {
    /// Its place in the order in which accesses were written.
    position: i64,
    time: Time,
    version: i64,
    /// Whose call it was.
    actor: String,
    /// `local-operator`, `token` or `system`
    actor_kind: String,
    /// The token's id.
    actor_id: Option<String>,
    /// Such as `acquire`, `lease` (pinned for it), `use`, `release`, `probe` or `pull`.
    purpose: String,
    /// None where it was used for the instance itself, as of a registry that plugins come from.
    company_id: Option<String>,
    /// None for a draft that is not saved.
    environment_id: Option<String>,
    lease_id: Option<String>,
    /// The client's own id of its run.
    run_id: Option<String>,
    /// RFC 6901 pointer into the configuration, or `env:NAME`; for the instance itself, the setting that names the secret.
    config_path: String,
    /// Toward whom it may go there.
    destinations: Vec<String>,
}

impl From<Access> for AccessView {
    fn from(row: Access) -> AccessView {
        AccessView {
            position: row.position,
            time: row.at.into(),
            version: row.version,
            actor: row.actor,
            actor_kind: row.actor_kind,
            actor_id: row.actor_id,
            purpose: row.purpose,
            company_id: Some(row.company_id).filter(|id| !id.is_empty()),
            environment_id: row.environment_id,
            lease_id: row.lease_id,
            run_id: row.run,
            config_path: row.pointer,
            destinations: row.destinations,
        }
    }
}

/// A page, the newest first.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct AccessPage {
    items: Vec<AccessView>,
    /// `before` of the next page; none at the beginning.
    next: Option<i64>,
}

/// From where, and how much.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
#[into_params(parameter_in = Query)]
pub struct AccessQuery {
    /// Only what came before this position.
    before: Option<i64>,
    /// At most this many, 1 to 1000; 100 without.
    limit: Option<u32>,
}

/// The routes.
pub fn router() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(list))
}

/// List who had a secret's value, also of a secret that was deleted
#[utoipa::path(get, path = "/api/secrets/{secretId}/accesses", operation_id = "listSecretAccesses", tag = "secrets",
    params(("secretId" = String, Path, description = "The secret's id"), AccessQuery),
    responses((status = 200, description = "A page", body = AccessPage)))]
async fn list(
    State(app): State<App>,
    caller: Caller,
    Id(id): Id,
    Query(query): Query<AccessQuery>,
) -> Result<axum::Json<AccessPage>, ApiError> {
    caller.sees_all()?;
    let limit = query.limit.unwrap_or(100);
    if !(1..=1000).contains(&limit) {
        return Err(ApiError::field(
            "?limit",
            format!("is {limit}; it is a number from 1 to 1000"),
        ));
    }
    let filter = AccessFilter {
        before: query.before,
        limit,
    };
    let secrets = app.service()?.authority().secrets();
    let rows = secrets.accesses(&id, &filter).await?;
    let next = rows
        .last()
        .map(|row| row.position)
        .filter(|_| rows.len() == limit as usize);
    Ok(axum::Json(AccessPage {
        items: rows.into_iter().map(Into::into).collect(),
        next,
    }))
}

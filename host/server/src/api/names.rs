//! From an environment's name to its id, for whoever may lease it and sees nothing else of it.

use axum::extract::State;
use leasehold_authority::{EnvironmentFilter, EnvironmentStatus, Operation};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::body::{Id, Query};
use super::errors::ApiError;
use crate::access::Caller;
use crate::app::App;

/// An environment by its name alone.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct NamedEnvironment {
    /// `env_…`
    id: String,
    name: String,
}

/// Which name.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
#[into_params(parameter_in = Query)]
pub struct NameQuery {
    /// As it stands, letter by letter.
    name: String,
}

/// The routes.
pub fn router() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(resolve))
}

/// Find an environment by its name
///
/// For everyone who may lease it, agents too. Who reads no environments finds the active ones that can be leased.
#[utoipa::path(get, path = "/api/companies/{companyId}/environments/resolve", operation_id = "resolveEnvironment", tag = "environments",
    params(("companyId" = String, Path, description = "The company's id"), NameQuery),
    responses((status = 200, description = "The environment of this name", body = NamedEnvironment)))]
async fn resolve(
    State(app): State<App>,
    caller: Caller,
    Id(company): Id,
    Query(query): Query<NameQuery>,
) -> Result<axum::Json<NamedEnvironment>, ApiError> {
    caller.sees_company(&company)?;
    let reads = caller.may(Operation::ListEnvironments).is_ok();
    let filter = EnvironmentFilter::default();
    let environments = app.service()?.authority().environments();
    let rows = environments.list(&company, &filter).await?;
    rows.iter()
        .find(|row| {
            let leasable = row.status == EnvironmentStatus::Active && !row.is_local();
            row.name == query.name && (reads || leasable)
        })
        .map(|row| {
            axum::Json(NamedEnvironment {
                id: row.id.clone(),
                name: row.name.clone(),
            })
        })
        .ok_or_else(|| ApiError::not_found("environment of the name", &query.name))
}

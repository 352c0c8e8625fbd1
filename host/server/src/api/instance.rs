//! What this server has switched on, and the environments that are leased where nothing says otherwise.

use axum::extract::State;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::body::{Id, Json};
use super::environments::told;
use super::errors::ApiError;
use crate::access::Caller;
use crate::app::App;

/// What this server has switched on.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = InstanceSettings)]
pub struct InstanceView {
    /// Whether there are environments; without, all that is about them is a 403. Set where the server is started.
    enable_environments: bool,
    /// Whether the managed environment is the only one. Set where the server is started.
    enable_managed_sandbox_only: bool,
    /// The environment that the server keeps as its settings say, once it was made.
    managed_environment_id: Option<String>,
    /// The environment that is leased where nothing says otherwise, in every company.
    default_environment_id: Option<String>,
}

/// A change of what can be changed while the server runs.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct InstancePatch {
    /// An active environment that all companies share; `null`: none.
    #[serde(default, deserialize_with = "told")]
    #[schema(value_type = Option<String>)]
    default_environment_id: Option<Option<String>>,
}

/// The environment that is leased where nothing says otherwise.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = DefaultEnvironment)]
pub struct DefaultView {
    /// The company's own default.
    default_environment_id: Option<String>,
    /// The instance's, for where the company has none.
    instance_default_environment_id: Option<String>,
}

/// Another default of a company.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct DefaultBody {
    /// An active environment of the company, or one that all share; `null`: none.
    #[serde(deserialize_with = "said")]
    #[schema(value_type = Option<String>, required = true)]
    default_environment_id: Option<String>,
}

/// A field that has to be there, though it may be `null`.
fn said<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    Option::deserialize(deserializer)
}

/// The routes.
pub fn router() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(get, update))
        .routes(routes!(get_default, set_default))
}

async fn view(app: &App) -> Result<axum::Json<InstanceView>, ApiError> {
    let environments = app.service()?.authority().environments();
    let features = app.features();
    Ok(axum::Json(InstanceView {
        enable_environments: features.environments,
        enable_managed_sandbox_only: features.managed_only,
        managed_environment_id: environments.managed().await?.map(|e| e.id),
        default_environment_id: environments.defaults(None).await?.instance,
    }))
}

/// Tell what this server has switched on
#[utoipa::path(get, path = "/api/instance/settings", operation_id = "getInstanceSettings", tag = "instance",
    responses((status = 200, description = "What is switched on", body = InstanceView)))]
async fn get(
    State(app): State<App>,
    _caller: Caller,
) -> Result<axum::Json<InstanceView>, ApiError> {
    view(&app).await
}

/// Change what can be changed while the server runs
#[utoipa::path(patch, path = "/api/instance/settings", operation_id = "updateInstanceSettings", tag = "instance",
    request_body = InstancePatch,
    responses((status = 200, description = "What is switched on", body = InstanceView)))]
async fn update(
    State(app): State<App>,
    caller: Caller,
    Json(body): Json<InstancePatch>,
) -> Result<axum::Json<InstanceView>, ApiError> {
    if let Some(id) = &body.default_environment_id {
        let environments = app.service()?.authority().environments();
        environments
            .set_default(&caller, None, id.as_deref())
            .await?;
    }
    view(&app).await
}

async fn defaults(app: &App, company: &str) -> Result<axum::Json<DefaultView>, ApiError> {
    let environments = app.service()?.authority().environments();
    let now = environments.defaults(Some(company)).await?;
    Ok(axum::Json(DefaultView {
        default_environment_id: now.company,
        instance_default_environment_id: now.instance,
    }))
}

/// Tell the default environment of a company
#[utoipa::path(get, path = "/api/companies/{companyId}/environments/default", operation_id = "getDefaultEnvironment", tag = "environments",
    params(("companyId" = String, Path, description = "The company's id")),
    responses((status = 200, description = "The defaults", body = DefaultView)))]
async fn get_default(
    State(app): State<App>,
    caller: Caller,
    Id(company): Id,
) -> Result<axum::Json<DefaultView>, ApiError> {
    caller.sees_known_company(&app, &company).await?;
    defaults(&app, &company).await
}

/// Set the default environment of a company
#[utoipa::path(put, path = "/api/companies/{companyId}/environments/default", operation_id = "setDefaultEnvironment", tag = "environments",
    params(("companyId" = String, Path, description = "The company's id")),
    request_body = DefaultBody,
    responses((status = 200, description = "The defaults", body = DefaultView)))]
async fn set_default(
    State(app): State<App>,
    caller: Caller,
    Id(company): Id,
    Json(body): Json<DefaultBody>,
) -> Result<axum::Json<DefaultView>, ApiError> {
    let environments = app.service()?.authority().environments();
    let id = body.default_environment_id;
    environments
        .set_default(&caller, Some(&company), id.as_deref())
        .await?;
    defaults(&app, &company).await
}

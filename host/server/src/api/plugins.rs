//! Plugins: look at a component, install it with what it was shown to ask for, switch it, remove it.

use axum::extract::State;
use axum::http::StatusCode;
use leasehold_authority::Plugin;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::body::{Component, Id, Query};
use super::errors::ApiError;
use super::time::Time;
use crate::access::{Caller, roles};
use crate::app::App;
use crate::service::PluginOffer;

/// What a component is and asks for; nothing of it was stored.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct OfferView {
    /// SHA-256 of the component, in hex.
    digest: String,
    /// Bytes.
    size: u64,
    /// The provider's key.
    key: String,
    /// The provider's version.
    version: String,
    /// `ssh`, `sandbox` or `plugin`
    driver: &'static str,
    /// For people; the provider's own words.
    title: String,
    /// For people; the provider's own words.
    summary: String,
    /// The interfaces it exports beyond `lifecycle`.
    capabilities: Vec<String>,
    /// What installing grants, each a sentence.
    asks: Vec<String>,
    /// Names what was shown here; `grant` of the installation.
    request_digest: String,
    /// JSON Schema of an environment's configuration.
    #[schema(value_type = Object)]
    config_schema: Value,
    /// Whether this very component is installed.
    installed: bool,
}

impl From<PluginOffer> for OfferView {
    fn from(offer: PluginOffer) -> OfferView {
        let manifest = offer.manifest;
        OfferView {
            digest: offer.digest,
            size: offer.size,
            key: manifest.key,
            version: manifest.version,
            driver: manifest.driver.as_str(),
            title: manifest.title,
            summary: manifest.summary,
            capabilities: offer.capabilities,
            asks: offer.asks,
            request_digest: offer.request_digest,
            config_schema: manifest.config_schema,
            installed: offer.installed,
        }
    }
}

/// An installed provider.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Plugin)]
pub struct PluginView {
    /// The provider's key, which is the plugin's id.
    key: String,
    /// Whether it takes new leases.
    enabled: bool,
    /// The provider's version.
    version: String,
    /// `ssh`, `sandbox` or `plugin`
    driver: &'static str,
    /// For people; the provider's own words.
    title: String,
    /// For people; the provider's own words.
    summary: String,
    /// SHA-256 of the component that new leases use.
    digest: String,
    /// Counts the components that were installed under this key, from 1.
    revision: i64,
    /// Bytes.
    size: i64,
    /// The interfaces it exports beyond `lifecycle`.
    capabilities: Vec<String>,
    /// What it was granted, as it was shown.
    #[schema(value_type = Vec<String>)]
    asks: Value,
    /// Names what was shown.
    request_digest: String,
    /// Who granted it.
    granted_by: String,
    granted_at: Time,
    installed_at: Time,
    updated_at: Time,
    /// JSON Schema of an environment's configuration.
    #[schema(value_type = Object)]
    config_schema: Value,
}

impl From<Plugin> for PluginView {
    fn from(row: Plugin) -> PluginView {
        let current = row.current;
        PluginView {
            key: row.key,
            enabled: row.enabled,
            version: current.version,
            driver: current.driver.as_str(),
            title: current.manifest.title,
            summary: current.manifest.summary,
            digest: current.digest,
            revision: current.number,
            size: current.size,
            capabilities: current.capabilities,
            asks: current.asks,
            request_digest: current.request_digest,
            granted_by: current.granted_by,
            granted_at: current.granted_at.into(),
            installed_at: current.installed_at.into(),
            updated_at: row.updated_at.into(),
            config_schema: current.manifest.config_schema,
        }
    }
}

/// What is granted.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
#[into_params(parameter_in = Query)]
pub struct InstallQuery {
    /// `requestDigest` of the inspection whose asks were read and are granted.
    grant: String,
}

/// The routes.
pub fn router() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(inspect))
        .routes(routes!(list, install))
        .routes(routes!(get, remove))
        .routes(routes!(enable))
        .routes(routes!(disable))
}

/// Inspect a component
///
/// Compiles it, asks it what it is and what it wants, and stores nothing.
#[utoipa::path(post, path = "/api/plugins/inspect", operation_id = "inspectPlugin", tag = "plugins",
    request_body(content = Vec<u8>, content_type = "application/wasm", description = "The component"),
    responses((status = 200, description = "What it is and asks for", body = OfferView)))]
async fn inspect(
    State(app): State<App>,
    caller: Caller,
    Component(bytes): Component,
) -> Result<axum::Json<OfferView>, ApiError> {
    roles::manage(&caller)?;
    let offer = app.service()?.inspect_plugin(&caller, bytes).await?;
    Ok(axum::Json(offer.into()))
}

/// Install a component
///
/// Grants what its inspection showed. The same component again changes nothing; another one with the same
/// key becomes what new leases use.
#[utoipa::path(post, path = "/api/plugins", operation_id = "installPlugin", tag = "plugins",
    params(InstallQuery),
    request_body(content = Vec<u8>, content_type = "application/wasm", description = "The component"),
    responses((status = 201, description = "It is installed", body = PluginView)))]
async fn install(
    State(app): State<App>,
    caller: Caller,
    Query(query): Query<InstallQuery>,
    Component(bytes): Component,
) -> Result<(StatusCode, axum::Json<PluginView>), ApiError> {
    roles::manage(&caller)?;
    let service = app.service()?;
    let row = service.install_plugin(&caller, bytes, &query.grant).await?;
    Ok((StatusCode::CREATED, axum::Json(row.into())))
}

/// List plugins
#[utoipa::path(get, path = "/api/plugins", operation_id = "listPlugins", tag = "plugins",
    responses((status = 200, description = "The plugins", body = Vec<PluginView>)))]
async fn list(
    State(app): State<App>,
    caller: Caller,
) -> Result<axum::Json<Vec<PluginView>>, ApiError> {
    roles::manage(&caller)?;
    let rows = app.service()?.authority().plugins().list().await?;
    Ok(axum::Json(rows.into_iter().map(Into::into).collect()))
}

/// Get a plugin
#[utoipa::path(get, path = "/api/plugins/{key}", operation_id = "getPlugin", tag = "plugins",
    params(("key" = String, Path, description = "The provider's key")),
    responses((status = 200, description = "The plugin", body = PluginView)))]
async fn get(
    State(app): State<App>,
    caller: Caller,
    Id(key): Id,
) -> Result<axum::Json<PluginView>, ApiError> {
    roles::manage(&caller)?;
    let row = app.service()?.authority().plugins().get(&key).await?;
    Ok(axum::Json(row.into()))
}

/// Let a plugin take new leases
#[utoipa::path(post, path = "/api/plugins/{key}/enable", operation_id = "enablePlugin", tag = "plugins",
    params(("key" = String, Path, description = "The provider's key")),
    responses((status = 200, description = "The plugin", body = PluginView)))]
async fn enable(
    State(app): State<App>,
    caller: Caller,
    Id(key): Id,
) -> Result<axum::Json<PluginView>, ApiError> {
    switch(&app, &caller, &key, true).await
}

/// Let a plugin take no new leases
///
/// Those that exist go on and can be released.
#[utoipa::path(post, path = "/api/plugins/{key}/disable", operation_id = "disablePlugin", tag = "plugins",
    params(("key" = String, Path, description = "The provider's key")),
    responses((status = 200, description = "The plugin", body = PluginView)))]
async fn disable(
    State(app): State<App>,
    caller: Caller,
    Id(key): Id,
) -> Result<axum::Json<PluginView>, ApiError> {
    switch(&app, &caller, &key, false).await
}

async fn switch(
    app: &App,
    caller: &Caller,
    key: &str,
    enabled: bool,
) -> Result<axum::Json<PluginView>, ApiError> {
    roles::manage(caller)?;
    let row = app
        .service()?
        .set_plugin_enabled(caller, key, enabled)
        .await?;
    Ok(axum::Json(row.into()))
}

/// Remove a plugin
///
/// Refused while environments or unfinished leases use it.
#[utoipa::path(delete, path = "/api/plugins/{key}", operation_id = "removePlugin", tag = "plugins",
    params(("key" = String, Path, description = "The provider's key")),
    responses((status = 204, description = "It is gone")))]
async fn remove(
    State(app): State<App>,
    caller: Caller,
    Id(key): Id,
) -> Result<StatusCode, ApiError> {
    roles::manage(&caller)?;
    app.service()?.remove_plugin(&caller, &key).await?;
    Ok(StatusCode::NO_CONTENT)
}

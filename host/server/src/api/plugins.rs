//! Plugins: look at a component, install it, grant what it asks for, switch it, go back, remove it.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::body::{ComponentOr, Id, Json, Query};
use super::errors::{ApiError, ErrorCode};
use super::plugin_views::{OfferView, PluginView};
use crate::access::Caller;
use crate::app::App;
use crate::service::{GrantRequest, Offered, PluginDetails, read_parts};

/// Where a component is that is not sent.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
#[schema(as = ComponentReference)]
pub struct ReferenceBody {
    /// Its name in a registry that the settings know as a source: `oci://host/name:tag` or `oci://host/name@sha256:…`.
    reference: String,
}

/// What belongs to a component that is looked at.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
#[into_params(parameter_in = Query)]
pub struct InspectQuery {
    /// Of a component that is sent: a detached signature over it, in base64, as `cosign sign-blob` makes one.
    signature: Option<String>,
}

/// What is granted with an installation, and what belongs to the component.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
#[into_params(parameter_in = Query)]
pub struct InstallQuery {
    /// `requestDigest` of the inspection whose asks were read and are granted. Without it nothing new is granted.
    grant: Option<String>,
    /// Parts of it that are left out, with commas between them: `ssh`, `streams`, `origins`, `operations`, `credentials`.
    without: Option<String>,
    /// Of a component that is sent: a detached signature over it, in base64, as `cosign sign-blob` makes one.
    signature: Option<String>,
}

/// What is granted of a revision.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct GrantBody {
    /// `requestDigest` of what was shown and is granted.
    request_digest: String,
    /// Digest of the revision; without, the one that waits.
    revision: Option<String>,
    /// Parts of it that are left out: `ssh`, `streams`, `origins`, `operations`, `credentials`.
    #[serde(default)]
    without: Vec<String>,
}

/// What is offered: the component that was sent with its signature, or the name of one, whose signature lies beside it.
fn offered(
    body: ComponentOr<ReferenceBody>,
    signature: Option<String>,
) -> Result<Offered, ApiError> {
    match (body, signature) {
        (ComponentOr::Component(component), signature) => Ok(Offered::Sent {
            component,
            signature,
        }),
        (ComponentOr::Named(body), None) => Ok(Offered::Named(body.reference)),
        (ComponentOr::Named(_), Some(_)) => Err(ApiError::new(
            ErrorCode::BadRequest,
            "signature belongs to a component that is sent; in a registry it lies beside the component",
        )),
    }
}

fn answer(details: PluginDetails) -> axum::Json<PluginView> {
    axum::Json(details.into())
}

/// The routes.
pub fn router() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(inspect))
        .routes(routes!(list, install))
        .routes(routes!(get, remove))
        .routes(routes!(grant))
        .routes(routes!(deny))
        .routes(routes!(rollback))
        .routes(routes!(reset))
        .routes(routes!(enable))
        .routes(routes!(disable))
}

/// Inspect a component
///
/// Fetches it where its name is sent, looks at its signature where one is asked for, compiles it, asks it what it is and
/// what it wants, and stores nothing.
#[utoipa::path(post, path = "/api/plugins/inspect", operation_id = "inspectPlugin", tag = "plugins",
    params(InspectQuery),
    request_body(content((Vec<u8> = "application/wasm"), (ReferenceBody = "application/json")),
        description = "The component, or where it is"),
    responses((status = 200, description = "What it is and asks for", body = OfferView)))]
async fn inspect(
    State(app): State<App>,
    caller: Caller,
    Query(query): Query<InspectQuery>,
    body: ComponentOr<ReferenceBody>,
) -> Result<axum::Json<OfferView>, ApiError> {
    let offered = offered(body, query.signature)?;
    let offer = app.service()?.inspect_plugin(&caller, offered).await?;
    Ok(axum::Json(offer.into()))
}

/// Install a component
///
/// With `grant` it serves with what its inspection showed. Without, it serves where it asks for no more than the revision
/// that serves now, under that one's grant, and otherwise waits for its grant while that one serves on. The same component
/// again changes nothing but where it is said to come from and who signed it. Of a name in a registry the manifest that it stands for now
/// is fetched and recorded; what the name stands for later changes nothing that is installed.
#[utoipa::path(post, path = "/api/plugins", operation_id = "installPlugin", tag = "plugins",
    params(InstallQuery),
    request_body(content((Vec<u8> = "application/wasm"), (ReferenceBody = "application/json")),
        description = "The component, or where it is"),
    responses((status = 201, description = "It is installed; `pending` says whether it waits", body = PluginView)))]
async fn install(
    State(app): State<App>,
    caller: Caller,
    Query(query): Query<InstallQuery>,
    body: ComponentOr<ReferenceBody>,
) -> Result<(StatusCode, axum::Json<PluginView>), ApiError> {
    let without: Vec<String> = query
        .without
        .iter()
        .flat_map(|list| list.split(','))
        .map(str::to_owned)
        .collect();
    let without = read_parts(&without)?;
    let grant = match query.grant {
        Some(request_digest) => Some(GrantRequest {
            request_digest,
            without,
        }),
        None if without.is_empty() => None,
        None => {
            return Err(ApiError::new(
                ErrorCode::BadRequest,
                "without leaves something out of a grant; give grant too",
            ));
        }
    };
    let offered = offered(body, query.signature)?;
    let details = app
        .service()?
        .install_plugin(&caller, offered, grant)
        .await?;
    Ok((StatusCode::CREATED, answer(details)))
}

/// List plugins
#[utoipa::path(get, path = "/api/plugins", operation_id = "listPlugins", tag = "plugins",
    responses((status = 200, description = "The plugins", body = Vec<PluginView>)))]
async fn list(
    State(app): State<App>,
    caller: Caller,
) -> Result<axum::Json<Vec<PluginView>>, ApiError> {
    caller.sees_all()?;
    let all = app.service()?.plugins().await?;
    Ok(axum::Json(all.into_iter().map(Into::into).collect()))
}

/// Get a plugin
///
/// With its revisions, their grants, what waits and how it does.
#[utoipa::path(get, path = "/api/plugins/{key}", operation_id = "getPlugin", tag = "plugins",
    params(("key" = String, Path, description = "The provider's key")),
    responses((status = 200, description = "The plugin", body = PluginView)))]
async fn get(
    State(app): State<App>,
    caller: Caller,
    Id(key): Id,
) -> Result<axum::Json<PluginView>, ApiError> {
    caller.sees_all()?;
    Ok(answer(app.service()?.plugin(&key).await?))
}

/// Grant a revision
///
/// The one that waits, which new leases use from then on; or, named by its digest, the current one anew. Nothing is taken
/// from a revision while leases of it have not ended.
#[utoipa::path(post, path = "/api/plugins/{key}/grant", operation_id = "grantPlugin", tag = "plugins",
    params(("key" = String, Path, description = "The provider's key")),
    request_body = GrantBody,
    responses((status = 200, description = "The plugin", body = PluginView)))]
async fn grant(
    State(app): State<App>,
    caller: Caller,
    Id(key): Id,
    Json(body): Json<GrantBody>,
) -> Result<axum::Json<PluginView>, ApiError> {
    let grant = GrantRequest {
        request_digest: body.request_digest,
        without: read_parts(&body.without)?,
    };
    let service = app.service()?;
    let revision = body.revision.as_deref();
    let details = service.grant_plugin(&caller, &key, revision, grant).await?;
    Ok(answer(details))
}

/// Turn down the revision that waits
///
/// Its component is deleted, and what served goes on serving. Of a plugin that was never granted nothing is left.
#[utoipa::path(post, path = "/api/plugins/{key}/deny", operation_id = "denyPlugin", tag = "plugins",
    params(("key" = String, Path, description = "The provider's key")),
    responses(
        (status = 200, description = "The plugin as it serves on", body = PluginView),
        (status = 204, description = "It was never granted, and is gone")))]
async fn deny(State(app): State<App>, caller: Caller, Id(key): Id) -> Result<Response, ApiError> {
    Ok(match app.service()?.deny_plugin(&caller, &key).await? {
        Some(details) => answer(details).into_response(),
        None => StatusCode::NO_CONTENT.into_response(),
    })
}

/// Go one revision back
///
/// To the revision that served before, under the grant that it had. Leases keep the revision that they were made with.
#[utoipa::path(post, path = "/api/plugins/{key}/rollback", operation_id = "rollbackPlugin", tag = "plugins",
    params(("key" = String, Path, description = "The provider's key")),
    responses((status = 200, description = "The plugin", body = PluginView)))]
async fn rollback(
    State(app): State<App>,
    caller: Caller,
    Id(key): Id,
) -> Result<axum::Json<PluginView>, ApiError> {
    Ok(answer(app.service()?.rollback_plugin(&caller, &key).await?))
}

/// Let a plugin that failed again and again take new leases now
///
/// Instead of waiting until it is tried again.
#[utoipa::path(post, path = "/api/plugins/{key}/reset", operation_id = "resetPlugin", tag = "plugins",
    params(("key" = String, Path, description = "The provider's key")),
    responses((status = 200, description = "The plugin", body = PluginView)))]
async fn reset(
    State(app): State<App>,
    caller: Caller,
    Id(key): Id,
) -> Result<axum::Json<PluginView>, ApiError> {
    Ok(answer(app.service()?.reset_plugin(&caller, &key).await?))
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
    let details = app
        .service()?
        .set_plugin_enabled(caller, key, enabled)
        .await?;
    Ok(answer(details))
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
    app.service()?.remove_plugin(&caller, &key).await?;
    Ok(StatusCode::NO_CONTENT)
}

//! What can be leased here, and what narrowed it.

use axum::extract::State;
use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::body::Id;
use super::errors::ApiError;
use crate::access::Caller;
use crate::app::App;
use crate::service::{Capabilities, Narrowing, ProviderCapabilities, Withheld};

/// What can be leased here.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Capabilities)]
pub struct CapabilitiesView {
    /// Every provider that works now.
    providers: Vec<ProviderView>,
    /// Every provider that is installed and takes no new leases.
    withheld: Vec<WithheldView>,
}

/// A provider that is installed and not offered.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Withheld)]
pub struct WithheldView {
    /// The provider's key.
    key: String,
    /// `installation`, where it is not there; `grant`, where an administrator disabled it or has not granted it; or
    /// `health`
    by: String,
    reason: String,
}

/// What one provider can do.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Provider)]
pub struct ProviderView {
    /// The provider's key.
    key: String,
    version: String,
    /// `ssh`, `sandbox` or `plugin`
    driver: String,
    /// For people; the provider's own words.
    title: String,
    /// For people; the provider's own words.
    summary: String,
    /// SHA-256 of the component.
    digest: String,
    /// Interfaces beyond `lifecycle`.
    interfaces: Vec<String>,
    /// Declared features, such as `stdin`.
    features: Vec<String>,
    /// What was narrowed, and by what.
    narrowed: Vec<NarrowingView>,
    /// JSON Schema of an environment's configuration.
    #[schema(value_type = Object)]
    config_schema: Value,
}

/// A capability that a provider declares and does not have here.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Narrowing)]
pub struct NarrowingView {
    capability: String,
    /// `exports`, `grant`, `configuration`, `health`, or `host`: what this version of the host does not use
    by: String,
    reason: String,
}

impl From<Capabilities> for CapabilitiesView {
    fn from(all: Capabilities) -> CapabilitiesView {
        CapabilitiesView {
            providers: all.providers.into_iter().map(Into::into).collect(),
            withheld: all.withheld.into_iter().map(Into::into).collect(),
        }
    }
}

impl From<Withheld> for WithheldView {
    fn from(one: Withheld) -> WithheldView {
        WithheldView {
            key: one.key,
            by: one.by,
            reason: one.reason,
        }
    }
}

impl From<ProviderCapabilities> for ProviderView {
    fn from(one: ProviderCapabilities) -> ProviderView {
        ProviderView {
            key: one.key,
            version: one.version,
            driver: one.driver,
            title: one.title,
            summary: one.summary,
            digest: one.digest,
            interfaces: one.interfaces,
            features: one.features,
            narrowed: one.narrowed.into_iter().map(Into::into).collect(),
            config_schema: one.config_schema,
        }
    }
}

impl From<Narrowing> for NarrowingView {
    fn from(one: Narrowing) -> NarrowingView {
        NarrowingView {
            capability: one.capability,
            by: one.by,
            reason: one.reason,
        }
    }
}

/// The routes.
pub fn router() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(get))
}

/// Tell what can be leased
#[utoipa::path(get, path = "/api/companies/{companyId}/environments/capabilities", operation_id = "getCapabilities", tag = "environments",
    params(("companyId" = String, Path, description = "The company's id")),
    responses((status = 200, description = "What can be leased, and what is installed and cannot", body = CapabilitiesView)))]
async fn get(
    State(app): State<App>,
    caller: Caller,
    Id(company): Id,
) -> Result<axum::Json<CapabilitiesView>, ApiError> {
    caller.sees_company(&company)?;
    let all = app.service()?.capabilities(&caller, &company).await?;
    Ok(axum::Json(all.into()))
}

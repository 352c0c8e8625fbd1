//! What can be leased here, and what narrowed it.

use std::collections::BTreeMap;

use axum::extract::State;
use leasehold_authority::View;
use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::body::Id;
use super::errors::ApiError;
use crate::access::Caller;
use crate::app::App;
use crate::service::{
    Capabilities, Capability, Effective, EnvironmentCapabilities, Narrowing, ProviderCapabilities,
    Set, Withheld,
};

/// What can be leased here.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Capabilities)]
pub struct CapabilitiesView {
    /// Every provider that works now.
    providers: Vec<ProviderView>,
    /// Every provider that is installed and takes no new leases.
    withheld: Vec<WithheldView>,
    /// The company's environments. Agents are told of these alone, and of those that they may be assigned.
    environments: Vec<EnvironmentView>,
}

/// What one environment can do.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = EnvironmentCapabilities)]
pub struct EnvironmentView {
    /// `env_…`
    environment_id: String,
    /// Not told to agents.
    name: Option<String>,
    /// Each capability by its name, and whether it is there.
    capabilities: BTreeMap<&'static str, bool>,
    /// What is not there, and what took it. Not told to agents.
    missing: Option<Vec<NarrowingView>>,
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
    /// Each capability by its name, and whether it is there now.
    capabilities: BTreeMap<&'static str, bool>,
    /// What is not there, declared or not, and the first term that took it.
    missing: Vec<NarrowingView>,
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

impl CapabilitiesView {
    fn seen(all: Capabilities, view: View) -> CapabilitiesView {
        let environments = all.environments.into_iter();
        match view {
            View::Safe => CapabilitiesView {
                providers: Vec::new(),
                withheld: Vec::new(),
                environments: environments
                    .filter(|environment| environment.assignable)
                    .map(|environment| EnvironmentView {
                        capabilities: booleans(environment.effective.has()),
                        environment_id: environment.id,
                        name: None,
                        missing: None,
                    })
                    .collect(),
            },
            View::Whole | View::Blanked => CapabilitiesView {
                providers: all.providers.into_iter().map(Into::into).collect(),
                withheld: all.withheld.into_iter().map(Into::into).collect(),
                environments: environments.map(EnvironmentView::whole).collect(),
            },
        }
    }
}

impl EnvironmentView {
    fn whole(one: EnvironmentCapabilities) -> EnvironmentView {
        EnvironmentView {
            capabilities: booleans(one.effective.has()),
            missing: Some(missing(&one.effective)),
            environment_id: one.id,
            name: Some(one.name),
        }
    }
}

/// Each word, and whether it is in the set.
fn booleans(set: Set) -> BTreeMap<&'static str, bool> {
    let all = Capability::ALL.iter();
    all.map(|one| (one.as_str(), set.has(*one))).collect()
}

/// What is not there, and what took it.
fn missing(effective: &Effective) -> Vec<NarrowingView> {
    let missing = effective
        .missing()
        .map(|(capability, taken)| NarrowingView {
            capability: capability.as_str().to_owned(),
            by: taken.by.as_str().to_owned(),
            reason: taken.reason.to_string(),
        });
    missing.collect()
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
            capabilities: booleans(one.effective.has()),
            missing: missing(&one.effective),
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
    let view = caller.sees_company(&company)?;
    let all = app.service()?.capabilities(&company).await?;
    Ok(axum::Json(CapabilitiesView::seen(all, view)))
}

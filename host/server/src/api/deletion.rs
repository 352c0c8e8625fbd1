//! Deleting an environment, and what stands in the way.

use axum::extract::State;
use axum::http::HeaderMap;
use leasehold_authority::{
    ActiveRuntimeUse, BlastRadius, LeaseHolder, StaticReferences, UnusedSecret,
};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::body::{Id, Query};
use super::environments::EnvironmentView;
use super::errors::ApiError;
use super::if_match::{self, precondition};
use crate::access::Caller;
use crate::app::App;

/// What deleting an environment would touch.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = BlastRadius)]
pub struct BlastRadiusView {
    environment_id: String,
    can_delete: bool,
    /// `managed_local`, `platform_managed`, `instance_default`, `active_lease`, `pending_sandbox_cleanup` or `reusable_sandbox_lease`; empty when
    /// it can be deleted.
    delete_blocked_reasons: Vec<&'static str>,
    static_references: StaticReferencesView,
    active_runtime_use: ActiveRuntimeUseView,
    /// Leases whose release is not confirmed yet.
    pending_cleanup_lease_count: i64,
    /// Leases that nobody uses and that are kept to be used again; `destroyReusableSandboxLeases=true` ends them.
    reusable_sandbox_lease_count: i64,
    /// For whom these are kept; of many, the oldest.
    reusable_sandbox_lease_holders: Vec<LeaseHolderView>,
    /// Leases that are over; their records stay.
    ended_lease_count: i64,
    /// Secrets that stay, and that nothing uses once it is gone; by name.
    secrets_used_by_nothing_else: Vec<UnusedSecretView>,
}

/// A secret that nothing else uses.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = UnusedSecret)]
pub struct UnusedSecretView {
    secret_id: String,
    name: String,
}

impl From<UnusedSecret> for UnusedSecretView {
    fn from(secret: UnusedSecret) -> UnusedSecretView {
        UnusedSecretView {
            secret_id: secret.secret_id,
            name: secret.name,
        }
    }
}

/// What points at an environment without using it.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = StaticReferences)]
pub struct StaticReferencesView {
    /// Whether it is the server's own machine, which stays.
    is_managed_local: bool,
    /// Whether it is what the instance leases where nothing says otherwise: it stays until another is.
    is_instance_default: bool,
    /// Companies whose default it is; they have none then.
    company_default_count: i64,
    /// Agents that it is assigned to; they stay, without it.
    agent_default_count: i64,
    /// Projects that it is assigned to.
    project_selection_count: i64,
    /// Workspaces that it is assigned to.
    execution_workspace_selection_count: i64,
    /// Issues that it is assigned to.
    issue_selection_count: i64,
    /// Rights to use secrets, which go with it; the secrets stay.
    secret_binding_count: i64,
}

/// What an environment is used for now.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = ActiveRuntimeUse)]
pub struct ActiveRuntimeUseView {
    /// Leases that are being acquired, in use or being released.
    active_lease_count: i64,
    has_active_runtime_use: bool,
}

/// For whom a lease is kept.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = LeaseHolder)]
pub struct LeaseHolderView {
    lease_id: String,
    /// The client's own.
    agent_id: Option<String>,
    /// The client's own.
    run_id: Option<String>,
    /// The client's own.
    workspace_id: Option<String>,
    /// The client's own.
    issue_id: Option<String>,
}

impl From<BlastRadius> for BlastRadiusView {
    fn from(radius: BlastRadius) -> BlastRadiusView {
        let StaticReferences {
            is_managed_local,
            is_instance_default,
            company_default_count,
            agent_default_count,
            project_selection_count,
            execution_workspace_selection_count,
            issue_selection_count,
            secret_binding_count,
        } = radius.static_references;
        let ActiveRuntimeUse {
            active_lease_count,
            has_active_runtime_use,
        } = radius.active_runtime_use;
        let holders = radius.reusable_sandbox_lease_holders.into_iter();
        let unused = radius.secrets_used_by_nothing_else.into_iter();
        BlastRadiusView {
            environment_id: radius.environment_id,
            can_delete: radius.can_delete,
            delete_blocked_reasons: radius.delete_blocked_reasons,
            static_references: StaticReferencesView {
                is_managed_local,
                is_instance_default,
                company_default_count,
                agent_default_count,
                project_selection_count,
                execution_workspace_selection_count,
                issue_selection_count,
                secret_binding_count,
            },
            active_runtime_use: ActiveRuntimeUseView {
                active_lease_count,
                has_active_runtime_use,
            },
            pending_cleanup_lease_count: radius.pending_cleanup_lease_count,
            reusable_sandbox_lease_count: radius.reusable_sandbox_lease_count,
            reusable_sandbox_lease_holders: holders.map(Into::into).collect(),
            ended_lease_count: radius.ended_lease_count,
            secrets_used_by_nothing_else: unused.map(Into::into).collect(),
        }
    }
}

impl From<LeaseHolder> for LeaseHolderView {
    fn from(holder: LeaseHolder) -> LeaseHolderView {
        LeaseHolderView {
            lease_id: holder.lease_id,
            agent_id: holder.agent_id,
            run_id: holder.run_id,
            workspace_id: holder.workspace_id,
            issue_id: holder.issue_id,
        }
    }
}

/// How an environment is deleted.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
#[into_params(parameter_in = Query)]
pub struct DeletionQuery {
    /// Ends leases that nobody uses and that are kept to be used again, if they are all that stands in the way.
    destroy_reusable_sandbox_leases: Option<bool>,
}

/// An environment that is gone.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = DeletedEnvironment)]
pub struct DeletedView<'a> {
    #[serde(flatten)]
    environment: EnvironmentView<'a>,
    /// How many leases that were kept to be used again were ended for it.
    destroyed_reusable_sandbox_lease_count: u64,
}

/// The routes.
pub fn router() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(delete))
        .routes(routes!(blast_radius))
}

/// Delete an environment
///
/// Refused while leases hold it; the blast radius says which. With `If-Match` what was read is deleted or nothing is (412).
#[utoipa::path(delete, path = "/api/environments/{environmentId}", operation_id = "deleteEnvironment", tag = "environments",
    params(("environmentId" = String, Path, description = "The environment's id"), DeletionQuery,
        ("If-Match" = Option<String>, Header, description = if_match::DESCRIPTION)),
    responses((status = 200, description = "The environment that is gone", body = DeletedView)))]
async fn delete(
    State(app): State<App>,
    caller: Caller,
    Id(id): Id,
    Query(query): Query<DeletionQuery>,
    headers: HeaderMap,
) -> Result<axum::response::Response, ApiError> {
    let service = app.service()?;
    let expected = precondition(&headers)?;
    let end_reusable = query.destroy_reusable_sandbox_leases.unwrap_or(false);
    let (row, ended) = service
        .delete_environment(&caller, &id, end_reusable, &expected)
        .await?;
    let view = DeletedView {
        environment: EnvironmentView::of(&row, true, service),
        destroyed_reusable_sandbox_lease_count: ended,
    };
    Ok(axum::response::IntoResponse::into_response(axum::Json(
        view,
    )))
}

/// Tell what deleting an environment would touch
#[utoipa::path(get, path = "/api/environments/{environmentId}/delete-blast-radius", operation_id = "getDeleteBlastRadius", tag = "environments",
    params(("environmentId" = String, Path, description = "The environment's id")),
    responses((status = 200, description = "What it would touch", body = BlastRadiusView)))]
async fn blast_radius(
    State(app): State<App>,
    caller: Caller,
    Id(id): Id,
) -> Result<axum::Json<BlastRadiusView>, ApiError> {
    caller.sees_all()?;
    let environments = app.service()?.authority().environments();
    Ok(axum::Json(environments.blast_radius(&id).await?.into()))
}

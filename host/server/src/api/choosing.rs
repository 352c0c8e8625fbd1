//! Leasing what was not named: by what is needed of it, or by what is assigned to whom it is for.

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use leasehold_authority::{Links, Operation, Scope, View};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use super::assignments::whose;
use super::body::{Id, OptionalJson, Query};
use super::errors::ApiError;
use super::leases::LeaseView;
use super::once;
use super::progress::ProgressQuery;
use super::select::{ExcludedView, RequirementBody};
use crate::access::Caller;
use crate::app::App;
use crate::service::{AcquireRequest, Chosen, NotLeased, Tried};

/// What is asked for when leasing what is not named.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
#[schema(example = json!({ "requirement": { "preferred": ["execution"] }, "ttlSeconds": 3600 }))]
pub struct AcquireChosenBody {
    /// What is needed of the environment; without, the one that is assigned is leased.
    requirement: Option<RequirementBody>,
    /// When it ends at the latest, in seconds from now; without, when it is released.
    ttl_seconds: Option<u32>,
    /// The same key with the same request answers the same lease, whatever would be chosen now.
    idempotency_key: Option<String>,
    /// How long acquiring may take; without, as the provider says.
    timeout_ms: Option<u32>,
    /// Without a requirement: a row of this company. Else yours, to find the lease again.
    agent_id: Option<String>,
    /// Without a requirement: a row of this company. Else yours, to find the lease again.
    run_id: Option<String>,
    /// Without a requirement: a row of this company. Else yours, to find the lease again.
    workspace_id: Option<String>,
    /// Without a requirement: a row of this company. Else yours, to find the lease again.
    issue_id: Option<String>,
}

/// A candidate on which nothing could be begun.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Tried)]
pub struct TriedView {
    /// `env_…`
    environment_id: String,
    /// Not told to agents.
    name: Option<String>,
    /// A code of docs/errors.md, such as `target_in_use`
    code: &'static str,
    /// For a person. Not told to agents.
    reason: Option<String>,
}

/// The lease, and why it is of this environment.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = ChosenLease)]
pub struct ChosenView {
    lease: LeaseView,
    /// `env_…`
    environment_id: String,
    /// `requirement`: the best candidate that could be leased; `assignment`; or `repeated`: the same request made this lease
    /// before
    chosen_by: &'static str,
    /// The level that decided, where it was leased by assignment.
    level: Option<&'static str>,
    /// Candidates that came before it, on which nothing could be begun.
    tried: Vec<TriedView>,
}

impl TriedView {
    fn seen(one: Tried, view: View) -> TriedView {
        let told = view != View::Safe;
        TriedView {
            environment_id: one.environment_id,
            name: told.then_some(one.name),
            code: one.code,
            reason: told.then_some(one.reason),
        }
    }
}

/// The refusal, with why each environment was none.
fn refusal(not: NotLeased, view: View) -> ApiError {
    let tried = not.tried.into_iter().map(|one| TriedView::seen(one, view));
    let tried: Vec<TriedView> = tried.collect();
    let excluded = ExcludedView::seen(not.excluded, view);
    let list = |value: serde_json::Result<Value>| value.unwrap_or_default();
    ApiError::from(not.error)
        .with("tried", list(serde_json::to_value(tried)))
        .with("excluded", list(serde_json::to_value(excluded)))
}

/// Lease what is needed, or what is assigned
///
/// With a requirement the best candidate is leased; where nothing can be begun on it, the next. Without one the environment
/// that is assigned to the workspace, issue, project or agent is leased, and no other in its place.
#[utoipa::path(post, path = "/api/companies/{companyId}/environment-leases", operation_id = "acquireChosenLease", tag = "leases",
    params(("companyId" = String, Path, description = "The company's id"), ProgressQuery),
    request_body = AcquireChosenBody,
    responses((status = 201, description = "The active lease, and what was chosen", body = ChosenView)))]
pub async fn acquire(
    State(app): State<App>,
    caller: Caller,
    Id(company): Id,
    Query(named): Query<ProgressQuery>,
    headers: HeaderMap,
    OptionalJson(body): OptionalJson<AcquireChosenBody>,
) -> Result<(StatusCode, axum::Json<ChosenView>), ApiError> {
    let idempotency_key = once::lease_key(body.idempotency_key, &headers)?;
    let progress_id = named.checked()?;
    let links = Links {
        agent: body.agent_id.clone(),
        project: None,
        workspace: body.workspace_id.clone(),
        issue: body.issue_id.clone(),
    };
    let whose = whose(&caller, links, body.run_id);
    let scope = Scope::Run {
        company: &company,
        run: whose.run.as_deref(),
    };
    caller.sees(scope, "company", &company)?;
    if body.ttl_seconds == Some(0) {
        return Err(ApiError::field(
            "/ttlSeconds",
            "is 0; give at least 1, or leave it out",
        ));
    }
    let request = AcquireRequest {
        company_id: Some(company.clone()),
        ttl_seconds: body.ttl_seconds,
        idempotency_key,
        agent_id: body.agent_id,
        run_id: whose.run.clone(),
        workspace_id: body.workspace_id,
        issue_id: body.issue_id,
        timeout_ms: body.timeout_ms,
        progress_id,
    };
    let service = app.service()?;
    // Whoever leases sees its own lease whole, and of what was not chosen what a selection tells it.
    let view = caller.may(Operation::SelectEnvironment)?;
    let chosen = match body.requirement {
        Some(requirement) => {
            let requirement = requirement.requirement("/requirement")?;
            service
                .acquire_selected(&caller, &company, &requirement, request)
                .await
                .map(|chosen| (chosen, "requirement"))
        }
        None => service
            .acquire_assigned(&caller, &company, &whose, request)
            .await
            .map(|chosen| (chosen, "assignment")),
    };
    let (chosen, by) = chosen.map_err(|not| refusal(not, view))?;
    let Chosen {
        lease,
        tried,
        level,
        repeated,
    } = chosen;
    let answer = ChosenView {
        environment_id: lease.environment_id.clone(),
        lease: LeaseView::now(lease, View::Whole, service),
        chosen_by: if repeated { "repeated" } else { by },
        level: level.map(leasehold_authority::Level::as_str),
        tried: tried
            .into_iter()
            .map(|one| TriedView::seen(one, view))
            .collect(),
    };
    Ok((StatusCode::CREATED, axum::Json(answer)))
}

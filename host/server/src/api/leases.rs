//! Leases: acquire, read, renew, release, abandon.

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use leasehold_authority::{EnvironmentDriver, Lease, LeaseFilter, Proof, Scope, Status, View};
use leasehold_contract::Condition;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::body::{Id, Json, OptionalJson, Query};
use super::environments::one_of;
use super::errors::ApiError;
use super::once;
use super::pages::{self, Place};
use super::progress::{ProgressQuery, ProgressView};
use super::time::Time;
use crate::access::Caller;
use crate::app::App;
use crate::service::{AcquireRequest, Service};

/// A lease. Board members do not see what the target calls it, where it is and what was said of it.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Lease)]
pub struct LeaseView {
    /// `lease_…`
    id: String,
    company_id: String,
    /// Still named after it was deleted.
    environment_id: String,
    /// The environment's name when it was leased.
    environment_name: String,
    /// `acquiring`, `active`, `releasing`, `retained`, `pending_cleanup`, `released`, `failed` or `abandoned`
    status: &'static str,
    /// Why it is being, or was, ended.
    status_reason: Option<String>,
    /// What went wrong last.
    failure_reason: Option<String>,
    /// The provider's key.
    provider: String,
    /// SHA-256 of the component that acquired it and will release it.
    plugin_digest: String,
    /// The target's own id of what was made.
    provider_lease_id: Option<String>,
    /// Where commands start.
    workspace: Option<String>,
    /// Names this creation; on everything that was made for it.
    acquisition: Option<String>,
    /// Rises whenever someone else takes over.
    epoch: u32,
    /// `owned`, when this host saw its own mark on what was made; `claimed`, when only the provider says so.
    proof: Option<&'static str>,
    /// What this lease does not isolate from others, where there is something.
    not_isolated: Vec<&'static str>,
    created_at: Time,
    acquired_at: Option<Time>,
    /// When a command was last begun.
    last_used_at: Option<Time>,
    /// When it ends at the latest.
    expires_at: Option<Time>,
    released_at: Option<Time>,
    /// `pending`, `success` or `failed`, once a release was tried.
    cleanup_status: Option<&'static str>,
    /// How often a release was tried without being confirmed.
    cleanup_attempts: u32,
    next_cleanup_at: Option<Time>,
    /// What the work on it said last, while it is being acquired or released.
    progress: Option<ProgressView>,
    agent_id: Option<String>,
    run_id: Option<String>,
    workspace_id: Option<String>,
    issue_id: Option<String>,
}

impl LeaseView {
    /// The lease, with what goes on on it now, as far as the caller sees it.
    pub fn now(row: Lease, view: View, service: &Service) -> LeaseView {
        let progress = service.lease_progress(&row.id).map(Into::into);
        let whole = LeaseView {
            progress,
            ..row.into()
        };
        match view {
            View::Whole => whole,
            View::Blanked | View::Safe => LeaseView {
                status_reason: None,
                failure_reason: None,
                provider_lease_id: None,
                workspace: None,
                acquisition: None,
                progress: None,
                ..whole
            },
        }
    }
}

impl From<Lease> for LeaseView {
    fn from(row: Lease) -> LeaseView {
        let shared = row.driver == EnvironmentDriver::Ssh && row.exclusive_key.is_none();
        LeaseView {
            status: row.status.as_str(),
            proof: row.proof.map(|proof| match proof {
                Proof::Owned => "owned",
                Proof::Claimed => "claimed",
            }),
            not_isolated: if shared {
                vec![SHARED_ACCOUNT]
            } else {
                Vec::new()
            },
            cleanup_status: match row.status {
                Status::Released => Some("success"),
                Status::PendingCleanup => Some("failed"),
                Status::Releasing => Some("pending"),
                _ => None,
            },
            id: row.id,
            company_id: row.company_id,
            environment_id: row.environment_id,
            environment_name: row.environment_name,
            status_reason: row.reason,
            failure_reason: row.failure,
            provider: row.provider,
            plugin_digest: row.plugin_digest,
            provider_lease_id: row.resource,
            workspace: row.workspace,
            acquisition: Some(row.acquisition),
            epoch: row.epoch,
            created_at: row.created_at.into(),
            acquired_at: row.acquired_at.map(Into::into),
            last_used_at: row.last_used_at.map(Into::into),
            expires_at: row.expires_at.map(Into::into),
            released_at: row.released_at.map(Into::into),
            cleanup_attempts: row.attempts,
            next_cleanup_at: row.next_attempt_at.map(Into::into),
            progress: None,
            agent_id: row.caller.agent,
            run_id: row.caller.run,
            workspace_id: row.caller.workspace,
            issue_id: row.caller.issue,
        }
    }
}

/// What is said of a lease on an account that others use too.
const SHARED_ACCOUNT: &str = "other leases of the same account can see and change its files, processes and \
                              credentials";

/// A page of leases.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct LeasePageView {
    items: Vec<LeaseView>,
    /// `cursor` of the next page; none at the end.
    next: Option<String>,
}

/// Which leases.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
#[into_params(parameter_in = Query)]
pub struct LeaseQuery {
    /// One state.
    status: Option<String>,
    /// `next` of the page before, as its `Link` header has it too.
    cursor: Option<String>,
    /// At most this many, 1 to 500; 100 without.
    limit: Option<u32>,
}

/// What is asked for when leasing.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct AcquireBody {
    /// For which company, where all share the environment: an agent's own. Left out where it can be only one.
    company_id: Option<String>,
    /// When it ends at the latest, in seconds from now; without, when it is released.
    ttl_seconds: Option<u32>,
    /// The same key with the same request answers the same lease, also after a lost answer. The `Idempotency-Key` header
    /// says the same.
    idempotency_key: Option<String>,
    /// How long acquiring may take; without, as the provider says.
    timeout_ms: Option<u32>,
    /// Yours, to find the lease again.
    agent_id: Option<String>,
    /// Yours, to find the lease again.
    run_id: Option<String>,
    /// Yours, to find the lease again.
    workspace_id: Option<String>,
    /// Yours, to find the lease again.
    issue_id: Option<String>,
}

/// What is asked for when renewing.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct RenewBody {
    /// From now.
    ttl_seconds: u32,
    /// The expiry as the caller knows it; when it is another one by now, nothing is changed.
    #[schema(value_type = Option<Time>)]
    expected_expires_at: Option<String>,
}

/// Why nobody waits for the cleanup any longer.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct AbandonBody {
    /// For whoever finds what was left behind.
    reason: String,
}

/// What the provider sees of a leased environment now.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Observation)]
pub struct ObservationView {
    /// `starting`, `ready`, `stopping`, `stopped`, `failed` or `gone`
    condition: &'static str,
    image: Option<String>,
    message: Option<String>,
}

/// The routes.
pub fn router() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(list_of_environment, acquire))
        .routes(routes!(list_of_company, super::choosing::acquire))
        .routes(routes!(get))
        .routes(routes!(observe))
        .routes(routes!(renew))
        .routes(routes!(release))
        .routes(routes!(abandon))
}

/// The lease, if the caller may do with it what it asks for, and how much of it the caller sees.
async fn seen(app: &App, caller: &Caller, id: &str) -> Result<(Lease, View), ApiError> {
    let row = app.service()?.authority().leases().get(id).await?;
    let view = caller.sees(row.scope(), "lease", id)?;
    Ok((row, view))
}

/// The lease, if the caller may do with it what it asks for.
pub async fn usable(app: &App, caller: &Caller, id: &str) -> Result<Lease, ApiError> {
    seen(app, caller, id).await.map(|(row, _)| row)
}

fn status(text: Option<&str>) -> Result<Option<Status>, ApiError> {
    let Some(text) = text else { return Ok(None) };
    Status::parse(text).map(Some).ok_or_else(|| {
        let known: Vec<_> = Status::ALL.iter().map(|s| s.as_str()).collect();
        one_of("?status", text, &known)
    })
}

/// List the leases of an environment
#[utoipa::path(get, path = "/api/environments/{environmentId}/leases", operation_id = "listLeases", tag = "leases",
    params(("environmentId" = String, Path, description = "The environment's id"), LeaseQuery),
    responses((status = 200, description = "A page of leases, newest first", body = LeasePageView)))]
async fn list_of_environment(
    State(app): State<App>,
    caller: Caller,
    Id(environment): Id,
    place: Place,
    Query(query): Query<LeaseQuery>,
) -> Result<Response, ApiError> {
    let authority = app.service()?.authority();
    let row = authority.environments().get(&environment).await?;
    let scope = Scope::of(row.company_id.as_deref());
    let view = caller.sees(scope, "environment", &environment)?;
    // Of one that all share each sees what is their own company's.
    let own = caller.companies().unwrap_or_default();
    let companies = own.into_iter().map(str::to_owned).collect();
    page(
        &app,
        &caller,
        &place,
        view,
        companies,
        Some(environment),
        query,
    )
    .await
}

/// List the leases of a company
#[utoipa::path(get, path = "/api/companies/{companyId}/environment-leases", operation_id = "listCompanyLeases", tag = "leases",
    params(("companyId" = String, Path, description = "The company's id"), LeaseQuery),
    responses((status = 200, description = "A page of leases, newest first", body = LeasePageView)))]
async fn list_of_company(
    State(app): State<App>,
    caller: Caller,
    Id(company): Id,
    place: Place,
    Query(query): Query<LeaseQuery>,
) -> Result<Response, ApiError> {
    let view = caller.sees_known_company(&app, &company).await?;
    page(&app, &caller, &place, view, vec![company], None, query).await
}

async fn page(
    app: &App,
    caller: &Caller,
    place: &Place,
    view: View,
    companies: Vec<String>,
    environment: Option<String>,
    query: LeaseQuery,
) -> Result<Response, ApiError> {
    let filter = LeaseFilter {
        companies,
        environment,
        run: caller.run().map(str::to_owned),
        provider: None,
        statuses: status(query.status.as_deref())?.into_iter().collect(),
        cursor: query.cursor,
        limit: pages::limit(query.limit)?,
    };
    let service = app.service()?;
    let page = service.authority().leases().list(&filter).await?;
    let items = page.items.into_iter();
    let view = LeasePageView {
        items: items
            .map(|row| LeaseView::now(row, view, service))
            .collect(),
        next: page.next,
    };
    Ok(place.answer(&view, view.next.as_deref()))
}

/// Lease an environment
///
/// Answers when the lease is active, or why it is not. What was begun and could not be finished is cleaned up
/// and shown as a lease of its own.
#[utoipa::path(post, path = "/api/environments/{environmentId}/leases", operation_id = "acquireLease", tag = "leases",
    params(("environmentId" = String, Path, description = "The environment's id"), ProgressQuery),
    request_body = AcquireBody,
    responses((status = 201, description = "The active lease", body = LeaseView)))]
async fn acquire(
    State(app): State<App>,
    caller: Caller,
    Id(environment): Id,
    Query(named): Query<ProgressQuery>,
    headers: HeaderMap,
    OptionalJson(body): OptionalJson<AcquireBody>,
) -> Result<(StatusCode, axum::Json<LeaseView>), ApiError> {
    let idempotency_key = once::lease_key(body.idempotency_key, &headers)?;
    let progress_id = named.checked()?;
    let service = app.service()?;
    let row = service.authority().environments().get(&environment).await?;
    // Of an agent that works for one run the lease is that run's, whether it says so or not.
    let run_id = body.run_id.or_else(|| caller.run().map(str::to_owned));
    let seen = Scope::of(row.company_id.as_deref());
    caller.sees(seen, "environment", &environment)?;
    let asked = body.company_id.as_deref();
    let company = service
        .company_for(&caller, &row, asked, "/companyId")
        .await?;
    let scope = Scope::Run {
        company: &company,
        run: run_id.as_deref(),
    };
    caller.sees(scope, "environment", &environment)?;
    if body.ttl_seconds == Some(0) {
        return Err(ApiError::field(
            "/ttlSeconds",
            "is 0; give at least 1, or leave it out",
        ));
    }
    let request = AcquireRequest {
        company_id: Some(company),
        ttl_seconds: body.ttl_seconds,
        idempotency_key,
        agent_id: body.agent_id,
        run_id,
        workspace_id: body.workspace_id,
        issue_id: body.issue_id,
        timeout_ms: body.timeout_ms,
        progress_id,
    };
    let lease = service.acquire(&caller, &environment, request).await?;
    Ok((StatusCode::CREATED, axum::Json(lease.into())))
}

/// Get a lease
#[utoipa::path(get, path = "/api/environment-leases/{leaseId}", operation_id = "getLease", tag = "leases",
    params(("leaseId" = String, Path, description = "The lease's id")),
    responses((status = 200, description = "The lease", body = LeaseView)))]
async fn get(
    State(app): State<App>,
    caller: Caller,
    Id(id): Id,
) -> Result<axum::Json<LeaseView>, ApiError> {
    let (row, view) = seen(&app, &caller, &id).await?;
    Ok(axum::Json(LeaseView::now(row, view, app.service()?)))
}

/// Look at a leased environment now
#[utoipa::path(get, path = "/api/environment-leases/{leaseId}/observation", operation_id = "observeLease", tag = "leases",
    params(("leaseId" = String, Path, description = "The lease's id")),
    responses((status = 200, description = "What the provider sees", body = ObservationView)))]
async fn observe(
    State(app): State<App>,
    caller: Caller,
    Id(id): Id,
) -> Result<axum::Json<ObservationView>, ApiError> {
    usable(&app, &caller, &id).await?;
    let seen = app.service()?.inspect_lease(&caller, &id).await?;
    Ok(axum::Json(ObservationView {
        condition: match seen.condition {
            Condition::Starting => "starting",
            Condition::Ready => "ready",
            Condition::Stopping => "stopping",
            Condition::Stopped => "stopped",
            Condition::Failed => "failed",
            Condition::Gone => "gone",
        },
        image: seen.image,
        message: seen.message,
    }))
}

/// Renew a lease
///
/// Before it expires. With `expectedExpiresAt` only if nobody else renewed it meanwhile.
#[utoipa::path(post, path = "/api/environment-leases/{leaseId}/renew", operation_id = "renewLease", tag = "leases",
    params(("leaseId" = String, Path, description = "The lease's id")),
    request_body = RenewBody,
    responses((status = 200, description = "The lease", body = LeaseView)))]
async fn renew(
    State(app): State<App>,
    caller: Caller,
    Id(id): Id,
    Json(body): Json<RenewBody>,
) -> Result<axum::Json<LeaseView>, ApiError> {
    usable(&app, &caller, &id).await?;
    if body.ttl_seconds == 0 {
        return Err(ApiError::field("/ttlSeconds", "is 0; give at least 1"));
    }
    let expected = match body.expected_expires_at.as_deref().map(Time::parse) {
        None => None,
        Some(Some(time)) => Some(time.0),
        Some(None) => {
            return Err(ApiError::field(
                "/expectedExpiresAt",
                "is not a moment; write it as the lease's expiresAt has it",
            ));
        }
    };
    let service = app.service()?;
    let lease = service
        .renew(&caller, &id, body.ttl_seconds, expected)
        .await?;
    Ok(axum::Json(lease.into()))
}

/// Release a lease
///
/// Answers `released` once the host has looked itself and found nothing left, or `pending_cleanup` when that
/// is not certain yet: it is tried again until it is.
#[utoipa::path(post, path = "/api/environment-leases/{leaseId}/release", operation_id = "releaseLease", tag = "leases",
    params(("leaseId" = String, Path, description = "The lease's id")),
    responses((status = 200, description = "The lease", body = LeaseView)))]
async fn release(
    State(app): State<App>,
    caller: Caller,
    Id(id): Id,
) -> Result<axum::Json<LeaseView>, ApiError> {
    usable(&app, &caller, &id).await?;
    let lease = app.service()?.release(&caller, &id).await?;
    Ok(axum::Json(lease.into()))
}

/// Abandon a lease
///
/// A person's way out of a cleanup that cannot succeed: nothing is tried any more, and what may be left is
/// theirs to remove.
#[utoipa::path(post, path = "/api/environment-leases/{leaseId}/abandon", operation_id = "abandonLease", tag = "leases",
    params(("leaseId" = String, Path, description = "The lease's id")),
    request_body = AbandonBody,
    responses((status = 200, description = "The lease", body = LeaseView)))]
async fn abandon(
    State(app): State<App>,
    caller: Caller,
    Id(id): Id,
    Json(body): Json<AbandonBody>,
) -> Result<axum::Json<LeaseView>, ApiError> {
    if body.reason.trim().is_empty() {
        return Err(ApiError::field(
            "/reason",
            "is empty; say why nobody waits any longer",
        ));
    }
    let lease = app.service()?.abandon(&caller, &id, &body.reason).await?;
    Ok(axum::Json(lease.into()))
}

//! What happened: the activity chain, read in committed order.

use axum::extract::State;
use leasehold_authority::{ActivityFilter, ActivityRow};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::body::{Id, Query};
use super::errors::ApiError;
use super::time::Time;
use crate::access::Caller;
use crate::app::App;

/// Something that happened.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Activity)]
pub struct ActivityView {
    /// Its place in the order of commits.
    position: i64,
    time: Time,
    /// Such as `environment.created`.
    action: String,
    company_id: Option<String>,
    /// Who did it.
    actor: String,
    /// Such as `environment`.
    subject_kind: String,
    subject_id: String,
    /// Names and counts, never a secret.
    #[schema(value_type = Object)]
    details: Value,
}

/// A page of the chain.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ActivityPage {
    items: Vec<ActivityView>,
    /// `after` of the next page when reading forward, where there may be nothing yet; `before` of the next page
    /// when reading backward, and none at the beginning.
    next: Option<i64>,
}

/// The chain's state.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ChainView {
    /// How many rows were checked.
    rows: u64,
    /// The last row's number.
    sequence: i64,
    /// The last row's authentication, in hex: keep it elsewhere, and a chain that was cut shorter is noticed.
    head: String,
}

/// From where, and how much.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
#[into_params(parameter_in = Query)]
pub struct ActivityQuery {
    /// Only what came after this position, oldest first.
    after: Option<i64>,
    /// Only what came before this position, newest first, as it is without both.
    before: Option<i64>,
    /// Only what was done to the thing of this id.
    subject: Option<String>,
    /// At most this many, 1 to 1000; 100 without.
    limit: Option<u32>,
}

/// The routes.
pub fn router() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(of_company))
        .routes(routes!(of_all))
        .routes(routes!(verify))
}

async fn page(
    app: &App,
    company: Option<String>,
    query: ActivityQuery,
) -> Result<axum::Json<ActivityPage>, ApiError> {
    let limit = query.limit.unwrap_or(100);
    if !(1..=1000).contains(&limit) {
        return Err(ApiError::field(
            "?limit",
            format!("is {limit}; it is a number from 1 to 1000"),
        ));
    }
    if query.after.is_some() && query.before.is_some() {
        return Err(ApiError::field(
            "?before",
            "is given beside after; give one of the two",
        ));
    }
    let filter = ActivityFilter {
        company,
        subject: query.subject,
        after: query.after,
        before: query.before,
        limit,
    };
    let rows = app.service()?.authority().activity().list(&filter).await?;
    let last = rows.last().map(|row| row.position);
    let next = match filter.after {
        Some(after) => Some(last.unwrap_or(after)),
        None => last.filter(|_| rows.len() == limit as usize),
    };
    let items = rows.into_iter().map(Into::into).collect();
    Ok(axum::Json(ActivityPage { items, next }))
}

/// Read a company's activity
#[utoipa::path(get, path = "/api/companies/{companyId}/activity", operation_id = "listCompanyActivity", tag = "activity",
    params(("companyId" = String, Path, description = "The company's id"), ActivityQuery),
    responses((status = 200, description = "A page", body = ActivityPage)))]
async fn of_company(
    State(app): State<App>,
    caller: Caller,
    Id(company): Id,
    Query(query): Query<ActivityQuery>,
) -> Result<axum::Json<ActivityPage>, ApiError> {
    caller.sees_company(&company)?;
    page(&app, Some(company), query).await
}

/// Read all activity
#[utoipa::path(get, path = "/api/activity", operation_id = "listActivity", tag = "activity",
    params(ActivityQuery),
    responses((status = 200, description = "A page", body = ActivityPage)))]
async fn of_all(
    State(app): State<App>,
    caller: Caller,
    Query(query): Query<ActivityQuery>,
) -> Result<axum::Json<ActivityPage>, ApiError> {
    caller.sees_all()?;
    page(&app, None, query).await
}

/// Check the whole activity chain
///
/// A row that was changed, removed or put in fails it.
#[utoipa::path(get, path = "/api/activity/chain", operation_id = "verifyActivity", tag = "activity",
    responses((status = 200, description = "It holds", body = ChainView)))]
async fn verify(State(app): State<App>, caller: Caller) -> Result<axum::Json<ChainView>, ApiError> {
    caller.sees_all()?;
    let found = app.service()?.authority().activity().verify(None).await?;
    Ok(axum::Json(ChainView {
        rows: found.rows,
        sequence: found.head.sequence,
        head: found.head.mac.iter().map(|b| format!("{b:02x}")).collect(),
    }))
}

impl From<ActivityRow> for ActivityView {
    fn from(row: ActivityRow) -> ActivityView {
        ActivityView {
            position: row.position,
            time: row.at.into(),
            action: row.action,
            company_id: row.company_id,
            actor: row.actor,
            subject_kind: row.subject_kind,
            subject_id: row.subject,
            details: row.details,
        }
    }
}

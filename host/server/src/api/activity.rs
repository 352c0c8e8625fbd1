//! What happened: the activity, read in committed order.
//!
//! Board members see of their companies what happened, by whom and how it ended; of the details only those on a list of
//! names, as the others may hold what a provider or a target said, or where something is.

use axum::extract::State;
use axum::response::Response;
use leasehold_authority::{ActivityFilter, ActivityOutcome, ActivityRow, View};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::body::{Id, Query};
use super::errors::{ApiError, shown};
use super::pages::Place;
use super::time::Time;
use crate::access::Caller;
use crate::app::App;

/// The details that everybody who sees a row sees of it: words of the host's own, ids and counts.
const SEEN_BY_ALL: [&str; 30] = [
    "after",
    "arguments",
    "attempt",
    "before",
    "cancelled",
    "changed",
    "code",
    "configKeys",
    "count",
    "driver",
    "durationMs",
    "environment",
    "epoch",
    "executionsUnknown",
    "expiresAt",
    "findings",
    "keys",
    "lease",
    "name",
    "ok",
    "operation",
    "plugin",
    "provider",
    "purpose",
    "retryAfter",
    "role",
    "secretBindings",
    "since",
    "status",
    "version",
];

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
    /// `local-operator`, `token`, `system`, or `nobody` where nobody was proven.
    actor_kind: String,
    /// The token's id, of a token.
    actor_id: Option<String>,
    /// Who did it, for a person.
    actor: String,
    /// Such as `environment`.
    subject_kind: String,
    subject_id: String,
    /// `done`, `denied`, `failed` or `unknown`.
    outcome: String,
    /// How often the same happened, of which this row tells; `details.since` says since when.
    times: i64,
    /// Names of the fields that were changed.
    changed: Vec<String>,
    /// Names and counts, never a secret.
    #[schema(value_type = Object)]
    details: Value,
}

/// A page of the activity.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ActivityPage {
    items: Vec<ActivityView>,
    /// `after` of the next page when reading forward, where there may be nothing yet; `before` of the next page
    /// when reading backward, and none at the beginning.
    next: Option<i64>,
}

/// Which of it.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
#[into_params(parameter_in = Query)]
pub struct ActivityQuery {
    /// Only what came after this position, oldest first.
    after: Option<i64>,
    /// Only what came before this position, newest first, as it is without both.
    before: Option<i64>,
    /// Only what this actor did: a token's id or name, or `local-operator`, `system` or `nobody`.
    actor: Option<String>,
    /// Only actions that begin so, such as `lease.` or `environment.updated`.
    action: Option<String>,
    /// Only what was done to things of this kind, such as `environment`.
    subject_kind: Option<String>,
    /// Only what was done to the thing of this id.
    subject: Option<String>,
    /// Only what ended so: `done`, `denied`, `failed` or `unknown`.
    outcome: Option<String>,
    /// Only what happened at this moment or later (RFC 3339).
    since: Option<String>,
    /// Only what happened before this moment (RFC 3339).
    until: Option<String>,
    /// At most this many, 1 to 1000; 100 without.
    limit: Option<u32>,
}

/// The routes.
pub fn router() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(of_company))
        .routes(routes!(of_all))
}

fn moment(field: &str, text: Option<String>) -> Result<Option<i64>, ApiError> {
    let Some(text) = text else { return Ok(None) };
    match Time::parse(&text) {
        Some(Time(at)) => Ok(Some(at)),
        None => Err(ApiError::field(
            field,
            format!(
                "`{}` is no moment; write it like 2026-01-31T12:00:00Z",
                shown(&text)
            ),
        )),
    }
}

/// The outcome that a filter names.
pub(super) fn outcome(text: Option<String>) -> Result<Option<ActivityOutcome>, ApiError> {
    let Some(text) = text else { return Ok(None) };
    ActivityOutcome::named(&text).map(Some).ok_or_else(|| {
        ApiError::field(
            "?outcome",
            format!(
                "`{}` is none; it is done, denied, failed or unknown",
                shown(&text)
            ),
        )
    })
}

impl ActivityQuery {
    fn filter(self, company: Option<String>) -> Result<ActivityFilter, ApiError> {
        let limit = self.limit.unwrap_or(100);
        if !(1..=1000).contains(&limit) {
            return Err(ApiError::field(
                "?limit",
                format!("is {limit}; it is a number from 1 to 1000"),
            ));
        }
        if self.after.is_some() && self.before.is_some() {
            return Err(ApiError::field(
                "?before",
                "is given beside after; give one of the two",
            ));
        }
        Ok(ActivityFilter {
            company,
            actor: self.actor,
            action: self.action,
            subject_kind: self.subject_kind,
            subject: self.subject,
            outcome: outcome(self.outcome)?,
            since: moment("?since", self.since)?,
            until: moment("?until", self.until)?,
            after: self.after,
            before: self.before,
            limit,
        })
    }
}

async fn page(
    app: &App,
    view: View,
    company: Option<String>,
    place: &Place,
    query: ActivityQuery,
) -> Result<Response, ApiError> {
    let filter = query.filter(company)?;
    let rows = app.service()?.authority().activity().list(&filter).await?;
    let last = rows.last().map(|row| row.position);
    let next = match filter.after {
        Some(after) => Some(last.unwrap_or(after)),
        None => last.filter(|_| rows.len() == filter.limit as usize),
    };
    let full = rows.len() == filter.limit as usize;
    let parameter = filter.after.map_or("before", |_| "after");
    let link = last.filter(|_| full).map(|last| last.to_string());
    let items = rows.into_iter().map(|row| seen(row, view)).collect();
    let page = ActivityPage { items, next };
    Ok(place.answer_from(page, parameter, link.as_deref()))
}

/// Read a company's activity
#[utoipa::path(get, path = "/api/companies/{companyId}/activity", operation_id = "listCompanyActivity", tag = "activity",
    params(("companyId" = String, Path, description = "The company's id"), ActivityQuery),
    responses((status = 200, description = "A page", body = ActivityPage)))]
async fn of_company(
    State(app): State<App>,
    caller: Caller,
    Id(company): Id,
    place: Place,
    Query(query): Query<ActivityQuery>,
) -> Result<Response, ApiError> {
    let view = caller.sees_known_company(&app, &company).await?;
    page(&app, view, Some(company), &place, query).await
}

/// Read all activity
#[utoipa::path(get, path = "/api/activity", operation_id = "listActivity", tag = "activity",
    params(ActivityQuery),
    responses((status = 200, description = "A page", body = ActivityPage)))]
async fn of_all(
    State(app): State<App>,
    caller: Caller,
    place: Place,
    Query(query): Query<ActivityQuery>,
) -> Result<Response, ApiError> {
    let view = caller.sees_all()?;
    page(&app, view, None, &place, query).await
}

/// A row as somebody sees it who sees so much of it.
pub(super) fn seen(row: ActivityRow, view: View) -> ActivityView {
    let changed = row.details["changed"].as_array();
    let changed = changed
        .into_iter()
        .flatten()
        .filter_map(|name| name.as_str().map(str::to_owned))
        .collect();
    let details = match (row.details, view) {
        (details, View::Whole) => details,
        (Value::Object(details), View::Blanked | View::Safe) => {
            let told = details.into_iter();
            let told: Map<String, Value> = told
                .filter(|(name, _)| SEEN_BY_ALL.contains(&name.as_str()))
                .collect();
            Value::Object(told)
        }
        (_, View::Blanked | View::Safe) => Value::Object(Map::new()),
    };
    ActivityView {
        position: row.position,
        time: row.at.into(),
        action: row.action,
        company_id: row.company_id,
        actor_kind: row.actor_kind,
        actor_id: row.actor_id,
        actor: row.actor,
        subject_kind: row.subject_kind,
        subject_id: row.subject,
        outcome: row.outcome,
        times: row.times,
        changed,
        details,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn who_is_told_nothing_of_targets_sees_listed_details_alone() {
        let row = |details| ActivityRow {
            position: 1,
            replica: "main".into(),
            sequence: 1,
            at: 0,
            company_id: Some("co_1".into()),
            actor_kind: "system".into(),
            actor_id: None,
            actor: "expiry".into(),
            action: "lease.failed".into(),
            subject_kind: "lease".into(),
            subject: "lease_1".into(),
            outcome: "failed".into(),
            times: 1,
            details,
        };
        let details = json!({
            "status": "failed", "epoch": 2, "changed": ["name", "config"],
            "reason": "ssh: 10.0.0.5 said no", "failure": {}, "resource": "box-7", "destroyed": ["x"], "adopted": "y",
            "proof": {}, "acquisition": "acq_1", "endpoint": "https://a", "account": "k", "target": "u@h:22",
            "destinations": ["https://a"], "pointer": "/target", "workspace": "/srv/leases/x", "ends": {},
            "outcome": {"unknown": "the machine said so"}, "program": "sh", "envNames": ["A"], "owner": "co_2",
        });
        let whole = seen(row(details.clone()), View::Whole);
        assert_eq!(whole.details, details);
        let blanked = seen(row(details), View::Blanked);
        let kept = json!({"status": "failed", "epoch": 2, "changed": ["name", "config"]});
        assert_eq!(blanked.details, kept);
        assert_eq!(blanked.changed, ["name", "config"]);
        assert_eq!(seen(row(json!("text")), View::Blanked).details, json!({}));
    }
}

//! The activity as it happens, as server-sent events.
//!
//! An event's id is its row's position, which grows in the order of commits: whoever comes back with the last id gets
//! what came after it, nothing twice and nothing left out, whatever became of the server in between. A stream reads a
//! page of rows when its client has taken the last one, so that a slow client holds a page and never a queue. It ends
//! with the caller's token, and when the server stops.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::Pin;
use std::time::Duration;

use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::sse::{Event, Sse};
use futures_util::{FutureExt, Stream};
use leasehold_authority::{Activity, ActivityFilter, ActivityRow, View};
use serde::Deserialize;
use tokio::sync::{OwnedSemaphorePermit, watch};
use tokio_util::sync::CancellationToken;
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::activity::{outcome, seen};
use super::body::{Id, Query};
use super::errors::{ApiError, ErrorCode, shown};
use crate::access::{Caller, gate};
use crate::app::App;

/// How often something is sent while nothing happens.
const HEARTBEAT: Duration = Duration::from_secs(15);
/// How long a client should wait before it comes back.
const RETRY: Duration = Duration::from_secs(1);
/// Rows that a stream reads at once.
const PAGE: u32 = 100;

/// From where, and which of it.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
#[into_params(parameter_in = Query)]
pub struct FollowQuery {
    /// Begin after this position; without, and without `Last-Event-ID`, begin with what happens next.
    after: Option<i64>,
    /// Only what this actor does: a token's id or name, or `local-operator`, `system` or `nobody`.
    actor: Option<String>,
    /// Only actions that begin so.
    action: Option<String>,
    /// Only what is done to things of this kind.
    subject_kind: Option<String>,
    /// Only what is done to the thing of this id.
    subject: Option<String>,
    /// Only what ends so: `done`, `denied`, `failed` or `unknown`.
    outcome: Option<String>,
}

/// The routes.
pub fn router() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(of_company))
        .routes(routes!(of_all))
}

/// Where a client that was here before goes on.
fn resumed(headers: &HeaderMap) -> Result<Option<i64>, ApiError> {
    let Some(value) = headers.get("last-event-id") else {
        return Ok(None);
    };
    let text = value.to_str().unwrap_or("");
    let position = text.trim().parse().ok().filter(|position| *position >= 0);
    position.map(Some).ok_or_else(|| {
        ApiError::new(
            ErrorCode::BadRequest,
            format!(
                "Last-Event-ID: `{}` is not the id of an event, which is a whole number",
                shown(text)
            ),
        )
    })
}

async fn follow(
    app: App,
    caller: Caller,
    view: View,
    company: Option<String>,
    query: FollowQuery,
    headers: HeaderMap,
) -> Result<Sse<impl Stream<Item = Result<Event, Infallible>>>, ApiError> {
    let resumed = resumed(&headers)?;
    let filter = ActivityFilter {
        company,
        actor: query.actor,
        action: query.action,
        subject_kind: query.subject_kind,
        subject: query.subject,
        outcome: outcome(query.outcome)?,
        limit: PAGE,
        ..ActivityFilter::default()
    };
    let place = app.watchers().clone().try_acquire_owned().map_err(|_| {
        ApiError::new(
            ErrorCode::TooManyConnections,
            "as many follow or export the activity as this server takes; read it by pages, or try again",
        )
    })?;
    let activity = app.service()?.authority().activity();
    let changes = activity.changes();
    let cursor = match resumed.or(query.after) {
        Some(position) => position,
        None => activity.top().await?,
    };
    let closing = app.closing().clone();
    let followed = Followed {
        activity,
        filter,
        view,
        cursor,
        waiting: VecDeque::new(),
        changes,
        closing,
        dismissed: Box::pin(async move { gate::dismissed(&app, &caller).await }),
        begun: false,
        over: false,
        _place: place,
    };
    Ok(Sse::new(futures_util::stream::unfold(
        followed,
        Followed::next,
    )))
}

/// A client that follows.
struct Followed {
    activity: Activity,
    filter: ActivityFilter,
    view: View,
    /// What was looked at up to here, sent or not what the client wants.
    cursor: i64,
    waiting: VecDeque<ActivityRow>,
    changes: watch::Receiver<i64>,
    closing: CancellationToken,
    dismissed: Pin<Box<dyn Future<Output = ApiError> + Send>>,
    begun: bool,
    over: bool,
    _place: OwnedSemaphorePermit,
}

impl Followed {
    async fn next(mut self) -> Option<(Result<Event, Infallible>, Followed)> {
        if self.over {
            return None;
        }
        let event = match self.event().await {
            Ok(event) => event,
            Err(refusal) => {
                self.over = true;
                Event::default()
                    .event("error")
                    .data(refusal.to_json().to_string())
            }
        };
        Some((Ok(event), self))
    }

    /// The next event; an error is the last.
    async fn event(&mut self) -> Result<Event, ApiError> {
        if !std::mem::replace(&mut self.begun, true) {
            // The id alone: whoever sees no event knows from where to go on all the same.
            return Ok(Event::default().id(self.cursor.to_string()).retry(RETRY));
        }
        let beat = tokio::time::Instant::now() + HEARTBEAT;
        loop {
            if self.closing.is_cancelled() {
                return Err(ApiError::new(
                    ErrorCode::ShuttingDown,
                    "the server is being stopped; come back with the last id",
                ));
            }
            if let Some(refusal) = self.dismissed.as_mut().now_or_never() {
                return Err(refusal);
            }
            if let Some(row) = self.waiting.pop_front() {
                let id = row.position.to_string();
                let data = serde_json::to_string(&seen(row, self.view)).unwrap_or_default();
                return Ok(Event::default().id(id).event("activity").data(data));
            }
            self.changes.borrow_and_update();
            let (rows, cursor) = self.activity.tail(&self.filter, self.cursor).await?;
            self.cursor = cursor;
            self.waiting = rows.into();
            if !self.waiting.is_empty() {
                continue;
            }
            tokio::select! {
                biased;
                () = self.closing.cancelled() => {}
                refusal = self.dismissed.as_mut() => return Err(refusal),
                changed = self.changes.changed() => {
                    if changed.is_err() {
                        return Err(ApiError::new(ErrorCode::ShuttingDown, "the server is being stopped"));
                    }
                }
                // What another process wrote is seen by then, too.
                () = tokio::time::sleep_until(beat) => {
                    return Ok(Event::default().id(self.cursor.to_string()).comment("still here"));
                }
            }
        }
    }
}

/// Follow a company's activity
///
/// Server-sent events: `activity`, whose data is what a page has as an item and whose id is its position; `error`, the
/// last, whose data is a refusal. An id without data says how far the server has looked. `Last-Event-ID` goes on from there.
#[utoipa::path(get, path = "/api/companies/{companyId}/activity/stream", operation_id = "streamCompanyActivity",
    tag = "activity",
    params(("companyId" = String, Path, description = "The company's id"), FollowQuery,
        ("Last-Event-ID" = Option<i64>, Header, description = "The last id that was seen; outweighs `after`")),
    responses((status = 200, description = "Events", body = String, content_type = "text/event-stream")))]
async fn of_company(
    State(app): State<App>,
    caller: Caller,
    Id(company): Id,
    Query(query): Query<FollowQuery>,
    headers: HeaderMap,
) -> Result<Sse<impl Stream<Item = Result<Event, Infallible>>>, ApiError> {
    let view = caller.sees_known_company(&app, &company).await?;
    follow(app, caller, view, Some(company), query, headers).await
}

/// Follow all activity
///
/// As the stream of a company.
#[utoipa::path(get, path = "/api/activity/stream", operation_id = "streamActivity", tag = "activity",
    params(FollowQuery,
        ("Last-Event-ID" = Option<i64>, Header, description = "The last id that was seen; outweighs `after`")),
    responses((status = 200, description = "Events", body = String, content_type = "text/event-stream")))]
async fn of_all(
    State(app): State<App>,
    caller: Caller,
    Query(query): Query<FollowQuery>,
    headers: HeaderMap,
) -> Result<Sse<impl Stream<Item = Result<Event, Infallible>>>, ApiError> {
    let view = caller.sees_all()?;
    follow(app, caller, view, None, query, headers).await
}

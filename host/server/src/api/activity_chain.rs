//! The activity's proof: its head, the check of the whole chain, and exports that can be checked again.

use axum::body::Body;
use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::StreamExt;
use leasehold_authority::{Error as AuthorityError, Head};
use serde::{Deserialize, Serialize};
use tokio_util::codec::{FramedRead, LinesCodec, LinesCodecError};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::body::{JsonLines, Query};
use super::errors::{ApiError, ErrorCode};
use crate::access::{Caller, Dismissed};
use crate::app::App;

/// Rows that are read at once.
const PAGE: u32 = 500;
/// The longest line of an export, in bytes.
const LONGEST_LINE: usize = 1 << 20;

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

/// The end of this server's chain.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct HeadView {
    /// Whose chain.
    replica: String,
    /// The last row's number; 0 where there is none.
    sequence: i64,
    /// The last row's authentication, in hex.
    head: String,
}

/// What is right about an export.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ExportCheckedView {
    /// How many rows.
    rows: u64,
    /// By replica.
    chains: Vec<ExportedChainView>,
}

/// What an export has of one chain.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ExportedChainView {
    replica: String,
    /// The first row's number: what is before it is not in the export.
    first: i64,
    /// The last row's number.
    sequence: i64,
    /// The last row's authentication, in hex.
    head: String,
}

/// A head that was kept; both or none.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
#[into_params(parameter_in = Query)]
pub struct KeptQuery {
    /// The row's number of a head that was kept.
    sequence: Option<i64>,
    /// Its authentication, in hex. It must be in the chain.
    head: Option<String>,
}

impl KeptQuery {
    fn kept(self) -> Result<Option<Head>, ApiError> {
        match (self.sequence, self.head) {
            (None, None) => Ok(None),
            (Some(sequence), Some(head)) => Head::of_hex(sequence, &head).map(Some).ok_or_else(|| {
                ApiError::field(
                    "?head",
                    "is not the head of that number; give both as `leasehold activity head` prints them",
                )
            }),
            (None, Some(_)) => Err(ApiError::field("?sequence", "is missing beside head")),
            (Some(_), None) => Err(ApiError::field("?head", "is missing beside sequence")),
        }
    }
}

/// From where.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
#[into_params(parameter_in = Query)]
pub struct ExportQuery {
    /// Only what came after this position.
    after: Option<i64>,
}

/// The routes.
pub fn router() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(verify))
        .routes(routes!(head))
        .routes(routes!(export))
        .routes(routes!(check))
}

/// Check the whole activity chain
///
/// A row that was changed, removed or put in fails it; an end that was cut off, or a head that never was in it, is a 409.
#[utoipa::path(get, path = "/api/activity/chain", operation_id = "verifyActivity", tag = "activity",
    params(KeptQuery),
    responses((status = 200, description = "It holds", body = ChainView)))]
async fn verify(
    State(app): State<App>,
    caller: Caller,
    Query(query): Query<KeptQuery>,
) -> Result<axum::Json<ChainView>, ApiError> {
    caller.sees_all()?;
    let kept = query.kept()?;
    let activity = app.service()?.authority().activity();
    let found = match (activity.verify(kept.as_ref()).await, &kept) {
        (Err(AuthorityError::Corrupt { .. }), Some(_)) => {
            // Where the chain itself holds, what is missing is what the caller says there was.
            activity.verify(None).await?;
            return Err(missing("chain"));
        }
        (found, _) => found?,
    };
    Ok(axum::Json(ChainView {
        rows: found.rows,
        sequence: found.head.sequence,
        head: found.head.mac_hex(),
    }))
}

/// A head that was kept is not there: the caller's word against what is checked, and no failure of the server.
fn missing(from: &str) -> ApiError {
    ApiError::new(
        ErrorCode::Conflict,
        format!(
            "the kept head is missing from the activity {from}: rows were cut off, or the head is another server's"
        ),
    )
}

/// Read the end of the activity chain
#[utoipa::path(get, path = "/api/activity/head", operation_id = "getActivityHead", tag = "activity",
    responses((status = 200, description = "The end", body = HeadView)))]
async fn head(State(app): State<App>, caller: Caller) -> Result<axum::Json<HeadView>, ApiError> {
    caller.sees_all()?;
    let authority = app.service()?.authority();
    let head = authority.activity().head().await?;
    Ok(axum::Json(HeadView {
        replica: authority.replica().to_owned(),
        sequence: head.sequence,
        head: head.mac_hex(),
    }))
}

/// Export the activity
///
/// NDJSON in the order of commits, a row a line, each with its own authentication and the one before it. An export that
/// does not come to its end ends without the end of its encoding, as every answer that breaks off does.
#[utoipa::path(get, path = "/api/activity/export", operation_id = "exportActivity", tag = "activity",
    params(ExportQuery),
    responses((status = 200, description = "The rows", body = String, content_type = "application/x-ndjson")))]
async fn export(
    State(app): State<App>,
    caller: Caller,
    Query(query): Query<ExportQuery>,
) -> Result<Response, ApiError> {
    caller.sees_all()?;
    let place = app.watchers().place(&caller).ok_or_else(|| {
        ApiError::new(
            ErrorCode::TooManyConnections,
            "as many follow or export the activity as this server takes; try again",
        )
    })?;
    let activity = app.service()?.authority().activity();
    let closing = app.closing().clone();
    let dismissed = Dismissed::watch(&app, &caller, place);
    let first = query.after.unwrap_or(0);
    let pages = futures_util::stream::try_unfold(Some(first), move |after| {
        let stopped = closing.is_cancelled() || dismissed.is_over();
        let activity = activity.clone();
        async move {
            let Some(after) = after else { return Ok(None) };
            if stopped {
                return Err(std::io::Error::other("the export was ended"));
            }
            let rows = activity.export(after, PAGE).await;
            let rows = rows.map_err(std::io::Error::other)?;
            let Some(last) = rows.last().map(|exported| exported.row.position) else {
                return Ok(None);
            };
            let mut page = Vec::new();
            for row in &rows {
                serde_json::to_writer(&mut page, row).map_err(std::io::Error::other)?;
                page.push(b'\n');
            }
            let full = rows.len() == PAGE as usize;
            Ok(Some((Bytes::from(page), full.then_some(last))))
        }
    });
    let kind = [(header::CONTENT_TYPE, "application/x-ndjson")];
    Ok((kind, Body::from_stream(pages)).into_response())
}

/// Check an export of the activity
///
/// The body is what was exported, whole or from some row on. Each row must be this instance's own, byte for byte, and
/// follow the one before it. A head that was kept must be in it, or the answer is a 409.
#[utoipa::path(post, path = "/api/activity/check-export", operation_id = "checkActivityExport", tag = "activity",
    params(KeptQuery),
    request_body(content = String, content_type = "application/x-ndjson"),
    responses((status = 200, description = "It holds", body = ExportCheckedView)))]
async fn check(
    State(app): State<App>,
    caller: Caller,
    Query(query): Query<KeptQuery>,
    JsonLines(body): JsonLines,
) -> Result<axum::Json<ExportCheckedView>, ApiError> {
    caller.sees_all()?;
    let mut check = app
        .service()?
        .authority()
        .activity()
        .check_export(query.kept()?);
    let mut lines = FramedRead::new(body, LinesCodec::new_with_max_length(LONGEST_LINE));
    while let Some(line) = lines.next().await {
        match line {
            Ok(line) => check.line(&line)?,
            Err(LinesCodecError::MaxLineLengthExceeded) => {
                return Err(ApiError::field(
                    "",
                    format!("a line has more than {LONGEST_LINE} bytes; no row has"),
                ));
            }
            Err(LinesCodecError::Io(error)) => {
                return Err(ApiError::new(
                    ErrorCode::BadRequest,
                    format!("the body: {error}"),
                ));
            }
        }
    }
    // That is all that is left to be wrong with it: what the caller says there was is not among what the caller sent.
    let found = match check.done() {
        Err(AuthorityError::Corrupt { .. }) => return Err(missing("export")),
        found => found?,
    };
    let chains = found.chains.into_iter();
    Ok(axum::Json(ExportCheckedView {
        rows: found.rows,
        chains: chains
            .map(|(replica, chain)| ExportedChainView {
                replica,
                first: chain.first,
                sequence: chain.head.sequence,
                head: chain.head.mac_hex(),
            })
            .collect(),
    }))
}

//! Files into and out of a lease, as tar archives that stream.

use axum::body::Body;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use bytes::BytesMut;
use futures_util::StreamExt;
use serde::Deserialize;
use tokio::io::AsyncReadExt;
use tokio_util::io::ReaderStream;
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::body::{Archive, Id, Query};
use super::errors::{ApiError, ErrorCode, shown};
use super::leases::usable;
use crate::access::{Caller, guarded};
use crate::app::App;

/// Bytes that are read from a lease at once.
const CHUNK: usize = 64 << 10;

/// Where.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
#[into_params(parameter_in = Query)]
pub struct FileQuery {
    /// A path inside the leased environment; one that is not absolute starts at the lease's workspace.
    path: String,
}

/// The routes.
pub fn router() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(put, get))
}

fn check(path: &str) -> Result<(), ApiError> {
    if path.is_empty() {
        return Err(ApiError::field(
            "?path",
            "is empty; `.` is the lease's workspace",
        ));
    }
    if path.contains('\0') || path.len() > 4096 {
        return Err(ApiError::field(
            "?path",
            "is longer than 4096 bytes or holds a NUL",
        ));
    }
    Ok(())
}

/// Unpack an archive in a lease
///
/// Below `path`, a directory that exists. The archive is read entry by entry; one that would leave the
/// directory fails the request, and what came before it stays.
#[utoipa::path(put, path = "/api/environment-leases/{leaseId}/files", operation_id = "putFiles", tag = "files",
    params(("leaseId" = String, Path, description = "The lease's id"), FileQuery),
    request_body(content = Vec<u8>, content_type = "application/x-tar", description = "The archive"),
    responses((status = 204, description = "It is unpacked")))]
async fn put(
    State(app): State<App>,
    caller: Caller,
    Id(id): Id,
    Query(query): Query<FileQuery>,
    Archive(archive): Archive,
) -> Result<StatusCode, ApiError> {
    check(&query.path)?;
    usable(&app, &caller, &id).await?;
    app.service()?
        .put_files(&caller, &id, &query.path, archive)
        .await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Read a file or a directory of a lease
///
/// As a tar archive with `path`'s last name as its root. A link that `path` names is followed; links below it are
/// told as they are. Sockets, pipes, devices and names that are not UTF-8 are left out, each named in a `comment` of a
/// pax global header that begins with `left out: `. An answer that breaks off before its end failed on the way; what
/// came is not whole.
#[utoipa::path(get, path = "/api/environment-leases/{leaseId}/files", operation_id = "getFiles", tag = "files",
    params(("leaseId" = String, Path, description = "The lease's id"), FileQuery),
    responses((status = 200, description = "The archive", body = Vec<u8>, content_type = "application/x-tar")))]
async fn get(
    State(app): State<App>,
    caller: Caller,
    Id(id): Id,
    Query(query): Query<FileQuery>,
) -> Result<Response, ApiError> {
    check(&query.path)?;
    usable(&app, &caller, &id).await?;
    let mut archive = app.service()?.get_files(&caller, &id, &query.path).await?;
    // The first bytes before the answer's head: a path that cannot be read is then a plain refusal.
    let mut first = BytesMut::with_capacity(CHUNK);
    archive.read_buf(&mut first).await.map_err(|e| {
        ApiError::new(
            ErrorCode::ProviderFailed,
            format!(
                "reading `{}`: {}",
                shown(&query.path),
                shown(&e.to_string())
            ),
        )
    })?;
    let first = futures_util::stream::iter([Ok(first.freeze())]);
    let rest = ReaderStream::with_capacity(archive, CHUNK)
        .map(|chunk| chunk.inspect_err(|e| tracing::warn!(error = %e, "an archive broke off")));
    let head = [(header::CONTENT_TYPE, "application/x-tar")];
    let body = guarded(&app, &caller, Body::from_stream(first.chain(rest)));
    Ok((head, body).into_response())
}

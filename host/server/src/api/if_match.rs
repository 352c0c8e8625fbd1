//! `If-Match`: a change is made of what was read or not at all, where a row has a revision; everywhere else the header is
//! refused, so that nobody relies on a condition that nobody looks at.

use axum::extract::Request;
use axum::http::{HeaderMap, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use leasehold_authority::Operation;

use super::errors::{ApiError, ErrorCode};
use crate::access::Caller;
use crate::service::Precondition;

/// For the description of those that take the header.
pub const DESCRIPTION: &str =
    "The `ETag` of the environment as it was read; or its `revision` in quotes; or `*`";

/// What looks at the header.
const LOOKS: [Operation; 2] = [Operation::UpdateEnvironment, Operation::DeleteEnvironment];

/// Passes a request on, or refuses the header.
pub async fn pass(request: Request, next: Next) -> Response {
    // Without a caller there is no operation; the handler says so.
    let asked = request.extensions().get::<Caller>().map(Caller::operation);
    match asked {
        Some(operation)
            if request.headers().contains_key(header::IF_MATCH) && !LOOKS.contains(&operation) =>
        {
            let refusal = ApiError::new(
                ErrorCode::BadRequest,
                format!(
                    "`{}` looks at no If-Match header; send it without, or with a change or deletion of an environment",
                    operation.name()
                ),
            );
            refusal.into_response()
        }
        _ => next.run(request).await,
    }
}

/// What the header asks for.
///
/// # Errors
/// 400 for one that cannot be read.
pub fn precondition(headers: &HeaderMap) -> Result<Precondition, ApiError> {
    let lines: Result<Vec<&str>, _> = headers
        .get_all(header::IF_MATCH)
        .iter()
        .map(|line| line.to_str())
        .collect();
    let read = lines
        .map_err(|_| "is not text")
        .and_then(|lines| Precondition::parse(&lines));
    read.map_err(|why| {
        ApiError::new(
            ErrorCode::BadRequest,
            format!("the If-Match header {why}; send the ETag of the environment as it was read"),
        )
    })
}

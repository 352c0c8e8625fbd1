//! `Idempotency-Key`: what creates something is done once for one key, and answered the same again.
//!
//! As draft-ietf-httpapi-idempotency-key-header has it, for the operations of [`ONCE`]; a lease's key stands in its own
//! record, and its handler reads the header by itself. Everything else that changes something may be repeated as it is, or
//! must not be: there the header is refused, so that nobody relies on it. Invariant: no secret of a request or an answer is kept.

use std::panic::AssertUnwindSafe;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::FutureExt;
use leasehold_authority::{BegunRequest, Claim, Ended, Idempotency, Operation};

use super::body::collect;
use super::errors::{ApiError, ErrorCode};
use crate::access::Caller;
use crate::access::gate::media_type;
use crate::app::App;

/// The header.
pub const HEADER: &str = "idempotency-key";
/// On an answer that was given before.
const REPLAYED: &str = "idempotency-replayed";
/// Characters of a key at most.
const LONGEST: usize = 200;
/// Bytes of an answer at most, which no row comes near.
const ANSWER: usize = 4 << 20;

/// What is done once for one key here. Each of them tells of what it makes in the transaction that makes it.
pub const ONCE: [Operation; 11] = [
    Operation::CreateCompany,
    Operation::CreateToken,
    Operation::CreateSecret,
    Operation::CreateInstanceSecret,
    Operation::RotateSecret,
    Operation::CreateEnvironment,
    Operation::CreateAgent,
    Operation::CreateProject,
    Operation::CreateWorkspace,
    Operation::CreateIssue,
    Operation::CreateRun,
];

/// Whether an operation takes the header.
pub fn takes(operation: Operation) -> bool {
    matches!(
        operation,
        Operation::AcquireLease | Operation::AcquireChosenLease
    ) || ONCE.contains(&operation)
}

/// The key of a lease: what the body says, or the header; both may say the same.
///
/// # Errors
/// Two that differ, or a header that cannot be read.
pub fn lease_key(said: Option<String>, headers: &HeaderMap) -> Result<Option<String>, ApiError> {
    match (said, key_of(headers)?) {
        (Some(said), Some(key)) if said != key => {
            let text = "is not what the Idempotency-Key header says; give one of the two";
            Err(ApiError::field("/idempotencyKey", text))
        }
        (said, key) => Ok(said.or(key)),
    }
}

/// The key that a request carries: a string of RFC 8941, or its characters bare.
///
/// # Errors
/// 400 for one that cannot be read.
pub fn key_of(headers: &HeaderMap) -> Result<Option<String>, ApiError> {
    let wrong = |why: &str| {
        ApiError::new(
            ErrorCode::BadRequest,
            format!(
                "the Idempotency-Key header {why}; send 1 to {LONGEST} visible ASCII characters in double quotes"
            ),
        )
    };
    let mut all = headers.get_all(HEADER).iter();
    let (value, None) = (all.next(), all.next()) else {
        return Err(wrong("stands more than once"));
    };
    let Some(value) = value else { return Ok(None) };
    let text = value
        .to_str()
        .map_err(|_| wrong("is not text"))?
        .trim_matches(' ');
    let key = match text.strip_prefix('"') {
        Some(rest) => rest
            .strip_suffix('"')
            .ok_or_else(|| wrong("has no closing quote"))?,
        None => text,
    };
    let plain = |b: u8| b.is_ascii_graphic() && !matches!(b, b'"' | b'\\');
    if key.is_empty() || key.len() > LONGEST || !key.bytes().all(plain) {
        return Err(wrong("is no key"));
    }
    Ok(Some(key.to_owned()))
}

/// Passes a request on, or answers it by its key.
pub async fn pass(State(app): State<App>, request: Request, next: Next) -> Response {
    let safe = [Method::GET, Method::HEAD, Method::OPTIONS].contains(request.method());
    if !request.headers().contains_key(HEADER) || safe {
        return next.run(request).await;
    }
    match keyed(&app, request, next).await {
        Ok(answer) => answer,
        Err(refusal) => refusal.into_response(),
    }
}

async fn keyed(app: &App, request: Request, next: Next) -> Result<Response, ApiError> {
    // Without a caller there is no operation; the handler says so.
    let Some(caller) = request.extensions().get::<Caller>().cloned() else {
        return Ok(next.run(request).await);
    };
    let key = key_of(request.headers())?.unwrap_or_default();
    let operation = caller.operation();
    if !takes(operation) {
        return Err(ApiError::new(
            ErrorCode::BadRequest,
            format!(
                "`{}` takes no Idempotency-Key; send it without",
                operation.name()
            ),
        ));
    }
    let json = media_type(request.headers()).as_deref() == Some("application/json");
    if !ONCE.contains(&operation) || !json {
        return Ok(next.run(request).await);
    }
    let (parts, body) = request.into_parts();
    let limits = app.limits();
    let body = collect(&parts.headers, body, limits.json_body, limits.body_timeout).await?;
    let keys = app.service()?.authority().idempotency();
    let path = parts.uri.path_and_query().map_or("", |path| path.as_str());
    let asked: [&[u8]; 3] = [operation.name().as_bytes(), path.as_bytes(), &body];
    let claim = match keys.begin(&caller, &key, &asked).await? {
        BegunRequest::Answered(status, answer) => return Ok(again(status, answer)),
        BegunRequest::Fresh(claim) => claim,
    };
    let request = Request::from_parts(parts, Body::from(Bytes::from_owner(body)));
    // A client that goes away does not end it: the key would be claimed for ever.
    let work = tokio::spawn(done(keys, claim, operation, next.run(request)));
    work.await.unwrap_or_else(|_| Err(failed()))
}

/// Does the work under its key, and notes what came of it.
async fn done(
    keys: Idempotency,
    claim: Claim,
    operation: Operation,
    work: impl Future<Output = Response>,
) -> Result<Response, ApiError> {
    let work = AssertUnwindSafe(claim.clone().during(work)).catch_unwind();
    let Ok(response) = work.await else {
        keys.end(claim, Ended::Refused).await?;
        return Err(failed());
    };
    if !response.status().is_success() {
        keys.end(claim, Ended::Refused).await?;
        return Ok(response);
    }
    let (parts, body) = response.into_parts();
    let body = axum::body::to_bytes(body, ANSWER)
        .await
        .map_err(|_| failed())?;
    let answer = std::str::from_utf8(&body).map_err(|_| failed())?;
    let ended = match operation {
        // A token's text is shown once.
        Operation::CreateToken => Ended::Hidden,
        _ => Ended::Answered(parts.status.as_u16(), answer),
    };
    keys.end(claim, ended).await?;
    Ok(Response::from_parts(parts, Body::from(body)))
}

fn again(status: u16, answer: String) -> Response {
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::OK);
    let kind = HeaderValue::from_static("application/json");
    let mut response = (status, [(header::CONTENT_TYPE, kind)], answer).into_response();
    response
        .headers_mut()
        .insert(REPLAYED, HeaderValue::from_static("true"));
    response
}

fn failed() -> ApiError {
    ApiError::new(ErrorCode::Internal, "the server failed inside this request")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_read_quoted_or_bare_and_what_is_none_is_refused() {
        let read = |values: &[&'static str]| {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(HEADER, HeaderValue::from_static(value));
            }
            key_of(&headers)
        };
        assert_eq!(read(&[]), Ok(None));
        for same in ["\"run-42\"", "run-42", " run-42 "] {
            assert_eq!(read(&[same]), Ok(Some("run-42".to_owned())), "{same}");
        }
        for wrong in ["", "\"\"", "\"run", "a b", "\"a\";x=1", "\"a\\\"b\""] {
            let error = read(&[wrong]).unwrap_err();
            assert_eq!(error.code, ErrorCode::BadRequest, "{wrong}");
        }
        assert!(read(&["a", "b"]).is_err());
        assert!(read(&[Box::leak("x".repeat(201).into_boxed_str())]).is_err());
    }
}

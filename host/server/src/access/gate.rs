//! The one middleware: every request passes it before any handler, and every answer on its way out.
//!
//! It gives the request an id, refuses what is not addressed to this server or comes from a foreign page,
//! proves who is asking, asks the policy whether such an actor may ask for this at all and whether it is switched on, turns a handler's panic into a
//! 500, and counts. It reads no body and knows no business.

use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use axum::extract::{MatchedPath, Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, Uri, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use futures_util::FutureExt;
use leasehold_authority::{Actor, ActorKind, Authority, Operation};
use tracing::Instrument;

use super::hosts::{is_unsafe, is_upgrade};
use super::operator::OperatorToken;
use super::refused::Door;
use super::{Caller, Peer, Refused, guarded};
use crate::api::errors::{ApiError, ErrorCode};
use crate::app::App;
use crate::http::metrics::known_method;
use crate::telemetry;

/// The id of a request, on its answer as `x-request-id` and in the log.
#[derive(Clone, Debug)]
pub struct RequestId(pub HeaderValue);

static REQUESTS: AtomicU64 = AtomicU64::new(1);

/// Paths that say nothing about anybody and are answered to anybody that may address the server.
const OPEN_PATHS: [&str; 3] = ["/healthz", "/readyz", "/api/openapi.json"];

/// Body types that a page of another origin cannot send without asking first.
const BODY_TYPES: [&str; 4] = [
    "application/json",
    "application/x-tar",
    "application/wasm",
    "application/x-ndjson",
];

/// Passes the request on, or answers it.
pub async fn pass(State(app): State<App>, mut request: Request, next: Next) -> Response {
    let started = Instant::now();
    let id = request_id();
    let method = request.method().clone();
    let route = request.extensions().get::<MatchedPath>().cloned();
    request.extensions_mut().insert(RequestId(id.clone()));
    let named = route.as_ref().map_or("none", MatchedPath::as_str);
    let span = telemetry::request(
        known_method(&method),
        named,
        id.to_str().unwrap_or(""),
        request.headers(),
    );
    let admitted = admit(&app, &mut request).instrument(span.clone()).await;
    let mut response = match admitted {
        Ok(()) => match AssertUnwindSafe(next.run(request))
            .catch_unwind()
            .instrument(span.clone())
            .await
        {
            Ok(response) => response,
            Err(_) => {
                tracing::error!(request = ?id, "a handler panicked");
                ApiError::new(ErrorCode::Internal, "the server failed inside this request")
                    .into_response()
            }
        },
        Err(mut refusal) => {
            if let Some(refused) = refusal.refused.take() {
                refusal.refused = Some(refused.of(&mut request).await);
            }
            if let (Some(door), Some(service)) = (
                Door::refusing(refusal.code, request.headers()),
                app.service_if_open(),
            ) {
                door.note(service.authority(), known_method(&method), named);
            }
            refusal.into_response()
        }
    };
    if let Some(refused) = response.extensions_mut().remove::<Refused>()
        && let (Some(service), Some(&code)) = (
            app.service_if_open(),
            response.extensions().get::<ErrorCode>(),
        )
    {
        refused.note(service.authority(), code);
    }
    let route = route.as_ref().map_or("none", MatchedPath::as_str);
    let status = response.status();
    let took = started.elapsed();
    app.metrics()
        .request_answered(known_method(&method), route, status.as_u16(), took);
    let code = response.extensions().get::<ErrorCode>().map(|c| c.as_str());
    let trace = telemetry::answered(&span, status.as_u16(), code);
    if is_unsafe(&method) || status.is_server_error() {
        tracing::info!(
            request = id.to_str().unwrap_or(""),
            method = method.as_str(),
            route,
            status = status.as_u16(),
            code,
            took_us = took.as_micros() as u64,
            "answered"
        );
    }
    let headers = response.headers_mut();
    headers.insert("x-request-id", id);
    if let Some(trace) = trace {
        // Of W3C Trace Context, level 2.
        headers.insert("traceresponse", trace);
    }
    headers.insert(
        header::X_CONTENT_TYPE_OPTIONS,
        HeaderValue::from_static("nosniff"),
    );
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

async fn admit(app: &App, request: &mut Request) -> Result<(), ApiError> {
    let peer = request
        .extensions()
        .get::<Peer>()
        .copied()
        .unwrap_or(Peer::Tcp);
    let on_socket = matches!(peer, Peer::Unix { .. });
    let headers = request.headers();
    app.hosts().check_host(request.uri(), headers, on_socket)?;
    let upgrade = is_upgrade(headers);
    if is_unsafe(request.method()) || upgrade {
        app.hosts().check_origin(headers)?;
        check_body_type(request.method(), headers)?;
    }
    if OPEN_PATHS.contains(&request.uri().path()) {
        return Ok(());
    }
    let authority = app.service()?.authority();
    match identify(app, authority, peer, headers).await? {
        Some(actor) => {
            let route = request.extensions().get::<MatchedPath>();
            let asked = route.and_then(|r| app.operations().asked(request.method(), r.as_str()));
            // Without a route, or without this method of it, the answer says so and no more.
            if let (Some(operation), Some(route)) = (asked, route) {
                let caller = Caller::admitted(actor, operation)?;
                app.features().check(operation, route.as_str())?;
                check_query(app, operation, request.uri())?;
                let body = std::mem::take(request.body_mut());
                *request.body_mut() = guarded(app, &caller, body);
                request.extensions_mut().insert(caller);
            }
            Ok(())
        }
        // A browser cannot send a header with its upgrade: its first frame says who it is.
        None if upgrade => Ok(()),
        None => Err(ApiError::new(
            ErrorCode::Unauthenticated,
            "the request does not say who sends it; send a token as `Authorization: Bearer …`",
        )),
    }
}

/// Refuses what stands in the query of an operation that has no parameters there: nobody would look at it.
fn check_query(app: &App, operation: Operation, uri: &Uri) -> Result<(), ApiError> {
    let Some(query) = uri.query().filter(|query| !query.is_empty()) else {
        return Ok(());
    };
    if app.operations().takes_query(operation) {
        return Ok(());
    }
    let name = query.split(['=', '&']).next().unwrap_or_default();
    Err(ApiError::field(
        format!("?{}", crate::api::errors::shown(name)),
        format!(
            "is not known: `{}` has no parameters in its query",
            operation.name()
        ),
    ))
}

/// What is taken, for whoever sent something else.
const TAKEN: &str = "send application/json, a component as application/wasm, or an archive of files as application/x-tar";

fn check_body_type(method: &Method, headers: &HeaderMap) -> Result<(), ApiError> {
    let has_body = headers.contains_key(header::TRANSFER_ENCODING)
        || headers
            .get(header::CONTENT_LENGTH)
            .is_some_and(|length| length.as_bytes() != b"0");
    if !has_body || !is_unsafe(method) {
        return Ok(());
    }
    match media_type(headers) {
        Some(found) if BODY_TYPES.contains(&found.as_str()) => Ok(()),
        Some(found) => Err(ApiError::new(
            ErrorCode::UnsupportedMediaType,
            format!(
                "a body of type `{}` is not taken; {TAKEN}",
                crate::api::errors::shown(&found)
            ),
        )),
        None => Err(ApiError::new(
            ErrorCode::UnsupportedMediaType,
            format!("the body has no Content-Type; {TAKEN}"),
        )),
    }
}

/// The essence of `Content-Type`, lower-case, without parameters; none when it is missing or said twice.
pub fn media_type(headers: &HeaderMap) -> Option<String> {
    let mut all = headers.get_all(header::CONTENT_TYPE).iter();
    let (Some(one), None) = (all.next(), all.next()) else {
        return None;
    };
    let essence = one.to_str().ok()?.split(';').next()?.trim();
    Some(essence.to_ascii_lowercase())
}

/// Who sends these headers over this connection. A token outweighs the socket's peer, so that the operator
/// can act as somebody else; a token that is not known is an error, never a fall-back.
async fn identify(
    app: &App,
    authority: &Authority,
    peer: Peer,
    headers: &HeaderMap,
) -> Result<Option<Actor>, ApiError> {
    let mut given = headers.get_all(header::AUTHORIZATION).iter();
    match (given.next(), given.next()) {
        (None, _) => Ok(peer.is_operator().then(Actor::local_operator)),
        (Some(value), None) => {
            let token = value
                .to_str()
                .ok()
                .and_then(|v| v.split_once(' '))
                .filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"))
                .map(|(_, token)| token.trim())
                .ok_or_else(|| {
                    ApiError::new(
                        ErrorCode::Unauthenticated,
                        "the Authorization header is not `Bearer` and a token",
                    )
                })?;
            actor_of(app, authority, token).await.map(Some)
        }
        (Some(_), Some(_)) => Err(ApiError::new(
            ErrorCode::Unauthenticated,
            "the request carries more than one Authorization header",
        )),
    }
}

/// Whose token this is: the operator's own, or one that the authority knows.
pub async fn actor_of(app: &App, authority: &Authority, token: &str) -> Result<Actor, ApiError> {
    let known = if OperatorToken::looks_like_one(token) {
        let known = app.operator().matches(token);
        if !known {
            authority.tokens().refused_unknown();
        }
        known.then(Actor::local_operator)
    } else {
        authority.tokens().authenticate(token).await?
    };
    known.ok_or_else(|| {
        ApiError::new(
            ErrorCode::Unauthenticated,
            "the token is not known, or was revoked",
        )
    })
}

/// Refuses a caller that was proven some time ago and whose token was revoked since.
pub async fn still_known(app: &App, caller: &Actor) -> Result<(), ApiError> {
    let ActorKind::Token { id, .. } = &caller.kind else {
        return Ok(());
    };
    if app.service()?.authority().tokens().is_good(id).await? {
        return Ok(());
    }
    Err(revoked())
}

/// What whoever was known is told from then on.
pub(super) fn revoked() -> ApiError {
    ApiError::new(ErrorCode::Unauthenticated, "the token was revoked")
}

fn request_id() -> HeaderValue {
    let number = REQUESTS.fetch_add(1, Ordering::Relaxed);
    let start = start_mark();
    let mut text = [b'0'; 20];
    hex_into(&mut text[..8], u64::from(start));
    text[8] = b'-';
    hex_into(&mut text[9..], number);
    HeaderValue::from_bytes(&text).unwrap_or(HeaderValue::from_static("unknown"))
}

/// Different at every start, so that ids in an old log are not taken for new ones.
fn start_mark() -> u32 {
    static MARK: std::sync::OnceLock<u32> = std::sync::OnceLock::new();
    *MARK.get_or_init(|| {
        let mut bytes = [0; 4];
        let _ = getrandom::fill(&mut bytes);
        u32::from_le_bytes(bytes)
    })
}

fn hex_into(place: &mut [u8], mut value: u64) {
    for byte in place.iter_mut().rev() {
        *byte = b"0123456789abcdef"[(value & 0xf) as usize];
        value >>= 4;
    }
}

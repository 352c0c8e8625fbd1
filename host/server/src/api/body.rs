//! How bodies, queries and paths are read: bounded, typed, and refused in the API's one shape.

use std::convert::Infallible;
use std::time::Duration;

use axum::body::Body;
use axum::extract::rejection::PathRejection;
use axum::extract::{FromRequest, FromRequestParts, OptionalFromRequestParts, Request};
use axum::http::request::Parts;
use axum::http::{HeaderMap, header};
use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use leasehold_contract::{ByteStream, FieldViolation};
use serde::de::DeserializeOwned;
use zeroize::Zeroizing;

use super::errors::{ApiError, ErrorCode, shown};
use crate::access::Caller;
use crate::access::gate::media_type;
use crate::app::App;

/// How many times the longest silence a body that is read whole may take altogether.
const PATIENCE: u32 = 5;

/// A JSON body of type `T`, strict: `T` says what it knows, and everything else is a violation.
#[derive(Debug)]
pub struct Json<T>(pub T);

/// The same, where no body at all means `T::default()`.
#[derive(Debug)]
pub struct OptionalJson<T>(pub T);

/// A query of type `T`.
#[derive(Debug)]
pub struct Query<T>(pub T);

/// One parameter of the path, decoded.
#[derive(Debug)]
pub struct Id(pub String);

/// The path's id, and the number behind it.
#[derive(Clone, Debug)]
pub struct IdAndNumber(pub String, pub i64);

/// A body of `application/wasm`, whole.
#[derive(Debug)]
pub struct Component(pub Bytes);

/// A body of `application/x-tar`, as it comes.
pub struct Archive(pub ByteStream);

/// A body of `application/x-ndjson`, as it comes.
pub struct JsonLines(pub ByteStream);

impl<T: DeserializeOwned> FromRequest<App> for Json<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, app: &App) -> Result<Self, ApiError> {
        require_type(request.headers(), "application/json")?;
        let limits = app.limits();
        let (parts, body) = request.into_parts();
        let bytes = collect(&parts.headers, body, limits.json_body, limits.body_timeout).await?;
        parse(&bytes).map(Json)
    }
}

impl<T: DeserializeOwned + Default> FromRequest<App> for OptionalJson<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, app: &App) -> Result<Self, ApiError> {
        let typed = request.headers().contains_key(header::CONTENT_TYPE);
        if typed {
            require_type(request.headers(), "application/json")?;
        }
        let limits = app.limits();
        let (parts, body) = request.into_parts();
        let bytes = collect(&parts.headers, body, limits.json_body, limits.body_timeout).await?;
        if bytes.is_empty() {
            return Ok(OptionalJson(T::default()));
        }
        require_typed(typed)?;
        parse(&bytes).map(OptionalJson)
    }
}

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for Query<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
        axum::extract::Query::try_from_uri(&parts.uri)
            .map(|axum::extract::Query(query)| Query(query))
            .map_err(|e| {
                let why = std::error::Error::source(&e).map_or(e.to_string(), ToString::to_string);
                // What is wrong with one parameter comes with its name before it.
                match why.split_once(": ") {
                    Some((name, why)) if !name.contains(' ') => {
                        ApiError::field(format!("?{name}"), shown(why))
                    }
                    _ => ApiError::field("?", shown(&why)),
                }
            })
    }
}

/// The parameters of the path, decoded, each of which may be one of its kind.
async fn path<S: Send + Sync>(
    parts: &mut Parts,
    state: &S,
) -> Result<Vec<(String, String)>, ApiError> {
    let path =
        <axum::extract::Path<Vec<(String, String)>> as FromRequestParts<S>>::from_request_parts(
            parts, state,
        )
        .await
        .map_err(|e: PathRejection| {
            ApiError::new(
                ErrorCode::BadRequest,
                format!("the path: {}", e.body_text()),
            )
        })?;
    for (name, value) in &path.0 {
        super::ids::check(name, value)?;
    }
    Ok(path.0)
}

impl<S: Send + Sync> FromRequestParts<S> for Id {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let first = path(parts, state).await?.into_iter().next();
        first
            .map(|(_, value)| Id(value))
            .ok_or_else(|| ApiError::new(ErrorCode::BadRequest, "the path names nothing"))
    }
}

impl<S: Send + Sync> FromRequestParts<S> for IdAndNumber {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let mut path = path(parts, state).await?.into_iter();
        let (Some((_, id)), Some((name, number))) = (path.next(), path.next()) else {
            let text = "the path names no two things";
            return Err(ApiError::new(ErrorCode::BadRequest, text));
        };
        let number = number.parse().map_err(|_| {
            ApiError::new(
                ErrorCode::BadRequest,
                format!("{name} in the path: `{}` is no number", shown(&number)),
            )
        })?;
        Ok(IdAndNumber(id, number))
    }
}

impl FromRequest<App> for Component {
    type Rejection = ApiError;

    async fn from_request(request: Request, app: &App) -> Result<Self, ApiError> {
        require_type(request.headers(), "application/wasm")?;
        let limits = app.limits();
        let mut body = request.into_body();
        let mut whole = BytesMut::new();
        while let Some(data) = next(&mut body, limits.body_timeout).await? {
            if whole.len() + data.len() > limits.component {
                return Err(too_large(limits.component));
            }
            whole.extend_from_slice(&data);
        }
        if whole.is_empty() {
            return Err(ApiError::field(
                "",
                "the body is empty; send the component's bytes",
            ));
        }
        Ok(Component(whole.freeze()))
    }
}

/// A component itself, or a JSON body of type `T` that says where it is.
#[derive(Debug)]
pub enum ComponentOr<T> {
    /// Of `application/wasm`, whole.
    Component(Bytes),
    /// Of `application/json`.
    Named(T),
}

impl<T: DeserializeOwned> FromRequest<App> for ComponentOr<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, app: &App) -> Result<Self, ApiError> {
        match media_type(request.headers()).as_deref() {
            Some("application/json") => {
                let Json(named) = Json::from_request(request, app).await?;
                Ok(ComponentOr::Named(named))
            }
            Some("application/wasm") => {
                let Component(bytes) = Component::from_request(request, app).await?;
                Ok(ComponentOr::Component(bytes))
            }
            other => Err(ApiError::new(
                ErrorCode::UnsupportedMediaType,
                format!(
                    "this path takes a component as application/wasm, or its name in a registry as application/json, not `{}`",
                    shown(other.unwrap_or("nothing"))
                ),
            )),
        }
    }
}

impl FromRequest<App> for Archive {
    type Rejection = ApiError;

    async fn from_request(request: Request, app: &App) -> Result<Self, ApiError> {
        require_type(request.headers(), "application/x-tar")?;
        Ok(Archive(as_it_comes(request, app)))
    }
}

impl FromRequest<App> for JsonLines {
    type Rejection = ApiError;

    async fn from_request(request: Request, app: &App) -> Result<Self, ApiError> {
        require_type(request.headers(), "application/x-ndjson")?;
        Ok(JsonLines(as_it_comes(request, app)))
    }
}

fn as_it_comes(request: Request, app: &App) -> ByteStream {
    let silence = app.limits().body_timeout;
    let stream =
        futures_util::stream::try_unfold(request.into_body(), move |mut body| async move {
            match next(&mut body, silence).await {
                Ok(Some(data)) => Ok(Some((data, body))),
                Ok(None) => Ok(None),
                Err(e) => Err(std::io::Error::other(e.to_string())),
            }
        });
    Box::pin(tokio_util::io::StreamReader::new(Box::pin(stream)))
}

impl<S: Send + Sync> FromRequestParts<S> for Caller {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
        parts.extensions.get::<Caller>().cloned().ok_or_else(|| {
            ApiError::new(
                ErrorCode::Unauthenticated,
                "the request does not say who sends it",
            )
        })
    }
}

impl<S: Send + Sync> OptionalFromRequestParts<S> for Caller {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Option<Self>, Infallible> {
        Ok(parts.extensions.get::<Caller>().cloned())
    }
}

fn require_type(headers: &HeaderMap, wanted: &str) -> Result<(), ApiError> {
    let found = media_type(headers);
    if found.as_deref() == Some(wanted) {
        return Ok(());
    }
    let found = found.unwrap_or_else(|| "nothing".into());
    Err(ApiError::new(
        ErrorCode::UnsupportedMediaType,
        format!(
            "this path takes a body of type {wanted}, not `{}`",
            shown(&found)
        ),
    ))
}

fn require_typed(typed: bool) -> Result<(), ApiError> {
    if typed {
        return Ok(());
    }
    Err(ApiError::new(
        ErrorCode::UnsupportedMediaType,
        "the body has no Content-Type; send application/json",
    ))
}

fn too_large(limit: usize) -> ApiError {
    ApiError::new(
        ErrorCode::PayloadTooLarge,
        format!("the body has more than {limit} bytes, which is the most that this path takes"),
    )
    .with("limit", limit)
}

/// The next data of a body. A client that is silent for longer than `silence` is given up.
async fn next(body: &mut Body, silence: Duration) -> Result<Option<Bytes>, ApiError> {
    loop {
        let frame = tokio::time::timeout(silence, body.frame())
            .await
            .map_err(|_| {
                ApiError::new(
                    ErrorCode::RequestTimeout,
                    format!("nothing of the body came for {} s", silence.as_secs()),
                )
            })?;
        match frame {
            None => return Ok(None),
            Some(Ok(frame)) => {
                if let Ok(data) = frame.into_data()
                    && !data.is_empty()
                {
                    return Ok(Some(data));
                }
            }
            Some(Err(error)) => {
                // Its sender's token may have ended meanwhile.
                let refusal = error.into_inner().downcast::<ApiError>();
                return Err(refusal.map_or_else(
                    |_| {
                        let text = "the body ended before it was complete";
                        ApiError::new(ErrorCode::BadRequest, text)
                    },
                    |refusal| *refusal,
                ));
            }
        }
    }
}

/// The whole body, wiped after use: it may hold a secret.
pub async fn collect(
    headers: &HeaderMap,
    mut body: Body,
    limit: usize,
    silence: Duration,
) -> Result<Zeroizing<Vec<u8>>, ApiError> {
    let announced = headers
        .get(header::CONTENT_LENGTH)
        .and_then(|v| v.to_str().ok()?.parse::<usize>().ok());
    if announced.is_some_and(|length| length > limit) {
        return Err(too_large(limit));
    }
    let mut whole = Zeroizing::new(Vec::with_capacity(announced.unwrap_or(0)));
    let until = tokio::time::Instant::now() + silence * PATIENCE;
    while let Some(data) = next(&mut body, silence).await? {
        if whole.len() + data.len() > limit {
            return Err(too_large(limit));
        }
        if tokio::time::Instant::now() > until {
            let text = format!(
                "the body was not there whole after {} s",
                (silence * PATIENCE).as_secs()
            );
            return Err(ApiError::new(ErrorCode::RequestTimeout, text));
        }
        whole.extend_from_slice(&data);
    }
    Ok(whole)
}

fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, ApiError> {
    // serde would take an array for the fields in their order.
    if bytes.trim_ascii_start().starts_with(b"[") {
        return Err(ApiError::violations(vec![FieldViolation {
            pointer: String::new(),
            message: "must be a JSON object, not an array".to_owned(),
        }]));
    }
    let mut reader = serde_json::Deserializer::from_slice(bytes);
    let value = serde_path_to_error::deserialize(&mut reader).map_err(|e| {
        let pointer = pointer(e.path());
        let inner = e.into_inner();
        if inner.classify() == serde_json::error::Category::Data {
            // The position would be the reader's, which says less than the pointer does.
            let text = inner.to_string();
            let text = text.split(" at line ").next().unwrap_or("is wrong");
            ApiError::violations(vec![FieldViolation {
                pointer,
                message: bounded(text),
            }])
        } else {
            ApiError::new(
                ErrorCode::InvalidJson,
                format!("the body is not JSON: {}", bounded(&inner.to_string())),
            )
        }
    })?;
    reader.end().map_err(|_| {
        ApiError::new(
            ErrorCode::InvalidJson,
            "the body is not JSON: something follows after its end",
        )
    })?;
    Ok(value)
}

/// serde repeats what it found, which may be a pasted secret: strings of the client are left out.
fn bounded(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find("string \"") {
        out.push_str(&rest[..at]);
        out.push_str("a string");
        let after = &rest[at + 8..];
        rest = closing_quote(after).map_or("", |end| &after[end + 1..]);
    }
    out.push_str(rest);
    out.chars()
        .take(300)
        .map(|c| if c.is_control() { '\u{fffd}' } else { c })
        .collect()
}

fn closing_quote(text: &str) -> Option<usize> {
    let mut escaped = false;
    for (at, c) in text.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => return Some(at),
            _ => {}
        }
    }
    None
}

/// RFC 6901 from serde's path.
fn pointer(path: &serde_path_to_error::Path) -> String {
    use serde_path_to_error::Segment;
    let mut out = String::new();
    for segment in path {
        match segment {
            Segment::Seq { index } => {
                out.push('/');
                out.push_str(&index.to_string());
            }
            Segment::Map { key } | Segment::Enum { variant: key } => {
                out.push('/');
                out.push_str(&key.replace('~', "~0").replace('/', "~1"));
            }
            Segment::Unknown => {}
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, serde::Deserialize)]
    #[serde(deny_unknown_fields)]
    #[allow(dead_code, reason = "only its shape is used")]
    struct Shape {
        name: String,
        inner: Option<Vec<u32>>,
    }

    fn refusal(text: &str) -> ApiError {
        parse::<Shape>(text.as_bytes()).unwrap_err()
    }

    #[test]
    fn a_wrong_value_is_named_by_its_pointer_and_not_repeated() {
        let error = refusal(r#"{"name":"x","inner":[1,"hunter2 \" zebra"]}"#);
        assert_eq!(error.code, ErrorCode::Invalid);
        assert_eq!(error.violations[0].pointer, "/inner/1");
        assert!(!format!("{error:?}").contains("hunter2"), "{error:?}");
        assert!(!format!("{error:?}").contains("zebra"), "{error:?}");
    }

    #[test]
    fn an_unknown_or_missing_field_is_a_violation() {
        assert!(
            refusal(r#"{"name":"x","nmae":1}"#)
                .message
                .contains("unknown field `nmae`")
        );
        assert!(refusal("{}").message.contains("missing field `name`"));
    }

    #[test]
    fn what_is_not_json_is_told_with_its_place() {
        let error = refusal("{\"name\": ");
        assert_eq!(error.code, ErrorCode::InvalidJson);
        assert!(error.message.contains("line 1"), "{error}");
        assert_eq!(refusal(r#"{"name":"x"} {}"#).code, ErrorCode::InvalidJson);
    }
}

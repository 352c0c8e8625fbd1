//! An HTTP client over the Unix socket or TCP: a connection per request, and WebSockets.

use std::path::PathBuf;
use std::pin::Pin;

use bytes::Bytes;
use futures_util::Stream;
use http_body_util::{BodyExt, Either, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::client::conn::http1;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, ETAG, HOST, IF_MATCH, LINK};
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite;

use super::exit::CliError;

/// Where a server is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// Behind a Unix socket.
    Unix(PathBuf),
    /// Behind plain HTTP; the authority, as `host:port`.
    Tcp(String),
}

impl std::str::FromStr for Place {
    type Err = String;

    fn from_str(text: &str) -> Result<Place, String> {
        if let Some(path) = text.strip_prefix("unix:") {
            let path = path.strip_prefix("//").unwrap_or(path);
            if path.is_empty() {
                return Err(format!(
                    "--server: `{text}` names no socket; write unix:/path/to/it"
                ));
            }
            return Ok(Place::Unix(path.into()));
        }
        if text.starts_with("https://") {
            return Err(format!(
                "--server: {text}: TLS is a reverse proxy's; name the server's own http:// address or its socket"
            ));
        }
        let Some(rest) = text.strip_prefix("http://") else {
            return Err(format!(
                "--server: `{text}` is not a place; write unix:/path/to/leasehold.sock or http://127.0.0.1:7717"
            ));
        };
        let authority = rest.trim_end_matches('/');
        if authority.is_empty() || authority.contains(['/', '@', '?', '#']) {
            return Err(format!("--server: `{text}` is not http://HOST:PORT"));
        }
        // A colon inside brackets is an IPv6 address's.
        let port = match authority.rsplit_once(':') {
            Some((_, rest)) if rest.ends_with(']') => None,
            Some((name, port)) => Some((name, port.parse::<u16>())),
            None => None,
        };
        match port {
            None => Ok(Place::Tcp(format!("{authority}:80"))),
            Some((name, Ok(_))) if !name.is_empty() => Ok(Place::Tcp(authority.to_owned())),
            Some(_) => Err(format!("--server: `{text}` is not http://HOST:PORT")),
        }
    }
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Place::Unix(path) => write!(f, "unix:{}", path.display()),
            Place::Tcp(authority) => write!(f, "http://{authority}"),
        }
    }
}

/// A byte stream to a server.
pub trait Wire: AsyncRead + AsyncWrite + Unpin + Send {}
impl<T: AsyncRead + AsyncWrite + Unpin + Send> Wire for T {}

/// A body that is made while it is sent.
pub type Streamed = Pin<Box<dyn Stream<Item = std::io::Result<Frame<Bytes>>> + Send>>;
type RequestBody = Either<Full<Bytes>, StreamBody<Streamed>>;
/// A stream of a command.
pub type Socket = WebSocketStream<Box<dyn Wire>>;

/// A client of one server.
#[derive(Debug)]
pub struct Client {
    place: Place,
    token: Option<String>,
    /// What is made is made once under.
    key: Option<String>,
}

impl Client {
    /// A client that connects when it is used.
    pub fn new(place: Place, token: Option<String>) -> Client {
        Client {
            place,
            token,
            key: None,
        }
    }

    /// The same, which makes what it makes once under this idempotency key.
    pub fn under(self, key: Option<String>) -> Client {
        Client { key, ..self }
    }

    fn authority(&self) -> &str {
        match &self.place {
            Place::Unix(_) => "localhost",
            Place::Tcp(authority) => authority,
        }
    }

    async fn connect(&self) -> Result<Box<dyn Wire>, CliError> {
        let connected: std::io::Result<Box<dyn Wire>> = match &self.place {
            Place::Unix(path) => UnixStream::connect(path).await.map(|s| Box::new(s) as _),
            Place::Tcp(authority) => TcpStream::connect(authority).await.map(|s| {
                let _ = s.set_nodelay(true);
                Box::new(s) as _
            }),
        };
        connected.map_err(|e| match (e.kind(), &self.place) {
            (std::io::ErrorKind::PermissionDenied, Place::Unix(path)) => {
                CliError::Forbidden(path.display().to_string())
            }
            _ => CliError::Unreachable {
                at: self.place.to_string(),
                cause: e.to_string(),
            },
        })
    }

    fn head(&self, method: Method, path: &str) -> hyper::http::request::Builder {
        let mut head = Request::builder()
            .method(method)
            .uri(path)
            .header(HOST, self.authority());
        if let Some(token) = &self.token {
            head = head.header(AUTHORIZATION, format!("Bearer {token}"));
        }
        head
    }

    async fn send(&self, request: Request<RequestBody>) -> Result<Response<Incoming>, CliError> {
        let wire = self.connect().await?;
        let (mut sender, connection) =
            http1::handshake(TokioIo::new(wire)).await.map_err(broken)?;
        let connection = tokio::spawn(connection);
        let response = sender.send_request(request).await.map_err(broken)?;
        if response.status().is_success() {
            return Ok(response);
        }
        let status = response.status();
        let body = response.into_body().collect().await.map_err(broken)?;
        // What is still being sent is not wanted any more.
        connection.abort();
        Err(refusal(status, &body.to_bytes()))
    }

    /// Sends JSON, or nothing, and answers the JSON that comes; of an empty answer, null.
    pub async fn json(
        &self,
        method: Method,
        path: &str,
        body: Option<Value>,
    ) -> Result<Value, CliError> {
        let changes = method != Method::GET;
        self.sent(self.head(method, path), changes, body).await
    }

    /// GET of a row, with its entity tag.
    pub async fn read(&self, path: &str) -> Result<(Value, Option<String>), CliError> {
        let (row, parts) = self
            .answered(self.head(Method::GET, path), Bytes::new())
            .await?;
        let tag = parts.headers.get(ETAG).and_then(|tag| tag.to_str().ok());
        Ok((row, tag.map(str::to_owned)))
    }

    /// Changes a row, if it is still as it was read where that matters.
    pub async fn change(
        &self,
        method: Method,
        path: &str,
        read: Option<String>,
        body: Option<Value>,
    ) -> Result<Value, CliError> {
        let mut head = self.head(method, path);
        if let Some(tag) = read {
            head = head.header(IF_MATCH, tag);
        }
        match self.sent(head, true, body).await {
            Err(CliError::Refused {
                status: 412,
                code,
                message,
                violations,
            }) => Err(CliError::Refused {
                status: 412,
                code,
                message: format!(
                    "it was changed meanwhile, and nothing was done: look at it again, then repeat the command if it is still right ({message})"
                ),
                violations,
            }),
            done => done,
        }
    }

    /// Makes something by a POST: once under the key, where one was given.
    pub async fn create(&self, path: &str, body: Value) -> Result<Value, CliError> {
        let mut head = self.head(Method::POST, path);
        if let Some(key) = &self.key {
            head = head.header("idempotency-key", format!("\"{key}\""));
        }
        self.sent(head, true, Some(body)).await
    }

    async fn sent(
        &self,
        mut head: hyper::http::request::Builder,
        changes: bool,
        body: Option<Value>,
    ) -> Result<Value, CliError> {
        let bytes = match body {
            Some(value) => {
                head = head.header(CONTENT_TYPE, "application/json");
                Bytes::from(value.to_string())
            }
            None => Bytes::new(),
        };
        match self.whole(head, bytes).await {
            Err(CliError::Broken(why)) if changes => Err(CliError::Broken(format!(
                "{why}; look whether it was done before you try it again"
            ))),
            done => done,
        }
    }

    /// GET.
    pub async fn get(&self, path: &str) -> Result<Value, CliError> {
        self.json(Method::GET, path, None).await
    }

    /// GET of a list, page by page, whole.
    pub async fn list(&self, path: &str) -> Result<Value, CliError> {
        let mut all = Vec::new();
        let mut place = Some(path.to_owned());
        while let Some(path) = place {
            let (page, next) = self
                .paged(self.head(Method::GET, &path), Bytes::new())
                .await?;
            match page {
                Value::Array(items) => all.extend(items),
                other => return Ok(other),
            }
            place = next;
        }
        Ok(all.into())
    }

    /// POST.
    pub async fn post(&self, path: &str, body: Option<Value>) -> Result<Value, CliError> {
        self.json(Method::POST, path, body).await
    }

    /// POSTs a component.
    pub async fn post_component(&self, path: &str, bytes: Bytes) -> Result<Value, CliError> {
        let head = self
            .head(Method::POST, path)
            .header(CONTENT_TYPE, "application/wasm");
        self.whole(head, bytes).await
    }

    async fn whole(
        &self,
        head: hyper::http::request::Builder,
        bytes: Bytes,
    ) -> Result<Value, CliError> {
        self.paged(head, bytes).await.map(|(answer, _)| answer)
    }

    /// An answer, and where the next page of it is.
    async fn paged(
        &self,
        head: hyper::http::request::Builder,
        bytes: Bytes,
    ) -> Result<(Value, Option<String>), CliError> {
        let (answer, parts) = self.answered(head, bytes).await?;
        let next = parts.headers.get(LINK).and_then(|link| {
            let (place, rest) = link.to_str().ok()?.strip_prefix('<')?.split_once('>')?;
            rest.contains("rel=\"next\"").then(|| place.to_owned())
        });
        Ok((answer, next))
    }

    /// An answer, and what was said with it.
    async fn answered(
        &self,
        head: hyper::http::request::Builder,
        bytes: Bytes,
    ) -> Result<(Value, hyper::http::response::Parts), CliError> {
        let request = head
            .body(Either::Left(Full::new(bytes)))
            .map_err(|e| CliError::Usage(format!("the request cannot be made: {e}")))?;
        let (parts, body) = self.send(request).await?.into_parts();
        let body = body.collect().await.map_err(broken)?.to_bytes();
        if body.is_empty() {
            return Ok((Value::Null, parts));
        }
        let answer = serde_json::from_slice(&body).map_err(|e| CliError::Answer(e.to_string()))?;
        Ok((answer, parts))
    }

    /// PUTs an archive that is made while it is sent.
    pub async fn put_archive(&self, path: &str, archive: Streamed) -> Result<(), CliError> {
        let request = self
            .head(Method::PUT, path)
            .header(CONTENT_TYPE, "application/x-tar")
            .body(Either::Right(StreamBody::new(archive)))
            .map_err(|e| CliError::Usage(format!("the request cannot be made: {e}")))?;
        self.send(request).await.map(|_| ())
    }

    /// POSTs lines of JSON that are read while they are sent.
    pub async fn post_lines(&self, path: &str, lines: Streamed) -> Result<Value, CliError> {
        let request = self
            .head(Method::POST, path)
            .header(CONTENT_TYPE, "application/x-ndjson")
            .body(Either::Right(StreamBody::new(lines)))
            .map_err(|e| CliError::Usage(format!("the request cannot be made: {e}")))?;
        let body = self.send(request).await?.into_body();
        let body = body.collect().await.map_err(broken)?.to_bytes();
        serde_json::from_slice(&body).map_err(|e| CliError::Answer(e.to_string()))
    }

    /// GETs events, after the last that was seen.
    pub async fn get_events(&self, path: &str, last: Option<&str>) -> Result<Incoming, CliError> {
        let mut head = self.head(Method::GET, path);
        if let Some(last) = last {
            head = head.header("last-event-id", last);
        }
        let request = head
            .body(Either::Left(Full::default()))
            .map_err(|e| CliError::Usage(format!("the request cannot be made: {e}")))?;
        Ok(self.send(request).await?.into_body())
    }

    /// GETs what is read as it comes.
    pub async fn get_stream(&self, path: &str) -> Result<Incoming, CliError> {
        let request = self
            .head(Method::GET, path)
            .body(Either::Left(Full::default()))
            .map_err(|e| CliError::Usage(format!("the request cannot be made: {e}")))?;
        Ok(self.send(request).await?.into_body())
    }

    /// Opens a WebSocket.
    pub async fn websocket(&self, path: &str) -> Result<Socket, CliError> {
        use tungstenite::client::IntoClientRequest;
        let mut request = format!("ws://{}{path}", self.authority())
            .into_client_request()
            .map_err(|e| CliError::Usage(format!("the request cannot be made: {e}")))?;
        if let Some(token) = &self.token {
            let value = format!("Bearer {token}").parse().map_err(|_| {
                CliError::Usage("the token holds characters that no token has".into())
            })?;
            request.headers_mut().insert(AUTHORIZATION, value);
        }
        let wire = self.connect().await?;
        match tokio_tungstenite::client_async(request, wire).await {
            Ok((socket, _)) => Ok(socket),
            Err(tungstenite::Error::Http(response)) => {
                let body = response.body().as_deref().unwrap_or_default();
                Err(refusal(response.status(), body))
            }
            Err(e) => Err(CliError::Broken(e.to_string())),
        }
    }
}

fn broken(error: hyper::Error) -> CliError {
    let cause = std::error::Error::source(&error).map(ToString::to_string);
    CliError::Broken(cause.unwrap_or_else(|| error.to_string()))
}

/// What the API said when it refused.
pub fn refusal(status: StatusCode, body: &[u8]) -> CliError {
    let value: Value = serde_json::from_slice(body).unwrap_or_default();
    refusal_of(status.as_u16(), &value)
}

/// The same, of a value that was read.
pub fn refusal_of(status: u16, value: &Value) -> CliError {
    let violations = value["details"]["violations"].as_array();
    CliError::Refused {
        status,
        code: value["details"]["code"].as_str().unwrap_or("").to_owned(),
        message: match value["error"].as_str() {
            Some(text) => super::output::plain(text),
            None => format!("the server answered {status}"),
        },
        violations: violations
            .into_iter()
            .flatten()
            .map(|v| {
                let text = |key: &str| super::output::plain(v[key].as_str().unwrap_or(""));
                (text("pointer"), text("message"))
            })
            .collect(),
    }
}

/// One segment of a path, or a value of a query, encoded.
pub fn encode(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~') {
            out.push(char::from(byte));
        } else {
            use std::fmt::Write;
            let _ = write!(out, "%{byte:02X}");
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_read_and_what_is_none_is_refused() {
        assert_eq!(
            "unix:/run/l.sock".parse(),
            Ok(Place::Unix("/run/l.sock".into()))
        );
        assert_eq!(
            "http://[::1]:7717/".parse(),
            Ok(Place::Tcp("[::1]:7717".into()))
        );
        assert_eq!("http://box".parse(), Ok(Place::Tcp("box:80".into())));
        assert_eq!("http://[::1]".parse(), Ok(Place::Tcp("[::1]:80".into())));
        for bad in [
            "https://box",
            "box:7717",
            "unix:",
            "http://",
            "http://a/b",
            "http://u@h",
            "http://a:99999",
            "http://a:",
            "http://:80",
        ] {
            assert!(bad.parse::<Place>().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_segment_cannot_leave_its_place() {
        assert_eq!(encode("../a b?c"), "..%2Fa%20b%3Fc");
        assert_eq!(encode("é"), "%C3%A9");
    }
}

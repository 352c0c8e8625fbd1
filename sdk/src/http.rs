//! HTTP through egress: a request built step by step, and what its answer's status means.
//!
//! A credential's placeholder goes where the manifest's site says and nowhere else; egress puts the value in
//! its place. Whether a request is let through at all is the host's decision: a refusal is an [`Error`].

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::bindings::base::leasehold::provider::http as imports;
use crate::bindings::base::leasehold::provider::types::{Code, Content, Error};
use crate::error::Result;

pub use imports::{Bytes, Lines, Piece, Request, Response};

/// A request that is not sent yet.
#[derive(Clone, Debug)]
#[must_use = "nothing is asked before it is sent"]
pub struct Ask {
    request: Request,
    fault: Option<String>,
}

/// Asks `method` of an absolute URL, as it stands in the configuration or below it.
pub fn ask(method: &str, url: impl Into<String>) -> Ask {
    Ask {
        request: Request {
            method: method.to_owned(),
            url: url.into(),
            query: Vec::new(),
            headers: Vec::new(),
            body: Content::None,
            timeout: None,
            keep: Vec::new(),
        },
        fault: None,
    }
}

impl Ask {
    /// Appends to the URL's query; the host percent-encodes both.
    pub fn query(mut self, name: &str, value: impl ToString) -> Ask {
        self.request
            .query
            .push((name.to_owned(), value.to_string()));
        self
    }

    /// Adds a header.
    pub fn header(mut self, name: &str, value: impl Into<String>) -> Ask {
        self.request.headers.push((name.to_owned(), value.into()));
        self
    }

    /// Adds `authorization: Bearer …` where there is a token (the placeholder of a credential whose site is
    /// that header).
    pub fn bearer(self, token: Option<&str>) -> Ask {
        match token {
            Some(token) => self.header("authorization", format!("Bearer {token}")),
            None => self,
        }
    }

    /// A JSON body.
    pub fn json(mut self, body: impl Serialize) -> Ask {
        match serde_json::to_string(&body) {
            Ok(text) => self.request.body = Content::Text(text),
            Err(e) => self.fault = Some(format!("the body cannot be written as JSON: {e}")),
        }
        self
    }

    /// Any other body; say its content type by [`Ask::header`].
    pub fn body(mut self, body: Content) -> Ask {
        self.request.body = body;
        self
    }

    /// Waits at most so many milliseconds, instead of all that is left of the call.
    pub fn timeout(mut self, millis: u32) -> Ask {
        self.request.timeout = Some(millis);
        self
    }

    /// Keeps a minted value of the answer for later calls of this lease, under a name; see
    /// [`Call::kept`](crate::Call::kept).
    pub fn keep(mut self, pointer: &str, name: &str) -> Ask {
        self.request
            .keep
            .push((pointer.to_owned(), name.to_owned()));
        self
    }

    /// Sends it, and takes these statuses as answers.
    ///
    /// # Errors
    /// What egress said; any other status as the error that it means.
    pub fn send(self, expected: &[u16]) -> Result<Answer> {
        let request = self.whole()?;
        answered(&request, imports::send(&request)?, expected)
    }

    /// Sends it with a body in pieces, of which some may be bytes that the host has; the request's own body is not used.
    ///
    /// # Errors
    /// As [`Ask::send`].
    pub fn upload(self, body: Vec<Piece>, expected: &[u16]) -> Result<Answer> {
        let request = self.whole()?;
        answered(&request, imports::upload(&request, body)?, expected)
    }

    /// Sends it, and takes the answer's body as a handle of bytes that the host moves.
    ///
    /// # Errors
    /// As [`Ask::send`].
    pub fn download(self, expected: &[u16]) -> Result<Bytes> {
        let request = self.whole()?;
        let (head, bytes) = imports::download(&request)?;
        if expected.contains(&head.status) {
            return Ok(bytes);
        }
        Err(refused(&request, head.status, &head.headers, ""))
    }

    /// Sends it, and reads the answer a line at a time while it comes.
    ///
    /// # Errors
    /// As [`Ask::send`].
    pub fn lines(self, expected: &[u16]) -> Result<Lines> {
        let request = self.whole()?;
        let lines = imports::open(&request)?;
        let head = lines.head();
        if expected.contains(&head.status) {
            return Ok(lines);
        }
        let first = lines.next().ok().flatten().unwrap_or_default();
        Err(refused(&request, head.status, &head.headers, &first))
    }

    /// The request, unless something went wrong while it was built.
    pub(crate) fn whole(self) -> Result<Request> {
        match self.fault {
            Some(fault) => Err(Error::internal(fault)),
            None => Ok(self.request),
        }
    }
}

fn answered(request: &Request, response: Response, expected: &[u16]) -> Result<Answer> {
    if expected.contains(&response.status) {
        return Ok(Answer { response });
    }
    Err(refused(
        request,
        response.status,
        &response.headers,
        &response.body.to_text(),
    ))
}

/// An answer whose status was expected.
#[derive(Clone, Debug)]
pub struct Answer {
    response: Response,
}

impl Answer {
    /// Its status.
    pub fn status(&self) -> u16 {
        self.response.status
    }

    /// The first header of this name, whatever its case.
    pub fn header(&self, name: &str) -> Option<&str> {
        find(&self.response.headers, name)
    }

    /// Its body as text.
    pub fn text(&self) -> String {
        self.response.body.to_text()
    }

    /// Its body as JSON.
    ///
    /// # Errors
    /// `internal` where it does not read as `T`: the backend is not as this provider knows it.
    pub fn json<T: DeserializeOwned>(&self) -> Result<T> {
        let read = match &self.response.body {
            Content::None => serde_json::from_str(""),
            Content::Text(text) => serde_json::from_str(text),
            Content::Bytes(bytes) => serde_json::from_slice(bytes),
        };
        read.map_err(|e| Error::internal(format!("the backend's answer does not read: {e}")))
    }

    /// Its body as JSON; none where the status is 404.
    ///
    /// # Errors
    /// As [`Answer::json`].
    pub fn found<T: DeserializeOwned>(&self) -> Result<Option<T>> {
        match self.response.status {
            404 => Ok(None),
            _ => self.json().map(Some),
        }
    }
}

fn find<'a>(headers: &'a [(String, String)], name: &str) -> Option<&'a str> {
    headers
        .iter()
        .find(|(key, _)| key.eq_ignore_ascii_case(name))
        .map(|(_, value)| value.as_str())
}

/// What a status that was not expected means. Where a request may have taken effect and the status does not
/// deny it, the outcome is unknown: the host reconciles.
pub(crate) fn refused(
    request: &Request,
    status: u16,
    headers: &[(String, String)],
    body: &str,
) -> Error {
    let safe = matches!(request.method.as_str(), "GET" | "HEAD");
    let code = match status {
        401 => Code::Unauthenticated,
        402 | 507 => Code::QuotaExceeded,
        403 => Code::PermissionDenied,
        404 | 410 => Code::NotFound,
        405 | 501 => Code::Unsupported,
        409 | 412 => Code::FailedPrecondition,
        423 => Code::Busy,
        425 | 503 => Code::Unavailable,
        429 => Code::RateLimited,
        408 | 500..=599 if safe => Code::Unavailable,
        408 | 500..=599 => Code::OutcomeUnknown,
        _ => Code::Internal,
    };
    let path = request.url.split(['?', '#']).next().unwrap_or_default();
    let mut message = format!("{} {path} answered {status}", request.method);
    let said: String = body.trim().chars().take(500).collect();
    if !said.is_empty() {
        message = format!("{message}: {said}");
    }
    let mut error = Error::new(code, message);
    // Seconds only: a date needs a clock, and a component has none.
    error.retry_after = find(headers, "retry-after")
        .and_then(|value| value.trim().parse::<u32>().ok())
        .map(|seconds| seconds.saturating_mul(1000));
    error
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(method: &str, status: u16) -> Code {
        refused(&ask(method, "http://x/y").request, status, &[], "").code
    }

    #[test]
    fn a_server_error_of_an_unsafe_request_is_unknown_and_of_a_read_is_unavailable() {
        assert_eq!(code("GET", 500), Code::Unavailable);
        assert_eq!(code("POST", 500), Code::OutcomeUnknown);
        assert_eq!(code("POST", 504), Code::OutcomeUnknown);
        assert_eq!(code("POST", 503), Code::Unavailable);
    }

    #[test]
    fn a_refusal_tells_the_request_the_status_and_what_was_said() {
        let request = ask("POST", "https://api.example/boxes?trace=1").request;
        let headers = [("Retry-After".to_owned(), "2".to_owned())];
        let error = refused(&request, 429, &headers, " slow down\n");
        assert_eq!(error.code, Code::RateLimited);
        assert_eq!(error.retry_after, Some(2000));
        assert_eq!(
            error.message,
            "POST https://api.example/boxes answered 429: slow down"
        );
    }

    #[test]
    fn an_answer_of_404_is_found_as_nothing() {
        let answer = |status, body: &str| Answer {
            response: Response {
                status,
                headers: Vec::new(),
                body: Content::Text(body.into()),
            },
        };
        assert_eq!(answer(404, "no").found::<u32>().ok(), Some(None));
        assert_eq!(answer(200, "7").found::<u32>().ok(), Some(Some(7)));
        assert!(answer(200, "no").found::<u32>().is_err());
    }
}

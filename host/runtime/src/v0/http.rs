//! `interface http`: requests go to the call's egress, which decides, and their words are turned both ways.
//!
//! Here they are counted, their buffered bodies are held to what the plugin may hold, and their time to what is left of
//! the call's. Bytes that a component moves as handles never come here.

use std::sync::Arc;

use leasehold_contract as c;
use wasmtime::component::Resource;

use super::arguments::{content, error};
use super::imported::http::{Head, Host, HostBytes, HostLines, Piece, Request, Response};
use super::imported::types;
use crate::state::{BytesEntry, LinesEntry, State};

type Answer<T> = wasmtime::Result<Result<T, types::Error>>;

impl State {
    /// The request in the contract's words, after it was counted.
    pub(super) fn request(&mut self, request: Request) -> Result<c::HttpRequest, c::Error> {
        self.exchange()?;
        let body = host_content(request.body);
        self.fits(body.as_bytes().len(), "the request's body")?;
        Ok(c::HttpRequest {
            method: request.method,
            url: request.url,
            query: request.query,
            headers: request.headers,
            body,
            timeout: self.within(request.timeout),
            keep: request.keep,
        })
    }

    fn fits(&self, bytes: usize, what: &str) -> Result<(), c::Error> {
        if bytes <= self.body {
            return Ok(());
        }
        Err(c::Error::new(
            c::Code::QuotaExceeded,
            format!(
                "{what} is {bytes} bytes; its plugin may hold {} (limits.body-mib)",
                self.body
            ),
        ))
    }

    /// A whole answer for the component, if it may hold it.
    fn response(&self, safe: bool, response: c::HttpResponse) -> Result<Response, c::Error> {
        self.fits(response.body.as_bytes().len(), "the answer's body")
            .map_err(|mut e| {
                if !safe {
                    // It was done; that it cannot be told is not that it was not.
                    e.code = c::Code::OutcomeUnknown;
                }
                e
            })?;
        Ok(Response {
            status: response.head.status,
            headers: response.head.headers,
            body: content(response.body),
        })
    }
}

fn safe(request: &c::HttpRequest) -> bool {
    matches!(request.method.as_str(), "GET" | "HEAD")
}

/// A body of a component, for the host.
pub(super) fn host_content(content: types::Content) -> c::Content {
    match content {
        types::Content::None => c::Content::None,
        types::Content::Text(text) => c::Content::Text(text),
        types::Content::Bytes(bytes) => c::Content::Bytes(bytes),
    }
}

fn head(head: c::HttpHead) -> Head {
    Head {
        status: head.status,
        headers: head.headers,
    }
}

impl Host for State {
    async fn send(&mut self, request: Request) -> Answer<Response> {
        let request = match self.request(request) {
            Ok(request) => request,
            Err(e) => return Ok(Err(error(e))),
        };
        let egress = Arc::clone(&self.egress);
        let safe = safe(&request);
        let sent = egress.http_send(request).await;
        Ok(sent
            .and_then(|response| self.response(safe, response))
            .map_err(error))
    }

    async fn open(&mut self, request: Request) -> Answer<Resource<LinesEntry>> {
        let request = match self.request(request) {
            Ok(request) => request,
            Err(e) => return Ok(Err(error(e))),
        };
        let egress = Arc::clone(&self.egress);
        match egress.http_open(request).await {
            Ok(lines) => Ok(Ok(self.table.push(LinesEntry(lines))?)),
            Err(e) => Ok(Err(error(e))),
        }
    }

    async fn download(&mut self, request: Request) -> Answer<(Head, Resource<BytesEntry>)> {
        let request = match self.request(request) {
            Ok(request) => request,
            Err(e) => return Ok(Err(error(e))),
        };
        let egress = Arc::clone(&self.egress);
        match egress.http_download(request).await {
            Ok((begin, bytes)) => Ok(Ok((head(begin), self.table.push(BytesEntry(bytes))?))),
            Err(e) => Ok(Err(error(e))),
        }
    }

    async fn upload(&mut self, request: Request, body: Vec<Piece>) -> Answer<Response> {
        // The handles were given away, whatever becomes of the request.
        let mut inline = 0;
        let mut pieces = Vec::with_capacity(body.len());
        for piece in body {
            pieces.push(match piece {
                Piece::Inline(content) => {
                    let content = host_content(content);
                    inline += content.as_bytes().len();
                    c::Piece::Inline(content)
                }
                Piece::Bytes(bytes) => c::Piece::Bytes(self.table.delete(bytes)?.0),
            });
        }
        let request = self.request(request).and_then(|request| {
            self.fits(inline, "the inline part of the request's body")?;
            if request.body != c::Content::None {
                return Err(c::Error::new(
                    c::Code::InvalidConfig,
                    "an upload has its body in pieces; request.body is `none`",
                ));
            }
            Ok(request)
        });
        let request = match request {
            Ok(request) => request,
            Err(e) => return Ok(Err(error(e))),
        };
        let egress = Arc::clone(&self.egress);
        let safe = safe(&request);
        let sent = egress.http_upload(request, pieces).await;
        Ok(sent
            .and_then(|response| self.response(safe, response))
            .map_err(error))
    }
}

impl HostBytes for State {
    async fn drop(&mut self, bytes: Resource<BytesEntry>) -> wasmtime::Result<()> {
        self.table.delete(bytes)?;
        Ok(())
    }
}

impl HostLines for State {
    async fn head(&mut self, lines: Resource<LinesEntry>) -> wasmtime::Result<Head> {
        Ok(head(self.table.get(&lines)?.0.head().clone()))
    }

    async fn next(&mut self, lines: Resource<LinesEntry>) -> Answer<Option<String>> {
        let line = self.table.get_mut(&lines)?.0.next().await;
        Ok(line.map_err(error))
    }

    async fn drop(&mut self, lines: Resource<LinesEntry>) -> wasmtime::Result<()> {
        self.table.delete(lines)?;
        Ok(())
    }
}

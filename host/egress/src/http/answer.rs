//! An answer: its head, and its body as it is wanted: whole, by lines, or as a stream.
//!
//! Only waiting counts: a reader that takes its time holds the server back and costs the server nothing of its own.
//! Trailers are read and dropped.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use bytes::{Buf, Bytes, BytesMut};
use futures_util::stream;
use http::header;
use hyper::body::{Body as _, Incoming};
use leasehold_contract::{ByteStream, Code, Content, Error, HttpHead, HttpLines, HttpResponse};
use tokio::time::timeout_at;
use tokio_util::io::StreamReader;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::Bounds;
use super::exchange::{Begun, Course, told};
use super::gathered::Gathered;
use super::pool::{Pools, Turn};
use super::reach::span;
use super::settings::{BUFFERED, LINE};
use crate::error::{cancelled, failed};

/// The head of an answer, and its body to come.
pub struct Answer {
    /// Status and headers.
    pub head: HttpHead,
    /// What follows.
    pub body: AnswerBody,
}

/// A body that is read while it comes. Dropped before its end, its connection is closed.
pub struct AnswerBody {
    incoming: Incoming,
    /// None once the body was read to its end.
    turn: Option<Turn>,
    course: Course,
    /// None where the body may outlive the call.
    until: Option<Instant>,
    idle: Duration,
    transfer: Duration,
    waited: Duration,
    largest: usize,
    encoding: Option<String>,
    closed: Option<CancellationToken>,
}

/// Which deadline passed.
#[derive(Clone, Copy)]
enum Late {
    Total,
    Transfer,
    Idle,
}

impl Answer {
    pub(super) fn of(begun: Begun, pools: &Arc<Pools>, bounds: &Bounds) -> Answer {
        let Begun {
            response,
            turn,
            course,
        } = begun;
        let (parts, incoming) = response.into_parts();
        let encoding = parts
            .headers
            .get(header::CONTENT_ENCODING)
            .map(|v| String::from_utf8_lossy(v.as_bytes()).into_owned())
            .filter(|v| !v.eq_ignore_ascii_case("identity") && !v.is_empty());
        let head = HttpHead {
            status: parts.status.as_u16(),
            headers: parts
                .headers
                .iter()
                .map(|(name, value)| {
                    let value = String::from_utf8_lossy(value.as_bytes()).into_owned();
                    (name.as_str().to_owned(), value)
                })
                .collect(),
        };
        let mut body = AnswerBody {
            turn: Some(turn),
            until: Some(course.until),
            course,
            idle: pools.settings.idle,
            transfer: pools.settings.transfer,
            waited: Duration::ZERO,
            largest: bounds.body.unwrap_or(BUFFERED),
            encoding,
            closed: bounds.closed.clone(),
            incoming,
        };
        if body.incoming.is_end_stream() {
            body.finish();
        }
        Answer { head, body }
    }

    /// The whole of it.
    ///
    /// # Errors
    /// Those of [`AnswerBody::next`]; `quota-exceeded` for a body of a GET that is larger than its bound.
    pub async fn whole(self) -> Result<HttpResponse, Error> {
        self.whole_seen(|_| ()).await
    }

    /// The same, where somebody sees the body so far whenever there is more of it: time that would else be waited for the
    /// rest. At the end all of it was seen.
    pub(crate) async fn whole_seen(self, seen: impl FnMut(&[u8])) -> Result<HttpResponse, Error> {
        Ok(HttpResponse {
            body: self.body.gathered(seen).await?,
            head: self.head,
        })
    }

    /// The answer by lines.
    ///
    /// # Errors
    /// That of [`Answer::whole`] for an encoded body.
    pub fn lines(self) -> Result<Lines, Error> {
        self.body.plain()?;
        Ok(Lines {
            head: self.head,
            body: self.body,
            buffer: BytesMut::new(),
            seen: 0,
            ended: false,
        })
    }
}

impl AnswerBody {
    /// The next bytes, never empty; none at the end.
    ///
    /// # Errors
    /// `outcome-unknown` (`unavailable` of a GET or HEAD) when the rest does not come; `cancelled` when the lease ended.
    pub async fn next(&mut self) -> Result<Option<Bytes>, Error> {
        if self.turn.is_none() {
            return Ok(None);
        }
        loop {
            let began = Instant::now();
            let (due, late) = self.due(began);
            let incoming = &mut self.incoming;
            let frame = timeout_at(
                due.into(),
                poll_fn(|cx| Pin::new(&mut *incoming).poll_frame(cx)),
            );
            let frame = match &self.closed {
                None => frame.await,
                Some(closed) => tokio::select! {
                    biased;
                    () = closed.cancelled() => return Err(cancelled(&self.course.name)),
                    frame = frame => frame,
                },
            };
            self.waited += began.elapsed();
            match frame {
                Err(_) => return Err(self.course.lost(self.told(late))),
                Ok(None) => {
                    self.finish();
                    return Ok(None);
                }
                Ok(Some(Ok(frame))) => {
                    if let Ok(bytes) = frame.into_data()
                        && !bytes.is_empty()
                    {
                        return Ok(Some(bytes));
                    }
                }
                Ok(Some(Err(e))) => {
                    return Err(self.course.lost(format_args!(
                        "the connection was lost in the middle of the answer ({})",
                        told(&e)
                    )));
                }
            }
        }
    }

    /// The next deadline, and which it is.
    fn due(&self, now: Instant) -> (Instant, Late) {
        let idle = now + self.idle;
        let transfer = now + self.transfer.saturating_sub(self.waited);
        match self.until {
            Some(until) if until <= idle => (until, Late::Total),
            None if transfer <= idle => (transfer, Late::Transfer),
            _ => (idle, Late::Idle),
        }
    }

    fn told(&self, late: Late) -> String {
        match late {
            Late::Total => format!(
                "the answer did not end within the {} the request was given",
                span(self.course.total)
            ),
            Late::Transfer => format!(
                "the answer kept its reader waiting for {} in all; the server is too slow",
                span(self.transfer)
            ),
            Late::Idle => format!(
                "the answer stopped in the middle: nothing came for {}",
                span(self.idle)
            ),
        }
    }

    fn finish(&mut self) {
        if let Some(turn) = self.turn.take() {
            turn.give_back();
        }
    }

    /// Refuses a body in an encoding that nobody asked for: redaction could not look into it.
    fn plain(&self) -> Result<(), Error> {
        match &self.encoding {
            None => Ok(()),
            Some(encoding) => Err(self.course.lost(format_args!(
                "the answer is encoded ({}) although identity was asked for",
                crate::error::quote(encoding.as_bytes())
            ))),
        }
    }

    fn too_large(&self) -> Error {
        let what = format!(
            "the answer is larger than {} KiB; use download for large bodies",
            self.largest / 1024
        );
        if self.course.safe {
            failed(Code::QuotaExceeded, &self.course.name, what)
        } else {
            self.course.lost(what)
        }
    }

    /// All of it, up to the bound.
    ///
    /// # Errors
    /// Those of [`Self::next`]; `quota-exceeded` for a body of a GET that is larger.
    async fn gathered(mut self, mut seen: impl FnMut(&[u8])) -> Result<Content, Error> {
        self.plain()?;
        let hint = self.incoming.size_hint();
        if hint.lower() > self.largest as u64 {
            return Err(self.too_large());
        }
        let mut whole = Gathered::with_capacity(usize::try_from(hint.lower()).unwrap_or(0));
        while let Some(bytes) = self.next().await? {
            if bytes.len() > self.largest - whole.so_far().len() {
                return Err(self.too_large());
            }
            whole.push(&bytes);
            seen(whole.so_far());
        }
        Ok(whole.content())
    }

    /// The body as bytes that the host moves: it may outlive the call, not the lease.
    pub fn into_stream(mut self) -> ByteStream {
        self.until = None;
        let guard = self.watch();
        let pieces = stream::unfold((self, guard), |(mut body, guard)| async move {
            let piece = body.next().await.transpose()?;
            let piece = piece.map_err(|e| io::Error::other(e.to_string()));
            Some((piece, (body, guard)))
        });
        Box::pin(StreamReader::new(Box::pin(pieces)))
    }

    /// Closes the connection when the lease ends, whether anybody reads or not.
    fn watch(&self) -> Option<DropGuard> {
        let (closed, turn) = (self.closed.clone()?, self.turn.as_ref()?);
        let connection = turn.link.task.abort_handle();
        let finished = CancellationToken::new();
        let guard = finished.clone().drop_guard();
        tokio::spawn(async move {
            tokio::select! {
                () = closed.cancelled() => connection.abort(),
                () = finished.cancelled() => {}
            }
        });
        Some(guard)
    }
}

/// An answer by lines.
pub struct Lines {
    head: HttpHead,
    body: AnswerBody,
    buffer: BytesMut,
    /// How much of the buffer holds no line's end.
    seen: usize,
    ended: bool,
}

#[async_trait]
impl HttpLines for Lines {
    fn head(&self) -> &HttpHead {
        &self.head
    }

    async fn next(&mut self) -> Result<Option<String>, Error> {
        loop {
            if let Some(at) = self.buffer[self.seen..].iter().position(|b| *b == b'\n') {
                let line = self.buffer.split_to(self.seen + at);
                self.buffer.advance(1);
                self.seen = 0;
                return self.line(&line).map(Some);
            }
            self.seen = self.buffer.len();
            if self.ended {
                let rest = self.buffer.split();
                self.seen = 0;
                return match rest.is_empty() {
                    true => Ok(None),
                    false => self.line(&rest).map(Some),
                };
            }
            if self.seen > LINE {
                return Err(self.too_long());
            }
            match self.body.next().await? {
                Some(bytes) => self.buffer.extend_from_slice(&bytes),
                None => self.ended = true,
            }
        }
    }
}

impl Lines {
    fn line(&self, line: &[u8]) -> Result<String, Error> {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if line.len() > LINE {
            return Err(self.too_long());
        }
        Ok(String::from_utf8_lossy(line).into_owned())
    }

    fn too_long(&self) -> Error {
        self.body
            .course
            .lost("a line of the answer is longer than 1 MiB; use download")
    }
}

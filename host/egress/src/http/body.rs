//! A request's body on its way out: nothing, bytes, or pieces of which some are read while they are sent.

use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use bytes::{Bytes, BytesMut};
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use leasehold_contract::{ByteStream, Content, Piece};
use tokio::io::ReadBuf;
use tokio::sync::Notify;

use super::Body;

/// Read from a source at a time.
const PIECE: usize = 64 * 1024;

/// What the exchange may know of a body while hyper sends it.
#[derive(Default)]
pub(super) struct Sending {
    done: AtomicBool,
    finished: Notify,
    starved: AtomicBool,
    failed: Mutex<Option<String>>,
}

impl Sending {
    /// All of it was handed on.
    pub(super) fn done(&self) -> bool {
        self.done.load(Ordering::Acquire)
    }

    /// Returns when all of it was handed on.
    pub(super) async fn finished(&self) {
        if !self.done() {
            self.finished.notified().await;
        }
    }

    fn finish(&self) {
        self.done.store(true, Ordering::Release);
        self.finished.notify_one();
    }

    /// It waits for its source.
    pub(super) fn starved(&self) -> bool {
        self.starved.load(Ordering::Acquire)
    }

    /// Why its source failed.
    pub(super) fn failed(&self) -> Option<String> {
        self.failed
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

/// A body as hyper sends it.
pub(super) struct Outgoing {
    parts: VecDeque<Part>,
    /// Bytes that are left, where that is known.
    left: Option<u64>,
    sending: Arc<Sending>,
}

enum Part {
    Bytes(Bytes),
    Stream(ByteStream, BytesMut),
}

/// A body that can be sent again.
#[derive(Clone)]
pub(super) enum Again {
    Yes(Bytes),
    No,
}

impl Outgoing {
    /// The body, how it can be repeated, and what is known of it while it is sent.
    pub(super) fn of(body: Body) -> (Outgoing, Again, Arc<Sending>) {
        match body {
            Body::Empty => Outgoing::buffered(Bytes::new()),
            Body::Full(bytes) => Outgoing::buffered(bytes),
            Body::Pieces(pieces) => {
                let sending = Arc::new(Sending::default());
                let mut left = Some(0u64);
                let mut parts = VecDeque::new();
                for piece in pieces {
                    match piece {
                        Piece::Inline(content) => {
                            let bytes = bytes_of(content);
                            left = left.map(|l| l + bytes.len() as u64);
                            parts.push_back(Part::Bytes(bytes));
                        }
                        Piece::Bytes(stream) => {
                            left = None;
                            parts.push_back(Part::Stream(stream, BytesMut::new()));
                        }
                    }
                }
                let outgoing = Outgoing {
                    parts,
                    left,
                    sending: sending.clone(),
                };
                if outgoing.is_end_stream() {
                    sending.finish();
                }
                (outgoing, Again::No, sending)
            }
        }
    }

    /// A body of these bytes.
    pub(super) fn buffered(bytes: Bytes) -> (Outgoing, Again, Arc<Sending>) {
        let sending = Arc::new(Sending {
            done: AtomicBool::new(bytes.is_empty()),
            ..Sending::default()
        });
        let outgoing = Outgoing {
            left: Some(bytes.len() as u64),
            parts: if bytes.is_empty() {
                VecDeque::new()
            } else {
                VecDeque::from([Part::Bytes(bytes.clone())])
            },
            sending: sending.clone(),
        };
        (outgoing, Again::Yes(bytes), sending)
    }
}

fn bytes_of(content: Content) -> Bytes {
    match content {
        Content::None => Bytes::new(),
        Content::Text(text) => Bytes::from(text),
        Content::Bytes(bytes) => Bytes::from(bytes),
    }
}

impl HttpBody for Outgoing {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        let this = &mut *self;
        loop {
            let bytes = match this.parts.front_mut() {
                None => {
                    this.sending.finish();
                    return Poll::Ready(None);
                }
                Some(Part::Bytes(bytes)) => {
                    let bytes = std::mem::take(bytes);
                    this.parts.pop_front();
                    bytes
                }
                Some(Part::Stream(stream, buffer)) => {
                    match poll_piece(stream.as_mut(), buffer, cx) {
                        Poll::Pending => {
                            this.sending.starved.store(true, Ordering::Release);
                            return Poll::Pending;
                        }
                        Poll::Ready(Ok(bytes)) => {
                            this.sending.starved.store(false, Ordering::Release);
                            if bytes.is_empty() {
                                this.parts.pop_front();
                            }
                            bytes
                        }
                        Poll::Ready(Err(e)) => {
                            *this
                                .sending
                                .failed
                                .lock()
                                .unwrap_or_else(PoisonError::into_inner) = Some(e.to_string());
                            return Poll::Ready(Some(Err(e)));
                        }
                    }
                }
            };
            if bytes.is_empty() {
                continue;
            }
            this.left = this.left.map(|l| l.saturating_sub(bytes.len() as u64));
            if this.parts.is_empty() {
                this.sending.finish();
            }
            return Poll::Ready(Some(Ok(Frame::data(bytes))));
        }
    }

    fn is_end_stream(&self) -> bool {
        self.left == Some(0)
    }

    fn size_hint(&self) -> SizeHint {
        match self.left {
            Some(left) => SizeHint::with_exact(left),
            None => SizeHint::default(),
        }
    }
}

/// The next bytes of a source; empty at its end.
fn poll_piece(
    source: Pin<&mut (dyn tokio::io::AsyncRead + Send)>,
    buffer: &mut BytesMut,
    cx: &mut Context<'_>,
) -> Poll<io::Result<Bytes>> {
    if buffer.is_empty() {
        buffer.resize(PIECE, 0);
    }
    let mut read = ReadBuf::new(buffer);
    match source.poll_read(cx, &mut read) {
        Poll::Pending => Poll::Pending,
        Poll::Ready(Err(e)) => Poll::Ready(Err(e)),
        Poll::Ready(Ok(())) => {
            let got = read.filled().len();
            // What is handed on keeps its memory; the rest of the buffer is used again.
            Poll::Ready(Ok(buffer.split_to(got).freeze()))
        }
    }
}

//! A connection that several hold and any of them can close under the others, whoever reads or writes at the time.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// One handle of a shared connection.
#[derive(Clone)]
pub(super) struct Shared(Arc<Mutex<Inner>>);

struct Inner {
    /// None once it was cut.
    io: Option<TokioIo<Upgraded>>,
    reason: &'static str,
    reader: Option<Waker>,
    writer: Option<Waker>,
}

impl Shared {
    pub(super) fn new(io: Upgraded) -> Shared {
        Shared(Arc::new(Mutex::new(Inner {
            io: Some(TokioIo::new(io)),
            reason: "",
            reader: None,
            writer: None,
        })))
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Closes it now; who waits for it gets `reason` as an error.
    pub(super) fn cut(&self, reason: &'static str) {
        let (io, wakers) = {
            let mut inner = self.lock();
            let Some(io) = inner.io.take() else { return };
            inner.reason = reason;
            (io, [inner.reader.take(), inner.writer.take()])
        };
        drop(io);
        for waker in wakers.into_iter().flatten() {
            waker.wake();
        }
    }
}

impl Inner {
    fn gone(&self) -> io::Error {
        io::Error::new(io::ErrorKind::ConnectionAborted, self.reason)
    }

    fn writing<T>(
        &mut self,
        cx: &mut Context<'_>,
        poll: impl FnOnce(Pin<&mut TokioIo<Upgraded>>, &mut Context<'_>) -> Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        let Some(io) = &mut self.io else {
            return Poll::Ready(Err(self.gone()));
        };
        let done = poll(Pin::new(io), cx);
        if done.is_pending() {
            self.writer = Some(cx.waker().clone());
        }
        done
    }
}

impl AsyncRead for Shared {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let mut inner = self.lock();
        let Some(io) = &mut inner.io else {
            return Poll::Ready(Err(inner.gone()));
        };
        let done = Pin::new(io).poll_read(cx, buf);
        if done.is_pending() {
            inner.reader = Some(cx.waker().clone());
        }
        done
    }
}

impl AsyncWrite for Shared {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.lock().writing(cx, |io, cx| io.poll_write(cx, buf))
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.lock().writing(cx, |io, cx| io.poll_flush(cx))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.lock().writing(cx, |io, cx| io.poll_shutdown(cx))
    }
}

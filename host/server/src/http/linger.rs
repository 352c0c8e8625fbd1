//! Connections that this side closes while the other still sends.
//!
//! A socket that is closed with bytes in it that nobody read is reset, and the reset may overtake the last words: why
//! an upload or a frame was refused. So what is closed here first is shut for writing, and what still comes is read and
//! dropped until the other side closes, for a moment at most and for so many connections at once.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::{Arc, LazyLock};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::sync::Semaphore;

/// How long the other side gets to read the last words and close.
const MOMENT: Duration = Duration::from_secs(5);
/// Connections that are waited for at once; more are closed without.
const MOST: usize = 128;

static PLACES: LazyLock<Arc<Semaphore>> = LazyLock::new(|| Arc::new(Semaphore::new(MOST)));

/// A stream whose last words arrive.
#[derive(Debug)]
pub struct Lingering<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> {
    /// None only while it is dropped.
    stream: Option<S>,
    /// The other side has closed, or nothing moves any more.
    over: bool,
}

impl<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> Lingering<S> {
    /// Of this stream.
    pub fn new(stream: S) -> Lingering<S> {
        Lingering {
            stream: Some(stream),
            over: false,
        }
    }

    fn with<T>(
        &mut self,
        act: impl FnOnce(Pin<&mut S>) -> Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        let Some(stream) = &mut self.stream else {
            return Poll::Ready(Err(io::ErrorKind::NotConnected.into()));
        };
        let done = ready!(act(Pin::new(stream)));
        self.over |= done.is_err();
        Poll::Ready(done)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> Drop for Lingering<S> {
    fn drop(&mut self) {
        let Some(mut stream) = self.stream.take().filter(|_| !self.over) else {
            return;
        };
        let (Ok(runtime), Ok(place)) = (
            tokio::runtime::Handle::try_current(),
            PLACES.clone().try_acquire_owned(),
        ) else {
            return;
        };
        runtime.spawn(async move {
            let _place = place;
            let closed = async {
                stream.shutdown().await?;
                let mut unheeded = vec![0; 16 << 10];
                while stream.read(&mut unheeded).await? > 0 {}
                Ok::<(), io::Error>(())
            };
            let _ = tokio::time::timeout(MOMENT, closed).await;
        });
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> AsyncRead for Lingering<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = into.remaining();
        ready!(self.with(|stream| stream.poll_read(cx, into)))?;
        self.over |= before > 0 && into.remaining() == before;
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> AsyncWrite for Lingering<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.with(|stream| stream.poll_write(cx, data))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        data: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.with(|stream| stream.poll_write_vectored(cx, data))
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.as_ref().is_some_and(S::is_write_vectored)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.with(|stream| stream.poll_flush(cx))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.with(|stream| stream.poll_shutdown(cx))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_last_words_reach_a_client_that_is_still_sending() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut client = tokio::net::TcpStream::connect(listener.local_addr().unwrap())
            .await
            .unwrap();
        let mut server = Lingering::new(listener.accept().await.unwrap().0);
        client.write_all(&[1; 4096]).await.unwrap();
        server.write_all(b"refused").await.unwrap();
        drop(server);
        // More than any buffer holds: it is all taken, and nothing is reset.
        client.write_all(&vec![1; 32 << 20]).await.unwrap();
        let mut said = String::new();
        client.read_to_string(&mut said).await.unwrap();
        assert_eq!(said, "refused");
    }
}

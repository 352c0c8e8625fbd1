//! A stream of bytes on its way out, read through a net for credentials.
//!
//! What a component downloads it never sees, and may send on: a server that gives a key back would have it carried to
//! where the component can read it. No byte of a value leaves before the whole of it was looked for.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Buf, BytesMut};
use leasehold_contract::ByteStream;
use tokio::io::{AsyncRead, ReadBuf};

use super::finder::Finder;

/// How much is read at a time.
const CHUNK: usize = 16 << 10;

/// See the module.
pub(crate) struct Watch {
    inner: ByteStream,
    finder: Arc<Finder>,
    /// What was read and has not left.
    held: BytesMut,
    /// How much of it may leave.
    free: usize,
    /// How much is held back: a value may begin in it.
    margin: usize,
    looked: bool,
    ended: bool,
}

impl Watch {
    pub(crate) fn new(inner: ByteStream, finder: Arc<Finder>) -> Watch {
        let margin = finder.reach();
        Watch {
            inner,
            finder,
            held: BytesMut::new(),
            free: 0,
            margin,
            looked: true,
            ended: false,
        }
    }

    fn look(&mut self) -> io::Result<()> {
        if !self.looked && self.finder.hits(&self.held) {
            return Err(io::Error::new(
                io::ErrorKind::PermissionDenied,
                "a credential's value stands in the bytes of this body; it goes into its site only",
            ));
        }
        self.looked = true;
        self.free = if self.ended {
            self.held.len()
        } else {
            self.held.len().saturating_sub(self.margin)
        };
        Ok(())
    }
}

impl AsyncRead for Watch {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        loop {
            if this.free > 0 {
                let n = this.free.min(buf.remaining());
                buf.put_slice(&this.held[..n]);
                this.held.advance(n);
                this.free -= n;
                return Poll::Ready(Ok(()));
            }
            if this.ended {
                return Poll::Ready(Ok(()));
            }
            let mut chunk = [0u8; CHUNK];
            let mut read = ReadBuf::new(&mut chunk);
            let polled = this.inner.as_mut().poll_read(cx, &mut read);
            if polled.is_pending() {
                // Whoever waits for the next bytes may need these first.
                this.look()?;
                if this.free > 0 {
                    continue;
                }
            }
            ready!(polled)?;
            this.looked = false;
            this.ended = read.filled().is_empty();
            this.held.extend_from_slice(read.filled());
            if this.ended || this.held.len() >= this.margin + CHUNK {
                this.look()?;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::AsyncReadExt;

    const KEY: &str = "the-key-0123456789";

    fn watch(bytes: Vec<u8>, step: usize) -> Watch {
        let finder = Arc::new(Finder::new([KEY]));
        let steps: Vec<io::Result<bytes::Bytes>> = bytes
            .chunks(step)
            .map(|c| Ok(bytes::Bytes::copy_from_slice(c)))
            .collect();
        let stream = tokio_util::io::StreamReader::new(futures_util::stream::iter(steps));
        Watch::new(Box::pin(stream), finder)
    }

    #[tokio::test]
    async fn bytes_pass_whole_and_in_order() {
        let bytes: Vec<u8> = (0..200_000u32).map(|i| (i * 7 % 251) as u8).collect();
        for step in [1, 13, 4096, 100_000] {
            let mut out = Vec::new();
            watch(bytes.clone(), step)
                .read_to_end(&mut out)
                .await
                .expect("passes");
            assert!(out == bytes, "in steps of {step}");
        }
    }

    #[tokio::test]
    async fn not_a_byte_of_a_credential_leaves_however_it_is_cut() {
        use base64::Engine;
        let escaped: String = KEY.bytes().map(|b| format!("\\u{b:04x}")).collect();
        let encoded = base64::engine::general_purpose::STANDARD.encode(KEY);
        for shape in [KEY.to_owned(), escaped, encoded] {
            for step in [1, 64, 100_000] {
                // Across the end of what is read at a time, wherever in the value that falls.
                for before in (0..40).map(|n| CHUNK - 50 + n * 17).chain([0, 70_000]) {
                    let mut bytes = vec![b'.'; before];
                    bytes.extend_from_slice(shape.as_bytes());
                    bytes.extend_from_slice(&[b'.'; 2000]);
                    let mut out = Vec::new();
                    let end = watch(bytes, step).read_to_end(&mut out).await;
                    assert!(
                        end.is_err(),
                        "{shape} at {before} in steps of {step} passed"
                    );
                    assert!(
                        out.iter().all(|b| *b == b'.'),
                        "a part of {shape} at {before} left in steps of {step}"
                    );
                }
            }
        }
    }
}

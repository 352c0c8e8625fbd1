//! A pipe from a task that makes an archive to whoever reads it: bounded, and it carries the task's error to the reader.

use std::io;

use bytes::Bytes;
use futures_util::stream;
use leasehold_contract::{ByteStream, Error};
use tokio::sync::mpsc;
use tokio_util::io::StreamReader;
use tokio_util::sync::CancellationToken;

/// The writing end.
pub(super) struct Sink(mpsc::Sender<io::Result<Bytes>>);

/// The reader went away.
#[derive(Debug)]
pub(super) struct Gone;

/// Runs `work` with a sink whose other end is the stream. When `closed` fires first, the reader gets an error.
pub(super) fn pipe<F, W>(closed: Option<CancellationToken>, work: W) -> ByteStream
where
    W: FnOnce(Sink) -> F,
    F: Future<Output = Result<(), Error>> + Send + 'static,
{
    let (send, receive) = mpsc::channel(4);
    let working = work(Sink(send.clone()));
    tokio::spawn(async move {
        let over = async {
            match &closed {
                Some(closed) => closed.cancelled().await,
                None => std::future::pending().await,
            }
        };
        let reader_gone = send.closed();
        let error = tokio::select! {
            done = working => done.err().map(|e| io::Error::other(e.to_string())),
            () = over => Some(io::Error::other("the lease is no longer active under this epoch")),
            () = reader_gone => None,
        };
        if let Some(error) = error {
            let _ = send.send(Err(error)).await;
        }
    });
    let pieces = stream::unfold(receive, |mut receive| async move {
        receive.recv().await.map(|piece| (piece, receive))
    });
    Box::pin(StreamReader::new(Box::pin(pieces)))
}

impl Sink {
    /// Waits for the reader.
    pub(super) async fn send(&self, data: Bytes) -> Result<(), Gone> {
        self.0.send(Ok(data)).await.map_err(|_| Gone)
    }
}

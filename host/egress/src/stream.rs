//! The halves of a running command as the contract has them. Bytes go from the channel to the reader and nothing lies
//! between: who does not read holds the command back by the channel's window.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use leasehold_contract::{Ended, Process, ProcessEvent, ProcessInput, ProcessOutput, Size};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::channel::{Event, Reading, Running, Writing};
use crate::duplex::OVER;

/// Makes a process of a running exec. `early` is what was read with the verdict. When `closed` fires, the connection is
/// cut, whoever reads or does not.
pub(crate) fn process(
    running: Running,
    early: Vec<Event>,
    tty: bool,
    closed: Option<CancellationToken>,
) -> Process {
    let finished = CancellationToken::new();
    if let Some(closed) = closed.clone() {
        let (connection, finished) = (running.read.line.connection.clone(), finished.clone());
        tokio::spawn(async move {
            tokio::select! {
                () = closed.cancelled() => connection.cut(OVER),
                () = finished.cancelled() => {}
                // The connection ended by itself; the watcher must not keep it.
                () = connection.shared.ended.cancelled() => {}
            }
        });
    }
    // While either half is held; a stream that ended in order is no longer the lease's.
    let watched = Arc::new(finished.clone().drop_guard());
    Process {
        output: Box::new(Output {
            reading: Some(running.read),
            early: early.into_iter(),
            closed,
            finished,
            _watched: watched.clone(),
        }),
        input: Box::new(Input {
            writing: running.write,
            tty,
            ended: false,
            _watched: watched,
        }),
    }
}

struct Output {
    reading: Option<Reading>,
    early: std::vec::IntoIter<Event>,
    closed: Option<CancellationToken>,
    finished: CancellationToken,
    _watched: Arc<DropGuard>,
}

#[async_trait]
impl ProcessOutput for Output {
    async fn next(&mut self) -> Option<ProcessEvent> {
        let reading = self.reading.as_mut()?;
        let event = match self.early.next() {
            Some(event) => event,
            None => match &self.closed {
                None => reading.next().await,
                Some(closed) => tokio::select! {
                    biased;
                    () = closed.cancelled() => Event::Ended(Ended::Lost(OVER.into())),
                    event = reading.next() => event,
                },
            },
        };
        Some(match event {
            Event::Stdout(b) => ProcessEvent::Stdout(b),
            Event::Stderr(b) => ProcessEvent::Stderr(b),
            Event::Ended(ended) => {
                // Gives the connection back, unwatched.
                self.finished.cancel();
                self.reading = None;
                ProcessEvent::Ended(ended)
            }
        })
    }
}

struct Input {
    writing: Writing,
    tty: bool,
    ended: bool,
    _watched: Arc<DropGuard>,
}

#[async_trait]
impl ProcessInput for Input {
    async fn write(&mut self, data: Bytes) -> std::io::Result<()> {
        if self.ended {
            return Err(std::io::Error::new(
                std::io::ErrorKind::BrokenPipe,
                "the input was ended before",
            ));
        }
        self.writing.send(data).await
    }

    async fn end(&mut self) -> std::io::Result<()> {
        if std::mem::replace(&mut self.ended, true) {
            return Ok(());
        }
        if self.tty {
            // A terminal has no half-close: its end-of-file character says it, at the begin of a line.
            return self.writing.send(Bytes::from_static(b"\x04")).await;
        }
        self.writing.end().await
    }

    async fn resize(&mut self, size: Size) -> std::io::Result<()> {
        if !self.tty {
            return Ok(());
        }
        self.writing
            .write
            .window_change(size.cols.into(), size.rows.into(), 0, 0)
            .await
            .map_err(|_| {
                std::io::Error::new(std::io::ErrorKind::BrokenPipe, "the channel is closed")
            })
    }
}

//! An upgraded connection: bytes in any framing that needs no messages, with a half-close where the transport has one.

use std::io;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use hyper::upgrade::Upgraded;
use leasehold_contract::{Duplex, Ended, Error, ExitSource, Process, ProcessInput, Size, Wiring};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::OwnedSemaphorePermit;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::cut::Shared;
use super::framing::Demux;
use super::output::{Output, Ready, Source};
use super::{End, OVER, ended_before, endless, unsupported};
use crate::error::quote;

/// Read at a time.
const CHUNK: usize = 64 * 1024;

/// [`Duplex`] of an upgraded connection.
pub(crate) struct Raw {
    connection: Shared,
    keep: Arc<Keep>,
}

/// What a stream holds as long as either half is held.
pub(super) struct Keep {
    /// Ends the task that watches the lease.
    _watch: Option<DropGuard>,
    /// Its place in the pool.
    _permit: OwnedSemaphorePermit,
}

/// Shares a connection between the halves of its process and, under a lease, the task that closes it when the lease ends.
pub(super) fn shared(
    io: Upgraded,
    permit: OwnedSemaphorePermit,
    closed: Option<CancellationToken>,
) -> (Shared, Arc<Keep>) {
    let connection = Shared::new(io);
    let watch = closed.map(|closed| {
        let finished = CancellationToken::new();
        let guard = finished.clone().drop_guard();
        let connection = connection.clone();
        tokio::spawn(async move {
            tokio::select! {
                () = closed.cancelled() => connection.cut(OVER),
                () = finished.cancelled() => {}
            }
        });
        guard
    });
    let keep = Arc::new(Keep {
        _watch: watch,
        _permit: permit,
    });
    (connection, keep)
}

impl Raw {
    pub(crate) fn new(
        io: Upgraded,
        permit: OwnedSemaphorePermit,
        closed: Option<CancellationToken>,
    ) -> Raw {
        let (connection, keep) = shared(io, permit, closed);
        Raw { connection, keep }
    }
}

impl Duplex for Raw {
    fn wire(self: Box<Self>, wiring: Wiring) -> Result<Process, Error> {
        if wiring.exit != ExitSource::Ask {
            return Err(unsupported(
                "an upgraded connection does not tell an exit: its exit source is `ask`",
            ));
        }
        let demux = Demux::of(wiring.framing)?;
        Ok(Process {
            output: Box::new(Output::of(Reading {
                connection: self.connection.clone(),
                demux,
                buffer: BytesMut::new(),
                _keep: self.keep.clone(),
            })),
            input: Box::new(Input {
                connection: self.connection,
                end: End::of(wiring.input_end)?,
                ended: false,
                _keep: self.keep,
            }),
        })
    }
}

struct Reading {
    connection: Shared,
    demux: Demux,
    buffer: BytesMut,
    _keep: Arc<Keep>,
}

impl Source for Reading {
    async fn read(&mut self, ready: &mut Ready) {
        self.buffer.reserve(CHUNK);
        let mut said = Vec::new();
        let framed = match self.connection.read_buf(&mut self.buffer).await {
            Ok(0) => {
                ready.end(Ended::Ask);
                self.demux.end(&mut said)
            }
            Ok(_) => self.demux.feed(self.buffer.split().freeze(), &mut said),
            Err(e) => {
                // What was held back came, whatever follows.
                let _ = self.demux.end(&mut said);
                Err(format!("the connection was lost ({e})"))
            }
        };
        ready.say(said);
        if let Err(why) = framed {
            ready.end(Ended::Lost(quote(why.as_bytes())));
        }
    }
}

struct Input {
    connection: Shared,
    end: End,
    ended: bool,
    _keep: Arc<Keep>,
}

#[async_trait]
impl ProcessInput for Input {
    async fn write(&mut self, data: Bytes) -> io::Result<()> {
        if self.ended {
            return Err(ended_before());
        }
        self.connection.write_all(&data).await?;
        self.connection.flush().await
    }

    async fn end(&mut self) -> io::Result<()> {
        if self.ended {
            return Ok(());
        }
        match &self.end {
            End::HalfClose => self.connection.shutdown().await?,
            End::Bytes(bytes) => {
                let bytes = bytes.clone();
                self.connection.write_all(&bytes).await?;
                self.connection.flush().await?;
            }
            End::None => return Err(endless()),
        }
        self.ended = true;
        Ok(())
    }

    async fn resize(&mut self, _size: Size) -> io::Result<()> {
        Ok(())
    }
}

//! A port that SSH forwards: plain bytes, whose other side half-closes and tells no exit.

use async_trait::async_trait;
use bytes::Bytes;
use leasehold_contract::{
    Duplex, Ended, Error, ExitSource, Framing, Process, ProcessEvent, ProcessInput, ProcessOutput,
    Size, Wiring,
};

use super::{End, ended_before, endless, unsupported};

/// [`Duplex`] of a forwarded port.
pub(crate) struct Port(pub(crate) Process);

impl Duplex for Port {
    fn wire(self: Box<Self>, wiring: Wiring) -> Result<Process, Error> {
        if wiring.framing != Framing::Merged {
            return Err(unsupported(
                "a forwarded port carries plain bytes: its framing is `merged`",
            ));
        }
        if wiring.exit != ExitSource::Ask {
            return Err(unsupported(
                "a forwarded port does not tell an exit: its exit source is `ask`",
            ));
        }
        Ok(Process {
            output: Box::new(Output(self.0.output)),
            input: Box::new(Input {
                inner: self.0.input,
                end: End::of(wiring.input_end)?,
                ended: false,
            }),
        })
    }
}

struct Output(Box<dyn ProcessOutput>);

#[async_trait]
impl ProcessOutput for Output {
    async fn next(&mut self) -> Option<ProcessEvent> {
        Some(match self.0.next().await? {
            ProcessEvent::Ended(Ended::Lost(reason)) => ProcessEvent::Ended(Ended::Lost(reason)),
            ProcessEvent::Ended(_) => ProcessEvent::Ended(Ended::Ask),
            event => event,
        })
    }
}

struct Input {
    inner: Box<dyn ProcessInput>,
    end: End,
    ended: bool,
}

#[async_trait]
impl ProcessInput for Input {
    async fn write(&mut self, data: Bytes) -> std::io::Result<()> {
        if self.ended {
            return Err(ended_before());
        }
        self.inner.write(data).await
    }

    async fn end(&mut self) -> std::io::Result<()> {
        if self.ended {
            return Ok(());
        }
        match &self.end {
            End::HalfClose => self.inner.end().await?,
            End::Bytes(bytes) => self.inner.write(bytes.clone()).await?,
            End::None => return Err(endless()),
        }
        self.ended = true;
        Ok(())
    }

    async fn resize(&mut self, size: Size) -> std::io::Result<()> {
        self.inner.resize(size).await
    }
}

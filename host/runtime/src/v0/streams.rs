//! `interface streams`: upgrades are refused, as a value; a forwarded duplex can be made a process.

use async_trait::async_trait;
use bytes::Bytes;
use leasehold_contract as c;
use leasehold_contract::{Ended, Process, ProcessEvent, ProcessInput, ProcessOutput};
use wasmtime::component::Resource;

use super::arguments::error;
use super::http::refused;
use super::imported::http::Request;
use super::imported::streams::{
    ExitSource, Framing, Host, HostDuplex, HostProcess, InputEnd, NoStream, Wiring,
};
use super::imported::types;
use crate::state::{DuplexEntry, ProcessEntry, State};

/// The most bytes that a wiring may send to say that input ended.
const END_BYTES: usize = 64;

impl Host for State {
    async fn upgrade(
        &mut self,
        _request: Request,
        _protocol: String,
    ) -> wasmtime::Result<Result<Resource<DuplexEntry>, NoStream>> {
        Ok(Err(NoStream::Failed(refused())))
    }

    async fn websocket(
        &mut self,
        _request: Request,
        _protocols: Vec<String>,
    ) -> wasmtime::Result<Result<Resource<DuplexEntry>, NoStream>> {
        Ok(Err(NoStream::Failed(refused())))
    }
}

impl HostProcess for State {
    async fn from_duplex(
        &mut self,
        duplex: Resource<DuplexEntry>,
        wiring: Wiring,
    ) -> wasmtime::Result<Result<Resource<ProcessEntry>, types::Error>> {
        let DuplexEntry(bytes) = self.table.delete(duplex)?;
        Ok(match wired(bytes, wiring) {
            Ok(process) => Ok(self.table.push(ProcessEntry(process))?),
            Err(refused) => Err(error(refused)),
        })
    }

    async fn drop(&mut self, process: Resource<ProcessEntry>) -> wasmtime::Result<()> {
        self.table.delete(process)?;
        Ok(())
    }
}

impl HostDuplex for State {
    async fn drop(&mut self, duplex: Resource<DuplexEntry>) -> wasmtime::Result<()> {
        self.table.delete(duplex)?;
        Ok(())
    }
}

/// A process over a duplex of plain bytes, whose exit only `state-of` knows.
fn wired(bytes: Process, wiring: Wiring) -> Result<Process, c::Error> {
    let unsupported = |what| Err(c::Error::new(c::Code::Unsupported, what));
    if !matches!(wiring.framing, Framing::Merged) {
        return unsupported("a forwarded port carries plain bytes: its framing is `merged`");
    }
    if !matches!(wiring.exit, ExitSource::Ask) {
        return unsupported("a forwarded port does not tell an exit: its exit source is `ask`");
    }
    let end = match wiring.input_end {
        InputEnd::HalfClose => End::HalfClose,
        InputEnd::Bytes(bytes) if bytes.len() <= END_BYTES => End::Bytes(bytes.into()),
        InputEnd::Bytes(_) => return unsupported("the bytes that end the input are at most 64"),
        InputEnd::None => End::None,
    };
    Ok(Process {
        output: Box::new(WiredOutput(bytes.output)),
        input: Box::new(WiredInput {
            inner: bytes.input,
            end,
        }),
    })
}

struct WiredOutput(Box<dyn ProcessOutput>);

#[async_trait]
impl ProcessOutput for WiredOutput {
    async fn next(&mut self) -> Option<ProcessEvent> {
        Some(match self.0.next().await? {
            ProcessEvent::Ended(Ended::Lost(reason)) => ProcessEvent::Ended(Ended::Lost(reason)),
            ProcessEvent::Ended(_) => ProcessEvent::Ended(Ended::Ask),
            event => event,
        })
    }
}

enum End {
    HalfClose,
    Bytes(Bytes),
    None,
}

struct WiredInput {
    inner: Box<dyn ProcessInput>,
    end: End,
}

#[async_trait]
impl ProcessInput for WiredInput {
    async fn write(&mut self, data: Bytes) -> std::io::Result<()> {
        self.inner.write(data).await
    }

    async fn end(&mut self) -> std::io::Result<()> {
        match &self.end {
            End::HalfClose => self.inner.end().await,
            End::Bytes(bytes) => self.inner.write(bytes.clone()).await,
            End::None => Err(std::io::Error::new(
                std::io::ErrorKind::Unsupported,
                "the input of this command cannot be ended",
            )),
        }
    }

    async fn resize(&mut self, size: c::Size) -> std::io::Result<()> {
        self.inner.resize(size).await
    }
}

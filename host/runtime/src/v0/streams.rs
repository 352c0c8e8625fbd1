//! `interface streams`: duplexes and processes are the egress's; here their words are turned, nothing is decided.

use std::sync::Arc;

use leasehold_contract as c;
use wasmtime::component::Resource;

use super::arguments::error;
use super::imported::http::Request;
use super::imported::streams::{
    ExitSource, Framing, Host, HostDuplex, HostProcess, InputEnd, NoStream, Refusal, Wiring,
};
use super::imported::types;
use crate::state::{DuplexEntry, ProcessEntry, State};

impl Host for State {
    async fn upgrade(
        &mut self,
        request: Request,
        protocol: String,
    ) -> wasmtime::Result<Result<Resource<DuplexEntry>, NoStream>> {
        let request = match self.request(request) {
            Ok(request) => request,
            Err(e) => return Ok(Err(NoStream::Failed(error(e)))),
        };
        let egress = Arc::clone(&self.egress);
        let duplex = egress.upgrade(request, protocol).await;
        self.duplex(duplex)
    }

    async fn websocket(
        &mut self,
        request: Request,
        protocols: Vec<String>,
    ) -> wasmtime::Result<Result<Resource<DuplexEntry>, NoStream>> {
        let request = match self.request(request) {
            Ok(request) => request,
            Err(e) => return Ok(Err(NoStream::Failed(error(e)))),
        };
        let egress = Arc::clone(&self.egress);
        let duplex = egress.websocket(request, protocols).await;
        self.duplex(duplex)
    }
}

impl State {
    fn duplex(
        &mut self,
        duplex: Result<Box<dyn c::Duplex>, c::NoStream>,
    ) -> wasmtime::Result<Result<Resource<DuplexEntry>, NoStream>> {
        Ok(match duplex {
            Ok(duplex) => Ok(self.table.push(DuplexEntry(duplex))?),
            Err(c::NoStream::Refused { status, body }) => {
                Err(NoStream::Refused(Refusal { status, body }))
            }
            Err(c::NoStream::Failed(e)) => Err(NoStream::Failed(error(e))),
        })
    }
}

impl HostProcess for State {
    async fn from_duplex(
        &mut self,
        duplex: Resource<DuplexEntry>,
        wiring: Wiring,
    ) -> wasmtime::Result<Result<Resource<ProcessEntry>, types::Error>> {
        let DuplexEntry(duplex) = self.table.delete(duplex)?;
        Ok(match duplex.wire(self::wiring(wiring)) {
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

fn wiring(wiring: Wiring) -> c::Wiring {
    c::Wiring {
        framing: match wiring.framing {
            Framing::Merged => c::Framing::Merged,
            Framing::Docker => c::Framing::Docker,
            Framing::Channels => c::Framing::Channels,
            Framing::Marks(marks) => c::Framing::Marks {
                stdout: marks.stdout,
                stderr: marks.stderr,
            },
        },
        input_end: match wiring.input_end {
            InputEnd::HalfClose => c::InputEnd::HalfClose,
            InputEnd::Bytes(bytes) => c::InputEnd::Bytes(bytes),
            InputEnd::None => c::InputEnd::None,
        },
        exit: match wiring.exit {
            ExitSource::Ask => c::ExitSource::Ask,
            ExitSource::CloseReason(pointer) => c::ExitSource::CloseReason(pointer),
            ExitSource::StatusChannel => c::ExitSource::StatusChannel,
        },
    }
}

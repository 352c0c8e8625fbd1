//! Streams over HTTP: an upgraded connection or a WebSocket, handed to the host as a running command.
//!
//! The component opens it and says how it is wired; from then on the host moves the bytes.

use crate::bindings::base::leasehold::provider::streams as imports;
use crate::error::Result;
use crate::http::{Ask, refused};

pub use imports::{Duplex, ExitSource, Framing, InputEnd, Marks, Process, Size};

impl Ask {
    /// Sends it as an HTTP/1.1 Upgrade to `protocol`, as container engines attach with.
    ///
    /// # Errors
    /// What egress said; a status other than 101 as the error that it means.
    pub fn upgrade(self, protocol: &str) -> Result<Duplex> {
        let request = self.whole()?;
        imports::upgrade(&request, protocol).map_err(|no| match no {
            imports::NoStream::Refused(r) => refused(&request, r.status, &[], &r.body),
            imports::NoStream::Failed(error) => error,
        })
    }

    /// Opens a WebSocket in one of `protocols`, or in none where none are given. Method and body are not used.
    ///
    /// # Errors
    /// As [`Ask::upgrade`].
    pub fn websocket(self, protocols: &[&str]) -> Result<Duplex> {
        let request = self.whole()?;
        let protocols: Vec<String> = protocols.iter().map(|p| (*p).to_owned()).collect();
        imports::websocket(&request, &protocols).map_err(|no| match no {
            imports::NoStream::Refused(r) => refused(&request, r.status, &[], &r.body),
            imports::NoStream::Failed(error) => error,
        })
    }
}

impl Duplex {
    /// Makes a running command of it: how output is carried, how input is ended, and where the exit code is.
    ///
    /// # Errors
    /// `unsupported` where this stream cannot carry that.
    pub fn process(
        self,
        framing: Framing,
        input_end: InputEnd,
        exit: ExitSource,
    ) -> Result<Process> {
        let wiring = imports::Wiring {
            framing,
            input_end,
            exit,
        };
        Process::from_duplex(self, &wiring)
    }
}

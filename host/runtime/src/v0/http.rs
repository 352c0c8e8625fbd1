//! `interface http`: every request is refused, as a value. Its resource `bytes` serves SSH.

use leasehold_contract as c;
use wasmtime::component::Resource;

use super::arguments::error;
use super::imported::http::{Head, Host, HostBytes, HostLines, Piece, Request, Response};
use super::imported::types;
use crate::state::{BytesEntry, LinesEntry, State};

pub(super) fn refused() -> types::Error {
    error(c::Error::new(
        c::Code::PermissionDenied,
        "egress lets no HTTP request through: this host grants none",
    ))
}

impl Host for State {
    async fn send(
        &mut self,
        _request: Request,
    ) -> wasmtime::Result<Result<Response, types::Error>> {
        Ok(Err(refused()))
    }

    async fn open(
        &mut self,
        _request: Request,
    ) -> wasmtime::Result<Result<Resource<LinesEntry>, types::Error>> {
        Ok(Err(refused()))
    }

    async fn download(
        &mut self,
        _request: Request,
    ) -> wasmtime::Result<Result<(Head, Resource<BytesEntry>), types::Error>> {
        Ok(Err(refused()))
    }

    async fn upload(
        &mut self,
        _request: Request,
        _body: Vec<Piece>,
    ) -> wasmtime::Result<Result<Response, types::Error>> {
        Ok(Err(refused()))
    }
}

impl HostBytes for State {
    async fn drop(&mut self, bytes: Resource<BytesEntry>) -> wasmtime::Result<()> {
        self.table.delete(bytes)?;
        Ok(())
    }
}

impl HostLines for State {
    async fn head(&mut self, lines: Resource<LinesEntry>) -> wasmtime::Result<Head> {
        match *self.table.get(&lines)? {}
    }

    async fn next(
        &mut self,
        lines: Resource<LinesEntry>,
    ) -> wasmtime::Result<Result<Option<String>, types::Error>> {
        match *self.table.get(&lines)? {}
    }

    async fn drop(&mut self, lines: Resource<LinesEntry>) -> wasmtime::Result<()> {
        self.table.delete(lines)?;
        Ok(())
    }
}

//! What a store holds during one call: the host resources, the call's two doors, and its bounds.
//!
//! Dropped with the store after every call, with everything in it except what was taken out as the
//! answer (a process, an archive).

use std::sync::Arc;
use std::time::{Duration, Instant};

use leasehold_contract::{
    ByteStream, CallHost, Code, Duplex, Egress, Error, HttpLines, Process, SshSession,
};
use wasmtime_wasi::{ResourceTable, WasiCtx, WasiCtxView, WasiView};

use crate::call::Function;
use crate::limiter::Limiter;
use crate::setup::Redactor;
use crate::stderr::Tail;

pub(crate) struct State {
    pub(crate) table: ResourceTable,
    pub(crate) wasi: WasiCtx,
    pub(crate) limiter: Limiter,
    pub(crate) stderr: Tail,
    pub(crate) host: Arc<dyn CallHost>,
    pub(crate) egress: Arc<dyn Egress>,
    pub(crate) redactor: Redactor,
    pub(crate) function: Function,
    /// When the call's time is over.
    pub(crate) until: Instant,
    /// Requests through egress that are left.
    pub(crate) exchanges: u32,
    /// The largest body of a request or an answer that is held whole, in bytes.
    pub(crate) body: usize,
    /// What is left to be said to the log and as progress.
    pub(crate) lines: Lines,
}

/// How much a call may still say.
#[derive(Debug)]
pub(crate) struct Lines {
    left: u32,
    dropped: bool,
}

/// Lines that one call may say, log and progress together.
const LINES: u32 = 1000;

/// What became of a line.
pub(crate) enum Said {
    Pass,
    /// The first that is dropped: worth one word to whoever reads the log.
    FirstDropped,
    Dropped,
}

impl Default for Lines {
    fn default() -> Lines {
        Lines {
            left: LINES,
            dropped: false,
        }
    }
}

impl Lines {
    pub(crate) fn next(&mut self) -> Said {
        if let Some(left) = self.left.checked_sub(1) {
            self.left = left;
            Said::Pass
        } else if std::mem::replace(&mut self.dropped, true) {
            Said::Dropped
        } else {
            Said::FirstDropped
        }
    }
}

impl State {
    /// What is left of the call's time.
    pub(crate) fn remaining(&self) -> Duration {
        self.until.saturating_duration_since(Instant::now())
    }

    /// The rest of the call's time bounds every wait.
    pub(crate) fn within(&self, timeout: Option<u32>) -> Option<Duration> {
        let left = self.remaining();
        Some(timeout.map_or(left, |t| Duration::from_millis(u64::from(t)).min(left)))
    }

    /// Counts one request through egress.
    pub(crate) fn exchange(&mut self) -> Result<(), Error> {
        match self.exchanges.checked_sub(1) {
            Some(left) => {
                self.exchanges = left;
                Ok(())
            }
            None => Err(Error::new(
                Code::QuotaExceeded,
                "this call has made as many requests as its plugin may make (limits.exchanges)",
            )),
        }
    }
}

impl WasiView for State {
    fn ctx(&mut self) -> WasiCtxView<'_> {
        WasiCtxView {
            ctx: &mut self.wasi,
            table: &mut self.table,
        }
    }
}

/// Behind `streams.process`.
pub struct ProcessEntry(pub(crate) Process);
/// Behind `streams.duplex`: bytes both ways.
pub struct DuplexEntry(pub(crate) Box<dyn Duplex>);
/// Behind `http.bytes`.
pub struct BytesEntry(pub(crate) ByteStream);
/// Behind `ssh.session`.
pub struct SessionEntry(pub(crate) Arc<dyn SshSession>);
/// Behind `http.lines`.
pub struct LinesEntry(pub(crate) Box<dyn HttpLines>);

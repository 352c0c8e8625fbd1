//! The clocks of WASI as a component has them: they resolve, and stand still.
//!
//! A provider has no clock of its own: what is left of its time `host.remaining` says. A clock that ran would also be a
//! way to measure what other calls do.

use std::time::Duration;

use wasmtime_wasi::{HostMonotonicClock, HostWallClock, WasiCtxBuilder};

struct Still;

impl HostWallClock for Still {
    fn resolution(&self) -> Duration {
        Duration::from_secs(1)
    }

    fn now(&self) -> Duration {
        Duration::ZERO
    }
}

impl HostMonotonicClock for Still {
    fn resolution(&self) -> u64 {
        1
    }

    fn now(&self) -> u64 {
        0
    }
}

/// Gives `wasi` clocks that stand at zero.
pub(crate) fn stop(wasi: &mut WasiCtxBuilder) {
    wasi.wall_clock(Still).monotonic_clock(Still);
}

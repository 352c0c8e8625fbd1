//! Sockets, connections, signals and counters: everything between the kernel and the router.
//!
//! Knows no route and no business. Invariant: nothing is listened on before the data directory is locked,
//! and a signal ends the server in order at any moment.

pub mod linger;
pub mod listen;
pub mod metrics;
pub mod serve;
pub mod signals;

//! The Leasehold server: it composes authority, runtime and egress, and speaks HTTP and a command line.
//!
//! `access` says who is asking, `api` speaks HTTP, `service` orchestrates, `cli` is the command `leasehold`,
//! `settings` merges flags, environment and file, `http` is sockets and signals, `figures` has what is counted, `telemetry`
//! tells a collector. Invariant: `api` holds no decision about leases and `service` none about who may ask.

pub mod access;
pub mod api;
pub mod app;
pub mod cli;
pub mod figures;
pub mod http;
pub mod server;
pub mod service;
pub mod settings;
pub mod telemetry;

//! The server and its command as a user meets them: real processes, real sockets, real signals.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test ends by these"
)]

mod access;
mod activity;
mod api;
mod archives;
mod client;
mod closed;
mod command;
mod conditions;
mod edits;
mod ends;
mod flags;
mod leased;
mod lifecycle;
mod live;
mod meanwhile;
mod once;
mod pages;
mod policy;
mod recorded;
mod rows;
mod secrets;
mod selection;
mod server;
mod standing;
mod stream;
mod switched;
mod telemetry;

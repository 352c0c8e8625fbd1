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
mod command;
mod edits;
mod ends;
mod leased;
mod lifecycle;
mod live;
mod once;
mod pages;
mod policy;
mod rows;
mod secrets;
mod selection;
mod server;
mod standing;
mod stream;
mod switched;
mod telemetry;

//! SSH egress against OpenSSH's own server.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test that cannot go on has failed"
)]

mod commands;
mod files;
mod lab;
mod login;
mod processes;
mod records;
mod shells;
mod streams;
mod trust;
mod workspaces;

//! Real components in the real engine: every way to misbehave ends in its typed outcome, and the
//! runtime serves on.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test ends where it is surprised"
)]

mod cache;
mod clocks;
mod fairness;
mod guests;
mod install;
mod outcomes;
mod requests;
mod support;

//! Plugins from a registry: from Docker's own, and from one that does what no real one does.

#![allow(
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking, also in what it calls"
)]

mod house;
mod real;
mod signed;
mod wrong;

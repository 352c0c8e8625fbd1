//! Plugins from a registry: from Docker's own, and from one that does what no real one does; also where the environment names
//! a proxy.

#![allow(
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking, also in what it calls"
)]

mod house;
mod proxies;
mod real;
mod signed;
mod wrong;

//! HTTP egress, and its client of registries, against real servers on loopback: hyper and rustls behave, raw sockets
//! misbehave.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test that cannot go on has failed"
)]

mod bodies;
mod deadlines;
mod destinations;
mod engine_dock;
mod engine_likeness;
mod engine_policy;
mod engine_sockets;
mod heads;
mod pools;
mod registry_faults;
mod registry_lab;
mod registry_places;
mod rules_echo;
mod rules_lab;
mod rules_order;
mod server;
mod streams;
mod tls;
mod websockets;

//! What the black-box tests stand on: a server process, a machine behind sshd, the wire between them, and looks at what
//! is there. None of it knows a crate of the host: it sees what a user, an operator and a target see.

#![allow(
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking, also in what it calls"
)]

pub mod canary;
pub mod document;
pub mod front;
pub mod heard;
pub mod http;
pub mod machine;
pub mod memory;
pub mod rows;
pub mod server;
pub mod shape;
pub mod signing;
pub mod trace;
pub mod wait;
pub mod wire;

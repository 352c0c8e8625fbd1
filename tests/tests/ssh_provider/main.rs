//! The SSH provider as it is shipped, in the real runtime, through the real egress, on a real sshd.
//!
//! No server and no database: what is shown here is what the component does with what it is given.

#![allow(
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking, also in what it calls"
)]

mod commands;
mod files;
mod lease;
mod machine;
mod probe;

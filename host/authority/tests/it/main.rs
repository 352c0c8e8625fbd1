//! The authority on a real SQLite file: every area, what an edited row does, and what a crash leaves.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that cannot go on fails"
)]

mod activity;
mod assignments;
mod companies;
mod crash;
mod environments;
mod executions;
mod idempotency;
mod leases;
mod made;
mod moved;
mod opening;
mod place;
mod plugins;
mod rekey;
mod rows;
mod secret_uses;
mod secrets;
mod storage;
mod tokens;
mod told;
mod work;

//! Runs components: the engine, what they may import, what they may use, and what became of a call.
//!
//! A component meets the world only through two objects of the call, [`leasehold_contract::CallHost`]
//! and [`leasehold_contract::Egress`]. This crate opens no connection, reads no secret, and knows no
//! database and no lease row. Every call gets a fresh store and a fresh instance, which are dropped
//! after it whatever happened; what a call may use (time, CPU, memory, copies, host resources) is
//! bounded from outside, and running into a bound is a [`Failure`] of that call alone.

mod audit;
mod bounds;
mod cache;
mod call;
mod clocks;
mod engine;
mod failure;
mod install;
mod limiter;
mod manifest;
mod meter;
mod plugin;
mod schema;
mod settings;
mod setup;
mod spelling;
mod state;
mod stats;
mod stderr;
mod text;
mod ticker;
mod unserved;
mod v0;

pub use audit::Capabilities;
pub use cache::Cache;
pub use engine::Runtime;
pub use failure::{Failure, Incompatible, Limit, Phase, TrapCode};
pub use install::{InstallError, Prepared, SourceError};
pub use plugin::Plugin;
pub use schema::validator;
pub use settings::{Allocation, Ceilings, Pool, Settings};
pub use setup::{CallSetup, Outcome, Redactor, Refusing, Watch};
pub use stats::{Stats, Tally};
pub use text::clean;

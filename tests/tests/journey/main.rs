//! The main job from an empty server to an empty machine: by the command line, and as the documents say.

#![allow(
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking, also in what it calls"
)]

mod documented;
mod languages;
mod page;
mod pages;
mod reader;
mod walk;

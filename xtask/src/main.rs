//! `cargo xtask …`: everything that is done to this repository beyond what cargo does by itself.
//!
//! Each subject is a room of its own; this file only parses. Nothing here is part of the product, and nothing
//! here is needed to use it: what a task runs can be run by hand, and each task prints what it runs.

mod bench;
mod checkout;
mod components;
mod declarations;
mod demo;
mod scripted;
mod setup;
mod shell;
mod test;
mod tools;

use clap::{Parser, Subcommand};

/// Set up, build, show, test and time Leasehold.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// See that the packages and the target that the tasks need are there; install them where that is possible
    Setup,
    /// Build the providers and samples as WebAssembly components into `<target>/components`
    Components(components::Arguments),
    /// Write what the SDKs of JavaScript and Python tell editors and type checkers about the contract
    Declarations(declarations::Arguments),
    /// Walk the main job in front of the reader: a throw-away machine, a server, a lease, and its release
    Demo(demo::Arguments),
    /// Time what the design says must be reached, side by side with what it is compared to
    Bench(bench::Arguments),
    /// Test everything: setup, components, then every test of the workspace
    Test(test::Arguments),
}

fn main() -> anyhow::Result<()> {
    let checkout = checkout::Checkout::find()?;
    match Arguments::parse().task {
        Task::Setup => setup::run(&checkout, setup::Purpose::Test),
        Task::Components(arguments) => components::run(&checkout, &arguments),
        Task::Declarations(arguments) => declarations::run(&checkout, &arguments),
        Task::Demo(arguments) => demo::run(&checkout, &arguments),
        Task::Bench(arguments) => bench::run(checkout, &arguments),
        Task::Test(arguments) => test::run(&checkout, &arguments),
    }
}

//! `cargo xtask test`: everything, in the order in which it depends on each other.
//!
//! It sets up, builds the components that tests run, and runs the tests of every crate of the workspace. What
//! cargo says at the end of each is what counts; nothing is summed up or left out.

use anyhow::Result;

use crate::checkout::Checkout;
use crate::components;
use crate::setup::{self, Purpose};
use crate::shell;

/// What is to be tested.
#[derive(clap::Args)]
pub struct Arguments {
    /// Arguments for `cargo test` in place of `--workspace --no-fail-fast`, such as `-p leasehold-tests`
    #[arg(last = true, value_name = "ARGUMENT")]
    cargo: Vec<String>,
}

/// Tests it.
pub fn run(checkout: &Checkout, arguments: &Arguments) -> Result<()> {
    setup::run(checkout, Purpose::Test)?;
    components::run(checkout, &components::Arguments::all())?;
    let mut command = shell::cargo(["test", "--locked"]);
    if arguments.cargo.is_empty() {
        // These samples are components and nothing else: their tests are the runtime's and the server's.
        command.args([
            "--workspace",
            "--exclude",
            "leasehold-sample-hostile",
            "--exclude",
            "leasehold-sample-shape",
            "--no-fail-fast",
        ]);
    } else {
        command.args(&arguments.cargo);
    }
    command
        .current_dir(&checkout.root)
        .env("LEASEHOLD_COMPONENTS", checkout.components());
    shell::run(&mut command)
}

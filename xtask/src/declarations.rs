//! `cargo xtask declarations`: what editors and type checkers are told about the contract, made of `wit/`.
//!
//! For JavaScript one `.d.ts` an interface, by a program of ours: no other knows how QuickJS's tool maps values. For Python
//! the stubs that `componentize-py` writes. Neither is a part of any component. With `--check` nothing is written: what
//! is there must be what would be.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::checkout::Checkout;
use crate::tools::Tools;
use crate::{components, shell};

/// Where each is.
const JAVASCRIPT: &str = "sdk/javascript/contract";
const PYTHON: &str = "sdk/python/stubs";

/// What of the stubs is about the contract; the rest is about the component model's async, which the host refuses.
const STUBS: [&str; 2] = ["wit_world", "componentize_py_types.py"];

/// What is to be done.
#[derive(clap::Args)]
pub struct Arguments {
    /// Write nothing; fail where what is there is not what would be written
    #[arg(long)]
    check: bool,
}

/// Files by their path below a folder.
type Files = BTreeMap<String, Vec<u8>>;

/// Writes them, or looks.
pub fn run(checkout: &Checkout, arguments: &Arguments) -> Result<()> {
    let scratch = tempfile::tempdir().context("no temporary folder")?;
    let mut behind = Vec::new();
    for (place, made) in [
        (
            JAVASCRIPT,
            javascript(checkout, &scratch.path().join("javascript"))?,
        ),
        (PYTHON, python(checkout, &scratch.path().join("python"))?),
    ] {
        let folder = checkout.root.join(place);
        let mut there = Files::new();
        if folder.is_dir() {
            read(&folder, "", &mut there)?;
        }
        if there == made {
            continue;
        }
        if arguments.check {
            let names = there.keys().chain(made.keys());
            behind.extend(
                names
                    .filter(|name| there.get(*name) != made.get(*name))
                    .map(|name| format!("{place}/{name}")),
            );
            continue;
        }
        if folder.is_dir() {
            fs::remove_dir_all(&folder).with_context(|| format!("{place} cannot be removed"))?;
        }
        for (name, bytes) in &made {
            let file = folder.join(name);
            fs::create_dir_all(file.parent().unwrap_or(&folder))
                .and_then(|()| fs::write(&file, bytes))
                .with_context(|| format!("{} cannot be written", file.display()))?;
            println!("{}", file.display());
        }
    }
    behind.sort();
    behind.dedup();
    if !behind.is_empty() {
        bail!(
            "behind `wit/`: {}; run `cargo xtask declarations`",
            behind.join(", ")
        );
    }
    Ok(())
}

fn javascript(checkout: &Checkout, out: &Path) -> Result<Files> {
    let mut command = Command::new(components::program(checkout, "xtask_declare")?);
    shell::run(command.arg(checkout.root.join("wit")).arg(out))?;
    let mut files = Files::new();
    read(out, "", &mut files)?;
    Ok(files)
}

fn python(checkout: &Checkout, out: &Path) -> Result<Files> {
    let tools = Tools::install(checkout)?;
    let mut command = tools.componentize_py(&out.join("no-modules"))?;
    command
        .args(["--quiet", "--world", "provider-all", "--wit-path"])
        .arg(checkout.root.join("wit"));
    let stubs = out.join("stubs");
    shell::run(command.arg("bindings").arg(&stubs))?;
    let mut files = Files::new();
    read(&stubs, "", &mut files)?;
    files.retain(|name, _| {
        STUBS
            .iter()
            .any(|stub| name.split('/').next() == Some(stub))
    });
    Ok(files)
}

fn read(folder: &Path, below: &str, files: &mut Files) -> Result<()> {
    for entry in
        fs::read_dir(folder).with_context(|| format!("{} does not read", folder.display()))?
    {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let name = format!("{below}{name}");
        if path.is_dir() {
            read(&path, &format!("{name}/"), files)?;
        } else {
            files.insert(name, fs::read(&path)?);
        }
    }
    Ok(())
}

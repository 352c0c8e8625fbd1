//! `cargo xtask components`: builds `providers/*` and the samples for `wasm32-wasip2`.
//!
//! A sample that Rust cannot express is a core module in text, `examples/*.wat`, which `xtask-encode` makes a component.
//! The same source gives the same bytes, wherever the checkout lies: each package is built by a command of its
//! own (so that none chooses features for another), in the profile `component`, with the lock file as it is,
//! and with every path of this machine mapped to a fixed one. What the caller's environment says about
//! compiler flags and profiles does not count. Cargo decides what is up to date. Samples in other languages are
//! [`scripted`]'s, and whoever wants none of these needs none of their tools.

use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde::Deserialize;

use crate::checkout::Checkout;
use crate::tools::Tools;
use crate::{scripted, shell};

/// The target of every guest.
pub const TARGET: &str = "wasm32-wasip2";

/// What is to be built.
#[derive(clap::Args)]
pub struct Arguments {
    /// Build only these packages, by the name of their folder (`ssh`, `null`, `hostile`)
    #[arg(value_name = "NAME")]
    only: Vec<String>,
}

impl Arguments {
    /// Everything.
    pub fn all() -> Arguments {
        Arguments::only(&[])
    }

    /// These packages, or everything where none is named.
    pub fn only(names: &[&str]) -> Arguments {
        Arguments {
            only: names.iter().map(|name| (*name).to_owned()).collect(),
        }
    }
}

/// A package of components, from `cargo metadata`.
#[derive(Deserialize)]
struct Package {
    name: String,
    manifest_path: PathBuf,
    targets: Vec<Target>,
}

#[derive(Deserialize)]
struct Target {
    name: String,
    kind: Vec<String>,
    crate_types: Vec<String>,
}

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
}

/// Builds them and puts each at `<target>/components/<name>.wasm`.
pub fn run(checkout: &Checkout, arguments: &Arguments) -> Result<()> {
    let packages = guests(checkout)?;
    let scripts = scripted::find(checkout)?;
    for name in &arguments.only {
        if !packages.contains_key(name) && !scripts.contains_key(name) {
            let known: Vec<_> = packages
                .keys()
                .chain(scripts.keys())
                .map(String::as_str)
                .collect();
            bail!(
                "no guest is called {name:?}: there are {}",
                known.join(", ")
            );
        }
    }
    let components = checkout.components();
    fs::create_dir_all(&components)
        .with_context(|| format!("{} cannot be made", components.display()))?;
    let wanted = |name: &String| arguments.only.is_empty() || arguments.only.contains(name);
    let put = |artifacts: Vec<(PathBuf, String)>| -> Result<()> {
        for (built, file) in artifacts {
            let to = components.join(file);
            replace(&built, &to)?;
            println!("{}", to.display());
        }
        Ok(())
    };
    for (name, package) in packages.iter().filter(|(name, _)| wanted(name)) {
        build(checkout, package)?;
        let mut artifacts = artifacts(checkout, name, package);
        artifacts.extend(encode(checkout, name, package)?);
        put(artifacts)?;
    }
    let scripts: Vec<_> = scripts.iter().filter(|(name, _)| wanted(name)).collect();
    if !scripts.is_empty() {
        let tools = Tools::install(checkout)?;
        for (name, script) in scripts {
            put(scripted::build(checkout, &tools, name, script)?)?;
        }
    }
    Ok(())
}

/// The packages below `providers` and `sample-plugins`, by the name of their folder.
fn guests(checkout: &Checkout) -> Result<BTreeMap<String, Package>> {
    let mut command = shell::cargo(["metadata", "--format-version", "1", "--no-deps", "--locked"]);
    let output = command
        .current_dir(&checkout.root)
        .stderr(std::process::Stdio::inherit())
        .output()
        .context("cargo does not run")?;
    if !output.status.success() {
        bail!("`{}` failed: {}", shell::spelled(&command), output.status);
    }
    let metadata: Metadata =
        serde_json::from_slice(&output.stdout).context("cargo metadata does not read")?;
    let folder = |package: &Package| -> Option<String> {
        let folder = package.manifest_path.parent()?;
        let room = folder.parent()?.file_name()?;
        let guest = room == "providers" || room == "sample-plugins";
        guest.then(|| Some(folder.file_name()?.to_str()?.to_owned()))?
    };
    Ok(metadata
        .packages
        .into_iter()
        .filter_map(|package| Some((folder(&package)?, package)))
        .collect())
}

/// Builds one package.
fn build(checkout: &Checkout, package: &Package) -> Result<()> {
    let mut command = shell::cargo(["build", "--locked", "--package", &package.name]);
    command.args(["--target", TARGET, "--profile", "component"]);
    if package.targets.iter().any(is_example) {
        command.arg("--examples");
        // Named, they are all that is built.
        if package
            .targets
            .iter()
            .any(|target| is_component(target) && !is_example(target))
        {
            command.arg("--lib");
        }
    }
    command.arg("--target-dir").arg(guest_target(checkout));
    for (name, _) in env::vars_os() {
        let name_text = name.to_string_lossy();
        let decides = ["CARGO_PROFILE_", "CARGO_BUILD_", "CARGO_TARGET_"]
            .iter()
            .any(|prefix| name_text.starts_with(prefix));
        if decides || ["RUSTFLAGS", "CARGO_INCREMENTAL"].contains(&name_text.as_ref()) {
            command.env_remove(&name);
        }
    }
    command.current_dir(&checkout.root).env(
        "CARGO_ENCODED_RUSTFLAGS",
        checkout.remapped_paths()?.join("\u{1f}"),
    );
    shell::run(&mut command)
}

fn guest_target(checkout: &Checkout) -> PathBuf {
    checkout.target.join("guests")
}

fn is_example(target: &Target) -> bool {
    target.kind.iter().any(|kind| kind == "example") && is_component(target)
}

fn is_component(target: &Target) -> bool {
    target.crate_types.iter().any(|kind| kind == "cdylib")
}

/// What a package's build made, with the names that the components go by: a library is called like its folder,
/// an example like its folder and itself.
fn artifacts(checkout: &Checkout, name: &str, package: &Package) -> Vec<(PathBuf, String)> {
    let built = guest_target(checkout).join(TARGET).join("component");
    package
        .targets
        .iter()
        .filter(|target| is_component(target))
        .map(|target| {
            let file = format!("{}.wasm", target.name.replace('-', "_"));
            match is_example(target) {
                true => (
                    built.join("examples").join(file),
                    format!("{name}-{}.wasm", target.name),
                ),
                false => (built.join(file), format!("{name}.wasm")),
            }
        })
        .collect()
}

/// Makes components of the core modules in text that stand beside a package's examples, and are called as they are.
fn encode(checkout: &Checkout, name: &str, package: &Package) -> Result<Vec<(PathBuf, String)>> {
    let mut made = Vec::new();
    let examples = package.manifest_path.with_file_name("examples");
    // A package without examples has none of these either.
    for entry in fs::read_dir(&examples).into_iter().flatten() {
        let module = entry
            .with_context(|| format!("{} does not read", examples.display()))?
            .path();
        if module.extension().is_none_or(|ending| ending != "wat") {
            continue;
        }
        let stem = module.file_stem().unwrap_or_default().to_string_lossy();
        let file = format!("{name}-{stem}.wasm");
        let built = guest_target(checkout).join(&file);
        let mut command = Command::new(program(checkout, "xtask_encode")?);
        command
            .arg(&module)
            .arg(checkout.root.join("wit"))
            .arg("provider")
            .arg(&built);
        shell::run(&mut command)?;
        made.push((built, file));
    }
    Ok(made)
}

/// Builds a program of `xtask`'s that stands on much, with the features that the whole workspace has of that: the tests'
/// build is then the same.
pub fn program(checkout: &Checkout, name: &str) -> Result<PathBuf> {
    let mut command = shell::cargo(["build", "--quiet", "--locked", "--workspace"]);
    command
        .args(["--bin", name, "--target-dir"])
        .arg(&checkout.target)
        // Where it then is does not depend on the caller.
        .env_remove("CARGO_BUILD_TARGET")
        .current_dir(&checkout.root);
    shell::run(&mut command)?;
    Ok(checkout.target.join("debug").join(name))
}

/// Copies a file so that nobody ever sees half of it; leaves it alone where it is the same already.
fn replace(from: &Path, to: &Path) -> Result<()> {
    let bytes = fs::read(from).with_context(|| format!("{} was not built", from.display()))?;
    if fs::read(to).is_ok_and(|there| there == bytes) {
        return Ok(());
    }
    let temporary = to.with_extension(format!("{}.tmp", std::process::id()));
    fs::write(&temporary, bytes)
        .and_then(|()| fs::rename(&temporary, to))
        .with_context(|| format!("{} cannot be written", to.display()))
}

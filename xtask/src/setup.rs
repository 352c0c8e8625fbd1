//! `cargo xtask setup`: sees that what the tasks need is on this machine.
//!
//! What is missing is installed where this runs as root on Debian; otherwise the one command that does it is
//! printed, and nothing is changed. Where all is there it only looks. No service is started by it, ever.

use std::env;
use std::fs;
use std::io::Write;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::checkout::Checkout;
use crate::components::TARGET;
use crate::shell;

/// Something that must be there: a program's name, a file's path or a module of the system's Python, and the Debian
/// package that has it.
struct Need {
    what: &'static str,
    package: &'static str,
}

const fn need(what: &'static str, package: &'static str) -> Need {
    Need { what, package }
}

/// To build: dependencies have C and assembly in them.
const BUILD: &[Need] = &[need("cc", "gcc"), need("/usr/include/stdio.h", "libc6-dev")];

/// To have a target: the throw-away sshd.
const TARGETS: &[Need] = &[
    need("sshd", "openssh-server"),
    need("ssh", "openssh-client"),
];

/// To test on: login shells, small systems, each awk, a container engine, a registry; and what the documents tell people
/// to type.
const TESTS: &[Need] = &[
    need("bash", "bash"),
    need("busybox", "busybox"),
    need("crun", "crun"),
    need("curl", "curl"),
    need("dash", "dash"),
    need("docker-registry", "docker-registry"),
    need("fish", "fish"),
    need("gawk", "gawk"),
    need("jq", "jq"),
    need("mawk", "mawk"),
    need("original-awk", "original-awk"),
    need("podman", "podman"),
    need("ps", "procps"),
    need("python3", "python3"),
    // What makes an environment with pip in it: samples in other languages are built by tools from there.
    need(PIP, "python3-venv"),
    need("script", "bsdutils"),
    need("setpriv", "util-linux"),
    need("strace", "strace"),
    need("tcsh", "tcsh"),
    need("unshare", "util-linux"),
    need("zsh", "zsh"),
];

/// The module that puts pip into a new environment.
const PIP: &str = "module ensurepip";

/// What is going to be done.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// Build and show.
    Demo,
    /// Everything.
    Test,
}

/// Sees to it.
pub fn run(checkout: &Checkout, purpose: Purpose) -> Result<()> {
    let mut missing: Vec<&Need> = Vec::new();
    let tests: &[Need] = match purpose {
        Purpose::Demo => &[],
        Purpose::Test => TESTS,
    };
    for need in BUILD.iter().chain(TARGETS).chain(tests) {
        if !there(need.what) {
            missing.push(need);
        }
    }
    if !missing.is_empty() {
        let mut packages: Vec<&str> = missing.iter().map(|need| need.package).collect();
        packages.sort_unstable();
        packages.dedup();
        install(&packages)?;
        if let Some(need) = missing.iter().find(|need| !there(need.what)) {
            bail!(
                "{} is still not there after {} was installed",
                need.what,
                need.package
            );
        }
    }
    target(checkout)
}

/// Whether a program is in PATH or where system programs are, a file exists, or Python has a module.
fn there(what: &str) -> bool {
    if let Some(module) = what.strip_prefix("module ") {
        let import = format!("import {module}");
        let mut python = shell::command("python3", ["-c", &import]);
        return python.output().is_ok_and(|ran| ran.status.success());
    }
    if what.starts_with('/') {
        return Path::new(what).exists();
    }
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path)
        .chain(["/usr/sbin", "/sbin", "/usr/local/sbin"].map(PathBuf::from))
        .any(|dir| {
            fs::metadata(dir.join(what))
                .is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
        })
}

/// Installs Debian packages, or tells the command that does.
fn install(packages: &[&str]) -> Result<()> {
    if !there("apt-get") {
        bail!(
            "install first what these Debian packages are on this system: {}",
            packages.join(" ")
        );
    }
    if !is_root()? {
        bail!("run first: sudo apt-get install -y {}", packages.join(" "));
    }
    let held = Held::services()?;
    let install = || {
        let mut command = shell::command("apt-get", ["install", "-y", "--no-install-recommends"]);
        command
            .args(packages)
            .env("DEBIAN_FRONTEND", "noninteractive");
        command
    };
    // A system whose lists are old or were never fetched does not find a package at first.
    if !shell::status(&mut install())?.success() {
        shell::run(&mut shell::command("apt-get", ["update"]))?;
        shell::run(&mut install())?;
    }
    drop(held);
    Ok(())
}

fn is_root() -> Result<bool> {
    let id = shell::command("id", ["-u"])
        .output()
        .context("id does not run")?;
    Ok(id.stdout.trim_ascii() == b"0")
}

/// While this lives, packages that are installed do not start their services: openssh-server would open port 22.
struct Held(Option<&'static Path>);

const POLICY: &str = "/usr/sbin/policy-rc.d";
const POLICY_TEXT: &str =
    "#!/bin/sh\n# Made by `cargo xtask setup` while it installs; may be removed.\nexit 101\n";

impl Held {
    fn services() -> Result<Held> {
        let path = Path::new(POLICY);
        // One that an interrupted run left is ours to take over; anyone else's policy stands.
        match fs::read_to_string(path) {
            Ok(text) if text == POLICY_TEXT => return Ok(Held(Some(path))),
            Ok(_) => return Ok(Held(None)),
            Err(_) => {}
        }
        let mut file = fs::OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o755)
            .open(path)
            .with_context(|| format!("{POLICY} cannot be made"))?;
        let held = Held(Some(path));
        file.write_all(POLICY_TEXT.as_bytes())
            .with_context(|| format!("{POLICY} cannot be written"))?;
        Ok(held)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if let Some(path) = self.0 {
            // What stays behind says itself that it may be removed.
            let _ = fs::remove_file(path);
        }
    }
}

/// Sees that the compiler has the guests' target.
fn target(checkout: &Checkout) -> Result<()> {
    let libdir = shell::command("rustc", ["--print", "target-libdir", "--target", TARGET])
        .current_dir(&checkout.root)
        .output()
        .context("rustc does not run")?;
    let libdir = String::from_utf8_lossy(&libdir.stdout).trim().to_owned();
    if !libdir.is_empty() && Path::new(&libdir).exists() {
        return Ok(());
    }
    if !there("rustup") {
        bail!("this Rust has no target {TARGET}; install Rust by rustup, or that target by hand");
    }
    let mut command = shell::command("rustup", ["target", "add", TARGET]);
    shell::run(command.current_dir(&checkout.root))
}

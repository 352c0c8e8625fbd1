//! Where this repository lies, and where cargo puts what it builds.
//!
//! Nothing is written outside the target directory.

use std::env;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// A checkout of the repository.
pub struct Checkout {
    /// Its root, without symbolic links.
    pub root: PathBuf,
    /// `CARGO_TARGET_DIR`, or `target` below the root.
    pub target: PathBuf,
}

impl Checkout {
    /// The checkout that this task was started in: cargo tells it at run time; a binary that was started by itself
    /// takes the one that it was built in.
    pub fn find() -> Result<Checkout> {
        let manifest = env::var_os("CARGO_MANIFEST_DIR")
            .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
        let root = manifest
            .parent()
            .context("the manifest directory of xtask has no parent")?
            .canonicalize()
            .with_context(|| format!("{} is not there", manifest.display()))?;
        let target = match env::var_os("CARGO_TARGET_DIR") {
            Some(target) if !target.is_empty() => env::current_dir()?.join(PathBuf::from(target)),
            _ => root.join("target"),
        };
        Ok(Checkout { root, target })
    }

    /// Where the components are, one file each.
    pub fn components(&self) -> PathBuf {
        self.target.join("components")
    }

    /// The rust compiler's `--remap-path-prefix` arguments under which no path of this machine gets into what is
    /// built: the checkout, the target directory, cargo's home and the compiler's own.
    pub fn remapped_paths(&self) -> Result<Vec<String>> {
        let cargo_home = match env::var_os("CARGO_HOME") {
            Some(home) if !home.is_empty() => PathBuf::from(home),
            _ => env::home_dir()
                .context("neither CARGO_HOME nor a home directory is known")?
                .join(".cargo"),
        };
        let sysroot = crate::shell::command("rustc", ["--print", "sysroot"])
            .current_dir(&self.root)
            .output()
            .context("rustc does not run")?;
        let sysroot = String::from_utf8(sysroot.stdout).context("rustc's sysroot is not UTF-8")?;
        // The compiler takes the last that matches: the more particular ones come after.
        let mut remapped = Vec::new();
        for (from, to) in [
            (cargo_home.as_path(), "/cargo"),
            (Path::new(sysroot.trim()), "/rust"),
            (self.root.as_path(), "/leasehold"),
            (self.target.as_path(), "/target"),
        ] {
            let canonical = from.canonicalize().unwrap_or_else(|_| from.to_owned());
            remapped.push(remap(from, to));
            if canonical != from {
                remapped.push(remap(&canonical, to));
            }
        }
        Ok(remapped)
    }
}

fn remap(from: &Path, to: &str) -> String {
    format!("--remap-path-prefix={}={to}", from.display())
}

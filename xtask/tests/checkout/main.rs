//! What tasks make of a checkout: the same wherever it lies, and again only where something has changed.

#![allow(
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking, also in what it calls"
)]

use std::fs;
use std::path::{Path, PathBuf};

mod declarations;
mod moved;
mod scripted;

/// The root of this checkout: cargo tells it at run time. What was built may come from another one that shares its target
/// directory.
fn root() -> PathBuf {
    let manifest = PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR").expect("cargo runs this"));
    let root = manifest.parent().expect("a parent");
    root.canonicalize().expect("is there")
}

/// Where cargo puts what it builds.
fn target() -> PathBuf {
    let root = root();
    std::env::var_os("CARGO_TARGET_DIR")
        .map_or_else(|| root.join("target"), |target| root.join(target))
}

/// Whether the tools of other languages are there; says so where they are not, and fails where all is required.
fn tools_are_there() -> bool {
    let folders = fs::read_dir(target().join("tools"))
        .into_iter()
        .flatten()
        .flatten();
    let there = folders
        .into_iter()
        .any(|folder| folder.path().join("installed").is_file());
    if !there {
        println!("skipped: needs `cargo xtask components`");
        let all = std::env::var_os("LEASEHOLD_REQUIRE_ALL").is_some_and(|all| all == "1");
        assert!(!all, "LEASEHOLD_REQUIRE_ALL=1 and there are no tools");
    }
    there
}

/// Copies the sources, and nothing that was built or that git keeps; a link stays one.
fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("mkdir");
    for entry in fs::read_dir(from).expect("lists") {
        let entry = entry.expect("an entry");
        let kind = entry.file_type().expect("a type");
        let target = to.join(entry.file_name());
        if entry.file_name() == ".git" || entry.file_name() == "target" {
            continue;
        }
        if kind.is_dir() {
            copy(&entry.path(), &target);
        } else if kind.is_symlink() {
            let to = fs::read_link(entry.path()).expect("a link");
            std::os::unix::fs::symlink(to, &target).expect("links");
        } else if kind.is_file() {
            fs::copy(entry.path(), &target).expect("copies");
        }
    }
}

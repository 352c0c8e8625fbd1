//! Same source, same digest: components do not tell where they were built.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::{copy, root, target};

/// The two that people install, and one that brings the whole standard library.
const GUESTS: [&str; 2] = ["null", "ssh"];

/// Builds the guests of the checkout at `root` into `target`, and reads them.
fn build(root: &Path, target: &Path) -> Vec<Vec<u8>> {
    let status = Command::new(env!("CARGO_BIN_EXE_xtask"))
        .arg("components")
        .args(GUESTS)
        .current_dir(root)
        .env("CARGO_MANIFEST_DIR", root.join("xtask"))
        .env("CARGO_TARGET_DIR", target)
        // What a caller happens to have set must not count.
        .env("RUSTFLAGS", "-C opt-level=0")
        .env("CARGO_PROFILE_COMPONENT_OPT_LEVEL", "1")
        .status()
        .expect("xtask runs");
    assert!(status.success(), "{status}");
    GUESTS
        .map(|guest| {
            fs::read(target.join("components").join(format!("{guest}.wasm"))).expect("was built")
        })
        .to_vec()
}

/// Whether `needle` stands anywhere in `hay`.
fn contains(hay: &[u8], needle: &str) -> bool {
    hay.windows(needle.len()).any(|w| w == needle.as_bytes())
}

#[test]
fn a_moved_checkout_builds_the_same_bytes_and_no_path_of_the_machine_is_in_them() {
    let (root, target) = (root(), target());
    let here = build(&root, &target);

    let elsewhere = tempfile::tempdir().expect("a directory");
    let moved = elsewhere.path().join("some where/else entirely");
    copy(&root, &moved);
    let there = build(&moved, &elsewhere.path().join("built"));

    for (guest, (here, there)) in GUESTS.iter().zip(here.iter().zip(&there)) {
        assert!(here == there, "{guest} differs after a move");
        for path in [
            root.to_str(),
            target.to_str(),
            std::env::var("HOME").ok().as_deref(),
        ] {
            let path = path.expect("UTF-8");
            assert!(
                path.len() < 4 || !contains(here, path),
                "{guest} has the path {path} in it"
            );
        }
    }
}

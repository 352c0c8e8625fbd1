//! What the SDKs tell editors about the contract is what the contract says.

use std::collections::BTreeSet;
use std::fs;
use std::process::Command;

use crate::{root, tools_are_there};

#[test]
fn the_declarations_for_javascript_and_python_are_those_of_the_contract() {
    if !tools_are_there() {
        return;
    }
    let looked = Command::new(env!("CARGO_BIN_EXE_xtask"))
        .args(["declarations", "--check"])
        .output()
        .expect("xtask runs");
    assert!(
        looked.status.success(),
        "{}",
        String::from_utf8_lossy(&looked.stderr)
    );
}

/// The names of the values that a module exports.
fn exported(text: &str) -> BTreeSet<String> {
    let lines = text.lines().filter_map(|line| {
        let named = line
            .strip_prefix("export function ")
            .or_else(|| line.strip_prefix("export const "))?;
        let end = named.find(|c: char| !c.is_ascii_alphanumeric())?;
        Some(named[..end].to_owned())
    });
    lines.collect()
}

#[test]
fn all_that_the_sdk_of_javascript_offers_is_declared_and_nothing_else() {
    let sdk = root().join("sdk/javascript");
    let read = |name: &str| fs::read_to_string(sdk.join(name)).expect("reads");
    let offered = exported(&read("provider.js"));
    assert!(offered.contains("manifest"), "{offered:?}");
    assert_eq!(offered, exported(&read("provider.d.ts")));
}

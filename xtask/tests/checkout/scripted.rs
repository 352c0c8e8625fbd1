//! Components of other languages are made again where what goes into them has changed, and only there.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use crate::{copy, root, target, tools_are_there};

/// Builds the sample in JavaScript; answers which of its components were made.
fn made(checkout: &Path, target: &Path) -> Vec<String> {
    let ran = Command::new(env!("CARGO_BIN_EXE_xtask"))
        .args(["components", "cabin-js"])
        .current_dir(checkout)
        .env("CARGO_MANIFEST_DIR", checkout.join("xtask"))
        .env("CARGO_TARGET_DIR", target)
        // What a caller happens to have set must not count.
        .env("NODE_OPTIONS", "--no-such-option")
        .output()
        .expect("xtask runs");
    let said = String::from_utf8_lossy(&ran.stderr).into_owned();
    assert!(ran.status.success(), "{said}");
    assert!(target.join("components/cabin-js.wasm").is_file());
    let commands = said
        .lines()
        .filter(|line| line.starts_with("+ ") && line.contains("componentize-qjs"));
    commands
        .filter_map(|line| Some(line.rsplit_once("--js ")?.1.split(' ').next()?.to_owned()))
        .collect()
}

#[test]
fn a_sample_is_built_again_where_its_source_its_contract_or_its_sdk_changed_and_only_there() {
    if !tools_are_there() {
        return;
    }
    let elsewhere = tempfile::tempdir().expect("a folder");
    let checkout = elsewhere.path().join("some where/else");
    copy(&root(), &checkout);
    let built = elsewhere.path().join("built");
    fs::create_dir(&built).expect("a folder");
    symlink(target().join("tools"), built.join("tools")).expect("a link");
    let all = ["examples/astray.js", "examples/async.js", "provider.js"];

    assert_eq!(made(&checkout, &built), all);
    assert_eq!(made(&checkout, &built), [""; 0], "nothing has changed");
    // What an author's tools leave behind, and what only people read, are no part of it.
    let sample = checkout.join("sample-plugins/cabin-js");
    fs::create_dir(sample.join("node_modules")).expect("a folder");
    fs::write(sample.join("node_modules/left.js"), "left").expect("a file");
    fs::write(sample.join("notes.md"), "read me").expect("a file");
    assert_eq!(
        made(&checkout, &built),
        [""; 0],
        "nothing that counts has changed"
    );
    for part in [
        "sample-plugins/cabin-js/provider.js",
        "sdk/javascript/provider.js",
        "wit/host.wit",
    ] {
        let path = checkout.join(part);
        let text = fs::read_to_string(&path).expect("reads");
        fs::write(&path, text + "// Changed.\n").expect("writes");
        assert_eq!(made(&checkout, &built), all, "{part}");
    }
    fs::remove_file(built.join("components/cabin-js.wasm")).expect("removes");
    assert_eq!(
        made(&checkout, &built),
        [""; 0],
        "it is put where it belongs"
    );
}

//! Same source, same digest: a component of a module in text does not tell where it was made.

#![allow(
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking, also in what it calls"
)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn root() -> PathBuf {
    // What was built may come from another checkout that shares its target directory.
    let own = PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR").expect("cargo runs this"));
    own.ancestors().nth(2).expect("a checkout").to_owned()
}

fn sample() -> PathBuf {
    root().join("sample-plugins/hostile/examples/memory-many.wat")
}

fn encode(module: &Path, wit: &Path, out: &Path) -> Output {
    Command::new(env!("CARGO_BIN_EXE_xtask_encode"))
        .args([module, wit, Path::new("provider"), out])
        .output()
        .expect("it runs")
}

#[test]
fn a_moved_module_and_contract_give_the_same_bytes_and_no_path_is_in_them() {
    let place = tempfile::tempdir().expect("a directory");
    let here = place.path().join("here.wasm");
    let output = encode(&sample(), &root().join("wit"), &here);
    assert!(output.status.success(), "{output:?}");

    let moved = place.path().join("some where/else");
    fs::create_dir_all(moved.join("contract")).expect("mkdir");
    for entry in fs::read_dir(root().join("wit")).expect("lists") {
        let from = entry.expect("an entry").path();
        let name = from.file_name().expect("a name");
        fs::copy(&from, moved.join("contract").join(name)).expect("copies");
    }
    let module = moved.join("other-name.wat");
    fs::copy(sample(), &module).expect("copies");
    let there = moved.join("there.wasm");
    let output = encode(&module, &moved.join("contract"), &there);
    assert!(output.status.success(), "{output:?}");

    let (here, there) = (
        fs::read(here).expect("made"),
        fs::read(there).expect("made"),
    );
    assert!(here == there, "it differs after a move");
    let path = root().display().to_string();
    let shown = here.windows(path.len()).any(|w| w == path.as_bytes());
    assert!(!shown, "{path} is in it");
}

#[test]
fn a_module_that_lacks_an_export_of_the_world_is_refused_by_its_name() {
    let place = tempfile::tempdir().expect("a directory");
    let text = fs::read_to_string(sample()).expect("reads");
    let module = place.path().join("lacking.wat");
    fs::write(&module, text.replace("#release\"", "#relaese\"")).expect("writes");
    let out = place.path().join("out.wasm");
    let output = encode(&module, &root().join("wit"), &out);
    assert!(!output.status.success());
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("function `release`"), "{said}");
    assert!(!out.exists());
}

//! What the SDKs tell editors about the contract is what the contract says.

use std::process::Command;

use crate::tools_are_there;

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

//! Running other programs, and telling which.

use std::ffi::OsStr;
use std::process::{Command, ExitStatus};

use anyhow::{Context, Result, bail};

/// A command, not started.
pub fn command<S: AsRef<OsStr>>(program: &str, args: impl IntoIterator<Item = S>) -> Command {
    let mut command = Command::new(program);
    command.args(args);
    command
}

/// A command of cargo's, not started, as if a person had typed it: what `cargo run` tells the program that it runs
/// is kept from it. Build scripts look at some of these, and would build everything again.
pub fn cargo<S: AsRef<OsStr>>(args: impl IntoIterator<Item = S>) -> Command {
    let mut command = command("cargo", args);
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        let told = [
            "CARGO_MANIFEST_DIR",
            "CARGO_MANIFEST_PATH",
            "CARGO_CRATE_NAME",
            "CARGO_PRIMARY_PACKAGE",
            "CARGO_TARGET_TMPDIR",
            "OUT_DIR",
        ];
        let prefixes = ["CARGO_PKG_", "CARGO_BIN_"];
        if told.contains(&text.as_ref()) || prefixes.iter().any(|prefix| text.starts_with(prefix)) {
            command.env_remove(&name);
        }
    }
    command
}

/// The command as a person would type it.
pub fn spelled(command: &Command) -> String {
    std::iter::once(command.get_program())
        .chain(command.get_args())
        .map(|word| {
            let word = word.to_string_lossy();
            let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,+@".contains(c);
            match word.is_empty() || !word.chars().all(plain) {
                true => format!("'{}'", word.replace('\'', r"'\''")),
                false => word.into_owned(),
            }
        })
        .collect::<Vec<_>>()
        .join(" ")
}

/// Prints the command, runs it with this terminal, and answers how it ended.
pub fn status(command: &mut Command) -> Result<ExitStatus> {
    let spelled = spelled(command);
    eprintln!("+ {spelled}");
    command
        .status()
        .with_context(|| format!("`{spelled}` does not run"))
}

/// As [`status`], and fails unless it ended well.
pub fn run(command: &mut Command) -> Result<()> {
    let ended = status(command)?;
    if !ended.success() {
        bail!("`{}` failed: {ended}", spelled(command));
    }
    Ok(())
}

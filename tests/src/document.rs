//! The shell that stands in the documentation, taken from it: blocks of `sh`, the commands in them, and what the
//! documentation shows of what they print.

use std::path::PathBuf;
use std::process::Command;

/// The checkout that is tested: cargo tells it at run time. What was built may come from another one that shares its
/// target directory.
///
/// # Panics
/// When the tests lie nowhere.
pub fn checkout() -> PathBuf {
    let tests = std::env::var_os("CARGO_MANIFEST_DIR")
        .map_or_else(|| env!("CARGO_MANIFEST_DIR").into(), PathBuf::from);
    tests
        .parent()
        .expect("the tests lie in the checkout")
        .to_owned()
}

/// A document of this repository, by its path from the root.
///
/// # Panics
/// When it is not there.
pub fn read(path: &str) -> String {
    let file = checkout().join(path);
    std::fs::read_to_string(file).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// What stands below a heading, up to the next one of the same depth.
///
/// # Panics
/// When there is no such heading.
pub fn section<'a>(document: &'a str, heading: &str) -> &'a str {
    let (_, rest) = document
        .split_once(&format!("\n{heading}\n"))
        .unwrap_or_else(|| panic!("there is no heading `{heading}`"));
    let depth = heading.split(' ').next().unwrap_or_default();
    let end = rest.find(&format!("\n{depth} "));
    rest.get(..end.unwrap_or(rest.len())).unwrap_or(rest)
}

/// The blocks that are fenced as `sh`.
pub fn blocks(text: &str) -> Vec<&str> {
    let fenced = text.split("```sh\n").skip(1);
    fenced.filter_map(|rest| rest.split("```").next()).collect()
}

/// Every fenced block, in its order: what it is fenced as, and what stands in it.
pub fn fenced(text: &str) -> Vec<(&str, &str)> {
    // Outside, inside, outside, …
    let parts = text.split("```").skip(1).step_by(2);
    parts
        .map(|part| part.split_once('\n').unwrap_or((part, "")))
        .collect()
}

/// Whether a command printed what a document shows of it: `…` in a line stands for what is another each time, and alone in
/// its line for any lines. How wide a column is does not matter.
///
/// # Errors
/// Says both.
pub fn shows(shown: &str, printed: &str) -> Result<(), String> {
    let lines = |text: &str| -> Vec<String> {
        let lines = text.trim_end().lines();
        lines
            .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
            .collect()
    };
    if lines_fit(&lines(shown), &lines(printed)) {
        return Ok(());
    }
    Err(format!(
        "the document shows\n{shown}\nand it printed\n{printed}"
    ))
}

fn lines_fit(shown: &[String], printed: &[String]) -> bool {
    match (shown.split_first(), printed.split_first()) {
        (None, None) => true,
        (Some((first, rest)), _) if first == "…" => {
            (0..=printed.len()).any(|more| lines_fit(rest, &printed[more..]))
        }
        (Some((first, rest)), Some((line, lines))) => {
            line_fits(first, line) && lines_fit(rest, lines)
        }
        _ => false,
    }
}

fn line_fits(shown: &str, line: &str) -> bool {
    let Some((begin, rest)) = shown.split_once('…') else {
        return shown == line;
    };
    let Some(left) = line.strip_prefix(begin) else {
        return false;
    };
    let ends = left.char_indices().map(|(at, one)| at + one.len_utf8());
    ends.into_iter().any(|end| line_fits(rest, &left[end..]))
}

/// The commands of a block, each as many lines as a shell needs to see its end.
///
/// # Panics
/// When the last one has no end.
pub fn commands(block: &str) -> Vec<String> {
    let mut all = Vec::new();
    let mut command = String::new();
    for line in block.lines() {
        command.push_str(line);
        command.push('\n');
        if !line.ends_with('\\') && is_whole(&command) {
            let whole = std::mem::take(&mut command);
            if !whole.trim().is_empty() {
                all.push(whole.trim_end().to_owned());
            }
        }
    }
    assert!(command.is_empty(), "no shell sees an end of {command}");
    all
}

fn is_whole(command: &str) -> bool {
    let output = Command::new("sh").args(["-n", "-c", command]).output();
    output.expect("sh runs").status.success()
}

/// Puts values in the place of what a document has for them.
///
/// # Panics
/// When the document does not have one of them any more.
pub fn substituted(text: &str, values: &[(&str, &str)]) -> String {
    let mut text = text.to_owned();
    for (from, to) in values {
        assert!(text.contains(from), "the document has no `{from}`");
        text = text.replace(from, to);
    }
    text
}

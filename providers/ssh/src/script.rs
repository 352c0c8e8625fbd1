//! The scripts that this provider runs on a target, as they are sent.
//!
//! Each is a file beside this one, written to be read. What is sent is without its comments and
//! indentation: a target's shell reads a script a byte at a time. Every script is plain POSIX.

/// `cd` to the first argument, then become the rest of them.
pub fn start() -> String {
    sent(include_str!("start.sh"))
}

/// Look at the machine, and change nothing.
pub fn probe() -> String {
    sent(include_str!("probe.sh"))
}

/// Make the directory of the workspaces, which is proven not to be there: status 0. It is there: status 3.
pub const MAKE_PARENT: &str = r#"[ -e "$1" ] || [ -L "$1" ] && exit 3
umask 077
mkdir -p "$1""#;

/// Status 0 if there is nothing of this name, 3 if there is something.
pub const IS_ABSENT: &str = r#"[ -e "$1" ] || [ -L "$1" ] && exit 3
exit 0"#;

fn sent(script: &str) -> String {
    let lines = script.lines().map(str::trim_start);
    let kept: Vec<&str> = lines
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .collect();
    kept.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_sent_has_no_comment_and_is_short() {
        for script in [start(), probe()] {
            assert!(script.lines().all(|line| !line.starts_with(['#', ' '])));
        }
        assert!(start().len() < 1100, "{}", start().len());
    }
}

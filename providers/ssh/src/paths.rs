//! Paths on the target, by their text alone: nothing here asks the machine.
//!
//! What a path's links lead to is the host's to guard where it makes, moves or removes anything.

use leasehold_provider::{Error, Result};

/// The longest path that leaves room for what is made below it.
const LONGEST: usize = 1024;

/// The directory of the workspaces in its one spelling: absolute, without empty and `.` segments, without a
/// slash at the end. The error says how to mend it.
pub fn parent(path: &str) -> Result<String, String> {
    if !path.starts_with('/') {
        return Err(format!(
            "{path:?} is not absolute; begin it with /, such as /srv/leases"
        ));
    }
    if path.chars().any(char::is_control) {
        return Err("it has a control character; use a path without any".to_owned());
    }
    if path.len() > LONGEST {
        return Err(format!(
            "it has {} bytes; use at most {LONGEST}",
            path.len()
        ));
    }
    let Some(path) = normal(path) else {
        return Err(format!(
            "{path:?} has a segment `..`; write the path that is meant"
        ));
    };
    match path.as_str() {
        "/" => Err(
            "it is the root of the file system; name a directory such as /srv/leases".to_owned(),
        ),
        _ => Ok(path),
    }
}

/// Where a command starts: `cwd`, which is below the workspace where it is relative.
pub fn resolve(workspace: &str, cwd: &str) -> String {
    match cwd {
        "" => workspace.to_owned(),
        absolute if absolute.starts_with('/') => absolute.to_owned(),
        relative => format!("{workspace}/{relative}"),
    }
}

/// The path of files to be moved, which must be the workspace or below it.
pub fn within(workspace: &str, path: &str) -> Result<String> {
    let resolved = normal(&resolve(workspace, path));
    let inside = resolved.filter(|resolved| {
        resolved
            .strip_prefix(workspace)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    });
    inside.ok_or_else(|| {
        Error::permission_denied(format!(
            "{path:?} is outside the lease's workspace {workspace}; files are moved only there: use a \
             path below it, and a command for what lies elsewhere"
        ))
    })
}

/// An absolute path without empty and `.` segments; none where it has a `..`.
fn normal(path: &str) -> Option<String> {
    let segments: Vec<&str> = path
        .split('/')
        .filter(|segment| !segment.is_empty() && *segment != ".")
        .collect();
    (!segments.contains(&"..")).then(|| format!("/{}", segments.join("/")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_parent_has_one_spelling() {
        for spelling in ["/srv/leases", "/srv/leases/", "//srv/./leases//"] {
            assert_eq!(parent(spelling).as_deref(), Ok("/srv/leases"));
        }
    }

    #[test]
    fn a_parent_that_could_mean_something_else_is_refused_with_the_mend() {
        for (path, word) in [
            ("srv", "absolute"),
            ("~/leases", "absolute"),
            ("/srv/../etc", "`..`"),
            ("/", "root"),
            ("/./", "root"),
            ("/srv/a\nb", "control"),
        ] {
            let message = parent(path).expect_err(path);
            assert!(message.contains(word), "{path}: {message}");
        }
        assert!(parent(&format!("/{}", "a".repeat(1100))).is_err());
        assert_eq!(parent("/srv/..a").as_deref(), Ok("/srv/..a"));
    }

    #[test]
    fn a_command_starts_in_the_workspace_or_where_it_says() {
        assert_eq!(resolve("/srv/l/work", ""), "/srv/l/work");
        assert_eq!(resolve("/srv/l/work", "src"), "/srv/l/work/src");
        assert_eq!(resolve("/srv/l/work", "-"), "/srv/l/work/-");
        assert_eq!(resolve("/srv/l/work", "/tmp"), "/tmp");
    }

    #[test]
    fn files_are_moved_only_in_the_workspace() {
        let w = "/srv/l/work";
        assert_eq!(within(w, "").as_deref(), Ok("/srv/l/work"));
        assert_eq!(within(w, "a/./b").as_deref(), Ok("/srv/l/work/a/b"));
        assert_eq!(within(w, "/srv/l/work/a").as_deref(), Ok("/srv/l/work/a"));
        for outside in ["..", "a/../../x", "/srv/l/workshop", "/etc/passwd", "/"] {
            assert!(within(w, outside).is_err(), "{outside}");
        }
    }
}

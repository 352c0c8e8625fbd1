//! Workspaces: a directory per lease, named by its acquisition, that carries the host's marker.
//!
//! ```text
//! PARENT/ACQUISITION/        0700
//!     .leasehold/owner       the marker: `leasehold 1 OWNER`, then a line KEY=VALUE for each label
//!     .leasehold/tools       which awk, setsid and env the supervisor uses here
//!     .leasehold/x/          records of commands
//!     work/                  where commands start
//! ```
//!
//! Nothing is removed that does not carry the owner's marker (P9), and no link is followed.

use leasehold_contract::{Code, Error, Workspace};

use super::{Answer, GONE, LIST, MAKE, OWNED, REMOVE, run};
use crate::error::{failed, quote as cite, unknown};
use crate::pool::Route;
use crate::scope::LeaseScope;
use crate::verify::{Gone, LeaseMark, Ownership};

/// The first line of a marker, before the owner label.
const MARK: &str = "leasehold 1 ";

/// The most processes that are told by name.
const TOLD: usize = 100;

/// Checks an absolute directory on the target and brings it to one form: no `.`, `..` or double slash.
///
/// # Errors
/// `invalid-config`, saying what is wrong with it.
pub(crate) fn directory(path: &str, what: &str) -> Result<String, Error> {
    let wrong = |why: &str| {
        Err(Error::new(
            Code::InvalidConfig,
            format!(
                "{what} {:?} {why}; give an absolute path such as /srv/leases",
                cite(path.as_bytes())
            ),
        ))
    };
    if !path.starts_with('/') {
        return wrong("is not absolute");
    }
    if path.len() > 1024 {
        return wrong("is longer than 1024 bytes");
    }
    if path.chars().any(char::is_control) {
        return wrong("has a control character");
    }
    let mut parts = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => return wrong("has a part .."),
            other => parts.push(other),
        }
    }
    Ok(format!("/{}", parts.join("/")))
}

/// An acquisition as the contract spells it.
pub(crate) fn acquisition(name: &str) -> Result<&str, Error> {
    let sane = name.len() <= 40
        && name.bytes().next().is_some_and(|b| b.is_ascii_lowercase())
        && name
            .bytes()
            .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-');
    if sane {
        Ok(name)
    } else {
        Err(Error::new(
            Code::InvalidConfig,
            format!(
                "{:?} is not the name of a workspace; it is an acquisition, [a-z][a-z0-9-]{{0,39}}",
                cite(name.as_bytes())
            ),
        ))
    }
}

/// An owner label, label key or value.
pub(crate) fn label(text: &str) -> Result<&str, Error> {
    let sane = (1..=63).contains(&text.len())
        && text
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b));
    if sane {
        Ok(text)
    } else {
        Err(Error::new(
            Code::Internal,
            format!(
                "the label {:?} is not 1 to 63 of A-Za-z0-9._-",
                cite(text.as_bytes())
            ),
        ))
    }
}

/// What the marker of `lease` says after its first line.
fn marks(lines: &[&str]) -> Option<(String, Vec<(String, String)>)> {
    let owner = lines.first()?.strip_prefix(MARK)?;
    let labels = lines[1..]
        .iter()
        .filter_map(|l| l.split_once('='))
        .map(|(k, v)| (k.to_owned(), v.to_owned()))
        .collect();
    Some((label(owner).ok()?.to_owned(), labels))
}

fn first(answer: &Answer) -> (&str, &str) {
    answer.lines().next().unwrap_or(("", ""))
}

/// See `make-workspace` of the contract.
pub(crate) async fn make_workspace(
    route: &Route,
    lease: &LeaseScope,
    parent: &str,
) -> Result<Workspace, Error> {
    let parent = directory(parent, "the directory for workspaces")?;
    let name = acquisition(&lease.acquisition)?;
    let owner = label(&lease.owner_label)?;
    let mut args = vec![parent.clone(), name.to_owned(), owner.to_owned()];
    for (k, v) in &lease.labels {
        args.push(format!("{}={}", label(k)?, label(v)?));
    }
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let answer = run(route, &MAKE, &args, route.settings().script).await?;
    match first(&answer) {
        ("ok", path) if path.starts_with('/') => Ok(Workspace {
            path: path.to_owned(),
            resource: name.to_owned(),
            labels: lease.labels.clone(),
            condition: "ready".to_owned(),
        }),
        ("parent", _) => Err(answer.refusal(&route.name(), "parent", &parent)),
        (word, _) => Err(answer.refusal(&route.name(), word, &format!("{parent}/{name}"))),
    }
}

/// See `list-workspaces` of the contract. Labels of a directory are its marker's, the owner label under `leasehold-owner`.
pub(crate) async fn list_workspaces(route: &Route, parent: &str) -> Result<Vec<Workspace>, Error> {
    let parent = directory(parent, "the directory for workspaces")?;
    let answer = run(route, &LIST, &[&parent], route.settings().script).await?;
    if let ("parent", _) = first(&answer) {
        return Err(answer.refusal(&route.name(), "parent", &parent));
    }
    let mut found: Vec<(String, Vec<&str>)> = Vec::new();
    let mut whole = false;
    for (word, rest) in answer.lines() {
        match word {
            "dir" => found.push((rest.to_owned(), Vec::new())),
            "mark" => {
                if let Some((_, lines)) = found.last_mut() {
                    lines.push(rest);
                }
            }
            "end" => whole = true,
            _ => {}
        }
    }
    if !whole {
        // A list that was cut short proves the absence of nothing.
        return Err(failed(
            Code::Unavailable,
            &route.name(),
            format_args!(
                "the list of {parent} did not come whole: {}",
                cite(answer.stderr.as_bytes())
            ),
        ));
    }
    let mut list = Vec::new();
    for (path, lines) in found {
        let Some(name) = path.rsplit('/').next().and_then(|n| acquisition(n).ok()) else {
            continue;
        };
        let (labels, condition) = match marks(&lines) {
            Some((owner, mut labels)) => {
                labels.insert(0, (OWNER.to_owned(), owner));
                (labels, "ready")
            }
            None if lines.is_empty() => (Vec::new(), "incomplete"),
            None => continue,
        };
        list.push(Workspace {
            path: format!("{path}/work"),
            resource: name.to_owned(),
            labels,
            condition: condition.to_owned(),
        });
    }
    Ok(list)
}

/// The label under which a listed workspace's owner label stands.
const OWNER: &str = "leasehold-owner";

/// See `remove-workspace` of the contract.
pub(crate) async fn remove_workspace(
    route: &Route,
    owner: &str,
    parent: &str,
    resource: &str,
) -> Result<(), Error> {
    let parent = directory(parent, "the directory for workspaces")?;
    let name = acquisition(resource)?;
    let args = [&parent[..], name, label(owner)?];
    let answer = run(route, &REMOVE, &args, route.settings().script).await?;
    let place = format!("{parent}/{name}");
    match first(&answer) {
        ("ok", _) => Ok(()),
        ("left", _) => {
            let left: Vec<String> = left(&answer);
            Err(failed(
                Code::FailedPrecondition,
                &route.name(),
                format_args!(
                    "processes of the lease could not be ended ({}); end them as a user who may, then release again",
                    left.join(", ")
                ),
            ))
        }
        ("parent", _) => Err(answer.refusal(&route.name(), "parent", &parent)),
        (word, _) => Err(answer.refusal(&route.name(), word, &place)),
    }
}

fn left(answer: &Answer) -> Vec<String> {
    answer
        .lines()
        .filter(|(word, _)| *word == "left")
        .take(TOLD)
        .map(|(_, rest)| cite(rest.as_bytes()))
        .collect()
}

/// See [`crate::Ssh::verify_gone`].
pub(crate) async fn verify_gone(
    route: &Route,
    mark: &LeaseMark,
    parent: &str,
) -> Result<Gone, Error> {
    let parent = directory(parent, "the directory for workspaces")?;
    let args = [
        &parent[..],
        acquisition(&mark.acquisition)?,
        label(&mark.owner_label)?,
    ];
    let answer = run(route, &GONE, &args, route.settings().script).await?;
    match first(&answer) {
        (word @ ("platform" | "parent"), _) => {
            return Err(answer.refusal(&route.name(), word, &parent));
        }
        _ if answer.lines().any(|(word, _)| word == "end") => {}
        _ => {
            return Err(unknown(
                &route.name(),
                format_args!(
                    "the check did not come whole: {}",
                    cite(answer.stderr.as_bytes())
                ),
            ));
        }
    }
    Ok(Gone {
        processes: left(&answer),
        workspace: answer.lines().any(|(word, _)| word == "dir"),
    })
}

/// See [`crate::Ssh::verify_owned`].
pub(crate) async fn verify_owned(
    route: &Route,
    mark: &LeaseMark,
    parent: &str,
) -> Result<Ownership, Error> {
    let parent = directory(parent, "the directory for workspaces")?;
    let args = [&parent[..], acquisition(&mark.acquisition)?];
    let answer = run(route, &OWNED, &args, route.settings().script).await?;
    if !answer.lines().any(|(word, _)| word == "end") {
        return Err(match first(&answer) {
            ("parent", _) => answer.refusal(&route.name(), "parent", &parent),
            _ => unknown(
                &route.name(),
                format_args!(
                    "the check did not come whole: {}",
                    cite(answer.stderr.as_bytes())
                ),
            ),
        });
    }
    Ok(match first(&answer) {
        ("absent", _) => Ownership::Absent,
        ("mark", _) => {
            let lines: Vec<&str> = answer
                .lines()
                .filter(|(word, _)| *word == "mark")
                .map(|(_, rest)| rest)
                .collect();
            match marks(&lines) {
                Some((owner, labels)) if owner == mark.owner_label => Ownership::Ours(labels),
                _ => Ownership::Foreign,
            }
        }
        _ => Ownership::Foreign,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_is_absolute_plain_and_in_one_form() {
        assert_eq!(
            directory("/srv//leases/./x/", "d").unwrap(),
            "/srv/leases/x"
        );
        assert_eq!(directory("/", "d").unwrap(), "/");
        for bad in ["", "srv", "~/x", "/srv/../etc", "/a\nb", "/a\0b"] {
            let e = directory(bad, "d").unwrap_err();
            assert_eq!(e.code, Code::InvalidConfig, "{bad:?}");
        }
    }

    #[test]
    fn an_acquisition_is_never_a_path_or_an_option() {
        for bad in ["", "-x", "a/b", "..", "A", "1a", "a_b", &"a".repeat(41)] {
            assert!(acquisition(bad).is_err(), "{bad:?}");
        }
        assert!(acquisition("a1-b").is_ok());
    }
}

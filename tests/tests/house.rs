//! The house's own rules: which crate may reach which, and how its files are kept.
//!
//! These are read from what cargo resolves and from the sources, so that a rule that is broken is a test that
//! fails, not a matter of review.

#![allow(
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking, also in what it calls"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use leasehold_tests::document::checkout;
use serde::Deserialize;

/// No file is longer than this.
const LONGEST: usize = 700;

/// Names that say nothing about what is inside.
const EMPTY_NAMES: [&str; 7] = [
    "utils", "util", "helpers", "helper", "common", "misc", "shared",
];

/// A crate, and everything that it must never reach, however far down.
const FORBIDDEN: [(&str, &[&str]); 5] = [
    (
        "leasehold-contract",
        &[
            "wasmtime",
            "wasmtime-wasi",
            "russh",
            "sqlx",
            "sqlx-core",
            "hyper",
            "rustls",
            "axum",
        ],
    ),
    (
        "leasehold-authority",
        &[
            "wasmtime",
            "wasmtime-wasi",
            "russh",
            "russh-sftp",
            "hyper",
            "rustls",
            "axum",
            "leasehold-runtime",
            "leasehold-egress",
            "leasehold-server",
        ],
    ),
    (
        "leasehold-runtime",
        &[
            "sqlx",
            "sqlx-core",
            "libsqlite3-sys",
            "russh",
            "russh-sftp",
            "hyper",
            "rustls",
            "axum",
            "leasehold-authority",
            "leasehold-egress",
            "leasehold-server",
        ],
    ),
    (
        "leasehold-egress",
        &[
            "wasmtime",
            "wasmtime-wasi",
            "sqlx",
            "sqlx-core",
            "libsqlite3-sys",
            "leasehold-authority",
            "leasehold-runtime",
            "leasehold-server",
        ],
    ),
    (
        "leasehold-provider",
        &[
            "wasmtime",
            "sqlx",
            "russh",
            "tokio",
            "leasehold-contract",
            "leasehold-authority",
            "leasehold-runtime",
            "leasehold-egress",
            "leasehold-server",
        ],
    ),
];

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
    resolve: Resolve,
}

#[derive(Deserialize)]
struct Package {
    id: String,
    name: String,
}

#[derive(Deserialize)]
struct Resolve {
    nodes: Vec<Node>,
}

#[derive(Deserialize)]
struct Node {
    id: String,
    deps: Vec<Dependency>,
}

#[derive(Deserialize)]
struct Dependency {
    pkg: String,
    dep_kinds: Vec<Kind>,
}

#[derive(Deserialize)]
struct Kind {
    kind: Option<String>,
}

fn metadata() -> Metadata {
    let output = Command::new(env!("CARGO"))
        .args([
            "metadata",
            "--format-version",
            "1",
            "--locked",
            "--all-features",
        ])
        .current_dir(checkout())
        .output()
        .expect("cargo runs");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    serde_json::from_slice(&output.stdout).expect("cargo's metadata reads")
}

/// How a crate reaches others at run time: each name that it reaches, with the way there.
fn reach(metadata: &Metadata, from: &str) -> BTreeMap<String, Vec<String>> {
    let names: BTreeMap<&str, &str> = metadata
        .packages
        .iter()
        .map(|package| (package.id.as_str(), package.name.as_str()))
        .collect();
    let nodes: BTreeMap<&str, &Node> = metadata
        .resolve
        .nodes
        .iter()
        .map(|node| (node.id.as_str(), node))
        .collect();
    let start = metadata
        .packages
        .iter()
        .find(|package| package.name == from)
        .unwrap_or_else(|| panic!("{from} is a crate of this workspace"));
    let mut reached = BTreeMap::new();
    let mut seen = BTreeSet::from([start.id.as_str()]);
    let mut ahead = vec![(start.id.as_str(), vec![from.to_owned()])];
    while let Some((id, way)) = ahead.pop() {
        for dependency in &nodes[id].deps {
            // What only tests or build scripts use is not in what runs.
            if dependency.dep_kinds.iter().all(|kind| kind.kind.is_some()) {
                continue;
            }
            let id = dependency.pkg.as_str();
            if !seen.insert(id) {
                continue;
            }
            let mut way = way.clone();
            way.push(names[id].to_owned());
            reached.entry(names[id].to_owned()).or_insert(way.clone());
            ahead.push((id, way));
        }
    }
    reached
}

#[test]
fn no_crate_reaches_what_it_must_not_know() {
    let metadata = metadata();
    let mut broken = Vec::new();
    for (from, never) in FORBIDDEN {
        let reached = reach(&metadata, from);
        for name in never {
            if let Some(way) = reached.get(*name) {
                broken.push(way.join(" -> "));
            }
        }
    }
    assert!(
        broken.is_empty(),
        "crates reach what they must not:\n{}",
        broken.join("\n")
    );
}

#[test]
fn the_rule_about_reach_sees_what_is_there() {
    let metadata = metadata();
    // If these were not found, the rule above would hold for nothing.
    assert!(reach(&metadata, "leasehold-runtime").contains_key("wasmtime"));
    assert!(reach(&metadata, "leasehold-egress").contains_key("russh"));
    assert!(reach(&metadata, "leasehold-authority").contains_key("sqlx"));
    let server = reach(&metadata, "leasehold-server");
    for name in ["wasmtime", "russh", "sqlx"] {
        assert!(server.contains_key(name), "the server composes {name}");
    }
}

/// Every file of the checkout with this ending, without what is built or kept by git.
fn files(ending: &str) -> Vec<PathBuf> {
    fn walk(dir: &Path, ending: &str, found: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(dir).expect("lists") {
            let path = entry.expect("an entry").path();
            let name = path
                .file_name()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned();
            if path.is_symlink()
                || name == "target"
                || name == "node_modules"
                || (name.starts_with('.') && name != ".ci")
            {
                continue;
            }
            if path.is_dir() {
                walk(&path, ending, found);
            } else if name.ends_with(ending) {
                found.push(path);
            }
        }
    }
    let mut found = Vec::new();
    walk(&checkout(), ending, &mut found);
    found.sort();
    found
}

fn shown(path: &Path) -> String {
    path.strip_prefix(checkout())
        .unwrap_or(path)
        .display()
        .to_string()
}

#[test]
fn every_file_says_at_its_head_what_it_is() {
    let silent: Vec<String> = files(".rs")
        .iter()
        .filter(|path| {
            let text = fs::read_to_string(path).expect("reads");
            !text.lines().next().unwrap_or_default().starts_with("//! ")
        })
        .map(|path| shown(path))
        .collect();
    assert!(silent.is_empty(), "files without a `//!` head: {silent:#?}");
}

#[test]
fn no_file_is_longer_than_one_can_hold_in_mind() {
    let long: Vec<String> = [".rs", ".sh", ".wit", ".sql", ".ts"]
        .iter()
        .flat_map(|ending| files(ending))
        .filter_map(|path| {
            let lines = fs::read_to_string(&path).expect("reads").lines().count();
            (lines > LONGEST).then(|| format!("{} ({lines} lines)", shown(&path)))
        })
        .collect();
    assert!(
        long.is_empty(),
        "files of more than {LONGEST} lines: {long:#?}"
    );
}

#[test]
fn no_room_has_a_name_that_says_nothing() {
    let empty: Vec<String> = files(".rs")
        .iter()
        .filter(|path| {
            let shown = shown(path);
            Path::new(&shown)
                .with_extension("")
                .components()
                .any(|part| EMPTY_NAMES.contains(&part.as_os_str().to_string_lossy().as_ref()))
        })
        .map(|path| shown(path))
        .collect();
    assert!(empty.is_empty(), "rooms named for nothing: {empty:#?}");
}

/// Files of the host that may read what an actor is, each with what for; of them the policy alone decides by it.
const WHO: [(&str, &str); 7] = [
    ("host/authority/src/actor.rs", "says what actors there are"),
    ("host/authority/src/policy/mod.rs", "decides"),
    (
        "host/authority/src/token.rs",
        "keeps what a token makes of its holder",
    ),
    ("host/authority/src/idempotency.rs", "names whose key it is"),
    ("host/server/src/access/gate.rs", "proves who asks"),
    ("host/server/src/api/tokens.rs", "shows and makes tokens"),
    (
        "host/server/src/service/progress.rs",
        "names whose request it is",
    ),
];

#[test]
fn nothing_but_the_policy_decides_by_what_an_actor_is() {
    // A provider's operations have roles, too, of other names.
    let said = ["ActorKind::", "Role::Admin", "Role::Member", "Role::Agent"];
    let mut readers = BTreeSet::new();
    for path in files(".rs") {
        let shown = shown(&path);
        let serves = shown.starts_with("host/") && shown.contains("/src/");
        if !serves || shown.ends_with("_tests.rs") {
            continue;
        }
        let text = fs::read_to_string(&path).expect("reads");
        let code = text.split("#[cfg(test)]\nmod ").next().unwrap_or_default();
        if said.iter().any(|said| code.contains(said)) {
            readers.insert(shown);
        }
    }
    let allowed: BTreeSet<String> = WHO.iter().map(|(file, _)| (*file).to_owned()).collect();
    assert_eq!(
        readers, allowed,
        "files that read what an actor is, and those that may: ask `policy` what somebody may do"
    );
}

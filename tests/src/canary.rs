//! Secrets that are looked for, and the places where bytes can be read: files, processes.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::path::{Path, PathBuf};

use serde_json::Value;

/// Bytes that must be nowhere, each by a name.
#[derive(Debug)]
pub struct Canaries(Vec<(&'static str, Vec<u8>)>);

impl Canaries {
    /// These.
    pub fn new(all: Vec<(&'static str, Vec<u8>)>) -> Canaries {
        Canaries(all)
    }

    /// Those without the ones of these names.
    pub fn without(&self, names: &[&str]) -> Canaries {
        let kept = self.0.iter().filter(|(name, _)| !names.contains(name));
        Canaries(kept.cloned().collect())
    }

    /// Names of those that stand in these bytes, as they are or in hex.
    pub fn in_bytes(&self, bytes: &[u8]) -> Vec<&'static str> {
        let there = self.0.iter().filter(|(_, canary)| {
            contains(bytes, canary) || contains(bytes, hex(canary).as_bytes())
        });
        there.map(|(name, _)| *name).collect()
    }

    /// Each by its name, told so that the telling is not found: the complement of every byte, in hex.
    pub fn told(&self) -> Value {
        let all = self.0.iter().map(|(name, canary)| {
            let complement: Vec<u8> = canary.iter().map(|byte| !byte).collect();
            ((*name).to_owned(), Value::from(hex(&complement)))
        });
        Value::Object(all.collect())
    }

    /// Checks that none of them stands in any of these files.
    ///
    /// # Panics
    /// When one does, naming the file.
    #[track_caller]
    pub fn absent_from(&self, files: &[(PathBuf, Vec<u8>)]) {
        for (path, bytes) in files {
            let found = self.in_bytes(bytes);
            assert_eq!(found, Vec::<&str>::new(), "in {}", path.display());
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Whether these bytes stand in those.
pub fn contains(bytes: &[u8], wanted: &[u8]) -> bool {
    let Some((first, rest)) = wanted.split_first() else {
        return true;
    };
    let mut left = bytes;
    while let Some(at) = left.iter().position(|byte| byte == first) {
        left = &left[at + 1..];
        if left.starts_with(rest) {
            return true;
        }
    }
    false
}

/// Every file below a directory, with its bytes.
///
/// # Panics
/// When the directory cannot be read.
pub fn files_below(directory: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut all = Vec::new();
    let mut ahead = vec![directory.to_owned()];
    while let Some(directory) = ahead.pop() {
        let entries = match std::fs::read_dir(&directory) {
            Ok(entries) => entries,
            // What is at work there removes what it is done with.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
            Err(error) => panic!("{}: {error}", directory.display()),
        };
        for entry in entries.flatten() {
            let path = entry.path();
            match entry.file_type() {
                Ok(kind) if kind.is_dir() => ahead.push(path),
                Ok(kind) if kind.is_file() => {
                    all.extend(std::fs::read(&path).ok().map(|bytes| (path, bytes)));
                }
                _ => {}
            }
        }
    }
    all
}

/// A process of this machine as anyone may see it, and as its owner may.
#[derive(Debug)]
pub struct Seen {
    /// Its id.
    pub pid: u32,
    /// Its parent's.
    pub parent: u32,
    /// Its arguments.
    pub arguments: Vec<u8>,
    /// The environment that it was begun with.
    pub environment: Vec<u8>,
}

impl Seen {
    /// Whether it has this variable.
    pub fn has(&self, variable: &str) -> bool {
        let variables = self.environment.split(|byte| *byte == 0);
        let mut names = variables.filter_map(|variable| variable.split(|b| *b == b'=').next());
        names.any(|name| name == variable.as_bytes())
    }

    /// What it has open that is a file, also one that has no name any more.
    pub fn open_files(&self) -> Vec<(PathBuf, Vec<u8>)> {
        let open = PathBuf::from(format!("/proc/{}/fd", self.pid));
        let entries = std::fs::read_dir(open).into_iter().flatten().flatten();
        let files = entries
            .map(|entry| entry.path())
            .filter(|path| std::fs::metadata(path).is_ok_and(|file| file.is_file()));
        files
            .filter_map(|path| Some((path.clone(), std::fs::read(&path).ok()?)))
            .collect()
    }
}

/// Every process of this machine.
pub fn processes() -> Vec<Seen> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let seen = entries.filter_map(|entry| {
        let pid = entry.file_name().to_str()?.parse().ok()?;
        let read = |what: &str| std::fs::read(entry.path().join(what)).unwrap_or_default();
        let stat = String::from_utf8_lossy(&read("stat")).into_owned();
        // Behind the name, which may hold anything: state, parent.
        let parent = stat.rsplit_once(')')?.1.split_whitespace().nth(1)?;
        Some(Seen {
            pid,
            parent: parent.parse().ok()?,
            arguments: read("cmdline"),
            environment: read("environ"),
        })
    });
    seen.collect()
}

/// Ids of those of `all` for whom `is` holds, and of all that descend from them.
pub fn with_descendants(all: &[Seen], is: impl Fn(&Seen) -> bool) -> HashSet<u32> {
    let mut found: HashSet<u32> = all
        .iter()
        .filter(|one| is(one))
        .map(|one| one.pid)
        .collect();
    loop {
        let more: Vec<u32> = all
            .iter()
            .filter(|one| found.contains(&one.parent) && !found.contains(&one.pid))
            .map(|one| one.pid)
            .collect();
        if more.is_empty() {
            return found;
        }
        found.extend(more);
    }
}

/// What a hostile component found in its memory, by the export in which it looked.
///
/// # Panics
/// When the log breaks off in what it told.
pub fn hunted(log: &str) -> BTreeMap<String, BTreeSet<String>> {
    let mut told: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for part in log.split("hunted in ").skip(1) {
        let (export, found) = part
            .split_once(';')
            .and_then(|(line, _)| line.split_once(": "))
            .unwrap_or_else(|| panic!("not told to its end: {part:.80}"));
        let names = told.entry(export.to_owned()).or_default();
        names.insert(found.to_owned());
    }
    told
}

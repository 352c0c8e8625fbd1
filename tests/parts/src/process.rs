//! Looks at processes of this machine, as an outsider who wants to know what a command left or showed.

use std::collections::HashSet;

/// A running process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    /// Its id.
    pub pid: u32,
    /// Its parent's.
    pub parent: u32,
    /// Its short name.
    pub name: String,
    /// Its arguments, separated by spaces.
    pub arguments: String,
}

fn read(pid: u32) -> Option<Process> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (before, after) = (stat.find('(')?, stat.rfind(')')?);
    let mut fields = stat.get(after + 2..)?.split(' ');
    if fields.next()? == "Z" {
        return None;
    }
    let parent = fields.next()?.parse().ok()?;
    let arguments = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    Some(Process {
        pid,
        parent,
        name: stat.get(before + 1..after)?.to_owned(),
        arguments: String::from_utf8_lossy(&arguments)
            .trim_end_matches('\0')
            .replace('\0', " "),
    })
}

/// Every living process that descends from `root`, without it.
pub fn processes_below(root: u32) -> Vec<Process> {
    let mut all: Vec<Process> = Vec::new();
    for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        let pid = entry.file_name().to_str().and_then(|n| n.parse().ok());
        all.extend(pid.and_then(read));
    }
    let mut below = HashSet::from([root]);
    loop {
        let more: Vec<u32> = all
            .iter()
            .filter(|p| below.contains(&p.parent) && !below.contains(&p.pid))
            .map(|p| p.pid)
            .collect();
        if more.is_empty() {
            break;
        }
        below.extend(more);
    }
    below.remove(&root);
    all.retain(|p| below.contains(&p.pid));
    all
}

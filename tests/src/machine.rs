//! A machine to lease, and looks at what really is on it.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use leasehold_parts::{Options, Sshd, skipped};
use serde_json::{Value, json};

use crate::http::text;
use crate::server::Server;

/// The throw-away machine.
#[derive(Debug)]
pub struct Machine {
    /// Its sshd.
    pub sshd: Sshd,
}

impl Machine {
    /// One that answers; none where there is no sshd.
    ///
    /// # Panics
    /// When sshd does not come up.
    pub fn start() -> Option<Machine> {
        if !Sshd::available() {
            skipped("openssh-server");
            return None;
        }
        let sshd = Sshd::start(&Options::default()).expect("sshd starts");
        Some(Machine { sshd })
    }

    /// A directory that the account may use.
    ///
    /// # Panics
    /// When it cannot be made.
    pub fn directory(&self, name: &str) -> PathBuf {
        self.sshd
            .directory(&self.sshd.worker().name, name)
            .expect("a directory")
    }

    /// The target as it is typed, reached at this port.
    pub fn target(&self, key: &Value, port: u16) -> Value {
        json!({
            "host": "127.0.0.1",
            "port": port,
            "username": self.sshd.worker().name,
            "privateKey": key,
            "hostKeys": { "fingerprints": self.sshd.fingerprints() },
        })
    }

    /// Installs the provider, stores the key and makes an environment below `parent`, reached at `port`. Answers its id.
    #[track_caller]
    pub fn environment(&self, server: &Server, parent: &Path, port: u16) -> String {
        server.install("ssh").expect(201);
        let key = server.secret("key", &self.sshd.key().private);
        let made = server.environment(&json!({
            "name": "box",
            "driver": "ssh",
            "provider": "ssh",
            "config": {
                "target": self.target(&key, port),
                "remoteWorkspacePath": parent,
            },
            "envVars": { "BOX": parent },
        }));
        text(&made.expect(201)["id"])
    }
}

/// Names of what stands in a directory.
///
/// # Panics
/// When it cannot be read.
pub fn listed(directory: &Path) -> BTreeSet<String> {
    let entries = std::fs::read_dir(directory).expect("the directory is there");
    entries
        .map(|entry| {
            entry
                .expect("an entry")
                .file_name()
                .to_string_lossy()
                .into_owned()
        })
        .collect()
}

/// Processes of this machine that carry a lease's mark and were started in an environment below `parent`: their
/// arguments.
pub fn marked(parent: &Path) -> Vec<String> {
    let own = format!("BOX={}", parent.display());
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Ok(environment) = std::fs::read(entry.path().join("environ")) else {
            continue;
        };
        let variables: Vec<&[u8]> = environment.split(|byte| *byte == 0).collect();
        let lease = variables
            .iter()
            .any(|variable| variable.starts_with(b"LEASEHOLD_LEASE="));
        if lease && variables.contains(&own.as_bytes()) {
            let arguments = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
            found.push(String::from_utf8_lossy(&arguments).replace('\0', " "));
        }
    }
    found
}

/// Checks that `parent` holds exactly the workspaces of the server's active leases, each with its marker.
///
/// # Panics
/// When something else is there, or something is missing.
#[track_caller]
pub fn only_known_workspaces(server: &Server, parent: &Path) {
    let active: BTreeSet<String> = server
        .leases()
        .iter()
        .filter(|lease| lease["status"] == "active")
        .map(|lease| text(&lease["acquisition"]))
        .collect();
    assert_eq!(
        listed(parent),
        active,
        "left: on the target, right: known as active"
    );
    for name in &active {
        assert!(
            parent.join(name).join(".leasehold/owner").is_file(),
            "{name} has no marker"
        );
    }
}

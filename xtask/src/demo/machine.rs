//! The machine that the demo leases: a throw-away sshd on loopback, with an account of its own.
//!
//! It is gone when this value is dropped, with every process that came of it.

use std::fs;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use leasehold_parts::{Kind, Options, Sshd};

/// A machine that answers.
pub struct Machine {
    sshd: Sshd,
    key: PathBuf,
    user: String,
    fingerprint: String,
    workspace: String,
}

impl Machine {
    /// Starts it; the private key that its account accepts is put into `folder`.
    pub fn start(folder: &Path) -> Result<Machine> {
        let sshd = Sshd::start(&Options {
            host_keys: vec![Kind::Ed25519],
            ..Options::default()
        })?;
        let key = folder.join("build-key");
        fs::OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&key)
            .and_then(|mut file| file.write_all(sshd.key().private.as_bytes()))
            .context("the key cannot be written")?;
        let user = sshd.worker().name.clone();
        let workspace = sshd.directory(&user, "leases")?;
        let workspace = workspace
            .to_str()
            .context("the workspace's path is not UTF-8")?
            .to_owned();
        let fingerprint = sshd
            .fingerprints()
            .into_iter()
            .next()
            .context("the machine has no host key")?;
        println!(
            "\nA throw-away machine: sshd on 127.0.0.1:{}, account {user}.",
            sshd.port()
        );
        Ok(Machine {
            sshd,
            key,
            user,
            fingerprint,
            workspace,
        })
    }

    /// Its address.
    pub fn host(&self) -> &'static str {
        "127.0.0.1"
    }

    /// Its port.
    pub fn port(&self) -> u16 {
        self.sshd.port()
    }

    /// The account there.
    pub fn user(&self) -> &str {
        &self.user
    }

    /// The file with the private key that the account accepts.
    pub fn key(&self) -> &Path {
        &self.key
    }

    /// The fingerprint of its only host key.
    pub fn fingerprint(&self) -> &str {
        &self.fingerprint
    }

    /// A directory that belongs to the account, for the workspaces.
    pub fn workspace(&self) -> &str {
        &self.workspace
    }
}

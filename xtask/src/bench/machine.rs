//! The machine that is leased, and the way there by OpenSSH's own client: what the product is held against.

use std::fs;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use leasehold_parts::{Kind, Options, Sshd};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::Bench;
use super::http::text;
use super::server::Server;

/// The cipher that both sides use: the first that the product offers.
const CIPHER: &str = "aes256-gcm@openssh.com";

/// A throw-away sshd, and what `ssh` needs to reach it.
pub struct Machine {
    sshd: Sshd,
    folder: TempDir,
    workspaces: PathBuf,
}

impl Machine {
    /// One that answers.
    pub fn start() -> Result<Machine> {
        let sshd = Sshd::start(&Options {
            host_keys: vec![Kind::Ed25519],
            ..Options::default()
        })?;
        let folder = tempfile::Builder::new()
            .prefix("leasehold-ssh-")
            .tempdir()?;
        fs::OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(folder.path().join("key"))
            .and_then(|mut file| file.write_all(sshd.key().private.as_bytes()))?;
        fs::write(folder.path().join("known_hosts"), sshd.known_hosts())?;
        let workspaces = sshd.directory(&sshd.worker().name, "leases")?;
        Ok(Machine {
            sshd,
            folder,
            workspaces,
        })
    }

    /// `ssh`, about to run a command there over a connection of its own.
    pub fn ssh(&self, options: &[&str], command: &[&str]) -> Command {
        let mut ssh = Command::new("ssh");
        let folder = self.folder.path().display();
        ssh.args([
            "-F",
            "none",
            "-T",
            "-c",
            CIPHER,
            "-o",
            "IdentitiesOnly=yes",
            "-o",
            "BatchMode=yes",
        ])
        .arg("-i")
        .arg(self.folder.path().join("key"))
        .args(["-o", &format!("UserKnownHostsFile={folder}/known_hosts")])
        .args([
            "-o",
            "StrictHostKeyChecking=yes",
            "-p",
            &self.sshd.port().to_string(),
        ])
        .args(options)
        .arg(format!("{}@127.0.0.1", self.sshd.worker().name))
        .args(command)
        .stdin(Stdio::null());
        ssh
    }

    /// A connection that `ssh` keeps for others to use.
    pub fn multiplexed(&self) -> Result<Multiplexed<'_>> {
        let path = format!("ControlPath={}/mux", self.folder.path().display());
        let started = self.ssh(
            &[
                "-o",
                &path,
                "-o",
                "ControlMaster=yes",
                "-o",
                "ControlPersist=yes",
            ],
            &["true"],
        );
        let shared = Multiplexed {
            machine: self,
            path,
        };
        succeed(started)?;
        Ok(shared)
    }

    /// Where the workspaces are.
    pub fn workspaces(&self) -> &str {
        // The test's own temporary directory, whose name we chose.
        self.workspaces.to_str().unwrap_or_default()
    }

    /// Installs the provider in a server and describes this machine to it: the environment's id.
    pub fn environment(&self, bench: &Bench, server: &Server) -> Result<String> {
        server.install(&bench.component("ssh")?)?;
        let company = server.company()?;
        let key = server.secret(&company, "key", &self.sshd.key().private)?;
        server.environment(&company, &self.draft("machine", &key))
    }

    /// An environment of this machine.
    pub fn draft(&self, name: &str, key: &Value) -> Value {
        json!({
            "name": name,
            "driver": "ssh",
            "provider": "ssh",
            "config": {
                "target": {
                    "host": "127.0.0.1",
                    "port": self.sshd.port(),
                    "username": self.sshd.worker().name,
                    "privateKey": key,
                    "hostKeys": { "fingerprints": self.sshd.fingerprints() },
                },
                "remoteWorkspacePath": self.workspaces(),
            },
        })
    }

    /// The account's private key.
    pub fn key(&self) -> &str {
        &self.sshd.key().private
    }

    /// Takes a lease: its id.
    pub fn lease(&self, bench: &Bench, server: &Server) -> Result<String> {
        let environment = self.environment(bench, server)?;
        let made = server.client()?.call(
            "POST",
            &format!("/api/environments/{environment}/leases"),
            &json!({}),
        )?;
        text(&made["id"])
    }
}

/// A connection that is kept; it ends with this value.
pub struct Multiplexed<'a> {
    machine: &'a Machine,
    path: String,
}

impl Multiplexed<'_> {
    /// `ssh`, about to run a command over it.
    pub fn ssh(&self, command: &[&str]) -> Command {
        self.machine
            .ssh(&["-o", &self.path, "-o", "ControlMaster=no"], command)
    }
}

impl Drop for Multiplexed<'_> {
    fn drop(&mut self) {
        // Gone already where the machine is.
        let _ = self
            .machine
            .ssh(&["-o", &self.path, "-O", "exit"], &[])
            .output();
    }
}

/// Runs a command that must succeed.
pub fn succeed(mut command: Command) -> Result<Vec<u8>> {
    let output = command.output().context("ssh does not run")?;
    if !output.status.success() {
        bail!(
            "ssh failed ({}): {}",
            output.status,
            String::from_utf8_lossy(&output.stderr)
        );
    }
    Ok(output.stdout)
}

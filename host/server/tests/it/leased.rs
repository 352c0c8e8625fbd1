//! A lease on a real target: a throw-away sshd, leased through the SSH component.

use std::path::PathBuf;
use std::process::Command;

use leasehold_parts::{Options, Sshd, skipped};
use serde_json::Value;

use crate::server::Server;

/// A server, a target, an environment on it and a lease.
pub struct Leased {
    pub server: Server,
    pub company: String,
    pub environment: String,
    pub lease: String,
    pub sshd: Sshd,
}

pub fn component(name: &str) -> Option<PathBuf> {
    let folder = std::env::var_os("LEASEHOLD_COMPONENTS").map_or_else(
        || {
            let test = std::env::current_exe().unwrap();
            test.ancestors().nth(3).unwrap().join("components")
        },
        PathBuf::from,
    );
    let file = folder.join(format!("{name}.wasm"));
    file.is_file().then_some(file)
}

impl Leased {
    pub fn new() -> Option<Leased> {
        Leased::start_with(&[])
    }

    /// The same of a server with these flags.
    pub fn start_with(args: &[&str]) -> Option<Leased> {
        let Some(component) = component("ssh") else {
            skipped("`cargo xtask components`");
            return None;
        };
        if !Sshd::available() {
            skipped("openssh-server");
            return None;
        }
        let sshd = Sshd::start(&Options::default()).unwrap();
        let account = sshd.worker().name.clone();
        let place = sshd.directory(&account, "leases").unwrap();
        let server = Server::start_with(args);
        let run = |args: &[&str]| {
            let out = server.home.leasehold().args(args).output().unwrap();
            assert!(
                out.status.success(),
                "{args:?}: {}",
                String::from_utf8_lossy(&out.stderr)
            );
        };
        run(&["plugin", "install", "--yes", component.to_str().unwrap()]);
        let company = server.company("acme");
        let key = server.home.path().join("key");
        std::fs::write(&key, &sshd.key().private).unwrap();
        run(&["secret", "set", "key", "--file", key.to_str().unwrap()]);
        let port = sshd.port().to_string();
        let mut create = vec![
            "env",
            "create",
            "--name",
            "box",
            "--host",
            "127.0.0.1",
            "--port",
            &port,
        ];
        create.extend([
            "--user",
            &account,
            "--key",
            "key",
            "--workspace",
            place.to_str().unwrap(),
        ]);
        let prints = sshd.fingerprints();
        create.extend(prints.iter().flat_map(|print| ["--fingerprint", print]));
        create.extend(["--var", "PLAIN=one", "--secret-var", "SECRET=key"]);
        run(&create);
        let listed = server
            .operator("GET", &format!("/api/companies/{company}/environments"), "")
            .json();
        let environment = listed[0]["id"].as_str().unwrap().to_owned();
        let made = server.operator(
            "POST",
            &format!("/api/environments/{environment}/leases"),
            "",
        );
        assert_eq!(made.status, 201, "{}", made.body);
        let made = made.json();
        assert_eq!(
            (made["status"].as_str(), made["proof"].as_str()),
            (Some("active"), Some("owned"))
        );
        Some(Leased {
            lease: made["id"].as_str().unwrap().to_owned(),
            server,
            company,
            environment,
            sshd,
        })
    }

    pub fn path(&self, what: &str) -> String {
        format!("/api/environment-leases/{}{what}", self.lease)
    }

    pub fn execution(&self, id: &str) -> Value {
        self.server
            .operator("GET", &format!("/api/executions/{id}"), "")
            .json()
    }

    pub fn exec(&self, args: &[&str]) -> Command {
        let mut command = self.server.home.leasehold();
        command.arg("exec").args(args);
        command
    }
}

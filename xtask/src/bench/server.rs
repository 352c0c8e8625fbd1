//! The server that is measured: the program as it is installed, in a folder of its own, on loopback.
//!
//! It is ended with this value, whatever happens. Its folder outlives the process, so that it can be started again.

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::Bench;
use super::http::{Client, text};

/// How long a start may take: only a fault reaches it.
const READY: Duration = Duration::from_secs(120);
/// Between two questions whether it is ready: what a start is measured to.
const ASK: Duration = Duration::from_micros(500);

/// A server and its folder.
pub struct Server {
    folder: TempDir,
    program: PathBuf,
    child: Option<Child>,
    port: u16,
}

impl Server {
    /// A new one, ready, with nothing in it.
    pub fn start(bench: &Bench) -> Result<Server> {
        // Not below the target directory: the path of a Unix socket may have 107 bytes and no more.
        let folder = tempfile::Builder::new()
            .prefix("leasehold-bench-")
            .tempdir()?;
        fs::write(folder.path().join("leasehold.toml"), "")?;
        let mut server = Server {
            folder,
            program: bench.program.clone(),
            child: None,
            port: 0,
        };
        server.again()?;
        Ok(server)
    }

    /// Starts the process; how long until it was ready.
    pub fn again(&mut self) -> Result<Duration> {
        self.kill();
        let log = File::options()
            .create(true)
            .append(true)
            .open(self.path("log"))?;
        let mut command = Command::new(&self.program);
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("LEASEHOLD_") {
                command.env_remove(&name);
            }
        }
        command
            .arg("serve")
            .env("LEASEHOLD_DATA_DIR", self.path("data"))
            .env("LEASEHOLD_SOCKET", self.path("sock"))
            .env("LEASEHOLD_MASTER_KEY", self.path("master.key"))
            .env("LEASEHOLD_CONFIG", self.path("leasehold.toml"))
            .env("LEASEHOLD_LISTEN", "127.0.0.1:0")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log);
        let begun = Instant::now();
        let child = command
            .spawn()
            .with_context(|| format!("{} does not run", self.program.display()))?;
        self.child = Some(child);
        self.wait_ready(begun)
    }

    fn wait_ready(&mut self, begun: Instant) -> Result<Duration> {
        loop {
            if let Some(port) = self.ready_at() {
                let took = begun.elapsed();
                self.port = port;
                return Ok(took);
            }
            let ended = self
                .child
                .as_mut()
                .and_then(|child| child.try_wait().ok().flatten());
            if let Some(ended) = ended {
                bail!("the server ended ({ended}):\n{}", self.log());
            }
            if begun.elapsed() > READY {
                bail!("the server is not ready after {READY:?}:\n{}", self.log());
            }
            thread::sleep(ASK);
        }
    }

    /// The port, once it is ready.
    fn ready_at(&self) -> Option<u16> {
        let mut client = Client::unix(&self.path("sock")).ok()?;
        let said = client.call("GET", "/readyz", &Value::Null).ok()?;
        said["listen"].as_str()?.rsplit_once(':')?.1.parse().ok()
    }

    /// `kill -9`.
    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            // Ended already, perhaps.
            let _ = child.kill();
            let _ = child.wait();
            let _ = fs::remove_file(self.path("sock"));
        }
    }

    fn log(&self) -> String {
        fs::read_to_string(self.path("log")).unwrap_or_default()
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// A connection as the operator.
    pub fn client(&self) -> Result<Client> {
        Client::unix(&self.path("sock"))
    }

    /// A connection over TCP with a token.
    pub fn tcp(&self, token: &str) -> Result<Client> {
        Client::tcp(self.port, token)
    }

    /// Removes what was compiled ahead of time.
    pub fn forget_compiled(&self) -> Result<()> {
        let compiled = self.path("data/compiled");
        for entry in fs::read_dir(&compiled)
            .with_context(|| format!("{} is not there", compiled.display()))?
        {
            fs::remove_file(entry?.path())?;
        }
        Ok(())
    }

    /// Installs a component with what it asks for; answers its key.
    pub fn install(&self, component: &[u8]) -> Result<String> {
        let mut client = self.client()?;
        let offer = client.send(
            "POST",
            "/api/plugins/inspect",
            "application/wasm",
            component,
        )?;
        let grant = text(&offer["requestDigest"])?;
        client.send(
            "POST",
            &format!("/api/plugins?grant={grant}"),
            "application/wasm",
            component,
        )?;
        text(&offer["key"])
    }

    /// Makes a company; answers its id.
    pub fn company(&self) -> Result<String> {
        let made = self
            .client()?
            .call("POST", "/api/companies", &json!({ "name": "bench" }))?;
        text(&made["id"])
    }

    /// Stores a secret; answers a reference to it.
    pub fn secret(&self, company: &str, name: &str, value: &str) -> Result<Value> {
        let path = format!("/api/companies/{company}/secrets");
        let made = self
            .client()?
            .call("POST", &path, &json!({ "name": name, "value": value }))?;
        Ok(json!({ "type": "secret_ref", "secretId": made["id"], "version": "latest" }))
    }

    /// Saves an environment; answers its id.
    pub fn environment(&self, company: &str, draft: &Value) -> Result<String> {
        let path = format!("/api/companies/{company}/environments");
        text(&self.client()?.call("POST", &path, draft)?["id"])
    }

    /// Makes a bearer token of an administrator.
    pub fn token(&self) -> Result<String> {
        let made = self.client()?.call(
            "POST",
            "/api/tokens",
            &json!({ "name": "bench", "role": "admin" }),
        )?;
        text(&made["secret"])
    }

    fn status(&self, field: &str) -> Result<f64> {
        let pid = self.child.as_ref().context("the server does not run")?.id();
        memory_of(pid, field)
    }

    /// What it has in memory, in MiB.
    pub fn resident(&self) -> Result<f64> {
        self.status("VmRSS:")
    }

    /// The most that it had in memory since [`Server::forget_peak`], in MiB.
    pub fn peak(&self) -> Result<f64> {
        self.status("VmHWM:")
    }

    /// Counts the peak from here.
    pub fn forget_peak(&self) -> Result<()> {
        let pid = self.child.as_ref().context("the server does not run")?.id();
        fs::write(format!("/proc/{pid}/clear_refs"), "5").context("the peak cannot be reset")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A field of a process's status, in MiB.
pub fn memory_of(pid: u32, field: &str) -> Result<f64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let kib = status
        .lines()
        .find_map(|line| line.strip_prefix(field))
        .and_then(|rest| rest.split_whitespace().next())
        .and_then(|number| number.parse::<f64>().ok());
    Ok(kib.with_context(|| format!("no {field} of process {pid}"))? / 1024.0)
}

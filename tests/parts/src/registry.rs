//! Docker's registry on a free port of 127.0.0.1, with a folder of its own.

use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use tempfile::TempDir;

/// What to start, beyond a registry that lets everybody in over plain HTTP.
#[derive(Clone, Debug, Default)]
pub struct RegistryOptions {
    /// Only [`Registry::USERNAME`] with [`Registry::PASSWORD`] is let in.
    pub account: bool,
    /// A certificate and its key, in PEM: it speaks TLS.
    pub tls: Option<(String, String)>,
}

/// A running registry; dropping it ends it.
#[derive(Debug)]
pub struct Registry {
    child: Child,
    dir: TempDir,
    port: u16,
}

/// The account's line, whose hash is bcrypt of [`Registry::PASSWORD`].
const HTPASSWD: &str = "ci:$2y$05$abcdefghijklmnopqrstuuTvmw3qcMpAvEgQGhbFMhqjD3R/evDDW\n";

impl Registry {
    /// Who is let in where somebody is.
    pub const USERNAME: &str = "ci";
    /// Its password.
    pub const PASSWORD: &str = "canary-password";

    /// Whether one can be started here.
    pub fn available() -> bool {
        crate::has("docker-registry")
    }

    /// Starts one and waits until it answers.
    ///
    /// # Errors
    /// When it is missing or does not come up; its log is in the text.
    pub fn start(options: &RegistryOptions) -> Result<Registry> {
        let program = crate::find("docker-registry")
            .context("there is no docker-registry; install the package of this name")?;
        let mut last = None;
        // The port is free when it is asked for and may not be when it is used.
        for _ in 0..5 {
            match Registry::try_start(options, &program) {
                Ok(registry) => return Ok(registry),
                Err(e) => last = Some(e),
            }
        }
        Err(last.unwrap_or_else(|| anyhow::anyhow!("the registry did not start")))
    }

    fn try_start(options: &RegistryOptions, program: &Path) -> Result<Registry> {
        let dir = tempfile::Builder::new()
            .prefix("leasehold-registry-")
            .tempdir()?;
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let at = |name: &str| dir.path().join(name);
        let mut config = format!(
            "version: 0.1\nlog:\n  level: warn\nstorage:\n  filesystem:\n    rootdirectory: {}\n\
             http:\n  addr: 127.0.0.1:{port}\n",
            at("blobs").display()
        );
        if let Some((certificate, key)) = &options.tls {
            std::fs::write(at("tls.pem"), certificate)?;
            std::fs::write(at("tls.key"), key)?;
            config.push_str(&format!(
                "  tls:\n    certificate: {}\n    key: {}\n",
                at("tls.pem").display(),
                at("tls.key").display()
            ));
        }
        if options.account {
            std::fs::write(at("htpasswd"), HTPASSWD)?;
            config.push_str(&format!(
                "auth:\n  htpasswd:\n    realm: a throw-away registry\n    path: {}\n",
                at("htpasswd").display()
            ));
        }
        std::fs::write(at("config.yml"), config)?;
        let log = std::fs::File::create(at("log"))?;
        let child = Command::new(program)
            .arg("serve")
            .arg(at("config.yml"))
            .env_clear()
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .context("the registry cannot be spawned")?;
        let mut registry = Registry { child, dir, port };
        registry.wait()?;
        Ok(registry)
    }

    fn wait(&mut self) -> Result<()> {
        let deadline = Instant::now() + Duration::from_secs(30);
        while TcpStream::connect(("127.0.0.1", self.port)).is_err() {
            if let Some(status) = self.child.try_wait()? {
                bail!("the registry ended with {status}: {}", self.log());
            }
            if Instant::now() > deadline {
                bail!("the registry does not answer: {}", self.log());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    /// Host and port, as references name it.
    pub fn authority(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// What it logged.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.dir.path().join("log")).unwrap_or_default()
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

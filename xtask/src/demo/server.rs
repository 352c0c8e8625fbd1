//! The server of the demo: the real one, on loopback, with its data in a folder of its own.
//!
//! It is started with everything said by variables, so that the reader can reach it with the same ones. It
//! ends with this value, whatever happens.

use std::fs::{self, File};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::shell;

/// How long the server may take to be ready.
const READY: Duration = Duration::from_secs(30);

/// A server that runs.
pub struct Server {
    child: Child,
    program: PathBuf,
    variables: Vec<(&'static str, String)>,
    log: PathBuf,
}

impl Server {
    /// Starts it in `folder` and waits until it answers.
    pub fn start(program: &Path, folder: &Path) -> Result<Server> {
        let said = |name: &str| -> Result<String> {
            let path = folder.join(name);
            Ok(path
                .to_str()
                .context("the demo's folder is not UTF-8")?
                .to_owned())
        };
        let variables = vec![
            ("LEASEHOLD_DATA_DIR", said("data")?),
            ("LEASEHOLD_SOCKET", said("leasehold.sock")?),
            ("LEASEHOLD_MASTER_KEY", said("master.key")?),
            ("LEASEHOLD_CONFIG", said("leasehold.toml")?),
            ("LEASEHOLD_LISTEN", format!("127.0.0.1:{}", free_port()?)),
        ];
        fs::write(folder.join("leasehold.toml"), "")
            .context("the demo's folder cannot be written to")?;
        let log = folder.join("server.log");
        let mut command = with_variables(program, &variables);
        command
            .arg("serve")
            .stdin(std::process::Stdio::null())
            .stdout(File::create(&log)?)
            .stderr(File::options().append(true).open(&log)?);
        let child = command
            .spawn()
            .with_context(|| format!("{} does not run", program.display()))?;
        let mut server = Server {
            child,
            program: program.to_owned(),
            variables,
            log,
        };
        println!("\nA server with nothing in it yet:\n$ leasehold serve &");
        server.ready()?;
        Ok(server)
    }

    fn ready(&mut self) -> Result<()> {
        let until = Instant::now() + READY;
        loop {
            if let Some(ended) = self.child.try_wait()? {
                bail!("the server ended at once ({ended}):\n{}", self.told());
            }
            let asked = self.client(&["company", "list", "--json"]).output()?;
            if asked.status.success() {
                return Ok(());
            }
            if Instant::now() > until {
                bail!(
                    "the server did not answer within {READY:?}: {}\n{}",
                    String::from_utf8_lossy(&asked.stderr),
                    self.told()
                );
            }
            thread::sleep(Duration::from_millis(50));
        }
    }

    fn told(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// The client, about to ask this server.
    pub fn client(&self, args: &[&str]) -> Command {
        let mut command = with_variables(&self.program, &self.variables);
        command.args(args);
        command
    }

    /// What a shell needs to reach it.
    pub fn environment(&self) -> String {
        let mut lines: Vec<String> = self
            .variables
            .iter()
            .map(|(name, value)| format!("  export {name}={value}"))
            .collect();
        lines.push(format!("  alias leasehold={}", self.program.display()));
        lines.join("\n")
    }

    /// Where it logs.
    pub fn log(&self) -> &Path {
        &self.log
    }

    /// Ends it in order.
    pub fn stop(&mut self) -> Result<()> {
        let pid = self.child.id().to_string();
        shell::command("kill", ["-TERM", &pid])
            .status()
            .context("kill does not run")?;
        let ended = self.child.wait()?;
        if !ended.success() {
            bail!("the server did not end well ({ended}):\n{}", self.told());
        }
        Ok(())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Ended already where all went well.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The program, with these variables in place of any that the caller has of the same kind.
fn with_variables(program: &Path, variables: &[(&'static str, String)]) -> Command {
    let mut command = Command::new(program);
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("LEASEHOLD_") {
            command.env_remove(&name);
        }
    }
    command.envs(variables.iter().map(|(name, value)| (name, value)));
    command
}

/// A port that is free now.
fn free_port() -> Result<u16> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).context("no port is free on loopback")?;
    Ok(listener.local_addr()?.port())
}

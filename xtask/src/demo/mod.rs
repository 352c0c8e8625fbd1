//! `cargo xtask demo`: the main job, walked in front of the reader.
//!
//! It sets up, builds, starts a server on loopback in a folder of its own and a throw-away machine to lease,
//! and then does what a person would do, by the same command: install a provider, put in a key, describe an
//! environment, probe it, lease it, run commands in it, release it. Every command is shown before it runs,
//! and any that does not do what it should ends the demo. Nothing outside the folder and the target
//! directory is changed.

mod machine;
mod server;

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::checkout::Checkout;
use crate::setup::{self, Purpose};
use crate::{components, shell};
use machine::Machine;
use server::Server;

/// How the demo goes.
#[derive(clap::Args)]
pub struct Arguments {
    /// End after the walk, instead of serving on until Ctrl-C
    #[arg(long)]
    once: bool,
}

/// Shows it.
pub fn run(checkout: &Checkout, arguments: &Arguments) -> Result<()> {
    setup::run(checkout, Purpose::Demo)?;
    components::run(checkout, &components::Arguments::only(&["ssh"]))?;
    // With the features that the whole workspace has of what it stands on: the tests' build is then the same.
    shell::run(
        shell::cargo(["build", "--locked", "--workspace", "--bin", "leasehold"])
            .current_dir(&checkout.root)
            .arg("--target-dir")
            .arg(&checkout.target),
    )?;

    // Not below the target directory: the path of a Unix socket may have 107 bytes and no more.
    let folder = tempfile::Builder::new()
        .prefix("leasehold-demo-")
        .tempdir()
        .context("no folder can be made for the demo")?;
    let machine = Machine::start(folder.path())?;
    let mut server = Server::start(&checkout.target.join("debug/leasehold"), folder.path())?;

    walk(&server, &machine, &checkout.components().join("ssh.wasm"))?;

    if arguments.once {
        server.stop()?;
        println!("\nAll of it worked.");
        return Ok(());
    }
    println!(
        "\nAll of it worked. The server goes on until Ctrl-C; in another terminal:\n\n{}\n\n\
         and then `leasehold lease acquire 'build box'`, or over HTTP:\n\n  \
         curl --unix-socket \"$LEASEHOLD_SOCKET\" http://localhost/api/companies\n\n\
         Its log is {}.",
        server.environment(),
        server.log().display(),
    );
    until_interrupted()?;
    // A terminal's Ctrl-C has reached the server too; one that only this task was sent has not.
    let _ = server.stop();
    println!("\nEnded: server, machine and folder are gone.");
    Ok(())
}

/// Returns at Ctrl-C, so that what was started is ended by this task and not left behind.
fn until_interrupted() -> Result<()> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?
        .block_on(tokio::signal::ctrl_c())
        .context("Ctrl-C cannot be caught")
}

/// The main job, step by step.
fn walk(server: &Server, machine: &Machine, component: &Path) -> Result<()> {
    let demo = Walk { server };
    let component = component
        .to_str()
        .context("the component's path is not UTF-8")?;
    let key = machine
        .key()
        .to_str()
        .context("the key's path is not UTF-8")?;
    let port = machine.port().to_string();

    demo.tell("A company owns everything else.");
    demo.run(&["company", "create", "demo"])?;

    demo.tell("A provider is a WebAssembly component. What it asks for is shown, and installing grants exactly that.");
    demo.run(&["plugin", "install", component, "--yes"])?;

    demo.tell("The machine's private key goes into the server and never into the component.");
    demo.run(&["secret", "set", "build-key", "--file", key])?;

    demo.tell("The host key that the machine shows; it is trusted because it is the one that was made for it.");
    let shown = demo.run(&["env", "host-key", machine.host(), "--port", &port])?;
    ensure!(
        shown.contains(machine.fingerprint()),
        "the machine was made with the host key {} and shows another",
        machine.fingerprint()
    );

    demo.tell("An environment is a machine, an account on it, and whom to trust.");
    demo.run(&[
        "env",
        "create",
        "--name",
        "build box",
        "--driver",
        "ssh",
        "--host",
        machine.host(),
        "--port",
        &port,
        "--user",
        machine.user(),
        "--key",
        "build-key",
        "--fingerprint",
        machine.fingerprint(),
        "--workspace",
        machine.workspace(),
    ])?;

    demo.tell("A probe looks at it over a fresh connection and changes nothing.");
    demo.run(&["probe", "build box"])?;

    demo.tell("A lease is a directory of its own there, for a time.");
    demo.run(&["lease", "acquire", "build box", "--ttl", "10m"])?;
    let lease = demo.only_lease()?;

    demo.tell("A command in it, with its output as it comes.");
    let said = demo.run(&[
        "exec", &lease, "--", "sh", "-c",
        "for n in 1 2 3; do echo \"$n: $(id -un) in $PWD\"; sleep 0.3; done; echo 'and this on stderr' >&2",
    ])?;
    ensure!(said.lines().count() == 3, "three lines were expected");

    demo.tell("Its input is yours, and its exit code is passed on.");
    let said = demo.piped(
        "a file from here\n",
        &["exec", &lease, "--", "sh", "-c", "cat >note && wc -c <note"],
    )?;
    ensure!(said.trim() == "17", "17 bytes were sent");
    let code = demo.code(&["exec", "-n", &lease, "--", "sh", "-c", "exit 7"])?;
    ensure!(code == 7, "the command's exit code is 7");

    demo.tell("What ran is written down, before it ran.");
    demo.run(&["lease", "executions", &lease])?;

    demo.tell("Release ends every process of the lease and removes its directory; the server looks for itself, over a fresh connection, that nothing is left.");
    let left = demo.run(&["lease", "release", &lease])?;
    ensure!(left.contains("released"), "the release is confirmed");
    let gone = std::fs::read_dir(machine.workspace())
        .map(|mut entries| entries.next().is_none())
        .unwrap_or(false);
    ensure!(gone, "{} is empty", machine.workspace());
    Ok(())
}

/// The reader's view of the walk.
struct Walk<'a> {
    server: &'a Server,
}

impl Walk<'_> {
    fn tell(&self, text: &str) {
        println!("\n{text}");
    }

    /// Shows a command, runs it with its output as it comes, and answers what it said on standard output.
    fn run(&self, args: &[&str]) -> Result<String> {
        self.piped("", args)
    }

    /// As [`Walk::run`], with an input.
    fn piped(&self, input: &str, args: &[&str]) -> Result<String> {
        let (code, said) = self.ended(input, args)?;
        ensure!(code == 0, "the command ended with {code}");
        Ok(said)
    }

    /// Shows a command, runs it, and answers and shows its exit code.
    fn code(&self, args: &[&str]) -> Result<i32> {
        let (code, _) = self.ended("", args)?;
        println!("$ echo $?\n{code}");
        Ok(code)
    }

    fn ended(&self, input: &str, args: &[&str]) -> Result<(i32, String)> {
        use std::io::{BufRead, BufReader, Write};
        let mut command = self.server.client(args);
        let shown = shell::spelled(&with_name("leasehold", args));
        match input {
            "" => println!("$ {shown}"),
            input => println!("$ echo '{}' | {shown}", input.trim_end()),
        }
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("leasehold does not run")?;
        if let Some(mut stdin) = child.stdin.take() {
            // A command that does not read is not at fault.
            let _ = stdin.write_all(input.as_bytes());
        }
        let mut said = String::new();
        if let Some(stdout) = child.stdout.take() {
            for line in BufReader::new(stdout).lines() {
                let line = line.context("its output is not UTF-8")?;
                println!("{line}");
                said.push_str(&line);
                said.push('\n');
            }
        }
        let ended = child.wait()?;
        Ok((ended.code().unwrap_or(-1), said))
    }

    /// The id of the one lease that there is.
    fn only_lease(&self) -> Result<String> {
        let output = self
            .server
            .client(&["lease", "list", "--status", "active", "--json"])
            .output()
            .context("leasehold does not run")?;
        let leases: Value =
            serde_json::from_slice(&output.stdout).context("the list of leases does not read")?;
        leases[0]["id"]
            .as_str()
            .map(str::to_owned)
            .context("there is no lease")
    }
}

/// A command as the reader would type it.
fn with_name(name: &str, args: &[&str]) -> Command {
    shell::command(name, args)
}

//! What a plugin is elsewhere: a Node child that is called by JSON-RPC over its standard input and output.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use super::server::memory_of;

/// Answers every line with a small result, as the fastest child would.
const WORKER: &str = "require('readline').createInterface({ input: process.stdin }).on('line', line => {\
    const call = JSON.parse(line);\
    process.stdout.write(JSON.stringify({ jsonrpc: '2.0', id: call.id,\
        result: { reference: String(call.id), argv: call.params.argv } }) + '\\n') })";

/// A worker that waits for calls; it ends with this value.
pub struct Worker {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    calls: u64,
}

impl Worker {
    /// One that has answered; none where there is no Node.
    pub fn start() -> Result<Option<Worker>> {
        if !leasehold_parts::has("node") {
            return Ok(None);
        }
        let mut child = Command::new("node")
            .args(["-e", WORKER])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("node does not run")?;
        let input = child.stdin.take().context("node has no input")?;
        let output = BufReader::new(child.stdout.take().context("node has no output")?);
        let mut worker = Worker {
            child,
            input,
            output,
            calls: 0,
        };
        worker.call()?;
        Ok(Some(worker))
    }

    /// One call: how long it took, in microseconds. Writing and reading the JSON is part of it, as it is of any such call.
    pub fn call(&mut self) -> Result<f64> {
        self.calls += 1;
        let begun = Instant::now();
        let call = json!({
            "jsonrpc": "2.0", "id": self.calls, "method": "start",
            "params": {
                "call": { "company": "company", "lease": { "id": "lease-1", "acquisition": "a-1", "epoch": 1 } },
                "config": {}, "handle": {}, "argv": ["uname", "-a"], "env": { "A": "b" }, "cwd": "/w",
            },
        });
        let mut line = call.to_string();
        line.push('\n');
        self.input.write_all(line.as_bytes())?;
        line.clear();
        self.output.read_line(&mut line)?;
        let answer: Value =
            serde_json::from_str(&line).context("node does not answer with JSON")?;
        if answer["id"] != self.calls {
            bail!("node answers {answer} to call {}", self.calls);
        }
        Ok(begun.elapsed().as_nanos() as f64 / 1000.0)
    }

    /// What it has in memory, in MiB.
    pub fn resident(&self) -> Result<f64> {
        memory_of(self.child.id(), "VmRSS:")
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

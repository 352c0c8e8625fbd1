//! Commands on a lease, held against OpenSSH's own client with the same cipher.

use std::io::Read;
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::Bench;
use super::http::{Client, text};
use super::machine::{Machine, succeed};
use super::row::{Baseline, Better, Row, Samples};
use super::server::Server;
use super::stream;

/// What the measured command writes.
const OUTPUT: u64 = 1 << 30;
const MIB: f64 = (1 << 20) as f64;

/// How much more than before a transfer the server may have in memory at its peak, in MiB: windows and frames, whose
/// number does not grow with what passes.
const FLAT: f64 = 16.0;

/// 1 GiB of a command's output: at the API's client over TCP, inside the server, and the memory that it took.
pub fn throughput(bench: &Bench) -> Result<Vec<Row>> {
    let machine = Machine::start()?;
    let server = Server::start(bench)?;
    let lease = machine.lease(bench, &server)?;
    let token = server.token()?;
    let bytes = if bench.quick { OUTPUT / 8 } else { OUTPUT };
    let count = bytes.to_string();
    let argv = ["head", "-c", &count, "/dev/zero"];

    // One of each that is not counted: the first transfer finds everything cold.
    raw(machine.ssh(&[], &argv), bytes)?;
    stream::run(server.tcp(&token)?, &lease, &argv)?;
    let (mut theirs, mut ours, mut inside, mut memory) =
        (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for _ in 0..bench.samples(10).max(2) / 2 {
        theirs.push(raw(machine.ssh(&[], &argv), bytes)?);

        let before = server.resident()?;
        server.forget_peak()?;
        let streamed = stream::run(server.tcp(&token)?, &lease, &argv)?;
        ensure!(
            streamed.bytes == bytes,
            "{} bytes came of {bytes}",
            streamed.bytes
        );
        ours.push(bytes as f64 / MIB / streamed.took.as_secs_f64());
        memory.push(server.peak()? - before);

        inside.push(bytes as f64 / MIB / drained(server.client()?, &lease, &argv)?);
    }
    let theirs = Samples::of(theirs, Better::More);
    let baseline = Baseline::live("ssh, same cipher", &theirs);
    let ours = Samples::of(ours, Better::More);
    let inside = Samples::of(inside, Better::More);
    let memory = Samples::of(memory, Better::Less);
    Ok(vec![
        Row::new("exec-throughput-ssh-client", "MiB/s", &ours)
            .against(baseline.clone())
            .goal(Better::More, "0.8 of it", &[(ours.p50, 0.8 * theirs.p50)]),
        Row::new("exec-throughput-ssh-inside", "MiB/s", &inside)
            .against(baseline)
            .goal(
                Better::More,
                "0.95 of it",
                &[(inside.p50, 0.95 * theirs.p50)],
            ),
        Row::new("exec-throughput-ssh-memory", "MiB more at peak", &memory).goal(
            Better::Less,
            "flat: at most 16 MiB",
            &[(memory.p99, FLAT)],
        ),
    ])
}

/// Reads a command's output as it comes; MiB a second from the first byte to the last.
fn raw(mut command: Command, bytes: u64) -> Result<f64> {
    let mut child = command
        .stdout(Stdio::piped())
        .spawn()
        .context("ssh does not run")?;
    let mut output = child.stdout.take().context("ssh has no output")?;
    let mut buffer = vec![0; 256 << 10];
    let (mut read, mut first) = (0, None);
    loop {
        match output.read(&mut buffer)? {
            0 => break,
            some => {
                first.get_or_insert_with(Instant::now);
                read += some as u64;
            }
        }
    }
    let took = first.context("ssh gave nothing")?.elapsed();
    ensure!(
        child.wait()?.success() && read == bytes,
        "ssh gave {read} bytes of {bytes}"
    );
    Ok(bytes as f64 / MIB / took.as_secs_f64())
}

/// Runs a command whose output the server reads to its end and keeps the first MiB of: seconds by its own record.
fn drained(mut client: Client, lease: &str, argv: &[&str]) -> Result<f64> {
    let path = format!("/api/environment-leases/{lease}/executions");
    let done = client.call("POST", &path, &json!({ "argv": argv }))?;
    ensure!(
        done["execution"]["exitCode"] == 0,
        "the command came to {}",
        done["execution"]
    );
    Ok(seconds(&done["execution"]["endedAt"])? - seconds(&done["execution"]["startedAt"])?)
}

/// Seconds of the day of a time as the API writes it: no benchmark runs over midnight for long.
fn seconds(time: &Value) -> Result<f64> {
    let time = text(time)?;
    let (_, clock) = time.split_once('T').context("a time without a clock")?;
    clock
        .trim_end_matches('Z')
        .split(':')
        .try_fold(0.0, |sum, part| {
            let part: f64 = part.parse().with_context(|| format!("{time} is no time"))?;
            Ok(sum * 60.0 + part)
        })
}

/// A command that does nothing, on a lease that stands, until its outcome is known.
pub fn roundtrip(bench: &Bench) -> Result<Vec<Row>> {
    let machine = Machine::start()?;
    let server = Server::start(bench)?;
    let lease = machine.lease(bench, &server)?;
    let shared = machine.multiplexed()?;
    let mut client = server.client()?;
    let path = format!("/api/environment-leases/{lease}/executions");
    let request = client.written("POST", &path, "application/json", br#"{"argv":["true"]}"#);
    let mut ours = || -> Result<f64> {
        timed(|| {
            let (status, body) = client.exchange(&request)?;
            let body = String::from_utf8_lossy(body);
            ensure!(
                status == 200 && body.contains(r#""exitCode":0"#),
                "the command came to {status} {body}"
            );
            Ok(())
        })
    };
    let multiplexed = || timed(|| succeed(shared.ssh(&["true"])).map(drop));
    let new = || timed(|| succeed(machine.ssh(&[], &["true"])).map(drop));

    for _ in 0..10 {
        ours()?;
        multiplexed()?;
    }
    let (mut a, mut b, mut c) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..bench.samples(300) {
        a.push(ours()?);
        b.push(multiplexed()?);
        if round % 10 == 0 {
            c.push(new()?);
        }
    }
    let (ours, multiplexed, new) = (
        Samples::of(a, Better::Less),
        Samples::of(b, Better::Less),
        Samples::of(c, Better::Less),
    );
    Ok(vec![
        Row::new("exec-roundtrip-new", "ms", &ours)
            .against(Baseline::live("a new ssh", &new))
            .goal(
                Better::Less,
                "10 times faster",
                &[(ours.p50, new.p50 / 10.0)],
            ),
        Row::new("exec-roundtrip-mux", "ms", &ours)
            .against(Baseline::live("a multiplexed ssh", &multiplexed))
            .goal(Better::Less, "no slower", &[(ours.p50, multiplexed.p50)]),
    ])
}

/// How long it took, in milliseconds.
pub fn timed(work: impl FnOnce() -> Result<()>) -> Result<f64> {
    let begun = Instant::now();
    work()?;
    Ok(begun.elapsed().as_secs_f64() * 1000.0)
}

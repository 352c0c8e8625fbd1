//! The whole server: started again, idle, and asked for a list by many.

use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use serde_json::Value;

use super::Bench;
use super::machine::Machine;
use super::plugins::install;
use super::row::{Baseline, Better, Row, Samples};
use super::server::Server;

/// Recorded of Paperclip: a restart in milliseconds, the idle system in MiB, lists a second, and their slowest
/// hundredth in milliseconds.
const PEER_RESTART: f64 = 3600.0;
const PEER_IDLE: f64 = 785.0;
const PEER_RATE: f64 = 1214.0;
const PEER_LATENCY: (f64, f64) = (1.4, 12.0);

/// From `kill -9` and a new process to ready, by how many plugins there are, and whether they are compiled already.
pub fn restart(bench: &Bench) -> Result<Vec<Row>> {
    let mut server = Server::start(bench)?;
    let mut rows = Vec::new();
    let mut installed = 0;
    for plugins in [1, 3, 10, 100] {
        install(bench, &server, installed..plugins)?;
        installed = plugins;
        let mut warm = Vec::new();
        let mut cold = Vec::new();
        server.again()?;
        for _ in 0..bench.samples(20) {
            warm.push(milliseconds(server.again()?));
        }
        for _ in 0..bench.samples(10).min(if plugins > 10 { 3 } else { 10 }) {
            server.kill();
            server.forget_compiled()?;
            cold.push(milliseconds(server.again()?));
        }
        let peer = || Baseline::recorded("Paperclip, 1 plugin", PEER_RESTART, None);
        let warm = Samples::of(warm, Better::Less);
        let cold = Samples::of(cold, Better::Less);
        rows.push(
            Row::new(format!("restart-{plugins}-warm"), "ms", &warm)
                .against(peer())
                .goal(Better::Less, "under 150 ms", &[(warm.p50, 150.0)]),
        );
        // The design's goal is of a warm cache; a cold one is there after an upgrade of the engine.
        rows.push(Row::new(format!("restart-{plugins}-cold"), "ms", &cold).against(peer()));
    }
    Ok(rows)
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}

/// A server with a plugin and environments, left alone.
pub fn idle_memory(bench: &Bench) -> Result<Vec<Row>> {
    let (mut server, _machine, _company) = furnished(bench)?;
    let mut values = Vec::new();
    for _ in 0..bench.samples(10).min(5) {
        server.again()?;
        thread::sleep(Duration::from_secs(1));
        values.push(server.resident()?);
    }
    let ours = Samples::of(values, Better::Less);
    Ok(vec![
        Row::new("idle-memory", "MiB", &ours)
            .against(Baseline::recorded("Paperclip", PEER_IDLE, None))
            .goal(Better::Less, "under 64 MiB", &[(ours.p99, 64.0)]),
    ])
}

/// Lists of three environments over two kept connections, each with a bearer token: how many a second, how long each
/// took, and what the server has in memory after them.
pub fn list_environments(bench: &Bench) -> Result<Vec<Row>> {
    const CONNECTIONS: usize = 2;
    let (server, _machine, company) = furnished(bench)?;
    let token = server.token()?;
    let path = format!("/api/companies/{company}/environments");
    let span = Duration::from_millis(if bench.quick { 500 } else { 2000 });
    let (mut rates, mut times) = (Vec::new(), Vec::new());
    // The first round warms up and is not counted.
    for round in 0..6 {
        let started = Instant::now();
        let workers: Vec<_> = (0..CONNECTIONS)
            .map(|_| -> Result<_> {
                let mut client = server.tcp(&token)?;
                let request = client.written("GET", &path, "", b"");
                Ok(thread::spawn(move || -> Result<Vec<f64>> {
                    let mut times = Vec::with_capacity(1 << 16);
                    while started.elapsed() < span {
                        let begun = Instant::now();
                        let (status, body) = client.exchange(&request)?;
                        times.push(begun.elapsed().as_secs_f64() * 1000.0);
                        ensure!(
                            status == 200 && body.len() > 100,
                            "the list came to {status}"
                        );
                    }
                    Ok(times)
                }))
            })
            .collect::<Result<_>>()?;
        let mut answered = 0;
        for worker in workers {
            let some = worker.join().map_err(|_| anyhow!("a client panicked"))??;
            answered += some.len();
            if round > 0 {
                times.extend(some);
            }
        }
        if round > 0 {
            rates.push(answered as f64 / started.elapsed().as_secs_f64());
        }
    }
    let rate = Samples::of(rates, Better::More);
    let time = Samples::of(times, Better::Less);
    let memory = Samples::of(vec![server.resident()?], Better::Less);
    Ok(vec![
        Row::new("list-environments-rate", "1/s", &rate)
            .against(Baseline::recorded("Paperclip", PEER_RATE, None))
            .goal(Better::More, "10,000/s", &[(rate.p50, 10_000.0)]),
        Row::new("list-environments-time", "ms", &time)
            .against(Baseline::recorded(
                "Paperclip",
                PEER_LATENCY.0,
                Some(PEER_LATENCY.1),
            ))
            .goal(Better::Less, "p99 under 2 ms", &[(time.p99, 2.0)]),
        Row::new("list-environments-memory", "MiB", &memory)
            .against(Baseline::recorded("Paperclip", PEER_IDLE, None))
            .goal(
                Better::Less,
                "under 64 MiB, after them too",
                &[(memory.p50, 64.0)],
            ),
    ])
}

/// A server as people have it: the SSH provider, and three environments. The machine is gone with its value.
fn furnished(bench: &Bench) -> Result<(Server, Machine, String)> {
    let machine = Machine::start()?;
    let server = Server::start(bench)?;
    server.install(&bench.component("ssh")?)?;
    let company = server.company()?;
    let key = server.secret(&company, "key", machine.key())?;
    for name in ["build box", "test box", "spare box"] {
        server
            .environment(&company, &machine.draft(name, &key))
            .context("an environment cannot be saved")?;
    }
    Ok((server, machine, company))
}

/// One decision of the policy, by itself.
pub fn policy_decision(bench: &Bench) -> Result<Vec<Row>> {
    let samples = bench.samples(10_000);
    let output = Command::new(bench.example("policy_decision")?)
        .arg(samples.to_string())
        .output()
        .context("policy_decision does not run")?;
    ensure!(output.status.success(), "policy_decision failed");
    let said: Value =
        serde_json::from_slice(&output.stdout).context("policy_decision does not say JSON")?;
    let figure = |name: &str| {
        let nanoseconds = said[name].as_f64();
        nanoseconds.with_context(|| format!("policy_decision does not say {name}"))
    };
    let ours = Samples::summed(samples, figure("p50_ns")? / 1e3, figure("p99_ns")? / 1e3);
    Ok(vec![Row::new("policy-decision", "µs", &ours).goal(
        Better::Less,
        "under 2 µs",
        &[(ours.p99, 2.0)],
    )])
}

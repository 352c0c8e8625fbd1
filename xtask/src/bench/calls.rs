//! What a provider costs: a call, and being there.

use std::process::Command;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::Bench;
use super::node::Worker;
use super::plugins::install;
use super::row::{Baseline, Better, Row, Samples};
use super::server::Server;

/// The recorded figures of a call and of a worker elsewhere, where there is no Node to run.
const PEER_CALL: (f64, f64) = (66.0, 105.0);
const PEER_WORKER: f64 = 69.0;

/// What the program that times the runtime by itself says of a component: of so many calls, and of so many copies of it
/// loaded beside each other.
fn runtime_alone(bench: &Bench, component: &str, calls: usize, copies: usize) -> Result<Value> {
    let component = bench
        .checkout
        .components()
        .join(format!("{component}.wasm"));
    let output = Command::new(bench.example("call_fresh")?)
        .arg(component)
        .args([calls.to_string(), copies.to_string()])
        .output()
        .context("call_fresh does not run")?;
    if !output.status.success() {
        bail!(
            "call_fresh failed: {}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
    serde_json::from_slice(&output.stdout).context("call_fresh does not say JSON")
}

fn figure(said: &Value, name: &str) -> Result<f64> {
    said[name]
        .as_f64()
        .with_context(|| format!("call_fresh does not say {name}"))
}

/// A call that does not wait, on an instance made for it alone, through two resources of the host's.
pub fn call_fresh(bench: &Bench) -> Result<Vec<Row>> {
    let calls = bench.samples(50_000);
    let said = runtime_alone(bench, "hostile-bench-start", calls, 0)?;
    let ours = Samples::summed(calls, figure(&said, "p50_us")?, figure(&said, "p99_us")?);

    let baseline = match Worker::start()? {
        Some(mut worker) => {
            for _ in 0..1000 {
                worker.call()?;
            }
            let times: Result<Vec<f64>> =
                (0..bench.samples(20_000)).map(|_| worker.call()).collect();
            Baseline::live(
                "JSON-RPC to a Node child",
                &Samples::of(times?, Better::Less),
            )
        }
        None => Baseline::recorded("JSON-RPC to a Node child", PEER_CALL.0, Some(PEER_CALL.1)),
    };
    Ok(vec![
        Row::new("call-fresh", "µs", &ours).against(baseline).goal(
            Better::Less,
            "under 15 µs p50, 30 µs p99",
            &[(ours.p50, 15.0), (ours.p99, 30.0)],
        ),
    ])
}

/// What an idle plugin adds: one that starts commands over SSH, to a server that was started again, and the smallest
/// that there is, to the runtime alone.
pub fn plugin_memory(bench: &Bench) -> Result<Vec<Row>> {
    const MORE: usize = 100;
    let mut server = Server::start(bench)?;
    install(bench, &server, 0..1)?;
    let rounds = bench.samples(10).max(3);
    let one = idle(&mut server, rounds)?;
    install(bench, &server, 1..1 + MORE)?;
    let many = idle(&mut server, rounds)?;
    let each: Vec<f64> = one
        .iter()
        .zip(&many)
        .map(|(one, many)| (many - one) / MORE as f64)
        .collect();
    let each = Samples::of(each, Better::Less);
    let null: Result<Vec<f64>> = (0..rounds)
        .map(|_| Ok(figure(&runtime_alone(bench, "null", 0, MORE)?, "plugin_kib")? / 1024.0))
        .collect();
    let null = Samples::of(null?, Better::Less);

    let worker = Baseline::recorded("Paperclip's worker", PEER_WORKER, None);
    let bare = match Worker::start()? {
        Some(mut child) => {
            for _ in 0..100 {
                child.call()?;
            }
            Baseline::live(
                "a bare Node child",
                &Samples::of(vec![child.resident()?], Better::Less),
            )
        }
        None => worker.clone(),
    };
    let held = |row: Row| {
        let ratio = row.ratio().unwrap_or(f64::NAN);
        row.goal(Better::Less, "100 times less", &[(ratio, 0.01)])
    };
    Ok(vec![
        held(Row::new("plugin-memory-server", "MiB", &each).against(worker)),
        held(Row::new("plugin-memory-null", "MiB", &null).against(bare)),
    ])
}

/// What a server has in memory a moment after each of so many starts.
fn idle(server: &mut Server, rounds: usize) -> Result<Vec<f64>> {
    (0..rounds)
        .map(|_| {
            server.again()?;
            // What is left over from the start is given back meanwhile.
            thread::sleep(Duration::from_secs(1));
            server.resident()
        })
        .collect()
}

//! What egress adds to a request, and a component's call to the answer that it waits for: beside a plain client on a
//! connection that stands.

use std::process::Command;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::Bench;
use super::row::{Baseline, Better, Row, Samples};

const PLAIN: &str = "a plain hyper client";

/// What the program that times requests says of so many small ones, large ones and calls that wait.
fn said(bench: &Bench, requests: [usize; 3]) -> Result<Value> {
    let output = Command::new(bench.example("exchange")?)
        .arg(bench.checkout.components().join("cabin.wasm"))
        .args(requests.map(|n| n.to_string()))
        .output()
        .context("exchange does not run")?;
    if !output.status.success() {
        bail!(
            "exchange failed: {}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
    serde_json::from_slice(&output.stdout).context("exchange does not say JSON")
}

/// Ours and the plain client's.
fn sides(said: &Value, case: &str) -> Result<[Samples; 2]> {
    let said = &said[case];
    let figure = |name: &str| {
        said[name]
            .as_f64()
            .with_context(|| format!("exchange does not say {name} of {case}"))
    };
    let requests = said["requests"]
        .as_u64()
        .context("exchange made no requests")?;
    let n = usize::try_from(requests)?;
    Ok([
        Samples::summed(n, figure("p50_us")?, figure("p99_us")?),
        Samples::summed(n, figure("plain_p50_us")?, figure("plain_p99_us")?),
    ])
}

/// A row whose median may exceed the plain client's by so many microseconds.
fn more(name: &str, [ours, plain]: [Samples; 2], words: &str, micros: f64) -> Row {
    let goal = [(ours.p50 - plain.p50, micros)];
    Row::new(name, "µs", &ours)
        .against(Baseline::live(PLAIN, &plain))
        .goal(Better::Less, words, &goal)
}

/// `inspect` of a component whose one request is answered after a millisecond.
pub fn waiting(bench: &Bench) -> Result<Vec<Row>> {
    let said = said(bench, [0, 0, bench.samples(5_000)])?;
    let sides = sides(&said, "waiting")?;
    Ok(vec![more(
        "call-waiting",
        sides,
        "under 100 µs more",
        100.0,
    )])
}

/// A request with a credential, answered with 200 bytes.
pub fn small(bench: &Bench) -> Result<Vec<Row>> {
    let said = said(bench, [bench.samples(20_000), 0, 0])?;
    let sides = sides(&said, "small")?;
    Ok(vec![more("egress-small", sides, "20 µs more", 20.0)])
}

/// The same, answered with 1 MiB: as one text that is looked through, and as a stream that is not.
pub fn large(bench: &Bench) -> Result<Vec<Row>> {
    let said = said(bench, [0, bench.samples(2_000), 0])?;
    [
        ("egress-large-text", "large"),
        ("egress-large-stream", "stream"),
    ]
    .into_iter()
    .map(|(name, case)| {
        let [ours, plain] = sides(&said, case)?;
        let goal = [(ours.p50, plain.p50 * 1.05)];
        Ok(Row::new(name, "µs", &ours)
            .against(Baseline::live(PLAIN, &plain))
            .goal(Better::Less, "5 % more", &goal))
    })
    .collect()
}

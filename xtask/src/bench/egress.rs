//! What egress adds to a request: beside a plain client on a connection that stands.

use std::process::Command;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::Bench;
use super::row::{Baseline, Better, Row, Samples};

/// What the program that times the wire says of one size of answer.
fn said(bench: &Bench, name: &str) -> Result<Value> {
    let requests = [bench.samples(20_000), bench.samples(2_000)].map(|n| n.to_string());
    let output = Command::new(bench.example("exchange")?)
        .args(requests)
        .output()
        .context("exchange does not run")?;
    if !output.status.success() {
        bail!(
            "exchange failed: {}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
    let mut said: Value =
        serde_json::from_slice(&output.stdout).context("exchange does not say JSON")?;
    Ok(said[name].take())
}

/// Ours and the plain client's.
fn sides(said: &Value) -> Result<[Samples; 2]> {
    let figure = |name: &str| {
        said[name]
            .as_f64()
            .with_context(|| format!("exchange does not say {name}"))
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

/// A request with a credential, answered with 200 bytes.
pub fn small(bench: &Bench) -> Result<Vec<Row>> {
    let [ours, plain] = sides(&said(bench, "small")?)?;
    let goal = [(ours.p50 - plain.p50, 20.0)];
    Ok(vec![
        Row::new("egress-small", "µs", &ours)
            .against(Baseline::live("a plain hyper client", &plain))
            .goal(Better::Less, "20 µs more", &goal),
    ])
}

/// The same, answered with 1 MiB.
pub fn large(bench: &Bench) -> Result<Vec<Row>> {
    let [ours, plain] = sides(&said(bench, "large")?)?;
    let goal = [(ours.p50, plain.p50 * 1.05)];
    Ok(vec![
        Row::new("egress-large", "µs", &ours)
            .against(Baseline::live("a plain hyper client", &plain))
            .goal(Better::Less, "5 % more", &goal),
    ])
}

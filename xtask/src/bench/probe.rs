//! Probing what is saved: over a fresh connection to a machine, and by a lease that is taken and released.

use std::fs::File;

use anyhow::{Context, Result, ensure};
use serde_json::json;

use super::Bench;
use super::exec::timed;
use super::http::Client;
use super::machine::{Machine, succeed};
use super::row::{Baseline, Better, Row, Samples};
use super::server::Server;

/// Recorded of Paperclip: a saved probe over SSH, the bare `ssh` beside it, and a saved probe of a provider that does
/// nothing; in milliseconds.
const PEER_SSH: f64 = 215.0;
const PEER_NOOP: f64 = 40.0;

/// The whole answer of a probe, which must be good.
pub fn probe(client: &mut Client, request: &[u8]) -> Result<()> {
    let (status, body) = client.exchange(request)?;
    let body = String::from_utf8_lossy(body);
    ensure!(
        status == 200 && body.contains(r#""ok":true"#),
        "the probe came to {status} {body}"
    );
    Ok(())
}

/// A saved probe of a machine, against the script that it runs there, by `ssh`.
pub fn ssh(bench: &Bench) -> Result<Vec<Row>> {
    let machine = Machine::start()?;
    let server = Server::start(bench)?;
    let environment = machine.environment(bench, &server)?;
    let script = bench.checkout.root.join("providers/ssh/src/probe.sh");
    let mut client = server.client()?;
    let request = client.written(
        "POST",
        &format!("/api/environments/{environment}/probe"),
        "",
        b"",
    );
    let bare = || {
        timed(|| {
            let mut ssh = machine.ssh(&[], &["/bin/sh", "-s", machine.workspaces()]);
            ssh.stdin(
                File::open(&script)
                    .with_context(|| format!("{} is not there", script.display()))?,
            );
            succeed(ssh).map(drop)
        })
    };
    for _ in 0..3 {
        probe(&mut client, &request)?;
        bare()?;
    }
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for _ in 0..bench.samples(60) {
        ours.push(timed(|| probe(&mut client, &request))?);
        theirs.push(bare()?);
    }
    let (ours, theirs) = (
        Samples::of(ours, Better::Less),
        Samples::of(theirs, Better::Less),
    );
    Ok(vec![
        Row::new("probe-ssh-bare", "ms", &ours)
            .against(Baseline::live("the same script by ssh", &theirs))
            .goal(Better::Less, "faster than `ssh`", &[(ours.p50, theirs.p50)]),
        Row::new("probe-ssh-paperclip", "ms", &ours)
            .against(Baseline::recorded("Paperclip", PEER_SSH, None))
            .goal(Better::Less, "faster", &[(ours.p50, PEER_SSH)]),
    ])
}

/// The request that probes an environment of the null provider, which is installed for it.
pub fn of_null(bench: &Bench, server: &Server) -> Result<Vec<u8>> {
    server.install(&bench.component("null")?)?;
    let company = server.company()?;
    let draft = json!({ "name": "null", "driver": "sandbox", "provider": "null", "config": {} });
    let environment = server.environment(&company, &draft)?;
    let path = format!("/api/environments/{environment}/probe");
    Ok(server.client()?.written("POST", &path, "", b""))
}

/// A saved probe of the null provider: a lease, acquired and released, every step of it durable.
pub fn noop(bench: &Bench) -> Result<Vec<Row>> {
    let server = Server::start(bench)?;
    let request = of_null(bench, &server)?;
    let mut client = server.client()?;
    for _ in 0..20 {
        probe(&mut client, &request)?;
    }
    let times: Result<Vec<f64>> = (0..bench.samples(500))
        .map(|_| timed(|| probe(&mut client, &request)))
        .collect();
    let ours = Samples::of(times?, Better::Less);
    Ok(vec![
        Row::new("probe-noop", "ms", &ours)
            .against(Baseline::recorded("Paperclip", PEER_NOOP, None))
            .goal(Better::Less, "under 4 ms", &[(ours.p50, 4.0)]),
    ])
}

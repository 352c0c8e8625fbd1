//! Many plugins out of one component: the same code under another key, as an idle server of many would have; and what
//! installing them does to those who use the server meanwhile.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use anyhow::{Context, Result, anyhow, ensure};

use super::Bench;
use super::exec::timed;
use super::http::Client;
use super::probe;
use super::row::{Baseline, Better, Row, Samples};
use super::server::Server;

/// So many are installed at once.
const BURST: usize = 10;

/// Part of the component's key, as it stands in its bytes.
const KEY: &[u8] = b"bench-start";

/// A Rust component whose key ends with a number.
pub fn numbered(component: &[u8], number: usize) -> Vec<u8> {
    let own = format!("bench-{number:05}");
    let mut bytes = component.to_vec();
    let mut at = 0;
    while let Some(found) = bytes[at..].windows(KEY.len()).position(|some| some == KEY) {
        at += found;
        bytes[at..at + KEY.len()].copy_from_slice(own.as_bytes());
        at += KEY.len();
    }
    bytes
}

/// A server with the plugins of these numbers installed.
pub fn install(bench: &Bench, server: &Server, numbers: std::ops::Range<usize>) -> Result<()> {
    let component = bench.component("hostile-bench-start")?;
    for number in numbers {
        let key = server.install(&numbered(&component, number))?;
        ensure!(
            key.ends_with(&format!("{number:05}")),
            "plugin {number} has the key {key}"
        );
    }
    Ok(())
}

/// Probes of the null provider and questions whether the server is alive, while ten components are uploaded, compiled and
/// granted at once; against the same without them.
pub fn installs_beside(bench: &Bench) -> Result<Vec<Row>> {
    let server = Server::start(bench)?;
    let probing = probe::of_null(bench, &server)?;
    let mut client = server.client()?;
    let alive = client.written("GET", "/healthz", "", b"");
    for _ in 0..20 {
        probe::probe(&mut client, &probing)?;
    }
    let (mut quiet, mut busy) = (Beside::default(), Beside::default());
    for _ in 0..bench.samples(500) {
        quiet.take(&mut client, &probing, &alive)?;
    }
    let component = bench.component("hostile-bench-start")?;
    let installing = AtomicUsize::new(BURST);
    thread::scope(|scope| -> Result<()> {
        let installs: Vec<_> = (0..BURST)
            .map(|number| {
                let (server, installing) = (&server, &installing);
                let component = numbered(&component, number);
                scope.spawn(move || {
                    let installed = server.install(&component);
                    installing.fetch_sub(1, Ordering::SeqCst);
                    installed
                })
            })
            .collect();
        while installing.load(Ordering::SeqCst) > 0 {
            busy.take(&mut client, &probing, &alive)?;
        }
        for install in installs {
            let installed = install.join().map_err(|_| anyhow!("an install panicked"))?;
            installed.context("a component was not installed")?;
        }
        Ok(())
    })?;
    let row = |name: &str, busy: Vec<f64>, quiet: Vec<f64>| {
        let quiet = Samples::of(quiet, Better::Less);
        Row::new(name, "ms", &Samples::of(busy, Better::Less))
            .against(Baseline::live("no installs", &quiet))
    };
    Ok(vec![
        row("installs-beside-probe", busy.probes, quiet.probes),
        row("installs-beside-healthz", busy.alive, quiet.alive),
    ])
}

/// How long each took, in milliseconds.
#[derive(Default)]
struct Beside {
    probes: Vec<f64>,
    alive: Vec<f64>,
}

impl Beside {
    /// One more of each.
    fn take(&mut self, client: &mut Client, probing: &[u8], alive: &[u8]) -> Result<()> {
        self.probes.push(timed(|| probe::probe(client, probing))?);
        self.alive.push(timed(|| {
            let (status, _) = client.exchange(alive)?;
            ensure!(status == 200, "/healthz answers {status}");
            Ok(())
        })?);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_copy_has_a_key_of_its_own_and_the_same_length() {
        let component = b"\0asm bench-start and bench-start.";
        assert_eq!(
            numbered(component, 7),
            b"\0asm bench-00007 and bench-00007."
        );
    }
}

//! Many plugins out of one component: the same code under another key, as an idle server of many would have; and what
//! installing them, or one that traps again and again, does to those who use the server meanwhile.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use anyhow::{Context, Result, anyhow, ensure};
use serde_json::{Value, json};

use super::Bench;
use super::exec::timed;
use super::http::{Client, text};
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
    let mut user = User::of(bench, &server)?;
    let (quiet, mut busy) = (user.alone(bench)?, Beside::default());
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
            user.take(&mut busy)?;
        }
        for install in installs {
            let installed = install.join().map_err(|_| anyhow!("an install panicked"))?;
            installed.context("a component was not installed")?;
        }
        Ok(())
    })?;
    Ok(busy.rows("installs-beside", "no installs", quiet))
}

/// The same while one plugin traps in every call that is made of it, one after the other, long after its breaker tripped: what
/// leases exist may call it still.
pub fn breaker_beside(bench: &Bench) -> Result<Vec<Row>> {
    let server = Server::start(bench)?;
    let mut user = User::of(bench, &server)?;
    let key = server.install(&bench.component("hostile-trap-everywhere")?)?;
    let mut client = server.client()?;
    let companies = client.call("GET", "/api/companies", &Value::Null)?;
    let draft = json!({
        "name": "trapping", "driver": "sandbox", "provider": key, "config": { "at": "inspect" },
    });
    let environment = server.environment(&text(&companies[0]["id"])?, &draft)?;
    let leases = format!("/api/environments/{environment}/leases");
    let lease = text(&client.call("POST", &leases, &json!({}))?["id"])?;
    let path = format!("/api/environment-leases/{lease}/observation");
    let trap = client.written("GET", &path, "", b"");
    let (quiet, mut busy) = (user.alone(bench)?, Beside::default());
    let (over, traps) = (AtomicBool::new(false), AtomicUsize::new(0));
    thread::scope(|scope| -> Result<()> {
        let trapping = scope.spawn(|| -> Result<()> {
            while !over.load(Ordering::SeqCst) {
                let (status, _) = client.exchange(&trap)?;
                ensure!(status == 502, "a call that traps is answered with {status}");
                traps.fetch_add(1, Ordering::SeqCst);
            }
            Ok(())
        });
        let taken = (0..bench.samples(500)).try_for_each(|_| user.take(&mut busy));
        over.store(true, Ordering::SeqCst);
        let trapped = trapping
            .join()
            .map_err(|_| anyhow!("the trapping one panicked"))?;
        taken.and(trapped)
    })?;
    let shown = server
        .client()?
        .call("GET", &format!("/api/plugins/{key}"), &Value::Null)?;
    ensure!(
        shown["status"] == "tripped",
        "its breaker did not trip: {shown}"
    );
    eprintln!("{} calls trapped meanwhile", traps.load(Ordering::SeqCst));
    Ok(busy.rows("breaker-beside", "no traps", quiet))
}

/// Whoever uses the server meanwhile: a connection, and what is asked over it.
struct User {
    client: Client,
    probing: Vec<u8>,
    alive: Vec<u8>,
}

impl User {
    /// One that has asked often enough for everything to be warm.
    fn of(bench: &Bench, server: &Server) -> Result<User> {
        let probing = probe::of_null(bench, server)?;
        let mut client = server.client()?;
        let alive = client.written("GET", "/healthz", "", b"");
        for _ in 0..20 {
            probe::probe(&mut client, &probing)?;
        }
        Ok(User {
            client,
            probing,
            alive,
        })
    }

    /// One more probe of the null provider, and one more question whether the server is alive.
    fn take(&mut self, into: &mut Beside) -> Result<()> {
        into.probes
            .push(timed(|| probe::probe(&mut self.client, &self.probing))?);
        into.alive.push(timed(|| {
            let (status, _) = self.client.exchange(&self.alive)?;
            ensure!(status == 200, "/healthz answers {status}");
            Ok(())
        })?);
        Ok(())
    }

    /// What it takes where nothing else goes on.
    fn alone(&mut self, bench: &Bench) -> Result<Beside> {
        let mut quiet = Beside::default();
        for _ in 0..bench.samples(500) {
            self.take(&mut quiet)?;
        }
        Ok(quiet)
    }
}

/// How long each took, in milliseconds.
#[derive(Default)]
struct Beside {
    probes: Vec<f64>,
    alive: Vec<f64>,
}

impl Beside {
    /// A row of each, against the same without.
    fn rows(self, name: &str, without: &'static str, quiet: Beside) -> Vec<Row> {
        let row = |what: &str, busy: Vec<f64>, quiet: Vec<f64>| {
            let quiet = Samples::of(quiet, Better::Less);
            Row::new(
                format!("{name}-{what}"),
                "ms",
                &Samples::of(busy, Better::Less),
            )
            .against(Baseline::live(without, &quiet))
        };
        vec![
            row("probe", self.probes, quiet.probes),
            row("healthz", self.alive, quiet.alive),
        ]
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

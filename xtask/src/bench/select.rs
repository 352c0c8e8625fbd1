//! Selection among many environments, asked over HTTP with a token as anybody asks.

use std::thread;
use std::time::Instant;

use anyhow::{Result, anyhow, ensure};
use serde_json::json;

use super::Bench;
use super::row::{Better, Row, Samples};
use super::server::Server;

/// How many environments there are.
const ENVIRONMENTS: usize = 10_000;
/// Clients that make them.
const MAKERS: usize = 8;

/// Selection over 10,000 environments: where all of them can do it, and the best hundred are told; and where none can, and
/// of each it is told why.
pub fn select_10k(bench: &Bench) -> Result<Vec<Row>> {
    let server = Server::start(bench)?;
    server.install(&bench.component("null")?)?;
    let company = server.company()?;
    let made = thread::scope(|scope| -> Result<()> {
        let makers: Vec<_> = (0..MAKERS)
            .map(|maker| {
                let (server, company) = (&server, &company);
                scope.spawn(move || -> Result<()> {
                    let mut client = server.client()?;
                    let path = format!("/api/companies/{company}/environments");
                    for at in (maker..ENVIRONMENTS).step_by(MAKERS) {
                        let zone = format!("zone-{}", at % 7);
                        let draft = json!({
                            "name": format!("room {at}"), "driver": "sandbox", "provider": "null",
                            "metadata": { "labels": { "zone": zone } },
                        });
                        client.call("POST", &path, &draft)?;
                    }
                    Ok(())
                })
            })
            .collect();
        for maker in makers {
            maker.join().map_err(|_| anyhow!("a maker panicked"))??;
        }
        Ok(())
    });
    made?;
    let token = server.token()?;
    let path = format!("/api/companies/{company}/environments/select");
    let mut rows = Vec::new();
    for (name, requirement, least) in [
        (
            "select-10k-candidates",
            json!({ "preferred": ["files"] }),
            100,
        ),
        (
            "select-10k-excluded",
            json!({ "required": ["execution"] }),
            ENVIRONMENTS,
        ),
    ] {
        let mut client = server.tcp(&token)?;
        let body = requirement.to_string();
        let request = client.written("POST", &path, "application/json", body.as_bytes());
        let mut times = Vec::new();
        for round in 0..bench.samples(1000) + 10 {
            let begun = Instant::now();
            let (status, answer) = client.exchange(&request)?;
            let took = begun.elapsed().as_secs_f64() * 1000.0;
            // Each environment that is told of has an id.
            ensure!(
                status == 200 && answer.len() > least * 30,
                "the selection came to {status}, {} bytes",
                answer.len()
            );
            if round >= 10 {
                times.push(took);
            }
        }
        let times = Samples::of(times, Better::Less);
        rows.push(Row::new(name, "ms", &times).goal(
            Better::Less,
            "p99 under 10 ms",
            &[(times.p99, 10.0)],
        ));
    }
    Ok(rows)
}

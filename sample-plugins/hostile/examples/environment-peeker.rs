//! Looks for anything that the standard library can reach: each step is a failure where it found something.

use std::io::Read;
use std::net::{TcpStream, ToSocketAddrs, UdpSocket};
use std::time::{Instant, SystemTime};

use leasehold_provider::*;
use leasehold_sample_hostile::{Config, Misdeed};

struct EnvironmentPeeker;

/// A step of the probe: what was found is a failure, nothing is as it should be.
fn step(name: &str, found: Option<String>) -> Finding {
    finding(
        name,
        match found {
            Some(found) => Err(Error::internal(found)),
            None => Ok("nothing"),
        },
    )
}

fn environment() -> Option<String> {
    let found: Vec<_> = std::env::vars_os().collect();
    (!found.is_empty()).then(|| format!("{found:?}"))
}

fn arguments() -> Option<String> {
    let found: Vec<_> = std::env::args_os().collect();
    (!found.is_empty()).then(|| format!("{found:?}"))
}

fn input() -> Option<String> {
    let mut found = Vec::new();
    let read = std::io::stdin().lock().take(1024).read_to_end(&mut found);
    (read.is_ok() && !found.is_empty()).then(|| format!("{found:?}"))
}

fn files() -> Option<String> {
    let listed = ["/", ".", "/proc", "/etc"]
        .into_iter()
        .find(|path| std::fs::read_dir(path).is_ok());
    let read = ["/etc/passwd", "/proc/self/environ", "leasehold.toml"]
        .into_iter()
        .find(|path| std::fs::read(path).is_ok());
    listed.or(read).map(str::to_owned)
}

fn writes() -> Option<String> {
    std::fs::write("/tmp/leasehold-peeker", b"here")
        .is_ok()
        .then(|| "/tmp/leasehold-peeker was written".to_owned())
}

fn names() -> Option<String> {
    let found = ("localhost", 80).to_socket_addrs().ok()?;
    Some(format!("{:?}", found.collect::<Vec<_>>()))
}

fn network() -> Option<String> {
    let tcp = [22, 53, 80, 443]
        .into_iter()
        .find(|port| TcpStream::connect(("127.0.0.1", *port)).is_ok());
    let udp = UdpSocket::bind(("127.0.0.1", 0)).ok().map(|_| 0);
    tcp.or(udp).map(|port| format!("127.0.0.1:{port}"))
}

fn clock() -> Option<String> {
    let wall = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .ok()?;
    let begun = Instant::now();
    let burnt = (0..200_000u64).fold(0, |sum, n| std::hint::black_box(sum ^ n));
    let passed = begun.elapsed();
    (!wall.is_zero() || !passed.is_zero()).then(|| format!("{wall:?} {passed:?} {burnt}"))
}

impl Misdeed for EnvironmentPeeker {
    const NAME: &'static str = "environment-peeker";
    const DOES: &'static str = "Looks for anything that the standard library can reach.";

    fn findings(_: &Call<Config>) -> Vec<Finding> {
        vec![
            step("environment", environment()),
            step("arguments", arguments()),
            step("input", input()),
            step("files", files()),
            step("writes", writes()),
            step("names", names()),
            step("network", network()),
            step("clock", clock()),
        ]
    }
}

leasehold_sample_hostile::hostile!(EnvironmentPeeker);

//! Real parts that tests and the demo start on loopback, each throw-away and gone when it is dropped.
//!
//! [`Sshd`] is OpenSSH's own server. As root it runs in namespaces of its own, with its own `passwd` and accounts
//! with several login shells, so that nothing of the machine's is changed and no process outlives it; otherwise it
//! serves the current user only. [`Rooms`] is a small backend with an HTTP API, [`Podman`] a container engine, [`Tap`] what
//! listens on a wire to one. [`Registry`] is Docker's own, and [`FalseRegistry`] one that does what no real one does.
//! [`Collector`] takes traces and metrics.
//! Nothing here depends on the host's crates: it is the other side.

mod chunks;
mod collector;
pub mod echo;
mod false_registry;
mod key;
mod mounts;
mod owned;
mod pattern;
mod podman;
mod process;
mod registry;
mod rooms;
mod silent;
mod sshd;
mod tap;

pub use chunks::{Chunks, write_chunks};
pub use collector::{Collector, Export, Figure, Measured, Spanned};
pub use false_registry::{FalseRegistry, Hang, MANIFEST, Reply, descriptor, digest_of, manifest};
pub use key::{Format, KeyPair, Kind};
pub use owned::listen_as;
pub use pattern::Pattern;
pub use podman::{IMAGE, Podman};
pub use process::{Process, processes_below};
pub use registry::{Registry, RegistryOptions};
pub use rooms::{Fault, Heard, Rooms, digest_of_all};
pub use silent::SilentHost;
pub use sshd::{Account, Options, Sshd};
pub use tap::Tap;

/// Says that a test cannot run for want of a part. Under `LEASEHOLD_REQUIRE_ALL=1` that is a failure.
///
/// # Panics
/// When everything is required.
pub fn skipped(needs: &str) {
    println!("skipped: needs {needs}");
    assert!(
        std::env::var_os("LEASEHOLD_REQUIRE_ALL").is_none_or(|v| v != "1"),
        "LEASEHOLD_REQUIRE_ALL=1 and there is no {needs}"
    );
}

/// Whether a program can be found in `PATH` or where Debian keeps servers.
pub fn has(program: &str) -> bool {
    find(program).is_some()
}

pub(crate) fn find(program: &str) -> Option<std::path::PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/sbin".into(), "/sbin".into()])
        .map(|d| d.join(program))
        .find(|p| p.is_file())
}

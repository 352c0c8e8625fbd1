//! Memory stays flat over many calls. A test program of its own, because it reads the process's memory.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test ends where it is surprised"
)]

use std::path::PathBuf;
use std::time::Duration;

use leasehold_contract::Purpose;
use leasehold_runtime::{CallSetup, Runtime, Settings};

fn resident_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|l| l.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[tokio::test]
async fn fifty_thousand_calls_leave_memory_as_it_was() {
    let folder: PathBuf = match std::env::var_os("LEASEHOLD_COMPONENTS") {
        Some(folder) => folder.into(),
        None => {
            let test = std::env::current_exe().unwrap();
            test.ancestors().nth(3).unwrap().join("components")
        }
    };
    let Ok(bytes) = std::fs::read(folder.join("null.wasm")) else {
        println!("skipped: needs `cargo xtask components`");
        assert!(std::env::var_os("LEASEHOLD_REQUIRE_ALL").is_none_or(|v| v != "1"));
        return;
    };
    let runtime = Runtime::new(Settings::default()).unwrap();
    let plugin = runtime.prepare(bytes.into()).await.unwrap().plugin;
    let setup = CallSetup::refusing(Purpose::Run, Duration::from_secs(60));
    for _ in 0..5_000 {
        plugin.inspect(&setup, "{}", "{}").await.unwrap();
    }
    let before = resident_kib();
    for _ in 0..50_000 {
        plugin.inspect(&setup, "{}", "{}").await.unwrap();
    }
    let after = resident_kib();
    assert!(after < before + 4096, "from {before} KiB to {after} KiB");
}

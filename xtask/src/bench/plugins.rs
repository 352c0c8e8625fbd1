//! Many plugins out of one component: the same code under another key, as an idle server of many would have.

use anyhow::{Result, ensure};

use super::Bench;
use super::server::Server;

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

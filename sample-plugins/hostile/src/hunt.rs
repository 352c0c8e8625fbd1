//! Looking for secrets in all of a component's own memory, wherever the host may have put them.
//!
//! What is looked for is told by a name, each byte's complement in hex, so that the telling is not what is found; it is never
//! put together here.

use std::ptr::with_exposed_provenance;

use leasehold_provider::{Value, host};

/// One past the last address of this component's memory.
fn end_of_memory() -> usize {
    #[cfg(target_arch = "wasm32")]
    let end = core::arch::wasm32::memory_size(0) << 16;
    // Elsewhere this is only compiled, never run.
    #[cfg(not(target_arch = "wasm32"))]
    let end = 0;
    end
}

/// Whether what is told so stands anywhere in memory: freed, on the stack, in a buffer of the host's making.
fn in_memory(hex: &[u8]) -> bool {
    let digit = |digit: u8| match digit {
        b'0'..=b'9' => digit - b'0',
        _ => (digit | 0x20).wrapping_sub(b'a') + 10,
    };
    let wanted = |at: usize| !(digit(hex[2 * at]) << 4 | digit(hex[2 * at + 1]));
    // SAFETY: every address below the end of linear memory can be read; nothing else runs meanwhile. Volatile, because
    // most of these bytes are no object of this program's.
    let there = |at: usize| unsafe { with_exposed_provenance::<u8>(at).read_volatile() };
    let length = hex.len() / 2;
    if length == 0 {
        return false;
    }
    let first = wanted(0);
    // Address 0 is the null pointer: not one to read through.
    (1..end_of_memory().saturating_sub(length - 1))
        .any(|at| there(at) == first && (1..length).all(|more| there(at + more) == wanted(more)))
}

/// Names of what is hunted (the configuration's `hunt`) and stands in memory now.
pub fn hunted(hunt: Option<&Value>) -> String {
    let Some(hunt) = hunt.and_then(Value::as_object) else {
        return String::new();
    };
    let found = hunt.iter().filter(|(_, hex)| {
        let hex = hex.as_str().unwrap_or_default();
        in_memory(hex.as_bytes())
    });
    let names: Vec<&str> = found.map(|(name, _)| name.as_str()).collect();
    names.join(", ")
}

/// Tells the host's log what stands in memory in this export.
pub fn tell(export: &str, hunt: Option<&Value>) {
    let found = hunted(hunt);
    host::log(
        host::Level::Warn,
        &format!("hunted in {export}: {found};"),
        &[],
    );
}

/// The beginning of a text, of at most so many bytes.
pub fn bounded(mut text: String, limit: usize) -> String {
    let end = (0..=limit.min(text.len()))
        .rev()
        .find(|&at| text.is_char_boundary(at))
        .unwrap_or(0);
    text.truncate(end);
    text
}

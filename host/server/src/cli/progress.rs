//! Says on a terminal that something long goes on, and wipes it when it is over.

use std::io::{IsTerminal, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Does `work`, showing `what` and the time on standard error while it takes longer than a moment. Where
/// standard error is not a terminal, nothing is shown.
pub async fn during<T>(what: &str, work: impl Future<Output = T>) -> T {
    shown(|| what.to_owned(), work).await
}

/// The same, and shows how many bytes were moved so far.
pub async fn moving<T>(what: &str, moved: &AtomicU64, work: impl Future<Output = T>) -> T {
    shown(
        || format!("{what} {}", bytes(moved.load(Ordering::Relaxed))),
        work,
    )
    .await
}

async fn shown<T>(what: impl Fn() -> String, work: impl Future<Output = T>) -> T {
    if !std::io::stderr().is_terminal() {
        return work.await;
    }
    let started = Instant::now();
    let mut shown = false;
    let mut work = std::pin::pin!(work);
    let mut tick = tokio::time::interval(Duration::from_millis(500));
    tick.tick().await;
    let done = loop {
        tokio::select! {
            done = work.as_mut() => break done,
            _ = tick.tick() => {
                shown = true;
                let _ = write!(std::io::stderr(), "\r\u{1b}[K{} … {} s", what(), started.elapsed().as_secs());
                let _ = std::io::stderr().flush();
            }
        }
    };
    if shown {
        let _ = write!(std::io::stderr(), "\r\u{1b}[K");
        let _ = std::io::stderr().flush();
    }
    done
}

fn bytes(count: u64) -> String {
    match count {
        0..0x40_0000 => format!("{} KiB", count >> 10),
        _ => format!("{} MiB", count >> 20),
    }
}

#[cfg(test)]
mod tests {
    use super::bytes;

    #[test]
    fn bytes_are_told_in_a_unit_that_moves() {
        assert_eq!(bytes(0), "0 KiB");
        assert_eq!(bytes((4 << 20) - 1), "4095 KiB");
        assert_eq!(bytes(5 << 30), "5120 MiB");
    }
}

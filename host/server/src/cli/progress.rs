//! Says on a terminal that something long goes on, and wipes it when it is over.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

/// Does `work`, showing `what` and the time on standard error while it takes longer than a moment. Where
/// standard error is not a terminal, nothing is shown.
pub async fn during<T>(what: &str, work: impl Future<Output = T>) -> T {
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
                let _ = write!(std::io::stderr(), "\r\u{1b}[K{what} … {} s", started.elapsed().as_secs());
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

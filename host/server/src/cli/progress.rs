//! Says on a terminal that something long goes on, and wipes it when it is over.

use std::cell::RefCell;
use std::io::{IsTerminal, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::client::Client;
use super::exit::CliError;
use super::output::plain;
use super::terminal;

/// How often the line is written anew.
const TICK: Duration = Duration::from_millis(500);
/// How often the server is asked what it does.
const ASK_EVERY: Duration = Duration::from_secs(1);

/// Does `work`, showing `what` and the time on standard error while it takes longer than a moment. Where
/// standard error is not a terminal, nothing is shown.
pub async fn during<T>(what: &str, work: impl Future<Output = T>) -> T {
    alone(|| what.to_owned(), work).await
}

/// The same, and shows how many bytes were moved so far.
pub async fn moving<T>(what: &str, moved: &AtomicU64, work: impl Future<Output = T>) -> T {
    let what = || format!("{what} {}", bytes(moved.load(Ordering::Relaxed)));
    alone(what, work).await
}

async fn alone<T>(what: impl Fn() -> String, work: impl Future<Output = T>) -> T {
    if !std::io::stderr().is_terminal() {
        return work.await;
    }
    let said = RefCell::default();
    shown(what, &said, work, std::future::pending()).await
}

/// As [`during`], with what the server says meanwhile: the member `progress` of what it answers at `path`.
pub async fn during_told<T>(
    what: &str,
    client: &Client,
    path: &str,
    work: impl Future<Output = T>,
) -> T {
    if !std::io::stderr().is_terminal() {
        return work.await;
    }
    let said = RefCell::new(String::new());
    let listening = async {
        loop {
            tokio::time::sleep(ASK_EVERY).await;
            // Whoever has nothing to say is answered 404: that is no reason to stop asking, or to fail.
            if let Ok(answer) = client.get(path).await {
                let text = answer["progress"]["text"].as_str().unwrap_or_default();
                *said.borrow_mut() = plain(text);
            }
        }
    };
    shown(|| what.to_owned(), &said, work, listening).await
}

/// A name for work, to ask for it by.
pub fn name() -> Result<String, CliError> {
    let mut bytes = [0u8; 12];
    getrandom::fill(&mut bytes).map_err(|e| CliError::Local(format!("no randomness: {e}")))?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

async fn shown<T>(
    what: impl Fn() -> String,
    said: &RefCell<String>,
    work: impl Future<Output = T>,
    listening: impl Future<Output = ()>,
) -> T {
    let started = Instant::now();
    let mut written = false;
    let mut work = std::pin::pin!(work);
    let mut listening = std::pin::pin!(listening);
    let mut tick = tokio::time::interval(TICK);
    tick.tick().await;
    let done = loop {
        tokio::select! {
            done = work.as_mut() => break done,
            () = listening.as_mut() => {}
            _ = tick.tick() => {
                written = true;
                let line = line(&what(), started.elapsed().as_secs(), &said.borrow(), terminal::size().0);
                let _ = write!(std::io::stderr(), "\r\u{1b}[K{line}");
                let _ = std::io::stderr().flush();
            }
        }
    };
    if written {
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

/// One line that fits into so many columns: a longer one could not be wiped.
fn line(what: &str, seconds: u64, said: &str, columns: u16) -> String {
    let mut line = format!("{what} … {seconds} s");
    if !said.is_empty() {
        line.push_str(": ");
        line.push_str(said);
    }
    let room = usize::from(columns).saturating_sub(1);
    if line.chars().count() > room {
        line = line.chars().take(room.saturating_sub(1)).collect();
        line.push('…');
    }
    line
}

#[cfg(test)]
mod tests {
    use super::{bytes, line};

    #[test]
    fn bytes_are_told_in_a_unit_that_moves() {
        assert_eq!(bytes(0), "0 KiB");
        assert_eq!(bytes((4 << 20) - 1), "4095 KiB");
        assert_eq!(bytes(5 << 30), "5120 MiB");
    }

    #[test]
    fn what_the_server_says_stands_next_to_the_seconds_and_is_cut_to_the_terminal() {
        assert_eq!(line("acquiring", 3, "", 80), "acquiring … 3 s");
        assert_eq!(
            line("acquiring", 3, "making the workspace", 80),
            "acquiring … 3 s: making the workspace"
        );
        let cut = line("acquiring", 3, "making the workspace", 20);
        assert_eq!((cut.chars().count(), cut.ends_with('…')), (19, true));
    }
}

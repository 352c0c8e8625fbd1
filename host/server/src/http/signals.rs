//! SIGINT, SIGTERM, SIGHUP and SIGQUIT: the first asks the server to end in order, a second ends it at once, also where the
//! file system keeps a thread in a read that nothing can interrupt.

use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// How long the rest of the process has to say that it ends, before it is ended without a word.
const SAYS: Duration = Duration::from_secs(1);
/// The exit code of a process that was ended at once.
const CUT: i32 = 1;

/// The signals, caught from now on.
#[derive(Debug)]
pub struct Signals {
    streams: Vec<(&'static str, Signal)>,
}

impl Signals {
    /// Catches them. Called before anything is opened, so that no moment of the start is without them.
    pub fn catch() -> std::io::Result<Signals> {
        let streams = [
            ("SIGINT", SignalKind::interrupt()),
            ("SIGTERM", SignalKind::terminate()),
            ("SIGHUP", SignalKind::hangup()),
            ("SIGQUIT", SignalKind::quit()),
        ]
        .into_iter()
        .map(|(name, kind)| signal(kind).map(|stream| (name, stream)))
        .collect::<std::io::Result<Vec<_>>>()?;
        Ok(Signals { streams })
    }

    /// Fires `closing` at the first signal and `hard` at the second; never returns. Whoever hears `hard` ends the process;
    /// where nobody does, because the thread that would is held by the system, it is ended here. It is as `kill -9`, which the
    /// next start expects.
    pub async fn watch(mut self, closing: CancellationToken, hard: CancellationToken) {
        loop {
            let name = self.next().await;
            if closing.is_cancelled() {
                tracing::warn!(signal = name, "signalled again: ending at once");
                hard.cancel();
                tokio::time::sleep(SAYS).await;
                tracing::error!(
                    "ended at once by a second signal, in the middle of a call of the system that does not return"
                );
                std::process::exit(CUT);
            } else {
                tracing::info!(signal = name, "signalled: ending in order");
                closing.cancel();
            }
        }
    }

    async fn next(&mut self) -> &'static str {
        std::future::poll_fn(|cx| {
            for (name, stream) in &mut self.streams {
                if let std::task::Poll::Ready(Some(())) = stream.poll_recv(cx) {
                    return std::task::Poll::Ready(*name);
                }
            }
            std::task::Poll::Pending
        })
        .await
    }
}

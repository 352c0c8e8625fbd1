//! SIGINT, SIGTERM, SIGHUP and SIGQUIT: the first asks the server to end in order, a second ends it at once.

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;

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

    /// Fires `closing` at the first signal and `hard` at the second; never returns.
    pub async fn watch(mut self, closing: CancellationToken, hard: CancellationToken) {
        loop {
            let name = self.next().await;
            if closing.is_cancelled() {
                tracing::warn!(signal = name, "signalled again: ending at once");
                hard.cancel();
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

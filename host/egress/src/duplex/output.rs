//! What comes out of a process, in the order in which it was said, and its end last: the same of every transport.

use std::collections::VecDeque;

use async_trait::async_trait;
use bytes::Bytes;
use leasehold_contract::{Ended, ProcessEvent, ProcessOutput};

use super::framing::To;

/// What was read and not yet given on.
#[derive(Default)]
pub(super) struct Ready {
    events: VecDeque<ProcessEvent>,
    end: Option<Ended>,
}

impl Ready {
    /// The process said this.
    pub(super) fn say(&mut self, said: impl IntoIterator<Item = (To, Bytes)>) {
        self.events
            .extend(said.into_iter().map(|(to, bytes)| match to {
                To::Out => ProcessEvent::Stdout(bytes),
                To::Err => ProcessEvent::Stderr(bytes),
            }));
    }

    /// There is no more; the last word counts.
    pub(super) fn end(&mut self, ended: Ended) {
        self.end = Some(ended);
    }
}

/// Where the output comes from.
pub(super) trait Source: Send {
    /// Waits for something and reads it. Cancel-safe. Not asked again after an end.
    fn read(&mut self, ready: &mut Ready) -> impl Future<Output = ()> + Send;
}

/// [`ProcessOutput`] of a source.
pub(super) struct Output<S> {
    source: S,
    ready: Ready,
    done: bool,
}

impl<S: Source> Output<S> {
    /// All that will come of it.
    pub(super) fn of(source: S) -> Output<S> {
        Output {
            source,
            ready: Ready::default(),
            done: false,
        }
    }
}

#[async_trait]
impl<S: Source> ProcessOutput for Output<S> {
    async fn next(&mut self) -> Option<ProcessEvent> {
        loop {
            if let Some(event) = self.ready.events.pop_front() {
                return Some(event);
            }
            if self.done {
                return None;
            }
            if let Some(end) = self.ready.end.take() {
                self.done = true;
                return Some(ProcessEvent::Ended(end));
            }
            self.source.read(&mut self.ready).await;
        }
    }
}

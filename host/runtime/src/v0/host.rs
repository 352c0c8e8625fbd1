//! `interface host`: what a component tells the host while it works.
//!
//! Text is bounded, stripped and redacted before it goes on; a call that never stops talking is cut
//! off after its share of lines, without an error.

use std::sync::Arc;
use std::time::Duration;

use leasehold_contract as c;

use super::arguments::{error, millis};
use super::imported::host::{Host, Level, Thing};
use super::imported::types;
use crate::state::{Said, State};
use crate::text::{self, clean};

/// Bounds of one line.
const FIELDS: usize = 32;
const FIELD_KEY: usize = 64;
const FIELD_VALUE: usize = 1 << 10;
const STEP: usize = 128;

impl Host for State {
    async fn log(
        &mut self,
        level: Level,
        message: String,
        fields: Vec<(String, String)>,
    ) -> wasmtime::Result<()> {
        let level = match level {
            Level::Trace => c::Level::Trace,
            Level::Debug => c::Level::Debug,
            Level::Info => c::Level::Info,
            Level::Warn => c::Level::Warn,
            Level::Error => c::Level::Error,
        };
        match self.lines.next() {
            Said::Pass => {
                let message = clean(&message, text::MESSAGE, &self.redactor);
                let fields = fields
                    .iter()
                    .take(FIELDS)
                    .map(|(key, value)| {
                        (
                            clean(key, FIELD_KEY, &self.redactor),
                            clean(value, FIELD_VALUE, &self.redactor),
                        )
                    })
                    .collect();
                self.host.log(level, message, fields);
            }
            Said::FirstDropped => self.host.log(
                c::Level::Warn,
                "the provider says too much: the rest of this call is dropped".to_owned(),
                Vec::new(),
            ),
            Said::Dropped => {}
        }
        Ok(())
    }

    async fn progress(
        &mut self,
        step: String,
        message: String,
        done: Option<f64>,
        total: Option<f64>,
    ) -> wasmtime::Result<()> {
        if let Said::Pass = self.lines.next() {
            let step = clean(&step, STEP, &self.redactor);
            let message = clean(&message, text::MESSAGE, &self.redactor);
            let number = |n: Option<f64>| n.filter(|n| n.is_finite() && *n >= 0.0);
            self.host
                .progress(step, message, number(done), number(total));
        }
        Ok(())
    }

    async fn journal(
        &mut self,
        thing: Thing,
        resource: String,
        reference: Option<String>,
    ) -> wasmtime::Result<Result<(), types::Error>> {
        if let Err(refused) = crate::bounds::journalled(&resource, reference.as_deref()) {
            return Ok(Err(error(refused)));
        }
        let thing = match thing {
            Thing::Environment => c::Thing::Environment,
            Thing::Command => c::Thing::Command,
            Thing::Image => c::Thing::Image,
            Thing::Other => c::Thing::Other,
        };
        let host = Arc::clone(&self.host);
        let recorded = host.journal(thing, resource, reference).await;
        Ok(recorded.map_err(error))
    }

    async fn sleep(&mut self, span: u32) -> wasmtime::Result<Result<(), types::Error>> {
        let host = Arc::clone(&self.host);
        let stopped = tokio::select! {
            biased;
            () = host.cancelled() => true,
            () = tokio::time::sleep(Duration::from_millis(u64::from(span))) => false,
        };
        Ok(if stopped {
            Err(error(c::Error::new(
                c::Code::Cancelled,
                "the host said stop",
            )))
        } else {
            Ok(())
        })
    }

    async fn remaining(&mut self) -> wasmtime::Result<u32> {
        Ok(millis(State::remaining(self)))
    }
}

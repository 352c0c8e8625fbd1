//! The figures as instruments of a collector, which read them when it is time to export.
//!
//! The SDK asks each instrument by itself, on a thread of its own; what they answer at one export is one reading.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use opentelemetry::KeyValue;
use opentelemetry::metrics::Meter;
use tokio::runtime::Handle;

use super::{FAMILIES, Family, Kind, Point, REQUESTS, Reading, Told, Value};
use crate::http::metrics::{BOUNDS, Metrics};
use crate::service::{Service, ServiceStats};

/// How long a reading may take.
const READING: Duration = Duration::from_secs(2);

/// What all figures are read from.
#[derive(Debug)]
pub struct Figures {
    metrics: Metrics,
    service: OnceLock<Service>,
    runtime: Handle,
    turn: Mutex<Turn>,
}

#[derive(Debug, Default)]
struct Turn {
    reading: Arc<Reading>,
    /// The families, each a bit, that have it; one that comes again begins the next.
    had: u32,
    /// The service's last ones, once it ends.
    last: Option<ServiceStats>,
}

// Each family has a bit.
const _: () = assert!(FAMILIES.len() < u32::BITS as usize);

impl Figures {
    /// Those of the HTTP side alone, until there is a service. Must be called where tokio runs.
    pub fn new(metrics: Metrics) -> Arc<Figures> {
        Arc::new(Figures {
            metrics,
            service: OnceLock::new(),
            runtime: Handle::current(),
            turn: Mutex::new(Turn {
                had: u32::MAX,
                ..Turn::default()
            }),
        })
    }

    /// The service's too, from now on.
    pub fn serve(&self, service: Service) {
        // A second one would be a mistake of the caller; the first stays.
        let _ = self.service.set(service);
    }

    /// Keeps the service's as they are now, for what is exported after it has ended.
    pub async fn keep(&self) {
        let Some(service) = self.service.get() else {
            return;
        };
        if let Ok(Ok(last)) = tokio::time::timeout(READING, service.stats()).await {
            self.turn
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .last = Some(last);
        }
    }

    /// Tells a collector of them, by instruments of this meter.
    pub fn tell(self: &Arc<Self>, meter: &Meter) {
        let durations = meter
            .f64_histogram(REQUESTS)
            .with_unit("s")
            .with_description("Time from a request's head to its answer's head")
            .with_boundaries(BOUNDS.to_vec());
        self.metrics.tell(durations.build());
        for (at, family) in FAMILIES.iter().enumerate() {
            if let Told::As(name, unit) = family.told {
                self.instrument(meter, at, family, name, unit);
            }
        }
    }

    fn instrument(
        self: &Arc<Self>,
        meter: &Meter,
        at: usize,
        family: &'static Family,
        name: &'static str,
        unit: &'static str,
    ) {
        let figures = Arc::clone(self);
        let points = move || {
            family
                .points(&figures.reading(at))
                .into_iter()
                .map(attributed)
        };
        // The SDK keeps what it is given: the instruments themselves are handles of nothing.
        match family.kind {
            Kind::Counter => drop(
                meter
                    .u64_observable_counter(name)
                    .with_unit(unit)
                    .with_description(family.help)
                    .with_callback(move |told| {
                        points().for_each(|(value, of)| told.observe(whole(value), &of));
                    })
                    .build(),
            ),
            Kind::Gauge => drop(
                meter
                    .u64_observable_gauge(name)
                    .with_unit(unit)
                    .with_description(family.help)
                    .with_callback(move |told| {
                        points().for_each(|(value, of)| told.observe(whole(value), &of));
                    })
                    .build(),
            ),
            Kind::Level => drop(
                meter
                    .i64_observable_up_down_counter(name)
                    .with_unit(unit)
                    .with_description(family.help)
                    .with_callback(move |told| {
                        points().for_each(|(value, of)| {
                            let value = i64::try_from(whole(value)).unwrap_or(i64::MAX);
                            told.observe(value, &of);
                        });
                    })
                    .build(),
            ),
            Kind::Seconds | Kind::Durations => drop(
                meter
                    .f64_observable_counter(name)
                    .with_unit(unit)
                    .with_description(family.help)
                    .with_callback(move |told| {
                        points().for_each(|(value, of)| told.observe(seconds(value), &of));
                    })
                    .build(),
            ),
        }
    }

    /// The reading for the family at this place of the list: the one that others had, where it had none of it.
    fn reading(&self, at: usize) -> Arc<Reading> {
        let mut turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let bit = 1 << at;
        if turn.had & bit != 0 {
            turn.reading = Arc::new(self.read(turn.last.as_ref()));
            turn.had = 0;
        }
        turn.had |= bit;
        Arc::clone(&turn.reading)
    }

    fn read(&self, last: Option<&ServiceStats>) -> Reading {
        let service = match (last, self.service.get()) {
            (Some(last), _) => Some(last.clone()),
            // A thread of tokio's cannot wait for what others of them do.
            (None, Some(service)) if Handle::try_current().is_err() => {
                let reading = async { tokio::time::timeout(READING, service.stats()).await };
                self.runtime.block_on(reading).ok().and_then(Result::ok)
            }
            (None, _) => None,
        };
        Reading {
            http: self.metrics.read(),
            service,
        }
    }
}

fn attributed(point: Point) -> (Value, Vec<KeyValue>) {
    let of = point.of.into_iter().map(|(label, word)| {
        let known = label.words.iter().find(|(own, _)| *own == word);
        match known {
            Some((_, said)) => KeyValue::new(label.attribute, *said),
            None => KeyValue::new(label.attribute, word),
        }
    });
    (point.value, of.collect())
}

fn whole(value: Value) -> u64 {
    match value {
        Value::Whole(value) => value,
        Value::Time(time) | Value::Durations(_, time) => time.as_secs(),
    }
}

fn seconds(value: Value) -> f64 {
    match value {
        Value::Whole(value) => value as f64,
        Value::Time(time) | Value::Durations(_, time) => time.as_secs_f64(),
    }
}

//! Every figure that the server tells of itself, in one list.
//!
//! [`FAMILIES`] says of each what it is called, what it is counted by and how it is read. `text` writes the list for
//! `/metrics`, `collector` makes instruments of it: what is not in the list is told to nobody, and what is in it, to both.
//! Names for a collector are those of OpenTelemetry's semantic conventions where there is one. Invariant: what a figure is
//! counted by is a closed set or a provider's key, never an id, a name or anything a client chose.

mod collector;
mod text;

use std::time::Duration;

use leasehold_runtime::Stats;

use crate::http::metrics::{Classes, Counts};
use crate::service::ServiceStats;

pub use collector::Figures;
pub use text::write;

/// The histogram of requests, by the semantic conventions: how many there were is in it too.
pub const REQUESTS: &str = "http.server.request.duration";

/// What kind of figure it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// How often or how much, which only grows.
    Counter,
    /// Time, which only grows.
    Seconds,
    /// How many there are now; two of them can be added up.
    Level,
    /// How it is now; to add two of them up means nothing.
    Gauge,
    /// Durations by their classes.
    Durations,
}

/// What a collector is told of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Told {
    /// An instrument that reads it: its name, and its unit in UCUM.
    As(&'static str, &'static str),
    /// What [`REQUESTS`] has already, recorded as it happens.
    InRequests,
}

/// Figures of one name.
#[derive(Debug)]
pub struct Family {
    /// In `/metrics`, after `leasehold_`, without the endings that samples have there.
    pub name: &'static str,
    /// What it is, without a full stop.
    pub help: &'static str,
    /// What kind.
    pub kind: Kind,
    /// What a collector is told.
    pub told: Told,
    read: fn(&Reading, &mut Vec<Point>),
}

/// What figures are counted by.
#[derive(Debug, PartialEq, Eq)]
pub struct Label {
    /// In `/metrics`.
    pub text: &'static str,
    /// To a collector.
    pub attribute: &'static str,
    /// Values that a collector is told by another word, of the semantic conventions.
    pub words: &'static [(&'static str, &'static str)],
}

impl Label {
    const fn new(text: &'static str, attribute: &'static str) -> Label {
        Label {
            text,
            attribute,
            words: &[],
        }
    }
}

static METHOD: Label = Label::new("method", "http.request.method");
static ROUTE: Label = Label::new("route", "http.route");
static STATUS: Label = Label::new("status", "http.response.status_code");
static LEASE_STATUS: Label = Label::new("status", "leasehold.lease.status");
static PROVIDER: Label = Label::new("provider", "leasehold.provider");
static OUTCOME: Label = Label::new("outcome", "leasehold.outcome");
static DIRECTION: Label = Label {
    words: &[("in", "receive"), ("out", "transmit")],
    ..Label::new("direction", "network.io.direction")
};

/// One figure of a family.
#[derive(Clone, Debug, PartialEq)]
pub struct Point {
    /// What it is of.
    pub of: Vec<(&'static Label, String)>,
    /// What it is.
    pub value: Value,
}

/// What a figure is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value {
    /// Of a counter, a level or a gauge.
    Whole(u64),
    /// Of a time.
    Time(Duration),
    /// Of durations: how many in each class, and all of them together.
    Durations(Classes, Duration),
}

/// All figures at one time.
#[derive(Clone, Debug, Default)]
pub struct Reading {
    /// Of the HTTP side.
    pub http: Counts,
    /// Of the service; none before it is open.
    pub service: Option<ServiceStats>,
}

impl Family {
    /// Its figures in this reading.
    pub fn points(&self, reading: &Reading) -> Vec<Point> {
        let mut points = Vec::new();
        (self.read)(reading, &mut points);
        points
    }
}

/// The list.
pub static FAMILIES: [Family; 15] = [
    Family {
        name: "http_requests",
        help: "Requests that were answered",
        kind: Kind::Counter,
        told: Told::InRequests,
        read: |reading, points| {
            for (route, counts) in &reading.http.routes {
                points.extend(counts.answered.iter().map(|((method, status), count)| {
                    let method = (&METHOD, (*method).to_owned());
                    let of = vec![
                        method,
                        (&ROUTE, route.clone()),
                        (&STATUS, status.to_string()),
                    ];
                    Point {
                        of,
                        value: Value::Whole(*count),
                    }
                }));
            }
        },
    },
    Family {
        name: "http_request_duration_seconds",
        help: "Time from a request's head to its answer's head",
        kind: Kind::Durations,
        told: Told::InRequests,
        read: |reading, points| {
            points.extend(reading.http.routes.iter().map(|(route, counts)| Point {
                of: vec![(&ROUTE, route.clone())],
                value: Value::Durations(counts.classes, counts.time),
            }));
        },
    },
    Family {
        name: "http_connections",
        help: "Open connections",
        kind: Kind::Level,
        told: Told::As("leasehold.http.connection.count", "{connection}"),
        read: |reading, points| points.push(alone(reading.http.connections)),
    },
    Family {
        name: "execution_streams",
        help: "Open WebSockets",
        kind: Kind::Level,
        told: Told::As("leasehold.execution.stream.count", "{stream}"),
        read: |reading, points| points.push(alone(reading.http.streams)),
    },
    Family {
        name: "execution_stream_bytes",
        help: "Bytes of commands that passed a WebSocket",
        kind: Kind::Counter,
        told: Told::As("leasehold.execution.stream.io", "By"),
        read: |reading, points| {
            let http = &reading.http;
            for (direction, bytes) in [("in", http.bytes_in), ("out", http.bytes_out)] {
                points.push(of(&DIRECTION, direction, Value::Whole(bytes)));
            }
        },
    },
    Family {
        name: "leases",
        help: "Leases by status",
        kind: Kind::Level,
        told: Told::As("leasehold.lease.count", "{lease}"),
        read: |reading, points| {
            for (status, count) in reading.service.iter().flat_map(|service| &service.leases) {
                let count = u64::try_from(*count).unwrap_or(0);
                points.push(of(&LEASE_STATUS, status.as_str(), Value::Whole(count)));
            }
        },
    },
    Family {
        name: "executions_attached",
        help: "Commands whose stream is read now",
        kind: Kind::Level,
        told: Told::As("leasehold.execution.attached", "{execution}"),
        read: |reading, points| {
            let service = reading.service.iter();
            points.extend(service.map(|service| alone(service.executions as u64)));
        },
    },
    Family {
        name: "ssh_connections",
        help: "Pooled SSH connections",
        kind: Kind::Level,
        told: Told::As("leasehold.ssh.connection.count", "{connection}"),
        read: |reading, points| {
            let service = reading.service.iter();
            points.extend(service.map(|service| alone(service.ssh_connections as u64)));
        },
    },
    Family {
        name: "plugin_tripped",
        help: "Whether a provider takes no new leases because it failed again and again",
        kind: Kind::Gauge,
        told: Told::As("leasehold.plugin.tripped", "1"),
        read: |reading, points| {
            for (key, health) in reading.service.iter().flat_map(|service| &service.health) {
                points.push(of(&PROVIDER, key, Value::Whole(u64::from(health.tripped))));
            }
        },
    },
    Family {
        name: "plugin_trips",
        help: "How often that happened since the server started",
        kind: Kind::Counter,
        told: Told::As("leasehold.plugin.trips", "{trip}"),
        read: |reading, points| {
            for (key, health) in reading.service.iter().flat_map(|service| &service.health) {
                let trips = Value::Whole(health.trips_total);
                points.push(of(&PROVIDER, key, trips));
            }
        },
    },
    Family {
        name: "component_calls",
        help: "Calls of components by what became of them",
        kind: Kind::Counter,
        told: Told::As("leasehold.component.calls", "{call}"),
        read: |reading, points| {
            for (key, stats) in providers(reading) {
                points.extend(outcomes(stats).map(|(outcome, count)| Point {
                    of: vec![(&PROVIDER, key.clone()), (&OUTCOME, outcome.to_owned())],
                    value: Value::Whole(count),
                }));
            }
        },
    },
    Family {
        name: "component_calls_in_flight",
        help: "Calls that wait or run now",
        kind: Kind::Level,
        told: Told::As("leasehold.component.active_calls", "{call}"),
        read: |reading, points| {
            let all = providers(reading);
            points
                .extend(all.map(|(key, stats)| of(&PROVIDER, key, Value::Whole(stats.in_flight))));
        },
    },
    Family {
        name: "component_cpu_seconds",
        help: "CPU time that components used",
        kind: Kind::Seconds,
        told: Told::As("leasehold.component.cpu.time", "s"),
        read: |reading, points| {
            let all = providers(reading);
            points.extend(all.map(|(key, stats)| of(&PROVIDER, key, Value::Time(stats.cpu_time))));
        },
    },
    Family {
        name: "component_queue_seconds",
        help: "Time that calls waited for their turn",
        kind: Kind::Seconds,
        told: Told::As("leasehold.component.queue.time", "s"),
        read: |reading, points| {
            let all = providers(reading);
            points
                .extend(all.map(|(key, stats)| of(&PROVIDER, key, Value::Time(stats.queue_time))));
        },
    },
    Family {
        name: "component_memory_peak_bytes",
        help: "The most memory that one call had",
        kind: Kind::Gauge,
        told: Told::As("leasehold.component.memory.peak", "By"),
        read: |reading, points| {
            let all = providers(reading);
            points.extend(
                all.map(|(key, stats)| of(&PROVIDER, key, Value::Whole(stats.memory_peak))),
            );
        },
    },
];

fn alone(value: u64) -> Point {
    Point {
        of: Vec::new(),
        value: Value::Whole(value),
    }
}

fn of(label: &'static Label, word: &str, value: Value) -> Point {
    Point {
        of: vec![(label, word.to_owned())],
        value,
    }
}

fn providers(reading: &Reading) -> impl Iterator<Item = (&String, &Stats)> {
    let service = reading.service.iter();
    service.flat_map(|service| &service.calls_by_provider)
}

fn outcomes(stats: &Stats) -> [(&'static str, u64); 9] {
    let calls = &stats.calls;
    [
        ("ok", calls.ok),
        ("provider", calls.provider),
        ("trap", calls.trap),
        ("timeout", calls.timeout),
        ("limit", calls.limit),
        ("busy", calls.busy),
        ("malformed", calls.malformed),
        ("host", calls.host),
        ("cancelled", calls.cancelled),
    ]
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_name_of_the_list_is_there_once_and_a_name_for_a_collector_begins_no_other() {
        let names: BTreeSet<_> = FAMILIES.iter().map(|family| family.name).collect();
        assert_eq!(names.len(), FAMILIES.len());
        let told: Vec<&str> = FAMILIES
            .iter()
            .filter_map(|family| match family.told {
                Told::As(name, _) => Some(name),
                Told::InRequests => None,
            })
            .collect();
        for one in &told {
            let as_namespace = format!("{one}.");
            let others = told.iter().filter(|other| *other == one);
            assert_eq!(others.count(), 1, "{one}");
            assert!(
                !told.iter().any(|other| other.starts_with(&as_namespace)),
                "{one}"
            );
        }
    }
}

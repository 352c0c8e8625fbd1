//! What is counted, in the text format that Prometheus reads.
//!
//! Labels are closed sets (method, matched route, status), never an id, a name or anything a client chose.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64};
use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

/// The counters of the HTTP side; cheap to clone.
#[derive(Clone, Debug)]
pub struct Metrics(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    registry: Registry,
    requests: Family<RequestLabels, Counter<u64, AtomicU64>>,
    durations: Family<RouteLabels, Histogram, fn() -> Histogram>,
    connections: Gauge<i64, AtomicI64>,
    streams: Gauge<i64, AtomicI64>,
    stream_bytes: Family<DirectionLabels, Counter<u64, AtomicU64>>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabels {
    method: Method,
    route: String,
    status: u16,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RouteLabels {
    route: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct DirectionLabels {
    direction: &'static str,
}

fn of_closed_set(method: &str) -> &'static str {
    match method {
        "GET" => "GET",
        "HEAD" => "HEAD",
        "POST" => "POST",
        "PUT" => "PUT",
        "PATCH" => "PATCH",
        "DELETE" => "DELETE",
        "OPTIONS" => "OPTIONS",
        _ => "other",
    }
}

/// The method's name, or `other`.
pub fn known_method(method: &axum::http::Method) -> &'static str {
    of_closed_set(method.as_str())
}

/// A method of a closed set: a client can invent others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Method(&'static str);

impl prometheus_client::encoding::EncodeLabelValue for Method {
    fn encode(
        &self,
        encoder: &mut prometheus_client::encoding::LabelValueEncoder<'_>,
    ) -> Result<(), std::fmt::Error> {
        prometheus_client::encoding::EncodeLabelValue::encode(&self.0, encoder)
    }
}

fn durations() -> Histogram {
    Histogram::new([
        0.0005, 0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0, 30.0, 120.0,
    ])
}

impl Metrics {
    /// Everything at zero.
    pub fn new() -> Metrics {
        let mut registry = Registry::with_prefix("leasehold");
        let requests = Family::default();
        let durations: Family<RouteLabels, Histogram, fn() -> Histogram> =
            Family::new_with_constructor(durations as fn() -> Histogram);
        let connections = Gauge::default();
        let streams = Gauge::default();
        let stream_bytes = Family::default();
        registry.register(
            "http_requests",
            "Requests that were answered",
            requests.clone(),
        );
        registry.register(
            "http_request_duration_seconds",
            "Time from a request's head to its answer's head",
            durations.clone(),
        );
        registry.register("http_connections", "Open connections", connections.clone());
        registry.register("execution_streams", "Open WebSockets", streams.clone());
        registry.register(
            "execution_stream_bytes",
            "Bytes of commands that passed a WebSocket",
            stream_bytes.clone(),
        );
        Metrics(Arc::new(Inner {
            registry,
            requests,
            durations,
            connections,
            streams,
            stream_bytes,
        }))
    }

    /// An answer left.
    pub fn request_answered(&self, method: &str, route: &str, status: u16, took: Duration) {
        let method = Method(of_closed_set(method));
        let route = route.to_owned();
        self.0
            .durations
            .get_or_create(&RouteLabels {
                route: route.clone(),
            })
            .observe(took.as_secs_f64());
        self.0
            .requests
            .get_or_create(&RequestLabels {
                method,
                route,
                status,
            })
            .inc();
    }

    /// A connection is open as long as the answer lives.
    pub fn connection(&self) -> Counted {
        Counted::new(&self.0.connections)
    }

    /// A stream is open as long as the answer lives.
    pub fn stream(&self) -> Counted {
        Counted::new(&self.0.streams)
    }

    /// Bytes passed, `out` of the command or `in` to it.
    pub fn stream_bytes(&self, direction: &'static str, bytes: usize) {
        self.0
            .stream_bytes
            .get_or_create(&DirectionLabels { direction })
            .inc_by(bytes as u64);
    }

    /// Everything, in OpenMetrics text without its closing line, so that more can follow.
    pub fn encode(&self, into: &mut String) {
        if prometheus_client::encoding::text::encode_registry(into, &self.0.registry).is_err() {
            tracing::error!("the metrics could not be written");
        }
    }
}

impl Default for Metrics {
    fn default() -> Metrics {
        Metrics::new()
    }
}

/// One more while it lives.
#[derive(Debug)]
pub struct Counted(Gauge<i64, AtomicI64>);

impl Counted {
    fn new(gauge: &Gauge<i64, AtomicI64>) -> Counted {
        gauge.inc();
        Counted(gauge.clone())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.dec();
    }
}

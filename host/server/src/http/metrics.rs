//! What the HTTP side counts.
//!
//! What it is counted by are closed sets (method, matched route, status), never an id, a name or anything a client chose.
//! What is told of it, and to whom, is in [`crate::figures`].

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock, PoisonError, RwLock};
use std::time::Duration;

use opentelemetry::KeyValue;
use opentelemetry::metrics::Histogram;

/// The upper ends of the classes of durations, each within its class, in seconds; what took longer is a class too.
pub const BOUNDS: [f64; 13] = [
    0.0005, 0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0, 30.0, 120.0,
];

/// How many fell into each class of durations.
pub type Classes = [u64; BOUNDS.len() + 1];

/// The counters of the HTTP side; cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Metrics(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    routes: RwLock<HashMap<String, Arc<Route>>>,
    connections: AtomicU64,
    streams: AtomicU64,
    bytes_in: AtomicU64,
    bytes_out: AtomicU64,
    /// The same durations for a collector, where there is one.
    told: OnceLock<Histogram<f64>>,
}

#[derive(Debug, Default)]
struct Route {
    answered: RwLock<HashMap<(&'static str, u16), AtomicU64>>,
    classes: [AtomicU64; BOUNDS.len() + 1],
    nanos: AtomicU64,
}

/// A reading of the counters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// By route.
    pub routes: BTreeMap<String, RouteCounts>,
    /// Open connections.
    pub connections: u64,
    /// Open WebSockets.
    pub streams: u64,
    /// Bytes of commands that passed a WebSocket, to them.
    pub bytes_in: u64,
    /// And from them.
    pub bytes_out: u64,
}

/// What one route was asked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RouteCounts {
    /// Answers by method and status.
    pub answered: BTreeMap<(&'static str, u16), u64>,
    /// Answers by how long they took.
    pub classes: Classes,
    /// How long all of them took together.
    pub time: Duration,
}

/// The method's name, or `other`: a client can invent others.
pub fn known_method(method: &axum::http::Method) -> &'static str {
    match method.as_str() {
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

/// What a map has, or is given now.
fn entry<K, V: Clone, Q>(map: &RwLock<HashMap<K, V>>, key: &Q, made: impl FnOnce() -> (K, V)) -> V
where
    K: Eq + std::hash::Hash + std::borrow::Borrow<Q>,
    Q: Eq + std::hash::Hash + ?Sized,
{
    let known = map.read().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = known.get(key) {
        return known.clone();
    }
    drop(known);
    let (key, value) = made();
    let mut map = map.write().unwrap_or_else(PoisonError::into_inner);
    map.entry(key).or_insert(value).clone()
}

impl Route {
    fn answered(&self, method: &'static str, status: u16, took: Duration) {
        let seconds = took.as_secs_f64();
        let class = BOUNDS.partition_point(|bound| *bound < seconds);
        self.classes[class].fetch_add(1, Relaxed);
        let nanos = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        self.nanos.fetch_add(nanos, Relaxed);
        let key = (method, status);
        let known = self.answered.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = known.get(&key) {
            count.fetch_add(1, Relaxed);
            return;
        }
        drop(known);
        let mut all = self
            .answered
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        all.entry(key).or_default().fetch_add(1, Relaxed);
    }

    fn read(&self) -> RouteCounts {
        let answered = self.answered.read().unwrap_or_else(PoisonError::into_inner);
        let answered = answered.iter().map(|(key, n)| (*key, n.load(Relaxed)));
        RouteCounts {
            answered: answered.collect(),
            classes: std::array::from_fn(|class| self.classes[class].load(Relaxed)),
            time: Duration::from_nanos(self.nanos.load(Relaxed)),
        }
    }
}

impl Metrics {
    /// Everything at zero.
    pub fn new() -> Metrics {
        Metrics::default()
    }

    /// Tells durations to a collector too, from now on.
    pub fn tell(&self, durations: Histogram<f64>) {
        // A second one would be a mistake of the caller; the first stays.
        let _ = self.0.told.set(durations);
    }

    /// An answer left: of a closed set of methods ([`known_method`]) and routes.
    pub fn request_answered(&self, method: &'static str, route: &str, status: u16, took: Duration) {
        entry(&self.0.routes, route, || (route.to_owned(), Arc::default()))
            .answered(method, status, took);
        if let Some(told) = self.0.told.get() {
            let of = [
                KeyValue::new("http.request.method", method),
                KeyValue::new("http.route", route.to_owned()),
                KeyValue::new("http.response.status_code", i64::from(status)),
            ];
            told.record(took.as_secs_f64(), &of);
        }
    }

    /// A connection is open as long as the answer lives.
    pub fn connection(&self) -> Counted {
        Counted::new(&self.0, |inner| &inner.connections)
    }

    /// A stream is open as long as the answer lives.
    pub fn stream(&self) -> Counted {
        Counted::new(&self.0, |inner| &inner.streams)
    }

    /// Bytes passed to a command.
    pub fn bytes_in(&self, bytes: usize) {
        self.0.bytes_in.fetch_add(bytes as u64, Relaxed);
    }

    /// Bytes passed from a command.
    pub fn bytes_out(&self, bytes: usize) {
        self.0.bytes_out.fetch_add(bytes as u64, Relaxed);
    }

    /// What was counted until now.
    pub fn read(&self) -> Counts {
        let inner = &self.0;
        let routes = inner.routes.read().unwrap_or_else(PoisonError::into_inner);
        let routes = routes.iter().map(|(name, one)| (name.clone(), one.read()));
        Counts {
            routes: routes.collect(),
            connections: inner.connections.load(Relaxed),
            streams: inner.streams.load(Relaxed),
            bytes_in: inner.bytes_in.load(Relaxed),
            bytes_out: inner.bytes_out.load(Relaxed),
        }
    }
}

/// One more while it lives.
#[derive(Debug)]
pub struct Counted {
    inner: Arc<Inner>,
    of: fn(&Inner) -> &AtomicU64,
}

impl Counted {
    fn new(inner: &Arc<Inner>, of: fn(&Inner) -> &AtomicU64) -> Counted {
        of(inner).fetch_add(1, Relaxed);
        Counted {
            inner: Arc::clone(inner),
            of,
        }
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        (self.of)(&self.inner).fetch_sub(1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_took_as_long_as_a_class_ends_is_of_it_and_what_took_longer_is_of_the_next() {
        let metrics = Metrics::new();
        for millis in [1, 2, 3, 120_000, 120_001] {
            metrics.request_answered("GET", "/x", 200, Duration::from_millis(millis));
        }
        metrics.request_answered("GET", "/x", 404, Duration::ZERO);
        let read = metrics.read();
        let route = &read.routes["/x"];
        assert_eq!(route.classes, [1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1]);
        assert_eq!(route.time, Duration::from_millis(240_007));
        let answered = BTreeMap::from([(("GET", 200), 5), (("GET", 404), 1)]);
        assert_eq!(route.answered, answered);
    }

    #[test]
    fn what_is_open_is_counted_until_it_is_closed() {
        let metrics = Metrics::new();
        let (one, _other) = (metrics.connection(), metrics.connection());
        assert_eq!(metrics.read().connections, 2);
        drop(one);
        assert_eq!(metrics.read().connections, 1);
        assert_eq!(metrics.read().streams, 0);
    }
}

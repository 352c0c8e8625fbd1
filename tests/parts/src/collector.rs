//! What takes traces and metrics by OTLP over HTTP: it keeps everything that it is sent, as it came.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, Result};
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::metrics::v1::number_data_point::Value as Number;
use opentelemetry_proto::tonic::metrics::v1::{Metric, NumberDataPoint};
use opentelemetry_proto::tonic::trace::v1::Span;
use opentelemetry_proto::tonic::trace::v1::status::StatusCode;
use prost::Message;

type Got = Arc<Mutex<Vec<Export>>>;

/// A collector on loopback.
#[derive(Debug)]
pub struct Collector {
    port: u16,
    url: String,
    got: Got,
}

/// What one request brought.
#[derive(Clone, Debug)]
pub struct Export {
    /// Where to.
    pub path: String,
    /// Its headers, names in lower case.
    pub headers: Vec<(String, String)>,
    /// The rest, as it came.
    pub body: Vec<u8>,
}

impl Export {
    /// All values of a header.
    pub fn header(&self, name: &str) -> Vec<&str> {
        let all = self.headers.iter().filter(|(key, _)| key == name);
        all.map(|(_, value)| value.as_str()).collect()
    }
}

/// A span as a test looks at it; ids in hex.
#[derive(Clone, Debug)]
pub struct Spanned {
    /// Its name.
    pub name: String,
    /// Its trace.
    pub trace: String,
    /// Its own id.
    pub id: String,
    /// Its parent's; empty where it has none.
    pub parent: String,
    /// Its attributes, as text.
    pub attributes: Vec<(String, String)>,
    /// Whether its status is that of an error.
    pub failed: bool,
    /// What its status says beside.
    pub said: String,
}

/// What a figure is.
#[derive(Clone, Debug, PartialEq)]
pub enum Figure {
    /// Of a counter, whether it only grows or not, or of a gauge.
    Number(f64),
    /// Of a histogram: the ends of its classes, how many in each, and all of them together.
    Classes(Vec<f64>, Vec<u64>, f64),
}

/// A figure as a test looks at it.
#[derive(Clone, Debug, PartialEq)]
pub struct Measured {
    /// Its name.
    pub name: String,
    /// `counter`, `level` (a sum that falls too), `gauge` or `histogram`.
    pub kind: &'static str,
    /// Its unit.
    pub unit: String,
    /// Its attributes, as text.
    pub attributes: Vec<(String, String)>,
    /// What it is.
    pub figure: Figure,
}

impl Spanned {
    fn of(span: Span) -> Spanned {
        let status = span.status.unwrap_or_default();
        Spanned {
            name: span.name,
            trace: hex(&span.trace_id),
            id: hex(&span.span_id),
            parent: hex(&span.parent_span_id),
            attributes: attributes(span.attributes),
            failed: status.code() == StatusCode::Error,
            said: status.message,
        }
    }

    /// An attribute.
    pub fn attribute(&self, key: &str) -> Option<&str> {
        let found = self.attributes.iter().find(|(name, _)| name == key);
        found.map(|(_, value)| value.as_str())
    }
}

fn attributes(of: Vec<KeyValue>) -> Vec<(String, String)> {
    let text = |value: Option<Value>| match value {
        Some(Value::StringValue(text)) => text,
        Some(Value::IntValue(number)) => number.to_string(),
        other => format!("{other:?}"),
    };
    let of = of.into_iter();
    of.map(|one| (one.key, text(one.value.and_then(|value| value.value))))
        .collect()
}

/// The figures of one metric.
fn measured(metric: Metric) -> Vec<Measured> {
    let (name, unit) = (metric.name, metric.unit);
    let one = |kind, of, figure| Measured {
        name: name.clone(),
        kind,
        unit: unit.clone(),
        attributes: attributes(of),
        figure,
    };
    let numbers = |kind, points: Vec<NumberDataPoint>| {
        let points = points.into_iter();
        let all = points.map(|point| {
            let number = match point.value {
                Some(Number::AsInt(whole)) => whole as f64,
                Some(Number::AsDouble(number)) => number,
                None => f64::NAN,
            };
            one(kind, point.attributes, Figure::Number(number))
        });
        all.collect()
    };
    match metric.data {
        Some(Data::Sum(sum)) if sum.is_monotonic => numbers("counter", sum.data_points),
        Some(Data::Sum(sum)) => numbers("level", sum.data_points),
        Some(Data::Gauge(gauge)) => numbers("gauge", gauge.data_points),
        Some(Data::Histogram(histogram)) => {
            let points = histogram.data_points.into_iter();
            let all = points.map(|point| {
                let sum = point.sum.unwrap_or(f64::NAN);
                let classes = Figure::Classes(point.explicit_bounds, point.bucket_counts, sum);
                one("histogram", point.attributes, classes)
            });
            all.collect()
        }
        _ => Vec::new(),
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

impl Collector {
    /// Begins to listen.
    ///
    /// # Errors
    /// No port of loopback can be had.
    pub fn start() -> Result<Collector> {
        Collector::answering("200 OK\r\n")
    }

    /// One that takes nothing, and says that it is to be sent to another.
    ///
    /// # Errors
    /// That of [`Collector::start`].
    pub fn leading_to(url: &str) -> Result<Collector> {
        Collector::answering(&format!("307 Temporary Redirect\r\nlocation: {url}\r\n"))
    }

    fn answering(answer: &str) -> Result<Collector> {
        let listener = TcpListener::bind("127.0.0.1:0").context("a port for the collector")?;
        let address = listener.local_addr()?;
        let got = Got::default();
        let keep = Arc::clone(&got);
        let answer: Arc<str> =
            format!("HTTP/1.1 {answer}content-length: 0\r\nconnection: close\r\n\r\n").into();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (keep, answer) = (Arc::clone(&keep), Arc::clone(&answer));
                std::thread::spawn(move || take(stream, &keep, &answer));
            }
        });
        Ok(Collector {
            port: address.port(),
            url: format!("http://{address}"),
            got,
        })
    }

    /// The port that it listens on.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Where it listens.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// All that it was sent.
    pub fn got(&self) -> Vec<Export> {
        let got = self.got.lock();
        got.unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn of(&self, wanted: &str) -> Vec<Vec<u8>> {
        let got = self.got().into_iter();
        got.filter(|export| export.path == wanted)
            .map(|export| export.body)
            .collect()
    }

    /// Every span.
    ///
    /// # Errors
    /// What was sent to `/v1/traces` is no such request.
    pub fn spans(&self) -> Result<Vec<Spanned>> {
        let mut spans = Vec::new();
        for body in self.of("/v1/traces") {
            let sent = ExportTraceServiceRequest::decode(&body[..])?;
            let scopes = sent.resource_spans.into_iter().flat_map(|r| r.scope_spans);
            spans.extend(scopes.flat_map(|scope| scope.spans).map(Spanned::of));
        }
        Ok(spans)
    }

    /// The figures of each export, in the order that they came in.
    ///
    /// # Errors
    /// What was sent to `/v1/metrics` is no such request.
    pub fn exports(&self) -> Result<Vec<Vec<Measured>>> {
        let mut exports = Vec::new();
        for body in self.of("/v1/metrics") {
            let sent = ExportMetricsServiceRequest::decode(&body[..])?;
            let scopes = sent
                .resource_metrics
                .into_iter()
                .flat_map(|r| r.scope_metrics);
            let metrics = scopes.flat_map(|scope| scope.metrics);
            exports.push(metrics.flat_map(measured).collect());
        }
        Ok(exports)
    }
}

/// One request of a connection.
fn take(stream: TcpStream, keep: &Got, answer: &str) {
    let mut reader = BufReader::new(stream);
    let (mut path, mut length, mut headers) = (String::new(), 0, Vec::new());
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).unwrap_or(0) == 0 {
            return;
        }
        let line = line.trim_end();
        if let Some(rest) = line.strip_prefix("POST ") {
            path = rest.split(' ').next().unwrap_or("").to_owned();
        } else if let Some((name, value)) = line.split_once(": ") {
            let name = name.to_ascii_lowercase();
            if name == "content-length" {
                length = value.parse().unwrap_or(0);
            }
            headers.push((name, value.to_owned()));
        }
        if line.is_empty() {
            break;
        }
    }
    let mut body = vec![0; length];
    if reader.read_exact(&mut body).is_err() {
        return;
    }
    let mut kept = keep.lock().unwrap_or_else(PoisonError::into_inner);
    kept.push(Export {
        path,
        headers,
        body,
    });
    drop(kept);
    // Whoever sent it may have gone away.
    let _ = reader.get_mut().write_all(answer.as_bytes());
}

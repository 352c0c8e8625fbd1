//! What takes traces and metrics by OTLP over HTTP: it keeps everything that it is sent, as it came.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, Result};
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message;

type Got = Arc<Mutex<Vec<(String, Vec<u8>)>>>;

/// A collector on loopback.
#[derive(Debug)]
pub struct Collector {
    url: String,
    got: Got,
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
}

impl Spanned {
    fn of(span: Span) -> Spanned {
        let text = |value: Option<Value>| match value {
            Some(Value::StringValue(text)) => text,
            Some(Value::IntValue(number)) => number.to_string(),
            other => format!("{other:?}"),
        };
        let attributes = span.attributes.into_iter();
        Spanned {
            name: span.name,
            trace: hex(&span.trace_id),
            id: hex(&span.span_id),
            parent: hex(&span.parent_span_id),
            attributes: attributes
                .map(|one| (one.key, text(one.value.and_then(|value| value.value))))
                .collect(),
        }
    }

    /// An attribute.
    pub fn attribute(&self, key: &str) -> Option<&str> {
        let found = self.attributes.iter().find(|(name, _)| name == key);
        found.map(|(_, value)| value.as_str())
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
        let listener = TcpListener::bind("127.0.0.1:0").context("a port for the collector")?;
        let url = format!("http://{}", listener.local_addr()?);
        let got = Got::default();
        let keep = Arc::clone(&got);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let keep = Arc::clone(&keep);
                std::thread::spawn(move || take(stream, &keep));
            }
        });
        Ok(Collector { url, got })
    }

    /// Where it listens.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// All that it was sent: the path, and the body.
    pub fn got(&self) -> Vec<(String, Vec<u8>)> {
        let got = self.got.lock();
        got.unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn of(&self, wanted: &str) -> Vec<Vec<u8>> {
        let got = self.got().into_iter();
        got.filter(|(path, _)| path == wanted)
            .map(|(_, body)| body)
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

    /// The names of all metrics.
    ///
    /// # Errors
    /// What was sent to `/v1/metrics` is no such request.
    pub fn metrics(&self) -> Result<Vec<String>> {
        let mut names = Vec::new();
        for body in self.of("/v1/metrics") {
            let sent = ExportMetricsServiceRequest::decode(&body[..])?;
            let scopes = sent
                .resource_metrics
                .into_iter()
                .flat_map(|r| r.scope_metrics);
            names.extend(scopes.flat_map(|scope| scope.metrics).map(|one| one.name));
        }
        Ok(names)
    }
}

/// One request of a connection.
fn take(stream: TcpStream, keep: &Got) {
    let mut reader = BufReader::new(stream);
    let (mut path, mut length) = (String::new(), 0);
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).unwrap_or(0) == 0 {
            return;
        }
        let line = line.trim_end().to_ascii_lowercase();
        if let Some(rest) = line.strip_prefix("post ") {
            path = rest.split(' ').next().unwrap_or("").to_owned();
        }
        if let Some(number) = line.strip_prefix("content-length: ") {
            length = number.parse().unwrap_or(0);
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
    kept.push((path, body));
    drop(kept);
    // Whoever sent it may have gone away.
    let _ = reader
        .get_mut()
        .write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n");
}

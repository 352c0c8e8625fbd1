//! Traces and metrics to an OpenTelemetry collector, where one is configured; nothing at all where none is.
//!
//! A request, the call of a component that it leads to, and what that asks of its target are spans of one trace. They
//! carry names from closed sets, ids of the host's own and where something went: no path, query, header, body, argument or
//! text of a provider, and so no secret. What is exported waits in bounded queues of the SDK's own threads: a collector
//! that is slow or gone costs requests nothing, loses what does not fit, and is told of once in the log.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use axum::http::{HeaderMap, HeaderValue};
use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper_util::rt::TokioIo;
use opentelemetry::metrics::{Histogram, MeterProvider};
use opentelemetry::propagation::TextMapPropagator;
use opentelemetry::trace::{TraceContextExt, TracerProvider};
use opentelemetry::{InstrumentationScope, KeyValue};
use opentelemetry_http::{HeaderExtractor, HttpClient, HttpError, Request, Response};
use opentelemetry_otlp::{
    MetricExporter, Protocol, SpanExporter, WithExportConfig, WithHttpConfig,
};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::metrics::SdkMeterProvider;
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::SdkTracerProvider;
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tracing::Span;
use tracing_opentelemetry::OpenTelemetrySpanExt;

/// The target of every span that is exported, and of nothing that is logged. The runtime's and egress's spans have it too.
pub const TARGET: &str = "leasehold::trace";

/// How long one export may take.
const EXPORT: Duration = Duration::from_secs(5);
/// How long the last export may take when the server ends.
const LAST: Duration = Duration::from_secs(2);
/// The most of a collector's answer that is read, in bytes.
const ANSWER: usize = 64 << 10;

/// A collector, as the settings name it: the base of its OTLP/HTTP URLs, without a slash at its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Collector {
    base: String,
}

impl std::str::FromStr for Collector {
    type Err = String;

    fn from_str(text: &str) -> Result<Collector, String> {
        let wrong = |why: &str| {
            Err(format!(
                "`{text}` {why}; write it like http://127.0.0.1:4318"
            ))
        };
        let base = text.trim_end_matches('/');
        if text.starts_with("https://") {
            return wrong(
                "is reached by TLS, which this server leaves to a collector beside it or a proxy",
            );
        }
        let Ok(uri) = base.parse::<hyper::Uri>() else {
            return wrong("is no URL");
        };
        let authority = uri.authority().map_or("", |authority| authority.as_str());
        if uri.scheme_str() != Some("http") || authority.is_empty() {
            return wrong("is not the URL of a collector");
        }
        if authority.contains('@') || uri.query().is_some() {
            return wrong("has more than a host, a port and a path");
        }
        Ok(Collector {
            base: base.to_owned(),
        })
    }
}

/// What goes to the collector.
#[derive(Debug)]
pub struct Telemetry {
    tracers: SdkTracerProvider,
    meters: SdkMeterProvider,
}

/// What is measured for the collector; cheap to clone.
#[derive(Clone, Debug)]
pub struct Measures {
    requests: Histogram<f64>,
}

/// The collector cannot be exported to.
#[derive(Debug, thiserror::Error)]
#[error("otlp-endpoint: {0}")]
pub struct TelemetryError(String);

impl Telemetry {
    /// Begins to export. Must be called where tokio runs.
    ///
    /// # Errors
    /// The SDK's word on the URL.
    pub fn start(collector: &Collector) -> Result<Telemetry, TelemetryError> {
        let failed = |e: &dyn std::fmt::Display| TelemetryError(e.to_string());
        let client: Arc<dyn HttpClient> = Arc::new(Wire {
            runtime: tokio::runtime::Handle::current(),
            failing: AtomicBool::new(false),
        });
        let traces = SpanExporter::builder()
            .with_http()
            .with_shared_http_client(Arc::clone(&client))
            .with_protocol(Protocol::HttpBinary)
            .with_endpoint(format!("{}/v1/traces", collector.base))
            .with_timeout(EXPORT)
            .build()
            .map_err(|e| failed(&e))?;
        let metrics = MetricExporter::builder()
            .with_http()
            .with_shared_http_client(client)
            .with_protocol(Protocol::HttpBinary)
            .with_endpoint(format!("{}/v1/metrics", collector.base))
            .with_timeout(EXPORT)
            .build()
            .map_err(|e| failed(&e))?;
        let resource = Resource::builder()
            .with_service_name("leasehold")
            .with_attribute(KeyValue::new("service.version", env!("CARGO_PKG_VERSION")))
            .build();
        Ok(Telemetry {
            tracers: SdkTracerProvider::builder()
                .with_batch_exporter(traces)
                .with_resource(resource.clone())
                .build(),
            meters: SdkMeterProvider::builder()
                .with_periodic_exporter(metrics)
                .with_resource(resource)
                .build(),
        })
    }

    /// The way of spans of [`TARGET`] to the collector.
    pub fn layer<S>(&self) -> impl tracing_subscriber::Layer<S> + use<S>
    where
        S: tracing::Subscriber + for<'s> tracing_subscriber::registry::LookupSpan<'s>,
    {
        let tracer = self.tracers.tracer_with_scope(scope());
        let layer = tracing_opentelemetry::layer()
            .with_tracer(tracer)
            .with_location(false)
            .with_threads(false)
            .with_target(false)
            .with_tracked_inactivity(false);
        let ours = tracing_subscriber::filter::filter_fn(|metadata| metadata.target() == TARGET);
        tracing_subscriber::Layer::with_filter(layer, ours)
    }

    /// What is measured.
    pub fn measures(&self) -> Measures {
        let meter = self.meters.meter_with_scope(scope());
        Measures {
            requests: meter
                .f64_histogram("http.server.request.duration")
                .with_unit("s")
                .with_description("Time from a request's head to its answer's head")
                .build(),
        }
    }

    /// Exports what is left, and ends. Waits for the collector for a moment, so not on a thread of tokio's.
    pub fn end(self) {
        for ended in [
            self.tracers.shutdown_with_timeout(LAST),
            self.meters.shutdown_with_timeout(LAST),
        ] {
            if let Err(error) = ended {
                tracing::debug!(%error, "the last telemetry was not exported");
            }
        }
    }
}

fn scope() -> InstrumentationScope {
    InstrumentationScope::builder("leasehold")
        .with_version(env!("CARGO_PKG_VERSION"))
        .build()
}

impl Measures {
    /// An answer left: of a closed set of methods and routes.
    pub fn request_answered(&self, method: &'static str, route: &str, status: u16, took: Duration) {
        let of = [
            KeyValue::new("http.request.method", method),
            KeyValue::new("http.route", route.to_owned()),
            KeyValue::new("http.response.status_code", i64::from(status)),
        ];
        self.requests.record(took.as_secs_f64(), &of);
    }
}

/// The span of a request, within the trace that its `traceparent` names; one that is off where nobody is told of it.
pub fn request(method: &str, route: &str, id: &str, headers: &HeaderMap) -> Span {
    let span = tracing::info_span!(
        target: TARGET,
        "request",
        otel.name = tracing::field::Empty,
        otel.kind = "server",
        otel.status_code = tracing::field::Empty,
        http.request.method = method,
        http.route = route,
        http.response.status_code = tracing::field::Empty,
        "error.type" = tracing::field::Empty,
        leasehold.request = id,
    );
    if span.is_disabled() {
        return span;
    }
    span.record("otel.name", format!("{method} {route}"));
    let parent = TraceContextPropagator::new().extract(&HeaderExtractor(headers));
    if parent.span().span_context().is_valid() {
        // It is not refused before the span is entered.
        let _ = span.set_parent(parent);
    }
    span
}

/// Tells a request's span how it ended, and answers what names the trace to whoever asked.
pub fn answered(span: &Span, status: u16, code: Option<&'static str>) -> Option<HeaderValue> {
    if span.is_disabled() {
        return None;
    }
    span.record("http.response.status_code", status);
    if let Some(code) = code {
        span.record("error.type", code);
    }
    if status >= 500 {
        span.record("otel.status_code", "ERROR");
    }
    let context = span.context();
    let context = context.span().span_context().clone();
    if !context.is_valid() {
        return None;
    }
    let text = format!(
        "00-{}-{}-{:02x}",
        context.trace_id(),
        context.span_id(),
        context.trace_flags().to_u8()
    );
    HeaderValue::from_str(&text).ok()
}

/// The way to the collector, from threads that are not tokio's.
#[derive(Debug)]
struct Wire {
    runtime: tokio::runtime::Handle,
    failing: AtomicBool,
}

#[async_trait]
impl HttpClient for Wire {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let (answer, answered) = oneshot::channel();
        self.runtime.spawn(async move {
            let sent = tokio::time::timeout(EXPORT, send(request)).await;
            let _ = answer.send(sent.unwrap_or_else(|_| Err("it did not answer in time".into())));
        });
        let sent = answered
            .await
            .unwrap_or_else(|_| Err("the server has ended".into()));
        let why = match &sent {
            Ok(response) if response.status().is_success() => None,
            Ok(response) => Some(format!("it answered {}", response.status())),
            Err(error) => Some(error.to_string()),
        };
        match why {
            Some(why) => {
                if !self.failing.swap(true, Ordering::AcqRel) {
                    tracing::warn!(
                        why,
                        "the collector takes no telemetry; what it misses is lost, and nothing else is"
                    );
                }
            }
            None => {
                if self.failing.swap(false, Ordering::AcqRel) {
                    tracing::info!("the collector takes telemetry again");
                }
            }
        }
        sent
    }
}

async fn send(request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
    let (mut head, body) = request.into_parts();
    let authority = head.uri.authority().ok_or("its URL has no host")?.clone();
    let port = authority.port_u16().unwrap_or(80);
    let host = authority.host().trim_matches(['[', ']']).to_owned();
    let stream = TcpStream::connect((host, port)).await?;
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    let connection = tokio::spawn(connection);
    head.uri = head
        .uri
        .path_and_query()
        .map_or("/", |path| path.as_str())
        .parse()?;
    head.headers.insert(
        axum::http::header::HOST,
        HeaderValue::from_str(authority.as_str())?,
    );
    let request = Request::from_parts(head, Full::new(body));
    let (head, body) = sender.send_request(request).await?.into_parts();
    let body = Limited::new(body, ANSWER).collect().await?.to_bytes();
    connection.abort();
    Ok(Response::from_parts(head, body))
}

#[cfg(test)]
mod tests {
    use super::Collector;

    #[test]
    fn a_collector_is_a_plain_url_and_nothing_else() {
        for good in [
            "http://127.0.0.1:4318",
            "http://[::1]:4318/",
            "http://otel/x",
        ] {
            assert!(good.parse::<Collector>().is_ok(), "{good}");
        }
        for bad in [
            "",
            "127.0.0.1:4318",
            "https://otel",
            "http://u:p@otel",
            "http://otel?a",
            "ftp://x",
        ] {
            let error = bad.parse::<Collector>().unwrap_err();
            assert!(error.contains("write it like"), "{error}");
        }
    }
}

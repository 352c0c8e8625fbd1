//! Traces and metrics to an OpenTelemetry collector, where one is configured; nothing at all where none is.
//!
//! A request, the call of a component that it leads to, and what that asks of its target are spans of one trace. They
//! carry names from closed sets, ids of the host's own and where something went: no path, query, header, body, argument or
//! text of a provider, and so no secret. What is exported waits in bounded queues of the SDK's own threads: a collector
//! that is slow or gone costs requests nothing, loses what does not fit, and is told of once in the log.

mod wire;

use std::sync::Arc;
use std::time::Duration;

use axum::http::{HeaderMap, HeaderValue};
use opentelemetry::metrics::MeterProvider;
use opentelemetry::propagation::TextMapPropagator;
use opentelemetry::trace::{TraceContextExt, TracerProvider};
use opentelemetry::{InstrumentationScope, KeyValue};
use opentelemetry_http::{HeaderExtractor, HttpClient};
use opentelemetry_otlp::{
    MetricExporter, Protocol, SpanExporter, WithExportConfig, WithHttpConfig,
};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::metrics::SdkMeterProvider;
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::SdkTracerProvider;
use tracing::Span;
use tracing_opentelemetry::OpenTelemetrySpanExt;

use crate::figures::Figures;
use crate::settings::{Collector, SettingsError};
use wire::Wire;

/// The target of every span that is exported, and of nothing that is logged. The runtime's and egress's spans have it too.
pub const TARGET: &str = "leasehold::trace";

/// How long one export may take.
const EXPORT: Duration = Duration::from_secs(5);
/// How long the last export may take when the server ends.
const LAST: Duration = Duration::from_secs(2);
/// What goes to the collector.
#[derive(Debug)]
pub struct Telemetry {
    tracers: SdkTracerProvider,
    meters: SdkMeterProvider,
}

/// The collector cannot be exported to.
#[derive(Debug, thiserror::Error)]
pub enum TelemetryError {
    /// A file of its settings.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// The SDK's word on it.
    #[error("otlp-endpoint: {0}")]
    Exporter(String),
}

impl Telemetry {
    /// Begins to export. Must be called where tokio runs.
    ///
    /// # Errors
    /// What its files hold, or the SDK's word on it.
    pub fn start(collector: &Collector) -> Result<Telemetry, TelemetryError> {
        let failed = |e: &dyn std::fmt::Display| TelemetryError::Exporter(e.to_string());
        let access = collector.access()?;
        let base = format!("{}{}", access.origin, access.path);
        let client: Arc<dyn HttpClient> = Arc::new(Wire::new(access));
        let traces = SpanExporter::builder()
            .with_http()
            .with_shared_http_client(Arc::clone(&client))
            .with_protocol(Protocol::HttpBinary)
            .with_endpoint(format!("{base}/v1/traces"))
            .with_timeout(EXPORT)
            .build()
            .map_err(|e| failed(&e))?;
        let metrics = MetricExporter::builder()
            .with_http()
            .with_shared_http_client(client)
            .with_protocol(Protocol::HttpBinary)
            .with_endpoint(format!("{base}/v1/metrics"))
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

    /// Tells the collector these figures, from now on.
    pub fn tell(&self, figures: &Arc<Figures>) {
        figures.tell(&self.meters.meter_with_scope(scope()));
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
        if code.is_none() {
            span.record("error.type", status.to_string());
        }
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

//! The figures in OpenMetrics text, as Prometheus reads it.
//!
//! What they are the list says, and how they are written `prometheus-client`.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;

use super::{FAMILIES, Kind, Reading, Value};
use crate::http::metrics::BOUNDS;

/// Appends all of them, with the closing line.
pub fn write(reading: &Reading, into: &mut String) {
    let mut registry = Registry::with_prefix("leasehold");
    registry.register_collector(Box::new(All(reading.clone())));
    if text::encode(into, &registry).is_err() {
        tracing::error!("the figures could not be written");
    }
}

/// All figures of one time.
#[derive(Debug)]
struct All(Reading);

impl Collector for All {
    fn encode(&self, mut encoder: DescriptorEncoder) -> fmt::Result {
        for family in &FAMILIES {
            let kind = match family.kind {
                Kind::Counter | Kind::Seconds => MetricType::Counter,
                Kind::Level | Kind::Gauge => MetricType::Gauge,
                Kind::Durations => MetricType::Histogram,
            };
            let help = format!("{}.", family.help);
            let mut metric = encoder.encode_descriptor(family.name, &help, None, kind)?;
            for point in family.points(&self.0) {
                let labels: Vec<(&str, &str)> = (point.of.iter())
                    .map(|(label, word)| (label.text, word.as_str()))
                    .collect();
                match labels.is_empty() {
                    true => sample(&mut metric, family.kind, point.value)?,
                    false => sample(
                        &mut metric.encode_family(&labels)?,
                        family.kind,
                        point.value,
                    )?,
                }
            }
        }
        Ok(())
    }
}

fn sample(metric: &mut MetricEncoder<'_>, kind: Kind, value: Value) -> fmt::Result {
    match (kind, value) {
        (Kind::Counter | Kind::Seconds, Value::Whole(value)) => {
            metric.encode_counter::<NoLabelSet, _, u64>(&value, None)
        }
        (Kind::Counter | Kind::Seconds, Value::Time(value)) => {
            metric.encode_counter::<NoLabelSet, _, u64>(&value.as_secs_f64(), None)
        }
        (_, Value::Whole(value)) => metric.encode_gauge(&value),
        (_, Value::Time(value)) => metric.encode_gauge(&value.as_secs_f64()),
        (_, Value::Durations(classes, time)) => {
            let ends = BOUNDS.iter().copied().chain([f64::INFINITY]);
            let buckets: Vec<(f64, u64)> = ends.zip(classes).collect();
            let count = classes.iter().sum();
            metric.encode_histogram::<NoLabelSet>(time.as_secs_f64(), count, &buckets, None)
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::http::metrics::Metrics;

    #[test]
    fn durations_are_written_as_what_took_at_most_so_long_and_words_are_escaped() {
        let metrics = Metrics::new();
        for millis in [1, 4, 400_000] {
            metrics.request_answered("GET", "/\"x\\", 200, Duration::from_millis(millis));
        }
        let reading = Reading {
            http: metrics.read(),
            service: None,
        };
        let mut text = String::new();
        write(&reading, &mut text);
        for wanted in [
            r#"leasehold_http_requests_total{method="GET",route="/\"x\\",status="200"} 3"#,
            r#"leasehold_http_request_duration_seconds_bucket{le="0.0005",route="/\"x\\"} 0"#,
            r#"leasehold_http_request_duration_seconds_bucket{le="0.001",route="/\"x\\"} 1"#,
            r#"leasehold_http_request_duration_seconds_bucket{le="0.005",route="/\"x\\"} 2"#,
            r#"leasehold_http_request_duration_seconds_bucket{le="120.0",route="/\"x\\"} 2"#,
            r#"leasehold_http_request_duration_seconds_bucket{le="+Inf",route="/\"x\\"} 3"#,
            r#"leasehold_http_request_duration_seconds_count{route="/\"x\\"} 3"#,
            r#"leasehold_http_request_duration_seconds_sum{route="/\"x\\"} 400.005"#,
            "# TYPE leasehold_http_connections gauge\nleasehold_http_connections 0",
        ] {
            assert!(text.contains(&format!("{wanted}\n")), "{wanted}: {text}");
        }
        assert!(text.ends_with("\n# EOF\n"));
    }
}

//! The figures in OpenMetrics text, as Prometheus reads it.

use std::fmt::{Display, Write};

use super::{FAMILIES, Family, Kind, Label, Point, Reading, Value};
use crate::http::metrics::BOUNDS;

/// Appends all of them, with the closing line.
pub fn write(reading: &Reading, into: &mut String) {
    for family in &FAMILIES {
        head(family, into);
        for point in family.points(reading) {
            sample(family, &point, into);
        }
    }
    into.push_str("# EOF\n");
}

fn head(family: &Family, into: &mut String) {
    let kind = match family.kind {
        Kind::Counter | Kind::Seconds => "counter",
        Kind::Level | Kind::Gauge => "gauge",
        Kind::Durations => "histogram",
    };
    let (name, help) = (family.name, family.help);
    let _ = writeln!(
        into,
        "# HELP leasehold_{name} {help}.\n# TYPE leasehold_{name} {kind}"
    );
}

fn sample(family: &Family, point: &Point, into: &mut String) {
    let name = family.name;
    let ending = match family.kind {
        Kind::Counter | Kind::Seconds => "_total",
        Kind::Level | Kind::Gauge | Kind::Durations => "",
    };
    match point.value {
        Value::Whole(value) => line(name, ending, &point.of, None, value, into),
        Value::Time(value) => {
            line(name, ending, &point.of, None, value.as_secs_f64(), into);
        }
        Value::Durations(classes, time) => {
            let ends = BOUNDS.iter().map(f64::to_string);
            let ends = ends.chain(std::iter::once("+Inf".to_owned()));
            let mut until = 0;
            for (end, count) in ends.zip(classes) {
                until += count;
                line(name, "_bucket", &point.of, Some(&end), until, into);
            }
            line(name, "_count", &point.of, None, until, into);
            line(name, "_sum", &point.of, None, time.as_secs_f64(), into);
        }
    }
}

fn line(
    name: &str,
    ending: &str,
    of: &[(&'static Label, String)],
    end: Option<&str>,
    value: impl Display,
    into: &mut String,
) {
    let _ = write!(into, "leasehold_{name}{ending}");
    let words = of.iter().map(|(label, word)| (label.text, word.as_str()));
    let all = words.chain(end.map(|end| ("le", end)));
    let mut before = '{';
    for (label, word) in all {
        let _ = write!(into, "{before}{label}=\"");
        for c in word.chars() {
            match c {
                '\\' => into.push_str("\\\\"),
                '"' => into.push_str("\\\""),
                '\n' => into.push_str("\\n"),
                other => into.push(other),
            }
        }
        into.push('"');
        before = ',';
    }
    if before == ',' {
        into.push('}');
    }
    let _ = writeln!(into, " {value}");
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
            r#"leasehold_http_request_duration_seconds_bucket{route="/\"x\\",le="0.0005"} 0"#,
            r#"leasehold_http_request_duration_seconds_bucket{route="/\"x\\",le="0.001"} 1"#,
            r#"leasehold_http_request_duration_seconds_bucket{route="/\"x\\",le="0.005"} 2"#,
            r#"leasehold_http_request_duration_seconds_bucket{route="/\"x\\",le="120"} 2"#,
            r#"leasehold_http_request_duration_seconds_bucket{route="/\"x\\",le="+Inf"} 3"#,
            r#"leasehold_http_request_duration_seconds_count{route="/\"x\\"} 3"#,
            r#"leasehold_http_request_duration_seconds_sum{route="/\"x\\"} 400.005"#,
            "# TYPE leasehold_http_connections gauge\nleasehold_http_connections 0",
        ] {
            assert!(text.contains(&format!("{wanted}\n")), "{wanted}: {text}");
        }
        assert!(text.ends_with("\n# EOF\n"));
    }
}

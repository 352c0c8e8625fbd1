//! The service's own counters, written for Prometheus at the moment they are asked for.

use std::fmt::Write;

use leasehold_runtime::Stats;

use crate::service::ServiceStats;

/// Appends them to `into`.
pub fn write(stats: &ServiceStats, into: &mut String) {
    // Names and labels here are ours; provider keys are `[a-z0-9-]`.
    let mut out = Text(into);
    out.family("leases", "gauge", "Leases by status");
    for (status, count) in &stats.leases {
        out.line(
            &format!("leases{{status=\"{}\"}}", status.as_str()),
            *count as f64,
        );
    }
    out.family(
        "executions_attached",
        "gauge",
        "Commands whose stream is read now",
    );
    out.line("executions_attached", stats.executions as f64);
    out.family("ssh_connections", "gauge", "Pooled SSH connections");
    out.line("ssh_connections", stats.ssh_connections as f64);
    out.family(
        "plugin_tripped",
        "gauge",
        "Whether a provider takes no new leases because it failed again and again",
    );
    for (key, health) in &stats.health {
        let name = format!("plugin_tripped{{provider=\"{key}\"}}");
        out.line(&name, f64::from(u8::from(health.tripped)));
    }
    out.family(
        "plugin_trips",
        "counter",
        "How often that happened since the server started",
    );
    for (key, health) in &stats.health {
        let name = format!("plugin_trips_total{{provider=\"{key}\"}}");
        out.line(&name, health.trips_total as f64);
    }
    let all = || {
        let each = stats.calls_by_provider.iter();
        each.map(|(key, stats)| (key.as_str(), stats))
    };
    out.family(
        "component_calls",
        "counter",
        "Calls of components by what became of them",
    );
    for (key, stats) in all() {
        for (outcome, count) in outcomes(stats) {
            let name = format!("component_calls_total{{provider=\"{key}\",outcome=\"{outcome}\"}}");
            out.line(&name, count as f64);
        }
    }
    out.family(
        "component_calls_in_flight",
        "gauge",
        "Calls that wait or run now",
    );
    for (key, stats) in all() {
        let name = format!("component_calls_in_flight{{provider=\"{key}\"}}");
        out.line(&name, stats.in_flight as f64);
    }
    out.family(
        "component_cpu_seconds",
        "counter",
        "CPU time that components used",
    );
    for (key, stats) in all() {
        let name = format!("component_cpu_seconds_total{{provider=\"{key}\"}}");
        out.line(&name, stats.cpu_time.as_secs_f64());
    }
    out.family(
        "component_queue_seconds",
        "counter",
        "Time that calls waited for their turn",
    );
    for (key, stats) in all() {
        let name = format!("component_queue_seconds_total{{provider=\"{key}\"}}");
        out.line(&name, stats.queue_time.as_secs_f64());
    }
    out.family(
        "component_memory_peak_bytes",
        "gauge",
        "The most memory that one call had",
    );
    for (key, stats) in all() {
        let name = format!("component_memory_peak_bytes{{provider=\"{key}\"}}");
        out.line(&name, stats.memory_peak as f64);
    }
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

struct Text<'a>(&'a mut String);

impl Text<'_> {
    fn family(&mut self, name: &str, kind: &str, help: &str) {
        let _ = writeln!(
            self.0,
            "# HELP leasehold_{name} {help}.\n# TYPE leasehold_{name} {kind}"
        );
    }

    fn line(&mut self, name: &str, value: f64) {
        let _ = writeln!(self.0, "leasehold_{name} {value}");
    }
}

//! What a collector is told: one trace from a request to its target, what failed, the figures of `/metrics`, and no secret;
//! and that one which is gone costs nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::net::TcpListener;

use leasehold_parts::{Collector, Figure, Measured, Spanned};
use serde_json::json;

use crate::leased::Leased;
use crate::server::Server;

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const PARENT: &str = "b7ad6b7169203331";
const CANARY: &str = "canary-5c1f7e2b9d";

#[test]
fn a_request_its_component_call_and_what_that_asks_of_the_target_are_one_trace_without_a_secret() {
    let collector = Collector::start().unwrap();
    let Some(mut leased) = Leased::start_with(&["--otlp-endpoint", collector.url()]) else {
        return;
    };
    let server = &leased.server;
    let token = server.home.token();
    let authorization = format!("Bearer {token}");
    let parent = format!("00-{TRACE}-{PARENT}-01");
    let headers = [
        ("authorization", authorization.as_str()),
        ("content-type", "application/json"),
        ("traceparent", parent.as_str()),
    ];
    let command = json!({
        "argv": ["sh", "-c", format!("test \"$CANARY\" = {CANARY} && test -n \"$SECRET\" && echo {CANARY}")],
        "env": {"CANARY": CANARY},
    });
    let path = leased.path("/executions");
    let ran = server.tcp("POST", &path, &headers, &command.to_string());
    assert_eq!(ran.json()["execution"]["exitCode"], 0, "{}", ran.body);
    assert!(
        ran.head.contains(&format!("traceresponse: 00-{TRACE}-")),
        "{}",
        ran.head
    );
    let plain = server.operator("GET", "/api/companies?x=1", "");
    assert!(plain.head.contains("traceresponse: 00-"), "{}", plain.head);
    assert!(!plain.head.contains(TRACE), "a trace of its own");
    let key = leased.sshd.key().private.clone();
    let shown = server.operator("GET", "/api/plugins/ssh", "").json();
    let digest = shown["digest"].as_str().unwrap().to_owned();
    assert!(leased.server.end_by("TERM").success());

    let spans = collector.spans().unwrap();
    let trace: Vec<&Spanned> = spans.iter().filter(|span| span.trace == TRACE).collect();
    let named = |name: &str| {
        let found = trace.iter().find(|span| span.name == name);
        let names: Vec<&str> = trace.iter().map(|span| span.name.as_str()).collect();
        *found.unwrap_or_else(|| panic!("no {name} in {names:?}"))
    };
    let request = named("POST /api/environment-leases/{leaseId}/executions");
    assert_eq!(request.parent, PARENT);
    assert_eq!(request.attribute("http.response.status_code"), Some("200"));
    let call = named("start");
    assert_eq!(call.attribute("leasehold.lease"), Some(&*leased.lease));
    assert_eq!(call.attribute("leasehold.plugin.key"), Some("ssh"));
    assert_eq!(call.attribute("leasehold.plugin.revision"), Some(&*digest));
    let way = named("ssh start");
    let target = way.attribute("leasehold.target").unwrap();
    assert!(
        target.ends_with(&format!("@127.0.0.1:{}", leased.sshd.port())),
        "{target}"
    );
    assert_eq!((&way.parent, &call.parent), (&call.id, &request.id));

    assert!(trace.iter().all(|span| !span.failed), "{trace:?}");

    let key = key.lines().nth(1).unwrap().to_owned();
    for export in collector.got() {
        let (path, text) = (&export.path, String::from_utf8_lossy(&export.body));
        for secret in [CANARY, &key, &token[4..], "x=1", "/leases/"] {
            assert!(!text.contains(secret), "{secret} in what {path} got");
        }
    }
    let log = leased.server.home.log();
    assert!(
        !log.contains("component call"),
        "spans are no part of the log"
    );
}

#[test]
fn a_collector_that_never_answers_costs_nothing_and_is_told_of_once() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", silent.local_addr().unwrap());
    let mut server = Server::start_with(&["--otlp-endpoint", &url]);
    // More than its queues hold.
    for _ in 0..200 {
        assert_eq!(server.operator("GET", "/api/companies", "").status, 200);
    }
    drop(silent);
    let told = "the collector takes no telemetry";
    crate::server::wait_for("the word of it", || {
        server.home.log().contains(told).then_some(())
    });
    assert_eq!(server.operator("GET", "/api/companies", "").status, 200);
    assert!(server.end_by("TERM").success());
    assert_eq!(
        server.home.log().matches(told).count(),
        1,
        "{}",
        server.home.log()
    );
}

#[test]
fn without_a_collector_no_trace_is_made_and_a_wrong_one_is_refused_at_start() {
    let server = Server::start();
    let answer = server.operator("GET", "/api/companies", "");
    assert!(!answer.head.contains("traceresponse"), "{}", answer.head);
    let refused = server
        .home
        .leasehold()
        .args(["serve", "--otlp-endpoint", "ftp://otel.example"])
        .output()
        .unwrap();
    let complaint = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(2), "{complaint}");
    assert!(complaint.contains("otlp-endpoint"), "{complaint}");
}

#[test]
fn what_failed_is_an_error_of_a_closed_set_from_the_target_up_and_says_nothing_of_what_was_said() {
    let collector = Collector::start().unwrap();
    let Some(leased) = Leased::start_with(&["--otlp-endpoint", collector.url()]) else {
        return;
    };
    let (mut server, path) = (
        leased.server,
        format!("/api/environment-leases/{}/executions", leased.lease),
    );
    let target = format!("127.0.0.1:{}", leased.sshd.port());
    drop(leased.sshd);
    let body = json!({ "argv": ["true"] }).to_string();
    let failed = server.operator("POST", &path, &body);
    assert_eq!(failed.code(), "target_unavailable", "{}", failed.body);
    assert!(server.end_by("TERM").success());

    let spans = collector.spans().unwrap();
    let request = spans
        .iter()
        .find(|span| span.name == "POST /api/environment-leases/{leaseId}/executions")
        .unwrap();
    assert!(request.failed, "{request:?}");
    assert_eq!(request.attribute("error.type"), Some("target_unavailable"));
    let below = |parent: &Spanned, name: &str| {
        let found = spans
            .iter()
            .find(|span| span.parent == parent.id && span.name.starts_with(name) && span.failed);
        found
            .cloned()
            .unwrap_or_else(|| panic!("no {name} below {parent:?} in {spans:?}"))
    };
    let call = below(request, "start");
    assert_eq!(call.attribute("error.type"), Some("provider"));
    let way = below(&call, "ssh ");
    assert_eq!(way.attribute("error.type"), Some("unavailable"));
    let told = way.attribute("leasehold.target").unwrap();
    assert!(told.ends_with(&target), "{told}");
    for span in &spans {
        assert_eq!(span.said, "", "{span:?}");
        if !span.failed {
            continue;
        }
        let kind = span.attribute("error.type").unwrap();
        let closed = kind
            .bytes()
            .all(|b| b.is_ascii_lowercase() || matches!(b, b'_' | b'-'))
            // Of a server that is still starting, which has no code.
            || kind == "503";
        assert!(closed, "{span:?}");
    }
}

/// What `/metrics` calls it after `leasehold_`, what a collector does, and its kind and unit there.
const FIGURES: [(&str, &str, &str, &str); 13] = [
    (
        "http_connections",
        "leasehold.http.connection.count",
        "level",
        "{connection}",
    ),
    (
        "execution_streams",
        "leasehold.execution.stream.count",
        "level",
        "{stream}",
    ),
    (
        "execution_stream_bytes",
        "leasehold.execution.stream.io",
        "counter",
        "By",
    ),
    ("leases", "leasehold.lease.count", "level", "{lease}"),
    (
        "executions_attached",
        "leasehold.execution.attached",
        "level",
        "{execution}",
    ),
    (
        "ssh_connections",
        "leasehold.ssh.connection.count",
        "level",
        "{connection}",
    ),
    ("plugin_tripped", "leasehold.plugin.tripped", "gauge", "1"),
    (
        "plugin_trips",
        "leasehold.plugin.trips",
        "counter",
        "{trip}",
    ),
    (
        "component_calls",
        "leasehold.component.calls",
        "counter",
        "{call}",
    ),
    (
        "component_calls_in_flight",
        "leasehold.component.active_calls",
        "level",
        "{call}",
    ),
    (
        "component_cpu_seconds",
        "leasehold.component.cpu.time",
        "counter",
        "s",
    ),
    (
        "component_queue_seconds",
        "leasehold.component.queue.time",
        "counter",
        "s",
    ),
    (
        "component_memory_peak_bytes",
        "leasehold.component.memory.peak",
        "gauge",
        "By",
    ),
];

/// What `/metrics` and a collector call what figures are counted by.
const KEYS: [(&str, &str); 7] = [
    ("status", "leasehold.lease.status"),
    ("provider", "leasehold.provider"),
    ("outcome", "leasehold.outcome"),
    ("direction", "network.io.direction"),
    ("method", "http.request.method"),
    ("route", "http.route"),
    ("code", "http.response.status_code"),
];

/// And the words of a direction.
const DIRECTIONS: [(&str, &str); 2] = [("in", "receive"), ("out", "transmit")];

type Of = BTreeMap<String, String>;

/// The samples of a text: name, what it is of, value.
fn samples(text: &str) -> Vec<(String, Of, f64)> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines
        .map(|line| {
            let (what, value) = line.rsplit_once(' ').unwrap();
            let (name, of) = what.split_once('{').unwrap_or((what, "}"));
            let of = of
                .trim_end_matches('}')
                .split("\",")
                .filter(|one| !one.is_empty());
            let of = of.map(|one| {
                let (key, word) = one.split_once("=\"").unwrap();
                (key.to_owned(), word.trim_end_matches('"').to_owned())
            });
            let name = name.strip_prefix("leasehold_").unwrap().to_owned();
            (name, of.collect(), value.parse().unwrap())
        })
        .collect()
}

fn said(words: &[(&str, &str)], word: &str) -> String {
    let found = words.iter().find(|(own, _)| *own == word);
    found.map_or(word, |(_, told)| told).to_owned()
}

fn of(measured: &Measured) -> Of {
    measured.attributes.iter().cloned().collect()
}

#[test]
fn a_collector_is_told_each_figure_of_the_metrics_and_each_is_what_it_is_there() {
    let collector = Collector::start().unwrap();
    let Some(mut leased) = Leased::start_with(&["--otlp-endpoint", collector.url()]) else {
        return;
    };
    // Bytes over a WebSocket, and a request that is refused.
    let ran = leased
        .exec(&[&leased.lease, "--", "sh", "-c", "cat; echo 12345"])
        .output()
        .unwrap();
    assert!(
        ran.status.success(),
        "{}",
        String::from_utf8_lossy(&ran.stderr)
    );
    leased.server.operator("GET", "/api/environments/none", "");
    let text = leased.server.operator("GET", "/metrics", "").body;
    assert!(leased.server.end_by("TERM").success());
    let exports = collector.exports().unwrap();
    let last = exports.last().unwrap();
    let samples = samples(&text);

    let families: BTreeSet<&str> = text
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE leasehold_")?.split(' ').next())
        .collect();
    let requests = ["http_requests", "http_request_duration_seconds"];
    let listed = FIGURES.iter().map(|(name, ..)| *name).chain(requests);
    assert_eq!(
        families,
        listed.collect(),
        "none is left out, and none is new"
    );
    let told: BTreeSet<&str> = last.iter().map(|one| one.name.as_str()).collect();
    let duration = "http.server.request.duration";
    let listed = FIGURES.iter().map(|(_, told, ..)| *told).chain([duration]);
    assert_eq!(told, listed.collect());

    for (name, told, kind, unit) in FIGURES {
        let ending = if kind == "counter" { "_total" } else { "" };
        let sample = format!("{name}{ending}");
        let here: BTreeMap<Of, f64> = samples
            .iter()
            .filter(|(name, ..)| *name == sample)
            .map(|(_, of, value)| {
                let of = of
                    .iter()
                    .map(|(key, word)| (said(&KEYS, key), said(&DIRECTIONS, word)));
                // The connection that asked is closed by the end.
                let value = if name == "http_connections" {
                    value - 1.0
                } else {
                    *value
                };
                (of.collect(), value)
            })
            .collect();
        let there: BTreeMap<Of, f64> = last
            .iter()
            .filter(|one| one.name == told)
            .map(|one| {
                assert_eq!((one.kind, one.unit.as_str()), (kind, unit), "{told}");
                let Figure::Number(value) = one.figure else {
                    panic!("{one:?}");
                };
                (of(one), value)
            })
            .collect();
        assert!(!here.is_empty(), "{name}: {text}");
        assert_eq!(here, there, "{name}");
    }
    let bytes = samples
        .iter()
        .find(|(name, of, _)| name == "execution_stream_bytes_total" && of["direction"] == "out");
    assert_eq!(bytes.unwrap().2, 6.0, "{text}");

    // How many, and by which classes.
    let mut counts: BTreeMap<Of, f64> = BTreeMap::new();
    let mut classes: BTreeMap<String, (Vec<u64>, f64)> = BTreeMap::new();
    for one in last.iter().filter(|one| one.name == duration) {
        let Figure::Classes(ends, each, sum) = &one.figure else {
            panic!("{one:?}");
        };
        assert_eq!(
            (one.kind, one.unit.as_str(), ends.len()),
            ("histogram", "s", 13)
        );
        counts.insert(of(one), each.iter().sum::<u64>() as f64);
        let route = of(one)["http.route"].clone();
        let all = classes.entry(route).or_insert_with(|| (vec![0; 14], 0.0));
        all.0
            .iter_mut()
            .zip(each)
            .for_each(|(all, each)| *all += each);
        all.1 += sum;
    }
    let mut here: BTreeMap<Of, f64> = samples
        .iter()
        .filter(|(name, ..)| name == "http_requests_total")
        .map(|(_, of, value)| {
            let of = of.iter().map(|(key, word)| {
                let key = if key == "status" { "code" } else { key };
                (said(&KEYS, key), word.clone())
            });
            (of.collect(), *value)
        })
        .collect();
    // The request that told it was answered after.
    let asked: Of = [("method", "GET"), ("route", "/metrics"), ("code", "200")]
        .map(|(key, word)| (said(&KEYS, key), word.to_owned()))
        .into();
    *here.entry(asked).or_default() += 1.0;
    assert_eq!(here, counts);
    classes.remove("/metrics");
    for (route, (each, sum)) in classes {
        let of_route = |wanted: &str| {
            let of = samples.iter().filter(|(name, of, _)| {
                name == &format!("http_request_duration_seconds_{wanted}") && of["route"] == route
            });
            of.map(|(.., value)| *value).collect::<Vec<f64>>()
        };
        let until: Vec<f64> = each
            .iter()
            .scan(0, |until, each| {
                *until += each;
                Some(*until as f64)
            })
            .collect();
        assert_eq!(of_route("bucket"), until, "{route}");
        assert!((of_route("sum")[0] - sum).abs() < 1e-6, "{route}: {text}");
    }
}

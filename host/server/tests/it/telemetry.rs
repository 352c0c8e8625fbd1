//! What a collector is told: one trace from a request to its target, and no secret; and that one which is gone costs nothing.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value as Any;
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message;
use serde_json::json;

use crate::leased::Leased;
use crate::server::Server;

/// A collector: keeps what it is sent, with the path that it was sent to.
struct Collector {
    url: String,
    got: Arc<Mutex<Vec<(String, Vec<u8>)>>>,
}

impl Collector {
    fn start() -> Collector {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let got = Arc::new(Mutex::new(Vec::new()));
        let keep = Arc::clone(&got);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let keep = Arc::clone(&keep);
                std::thread::spawn(move || take(stream.unwrap(), &keep));
            }
        });
        Collector { url, got }
    }

    fn spans(&self) -> Vec<Span> {
        let got = self.got.lock().unwrap();
        let traces = got.iter().filter(|(path, _)| path == "/v1/traces");
        traces
            .flat_map(|(_, body)| {
                ExportTraceServiceRequest::decode(&body[..])
                    .unwrap()
                    .resource_spans
            })
            .flat_map(|resource| resource.scope_spans)
            .flat_map(|scope| scope.spans)
            .collect()
    }
}

fn take(stream: TcpStream, keep: &Mutex<Vec<(String, Vec<u8>)>>) {
    let mut reader = BufReader::new(stream);
    let (mut path, mut length) = (String::new(), 0);
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).unwrap_or(0) == 0 {
            return;
        }
        let line = line.trim_end().to_ascii_lowercase();
        if let Some(rest) = line.strip_prefix("post ") {
            path = rest.split(' ').next().unwrap().to_owned();
        }
        if let Some(number) = line.strip_prefix("content-length: ") {
            length = number.parse().unwrap();
        }
        if line.is_empty() {
            break;
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).unwrap();
    keep.lock().unwrap().push((path, body));
    let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";
    let _ = reader.get_mut().write_all(answer);
}

fn attribute(span: &Span, key: &str) -> Option<String> {
    let found = span.attributes.iter().find(|one| one.key == key)?;
    match found.value.as_ref()?.value.as_ref()? {
        Any::StringValue(text) => Some(text.clone()),
        Any::IntValue(number) => Some(number.to_string()),
        other => Some(format!("{other:?}")),
    }
}

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const PARENT: &str = "b7ad6b7169203331";
const CANARY: &str = "canary-5c1f7e2b9d";

#[test]
fn a_request_its_component_call_and_what_that_asks_of_the_target_are_one_trace_without_a_secret() {
    let collector = Collector::start();
    let Some(mut leased) = Leased::start_with(&["--otlp-endpoint", &collector.url]) else {
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
    assert!(leased.server.end_by("TERM").success());

    let hex = |bytes: &[u8]| bytes.iter().map(|b| format!("{b:02x}")).collect::<String>();
    let spans = collector.spans();
    let trace: Vec<&Span> = spans
        .iter()
        .filter(|span| hex(&span.trace_id) == TRACE)
        .collect();
    let named = |name: &str| {
        let found = trace.iter().find(|span| span.name == name);
        let names: Vec<&str> = trace.iter().map(|span| span.name.as_str()).collect();
        *found.unwrap_or_else(|| panic!("no {name} in {names:?}"))
    };
    let request = named("POST /api/environment-leases/{leaseId}/executions");
    assert_eq!(hex(&request.parent_span_id), PARENT);
    assert_eq!(
        attribute(request, "http.response.status_code").as_deref(),
        Some("200")
    );
    let call = named("start");
    assert_eq!(
        attribute(call, "leasehold.lease").as_deref(),
        Some(leased.lease.as_str())
    );
    let way = named("ssh start");
    let target = attribute(way, "leasehold.target").unwrap();
    assert!(
        target.ends_with(&format!("@127.0.0.1:{}", leased.sshd.port())),
        "{target}"
    );
    let up = |span: &Span| {
        let parent = trace.iter().find(|one| one.span_id == span.parent_span_id);
        parent.map(|span| span.name.clone())
    };
    assert_eq!(up(way).as_deref(), Some("start"));
    assert_eq!(up(call), Some(request.name.clone()));
    assert!(way.end_time_unix_nano >= way.start_time_unix_nano);

    let got = collector.got.lock().unwrap();
    let metrics = got.iter().filter(|(path, _)| path == "/v1/metrics");
    let metrics: Vec<String> = metrics
        .flat_map(|(_, body)| {
            ExportMetricsServiceRequest::decode(&body[..])
                .unwrap()
                .resource_metrics
        })
        .flat_map(|resource| resource.scope_metrics)
        .flat_map(|scope| scope.metrics)
        .map(|metric| metric.name)
        .collect();
    assert!(
        metrics
            .iter()
            .any(|name| name == "http.server.request.duration"),
        "{metrics:?}"
    );
    let key = key.lines().nth(1).unwrap().to_owned();
    for (path, body) in got.iter() {
        let text = String::from_utf8_lossy(body);
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
        .args(["serve", "--otlp-endpoint", "https://otel.example"])
        .output()
        .unwrap();
    let complaint = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(2), "{complaint}");
    assert!(complaint.contains("otlp-endpoint"), "{complaint}");
}

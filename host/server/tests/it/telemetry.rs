//! What a collector is told: one trace from a request to its target, and no secret; and that one which is gone costs nothing.

use std::net::TcpListener;

use leasehold_parts::{Collector, Spanned};
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
    let way = named("ssh start");
    let target = way.attribute("leasehold.target").unwrap();
    assert!(
        target.ends_with(&format!("@127.0.0.1:{}", leased.sshd.port())),
        "{target}"
    );
    assert_eq!((&way.parent, &call.parent), (&call.id, &request.id));

    let metrics = collector.metrics().unwrap();
    assert!(
        metrics
            .iter()
            .any(|name| name == "http.server.request.duration"),
        "{metrics:?}"
    );
    let key = key.lines().nth(1).unwrap().to_owned();
    for (path, body) in collector.got() {
        let text = String::from_utf8_lossy(&body);
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

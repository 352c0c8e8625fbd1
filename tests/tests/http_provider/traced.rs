//! A collector of traces sees what a component asked its backend for, and none of the secrets that went there.

use leasehold_parts::Collector;
use leasehold_tests::canary::{Canaries, contains};

use super::*;

#[test]
fn what_a_component_asks_over_http_is_of_the_requests_trace_and_holds_no_secret() {
    let collector = Collector::start().expect("a collector");
    let flags = ["--log-level", "trace", "--otlp-endpoint", collector.url()];
    let Some(mut house) = House::with(API, TOKEN, &flags) else {
        return;
    };
    let id = text(&house.acquire()["id"]);
    let command = json!({ "argv": ["true"], "env": { "P": PAYLOAD } });
    house.server.exec(&id, &command).expect(200);
    assert_eq!(house.server.release(&id)["status"], "released");
    house.server.signal(rustix::process::Signal::TERM);
    assert!(house.server.wait_end().success(), "{}", house.server.log());

    let spans = collector.spans().expect("spans");
    let up = |one: &leasehold_parts::Spanned| {
        let parent = spans.iter().find(|other| other.id == one.parent);
        parent
            .cloned()
            .unwrap_or_else(|| panic!("no parent of {one:?}"))
    };
    let exchange = spans
        .iter()
        .filter(|span| span.name == "http exchange")
        .find(|span| span.attribute("leasehold.act") == Some("http-create"))
        .expect("the creation");
    assert_eq!(
        exchange.attribute("leasehold.target"),
        Some(house.rooms.url().trim_end_matches("/v1"))
    );
    assert_eq!(exchange.attribute("http.response.status_code"), Some("201"));
    let call = up(exchange);
    assert_eq!(call.name, "acquire");
    assert_eq!(call.attribute("leasehold.lease"), Some(&*id));
    let request = up(&call);
    assert_eq!(
        request.name,
        "POST /api/environments/{environmentId}/leases"
    );
    assert!(request.trace == exchange.trace && request.parent.is_empty());

    let got = collector.got();
    assert!(
        got.iter()
            .any(|export| contains(&export.body, b"http exchange")),
        "it is looked at"
    );
    let canaries = Canaries::new(vec![("token", TOKEN.into()), ("payload", PAYLOAD.into())]);
    let got: Vec<(std::path::PathBuf, Vec<u8>)> = got
        .into_iter()
        .map(|export| (export.path.into(), export.body))
        .collect();
    canaries.absent_from(&got);
    house.keeps_no_secret();
}

/// All that a span may say.
const SAID: [&str; 19] = [
    "http.request.method",
    "http.route",
    "http.response.status_code",
    "error.type",
    "leasehold.request",
    "leasehold.function",
    "leasehold.plugin.key",
    "leasehold.plugin.revision",
    "leasehold.company",
    "leasehold.environment",
    "leasehold.lease",
    "leasehold.target",
    "leasehold.act",
    // What the bridge adds by itself.
    "busy_ns",
    "idle_ns",
    "level",
    "target",
    "thread.id",
    "thread.name",
];

#[test]
fn what_a_backend_refuses_and_what_it_never_answers_are_errors_by_status_or_code_and_no_word_more()
{
    let collector = Collector::start().expect("a collector");
    let Some(mut house) = House::with(API, TOKEN, &["--otlp-endpoint", collector.url()]) else {
        return;
    };
    for fault in [Fault::Refuse("POST", 503), Fault::Down] {
        house.rooms.set_fault(fault);
        let refused = house.server.acquire(&house.environment);
        assert!(refused.status >= 500, "{}", refused.body);
    }
    house.rooms.set_fault(Fault::None);
    house.server.signal(rustix::process::Signal::TERM);
    assert!(house.server.wait_end().success(), "{}", house.server.log());

    let spans = collector.spans().expect("spans");
    let failed = |name: &str, kind: &str| {
        let found = spans.iter().find(|span| {
            span.name == name && span.failed && span.attribute("error.type") == Some(kind)
        });
        assert!(found.is_some(), "{name} {kind}: {spans:?}");
    };
    failed("http exchange", "503");
    failed("http exchange", "unavailable");
    failed("acquire", "provider");
    for span in &spans {
        assert_eq!(span.said, "", "{span:?}");
        for (name, _) in &span.attributes {
            assert!(SAID.contains(&name.as_str()), "{name}: {span:?}");
        }
    }
}

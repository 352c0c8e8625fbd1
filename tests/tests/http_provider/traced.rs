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
        got.iter().any(|(_, body)| contains(body, b"http exchange")),
        "it is looked at"
    );
    let canaries = Canaries::new(vec![("token", TOKEN.into()), ("payload", PAYLOAD.into())]);
    let got: Vec<(std::path::PathBuf, Vec<u8>)> = got
        .into_iter()
        .map(|(path, body)| (path.into(), body))
        .collect();
    canaries.absent_from(&got);
    house.keeps_no_secret();
}

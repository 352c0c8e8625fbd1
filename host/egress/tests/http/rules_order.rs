//! Judge, record, send, report, answer: in this order, or not at all.

use leasehold_contract::{Code, NoStream};
use leasehold_egress::Reach;

use crate::rules_lab::{KEY, Lab};
use crate::server::reply;

#[tokio::test]
async fn a_creation_is_on_record_before_it_is_sent_and_its_id_before_it_is_told() {
    let lab = Lab::new(|request| async move {
        let key = request.headers().get("authorization").cloned();
        assert_eq!(key.unwrap().to_str().unwrap(), format!("Bearer {KEY}"));
        match request.uri().path() {
            "/v1/boxes" => reply(201, r#"{"id":"box-1"}"#),
            "/v1/boxes/box-1/exec" => reply(201, r#"{"id":7}"#),
            _ => reply(200, "{}"),
        }
    })
    .await;
    let call = lab.call();
    call.http_send(lab.ask("GET", "/boxes")).await.unwrap();
    call.http_send(lab.create()).await.unwrap();
    call.http_send(lab.ask("POST", "/boxes/box-1/exec"))
        .await
        .unwrap();
    call.http_send(lab.ask("DELETE", "/boxes/box-1"))
        .await
        .unwrap();
    assert_eq!(
        lab.log.all(),
        [
            "record batched http-read GET /v1/boxes http /api",
            "server GET /v1/boxes",
            "record durable http-create POST /v1/boxes http /api",
            "server POST /v1/boxes",
            "created box-1",
            "record durable http-create-child POST /v1/boxes/box-1/exec http /api",
            "server POST /v1/boxes/box-1/exec",
            "child 7",
            "record batched http-act DELETE /v1/boxes/box-1 http /api",
            "server DELETE /v1/boxes/box-1",
        ]
    );
}

#[tokio::test]
async fn what_is_refused_is_on_record_and_never_sent() {
    let mut lab = Lab::leased(|_| async { reply(200, "{}") }).await;
    let refused = [
        lab.ask("DELETE", "/boxes/box-2"),
        lab.ask("DELETE", "/boxes/box-1/../box-2"),
        lab.ask("POST", "/boxes"),
        lab.ask("GET", "/../admin"),
        leasehold_contract::HttpRequest {
            url: "http://169.254.169.254/latest".into(),
            ..lab.ask("GET", "")
        },
    ];
    let call = lab.call();
    for request in &refused {
        let error = call.http_send(request.clone()).await.unwrap_err();
        assert_eq!(error.code, Code::PermissionDenied, "{error}");
        assert!(call.http_open(request.clone()).await.is_err());
        assert!(call.http_download(request.clone()).await.is_err());
        assert!(call.http_upload(request.clone(), Vec::new()).await.is_err());
        for none in [
            call.upgrade(request.clone(), "tcp".into()).await.err(),
            call.websocket(request.clone(), Vec::new()).await.err(),
        ] {
            assert!(matches!(none, Some(NoStream::Failed(_))), "{none:?}");
        }
    }
    lab.reach = Reach::Nothing;
    lab.call().http_send(lab.ask("GET", "")).await.unwrap_err();
    let log = lab.log.all();
    assert_eq!(log.len(), refused.len() * 6 + 1);
    assert!(
        log.iter().all(|l| l.starts_with("record refused")),
        "{log:?}"
    );
    assert_eq!(lab.server.accepted(), 0);
}

#[tokio::test]
async fn what_cannot_be_recorded_is_not_sent() {
    let mut lab = Lab::leased(|_| async { reply(200, "{}") }).await;
    lab.disk_full = true;
    let call = lab.call();
    for request in [lab.ask("GET", ""), lab.ask("DELETE", "/boxes/box-1")] {
        let error = call.http_send(request).await.unwrap_err();
        assert_eq!(error.message, "the disk is full");
    }
    assert_eq!(lab.server.accepted(), 0);
}

#[tokio::test]
async fn a_resource_that_cannot_be_written_down_is_no_success() {
    let mut lab = Lab::new(|_| async { reply(201, r#"{"id":"box-1"}"#) }).await;
    lab.sink_fails = true;
    let error = lab.call().http_send(lab.create()).await.unwrap_err();
    assert_eq!(error.code, Code::OutcomeUnknown, "{error}");
    assert!(!error.message.contains("box-1"), "{error}");
}

#[tokio::test]
async fn nothing_is_sent_for_a_lease_that_is_over() {
    let lab = Lab::leased(|_| async { reply(200, "{}") }).await;
    lab.lease.closed.cancel();
    let error = lab
        .call()
        .http_send(lab.ask("DELETE", "/boxes/box-1"))
        .await
        .unwrap_err();
    assert_eq!(error.code, Code::Cancelled, "{error}");
    assert_eq!(
        lab.log.all(),
        ["record refused http-act DELETE /v1/boxes/box-1 http /api"]
    );
    assert_eq!(lab.server.accepted(), 0);
}

#[tokio::test]
async fn a_plugin_that_was_granted_no_http_sends_none() {
    let mut lab = Lab::leased(|_| async { reply(200, "{}") }).await;
    lab.granted = false;
    let error = lab.call().http_send(lab.ask("GET", "")).await.unwrap_err();
    assert!(error.message.contains("granted none"), "{error}");
    assert_eq!(lab.server.accepted(), 0);
}

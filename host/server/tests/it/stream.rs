//! The WebSocket's first frames: who is asking, when no header says so.

use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::CloseFrame;

use crate::server::Server;

/// Opens a stream without a header, says these frames, and hears to the end.
fn converse(server: &Server, frames: &[Value]) -> (Vec<Value>, Option<u16>) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let wire = tokio::net::TcpStream::connect(("127.0.0.1", server.port))
            .await
            .unwrap();
        let url = format!(
            "ws://localhost:{}/api/environment-leases/lease_none/executions/stream",
            server.port
        );
        let (mut socket, _) = tokio_tungstenite::client_async(url, wire).await.unwrap();
        for frame in frames {
            socket
                .send(Message::Text(frame.to_string().into()))
                .await
                .unwrap();
        }
        let mut heard = Vec::new();
        let mut closed = None;
        while let Some(Ok(message)) = socket.next().await {
            match message {
                Message::Text(text) => heard.push(serde_json::from_str(&text).unwrap()),
                Message::Close(frame) => closed = frame.map(|CloseFrame { code, .. }| code.into()),
                _ => {}
            }
        }
        (heard, closed)
    })
}

fn refused(server: &Server, frame: Value) -> String {
    let (heard, closed) = converse(server, &[frame]);
    assert_eq!(heard.len(), 1, "{heard:?}");
    assert_eq!(heard[0]["type"], "error");
    assert_eq!(closed, Some(1008));
    heard[0]["details"]["code"].as_str().unwrap().to_owned()
}

#[test]
fn a_stranger_is_refused_and_a_known_caller_learns_no_more_than_by_a_request() {
    let server = Server::start();
    assert_eq!(
        refused(&server, json!({"type": "auth", "token": "lht_nobody"})),
        "unauthenticated"
    );
    assert_eq!(
        refused(&server, json!({"type": "auth", "token": "lhk_nothing"})),
        "unauthenticated"
    );
    assert_eq!(
        refused(&server, json!({"type": "start", "argv": ["true"]})),
        "unauthenticated"
    );
    assert_eq!(refused(&server, json!({"type": "bogus"})), "bad_request");
    let token = server.home.token();
    assert_eq!(
        refused(&server, json!({"type": "auth", "token": token})),
        "not_found"
    );
}

#[test]
fn a_first_frame_that_is_too_large_is_told_so() {
    let server = Server::start();
    let huge = json!({"type": "auth", "token": "x".repeat(32 << 20)});
    let (heard, closed) = converse(&server, &[huge]);
    assert_eq!(heard.len(), 1, "{heard:?}");
    assert_eq!(heard[0]["details"]["code"], "payload_too_large");
    assert_eq!(closed, Some(1009));
}

#[test]
fn a_request_that_is_no_upgrade_is_told_so() {
    let server = Server::start();
    let answer = server.operator(
        "GET",
        "/api/environment-leases/lease_none/executions/stream",
        "",
    );
    assert_eq!(
        (answer.status, answer.code().as_str()),
        (400, "bad_request")
    );
}

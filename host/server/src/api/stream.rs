//! A command, live, over a WebSocket. The protocol is in `docs/execution-stream.md`.
//!
//! Invariant: nothing more is read from the command before what was read has left for the client, so that a
//! slow reader slows the command and fills no memory. A client that goes away, or whose token is revoked, ends the
//! command's input and lets go of the stream; it does not end the command, whose record goes on.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use axum::extract::State;
use axum::extract::ws::rejection::WebSocketUpgradeRejection;
use axum::extract::ws::{CloseFrame, Message, Utf8Bytes, WebSocket, WebSocketUpgrade};
use axum::response::Response;
use bytes::{Bytes, BytesMut};
use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{FutureExt, SinkExt, StreamExt};
use leasehold_authority::{Execution, Operation};
use leasehold_contract::ProcessInput;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio_tungstenite::tungstenite;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::body::Id;
use super::errors::{ApiError, ErrorCode};
use super::executions::{ExecutionView, SizeBody, check_command, checked_signal};
use super::leases::usable;
use crate::access::tickets::Tickets;
use crate::access::{Caller, Dismissed, gate};
use crate::app::App;
use crate::http::metrics::Metrics;
use crate::service::{ExecEvent, ExecOutput, ExecRequest};

/// How long a client may take to say who it is.
const AUTH_TIME: Duration = Duration::from_secs(10);
/// How long a client may take to say what it wants.
const START_TIME: Duration = Duration::from_secs(30);
/// How long the last frames may take to leave.
const CLOSE_TIME: Duration = Duration::from_secs(5);
/// Silence after which a ping keeps the way open.
const PING_EVERY: Duration = Duration::from_secs(30);
/// Data in one frame to the client, at most.
const CHUNK: usize = 64 << 10;
/// Input in one frame from the client, at most.
const LARGEST_INPUT: usize = 1 << 20;
/// A frame from the client, at most: the channel's byte and the input.
const LARGEST_FRAME: usize = 1 + LARGEST_INPUT;

const STDIN: u8 = 0;
const STDOUT: u8 = 1;
const STDERR: u8 = 2;

const CLOSE_NORMAL: u16 = 1000;
const CLOSE_GOING_AWAY: u16 = 1001;
const CLOSE_REFUSED: u16 = 1008;
const CLOSE_TOO_LARGE: u16 = 1009;
const CLOSE_FAILED: u16 = 1011;

/// What a client says in text.
#[derive(Deserialize)]
#[serde(
    tag = "type",
    rename_all = "kebab-case",
    rename_all_fields = "camelCase",
    deny_unknown_fields
)]
enum Said {
    Auth {
        token: String,
    },
    Start {
        argv: Vec<String>,
        #[serde(default)]
        env: BTreeMap<String, String>,
        cwd: Option<String>,
        #[serde(default)]
        stdin: bool,
        tty: Option<SizeBody>,
        timeout_ms: Option<u64>,
    },
    StdinEnd {},
    Resize {
        cols: u16,
        rows: u16,
    },
    Signal {
        signal: String,
    },
}

/// The route.
pub fn router() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(open))
}

/// Run a command live
///
/// A WebSocket; its frames are described in docs/execution-stream.md. Without an Authorization header the
/// first frame says who the caller is.
#[utoipa::path(get, path = "/api/environment-leases/{leaseId}/executions/stream", operation_id = "streamCommand", tag = "executions",
    params(("leaseId" = String, Path, description = "The lease's id")),
    responses((status = 101, description = "The WebSocket is open")))]
async fn open(
    State(app): State<App>,
    caller: Option<Caller>,
    Id(lease): Id,
    upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> Result<Response, ApiError> {
    let upgrade = upgrade.map_err(|e| {
        ApiError::new(
            ErrorCode::BadRequest,
            format!("this path is a WebSocket: {}", e.body_text()),
        )
    })?;
    let stranger = match &caller {
        Some(caller) => {
            usable(&app, caller, &lease).await?;
            None
        }
        None => Some(app.strangers().clone().try_acquire_owned().map_err(|_| {
            ApiError::new(
                ErrorCode::TooManyConnections,
                "too many streams wait for their first frame",
            )
        })?),
    };
    let tracked = app.streams().token();
    Ok(upgrade
        .max_message_size(LARGEST_FRAME)
        .max_frame_size(LARGEST_FRAME)
        .write_buffer_size(0)
        .on_upgrade(move |socket| async move {
            let _tracked = tracked;
            let _counted = app.metrics().stream();
            converse(app.clone(), caller, stranger, lease, socket).await;
        }))
}

/// How a conversation ends, other than by the command's end.
enum Over {
    /// The client is gone: nothing can be said any more.
    Gone,
    /// Something is refused.
    Refused(ApiError),
}

impl<E: Into<ApiError>> From<E> for Over {
    fn from(error: E) -> Over {
        Over::Refused(error.into())
    }
}

fn gone(_: axum::Error) -> Over {
    Over::Gone
}

/// Why nothing more can be read: a frame that is too large is told, everything else is a client that is gone.
fn unread(error: axum::Error, mend: &str) -> Over {
    match error.into_inner().downcast_ref::<tungstenite::Error>() {
        Some(tungstenite::Error::Capacity(_)) => ApiError::new(
            ErrorCode::PayloadTooLarge,
            format!("a frame has more than {LARGEST_FRAME} bytes, which is the most that a stream takes; {mend}"),
        )
        .with("limit", LARGEST_FRAME)
        .into(),
        _ => Over::Gone,
    }
}

async fn converse(
    app: App,
    caller: Option<Caller>,
    stranger: Option<OwnedSemaphorePermit>,
    lease: String,
    mut socket: WebSocket,
) {
    let closing = app.closing().clone();
    let ended = tokio::select! {
        ended = run(&app, caller, stranger, &lease, &mut socket) => ended,
        () = closing.cancelled() => Err(Over::Refused(ApiError::new(
            ErrorCode::ShuttingDown,
            "the server is being stopped; the command goes on, and its record with it",
        ))),
    };
    let (last, code, reason) = match ended {
        Ok(execution) => {
            let id = execution.id.clone();
            let mut frame = match serde_json::to_value(ExecutionView::from(execution)) {
                Ok(Value::Object(frame)) => frame,
                _ => serde_json::Map::new(),
            };
            frame.insert("type".into(), "exit".into());
            frame.insert("executionId".into(), id.into());
            (Value::Object(frame), CLOSE_NORMAL, "the command has ended")
        }
        Err(Over::Gone) => return,
        Err(Over::Refused(mut error)) => {
            if let (Some(refused), Some(service)) = (error.refused.take(), app.service_if_open()) {
                refused.note(service.authority(), error.code);
            }
            let code = match error.code {
                ErrorCode::ShuttingDown => CLOSE_GOING_AWAY,
                ErrorCode::PayloadTooLarge => CLOSE_TOO_LARGE,
                code if code.status().is_server_error() => CLOSE_FAILED,
                _ => CLOSE_REFUSED,
            };
            let mut frame = error.to_json();
            frame["type"] = "error".into();
            (frame, code, error.code.as_str())
        }
    };
    let close = CloseFrame {
        code,
        reason: Utf8Bytes::from_static(reason),
    };
    let goodbye = async {
        socket.send(text(&last)).await?;
        socket.send(Message::Close(Some(close))).await?;
        // The close of the other side, so that the last frames are not lost with the connection.
        while let Some(Ok(_)) = socket.recv().await {}
        Ok::<(), axum::Error>(())
    };
    let _ = tokio::time::timeout(CLOSE_TIME, goodbye).await;
}

fn text(value: &Value) -> Message {
    Message::Text(value.to_string().into())
}

async fn run(
    app: &App,
    caller: Option<Caller>,
    stranger: Option<OwnedSemaphorePermit>,
    lease: &str,
    socket: &mut WebSocket,
) -> Result<Execution, Over> {
    let caller = match caller {
        Some(caller) => caller,
        None => authenticate(app, lease, socket).await?,
    };
    drop(stranger);
    let mut dismissed = Dismissed::watch(app, &caller, ());
    let first = tokio::select! {
        first = said(socket, START_TIME, "a start frame") => first?,
        refusal = &mut dismissed => return Err(refusal.into()),
    };
    let request = match first {
        Said::Start {
            argv,
            env,
            cwd,
            stdin,
            tty,
            timeout_ms,
        } => {
            check_command(&argv, &env)?;
            ExecRequest {
                argv,
                env: env.into_iter().collect(),
                cwd,
                stdin,
                tty: tty.map(SizeBody::checked).transpose()?,
                timeout_ms,
            }
        }
        _ => return Err(out_of_place("a start frame").into()),
    };
    let reads = request.stdin;
    let service = app.service()?;
    let running = service.start_execution(&caller, lease, request).await?;
    let started = json!({"type": "started", "executionId": running.id});
    socket.send(text(&started)).await.map_err(gone)?;

    let (mut sink, mut frames) = socket.split();
    let (tell, mut told) = mpsc::channel(8);
    let mut typing = Typing {
        app,
        caller: &caller,
        execution: &running.id,
        input: running.input,
        ended: !reads,
        tell,
    };
    let mut output = running.output;
    let ended = tokio::select! {
        ended = show(&mut output, &mut sink, &mut told, app.metrics()) => ended,
        over = typing.follow(&mut frames) => Err(over),
        mut refusal = dismissed => {
            refusal.message.push_str("; the command goes on, and its record with it");
            Err(refusal.into())
        }
    };
    if ended.is_err() {
        typing.let_go().await;
    }
    ended
}

async fn authenticate(app: &App, lease: &str, socket: &mut WebSocket) -> Result<Caller, Over> {
    let Said::Auth { token } = said(socket, AUTH_TIME, "an auth frame").await? else {
        return Err(ApiError::new(
            ErrorCode::Unauthenticated,
            "the first frame must say who you are: {\"type\":\"auth\",\"token\":…}",
        )
        .into());
    };
    let actor = if Tickets::looks_like_one(&token) {
        let redeemed = app.tickets().redeem(&token, lease, Instant::now());
        let actor = redeemed.ok_or_else(|| {
            ApiError::new(
                ErrorCode::Unauthenticated,
                "the ticket is not known for this lease, was used, or is too old",
            )
        })?;
        gate::still_known(app, &actor).await?;
        actor
    } else {
        gate::actor_of(app, app.service()?.authority(), &token).await?
    };
    let caller = Caller::admitted(actor, Operation::StreamCommand)?;
    usable(app, &caller, lease).await?;
    Ok(caller)
}

fn out_of_place(wanted: &str) -> ApiError {
    ApiError::new(ErrorCode::BadRequest, format!("{wanted} must come now"))
}

/// The next thing that the client says, within a time.
async fn said(socket: &mut WebSocket, within: Duration, wanted: &str) -> Result<Said, Over> {
    let next = async {
        loop {
            match socket.recv().await {
                None | Some(Ok(Message::Close(_))) => return Err(Over::Gone),
                Some(Err(e)) => {
                    return Err(unread(
                        e,
                        "give a shorter command, and the rest as its input",
                    ));
                }
                Some(Ok(Message::Text(text))) => return Ok(parse(&text)?),
                Some(Ok(Message::Binary(_))) => return Err(out_of_place(wanted).into()),
                Some(Ok(Message::Ping(_) | Message::Pong(_))) => {}
            }
        }
    };
    match tokio::time::timeout(within, next).await {
        Ok(said) => said,
        Err(_) => Err(ApiError::new(
            ErrorCode::RequestTimeout,
            format!("{wanted} did not come within {} s", within.as_secs()),
        )
        .into()),
    }
}

fn parse(text: &str) -> Result<Said, ApiError> {
    serde_json::from_str(text).map_err(|e| {
        // A position, and not serde's words: they may repeat a token.
        ApiError::new(
            ErrorCode::BadRequest,
            format!(
                "a text frame is not one of auth, start, stdin-end, resize, signal in their documented shape \
                 (line {}, column {})",
                e.line(),
                e.column()
            ),
        )
    })
}

/// A frame that is being filled: the channel, then data.
struct Frame {
    bytes: BytesMut,
}

impl Frame {
    fn new(channel: u8, room: usize) -> Frame {
        let mut bytes = BytesMut::with_capacity(1 + room.min(CHUNK));
        bytes.extend_from_slice(&[channel]);
        Frame { bytes }
    }

    fn room(&self) -> usize {
        CHUNK + 1 - self.bytes.len()
    }

    fn is_of(&self, channel: u8) -> bool {
        self.bytes[0] == channel
    }
}

type Sink<'a> = SplitSink<&'a mut WebSocket, Message>;

async fn send(frame: Frame, sink: &mut Sink<'_>, metrics: &Metrics) -> Result<(), Over> {
    metrics.bytes_out(frame.bytes.len() - 1);
    sink.send(Message::Binary(frame.bytes.freeze()))
        .await
        .map_err(gone)
}

/// Shows the client what the command writes, until its end.
async fn show(
    output: &mut ExecOutput,
    sink: &mut Sink<'_>,
    told: &mut mpsc::Receiver<Value>,
    metrics: &Metrics,
) -> Result<Execution, Over> {
    let mut filling: Option<Frame> = None;
    loop {
        let event = {
            let mut next = std::pin::pin!(output.next());
            match next.as_mut().now_or_never() {
                Some(event) => event,
                None => {
                    // Nothing more is there: what there is leaves now.
                    if let Some(frame) = filling.take() {
                        send(frame, sink, metrics).await?;
                    }
                    loop {
                        tokio::select! {
                            event = next.as_mut() => break event,
                            Some(value) = told.recv() => {
                                sink.send(text(&value)).await.map_err(gone)?;
                            }
                            () = tokio::time::sleep(PING_EVERY) => {
                                sink.send(Message::Ping(Bytes::new())).await.map_err(gone)?;
                            }
                        }
                    }
                }
            }
        };
        let (channel, mut data) = match event {
            Some(ExecEvent::Stdout(data)) => (STDOUT, data),
            Some(ExecEvent::Stderr(data)) => (STDERR, data),
            Some(ExecEvent::Ended(execution)) => {
                if let Some(frame) = filling.take() {
                    send(frame, sink, metrics).await?;
                }
                return Ok(*execution);
            }
            None => {
                return Err(ApiError::new(
                    ErrorCode::OutcomeUnknown,
                    "the stream ended without an outcome; the execution's record says what is known",
                )
                .into());
            }
        };
        while !data.is_empty() {
            let mut frame = match filling.take() {
                Some(frame) if frame.is_of(channel) => frame,
                Some(other) => {
                    send(other, sink, metrics).await?;
                    Frame::new(channel, data.len())
                }
                None => Frame::new(channel, data.len()),
            };
            let part = data.split_to(data.len().min(frame.room()));
            frame.bytes.extend_from_slice(&part);
            if frame.room() == 0 {
                send(frame, sink, metrics).await?;
            } else {
                filling = Some(frame);
            }
        }
    }
}

/// The client's side of the conversation.
struct Typing<'a> {
    app: &'a App,
    caller: &'a Caller,
    execution: &'a str,
    input: Box<dyn ProcessInput>,
    /// Whether the input is over, or was never wanted: more of it is dropped.
    ended: bool,
    tell: mpsc::Sender<Value>,
}

impl Typing<'_> {
    /// Does what the client says, until it is gone or says what cannot be.
    async fn follow(&mut self, frames: &mut SplitStream<&mut WebSocket>) -> Over {
        loop {
            let step = match frames.next().await {
                None | Some(Ok(Message::Close(_))) => return Over::Gone,
                Some(Err(e)) => return unread(e, "send the input in several"),
                Some(Ok(Message::Ping(_) | Message::Pong(_))) => Ok(()),
                Some(Ok(Message::Binary(data))) => self.typed(data).await,
                Some(Ok(Message::Text(text))) => match parse(&text) {
                    Ok(said) => self.obey(said).await,
                    Err(e) => Err(e),
                },
            };
            if let Err(error) = step {
                return Over::Refused(error);
            }
        }
    }

    /// Nobody types any more: a command that reads on finds the end, and does not wait for ever.
    async fn let_go(&mut self) {
        if !std::mem::replace(&mut self.ended, true) {
            let _ = tokio::time::timeout(CLOSE_TIME, self.input.end()).await;
        }
    }

    async fn typed(&mut self, mut data: Bytes) -> Result<(), ApiError> {
        if data.first() != Some(&STDIN) {
            return Err(ApiError::new(
                ErrorCode::BadRequest,
                "a binary frame to the server begins with the byte 0 and then has input",
            ));
        }
        let data = data.split_off(1);
        if self.ended || data.is_empty() {
            return Ok(());
        }
        self.app.metrics().bytes_in(data.len());
        if self.input.write(data).await.is_err() {
            // The command no longer reads, as with a closed pipe; its end will say how it went.
            self.ended = true;
            let _ = self.tell.send(json!({"type": "stdin-closed"})).await;
        }
        Ok(())
    }

    async fn obey(&mut self, said: Said) -> Result<(), ApiError> {
        match said {
            Said::StdinEnd {} => {
                if !std::mem::replace(&mut self.ended, true) {
                    let _ = self.input.end().await;
                }
                Ok(())
            }
            Said::Resize { cols, rows } => {
                let size = SizeBody { cols, rows }.checked()?;
                let _ = self.input.resize(size).await;
                Ok(())
            }
            Said::Signal { signal } => {
                let name = checked_signal(&signal)?;
                let service = self.app.service()?;
                let sent = service
                    .signal_execution(self.caller, self.execution, name)
                    .await;
                if let Err(error) = sent {
                    let mut frame = ApiError::from(error).to_json();
                    frame["type"] = "signal-failed".into();
                    let _ = self.tell.send(frame).await;
                }
                Ok(())
            }
            Said::Auth { .. } | Said::Start { .. } => Err(ApiError::new(
                ErrorCode::BadRequest,
                "the command has started; only stdin-end, resize and signal can come now",
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_read_strictly_and_an_error_repeats_nothing_of_them() {
        assert!(parse(r#"{"type":"start","argv":["ls"],"timeoutMs":5}"#).is_ok());
        assert!(parse(r#"{"type":"stdin-end"}"#).is_ok());
        for bad in [
            "",
            "[]",
            r#"{"type":"start"}"#,
            r#"{"type":"start","argv":["ls"],"shell":true}"#,
            r#"{"type":"auth","token":"hunter2","x":1}"#,
            r#"{"type":"resize","cols":-1,"rows":2}"#,
        ] {
            let Err(error) = parse(bad) else {
                panic!("{bad} was taken");
            };
            assert!(!error.message.contains("hunter2"), "{error}");
        }
    }

    #[test]
    fn a_frame_holds_its_channel_and_no_more_than_a_chunk() {
        let mut frame = Frame::new(STDERR, CHUNK * 4);
        assert!(frame.is_of(STDERR) && frame.room() == CHUNK);
        frame.bytes.extend_from_slice(&[7; CHUNK]);
        assert_eq!(frame.room(), 0);
    }
}

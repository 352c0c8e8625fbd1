//! A WebSocket: messages either way, in every framing; the only transport here that tells exits.
//!
//! Pings go out while it stands; a peer that answers nothing at all for three of them is lost. Only a reader that waits
//! can know that: who does not read also reads no pong.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::{BufMut, Bytes, BytesMut};
use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt, StreamExt};
use hyper::upgrade::Upgraded;
use leasehold_contract::{
    Duplex, Ended, Error, ExitSource, Framing, Process, ProcessInput, Size, Wiring,
};
use tokio::sync::{Mutex, OwnedSemaphorePermit};
use tokio::time::timeout;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, Role, WebSocketConfig};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::cut::Shared;
use super::framing::{Demux, To};
use super::output::{Output, Ready, Source};
use super::raw::{Keep, shared};
use super::{End, ended_before, endless, exit, unsupported};
use crate::error::quote;

/// The largest message that is taken.
const MESSAGE: usize = 1024 * 1024;
/// The largest that is sent: what common servers read at once.
const SENT: usize = 32 * 1024;
/// The protocol of Kubernetes that can close a channel.
const CLOSING: &str = "v5.channel.k8s.io";
/// For the farewell.
const FAREWELL: Duration = Duration::from_secs(1);

const STDIN: u8 = 0;
const STDOUT: u8 = 1;
const STDERR: u8 = 2;
const STATUS: u8 = 3;
const RESIZE: u8 = 4;
const CLOSE: u8 = 255;

type Sink = Arc<Mutex<SplitSink<WebSocketStream<Shared>, Message>>>;

/// [`Duplex`] of a WebSocket.
pub(crate) struct Socket {
    sink: Sink,
    stream: SplitStream<WebSocketStream<Shared>>,
    /// What the server chose.
    protocol: Option<String>,
    ping: Duration,
    keep: Arc<Held>,
}

struct Held {
    _keep: Arc<Keep>,
    _pinging: DropGuard,
}

impl Socket {
    /// Speaks WebSocket over a connection that was switched to it.
    pub(crate) async fn new(
        io: Upgraded,
        permit: OwnedSemaphorePermit,
        protocol: Option<String>,
        ping: Duration,
        closed: Option<CancellationToken>,
    ) -> Socket {
        let (connection, keep) = shared(io, permit, closed);
        let config = WebSocketConfig::default()
            .max_message_size(Some(MESSAGE))
            .max_frame_size(Some(MESSAGE))
            .write_buffer_size(0)
            .max_write_buffer_size(2 * MESSAGE);
        let (sink, stream) =
            WebSocketStream::from_raw_socket(connection, Role::Client, Some(config))
                .await
                .split();
        let sink = Arc::new(Mutex::new(sink));
        let finished = CancellationToken::new();
        let pinging = finished.clone().drop_guard();
        tokio::spawn(pings(sink.clone(), ping, finished));
        Socket {
            sink,
            stream,
            protocol,
            ping,
            keep: Arc::new(Held {
                _keep: keep,
                _pinging: pinging,
            }),
        }
    }
}

/// Keeps the ways between open, and lets a reader notice that nobody is there.
async fn pings(sink: Sink, every: Duration, finished: CancellationToken) {
    let pinging = async {
        loop {
            tokio::time::sleep(every).await;
            let ping = Message::Ping(Bytes::new());
            if sink.lock().await.send(ping).await.is_err() {
                return;
            }
        }
    };
    tokio::select! {
        () = pinging => {}
        () = finished.cancelled() => {}
    }
}

impl Duplex for Socket {
    fn wire(self: Box<Self>, wiring: Wiring) -> Result<Process, Error> {
        let channels = wiring.framing == Framing::Channels;
        if wiring.exit == ExitSource::StatusChannel && !channels {
            return Err(unsupported(
                "the exit source `status-channel` is of the framing `channels`",
            ));
        }
        let end = End::of(wiring.input_end)?;
        if matches!(end, End::HalfClose) && !(channels && self.protocol.as_deref() == Some(CLOSING))
        {
            return Err(unsupported(
                "a WebSocket has no half-close, unless its framing is `channels` and its protocol v5.channel.k8s.io",
            ));
        }
        let form = if channels {
            Form::Channels { status: None }
        } else {
            Form::Bytes(Demux::of(wiring.framing)?)
        };
        Ok(Process {
            output: Box::new(Output::of(Reading {
                stream: self.stream,
                sink: self.sink.clone(),
                form,
                exit: wiring.exit,
                patience: self.ping * 3,
                _keep: self.keep.clone(),
            })),
            input: Box::new(Input {
                sink: self.sink,
                channels,
                end,
                ended: false,
                _keep: self.keep,
            }),
        })
    }
}

/// How output is carried.
enum Form {
    Bytes(Demux),
    Channels {
        /// What the status message said.
        status: Option<Bytes>,
    },
}

struct Reading {
    stream: SplitStream<WebSocketStream<Shared>>,
    sink: Sink,
    form: Form,
    exit: ExitSource,
    patience: Duration,
    _keep: Arc<Held>,
}

impl Source for Reading {
    /// Reads one message.
    async fn read(&mut self, ready: &mut Ready) {
        let message = match timeout(self.patience, self.stream.next()).await {
            Ok(Some(Ok(message))) => message,
            Ok(Some(Err(e))) => return self.lost(ready, &e.to_string()),
            Ok(None) => return self.lost(ready, "closed without a word"),
            Err(_) => return self.lost(ready, "the server does not answer pings"),
        };
        match message {
            Message::Binary(bytes) => self.take(ready, bytes),
            Message::Text(text) => self.take(ready, text.into()),
            Message::Close(frame) => {
                self.closed(ready, frame);
                // The answer to the close frame is waiting to be sent.
                if let Ok(mut sink) = self.sink.try_lock() {
                    let _ = timeout(FAREWELL, sink.flush()).await;
                }
            }
            Message::Ping(_) | Message::Pong(_) | Message::Frame(_) => {}
        }
    }
}

impl Reading {
    fn take(&mut self, ready: &mut Ready, mut bytes: Bytes) {
        match &mut self.form {
            Form::Bytes(demux) => {
                let mut said = Vec::new();
                let framed = demux.feed(bytes, &mut said);
                ready.say(said);
                if let Err(why) = framed {
                    ready.end(Ended::Lost(why));
                }
            }
            Form::Channels { status } => {
                if bytes.is_empty() {
                    return;
                }
                let channel = bytes.split_to(1)[0];
                if bytes.is_empty() {
                    return;
                }
                match channel {
                    STDOUT => ready.say([(To::Out, bytes)]),
                    STDERR => ready.say([(To::Err, bytes)]),
                    STATUS => *status = Some(bytes),
                    // The end of a channel, or one that nobody asked for.
                    _ => {}
                }
            }
        }
    }

    /// The peer closed in order.
    fn closed(&mut self, ready: &mut Ready, frame: Option<CloseFrame>) {
        let orderly = self.finish(ready);
        let (code, reason) = match &frame {
            Some(frame) => (frame.code, frame.reason.as_str()),
            None => (CloseCode::Status, ""),
        };
        let usual = matches!(
            code,
            CloseCode::Normal | CloseCode::Away | CloseCode::Status
        );
        ready.end(match &self.exit {
            ExitSource::StatusChannel => self.status().unwrap_or_else(|| {
                Ended::Lost(self.said("closed before it said how the command ended", reason))
            }),
            ExitSource::CloseReason(pointer) => {
                exit::of_reason(reason, pointer).unwrap_or_else(|| {
                    Ended::Lost(self.said("closed and did not say how the command ended", reason))
                })
            }
            ExitSource::Ask if usual => match orderly {
                Ok(()) => Ended::Ask,
                Err(why) => Ended::Lost(why),
            },
            ExitSource::Ask => {
                Ended::Lost(self.said(&format!("closed with code {}", u16::from(code)), reason))
            }
        });
    }

    /// The connection went away. A status that came is the truth: it is sent after all output.
    fn lost(&mut self, ready: &mut Ready, why: &str) {
        let _ = self.finish(ready);
        let told = match self.exit {
            ExitSource::StatusChannel => self.status(),
            _ => None,
        };
        ready.end(told.unwrap_or_else(|| {
            Ended::Lost(format!(
                "the WebSocket was lost ({})",
                quote(why.as_bytes())
            ))
        }));
    }

    /// Says what a framing held back.
    fn finish(&mut self, ready: &mut Ready) -> Result<(), String> {
        let Form::Bytes(demux) = &mut self.form else {
            return Ok(());
        };
        let mut said = Vec::new();
        let whole = demux.end(&mut said);
        ready.say(said);
        whole
    }

    fn status(&self) -> Option<Ended> {
        match &self.form {
            Form::Channels {
                status: Some(message),
            } => exit::of_status(message),
            _ => None,
        }
    }

    /// What went wrong, with what the server said to it.
    fn said(&self, what: &str, reason: &str) -> String {
        let status = match &self.form {
            Form::Channels {
                status: Some(message),
            } => quote(message),
            _ => String::new(),
        };
        match (quote(reason.as_bytes()), status) {
            (reason, status) if reason.is_empty() && status.is_empty() => what.to_owned(),
            (reason, status) if reason.is_empty() => format!("{what}: {status}"),
            (reason, _) => format!("{what}: {reason}"),
        }
    }
}

struct Input {
    sink: Sink,
    channels: bool,
    end: End,
    ended: bool,
    _keep: Arc<Held>,
}

impl Input {
    async fn send(&self, message: Bytes) -> io::Result<()> {
        let sent = self.sink.lock().await.send(Message::Binary(message)).await;
        sent.map_err(|e| io::Error::new(io::ErrorKind::BrokenPipe, e.to_string()))
    }

    async fn input(&self, mut data: Bytes) -> io::Result<()> {
        while !data.is_empty() {
            let piece = data.split_to(data.len().min(SENT));
            let message = if self.channels {
                channel(STDIN, &piece)
            } else {
                piece
            };
            self.send(message).await?;
        }
        Ok(())
    }
}

fn channel(number: u8, data: &[u8]) -> Bytes {
    let mut message = BytesMut::with_capacity(1 + data.len());
    message.put_u8(number);
    message.put_slice(data);
    message.freeze()
}

#[async_trait]
impl ProcessInput for Input {
    async fn write(&mut self, data: Bytes) -> io::Result<()> {
        if self.ended {
            return Err(ended_before());
        }
        self.input(data).await
    }

    async fn end(&mut self) -> io::Result<()> {
        if self.ended {
            return Ok(());
        }
        match &self.end {
            End::HalfClose => self.send(channel(CLOSE, &[STDIN])).await?,
            End::Bytes(bytes) => self.input(bytes.clone()).await?,
            End::None => return Err(endless()),
        }
        self.ended = true;
        Ok(())
    }

    async fn resize(&mut self, size: Size) -> io::Result<()> {
        if !self.channels {
            return Ok(());
        }
        let size = serde_json::json!({ "Width": size.cols, "Height": size.rows });
        self.send(channel(RESIZE, size.to_string().as_bytes()))
            .await
    }
}

//! One exec channel: opened on a pooled connection, fed the bootstrap's payload, read to its close.
//!
//! What comes before the nonce is start-file noise: dropped, and kept bounded for error texts. The end is the
//! channel's close and nothing earlier: data may follow an exit status.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use leasehold_contract::{Code, Ended, Error, Size};
use russh::client::Msg;
use russh::{Channel, ChannelMsg, ChannelOpenFailure, ChannelReadHalf, ChannelWriteHalf, Pty, Sig};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::connect::Connection;
use crate::error::{failed, quote, unavailable, unknown};
use crate::gate::Gate;
use crate::pool::{Line, Route, Want};
use crate::remote::BOOTSTRAP;
use crate::secret::Secret;

/// Connections tried before giving up: each failure but the last was a connection that had died or was full.
const TRIES: usize = 4;

/// A payload for the bootstrap, and the nonce by which its first output is known.
pub(crate) struct Payload {
    pub(crate) text: Secret<Vec<u8>>,
    pub(crate) nonce: String,
}

/// What came next on a channel.
pub(crate) enum Event {
    Stdout(Bytes),
    Stderr(Bytes),
    Ended(Ended),
}

/// A running exec.
pub(crate) struct Running {
    pub(crate) read: Reading,
    pub(crate) write: Writing,
}

/// The reading half, with the connection.
pub(crate) struct Reading {
    read: ChannelReadHalf,
    stdout: Gate,
    stderr: Gate,
    status: Option<Ended>,
    done: bool,
    pub(crate) line: Line,
}

/// The writing half.
pub(crate) struct Writing {
    pub(crate) write: ChannelWriteHalf<Msg>,
    /// Keeps the way open while only this half is held.
    _connection: Arc<Connection>,
    /// Cancelled when the channel has closed or the connection ended.
    pub(crate) closed: CancellationToken,
}

/// A connection that was being asked for a channel when the call was dropped is not given out again: the
/// channel may still come.
struct Asking(Option<Line>);

impl Drop for Asking {
    fn drop(&mut self) {
        if let Some(line) = &self.0 {
            line.retire();
        }
    }
}

/// Opens a session channel.
///
/// # Errors
/// Those of connecting; `busy` when the server refuses a channel on a connection that has no other.
pub(crate) async fn open(route: &Route, want: Want) -> Result<(Line, Channel<Msg>), Error> {
    let name = route.name();
    let mut tries = 0;
    loop {
        tries += 1;
        let mut asking = Asking(Some(route.line(want).await?));
        let Some(line) = asking.0.as_ref() else {
            return Err(failed(Code::Internal, &name, "no connection"));
        };
        let new = line.new;
        let opening = line.connection.handle.channel_open_session();
        let error = match timeout(route.settings().channel, opening).await {
            Ok(Ok(channel)) => match asking.0.take() {
                Some(line) => return Ok((line, channel)),
                None => return Err(failed(Code::Internal, &name, "no connection")),
            },
            Ok(Err(russh::Error::ChannelOpenFailure(why))) => {
                if line.refused() {
                    // It has others; it stays, with fewer at a time.
                    asking.0.take();
                    continue;
                }
                failed(
                    Code::Busy,
                    &name,
                    format_args!(
                        "the server refuses to open a session ({why:?}); check MaxSessions and what the account may do"
                    ),
                )
            }
            Ok(Err(e)) => unavailable(&name, format_args!("no session could be opened ({e})")),
            Err(_) => {
                line.connection.cut("the server did not answer");
                unavailable(
                    &name,
                    format_args!(
                        "the server did not open a session within {} s",
                        route.settings().channel.as_secs()
                    ),
                )
            }
        };
        if new || tries >= TRIES {
            return Err(error);
        }
    }
}

/// Terminal modes while the payload is read: nothing echoed, nothing interpreted, no limit of a line's length.
const RAW: &[(Pty, u32)] = &[
    (Pty::ECHO, 0),
    (Pty::ECHOE, 0),
    (Pty::ECHOK, 0),
    (Pty::ECHONL, 0),
    (Pty::ICANON, 0),
    (Pty::ISIG, 0),
    (Pty::IEXTEN, 0),
    (Pty::ICRNL, 0),
    (Pty::INLCR, 0),
    (Pty::IGNCR, 0),
    (Pty::ISTRIP, 0),
    (Pty::INPCK, 0),
    (Pty::PARMRK, 0),
    (Pty::IXON, 0),
    (Pty::IXOFF, 0),
    (Pty::OPOST, 0),
    (Pty::TTY_OP_ISPEED, 38400),
    (Pty::TTY_OP_OSPEED, 38400),
];

/// Opens a channel, executes the bootstrap and sends it the payload.
///
/// # Errors
/// Until the exec request was sent, those of [`open`]: nothing ran. After it, `outcome-unknown`.
pub(crate) async fn exec(
    route: &Route,
    want: Want,
    tty: Option<Size>,
    payload: &Payload,
) -> Result<Running, Error> {
    let name = route.name();
    let (line, channel) = open(route, want).await?;
    let mut asking = Asking(Some(line));
    let (mut read, write) = channel.split();
    let deadline = route.settings().channel;
    if let Some(size) = tty {
        write
            .request_pty(
                true,
                "xterm-256color",
                size.cols.into(),
                size.rows.into(),
                0,
                0,
                RAW,
            )
            .await
            .map_err(|e| {
                unavailable(&name, format_args!("no terminal could be asked for ({e})"))
            })?;
        if !granted(&mut read, deadline, &name).await? {
            return Err(failed(
                Code::Unsupported,
                &name,
                "the server gives no terminal to this account (PermitTTY)",
            ));
        }
    }
    write
        .exec(true, BOOTSTRAP)
        .await
        .map_err(|e| unavailable(&name, format_args!("no command could be sent ({e})")))?;
    // The payload follows at once: waiting for the answer first would cost the way there and back once more, and a
    // server that refuses the exec drops what was written to it.
    let Some(connection) = asking.0.as_ref().map(|line| line.connection.clone()) else {
        return Err(failed(Code::Internal, &name, "no connection"));
    };
    let writing = Writing {
        closed: connection.shared.watch(write.id()),
        write,
        _connection: connection,
    };
    let sent = writing
        .send(Bytes::copy_from_slice(payload.text.expose()))
        .await;
    if !granted(&mut read, deadline, &name).await? {
        return Err(failed(
            Code::PermissionDenied,
            &name,
            "the server does not let this account execute commands",
        ));
    }
    // Where the channel closed before all of it was taken, the half that reads tells why: an account's shell that ended at
    // once and what it printed, or a connection that was lost.
    let _ = sent;
    let Some(line) = asking.0.take() else {
        return Err(failed(Code::Internal, &name, "no connection"));
    };
    Ok(Running {
        read: Reading {
            read,
            stdout: Gate::new(&payload.nonce),
            stderr: if tty.is_some() {
                Gate::open()
            } else {
                Gate::new(&payload.nonce)
            },
            status: None,
            done: false,
            line,
        },
        write: writing,
    })
}

/// Opens a channel to a port of the target's own loopback.
///
/// # Errors
/// `unavailable` when nothing listens there; `permission-denied` where the server forbids forwarding.
pub(crate) async fn forward(route: &Route, port: u16) -> Result<Running, Error> {
    let name = route.name();
    let mut asking = Asking(Some(route.line(Want::Alone).await?));
    let Some(line) = asking.0.as_ref() else {
        return Err(failed(Code::Internal, &name, "no connection"));
    };
    let opening =
        line.connection
            .handle
            .channel_open_direct_tcpip("127.0.0.1", port.into(), "127.0.0.1", 0);
    let channel = match timeout(route.settings().channel, opening).await {
        Ok(Ok(channel)) => channel,
        Ok(Err(russh::Error::ChannelOpenFailure(
            ChannelOpenFailure::AdministrativelyProhibited,
        ))) => {
            asking.0.take();
            return Err(failed(
                Code::PermissionDenied,
                &name,
                "the server forbids forwarding (AllowTcpForwarding, PermitOpen)",
            ));
        }
        Ok(Err(russh::Error::ChannelOpenFailure(_))) => {
            asking.0.take();
            return Err(unavailable(
                &name,
                format_args!("nothing on the target listens on 127.0.0.1:{port}"),
            ));
        }
        Ok(Err(e)) => {
            return Err(unavailable(
                &name,
                format_args!("no channel could be opened ({e})"),
            ));
        }
        Err(_) => {
            return Err(unavailable(
                &name,
                "the server did not open a channel in time",
            ));
        }
    };
    let Some(line) = asking.0.take() else {
        return Err(failed(Code::Internal, &name, "no connection"));
    };
    let (read, write) = channel.split();
    let closed = line.connection.shared.watch(write.id());
    Ok(Running {
        write: Writing {
            write,
            _connection: line.connection.clone(),
            closed,
        },
        read: Reading {
            read,
            stdout: Gate::open(),
            stderr: Gate::open(),
            // A port has no status: that it closed in order is all there is.
            status: Some(Ended::Exited(0)),
            done: false,
            line,
        },
    })
}

/// Waits for the answer to a channel request.
async fn granted(
    read: &mut ChannelReadHalf,
    deadline: Duration,
    name: &str,
) -> Result<bool, Error> {
    let answer = async {
        loop {
            match read.wait().await {
                Some(ChannelMsg::Success) => return Some(true),
                Some(ChannelMsg::Failure) => return Some(false),
                Some(ChannelMsg::Close) | None => return None,
                Some(_) => {}
            }
        }
    };
    match timeout(deadline, answer).await {
        Ok(Some(granted)) => Ok(granted),
        Ok(None) => Err(unknown(
            name,
            "the channel closed before the server answered",
        )),
        Err(_) => Err(unknown(
            name,
            format_args!("the server did not answer within {} s", deadline.as_secs()),
        )),
    }
}

impl Writing {
    /// Writes all of it; waits while the other side does not read.
    pub(crate) async fn send(&self, data: Bytes) -> std::io::Result<()> {
        let gone = || {
            std::io::Error::new(
                std::io::ErrorKind::BrokenPipe,
                "the command no longer reads",
            )
        };
        if self.closed.is_cancelled() {
            return Err(gone());
        }
        tokio::select! {
            sent = self.write.data_bytes(data) => sent.map_err(|_| gone()),
            () = self.closed.cancelled() => Err(gone()),
        }
    }

    /// Half-close.
    pub(crate) async fn end(&self) -> std::io::Result<()> {
        self.write.eof().await.map_err(|_| {
            std::io::Error::new(std::io::ErrorKind::BrokenPipe, "the channel is closed")
        })
    }
}

impl Reading {
    /// The next thing behind the gate. After [`Event::Ended`] nothing follows.
    pub(crate) async fn next(&mut self) -> Event {
        loop {
            if let Some(event) = self.step().await {
                return event;
            }
        }
    }

    /// Reads one message; none where it told nothing yet. Cancel-safe.
    async fn step(&mut self) -> Option<Event> {
        if self.done {
            return Some(Event::Ended(Ended::Lost("the stream has ended".into())));
        }
        match self.read.wait().await {
            Some(ChannelMsg::Data { data }) => self.stdout.pass(data).map(Event::Stdout),
            Some(ChannelMsg::ExtendedData { data, ext: 1 }) => {
                self.stderr.pass(data).map(Event::Stderr)
            }
            Some(ChannelMsg::ExitStatus { exit_status }) => {
                // POSIX has eight bits; a server that sends more is truncated as the shell would.
                self.status = Some(Ended::Exited((exit_status & 0xff) as i32));
                None
            }
            Some(ChannelMsg::ExitSignal { signal_name, .. }) => {
                self.status = Some(signalled(&signal_name));
                None
            }
            Some(ChannelMsg::Close) => {
                self.done = true;
                Some(Event::Ended(self.status.take().unwrap_or_else(|| {
                    Ended::Lost("the server closed the channel and said no status".into())
                })))
            }
            None => {
                self.done = true;
                self.line.retire();
                // A status without the close: its last bytes may be missing, so it is not the whole truth.
                Some(Event::Ended(Ended::Lost(
                    self.line.connection.shared.reason(),
                )))
            }
            Some(_) => None,
        }
    }

    /// Waits for the line with the nonce; gives what stands behind it.
    ///
    /// # Errors
    /// `failed-precondition` when the login shell ended without running the bootstrap; `outcome-unknown` when the
    /// connection was lost.
    pub(crate) async fn verdict(&mut self, name: &str) -> Result<(String, Vec<Event>), Error> {
        let mut early = Vec::new();
        loop {
            if let Some(said) = self.stdout.said() {
                return Ok((said.to_owned(), early));
            }
            match self.step().await {
                Some(Event::Ended(Ended::Lost(why))) => {
                    return Err(unknown(name, format_args!("lost before it began: {why}")));
                }
                Some(Event::Ended(_)) => return Err(self.no_shell(name)),
                Some(event) => early.push(event),
                None => {}
            }
        }
    }

    /// The bootstrap never spoke: what did the account's shell say instead?
    pub(crate) fn no_shell(&self, name: &str) -> Error {
        let mut said = quote(self.stdout.noise());
        let err = quote(self.stderr.noise());
        if !err.is_empty() {
            said = if said.is_empty() {
                err
            } else {
                format!("{said}; {err}")
            };
        }
        let said = if said.is_empty() {
            "it printed nothing".to_owned()
        } else {
            format!("it printed: {said}")
        };
        failed(
            Code::FailedPrecondition,
            name,
            format_args!(
                "the account's shell ended without running /bin/sh ({said}); check the login shell, its start files and any forced command"
            ),
        )
    }

    /// Whether the bootstrap has spoken.
    pub(crate) fn began(&self) -> bool {
        self.stdout.said().is_some()
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        if !self.done {
            // The channel is still open: nobody can use this connection for a stream of their own.
            self.line.retire();
        }
    }
}

/// How a server's name of a signal ends a stream; a name that is not POSIX's leaves it to the record.
fn signalled(signal: &Sig) -> Ended {
    let name = match signal {
        Sig::ABRT => "ABRT",
        Sig::ALRM => "ALRM",
        Sig::FPE => "FPE",
        Sig::HUP => "HUP",
        Sig::ILL => "ILL",
        Sig::INT => "INT",
        Sig::KILL => "KILL",
        Sig::PIPE => "PIPE",
        Sig::QUIT => "QUIT",
        Sig::SEGV => "SEGV",
        Sig::TERM => "TERM",
        Sig::USR1 => "USR1",
        Sig::Custom(name) if name == "USR2" => "USR2",
        Sig::Custom(_) => return Ended::Ask,
    };
    Ended::Signalled(name.to_owned())
}

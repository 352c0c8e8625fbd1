//! `exec`: a command in a lease, as if it ran here.
//!
//! Its output goes where ours goes, our input is its input, and its exit code is ours. Interrupting sends the
//! signal to everything that it started; a second interrupt kills it, a third lets go of it. When nobody takes the
//! output any more, the command gets what a closed pipe gives: PIPE, and KILL where it does not end by that.

use std::time::Duration;

use bytes::Bytes;
use clap::Args;
use clap::builder::NonEmptyStringValueParser;
use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt, StreamExt};
use serde_json::{Map, Value, json};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;
use tokio_tungstenite::tungstenite::Message;

use super::client::{Client, Socket, encode, refusal_of};
use super::environment::pair;
use super::exit::{BROKEN_PIPE, CliError, EXEC_FAILED};
use super::lease::seconds;
use super::progress::during;
use super::standard::{Writer, read_stdin};
use super::terminal::{self, Raw};
use crate::api::errors::ErrorCode;

/// How long a command may take to end by PIPE, and then by KILL.
const PATIENCE: Duration = Duration::from_secs(5);

/// `exec …`
#[derive(Debug, Args)]
#[command(
    after_help = "The command's output is ours, and so is its exit code. Ctrl-C is passed on to everything that it started; \
                  a second one kills it, and a third leaves it alone. When the reader of the output goes away, the \
                  command is ended like by a closed pipe, and the exit code is 141."
)]
pub struct ExecArgs {
    /// Give the command a terminal, and put this one into raw mode
    #[arg(long, short = 't')]
    tty: bool,
    /// Give the command no input; without this it gets ours
    #[arg(long, short = 'n')]
    no_stdin: bool,
    /// A variable (repeat for more)
    #[arg(long = "env", short = 'e', value_name = "NAME=VALUE")]
    env: Vec<String>,
    /// Where it starts; without, the lease's workspace
    #[arg(long, short = 'w', value_name = "DIR")]
    cwd: Option<String>,
    /// When it is ended, as 90s, 30m or 8h
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    timeout: Option<String>,
    /// The lease's id
    #[arg(value_parser = NonEmptyStringValueParser::new())]
    lease: String,
    /// Program and arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    pub(super) argv: Vec<String>,
}

impl ExecArgs {
    fn start(&self) -> Result<Value, CliError> {
        let mut env = Map::new();
        for text in &self.env {
            let (name, value) = pair("--env", text)?;
            env.insert(name.into(), value.into());
        }
        let mut start = json!({
            "type": "start",
            "argv": self.argv,
            "env": env,
            "stdin": !self.no_stdin,
        });
        if let Some(cwd) = &self.cwd {
            start["cwd"] = cwd.as_str().into();
        }
        if let Some(timeout) = &self.timeout {
            start["timeoutMs"] = (u64::from(seconds("--timeout", timeout)?) * 1000).into();
        }
        if self.tty {
            let (cols, rows) = terminal::size();
            start["tty"] = json!({"cols": cols, "rows": rows});
        }
        Ok(start)
    }

    /// Runs the command and answers its code.
    pub async fn run(self, client: &Client) -> Result<u8, CliError> {
        let start = self.start()?;
        let mut interrupts: Interrupts = [
            ("INT", SignalKind::interrupt()),
            ("TERM", SignalKind::terminate()),
            ("HUP", SignalKind::hangup()),
            ("QUIT", SignalKind::quit()),
        ]
        .into_iter()
        .map(|(name, kind)| signal(kind).map(|caught| (name, caught)))
        .collect::<std::io::Result<Vec<_>>>()
        .map_err(|e| CliError::Local(e.to_string()))?;

        let path = format!(
            "/api/environment-leases/{}/executions/stream",
            encode(&self.lease)
        );
        let starting = async {
            let (mut sink, mut frames) = client.websocket(&path).await?.split();
            send(&mut sink, Message::Text(start.to_string().into())).await?;
            let execution = started(&mut frames).await?;
            Ok::<_, CliError>((sink, frames, execution))
        };
        let (mut sink, mut frames, execution) = tokio::select! {
            started = during("starting", starting) => started?,
            _ = next(&mut interrupts) => return Err(CliError::Local(format!(
                "interrupted before the command had started; whether it did tells `leasehold lease executions {}`",
                super::output::plain(&self.lease)
            ))),
        };

        let raw = if self.tty { Raw::enter() } else { None };
        let writer = Writer::start();
        let typed = (!self.no_stdin).then(read_stdin);
        let resizes = if self.tty {
            signal(SignalKind::window_change()).ok()
        } else {
            None
        };
        let ended = tokio::select! {
            ended = show(&mut frames, &writer) => ended,
            failed = types(&mut sink, typed, resizes) => Err(failed),
            failed = interrupted(client, &execution, &mut interrupts) => return Err(failed),
            () = writer.stopped() => Err(CliError::OutputClosed),
        };
        // What was read is written before the code is told.
        let written = tokio::select! {
            written = writer.finish() => written,
            _ = next(&mut interrupts) => {
                return Err(CliError::Local("interrupted before all output was written".into()));
            }
        };
        drop(raw);
        let Err(lost) = written else {
            return code_of(&ended?);
        };
        if matches!(ended, Err(CliError::OutputClosed)) {
            tokio::select! {
                broken = break_pipe(client, &mut frames, &execution) => broken?,
                failed = interrupted(client, &execution, &mut interrupts) => return Err(failed),
            }
        }
        match lost {
            CliError::OutputClosed => Ok(BROKEN_PIPE),
            lost => Err(lost),
        }
    }
}

/// Our signals, each by its name.
type Interrupts = Vec<(&'static str, Signal)>;

async fn next(interrupts: &mut Interrupts) -> &'static str {
    std::future::poll_fn(|cx| {
        for (name, caught) in interrupts.iter_mut() {
            if caught.poll_recv(cx).is_ready() {
                return std::task::Poll::Ready(*name);
            }
        }
        std::task::Poll::Pending
    })
    .await
}

/// Sends a signal. Over a request of its own: behind input that the command does not read a frame would never
/// arrive.
async fn signalled(client: &Client, execution: &str, name: &str) -> Result<(), CliError> {
    let path = format!("/api/executions/{}/signal", encode(execution));
    let sent = client.post(&path, Some(json!({"signal": name}))).await;
    sent.map(drop)
}

/// Passes our signals on.
async fn interrupted(client: &Client, execution: &str, interrupts: &mut Interrupts) -> CliError {
    let mut count = 0;
    loop {
        let name = next(interrupts).await;
        count += 1;
        let name = match count {
            1 => name,
            2 => "KILL",
            _ => return CliError::Local(format!("let go of {execution}, which may still run")),
        };
        if let Err(e) = signalled(client, execution, name).await {
            super::exit::complain(&format!("{name} was not sent: {e}"), EXEC_FAILED);
        }
    }
}

/// Ends a command whose output nobody takes, and waits for its end.
async fn break_pipe(
    client: &Client,
    frames: &mut SplitStream<Socket>,
    execution: &str,
) -> Result<(), CliError> {
    for name in ["PIPE", "KILL"] {
        match signalled(client, execution, name).await {
            Ok(()) => {}
            // It has ended by itself: the frame that says so is on its way.
            Err(CliError::Refused { code, .. }) if code == ErrorCode::ExecutionEnded.as_str() => {}
            Err(e) => {
                return Err(CliError::Local(format!(
                    "nobody takes the output, and {execution} could not be ended: {e}; it may still run"
                )));
            }
        }
        if let Ok(ended) = tokio::time::timeout(PATIENCE, end(frames)).await {
            return ended.map(drop);
        }
    }
    Err(CliError::Local(format!(
        "nobody takes the output, and {execution} did not end; it may still run"
    )))
}

type Sink = SplitSink<Socket, Message>;

async fn send(sink: &mut Sink, message: Message) -> Result<(), CliError> {
    sink.send(message)
        .await
        .map_err(|e| CliError::Broken(e.to_string()))
}

fn refused(frame: &Value) -> CliError {
    let code = frame["details"]["code"].as_str().unwrap_or("");
    let status = ErrorCode::parse(code).map_or(500, |c| c.status().as_u16());
    refusal_of(status, frame)
}

fn parse(text: &str) -> Result<Value, CliError> {
    serde_json::from_str(text).map_err(|e| CliError::Answer(e.to_string()))
}

async fn started(frames: &mut SplitStream<Socket>) -> Result<String, CliError> {
    loop {
        match frames.next().await {
            Some(Ok(Message::Text(text))) => {
                let frame = parse(&text)?;
                return match frame["type"].as_str() {
                    Some("started") => Ok(frame["executionId"].as_str().unwrap_or("").to_owned()),
                    Some("error") => Err(refused(&frame)),
                    _ => Err(CliError::Answer(
                        "the stream did not begin as documented".into(),
                    )),
                };
            }
            Some(Ok(Message::Ping(_) | Message::Pong(_))) => {}
            Some(Ok(_)) | None => {
                return Err(CliError::Broken("before the command started".into()));
            }
            Some(Err(e)) => return Err(CliError::Broken(e.to_string())),
        }
    }
}

/// Something that a running command's stream says.
enum Heard {
    /// Output, the channel first.
    Output(Bytes),
    /// The exit frame.
    Exit(Value),
}

async fn heard(frames: &mut SplitStream<Socket>) -> Result<Heard, CliError> {
    loop {
        match frames.next().await {
            Some(Ok(Message::Binary(data))) => return Ok(Heard::Output(data)),
            Some(Ok(Message::Text(text))) => {
                let frame = parse(&text)?;
                match frame["type"].as_str() {
                    Some("exit") => return Ok(Heard::Exit(frame)),
                    Some("error") => return Err(refused(&frame)),
                    _ => {}
                }
            }
            Some(Ok(Message::Ping(_) | Message::Pong(_) | Message::Frame(_))) => {}
            Some(Ok(Message::Close(_))) | None => {
                return Err(CliError::Broken("the command may still run".into()));
            }
            Some(Err(e)) => {
                return Err(CliError::Broken(format!("{e}; the command may still run")));
            }
        }
    }
}

/// Shows what comes, until the exit frame, which it answers.
async fn show(frames: &mut SplitStream<Socket>, writer: &Writer) -> Result<Value, CliError> {
    loop {
        match heard(frames).await? {
            Heard::Output(data) => writer.write(data).await?,
            Heard::Exit(frame) => return Ok(frame),
        }
    }
}

/// Drops what comes, until the exit frame.
async fn end(frames: &mut SplitStream<Socket>) -> Result<Value, CliError> {
    loop {
        if let Heard::Exit(frame) = heard(frames).await? {
            return Ok(frame);
        }
    }
}

/// Sends what is typed and how the terminal's size changes; only a broken connection ends it.
async fn types(
    sink: &mut Sink,
    mut typed: Option<mpsc::Receiver<Bytes>>,
    mut resizes: Option<Signal>,
) -> CliError {
    loop {
        let message = tokio::select! {
            Some(data) = receive(&mut typed), if typed.is_some() => match data {
                Some(data) => Message::Binary(data),
                None => {
                    typed = None;
                    Message::Text(json!({"type": "stdin-end"}).to_string().into())
                }
            },
            Some(()) = resized(&mut resizes), if resizes.is_some() => {
                let (cols, rows) = terminal::size();
                Message::Text(json!({"type": "resize", "cols": cols, "rows": rows}).to_string().into())
            }
            else => std::future::pending().await,
        };
        if let Err(e) = send(sink, message).await {
            // The other half hears the end in order when there is one: it has a moment for that.
            tokio::time::sleep(Duration::from_secs(2)).await;
            return e;
        }
    }
}

/// The next input; `Some(None)` is its end.
async fn receive(typed: &mut Option<mpsc::Receiver<Bytes>>) -> Option<Option<Bytes>> {
    match typed {
        Some(typed) => Some(typed.recv().await),
        None => None,
    }
}

async fn resized(resizes: &mut Option<Signal>) -> Option<()> {
    match resizes {
        Some(resizes) => resizes.recv().await,
        None => None,
    }
}

/// The shell's code for how the command ended.
fn code_of(exit: &Value) -> Result<u8, CliError> {
    match exit["outcome"].as_str() {
        Some("exited") => {
            let code = exit["exitCode"]
                .as_u64()
                .and_then(|code| u8::try_from(code).ok());
            code.ok_or_else(|| CliError::Answer("an exit code that is none".into()))
        }
        Some("signalled") => {
            let name = exit["signal"].as_str().unwrap_or("");
            Ok(128 + signal_number(name))
        }
        Some("out_of_memory") => Err(CliError::Local(
            "the command was ended for its memory".into(),
        )),
        outcome => Err(CliError::Local(format!(
            "what became of the command is {}{}{}",
            outcome.unwrap_or("not told"),
            match exit["reason"].as_str() {
                Some(reason) => format!(": {}", super::output::plain(reason)),
                None => String::new(),
            },
            match outcome {
                Some("unknown") =>
                    "; `leasehold lease executions` tells it once the target can be asked",
                _ => "",
            }
        ))),
    }
}

/// Linux's number of a signal; 0 for one that it does not have.
fn signal_number(name: &str) -> u8 {
    let names = [
        "HUP", "INT", "QUIT", "ILL", "TRAP", "ABRT", "BUS", "FPE", "KILL", "USR1", "SEGV", "USR2",
        "PIPE", "ALRM", "TERM", "STKFLT", "CHLD", "CONT", "STOP", "TSTP", "TTIN", "TTOU", "URG",
        "XCPU", "XFSZ", "VTALRM", "PROF", "WINCH", "IO", "PWR", "SYS",
    ];
    let at = names.iter().position(|known| *known == name);
    at.and_then(|at| u8::try_from(at + 1).ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_commands_end_becomes_the_shells_code() {
        assert_eq!(
            code_of(&json!({"outcome": "exited", "exitCode": 255})).unwrap(),
            255
        );
        assert_eq!(
            code_of(&json!({"outcome": "signalled", "signal": "KILL"})).unwrap(),
            137
        );
        assert_eq!(
            code_of(&json!({"outcome": "signalled", "signal": "TERM"})).unwrap(),
            143
        );
        let unknown = code_of(&json!({"outcome": "unknown", "reason": "cut"})).unwrap_err();
        assert!(
            unknown.to_string().contains("unknown: cut; `leasehold"),
            "{unknown}"
        );
    }
}

//! A room's command over a WebSocket, in the channels of Kubernetes: 0 its input, 1 and 2 its output, 3 how it ended, and
//! 255 the end of a channel.
//!
//! The command leads a process group, and its id is nobody else's while it is noted: it is reaped under the same lock.

use std::io::{BufReader, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{ChildStdin, Stdio};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};
use serde_json::{Value, json};
use tungstenite::handshake::derive_accept_key;
use tungstenite::protocol::Role;
use tungstenite::{Message, WebSocket};

use super::{Heard, Run, Shared, command_of};

const STDIN: u8 = 0;
const STDOUT: u8 = 1;
const STDERR: u8 = 2;
const STATUS: u8 = 3;
const CLOSE: u8 = 255;

/// One connection that two speak on: a frame is written at once, or another waits.
struct Wire {
    from: BufReader<TcpStream>,
    to: Arc<Mutex<TcpStream>>,
}

impl Read for Wire {
    fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
        self.from.read(out)
    }
}

impl Write for Wire {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let mut to = self.to.lock().unwrap_or_else(PoisonError::into_inner);
        to.write_all(bytes).map(|()| bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Runs a command to its end; its client hears all of it and talks to it meanwhile.
pub(super) fn serve(
    shared: &Shared,
    room: &str,
    run: &str,
    heard: &Heard,
    from: BufReader<TcpStream>,
    mut to: TcpStream,
) -> std::io::Result<()> {
    let Some(asked) = shared.with_run(room, run, |run| run.asked.clone()) else {
        return write!(to, "HTTP/1.1 404 Said\r\ncontent-length: 0\r\n\r\n");
    };
    let key = derive_accept_key(heard.header("sec-websocket-key").as_bytes());
    let protocol = heard.header("sec-websocket-protocol");
    write!(
        to,
        "HTTP/1.1 101 Said\r\nconnection: upgrade\r\nupgrade: websocket\r\nsec-websocket-accept: {key}\r\nsec-websocket-protocol: {protocol}\r\n\r\n"
    )?;
    let ending = to.try_clone()?;
    let lines = Arc::new(Mutex::new(to.try_clone()?));
    let speaking = Wire {
        from: BufReader::new(to),
        to: lines.clone(),
    };
    let speaking = Mutex::new(WebSocket::from_raw_socket(speaking, Role::Server, None));
    let hearing = Wire { from, to: lines };
    let hearing = WebSocket::from_raw_socket(hearing, Role::Server, None);
    let say = |message: Message| {
        let mut speaking = speaking.lock().unwrap_or_else(PoisonError::into_inner);
        speaking.send(message).map_err(std::io::Error::other)
    };
    let mut command = command_of(&asked);
    command
        .process_group(0)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let status = match command.spawn() {
        Err(error) => {
            say(channel(STDERR, format!("{error}\n").as_bytes()))?;
            failed(127)
        }
        Ok(mut child) => {
            let leader = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
            if shared
                .with_run(room, run, |run| run.leader = leader)
                .is_none()
            {
                // The room is gone: nobody would end it.
                child.kill()?;
            }
            let input = child.stdin.take();
            std::thread::spawn(move || heed(hearing, input));
            let outputs = (child.stdout.take(), child.stderr.take());
            std::thread::scope(|scope| {
                scope.spawn(|| pass(outputs.0, STDOUT, &say));
                pass(outputs.1, STDERR, &say);
            });
            if let Some(leader) = leader {
                let ended = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
                waitid(WaitId::Pid(leader), ended)?;
            }
            let mut state = shared.state();
            let status = child.wait()?;
            let code = status
                .code()
                .unwrap_or(128 + status.signal().unwrap_or_default());
            if let Some(run) = super::find_run(&mut state, room, run) {
                (run.leader, run.exit_code) = (None, Some(code));
            }
            failed(code)
        }
    };
    say(channel(STATUS, status.to_string().as_bytes()))?;
    say(Message::Close(None))?;
    ending.shutdown(Shutdown::Write)
}

/// Sends a signal to all of a command's processes; whether it still runs.
pub(super) fn signal(run: &Run, name: &str) -> bool {
    let signal = match name {
        "INT" => Signal::INT,
        "TERM" => Signal::TERM,
        "KILL" => Signal::KILL,
        _ => return false,
    };
    let sent = run.leader.map(|leader| kill_process_group(leader, signal));
    matches!(sent, Some(Ok(())))
}

/// What Kubernetes says of a command that ended so.
fn failed(code: i32) -> Value {
    if code == 0 {
        return json!({ "status": "Success" });
    }
    let causes = json!([{ "reason": "ExitCode", "message": code.to_string() }]);
    json!({ "status": "Failure", "reason": "NonZeroExitCode", "details": { "causes": causes } })
}

fn channel(number: u8, bytes: &[u8]) -> Message {
    Message::Binary([&[number], bytes].concat().into())
}

/// What the client says, until it says no more: the command's input.
fn heed(mut hearing: WebSocket<Wire>, mut input: Option<ChildStdin>) {
    while let Ok(message) = hearing.read() {
        let Message::Binary(bytes) = message else {
            continue;
        };
        match bytes.split_first() {
            Some((&STDIN, bytes)) => {
                let written = input.as_mut().map(|input| input.write_all(bytes));
                if matches!(written, Some(Err(_))) {
                    // It reads no more.
                    input = None;
                }
            }
            Some((&CLOSE, &[STDIN])) => input = None,
            _ => {}
        }
    }
}

/// What a command writes, until it writes no more or nobody hears it.
fn pass(output: Option<impl Read>, number: u8, say: &impl Fn(Message) -> std::io::Result<()>) {
    let Some(mut output) = output else { return };
    let mut piece = vec![0; 32 << 10];
    while let Ok(read @ 1..) = output.read(&mut piece) {
        if say(channel(number, &piece[..read])).is_err() {
            return;
        }
    }
}

//! Commands whose bytes go over a WebSocket in channels, through the whole server: what is said to them, what they say, and
//! how they end, by themselves, by a signal, and with their lease.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};

use leasehold_parts::{Pattern, digest_of_all};
use leasehold_tests::http::text;
use leasehold_tests::wait::{LONG, until};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use super::{House, TOKEN};

/// `leasehold exec` of a shell's script, which goes when this does, and where it does not end by itself.
struct Typed {
    /// None: nobody need end it.
    over: Option<Sender<()>>,
    client: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Typed {
    fn begin(house: &House, lease: &str, script: &str) -> Typed {
        let mut client = house
            .server
            .leasehold()
            .args(["exec", lease, "--", "sh", "-c", script])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the client runs");
        let output = client.stdout.take().expect("a pipe");
        let pid = i32::try_from(client.id()).ok().and_then(Pid::from_raw);
        let (over, is_over) = channel::<()>();
        std::thread::spawn(move || {
            if is_over.recv_timeout(LONG) == Err(RecvTimeoutError::Timeout) {
                let _ = pid.map(|pid| kill_process(pid, Signal::KILL));
            }
        });
        Typed {
            over: Some(over),
            input: client.stdin.take(),
            output: BufReader::new(output),
            client,
        }
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).expect("text");
        line.trim_end().to_owned()
    }

    /// Its end: what it wrote since, what it wrote beside, and its exit code.
    fn end(mut self) -> (String, String, Option<i32>) {
        self.input = None;
        let (mut out, mut beside) = (String::new(), String::new());
        self.output.read_to_string(&mut out).expect("text");
        let mut errors = self.client.stderr.take().expect("a pipe");
        errors.read_to_string(&mut beside).expect("text");
        self.over = None;
        (out, beside, self.client.wait().expect("an end").code())
    }
}

impl Drop for Typed {
    fn drop(&mut self) {
        self.over = None;
        let _ = self.client.kill();
        let _ = self.client.wait();
    }
}

fn leased() -> Option<(House, String)> {
    let house = House::of("lodge", TOKEN)?;
    let lease = text(&house.acquire()["id"]);
    Some((house, lease))
}

/// The only command of a lease.
fn only(house: &House, lease: &str) -> Value {
    let all = house.server.executions(lease);
    assert_eq!(all.len(), 1, "{all:?}");
    all[0].clone()
}

#[test]
fn a_command_over_a_websocket_is_talked_to_while_it_runs_and_its_end_is_the_backends_word() {
    let Some((house, lease)) = leased() else {
        return;
    };
    let script = "echo aside >&2; read line; echo \"got $line\"; cat; echo after; exit 7";
    let mut typed = Typed::begin(&house, &lease, script);
    let input = typed.input.as_mut().expect("a pipe");
    input.write_all(b"one\n").expect("it is taken");
    // The answer comes while the input is open.
    assert_eq!(typed.line(), "got one");
    let input = typed.input.as_mut().expect("a pipe");
    input.write_all(b"two").expect("it is taken");
    // Only the end of its input lets `cat` end, and what follows is still heard.
    let ended = typed.end();
    assert_eq!(ended, ("twoafter\n".into(), "aside\n".into(), Some(7)));
    let known = only(&house, &lease);
    assert_eq!(
        (&known["outcome"], &known["exitCode"]),
        (&"exited".into(), &7.into()),
        "{known}"
    );
    assert_eq!(known["cancelled"], false, "{known}");

    let heard = house.rooms.heard();
    let socket = heard.iter().find(|one| one.path.ends_with("/socket"));
    let socket = socket.expect("a WebSocket was opened");
    assert_eq!(socket.header("authorization"), format!("Bearer {TOKEN}"));
    assert_eq!(socket.header("sec-websocket-protocol"), "v5.channel.k8s.io");
    // Nobody asked the backend how it ended: the stream said it.
    let run = socket.path.trim_end_matches("/socket");
    assert!(!heard.iter().any(|one| one.path == run), "{heard:?}");
    house.keeps_no_secret();
}

#[test]
fn what_goes_into_a_command_over_a_websocket_comes_out_of_it_whole() {
    const LENGTH: u64 = 8 << 20;
    let Some((house, lease)) = leased() else {
        return;
    };
    let mut typed = Typed::begin(&house, &lease, "cat");
    let mut input = typed.input.take().expect("a pipe");
    let came = std::thread::scope(|scope| {
        scope.spawn(move || {
            std::io::copy(&mut Pattern::of(LENGTH), &mut input).expect("all of it is taken");
        });
        digest_of_all(&mut typed.output).expect("it is read")
    });
    let whole = digest_of_all(Pattern::of(LENGTH)).expect("it is made here");
    assert!(came == whole, "{} bytes came", came.0);
    assert_eq!(typed.end(), (String::new(), String::new(), Some(0)));
}

#[test]
fn a_signal_reaches_a_command_over_a_websocket_and_it_ends_as_it_wants() {
    let Some((house, lease)) = leased() else {
        return;
    };
    let script = "trap 'echo caught; exit 9' TERM; echo ready; while :; do sleep 0.05; done";
    let mut typed = Typed::begin(&house, &lease, script);
    assert_eq!(typed.line(), "ready");
    let id = text(&only(&house, &lease)["id"]);
    let path = format!("/api/executions/{id}/signal");
    let sent = house
        .server
        .call("POST", &path, Some(&json!({ "signal": "TERM" })));
    assert_eq!(sent.status, 204, "{}", sent.body);
    // What the shell says of its `sleep` is its own affair.
    let (out, beside, code) = typed.end();
    assert_eq!((out.as_str(), code), ("caught\n", Some(9)), "{beside}");
    let known = house.server.wait_execution(&id, "exited");
    assert_eq!(
        (&known["exitCode"], &known["cancelled"]),
        (&9.into(), &true.into()),
        "{known}"
    );
}

#[test]
fn a_release_ends_a_command_that_runs_over_a_websocket_and_the_client_hears_it() {
    let Some((house, lease)) = leased() else {
        return;
    };
    let mut typed = Typed::begin(&house, &lease, "echo $$; sleep 1000");
    let leader = typed.line();
    let process = std::path::PathBuf::from(format!("/proc/{leader}"));
    assert!(process.exists(), "{leader:?} runs");
    let id = text(&only(&house, &lease)["id"]);
    let released = house.server.release(&lease);
    assert_eq!(released["status"], "released", "{released}");
    let (_, beside, code) = typed.end();
    // As its exit code the backend has 128 and the signal's number.
    assert_eq!(code, Some(137), "{beside}");
    let known = house.server.wait_execution(&id, "exited");
    assert_eq!(
        (&known["exitCode"], &known["cancelled"]),
        (&137.into(), &true.into()),
        "{known}"
    );
    until("its processes to be gone", || {
        (!process.exists()).then_some(())
    });
    until("its connection to be closed", || {
        (house.rooms.connections().1 <= 1).then_some(())
    });
    assert_eq!(house.rooms.rooms(), Vec::<String>::new());
}

//! The stream and its neighbours on a real target: a throw-away sshd, leased through the SSH component.

use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;

use crate::leased::Leased;
use crate::server::{Server, wait_for};

impl Leased {
    pub async fn open(&self, token: Option<&str>) -> WebSocketStream<TcpStream> {
        let wire = TcpStream::connect(("127.0.0.1", self.server.port))
            .await
            .unwrap();
        let url = format!(
            "ws://localhost:{}{}",
            self.server.port,
            self.path("/executions/stream")
        );
        let mut request = url.into_client_request().unwrap();
        if let Some(token) = token {
            let value = format!("Bearer {token}").parse().unwrap();
            request.headers_mut().insert("authorization", value);
        }
        tokio_tungstenite::client_async(request, wire)
            .await
            .unwrap()
            .0
    }

    /// Opens a stream as the operator, starts a command, and answers the stream and the command's id.
    pub async fn start(&self, start: Value) -> (WebSocketStream<TcpStream>, String) {
        let mut socket = self.open(Some(&self.server.home.token())).await;
        socket.send(text(&start)).await.unwrap();
        let started = next(&mut socket).await;
        let Heard::Said(started) = started else {
            panic!("{started:?}")
        };
        assert_eq!(started["type"], "started", "{started}");
        (socket, started["executionId"].as_str().unwrap().to_owned())
    }
}

pub fn text(value: &Value) -> Message {
    Message::Text(value.to_string().into())
}

fn input(bytes: &[u8]) -> Message {
    Message::Binary([&[0], bytes].concat().into())
}

#[derive(Debug, PartialEq)]
pub enum Heard {
    Said(Value),
    Out(Vec<u8>),
    Err(Vec<u8>),
    Closed(u16),
}

pub async fn next(socket: &mut WebSocketStream<TcpStream>) -> Heard {
    loop {
        match socket
            .next()
            .await
            .expect("the stream ended without a close")
            .unwrap()
        {
            Message::Text(text) => return Heard::Said(serde_json::from_str(&text).unwrap()),
            Message::Binary(data) => {
                assert!(
                    data.len() > 1 && data.len() <= 1 + (64 << 10),
                    "{}",
                    data.len()
                );
                return match data[0] {
                    1 => Heard::Out(data[1..].to_vec()),
                    2 => Heard::Err(data[1..].to_vec()),
                    other => panic!("channel {other}"),
                };
            }
            Message::Close(frame) => return Heard::Closed(frame.map_or(1005, |f| f.code.into())),
            _ => {}
        }
    }
}

/// Everything to the end: output, error output, the last frame, and the close code.
pub async fn rest(socket: &mut WebSocketStream<TcpStream>) -> (Vec<u8>, Vec<u8>, Value, u16) {
    let (mut out, mut err, mut last) = (Vec::new(), Vec::new(), Value::Null);
    loop {
        match next(socket).await {
            Heard::Out(data) => out.extend(data),
            Heard::Err(data) => err.extend(data),
            Heard::Said(frame) => {
                assert!(last.is_null(), "{last} was not the last frame");
                last = frame;
            }
            Heard::Closed(code) => return (out, err, last, code),
        }
    }
}

pub fn run<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build();
    runtime.unwrap().block_on(work)
}

pub fn shell(script: &str) -> Value {
    json!({"type": "start", "argv": ["sh", "-c", script], "stdin": true})
}

#[test]
fn a_command_is_shown_live_and_its_end_comes_last() {
    let Some(leased) = Leased::new() else { return };
    run(async {
        let script = "echo out; echo err >&2; read line; echo got $line; cat; exit 7";
        let (mut socket, id) = leased.start(shell(script)).await;
        // Live: the first output is here before the command has its input.
        let mut first = Vec::new();
        while !first.contains(&Heard::Out(b"out\n".into()))
            || !first.contains(&Heard::Err(b"err\n".into()))
        {
            first.push(next(&mut socket).await);
        }
        socket.send(input(b"one\ntwo")).await.unwrap();
        socket
            .send(text(&json!({"type": "stdin-end"})))
            .await
            .unwrap();
        let (out, _, last, code) = rest(&mut socket).await;
        assert_eq!(out, b"got one\ntwo");
        assert_eq!(
            (last["type"].as_str(), last["outcome"].as_str()),
            (Some("exit"), Some("exited"))
        );
        assert_eq!((&last["exitCode"], code), (&7.into(), 1000));
        assert_eq!(leased.execution(&id)["exitCode"], 7);

        let (mut socket, _) = leased.start(shell("kill -KILL $$")).await;
        let (_, _, last, _) = rest(&mut socket).await;
        assert_eq!(
            (last["outcome"].as_str(), last["signal"].as_str()),
            (Some("signalled"), Some("KILL"))
        );

        let (mut socket, _) = leased.start(shell("sleep 1000 & wait")).await;
        socket
            .send(text(&json!({"type": "signal", "signal": "TERM"})))
            .await
            .unwrap();
        let (_, _, last, _) = rest(&mut socket).await;
        assert_eq!(
            (last["outcome"].as_str(), last["signal"].as_str()),
            (Some("signalled"), Some("TERM"))
        );
        assert_eq!(last["cancelled"], true);
    });
}

#[test]
fn a_terminal_has_the_size_that_it_was_given() {
    let Some(leased) = Leased::new() else { return };
    run(async {
        let start = json!({"type": "start", "argv": ["sh", "-c", "stty size; test -t 0 && echo tty"], "tty": {"cols": 101, "rows": 37}});
        let (mut socket, _) = leased.start(start).await;
        let (out, err, last, _) = rest(&mut socket).await;
        let out = String::from_utf8_lossy(&out).replace('\r', "");
        assert_eq!(
            (out.as_str(), err.len(), &last["exitCode"]),
            ("37 101\ntty\n", 0, &0.into())
        );
    });
}

#[test]
fn a_ticket_opens_one_stream_as_the_one_that_asked_for_it() {
    let Some(leased) = Leased::new() else { return };
    let answer = leased
        .server
        .operator("POST", &leased.path("/executions/ticket"), "");
    assert_eq!(answer.status, 201, "{}", answer.body);
    let ticket = answer.json()["ticket"].as_str().unwrap().to_owned();
    run(async {
        let auth = text(&json!({"type": "auth", "token": ticket}));
        let mut socket = leased.open(None).await;
        socket.send(auth.clone()).await.unwrap();
        socket
            .send(text(&json!({"type": "start", "argv": ["echo", "hello"]})))
            .await
            .unwrap();
        let started = next(&mut socket).await;
        assert!(
            matches!(&started, Heard::Said(frame) if frame["type"] == "started"),
            "{started:?}"
        );
        let (out, _, last, code) = rest(&mut socket).await;
        assert_eq!(
            (out.as_slice(), &last["exitCode"], code),
            (b"hello\n".as_slice(), &0.into(), 1000)
        );

        let mut again = leased.open(None).await;
        again.send(auth).await.unwrap();
        let (_, _, last, code) = rest(&mut again).await;
        assert_eq!(
            (last["details"]["code"].as_str(), code),
            (Some("unauthenticated"), 1008)
        );
    });
}

/// Kilobytes of the server's memory, as the kernel counts them at their highest.
fn peak(pid: i32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status
        .lines()
        .find(|line| line.starts_with("VmHWM:"))
        .unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

fn shown(server: &Server) -> u64 {
    let metrics = server.operator("GET", "/metrics", "").body;
    let line = metrics
        .lines()
        .find(|l| l.starts_with("leasehold_execution_stream_bytes_total{direction=\"out\"}"));
    line.map_or(0, |line| line.rsplit(' ').next().unwrap().parse().unwrap())
}

#[test]
fn a_reader_that_does_not_read_holds_the_command_back_and_fills_no_memory() {
    const SIZE: usize = 256 << 20;
    let Some(leased) = Leased::new() else { return };
    run(async {
        let before = peak(leased.server.pid());
        let (mut socket, id) = leased
            .start(shell(&format!("head -c {SIZE} /dev/zero; echo end >&2")))
            .await;
        // Nobody reads: what the server has passed on stops growing, far from the end.
        let mut still = 0;
        let mut last = 0;
        wait_for("the command's being held back", || {
            let now = shown(&leased.server);
            still = if now > 0 && now == last { still + 1 } else { 0 };
            last = now;
            std::thread::sleep(std::time::Duration::from_millis(50));
            (still >= 10).then_some(())
        });
        assert!(last < (SIZE / 2) as u64, "{last}");
        assert_eq!(leased.execution(&id)["outcome"], "running");
        let (mut out, mut err) = (0, Vec::new());
        let code = loop {
            match next(&mut socket).await {
                Heard::Out(data) => out += data.len(),
                Heard::Err(data) => err.extend(data),
                Heard::Said(frame) => assert_eq!(frame["exitCode"], 0, "{frame}"),
                Heard::Closed(code) => break code,
            }
        };
        assert_eq!(
            (out, err.as_slice(), code),
            (SIZE, b"end\n".as_slice(), 1000)
        );
        let grown = peak(leased.server.pid()).saturating_sub(before);
        assert!(grown < 96 << 10, "{grown} KiB");
    });
}

#[test]
fn a_client_that_goes_away_ends_no_command_and_its_record_goes_on() {
    let Some(leased) = Leased::new() else { return };
    run(async {
        let (mut socket, id) = leased
            .start(shell("read line; echo heard; read line; exit 3"))
            .await;
        socket.send(input(b"go\n")).await.unwrap();
        assert_eq!(next(&mut socket).await, Heard::Out(b"heard\n".into()));
        drop(socket);
        let ended = wait_for("the end", || {
            let row = leased.execution(&id);
            (row["outcome"] != "running").then_some(row)
        });
        // Letting go ends the input too: the second read has an end of file, and the command goes on from there.
        assert_eq!(
            (ended["outcome"].as_str(), &ended["exitCode"]),
            (Some("exited"), &3.into()),
            "{ended}"
        );
    });
}

#[test]
fn a_server_that_stops_says_so_on_its_streams() {
    let Some(mut leased) = Leased::new() else {
        return;
    };
    run(async {
        let (mut socket, _) = leased.start(shell("sleep 1000")).await;
        crate::server::signal(leased.server.pid(), "TERM");
        let (_, _, last, code) = rest(&mut socket).await;
        assert_eq!(
            (last["details"]["code"].as_str(), code),
            (Some("shutting_down"), 1001)
        );
    });
    assert!(leased.server.ended().success());
}

#[test]
fn a_short_command_is_answered_in_one_request_within_its_bounds() {
    let Some(leased) = Leased::new() else { return };
    let one = |body: Value| {
        let answer = leased
            .server
            .operator("POST", &leased.path("/executions"), &body.to_string());
        (answer.status, answer.json())
    };
    let (status, done) = one(
        json!({"argv": ["sh", "-c", "cat; echo $X$PLAIN; test \"$SECRET\"; echo $? >&2"], "env": {"X": "a'b"}, "stdin": "in:"}),
    );
    assert_eq!(status, 200, "{done}");
    assert_eq!(
        (done["stdout"].as_str(), done["stderr"].as_str()),
        (Some("in:a'bone\n"), Some("0\n")),
        "{done}"
    );
    let (_, done) = one(json!({"argv": ["cat"], "timeoutMs": 20000}));
    assert_eq!(
        done["timedOut"], false,
        "no input is at its end at once: {done}"
    );
    let (_, done) = one(json!({"argv": ["sh", "-c", "mkdir sub"]}));
    assert_eq!(done["execution"]["exitCode"], 0, "{done}");
    let (_, done) = one(json!({"argv": ["sh", "-c", "basename \"$PWD\""], "cwd": "sub"}));
    assert_eq!(done["stdout"], "sub\n", "relative to the workspace: {done}");
    let (_, done) = one(json!({"argv": ["printf", "\\377"]}));
    assert_eq!(
        (&done["stdout"], done["stdoutBase64"].as_str()),
        (&Value::Null, Some("/w=="))
    );
    let (_, done) = one(json!({"argv": ["head", "-c", "3000000", "/dev/zero"]}));
    assert_eq!(
        (
            &done["stdoutTruncated"],
            done["stdout"].as_str().unwrap().len()
        ),
        (&true.into(), 1 << 20)
    );
    assert_eq!(done["execution"]["exitCode"], 0);
    let (_, done) = one(json!({"argv": ["sleep", "1000"], "timeoutMs": 300}));
    assert_eq!(
        (&done["timedOut"], done["execution"]["signal"].as_str()),
        (&true.into(), Some("TERM")),
        "{done}"
    );
    let (status, refused) = one(json!({"argv": [], "env": {"1": "x"}}));
    assert_eq!(
        (
            status,
            refused["details"]["violations"][0]["pointer"].as_str()
        ),
        (422, Some("/argv"))
    );
    let (status, _) = one(json!({"argv": ["cat"], "stdin": "x".repeat((1 << 20) + 1)}));
    assert_eq!(status, 422);
}

#[test]
fn a_frame_holds_a_mebibyte_of_input_and_one_byte_more_is_refused_with_words() {
    const MOST: usize = 1 << 20;
    let Some(leased) = Leased::new() else { return };
    run(async {
        let (mut socket, _) = leased.start(shell("wc -c")).await;
        socket.send(input(&vec![7; MOST])).await.unwrap();
        socket
            .send(text(&json!({"type": "stdin-end"})))
            .await
            .unwrap();
        let (out, _, last, code) = rest(&mut socket).await;
        assert_eq!(out, format!("{MOST}\n").into_bytes());
        assert_eq!((&last["exitCode"], code), (&0.into(), 1000));

        for more in [1, 40 << 20] {
            let (mut socket, id) = leased.start(shell("cat >seen; exit 4")).await;
            socket.send(input(b"before")).await.unwrap();
            socket.send(input(&vec![7; MOST + more])).await.unwrap();
            let (_, _, last, code) = rest(&mut socket).await;
            assert_eq!(
                (last["type"].as_str(), last["details"]["code"].as_str()),
                (Some("error"), Some("payload_too_large")),
                "{last}"
            );
            assert_eq!(
                (&last["details"]["limit"], code),
                (&(MOST + 1).into(), 1009)
            );
            let ended = wait_for("the end", || {
                let row = leased.execution(&id);
                (row["outcome"] != "running").then_some(row)
            });
            assert_eq!(ended["exitCode"], 4, "its input ended: {ended}");
        }
    });
}

#[test]
fn members_see_no_configuration_and_agents_only_lease_and_only_at_home() {
    let Some(leased) = Leased::new() else { return };
    let server = &leased.server;
    let foreign = server.company("foreign");
    let get = |token: &str, path: &str| {
        let authorization = format!("Bearer {token}");
        server.tcp("GET", path, &[("authorization", &authorization)], "")
    };
    let (_, member) = server.token_of("member", Some(&leased.company));
    let (_, agent) = server.token_of("agent", Some(&leased.company));
    let (_, stranger) = server.token_of("agent", Some(&foreign));
    let environment = format!("/api/environments/{}", leased.environment);
    let noted = server.operator("PATCH", &environment, r#"{"metadata":{"mine":1}}"#);
    assert_eq!(noted.status, 200, "{}", noted.body);
    let whole = server.operator("GET", &environment, "").json();
    assert_eq!(whole["config"]["target"]["host"], "127.0.0.1");
    assert_eq!(whole["metadata"], json!({"mine": 1}));
    let seen = get(&member, &environment).json();
    assert_eq!(
        (&seen["config"], &seen["envVars"], &seen["metadata"]),
        (&json!({}), &json!({}), &Value::Null)
    );
    assert_eq!(get(&agent, &environment).status, 403);
    assert_eq!(get(&stranger, &environment).status, 403);
    assert_eq!(get(&agent, &leased.path("")).status, 200);
    assert_eq!(get(&stranger, &leased.path("")).status, 404);
    let post = |token: &str, path: &str, body: &str| {
        let authorization = format!("Bearer {token}");
        let headers = [
            ("authorization", authorization.as_str()),
            ("content-type", "application/json"),
        ];
        server.tcp("POST", path, &headers, body)
    };
    let command = r#"{"argv":["true"]}"#;
    assert_eq!(
        post(&agent, &leased.path("/executions"), command).status,
        200
    );
    assert_eq!(
        post(&stranger, &leased.path("/executions"), command).status,
        404
    );
    assert_eq!(post(&stranger, &leased.path("/release"), "{}").status, 404);
    assert_eq!(
        post(&agent, &format!("{environment}/probe"), "{}").status,
        403
    );
    let second = post(&agent, &format!("{environment}/leases"), "{}");
    assert_eq!(
        (second.status, second.code().as_str()),
        (409, "target_in_use"),
        "{}",
        second.body
    );
    assert_eq!(second.json()["details"]["leaseId"], leased.lease.as_str());
    let released = post(&agent, &leased.path("/release"), "{}");
    assert_eq!(
        (released.status, released.json()["status"].as_str()),
        (200, Some("released")),
        "{}",
        released.body
    );
    let after = post(&agent, &leased.path("/executions"), command);
    assert_eq!(after.status, 409, "{}", after.body);
}

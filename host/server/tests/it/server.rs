//! A `leasehold serve` of its own per test, and the plainest HTTP client there is.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

/// How long anything that must happen may take.
pub const DEADLINE: Duration = Duration::from_secs(30);

/// Polls until `found` answers, and fails after the deadline.
pub fn wait_for<T>(what: &str, mut found: impl FnMut() -> Option<T>) -> T {
    let until = Instant::now() + DEADLINE;
    loop {
        if let Some(value) = found() {
            return value;
        }
        assert!(Instant::now() < until, "{what} did not happen");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The folders of a server: everything that it writes is in here.
pub struct Home {
    dir: TempDir,
}

impl Home {
    pub fn new() -> Home {
        let dir = tempfile::tempdir().unwrap();
        Home { dir }
    }

    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    pub fn socket(&self) -> PathBuf {
        self.path().join("data/leasehold/leasehold.sock")
    }

    pub fn token(&self) -> String {
        let path = self.path().join("data/leasehold/operator.token");
        std::fs::read_to_string(path).unwrap().trim().to_owned()
    }

    /// The command, with nothing of this process's environment but what it needs.
    pub fn leasehold(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_leasehold"));
        command
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", self.path())
            .env("XDG_CONFIG_HOME", self.path().join("config"))
            .env("XDG_DATA_HOME", self.path().join("data"))
            .stdin(Stdio::null());
        command
    }

    /// Starts a server and does not wait for anything.
    pub fn spawn(&self, args: &[&str]) -> Child {
        let log = std::fs::File::create(self.path().join("log")).unwrap();
        self.leasehold()
            .args(["serve", "--listen", "127.0.0.1:0", "--log-format", "json"])
            .args(args)
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap()
    }

    pub fn log(&self) -> String {
        std::fs::read_to_string(self.path().join("log")).unwrap_or_default()
    }
}

/// A server that is ready.
pub struct Server {
    pub home: Home,
    child: Child,
    pub port: u16,
}

impl Server {
    pub fn start() -> Server {
        Server::start_with(&[])
    }

    pub fn start_with(args: &[&str]) -> Server {
        let home = Home::new();
        let mut child = home.spawn(args);
        let port = ready(&home, &mut child);
        Server { home, child, port }
    }

    /// Starts it again, after it ended.
    pub fn again(&mut self) {
        self.child = self.home.spawn(&[]);
        self.port = ready(&self.home, &mut self.child);
    }

    pub fn pid(&self) -> i32 {
        self.child.id().try_into().unwrap()
    }

    /// Sends a signal and waits for the end.
    pub fn end_by(&mut self, name: &str) -> ExitStatus {
        signal(self.pid(), name);
        self.ended()
    }

    /// Waits for the end.
    pub fn ended(&mut self) -> ExitStatus {
        wait_for("the server's end", || self.child.try_wait().unwrap())
    }

    /// A request over TCP, with a proper Host and nothing else.
    pub fn tcp(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Answer {
        let host = format!("localhost:{}", self.port);
        let mut all = vec![("host", host.as_str())];
        all.extend(headers.iter().filter(|h| h.0 != "host"));
        if let Some(other) = headers.iter().find(|h| h.0 == "host") {
            all[0] = *other;
        }
        let stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        ask(stream, method, path, &all, body).unwrap()
    }

    /// A request over the Unix socket, as the operator.
    pub fn operator(&self, method: &str, path: &str, body: &str) -> Answer {
        let mut headers = vec![("host", "localhost")];
        if !body.is_empty() {
            headers.push(("content-type", "application/json"));
        }
        let stream = UnixStream::connect(self.home.socket()).unwrap();
        ask(stream, method, path, &headers, body).unwrap()
    }

    /// A token of this role, in a company of its own when the role needs one.
    pub fn token_of(&self, role: &str, company: Option<&str>) -> (String, String) {
        let body =
            serde_json::json!({"name": role, "role": role, "companyId": company}).to_string();
        let made = self.operator("POST", "/api/tokens", &body);
        assert_eq!(made.status, 201, "{}", made.body);
        let made = made.json();
        (
            made["token"]["id"].as_str().unwrap().to_owned(),
            made["secret"].as_str().unwrap().to_owned(),
        )
    }

    pub fn company(&self, name: &str) -> String {
        let body = serde_json::json!({ "name": name }).to_string();
        let made = self.operator("POST", "/api/companies", &body);
        assert_eq!(made.status, 201, "{}", made.body);
        made.json()["id"].as_str().unwrap().to_owned()
    }
}

/// The port that it listens on, once it is ready.
fn ready(home: &Home, child: &mut Child) -> u16 {
    wait_for("readiness", || {
        if let Some(status) = child.try_wait().unwrap() {
            panic!("the server ended with {status}: {}", home.log());
        }
        let answer = ask(
            UnixStream::connect(home.socket()).ok()?,
            "GET",
            "/readyz",
            &[("host", "localhost")],
            "",
        )?;
        let listen = answer.json()["listen"].as_str()?.to_owned();
        (answer.status == 200).then(|| listen.rsplit_once(':').unwrap().1.parse().unwrap())
    })
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub fn signal(pid: i32, name: &str) {
    let done = Command::new("kill")
        .args(["-s", name, &pid.to_string()])
        .status()
        .unwrap();
    assert!(done.success());
}

/// What came back.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub head: String,
    pub body: String,
}

impl Answer {
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_default()
    }

    pub fn code(&self) -> String {
        self.json()["details"]["code"]
            .as_str()
            .unwrap_or("")
            .to_owned()
    }
}

/// One request on a connection; none when the other side hung up first.
pub fn ask(
    mut stream: impl Read + Write,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> Option<Answer> {
    let mut text = format!("{method} {path} HTTP/1.1\r\nconnection: close\r\n");
    for (name, value) in headers {
        if *name == "connection" {
            text = text.replace("connection: close", &format!("connection: {value}"));
        } else {
            text.push_str(&format!("{name}: {value}\r\n"));
        }
    }
    if !body.is_empty() {
        text.push_str(&format!("content-length: {}\r\n", body.len()));
    }
    text.push_str("\r\n");
    text.push_str(body);
    stream.write_all(text.as_bytes()).ok()?;
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    let answer = String::from_utf8_lossy(&answer).into_owned();
    let (head, body) = answer.split_once("\r\n\r\n")?;
    Some(Answer {
        status: head.split(' ').nth(1)?.parse().ok()?,
        head: head.to_ascii_lowercase(),
        body: body.to_owned(),
    })
}

/// Lets other users of this machine reach a path.
pub fn open_to_all(path: &Path) {
    let mode = if path.is_dir() { 0o755 } else { 0o666 };
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

/// Whether this process is root; tests that need it say that they are skipped.
pub fn is_root(test: &str) -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        println!("{test} skipped: needs root");
        assert!(
            std::env::var_os("LEASEHOLD_REQUIRE_ALL").is_none(),
            "{test} needs root"
        );
    }
    root
}

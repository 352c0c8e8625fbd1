//! A `leasehold serve` of its own: its folder outlives the process, so that it can be killed and started again.

use std::fs::{File, OpenOptions};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};

use leasehold_parts::skipped;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::http::{Answer, ask, text};
use crate::wait::until;

/// A server, running or not, and its folder.
#[derive(Debug)]
pub struct Server {
    dir: TempDir,
    program: PathBuf,
    arguments: Vec<String>,
    variables: Vec<(String, String)>,
    child: Option<Child>,
    port: u16,
}

/// What a command of the client came to.
#[derive(Clone, Debug)]
pub struct Ran {
    /// Its exit code; -1 where a signal ended it.
    pub code: i32,
    /// What it printed.
    pub stdout: String,
    /// What it said beside.
    pub stderr: String,
}

/// Where cargo puts what it builds for this profile.
///
/// # Panics
/// When this program lies nowhere.
pub fn built() -> PathBuf {
    let test = std::env::current_exe().expect("a path");
    test.ancestors()
        .nth(2)
        .expect("a target directory")
        .to_owned()
}

/// A component by its name, such as `ssh` or `hostile-endless-loop`.
pub fn component(name: &str) -> Option<Vec<u8>> {
    let folder = std::env::var_os("LEASEHOLD_COMPONENTS").map_or_else(
        || {
            built()
                .parent()
                .expect("a target directory")
                .join("components")
        },
        PathBuf::from,
    );
    std::fs::read(folder.join(format!("{name}.wasm"))).ok()
}

impl Server {
    /// One that is ready; none where the program or the components were not built.
    pub fn start() -> Option<Server> {
        Server::start_with(&[])
    }

    /// As [`Server::start`], with further flags for `serve`.
    pub fn start_with(arguments: &[&str]) -> Option<Server> {
        let mut server = Server::new(arguments)?;
        server.begin();
        Some(server)
    }

    /// One that was never started.
    ///
    /// # Panics
    /// Without a temporary directory.
    pub fn new(arguments: &[&str]) -> Option<Server> {
        let program = built().join("leasehold");
        if !program.is_file() {
            skipped("`cargo build -p leasehold-server`");
            return None;
        }
        if component("ssh").is_none() {
            skipped("`cargo xtask components`");
            return None;
        }
        Some(Server {
            dir: tempfile::Builder::new()
                .prefix("leasehold-server-")
                .tempdir()
                .expect("a folder"),
            program,
            arguments: arguments
                .iter()
                .map(|&argument| argument.to_owned())
                .collect(),
            variables: Vec::new(),
            child: None,
            port: 0,
        })
    }

    /// One that was never started, with all that another one has, which does not run.
    ///
    /// # Panics
    /// When the other runs, or cannot be copied.
    pub fn copy_of(other: &Server, arguments: &[&str]) -> Option<Server> {
        assert!(
            other.child.is_none(),
            "only what stands still can be copied"
        );
        let server = Server::new(arguments)?;
        let mut copy = Command::new("cp");
        copy.arg("-a")
            .arg(other.path().join("."))
            .arg(server.path());
        assert!(copy.status().expect("cp runs").success(), "it is copied");
        Some(server)
    }

    /// Sets a variable of the environment that it, and every command of its client, is begun with from now on.
    pub fn set_variable(&mut self, name: &str, value: &str) {
        self.variables.push((name.to_owned(), value.to_owned()));
    }

    /// Starts it, and waits until it serves.
    pub fn begin(&mut self) {
        self.spawn();
        self.wait_ready();
    }

    /// Its folder, with `data`, `config` and `log` in it.
    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    /// Its data directory.
    pub fn data(&self) -> PathBuf {
        self.path().join("data/leasehold")
    }

    /// Its Unix socket.
    pub fn socket(&self) -> PathBuf {
        self.data().join("leasehold.sock")
    }

    /// Its TCP port on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Its process's id.
    ///
    /// # Panics
    /// When it does not run.
    pub fn pid(&self) -> u32 {
        self.child.as_ref().expect("the server runs").id()
    }

    /// Everything that it logged, over all its lives.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.path().join("log")).unwrap_or_default()
    }

    /// The operator's token.
    ///
    /// # Panics
    /// When there is none.
    pub fn token(&self) -> String {
        let token = std::fs::read_to_string(self.data().join("operator.token")).expect("a token");
        token.trim().to_owned()
    }

    /// The command `leasehold`, with nothing of this process's environment but what it needs.
    pub fn leasehold(&self) -> Command {
        let mut command = Command::new(&self.program);
        command
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", self.path())
            .env("XDG_CONFIG_HOME", self.path().join("config"))
            .env("XDG_DATA_HOME", self.path().join("data"))
            .env(
                "LEASEHOLD_SERVER",
                format!("unix:{}", self.socket().display()),
            )
            .env(
                "LEASEHOLD_MASTER_KEY",
                self.path().join("config/leasehold/master.key"),
            )
            .env("LEASEHOLD_DATA_DIR", self.data())
            .envs(self.variables.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null());
        command
    }

    /// What somebody types into a shell in `folder`, with `leasehold` to be found and nothing of this process's
    /// environment but what it needs. Whatever fails in it ends it.
    pub fn shell(&self, folder: &Path, text: &str) -> Command {
        let leasehold = self.leasehold();
        let mut command = Command::new("sh");
        command.env_clear();
        for (name, value) in leasehold.get_envs() {
            command.env(name, value.unwrap_or_default());
        }
        let programs = self.program.parent().unwrap_or(Path::new("/"));
        let mut path = programs.as_os_str().to_owned();
        path.push(":");
        path.push(std::env::var_os("PATH").unwrap_or_default());
        command
            .env("PATH", path)
            .args(["-e", "-c", text])
            .current_dir(folder)
            .stdin(Stdio::null());
        command
    }

    /// Starts the process and waits for nothing.
    ///
    /// # Panics
    /// When it cannot be started.
    pub fn spawn(&mut self) {
        assert!(self.child.is_none(), "the server runs already");
        let log = self.path().join("log");
        let log: File = OpenOptions::new()
            .create(true)
            .append(true)
            .open(log)
            .expect("a log");
        let child = self
            .leasehold()
            .args(["serve", "--listen", "127.0.0.1:0", "--log-format", "json"])
            .args(&self.arguments)
            .stdout(Stdio::null())
            .stderr(log)
            .spawn();
        self.child = Some(child.expect("the server can be started"));
    }

    /// Waits until it serves.
    ///
    /// # Panics
    /// When it ends instead.
    pub fn wait_ready(&mut self) {
        self.port = until("the server", || {
            if let Some(status) = self.ended() {
                panic!("the server ended with {status}: {}", self.log());
            }
            let answer = self.try_call("GET", "/readyz", None)?;
            let listen = text(&answer.json()["listen"]);
            let port = listen.rsplit_once(':')?.1.parse().ok()?;
            (answer.status == 200).then_some(port)
        });
    }

    /// How it ended, where it has.
    ///
    /// # Panics
    /// When the system cannot say.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.as_mut()?.try_wait().expect("a child")
    }

    /// Sends it a signal.
    ///
    /// # Panics
    /// When it does not run.
    pub fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.pid())
            .ok()
            .and_then(Pid::from_raw)
            .expect("an id");
        kill_process(pid, signal).expect("the server runs");
    }

    /// Waits for its end.
    pub fn wait_end(&mut self) -> ExitStatus {
        let status = until("the server's end", || self.ended());
        self.child = None;
        status
    }

    /// `kill -9`, and it is gone.
    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// `kill -9`, then a start, until it serves again.
    pub fn restart(&mut self) {
        self.kill();
        self.begin();
    }

    /// The same with other flags for `serve` from now on.
    pub fn restart_with(&mut self, arguments: &[&str]) {
        self.arguments = arguments.iter().map(|&one| one.to_owned()).collect();
        self.restart();
    }

    /// Runs a command of the client to its end.
    ///
    /// # Panics
    /// When it cannot be run.
    pub fn run(&self, arguments: &[&str]) -> Ran {
        let output = self
            .leasehold()
            .args(arguments)
            .output()
            .expect("the client runs");
        Ran {
            code: output.status.code().unwrap_or(-1),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }

    /// Runs a command of the client that must succeed, and answers its JSON.
    ///
    /// # Panics
    /// When it fails.
    #[track_caller]
    pub fn json(&self, arguments: &[&str]) -> Value {
        let ran = self.run(&[&["--json"], arguments].concat());
        assert_eq!(ran.code, 0, "{arguments:?}: {}", ran.stderr);
        serde_json::from_str(&ran.stdout).unwrap_or_default()
    }

    /// A request as the operator, over the Unix socket. None: nobody answered.
    pub fn try_call(&self, method: &str, path: &str, body: Option<&Value>) -> Option<Answer> {
        let body = body.map(Value::to_string).unwrap_or_default();
        let kind = [("host", "localhost"), ("content-type", "application/json")];
        let headers = if body.is_empty() { &kind[..1] } else { &kind };
        ask(
            UnixStream::connect(self.socket()).ok()?,
            method,
            path,
            headers,
            body.as_bytes(),
        )
    }

    /// A request as the operator, over the Unix socket.
    ///
    /// # Panics
    /// When nobody answers.
    #[track_caller]
    pub fn call(&self, method: &str, path: &str, body: Option<&Value>) -> Answer {
        let answer = self.try_call(method, path, body);
        answer.unwrap_or_else(|| panic!("nobody answers {method} {path}: {}", self.log()))
    }

    /// What a GET answers, which must be 200.
    #[track_caller]
    pub fn get(&self, path: &str) -> Value {
        self.call("GET", path, None).expect(200)
    }

    /// A request over TCP with exactly these headers.
    ///
    /// # Panics
    /// When nobody listens there.
    pub fn tcp(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Answer {
        let stream = TcpStream::connect(("127.0.0.1", self.port)).expect("the server listens");
        ask(stream, method, path, headers, body.as_bytes()).expect("an answer")
    }

    /// Looks at a component and, where that is possible, installs it with what it asks for.
    ///
    /// # Panics
    /// When the component was not built.
    pub fn install(&self, name: &str) -> Answer {
        let bytes = component(name).unwrap_or_else(|| panic!("{name} was not built"));
        self.install_bytes(&bytes, "")
    }

    /// The same of a component that a test made; `more` is added to the query.
    #[track_caller]
    pub fn install_bytes(&self, bytes: &[u8], more: &str) -> Answer {
        let upload = |path: &str| self.upload("POST", path, "application/wasm", bytes);
        let offer = upload("/api/plugins/inspect");
        if offer.status != 200 {
            return offer;
        }
        let grant = text(&offer.json()["requestDigest"]);
        upload(&format!("/api/plugins?grant={grant}{more}"))
    }

    /// A request as the operator with a body that is not JSON.
    ///
    /// # Panics
    /// When nobody answers.
    pub fn upload(&self, method: &str, path: &str, kind: &str, body: &[u8]) -> Answer {
        let headers = [("host", "localhost"), ("content-type", kind)];
        let stream = UnixStream::connect(self.socket()).expect("the server listens");
        ask(stream, method, path, &headers, body).expect("an answer")
    }

    /// The id of the only company, which is made where there is none.
    #[track_caller]
    pub fn company(&self) -> String {
        let there = text(&self.get("/api/companies")[0]["id"]);
        if !there.is_empty() {
            return there;
        }
        let made = self.call("POST", "/api/companies", Some(&json!({ "name": "acme" })));
        text(&made.expect(201)["id"])
    }

    /// Stores a secret and answers a reference to it.
    #[track_caller]
    pub fn secret(&self, name: &str, value: &str) -> Value {
        let path = format!("/api/companies/{}/secrets", self.company());
        let made = self.call(
            "POST",
            &path,
            Some(&json!({ "name": name, "value": value })),
        );
        json!({ "type": "secret_ref", "secretId": made.expect(201)["id"], "version": "latest" })
    }

    /// Asks for an environment.
    #[track_caller]
    pub fn environment(&self, draft: &Value) -> Answer {
        self.call(
            "POST",
            &format!("/api/companies/{}/environments", self.company()),
            Some(draft),
        )
    }

    /// Asks for a lease.
    #[track_caller]
    pub fn acquire(&self, environment: &str) -> Answer {
        self.call(
            "POST",
            &format!("/api/environments/{environment}/leases"),
            Some(&json!({})),
        )
    }

    /// Runs a short command.
    #[track_caller]
    pub fn exec(&self, lease: &str, body: &Value) -> Answer {
        self.call(
            "POST",
            &format!("/api/environment-leases/{lease}/executions"),
            Some(body),
        )
    }

    /// Asks for a lease's release and answers the lease.
    #[track_caller]
    pub fn release(&self, lease: &str) -> Value {
        self.call(
            "POST",
            &format!("/api/environment-leases/{lease}/release"),
            None,
        )
        .expect(200)
    }

    /// A lease as it stands.
    #[track_caller]
    pub fn lease(&self, lease: &str) -> Value {
        self.get(&format!("/api/environment-leases/{lease}"))
    }

    /// Every lease of the only company.
    #[track_caller]
    pub fn leases(&self) -> Vec<Value> {
        let path = format!(
            "/api/companies/{}/environment-leases?limit=500",
            self.company()
        );
        self.get(&path)["items"]
            .as_array()
            .cloned()
            .unwrap_or_default()
    }

    /// Every command of a lease, as it is known now.
    #[track_caller]
    pub fn executions(&self, lease: &str) -> Vec<Value> {
        let all = self.get(&format!("/api/environment-leases/{lease}/executions"));
        all.as_array().cloned().unwrap_or_default()
    }

    /// Waits until a lease has this status.
    #[track_caller]
    pub fn wait_lease(&self, lease: &str, status: &str) -> Value {
        until(&format!("{lease} to be {status}"), || {
            let now = self.lease(lease);
            (now["status"] == status).then_some(now)
        })
    }

    /// Waits until a command has this outcome.
    #[track_caller]
    pub fn wait_execution(&self, execution: &str, outcome: &str) -> Value {
        until(&format!("{execution} to be {outcome}"), || {
            let now = self.get(&format!("/api/executions/{execution}"));
            (now["outcome"] == outcome).then_some(now)
        })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

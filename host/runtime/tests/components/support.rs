//! What the tests give with a call: a host that keeps what it is told, and an egress that opens what
//! it is asked for.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use leasehold_contract::{
    ByteStream, CallHost, Code, Command, CommandState, Content, Duplex, Egress, Ended, Error,
    LeaseRef, Level, Output, Process, ProcessEvent, ProcessInput, ProcessOutput, Purpose, Size,
    SshSession, Thing, Workspace,
};
use leasehold_runtime::{CallSetup, Plugin, Runtime, Settings};

pub const HOUR: Duration = Duration::from_secs(3600);

/// A runtime whose settings are as a server's, but for what `change` changes.
pub fn runtime(change: impl FnOnce(&mut Settings)) -> Runtime {
    let mut settings = Settings::default();
    change(&mut settings);
    Runtime::new(settings).unwrap()
}

pub async fn plugin(runtime: &Runtime, bytes: Bytes) -> Plugin {
    runtime.prepare(bytes).await.unwrap().plugin
}

/// A call of a lease that reaches nothing.
pub fn setup(deadline: Duration) -> CallSetup {
    let mut setup = CallSetup::refusing(Purpose::Run, deadline);
    setup.call.company = "acme".into();
    setup.call.lease = Some(LeaseRef {
        id: "lease-1".into(),
        acquisition: "a-1".into(),
        epoch: 1,
    });
    setup
}

/// The same, where `egress` is the way out.
pub fn reaching(egress: Arc<dyn Egress>, deadline: Duration) -> CallSetup {
    CallSetup {
        egress,
        ..setup(deadline)
    }
}

/// A configuration of a hostile sample that misbehaves in this export.
pub fn at(export: &str) -> String {
    format!("{{\"at\":\"{export}\"}}")
}

pub fn command() -> Command {
    Command {
        id: "c-1".into(),
        argv: vec!["uname".into(), "-a".into()],
        env: vec![("A".into(), "b".into())],
        cwd: "/".into(),
        stdin: false,
        tty: None,
    }
}

/// Keeps every line.
#[derive(Default)]
pub struct Listener {
    pub lines: Mutex<Vec<(Level, String)>>,
}

#[async_trait]
impl CallHost for Listener {
    fn log(&self, level: Level, message: String, _fields: Vec<(String, String)>) {
        self.lines.lock().unwrap().push((level, message));
    }

    fn progress(&self, _step: String, _message: String, _done: Option<f64>, _total: Option<f64>) {}

    async fn journal(
        &self,
        _thing: Thing,
        _resource: String,
        _reference: Option<String>,
    ) -> Result<(), Error> {
        Ok(())
    }

    async fn cancelled(&self) {
        std::future::pending().await
    }
}

/// Opens every target, after a while, and starts commands that say one word.
pub struct Opener {
    pub after: Duration,
    pub opened: AtomicU32,
}

impl Opener {
    pub fn after(after: Duration) -> Arc<Opener> {
        Arc::new(Opener {
            after,
            opened: AtomicU32::new(0),
        })
    }
}

#[async_trait]
impl Egress for Opener {
    async fn ssh_open(
        &self,
        _target: String,
        _username: Option<String>,
        _timeout: Option<Duration>,
    ) -> Result<Arc<dyn SshSession>, Error> {
        if !self.after.is_zero() {
            tokio::time::sleep(self.after).await;
        }
        self.opened.fetch_add(1, Ordering::Relaxed);
        Ok(Arc::new(Session))
    }
}

struct Session;

fn no<T>() -> Result<T, Error> {
    Err(Error::new(Code::Unsupported, "not here"))
}

#[async_trait]
impl SshSession for Session {
    async fn make_workspace(&self, _parent: String) -> Result<Workspace, Error> {
        no()
    }
    async fn list_workspaces(&self, _parent: String) -> Result<Vec<Workspace>, Error> {
        no()
    }
    async fn remove_workspace(&self, _parent: String, _resource: String) -> Result<(), Error> {
        no()
    }
    async fn run(
        &self,
        _script: String,
        _args: Vec<String>,
        _env: Vec<(String, String)>,
        _stdin: Content,
        _limit: u32,
        _timeout: Option<Duration>,
    ) -> Result<Output, Error> {
        no()
    }
    async fn start(
        &self,
        _parent: String,
        _script: String,
        args: Vec<String>,
        _env: Vec<(String, String)>,
        _tty: Option<Size>,
    ) -> Result<Process, Error> {
        Ok(Process {
            output: Box::new(Words(vec![
                ProcessEvent::Ended(Ended::Exited(0)),
                ProcessEvent::Stdout(args.join(" ").into()),
            ])),
            input: Box::new(Nowhere),
        })
    }
    async fn state_of(&self, _parent: String, _id: String) -> Result<CommandState, Error> {
        no()
    }
    async fn signal(&self, _parent: String, _id: String, _signal: String) -> Result<(), Error> {
        no()
    }
    async fn put(&self, _root: String, _archive: ByteStream) -> Result<(), Error> {
        no()
    }
    async fn get(&self, _root: String, _path: String) -> Result<ByteStream, Error> {
        no()
    }
    async fn forward(&self, _port: u16) -> Result<Box<dyn Duplex>, Error> {
        no()
    }
}

pub struct Words(pub Vec<ProcessEvent>);

#[async_trait]
impl ProcessOutput for Words {
    async fn next(&mut self) -> Option<ProcessEvent> {
        self.0.pop()
    }
}

pub struct Nowhere;

#[async_trait]
impl ProcessInput for Nowhere {
    async fn write(&mut self, _data: Bytes) -> std::io::Result<()> {
        Ok(())
    }
    async fn end(&mut self) -> std::io::Result<()> {
        Ok(())
    }
    async fn resize(&mut self, _size: Size) -> std::io::Result<()> {
        Ok(())
    }
}

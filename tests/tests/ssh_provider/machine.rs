//! What the tests stand on: an sshd, the component, and calls for one lease after another.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use async_trait::async_trait;
use leasehold_contract::{
    Call, CallHost, Command, Ended, Error, Label, LeaseRef, Level, ProcessEvent, Purpose, Thing,
};
use leasehold_egress::{
    CallScope, EgressRecord, LeaseScope, Payloads, Reach, Recorder, Ssh, SshSettings, SshTarget,
};
use leasehold_parts::{Options, Sshd, skipped};
use leasehold_runtime::{CallSetup, Failure, Plugin, Runtime, Settings};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

/// The target as an administrator would have typed it, with its secrets filled in.
pub fn target(sshd: &Sshd) -> Value {
    json!({
        "host": "127.0.0.1",
        "port": sshd.port(),
        "username": sshd.worker().name,
        "privateKey": sshd.key().private,
        "hostKeys": { "fingerprints": sshd.fingerprints(), "knownHosts": "" },
    })
}

/// Everything that a call needs.
pub struct Machine {
    /// The other side.
    pub sshd: Sshd,
    /// The directory of the workspaces.
    pub parent: PathBuf,
    /// The component.
    pub plugin: Plugin,
    /// What was journalled, in order.
    pub journal: Arc<Mutex<Vec<(Thing, String)>>>,
    ssh: Ssh,
    _runtime: Runtime,
}

/// A machine, or none where the parts for it are missing.
pub async fn machine() -> Option<Machine> {
    if !Sshd::available() {
        skipped("openssh-server");
        return None;
    }
    let Some(component) = component() else {
        skipped("`cargo xtask components`");
        return None;
    };
    let sshd = Sshd::start(&Options::default()).expect("sshd starts");
    let parent = sshd
        .directory(&sshd.worker().name, "leases")
        .expect("a directory");
    let runtime = Runtime::new(Settings::default()).expect("a runtime");
    let prepared = runtime
        .prepare(component.into())
        .await
        .expect("the component is sound");
    Some(Machine {
        sshd,
        parent,
        plugin: prepared.plugin,
        journal: Arc::default(),
        ssh: Ssh::new(SshSettings::default()),
        _runtime: runtime,
    })
}

/// The component's bytes, read once.
fn component() -> Option<Vec<u8>> {
    static BYTES: OnceLock<Option<Vec<u8>>> = OnceLock::new();
    BYTES
        .get_or_init(|| {
            let folder = std::env::var_os("LEASEHOLD_COMPONENTS").map(PathBuf::from);
            let beside = || {
                let test = std::env::current_exe().expect("a path");
                test.ancestors()
                    .nth(3)
                    .expect("a target")
                    .join("components")
            };
            std::fs::read(folder.unwrap_or_else(beside).join("ssh.wasm")).ok()
        })
        .clone()
}

/// How one call is made.
#[derive(Clone)]
pub struct Way {
    /// The lease's acquisition.
    pub acquisition: String,
    /// Which kind of function.
    pub reach: Reach,
    /// The command's id, in `start`.
    pub execution: Option<String>,
    /// In place of the machine's own target.
    pub target: Option<Value>,
}

/// A call that may act, for the lease of this acquisition.
pub fn act(acquisition: &str) -> Way {
    Way {
        acquisition: acquisition.to_owned(),
        reach: Reach::Act,
        execution: None,
        target: None,
    }
}

/// A call that only looks.
pub fn look(acquisition: &str) -> Way {
    Way {
        reach: Reach::Read,
        ..act(acquisition)
    }
}

impl Machine {
    /// The configuration as the component is given it.
    pub fn config(&self) -> String {
        self.config_at(self.parent.to_str().expect("UTF-8"))
    }

    /// The same with another directory of workspaces.
    pub fn config_at(&self, path: &str) -> String {
        json!({ "target": self.reduced(&target(&self.sshd)), "remoteWorkspacePath": path })
            .to_string()
    }

    /// What of a target a component may know.
    pub fn reduced(&self, target: &Value) -> Value {
        SshTarget::from_config(target).expect("a target").reduced()
    }

    /// How messages name it.
    pub fn name(&self) -> String {
        format!("{}@127.0.0.1:{}", self.sshd.worker().name, self.sshd.port())
    }

    /// What goes with a call.
    pub fn setup(&self, way: &Way) -> CallSetup {
        let resolved = way.target.clone().unwrap_or_else(|| target(&self.sshd));
        let resolved = Arc::new(SshTarget::from_config(&resolved).expect("a target"));
        let owner = format!("owner-{}", way.acquisition);
        let scope = CallScope {
            company: "acme".into(),
            plugin_revision: "1".into(),
            secret_version: "1".into(),
            targets: BTreeMap::from([("/target".to_owned(), resolved)]),
            reach: way.reach,
            lease: Some(LeaseScope {
                lease: format!("lse_{}", way.acquisition),
                acquisition: way.acquisition.clone(),
                epoch: 1,
                owner_label: owner.clone(),
                labels: vec![("leasehold-owner".into(), owner.clone())],
                closed: CancellationToken::new(),
            }),
            execution: way.execution.clone(),
            fresh: way.reach == Reach::Read,
            http: None,
            payloads: Arc::new(Payloads::none()),
            recorder: Arc::new(Unwritten),
        };
        CallSetup {
            call: Call {
                company: "acme".into(),
                environment: Some("env_1".into()),
                lease: Some(LeaseRef {
                    id: format!("lse_{}", way.acquisition),
                    acquisition: way.acquisition.clone(),
                    epoch: 1,
                }),
                labels: vec![Label {
                    key: "leasehold-owner".into(),
                    value: owner,
                }],
                purpose: Purpose::Run,
                kept: Vec::new(),
            },
            host: Arc::new(Host(self.journal.clone())),
            egress: self.ssh.call(scope),
            deadline: Duration::from_secs(60),
            redactor: Arc::new(str::to_owned),
        }
    }

    /// Acquires, and answers the handle and where commands start.
    pub async fn acquire(&self, acquisition: &str) -> (String, String) {
        let made = self
            .plugin
            .acquire(&self.setup(&act(acquisition)), &self.config(), None)
            .await
            .expect("a lease");
        assert_eq!(made.resource, acquisition);
        (made.handle, made.workspace)
    }

    /// Starts a command, reads it to its end, and answers stdout, stderr and how it ended.
    pub async fn run(
        &self,
        acquisition: &str,
        handle: &str,
        command: Command,
    ) -> Result<(String, String, Ended), Failure> {
        let way = Way {
            execution: Some(command.id.clone()),
            ..act(acquisition)
        };
        let started = self
            .plugin
            .start(&self.setup(&way), &self.config(), handle, &command)
            .await?;
        let mut process = started.process;
        process.input.end().await.expect("the input ends");
        let (mut out, mut err) = (Vec::new(), Vec::new());
        loop {
            match process.output.next().await.expect("an end") {
                ProcessEvent::Stdout(bytes) => out.extend_from_slice(&bytes),
                ProcessEvent::Stderr(bytes) => err.extend_from_slice(&bytes),
                ProcessEvent::Ended(ended) => {
                    let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
                    return Ok((text(out), text(err), ended));
                }
            }
        }
    }
}

/// A command of this id.
pub fn command(id: &str, argv: &[&str], cwd: &str) -> Command {
    Command {
        id: id.to_owned(),
        argv: argv.iter().map(|word| (*word).to_owned()).collect(),
        env: vec![("GREETING".into(), "it's \"me\"".into())],
        cwd: cwd.to_owned(),
        stdin: true,
        tty: None,
    }
}

/// The provider's own error of a call that failed.
pub fn provider_error<T: std::fmt::Debug>(outcome: Result<T, Failure>) -> Error {
    match outcome {
        Err(Failure::Provider(error)) => error,
        other => panic!("a provider's error was expected: {other:?}"),
    }
}

struct Host(Arc<Mutex<Vec<(Thing, String)>>>);

#[async_trait]
impl CallHost for Host {
    fn log(&self, _: Level, _: String, _: Vec<(String, String)>) {}
    fn progress(&self, _: String, _: String, _: Option<f64>, _: Option<f64>) {}
    async fn journal(
        &self,
        thing: Thing,
        resource: String,
        _: Option<String>,
    ) -> Result<(), Error> {
        self.0.lock().expect("a lock").push((thing, resource));
        Ok(())
    }
    async fn cancelled(&self) {
        std::future::pending().await
    }
}

/// Nothing is kept of what egress did.
struct Unwritten;

#[async_trait]
impl Recorder for Unwritten {
    async fn record(&self, _: EgressRecord) -> Result<(), Error> {
        Ok(())
    }
}

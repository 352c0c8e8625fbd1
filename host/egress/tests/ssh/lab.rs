//! A throw-away sshd and an egress that reaches it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use leasehold_contract::{
    Content, Egress, Ended, Error, Output, Process, ProcessEvent, Size, SshSession, Workspace,
};
use leasehold_egress::{
    CallScope, EgressRecord, LeaseMark, LeaseScope, Payloads, Reach, Recorder, Ssh, SshSettings,
    SshTarget,
};
use leasehold_parts::{Options, Sshd};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

/// Keeps every record.
#[derive(Default)]
pub struct Records(pub Mutex<Vec<EgressRecord>>);

#[async_trait]
impl Recorder for Records {
    async fn record(&self, record: EgressRecord) -> Result<(), Error> {
        self.0.lock().unwrap().push(record);
        Ok(())
    }
}

pub struct Lab {
    pub sshd: Sshd,
    pub ssh: Ssh,
    pub records: Arc<Records>,
}

/// A lease on one account, with its parent directory.
pub struct Lease<'a> {
    pub lab: &'a Lab,
    pub target: Arc<SshTarget>,
    pub parent: String,
    pub scope: LeaseScope,
    pub payloads: Arc<Payloads>,
}

/// Starts an sshd, or says why not.
pub fn lab(options: &Options) -> Option<Lab> {
    if !Sshd::available() {
        leasehold_parts::skipped("sshd and ssh-keygen");
        return None;
    }
    Some(Lab {
        sshd: Sshd::start(options).unwrap(),
        ssh: Ssh::new(SshSettings::default()),
        records: Arc::default(),
    })
}

/// The same, only where accounts of its own can be had.
pub fn isolated(options: &Options) -> Option<Lab> {
    let lab = lab(options)?;
    if lab.sshd.is_isolated() {
        return Some(lab);
    }
    leasehold_parts::skipped("root, for accounts of its own");
    None
}

pub fn text(content: &Content) -> String {
    String::from_utf8_lossy(content.as_bytes()).into_owned()
}

/// Waits for something to become true, without assuming how soon.
pub async fn until(what: &str, mut is: impl AsyncFnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !is().await {
        assert!(Instant::now() < deadline, "it never came true that {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

impl Lab {
    /// The value of a target for an account, as resolved.
    pub fn value(&self, account: &str) -> Value {
        json!({
            "host": "127.0.0.1", "port": self.sshd.port(), "username": account,
            "privateKey": self.sshd.key().private,
            "hostKeys": { "fingerprints": self.sshd.fingerprints(), "knownHosts": "" },
        })
    }

    pub fn target(&self, account: &str) -> Arc<SshTarget> {
        Arc::new(SshTarget::from_config(&self.value(account)).unwrap())
    }

    pub fn worker(&self) -> String {
        self.sshd.worker().name.clone()
    }

    /// A call without a lease.
    pub fn scope(&self, target: &Arc<SshTarget>) -> CallScope {
        CallScope {
            company: "acme".into(),
            plugin_revision: "rev".into(),
            secret_version: "1".into(),
            targets: BTreeMap::from([("/target".to_owned(), target.clone())]),
            reach: Reach::Act,
            lease: None,
            execution: None,
            fresh: false,
            http: None,
            payloads: Arc::new(Payloads::none()),
            recorder: self.records.clone(),
        }
    }

    pub async fn open(&self, target: &Arc<SshTarget>) -> Result<Arc<dyn SshSession>, Error> {
        open(&*self.ssh.call(self.scope(target))).await
    }

    /// Connects to a target value; what comes of it.
    pub async fn reach(&self, value: &Value) -> Result<Arc<dyn SshSession>, Error> {
        let target = SshTarget::from_config(value).map_err(|v| {
            let mut e = Error::new(leasehold_contract::Code::InvalidConfig, format!("{v:?}"));
            e.violations = Some(v);
            e
        })?;
        self.open(&Arc::new(target)).await
    }

    /// A lease of an account, workspace not made yet.
    pub fn lease(&self, account: &str, acquisition: &str) -> Lease<'_> {
        let parent = self
            .sshd
            .directory(account, &format!("leases-{account}"))
            .unwrap();
        Lease {
            lab: self,
            target: self.target(account),
            parent: parent.to_str().unwrap().to_owned(),
            scope: LeaseScope {
                lease: format!("lease-{acquisition}"),
                acquisition: acquisition.into(),
                epoch: 1,
                owner_label: format!("owner.{acquisition}-0123456789abcdef"),
                labels: vec![("leasehold-host".into(), "test".into())],
                closed: CancellationToken::new(),
            },
            payloads: Arc::new(Payloads::none()),
        }
    }

    /// A lease of the worker with its workspace.
    pub async fn leased(&self, acquisition: &str) -> (Lease<'_>, Workspace) {
        let lease = self.lease(&self.worker(), acquisition);
        let workspace = lease.make().await.unwrap();
        (lease, workspace)
    }
}

pub async fn open(egress: &dyn Egress) -> Result<Arc<dyn SshSession>, Error> {
    egress.ssh_open("/target".into(), None, None).await
}

impl Lease<'_> {
    pub fn call(&self, execution: Option<&str>) -> CallScope {
        let mut scope = self.lab.scope(&self.target);
        scope.lease = Some(self.scope.clone());
        scope.execution = execution.map(str::to_owned);
        scope.payloads = self.payloads.clone();
        scope
    }

    pub async fn session(&self) -> Arc<dyn SshSession> {
        open(&*self.lab.ssh.call(self.call(None))).await.unwrap()
    }

    pub async fn make(&self) -> Result<Workspace, Error> {
        self.session()
            .await
            .make_workspace(self.parent.clone())
            .await
    }

    pub async fn remove(&self) -> Result<(), Error> {
        let session = self.session().await;
        session
            .remove_workspace(self.parent.clone(), self.scope.acquisition.clone())
            .await
    }

    pub async fn start_with(
        &self,
        id: &str,
        script: &str,
        args: &[&str],
        env: &[(&str, &str)],
        tty: Option<Size>,
    ) -> Result<Process, Error> {
        let session = open(&*self.lab.ssh.call(self.call(Some(id)))).await?;
        session
            .start(
                self.parent.clone(),
                script.into(),
                args.iter().map(|a| (*a).to_owned()).collect(),
                env.iter()
                    .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
                    .collect(),
                tty,
            )
            .await
    }

    pub async fn start(&self, id: &str, script: &str) -> Result<Process, Error> {
        self.start_with(id, script, &[], &[], None).await
    }

    /// Starts, ends the input and reads all of it.
    pub async fn all(&self, id: &str, script: &str) -> (String, String, Ended) {
        let mut process = self.start(id, script).await.unwrap();
        process.input.end().await.unwrap();
        read(process).await
    }

    pub async fn state(&self, id: &str) -> leasehold_contract::CommandState {
        let session = self.session().await;
        session
            .state_of(self.parent.clone(), id.into())
            .await
            .unwrap()
    }

    pub async fn signal(&self, id: &str, signal: &str) -> Result<(), Error> {
        let session = self.session().await;
        session
            .signal(self.parent.clone(), id.into(), signal.into())
            .await
    }

    pub fn mark(&self) -> LeaseMark {
        LeaseMark {
            owner_label: self.scope.owner_label.clone(),
            acquisition: self.scope.acquisition.clone(),
        }
    }

    pub async fn gone(&self) -> leasehold_egress::Gone {
        self.lab
            .ssh
            .verify_gone(&self.target, &self.mark(), &self.parent)
            .await
            .unwrap()
    }
}

/// Reads a process to its end.
pub async fn read(mut process: Process) -> (String, String, Ended) {
    let (mut out, mut err) = (Vec::new(), Vec::new());
    loop {
        match process.output.next().await {
            Some(ProcessEvent::Stdout(b)) => out.extend_from_slice(&b),
            Some(ProcessEvent::Stderr(b)) => err.extend_from_slice(&b),
            Some(ProcessEvent::Ended(ended)) => {
                assert!(
                    process.output.next().await.is_none(),
                    "nothing follows the end"
                );
                let text = |b: Vec<u8>| String::from_utf8_lossy(&b).into_owned();
                return (text(out), text(err), ended);
            }
            None => panic!("a stream without an end"),
        }
    }
}

/// Runs a script without a lease.
pub async fn run(session: &Arc<dyn SshSession>, script: &str) -> Result<Output, Error> {
    session
        .run(
            script.into(),
            Vec::new(),
            Vec::new(),
            Content::None,
            65536,
            Some(Duration::from_secs(30)),
        )
        .await
}

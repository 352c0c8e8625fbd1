//! The door's second half: what a component may ask of one target. Each: authorise, record, act.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use leasehold_contract::{
    ByteStream, Code, CommandState, Content, Duplex, Ended, Error, Output, Process, Size,
    SshSession, Workspace,
};
use tokio::time::timeout;

use crate::call::{At, CallGate};
use crate::channel::{Event, exec};
use crate::duplex::Port;
use crate::error::{failed, unknown};
use crate::pool::{Route, Want};
use crate::remote::{self, Frame, Variable};
use crate::scope::Action;
use crate::secret::Secret;
use crate::{files, stream};

/// The most that `run` keeps of either stream, whatever limit was given.
const KEPT: usize = 8 * 1024 * 1024;
/// How long `run` waits where no timeout was given: the call's own deadline comes first.
const LONGEST: Duration = Duration::from_secs(60 * 60);

/// [`SshSession`] over one route.
pub(crate) struct Session {
    route: Arc<Route>,
    gate: Arc<CallGate>,
    at: At,
}

impl Session {
    pub(crate) fn new(route: Arc<Route>, gate: Arc<CallGate>, at: At) -> Session {
        Session { route, gate, at }
    }

    /// `user@host:port`.
    pub(crate) fn target(&self) -> &str {
        &self.at.name
    }

    /// Records that this was let through and refused all the same: whoever answers now, on a connection that was made
    /// meanwhile, is somebody else.
    pub(crate) async fn refused_late(&self, action: Action, error: &Error) {
        if error.code == Code::UntrustedPeer {
            self.gate.refused_late(&self.at, action, error).await;
        }
    }

    async fn pass(&self, action: Action, place: Option<&str>) -> Result<(), Error> {
        self.gate.pass(&self.at, action, place).await
    }

    /// Refuses placeholders where they have no place, and fills them in where they have.
    fn fill<'a>(
        &self,
        script: &str,
        args: &[String],
        env: &'a [(String, String)],
    ) -> Result<Vec<Variable<'a>>, Error> {
        let payloads = &self.gate.scope.payloads;
        payloads.refuse(script.as_bytes(), "the script")?;
        for (i, arg) in args.iter().enumerate() {
            payloads.refuse(arg.as_bytes(), &format!("args[{i}]"))?;
        }
        for (name, _) in env {
            payloads.refuse(name.as_bytes(), "a variable's name")?;
        }
        remote::check_environment(env)?;
        env.iter()
            .map(|(name, value)| {
                let place = format!("the variable {name}");
                Ok((name.as_str(), payloads.fill(value.as_bytes(), &place)?))
            })
            .collect()
    }

    /// Refuses placeholders in paths and names.
    fn plain(&self, texts: &[(&str, &str)]) -> Result<(), Error> {
        for (text, place) in texts {
            self.gate.scope.payloads.refuse(text.as_bytes(), place)?;
        }
        Ok(())
    }
}

#[async_trait]
impl SshSession for Session {
    async fn make_workspace(&self, parent: String) -> Result<Workspace, Error> {
        let lease = self.gate.lease(&self.at.name, Action::MakeWorkspace)?;
        self.plain(&[(&parent, "parent")])?;
        self.pass(Action::MakeWorkspace, Some(&parent)).await?;
        remote::make_workspace(&self.route, lease, &parent).await
    }

    async fn list_workspaces(&self, parent: String) -> Result<Vec<Workspace>, Error> {
        self.plain(&[(&parent, "parent")])?;
        self.pass(Action::ListWorkspaces, Some(&parent)).await?;
        remote::list_workspaces(&self.route, &parent).await
    }

    async fn remove_workspace(&self, parent: String, resource: String) -> Result<(), Error> {
        let lease = self.gate.lease(&self.at.name, Action::RemoveWorkspace)?;
        self.plain(&[(&parent, "parent"), (&resource, "resource")])?;
        if resource != lease.acquisition {
            return Err(failed(
                Code::PermissionDenied,
                &self.at.name,
                "a call may remove the workspace of its own lease only",
            ));
        }
        self.pass(Action::RemoveWorkspace, Some(&parent)).await?;
        remote::remove_workspace(&self.route, &lease.owner_label, &parent, &resource).await
    }

    async fn run(
        &self,
        script: String,
        args: Vec<String>,
        env: Vec<(String, String)>,
        stdin: Content,
        limit: u32,
        deadline: Option<Duration>,
    ) -> Result<Output, Error> {
        let env = self.gate.scope.payloads.of_script(env);
        let env = self.fill(&script, &args, &env)?;
        let input = self.gate.scope.payloads.fill(stdin.as_bytes(), "stdin")?;
        self.pass(Action::Run, None).await?;
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let mut frame = Frame::of(&script, &args);
        frame.env = env;
        let id = format!("run-{}", crate::random_hex::<12>());
        if let Some(lease) = &self.gate.scope.lease {
            frame.marks = vec![
                ("LEASEHOLD_LEASE", remote::label(&lease.owner_label)?),
                ("LEASEHOLD_EXECUTION", &id),
            ];
        }
        let payload = frame.payload()?;
        let limit = (limit as usize).min(KEPT);
        let going = async {
            let running = exec(&self.route, Want::Shared, None, &payload).await?;
            collect(&self.at.name, running, input, limit).await
        };
        let wait = deadline.unwrap_or(LONGEST);
        match timeout(wait, self.gate.while_open(&self.at.name, going)).await {
            Ok(done) => done,
            Err(_) => {
                // Dropped: its channel closes with it. Under a lease what it started is ended too.
                if let Some(lease) = &self.gate.scope.lease {
                    let _ = remote::end_run(&self.route, lease, &id).await;
                }
                Err(unknown(
                    &self.at.name,
                    format_args!(
                        "the script did not end within {} ms and was stopped; what it did until then stands",
                        wait.as_millis()
                    ),
                ))
            }
        }
    }

    async fn start(
        &self,
        parent: String,
        script: String,
        args: Vec<String>,
        env: Vec<(String, String)>,
        tty: Option<Size>,
    ) -> Result<Process, Error> {
        let lease = self.gate.lease(&self.at.name, Action::Start)?;
        let Some(id) = &self.gate.scope.execution else {
            return Err(failed(
                Code::PermissionDenied,
                &self.at.name,
                "start is for execution.start only; use run",
            ));
        };
        self.plain(&[(&parent, "parent")])?;
        let env = self.fill(&script, &args, &env)?;
        let parent = remote::directory(&parent, "the directory for workspaces")?;
        self.pass(Action::Start, Some(&parent)).await?;
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let mut frame = Frame::of(&script, &args);
        frame.env = env;
        frame.supervised = Some([
            &parent,
            remote::acquisition(&lease.acquisition)?,
            remote::label(&lease.owner_label)?,
            remote::execution(id)?,
        ]);
        frame.tty = tty.is_some();
        let payload = frame.payload()?;
        let going = async {
            let mut running = exec(&self.route, Want::Alone, tty, &payload).await?;
            let wait = self.route.settings().channel;
            let (word, early) = timeout(wait, running.read.verdict(&self.at.name))
                .await
                .map_err(|_| {
                    unknown(
                        &self.at.name,
                        format_args!(
                            "the account's shell did not begin the command within {} s; check its start files",
                            wait.as_secs()
                        ),
                    )
                })??;
            match word.as_str() {
                "ok" => Ok((running, early)),
                "exists" => Err(failed(
                    Code::AlreadyExists,
                    &self.at.name,
                    format_args!("the command {id} was started before"),
                )),
                "gone" | "foreign" => Err(failed(
                    Code::FailedPrecondition,
                    &self.at.name,
                    format_args!(
                        "the lease's workspace below {parent} is gone or has lost its marker"
                    ),
                )),
                "full" => Err(failed(
                    Code::QuotaExceeded,
                    &self.at.name,
                    format_args!(
                        "the record of the command cannot be written below {parent}; check free space and rights"
                    ),
                )),
                "platform" => Err(failed(
                    Code::Unsupported,
                    &self.at.name,
                    "the target has no Linux /proc, by which commands are supervised",
                )),
                other => Err(failed(
                    Code::Internal,
                    &self.at.name,
                    format_args!(
                        "the supervisor said {:?}",
                        crate::error::quote(other.as_bytes())
                    ),
                )),
            }
        };
        let (running, early) = self.gate.while_open(&self.at.name, going).await?;
        Ok(stream::process(
            running,
            early,
            tty.is_some(),
            Some(lease.closed.clone()),
        ))
    }

    async fn state_of(&self, parent: String, id: String) -> Result<CommandState, Error> {
        let lease = self.gate.lease(&self.at.name, Action::StateOf)?;
        self.plain(&[(&parent, "parent"), (&id, "id")])?;
        self.pass(Action::StateOf, Some(&parent)).await?;
        remote::state_of(&self.route, lease, &parent, &id).await
    }

    async fn signal(&self, parent: String, id: String, signal: String) -> Result<(), Error> {
        let lease = self.gate.lease(&self.at.name, Action::Signal)?;
        self.plain(&[(&parent, "parent"), (&id, "id")])?;
        self.pass(Action::Signal, Some(&parent)).await?;
        remote::signal(&self.route, lease, &parent, &id, &signal).await
    }

    async fn put(&self, root: String, archive: ByteStream) -> Result<(), Error> {
        self.plain(&[(&root, "root")])?;
        let root = remote::directory(&root, "root")?;
        self.pass(Action::Put, Some(&root)).await?;
        let of = self
            .gate
            .scope
            .lease
            .as_ref()
            .map(|l| l.acquisition.as_str());
        self.gate
            .while_open(&self.at.name, files::put(&self.route, &root, of, archive))
            .await
    }

    async fn get(&self, root: String, path: String) -> Result<ByteStream, Error> {
        self.plain(&[(&root, "root"), (&path, "path")])?;
        let root = remote::directory(&root, "root")?;
        self.pass(Action::Get, Some(&root)).await?;
        let closed = self.gate.scope.lease.as_ref().map(|l| l.closed.clone());
        self.gate
            .while_open(
                &self.at.name,
                files::get(self.route.clone(), &root, &path, closed),
            )
            .await
    }

    async fn forward(&self, port: u16) -> Result<Box<dyn Duplex>, Error> {
        if port == 0 {
            return Err(Error::new(
                Code::InvalidConfig,
                "port is 0; give one from 1 to 65535",
            ));
        }
        self.pass(Action::Forward, None).await?;
        let closed = self.gate.scope.lease.as_ref().map(|l| l.closed.clone());
        let going = crate::channel::forward(&self.route, port);
        let running = self.gate.while_open(&self.at.name, going).await?;
        let bytes = stream::process(running, Vec::new(), false, closed);
        Ok(Box::new(Port(bytes)))
    }
}

/// Feeds a script its stdin and reads it to its close, keeping `limit` bytes of each stream.
async fn collect(
    name: &str,
    running: crate::channel::Running,
    input: Secret<Vec<u8>>,
    limit: usize,
) -> Result<Output, Error> {
    let crate::channel::Running { mut read, write } = running;
    let feed = async {
        // A script that does not read its stdin is no failure.
        if !input.expose().is_empty() {
            let _ = write.send(Bytes::copy_from_slice(input.expose())).await;
        }
        let _ = write.end().await;
        std::future::pending::<std::convert::Infallible>().await
    };
    tokio::pin!(feed);
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let mut truncated = false;
    let mut keep = |kept: &mut Vec<u8>, data: &[u8]| {
        let room = limit - kept.len();
        truncated |= data.len() > room;
        kept.extend_from_slice(&data[..data.len().min(room)]);
    };
    let ended = loop {
        let event = tokio::select! {
            event = read.next() => event,
            never = &mut feed => match never {},
        };
        match event {
            Event::Stdout(b) => keep(&mut out, &b),
            Event::Stderr(b) => keep(&mut err, &b),
            Event::Ended(ended) => break ended,
        }
    };
    let (status, signal) = match ended {
        Ended::Lost(why) => {
            return Err(unknown(
                name,
                format_args!("lost while the script ran: {why}"),
            ));
        }
        _ if !read.began() => return Err(read.no_shell(name)),
        Ended::Exited(code) => (Some(code), None),
        Ended::Signalled(signal) => (None, Some(signal)),
        Ended::Ask => (None, None),
    };
    Ok(Output {
        stdout: Content::of(out),
        stderr: Content::of(err),
        status,
        signal,
        truncated,
    })
}

//! `interface ssh`: sessions of the call's egress. Who may be reached is the egress's to decide; here
//! requests are counted, and a command is started only where the host asked for one.

use std::sync::Arc;

use leasehold_contract as c;
use leasehold_contract::SshSession;
use wasmtime::component::Resource;

use super::arguments::{content, error};
use super::http::host_content;
use super::imported::ssh::{CommandState, Host, HostSession, Output, Workspace};
use super::imported::streams::Size;
use super::imported::types;
use crate::call::Function;
use crate::state::{BytesEntry, DuplexEntry, ProcessEntry, SessionEntry, State};

type Answer<T> = wasmtime::Result<Result<T, types::Error>>;

impl Host for State {}

impl State {
    /// The session, after one request more was counted.
    fn session(
        &mut self,
        session: &Resource<SessionEntry>,
    ) -> wasmtime::Result<Result<Arc<dyn SshSession>, types::Error>> {
        let session = Arc::clone(&self.table.get(session)?.0);
        Ok(self.exchange().map(|()| session).map_err(error))
    }
}

/// The session, or the refusal as the answer.
macro_rules! session {
    ($state:expr, $session:expr) => {
        match $state.session(&$session)? {
            Ok(session) => session,
            Err(refused) => return Ok(Err(refused)),
        }
    };
}

impl HostSession for State {
    async fn open(
        &mut self,
        target: String,
        username: Option<String>,
        timeout: Option<u32>,
    ) -> Answer<Resource<SessionEntry>> {
        if let Err(refused) = self.exchange() {
            return Ok(Err(error(refused)));
        }
        let egress = Arc::clone(&self.egress);
        let timeout = self.within(timeout);
        match egress.ssh_open(target, username, timeout).await {
            Ok(session) => Ok(Ok(self.table.push(SessionEntry(session))?)),
            Err(e) => Ok(Err(error(e))),
        }
    }

    async fn make_workspace(
        &mut self,
        session: Resource<SessionEntry>,
        parent: String,
    ) -> Answer<Workspace> {
        let session = session!(self, session);
        let made = session.make_workspace(parent).await;
        Ok(made.map(workspace).map_err(error))
    }

    async fn list_workspaces(
        &mut self,
        session: Resource<SessionEntry>,
        parent: String,
    ) -> Answer<Vec<Workspace>> {
        let session = session!(self, session);
        let listed = session.list_workspaces(parent).await;
        Ok(listed
            .map(|all| all.into_iter().map(workspace).collect())
            .map_err(error))
    }

    async fn remove_workspace(
        &mut self,
        session: Resource<SessionEntry>,
        parent: String,
        resource: String,
    ) -> Answer<()> {
        let session = session!(self, session);
        let removed = session.remove_workspace(parent, resource).await;
        Ok(removed.map_err(error))
    }

    async fn run(
        &mut self,
        session: Resource<SessionEntry>,
        script: String,
        args: Vec<String>,
        env: Vec<(String, String)>,
        stdin: types::Content,
        limit: u32,
        timeout: Option<u32>,
    ) -> Answer<Output> {
        let session = session!(self, session);
        let timeout = self.within(timeout);
        let stdin = host_content(stdin);
        let ran = session.run(script, args, env, stdin, limit, timeout).await;
        Ok(ran
            .map(|output| Output {
                stdout: content(output.stdout),
                stderr: content(output.stderr),
                status: output.status,
                signal: output.signal,
                truncated: output.truncated,
            })
            .map_err(error))
    }

    async fn start(
        &mut self,
        session: Resource<SessionEntry>,
        parent: String,
        script: String,
        args: Vec<String>,
        env: Vec<(String, String)>,
        tty: Option<Size>,
    ) -> Answer<Resource<ProcessEntry>> {
        if self.function != Function::Start {
            return Ok(Err(error(c::Error::new(
                c::Code::PermissionDenied,
                "a command is started only in `execution.start`",
            ))));
        }
        let session = session!(self, session);
        let tty = tty.map(|size| c::Size {
            cols: size.cols,
            rows: size.rows,
        });
        match session.start(parent, script, args, env, tty).await {
            Ok(process) => Ok(Ok(self.table.push(ProcessEntry(process))?)),
            Err(e) => Ok(Err(error(e))),
        }
    }

    async fn state_of(
        &mut self,
        session: Resource<SessionEntry>,
        parent: String,
        id: String,
    ) -> Answer<CommandState> {
        let session = session!(self, session);
        let state = session.state_of(parent, id).await;
        Ok(state.map(command_state).map_err(error))
    }

    async fn signal(
        &mut self,
        session: Resource<SessionEntry>,
        parent: String,
        id: String,
        signal: String,
    ) -> Answer<()> {
        let session = session!(self, session);
        let sent = session.signal(parent, id, signal).await;
        Ok(sent.map_err(error))
    }

    async fn put(
        &mut self,
        session: Resource<SessionEntry>,
        root: String,
        archive: Resource<BytesEntry>,
    ) -> Answer<()> {
        let BytesEntry(archive) = self.table.delete(archive)?;
        let session = session!(self, session);
        let put = session.put(root, archive).await;
        Ok(put.map_err(error))
    }

    async fn get(
        &mut self,
        session: Resource<SessionEntry>,
        root: String,
        path: String,
    ) -> Answer<Resource<BytesEntry>> {
        let session = session!(self, session);
        match session.get(root, path).await {
            Ok(bytes) => Ok(Ok(self.table.push(BytesEntry(bytes))?)),
            Err(e) => Ok(Err(error(e))),
        }
    }

    async fn forward(
        &mut self,
        session: Resource<SessionEntry>,
        port: u16,
    ) -> Answer<Resource<DuplexEntry>> {
        let session = session!(self, session);
        match session.forward(port).await {
            Ok(bytes) => Ok(Ok(self.table.push(DuplexEntry(bytes))?)),
            Err(e) => Ok(Err(error(e))),
        }
    }

    async fn drop(&mut self, session: Resource<SessionEntry>) -> wasmtime::Result<()> {
        self.table.delete(session)?;
        Ok(())
    }
}

fn workspace(w: c::Workspace) -> Workspace {
    Workspace {
        path: w.path,
        resource: w.resource,
        labels: w.labels,
        condition: w.condition,
    }
}

fn command_state(state: c::CommandState) -> CommandState {
    match state {
        c::CommandState::Running => CommandState::Running,
        c::CommandState::Exited(status) => CommandState::Exited(status),
        c::CommandState::Signalled(signal) => CommandState::Signalled(signal),
        c::CommandState::NotStarted(_) => CommandState::NotStarted,
        // A target has no word of its own for this; nobody can tell how it ended.
        c::CommandState::OutOfMemory | c::CommandState::Unknown => CommandState::Unknown,
    }
}

//! The SSH provider: leases a directory on a machine that is reached by SSH.
//!
//! A lease is a workspace of its own below `remoteWorkspacePath`, made, marked and found again by the host
//! ([`ssh::Session`]); its resource is the acquisition. This provider names paths and writes the script that
//! starts a command. It never sees a key, never decides whom a machine is leased to (`exclusive-target` says
//! what the host has to guard), and keeps nothing but the three names in its handle.

mod config;
mod paths;
mod probe;
mod script;

use config::Config;
use leasehold_provider::ssh::{CommandState, Session, Workspace};
use leasehold_provider::*;
use serde::{Deserialize, Serialize};

/// Pointer of the configuration field that every session is opened with.
const TARGET: &str = "/target";

struct Ssh;

/// What finds a lease's workspace again.
#[derive(Serialize, Deserialize)]
struct Handle {
    /// The directory that holds the workspaces, as it was configured when this one was made.
    parent: String,
    /// The workspace's name below it.
    resource: String,
    /// Where commands start.
    workspace: String,
}

/// What finds a command again: the host's own id of it.
#[derive(Serialize, Deserialize)]
struct Reference {
    id: String,
}

impl Handle {
    fn of(parent: &str, workspace: &Workspace) -> Handle {
        Handle {
            parent: parent.to_owned(),
            resource: workspace.resource.clone(),
            workspace: workspace.path.clone(),
        }
    }
}

/// The codes with which the host may say that the directory of the workspaces is not there; what the target's shell
/// said decides between them, so the target is asked.
const PARENT: [Code; 3] = [
    Code::InvalidConfig,
    Code::FailedPrecondition,
    Code::NotFound,
];

/// How long a script may take that looks at one path, in milliseconds.
const GLANCE: u32 = 15_000;

/// Runs a script about one path, and answers its status.
fn ask_about(session: &Session, script: &str, path: &str) -> Result<Option<i32>> {
    let args = [path.to_owned()];
    let output = session.run(script, &args, &[], &Content::None, 4096, Some(GLANCE))?;
    match output.status {
        Some(0 | 3) => Ok(output.status),
        _ => output
            .success()
            .map(|_| None)
            .map_err(|error| error.about(path)),
    }
}

/// Makes the lease's workspace, and before it the directory of the workspaces where there is none.
fn make_workspace(session: &Session, parent: &str) -> Result<Workspace> {
    match session.make_workspace(parent) {
        Err(error) if PARENT.contains(&error.code) => {
            match ask_about(session, script::MAKE_PARENT, parent)? {
                Some(0) => session.make_workspace(parent),
                _ => Err(error),
            }
        }
        made => made,
    }
}

/// The workspaces; none where the directory that would hold them is proven not to be there.
fn workspaces(session: &Session, parent: &str) -> Result<Vec<Workspace>> {
    match session.list_workspaces(parent) {
        Err(error) if PARENT.contains(&error.code) => {
            match ask_about(session, script::IS_ABSENT, parent)? {
                Some(0) => Ok(Vec::new()),
                _ => Err(error),
            }
        }
        listed => listed,
    }
}

/// A workspace that a crash left half-made is made whole by the next `acquire`.
fn condition(workspace: &Workspace) -> Condition {
    match workspace.condition.as_str() {
        "ready" => Condition::Ready,
        _ => Condition::Starting,
    }
}

impl Provider for Ssh {
    type Config = Config;
    type Handle = Handle;

    fn describe() -> Manifest {
        manifest("ssh", env!("CARGO_PKG_VERSION"))
            .title("SSH")
            .summary(
                "Leases a directory of its own on a machine that is reached by SSH. Commands run as the \
                 account that is configured, with everything that this account may do there.",
            )
            .driver(Driver::Ssh)
            .schema(config::schema())
            .ssh()
            .limits(Limits {
                memory_mib: 32,
                cpu: 500,
                exchanges: 32,
                body_mib: 1,
            })
            .features(
                Features::STDIN
                    | Features::TTY
                    | Features::SEPARATE_STDERR
                    | Features::SIGNAL_GROUP
                    | Features::EXCLUSIVE_TARGET,
            )
            .acquire_timeout(60_000)
            .build()
    }

    fn check_config(c: Call<Config>, mut config: Value) -> Result<Value> {
        let path = paths::parent(&c.remote_workspace_path).map_err(|message| {
            Error::invalid_config(vec![violation("/remoteWorkspacePath", message)])
        })?;
        config["remoteWorkspacePath"] = path.into();
        Ok(config)
    }

    fn probe(c: Call<Config>) -> Result<Vec<Finding>> {
        Ok(probe::findings(&c))
    }

    fn acquire(c: Call<Config>, _ttl: Option<u32>) -> Result<Acquired<Handle>> {
        host::progress("connect", &format!("connecting to {}", c.target));
        let session = ssh::open(TARGET)?;
        host::journal_environment(c.acquisition()?)?;
        host::progress("workspace", "making the workspace");
        let made = make_workspace(&session, &c.remote_workspace_path)?;
        let handle = Handle::of(&c.remote_workspace_path, &made);
        Ok(acquired(made.resource, handle, made.path))
    }

    fn inspect(_: Call<Config>, h: Handle) -> Result<Observation> {
        Ok(workspaces(&ssh::open(TARGET)?, &h.parent)?
            .iter()
            .find(|workspace| workspace.resource == h.resource)
            .map_or_else(gone, |workspace| observation(condition(workspace))))
    }

    fn release(c: Call<Config>, h: Handle) -> Result<()> {
        host::progress("connect", &format!("connecting to {}", c.target));
        let session = ssh::open(TARGET)?;
        host::progress("release", "ending processes and removing the workspace");
        session.remove_workspace(&h.parent, &h.resource)
    }

    fn list(c: Call<Config>, query: Query) -> Result<Page<Handle>> {
        let parent = &c.remote_workspace_path;
        Ok(workspaces(&ssh::open(TARGET)?, parent)?
            .into_iter()
            .filter(|workspace| query.wants(&workspace.resource, &workspace.labels))
            .map(|workspace| {
                let handle = Handle::of(parent, &workspace);
                let condition = condition(&workspace);
                listed(workspace.resource, handle, condition).labels(workspace.labels)
            })
            .collect())
    }
}

impl Execution for Ssh {
    type Reference = Reference;

    fn start(_: Call<Config>, h: Handle, command: Command) -> Result<Started<Reference>> {
        let mut args = vec![paths::resolve(&h.workspace, &command.cwd)];
        args.extend(command.argv);
        let session = ssh::open(TARGET)?;
        let reference = Reference { id: command.id };
        host::journal_command(&reference.id, &reference)?;
        let process = session.start(
            &h.parent,
            &script::start(),
            &args,
            &command.env,
            command.tty,
        )?;
        Ok(started(process, reference))
    }

    fn state_of(_: Call<Config>, h: Handle, id: String, _: Option<Reference>) -> Result<State> {
        Ok(match ssh::open(TARGET)?.state_of(&h.parent, &id)? {
            CommandState::Running => State::Running,
            CommandState::Exited(status) => State::Exited(status),
            CommandState::Signalled(signal) => State::Signalled(signal),
            CommandState::NotStarted => {
                State::NotStarted("its supervisor never began on the target".to_owned())
            }
            CommandState::Unknown => State::Unknown,
        })
    }

    fn signal(_: Call<Config>, h: Handle, reference: Reference, signal: String) -> Result<()> {
        ssh::open(TARGET)?.signal(&h.parent, &reference.id, &signal)
    }
}

impl Files for Ssh {
    fn put(_: Call<Config>, h: Handle, path: String, archive: Bytes) -> Result<()> {
        let path = paths::within(&h.workspace, &path)?;
        ssh::open(TARGET)?.put(&path, archive)
    }

    fn get(_: Call<Config>, h: Handle, path: String) -> Result<Bytes> {
        let path = paths::within(&h.workspace, &path)?;
        ssh::open(TARGET)?.get(&h.workspace, &path)
    }
}

provider!(Ssh: execution, files);

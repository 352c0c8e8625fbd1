//! A supervised command from outside its stream: what became of it, and signals to all that it started.

use leasehold_contract::{Code, CommandState, Error};

use super::workspace::{acquisition, directory, label};
use super::{SIGNAL, STATE, run};
use crate::error::{failed, quote as cite, unknown};
use crate::pool::Route;
use crate::scope::LeaseScope;

/// Signals that may be asked for, without SIG.
const SIGNALS: [&str; 24] = [
    "HUP", "INT", "QUIT", "ILL", "TRAP", "ABRT", "BUS", "FPE", "KILL", "USR1", "SEGV", "USR2",
    "PIPE", "ALRM", "TERM", "CHLD", "CONT", "STOP", "TSTP", "TTIN", "TTOU", "URG", "XCPU", "WINCH",
];

/// An execution's id as the contract spells it.
pub(crate) fn execution(id: &str) -> Result<&str, Error> {
    let sane = (1..=40).contains(&id.len())
        && id
            .bytes()
            .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
        && !id.starts_with('-');
    if sane {
        Ok(id)
    } else {
        Err(Error::new(
            Code::NotFound,
            format!("{:?} is not the id of a command", cite(id.as_bytes())),
        ))
    }
}

/// See `state-of` of the contract. A recorded end wins over what is still running: the command itself has one outcome (P7).
pub(crate) async fn state_of(
    route: &Route,
    lease: &LeaseScope,
    parent: &str,
    id: &str,
) -> Result<CommandState, Error> {
    let parent = directory(parent, "the directory for workspaces")?;
    let name = acquisition(&lease.acquisition)?;
    let args = [
        &parent[..],
        name,
        label(&lease.owner_label)?,
        execution(id)?,
    ];
    let answer = run(route, &STATE, &args, route.settings().script).await?;
    let (word, rest) = answer.lines().next().unwrap_or(("", ""));
    Ok(match word {
        "running" => CommandState::Running,
        "exited" => match rest.parse::<i32>() {
            Ok(code @ 0..=255) => CommandState::Exited(code),
            _ => CommandState::Unknown,
        },
        "signalled" if !rest.is_empty() && rest.bytes().all(|b| b.is_ascii_alphanumeric()) => {
            CommandState::Signalled(rest.to_owned())
        }
        "not-started" => CommandState::NotStarted(
            "no supervisor of it ever began, and its place is taken so that none can".to_owned(),
        ),
        "unknown" | "signalled" => CommandState::Unknown,
        word => return Err(answer.refusal(&route.name(), word, &format!("{parent}/{name}"))),
    })
}

/// See `signal` of the contract.
pub(crate) async fn signal(
    route: &Route,
    lease: &LeaseScope,
    parent: &str,
    id: &str,
    signal: &str,
) -> Result<(), Error> {
    let parent = directory(parent, "the directory for workspaces")?;
    let name = acquisition(&lease.acquisition)?;
    if !SIGNALS.contains(&signal) {
        return Err(Error::new(
            Code::InvalidConfig,
            format!(
                "{:?} is not a signal; give a POSIX name without SIG, such as TERM",
                cite(signal.as_bytes())
            ),
        ));
    }
    let args = [
        &parent[..],
        name,
        label(&lease.owner_label)?,
        execution(id)?,
        signal,
    ];
    let answer = run(route, &SIGNAL, &args, route.settings().script).await?;
    match answer.lines().next().unwrap_or(("", "")) {
        ("ok", _) => Ok(()),
        ("none", _) => Err(failed(
            Code::NotFound,
            &route.name(),
            format_args!("nothing of the command {id} is left"),
        )),
        ("platform", _) => Err(answer.refusal(&route.name(), "platform", &parent)),
        _ => Err(unknown(
            &route.name(),
            format_args!(
                "the signal was not confirmed: {}",
                cite(answer.stderr.as_bytes())
            ),
        )),
    }
}

/// Ends what a `run` started, by its mark; it has no record and no supervisor.
pub(crate) async fn end_run(route: &Route, lease: &LeaseScope, id: &str) -> Result<(), Error> {
    let args = ["/", &lease.acquisition, &lease.owner_label, id, "KILL"];
    run(route, &SIGNAL, &args, route.settings().script)
        .await
        .map(drop)
}

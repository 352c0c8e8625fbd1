//! What runs on the target: a constant bootstrap, and the host's own scripts, each a file beside this one.
//!
//! The only command that ever stands in a process's arguments is [`BOOTSTRAP`]. It reads one line from stdin, byte
//! by byte as `read` does from a pipe, so that nothing behind it is consumed, and runs it. Scripts, arguments,
//! variables and values are in that line, quoted by [`quote`]. Every script runs under whatever `/bin/sh` is: no word
//! of it goes beyond POSIX except where the script tests for it first.

mod frame;
mod quote;
mod state;
mod workspace;

use std::sync::LazyLock;
use std::time::Duration;

use leasehold_contract::{Code, Ended, Error};
use tokio::time::timeout;

use crate::channel::{Event, exec};
use crate::error::{code_of, failed, quote as cite, unknown};
use crate::pool::{Route, Want};

pub(crate) use frame::{Frame, Variable, check_environment};
pub(crate) use state::{end_run, execution, signal, state_of};
pub(crate) use workspace::{
    acquisition, directory, label, list_workspaces, make_workspace, remove_workspace, verify_gone,
    verify_owned,
};

/// The exec request, the same for every login shell: one line that bash, dash, zsh, fish, tcsh, busybox and elvish
/// read alike. It has no single quote, backslash or `!` inside its quotes. It reads in the C locale: in others bash
/// loses a byte behind a broken character.
pub(crate) const BOOTSTRAP: &str =
    r#"exec /bin/sh -c 'LC_ALL=C IFS= read -r LEASEHOLD_P && eval "$LEASEHOLD_P"'"#;

/// What stands between the quotes of [`BOOTSTRAP`].
#[cfg(test)]
pub(crate) const INNER: &str = r#"LC_ALL=C IFS= read -r LEASEHOLD_P && eval "$LEASEHOLD_P""#;

/// The same for a supervised command. A line that does not come whole is a connection that was lost: nothing begins,
/// and taking the gate away makes that the record. It runs where the records are.
pub(crate) const SUPERVISED: &str = r#"LC_ALL=C IFS= read -r LEASEHOLD_P || { rm -f "$LEASEHOLD_EXECUTION.go"; exit 125; }; eval "$LEASEHOLD_P""#;

/// The most that one of our scripts may say.
const ANSWER: usize = 4 * 1024 * 1024;

/// A script without its comments and indentation: what is sent, and read a byte at a time.
pub(crate) struct Script(LazyLock<String>);

impl Script {
    pub(crate) fn text(&self) -> &str {
        &self.0
    }
}

macro_rules! scripts {
    ($($(#[$doc:meta])* $name:ident = $($file:literal)+;)+) => {
        $($(#[$doc])* pub(crate) static $name: Script = Script(LazyLock::new(|| {
            strip(concat!($(include_str!($file), "\n",)+))
        }));)+
    };
}

scripts! {
    /// Makes a workspace.
    MAKE = "enter.sh" "make.sh";
    /// Lists workspaces.
    LIST = "enter.sh" "list.sh";
    /// Reads a marker.
    OWNED = "enter.sh" "owned.sh";
    /// Ends processes and removes a workspace.
    REMOVE = "enter.sh" "hunt.sh" "remove.sh";
    /// Looks for what is left.
    GONE = "enter.sh" "hunt.sh" "gone.sh";
    /// Signals a command.
    SIGNAL = "hunt.sh" "signal.sh";
    /// Reads a command's record.
    STATE = "hunt.sh" "state.sh";
    /// Unpacks a tar.
    PUT = "enter.sh" "put.sh";
    /// Makes a tar.
    GET = "enter.sh" "get.sh";
    /// Supervises a command.
    SUPERVISE = "supervise.sh";
}

/// The supervisor's script.
pub(crate) fn supervisor() -> &'static str {
    SUPERVISE.text()
}

fn strip(script: &str) -> String {
    let lines = script.lines().map(str::trim_start);
    let kept: Vec<&str> = lines
        .filter(|l| !l.is_empty() && !l.starts_with('#'))
        .collect();
    kept.join("\n")
}

/// What a script of ours said.
struct Answer {
    stdout: String,
    stderr: String,
}

impl Answer {
    /// Its lines as (first word, rest).
    fn lines(&self) -> impl Iterator<Item = (&str, &str)> {
        self.stdout
            .lines()
            .map(|l| l.split_once(' ').unwrap_or((l, "")))
    }

    /// The error for a word that says what is wrong, with what the target's system said.
    fn refusal(&self, name: &str, word: &str, place: &str) -> Error {
        let said = cite(self.stderr.as_bytes());
        let because = if said.is_empty() {
            String::new()
        } else {
            format!(": {said}")
        };
        match word {
            "parent" => failed(
                match code_of(&self.stderr) {
                    Code::NotFound => Code::InvalidConfig,
                    code => code,
                },
                name,
                format_args!(
                    "the directory {place} cannot be entered{because}; make it, or let the account into it"
                ),
            ),
            "denied" => failed(
                code_of(&self.stderr),
                name,
                format_args!("{place}: the target refuses{because}"),
            ),
            "full" => failed(
                Code::QuotaExceeded,
                name,
                format_args!(
                    "{place}: the record of the command cannot be written{because}; check free space"
                ),
            ),
            "symlink" => failed(
                Code::AlreadyExists,
                name,
                format_args!("{place} is a symbolic link, which is never followed"),
            ),
            "foreign" => failed(
                Code::AlreadyExists,
                name,
                format_args!(
                    "{place} is there and does not carry this lease's marker; it was not touched"
                ),
            ),
            "platform" => failed(
                Code::Unsupported,
                name,
                "the target has no Linux /proc, by which processes are found",
            ),
            "" => failed(
                Code::FailedPrecondition,
                name,
                format_args!("the target's shell ended early{because}"),
            ),
            other => failed(
                Code::Internal,
                name,
                format_args!("the target said {:?}{because}", cite(other.as_bytes())),
            ),
        }
    }
}

/// Runs one of our scripts to its end.
async fn run(
    route: &Route,
    script: &Script,
    args: &[&str],
    deadline: Duration,
) -> Result<Answer, Error> {
    let name = route.name();
    let frame = Frame::host(script.text(), args);
    let payload = frame.payload()?;
    let going = async {
        let mut running = exec(route, Want::Shared, None, &payload).await?;
        let _ = running.write.end().await;
        let (mut out, mut err) = (Vec::new(), Vec::new());
        loop {
            match running.read.next().await {
                Event::Stdout(b) if out.len() + b.len() <= ANSWER => out.extend_from_slice(&b),
                Event::Stderr(b) if err.len() + b.len() <= ANSWER => err.extend_from_slice(&b),
                Event::Stdout(_) | Event::Stderr(_) => {}
                Event::Ended(Ended::Lost(why)) => {
                    return Err(unknown(&name, format_args!("lost while it worked: {why}")));
                }
                Event::Ended(_) if !running.read.began() => {
                    return Err(running.read.no_shell(&name));
                }
                Event::Ended(_) => {
                    return Ok(Answer {
                        stdout: String::from_utf8_lossy(&out).into_owned(),
                        stderr: String::from_utf8_lossy(&err).into_owned(),
                    });
                }
            }
        }
    };
    timeout(deadline, going).await.unwrap_or_else(|_| {
        Err(unknown(
            &name,
            format_args!("the target did not finish within {} s", deadline.as_secs()),
        ))
    })
}

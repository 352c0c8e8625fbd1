//! The probe: can the target be used? One finding a step, in the order in which the steps depend on each other.
//!
//! It creates nothing and changes nothing: the script only reads. Every failure names the target.

use leasehold_provider::ssh::Session;
use leasehold_provider::{
    Code, Content, Error, Finding, Result, finding, host, info, ssh, warning,
};

use crate::TARGET;
use crate::config::Config;
use crate::script;

/// More than the script can say.
const LIMIT: u32 = 64 << 10;
/// How long the script may take, in milliseconds.
const SCRIPT_TIME: u32 = 15_000;

/// Free space below which nothing useful can be done, and below which a person should know, in KiB.
const TOO_LITTLE: u64 = 16 << 10;
const LITTLE: u64 = 1 << 20;

/// All steps, up to the first that the others depend on.
pub fn findings(config: &Config) -> Vec<Finding> {
    let target = config.target.to_string();
    let mut found = Vec::new();
    host::progress("connect", &format!("connecting to {target}"));
    let opened = ssh::open(TARGET);
    connection(&target, opened.as_ref().err(), &mut found);
    if let Ok(session) = opened {
        host::progress("look", &format!("looking at {target}"));
        match look(&session, &config.remote_workspace_path) {
            Ok(seen) => machine(&target, &config.remote_workspace_path, &seen, &mut found),
            Err(error) => found.push(failure(&target, "posix-minimum", error)),
        }
    }
    if config.allow_shared_account {
        found.push(warning(
            "shared-account",
            format!(
                "several leases may use {target} at once: they can read and change each other's files, see and end \
                 each other's processes, and all use whatever this account can use"
            ),
        ));
    }
    found
}

/// The steps of opening a session, by the code of the error that it ended with.
fn connection(target: &str, error: Option<&Error>, found: &mut Vec<Finding>) {
    let steps = [
        ("reach", format!("{target} answers")),
        (
            "host-key",
            format!("{target} shows a host key that is trusted"),
        ),
        ("authenticate", format!("{target} accepts the key")),
    ];
    let Some(error) = error else {
        found.extend(steps.map(|(step, message)| info(step, message)));
        return;
    };
    let failed = match error.code {
        Code::UntrustedPeer => 1,
        // A key that does not read is found out before anything is dialled: of the steps before it nothing is known.
        Code::InvalidConfig => {
            found.push(failure(target, "authenticate", error.clone()));
            return;
        }
        Code::Unauthenticated => 2,
        _ => 0,
    };
    for (at, (step, message)) in steps.into_iter().enumerate().take(failed + 1) {
        found.push(match at == failed {
            true => failure(target, step, error.clone()),
            false => info(step, message),
        });
    }
}

/// A failure that names the target, once.
fn failure(target: &str, step: &str, error: Error) -> Finding {
    let named = error.message.contains(target);
    finding::<String>(step, Err(if named { error } else { error.about(target) }))
}

/// Runs the script and reads what it said.
fn look(session: &Session, path: &str) -> Result<Seen> {
    let args = [path.to_owned()];
    let output = session.run(
        &script::probe(),
        &args,
        &[],
        &Content::None,
        LIMIT,
        Some(SCRIPT_TIME),
    )?;
    Ok(Seen::read(&output.success()?))
}

/// What the script saw.
#[derive(Debug, Default, PartialEq)]
struct Seen {
    platform: String,
    account: String,
    missing: Vec<String>,
    lacks: Vec<String>,
    path: String,
    base: String,
    blocked: Option<String>,
    may: Vec<String>,
    free: Option<u64>,
    mount: Vec<String>,
}

impl Seen {
    fn read(said: &str) -> Seen {
        let mut seen = Seen::default();
        for line in said.lines() {
            let (key, value) = line.split_once(' ').unwrap_or((line, ""));
            match key {
                "platform" => seen.platform = value.to_owned(),
                "account" => seen.account = value.to_owned(),
                "missing" => seen.missing.push(value.to_owned()),
                "lacks" => seen.lacks.push(value.to_owned()),
                "path" => seen.path = value.to_owned(),
                "base" => seen.base = value.to_owned(),
                "blocked" => seen.blocked = Some(value.to_owned()),
                "may" => seen.may.push(value.to_owned()),
                "free" => seen.free = value.parse().ok(),
                "mount" => seen.mount = value.split(',').map(str::to_owned).collect(),
                _ => {}
            }
        }
        seen
    }

    fn may(&self, what: &str) -> bool {
        self.may.iter().any(|may| may == what)
    }

    fn mounted(&self, option: &str) -> bool {
        self.mount.iter().any(|mounted| mounted == option)
    }
}

/// The steps that look at the machine.
fn machine(target: &str, path: &str, seen: &Seen, found: &mut Vec<Finding>) {
    let failed =
        |step: &str, message: String| failure(target, step, Error::failed_precondition(message));

    let (uid, name) = seen.account.split_once(' ').unwrap_or_default();
    if uid == "0" {
        found.push(warning(
            "account",
            format!("{target}: the account is root: what runs in a lease can do anything to this machine"),
        ));
    } else if !uid.is_empty() {
        found.push(info("account", format!("{name} (uid {uid})")));
    }

    found.push(match seen.missing.as_slice() {
        [] => info("posix-minimum", seen.platform.clone()),
        missing => failed(
            "posix-minimum",
            format!(
                "the machine ({}) lacks {}; install what is missing, or use a Linux machine that has it",
                seen.platform,
                missing.join(", ")
            ),
        ),
    });

    if !seen.lacks.is_empty() {
        found.push(warning(
            "terminal",
            format!(
                "{target}: the machine lacks {}: commands get no sane terminal",
                seen.lacks.join(", ")
            ),
        ));
    }

    found.push(match (seen.path.as_str(), &seen.blocked) {
        ("directory", _) => info("workspace-path", format!("{path} exists")),
        ("missing", None) => info(
            "workspace-path",
            format!(
                "{path} does not exist yet; it will be made below {}",
                seen.base
            ),
        ),
        ("missing", Some(blocked)) => failed(
            "workspace-path",
            format!("{path} cannot be made: {blocked} is not a directory"),
        ),
        ("symlink", _) => failed(
            "workspace-path",
            format!("{path} is a symbolic link; configure the directory that it leads to"),
        ),
        _ => failed(
            "workspace-path",
            format!("{path} is not a directory; configure another path, or remove it"),
        ),
    });

    found.push(access(seen, &failed));
    if seen.mounted("noexec") {
        found.push(warning(
            "exec-access",
            format!(
                "{target}: {} is mounted noexec: programs in a workspace cannot be run",
                seen.base
            ),
        ));
    }

    found.push(match seen.free {
        None => warning(
            "free-space",
            format!(
                "{target}: the free space at {} could not be read",
                seen.base
            ),
        ),
        Some(free) if free < TOO_LITTLE => failed(
            "free-space",
            format!(
                "{} free at {}; at least {} are needed",
                size(free),
                seen.base,
                size(TOO_LITTLE)
            ),
        ),
        Some(free) if free < LITTLE => warning(
            "free-space",
            format!("{target}: only {} free at {}", size(free), seen.base),
        ),
        Some(free) => info(
            "free-space",
            format!("{} free at {}", size(free), seen.base),
        ),
    });
}

/// Whether directories can be made where the workspaces are to be.
fn access(seen: &Seen, failed: &dyn Fn(&str, String) -> Finding) -> Finding {
    let lacking: Vec<&str> = [("write", "write to"), ("enter", "enter"), ("list", "list")]
        .into_iter()
        // A directory that is yet to be made need not be listed.
        .filter(|(may, _)| !seen.may(may) && (*may != "list" || seen.path == "directory"))
        .map(|(_, verb)| verb)
        .collect();
    if seen.mounted("ro") {
        return failed(
            "write-access",
            format!(
                "{} is on a file system that is mounted read-only",
                seen.base
            ),
        );
    }
    match lacking.as_slice() {
        [] => info(
            "write-access",
            format!("directories can be made in {}", seen.base),
        ),
        lacking => failed(
            "write-access",
            format!(
                "the account may not {} {}; give it that right, or configure a path where it has it",
                lacking.join(" or "),
                seen.base
            ),
        ),
    }
}

/// KiB for a person.
fn size(kib: u64) -> String {
    match kib {
        0..1024 => format!("{kib} KiB"),
        1024..1_048_576 => format!("{} MiB", kib >> 10),
        _ => format!("{}.{} GiB", kib >> 20, ((kib & 0xf_ffff) * 10) >> 20),
    }
}

#[cfg(test)]
mod tests {
    use leasehold_provider::Severity;

    use super::*;

    const TARGET: &str = "ci@10.0.0.5:22";

    fn steps(found: &[Finding]) -> Vec<(&str, Severity)> {
        found
            .iter()
            .map(|f| (f.step.as_str(), f.severity))
            .collect()
    }

    fn opened(error: Option<Error>) -> Vec<Finding> {
        let mut found = Vec::new();
        connection(TARGET, error.as_ref(), &mut found);
        found
    }

    fn seen(said: &str) -> Vec<Finding> {
        let mut found = Vec::new();
        machine(TARGET, "/srv/leases", &Seen::read(said), &mut found);
        found
    }

    fn of<'a>(found: &'a [Finding], step: &str) -> &'a Finding {
        found
            .iter()
            .find(|f| f.step == step)
            .expect("the step was taken")
    }

    const GOOD: &str = "platform Linux x86_64\naccount 1000 ci\npath directory\nbase /srv/leases\nmay write\nmay enter\n\
                        may list\nfree 2097152\nmount rw,relatime\n";

    #[test]
    fn each_stage_of_opening_fails_after_those_before_it_were_good() {
        use Severity::{Failure, Info};
        assert_eq!(
            steps(&opened(None)),
            [("reach", Info), ("host-key", Info), ("authenticate", Info)]
        );
        assert_eq!(
            steps(&opened(Some(Error::unavailable("refused")))),
            [("reach", Failure)]
        );
        assert_eq!(
            steps(&opened(Some(Error::untrusted_peer("other key")))),
            [("reach", Info), ("host-key", Failure)]
        );
        assert_eq!(
            steps(&opened(Some(Error::unauthenticated("no")))),
            [
                ("reach", Info),
                ("host-key", Info),
                ("authenticate", Failure)
            ]
        );
        assert_eq!(
            steps(&opened(Some(Error::invalid_config(Vec::new())))),
            [("authenticate", Failure)]
        );
    }

    #[test]
    fn a_failure_names_the_target_once() {
        let told = |message: &str| opened(Some(Error::unavailable(message)))[0].message.clone();
        assert_eq!(told("refused"), "ci@10.0.0.5:22: refused");
        assert_eq!(told("ci@10.0.0.5:22 refused"), "ci@10.0.0.5:22 refused");
    }

    #[test]
    fn a_good_machine_has_no_failure_and_no_warning() {
        assert!(seen(GOOD).iter().all(|f| f.severity == Severity::Info));
    }

    #[test]
    fn what_is_wrong_with_a_machine_is_a_failure_of_its_step_that_names_the_target() {
        for (from, to, step) in [
            (
                "path directory",
                "missing awk\npath directory",
                "posix-minimum",
            ),
            ("path directory", "path symlink", "workspace-path"),
            ("path directory", "path other", "workspace-path"),
            (
                "path directory",
                "path missing\nblocked /srv",
                "workspace-path",
            ),
            ("may write\n", "", "write-access"),
            ("may list\n", "", "write-access"),
            ("rw,relatime", "ro,relatime", "write-access"),
            ("free 2097152", "free 10240", "free-space"),
        ] {
            let found = seen(&GOOD.replace(from, to));
            let bad = of(&found, step);
            assert_eq!(bad.severity, Severity::Failure, "{step}: {}", bad.message);
            assert!(bad.message.contains(TARGET), "{}", bad.message);
        }
    }

    #[test]
    fn what_a_person_should_know_is_a_warning() {
        for (from, to, step) in [
            ("account 1000 ci", "account 0 root", "account"),
            ("path directory", "lacks stty\npath directory", "terminal"),
            ("free 2097152", "free 500000", "free-space"),
            ("free 2097152", "free ", "free-space"),
            ("rw,relatime", "rw,noexec", "exec-access"),
        ] {
            let found = seen(&GOOD.replace(from, to));
            assert_eq!(of(&found, step).severity, Severity::Warning, "{step}");
        }
    }

    #[test]
    fn a_directory_that_is_yet_to_be_made_needs_no_listing() {
        let said = GOOD
            .replace("path directory", "path missing")
            .replace("may list\n", "");
        assert_eq!(of(&seen(&said), "write-access").severity, Severity::Info);
    }

    #[test]
    fn sizes_are_told_in_the_unit_that_fits() {
        assert_eq!(size(10), "10 KiB");
        assert_eq!(size(16 << 10), "16 MiB");
        assert_eq!(size(3 << 19), "1.5 GiB");
    }
}

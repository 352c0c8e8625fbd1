//! The bodies that an engine is sent, as types of ours: what they do not know is refused, and what is sent is written from
//! them.
//!
//! Engines read JSON with much forgiveness: of a key that stands twice the last counts, keys match in any case of letters,
//! what is unknown is skipped. So a body is read strictly first (one key once, no half surrogates, bounded depth), then into
//! a type that knows each member by its one spelling, and written anew. Nothing of the engine's machine can be said here: no
//! mount but a tmpfs, no privilege, added capability, device, namespace or file of it, no other container's anything.
//!
//! Strings are wiped when they are dropped: payloads stand in some of them.

use std::collections::BTreeMap;

use serde::de::{DeserializeOwned, Deserializer, Error as _};
use serde::{Deserialize, Serialize, Serializer};

use super::{Owner, image};
use crate::rules::json;
use crate::secret::Secret;

/// The longest string, and the most items of a list or members of a map.
const LONGEST: usize = 128 << 10;
const MOST: usize = 1024;

/// A string of a body.
#[derive(Clone, Debug)]
struct Text(Secret);

impl Text {
    fn as_str(&self) -> &str {
        self.0.expose()
    }
}

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Text, D::Error> {
        let text = Text(Secret::new(String::deserialize(from)?));
        if text.as_str().len() > LONGEST {
            return Err(D::Error::custom("a string is longer than 128 KiB"));
        }
        if text.as_str().contains('\0') {
            return Err(D::Error::custom("a string has a NUL"));
        }
        Ok(text)
    }
}

impl Serialize for Text {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(self.as_str())
    }
}

/// A container, as it may be made.
#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, rename_all = "PascalCase")]
struct Container {
    image: Text,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    entrypoint: Option<Vec<Text>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    cmd: Option<Vec<Text>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    env: Option<Vec<Text>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    working_dir: Option<Text>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    user: Option<Text>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    hostname: Option<Text>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    stop_signal: Option<Text>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    stop_timeout: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    tty: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    open_stdin: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    stdin_once: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    attach_stdin: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    attach_stdout: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    attach_stderr: Option<bool>,
    #[serde(default)]
    labels: Option<BTreeMap<String, Text>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    host_config: Option<HostConfig>,
}

/// What a container has of its engine's machine: a share, and never more than one without any of this.
#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, rename_all = "PascalCase")]
struct HostConfig {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    memory: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    memory_swap: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    memory_reservation: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    nano_cpus: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    cpu_shares: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    cpu_period: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    cpu_quota: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pids_limit: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    shm_size: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ulimits: Option<Vec<Ulimit>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    init: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    readonly_rootfs: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    cap_drop: Option<Vec<Text>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    security_opt: Option<Vec<Text>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    network_mode: Option<Text>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    tmpfs: Option<BTreeMap<String, Text>>,
}

#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, rename_all = "PascalCase")]
struct Ulimit {
    name: Text,
    soft: i64,
    hard: i64,
}

/// A command in a container, as it may be made.
#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, rename_all = "PascalCase")]
struct Command {
    cmd: Vec<Text>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    env: Option<Vec<Text>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    working_dir: Option<Text>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    user: Option<Text>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    tty: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    attach_stdin: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    attach_stdout: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    attach_stderr: Option<bool>,
}

/// How a command is started.
#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, rename_all = "PascalCase")]
struct Start {
    #[serde(default)]
    detach: bool,
    #[serde(default)]
    tty: bool,
}

type Checked = Result<(), String>;

/// A container's body, written anew with the lease's labels.
///
/// # Errors
/// What the body has that is not let through, by its member.
pub(super) fn container(body: &[u8], owner: &Owner) -> Result<Secret<Vec<u8>>, String> {
    let mut container: Container = read(body)?;
    container.check()?;
    let own: BTreeMap<String, Text> = owner
        .labels
        .iter()
        .chain([&owner.label])
        .map(|(key, value)| (key.clone(), Text(Secret::new(value.clone()))))
        .collect();
    for (key, value) in container.labels.iter().flatten() {
        if own.get(key).map(Text::as_str) != Some(value.as_str()) {
            return Err(format!(
                "Labels has {key:?}, which is none of the lease's own or has another value; what runs beside an engine obeys \
                 labels, so that the host writes them: leave them out, or give those of the context"
            ));
        }
    }
    container.labels = Some(own);
    written(&container, body.len())
}

/// A command's body, written anew.
///
/// # Errors
/// As [`container`].
pub(super) fn command(body: &[u8]) -> Result<Secret<Vec<u8>>, String> {
    let command: Command = read(body)?;
    few("Cmd", &command.cmd)?;
    if let Some(env) = &command.env {
        variables(env)?;
    }
    command.working_dir.iter().try_for_each(working_dir)?;
    command.user.iter().try_for_each(user)?;
    written(&command, body.len())
}

/// The body that starts a command, written anew.
///
/// # Errors
/// As [`container`].
pub(super) fn start(body: &[u8]) -> Result<Secret<Vec<u8>>, String> {
    written(&read::<Start>(body)?, body.len())
}

/// Reads a body whose every key stands once and is known.
fn read<T: DeserializeOwned>(body: &[u8]) -> Result<T, String> {
    let text = std::str::from_utf8(body).map_err(|_| "the body is not UTF-8".to_owned())?;
    json::read(text, |_, _| Ok(None)).map_err(|stopped| match stopped {
        json::Stopped::Broken(what, at) => {
            format!("the body is not JSON as it is taken here: {what}, at byte {at}")
        }
        json::Stopped::Refused(error) => error.message,
    })?;
    let mut reader = serde_json::Deserializer::from_str(text);
    serde_path_to_error::deserialize(&mut reader).map_err(|error| {
        let at = error.path().to_string();
        format!("{at}: {}", error.inner())
    })
}

/// Writes a body into one allocation that is wiped when it is dropped. It is no longer than what it was read from and the
/// labels together.
fn written<T: Serialize>(value: &T, read: usize) -> Result<Secret<Vec<u8>>, String> {
    const LABELS: usize = 16 << 10;
    let mut out = Secret::new(Vec::with_capacity(read + LABELS));
    serde_json::to_writer(out.expose_mut(), value).map_err(|e| e.to_string())?;
    Ok(out)
}

impl Container {
    fn check(&self) -> Checked {
        image::check(self.image.as_str()).map_err(|what| format!("Image {what}"))?;
        for (name, list) in [("Entrypoint", &self.entrypoint), ("Cmd", &self.cmd)] {
            list.iter().try_for_each(|list| few(name, list))?;
        }
        if let Some(env) = &self.env {
            variables(env)?;
        }
        self.working_dir.iter().try_for_each(working_dir)?;
        self.user.iter().try_for_each(user)?;
        self.stop_signal.iter().try_for_each(|signal| {
            of("StopSignal", signal, 16, |b| {
                b.is_ascii_uppercase() || b.is_ascii_digit() || b"+-".contains(&b)
            })
        })?;
        self.hostname.iter().try_for_each(|name| {
            of("Hostname", name, 63, |b| {
                b.is_ascii_alphanumeric() || b"-.".contains(&b)
            })
        })?;
        self.host_config.iter().try_for_each(HostConfig::check)
    }
}

impl HostConfig {
    fn check(&self) -> Checked {
        if let Some(network) = &self.network_mode {
            one_of("NetworkMode", network, &["default", "bridge", "none"])?;
        }
        if let Some(options) = &self.security_opt {
            few("SecurityOpt", options)?;
            for option in options {
                let known = ["no-new-privileges", "no-new-privileges:true"];
                one_of("SecurityOpt", option, &known)?;
            }
        }
        if let Some(dropped) = &self.cap_drop {
            few("CapDrop", dropped)?;
            for one in dropped {
                of("CapDrop", one, 32, |b| b.is_ascii_uppercase() || b == b'_')?;
            }
        }
        if let Some(limits) = &self.ulimits {
            few("Ulimits", limits)?;
            for limit in limits {
                of("Ulimits", &limit.name, 16, |b| b.is_ascii_lowercase())?;
            }
        }
        if let Some(tmpfs) = &self.tmpfs {
            if tmpfs.len() > MOST {
                return Err(format!("Tmpfs has more than {MOST} members"));
            }
            tmpfs
                .iter()
                .try_for_each(|(at, options)| mounted(at, options))?;
        }
        Ok(())
    }
}

/// A tmpfs, which hides nothing that keeps the container from its machine.
fn mounted(at: &str, options: &Text) -> Checked {
    let parts: Vec<&str> = at.split('/').skip(1).collect();
    let whole =
        at.starts_with('/') && at.len() <= 4096 && !at.chars().any(|c| c.is_control() || c == ':');
    if !whole || parts.iter().any(|part| matches!(*part, "" | "." | "..")) {
        return Err(format!(
            "Tmpfs is mounted at {at:?}; that is a whole path in its one spelling, and not /"
        ));
    }
    let kernel = matches!(parts[0], "proc" | "sys" | "dev") && at != "/dev/shm";
    if kernel {
        return Err(format!(
            "Tmpfs is mounted at {at:?}; below /proc, /sys and /dev it is /dev/shm alone"
        ));
    }
    for option in options.as_str().split(',').filter(|o| !o.is_empty()) {
        let known = ["rw", "ro", "exec", "noexec", "nosuid", "nodev"].contains(&option);
        let valued = option.split_once('=').is_some_and(|(name, value)| {
            let size = value.strip_suffix(['k', 'm', 'g', '%']).unwrap_or(value);
            let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
            match name {
                "size" => digits(size),
                "mode" | "uid" | "gid" | "nr_inodes" => digits(value),
                _ => false,
            }
        });
        if !known && !valued {
            return Err(format!(
                "Tmpfs at {at:?} has the option {option:?}; there are rw, ro, exec, noexec, nosuid, nodev, size=, mode=, \
                 uid=, gid=, nr_inodes="
            ));
        }
    }
    Ok(())
}

fn few<T>(name: &str, list: &[T]) -> Checked {
    match list.len() <= MOST {
        true => Ok(()),
        false => Err(format!("{name} has more than {MOST} items")),
    }
}

fn one_of(name: &str, value: &Text, known: &[&str]) -> Checked {
    match known.contains(&value.as_str()) {
        true => Ok(()),
        false => Err(format!(
            "{name} has {:?}; there is {}",
            value.as_str(),
            known.join(", ")
        )),
    }
}

fn of(name: &str, value: &Text, most: usize, good: impl Fn(u8) -> bool) -> Checked {
    let text = value.as_str();
    match (1..=most).contains(&text.len()) && text.bytes().all(good) {
        true => Ok(()),
        false => Err(format!(
            "{name} has {text:?}, which is none that is let through"
        )),
    }
}

/// Variables have names: an engine reads one without a value out of its own environment.
fn variables(all: &[Text]) -> Checked {
    few("Env", all)?;
    let named = |text: &Text| {
        text.as_str()
            .split_once('=')
            .is_some_and(|(name, _)| !name.is_empty())
    };
    match all.iter().all(named) {
        true => Ok(()),
        false => Err("Env has an item that is not NAME=value".to_owned()),
    }
}

fn working_dir(path: &Text) -> Checked {
    match path.as_str().starts_with('/') && path.as_str().len() <= 4096 {
        true => Ok(()),
        false => Err("WorkingDir is not a whole path of at most 4096 bytes".to_owned()),
    }
}

/// A user, and a group where there is one, by name or number.
fn user(user: &Text) -> Checked {
    of("User", user, 128, |b| {
        b.is_ascii_alphanumeric() || b"_.-:".contains(&b)
    })
}

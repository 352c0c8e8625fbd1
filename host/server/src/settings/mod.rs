//! What the server is told from outside: flags, then the environment, then a TOML file, then defaults.
//!
//! Everything is read once at start into [`Settings`]; nothing later looks at the environment again. A key
//! that the file does not know is an error, so that a typing mistake is never a silent default. Settings
//! hold paths and numbers; the one secret among them, the headers for a collector, shows nothing of itself.

mod collector;
mod environments;
mod file;
mod flags;
mod places;
mod plugins;
mod sources;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use leasehold_egress::HostRoots;

use collector::HeadersFrom;

pub use collector::{Collector, CollectorAccess};
pub use environments::{EnvironmentSettings, FileManagedSandbox, ManagedSettings};
pub use file::{FileLimits, FileSettings};
pub use flags::ServeArgs;
pub use places::Places;
pub use plugins::{BreakerSettings, FilePlugins, PluginSettings};
pub use sources::{
    ComponentSources, FileFiles, FileSource, SignedBy, SourceSettings, WrittenSignedBy,
};

/// How log lines are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// For a person at a terminal.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

/// Where TCP clients are listened for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Listen {
    /// Not at all: only the Unix socket.
    Off,
    /// Here; port 0 takes a free one.
    At(SocketAddr),
}

impl std::str::FromStr for Listen {
    type Err = String;

    fn from_str(text: &str) -> Result<Listen, String> {
        if text == "off" {
            return Ok(Listen::Off);
        }
        text.parse().map(Listen::At).map_err(|_| {
            format!(
                "`{text}` is not an address and a port; write it like 127.0.0.1:7717 or [::1]:7717, or `off`"
            )
        })
    }
}

/// How much of what the server takes before it says no.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Open connections, TCP and Unix together.
    pub connections: usize,
    /// Live WebSockets that have not yet said who they are.
    pub unauthenticated_streams: usize,
    /// A JSON body, in bytes.
    pub json_body: usize,
    /// An uploaded component, in bytes.
    pub component: usize,
    /// How long a client may take to send the head of a request, and how long a connection may idle.
    pub head_timeout: Duration,
    /// How long a client may be silent inside a body.
    pub body_timeout: Duration,
    /// How long requests that run may go on once the server was told to stop.
    pub shutdown_grace: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            connections: 1024,
            unauthenticated_streams: 64,
            json_body: 2 << 20,
            component: 64 << 20,
            head_timeout: Duration::from_secs(30),
            body_timeout: Duration::from_secs(60),
            shutdown_grace: Duration::from_secs(10),
        }
    }
}

/// The whole of it, resolved.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Database, component cache, operator token and socket live here; mode 0700.
    pub data_dir: PathBuf,
    /// The TCP side.
    pub listen: Listen,
    /// The Unix socket's path.
    pub socket: PathBuf,
    /// Host names, beyond the loopback ones, that a request may be addressed to (`name` or `name:port`).
    pub allowed_hosts: Vec<String>,
    /// The container engines that may be root on this machine.
    pub host_roots: HostRoots,
    /// The master key's file, outside of the data directory.
    pub master_key: PathBuf,
    /// How log lines are written.
    pub log_format: LogFormat,
    /// Who takes traces and metrics.
    pub collector: Option<Collector>,
    /// What is logged, in the syntax of `tracing`'s filter: `info`, `leasehold_server=debug,info`.
    pub log_level: String,
    /// The limits.
    pub limits: Limits,
    /// What any component may use and reach.
    pub plugins: PluginSettings,
    /// What of environments is there.
    pub environments: EnvironmentSettings,
}

/// A setting that cannot be.
#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    /// The settings file cannot be read.
    #[error("settings file {}: {source}", path.display())]
    Read {
        /// Which file.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// The settings file is not what it should be.
    #[error("settings file {}: {message}", path.display())]
    Parse {
        /// Which file.
        path: PathBuf,
        /// The line, the key, and what is known.
        message: String,
    },
    /// A value that the server cannot work with.
    #[error("{name}: {message}")]
    Invalid {
        /// The setting, as its flag is spelled without the dashes.
        name: &'static str,
        /// What is wrong with it and how to mend it.
        message: String,
    },
}

impl SettingsError {
    fn invalid(name: &'static str, message: impl Into<String>) -> SettingsError {
        SettingsError::Invalid {
            name,
            message: message.into(),
        }
    }
}

/// The address that is listened on unless told otherwise.
pub const DEFAULT_LISTEN: &str = "127.0.0.1:7717";

/// The largest component that can be stored: what SQLite takes as one value, less room for the rest of its row.
const LARGEST_COMPONENT: usize = 900 << 20;
/// The most connections and streams at once: as many as a process has file descriptors for, at the utmost.
const MOST_PLACES: usize = 1 << 20;
/// The longest wait, in seconds: a year.
const LONGEST_WAIT: usize = 365 * 24 * 3600;

/// The longest path that a Unix socket can be bound to on Linux, without its closing NUL.
const LONGEST_SOCKET_PATH: usize = 107;

impl Settings {
    /// Lays the sources over each other: `args` (flags, then environment, which clap has already put in that
    /// order), then the file, then the defaults of `places`.
    pub fn resolve(args: ServeArgs, places: &Places) -> Result<Settings, SettingsError> {
        let file = match &args.config {
            Some(path) => FileSettings::read(path)?,
            None => FileSettings::read_if_there(&places.settings_file)?,
        };
        let data_dir = args
            .data_dir
            .or(file.data_dir)
            .unwrap_or_else(|| places.data_dir.clone());
        if !data_dir.is_absolute() {
            return Err(SettingsError::invalid(
                "data-dir",
                format!(
                    "`{}` is not absolute; write the whole path",
                    data_dir.display()
                ),
            ));
        }
        let listen = match (args.listen, file.listen) {
            (Some(listen), _) => listen,
            (None, Some(text)) => text
                .parse()
                .map_err(|message: String| SettingsError::invalid("listen", message))?,
            (None, None) => DEFAULT_LISTEN
                .parse()
                .map_err(|message: String| SettingsError::invalid("listen", message))?,
        };
        let socket = args
            .socket
            .or(file.socket)
            .unwrap_or_else(|| data_dir.join("leasehold.sock"));
        let length = socket.as_os_str().len();
        if length > LONGEST_SOCKET_PATH {
            return Err(SettingsError::invalid(
                "socket",
                format!(
                    "`{}` has {length} bytes and a socket's path at most {LONGEST_SOCKET_PATH}; \
                     give a shorter one with --socket",
                    socket.display()
                ),
            ));
        }
        let allowed_hosts = if args.allowed_hosts.is_empty() {
            file.allowed_hosts.unwrap_or_default()
        } else {
            args.allowed_hosts
        };
        for host in &allowed_hosts {
            check_host_name(host)?;
        }
        if let Listen::At(address) = listen
            && !address.ip().is_loopback()
            && allowed_hosts.is_empty()
        {
            return Err(SettingsError::invalid(
                "listen",
                format!(
                    "{address} is reached from other machines; name the host names that clients use with \
                     --allowed-host, or listen on 127.0.0.1"
                ),
            ));
        }
        let host_roots = if args.allow_host_root.is_empty() {
            file.allow_host_root.unwrap_or_default()
        } else {
            args.allow_host_root
        };
        let host_roots = HostRoots::of(&host_roots)
            .map_err(|message| SettingsError::invalid("allow-host-root", message))?;
        let master_key = args
            .master_key
            .or(file.master_key)
            .unwrap_or_else(|| places.master_key.clone());
        if master_key.starts_with(&data_dir) {
            return Err(SettingsError::invalid(
                "master-key",
                format!(
                    "`{}` lies inside the data directory; a backup must not hold both, so keep the key elsewhere",
                    master_key.display()
                ),
            ));
        }
        let variable = args.otlp_headers.map(HeadersFrom::Variable);
        let headers = args.otlp_headers_file.map(HeadersFrom::File).or(variable);
        let headers = headers.or(file.otlp_headers_file.map(HeadersFrom::File));
        let endpoint = args.otlp_endpoint.or(file.otlp_endpoint);
        let collector = endpoint
            .filter(|url| !url.is_empty())
            .map(|url| Collector::at(&url, args.otlp_ca.or(file.otlp_ca), headers))
            .transpose()?;
        let limits = limits(args.shutdown_grace, file.limits.unwrap_or_default())?;
        let plugins = file.plugins.unwrap_or_default().resolve()?;
        let environments = environments::Said {
            enabled: args.enable_environments.or(file.enable_environments),
            managed_only: args
                .enable_managed_sandbox_only
                .or(file.enable_managed_sandbox_only),
            managed: file.managed_sandbox,
        }
        .resolve()?;
        Ok(Settings {
            data_dir,
            listen,
            socket,
            allowed_hosts,
            host_roots,
            master_key,
            collector,
            log_format: args.log_format.or(file.log_format).unwrap_or_default(),
            log_level: args
                .log_level
                .or(file.log_level)
                .unwrap_or_else(|| "info".into()),
            limits,
            plugins,
            environments,
        })
    }
}

fn limits(grace: Option<u64>, file: FileLimits) -> Result<Limits, SettingsError> {
    let default = Limits::default();
    let seconds = |value: Option<u64>, default| value.map_or(default, Duration::from_secs);
    let limits = Limits {
        connections: file.connections.unwrap_or(default.connections),
        unauthenticated_streams: file
            .unauthenticated_streams
            .unwrap_or(default.unauthenticated_streams),
        json_body: file.json_body_bytes.unwrap_or(default.json_body),
        component: file.component_bytes.unwrap_or(default.component),
        head_timeout: seconds(file.head_timeout_seconds, default.head_timeout),
        body_timeout: seconds(file.body_timeout_seconds, default.body_timeout),
        shutdown_grace: seconds(
            grace.or(file.shutdown_grace_seconds),
            default.shutdown_grace,
        ),
    };
    for (name, value) in [
        ("limits.connections", limits.connections),
        ("limits.json-body-bytes", limits.json_body),
        ("limits.component-bytes", limits.component),
    ] {
        if value == 0 {
            return Err(SettingsError::invalid(name, "must be at least 1"));
        }
    }
    for (name, value, most) in [
        ("limits.connections", limits.connections, MOST_PLACES),
        (
            "limits.unauthenticated-streams",
            limits.unauthenticated_streams,
            MOST_PLACES,
        ),
        (
            "limits.head-timeout-seconds",
            whole_seconds(limits.head_timeout),
            LONGEST_WAIT,
        ),
        (
            "limits.body-timeout-seconds",
            whole_seconds(limits.body_timeout),
            LONGEST_WAIT,
        ),
        (
            "limits.shutdown-grace-seconds",
            whole_seconds(limits.shutdown_grace),
            LONGEST_WAIT,
        ),
    ] {
        if value > most {
            return Err(SettingsError::invalid(
                name,
                format!("is {value}; it is at most {most}"),
            ));
        }
    }
    if limits.component > LARGEST_COMPONENT {
        return Err(SettingsError::invalid(
            "limits.component-bytes",
            format!(
                "is {}; it is at most {LARGEST_COMPONENT}, which is what the database keeps in one row",
                limits.component
            ),
        ));
    }
    if limits.head_timeout.is_zero() || limits.body_timeout.is_zero() {
        return Err(SettingsError::invalid(
            "limits",
            "head-timeout-seconds and body-timeout-seconds must be at least 1",
        ));
    }
    Ok(limits)
}

fn whole_seconds(time: Duration) -> usize {
    usize::try_from(time.as_secs()).unwrap_or(usize::MAX)
}

/// `name` or `name:port`, as a browser writes it into `Host`.
fn check_host_name(host: &str) -> Result<(), SettingsError> {
    if host.is_empty() {
        return Err(SettingsError::invalid(
            "allowed-host",
            "is empty; name a host, or leave it out: LEASEHOLD_ALLOWED_HOSTS is unset then, not empty",
        ));
    }
    let name = match host.rsplit_once(':') {
        Some((name, port)) if !name.ends_with(':') && port.parse::<u16>().is_ok() => name,
        _ => host,
    };
    let bare = name.strip_prefix('[').and_then(|n| n.strip_suffix(']'));
    let good = match bare {
        Some(v6) => v6.parse::<std::net::Ipv6Addr>().is_ok(),
        None => {
            !name.is_empty()
                && name
                    .bytes()
                    .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_'))
        }
    };
    if good {
        return Ok(());
    }
    Err(SettingsError::invalid(
        "allowed-host",
        format!(
            "`{host}` is not a host name; write it like leases.example.com or leases.example.com:8443"
        ),
    ))
}

#[cfg(test)]
mod tests;

//! The flags of `leasehold serve`; each has an environment variable, which the flag outweighs.

use std::path::PathBuf;

use leasehold_egress::Secret;

use super::{Listen, LogFormat, collector};

/// Start the server.
///
/// Each setting is taken from its flag, else from the environment, else from the settings file, else it has the
/// default shown. SIGINT, SIGTERM, SIGHUP and SIGQUIT end the server in order, with exit code 0; a second one ends it at
/// once, with exit code 1.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct ServeArgs {
    /// Settings file [default: $XDG_CONFIG_HOME/leasehold/leasehold.toml, for root /etc/leasehold/leasehold.toml]
    #[arg(long, value_name = "FILE", env = "LEASEHOLD_CONFIG")]
    pub config: Option<PathBuf>,

    /// Directory for the database, the cache and the socket [default: $XDG_DATA_HOME/leasehold, for root /var/lib/leasehold]
    #[arg(long, value_name = "DIR", env = "LEASEHOLD_DATA_DIR")]
    pub data_dir: Option<PathBuf>,

    /// TCP address and port, or `off`; port 0 takes a free one [default: 127.0.0.1:7717]
    #[arg(long, value_name = "ADDRESS:PORT", env = "LEASEHOLD_LISTEN")]
    pub listen: Option<Listen>,

    /// Unix socket [default: leasehold.sock in the data directory]
    #[arg(long, value_name = "PATH", env = "LEASEHOLD_SOCKET")]
    pub socket: Option<PathBuf>,

    /// A host name, beyond localhost, by which clients may address the server (repeat for more)
    #[arg(
        long = "allowed-host",
        value_name = "NAME[:PORT]",
        env = "LEASEHOLD_ALLOWED_HOSTS",
        value_delimiter = ','
    )]
    pub allowed_hosts: Vec<String>,

    /// A container engine that may be root on this machine: its socket's real path, or the URL of one that listens on
    /// this machine (repeat for more; docs/engines.md) [default: none]
    #[arg(
        long = "allow-host-root",
        value_name = "PATH",
        env = "LEASEHOLD_ALLOW_HOST_ROOT",
        value_delimiter = ','
    )]
    pub allow_host_root: Vec<String>,

    /// Master key file, made on first start [default: $XDG_CONFIG_HOME/leasehold/master.key, for root /etc/leasehold/master.key]
    #[arg(long, value_name = "FILE", env = "LEASEHOLD_MASTER_KEY")]
    pub master_key: Option<PathBuf>,

    /// How log lines are written [default: text]
    #[arg(long, value_name = "FORMAT", env = "LEASEHOLD_LOG_FORMAT")]
    pub log_format: Option<LogFormat>,

    /// What is logged: a level, or a filter like leasehold_server=debug,info [default: info]
    #[arg(long, value_name = "FILTER", env = "LEASEHOLD_LOG_LEVEL")]
    pub log_level: Option<String>,

    /// Whether there are environments; without, all that is about them is refused [default: true]
    #[arg(
        long,
        value_name = "true|false",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true",
        env = "LEASEHOLD_ENABLE_ENVIRONMENTS"
    )]
    pub enable_environments: Option<bool>,

    /// Whether the environment of the settings file's [managed-sandbox] is the only one [default: false]
    #[arg(
        long,
        value_name = "true|false",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true",
        env = "LEASEHOLD_ENABLE_MANAGED_SANDBOX_ONLY"
    )]
    pub enable_managed_sandbox_only: Option<bool>,

    /// An OpenTelemetry collector that takes traces and metrics by OTLP/HTTP, such as http://127.0.0.1:4318 or
    /// https://otel.example.org [default: none]
    #[arg(long, value_name = "URL", env = "OTEL_EXPORTER_OTLP_ENDPOINT")]
    pub otlp_endpoint: Option<String>,

    /// Certificates in PEM that the collector is trusted by, in place of the system's [default: the system's]
    #[arg(long, value_name = "FILE", env = "OTEL_EXPORTER_OTLP_CERTIFICATE")]
    pub otlp_ca: Option<PathBuf>,

    /// Headers for the collector, such as a key, in a file of mode 0600: NAME=VALUE, with commas or lines between; else
    /// they are taken from OTEL_EXPORTER_OTLP_HEADERS [default: none]
    #[arg(long, value_name = "FILE", env = "LEASEHOLD_OTLP_HEADERS_FILE")]
    pub otlp_headers_file: Option<PathBuf>,

    /// The variable's headers: they are no flag, whose value others could see.
    #[arg(skip)]
    pub otlp_headers: Option<Secret>,

    /// How long running requests may go on after a signal, in seconds [default: 10]
    #[arg(long, value_name = "SECONDS", env = "LEASEHOLD_SHUTDOWN_GRACE")]
    pub shutdown_grace: Option<u64>,
}

impl ServeArgs {
    /// The same, with what is taken from the environment alone.
    pub fn with_environment(mut self) -> ServeArgs {
        let headers = std::env::var_os(collector::HEADERS).filter(|text| !text.is_empty());
        self.otlp_headers = headers.map(|text| Secret::new(text.to_string_lossy().into_owned()));
        self
    }
}

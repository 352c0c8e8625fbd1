//! The settings file. Its keys are the flags' names; a key that is not known is an error.

use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::environments::FileManagedSandbox;
use super::plugins::FilePlugins;
use super::{LogFormat, SettingsError};

/// What the TOML file may say; everything is optional.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct FileSettings {
    /// `data-dir = "/var/lib/leasehold"`
    pub data_dir: Option<PathBuf>,
    /// `listen = "127.0.0.1:7717"` or `"off"`
    pub listen: Option<String>,
    /// `socket = "/run/leasehold/leasehold.sock"`
    pub socket: Option<PathBuf>,
    /// `allowed-hosts = ["leases.example.com"]`
    pub allowed_hosts: Option<Vec<String>>,
    /// `allow-host-root = ["/run/podman/podman.sock"]`
    pub allow_host_root: Option<Vec<String>>,
    /// `master-key = "/etc/leasehold/master.key"`
    pub master_key: Option<PathBuf>,
    /// `log-format = "json"`
    pub log_format: Option<LogFormat>,
    /// `log-level = "info"`
    pub log_level: Option<String>,
    /// `otlp-endpoint = "http://127.0.0.1:4318"`
    pub otlp_endpoint: Option<String>,
    /// `otlp-ca = "/etc/leasehold/otel-ca.pem"`
    pub otlp_ca: Option<PathBuf>,
    /// `otlp-headers-file = "/etc/leasehold/otel-headers"`
    pub otlp_headers_file: Option<PathBuf>,
    /// `[limits]`
    pub limits: Option<FileLimits>,
    /// `[plugins]`
    pub plugins: Option<FilePlugins>,
    /// `enable-environments = false`
    pub enable_environments: Option<bool>,
    /// `enable-managed-sandbox-only = true`
    pub enable_managed_sandbox_only: Option<bool>,
    /// `[managed-sandbox]`
    pub managed_sandbox: Option<FileManagedSandbox>,
}

/// The table `[limits]`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct FileLimits {
    /// Open connections.
    pub connections: Option<usize>,
    /// WebSockets that have not yet authenticated.
    pub unauthenticated_streams: Option<usize>,
    /// Largest JSON body.
    pub json_body_bytes: Option<usize>,
    /// Largest component.
    pub component_bytes: Option<usize>,
    /// Time for a request's head, and for an idle connection.
    pub head_timeout_seconds: Option<u64>,
    /// Longest silence inside a body.
    pub body_timeout_seconds: Option<u64>,
    /// Time for running requests after a signal.
    pub shutdown_grace_seconds: Option<u64>,
}

impl FileSettings {
    /// Reads the file; one that is missing is an error.
    pub fn read(path: &Path) -> Result<FileSettings, SettingsError> {
        let text = std::fs::read_to_string(path).map_err(|source| SettingsError::Read {
            path: path.to_owned(),
            source,
        })?;
        FileSettings::parse(path, &text)
    }

    /// Reads the file; one that is missing says nothing.
    pub fn read_if_there(path: &Path) -> Result<FileSettings, SettingsError> {
        match std::fs::read_to_string(path) {
            Ok(text) => FileSettings::parse(path, &text),
            Err(e)
                if matches!(
                    e.kind(),
                    std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory
                ) =>
            {
                Ok(FileSettings::default())
            }
            Err(source) => Err(SettingsError::Read {
                path: path.to_owned(),
                source,
            }),
        }
    }

    fn parse(path: &Path, text: &str) -> Result<FileSettings, SettingsError> {
        toml::from_str(text).map_err(|e| SettingsError::Parse {
            path: path.to_owned(),
            message: e.to_string().trim_end().to_owned(),
        })
    }
}

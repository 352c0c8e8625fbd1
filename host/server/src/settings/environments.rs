//! Whether there are environments at all, and the one that the server itself keeps: `enable-environments`,
//! `enable-managed-sandbox-only` and the table `[managed-sandbox]`.
//!
//! The configuration is a provider's to check, once that is there; it holds references to secrets, never a secret.

use serde::Deserialize;
use serde_json::{Map, Value};

use super::SettingsError;

/// What of environments is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EnvironmentSettings {
    /// Whether anything about environments is answered. Leases that exist go on, and can be released.
    pub enabled: bool,
    /// Whether the managed environment is the only one that anybody sees and uses.
    pub managed_only: bool,
    /// The managed environment.
    pub managed: Option<ManagedSettings>,
}

impl Default for EnvironmentSettings {
    fn default() -> EnvironmentSettings {
        EnvironmentSettings {
            enabled: true,
            managed_only: false,
            managed: None,
        }
    }
}

/// The environment that the server makes and keeps as these settings say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ManagedSettings {
    /// Its name.
    pub name: String,
    /// The key of a provider of driver `sandbox`.
    pub provider: String,
    /// By the provider's schema.
    pub config: Map<String, Value>,
}

/// The table `[managed-sandbox]`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct FileManagedSandbox {
    /// `provider = "daytona"`
    pub provider: String,
    /// `name = "sandbox"`, which is the default
    pub name: Option<String>,
    /// `[managed-sandbox.config]`, by the provider's schema
    #[serde(default)]
    pub config: Map<String, Value>,
}

impl FileManagedSandbox {
    fn resolve(self) -> Result<ManagedSettings, SettingsError> {
        let key = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        let provider = self.provider;
        if provider.is_empty() || provider.len() > 63 || !provider.chars().all(key) {
            return Err(SettingsError::invalid(
                "managed-sandbox.provider",
                format!("`{provider}` is not a provider's key; it is 1 to 63 of a-z, 0-9 and -"),
            ));
        }
        let name = self.name.unwrap_or_else(|| "sandbox".to_owned());
        if name.trim().is_empty() || name.chars().count() > 90 || name.chars().any(char::is_control)
        {
            return Err(SettingsError::invalid(
                "managed-sandbox.name",
                "is no name; it is 1 to 90 characters",
            ));
        }
        Ok(ManagedSettings {
            name,
            provider,
            config: self.config,
        })
    }
}

/// What flags, else the file, say of it.
pub(super) struct Said {
    pub enabled: Option<bool>,
    pub managed_only: Option<bool>,
    pub managed: Option<FileManagedSandbox>,
}

impl Said {
    pub(super) fn resolve(self) -> Result<EnvironmentSettings, SettingsError> {
        let settings = EnvironmentSettings {
            enabled: self.enabled.unwrap_or(true),
            managed_only: self.managed_only.unwrap_or(false),
            managed: self.managed.map(FileManagedSandbox::resolve).transpose()?,
        };
        if settings.managed_only && settings.managed.is_none() {
            return Err(SettingsError::invalid(
                "enable-managed-sandbox-only",
                "leaves nothing to lease, as no [managed-sandbox] is set; set one, or leave this out",
            ));
        }
        Ok(settings)
    }
}

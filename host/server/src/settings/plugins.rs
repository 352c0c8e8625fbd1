//! What any component may use and reach on this server, where it may come from, and when one that fails again and again is
//! left alone.
//!
//! A grant is bounded by it, whatever an administrator allowed.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use leasehold_contract::Ceiling;
use leasehold_runtime::Ceilings;
use serde::Deserialize;

use super::SettingsError;
use super::sources::{ComponentSources, FileFiles, FileSource, Written};

/// The ceilings, and the breaker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PluginSettings {
    /// The most that any call may use.
    pub ceilings: Ceilings,
    /// Whether any component may open SSH sessions.
    pub allow_ssh: bool,
    /// Whether any component may open streams.
    pub allow_streams: bool,
    /// Whether any component may reach origins beyond the endpoints of an environment.
    pub allow_origins: bool,
    /// When new leases of a provider are stopped.
    pub breaker: BreakerSettings,
    /// Where components may come from.
    pub sources: ComponentSources,
}

impl Default for PluginSettings {
    fn default() -> PluginSettings {
        PluginSettings {
            ceilings: Ceilings::default(),
            allow_ssh: true,
            allow_streams: true,
            allow_origins: true,
            breaker: BreakerSettings::default(),
            sources: ComponentSources::default(),
        }
    }
}

impl PluginSettings {
    /// The bound of every grant.
    pub fn ceiling(&self) -> Ceiling {
        Ceiling {
            ssh: self.allow_ssh,
            streams: self.allow_streams,
            origins: self.allow_origins,
            limits: leasehold_contract::Limits {
                memory_mib: self.ceilings.memory_mib,
                cpu: u32::try_from(self.ceilings.cpu.as_millis()).unwrap_or(u32::MAX),
                exchanges: self.ceilings.exchanges,
                body_mib: self.ceilings.body_mib,
            },
        }
    }
}

/// When a provider that fails takes no new leases, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BreakerSettings {
    /// So many calls of one revision that crashed, ran into a limit or hung,
    pub failures: u32,
    /// within so long, trip it,
    pub window: Duration,
    /// for so long the first time and twice as long each time that its trial fails,
    pub backoff: Duration,
    /// and never longer than this.
    pub longest: Duration,
}

impl Default for BreakerSettings {
    fn default() -> BreakerSettings {
        BreakerSettings {
            failures: 10,
            window: Duration::from_secs(60),
            backoff: Duration::from_secs(10),
            longest: Duration::from_secs(600),
        }
    }
}

/// The table `[plugins]`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct FilePlugins {
    /// Memory of one call.
    pub memory_mib: Option<u32>,
    /// CPU time of one call.
    pub cpu_ms: Option<u32>,
    /// Requests of one call.
    pub exchanges: Option<u32>,
    /// Largest buffered body of one call.
    pub body_mib: Option<u32>,
    /// `false`: no component opens SSH sessions.
    pub allow_ssh: Option<bool>,
    /// `false`: no component opens streams.
    pub allow_streams: Option<bool>,
    /// `false`: no component reaches more than the endpoints of its environment.
    pub allow_origins: Option<bool>,
    /// Failed calls that trip the breaker.
    pub breaker_failures: Option<u32>,
    /// The time in which they count.
    pub breaker_window_seconds: Option<u64>,
    /// How long it is left alone the first time.
    pub breaker_backoff_seconds: Option<u64>,
    /// How long at most.
    pub breaker_longest_backoff_seconds: Option<u64>,
    /// How long a pull from a registry may take.
    pub pull_seconds: Option<u64>,
    /// `[plugins.keys]`: files with public keys.
    pub keys: Option<BTreeMap<String, PathBuf>>,
    /// `[plugins.files]`
    pub files: Option<FileFiles>,
    /// `[[plugins.sources]]`
    pub sources: Option<Vec<FileSource>>,
}

impl FilePlugins {
    /// Laid over the defaults.
    pub(super) fn resolve(self) -> Result<PluginSettings, SettingsError> {
        let default = PluginSettings::default();
        let seconds = |value: Option<u64>, default| value.map_or(default, Duration::from_secs);
        let settings = PluginSettings {
            ceilings: Ceilings {
                memory_mib: self.memory_mib.unwrap_or(default.ceilings.memory_mib),
                cpu: self.cpu_ms.map_or(default.ceilings.cpu, |ms| {
                    Duration::from_millis(u64::from(ms))
                }),
                exchanges: self.exchanges.unwrap_or(default.ceilings.exchanges),
                body_mib: self.body_mib.unwrap_or(default.ceilings.body_mib),
                ..default.ceilings
            },
            allow_ssh: self.allow_ssh.unwrap_or(true),
            allow_streams: self.allow_streams.unwrap_or(true),
            allow_origins: self.allow_origins.unwrap_or(true),
            breaker: BreakerSettings {
                failures: self.breaker_failures.unwrap_or(default.breaker.failures),
                window: seconds(self.breaker_window_seconds, default.breaker.window),
                backoff: seconds(self.breaker_backoff_seconds, default.breaker.backoff),
                longest: seconds(
                    self.breaker_longest_backoff_seconds,
                    default.breaker.longest,
                ),
            },
            sources: Written {
                keys: self.keys,
                files: self.files,
                sources: self.sources,
                pull_seconds: self.pull_seconds,
            }
            .resolve()?,
        };
        settings.check()?;
        Ok(settings)
    }
}

impl PluginSettings {
    fn check(&self) -> Result<(), SettingsError> {
        let ceilings = &self.ceilings;
        if !(1..=4096).contains(&ceilings.memory_mib) {
            return Err(SettingsError::invalid(
                "plugins.memory-mib",
                format!("is {}; it is 1 to 4096", ceilings.memory_mib),
            ));
        }
        if ceilings.cpu.is_zero() {
            return Err(SettingsError::invalid(
                "plugins.cpu-ms",
                "must be at least 1",
            ));
        }
        let breaker = &self.breaker;
        if !(1..=1000).contains(&breaker.failures) {
            return Err(SettingsError::invalid(
                "plugins.breaker-failures",
                format!("is {}; it is 1 to 1000", breaker.failures),
            ));
        }
        if breaker.window.is_zero() || breaker.backoff.is_zero() {
            return Err(SettingsError::invalid(
                "plugins",
                "breaker-window-seconds and breaker-backoff-seconds must be at least 1",
            ));
        }
        if breaker.longest < breaker.backoff {
            return Err(SettingsError::invalid(
                "plugins.breaker-longest-backoff-seconds",
                format!(
                    "is {}; it is no less than breaker-backoff-seconds, {}",
                    breaker.longest.as_secs(),
                    breaker.backoff.as_secs()
                ),
            ));
        }
        Ok(())
    }
}

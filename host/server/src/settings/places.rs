//! Where files lie when nobody says: the XDG base directories, and the system's own for root.

use std::ffi::OsString;
use std::path::PathBuf;

/// The default paths.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Places {
    /// The settings file; it need not be there.
    pub settings_file: PathBuf,
    /// The data directory.
    pub data_dir: PathBuf,
    /// The master key.
    pub master_key: PathBuf,
}

impl Places {
    /// The defaults of this process.
    pub fn of_this_user() -> Places {
        Places::of(rustix::process::geteuid().is_root(), |name| {
            std::env::var_os(name)
        })
    }

    /// The defaults for root, or for a user with this environment. Relative values count as unset, as the
    /// XDG specification says.
    pub fn of(root: bool, variable: impl Fn(&str) -> Option<OsString>) -> Places {
        let directory = |name: &str| {
            variable(name)
                .map(PathBuf::from)
                .filter(|path| path.is_absolute())
        };
        let home = || directory("HOME").unwrap_or_else(|| PathBuf::from("/"));
        // An explicit XDG variable is followed by root too; the system's places are only its default.
        let config = match directory("XDG_CONFIG_HOME") {
            Some(base) => base.join("leasehold"),
            None if root => PathBuf::from("/etc/leasehold"),
            None => home().join(".config/leasehold"),
        };
        let data_dir = match directory("XDG_DATA_HOME") {
            Some(base) => base.join("leasehold"),
            None if root => PathBuf::from("/var/lib/leasehold"),
            None => home().join(".local/share/leasehold"),
        };
        Places {
            settings_file: config.join("leasehold.toml"),
            data_dir,
            master_key: config.join("master.key"),
        }
    }
}

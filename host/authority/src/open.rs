//! Opening an authority: the replica's lock, the master key, the database, and that the two belong together.
//!
//! A change of the master key that a crash broke off after the database had the new one is ended here.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use cap_std::fs::Dir;
use sqlx::SqliteConnection;
use zeroize::Zeroizing;

use crate::activity::{self, Activity, Denials};
use crate::assignment::Assignees;
use crate::company::Companies;
use crate::environment::{EnvironmentMemory, Environments};
use crate::error::{Error, Result};
use crate::execution::Executions;
use crate::idempotency::{self, Idempotency};
use crate::instance::identify;
use crate::keys::{Keys, MasterKey, MasterKeyError, default_path};
use crate::lease::{ClockGuard, Leases};
use crate::plugin::Plugins;
use crate::rekey;
use crate::secret::{AccessLog, NamedUses, Secrets};
use crate::store::{self, Store, WriterParts};
use crate::token::{TokenMemory, Tokens};

/// Where everything lies.
#[derive(Debug)]
pub struct Options {
    /// The SQLite database's file. Made when it does not exist.
    pub database: PathBuf,
    /// The data directory; the master key may not lie in it.
    pub data_dir: Dir,
    /// The master key's file. Made on first start.
    pub master_key: PathBuf,
    /// The name of this server among those of one database, 1 to 40 of `a-z0-9-`. One process at a time has
    /// it: its work of before is taken up again by whoever opens under the same name.
    pub replica: String,
}

impl Options {
    /// Where the master key lies unless somebody says otherwise: `/etc/leasehold/master.key` for root, else
    /// `leasehold/master.key` in `$XDG_CONFIG_HOME` or `~/.config`.
    pub fn default_master_key() -> Option<PathBuf> {
        default_path()
    }
}

/// Why an authority did not open. Its text says what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The master key cannot be had.
    #[error(transparent)]
    MasterKey(#[from] MasterKeyError),
    /// The master key belongs to another database.
    #[error(
        "master key {master_key:?} is not the one of database {database:?}: give the key that this database was made with"
    )]
    WrongMasterKey {
        /// The key's file.
        master_key: PathBuf,
        /// The database's file.
        database: PathBuf,
    },
    /// The replica's name is none.
    #[error("replica name {0:?} must be 1 to 40 of a-z, 0-9 and -")]
    ReplicaName(String),
    /// Another process has this replica's name.
    #[error(
        "another server runs as replica {0:?} on this data directory: stop it, or choose another name"
    )]
    ReplicaRunning(String),
    /// The database's schema is not one that this version can work with.
    #[error("database {database:?} cannot be brought to this version's schema: {error}")]
    Schema {
        /// The database's file.
        database: PathBuf,
        /// What failed.
        error: sqlx::migrate::MigrateError,
    },
    /// A file cannot be made or read.
    #[error("{path:?}: {error}")]
    Io {
        /// The file.
        path: PathBuf,
        /// What failed.
        error: std::io::Error,
    },
    /// There is no database whose key could be changed.
    #[error("database {0:?} does not exist: there is nothing whose master key could be changed")]
    NoDatabase(PathBuf),
    /// The database failed.
    #[error("database {database:?}: {error}")]
    Storage {
        /// The database's file.
        database: PathBuf,
        /// What failed.
        error: Box<Error>,
    },
}

/// What only the host may decide and write. Cheap to clone.
#[derive(Clone)]
pub struct Authority {
    shared: Arc<Shared>,
}

struct Shared {
    store: Arc<Store>,
    keys: Arc<Keys>,
    host: Arc<str>,
    incarnation: Arc<str>,
    replica: Arc<str>,
    tokens: Arc<TokenMemory>,
    environments: Arc<EnvironmentMemory>,
    guard: Arc<Mutex<ClockGuard>>,
    accesses: Arc<AccessLog>,
    denials: Arc<Denials>,
    named: Arc<NamedUses>,
    started: Instant,
    /// Held for as long as the authority is; the lock goes with the process.
    _lock: std::fs::File,
}

impl std::fmt::Debug for Authority {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Authority")
            .field("host", &self.shared.host)
            .field("replica", &self.shared.replica)
            .finish_non_exhaustive()
    }
}

fn lock_file(data_dir: &Dir, name: &str) -> Result<std::fs::File, OpenError> {
    use cap_std::fs::OpenOptionsExt as _;
    let mut options = cap_std::fs::OpenOptions::new();
    options.write(true).create(true).truncate(false).mode(0o600);
    data_dir
        .open_with(name, &options)
        .map(cap_std::fs::File::into_std)
        .map_err(|error| OpenError::Io {
            path: PathBuf::from(name),
            error,
        })
}

/// The lock of a replica's name; it goes with the process.
pub(crate) fn lock(data_dir: &Dir, replica: &str) -> Result<std::fs::File, OpenError> {
    let name = format!("replica-{replica}.lock");
    let file = lock_file(data_dir, &name)?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(std::fs::TryLockError::WouldBlock) => {
            Err(OpenError::ReplicaRunning(replica.to_owned()))
        }
        Err(std::fs::TryLockError::Error(error)) => Err(OpenError::Io {
            path: PathBuf::from(name),
            error,
        }),
    }
}

/// Waits until no other server of this data directory is opening.
pub(crate) async fn turn(data_dir: &Dir) -> Result<std::fs::File, OpenError> {
    const NAME: &str = "open.lock";
    let file = lock_file(data_dir, NAME)?;
    let locked = tokio::task::spawn_blocking(move || file.lock().map(|()| file)).await;
    locked
        .unwrap_or_else(|e| Err(std::io::Error::other(e)))
        .map_err(|error| OpenError::Io {
            path: PathBuf::from(NAME),
            error,
        })
}

impl Authority {
    /// Opens the database, or makes it and the master key on first start. What this replica worked on when
    /// it last ended is free to be claimed again.
    pub async fn open(options: Options) -> Result<Authority, OpenError> {
        let Options {
            database,
            data_dir,
            master_key,
            replica,
        } = options;
        let good = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        if replica.is_empty() || replica.len() > 40 || !replica.chars().all(good) {
            return Err(OpenError::ReplicaName(replica));
        }
        let lock = lock(&data_dir, &replica)?;
        // One at a time looks whether there is a database, and makes it and its key.
        let opening = turn(&data_dir).await?;
        let io = |error| OpenError::Io {
            path: database.clone(),
            error,
        };
        let storage = |error| OpenError::Storage {
            database: database.clone(),
            error: Box::new(error),
        };
        let exists = store::exists(&database).map_err(io)?;
        let master = MasterKey::open(&master_key, &data_dir, !exists)?;
        store::create_file(&database).map_err(io)?;
        let mut connection =
            store::connect(&database)
                .await
                .map_err(|error| OpenError::Schema {
                    database: database.clone(),
                    error,
                })?;
        let opened = async {
            let instance = match identify(&mut connection, &master).await.map_err(storage)? {
                Some(instance) => instance,
                None => {
                    rekey::end(&mut connection, &database, &master, &master_key, &data_dir)
                        .await?
                        .0
                }
            };
            lapse_claims(&mut connection, &replica)
                .await
                .map_err(storage)?;
            let head = activity::stored_head(&mut connection, &replica)
                .await
                .map_err(storage)?;
            Ok::<_, OpenError>((instance, head))
        };
        let (instance, head) = match opened.await {
            Ok(found) => found,
            Err(error) => {
                store::discard(connection).await;
                return Err(error);
            }
        };
        drop(opening);
        let keys = Arc::new(instance.keys);
        let replica: Arc<str> = replica.into();
        let store = Store::new(
            &database,
            connection,
            WriterParts {
                keys: Arc::clone(&keys),
                replica: Arc::clone(&replica),
                head,
            },
        )
        .await
        .map_err(storage)?;
        Ok(Authority {
            shared: Arc::new(Shared {
                store: Arc::new(store),
                keys,
                host: instance.host.into(),
                incarnation: instance.incarnation.into(),
                replica,
                tokens: Arc::default(),
                environments: Arc::default(),
                guard: Arc::default(),
                accesses: Arc::default(),
                denials: Arc::default(),
                named: Arc::default(),
                started: Instant::now(),
                _lock: lock,
            }),
        })
    }

    /// Ends after what is under way, and closes the database. Later calls answer [`Error::Closed`].
    pub async fn close(&self) {
        if let Err(error) = self.shared.accesses.flush(&self.shared.store).await
            && !matches!(error, Error::Closed)
        {
            tracing::error!(%error, "the last accesses of secrets are not recorded");
        }
        if let Err(error) = self.shared.denials.flush(&self.shared.store, true).await
            && !matches!(error, Error::Closed)
        {
            tracing::error!(%error, "the last refusals are not recorded");
        }
        self.shared.store.close().await;
    }

    /// The tenants.
    pub fn companies(&self) -> Companies {
        Companies {
            store: Arc::clone(&self.shared.store),
        }
    }

    /// The bearer tokens.
    pub fn tokens(&self) -> Tokens {
        Tokens {
            store: Arc::clone(&self.shared.store),
            keys: Arc::clone(&self.shared.keys),
            memory: Arc::clone(&self.shared.tokens),
            activity: self.activity(),
        }
    }

    /// The plugins.
    pub fn plugins(&self) -> Plugins {
        Plugins {
            store: Arc::clone(&self.shared.store),
            keys: Arc::clone(&self.shared.keys),
            environments: Arc::clone(&self.shared.environments),
        }
    }

    /// The secrets.
    pub fn secrets(&self) -> Secrets {
        Secrets {
            store: Arc::clone(&self.shared.store),
            keys: Arc::clone(&self.shared.keys),
            environments: Arc::clone(&self.shared.environments),
            accesses: Arc::clone(&self.shared.accesses),
            named: Arc::clone(&self.shared.named),
        }
    }

    /// The environments.
    pub fn environments(&self) -> Environments {
        Environments {
            store: Arc::clone(&self.shared.store),
            keys: Arc::clone(&self.shared.keys),
            memory: Arc::clone(&self.shared.environments),
        }
    }

    /// Whom and what environments are assigned to.
    pub fn assignees(&self) -> Assignees {
        Assignees {
            store: Arc::clone(&self.shared.store),
            keys: Arc::clone(&self.shared.keys),
            environments: Arc::clone(&self.shared.environments),
        }
    }

    /// The leases.
    pub fn leases(&self) -> Leases {
        Leases {
            store: Arc::clone(&self.shared.store),
            keys: Arc::clone(&self.shared.keys),
            host: Arc::clone(&self.shared.host),
            incarnation: Arc::clone(&self.shared.incarnation),
            guard: Arc::clone(&self.shared.guard),
            started: self.shared.started,
        }
    }

    /// The executions.
    pub fn executions(&self) -> Executions {
        Executions {
            store: Arc::clone(&self.shared.store),
            leases: self.leases(),
        }
    }

    /// The activity.
    pub fn activity(&self) -> Activity {
        Activity {
            store: Arc::clone(&self.shared.store),
            keys: Arc::clone(&self.shared.keys),
            replica: Arc::clone(&self.shared.replica),
            denials: Arc::clone(&self.shared.denials),
        }
    }

    /// The idempotency keys of requests.
    pub fn idempotency(&self) -> Idempotency {
        Idempotency {
            store: Arc::clone(&self.shared.store),
            keys: Arc::clone(&self.shared.keys),
        }
    }

    /// The key that authenticates the runtime's cache of compiled components.
    pub fn aot_key(&self) -> Zeroizing<[u8; 32]> {
        self.shared.keys.aot.clone()
    }

    /// The id of this host: what stands in its labels.
    pub fn host(&self) -> &str {
        &self.shared.host
    }

    /// What makes this database this one.
    pub fn incarnation(&self) -> &str {
        &self.shared.incarnation
    }

    /// The name of this replica.
    pub fn replica(&self) -> &str {
        &self.shared.replica
    }

    /// The database's wall time, milliseconds since the epoch.
    pub async fn now(&self) -> Result<i64> {
        self.shared.store.now().await
    }
}

/// Nobody works under this replica's name yet: what it claimed before is free.
async fn lapse_claims(db: &mut SqliteConnection, replica: &str) -> Result<()> {
    sqlx::query("UPDATE leases SET claimed_until = NULL WHERE claimed_by = $1 AND claimed_until IS NOT NULL")
        .bind(replica)
        .execute(&mut *db)
        .await?;
    sqlx::query(
        "UPDATE executions SET claimed_until = NULL WHERE claimed_by = $1 AND claimed_until IS NOT NULL",
    )
    .bind(replica)
    .execute(&mut *db)
    .await?;
    idempotency::lapse(db, replica).await
}

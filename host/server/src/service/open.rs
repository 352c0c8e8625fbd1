//! From a data directory to a service: authority, cache of compiled components, runtime, egress.

use std::path::PathBuf;
use std::sync::Arc;

use cap_std::fs::{Dir, DirBuilder, DirBuilderExt};
use leasehold_authority::{Actor, Authority, Options, Rekeyed};
use leasehold_egress::SshSettings;
use leasehold_runtime::{Cache, Failure, Runtime, Settings};

use super::Service;
use super::error::ServiceError;

/// Where a service's own files are.
#[derive(Debug)]
pub struct ServiceOptions {
    /// The data directory.
    pub data_dir: Dir,
    /// Its path: SQLite opens its file by name.
    pub data_path: PathBuf,
    /// The master key's file, outside the data directory.
    pub master_key: PathBuf,
}

/// Why a service did not open.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The database, or the master key.
    #[error(transparent)]
    Authority(#[from] leasehold_authority::OpenError),
    /// The directory of compiled components.
    #[error("the cache of compiled components in the data directory: {0}")]
    Cache(std::io::Error),
    /// Components cannot run here.
    #[error(transparent)]
    Runtime(#[from] Failure),
    /// What is there cannot be worked on.
    #[error(transparent)]
    Service(#[from] ServiceError),
}

/// The database's file in the data directory.
const DATABASE: &str = "leasehold.db";
/// The directory of compiled components in the data directory.
const COMPILED: &str = "compiled";

fn options_of(options: ServiceOptions) -> Options {
    Options {
        database: options.data_path.join(DATABASE),
        data_dir: options.data_dir,
        master_key: options.master_key,
        replica: "main".to_owned(),
    }
}

/// Gives the database of a service that does not run another master key.
///
/// # Errors
/// The authority's; see [`Authority::rekey`].
pub async fn rekey(options: ServiceOptions) -> Result<Rekeyed, OpenError> {
    let by = Actor::local_operator();
    Ok(Authority::rekey(options_of(options), &by).await?)
}

impl Service {
    /// Opens everything and begins to work. Ready when it returns.
    ///
    /// # Errors
    /// Each names the file and the mend; nothing is left running.
    pub async fn open(options: ServiceOptions) -> Result<Service, OpenError> {
        let mut builder = DirBuilder::new();
        builder.mode(0o700).recursive(true);
        options
            .data_dir
            .create_dir_with(COMPILED, &builder)
            .map_err(OpenError::Cache)?;
        let compiled = options
            .data_dir
            .open_dir(COMPILED)
            .map_err(OpenError::Cache)?;
        let authority = Authority::open(options_of(options)).await?;
        let cache = Cache::new(compiled, *authority.aot_key());
        let runtime = Runtime::new(Settings {
            cache: Some(Arc::new(cache)),
            ..Settings::default()
        })?;
        let service = Service::new(authority, runtime, SshSettings::default());
        service.start().await?;
        Ok(service)
    }
}

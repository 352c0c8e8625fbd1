//! From an authority and a data directory to a service: cache of compiled components, runtime, egress.

use std::sync::Arc;

use bytes::Bytes;
use cap_std::fs::{Dir, DirBuilder, DirBuilderExt};
use leasehold_authority::{Authority, SignaturePolicy, SigningKey, Source};
use leasehold_egress::{HostRoots, HttpSettings, SshSettings};
use leasehold_runtime::{Allocation, Cache, Failure, Runtime, Settings};

use super::error::ServiceError;
use super::sources::{Sources, SourcesError};
use super::{PluginOffer, Service, offer};
use crate::settings::{EnvironmentSettings, PluginSettings};

/// What a service is made of and works within.
#[derive(Debug)]
pub struct ServiceOptions {
    /// The authority, open.
    pub authority: Authority,
    /// The data directory.
    pub data_dir: Dir,
    /// The largest component that is taken, in bytes.
    pub component_bytes: usize,
    /// What any component may use and reach.
    pub plugins: PluginSettings,
    /// The container engines that may be root on this machine.
    pub host_roots: HostRoots,
    /// What of environments is there.
    pub environments: EnvironmentSettings,
}

/// Looks at a component without a server: everything is checked as at an installation, nothing is stored; and where a key
/// and a signature are given, that it is signed by that key.
///
/// # Errors
/// What would keep it from being installed, under the ceilings that a server has by default.
pub async fn inspect(
    bytes: Bytes,
    signed: Option<(SigningKey, String)>,
) -> Result<PluginOffer, ServiceError> {
    let signed = match signed {
        None => None,
        Some((key, signature)) => SignaturePolicy::SignedBy(vec![key])
            .sent(&bytes, Some(&signature))
            .map_err(|why| ServiceError::Unsigned {
                what: "the component".to_owned(),
                why,
            })?,
    };
    let runtime = Runtime::new(Settings {
        allocation: Allocation::OnDemand,
        ..Settings::default()
    })
    .map_err(|failure| ServiceError::of("looking at the component", failure))?;
    let size = bytes.len() as u64;
    let source = Source {
        registry: None,
        signed,
    };
    Ok(offer::of(runtime.prepare(bytes).await?, size, source))
}

/// Why a service did not open.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The directory of compiled components.
    #[error("the cache of compiled components in the data directory: {0}")]
    Cache(std::io::Error),
    /// Components cannot run here.
    #[error(transparent)]
    Runtime(#[from] Failure),
    /// Where components may come from.
    #[error(transparent)]
    Sources(#[from] SourcesError),
    /// What is there cannot be worked on.
    #[error(transparent)]
    Service(#[from] ServiceError),
}

/// The directory of compiled components in the data directory.
const COMPILED: &str = "compiled";

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
        let authority = options.authority;
        let sources = Sources::open(
            &options.plugins.sources,
            options.component_bytes,
            authority.clone(),
        )?;
        let cache = Cache::new(compiled, *authority.aot_key());
        let runtime = Runtime::new(Settings {
            cache: Some(Arc::new(cache)),
            ceilings: options.plugins.ceilings,
            component_bytes: options.component_bytes,
            ..Settings::default()
        })?;
        let service = Service::new(
            authority,
            runtime,
            SshSettings::default(),
            HttpSettings {
                host_roots: options.host_roots,
                ..HttpSettings::default()
            },
            &options.plugins,
            sources,
            options.environments,
        );
        service.start().await?;
        Ok(service)
    }
}

//! Orchestration: what the authority decided is done by components, through egress, and looked at by the host itself.
//!
//! [`Service`] is what the API calls. It trusts that the caller may do what it asks (`access` decides that, and the
//! authority checks companies again) and never speaks HTTP. Work that changes a lease runs in tasks of its own, which a
//! client's disconnect does not end and a shutdown waits for.

mod administration;
mod breaker;
mod calls;
mod capability;
mod checks;
mod choosing;
mod configuration;
mod context;
mod contexts;
mod endings;
mod endpoints;
mod engines;
mod environments;
mod error;
mod executions;
mod files;
mod gates;
mod leasing;
mod loaded;
mod managed;
mod model;
mod narrowing;
mod offer;
mod open;
mod places;
mod plugins;
mod precondition;
mod probe;
mod progress;
mod proving;
mod secrets;
mod selection;
mod sources;
mod teardown;
mod turns;
mod values;
mod web;
mod whose;
mod workers;

use std::collections::{BTreeMap, HashSet};
use std::future::Future;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use leasehold_authority::{Authority, Environment, Status};
use leasehold_egress::{HostRoots, HttpSettings, PoolScope, Ssh, SshSettings, Transport};
use leasehold_runtime::{Runtime, Stats};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::Instrument;

pub(crate) use capability::{Capability, Effective, Set};
pub(crate) use choosing::{Assigned, Chosen, NotLeased, Tried};
pub use error::ServiceError;
pub use executions::{ExecOutput, RunningExecution};
pub use leasehold_authority::{EnvironmentDraft, EnvironmentPatch};
pub(crate) use model::EnvironmentCapabilities;
pub use model::{
    AcquireRequest, Capabilities, ExecEvent, ExecRequest, GrantRequest, Health, HostKeyShown,
    Narrowing, OneShot, PendingOffer, PluginDetails, PluginOffer, ProbeReport,
    ProviderCapabilities, Withheld,
};
pub(crate) use offer::read_parts;
pub use open::{OpenError, ServiceOptions, inspect};
pub use precondition::{Precondition, entity_tag};
pub(crate) use selection::{Candidate, Excluded, Lack, Platform, Requirement, Selection};
pub(crate) use sources::key as signing_key;
pub use sources::{Offered, SourcesError};

pub use progress::{Progress, Watched};

use crate::settings::{EnvironmentSettings, PluginSettings};
use calls::{ForLease, Kind, Prepared, Ways};
use context::Context;
use contexts::Contexts;
use gates::Gates;
use plugins::Catalog;
use progress::Board;
use sources::Sources;
use turns::Turns;

/// The orchestrator. Cheap to clone.
#[derive(Clone)]
pub struct Service {
    inner: Arc<Inner>,
}

struct Inner {
    authority: Authority,
    catalog: Catalog,
    sources: Sources,
    environments: EnvironmentSettings,
    /// Held by whoever makes the managed environment what it should be.
    keeping: tokio::sync::Mutex<()>,
    ways: Ways,
    /// The container engines that may be root on this machine.
    host_roots: HostRoots,
    gates: Gates,
    contexts: Contexts,
    turns: Turns,
    board: Board,
    /// Executions whose stream this process reads.
    attached: Mutex<HashSet<String>>,
    /// Whether there may be executions without an end that this process reads no stream of.
    unattached: AtomicBool,
    tasks: TaskTracker,
    stopping: CancellationToken,
    woken: Notify,
    ready: AtomicBool,
}

impl std::fmt::Debug for Service {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Service")
    }
}

/// What the service counts.
#[derive(Clone, Debug)]
pub struct ServiceStats {
    /// Calls of all components.
    pub calls: Stats,
    /// Calls by provider key.
    pub calls_by_provider: BTreeMap<String, Stats>,
    /// How the current revisions do, by provider key.
    pub health: BTreeMap<String, Health>,
    /// Leases by status.
    pub leases: BTreeMap<Status, i64>,
    /// Executions whose stream is read now.
    pub executions: usize,
    /// Pooled SSH connections.
    pub ssh_connections: usize,
}

impl Service {
    /// A service on these parts. It serves nothing until [`Service::start`] has run.
    pub(crate) fn new(
        authority: Authority,
        runtime: Runtime,
        ssh: SshSettings,
        http: HttpSettings,
        plugins: &PluginSettings,
        sources: Sources,
        environments: EnvironmentSettings,
    ) -> Service {
        let tasks = TaskTracker::new();
        Service {
            inner: Arc::new(Inner {
                catalog: Catalog::new(
                    authority.clone(),
                    runtime,
                    plugins.ceiling(),
                    plugins.breaker,
                    tasks.clone(),
                ),
                sources,
                environments,
                keeping: tokio::sync::Mutex::default(),
                authority,
                host_roots: http.host_roots.clone(),
                ways: Ways {
                    ssh: Ssh::new(ssh),
                    http: Transport::new(http),
                },
                gates: Gates::default(),
                contexts: Contexts::default(),
                turns: Turns::default(),
                board: Board::default(),
                attached: Mutex::default(),
                unattached: AtomicBool::new(true),
                tasks,
                stopping: CancellationToken::new(),
                woken: Notify::new(),
                ready: AtomicBool::new(false),
            }),
        }
    }

    /// Loads the installed plugins and begins to work on what is due. Ready when it returns.
    ///
    /// # Errors
    /// The authority's. A plugin that does not load is logged and not offered.
    pub async fn start(&self) -> Result<(), ServiceError> {
        let plugins = self.inner.catalog.load_all().await?;
        self.stand().await?;
        self.background(self.clone().mind_managed());
        self.background(self.clone().mind_plugins());
        self.background(self.clone().work());
        self.wake();
        self.inner.ready.store(true, Ordering::Release);
        tracing::info!(plugins, "ready");
        Ok(())
    }

    /// Takes nothing new, ends the streams, and waits for work that changes leases, at most this long. What is left is
    /// found again at the next start.
    pub async fn shutdown(&self, deadline: Duration) {
        self.inner.ready.store(false, Ordering::Release);
        self.inner.stopping.cancel();
        self.inner.gates.close_all();
        self.inner.tasks.close();
        if tokio::time::timeout(deadline, self.inner.tasks.wait())
            .await
            .is_err()
        {
            tracing::warn!(
                tasks = self.inner.tasks.len(),
                "work was cut off; it is found again at the next start"
            );
        }
        self.inner.authority.close().await;
    }

    /// The authority, for what needs no orchestration.
    pub fn authority(&self) -> &Authority {
        &self.inner.authority
    }

    /// Whether it serves.
    pub fn is_ready(&self) -> bool {
        self.inner.ready.load(Ordering::Acquire)
    }

    /// What it counts.
    ///
    /// # Errors
    /// The authority's.
    pub async fn stats(&self) -> Result<ServiceStats, ServiceError> {
        Ok(ServiceStats {
            calls: self.inner.catalog.runtime().stats(),
            calls_by_provider: self
                .inner
                .catalog
                .loaded()
                .into_iter()
                .map(|plugin| (plugin.manifest().key.clone(), plugin.stats()))
                .collect(),
            health: self.health().await?,
            leases: self.inner.authority.leases().counts().await?,
            executions: self.lock_attached().len(),
            ssh_connections: self.inner.ways.ssh.connections(),
        })
    }

    async fn health(&self) -> Result<BTreeMap<String, Health>, ServiceError> {
        let mut all = BTreeMap::new();
        for installed in self.authority().plugins().list().await? {
            if let Some(loaded) = self.inner.catalog.loaded_current(&installed) {
                all.insert(installed.key, loaded.health());
            }
        }
        Ok(all)
    }

    fn close_pools(&self, scope: &PoolScope) {
        self.inner.ways.ssh.close_scope(scope);
        self.inner.ways.http.close_scope(scope);
    }

    /// What can be leased now.
    ///
    /// # Errors
    /// The authority's.
    pub async fn capabilities(&self, company: &str) -> Result<Capabilities, ServiceError> {
        self.accepting()?;
        let (catalog, host_roots) = (&self.inner.catalog, &self.inner.host_roots);
        narrowing::capabilities(self.authority(), catalog, host_roots, company).await
    }

    /// What people must know of an environment with this configuration, whose endpoints are at these pointers; each a
    /// sentence without any address.
    pub fn warnings(
        &self,
        config: &serde_json::Map<String, serde_json::Value>,
        endpoints: &[String],
    ) -> Vec<String> {
        engines::warnings(&self.inner.host_roots, config, endpoints)
    }

    /// Why nothing new is made with an environment's provider now; none where it works, or where there is none.
    pub fn withheld(&self, environment: &Environment) -> Option<Withheld> {
        if environment.is_local() {
            return None;
        }
        self.inner.catalog.withheld(&environment.provider)
    }

    fn accepting(&self) -> Result<(), ServiceError> {
        if self.inner.stopping.is_cancelled() {
            return Err(ServiceError::ShuttingDown);
        }
        if !self.is_ready() {
            return Err(ServiceError::NotReady);
        }
        Ok(())
    }

    /// What one call of a component needs.
    async fn call(
        &self,
        context: &Context,
        lease: Option<&ForLease>,
        kind: Kind,
    ) -> Result<Prepared, ServiceError> {
        let inner = &self.inner;
        calls::prepare(
            &inner.authority,
            &inner.ways,
            &inner.board,
            context,
            lease,
            kind,
        )
        .await
    }

    fn board(&self) -> &Board {
        &self.inner.board
    }

    fn catalog(&self) -> &Catalog {
        &self.inner.catalog
    }

    fn host_roots(&self) -> &HostRoots {
        &self.inner.host_roots
    }

    fn sources(&self) -> &Sources {
        &self.inner.sources
    }

    fn ssh(&self) -> &Ssh {
        &self.inner.ways.ssh
    }

    fn gates(&self) -> &Gates {
        &self.inner.gates
    }

    fn turns(&self) -> &Turns {
        &self.inner.turns
    }

    fn contexts(&self) -> &Contexts {
        &self.inner.contexts
    }

    fn stopping(&self) -> &CancellationToken {
        &self.inner.stopping
    }

    fn woken(&self) -> &Notify {
        &self.inner.woken
    }

    /// There is work.
    fn wake(&self) {
        self.inner.woken.notify_one();
    }

    /// Runs to its end whether or not anybody waits; a shutdown waits.
    fn background(&self, work: impl Future<Output = ()> + Send + 'static) {
        self.inner.tasks.spawn(work.in_current_span());
    }

    /// Runs to its end whether or not the caller goes on waiting, and answers the caller that does.
    async fn finish<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T, ServiceError>> + Send + 'static,
    ) -> Result<T, ServiceError> {
        match self.inner.tasks.spawn(work.in_current_span()).await {
            Ok(answer) => answer,
            Err(error) => Err(leasehold_authority::Error::Internal(format!(
                "work on a lease broke off: {error}"
            ))
            .into()),
        }
    }

    fn lock_attached(&self) -> std::sync::MutexGuard<'_, HashSet<String>> {
        self.inner
            .attached
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn attached(&self, execution: &str) {
        self.lock_attached().insert(execution.to_owned());
    }

    fn detached(&self, execution: &str) {
        self.lock_attached().remove(execution);
        self.set_unattached(true);
    }

    fn is_attached(&self, execution: &str) -> bool {
        self.lock_attached().contains(execution)
    }

    fn has_unattached(&self) -> bool {
        self.inner.unattached.load(Ordering::Acquire)
    }

    fn set_unattached(&self, there_may_be: bool) {
        self.inner.unattached.store(there_may_be, Ordering::Release);
    }
}

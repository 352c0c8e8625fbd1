//! The engine and what all plugins share: its settings, its clock, the linker, the global limits.
//!
//! One engine per runtime, built once; it is ticked at a fixed rate and for no plugin in particular,
//! so no plugin's deadline can end another's call.

use std::num::NonZeroUsize;
use std::sync::Arc;

use leasehold_contract::Egress;
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};
use tokio::sync::Semaphore;
use wasmtime::component::Linker;
use wasmtime::{
    Config, Enabled, Engine, InstanceAllocationStrategy, OptLevel, PoolingAllocationConfig,
};

use crate::cache::Cache;
use crate::failure::Failure;
use crate::limiter::Allowance;
use crate::settings::{Allocation, Ceilings, Settings};
use crate::setup::Refusing;
use crate::state::State;
use crate::stats::{Counters, Stats};
use crate::ticker::Ticker;
use crate::v0;

/// Loads components and runs them. Cheap to clone; the engine ends with the last clone and plugin.
#[derive(Clone)]
pub struct Runtime {
    pub(crate) shared: Arc<Shared>,
}

pub(crate) struct Shared {
    // Dropped in this order: the clock ends before the engine that it ticks.
    pub(crate) ticker: Ticker,
    pub(crate) engine: Engine,
    pub(crate) linker: Linker<State>,
    pub(crate) permits: Semaphore,
    pub(crate) turns: Arc<Semaphore>,
    pub(crate) compilations: Arc<Semaphore>,
    pub(crate) refusing: Arc<dyn Egress>,
    pub(crate) counters: Counters,
    pub(crate) cache: Option<Arc<Cache>>,
    pub(crate) ceilings: Ceilings,
    pub(crate) component_bytes: usize,
    pub(crate) concurrency_per_plugin: usize,
    pub(crate) copied_bytes: usize,
    pub(crate) resources: usize,
    pooled: bool,
}

impl std::fmt::Debug for Runtime {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Runtime")
            .field("pooled", &self.shared.pooled)
            .field("stats", &self.stats())
            .finish_non_exhaustive()
    }
}

impl Runtime {
    /// Builds the engine, its clock and the linker.
    ///
    /// # Errors
    /// [`Failure::Host`] where the machine cannot run components at all.
    pub fn new(settings: Settings) -> Result<Runtime, Failure> {
        let pooled = settings.allocation == Allocation::Automatic && has_room_for(&settings);
        let engine = Engine::new(&configuration(&settings, pooled)).map_err(unusable)?;
        if !pooled && settings.allocation == Allocation::Automatic {
            tracing::warn!(
                "the address space for pooled instances cannot be had: components start more slowly"
            );
        }
        let mut linker = Linker::new(&engine);
        v0::add_to_linker(&mut linker).map_err(unusable)?;
        let ticker = Ticker::start(&engine)
            .map_err(|e| Failure::Host(format!("the engine's clock does not start: {e}")))?;
        let cores = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
        Ok(Runtime {
            shared: Arc::new(Shared {
                ticker,
                engine,
                linker,
                permits: Semaphore::new(settings.concurrency as usize),
                turns: Arc::new(Semaphore::new(cores.saturating_sub(1).max(1))),
                compilations: Arc::new(Semaphore::new(settings.compilations.max(1))),
                refusing: Arc::new(Refusing),
                counters: Counters::default(),
                cache: settings.cache,
                ceilings: settings.ceilings,
                component_bytes: settings.component_bytes,
                concurrency_per_plugin: settings.concurrency_per_plugin as usize,
                copied_bytes: settings.copied_bytes,
                resources: settings.resources,
                pooled,
            }),
        })
    }

    /// Whether instances come from a pool.
    pub fn is_pooled(&self) -> bool {
        self.shared.pooled
    }

    /// What the calls of all plugins came to.
    pub fn stats(&self) -> Stats {
        self.shared.counters.snapshot()
    }

    /// The most that a call may use on this host.
    pub fn ceilings(&self) -> &Ceilings {
        &self.shared.ceilings
    }
}

impl Shared {
    /// What a call may use: what the manifest asks for, and never more than the ceilings.
    pub(crate) fn allowance(&self, asked: Option<&leasehold_contract::Limits>) -> Allowance {
        let ceilings = &self.ceilings;
        let memory_mib = asked.map_or(ceilings.memory_mib, |a| {
            a.memory_mib.min(ceilings.memory_mib)
        });
        let cpu = asked.map_or(ceilings.cpu, |a| {
            std::time::Duration::from_millis(u64::from(a.cpu)).min(ceilings.cpu)
        });
        Allowance {
            memory: memory_mib as usize * (1 << 20),
            table_elements: ceilings.table_elements as usize,
            memories: ceilings.memories as usize,
            tables: ceilings.tables as usize,
            instances: ceilings.core_instances as usize,
            cpu,
            exchanges: asked.map_or(0, |a| a.exchanges.min(ceilings.exchanges)),
            body: asked.map_or(0, |a| a.body_mib.min(ceilings.body_mib)) as usize * (1 << 20),
        }
    }
}

fn unusable(error: wasmtime::Error) -> Failure {
    Failure::Host(format!("components cannot run on this machine: {error:#}"))
}

/// Address space of one memory: enough that compiled code needs no bounds check.
const MEMORY_RESERVATION: u64 = 4 << 30;
const MEMORY_GUARD: u64 = 32 << 20;
const STACK: usize = 2 << 20;

fn configuration(settings: &Settings, pooled: bool) -> Config {
    let mut config = Config::new();
    // The compiled form depends on the lines down to the blank one; they are the same with and without
    // a pool, so that one cache serves both.
    config
        .cranelift_opt_level(OptLevel::Speed)
        .epoch_interruption(true)
        .concurrency_support(false)
        .wasm_memory64(false)
        // Traps are told by their code and by what the component says itself. Frames of stripped code
        // would tell nobody anything, and their tables are a sixth of the compiled form.
        .wasm_backtrace_max_frames(None)
        .generate_address_map(false)
        .native_unwind_info(false)
        .memory_reservation(MEMORY_RESERVATION)
        .memory_guard_size(MEMORY_GUARD)
        .memory_init_cow(true);

    config.async_stack_size(STACK).max_wasm_stack(512 << 10);
    if pooled {
        config.allocation_strategy(pool(settings));
    }
    config
}

fn pool(settings: &Settings) -> InstanceAllocationStrategy {
    let mut pool = PoolingAllocationConfig::new();
    let ceilings = &settings.ceilings;
    pool.total_component_instances(settings.pool.components)
        .total_stacks(settings.pool.components)
        .total_core_instances(settings.pool.core_instances)
        .total_memories(settings.pool.memories)
        .total_tables(settings.pool.tables)
        .max_core_instances_per_component(ceilings.core_instances)
        .max_memories_per_component(ceilings.memories)
        .max_memories_per_module(ceilings.memories)
        .max_tables_per_component(ceilings.tables)
        .max_tables_per_module(ceilings.tables)
        .table_elements(ceilings.table_elements as usize)
        .max_core_instance_size(10 << 20)
        .max_component_instance_size(2 << 20)
        .max_memory_size(ceilings.memory_mib as usize * (1 << 20))
        .linear_memory_keep_resident(2 << 20)
        .table_keep_resident(64 << 10)
        .pagemap_scan(Enabled::Auto)
        .max_unused_warm_slots(32);
    InstanceAllocationStrategy::Pooling(pool)
}

/// Whether the pool's address space can be had, with as much again as a server needs beside it.
/// Containers and `ulimit -v` take it away.
fn has_room_for(settings: &Settings) -> bool {
    const BESIDE: u64 = 64 << 30;
    let memories = u64::from(settings.pool.memories) * (MEMORY_RESERVATION + MEMORY_GUARD);
    let stacks = u64::from(settings.pool.components) * (STACK as u64);
    let tables = u64::from(settings.pool.tables) * u64::from(settings.ceilings.table_elements) * 16;
    let Ok(length) = usize::try_from(memories + stacks + tables + BESIDE) else {
        return false;
    };
    // SAFETY: a new private mapping at an address of the kernel's choice, without access to it, of
    // which nothing keeps a pointer; it is unmapped whole before anything else happens.
    unsafe {
        match mmap_anonymous(
            std::ptr::null_mut(),
            length,
            ProtFlags::empty(),
            MapFlags::PRIVATE | MapFlags::NORESERVE,
        ) {
            Ok(address) => munmap(address, length).is_ok(),
            Err(_) => false,
        }
    }
}

//! What the host decides before the first component is loaded.
//!
//! Nothing here is read from a file or the environment: `server` fills it in.

use std::sync::Arc;
use std::time::Duration;

use crate::cache::Cache;

/// Settings of a [`crate::Runtime`]; [`Settings::default`] serves a machine of any usual size.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Calls of all plugins that may run at once. Kept below the pool's size.
    pub concurrency: u32,
    /// Calls of one plugin that may run at once.
    pub concurrency_per_plugin: u32,
    /// The most that any call may use, whatever its plugin asks for.
    pub ceilings: Ceilings,
    /// How instances are allocated.
    pub allocation: Allocation,
    /// Slots of the pool, where instances are pooled.
    pub pool: Pool,
    /// The largest component that is accepted, in bytes.
    pub component_bytes: usize,
    /// Components that may be compiled at once.
    pub compilations: usize,
    /// Bytes that one call between a component and the host may copy out of the component.
    pub copied_bytes: usize,
    /// Host resources that one call may hold at once.
    pub resources: usize,
    /// Where compiled components are kept; none: compiled at every start.
    pub cache: Option<Arc<Cache>>,
}

impl Default for Settings {
    fn default() -> Settings {
        let cores = std::thread::available_parallelism().map_or(1, |n| n.get());
        Settings {
            concurrency: 256,
            concurrency_per_plugin: 64,
            ceilings: Ceilings::default(),
            allocation: Allocation::Automatic,
            pool: Pool::default(),
            component_bytes: 64 << 20,
            compilations: cores.saturating_sub(1).max(1),
            // A buffered body of the largest size, with the rest of its request.
            copied_bytes: 9 << 20,
            resources: 4096,
            cache: None,
        }
    }
}

/// The most that any call may use. A manifest that asks for more is refused at install.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ceilings {
    /// All memories of an instance together, in MiB.
    pub memory_mib: u32,
    /// CPU time of a call, which does not count waiting.
    pub cpu: Duration,
    /// Requests through egress of a call.
    pub exchanges: u32,
    /// The largest buffered body, in MiB.
    pub body_mib: u32,
    /// Memories of an instance.
    pub memories: u32,
    /// Tables of an instance.
    pub tables: u32,
    /// Elements of all tables of an instance together.
    pub table_elements: u32,
    /// Core instances that a component is made of.
    pub core_instances: u32,
}

impl Default for Ceilings {
    fn default() -> Ceilings {
        Ceilings {
            memory_mib: 256,
            cpu: Duration::from_secs(10),
            exchanges: 10_000,
            body_mib: 8,
            memories: 32,
            tables: 64,
            table_elements: 200_000,
            core_instances: 200,
        }
    }
}

/// How instances are allocated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Allocation {
    /// From a pool where its address space can be had, one by one otherwise.
    #[default]
    Automatic,
    /// One by one: slower, with little address space.
    OnDemand,
}

/// How many of each the pool holds at once. Address space only: nothing is resident before its use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pool {
    /// Component instances, and fibers.
    pub components: u32,
    /// Core instances; a component is made of several.
    pub core_instances: u32,
    /// Memories, 4 GiB of address space each.
    pub memories: u32,
    /// Tables.
    pub tables: u32,
}

impl Default for Pool {
    fn default() -> Pool {
        Pool {
            components: 1024,
            core_instances: 8192,
            memories: 1024,
            tables: 4096,
        }
    }
}

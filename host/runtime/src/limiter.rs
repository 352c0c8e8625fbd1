//! What an instance may allocate: memory summed over all its memories, elements over all its tables.
//!
//! A growth that would exceed the sum is refused to the component (`memory.grow` gives -1); that it
//! was is remembered, so that a trap which follows from it is told as the limit that it is. A growth
//! that fails later (the operating system has no memory) stays counted: wasmtime also reports failures
//! that were never asked about here, and taking those back would let a component count itself down.

use wasmtime::ResourceLimiter;

use crate::failure::Limit;

/// What one call of a plugin may use.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Allowance {
    pub(crate) memory: usize,
    pub(crate) table_elements: usize,
    pub(crate) memories: usize,
    pub(crate) tables: usize,
    pub(crate) instances: usize,
    pub(crate) cpu: std::time::Duration,
    pub(crate) exchanges: u32,
    pub(crate) body: usize,
}

#[derive(Debug)]
pub(crate) struct Limiter {
    allowance: Allowance,
    memory: usize,
    table_elements: usize,
    peak: usize,
    refused: Option<Limit>,
}

impl Limiter {
    pub(crate) fn new(allowance: Allowance) -> Limiter {
        Limiter {
            allowance,
            memory: 0,
            table_elements: 0,
            peak: 0,
            refused: None,
        }
    }

    /// The most memory that was allocated at once, in bytes.
    pub(crate) fn peak(&self) -> usize {
        self.peak
    }

    /// The limit that a growth was refused for, if any was.
    pub(crate) fn refused(&self) -> Option<Limit> {
        self.refused
    }
}

impl ResourceLimiter for Limiter {
    fn memory_growing(
        &mut self,
        current: usize,
        desired: usize,
        maximum: Option<usize>,
    ) -> wasmtime::Result<bool> {
        let growth = desired.saturating_sub(current);
        let sum = self.memory.saturating_add(growth);
        if sum > self.allowance.memory {
            self.refused = Some(Limit::Memory);
            return Ok(false);
        }
        if maximum.is_some_and(|most| desired > most) {
            return Ok(false);
        }
        self.memory = sum;
        self.peak = self.peak.max(sum);
        Ok(true)
    }

    fn table_growing(
        &mut self,
        current: usize,
        desired: usize,
        maximum: Option<usize>,
    ) -> wasmtime::Result<bool> {
        let growth = desired.saturating_sub(current);
        let sum = self.table_elements.saturating_add(growth);
        if sum > self.allowance.table_elements {
            self.refused = Some(Limit::Tables);
            return Ok(false);
        }
        if maximum.is_some_and(|most| desired > most) {
            return Ok(false);
        }
        self.table_elements = sum;
        Ok(true)
    }

    fn instances(&self) -> usize {
        self.allowance.instances
    }

    fn tables(&self) -> usize {
        self.allowance.tables
    }

    fn memories(&self) -> usize {
        self.allowance.memories
    }
}

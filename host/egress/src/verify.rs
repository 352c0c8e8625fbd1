//! The host's own checks of a target: what a provider reports is a claim, this is proof (principle 6).
//!
//! Each runs on a connection of its own and changes nothing.

use std::sync::Arc;

use leasehold_contract::Error;

use crate::pool::Pools;
use crate::remote;
use crate::target::SshTarget;

/// What marks a lease's workspace and processes on a target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseMark {
    /// As in [`crate::LeaseScope::owner_label`].
    pub owner_label: String,
    /// As in [`crate::LeaseScope::acquisition`].
    pub acquisition: String,
}

/// What is left of a lease.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Gone {
    /// Processes, each as `pid command` with the command's short name. Untrusted text, bounded.
    pub processes: Vec<String>,
    /// Whether the workspace is still there, in whatever condition.
    pub workspace: bool,
}

impl Gone {
    /// Whether nothing is left at all.
    pub fn confirmed(&self) -> bool {
        self.processes.is_empty() && !self.workspace
    }
}

/// Whose the directory at a lease's place is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ownership {
    /// It carries this owner's marker, with these further labels.
    Ours(Vec<(String, String)>),
    /// There is no such directory.
    Absent,
    /// It is there and its marker is missing or another's.
    Foreign,
}

pub(crate) async fn gone(
    pools: &Arc<Pools>,
    target: &Arc<SshTarget>,
    mark: &LeaseMark,
    parent: &str,
) -> Result<Gone, Error> {
    let route = pools.fresh(target.clone());
    remote::verify_gone(&route, mark, parent).await
}

pub(crate) async fn owned(
    pools: &Arc<Pools>,
    target: &Arc<SshTarget>,
    mark: &LeaseMark,
    parent: &str,
) -> Result<Ownership, Error> {
    let route = pools.fresh(target.clone());
    remote::verify_owned(&route, mark, parent).await
}

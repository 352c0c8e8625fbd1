//! What happens without being asked for: expiry, cleanup that waits, leases and commands that a crash left behind.
//!
//! One loop, woken when there is something to do and once a second. It decides nothing: what is due, and whose it is,
//! the authority says; the work is done in `teardown` and `executions`.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use leasehold_authority::{Actor, CLAIM, Expiry, Lease, RunEnd, Transition};
use tokio::sync::Semaphore;

use super::{Service, ServiceError};

/// How long the loop rests when nothing wakes it.
const REST: Duration = Duration::from_secs(1);
/// Leases that are worked on at once.
const AT_ONCE: usize = 16;
/// The longest between two tries to load what cannot be loaded.
const LOAD_AGAIN: Duration = Duration::from_secs(60);
/// Between two looks for revisions that nothing needs any more.
const COLLECT_EVERY: Duration = Duration::from_secs(5);
/// Between two questions for the same command.
const ASK_EVERY: Duration = Duration::from_secs(5);

/// Keeps this replica's claim on a lease until dropped.
pub(crate) struct Beat(tokio::task::JoinHandle<()>);

impl Drop for Beat {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Service {
    /// Keeps the claim on a lease while its work goes on.
    pub(crate) fn beat(&self, lease: &Lease) -> Beat {
        let (leases, id, epoch) = (self.authority().leases(), lease.id.clone(), lease.epoch);
        Beat(tokio::spawn(async move {
            loop {
                tokio::time::sleep(CLAIM / 3).await;
                if let Err(error) = leases.heartbeat(&id, epoch).await {
                    tracing::warn!(lease = id, %error, "the claim on a lease was not kept");
                    return;
                }
            }
        }))
    }

    /// Works until the server stops.
    pub(crate) async fn work(self) {
        let permits = Arc::new(Semaphore::new(AT_ONCE));
        let asking: Arc<Mutex<HashSet<String>>> = Arc::default();
        let mut collected: Option<Instant> = None;
        loop {
            tokio::select! {
                () = self.stopping().cancelled() => return,
                () = self.woken().notified() => {}
                () = tokio::time::sleep(REST) => {}
            }
            if let Err(error) = self.expire().await {
                tracing::error!(%error, "expiry was not looked at");
            }
            if let Err(error) = self.claim(&permits).await {
                tracing::error!(%error, "work was not claimed");
            }
            if let Err(error) = self.ask_for_open(&asking).await {
                tracing::error!(%error, "open executions were not looked at");
            }
            if collected.is_none_or(|at| at.elapsed() >= COLLECT_EVERY) {
                collected = Some(Instant::now());
                self.catalog().collect().await;
            }
        }
    }

    /// Tries again to load what could not be, until the server stops: nobody has to ask for it, or start the server anew.
    pub(crate) async fn mind_plugins(self) {
        let mut wait = REST;
        loop {
            tokio::select! {
                () = self.stopping().cancelled() => return,
                () = tokio::time::sleep(wait) => {}
            }
            wait = match self.catalog().load_missing().await {
                0 => REST,
                _ => (wait * 2).min(LOAD_AGAIN),
            };
        }
    }

    async fn expire(&self) -> Result<(), leasehold_authority::Error> {
        loop {
            match self.authority().leases().expire_due(100).await? {
                Expiry::Halted(_) => return Ok(()),
                Expiry::Done(ended) => {
                    self.let_go(&ended);
                    if ended.len() < 100 {
                        return Ok(());
                    }
                }
            }
        }
    }

    /// Ends a run: its leases are released, and none begins for it any more.
    ///
    /// # Errors
    /// A run that nobody knows. Over already is success.
    pub async fn end_run(&self, actor: &Actor, id: &str) -> Result<RunEnd, ServiceError> {
        self.accepting()?;
        let ended = self.authority().leases().end_run(actor, id).await?;
        self.let_go(&ended.leases);
        self.wake();
        Ok(ended)
    }

    /// Nobody uses these leases any more, from here on.
    fn let_go(&self, ended: &[Transition]) {
        for transition in ended {
            let lease = &transition.lease;
            self.gates().supersede(&lease.id, lease.epoch);
            self.contexts().forget(&lease.id);
        }
    }

    async fn claim(&self, permits: &Arc<Semaphore>) -> Result<(), leasehold_authority::Error> {
        loop {
            let free = permits.available_permits();
            if free == 0 {
                return Ok(());
            }
            let limit = u32::try_from(free).unwrap_or(u32::MAX);
            let claimed = self.authority().leases().claim_work(limit).await?;
            let more = claimed.len() == free;
            for lease in claimed {
                let Ok(permit) = permits.clone().acquire_owned().await else {
                    return Ok(());
                };
                let service = self.clone();
                self.background(async move {
                    service.work_on(lease).await;
                    drop(permit);
                    service.wake();
                });
            }
            if !more {
                return Ok(());
            }
        }
    }

    /// Commands whose stream is gone are asked about until their end is known.
    async fn ask_for_open(
        &self,
        asking: &Arc<Mutex<HashSet<String>>>,
    ) -> Result<(), leasehold_authority::Error> {
        if !self.has_unattached() {
            return Ok(());
        }
        let open = self.authority().executions().open().await?;
        let mut left = false;
        for execution in open {
            if self.is_attached(&execution.id) {
                continue;
            }
            left = true;
            let first = asking
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .insert(execution.id.clone());
            if !first {
                continue;
            }
            let (service, asking) = (self.clone(), asking.clone());
            self.background(async move {
                if let Err(error) = service.ask(&execution.id).await {
                    tracing::debug!(execution = execution.id, %error, "state not known yet");
                }
                tokio::select! {
                    () = service.stopping().cancelled() => {}
                    () = tokio::time::sleep(ASK_EVERY) => {}
                }
                asking
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .remove(&execution.id);
            });
        }
        self.set_unattached(left);
        Ok(())
    }
}

//! Ending a lease, and finding again what a crash left of an acquire.
//!
//! Everything here works from what the lease recorded, never from the present environment. Invariant (P5): a lease
//! counts as released only when the host itself looked, over a connection of its own, and found nothing; for a provider
//! that gives the host nothing to look at, when the provider said so. Everything else waits, visibly, and is tried again.

use std::sync::Arc;
use std::time::Duration;

use leasehold_authority::{Actor, Effect, Event, Jitter, Lease, Status};
use leasehold_contract::{Claim, Listed, Purpose, Query};
use leasehold_egress::{LeaseMark, Reach};

use super::Service;
use super::calls::{ForLease, Kind, owner_label};
use super::checks;
use super::context::Context;
use super::error::ServiceError;
use super::leasing::{READ, declared_time, handle_of};
use super::places::Place;

/// Time for one `release`.
pub(crate) const RELEASE: Duration = Duration::from_secs(120);
/// Pages of a list that are read at most; a provider that goes on for ever is not followed.
const PAGES: usize = 100;
/// How far apart two empty lists must be at least to prove that there is nothing.
const APART: Duration = Duration::from_secs(5);

impl Service {
    /// Tears down a lease that this replica has claimed, at its present epoch. Answers the lease as it then stands:
    /// released, failed, or waiting for the next try.
    ///
    /// # Errors
    /// Only the authority's: what keeps the environment from being released is in the lease.
    pub(crate) async fn teardown(&self, lease: Lease) -> Result<Lease, ServiceError> {
        let actor = Actor::system("release");
        self.gates().supersede(&lease.id, lease.epoch);
        self.contexts().forget(&lease.id);
        let _work = self.board().begin(&lease.id);
        let beating = self.beat(&lease);
        let _turn = self.turns().take(&lease.id).await;
        // Whoever had the turn before may have ended it, or somebody else taken it over.
        let now = self.authority().leases().get(&lease.id).await?;
        if now.status.is_terminal() || now.epoch != lease.epoch {
            return Ok(now);
        }
        let event = match self.undo(&lease).await {
            Ok(event) => event,
            Err(error) => {
                let reason = error.to_string();
                tracing::warn!(
                    lease = lease.id,
                    attempts = lease.attempts,
                    reason,
                    "release not confirmed"
                );
                Event::ReleaseUnconfirmed {
                    reason,
                    jitter: jitter(),
                }
            }
        };
        drop(beating);
        let done = self
            .authority()
            .leases()
            .apply(&actor, &lease.id, lease.epoch, event)
            .await?;
        if done.lease.status.is_terminal() {
            self.gates().close(&lease.id);
            tracing::info!(
                lease = lease.id,
                status = done.lease.status.as_str(),
                "lease ended"
            );
        } else {
            self.wake();
        }
        Ok(done.lease)
    }

    /// Undoes what a lease made, and says what that proves.
    async fn undo(&self, lease: &Lease) -> Result<Event, ServiceError> {
        let plugin = self.catalog().pinned(&lease.plugin_digest).await?;
        let context = Context::of_lease(self.authority(), plugin, lease, "release").await?;
        let for_lease = self.for_lease(lease);
        let places = Place::of(self.authority(), &lease.id).await?;
        self.end_commands(lease, &context, &for_lease).await;
        let released = if lease.handle.is_some() {
            self.release_handle(lease, &context, &for_lease, handle_of(lease))
                .await
        } else {
            self.release_listed(lease, &context, &for_lease).await
        };
        if !places.is_empty() {
            // The host's own look decides, whatever the provider answered.
            return match self.all_gone(lease, &context, &places).await {
                Ok(()) => {
                    if let Err(error) = released {
                        tracing::info!(lease = lease.id, %error, "the provider failed to release what is gone");
                    }
                    Ok(Event::ReleaseConfirmed)
                }
                Err(left) => Err(released.err().unwrap_or(left)),
            };
        }
        let made = self.authority().leases().made(&lease.id).await?.resource;
        if let Some(resource) = made
            && checks::has(&context, Claim::Gone)
        {
            self.board()
                .tell(&lease.id, "looking that nothing is left".to_owned());
            return match self.is_gone(lease, &context, &for_lease, &resource).await {
                Ok(true) => Ok(Event::ReleaseConfirmed),
                Ok(false) => Err(released.err().unwrap_or_else(|| {
                    ServiceError::refused(
                        "release_unconfirmed",
                        format!("{} still has {resource}", context.name()),
                    )
                })),
                Err(error) => Err(released.err().unwrap_or(error)),
            };
        }
        let left = released?;
        if lease.handle.is_some() {
            return Ok(Event::ReleaseConfirmed);
        }
        // Nothing was ever answered: only lists that stay empty prove that there is nothing.
        let owned: Vec<String> = left.into_iter().map(|item| item.resource).collect();
        if !owned.is_empty() {
            return Err(ServiceError::refused(
                "release_unconfirmed",
                format!("the provider still lists {}", owned.join(", ")),
            ));
        }
        let at = self.authority().now().await?;
        Ok(Event::Candidates {
            owned,
            journalled: Vec::new(),
            at,
            apart: apart(&context),
        })
    }

    async fn release_handle(
        &self,
        lease: &Lease,
        context: &Context,
        for_lease: &ForLease,
        handle: &str,
    ) -> Result<Vec<Listed>, ServiceError> {
        let call = self
            .call(
                context,
                Some(for_lease),
                Kind::new(Purpose::Cleanup, Reach::Act, RELEASE),
            )
            .await?;
        context
            .plugin
            .release(&call.setup, &call.config, handle)
            .await
            .map_err(|failure| {
                ServiceError::of(
                    format!("releasing {} of {}", lease.id, context.name()),
                    failure,
                )
            })?;
        Ok(Vec::new())
    }

    /// Releases everything that the provider lists as this lease's, and answers what it lists after that.
    async fn release_listed(
        &self,
        lease: &Lease,
        context: &Context,
        for_lease: &ForLease,
    ) -> Result<Vec<Listed>, ServiceError> {
        let found = self.listed(lease, context, for_lease).await?;
        if found.is_empty() {
            return Ok(found);
        }
        for item in &found {
            self.note_owned(lease, context, &item.resource).await;
            self.release_handle(lease, context, for_lease, &item.handle)
                .await?;
        }
        self.listed(lease, context, for_lease).await
    }

    /// Notes what the host's own check has found to be this lease's, so that operations may act on it: the answer that made
    /// it was lost.
    async fn note_owned(&self, lease: &Lease, context: &Context, resource: &str) {
        if !checks::has(context, Claim::Owned) {
            return;
        }
        let Some(claim) = context.web.as_ref().and_then(|web| web.claim(resource)) else {
            return;
        };
        let leases = self.authority().leases();
        if let Err(error) = leases.made_environment(&lease.id, lease.epoch, claim).await {
            tracing::warn!(lease = lease.id, resource, %error, "an environment of the lease is not noted");
        }
    }

    /// What the provider lists that carries this lease's own label, and where the manifest has a check of `owned`, what the
    /// host itself finds to carry it.
    pub(crate) async fn listed(
        &self,
        lease: &Lease,
        context: &Context,
        for_lease: &ForLease,
    ) -> Result<Vec<Listed>, ServiceError> {
        let journalled: Vec<String> = self
            .authority()
            .leases()
            .journalled(&lease.id)
            .await?
            .into_iter()
            .filter(|entry| entry.thing == leasehold_contract::Thing::Environment)
            .map(|entry| entry.resource)
            .collect();
        let mut query = Query {
            labels: lease.labels.clone(),
            journalled,
            cursor: None,
        };
        let mut found: Vec<Listed> = Vec::new();
        for _ in 0..PAGES {
            let call = self
                .call(
                    context,
                    Some(for_lease),
                    Kind::new(Purpose::Reconcile, Reach::Read, READ),
                )
                .await?;
            let page = context
                .plugin
                .list(&call.setup, &call.config, &query)
                .await
                .map_err(|failure| {
                    ServiceError::of(format!("listing what {} left", lease.id), failure)
                })?;
            let ours = owner_label(lease);
            found.extend(page.items.into_iter().filter(|item| {
                item.condition != leasehold_contract::Condition::Gone
                    && item.labels.iter().any(|label| label.value == ours)
            }));
            match page.next {
                Some(next) => query.cursor = Some(next),
                None => break,
            }
        }
        if !checks::has(context, Claim::Owned) {
            return Ok(found);
        }
        let mut owned = Vec::with_capacity(found.len());
        for item in found {
            if self
                .is_owned(lease, context, for_lease, &item.resource)
                .await?
            {
                owned.push(item);
            }
        }
        Ok(owned)
    }

    /// The host's own look, over fresh connections, at every place where egress saw this lease's workspace being made.
    async fn all_gone(
        &self,
        lease: &Lease,
        context: &Context,
        places: &[Place],
    ) -> Result<(), ServiceError> {
        self.board()
            .tell(&lease.id, "looking that nothing is left".to_owned());
        let mark = LeaseMark {
            owner_label: owner_label(lease),
            acquisition: lease.acquisition.clone(),
        };
        for place in places {
            let target = context.targets.get(&place.target).ok_or_else(|| {
                ServiceError::refused(
                    "release_unconfirmed",
                    "the workspace's target is not configured",
                )
            })?;
            let what = || {
                format!(
                    "confirming the release of {} at {}",
                    lease.id,
                    target.identity()
                )
            };
            let gone = self
                .ssh()
                .verify_gone(target, &mark, &place.parent)
                .await
                .map_err(|error| ServiceError::Provider {
                    what: what(),
                    error,
                })?;
            if !gone.confirmed() {
                let mut left = gone.processes;
                left.truncate(5);
                if gone.workspace {
                    left.push("the workspace".to_owned());
                }
                return Err(ServiceError::refused(
                    "release_unconfirmed",
                    format!("{} still has {}", target.identity(), left.join(", ")),
                ));
            }
        }
        Ok(())
    }

    /// Finds again what became of an acquire whose server went away: adopts it where it is one and ours, and gives up
    /// what is not.
    ///
    /// # Errors
    /// Only the authority's.
    pub(crate) async fn reconcile(&self, lease: Lease) -> Result<Lease, ServiceError> {
        let actor = Actor::system("reconciler");
        self.gates().supersede(&lease.id, lease.epoch);
        let _work = self.board().begin(&lease.id);
        let beating = self.beat(&lease);
        let looked = self.look_for(&lease).await;
        drop(beating);
        let (context, found) = match looked {
            Ok(looked) => looked,
            Err(error) => {
                let event = Event::ReconcileFailed {
                    reason: error.to_string(),
                    jitter: jitter(),
                };
                let done = self
                    .authority()
                    .leases()
                    .apply(&actor, &lease.id, lease.epoch, event)
                    .await?;
                self.wake();
                return Ok(done.lease);
            }
        };
        let journalled = self
            .authority()
            .leases()
            .journalled(&lease.id)
            .await?
            .into_iter()
            .map(|entry| entry.resource)
            .collect();
        let event = Event::Candidates {
            owned: found.iter().map(|item| item.resource.clone()).collect(),
            journalled,
            at: self.authority().now().await?,
            apart: apart(&context),
        };
        let done = self
            .authority()
            .leases()
            .apply(&actor, &lease.id, lease.epoch, event)
            .await?;
        let for_lease = self.for_lease(&done.lease);
        let mut adopted = false;
        for effect in &done.effects {
            match effect {
                Effect::Adopt { resource } => {
                    adopted = true;
                    self.note_owned(&done.lease, &context, resource).await;
                }
                Effect::Destroy { resources } => {
                    for item in found
                        .iter()
                        .filter(|item| resources.contains(&item.resource))
                    {
                        let gone = self
                            .release_handle(&done.lease, &context, &for_lease, &item.handle)
                            .await;
                        if let Err(error) = gone {
                            tracing::warn!(lease = lease.id, resource = item.resource, %error, "a second environment of one acquisition is not gone");
                        }
                    }
                }
                _ => {}
            }
        }
        if adopted {
            // Asked again with the same acquisition, a provider answers what it answered then; the host's own look
            // decides whether it becomes active.
            let deadline = declared_time(&context);
            return self
                .realise(&actor, done.lease, context, deadline, None)
                .await;
        }
        if done.lease.status.is_terminal() {
            self.gates().close(&lease.id);
        } else {
            self.wake();
        }
        Ok(done.lease)
    }

    async fn look_for(&self, lease: &Lease) -> Result<(Arc<Context>, Vec<Listed>), ServiceError> {
        let plugin = self.catalog().pinned(&lease.plugin_digest).await?;
        let context = Context::of_lease(self.authority(), plugin, lease, "reconcile").await?;
        let found = if lease.unsafe_sent {
            let for_lease = self.for_lease(lease);
            self.listed(lease, &context, &for_lease).await?
        } else {
            Vec::new()
        };
        Ok((Arc::new(context), found))
    }

    /// Does whatever a claimed lease needs next.
    pub(crate) async fn work_on(&self, lease: Lease) {
        let id = lease.id.clone();
        let outcome = match lease.status {
            Status::Acquiring => self.reconcile(lease).await,
            Status::Releasing | Status::PendingCleanup => self.teardown(lease).await,
            _ => return,
        };
        if let Err(error) = outcome {
            tracing::warn!(lease = id, %error, "work on a lease did not end");
        }
    }
}

/// How far apart two empty lists of this provider must be.
fn apart(context: &Context) -> i64 {
    let declared = context
        .plugin
        .manifest()
        .checks
        .iter()
        .map(|check| check.apart)
        .max();
    let lag = Duration::from_millis(declared.unwrap_or(0).into());
    i64::try_from(APART.max(lag).as_millis()).unwrap_or(i64::MAX)
}

/// Spreads retries; a fixed number where the system has no randomness.
fn jitter() -> Jitter {
    let mut bytes = [0u8; 2];
    let spread = match getrandom::fill(&mut bytes) {
        Ok(()) => u16::from_le_bytes(bytes) % 1001,
        Err(_) => 500,
    };
    Jitter(spread)
}

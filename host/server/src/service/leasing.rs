//! Acquiring, renewing and looking at leases.
//!
//! The order is the authority's: intent, provider, the host's own look, active. The work runs in a task that a client's
//! disconnect does not end. Invariants: nothing is created before the intent is durable (P1); what the host did not
//! see to be ours never becomes active as owned (P2).

use std::sync::Arc;
use std::time::Duration;

use leasehold_authority::{
    Accessor, AcquireIntent, Activation, Actor, Begun, CallerRefs, Error as AuthorityError, Event,
    Handling, Lease, Operation, Status, code,
};
use leasehold_contract::{Observation, Purpose};
use leasehold_egress::Reach;
use leasehold_runtime::Failure;

use super::Service;
use super::breaker::Trial;
use super::calls::{ForLease, Kind};
use super::context::{Context, Source};
use super::error::ServiceError;
use super::model::AcquireRequest;
use super::proving::Unproven;
use super::values::Holder;

/// The longest that acquiring may take, whatever a provider or a client says.
const LONGEST_ACQUIRE: Duration = Duration::from_secs(3600);
/// How long an acquire takes at most, by the provider's own word.
pub(crate) fn declared_time(context: &Context) -> Duration {
    Duration::from_millis(context.plugin.manifest().acquire_timeout.into())
}

/// Time for `inspect` and other reads.
pub(crate) const READ: Duration = Duration::from_secs(60);

/// A lease's handle; JSON null where none was ever answered.
pub(crate) fn handle_of(lease: &Lease) -> &str {
    lease.handle.as_deref().unwrap_or("null")
}

/// A durable intent, and what is needed to make it come true.
struct Intended {
    begun: Begun,
    context: Context,
    deadline: Duration,
    trial: Option<Trial>,
}

impl Service {
    /// Acquires a lease of an environment and answers when it is active.
    ///
    /// # Errors
    /// Before the intent: nothing happened. After it: the lease's row says what is left, and the error's text names it.
    pub async fn acquire(
        &self,
        actor: &Actor,
        environment: &str,
        request: AcquireRequest,
    ) -> Result<Lease, ServiceError> {
        self.acquire_for(actor, environment, request, Purpose::Run, None)
            .await
    }

    /// `asked` is what the client asked for, where that was not this environment.
    pub(crate) async fn acquire_for(
        &self,
        actor: &Actor,
        environment: &str,
        request: AcquireRequest,
        purpose: Purpose,
        asked: Option<String>,
    ) -> Result<Lease, ServiceError> {
        self.accepting()?;
        let watched = self.watch(actor, request.progress_id.as_deref());
        let first = self
            .intend(actor, environment, &request, purpose, asked.clone())
            .await;
        let Intended {
            begun,
            context,
            deadline,
            trial,
        } = match first {
            // Somebody changed it between the look at it and the intent. The caller named no revision: the lease is one of
            // what is there now, and nobody changes that meanwhile.
            Err(ServiceError::Authority(AuthorityError::Conflict { code, .. }))
                if code == code::ENVIRONMENT_CHANGED =>
            {
                let _turn = self.turns().take(environment).await;
                self.intend(actor, environment, &request, purpose, asked)
                    .await?
            }
            first => first?,
        };
        if !begun.fresh {
            return Ok(begun.lease);
        }
        if let Some(work) = &watched {
            work.works_on(&begun.lease.id);
        }
        let service = self.clone();
        let actor = actor.clone();
        self.finish(async move {
            service
                .realise(&actor, begun.lease, Arc::new(context), deadline, trial)
                .await
        })
        .await
    }

    /// From a request to a durable intent, made of the environment as it is now.
    async fn intend(
        &self,
        actor: &Actor,
        environment: &str,
        request: &AcquireRequest,
        purpose: Purpose,
        asked: Option<String>,
    ) -> Result<Intended, ServiceError> {
        let environment = self.authority().environments().get(environment).await?;
        if environment.is_local() {
            return Err(ServiceError::refused(
                "environment_local",
                format!(
                    "the environment {:?} is the server's own machine, which is never leased",
                    environment.name
                ),
            ));
        }
        if environment.status != leasehold_authority::EnvironmentStatus::Active {
            return Err(ServiceError::refused(
                "environment_inactive",
                format!(
                    "the environment {:?} is archived; make it active to lease it",
                    environment.name
                ),
            ));
        }
        let company = self
            .company_for(
                actor,
                &environment,
                request.company_id.as_deref(),
                "/companyId",
            )
            .await?;
        self.serves(actor, Operation::AcquireLease, &environment, &company)
            .await?;
        let plugin = self.catalog().current(&environment.provider).await?;
        let trial = plugin.admit()?;
        let context = Context::resolve(
            self.authority(),
            plugin,
            Holder::Environment {
                id: &environment.id,
                by: Accessor {
                    run: request.run_id.clone(),
                    company: Some(company.clone()),
                    ..Accessor::of(actor, "acquire")
                },
            },
            Source {
                company: &company,
                environment: Some(&environment.id),
                config: &environment.config,
                env_vars: &environment.env_vars,
                typed: &environment.endpoints,
            },
        )
        .await?;
        let account_key = self.account_of(&context).await;
        let exclusive_key = account_key
            .clone()
            .filter(|_| context.is_exclusive(&environment.config));
        let declared = declared_time(&context);
        let deadline = request
            .timeout_ms
            .map_or(declared, |ms| Duration::from_millis(ms.into()))
            .min(LONGEST_ACQUIRE);
        let begun = self
            .authority()
            .leases()
            .begin(
                actor,
                AcquireIntent {
                    environment: environment.id.clone(),
                    company: Some(company.clone()),
                    target_revision: environment.target_revision,
                    plugin_digest: context.plugin.digest_hex(),
                    purpose,
                    exclusive_key,
                    account_key,
                    ttl: request.ttl_seconds.map(|s| Duration::from_secs(s.into())),
                    caller: CallerRefs {
                        agent: request.agent_id.clone(),
                        run: request.run_id.clone(),
                        workspace: request.workspace_id.clone(),
                        issue: request.issue_id.clone(),
                    },
                    idempotency_key: request.idempotency_key.clone(),
                    asked,
                },
            )
            .await?;
        Ok(Intended {
            begun,
            context,
            deadline,
            trial,
        })
    }

    /// From a durable intent to an active lease, or to whatever is left.
    pub(crate) async fn realise(
        &self,
        actor: &Actor,
        lease: Lease,
        context: Arc<Context>,
        deadline: Duration,
        trial: Option<Trial>,
    ) -> Result<Lease, ServiceError> {
        let _work = self.board().begin(&lease.id);
        let _turn = self.turns().take(&lease.id).await;
        let what = format!("acquiring {} of {}", lease.id, context.name());
        let closed = self.gates().token(&lease.id, lease.epoch);
        let for_lease = ForLease::of(&lease, closed);
        let mut kind = Kind::new(lease.purpose, Reach::Act, deadline);
        kind.acquiring = true;
        kind.deadline_is_ours = deadline >= declared_time(&context).min(LONGEST_ACQUIRE);
        kind.trial = trial.is_some();
        let call = self.call(&context, Some(&for_lease), kind).await;
        let ttl = lease.ttl.and_then(|ms| u32::try_from(ms / 1000).ok());
        let beating = self.beat(&lease);
        let acquired = match call {
            Ok(call) => context.plugin.acquire(&call.setup, &call.config, ttl).await,
            Err(error) => Err(Failure::Host(error.to_string())),
        };
        let outcome = match acquired {
            Ok(acquired) => match self.prove(&lease, &context, &for_lease, &acquired).await {
                Ok(proof) => Ok((acquired, proof)),
                // Whose it is, the authority says in words of its own.
                Err(Unproven::Claimed(error)) => Err(error),
                Err(Unproven::Failed(error)) => Err(ServiceError::Provider {
                    what: what.clone(),
                    error,
                }),
            },
            Err(failure) => Err(ServiceError::of(what.clone(), failure)),
        };
        drop(beating);
        drop(trial);
        match outcome {
            Ok((acquired, proof)) => {
                let event = Event::Activated(Activation {
                    resource: acquired.resource,
                    handle: acquired.handle,
                    workspace: acquired.workspace,
                    proof,
                    attested_ttl: acquired.ttl.map(|s| Duration::from_secs(s.into())),
                });
                match self
                    .authority()
                    .leases()
                    .apply(actor, &lease.id, lease.epoch, event)
                    .await
                {
                    Ok(transition) => {
                        self.contexts().put(&lease.id, context);
                        Ok(transition.lease)
                    }
                    // Released, or taken over, while the provider worked: whoever did that tears it down.
                    Err(error) => {
                        self.wake();
                        Err(error.into())
                    }
                }
            }
            Err(error) => {
                let event = Event::AcquireFailed {
                    reason: error.to_string(),
                };
                let transition = self
                    .authority()
                    .leases()
                    .apply(actor, &lease.id, lease.epoch, event)
                    .await;
                match transition {
                    Ok(transition) => {
                        self.gates().supersede(&lease.id, transition.lease.epoch);
                        if transition.lease.status == Status::PendingCleanup {
                            self.wake();
                        } else {
                            self.gates().close(&lease.id);
                        }
                    }
                    Err(error) => {
                        tracing::warn!(lease = lease.id, %error, "failed acquire not noted")
                    }
                }
                Err(error)
            }
        }
    }

    /// What one lease at a time is counted by: user, address as resolved, port. A name that does not resolve here (one
    /// behind a jump) counts as it is written.
    async fn account_of(&self, context: &Context) -> Option<String> {
        let mut accounts = Vec::with_capacity(context.targets.len());
        for target in context.targets.values() {
            accounts.push(target.account().await);
        }
        accounts.sort();
        (!accounts.is_empty()).then(|| format!("ssh:{}", accounts.join(",")))
    }

    /// Moves a lease's end. The provider is told first (`keep-alive`), so that the backend does not end it before.
    ///
    /// # Errors
    /// `Stale` where `expected` is not the lease's end, a conflict where the lease is not active or has ended.
    pub async fn renew(
        &self,
        actor: &Actor,
        lease: &str,
        ttl_seconds: u32,
        expected: Option<i64>,
    ) -> Result<Lease, ServiceError> {
        self.accepting()?;
        let current = self.active(lease).await?;
        let expected = expected.or(current.expires_at);
        let context = self.context_of(&current).await?;
        let for_lease = self.for_lease(&current);
        let call = self
            .call(
                &context,
                Some(&for_lease),
                Kind::new(Purpose::Run, Reach::Act, READ),
            )
            .await?;
        let kept = context
            .plugin
            .keep_alive(
                &call.setup,
                &call.config,
                handle_of(&current),
                Some(ttl_seconds),
            )
            .await
            .map_err(|failure| ServiceError::of(format!("renewing {lease}"), failure))?;
        // Two clocks bound a lease: what the backend now says, then what the client asked for, compared and set.
        let leases = self.authority().leases();
        let told = if let Some(ttl) = kept.ttl {
            let attested = Some(Duration::from_secs(ttl.into()));
            leases
                .kept_alive(actor, lease, current.epoch, attested)
                .await?
                .expires_at
        } else {
            expected
        };
        let expected = if expected == current.expires_at {
            told
        } else {
            expected
        };
        Ok(leases
            .renew(
                actor,
                lease,
                expected,
                Duration::from_secs(ttl_seconds.into()),
            )
            .await?)
    }

    /// What the provider sees of a lease's environment now.
    ///
    /// # Errors
    /// A lease that is not active; the provider's own.
    pub async fn inspect_lease(
        &self,
        _actor: &Actor,
        lease: &str,
    ) -> Result<Observation, ServiceError> {
        self.accepting()?;
        let current = self.active(lease).await?;
        let context = self.context_of(&current).await?;
        let for_lease = self.for_lease(&current);
        let call = self
            .call(
                &context,
                Some(&for_lease),
                Kind::new(Purpose::Run, Reach::Read, READ),
            )
            .await?;
        context
            .plugin
            .inspect(&call.setup, &call.config, handle_of(&current))
            .await
            .map_err(|failure| ServiceError::of(format!("inspecting {lease}"), failure))
    }

    /// Releases a lease and answers once it is proven gone, or waits for cleanup.
    ///
    /// # Errors
    /// A lease that nobody knows. Gone already is success.
    pub async fn release(&self, actor: &Actor, lease: &str) -> Result<Lease, ServiceError> {
        self.release_for(actor, lease, "requested").await
    }

    pub(crate) async fn release_for(
        &self,
        actor: &Actor,
        lease: &str,
        reason: &str,
    ) -> Result<Lease, ServiceError> {
        self.accepting()?;
        let transition = self
            .authority()
            .leases()
            .request_release(actor, lease, reason, Handling::Mine)
            .await?;
        let lease = transition.lease;
        self.gates().supersede(&lease.id, lease.epoch);
        match lease.status {
            Status::Releasing if transition.before == Status::Releasing => {
                self.settled(&lease.id).await
            }
            Status::Releasing | Status::PendingCleanup => {
                let service = self.clone();
                self.finish(async move { service.teardown(lease).await })
                    .await
            }
            _ => Ok(lease),
        }
    }

    /// Waits until a release that somebody else works on has come to something.
    async fn settled(&self, lease: &str) -> Result<Lease, ServiceError> {
        let deadline = tokio::time::Instant::now() + super::teardown::RELEASE * 2;
        loop {
            let now = self.authority().leases().get(lease).await?;
            if now.status != Status::Releasing || tokio::time::Instant::now() >= deadline {
                return Ok(now);
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Gives up on a cleanup, on a person's word.
    ///
    /// # Errors
    /// A lease that was not released first; a reason that is empty.
    pub async fn abandon(
        &self,
        actor: &Actor,
        lease: &str,
        reason: &str,
    ) -> Result<Lease, ServiceError> {
        let transition = self
            .authority()
            .leases()
            .abandon(actor, lease, reason)
            .await?;
        self.gates().close(lease);
        self.contexts().forget(lease);
        Ok(transition.lease)
    }

    /// The lease, if it may be used now.
    pub(crate) async fn active(&self, lease: &str) -> Result<Lease, ServiceError> {
        let lease = self.authority().leases().get(lease).await?;
        if lease.status != Status::Active {
            return Err(ServiceError::refused(
                "lease_not_active",
                format!(
                    "lease {} is {}; acquire another",
                    lease.id,
                    lease.status.as_str()
                ),
            ));
        }
        Ok(lease)
    }

    pub(crate) fn for_lease(&self, lease: &Lease) -> ForLease {
        ForLease::of(lease, self.gates().token(&lease.id, lease.epoch))
    }

    /// What a lease's calls need, from memory where it is there.
    pub(crate) async fn context_of(&self, lease: &Lease) -> Result<Arc<Context>, ServiceError> {
        if let Some(context) = self.contexts().get(&lease.id) {
            return Ok(context);
        }
        let plugin = self.catalog().pinned(&lease.plugin_digest).await?;
        let context = Arc::new(Context::of_lease(self.authority(), plugin, lease, "use").await?);
        if lease.status == Status::Active {
            self.contexts().put(&lease.id, context.clone());
        }
        Ok(context)
    }
}

//! Whether what a provider says it made is this lease's: the host's own look, and a claim that no other lease has.
//!
//! A provider's word is compared with what egress saw being made; what neither saw nor shows this lease's label is not
//! believed. Invariant (P2): what the host did not see to be ours never becomes active as owned, and what one lease has is
//! no other's.

use leasehold_authority::{Actor, Lease, Proof};
use leasehold_contract::{Acquired, Claim, Code, Error};
use leasehold_egress::{LeaseMark, Ownership};

use super::Service;
use super::calls::{ForLease, owner_label};
use super::checks;
use super::context::Context;
use super::error::ServiceError;
use super::places::Place;
use super::web;

/// Why a lease does not become active though its provider answered.
pub(crate) enum Unproven {
    /// Another lease has what the provider named.
    Claimed(ServiceError),
    /// What the provider named is not what egress or the host itself saw, or nobody can tell.
    Failed(Error),
}

impl Unproven {
    fn because(what: impl Into<String>) -> Unproven {
        Unproven::Failed(Error::new(Code::Internal, what))
    }

    fn unknown(error: &dyn std::fmt::Display) -> Unproven {
        Unproven::Failed(Error::new(Code::Unavailable, error.to_string()))
    }

    fn of(error: leasehold_authority::Error) -> Unproven {
        match error {
            leasehold_authority::Error::Conflict { .. } => Unproven::Claimed(error.into()),
            other => Unproven::unknown(&other),
        }
    }
}

impl Service {
    /// Looks at what a provider says it made: ours, by the host's own check, where the host saw it being made.
    pub(crate) async fn prove(
        &self,
        lease: &Lease,
        context: &Context,
        for_lease: &ForLease,
        acquired: &Acquired,
    ) -> Result<Proof, Unproven> {
        let places = Place::of(self.authority(), &lease.id).await;
        let places = places.map_err(|error| Unproven::unknown(&error))?;
        if places.is_empty() {
            return self.prove_made(lease, context, for_lease, acquired).await;
        }
        if acquired.resource != lease.acquisition {
            return Err(Unproven::because(
                "the provider names another resource than the workspace that egress saw being made",
            ));
        }
        self.board()
            .tell(&lease.id, "looking at what the provider made".to_owned());
        let mark = LeaseMark {
            owner_label: owner_label(lease),
            acquisition: lease.acquisition.clone(),
        };
        for place in places {
            let Some(target) = context.targets.get(&place.target) else {
                return Err(Unproven::because(
                    "the workspace's target is not configured",
                ));
            };
            let seen = self.ssh().verify_owned(target, &mark, &place.parent);
            if let Ownership::Ours(_) = seen.await.map_err(Unproven::Failed)? {
                return Ok(Proof::Owned);
            }
        }
        Err(Unproven::because(
            "the workspace does not carry this lease's marker where egress saw it being made",
        ))
    }

    /// As [`Service::prove`], of what a backend with an API made: the resource is the one that egress saw being made, or that
    /// the lease claims now, and where the manifest has a check of `owned`, the host itself finds this lease's label there.
    async fn prove_made(
        &self,
        lease: &Lease,
        context: &Context,
        for_lease: &ForLease,
        acquired: &Acquired,
    ) -> Result<Proof, Unproven> {
        let made = self.authority().leases().made(&lease.id).await;
        let made = made.map_err(|error| Unproven::unknown(&error))?.resource;
        let checked = checks::has(context, Claim::Owned);
        match &made {
            Some(made) if *made != acquired.resource => {
                return Err(Unproven::because(format!(
                    "the provider names the resource {}, and egress saw {made} being made",
                    acquired.resource
                )));
            }
            None if web::asked(&context.plugin).creates() && !checked => {
                return Err(Unproven::because(format!(
                    "the provider names the resource {}, which egress did not see being made; without a check of `owned` in its manifest nobody can tell whose it is",
                    acquired.resource
                )));
            }
            _ => {}
        }
        let claim = context
            .web
            .as_ref()
            .and_then(|web| web.claim(&acquired.resource));
        if !checked {
            if let (None, Some(claim)) = (made, claim) {
                let actor = Actor::system("acquire");
                let leases = self.authority().leases();
                let claimed = leases.claim_resource(&actor, &lease.id, lease.epoch, claim);
                claimed.await.map_err(Unproven::of)?;
            }
            return Ok(Proof::Claimed);
        }
        self.board()
            .tell(&lease.id, "looking at what the provider made".to_owned());
        let owned = self.is_owned(lease, context, for_lease, &acquired.resource);
        if !owned.await.map_err(|error| Unproven::unknown(&error))? {
            return Err(Unproven::because(format!(
                "the resource {} does not carry this lease's owner label",
                acquired.resource
            )));
        }
        if let (None, Some(claim)) = (made, claim) {
            // One that an earlier try made, whose answer was lost: proven now, and acted on from here.
            let leases = self.authority().leases();
            let made = leases.made_environment(&lease.id, lease.epoch, claim);
            made.await.map_err(Unproven::of)?;
        }
        Ok(Proof::Owned)
    }
}

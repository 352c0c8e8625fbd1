//! Which lease a backend's resource belongs to: one that has not ended, at most, for one resource of one account at one
//! endpoint.
//!
//! What egress saw being made is claimed in the transaction that writes it down, so that nothing can be acted on that another
//! lease has. A refusal is recorded, so it commits; it becomes an error only afterwards. A claim goes when its lease ends.

use serde_json::json;

use super::Leases;
use super::journal::{holds, standing};
use crate::activity::{ActivityOutcome, Entry};
use crate::actor::Actor;
use crate::error::{Error, Result, code};
use crate::policy::Operation;
use crate::store::{Tx, now_ms};

/// One resource of one account at one endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResourceClaim {
    /// The endpoint, as the server writes it.
    pub endpoint: String,
    /// The account there.
    pub account: String,
    /// The backend's own id.
    pub resource: String,
}

impl Leases {
    /// Claims a resource for a lease until it ends. A second claim by another lease is refused, conflict
    /// `resource_claimed`, and recorded.
    pub async fn claim_resource(
        &self,
        actor: &Actor,
        lease: &str,
        epoch: u32,
        claim: ResourceClaim,
    ) -> Result<()> {
        let (shared, actor, id) = (self.clone(), actor.clone(), lease.to_owned());
        let (lease, resource) = (id.clone(), claim.resource.clone());
        let taken = self
            .store
            .write(move |tx| {
                Box::pin(async move {
                    shared
                        .load_for(tx, &actor, Operation::AcquireLease, &id)
                        .await?;
                    holds(&id, &standing(&mut tx.db, &id).await?, epoch)?;
                    let taken = refused(tx, &actor, &id, &claim).await?;
                    if !taken {
                        take(tx, &id, &claim).await?;
                    }
                    Ok(taken)
                })
            })
            .await?;
        answered(taken, &lease, &resource)
    }
}

/// What a caller is told once a refusal is on record. Whose lease it is the record says: it may be another company's.
pub(super) fn answered(taken: bool, lease: &str, resource: &str) -> Result<()> {
    if taken {
        return Err(Error::conflict(
            code::RESOURCE_CLAIMED,
            format!("resource {resource} belongs to another lease, not to {lease}"),
        ));
    }
    Ok(())
}

/// Whether another lease has the resource: that it was asked for is recorded.
pub(super) async fn refused(
    tx: &mut Tx,
    actor: &Actor,
    lease: &str,
    claim: &ResourceClaim,
) -> Result<bool> {
    let holder: Option<String> = sqlx::query_scalar(
        "SELECT lease_id FROM resource_claims
         WHERE endpoint = $1 AND account = $2 AND resource = $3 AND lease_id <> $4",
    )
    .bind(&claim.endpoint)
    .bind(&claim.account)
    .bind(&claim.resource)
    .bind(lease)
    .fetch_optional(&mut tx.db)
    .await?;
    let Some(holder) = holder else {
        return Ok(false);
    };
    let company: String = sqlx::query_scalar("SELECT company_id FROM leases WHERE id = $1")
        .bind(lease)
        .fetch_one(&mut tx.db)
        .await?;
    tx.record(
        actor,
        Entry::new(
            "lease.claim_refused",
            Some(&company),
            "lease",
            lease,
            json!({
                "holder": holder, "endpoint": claim.endpoint,
                "account": claim.account, "resource": claim.resource,
            }),
        )
        .ended(ActivityOutcome::Denied),
    )
    .await?;
    Ok(true)
}

/// Takes a resource that no other lease has; the same again is success.
pub(super) async fn take(tx: &mut Tx, lease: &str, claim: &ResourceClaim) -> Result<()> {
    sqlx::query(concat!(
        "INSERT INTO resource_claims (endpoint, account, resource, lease_id, claimed_at)
         VALUES ($1, $2, $3, $4, ",
        now_ms!(),
        ") ON CONFLICT DO NOTHING"
    ))
    .bind(&claim.endpoint)
    .bind(&claim.account)
    .bind(&claim.resource)
    .bind(lease)
    .execute(&mut tx.db)
    .await?;
    Ok(())
}

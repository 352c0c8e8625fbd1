//! What egress itself saw of a lease in the answers of its backend: its resource, its children, and the minted values that
//! are kept for its later calls.
//!
//! Only what stands here may be acted on. A provider has no way to it: ids come from answers that egress read, or from the
//! host's own check; what another lease has is none of this one's; rows are authenticated, so that an edited one is no
//! resource. Values are sealed under the lease and the mint that they are of, and go when the lease ends.

use std::collections::BTreeSet;

use leasehold_contract::Thing;
use sqlx::{Row as _, SqliteConnection};
use zeroize::Zeroizing;

use super::claim::{self, ResourceClaim};
use super::journal::{append, holds, standing};
use super::{Leases, apply};
use crate::actor::Actor;
use crate::error::{Error, Result};
use crate::keys::{Keys, Mac};
use crate::secret::seal::{self, Aad};
use crate::store::{Row, Tx, now_ms};

/// Children of one lease at most.
const CHILDREN: i64 = 10_000;
/// Kept values of one lease, and bytes of one, at most.
const KEPT: i64 = 64;
const KEPT_BYTES: usize = 64 * 1024;

const ENVIRONMENT: &str = "environment";
const CHILD: &str = "child";

/// What was seen being made for a lease.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Made {
    /// The backend's id of the lease's environment.
    pub resource: Option<String>,
    /// Ids of what belongs to it.
    pub children: BTreeSet<String>,
}

/// Which mint of the manifest a kept value is of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptPlace {
    /// Pointer of the endpoint.
    pub endpoint: String,
    /// Method of the request.
    pub method: String,
    /// Template of the request's path.
    pub path: String,
    /// Pointer of the value in the answer.
    pub pointer: String,
}

impl KeptPlace {
    fn parts(&self) -> [&str; 4] {
        [&self.endpoint, &self.method, &self.path, &self.pointer]
    }
}

/// A minted value that a lease keeps; wiped when it is dropped.
#[derive(Clone)]
pub struct KeptSecret {
    /// The name that the component gave it.
    pub name: String,
    /// Which mint it is of.
    pub place: KeptPlace,
    /// The value.
    pub value: Zeroizing<Vec<u8>>,
}

impl std::fmt::Debug for KeptSecret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KeptSecret")
            .field("name", &self.name)
            .field("place", &self.place)
            .finish_non_exhaustive()
    }
}

fn mac(keys: &Keys, lease: &str, kind: &str, resource: &str) -> Mac {
    Mac::new(&keys.targets, "lease-made")
        .text(lease)
        .text(kind)
        .text(resource)
}

fn verified(keys: &Keys, row: &Row) -> Result<(String, String)> {
    let lease: &str = row.try_get("lease_id")?;
    let kind: String = row.try_get("kind")?;
    let resource: String = row.try_get("resource")?;
    if !mac(keys, lease, &kind, &resource).verifies(row.try_get("mac")?) {
        return Err(Error::corrupt(format!("what lease {lease} made")));
    }
    Ok((kind, resource))
}

fn kept_place(row: &Row) -> Result<KeptPlace> {
    Ok(KeptPlace {
        endpoint: row.try_get("endpoint")?,
        method: row.try_get("method")?,
        path: row.try_get("path")?,
        pointer: row.try_get("pointer")?,
    })
}

impl Leases {
    /// What was seen being made for a lease.
    pub async fn made(&self, lease: &str) -> Result<Made> {
        let rows = sqlx::query("SELECT * FROM lease_made WHERE lease_id = $1")
            .bind(lease)
            .fetch_all(self.store.read())
            .await?;
        let mut made = Made::default();
        for row in &rows {
            let (kind, resource) = verified(&self.keys, row)?;
            if kind == ENVIRONMENT {
                made.resource = Some(resource);
            } else {
                made.children.insert(resource);
            }
        }
        Ok(made)
    }

    /// Records durably which resource is the lease's, and claims it: egress saw it being made, or the host's own check found
    /// it to be the lease's. The same again is success; a second one is refused, and so, as a conflict `resource_claimed`
    /// that is recorded, is one that another lease has. [`Error::Stale`]: the epoch is over.
    pub async fn made_environment(
        &self,
        lease: &str,
        epoch: u32,
        claim: ResourceClaim,
    ) -> Result<()> {
        self.record_made(lease, epoch, ENVIRONMENT, claim).await
    }

    /// Records durably something that belongs to the lease's environment. What is another lease's environment is refused,
    /// as there. [`Error::Stale`]: the epoch is over.
    pub async fn made_child(&self, lease: &str, epoch: u32, claim: ResourceClaim) -> Result<()> {
        self.record_made(lease, epoch, CHILD, claim).await
    }

    async fn record_made(
        &self,
        lease: &str,
        epoch: u32,
        kind: &'static str,
        claim: ResourceClaim,
    ) -> Result<()> {
        apply::check_resource(&claim.resource)?;
        let id = lease.to_owned();
        let resource = claim.resource.clone();
        let taken = self
            .store
            .write(move |tx| {
                Box::pin(async move {
                    holds(&id, &standing(&mut tx.db, &id).await?, epoch)?;
                    let taken = claim::refused(tx, &Actor::system("egress"), &id, &claim).await?;
                    if !taken {
                        insert(tx, &id, epoch, kind, &claim).await?;
                    }
                    Ok(taken)
                })
            })
            .await?;
        claim::answered(taken, lease, &resource)
    }

    /// Keeps a minted value, sealed, for the lease's later calls, in place of an older one of the name.
    /// [`Error::Stale`]: the epoch is over.
    pub async fn keep(&self, lease: &str, epoch: u32, kept: KeptSecret) -> Result<()> {
        if kept.value.len() > KEPT_BYTES {
            return Err(Error::invalid(
                "/keep",
                format!("a kept value has at most {KEPT_BYTES} bytes"),
            ));
        }
        let lease = lease.to_owned();
        self.store
            .write(move |tx| {
                Box::pin(async move {
                    holds(&lease, &standing(&mut tx.db, &lease).await?, epoch)?;
                    let others: i64 = sqlx::query_scalar(
                        "SELECT COUNT(*) FROM lease_kept WHERE lease_id = $1 AND name <> $2",
                    )
                    .bind(&lease)
                    .bind(&kept.name)
                    .fetch_one(&mut tx.db)
                    .await?;
                    if others >= KEPT {
                        return Err(Error::invalid(
                            "/keep",
                            format!("a lease keeps at most {KEPT} values; use a name again"),
                        ));
                    }
                    let aad = Aad::minted(&lease, &kept.name, kept.place.parts());
                    let sealed = seal::seal(&tx.keys.secrets, &aad, &kept.value)?;
                    sqlx::query(
                        "INSERT OR REPLACE INTO lease_kept
                             (lease_id, name, endpoint, method, path, pointer, sealed)
                         VALUES ($1, $2, $3, $4, $5, $6, $7)",
                    )
                    .bind(&lease)
                    .bind(&kept.name)
                    .bind(&kept.place.endpoint)
                    .bind(&kept.place.method)
                    .bind(&kept.place.path)
                    .bind(&kept.place.pointer)
                    .bind(sealed)
                    .execute(&mut tx.db)
                    .await?;
                    Ok(())
                })
            })
            .await
    }

    /// The minted values that a lease keeps.
    pub async fn kept(&self, lease: &str) -> Result<Vec<KeptSecret>> {
        let rows = sqlx::query("SELECT * FROM lease_kept WHERE lease_id = $1 ORDER BY name")
            .bind(lease)
            .fetch_all(self.store.read())
            .await?;
        rows.iter()
            .map(|row| {
                let name: String = row.try_get("name")?;
                let place = kept_place(row)?;
                let value = seal::open(
                    &self.keys.secrets,
                    &Aad::minted(lease, &name, place.parts()),
                    row.try_get("sealed")?,
                    &format!("the value {name:?} that lease {lease} keeps"),
                )?;
                Ok(KeptSecret { name, place, value })
            })
            .collect()
    }
}

async fn insert(
    tx: &mut Tx,
    lease: &str,
    epoch: u32,
    kind: &'static str,
    claim: &ResourceClaim,
) -> Result<()> {
    let resource = claim.resource.as_str();
    let known: Vec<String> =
        sqlx::query_scalar("SELECT resource FROM lease_made WHERE lease_id = $1 AND kind = $2")
            .bind(lease)
            .bind(kind)
            .fetch_all(&mut tx.db)
            .await?;
    if known.iter().any(|one| one == resource) {
        return Ok(());
    }
    if kind == ENVIRONMENT
        && let Some(first) = known.first()
    {
        return Err(Error::invalid(
            "/resource",
            format!("lease {lease} has the environment {first} already, and {resource} is another"),
        ));
    }
    if i64::try_from(known.len()).unwrap_or(i64::MAX) >= CHILDREN {
        return Err(Error::invalid(
            "/resource",
            format!("lease {lease} has {CHILDREN} children; release it and acquire another"),
        ));
    }
    let mac = mac(&tx.keys, lease, kind, resource).done();
    sqlx::query(concat!(
        "INSERT INTO lease_made (lease_id, kind, resource, epoch, at, mac) VALUES ($1, $2, $3, $4, ",
        now_ms!(),
        ", $5)"
    ))
    .bind(lease)
    .bind(kind)
    .bind(resource)
    .bind(i64::from(epoch))
    .bind(&mac[..])
    .execute(&mut tx.db)
    .await?;
    if kind == ENVIRONMENT {
        // What finds it again after a crash, and what a list of several is decided by.
        append(tx, lease, epoch, Thing::Environment, resource, None).await?;
        claim::take(tx, lease, claim).await?;
    }
    Ok(())
}

/// Authenticates and seals everything here under other keys, each after it verified under the old. Returns how many.
pub(super) async fn sign_again(db: &mut SqliteConnection, old: &Keys, new: &Keys) -> Result<u64> {
    let made = sqlx::query("SELECT * FROM lease_made")
        .fetch_all(&mut *db)
        .await?;
    for row in &made {
        let lease: &str = row.try_get("lease_id")?;
        let (kind, resource) = verified(old, row)?;
        let mac = mac(new, lease, &kind, &resource).done();
        sqlx::query(
            "UPDATE lease_made SET mac = $4 WHERE lease_id = $1 AND kind = $2 AND resource = $3",
        )
        .bind(lease)
        .bind(&kind)
        .bind(&resource)
        .bind(&mac[..])
        .execute(&mut *db)
        .await?;
    }
    let kept = sqlx::query("SELECT * FROM lease_kept")
        .fetch_all(&mut *db)
        .await?;
    for row in &kept {
        let (lease, name): (&str, &str) = (row.try_get("lease_id")?, row.try_get("name")?);
        let place = kept_place(row)?;
        let aad = Aad::minted(lease, name, place.parts());
        let what = format!("the value {name:?} that lease {lease} keeps");
        let value = seal::open(&old.secrets, &aad, row.try_get("sealed")?, &what)?;
        let sealed = seal::seal(&new.secrets, &aad, &value)?;
        sqlx::query("UPDATE lease_kept SET sealed = $3 WHERE lease_id = $1 AND name = $2")
            .bind(lease)
            .bind(name)
            .bind(sealed)
            .execute(&mut *db)
            .await?;
    }
    Ok((made.len() + kept.len()) as u64)
}

//! Changes of secrets that reach further than the authority: connections that were made with a value, and values in memory.
//!
//! What the authority has changed durably is followed here at once: nothing new starts with a value that is gone.

use std::collections::BTreeSet;

use leasehold_authority::{Actor, Secret, SecretUses};
use leasehold_egress::PoolScope;
use zeroize::Zeroizing;

use super::Service;
use super::context;
use super::error::ServiceError;

impl Service {
    /// Puts a new value in as a secret's newest version. Connections that were made with the one before leave the
    /// pools; leases that pinned it connect with it again.
    ///
    /// # Errors
    /// The authority's; nothing is changed then.
    pub async fn rotate_secret(
        &self,
        actor: &Actor,
        id: &str,
        value: Zeroizing<Vec<u8>>,
    ) -> Result<Secret, ServiceError> {
        self.accepting()?;
        let secret = self
            .authority()
            .secrets()
            .put_version(actor, id, value)
            .await?;
        self.close_secret(id, secret.latest_version - 1);
        Ok(secret)
    }

    /// Deletes a secret; by force also one that is used. Nothing new starts with it from then on: its connections leave
    /// the pools and no lease has it in memory any more. What runs goes on.
    ///
    /// # Errors
    /// The authority's; nothing is changed then.
    pub async fn delete_secret(
        &self,
        actor: &Actor,
        id: &str,
        force: bool,
    ) -> Result<SecretUses, ServiceError> {
        self.accepting()?;
        let uses = self.authority().secrets().delete(actor, id, force).await?;
        for lease in uses.lease_ids() {
            self.contexts().forget(lease);
        }
        let versions = uses.environments.iter().map(|u| u.version);
        let versions: BTreeSet<i64> = versions
            .chain(uses.leases.iter().map(|u| u.version))
            .collect();
        for version in versions {
            self.close_secret(id, version);
        }
        Ok(uses)
    }

    fn close_secret(&self, id: &str, version: i64) {
        self.close_pools(&PoolScope {
            secret_version: Some(context::version_of(id, version)),
            ..PoolScope::default()
        });
    }
}

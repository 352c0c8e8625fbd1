//! Secrets of a company or of the instance: values that are kept sealed, in versions, and used only where they are bound.
//!
//! Use goes through a binding: the data key wrapped for one place (pointer, sites, destinations) of one
//! environment or one lease. Only the save of an environment by an administrator makes one; moving a
//! destination needs a new one; a rotation re-binds what follows `latest` after the old binding verified. A
//! value is in memory only, in buffers that are wiped; it is in no error, no log and no activity.

mod access;
mod binding;
mod named;
mod pasted;
mod reference;
mod resolve;
mod rewrap;
mod row;
pub(crate) mod seal;
mod usage;
mod version;

use std::sync::Arc;

use serde_json::json;
use zeroize::Zeroizing;

pub(crate) use access::AccessLog;
pub use access::{Access, AccessFilter, Accessor};
pub(crate) use binding::{Wanted, bind, drop_pins, pin_for_lease};
pub use named::NamedSecret;
pub(crate) use named::NamedUses;
pub(crate) use pasted::put as put_pasted;
pub use pasted::{PastedSecret, take_pasted};
pub(crate) use reference::{Reference, find as find_references, read as read_reference};
pub use reference::{Selector, env_pointer};
pub use resolve::{Pin, Resolved};
pub(crate) use rewrap::re_wrap;
pub(crate) use row::with_status;
pub use row::{Secret, SecretPurpose, UnknownPurpose, VersionStatus};
pub(crate) use usage::of_nothing_else;
pub use usage::{EnvironmentUse, LeaseUse, SecretUses};
pub use version::SecretVersion;

use crate::activity::Entry;
use crate::actor::Actor;
use crate::environment::EnvironmentMemory;
use crate::error::{Error, Result, code};
use crate::keys::Keys;
use crate::policy::Operation;
use crate::store::{Store, Tx, is_unique_violation};
use crate::{company, id, idempotency, name};

/// Bytes of a value at most.
pub const MAX_VALUE: usize = 64 * 1024;

/// The secrets.
#[derive(Clone)]
pub struct Secrets {
    pub(crate) store: Arc<Store>,
    pub(crate) keys: Arc<Keys>,
    pub(crate) environments: Arc<EnvironmentMemory>,
    pub(crate) accesses: Arc<AccessLog>,
    pub(crate) named: Arc<NamedUses>,
}

/// A secret to be kept.
pub struct NewSecret {
    /// Whose it is; none for one of the instance.
    pub company: Option<String>,
    /// 1 to 100 characters, unique in the company or among those of the instance.
    pub name: String,
    /// What the value is for.
    pub purpose: SecretPurpose,
    /// For a person.
    pub description: Option<String>,
    /// The value of the first version; wiped when dropped.
    pub value: Zeroizing<Vec<u8>>,
}

impl std::fmt::Debug for NewSecret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NewSecret")
            .field("company", &self.company)
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

fn check_value(pointer: &str, value: &[u8]) -> Result<()> {
    if value.is_empty() || value.len() > MAX_VALUE {
        return Err(Error::invalid(
            pointer,
            format!("must be 1 to {MAX_VALUE} bytes, and has {}", value.len()),
        ));
    }
    Ok(())
}

/// Keeps a checked secret under an id, with its first version.
async fn insert(tx: &mut Tx, actor: &Actor, id: String, new: NewSecret) -> Result<Secret> {
    let now = tx.now();
    let secret = Secret {
        id,
        company_id: new.company,
        name: new.name,
        purpose: new.purpose,
        description: new.description,
        latest_version: 1,
        created_at: now,
        updated_at: now,
    };
    row::insert(tx, &secret).await.map_err(|e| match e {
        Error::Storage(e) if is_unique_violation(&e, "secrets.name") => Error::conflict(
            code::SECRET_NAME_TAKEN,
            format!(
                "{} has a secret named {:?} already",
                match &secret.company_id {
                    Some(_) => "the company",
                    None => "the instance",
                },
                secret.name
            ),
        ),
        other => other,
    })?;
    version::put(tx, &secret, 1, &new.value, actor).await?;
    tx.record(
        actor,
        Entry::new(
            "secret.created",
            secret.company_id.as_deref(),
            "secret",
            &secret.id,
            json!({ "name": secret.name, "purpose": secret.purpose }),
        ),
    )
    .await?;
    Ok(secret)
}

impl Secrets {
    /// Keeps a value as the first version of a new secret.
    pub async fn create(&self, actor: &Actor, mut new: NewSecret) -> Result<Secret> {
        actor.may(match &new.company {
            Some(_) => Operation::CreateSecret,
            None => Operation::CreateInstanceSecret,
        })?;
        new.name = name::checked("/name", &new.name)?;
        new.description = name::description("/description", new.description.as_deref())?;
        check_value("/value", &new.value)?;
        let actor = actor.clone();
        let claim = idempotency::current();
        self.store
            .write(move |tx| {
                Box::pin(async move {
                    if let Some(company) = &new.company {
                        company::must_exist(&mut tx.db, company).await?;
                    }
                    let secret = insert(tx, &actor, id::fresh("sec_")?, new).await?;
                    idempotency::made(tx, claim.as_ref(), &secret.id).await?;
                    Ok(secret)
                })
            })
            .await
    }

    /// One secret.
    pub async fn get(&self, id: &str) -> Result<Secret> {
        row::load(self.store.read(), &self.keys, id).await
    }

    /// A company's secrets, or those of the instance, by name; of one purpose where that is given.
    pub async fn list(
        &self,
        company: Option<&str>,
        purpose: Option<SecretPurpose>,
    ) -> Result<Vec<Secret>> {
        if let Some(company) = company {
            company::must_exist(self.store.read(), company).await?;
        }
        let mut all = row::list(self.store.read(), &self.keys, company).await?;
        all.retain(|secret| purpose.is_none_or(|p| p == secret.purpose));
        Ok(all)
    }
}

//! Environments: the configured targets of a company, or of all companies together.
//!
//! A save stores the row and its secrets' bindings in one transaction. `revision` counts the saves, for
//! compare-and-set; `target_revision` counts what changes the target itself: configuration, driver,
//! provider, variables, secret versions, plugin revision, and no name, description or metadata. Rows are
//! authenticated, so that nobody points a credential elsewhere by editing the database.

mod default;
mod delete;
mod draft;
mod owner;
mod reserved;
mod row;
mod standing;

use std::sync::Arc;

use serde::Serialize;
use serde_json::json;

pub use default::Defaults;
pub(crate) use default::read as read_defaults;
pub use delete::{ActiveRuntimeUse, BlastRadius, HOLDERS, LeaseHolder, StaticReferences};
pub use draft::{
    EnvironmentDraft, EnvironmentDriver, EnvironmentPatch, EnvironmentSecrets, EnvironmentStatus,
    SecretUse,
};
pub use owner::OthersUse;
pub use row::{Environment, EnvironmentFilter};
pub(crate) use row::{
    EnvironmentMemory, is_seen_by, load, raise_for_provider, raise_target, sign_again,
    with_endpoints,
};
pub use standing::{LOCAL, Managed};

use crate::activity::Entry;
use crate::actor::Actor;
use crate::error::{Error, Result, code};
use crate::keys::Keys;
use crate::policy::Operation;
use crate::secret::{self, PastedSecret, Selector};
use crate::store::{Store, Tx, is_unique_violation};
use crate::{company, id, idempotency, plugin};

/// A secret that an environment refers to; no value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SecretRef {
    /// Which secret.
    pub secret_id: String,
    /// Its name.
    pub name: String,
    /// A pointer into the configuration, or `env:NAME`.
    pub pointer: String,
    /// Which version is meant.
    pub selector: Selector,
    /// Which version that is now.
    pub version: i64,
}

/// The environments.
#[derive(Clone)]
pub struct Environments {
    pub(crate) store: Arc<Store>,
    pub(crate) keys: Arc<Keys>,
    pub(crate) memory: Arc<EnvironmentMemory>,
}

/// Fails unless a plugin of this key is installed and leases this driver.
async fn check_provider(tx: &mut Tx, draft: &EnvironmentDraft) -> Result<()> {
    if draft.driver == EnvironmentDriver::Local {
        return Ok(());
    }
    let Some(plugin) = plugin::plugin_row(&mut tx.db, &tx.keys, &draft.provider).await? else {
        return Err(Error::invalid(
            "/provider",
            format!(
                "no plugin {:?} is installed: install it first",
                draft.provider
            ),
        ));
    };
    let Some(current) = &plugin.current else {
        return Err(Error::invalid(
            "/provider",
            format!(
                "plugin {0:?} waits for its grant: look at what it asks for with `leasehold plugin show {0}`, then grant it",
                draft.provider
            ),
        ));
    };
    let revision = plugin::revision_row(&mut tx.db, &tx.keys, current)
        .await?
        .ok_or_else(|| Error::corrupt(format!("plugin {}", draft.provider)))?;
    if revision.driver.as_str() != draft.driver.as_str() {
        return Err(Error::invalid(
            "/driver",
            format!(
                "plugin {:?} leases {} environments, not {}",
                draft.provider,
                revision.driver.as_str(),
                draft.driver.as_str()
            ),
        ));
    }
    Ok(())
}

fn taken(name: String) -> impl FnOnce(Error) -> Error {
    move |e| match e {
        Error::Storage(e) if is_unique_violation(&e, "environments.name") => Error::conflict(
            code::ENVIRONMENT_NAME_TAKEN,
            format!("an environment named {name:?} is there already: choose another name"),
        ),
        other => other,
    }
}

impl Environments {
    /// Saves a new environment with the bindings of its secrets, and the secrets that were pasted into it.
    pub async fn create(
        &self,
        actor: &Actor,
        company: &str,
        draft: EnvironmentDraft,
        secrets: impl Into<EnvironmentSecrets>,
    ) -> Result<Environment> {
        self.create_for(actor, Some(company.to_owned()), draft, secrets.into())
            .await
    }

    /// The same of one that all companies share.
    pub async fn create_shared(
        &self,
        actor: &Actor,
        draft: EnvironmentDraft,
        secrets: impl Into<EnvironmentSecrets>,
    ) -> Result<Environment> {
        self.create_for(actor, None, draft, secrets.into()).await
    }

    async fn create_for(
        &self,
        actor: &Actor,
        company: Option<String>,
        draft: EnvironmentDraft,
        secrets: EnvironmentSecrets,
    ) -> Result<Environment> {
        actor.may(Operation::CreateEnvironment)?;
        let EnvironmentSecrets {
            uses,
            pasted,
            endpoints,
        } = secrets;
        let checked = draft::check(draft, uses)?;
        if checked.draft.driver == EnvironmentDriver::Local {
            return Err(self.no_other_local(company.as_deref()).await?);
        }
        let actor = actor.clone();
        let memory = Arc::clone(&self.memory);
        let claim = idempotency::current();
        self.store
            .write(move |tx| {
                Box::pin(async move {
                    if let Some(company) = &company {
                        company::must_exist(&mut tx.db, company).await?;
                    }
                    check_provider(tx, &checked.draft).await?;
                    row::name_is_free(tx, company.as_deref(), &checked.draft.name, None).await?;
                    let now = tx.now();
                    let environment =
                        Environment::of(id::fresh("env_")?, company, checked.draft, endpoints, now);
                    row::insert(tx, &environment)
                        .await
                        .map_err(taken(environment.name.clone()))?;
                    idempotency::made(tx, claim.as_ref(), &environment.id).await?;
                    let company = environment.company_id.as_deref();
                    secret::put_pasted(tx, &actor, company, &environment.name, pasted).await?;
                    secret::bind(
                        tx,
                        &actor,
                        company,
                        &environment.id,
                        checked.wanted,
                        false,
                        false,
                    )
                    .await?;
                    tx.record(
                        &actor,
                        Entry::new(
                            "environment.created",
                            environment.company_id.as_deref(),
                            "environment",
                            &environment.id,
                            json!({
                                "name": environment.name,
                                "driver": environment.driver,
                                "provider": environment.provider,
                                "configKeys": environment.config.len(),
                                "envVars": environment.env_vars.len(),
                            }),
                        ),
                    )
                    .await?;
                    memory.forget_after(tx);
                    Ok(environment)
                })
            })
            .await
    }

    /// Saves an environment whole, if it is still at `expected_revision`; its secrets are bound as the uses
    /// say, which is the administrator's word for where each may go. [`Error::Stale`]: it was saved
    /// meanwhile, read it again.
    pub async fn update(
        &self,
        actor: &Actor,
        id: &str,
        expected_revision: i64,
        draft: EnvironmentDraft,
        secrets: impl Into<EnvironmentSecrets>,
    ) -> Result<Environment> {
        self.save(actor, id, expected_revision, None, draft, secrets.into())
            .await
    }

    /// The same, and from then on it is this company's own, or shared by all where there is none. A conflict while others
    /// use what becomes one company's own; its details are the [`OthersUse`].
    pub async fn update_and_move(
        &self,
        actor: &Actor,
        id: &str,
        expected_revision: i64,
        company: Option<String>,
        draft: EnvironmentDraft,
        secrets: impl Into<EnvironmentSecrets>,
    ) -> Result<Environment> {
        let owner = Some(company);
        self.save(actor, id, expected_revision, owner, draft, secrets.into())
            .await
    }

    async fn save(
        &self,
        actor: &Actor,
        id: &str,
        expected_revision: i64,
        owner: Option<Option<String>>,
        draft: EnvironmentDraft,
        secrets: EnvironmentSecrets,
    ) -> Result<Environment> {
        actor.may(Operation::UpdateEnvironment)?;
        let EnvironmentSecrets {
            uses,
            pasted,
            endpoints,
        } = secrets;
        let save = Save {
            actor: actor.clone(),
            id: id.to_owned(),
            expected_revision,
            owner,
            checked: draft::check(draft, uses)?,
            pasted,
            endpoints,
            memory: Arc::clone(&self.memory),
        };
        self.store.write(move |tx| Box::pin(update(tx, save))).await
    }

    /// Stops new leases. Archived already is success.
    pub async fn archive(&self, actor: &Actor, id: &str) -> Result<Environment> {
        self.set_status(actor, id, EnvironmentStatus::Archived)
            .await
    }

    /// Allows new leases again. Active already is success.
    pub async fn activate(&self, actor: &Actor, id: &str) -> Result<Environment> {
        self.set_status(actor, id, EnvironmentStatus::Active).await
    }

    async fn set_status(
        &self,
        actor: &Actor,
        id: &str,
        status: EnvironmentStatus,
    ) -> Result<Environment> {
        actor.may(Operation::UpdateEnvironment)?;
        let (actor, id) = (actor.clone(), id.to_owned());
        let memory = Arc::clone(&self.memory);
        self.store
            .write(move |tx| {
                Box::pin(async move {
                    let mut environment = load(&mut tx.db, &tx.keys, &id).await?;
                    if environment.status == status {
                        return Ok(environment);
                    }
                    environment.status = status;
                    environment.revision += 1;
                    environment.updated_at = tx.now();
                    row::store(tx, &environment).await?;
                    tx.record(
                        &actor,
                        Entry::new(
                            "environment.updated",
                            environment.company_id.as_deref(),
                            "environment",
                            &id,
                            json!({ "changed": ["status"], "status": status }),
                        ),
                    )
                    .await?;
                    memory.forget_after(tx);
                    Ok(environment)
                })
            })
            .await
    }

    /// One environment.
    pub async fn get(&self, id: &str) -> Result<Environment> {
        self.memory
            .shown(load(self.store.read(), &self.keys, id).await?)
    }

    /// The environments that a company sees by name: its own, and those that all share. Answered from memory where that is true: a change by this process
    /// shows at once, one by another process on the same database within two seconds.
    pub async fn list(
        &self,
        company: &str,
        filter: &EnvironmentFilter,
    ) -> Result<Arc<[Environment]>> {
        let all = self
            .memory
            .of_company(&self.store, &self.keys, company)
            .await?;
        if *filter == EnvironmentFilter::default() {
            return Ok(all);
        }
        Ok(all.iter().filter(|e| filter.takes(e)).cloned().collect())
    }

    /// The secrets that an environment refers to.
    pub async fn secret_refs(&self, id: &str) -> Result<Vec<SecretRef>> {
        self.get(id).await?;
        let rows: Vec<(String, String, String, String, i64)> = sqlx::query_as(
            "SELECT b.secret_id, s.name, b.pointer, b.selector, b.version
             FROM secret_bindings b JOIN secrets s ON s.id = b.secret_id
             WHERE b.environment_id = $1 ORDER BY b.pointer",
        )
        .bind(id)
        .fetch_all(self.store.read())
        .await?;
        rows.into_iter()
            .map(|(secret_id, name, pointer, selector, version)| {
                Ok(SecretRef {
                    secret_id,
                    name,
                    selector: Selector::parse(&selector).ok_or_else(|| {
                        Error::corrupt(format!("the binding at {pointer} of environment {id}"))
                    })?,
                    pointer,
                    version,
                })
            })
            .collect()
    }
}

/// A save of an environment that is there.
struct Save {
    actor: Actor,
    id: String,
    expected_revision: i64,
    owner: Option<Option<String>>,
    checked: draft::Checked,
    pasted: Vec<PastedSecret>,
    endpoints: Vec<String>,
    memory: Arc<EnvironmentMemory>,
}

async fn update(tx: &mut Tx, save: Save) -> Result<Environment> {
    let Save {
        actor,
        id,
        expected_revision,
        owner,
        checked,
        pasted,
        endpoints,
        memory,
    } = save;
    let before = memory.shown(load(&mut tx.db, &tx.keys, &id).await?)?;
    if before.revision != expected_revision {
        return Err(Error::stale(
            "environment",
            format!(
                "environment {id} is at revision {}, not {expected_revision}: it was saved meanwhile, read it again",
                before.revision
            ),
        ));
    }
    standing::may_become(&before, &checked.draft)?;
    let company = owner.unwrap_or_else(|| before.company_id.clone());
    let moved = company != before.company_id;
    if moved {
        owner::may_be(tx, &before, company.as_deref()).await?;
    }
    check_provider(tx, &checked.draft).await?;
    let d = checked.draft;
    let turned = d.driver != before.driver
        || d.provider != before.provider
        || d.config != before.config
        || endpoints != before.endpoints;
    if turned {
        owner::may_turn(tx, &before).await?;
    }
    let owned_by = company.as_deref();
    row::name_is_free(tx, owned_by, &d.name, Some(&id)).await?;
    let as_before = d.config == before.config && d.env_vars == before.env_vars;
    secret::put_pasted(tx, &actor, owned_by, &d.name, pasted).await?;
    let wanted = checked.wanted;
    let rebound = secret::bind(tx, &actor, owned_by, &id, wanted, as_before, moved).await?;
    let differences = [
        ("companyId", moved),
        ("name", d.name != before.name),
        ("description", d.description != before.description),
        ("driver", d.driver != before.driver),
        ("provider", d.provider != before.provider),
        ("config", d.config != before.config),
        ("envVars", d.env_vars != before.env_vars),
        ("metadata", d.metadata != before.metadata),
        ("status", d.status != before.status),
    ];
    let changed: Vec<&str> = differences
        .iter()
        .filter_map(|(field, differs)| differs.then_some(*field))
        .collect();
    let target = rebound
        || endpoints != before.endpoints
        || changed
            .iter()
            .any(|f| matches!(*f, "driver" | "provider" | "config" | "envVars"));
    let left = moved.then(|| before.company_id.clone()).flatten();
    let environment = Environment {
        company_id: company,
        name: d.name,
        description: d.description,
        driver: d.driver,
        provider: d.provider,
        config: d.config,
        env_vars: d.env_vars,
        metadata: d.metadata,
        status: d.status,
        endpoints,
        revision: before.revision + 1,
        target_revision: before.target_revision + i64::from(target),
        updated_at: tx.now(),
        ..before
    };
    row::store(tx, &environment)
        .await
        .map_err(taken(environment.name.clone()))?;
    let told = json!({
        "changed": changed,
        "configKeys": environment.config.len(),
        "envVars": environment.env_vars.len(),
        "targetRevision": environment.target_revision,
    });
    // The company that had it for itself is told, too: to that it is gone, or everybody's.
    let all = [environment.company_id.as_deref(), left.as_deref()];
    for company in &all[..if left.is_some() { 2 } else { 1 }] {
        let entry = Entry::new(
            "environment.updated",
            *company,
            "environment",
            &id,
            told.clone(),
        );
        tx.record(&actor, entry).await?;
    }
    memory.forget_after(tx);
    Ok(environment)
}

//! The lease's row: its type, its authentication and its way from the database.
//!
//! What a lease was acquired with (the intent) is authenticated and never changes; release works from it
//! alone. The rest is the machine's state.

use std::collections::BTreeMap;

use leasehold_contract::{Label, LeaseRef, Purpose};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use sqlx::{Row as _, SqliteConnection};

use super::label::Owner;
use super::machine::{Proof, State, Status};
use super::made;
use crate::environment::{EnvironmentDriver, with_endpoints};
use crate::error::{Error, Result};
use crate::keys::{Keys, Mac};
use crate::policy::Scope;
use crate::store::{Db, Row};

/// Who the lease is for, in the client's own ids. Unknown to the host.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CallerRefs {
    /// The agent.
    pub agent: Option<String>,
    /// Its run.
    pub run: Option<String>,
    /// Its workspace.
    pub workspace: Option<String>,
    /// Its issue.
    pub issue: Option<String>,
}

/// A version of a secret that a lease was acquired with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PinnedVersion {
    /// Which secret.
    pub secret_id: String,
    /// Which version.
    pub version: i64,
}

/// The host's record that someone may use one realised environment, for a time. Times are milliseconds
/// since the epoch.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Lease {
    /// `lease_…`.
    pub id: String,
    /// Whose it is.
    pub company_id: String,
    /// Of which environment, which may be gone by now.
    pub environment_id: String,
    /// The environment's name when it was acquired.
    pub environment_name: String,
    /// The environment's target revision when it was acquired.
    pub target_revision: i64,
    /// The component that made it and tears it down.
    pub plugin_digest: String,
    /// The plugin's key.
    pub provider: String,
    /// The kind of environment.
    pub driver: EnvironmentDriver,
    /// What for.
    pub purpose: Purpose,
    /// The configuration that it was acquired with; secrets are references.
    pub config: Map<String, Value>,
    /// The variables that it was acquired with.
    pub env_vars: Map<String, Value>,
    /// Pointers of the endpoints that somebody had typed into the configuration.
    #[serde(skip)]
    pub endpoints: Vec<String>,
    /// The versions of secrets that it was acquired with, by pointer.
    pub secret_versions: BTreeMap<String, PinnedVersion>,
    /// What it has for itself alone, if anything.
    pub exclusive_key: Option<String>,
    /// The time to live that was asked for, in milliseconds.
    pub ttl: Option<i64>,
    /// Who it is for.
    pub caller: CallerRefs,
    /// The client's idempotency key.
    pub idempotency_key: Option<String>,
    /// Idempotency key of the creation at the backend.
    pub acquisition: String,
    /// The database's incarnation when it was acquired.
    pub incarnation: String,
    /// The labels that stand on everything that it creates.
    pub labels: Vec<Label>,
    /// Who began it.
    pub created_by: String,
    /// When it was begun.
    pub created_at: i64,

    /// Where it stands.
    pub status: Status,
    /// Fencing token.
    pub epoch: u32,
    /// Whether a request that may have created something was sent.
    pub unsafe_sent: bool,
    /// The backend's own id.
    pub resource: Option<String>,
    /// The provider's handle, opaque JSON.
    pub handle: Option<String>,
    /// Where commands start.
    pub workspace: Option<String>,
    /// How far the resource is proven.
    pub proof: Option<Proof>,
    /// When a list first showed nothing of it.
    pub absent_since: Option<i64>,
    /// When it became active.
    pub acquired_at: Option<i64>,
    /// When its use ends: the least of what the client asked and the backend will keep.
    pub expires_at: Option<i64>,
    /// When a command was last begun.
    pub last_used_at: Option<i64>,
    /// Why it is being, or was, ended.
    pub reason: Option<String>,
    /// What went wrong last.
    pub failure: Option<String>,
    /// How often cleanup was tried in vain.
    pub attempts: u32,
    /// When it is tried again.
    pub next_attempt_at: Option<i64>,
    /// When it ended.
    pub released_at: Option<i64>,
    /// When anything last changed.
    pub updated_at: i64,
    /// The replica that works on it.
    pub claimed_by: Option<String>,
    /// Rises with every claim.
    pub claim_epoch: i64,
    /// Until when the claim holds.
    pub claimed_until: Option<i64>,
}

impl Lease {
    /// What the policy looks at.
    pub fn scope(&self) -> Scope<'_> {
        Scope::Run {
            company: &self.company_id,
            run: self.caller.run.as_deref(),
        }
    }

    /// As a component is told of it.
    pub fn contract_ref(&self) -> LeaseRef {
        LeaseRef {
            id: self.id.clone(),
            acquisition: self.acquisition.clone(),
            epoch: self.epoch,
        }
    }

    pub(super) fn state(&self) -> State {
        State {
            status: self.status,
            epoch: self.epoch,
            unsafe_sent: self.unsafe_sent,
            resource: self.resource.clone(),
            absent_since: self.absent_since,
            attempts: self.attempts,
            reason: self.reason.clone(),
            failure: self.failure.clone(),
        }
    }
}

pub(super) fn purpose_str(purpose: Purpose) -> &'static str {
    match purpose {
        Purpose::Run => "run",
        Purpose::Probe => "probe",
        Purpose::Setup => "setup",
        Purpose::Cleanup => "cleanup",
        Purpose::Reconcile => "reconcile",
    }
}

fn purpose(text: &str) -> Option<Purpose> {
    [
        Purpose::Run,
        Purpose::Probe,
        Purpose::Setup,
        Purpose::Cleanup,
        Purpose::Reconcile,
    ]
    .into_iter()
    .find(|p| purpose_str(*p) == text)
}

/// The columns of the intent, which never change.
pub(super) struct Intent {
    pub id: String,
    pub company_id: String,
    pub environment_id: String,
    pub environment: String,
    pub target_revision: i64,
    pub plugin_digest: String,
    pub provider: String,
    pub driver: String,
    pub purpose: String,
    pub config: String,
    pub env_vars: String,
    pub secret_versions: String,
    pub account_key: Option<String>,
    pub exclusive_key: Option<String>,
    pub ttl: Option<i64>,
    pub caller: CallerRefs,
    /// Pointers of the typed endpoints, as JSON.
    pub endpoints: String,
    pub idempotency_key: Option<String>,
    pub request_digest: Vec<u8>,
    pub acquisition: String,
    pub incarnation: String,
    pub fingerprint: String,
    pub created_by: String,
    pub created_at: i64,
}

impl Intent {
    pub fn mac(&self, keys: &Keys) -> Mac {
        let mac = Mac::new(&keys.targets, "lease")
            .text(&self.id)
            .text(&self.company_id)
            .text(&self.environment_id)
            .text(&self.environment)
            .int(self.target_revision)
            .text(&self.plugin_digest)
            .text(&self.provider)
            .text(&self.driver)
            .text(&self.purpose)
            .text(&self.config)
            .text(&self.env_vars)
            .text(&self.secret_versions)
            .text_or(self.account_key.as_deref())
            .text_or(self.exclusive_key.as_deref())
            .int_or(self.ttl)
            .text_or(self.caller.agent.as_deref())
            .text_or(self.caller.run.as_deref())
            .text_or(self.caller.workspace.as_deref())
            .text_or(self.caller.issue.as_deref())
            .text_or(self.idempotency_key.as_deref())
            .bytes(&self.request_digest)
            .text(&self.acquisition)
            .text(&self.incarnation)
            .text(&self.fingerprint)
            .text(&self.created_by)
            .int(self.created_at);
        with_endpoints(mac, &self.endpoints)
    }

    fn of(row: &Row) -> Result<Intent> {
        Ok(Intent {
            id: row.try_get("id")?,
            company_id: row.try_get("company_id")?,
            environment_id: row.try_get("environment_id")?,
            environment: row.try_get("environment")?,
            target_revision: row.try_get("target_revision")?,
            plugin_digest: row.try_get("plugin_digest")?,
            provider: row.try_get("provider")?,
            driver: row.try_get("driver")?,
            purpose: row.try_get("purpose")?,
            config: row.try_get("config")?,
            env_vars: row.try_get("env_vars")?,
            secret_versions: row.try_get("secret_versions")?,
            account_key: row.try_get("account_key")?,
            exclusive_key: row.try_get("exclusive_key")?,
            ttl: row.try_get("ttl")?,
            caller: CallerRefs {
                agent: row.try_get("agent")?,
                run: row.try_get("run")?,
                workspace: row.try_get("workspace_ref")?,
                issue: row.try_get("issue")?,
            },
            endpoints: row.try_get("endpoints")?,
            idempotency_key: row.try_get("idempotency_key")?,
            request_digest: row.try_get("request_digest")?,
            acquisition: row.try_get("acquisition")?,
            incarnation: row.try_get("incarnation")?,
            fingerprint: row.try_get("fingerprint")?,
            created_by: row.try_get("created_by")?,
            created_at: row.try_get("created_at")?,
        })
    }
}

/// A lease of a row, authenticated.
pub(super) fn lease(keys: &Keys, host: &str, row: &Row) -> Result<Lease> {
    let intent = Intent::of(row)?;
    let corrupt = || Error::corrupt(format!("lease {}", intent.id));
    if !intent.mac(keys).verifies(row.try_get("intent_mac")?) {
        return Err(corrupt());
    }
    let owner = Owner {
        host,
        incarnation: &intent.incarnation,
        lease: &intent.id,
        acquisition: &intent.acquisition,
    };
    let labels = owner.labels(keys, &intent.fingerprint);
    let proof = match row.try_get::<Option<&str>, _>("proof")? {
        None => None,
        Some("owned") => Some(Proof::Owned),
        Some("claimed") => Some(Proof::Claimed),
        Some(_) => return Err(corrupt()),
    };
    Ok(Lease {
        driver: EnvironmentDriver::parse(&intent.driver).ok_or_else(corrupt)?,
        purpose: purpose(&intent.purpose).ok_or_else(corrupt)?,
        config: serde_json::from_str(&intent.config)?,
        env_vars: serde_json::from_str(&intent.env_vars)?,
        endpoints: serde_json::from_str(&intent.endpoints).map_err(|_| corrupt())?,
        secret_versions: serde_json::from_str(&intent.secret_versions)?,
        labels,
        status: Status::parse(row.try_get("status")?).ok_or_else(corrupt)?,
        epoch: u32::try_from(row.try_get::<i64, _>("epoch")?).map_err(|_| corrupt())?,
        unsafe_sent: row.try_get("unsafe_sent")?,
        resource: row.try_get("resource")?,
        handle: row.try_get("handle")?,
        workspace: row.try_get("workspace")?,
        proof,
        absent_since: row.try_get("absent_since")?,
        acquired_at: row.try_get("acquired_at")?,
        expires_at: row.try_get("expires_at")?,
        last_used_at: row.try_get("last_used_at")?,
        reason: row.try_get("reason")?,
        failure: row.try_get("failure")?,
        attempts: u32::try_from(row.try_get::<i64, _>("attempts")?).map_err(|_| corrupt())?,
        next_attempt_at: row.try_get("next_attempt_at")?,
        released_at: row.try_get("released_at")?,
        updated_at: row.try_get("updated_at")?,
        claimed_by: row.try_get("claimed_by")?,
        claim_epoch: row.try_get("claim_epoch")?,
        claimed_until: row.try_get("claimed_until")?,
        id: intent.id,
        company_id: intent.company_id,
        environment_id: intent.environment_id,
        environment_name: intent.environment,
        target_revision: intent.target_revision,
        plugin_digest: intent.plugin_digest,
        provider: intent.provider,
        exclusive_key: intent.exclusive_key,
        ttl: intent.ttl,
        caller: intent.caller,
        idempotency_key: intent.idempotency_key,
        acquisition: intent.acquisition,
        incarnation: intent.incarnation,
        created_by: intent.created_by,
        created_at: intent.created_at,
    })
}

/// One lease.
pub(super) async fn load<'e>(
    db: impl sqlx::Executor<'e, Database = Db>,
    keys: &Keys,
    host: &str,
    id: &str,
) -> Result<Lease> {
    let row = sqlx::query("SELECT * FROM leases WHERE id = $1")
        .bind(id)
        .fetch_optional(db)
        .await?
        .ok_or_else(|| Error::not_found("lease", id))?;
    lease(keys, host, &row)
}

/// Leases that are authenticated anew together.
const PAGE: i64 = 500;

/// Authenticates every intent under other keys, each after it verified under the old. Owner labels stay: their key is
/// carried over. Returns how many.
pub(crate) async fn sign_again(db: &mut SqliteConnection, old: &Keys, new: &Keys) -> Result<u64> {
    let (mut count, mut last) = (0, String::new());
    loop {
        let rows = sqlx::query("SELECT * FROM leases WHERE id > $1 ORDER BY id LIMIT $2")
            .bind(&last)
            .bind(PAGE)
            .fetch_all(&mut *db)
            .await?;
        let Some(end) = rows.last() else {
            return Ok(count + made::sign_again(db, old, new).await?);
        };
        last = end.try_get("id")?;
        for row in &rows {
            let intent = Intent::of(row)?;
            if !intent.mac(old).verifies(row.try_get("intent_mac")?) {
                return Err(Error::corrupt(format!("lease {}", intent.id)));
            }
            let mac = intent.mac(new).done();
            sqlx::query("UPDATE leases SET intent_mac = $2 WHERE id = $1")
                .bind(&intent.id)
                .bind(&mac[..])
                .execute(&mut *db)
                .await?;
            count += 1;
        }
    }
}

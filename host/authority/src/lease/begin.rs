//! The durable intent, before anything is asked of a backend (P1).
//!
//! The authority itself takes configuration, variables, plugin digest and secret versions from the
//! environment at the revision that the caller read, in the transaction that writes the intent: what is
//! acquired is what was configured, and release needs nothing else.

use std::time::Duration;

use leasehold_contract::Purpose;
use serde_json::{Value, json};
use sqlx::SqliteConnection;

use super::record::{self, CallerRefs, Intent, PinnedVersion, purpose_str};
use super::{CLAIM_MS, Lease, Leases, run, ttl_ms};
use crate::activity::Entry;
use crate::actor::Actor;
use crate::environment::{self, Environment, EnvironmentStatus};
use crate::error::{Error, Result, code};
use crate::id::{self, base32};
use crate::keys::Mac;
use crate::policy::{Operation, Scope};
use crate::secret::Accessor;
use crate::store::{Row, Tx, now_ms};
use crate::{company, plugin, secret};

/// What somebody wants to lease.
#[derive(Clone, Debug)]
pub struct AcquireIntent {
    /// Of which environment.
    pub environment: String,
    /// For which company, where all share the environment; of a company's own none, or that one.
    pub company: Option<String>,
    /// The target revision that the caller read, and prepared the call for.
    pub target_revision: i64,
    /// The current plugin revision that the caller prepared the call for.
    pub plugin_digest: String,
    /// What for.
    pub purpose: Purpose,
    /// What this lease must have for itself alone, such as a target's host and user; unique over leases that
    /// have not ended, in all companies.
    pub exclusive_key: Option<String>,
    /// Whose account it uses, such as a target's user and address; equal to `exclusive_key` where that is set. An
    /// account that one lease has for itself is no other's, and the other way round.
    pub account_key: Option<String>,
    /// How long it shall live, 1 s to 366 days; none: until it is released.
    pub ttl: Option<Duration>,
    /// Who it is for.
    pub caller: CallerRefs,
    /// The client's key for this request, 1 to 200 characters: with it a repeated request is the same lease.
    pub idempotency_key: Option<String>,
    /// What the client asked for, where that was not this environment: what a repeated request is compared by.
    pub asked: Option<String>,
}

/// A request for a lease that may have been answered before.
#[derive(Clone, Debug)]
pub struct AskedBefore {
    /// In which company.
    pub company: String,
    /// What was asked for, as [`AcquireIntent::asked`].
    pub asked: String,
    /// What for.
    pub purpose: Purpose,
    /// As [`AcquireIntent::ttl`].
    pub ttl: Option<Duration>,
    /// As [`AcquireIntent::caller`].
    pub caller: CallerRefs,
    /// As [`AcquireIntent::idempotency_key`].
    pub idempotency_key: String,
}

/// A lease, and whether this call made it.
#[derive(Clone, Debug)]
pub struct Begun {
    /// The lease.
    pub lease: Lease,
    /// False: the idempotency key was used before with the same request, and this is its lease.
    pub fresh: bool,
}

/// JSON whose objects have their keys sorted: the same value is the same text.
fn canonical(value: &Value, out: &mut String) {
    match value {
        Value::Object(object) => {
            let mut keys: Vec<&String> = object.keys().collect();
            keys.sort();
            out.push('{');
            for (i, key) in keys.into_iter().enumerate() {
                if i > 0 {
                    out.push(',');
                }
                out.push_str(&Value::String(key.clone()).to_string());
                out.push(':');
                canonical(&object[key], out);
            }
            out.push('}');
        }
        Value::Array(items) => {
            out.push('[');
            for (i, item) in items.iter().enumerate() {
                if i > 0 {
                    out.push(',');
                }
                canonical(item, out);
            }
            out.push(']');
        }
        scalar => out.push_str(&scalar.to_string()),
    }
}

fn check(intent: &AcquireIntent) -> Result<()> {
    let mut bad = crate::error::Violations::default();
    let bounded = |text: &Option<String>, max: usize| {
        text.as_ref()
            .is_none_or(|t| !t.is_empty() && t.len() <= max && !t.chars().any(char::is_control))
    };
    if !bounded(&intent.idempotency_key, 200) {
        bad.add(
            "/idempotencyKey",
            "must be 1 to 200 bytes without control characters",
        );
    }
    for (pointer, reference) in [
        ("/agentId", &intent.caller.agent),
        ("/runId", &intent.caller.run),
        ("/workspaceId", &intent.caller.workspace),
        ("/issueId", &intent.caller.issue),
    ] {
        if !bounded(reference, 200) {
            bad.add(pointer, "must be 1 to 200 bytes without control characters");
        }
    }
    bad.done()
}

impl Leases {
    /// Makes the intent durable: a lease that is `acquiring`, at epoch 1, worked on by this replica.
    pub async fn begin(&self, actor: &Actor, intent: AcquireIntent) -> Result<Begun> {
        check(&intent)?;
        let ttl = intent.ttl.map(ttl_ms).transpose()?;
        let actor = actor.clone();
        let shared = self.clone();
        self.store
            .write(move |tx| Box::pin(shared.begin_in(tx, actor, intent, ttl)))
            .await
    }

    async fn begin_in(
        self,
        tx: &mut Tx,
        actor: Actor,
        intent: AcquireIntent,
        ttl: Option<i64>,
    ) -> Result<Begun> {
        let environment = environment::load(&mut tx.db, &tx.keys, &intent.environment).await?;
        let company = whose(tx, &environment, intent.company.as_deref()).await?;
        let scope = Scope::Run {
            company: &company,
            run: intent.caller.run.as_deref(),
        };
        actor.may_on(
            Operation::AcquireLease,
            scope,
            "environment",
            &intent.environment,
        )?;
        let asked = intent.asked.as_deref().unwrap_or(&environment.id);
        let request_digest = self.request_digest(asked, intent.purpose, ttl, &intent.caller);
        if let Some(key) = &intent.idempotency_key
            && let Some(lease) = self
                .repeated(&mut tx.db, &company, key, &request_digest)
                .await?
        {
            return Ok(Begun {
                lease,
                fresh: false,
            });
        }
        run::goes_on(tx, &company, intent.caller.run.as_deref()).await?;
        may_lease(tx, &environment, &intent).await?;
        alone(tx, &intent).await?;
        let id = id::fresh("lease_")?;
        let by = Accessor {
            lease: Some(id.clone()),
            run: intent.caller.run.clone(),
            ..Accessor::of(&actor, "lease")
        };
        let pins = secret::pin_for_lease(
            tx,
            environment.company_id.as_deref(),
            &company,
            &environment.id,
            &id,
            &by,
        )
        .await?;
        let versions: std::collections::BTreeMap<String, PinnedVersion> = pins
            .into_iter()
            .map(|(pointer, (secret_id, version))| (pointer, PinnedVersion { secret_id, version }))
            .collect();
        let mut request = String::new();
        canonical(
            &json!({
                "plugin": intent.plugin_digest, "config": environment.config,
                "envVars": environment.env_vars, "secrets": versions,
            }),
            &mut request,
        );
        let fingerprint = Mac::new(&self.keys.requests, "request")
            .text(&request)
            .done();
        let row = Intent {
            acquisition: id::fresh("acq-")?,
            incarnation: self.incarnation.to_string(),
            fingerprint: base32(&fingerprint[..16]),
            company_id: company,
            environment_id: environment.id,
            environment: environment.name,
            target_revision: environment.target_revision,
            plugin_digest: intent.plugin_digest,
            provider: environment.provider,
            driver: environment.driver.as_str().to_owned(),
            purpose: purpose_str(intent.purpose).to_owned(),
            config: serde_json::to_string(&environment.config)?,
            endpoints: serde_json::to_string(&environment.endpoints)?,
            env_vars: serde_json::to_string(&environment.env_vars)?,
            secret_versions: serde_json::to_string(&versions)?,
            account_key: intent.account_key,
            exclusive_key: intent.exclusive_key,
            ttl,
            caller: intent.caller,
            idempotency_key: intent.idempotency_key,
            request_digest: request_digest.to_vec(),
            created_by: actor.display.clone(),
            created_at: tx.now(),
            id,
        };
        let stored = insert(tx, &row).await?;
        tx.record(
            &actor,
            Entry::new(
                "lease.begun",
                Some(&row.company_id),
                "lease",
                &row.id,
                json!({
                    "environment": row.environment_id, "provider": row.provider,
                    "pluginDigest": row.plugin_digest, "acquisition": row.acquisition,
                    "purpose": row.purpose, "targetRevision": row.target_revision,
                }),
            ),
        )
        .await?;
        let lease = record::lease(&self.keys, &self.host, &stored)?;
        Ok(Begun { lease, fresh: true })
    }

    fn request_digest(
        &self,
        asked: &str,
        purpose: Purpose,
        ttl: Option<i64>,
        caller: &CallerRefs,
    ) -> [u8; 32] {
        Mac::new(&self.keys.requests, "acquire")
            .text(asked)
            .text(purpose_str(purpose))
            .int_or(ttl)
            .text_or(caller.agent.as_deref())
            .text_or(caller.run.as_deref())
            .text_or(caller.workspace.as_deref())
            .text_or(caller.issue.as_deref())
            .done()
    }

    /// The lease that this request made when it was asked before; none where it was not.
    ///
    /// # Errors
    /// A conflict where the key was used for another request.
    pub async fn answered_before(
        &self,
        actor: &Actor,
        before: &AskedBefore,
    ) -> Result<Option<Lease>> {
        let scope = Scope::Run {
            company: &before.company,
            run: before.caller.run.as_deref(),
        };
        actor.may_on(Operation::AcquireLease, scope, "company", &before.company)?;
        let ttl = before.ttl.map(ttl_ms).transpose()?;
        let digest = self.request_digest(&before.asked, before.purpose, ttl, &before.caller);
        let mut db = self.store.read().acquire().await?;
        self.repeated(&mut db, &before.company, &before.idempotency_key, &digest)
            .await
    }

    async fn repeated(
        &self,
        db: &mut SqliteConnection,
        company: &str,
        key: &str,
        request_digest: &[u8],
    ) -> Result<Option<Lease>> {
        let known: Option<(String, Vec<u8>)> = sqlx::query_as(
            "SELECT id, request_digest FROM leases WHERE company_id = $1 AND idempotency_key = $2",
        )
        .bind(company)
        .bind(key)
        .fetch_optional(&mut *db)
        .await?;
        match known {
            None => Ok(None),
            Some((id, digest)) if digest == request_digest => {
                record::load(db, &self.keys, &self.host, &id)
                    .await
                    .map(Some)
            }
            Some((id, _)) => Err(Error::conflict_with(
                code::IDEMPOTENCY_MISMATCH,
                format!(
                    "idempotency key {key:?} was used for lease {id} with another request: use a new key"
                ),
                json!({ "leaseId": id }),
            )),
        }
    }
}

/// Whose a lease of an environment is.
async fn whose(tx: &mut Tx, environment: &Environment, asked: Option<&str>) -> Result<String> {
    match (&environment.company_id, asked) {
        (Some(own), Some(other)) if own != other => {
            Err(Error::not_found("environment", &environment.id))
        }
        (Some(own), _) => Ok(own.clone()),
        (None, Some(company)) => {
            company::must_exist(&mut tx.db, company).await?;
            Ok(company.to_owned())
        }
        (None, None) => Err(Error::invalid(
            "/companyId",
            "the environment is shared by all companies: say for which of them the lease is",
        )),
    }
}

async fn may_lease(tx: &mut Tx, environment: &Environment, intent: &AcquireIntent) -> Result<()> {
    if environment.is_local() {
        return Err(Error::conflict(
            code::ENVIRONMENT_LOCAL,
            format!(
                "environment {:?} is the server's own machine, which is never leased",
                environment.name
            ),
        ));
    }
    if environment.status != EnvironmentStatus::Active {
        return Err(Error::conflict(
            code::ENVIRONMENT_INACTIVE,
            format!("environment {:?} is archived", environment.name),
        ));
    }
    let plugin = plugin::plugin_row(&mut tx.db, &tx.keys, &environment.provider)
        .await?
        .ok_or_else(|| {
            Error::conflict(
                code::PLUGIN_MISSING,
                format!("no plugin {:?} is installed", environment.provider),
            )
        })?;
    if !plugin.enabled {
        return Err(Error::conflict(
            code::PLUGIN_DISABLED,
            format!("plugin {:?} is disabled", environment.provider),
        ));
    }
    if environment.target_revision != intent.target_revision
        || plugin.current.as_deref() != Some(intent.plugin_digest.as_str())
    {
        return Err(Error::conflict_with(
            code::ENVIRONMENT_CHANGED,
            format!(
                "environment {:?} changed while the lease was prepared: try again",
                environment.name
            ),
            json!({ "targetRevision": environment.target_revision, "pluginDigest": plugin.current }),
        ));
    }
    Ok(())
}

/// Fails while another lease has the account for itself, or uses the account that this one wants for itself. The
/// unique index holds the first between replicas.
async fn alone(tx: &mut Tx, intent: &AcquireIntent) -> Result<()> {
    let holder: Option<(String, String, bool)> = sqlx::query_as(
        "SELECT id, status, exclusive_key IS NOT NULL FROM leases
         WHERE status NOT IN ('released', 'failed', 'abandoned')
           AND (exclusive_key = $1 OR exclusive_key = $2 OR account_key = $1) LIMIT 1",
    )
    .bind(&intent.exclusive_key)
    .bind(&intent.account_key)
    .fetch_optional(&mut tx.db)
    .await?;
    let Some((id, status, exclusive)) = holder else {
        return Ok(());
    };
    let message = if exclusive {
        format!(
            "lease {id} ({status}) has this target for itself: release it first, or allow a shared account in both environments"
        )
    } else {
        format!(
            "lease {id} ({status}) uses this account: release it first, or allow a shared account in this environment too"
        )
    };
    Err(Error::conflict_with(
        code::TARGET_IN_USE,
        message,
        json!({ "leaseId": id, "status": status }),
    ))
}

async fn insert(tx: &mut Tx, row: &Intent) -> Result<Row> {
    let mac = row.mac(&tx.keys).done();
    Ok(sqlx::query(concat!(
        "INSERT INTO leases (id, company_id, environment_id, environment, target_revision, plugin_digest,
             provider, driver, purpose, config, env_vars, secret_versions, account_key, exclusive_key, ttl, agent, run,
             workspace_ref, issue, idempotency_key, request_digest, acquisition, incarnation, fingerprint,
             created_by, created_at, intent_mac, status, epoch, updated_at, claimed_by, claim_epoch,
             claimed_until, endpoints)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20,
             $21, $22, $23, $24, $25, $26, $27, 'acquiring', 1, ",
        now_ms!(),
        ", $28, 1, ",
        now_ms!(),
        " + $29, $30) RETURNING *"
    ))
    .bind(&row.id)
    .bind(&row.company_id)
    .bind(&row.environment_id)
    .bind(&row.environment)
    .bind(row.target_revision)
    .bind(&row.plugin_digest)
    .bind(&row.provider)
    .bind(&row.driver)
    .bind(&row.purpose)
    .bind(&row.config)
    .bind(&row.env_vars)
    .bind(&row.secret_versions)
    .bind(&row.account_key)
    .bind(&row.exclusive_key)
    .bind(row.ttl)
    .bind(&row.caller.agent)
    .bind(&row.caller.run)
    .bind(&row.caller.workspace)
    .bind(&row.caller.issue)
    .bind(&row.idempotency_key)
    .bind(&row.request_digest)
    .bind(&row.acquisition)
    .bind(&row.incarnation)
    .bind(&row.fingerprint)
    .bind(&row.created_by)
    .bind(row.created_at)
    .bind(&mac[..])
    .bind(&*tx.replica)
    .bind(CLAIM_MS)
    .bind(&row.endpoints)
    .fetch_one(&mut tx.db)
    .await?)
}

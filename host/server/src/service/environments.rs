//! Saving an environment: the schema, the host's own formats, the provider's own check, then the authority.
//!
//! Nothing is reached: `check-config` runs with everything refused and must give back every target and secret as it
//! was. What is saved is what the provider normalised, with the true values put back. Invariant: where something goes, and
//! with which key, is what somebody said in this save or in an earlier one, under the meaning that it had then.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use leasehold_authority::{
    Actor, Environment, EnvironmentDraft, EnvironmentDriver, EnvironmentPatch, EnvironmentSecrets,
    EnvironmentStatus, Error as AuthorityError, Operation, PastedSecret, SecretUse, Status,
    take_pasted,
};
use leasehold_contract::{FieldViolation, Purpose};
use leasehold_egress::SshTarget;
use leasehold_runtime::CallSetup;
use serde_json::{Map, Value};

use super::Service;
use super::configuration::{self, Format};
use super::context;
use super::error::ServiceError;
use super::loaded::Loaded;
use super::precondition::Precondition;

/// Time for `check-config`, which reaches nothing.
const CHECK_CONFIG: Duration = Duration::from_secs(10);

/// How often a change is laid anew over what another process saved in between.
const TRIES: u32 = 16;

/// A draft that may be saved.
pub(crate) struct Checked {
    /// As the provider normalised it.
    pub(crate) draft: EnvironmentDraft,
    /// The secrets that its configuration refers to.
    pub(crate) uses: Vec<SecretUse>,
    /// Pointers of its endpoints, all of them typed.
    pub(crate) endpoints: Vec<String>,
}

impl Service {
    /// Saves a new environment, with the secrets that were pasted into it: of `company`, or shared by all.
    ///
    /// # Errors
    /// Every violation at once; nothing is saved then.
    pub async fn create_environment(
        &self,
        actor: &Actor,
        company: &str,
        shared: bool,
        mut draft: EnvironmentDraft,
    ) -> Result<Environment, ServiceError> {
        self.accepting()?;
        actor.may(Operation::CreateEnvironment)?;
        let environments = self.authority().environments();
        if draft.driver == EnvironmentDriver::Local {
            // The authority says why there is no other.
            let none = EnvironmentSecrets::default();
            return Ok(match shared {
                true => environments.create_shared(actor, draft, none).await?,
                false => environments.create(actor, company, draft, none).await?,
            });
        }
        let pasted = take_pasted(Some(&mut draft.config), Some(&mut draft.env_vars))?;
        let Checked {
            draft,
            uses,
            endpoints,
        } = self.checked(company, draft).await?;
        let secrets = EnvironmentSecrets {
            uses,
            pasted,
            endpoints,
        };
        Ok(match shared {
            true => environments.create_shared(actor, draft, secrets).await?,
            false => environments.create(actor, company, draft, secrets).await?,
        })
    }

    /// Changes an environment. A change of configuration is checked whole, as a new one is. Only what says a configuration
    /// types endpoints and binds secrets: another name blesses nothing that another revision of the provider wants
    /// otherwise.
    ///
    /// Changes of one environment go one after another, each laid over what the one before left; where another process
    /// was in between, it is laid over that anew. None is lost, and none brings back what another has changed.
    ///
    /// # Errors
    /// Every violation at once; nothing is saved then. `revision_mismatch` where `expected` is not what is there.
    pub async fn update_environment(
        &self,
        actor: &Actor,
        id: &str,
        mut patch: EnvironmentPatch,
        expected: &Precondition,
    ) -> Result<Environment, ServiceError> {
        self.accepting()?;
        let pasted = take_pasted(patch.config.as_mut(), patch.env_vars.as_mut())?;
        let _turn = self.turns().take(id).await;
        for _ in 0..TRIES {
            let before = self.authority().environments().get(id).await?;
            expected.check(&before)?;
            match self.patch(actor, before, patch.clone(), &pasted).await {
                Err(ServiceError::Authority(AuthorityError::Stale { .. })) => {}
                done => return done,
            }
        }
        let now = self.authority().environments().get(id).await?;
        Err(Precondition::changed(&now))
    }

    /// Lays a patch over what was read, and saves it if that still stands.
    async fn patch(
        &self,
        actor: &Actor,
        before: Environment,
        patch: EnvironmentPatch,
        pasted: &[PastedSecret],
    ) -> Result<Environment, ServiceError> {
        let id = &before.id;
        // Fields of the configuration that this save says.
        let said: Vec<String> = (patch.config.iter().flatten())
            .map(|(field, _)| field.clone())
            .collect();
        let owner = patch.company_id.clone();
        let draft = before.patched(patch);
        let works_again =
            draft.status == EnvironmentStatus::Active && before.status != EnvironmentStatus::Active;
        let unchanged = draft.config == before.config
            && draft.driver == before.driver
            && draft.provider == before.provider;
        let Checked {
            draft,
            mut uses,
            mut endpoints,
        } = match self.checked_as(&before, &owner, draft.clone()).await {
            Ok(checked) => checked,
            // A provider that is gone must not keep anybody from renaming or archiving what is configured for it.
            Err(
                ServiceError::Refused { .. }
                | ServiceError::Install(_)
                | ServiceError::Tripped { .. },
            ) if unchanged && !works_again => Checked {
                uses: self.bound(id).await?,
                endpoints: before.endpoints.clone(),
                draft,
            },
            Err(error) => return Err(error),
        };
        if draft.provider == before.provider && draft.driver == before.driver {
            endpoints.retain(|pointer| before.endpoints.contains(pointer) || is_in(pointer, &said));
            if said.is_empty() {
                as_bound(&mut uses, self.bound(id).await?);
            }
        }
        let secrets = EnvironmentSecrets {
            uses,
            pasted: pasted.to_vec(),
            endpoints,
        };
        let environments = self.authority().environments();
        let revision = before.revision;
        Ok(match owner {
            None => {
                environments
                    .update(actor, id, revision, draft, secrets)
                    .await?
            }
            Some(company) => {
                environments
                    .update_and_move(actor, id, revision, company, draft, secrets)
                    .await?
            }
        })
    }

    /// A draft of what an environment shall become, checked as [`Service::checked`] does; the server's own machine has
    /// nothing that a provider would check.
    async fn checked_as(
        &self,
        before: &Environment,
        owner: &Option<Option<String>>,
        draft: EnvironmentDraft,
    ) -> Result<Checked, ServiceError> {
        if before.is_local() {
            return Ok(Checked {
                draft,
                uses: Vec::new(),
                endpoints: Vec::new(),
            });
        }
        let company = owner.as_ref().unwrap_or(&before.company_id);
        self.checked(company.as_deref().unwrap_or_default(), draft)
            .await
    }

    /// Deletes an environment; answers what it was, and how many leases were ended for it. With `end_reusable`, leases that
    /// nobody uses and that are kept to be used again are released first, if they are all that stands in the way; what
    /// stands there then is looked at again, in the transaction that deletes.
    ///
    /// # Errors
    /// A conflict whose details are what stands in the way, and how many leases were ended all the same.
    pub async fn delete_environment(
        &self,
        actor: &Actor,
        id: &str,
        end_reusable: bool,
    ) -> Result<(Environment, u64), ServiceError> {
        self.accepting()?;
        actor.may(Operation::DeleteEnvironment)?;
        let ended = match end_reusable {
            true => self.end_reusable(actor, id).await?,
            false => 0,
        };
        match self.authority().environments().delete(actor, id).await {
            Ok(gone) => Ok((gone, ended)),
            Err(AuthorityError::Conflict {
                code,
                message,
                mut details,
            }) => {
                details["destroyedReusableSandboxLeaseCount"] = ended.into();
                Err(ServiceError::Authority(AuthorityError::Conflict {
                    code,
                    message,
                    details,
                }))
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Ends leases that nobody uses and that are kept to be used again, while they are all that keeps an environment; answers
    /// how many.
    async fn end_reusable(&self, actor: &Actor, id: &str) -> Result<u64, ServiceError> {
        let mut ended = 0;
        loop {
            let radius = self.authority().environments().blast_radius(id).await?;
            if !radius.only_reusable() {
                return Ok(ended);
            }
            let before = ended;
            for holder in radius.reusable_sandbox_lease_holders {
                let lease = self
                    .release_for(actor, &holder.lease_id, "the environment is deleted")
                    .await?;
                ended += u64::from(lease.status == Status::Released);
            }
            if ended == before {
                return Ok(ended);
            }
        }
    }

    /// The secrets of an environment's configuration as they are bound.
    async fn bound(&self, id: &str) -> Result<Vec<SecretUse>, ServiceError> {
        let pins = self.authority().secrets().bound_pointers(id).await?;
        let of_config = pins.into_iter().filter(|pin| pin.pointer.starts_with('/'));
        Ok(of_config
            .map(|pin| SecretUse {
                pointer: pin.pointer,
                sites: pin.sites,
                destinations: pin.destinations,
            })
            .collect())
    }

    /// A draft whose configuration was checked and normalised, with the secrets that it uses.
    pub(crate) async fn checked(
        &self,
        company: &str,
        mut draft: EnvironmentDraft,
    ) -> Result<Checked, ServiceError> {
        let plugin = self.catalog().current(&draft.provider).await?;
        plugin.works()?;
        let manifest = plugin.manifest().clone();
        let mut violations = Vec::new();
        if manifest.driver.as_str() != draft.driver.as_str() {
            violations.push(FieldViolation {
                pointer: "/driver".to_owned(),
                message: format!(
                    "the provider {} has driver {}; say that, or choose another provider",
                    manifest.key,
                    manifest.driver.as_str()
                ),
            });
        }
        for name in draft
            .env_vars
            .keys()
            .filter(|name| configuration::is_hosts_variable(name))
        {
            violations.push(FieldViolation {
                pointer: format!("/envVars/{name}"),
                message:
                    "variables that begin with LEASEHOLD_ are the host's own; choose another name"
                        .to_owned(),
            });
        }
        let schema = &manifest.config_schema;
        let config = Value::Object(draft.config.clone());
        if let Err(wrong) = configuration::check(schema, &config) {
            violations.extend(wrong);
        }
        let uses = match configuration::secret_uses(schema, &manifest.credentials, &config) {
            Ok(uses) => uses,
            Err(wrong) => {
                violations.extend(wrong);
                Vec::new()
            }
        };
        let (targets, wrong) = targets_of(schema, &config);
        violations.extend(wrong);
        if !violations.is_empty() {
            return Err(invalid_config(violations));
        }
        draft.config = normalised(&plugin, company, schema, &config, &targets).await?;
        // What stands there now was typed: the provider's check can neither add nor change an endpoint.
        let endpoints =
            configuration::typed_endpoints(schema, &Value::Object(draft.config.clone()));
        Ok(Checked {
            draft,
            uses,
            endpoints,
        })
    }
}

/// Whether a pointer lies in one of these fields at the top of a configuration.
fn is_in(pointer: &str, fields: &[String]) -> bool {
    let first = pointer.split('/').nth(1).unwrap_or_default();
    let first = first.replace("~1", "/").replace("~0", "~");
    fields.contains(&first)
}

/// Leaves every secret that is bound as it is bound.
fn as_bound(uses: &mut [SecretUse], bound: Vec<SecretUse>) {
    for was in bound {
        if let Some(used) = uses.iter_mut().find(|used| used.pointer == was.pointer) {
            *used = was;
        }
    }
}

/// The targets of a configuration whose secrets are not resolved: for their shape, and for what a component may see.
fn targets_of(
    schema: &Value,
    config: &Value,
) -> (BTreeMap<String, Arc<SshTarget>>, Vec<FieldViolation>) {
    let mut targets = BTreeMap::new();
    let mut violations = Vec::new();
    for field in configuration::fields(schema, config) {
        if field.format != Format::SshTarget {
            continue;
        }
        let Some(value) = config.pointer(&field.pointer) else {
            continue;
        };
        match SshTarget::from_config(&shape_of(value)) {
            Ok(target) => {
                targets.insert(field.pointer, Arc::new(target));
            }
            Err(wrong) => violations.extend(wrong.into_iter().map(|v| FieldViolation {
                pointer: format!("{}{}", field.pointer, v.pointer),
                message: v.message,
            })),
        }
    }
    (targets, violations)
}

/// A target with a text in place of each reference: only its shape is looked at.
fn shape_of(value: &Value) -> Value {
    match value {
        Value::Object(object)
            if object.get("type").and_then(Value::as_str) == Some("secret_ref") =>
        {
            Value::String("-----BEGIN OPENSSH PRIVATE KEY-----".to_owned())
        }
        Value::Object(object) => Value::Object(
            object
                .iter()
                .map(|(name, value)| (name.clone(), shape_of(value)))
                .collect(),
        ),
        Value::Array(items) => Value::Array(items.iter().map(shape_of).collect()),
        other => other.clone(),
    }
}

/// What the provider makes of a configuration, with the true values put back.
async fn normalised(
    plugin: &Loaded,
    company: &str,
    schema: &Value,
    config: &Value,
    targets: &BTreeMap<String, Arc<SshTarget>>,
) -> Result<Map<String, Value>, ServiceError> {
    let what = || format!("checking the configuration for {}", plugin.manifest().key);
    let mut setup = CallSetup::refusing(Purpose::Setup, CHECK_CONFIG);
    setup.call.company = company.to_owned();
    setup.watch = Some(plugin.watch(Purpose::Setup, true, false));
    let given = context::component_view(schema, config, targets)?;
    let answer = match plugin.check_config(&setup, &given.to_string()).await {
        Ok(answer) => answer,
        Err(leasehold_runtime::Failure::Provider(error)) => {
            return Err(match error.violations {
                Some(violations) if !violations.is_empty() => invalid_config(violations),
                _ => ServiceError::Provider {
                    what: what(),
                    error,
                },
            });
        }
        Err(failure) => return Err(ServiceError::of(what(), failure)),
    };
    let answer: Value = serde_json::from_str(&answer).map_err(|_| {
        ServiceError::of(
            what(),
            leasehold_runtime::Failure::Answer {
                field: "check-config",
                message: "must be JSON".to_owned(),
            },
        )
    })?;
    let saved = configuration::put_back(schema, config, &given, answer).map_err(invalid_config)?;
    // The provider may have filled in a field that its own schema refuses.
    configuration::check(schema, &saved).map_err(invalid_config)?;
    match saved {
        Value::Object(object) => Ok(object),
        _ => Ok(Map::new()),
    }
}

/// Violations of the configuration, as pointers into the request.
fn invalid_config(violations: Vec<FieldViolation>) -> ServiceError {
    ServiceError::Invalid {
        violations: violations
            .into_iter()
            .map(|v| {
                let of_request = ["/driver", "/envVars"]
                    .iter()
                    .any(|own| v.pointer.starts_with(own));
                FieldViolation {
                    pointer: if of_request {
                        v.pointer
                    } else {
                        format!("/config{}", v.pointer)
                    },
                    message: v.message,
                }
            })
            .collect(),
    }
}

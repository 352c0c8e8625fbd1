//! Leasing what was not named: by what is needed of it, or by what is assigned.
//!
//! By requirement the best candidate is leased. Where it turns out that nothing could be begun on it (it was taken, archived
//! or withdrawn meanwhile) it is the next one's turn; once a lease was begun there is no other, whatever became of it: its row
//! says what is left. By assignment there is one environment, and no other in its place. With an idempotency key the same
//! request answers the same lease, whatever would be chosen now.

use std::time::Duration;

use leasehold_authority::{
    Actor, AskedBefore, CallerRefs, EnvironmentFilter, Error as AuthorityError, Lease, Level,
    Resolution, WhoseAssignment, code,
};
use leasehold_contract::Purpose;

use super::Service;
use super::capability::Capability;
use super::error::ServiceError;
use super::model::AcquireRequest;
use super::narrowing;
use super::selection::{Excluded, Lack, Requirement};

/// A candidate on which nothing could be begun.
#[derive(Clone, Debug)]
pub(crate) struct Tried {
    pub(crate) environment_id: String,
    pub(crate) name: String,
    /// Of the documented list.
    pub(crate) code: &'static str,
    /// For a person.
    pub(crate) reason: String,
}

/// A lease of what was chosen.
#[derive(Clone, Debug)]
pub(crate) struct Chosen {
    pub(crate) lease: Lease,
    /// Candidates that came before it.
    pub(crate) tried: Vec<Tried>,
    /// The level that decided, where it was leased by assignment.
    pub(crate) level: Option<Level>,
    /// Whether the lease was made by the same request before.
    pub(crate) repeated: bool,
}

/// Why nothing was leased.
#[derive(Debug)]
pub(crate) struct NotLeased {
    pub(crate) error: ServiceError,
    /// Candidates on which nothing could be begun.
    pub(crate) tried: Vec<Tried>,
    /// Environments that are no candidates.
    pub(crate) excluded: Vec<Excluded>,
}

impl<E: Into<ServiceError>> From<E> for NotLeased {
    fn from(error: E) -> NotLeased {
        NotLeased {
            error: error.into(),
            tried: Vec::new(),
            excluded: Vec::new(),
        }
    }
}

/// What one level says, and whether that can be leased.
#[derive(Clone, Debug)]
pub(crate) struct Verdict {
    pub(crate) level: Level,
    /// The row that speaks, where there is one.
    pub(crate) by: Option<String>,
    pub(crate) environment: Option<String>,
    /// Of an environment that the company sees.
    pub(crate) name: Option<String>,
    /// Why it cannot be leased; nothing where it can, or where nothing is named.
    pub(crate) lacks: Vec<Lack>,
}

/// What decides, and what each level says.
#[derive(Clone, Debug)]
pub(crate) struct Assigned {
    /// In the order of precedence.
    pub(crate) levels: Vec<Verdict>,
}

impl Assigned {
    /// The level that decides; none where no level names an environment.
    pub(crate) fn decided(&self) -> Option<&Verdict> {
        self.levels.iter().find(|said| said.environment.is_some())
    }
}

/// The code of an error by which nothing was begun and another environment may do; none of any other.
fn passing(error: &ServiceError) -> Option<&'static str> {
    const PASSING: [&str; 10] = [
        code::ENVIRONMENT_COMPANY_MISMATCH,
        "plugin_narrowed",
        code::TARGET_IN_USE,
        code::ENVIRONMENT_INACTIVE,
        code::ENVIRONMENT_CHANGED,
        code::PLUGIN_DISABLED,
        code::PLUGIN_MISSING,
        code::SECRET_MISSING,
        "plugin_pending",
        "provider_missing",
    ];
    match error {
        ServiceError::Authority(AuthorityError::Conflict { code, .. })
        | ServiceError::Refused { code, .. } => PASSING.into_iter().find(|known| known == code),
        ServiceError::Authority(AuthorityError::NotFound {
            what: "environment",
            ..
        }) => Some("not_found"),
        ServiceError::Tripped { .. } => Some("plugin_tripped"),
        // Its configuration or a binding is not what its provider needs by now: whoever saves it anew mends that.
        ServiceError::Invalid { .. } => Some("unprocessable"),
        _ => None,
    }
}

fn refs(request: &AcquireRequest) -> CallerRefs {
    CallerRefs {
        agent: request.agent_id.clone(),
        run: request.run_id.clone(),
        workspace: request.workspace_id.clone(),
        issue: request.issue_id.clone(),
    }
}

impl Service {
    /// Leases the first candidate that can be leased.
    pub(crate) async fn acquire_selected(
        &self,
        actor: &Actor,
        company: &str,
        requirement: &Requirement,
        request: AcquireRequest,
    ) -> Result<Chosen, NotLeased> {
        self.accepting()?;
        let asked = format!("requirement {}", requirement.canonical());
        if let Some(chosen) = self.chosen_before(actor, company, &asked, &request).await? {
            return Ok(chosen);
        }
        let selection = self.select(company, requirement).await?;
        let mut tried = Vec::new();
        for candidate in selection.candidates {
            let id = &candidate.environment_id;
            let (request, asked) = (request.clone(), Some(asked.clone()));
            let error = match self
                .acquire_for(actor, id, request, Purpose::Run, asked)
                .await
            {
                Ok(lease) => {
                    return Ok(Chosen {
                        lease,
                        tried,
                        level: None,
                        repeated: false,
                    });
                }
                Err(error) => error,
            };
            match passing(&error) {
                Some(code) => tried.push(Tried {
                    code,
                    reason: error.to_string(),
                    environment_id: candidate.environment_id,
                    name: candidate.name,
                }),
                None => {
                    return Err(NotLeased {
                        error,
                        tried,
                        excluded: selection.excluded,
                    });
                }
            }
        }
        let message = format!(
            "no environment of the company can be leased for this: {} can do it and cannot be leased now, {} cannot do it; \
             details.tried and details.excluded say why",
            tried.len(),
            selection.excluded.len()
        );
        Err(NotLeased {
            error: ServiceError::refused("no_candidate", message),
            tried,
            excluded: selection.excluded,
        })
    }

    /// Leases what is assigned.
    pub(crate) async fn acquire_assigned(
        &self,
        actor: &Actor,
        company: &str,
        whose: &WhoseAssignment,
        request: AcquireRequest,
    ) -> Result<Chosen, NotLeased> {
        self.accepting()?;
        const ASKED: &str = "assignment";
        if let Some(chosen) = self.chosen_before(actor, company, ASKED, &request).await? {
            return Ok(chosen);
        }
        let assigned = self.assigned(company, whose).await?;
        let Some(decided) = assigned.decided() else {
            let message = "nothing is assigned: no workspace, issue, project, agent or default names an environment";
            return Err(ServiceError::refused("no_candidate", message).into());
        };
        let environment = decided.environment.clone().unwrap_or_default();
        if !decided.lacks.is_empty() {
            let level = decided.level.as_str();
            return Err(NotLeased {
                error: ServiceError::refused(
                    "no_candidate",
                    format!(
                        "the {level} decides, and the environment that it names cannot be leased; details.excluded says why"
                    ),
                ),
                tried: Vec::new(),
                excluded: vec![Excluded {
                    environment_id: environment,
                    name: decided.name.clone().unwrap_or_default(),
                    lacks: decided.lacks.clone(),
                    // It is assigned: whoever asks is told of it anyhow.
                    assignable: true,
                }],
            });
        }
        let asked = Some(ASKED.to_owned());
        let lease = self
            .acquire_for(actor, &environment, request, Purpose::Run, asked)
            .await?;
        Ok(Chosen {
            lease,
            tried: Vec::new(),
            level: Some(decided.level),
            repeated: false,
        })
    }

    /// What the same request made before, by its idempotency key.
    async fn chosen_before(
        &self,
        actor: &Actor,
        company: &str,
        asked: &str,
        request: &AcquireRequest,
    ) -> Result<Option<Chosen>, ServiceError> {
        let Some(key) = &request.idempotency_key else {
            return Ok(None);
        };
        let before = AskedBefore {
            company: company.to_owned(),
            asked: asked.to_owned(),
            purpose: Purpose::Run,
            ttl: request.ttl_seconds.map(|s| Duration::from_secs(s.into())),
            caller: refs(request),
            idempotency_key: key.clone(),
        };
        let lease = self
            .authority()
            .leases()
            .answered_before(actor, &before)
            .await?;
        Ok(lease.map(|lease| Chosen {
            lease,
            tried: Vec::new(),
            level: None,
            repeated: true,
        }))
    }

    /// What every level says of somebody's environment, and whether that can be leased. Nothing is reached by asking.
    ///
    /// # Errors
    /// A row that is not there, or is another company's.
    pub(crate) async fn assigned(
        &self,
        company: &str,
        whose: &WhoseAssignment,
    ) -> Result<Assigned, ServiceError> {
        self.accepting()?;
        let Resolution { levels } = self.authority().assignees().resolve(company, whose).await?;
        let standings = narrowing::standings(self.authority(), self.catalog(), company).await?;
        let all = self.authority().environments();
        let all = all.list(company, &EnvironmentFilter::default()).await?;
        let verdicts = levels.into_iter().map(|said| {
            let named = said.environment.as_ref();
            let found = named.and_then(|id| all.iter().find(|environment| environment.id == *id));
            let lacks = match (named, found) {
                (None, _) => Vec::new(),
                (Some(_), None) => vec![Lack {
                    what: "environment",
                    by: "visibility",
                    reason: "the company sees no such environment any more".into(),
                }],
                (Some(_), Some(environment)) => {
                    let effective = narrowing::effective(&standings, environment);
                    let taken = effective.taken(Capability::Lifecycle);
                    let lack = taken.map(|taken| Lack {
                        what: Capability::Lifecycle.as_str(),
                        by: taken.by.as_str(),
                        reason: taken.reason.clone(),
                    });
                    lack.into_iter().collect()
                }
            };
            Verdict {
                level: said.level,
                by: said.by,
                name: found.map(|environment| environment.name.clone()),
                environment: said.environment,
                lacks,
            }
        });
        Ok(Assigned {
            levels: verdicts.collect(),
        })
    }
}

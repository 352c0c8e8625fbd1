//! Whose an environment is: one company's alone, or shared by all; and what stands in the way when it becomes a company's own.
//!
//! What others use is never taken from them behind their back: while another company, or the instance, names the environment
//! or has a lease of it, it stays shared. It never changes leases, assignments or defaults itself.

use serde::Serialize;

use super::{Environment, is_seen_by};
use crate::error::{Error, Result, code};
use crate::store::Tx;
use crate::{assignment, company};

/// Who but one company uses an environment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct OthersUse {
    /// Agents of other companies that it is assigned to.
    pub agents: i64,
    /// Projects of other companies.
    pub projects: i64,
    /// Workspaces of other companies.
    pub workspaces: i64,
    /// Issues of other companies.
    pub issues: i64,
    /// Other companies whose default it is.
    pub companies: i64,
    /// Leases of other companies that have not ended.
    pub leases: i64,
    /// Whether it is the instance's default.
    pub instance_default: bool,
}

impl OthersUse {
    fn words(self) -> Vec<String> {
        let counted = [
            (self.companies, "companies have it as their default"),
            (self.agents, "agents"),
            (self.projects, "projects"),
            (self.workspaces, "workspaces"),
            (self.issues, "issues"),
            (self.leases, "leases that have not ended"),
        ];
        let mut words: Vec<String> = counted
            .into_iter()
            .filter(|(count, _)| *count > 0)
            .map(|(count, what)| format!("{count} {what}"))
            .collect();
        if self.instance_default {
            words.push("it is the instance's default".to_owned());
        }
        words
    }
}

async fn others(tx: &mut Tx, environment: &str, company: &str) -> Result<OthersUse> {
    let assigned = assignment::counts_of_others(&mut tx.db, environment, company).await?;
    let (companies, instance, leases): (i64, i64, i64) = sqlx::query_as(
        "SELECT (SELECT COUNT(*) FROM default_environments
                     WHERE environment_id = $1 AND company_id NOT IN ('', $2)),
                (SELECT COUNT(*) FROM default_environments WHERE environment_id = $1 AND company_id = ''),
                (SELECT COUNT(*) FROM leases WHERE environment_id = $1 AND company_id <> $2
                     AND status NOT IN ('released', 'failed', 'abandoned'))",
    )
    .bind(environment)
    .bind(company)
    .fetch_one(&mut tx.db)
    .await?;
    Ok(OthersUse {
        agents: assigned.agents,
        projects: assigned.projects,
        workspaces: assigned.workspaces,
        issues: assigned.issues,
        companies,
        leases,
        instance_default: instance > 0,
    })
}

/// Whether a save may make an environment this company's own, or with none shared.
///
/// # Errors
/// [`Error::Invalid`] of a row that the server keeps for all, and of a company that is not there; a conflict
/// [`code::ENVIRONMENT_USED_BY_OTHER_COMPANIES`] whose details are the [`OthersUse`].
pub(super) async fn may_be(tx: &mut Tx, before: &Environment, company: Option<&str>) -> Result<()> {
    if before.is_local() || before.managed {
        return Err(Error::invalid(
            "/companyId",
            "cannot change: the server keeps this environment for all companies",
        ));
    }
    let Some(company) = company else {
        return Ok(());
    };
    match company::must_exist(&mut tx.db, company).await {
        Err(Error::NotFound { .. }) => {
            return Err(Error::invalid(
                "/companyId",
                format!("is of no company: {company:?}"),
            ));
        }
        other => other?,
    }
    let others = others(tx, &before.id, company).await?;
    if others == OthersUse::default() {
        return Ok(());
    }
    let name = &before.name;
    let whose = if is_seen_by(before, company) {
        "others than this company use it"
    } else {
        "its own company uses it"
    };
    Err(Error::conflict_with(
        code::ENVIRONMENT_USED_BY_OTHER_COMPANIES,
        format!(
            "environment {name:?} cannot become this company's own while {whose}: {}; give those another environment first",
            others.words().join(", ")
        ),
        serde_json::to_value(others)?,
    ))
}

/// What of an environment's target is still needed by a lease that waits for its cleanup.
///
/// # Errors
/// A conflict [`code::ENVIRONMENT_PENDING_SANDBOX_CLEANUP`] with the number of such leases.
pub(super) async fn may_turn(tx: &mut Tx, environment: &Environment) -> Result<()> {
    let pending: i64 = sqlx::query_scalar(
        "SELECT COUNT(*) FROM leases WHERE environment_id = $1 AND status = 'pending_cleanup'",
    )
    .bind(&environment.id)
    .fetch_one(&mut tx.db)
    .await?;
    if pending == 0 {
        return Ok(());
    }
    Err(Error::conflict_with(
        code::ENVIRONMENT_PENDING_SANDBOX_CLEANUP,
        format!(
            "environment {:?} keeps its driver, provider and config while {pending} of its leases wait for cleanup: \
             release or abandon those first",
            environment.name
        ),
        serde_json::json!({ "pendingCleanupLeaseCount": pending }),
    ))
}

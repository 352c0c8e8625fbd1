//! The row that an environment is assigned to: its type, its authentication and its way to the database.

use sqlx::{Row as _, SqliteConnection};

use super::AssigneePage;
use crate::error::{Error, Result};
use crate::keys::{Keys, Mac};
use crate::policy::Operation;
use crate::store::{Db, Row, Tx};

/// What a row is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AssigneeKind {
    /// Who works.
    Agent,
    /// What is worked for.
    Project,
    /// Where it is worked; of a project.
    Workspace,
    /// What is worked on; of a project.
    Issue,
    /// One piece of an agent's work. It has no environment of its own.
    Run,
}

impl AssigneeKind {
    /// Each of them.
    pub const ALL: [AssigneeKind; 5] = [
        AssigneeKind::Agent,
        AssigneeKind::Project,
        AssigneeKind::Workspace,
        AssigneeKind::Issue,
        AssigneeKind::Run,
    ];

    /// As it is stored and written.
    pub fn as_str(self) -> &'static str {
        match self {
            AssigneeKind::Agent => "agent",
            AssigneeKind::Project => "project",
            AssigneeKind::Workspace => "workspace",
            AssigneeKind::Issue => "issue",
            AssigneeKind::Run => "run",
        }
    }

    pub(super) fn article(self) -> &'static str {
        match self {
            AssigneeKind::Agent | AssigneeKind::Issue => "an",
            _ => "a",
        }
    }

    pub(super) fn prefix(self) -> &'static str {
        match self {
            AssigneeKind::Agent => "agt_",
            AssigneeKind::Project => "prj_",
            AssigneeKind::Workspace => "wsp_",
            AssigneeKind::Issue => "iss_",
            AssigneeKind::Run => "run_",
        }
    }

    pub(super) fn created(self) -> &'static str {
        match self {
            AssigneeKind::Agent => "agent.created",
            AssigneeKind::Project => "project.created",
            AssigneeKind::Workspace => "workspace.created",
            AssigneeKind::Issue => "issue.created",
            AssigneeKind::Run => "run.created",
        }
    }

    pub(super) fn updated(self) -> &'static str {
        match self {
            AssigneeKind::Agent => "agent.updated",
            AssigneeKind::Project => "project.updated",
            AssigneeKind::Workspace => "workspace.updated",
            AssigneeKind::Issue => "issue.updated",
            AssigneeKind::Run => "run.updated",
        }
    }

    pub(super) fn creates(self) -> Operation {
        match self {
            AssigneeKind::Agent => Operation::CreateAgent,
            AssigneeKind::Project => Operation::CreateProject,
            AssigneeKind::Workspace => Operation::CreateWorkspace,
            AssigneeKind::Issue => Operation::CreateIssue,
            AssigneeKind::Run => Operation::CreateRun,
        }
    }

    /// What changes one; nothing changes a run.
    pub(super) fn updates(self) -> Option<Operation> {
        match self {
            AssigneeKind::Agent => Some(Operation::UpdateAgent),
            AssigneeKind::Project => Some(Operation::UpdateProject),
            AssigneeKind::Workspace => Some(Operation::UpdateWorkspace),
            AssigneeKind::Issue => Some(Operation::UpdateIssue),
            AssigneeKind::Run => None,
        }
    }

    /// Whether a row of this kind can be linked to one of that.
    pub fn may_belong_to(self, other: AssigneeKind) -> bool {
        match self {
            AssigneeKind::Agent | AssigneeKind::Project => false,
            AssigneeKind::Workspace | AssigneeKind::Issue => other == AssigneeKind::Project,
            AssigneeKind::Run => other != AssigneeKind::Run,
        }
    }
}

/// What a row belongs to, by ids.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Links {
    /// Of a run: whose it is.
    pub agent: Option<String>,
    /// Of a run, a workspace or an issue: its project.
    pub project: Option<String>,
    /// Of a run: where it works.
    pub workspace: Option<String>,
    /// Of a run: what it works on.
    pub issue: Option<String>,
}

impl Links {
    /// The link of this kind.
    pub fn of(&self, kind: AssigneeKind) -> Option<&str> {
        match kind {
            AssigneeKind::Agent => self.agent.as_deref(),
            AssigneeKind::Project => self.project.as_deref(),
            AssigneeKind::Workspace => self.workspace.as_deref(),
            AssigneeKind::Issue => self.issue.as_deref(),
            AssigneeKind::Run => None,
        }
    }

    /// Those there are.
    pub fn each(&self) -> impl Iterator<Item = (AssigneeKind, &str)> {
        AssigneeKind::ALL
            .into_iter()
            .filter_map(|kind| self.of(kind).map(|id| (kind, id)))
    }
}

/// An agent, a project, a workspace, an issue or a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assignee {
    /// The client's, or made here; unique among those of its kind.
    pub id: String,
    /// What it is.
    pub kind: AssigneeKind,
    /// Whose it is.
    pub company_id: String,
    /// For a person.
    pub name: Option<String>,
    /// What is assigned to it.
    pub environment_id: Option<String>,
    /// What it belongs to.
    pub links: Links,
    /// When a run ended, in milliseconds since the epoch; none while it goes on, and of any other row.
    pub ended_at: Option<i64>,
    /// Milliseconds since the epoch.
    pub created_at: i64,
    /// Milliseconds since the epoch.
    pub updated_at: i64,
}

/// How many rows of each kind an environment is assigned to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AssignmentCounts {
    /// Agents.
    pub agents: i64,
    /// Projects.
    pub projects: i64,
    /// Workspaces.
    pub workspaces: i64,
    /// Issues.
    pub issues: i64,
}

/// Over all but the times that decide nothing.
fn mac(keys: &Keys, row: &Assignee) -> Mac {
    let mac = Mac::new(&keys.targets, "assignee")
        .text(row.kind.as_str())
        .text(&row.id)
        .text(&row.company_id)
        .text_or(row.name.as_deref())
        .text_or(row.environment_id.as_deref());
    let mac = AssigneeKind::ALL
        .into_iter()
        .fold(mac, |mac, kind| mac.text_or(row.links.of(kind)));
    match row.ended_at {
        None => mac,
        Some(at) => mac.text("ended").int(at),
    }
}

fn assignee(keys: &Keys, row: &Row) -> Result<Assignee> {
    let (kind, id): (String, String) = (row.try_get("kind")?, row.try_get("id")?);
    let corrupt = || Error::corrupt(format!("{kind} {id}"));
    let found = Assignee {
        kind: AssigneeKind::ALL
            .into_iter()
            .find(|known| known.as_str() == kind)
            .ok_or_else(corrupt)?,
        id: id.clone(),
        company_id: row.try_get("company_id")?,
        name: row.try_get("name")?,
        environment_id: row.try_get("environment_id")?,
        links: Links {
            agent: row.try_get("agent_id")?,
            project: row.try_get("project_id")?,
            workspace: row.try_get("workspace_id")?,
            issue: row.try_get("issue_id")?,
        },
        ended_at: row.try_get("ended_at")?,
        created_at: row.try_get("created_at")?,
        updated_at: row.try_get("updated_at")?,
    };
    if !mac(keys, &found).verifies(row.try_get("mac")?) {
        return Err(corrupt());
    }
    Ok(found)
}

pub(crate) async fn load<'e>(
    db: impl sqlx::Executor<'e, Database = Db>,
    keys: &Keys,
    kind: AssigneeKind,
    id: &str,
) -> Result<Assignee> {
    let row = sqlx::query("SELECT * FROM assignees WHERE kind = $1 AND id = $2")
        .bind(kind.as_str())
        .bind(id)
        .fetch_optional(db)
        .await?
        .ok_or_else(|| Error::not_found(kind.as_str(), id))?;
    assignee(keys, &row)
}

/// Whether there is such a row in this company.
pub(super) async fn is_there(
    tx: &mut Tx,
    kind: AssigneeKind,
    id: &str,
    company: &str,
) -> Result<bool> {
    match load(&mut tx.db, &tx.keys, kind, id).await {
        Ok(found) => Ok(found.company_id == company),
        Err(Error::NotFound { .. }) => Ok(false),
        Err(other) => Err(other),
    }
}

pub(super) async fn insert(tx: &mut Tx, row: &Assignee) -> Result<()> {
    let mac = mac(&tx.keys, row).done();
    sqlx::query(
        "INSERT INTO assignees (kind, id, company_id, name, environment_id, agent_id, project_id, workspace_id, issue_id,
             created_at, updated_at, mac)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)",
    )
    .bind(row.kind.as_str())
    .bind(&row.id)
    .bind(&row.company_id)
    .bind(&row.name)
    .bind(&row.environment_id)
    .bind(&row.links.agent)
    .bind(&row.links.project)
    .bind(&row.links.workspace)
    .bind(&row.links.issue)
    .bind(row.created_at)
    .bind(row.updated_at)
    .bind(&mac[..])
    .execute(&mut tx.db)
    .await?;
    Ok(())
}

/// Writes what may change of a row.
pub(crate) async fn store(tx: &mut Tx, row: &Assignee) -> Result<()> {
    let mac = mac(&tx.keys, row).done();
    sqlx::query(
        "UPDATE assignees SET name = $3, environment_id = $4, updated_at = $5, mac = $6, ended_at = $7
         WHERE kind = $1 AND id = $2",
    )
    .bind(row.kind.as_str())
    .bind(&row.id)
    .bind(&row.name)
    .bind(&row.environment_id)
    .bind(row.updated_at)
    .bind(&mac[..])
    .bind(row.ended_at)
    .execute(&mut tx.db)
    .await?;
    Ok(())
}

pub(super) async fn page<'e>(
    db: impl sqlx::Executor<'e, Database = Db>,
    keys: &Keys,
    kind: AssigneeKind,
    company: &str,
    cursor: Option<&str>,
    limit: u32,
) -> Result<AssigneePage> {
    let (at, after) = match cursor {
        None => (i64::MIN, ""),
        Some(text) => text
            .split_once('.')
            .and_then(|(at, id)| Some((at.parse().ok()?, id)))
            .ok_or_else(|| Error::invalid("?cursor", "is not `next` of a page before"))?,
    };
    let rows = sqlx::query(
        "SELECT * FROM assignees WHERE company_id = $1 AND kind = $2 AND (created_at, id) > ($3, $4)
         ORDER BY created_at, id LIMIT $5",
    )
    .bind(company)
    .bind(kind.as_str())
    .bind(at)
    .bind(after)
    .bind(i64::from(limit) + 1)
    .fetch_all(db)
    .await?;
    let mut items = rows
        .iter()
        .map(|row| assignee(keys, row))
        .collect::<Result<Vec<_>>>()?;
    let more = items.len() > limit as usize;
    items.truncate(limit as usize);
    let next = items
        .last()
        .filter(|_| more)
        .map(|row| format!("{}.{}", row.created_at, row.id));
    Ok(AssigneePage { items, next })
}

pub(crate) async fn counts<'e>(
    db: impl sqlx::Executor<'e, Database = Db>,
    environment: &str,
) -> Result<AssignmentCounts> {
    // No company has this id.
    counts_of_others(db, environment, "").await
}

/// The same of the rows of every other company than this one.
pub(crate) async fn counts_of_others<'e>(
    db: impl sqlx::Executor<'e, Database = Db>,
    environment: &str,
    company: &str,
) -> Result<AssignmentCounts> {
    let rows: Vec<(String, i64)> = sqlx::query_as(
        "SELECT kind, COUNT(*) FROM assignees WHERE environment_id = $1 AND company_id <> $2
         GROUP BY kind",
    )
    .bind(environment)
    .bind(company)
    .fetch_all(db)
    .await?;
    let count = |kind: AssigneeKind| {
        let row = rows.iter().find(|(name, _)| name == kind.as_str());
        row.map_or(0, |(_, count)| *count)
    };
    Ok(AssignmentCounts {
        agents: count(AssigneeKind::Agent),
        projects: count(AssigneeKind::Project),
        workspaces: count(AssigneeKind::Workspace),
        issues: count(AssigneeKind::Issue),
    })
}

/// Takes an environment from whatever it is assigned to. Returns how many rows that were.
pub(crate) async fn clear(tx: &mut Tx, environment: &str) -> Result<usize> {
    let rows = sqlx::query("SELECT * FROM assignees WHERE environment_id = $1")
        .bind(environment)
        .fetch_all(&mut tx.db)
        .await?;
    for row in &rows {
        let mut found = assignee(&tx.keys, row)?;
        found.environment_id = None;
        found.updated_at = tx.now();
        store(tx, &found).await?;
    }
    Ok(rows.len())
}

/// Authenticates every row under other keys, each after it verified under the old. Returns how many.
pub(crate) async fn sign_again(db: &mut SqliteConnection, old: &Keys, new: &Keys) -> Result<u64> {
    let rows = sqlx::query("SELECT * FROM assignees")
        .fetch_all(&mut *db)
        .await?;
    for row in &rows {
        let found = assignee(old, row)?;
        let mac = mac(new, &found).done();
        sqlx::query("UPDATE assignees SET mac = $3 WHERE kind = $1 AND id = $2")
            .bind(found.kind.as_str())
            .bind(&found.id)
            .bind(&mac[..])
            .execute(&mut *db)
            .await?;
    }
    Ok(rows.len() as u64)
}

//! What decides where several levels name an environment: workspace, issue, project, agent, the company's default, the
//! instance's, the first of them that names one.
//!
//! The precedence is a pure function ([`Resolution::of`]). A level that names an environment decides also where that cannot
//! be leased: work that was sent to one place does not go to another by itself.

use super::Assignees;
use super::row::{self, AssigneeKind, Links};
use crate::environment;
use crate::error::{Error, Result};

/// Who or what speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// The workspace that is worked in.
    Workspace,
    /// The issue that is worked on.
    Issue,
    /// The project of these, or of the run.
    Project,
    /// The agent that works.
    Agent,
    /// What the company has where nothing else says otherwise.
    CompanyDefault,
    /// What the instance has where nothing else says otherwise.
    InstanceDefault,
}

impl Level {
    /// The first decides.
    pub const ALL: [Level; 6] = [
        Level::Workspace,
        Level::Issue,
        Level::Project,
        Level::Agent,
        Level::CompanyDefault,
        Level::InstanceDefault,
    ];

    /// As it is written.
    pub fn as_str(self) -> &'static str {
        match self {
            Level::Workspace => "workspace",
            Level::Issue => "issue",
            Level::Project => "project",
            Level::Agent => "agent",
            Level::CompanyDefault => "company-default",
            Level::InstanceDefault => "instance-default",
        }
    }
}

/// What one level says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Said {
    /// Which.
    pub level: Level,
    /// The row that speaks, where there is one.
    pub by: Option<String>,
    /// What it names.
    pub environment: Option<String>,
}

/// What every level says, the first first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resolution {
    /// One for each of [`Level::ALL`].
    pub levels: Vec<Said>,
}

impl Resolution {
    /// Of what some levels say; the others say nothing.
    pub fn of(said: impl IntoIterator<Item = Said>) -> Resolution {
        let mut levels: Vec<Said> = said.into_iter().collect();
        for level in Level::ALL {
            if !levels.iter().any(|said| said.level == level) {
                levels.push(Said {
                    level,
                    by: None,
                    environment: None,
                });
            }
        }
        levels.sort_by_key(|said| said.level);
        Resolution { levels }
    }

    /// What decides: the first that names an environment.
    pub fn decided(&self) -> Option<&Said> {
        self.levels.iter().find(|said| said.environment.is_some())
    }
}

/// For whom or what it is asked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WhoseAssignment {
    /// What was named.
    pub links: Links,
    /// The run, whose own links count where nothing was named.
    pub run: Option<String>,
    /// Whether the run may be one that has no row: a token's run is a name of the client's own.
    pub run_may_be_unknown: bool,
    /// Whether nothing may be named that the run's row does not say: whoever is bound to a run works where the run does.
    pub as_the_run_says: bool,
}

impl Assignees {
    /// What every level says. Links of what was named are followed: of a run to all that it belongs to, of a workspace and an
    /// issue to their project, that of the workspace first.
    ///
    /// # Errors
    /// [`Error::NotFound`] of a row that is not there, or is another company's; [`Error::Invalid`] where what was named
    /// contradicts the run.
    pub async fn resolve(&self, company: &str, whose: &WhoseAssignment) -> Result<Resolution> {
        let mut links = whose.links.clone();
        if let Some(run) = &whose.run {
            let own = match self.of_company(company, AssigneeKind::Run, run).await {
                Ok(row) => Some(row.links),
                Err(Error::NotFound { .. }) if whose.run_may_be_unknown => None,
                Err(other) => return Err(other),
            };
            if let Some(own) = own {
                links = joined(links, own, whose.as_the_run_says)?;
            }
        }
        let mut said = Vec::new();
        let mut project = links.project.clone();
        for (kind, level) in [
            (AssigneeKind::Workspace, Level::Workspace),
            (AssigneeKind::Issue, Level::Issue),
        ] {
            if let Some(id) = links.of(kind) {
                let row = self.of_company(company, kind, id).await?;
                project = project.or(row.links.project);
                said.push(Said {
                    level,
                    by: Some(row.id),
                    environment: row.environment_id,
                });
            }
        }
        for (kind, level, id) in [
            (AssigneeKind::Project, Level::Project, project),
            (AssigneeKind::Agent, Level::Agent, links.agent),
        ] {
            if let Some(id) = id {
                let row = self.of_company(company, kind, &id).await?;
                said.push(Said {
                    level,
                    by: Some(row.id),
                    environment: row.environment_id,
                });
            }
        }
        let defaults = environment::read_defaults(&self.store, &self.keys, Some(company)).await?;
        for (level, environment) in [
            (Level::CompanyDefault, defaults.company),
            (Level::InstanceDefault, defaults.instance),
        ] {
            said.push(Said {
                level,
                by: None,
                environment,
            });
        }
        Ok(Resolution::of(said))
    }

    async fn of_company(
        &self,
        company: &str,
        kind: AssigneeKind,
        id: &str,
    ) -> Result<super::Assignee> {
        let row = row::load(self.store.read(), &self.keys, kind, id).await?;
        if row.company_id != company {
            return Err(Error::not_found(kind.as_str(), id));
        }
        Ok(row)
    }
}

/// What was named and what the run belongs to, together.
fn joined(named: Links, own: Links, alone: bool) -> Result<Links> {
    let mut bad = crate::error::Violations::default();
    let mut one = |kind: AssigneeKind, named: Option<String>, own: Option<String>| {
        match (&named, &own) {
            (Some(named), Some(own)) if named != own => bad.add(
                format!("/{}Id", kind.as_str()),
                format!("is not what the run belongs to: leave it out, or name {own:?}"),
            ),
            (Some(_), None) if alone => bad.add(
                format!("/{}Id", kind.as_str()),
                format!(
                    "is none that the run belongs to, and a token of one run works where the run does: leave it out, \
                     or have the run made with its {}",
                    kind.as_str()
                ),
            ),
            _ => {}
        }
        named.or(own)
    };
    let links = Links {
        agent: one(AssigneeKind::Agent, named.agent, own.agent),
        project: one(AssigneeKind::Project, named.project, own.project),
        workspace: one(AssigneeKind::Workspace, named.workspace, own.workspace),
        issue: one(AssigneeKind::Issue, named.issue, own.issue),
    };
    bad.done()?;
    Ok(links)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_level_that_names_an_environment_decides_whatever_the_later_ones_say() {
        for mask in 0u32..64 {
            let named = |at: usize| (mask >> at & 1 == 1).then(|| format!("env_{at}"));
            // Said in the wrong order, to see that the order is the levels' own.
            let said = Level::ALL.iter().enumerate().rev().map(|(at, level)| Said {
                level: *level,
                by: None,
                environment: named(at),
            });
            let resolution = Resolution::of(said);
            let order: Vec<Level> = resolution.levels.iter().map(|said| said.level).collect();
            assert_eq!(order, Level::ALL);
            let first = (0..6).find(|at| mask >> at & 1 == 1);
            let decided = resolution.decided();
            assert_eq!(
                decided.map(|said| said.level),
                first.map(|at| Level::ALL[at])
            );
            assert_eq!(
                decided.and_then(|said| said.environment.clone()),
                first.and_then(named)
            );
        }
    }

    #[test]
    fn a_level_that_is_not_asked_says_nothing() {
        let resolution = Resolution::of([]);
        assert_eq!(resolution.levels.len(), Level::ALL.len());
        assert_eq!(resolution.decided(), None);
    }
}

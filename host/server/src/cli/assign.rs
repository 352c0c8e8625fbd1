//! `agent`, `project`, `workspace`, `issue` and `run`: the rows that environments are assigned to.

use clap::{Args, Subcommand};
use hyper::Method;
use serde_json::{Map, Value};

use super::admin::InCompany;
use super::client::{Client, encode};
use super::environment::environment_id;
use super::exit::{CliError, DONE};
use super::lease::all_pages;
use super::output::{Column, Output};

const ROW: &[Column] = &[
    ("ID", "id"),
    ("NAME", "name"),
    ("ENVIRONMENT", "environmentId"),
    ("AGENT", "agentId"),
    ("PROJECT", "projectId"),
    ("WORKSPACE", "workspaceId"),
    ("ISSUE", "issueId"),
    ("CREATED", "createdAt"),
];

/// A new row.
#[derive(Debug, Args)]
pub struct NewRow {
    /// Your own id; without, one is made
    #[arg(long, value_name = "ID")]
    id: Option<String>,
    /// Its name
    #[arg(long)]
    name: Option<String>,
    /// The agent that it belongs to (run)
    #[arg(long, value_name = "ID")]
    agent: Option<String>,
    /// The project that it belongs to (workspace, issue, run)
    #[arg(long, value_name = "ID")]
    project: Option<String>,
    /// The workspace that it belongs to (run)
    #[arg(long, value_name = "ID")]
    workspace: Option<String>,
    /// The issue that it belongs to (run)
    #[arg(long, value_name = "ID")]
    issue: Option<String>,
    #[command(flatten)]
    company: InCompany,
}

/// `agent …` and the like
#[derive(Debug, Subcommand)]
pub enum RowCommand {
    /// Make one
    Create {
        /// The environment that is assigned to it, by id or name
        #[arg(long, value_name = "ENV")]
        environment: Option<String>,
        #[command(flatten)]
        new: NewRow,
    },
    /// List those of a company
    List {
        #[command(flatten)]
        company: InCompany,
    },
    /// Show one
    Get {
        /// Its id
        id: String,
    },
    /// Assign an environment to it, or clear what is assigned; name it anew
    #[command(group = clap::ArgGroup::new("what").required(true).multiple(true))]
    Set {
        /// Its id
        id: String,
        /// The environment, by id or name
        #[arg(long, value_name = "ENV", group = "what")]
        environment: Option<String>,
        /// Clear what is assigned
        #[arg(long, group = "what", conflicts_with = "environment")]
        no_environment: bool,
        /// Its new name
        #[arg(long, group = "what")]
        name: Option<String>,
        /// Take its name away
        #[arg(long, group = "what", conflicts_with = "name")]
        no_name: bool,
        #[command(flatten)]
        company: InCompany,
    },
}

impl RowCommand {
    /// Does it, with rows of the kind whose plural this is.
    pub async fn run(self, plural: &str, client: &Client, out: &Output) -> Result<u8, CliError> {
        let of_company = |company: &str| format!("/api/companies/{}/{plural}", encode(company));
        let one = |id: &str| format!("/api/{plural}/{}", encode(id));
        match self {
            RowCommand::Create { environment, new } => {
                let company = new.company.id(client).await?;
                let environment = match environment {
                    Some(named) => Some(environment_id(client, &new.company, &named).await?),
                    None => None,
                };
                let mut body = Map::new();
                for (field, text) in [
                    ("id", new.id),
                    ("name", new.name),
                    ("environmentId", environment),
                    ("agentId", new.agent),
                    ("projectId", new.project),
                    ("workspaceId", new.workspace),
                    ("issueId", new.issue),
                ] {
                    if let Some(text) = text {
                        body.insert(field.into(), text.into());
                    }
                }
                let made = client.create(&of_company(&company), body.into()).await?;
                out.one(&made, ROW)?;
            }
            RowCommand::List { company } => {
                let company = company.id(client).await?;
                out.list(&all_pages(client, &of_company(&company)).await?, ROW)?;
            }
            RowCommand::Get { id } => out.one(&client.get(&one(&id)).await?, ROW)?,
            RowCommand::Set {
                id,
                environment,
                no_environment,
                name,
                no_name,
                company,
            } => {
                let mut body = Map::new();
                if let Some(named) = environment {
                    let id = environment_id(client, &company, &named).await?;
                    body.insert("environmentId".into(), id.into());
                } else if no_environment {
                    body.insert("environmentId".into(), Value::Null);
                }
                if let Some(name) = name {
                    body.insert("name".into(), name.into());
                } else if no_name {
                    body.insert("name".into(), Value::Null);
                }
                let body = Some(body.into());
                let now = client.json(Method::PATCH, &one(&id), body).await?;
                out.one(&now, ROW)?;
            }
        }
        Ok(DONE)
    }
}

/// `run …`: no environment is assigned to one
#[derive(Debug, Subcommand)]
pub enum RunCommand {
    /// Make one
    Create(NewRow),
    /// List those of a company
    List {
        #[command(flatten)]
        company: InCompany,
    },
    /// Show one
    Get {
        /// Its id
        id: String,
    },
    /// End one: its leases are released, and none begins for it any more
    End {
        /// Its id
        id: String,
    },
}

impl RunCommand {
    /// Does it.
    pub async fn run(self, client: &Client, out: &Output) -> Result<u8, CliError> {
        let command = match self {
            RunCommand::Create(new) => RowCommand::Create {
                environment: None,
                new,
            },
            RunCommand::List { company } => RowCommand::List { company },
            RunCommand::Get { id } => RowCommand::Get { id },
            RunCommand::End { id } => {
                let path = format!("/api/runs/{}/end", encode(&id));
                out.value(&client.post(&path, None).await?)?;
                return Ok(DONE);
            }
        };
        command.run("runs", client, out).await
    }
}

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
    /// Assign an environment to it, or clear what is assigned
    Set {
        /// Its id
        id: String,
        /// The environment, by id or name
        #[arg(long, value_name = "ENV", required_unless_present = "no_environment")]
        environment: Option<String>,
        /// Clear what is assigned
        #[arg(long, conflicts_with = "environment")]
        no_environment: bool,
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
            RowCommand::Create(new) => {
                let company = new.company.id(client).await?;
                let mut body = Map::new();
                for (field, text) in [
                    ("id", new.id),
                    ("name", new.name),
                    ("agentId", new.agent),
                    ("projectId", new.project),
                    ("workspaceId", new.workspace),
                    ("issueId", new.issue),
                ] {
                    if let Some(text) = text {
                        body.insert(field.into(), text.into());
                    }
                }
                let made = client
                    .post(&of_company(&company), Some(body.into()))
                    .await?;
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
                no_environment: _,
                company,
            } => {
                let environment = match environment {
                    Some(named) => Value::from(environment_id(client, &company, &named).await?),
                    None => Value::Null,
                };
                let body = serde_json::json!({ "environmentId": environment });
                let now = client.json(Method::PATCH, &one(&id), Some(body)).await?;
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
            RunCommand::Create(new) => RowCommand::Create(new),
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

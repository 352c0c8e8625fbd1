//! `select`, `assignment`, and what a lease by requirement needs.

use clap::Args;
use serde_json::{Map, Value};

use super::admin::InCompany;
use super::client::{Client, encode};
use super::exit::{CliError, DONE};
use super::output::{Column, Output};

const CANDIDATES: &[Column] = &[
    ("ID", "environmentId"),
    ("NAME", "name"),
    ("PROVIDER", "provider"),
    ("PREFERRED", "preferred"),
    ("CAPABILITIES", "capabilities"),
    ("IN USE", "inUse"),
];

/// What an environment must be able to do.
#[derive(Debug, Default, Args)]
pub struct Needs {
    /// Capabilities without which it is none, such as execution or files; several with commas
    #[arg(long, value_name = "CAPABILITY", value_delimiter = ',')]
    require: Vec<String>,
    /// Capabilities with more of which it is the better; several with commas
    #[arg(long, value_name = "CAPABILITY", value_delimiter = ',')]
    prefer: Vec<String>,
    /// What a label in its metadata must be; may be given again
    #[arg(long, value_name = "NAME=VALUE")]
    label: Vec<String>,
    /// That a lease of it can be had again
    #[arg(long)]
    reuse: bool,
    /// The operating system that it must have been measured to have
    #[arg(long, value_name = "OS")]
    os: Option<String>,
    /// The architecture that it must have been measured to have
    #[arg(long, value_name = "ARCHITECTURE")]
    architecture: Option<String>,
    /// The C library that it must have been measured to have
    #[arg(long, value_name = "LIBC")]
    libc: Option<String>,
    /// Of this driver alone
    #[arg(long, value_name = "DRIVER")]
    driver: Option<String>,
    /// Of this provider alone
    #[arg(long, value_name = "KEY")]
    provider: Option<String>,
}

impl Needs {
    /// Whether anything is needed.
    pub fn any(&self) -> bool {
        let Needs {
            require,
            prefer,
            label,
            reuse,
            os,
            architecture,
            libc,
            driver,
            provider,
        } = self;
        let lists = [require, prefer, label];
        let texts = [os, architecture, libc, driver, provider];
        *reuse || lists.iter().any(|l| !l.is_empty()) || texts.iter().any(|t| t.is_some())
    }

    /// As the API takes it.
    ///
    /// # Errors
    /// A label that is not `NAME=VALUE`.
    pub fn body(&self) -> Result<Value, CliError> {
        let mut body = Map::new();
        for (field, list) in [("required", &self.require), ("preferred", &self.prefer)] {
            if !list.is_empty() {
                body.insert(field.into(), list.clone().into());
            }
        }
        let mut labels = Map::new();
        for label in &self.label {
            let (name, value) = label
                .split_once('=')
                .ok_or_else(|| CliError::Usage(format!("--label: `{label}` is not NAME=VALUE")))?;
            labels.insert(name.to_owned(), value.into());
        }
        if !labels.is_empty() {
            body.insert("labels".into(), labels.into());
        }
        if self.reuse {
            body.insert("reuse".into(), true.into());
        }
        let mut platform = Map::new();
        for (field, text) in [
            ("os", &self.os),
            ("architecture", &self.architecture),
            ("libc", &self.libc),
        ] {
            if let Some(text) = text {
                platform.insert(field.into(), text.clone().into());
            }
        }
        if !platform.is_empty() {
            body.insert("platform".into(), platform.into());
        }
        for (field, text) in [("driver", &self.driver), ("provider", &self.provider)] {
            if let Some(text) = text {
                body.insert(field.into(), text.clone().into());
            }
        }
        Ok(body.into())
    }
}

/// `select`
#[derive(Debug, Args)]
pub struct SelectArgs {
    #[command(flatten)]
    needs: Needs,
    /// At most this many candidates
    #[arg(long, value_name = "COUNT", default_value_t = 100)]
    limit: u32,
    #[command(flatten)]
    company: InCompany,
}

impl SelectArgs {
    /// Does it.
    pub async fn run(self, client: &Client, out: &Output) -> Result<u8, CliError> {
        let body = self.needs.body()?;
        let company = self.company.id(client).await?;
        let path = format!(
            "/api/companies/{}/environments/select?limit={}",
            encode(&company),
            self.limit
        );
        let selection = client.post(&path, Some(body)).await?;
        if out.is_json() {
            out.value(&selection)?;
            return Ok(DONE);
        }
        out.list(&selection["candidates"], CANDIDATES)?;
        for one in selection["excluded"].as_array().into_iter().flatten() {
            let name = one["name"].as_str().or(one["environmentId"].as_str());
            let why: Vec<String> = one["lacks"]
                .as_array()
                .into_iter()
                .flatten()
                .map(told)
                .collect();
            let line = format!("{} is none: {}", name.unwrap_or("?"), why.join("; "));
            super::output::write_all(format!("{}\n", super::output::plain(&line)).as_bytes())?;
        }
        Ok(DONE)
    }
}

/// What is not there, in one phrase.
fn told(lack: &Value) -> String {
    let text = |member: &str| lack[member].as_str().unwrap_or("?").to_owned();
    match lack["reason"].as_str() {
        Some(reason) => format!("{}: {reason} ({})", text("what"), text("by")),
        None => format!("{} ({})", text("what"), text("by")),
    }
}

/// `assignment`
#[derive(Debug, Args)]
pub struct AssignmentArgs {
    /// For this agent
    #[arg(long, value_name = "ID")]
    agent: Option<String>,
    /// For this project
    #[arg(long, value_name = "ID")]
    project: Option<String>,
    /// For this issue
    #[arg(long, value_name = "ID")]
    issue: Option<String>,
    /// For this workspace
    #[arg(long, value_name = "ID")]
    workspace: Option<String>,
    /// For all that this run belongs to
    #[arg(long, value_name = "ID")]
    run: Option<String>,
    #[command(flatten)]
    company: InCompany,
}

impl AssignmentArgs {
    /// Does it.
    pub async fn run(self, client: &Client, out: &Output) -> Result<u8, CliError> {
        let company = self.company.id(client).await?;
        let named: Vec<String> = [
            ("agent", self.agent),
            ("project", self.project),
            ("issue", self.issue),
            ("workspace", self.workspace),
            ("run", self.run),
        ]
        .into_iter()
        .filter_map(|(name, id)| id.map(|id| format!("{name}={}", encode(&id))))
        .collect();
        let path = format!(
            "/api/companies/{}/environments/assignment?{}",
            encode(&company),
            named.join("&")
        );
        let assignment = client.get(&path).await?;
        if out.is_json() {
            out.value(&assignment)?;
            return Ok(DONE);
        }
        let mut lines = String::new();
        for level in assignment["levels"].as_array().into_iter().flatten() {
            let text = |member: &str| level[member].as_str();
            let name = text("level").unwrap_or("?");
            let mut line = match text("id") {
                Some(id) => format!("{name} {id}: "),
                None => format!("{name}: "),
            };
            match text("environmentName").or(text("environmentId")) {
                Some(environment) => line.push_str(environment),
                None => line.push_str("nothing"),
            }
            let why: Vec<String> = level["lacks"]
                .as_array()
                .into_iter()
                .flatten()
                .map(told)
                .collect();
            if !why.is_empty() {
                line.push_str(&format!(", which cannot be leased: {}", why.join("; ")));
            }
            if assignment["decidedBy"].as_str() == Some(name) {
                line.push_str(" (decides)");
            }
            lines.push_str(&super::output::plain(&line));
            lines.push('\n');
        }
        super::output::write_all(lines.as_bytes())?;
        Ok(DONE)
    }
}

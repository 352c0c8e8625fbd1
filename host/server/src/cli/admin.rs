//! `company`, `token`, `secret` and `activity`.

use std::io::{IsTerminal, Read};
use std::path::PathBuf;

use clap::builder::NonEmptyStringValueParser;
use clap::{Args, Subcommand, ValueEnum};
use hyper::Method;
use serde_json::{Value, json};
use zeroize::Zeroizing;

use super::client::{Client, encode};
use super::exit::{CliError, DONE};
use super::output::{Column, Output};

const COMPANY: &[Column] = &[("ID", "id"), ("NAME", "name"), ("CREATED", "createdAt")];
const TOKEN: &[Column] = &[
    ("ID", "id"),
    ("NAME", "name"),
    ("ROLE", "role"),
    ("COMPANY", "companyId"),
    ("CREATED", "createdAt"),
    ("REVOKED", "revokedAt"),
];
const SECRET: &[Column] = &[
    ("ID", "id"),
    ("NAME", "name"),
    ("VERSION", "version"),
    ("UPDATED", "updatedAt"),
    ("DESCRIPTION", "description"),
];
const ACTIVITY: &[Column] = &[
    ("POSITION", "position"),
    ("TIME", "time"),
    ("ACTOR", "actor"),
    ("ACTION", "action"),
    ("SUBJECT", "subjectId"),
];

/// Which company.
#[derive(Clone, Debug, Args)]
pub struct InCompany {
    /// The company, by id or name; not needed where there is only one
    #[arg(long, short = 'C', value_name = "COMPANY", env = "LEASEHOLD_COMPANY")]
    company: Option<String>,
}

impl InCompany {
    /// Whether one was named, by the flag or the environment.
    pub fn is_named(&self) -> bool {
        self.company.is_some()
    }

    /// Its id: as named, or the only one there is.
    pub async fn id(&self, client: &Client) -> Result<String, CliError> {
        let all = client.get("/api/companies").await?;
        let all = all.as_array().map_or(&[][..], Vec::as_slice);
        let id = |company: &Value| company["id"].as_str().unwrap_or("").to_owned();
        match &self.company {
            Some(named) => all
                .iter()
                .find(|c| c["id"] == named.as_str() || c["name"] == named.as_str())
                .map(id)
                .ok_or_else(|| not_found(&format!("company `{named}`"))),
            None => match all {
                [only] => Ok(id(only)),
                [] => Err(CliError::Usage(
                    "there is no company yet; make one with `leasehold company create NAME`".into(),
                )),
                _ => Err(CliError::Usage(
                    "there is more than one company; name one with --company".into(),
                )),
            },
        }
    }
}

/// What the client itself could not find.
pub fn not_found(what: &str) -> CliError {
    CliError::Refused {
        status: 404,
        code: "not_found".into(),
        message: format!("there is no {what}"),
        violations: Vec::new(),
    }
}

/// `company …`
#[derive(Debug, Subcommand)]
pub enum CompanyCommand {
    /// Create a company
    Create {
        /// Its name
        name: String,
    },
    /// List companies
    List,
    /// Rename a company
    Rename {
        /// The company, by id or name
        company: String,
        /// Its new name
        name: String,
    },
}

impl CompanyCommand {
    /// Does it.
    pub async fn run(self, client: &Client, out: &Output) -> Result<u8, CliError> {
        match self {
            CompanyCommand::Create { name } => {
                let body = json!({"name": name});
                let made = client.post("/api/companies", Some(body)).await?;
                out.one(&made, COMPANY)?;
            }
            CompanyCommand::List => out.list(&client.get("/api/companies").await?, COMPANY)?,
            CompanyCommand::Rename { company, name } => {
                let named = InCompany {
                    company: Some(company),
                };
                let id = named.id(client).await?;
                let path = format!("/api/companies/{}", encode(&id));
                let body = json!({"name": name});
                let now = client.json(Method::PATCH, &path, Some(body)).await?;
                out.one(&now, COMPANY)?;
            }
        }
        Ok(DONE)
    }
}

/// What a token allows.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum RoleName {
    /// Everything, in every company
    Admin,
    /// Read and lease in one company
    Member,
    /// Lease and run commands in one company, nothing else
    Agent,
}

/// `token …`
#[derive(Debug, Subcommand)]
pub enum TokenCommand {
    /// Create a token; its text is printed once and never again
    Create {
        /// For people
        name: String,
        /// What it allows; an admin's is good in every company, the others' in the one that --company names
        #[arg(long)]
        role: RoleName,
        #[command(flatten)]
        company: InCompany,
    },
    /// List tokens, without their text
    List,
    /// Revoke a token, at once
    Revoke {
        /// The token's id
        #[arg(value_parser = NonEmptyStringValueParser::new())]
        id: String,
    },
}

impl TokenCommand {
    /// Does it.
    pub async fn run(self, client: &Client, out: &Output) -> Result<u8, CliError> {
        match self {
            TokenCommand::Create {
                name,
                role,
                company,
            } => {
                let (role, company) = match role {
                    RoleName::Admin if company.is_named() => {
                        return Err(CliError::Usage(
                            "--company: an admin token is good in every company; make a member or agent token for one, \
                             or leave the company out (and LEASEHOLD_COMPANY unset)"
                                .into(),
                        ));
                    }
                    RoleName::Admin => ("admin", None),
                    RoleName::Member => ("member", Some(company.id(client).await?)),
                    RoleName::Agent => ("agent", Some(company.id(client).await?)),
                };
                let body = json!({"name": name, "role": role, "companyId": company});
                let made = client.post("/api/tokens", Some(body)).await?;
                let secret = made["secret"].as_str().unwrap_or("").to_owned();
                out.told(&made, &secret)?;
            }
            TokenCommand::List => out.list(&client.get("/api/tokens").await?, TOKEN)?,
            TokenCommand::Revoke { id } => {
                let path = format!("/api/tokens/{}", encode(&id));
                let gone = client.json(Method::DELETE, &path, None).await?;
                out.told(&gone, "revoked")?;
            }
        }
        Ok(DONE)
    }
}

/// `secret …`
#[derive(Debug, Subcommand)]
pub enum SecretCommand {
    /// Put a secret in, or give one that is there a new value; the value comes from a file or standard input
    Set {
        /// Its name
        name: String,
        /// File that holds the value; without, standard input
        #[arg(long, value_name = "FILE")]
        file: Option<PathBuf>,
        /// Leave off one line break at the value's end
        #[arg(long)]
        trim: bool,
        /// For people
        #[arg(long)]
        description: Option<String>,
        #[command(flatten)]
        company: InCompany,
    },
    /// List secrets, without their values
    List {
        #[command(flatten)]
        company: InCompany,
    },
    /// Delete a secret that nothing uses
    Delete {
        /// The secret, by id or name
        secret: String,
        #[command(flatten)]
        company: InCompany,
    },
}

impl SecretCommand {
    /// Does it.
    pub async fn run(self, client: &Client, out: &Output) -> Result<u8, CliError> {
        match self {
            SecretCommand::Set {
                name,
                file,
                trim,
                description,
                company,
            } => {
                let value = value_of(file, trim)?;
                let company = company.id(client).await?;
                let path = format!("/api/companies/{}/secrets", encode(&company));
                let there = client.get(&path).await?;
                let same = there
                    .as_array()
                    .into_iter()
                    .flatten()
                    .find(|s| s["name"] == name.as_str());
                let now = match same {
                    Some(secret) => {
                        let id = encode(secret["id"].as_str().unwrap_or(""));
                        let body = json!({"value": *value});
                        client
                            .post(&format!("/api/secrets/{id}/versions"), Some(body))
                            .await?
                    }
                    None => {
                        let body =
                            json!({"name": name, "description": description, "value": *value});
                        client.post(&path, Some(body)).await?
                    }
                };
                out.one(&now, SECRET)?;
            }
            SecretCommand::List { company } => {
                let company = company.id(client).await?;
                let path = format!("/api/companies/{}/secrets", encode(&company));
                out.list(&client.get(&path).await?, SECRET)?;
            }
            SecretCommand::Delete { secret, company } => {
                let id = secret_id(client, &company, &secret).await?;
                let path = format!("/api/secrets/{}", encode(&id));
                let gone = client.json(Method::DELETE, &path, None).await?;
                out.told(&gone, "deleted")?;
            }
        }
        Ok(DONE)
    }
}

/// The id of a secret that is named by id or name.
pub async fn secret_id(
    client: &Client,
    company: &InCompany,
    named: &str,
) -> Result<String, CliError> {
    if named.starts_with("sec_") {
        return Ok(named.to_owned());
    }
    let company = company.id(client).await?;
    let all = client
        .get(&format!("/api/companies/{}/secrets", encode(&company)))
        .await?;
    all.as_array()
        .into_iter()
        .flatten()
        .find(|s| s["name"] == named)
        .and_then(|s| s["id"].as_str())
        .map(str::to_owned)
        .ok_or_else(|| not_found(&format!("secret `{named}`")))
}

fn value_of(file: Option<PathBuf>, trim: bool) -> Result<Zeroizing<String>, CliError> {
    let mut value = Zeroizing::new(String::new());
    match &file {
        Some(path) => {
            *value = std::fs::read_to_string(path)
                .map_err(|e| unreadable(&format!("--file: {}", path.display()), &e))?;
        }
        None => {
            if std::io::stdin().is_terminal() {
                return Err(CliError::Usage(
                    "the value comes from a file or a pipe, so that no terminal shows it; give --file or \
                     redirect standard input"
                        .into(),
                ));
            }
            std::io::stdin()
                .read_to_string(&mut value)
                .map_err(|e| unreadable("standard input", &e))?;
        }
    }
    if trim && value.ends_with('\n') {
        value.pop();
        if value.ends_with('\r') {
            value.pop();
        }
    }
    if value.is_empty() {
        return Err(CliError::Usage("the value is empty".into()));
    }
    Ok(value)
}

fn unreadable(from: &str, error: &std::io::Error) -> CliError {
    CliError::Usage(match error.kind() {
        std::io::ErrorKind::InvalidData => {
            format!("{from}: a secret is text in UTF-8; encode other bytes, as with `base64`")
        }
        _ => format!("{from}: {error}"),
    })
}

/// `activity …`
#[derive(Debug, Args)]
pub struct ActivityArgs {
    /// Only what came after this position, oldest first; without, the newest first
    #[arg(long)]
    after: Option<i64>,
    /// Only what was done to the thing of this id
    #[arg(long, value_name = "ID")]
    subject: Option<String>,
    /// At most this many
    #[arg(long, default_value_t = 100)]
    limit: u32,
    /// Check the whole chain instead
    #[arg(long)]
    verify: bool,
}

impl ActivityArgs {
    /// Does it.
    pub async fn run(self, client: &Client, out: &Output) -> Result<u8, CliError> {
        if self.verify {
            let chain = client.get("/api/activity/chain").await?;
            out.one(
                &chain,
                &[("ROWS", "rows"), ("SEQUENCE", "sequence"), ("HEAD", "head")],
            )?;
            return Ok(DONE);
        }
        let mut path = format!("/api/activity?limit={}", self.limit);
        if let Some(after) = self.after {
            path.push_str(&format!("&after={after}"));
        }
        if let Some(subject) = &self.subject {
            path.push_str(&format!("&subject={}", encode(subject)));
        }
        out.list(&client.get(&path).await?, ACTIVITY)?;
        Ok(DONE)
    }
}

//! `company` and `token`.

use clap::builder::NonEmptyStringValueParser;
use clap::{Args, Subcommand, ValueEnum};
use hyper::Method;
use serde_json::{Value, json};

use super::client::{Client, encode};
use super::exit::{CliError, DONE};
use super::lease::seconds;
use super::output::{Column, Output};

const CALLER: &[Column] = &[
    ("KIND", "kind"),
    ("NAME", "display"),
    ("ROLE", "role"),
    ("COMPANIES", "companyIds"),
    ("RUN", "runId"),
    ("TOKEN", "tokenId"),
];
const COMPANY: &[Column] = &[("ID", "id"), ("NAME", "name"), ("CREATED", "createdAt")];
const TOKEN: &[Column] = &[
    ("ID", "id"),
    ("NAME", "name"),
    ("ROLE", "role"),
    ("COMPANIES", "companyIds"),
    ("RUN", "runId"),
    ("CREATED", "createdAt"),
    ("EXPIRES", "expiresAt"),
    ("LAST USED", "lastUsedAt"),
    ("REVOKED", "revokedAt"),
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

    /// The company of this id or name.
    pub fn named(company: &str) -> InCompany {
        InCompany {
            company: Some(company.to_owned()),
        }
    }

    /// Its id: as named, or the only one there is.
    pub async fn id(&self, client: &Client) -> Result<String, CliError> {
        let all = client.list("/api/companies").await?;
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
    /// Print a company as JSON for another server: never its environments or secrets
    Export {
        /// The company, by id or name
        company: String,
    },
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
                let made = client.create("/api/companies", body).await?;
                out.one(&made, COMPANY)?;
            }
            CompanyCommand::List => out.list(&client.list("/api/companies").await?, COMPANY)?,
            CompanyCommand::Export { company } => {
                let named = InCompany {
                    company: Some(company),
                };
                let id = named.id(client).await?;
                let path = format!("/api/companies/{}/export", encode(&id));
                out.value(&client.get(&path).await?)?;
            }
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

/// `whoami`
pub async fn whoami(client: &Client, out: &Output) -> Result<u8, CliError> {
    out.one(&client.get("/api/whoami").await?, CALLER)?;
    Ok(DONE)
}

/// What a token allows.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum RoleName {
    /// Everything, in every company
    Admin,
    /// Board member: read in one company or several, without what tells of targets
    Member,
    /// Lease and run commands in one company, for all its runs or for one, and nothing else
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
        /// A further company of a member, by name or id; may be given again
        #[arg(long, value_name = "COMPANY")]
        also: Vec<String>,
        /// The one run that an agent works for
        #[arg(long, value_name = "RUN")]
        run: Option<String>,
        /// How long it is good, such as 90s, 45m, 12h or 30d; without, until it is revoked
        #[arg(long, value_name = "TIME")]
        expires_in: Option<String>,
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
                also,
                run,
                expires_in,
            } => {
                if !also.is_empty() && !matches!(role, RoleName::Member) {
                    return Err(CliError::Usage(
                        "--also: only a member is bound to several companies".into(),
                    ));
                }
                if run.is_some() && !matches!(role, RoleName::Agent) {
                    return Err(CliError::Usage(
                        "--run: only an agent works for a run".into(),
                    ));
                }
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
                let expires_in = expires_in.map(|text| seconds("--expires-in", &text));
                let expires_in = expires_in.transpose()?;
                let mut companies: Vec<String> = company.into_iter().collect();
                for also in also {
                    let company = Some(also);
                    companies.push(InCompany { company }.id(client).await?);
                }
                let mut body = json!({"name": name, "role": role});
                let named = [
                    (
                        "companyIds",
                        (!companies.is_empty()).then(|| json!(companies)),
                    ),
                    ("runId", run.map(Value::from)),
                    ("expiresInSeconds", expires_in.map(Value::from)),
                ];
                for (key, value) in named {
                    if let Some(value) = value {
                        body[key] = value;
                    }
                }
                let made = client.create("/api/tokens", body).await?;
                let secret = made["secret"].as_str().unwrap_or("").to_owned();
                out.told(&made, &secret)?;
            }
            TokenCommand::List => out.list(&client.list("/api/tokens").await?, TOKEN)?,
            TokenCommand::Revoke { id } => {
                let path = format!("/api/tokens/{}", encode(&id));
                let gone = client.json(Method::DELETE, &path, None).await?;
                out.told(&gone, "revoked")?;
            }
        }
        Ok(DONE)
    }
}

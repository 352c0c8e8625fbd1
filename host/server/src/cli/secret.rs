//! `secret …`. A value comes from a file or standard input, never from an argument.

use std::io::{IsTerminal, Read};
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand, ValueEnum};
use hyper::Method;
use serde_json::{Value, json};
use zeroize::Zeroizing;

use super::admin::{InCompany, not_found};
use super::client::{Client, encode};
use super::exit::{CliError, DONE};
use super::output::{Column, Output, plain};
use super::rekey::RekeyArgs;

const SECRET: &[Column] = &[
    ("ID", "id"),
    ("NAME", "name"),
    ("PURPOSE", "purpose"),
    ("VERSION", "version"),
    ("UPDATED", "updatedAt"),
    ("DESCRIPTION", "description"),
];
const VERSION: &[Column] = &[
    ("VERSION", "version"),
    ("STATUS", "status"),
    ("ENVIRONMENTS", "environments"),
    ("LEASES", "leases"),
    ("CREATED", "createdAt"),
    ("BY", "createdBy"),
];
const ENVIRONMENT_USE: &[Column] = &[
    ("ENVIRONMENT", "environmentId"),
    ("NAME", "name"),
    ("PLACE", "configPath"),
    ("REFERS TO", "selector"),
    ("VERSION", "version"),
];
const LEASE_USE: &[Column] = &[
    ("LEASE", "leaseId"),
    ("STATUS", "status"),
    ("PLACE", "configPath"),
    ("VERSION", "version"),
];
const ACCESS: &[Column] = &[
    ("POSITION", "position"),
    ("TIME", "time"),
    ("ACTOR", "actor"),
    ("FOR", "purpose"),
    ("LEASE", "leaseId"),
    ("RUN", "runId"),
    ("PLACE", "configPath"),
    ("VERSION", "version"),
    ("TO", "destinations"),
];

/// What a value is for.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum PurposeName {
    /// A private key
    Key,
    /// A password or a passphrase
    Password,
    /// A bearer token or an API key
    Token,
    /// A certificate
    Certificate,
    /// Anything else
    Other,
}

impl PurposeName {
    fn as_str(self) -> &'static str {
        match self {
            PurposeName::Key => "key",
            PurposeName::Password => "password",
            PurposeName::Token => "token",
            PurposeName::Certificate => "certificate",
            PurposeName::Other => "other",
        }
    }
}

/// Whose secrets.
#[derive(Clone, Debug, Args)]
pub struct Scope {
    /// Those of the instance, which environments of any company may refer to
    #[arg(long)]
    instance: bool,
    #[command(flatten)]
    company: InCompany,
}

impl Scope {
    /// The path of its list.
    async fn path(&self, client: &Client) -> Result<String, CliError> {
        if self.instance {
            return Ok("/api/secrets".to_owned());
        }
        let company = self.company.id(client).await?;
        Ok(format!("/api/companies/{}/secrets", encode(&company)))
    }

    /// The path of the secret that is named by id or name.
    async fn one(&self, client: &Client, named: &str) -> Result<String, CliError> {
        let id = match named.starts_with("sec_") {
            true => named.to_owned(),
            false => find(client, &self.path(client).await?, named)
                .await?
                .ok_or_else(|| not_found(&format!("secret `{named}`")))?,
        };
        Ok(format!("/api/secrets/{}", encode(&id)))
    }
}

/// Where a value comes from.
#[derive(Debug, Args)]
pub struct ValueArgs {
    /// File that holds the value; without, standard input
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Leave off one line break at the value's end
    #[arg(long)]
    trim: bool,
}

/// `secret …`
#[derive(Debug, Subcommand)]
pub enum SecretCommand {
    /// Put a secret in, or give one that is there a new value; the value comes from a file or standard input
    Set {
        /// Its name
        name: String,
        #[command(flatten)]
        value: ValueArgs,
        /// For people; of a secret that is new
        #[arg(long)]
        description: Option<String>,
        /// What the value is for; of a secret that is new [default: other]
        #[arg(long)]
        purpose: Option<PurposeName>,
        #[command(flatten)]
        scope: Scope,
    },
    /// Give a secret that is there a new value; the value comes from a file or standard input
    Rotate {
        /// The secret, by id or name
        secret: String,
        #[command(flatten)]
        value: ValueArgs,
        #[command(flatten)]
        scope: Scope,
    },
    /// List secrets, without their values
    List {
        /// Only those of this purpose
        #[arg(long)]
        purpose: Option<PurposeName>,
        #[command(flatten)]
        scope: Scope,
    },
    /// Show a secret, its versions and what uses it
    Show {
        /// The secret, by id or name
        secret: String,
        #[command(flatten)]
        scope: Scope,
    },
    /// Show who had the value, for what
    Access {
        /// The secret, by id or name
        secret: String,
        /// Only what came before this position
        #[arg(long, value_name = "POSITION")]
        before: Option<i64>,
        /// At most this many
        #[arg(long, default_value_t = 100)]
        limit: u32,
        #[command(flatten)]
        scope: Scope,
    },
    /// Keep an old version that nothing uses from being used
    Disable {
        /// The secret, by id or name
        secret: String,
        /// The version's number
        version: i64,
        #[command(flatten)]
        scope: Scope,
    },
    /// Let a version be used again
    Enable {
        /// The secret, by id or name
        secret: String,
        /// The version's number
        version: i64,
        #[command(flatten)]
        scope: Scope,
    },
    /// Erase the value of an old version that nothing uses, for ever
    Destroy {
        /// The secret, by id or name
        secret: String,
        /// The version's number
        version: i64,
        #[command(flatten)]
        scope: Scope,
    },
    /// Delete a secret that nothing uses
    Delete {
        /// The secret, by id or name
        secret: String,
        /// Also while environments and leases use it, which then miss it
        #[arg(long)]
        force: bool,
        /// Only show what that would break
        #[arg(long)]
        dry_run: bool,
        #[command(flatten)]
        scope: Scope,
    },
    /// Give the database another master key, while no server runs
    Rekey(RekeyArgs),
}

impl SecretCommand {
    /// Does it.
    pub async fn run(self, client: &Client, out: &Output) -> Result<u8, CliError> {
        match self {
            SecretCommand::Set {
                name,
                value,
                description,
                purpose,
                scope,
            } => {
                let value = value.read()?;
                let path = scope.path(client).await?;
                let now = match find(client, &path, &name).await? {
                    Some(id) => {
                        rotate(client, &format!("/api/secrets/{}", encode(&id)), &value).await?
                    }
                    None => {
                        let mut body =
                            json!({"name": name, "description": description, "value": *value});
                        if let Some(purpose) = purpose {
                            body["purpose"] = purpose.as_str().into();
                        }
                        client.create(&path, body).await?
                    }
                };
                out.one(&now, SECRET)?;
            }
            SecretCommand::Rotate {
                secret,
                value,
                scope,
            } => {
                let value = value.read()?;
                let path = scope.one(client, &secret).await?;
                out.one(&rotate(client, &path, &value).await?, SECRET)?;
            }
            SecretCommand::List { purpose, scope } => {
                let mut path = scope.path(client).await?;
                if let Some(purpose) = purpose {
                    path.push_str(&format!("?purpose={}", purpose.as_str()));
                }
                out.list(&client.list(&path).await?, SECRET)?;
            }
            SecretCommand::Show { secret, scope } => {
                let path = scope.one(client, &secret).await?;
                let mut shown = client.get(&path).await?;
                let versions = client.list(&format!("{path}/versions")).await?;
                let uses = client.get(&format!("{path}/uses")).await?;
                if out.is_json() {
                    shown["versions"] = versions;
                    shown["uses"] = uses;
                    out.value(&shown)?;
                } else {
                    out.one(&shown, SECRET)?;
                    out.told(&Value::Null, "")?;
                    out.list(&versions, VERSION)?;
                    show_uses(out, &uses)?;
                }
            }
            SecretCommand::Access {
                secret,
                before,
                limit,
                scope,
            } => {
                let path = scope.one(client, &secret).await?;
                let mut path = format!("{path}/accesses?limit={limit}");
                if let Some(before) = before {
                    path.push_str(&format!("&before={before}"));
                }
                out.list(&client.get(&path).await?, ACCESS)?;
            }
            SecretCommand::Disable {
                secret,
                version,
                scope,
            } => change(client, out, &scope, &secret, version, "disabled").await?,
            SecretCommand::Enable {
                secret,
                version,
                scope,
            } => change(client, out, &scope, &secret, version, "enabled").await?,
            SecretCommand::Destroy {
                secret,
                version,
                scope,
            } => change(client, out, &scope, &secret, version, "destroyed").await?,
            SecretCommand::Delete {
                secret,
                force,
                dry_run,
                scope,
            } => {
                let path = scope.one(client, &secret).await?;
                let uses = match dry_run {
                    true => client.get(&format!("{path}/uses")).await?,
                    false => {
                        let path = if force {
                            format!("{path}?force=true")
                        } else {
                            path
                        };
                        client.json(Method::DELETE, &path, None).await?
                    }
                };
                if out.is_json() {
                    out.value(&uses)?;
                } else {
                    let unused = uses["environmentCount"] == 0
                        && uses["leaseCount"] == 0
                        && uses["settings"].as_array().is_none_or(Vec::is_empty);
                    let sentence = match (dry_run, unused) {
                        (false, true) => "deleted",
                        (false, false) => "deleted; these miss it now:",
                        (true, true) => "nothing uses it",
                        (true, false) => "these would miss it:",
                    };
                    out.told(&uses, sentence)?;
                    show_uses(out, &uses)?;
                }
            }
            // Done on this machine, without a server.
            SecretCommand::Rekey(_) => {}
        }
        Ok(DONE)
    }
}

/// Tables of what uses a secret; nothing where nothing does.
fn show_uses(out: &Output, uses: &Value) -> Result<(), CliError> {
    for (member, columns) in [("environments", ENVIRONMENT_USE), ("leases", LEASE_USE)] {
        if uses[member].as_array().is_some_and(|rows| !rows.is_empty()) {
            out.told(&Value::Null, "")?;
            out.list(&uses[member], columns)?;
        }
    }
    for setting in uses["settings"].as_array().into_iter().flatten() {
        let setting = plain(setting.as_str().unwrap_or_default());
        out.told(&Value::Null, &format!("settings: {setting}"))?;
    }
    Ok(())
}

async fn change(
    client: &Client,
    out: &Output,
    scope: &Scope,
    secret: &str,
    version: i64,
    status: &str,
) -> Result<(), CliError> {
    let path = scope.one(client, secret).await?;
    let path = format!("{path}/versions/{version}");
    let body = json!({"status": status});
    let now = client.json(Method::PATCH, &path, Some(body)).await?;
    out.one(&now, VERSION)
}

async fn rotate(client: &Client, path: &str, value: &str) -> Result<Value, CliError> {
    let body = json!({"value": value});
    client.create(&format!("{path}/versions"), body).await
}

/// The id of the secret of this name in a list.
async fn find(client: &Client, list: &str, named: &str) -> Result<Option<String>, CliError> {
    let all = client.list(list).await?;
    Ok(all
        .as_array()
        .into_iter()
        .flatten()
        .find(|s| s["name"] == named)
        .and_then(|s| s["id"].as_str())
        .map(str::to_owned))
}

/// The id of a secret that is named by id or name: of the company, or else of the instance.
pub async fn secret_id(
    client: &Client,
    company: &InCompany,
    named: &str,
) -> Result<String, CliError> {
    if named.starts_with("sec_") {
        return Ok(named.to_owned());
    }
    let company = company.id(client).await?;
    let own = format!("/api/companies/{}/secrets", encode(&company));
    if let Some(id) = find(client, &own, named).await? {
        return Ok(id);
    }
    find(client, "/api/secrets", named)
        .await?
        .ok_or_else(|| not_found(&format!("secret `{named}`")))
}

impl ValueArgs {
    fn read(&self) -> Result<Zeroizing<String>, CliError> {
        let mut value = value_of("--file", self.file.as_deref())?;
        if self.trim && value.ends_with('\n') {
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
}

/// The text of a file, or of standard input where there is none or it is `-`.
pub fn value_of(flag: &str, file: Option<&Path>) -> Result<Zeroizing<String>, CliError> {
    let mut value = Zeroizing::new(String::new());
    match file.filter(|path| path.as_os_str() != "-") {
        Some(path) => {
            *value = std::fs::read_to_string(path)
                .map_err(|e| unreadable(&format!("{flag}: {}", path.display()), &e))?;
        }
        None => {
            if std::io::stdin().is_terminal() {
                return Err(CliError::Usage(format!(
                    "the value comes from a file or a pipe, so that no terminal shows it; give {flag} a file or \
                     redirect standard input"
                )));
            }
            std::io::stdin()
                .read_to_string(&mut value)
                .map_err(|e| unreadable("standard input", &e))?;
        }
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

//! `env …`, `probe` and `instance`.

use std::io::IsTerminal as _;

use clap::{Args, Subcommand};
use hyper::Method;
use serde_json::{Value, json};

use super::admin::{InCompany, not_found};
use super::client::{Client, encode};
use super::draft::{DraftArgs, place};
use super::exit::{CliError, DONE, FAILED};
use super::output::{Column, Output, plain};
use super::plugin::confirmed;
use super::progress;
use super::trust::{self, TrustArgs};

const ENVIRONMENT: &[Column] = &[
    ("ID", "id"),
    ("NAME", "name"),
    ("DRIVER", "driver"),
    ("PROVIDER", "provider"),
    ("STATUS", "status"),
    ("UPDATED", "updatedAt"),
    ("DESCRIPTION", "description"),
    ("WARNINGS", "warnings"),
];

/// What a list shows of each; warnings stand below it.
fn columns() -> &'static [Column] {
    &ENVIRONMENT[..ENVIRONMENT.len() - 1]
}

/// `env …`
#[derive(Debug, Subcommand)]
pub enum EnvCommand {
    /// Create an environment; at a terminal, with the host key that you confirm
    Create {
        /// For all companies; a secret of a company is then used for that company alone
        #[arg(long)]
        shared: bool,
        #[command(flatten)]
        draft: Box<DraftArgs>,
    },
    /// List environments
    List {
        /// active or archived
        #[arg(long)]
        status: Option<String>,
        /// ssh, sandbox or plugin
        #[arg(long)]
        driver: Option<String>,
        #[command(flatten)]
        company: InCompany,
    },
    /// Print an environment as JSON
    Get {
        /// The environment, by id or name
        env: String,
        #[command(flatten)]
        company: InCompany,
    },
    /// Change an environment; what is not given stays
    Update {
        /// The environment, by id or name
        env: String,
        /// active or archived
        #[arg(long)]
        status: Option<String>,
        /// Remove a variable (repeat for more)
        #[arg(long = "unset-var", value_name = "NAME")]
        unset_vars: Vec<String>,
        /// From now on all companies share it
        #[arg(long, conflicts_with = "owner")]
        shared: bool,
        /// From now on it is this company's own, by id or name; refused while others use it
        #[arg(long, value_name = "COMPANY")]
        owner: Option<String>,
        #[command(flatten)]
        draft: Box<DraftArgs>,
    },
    /// Delete an environment that no lease holds; on a terminal it shows what that touches, and asks first
    Delete {
        /// The environment, by id or name
        env: String,
        /// Do not ask
        #[arg(long, short)]
        yes: bool,
        /// End leases that nobody uses and that are kept to be used again, if they are all that stands in the way
        #[arg(long)]
        destroy_reusable_leases: bool,
        #[command(flatten)]
        company: InCompany,
    },
    /// Print the default environment, or set it
    Default {
        /// The environment that shall be the default, by id or name
        #[arg(conflicts_with = "none")]
        env: Option<String>,
        /// Of the whole instance, for companies that have none of their own
        #[arg(long)]
        instance: bool,
        /// There shall be none
        #[arg(long)]
        none: bool,
        #[command(flatten)]
        company: InCompany,
    },
    /// Trust the host key that an environment's machine shows
    Trust(TrustArgs),
    /// Print what can be leased here
    Capabilities {
        #[command(flatten)]
        company: InCompany,
    },
    /// Show the host key of a machine; compare its fingerprint before you trust it
    HostKey {
        /// The machine's name or address, or HOST:PORT; an IPv6 address with a port is [ADDRESS]:PORT
        host: String,
        /// Its port [default: 22]
        #[arg(long)]
        port: Option<u16>,
    },
}

/// Tells below a list what people must know of one of it.
fn warn(out: &Output, environment: &Value) -> Result<(), CliError> {
    if out.is_json() {
        return Ok(());
    }
    let name = plain(environment["name"].as_str().unwrap_or_default());
    if let Some(reason) = environment["withheld"]["reason"].as_str() {
        let provider = plain(environment["provider"].as_str().unwrap_or_default());
        let line = format!(
            "{name}: nothing new can be leased: {provider}: {}\n",
            plain(reason)
        );
        super::output::write_all(line.as_bytes())?;
    }
    for warning in environment["warnings"].as_array().into_iter().flatten() {
        let line = format!("{name}: {}\n", plain(warning.as_str().unwrap_or_default()));
        super::output::write_all(line.as_bytes())?;
    }
    Ok(())
}

/// The id of an environment that is named by id or name.
pub async fn environment_id(
    client: &Client,
    company: &InCompany,
    named: &str,
) -> Result<String, CliError> {
    if named.starts_with("env_") {
        return Ok(named.to_owned());
    }
    let company = company.id(client).await?;
    let all = client
        .list(&format!("/api/companies/{}/environments", encode(&company)))
        .await?;
    all.as_array()
        .into_iter()
        .flatten()
        .find(|e| e["name"] == named)
        .and_then(|e| e["id"].as_str())
        .map(str::to_owned)
        .ok_or_else(|| not_found(&format!("environment `{named}`")))
}

/// As [`environment_id`], by what whoever may only lease is told as well.
pub async fn leasable_id(
    client: &Client,
    company: &InCompany,
    named: &str,
) -> Result<String, CliError> {
    if named.starts_with("env_") {
        return Ok(named.to_owned());
    }
    let company = company.id(client).await?;
    let path = format!(
        "/api/companies/{}/environments/resolve?name={}",
        encode(&company),
        encode(named)
    );
    let found = client.get(&path).await?;
    Ok(found["id"].as_str().unwrap_or_default().to_owned())
}

impl EnvCommand {
    /// Does it.
    pub async fn run(self, client: &Client, out: &Output) -> Result<u8, CliError> {
        match self {
            EnvCommand::Create { shared, draft } => {
                draft.whole()?;
                let company = draft.company.id(client).await?;
                let mut body = draft.body(client, None).await?;
                if shared {
                    body["companyId"] = Value::Null;
                }
                trust::ask(client, &mut body).await?;
                let path = format!("/api/companies/{}/environments", encode(&company));
                let made = client.post(&path, Some(body)).await?;
                out.one(&made, ENVIRONMENT)?;
            }
            EnvCommand::List {
                status,
                driver,
                company,
            } => {
                let company = company.id(client).await?;
                let mut path = format!("/api/companies/{}/environments", encode(&company));
                let mut mark = '?';
                for (name, value) in [("status", status), ("driver", driver)] {
                    if let Some(value) = value {
                        path.push_str(&format!("{mark}{name}={}", encode(&value)));
                        mark = '&';
                    }
                }
                let all = client.list(&path).await?;
                out.list(&all, columns())?;
                for one in all.as_array().into_iter().flatten() {
                    warn(out, one)?;
                }
            }
            EnvCommand::Get { env, company } => {
                let id = environment_id(client, &company, &env).await?;
                out.value(
                    &client
                        .get(&format!("/api/environments/{}", encode(&id)))
                        .await?,
                )?;
            }
            EnvCommand::Update {
                env,
                status,
                unset_vars,
                shared,
                owner,
                draft,
            } => {
                let id = environment_id(client, &draft.company, &env).await?;
                let path = format!("/api/environments/{}", encode(&id));
                let before = client.get(&path).await?;
                let mut body = draft
                    .body(client, before["config"]["target"].as_object())
                    .await?;
                if let Some(status) = status {
                    body["status"] = status.into();
                }
                if shared {
                    body["companyId"] = Value::Null;
                }
                if let Some(owner) = owner {
                    body["companyId"] = InCompany::named(&owner).id(client).await?.into();
                }
                for name in unset_vars {
                    if !body["envVars"][&name].is_null() {
                        return Err(CliError::Usage(format!(
                            "--unset-var: `{name}` is given a value as well; say one of both"
                        )));
                    }
                    body["envVars"][name] = Value::Null;
                }
                let now = client.json(Method::PATCH, &path, Some(body)).await?;
                out.one(&now, ENVIRONMENT)?;
            }
            EnvCommand::Delete {
                env,
                yes,
                destroy_reusable_leases,
                company,
            } => {
                let id = environment_id(client, &company, &env).await?;
                let path = format!("/api/environments/{}", encode(&id));
                if !yes && std::io::stdin().is_terminal() {
                    let radius = client.get(&format!("{path}/delete-blast-radius")).await?;
                    let question = format!("{}Delete `{}`?", touched(&radius), plain(&env));
                    if !confirmed(&question)? {
                        return Ok(FAILED);
                    }
                }
                let consent = match destroy_reusable_leases {
                    true => "?destroyReusableSandboxLeases=true",
                    false => "",
                };
                let gone = client
                    .json(Method::DELETE, &format!("{path}{consent}"), None)
                    .await?;
                out.told(&gone, "deleted")?;
            }
            EnvCommand::Default {
                env,
                instance,
                none,
                company,
            } => {
                let id = match &env {
                    Some(env) => Some(environment_id(client, &company, env).await?),
                    None => None,
                };
                let body = (none || id.is_some()).then(|| json!({"defaultEnvironmentId": id}));
                let (path, method) = if instance {
                    ("/api/instance/settings".to_owned(), Method::PATCH)
                } else {
                    let company = company.id(client).await?;
                    let path = format!("/api/companies/{}/environments/default", encode(&company));
                    (path, Method::PUT)
                };
                let now = match body {
                    Some(body) => client.json(method, &path, Some(body)).await?,
                    None => client.get(&path).await?,
                };
                out.value(&now)?;
            }
            EnvCommand::Trust(args) => return args.run(client, out).await,
            EnvCommand::Capabilities { company } => {
                let company = company.id(client).await?;
                let path = format!(
                    "/api/companies/{}/environments/capabilities",
                    encode(&company)
                );
                let all = client.get(&path).await?;
                if out.is_json() {
                    out.value(&all)?;
                } else {
                    out.list(
                        &all["providers"],
                        &[
                            ("PROVIDER", "key"),
                            ("VERSION", "version"),
                            ("DRIVER", "driver"),
                            ("INTERFACES", "interfaces"),
                            ("FEATURES", "features"),
                        ],
                    )?;
                    for one in all["withheld"].as_array().into_iter().flatten() {
                        let text = |key: &str| plain(one[key].as_str().unwrap_or(""));
                        let line = format!("{} is not offered: {}\n", text("key"), text("reason"));
                        super::output::write_all(line.as_bytes())?;
                    }
                }
            }
            EnvCommand::HostKey { host, port } => {
                let (host, port) = place(&host, port)?;
                let body = json!({"host": host, "port": port});
                let asking = client.post("/api/ssh/host-key", Some(body));
                let shown = progress::during("asking for the host key", asking).await?;
                out.one(
                    &shown,
                    &[
                        ("FINGERPRINT", "fingerprint"),
                        ("ALGORITHM", "algorithm"),
                        ("KNOWN-HOSTS LINE", "knownHostsLine"),
                    ],
                )?;
            }
        }
        Ok(DONE)
    }
}

/// `instance`
pub async fn instance(client: &Client, out: &Output) -> Result<u8, CliError> {
    out.value(&client.get("/api/instance/settings").await?)?;
    Ok(DONE)
}

/// `probe …`
#[derive(Debug, Args)]
pub struct ProbeArgs {
    /// The saved environment, by id or name; without one, what the flags describe
    env: Option<String>,
    #[command(flatten)]
    draft: Box<DraftArgs>,
}

impl ProbeArgs {
    /// Does it: 0 when the environment works, 1 when it does not.
    pub async fn run(self, client: &Client, out: &Output) -> Result<u8, CliError> {
        let (path, body) = match &self.env {
            Some(env) => {
                let id = environment_id(client, &self.draft.company, env).await?;
                let described = self.draft.body(client, None).await?;
                if described != json!({}) {
                    return Err(CliError::Usage(format!(
                        "`{env}` is saved and is probed as it is; leave it out to probe what the flags describe"
                    )));
                }
                let mut path = format!("/api/environments/{}/probe?", encode(&id));
                if self.draft.company.is_named() {
                    let company = self.draft.company.id(client).await?;
                    path.push_str(&format!("companyId={}&", encode(&company)));
                }
                (path, None)
            }
            None => {
                self.draft.whole()?;
                let company = self.draft.company.id(client).await?;
                let body = self.draft.body(client, None).await?;
                let path = format!(
                    "/api/companies/{}/environments/probe-config?",
                    encode(&company)
                );
                (path, Some(body))
            }
        };
        let work = progress::name()?;
        let path = format!("{path}progressId={work}");
        let asking = client.post(&path, body);
        let told = format!("/api/progress/{work}");
        let report = progress::during_told("probing", client, &told, asking).await?;
        if out.is_json() {
            out.value(&report)?;
        } else {
            super::output::write_all(findings(&report).as_bytes())?;
        }
        Ok(if report["ok"] == true { DONE } else { FAILED })
    }
}

/// What a deletion touches, a line each.
fn touched(radius: &Value) -> String {
    let mut lines = String::new();
    for (count, what) in [
        (
            &radius["activeRuntimeUse"]["activeLeaseCount"],
            "live leases, which keep it",
        ),
        (
            &radius["pendingCleanupLeaseCount"],
            "leases that wait for cleanup, which keep it",
        ),
        (
            &radius["reusableSandboxLeaseCount"],
            "leases that are kept to be used again, which --destroy-reusable-leases ends",
        ),
        (
            &radius["staticReferences"]["secretBindingCount"],
            "rights to use secrets, which go with it",
        ),
        (
            &radius["endedLeaseCount"],
            "ended leases, whose records stay",
        ),
    ] {
        if let Some(count) = count.as_u64().filter(|count| *count > 0) {
            lines.push_str(&format!("{count} {what}\n"));
        }
    }
    lines
}

fn findings(report: &Value) -> String {
    let mut out = String::new();
    for finding in report["details"]["findings"]
        .as_array()
        .into_iter()
        .flatten()
    {
        let mark = match finding["severity"].as_str() {
            Some("failure") => "FAIL",
            Some("warning") => "warn",
            _ => "ok",
        };
        let time = finding["durationMs"]
            .as_u64()
            .map(|ms| format!(" ({ms} ms)"));
        out.push_str(&format!(
            "{mark:<5} {}: {}{}\n",
            plain(finding["step"].as_str().unwrap_or("")),
            plain(finding["message"].as_str().unwrap_or("")),
            time.unwrap_or_default(),
        ));
    }
    out.push_str(&plain(report["summary"].as_str().unwrap_or("")));
    out.push('\n');
    out
}

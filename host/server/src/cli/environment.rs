//! `env …` and `probe`.

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use hyper::Method;
use serde_json::{Map, Value, json};

use super::admin::{InCompany, not_found};
use super::client::{Client, encode};
use super::exit::{CliError, DONE, FAILED};
use super::output::{Column, Output, plain};
use super::progress::during;
use super::secret::{secret_id, value_of};

const ENVIRONMENT: &[Column] = &[
    ("ID", "id"),
    ("NAME", "name"),
    ("DRIVER", "driver"),
    ("PROVIDER", "provider"),
    ("STATUS", "status"),
    ("UPDATED", "updatedAt"),
    ("DESCRIPTION", "description"),
];

/// An environment, in flags or in a file.
#[derive(Debug, Args)]
pub struct DraftArgs {
    /// Its name
    #[arg(long)]
    name: Option<String>,
    /// For people
    #[arg(long)]
    description: Option<String>,
    /// ssh, sandbox or plugin
    #[arg(long)]
    driver: Option<String>,
    /// The provider's key; without one, the driver's own name
    #[arg(long)]
    provider: Option<String>,
    /// Configuration as a JSON object
    #[arg(long, value_name = "JSON", conflicts_with = "config_file")]
    config: Option<String>,
    /// File with the configuration as a JSON object; - is standard input
    #[arg(long, value_name = "FILE")]
    config_file: Option<PathBuf>,
    /// A variable of every command (repeat for more)
    #[arg(long = "var", value_name = "NAME=VALUE")]
    vars: Vec<String>,
    /// A variable whose value is a secret, by name or id (repeat for more)
    #[arg(long = "secret-var", value_name = "NAME=SECRET")]
    secret_vars: Vec<String>,
    /// A variable whose value is in a file (- is standard input) and is kept as a secret with the environment (repeat for
    /// more)
    #[arg(long = "secret-var-file", value_name = "NAME=FILE")]
    secret_var_files: Vec<String>,
    #[command(flatten)]
    ssh: SshArgs,
    #[command(flatten)]
    company: InCompany,
}

/// What an SSH environment needs, without JSON.
#[derive(Debug, Args)]
#[command(next_help_heading = "SSH")]
pub struct SshArgs {
    /// The machine's name or address
    #[arg(long, value_name = "HOST")]
    host: Option<String>,
    /// Its port [default: 22]
    #[arg(long)]
    port: Option<u16>,
    /// The account there
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
    /// The secret that holds the private key, by name or id
    #[arg(long, value_name = "SECRET")]
    key: Option<String>,
    /// File with the private key (- is standard input), which is kept as a secret with the environment
    #[arg(long, value_name = "FILE", conflicts_with = "key")]
    key_file: Option<PathBuf>,
    /// The secret that holds the key's passphrase, by name or id
    #[arg(long, value_name = "SECRET")]
    passphrase: Option<String>,
    /// File with the key's passphrase (- is standard input), which is kept as a secret with the environment
    #[arg(long, value_name = "FILE", conflicts_with = "passphrase")]
    passphrase_file: Option<PathBuf>,
    /// A host key's fingerprint that is trusted (repeat for more); `env host-key` shows it
    #[arg(long = "fingerprint", value_name = "SHA256:…")]
    fingerprints: Vec<String>,
    /// A known_hosts file whose keys are trusted
    #[arg(long, value_name = "FILE")]
    known_hosts: Option<PathBuf>,
    /// Absolute directory on the machine below which leases get their workspaces
    #[arg(long, value_name = "PATH")]
    workspace: Option<String>,
    /// Allow more than one lease at a time on the account, which then see each other's files and processes
    #[arg(long)]
    allow_shared_account: bool,
}

/// `env …`
#[derive(Debug, Subcommand)]
pub enum EnvCommand {
    /// Create an environment
    Create(Box<DraftArgs>),
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
        #[command(flatten)]
        draft: Box<DraftArgs>,
    },
    /// Delete an environment that no lease holds
    Delete {
        /// The environment, by id or name
        env: String,
        #[command(flatten)]
        company: InCompany,
    },
    /// Print what can be leased here
    Capabilities {
        #[command(flatten)]
        company: InCompany,
    },
    /// Show the host key of a machine; compare its fingerprint before you trust it
    HostKey {
        /// The machine's name or address
        host: String,
        /// Its port
        #[arg(long, default_value_t = 22)]
        port: u16,
    },
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
        .get(&format!("/api/companies/{}/environments", encode(&company)))
        .await?;
    all.as_array()
        .into_iter()
        .flatten()
        .find(|e| e["name"] == named)
        .and_then(|e| e["id"].as_str())
        .map(str::to_owned)
        .ok_or_else(|| not_found(&format!("environment `{named}`")))
}

impl EnvCommand {
    /// Does it.
    pub async fn run(self, client: &Client, out: &Output) -> Result<u8, CliError> {
        match self {
            EnvCommand::Create(draft) => {
                let company = draft.company.id(client).await?;
                let body = draft.body(client, None).await?;
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
                out.list(&client.get(&path).await?, ENVIRONMENT)?;
            }
            EnvCommand::Get { env, company } => {
                let id = environment_id(client, &company, &env).await?;
                out.value(
                    &client
                        .get(&format!("/api/environments/{}", encode(&id)))
                        .await?,
                )?;
            }
            EnvCommand::Update { env, status, draft } => {
                let id = environment_id(client, &draft.company, &env).await?;
                let path = format!("/api/environments/{}", encode(&id));
                let before = client.get(&path).await?;
                let mut body = draft
                    .body(client, before["config"]["target"].as_object())
                    .await?;
                if let Some(status) = status {
                    body["status"] = status.into();
                }
                let now = client.json(Method::PATCH, &path, Some(body)).await?;
                out.one(&now, ENVIRONMENT)?;
            }
            EnvCommand::Delete { env, company } => {
                let id = environment_id(client, &company, &env).await?;
                let path = format!("/api/environments/{}", encode(&id));
                let gone = client.json(Method::DELETE, &path, None).await?;
                out.told(&gone, "deleted")?;
            }
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
                }
            }
            EnvCommand::HostKey { host, port } => {
                let body = json!({"host": host, "port": port});
                let asking = client.post("/api/ssh/host-key", Some(body));
                let shown = during("asking for the host key", asking).await?;
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
        let report = match &self.env {
            Some(env) => {
                let id = environment_id(client, &self.draft.company, env).await?;
                let path = format!("/api/environments/{}/probe", encode(&id));
                during("probing", client.post(&path, None)).await?
            }
            None => {
                let company = self.draft.company.id(client).await?;
                let body = self.draft.body(client, None).await?;
                let path = format!(
                    "/api/companies/{}/environments/probe-config",
                    encode(&company)
                );
                during("probing", client.post(&path, Some(body))).await?
            }
        };
        if out.is_json() {
            out.value(&report)?;
        } else {
            super::output::write_all(findings(&report).as_bytes())?;
        }
        Ok(if report["ok"] == true { DONE } else { FAILED })
    }
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

impl DraftArgs {
    /// Refuses that two values are asked of standard input: the second would be empty.
    fn one_from_standard_input(&self) -> Result<(), CliError> {
        let files = [
            &self.config_file,
            &self.ssh.key_file,
            &self.ssh.passphrase_file,
        ];
        let of_flags = files.into_iter().flatten().filter(|f| f.as_os_str() == "-");
        let of_vars = self.secret_var_files.iter().filter(|v| v.ends_with("=-"));
        if of_flags.count() + of_vars.count() > 1 {
            return Err(CliError::Usage(
                "-: standard input holds one value only; give the others as files".into(),
            ));
        }
        Ok(())
    }

    /// The JSON that the API takes; only what was given stands in it. The API merges a configuration one level
    /// deep, so flags for one field of a target go over the `target` that there is.
    async fn body(
        &self,
        client: &Client,
        target: Option<&Map<String, Value>>,
    ) -> Result<Value, CliError> {
        self.one_from_standard_input()?;
        let mut body = Map::new();
        let config = self.config(client, target).await?;
        let driver = match (&self.driver, self.ssh.host.is_some()) {
            (None, true) => Some("ssh".to_owned()),
            (driver, _) => driver.clone(),
        };
        for (key, value) in [
            ("name", &self.name),
            ("description", &self.description),
            ("driver", &driver),
            ("provider", &self.provider),
        ] {
            if let Some(value) = value {
                body.insert(key.into(), value.as_str().into());
            }
        }
        if !config.is_empty() {
            body.insert("config".into(), config.into());
        }
        let mut vars = Map::new();
        for var in &self.vars {
            let (name, value) = pair("--var", var)?;
            vars.insert(name.into(), value.into());
        }
        for var in &self.secret_vars {
            let (name, secret) = pair("--secret-var", var)?;
            vars.insert(name.into(), self.secret(client, secret).await?);
        }
        for var in &self.secret_var_files {
            let (name, file) = pair("--secret-var-file", var)?;
            vars.insert(
                name.into(),
                pasted("--secret-var-file", Path::new(file), "other", false)?,
            );
        }
        if !vars.is_empty() {
            body.insert("envVars".into(), vars.into());
        }
        Ok(body.into())
    }

    async fn secret(&self, client: &Client, named: &str) -> Result<Value, CliError> {
        let id = secret_id(client, &self.company, named).await?;
        Ok(json!({"type": "secret_ref", "secretId": id, "version": "latest"}))
    }

    async fn config(
        &self,
        client: &Client,
        before: Option<&Map<String, Value>>,
    ) -> Result<Map<String, Value>, CliError> {
        let mut config = match (&self.config, &self.config_file) {
            (Some(text), _) => object("--config", text)?,
            (None, Some(path)) => object("--config-file", &read(path)?)?,
            (None, None) => Map::new(),
        };
        let ssh = &self.ssh;
        let mut target = match config.get("target") {
            Some(Value::Object(target)) => target.clone(),
            _ => Map::new(),
        };
        let given = target.len();
        for (key, value) in [("host", &ssh.host), ("username", &ssh.user)] {
            if let Some(value) = value {
                target.insert(key.into(), value.as_str().into());
            }
        }
        if let Some(port) = ssh.port {
            target.insert("port".into(), port.into());
        }
        for (key, named) in [("privateKey", &ssh.key), ("passphrase", &ssh.passphrase)] {
            if let Some(named) = named {
                target.insert(key.into(), self.secret(client, named).await?);
            }
        }
        if let Some(file) = &ssh.key_file {
            target.insert(
                "privateKey".into(),
                pasted("--key-file", file, "key", false)?,
            );
        }
        if let Some(file) = &ssh.passphrase_file {
            let value = pasted("--passphrase-file", file, "password", true)?;
            target.insert("passphrase".into(), value);
        }
        if !ssh.fingerprints.is_empty() || ssh.known_hosts.is_some() {
            let known_hosts = match &ssh.known_hosts {
                Some(path) => read(path)?,
                None => String::new(),
            };
            target.insert(
                "hostKeys".into(),
                json!({"fingerprints": ssh.fingerprints, "knownHosts": known_hosts}),
            );
        }
        if config.contains_key("target") || target.len() > given {
            if let (Some(before), 0) = (before, given) {
                let mut merged = before.clone();
                merged.extend(target);
                target = merged;
            }
            config.insert("target".into(), target.into());
        }
        if let Some(path) = &ssh.workspace {
            config.insert("remoteWorkspacePath".into(), path.as_str().into());
        }
        if ssh.allow_shared_account {
            config.insert("allowSharedAccount".into(), true.into());
        }
        Ok(config)
    }
}

/// The content of a file, to be kept as a secret with the environment. A last line break is not a password's.
fn pasted(flag: &str, file: &Path, purpose: &str, line: bool) -> Result<Value, CliError> {
    let value = value_of(flag, Some(file))?;
    let value = match line {
        true => value.strip_suffix('\n').unwrap_or(&value),
        false => value.as_str(),
    };
    if value.is_empty() {
        return Err(CliError::Usage(format!(
            "{flag}: {} is empty",
            file.display()
        )));
    }
    Ok(json!({"type": "secret_value", "value": value, "purpose": purpose}))
}

fn read(path: &Path) -> Result<String, CliError> {
    let text = if path.as_os_str() == "-" {
        std::io::read_to_string(std::io::stdin())
    } else {
        std::fs::read_to_string(path)
    };
    text.map_err(|e| CliError::Usage(format!("{}: {e}", path.display())))
}

fn object(flag: &str, text: &str) -> Result<Map<String, Value>, CliError> {
    match serde_json::from_str(text) {
        Ok(Value::Object(map)) => Ok(map),
        Ok(_) => Err(CliError::Usage(format!("{flag}: is not a JSON object"))),
        Err(e) => Err(CliError::Usage(format!("{flag}: is not JSON: {e}"))),
    }
}

/// `NAME=VALUE`, in its two parts.
pub fn pair<'a>(flag: &str, text: &'a str) -> Result<(&'a str, &'a str), CliError> {
    text.split_once('=')
        .filter(|(name, _)| !name.is_empty())
        .ok_or_else(|| CliError::Usage(format!("{flag}: `{text}` is not NAME=VALUE")))
}

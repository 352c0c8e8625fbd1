//! `env …` and `probe`.

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use hyper::Method;
use serde_json::{Map, Value, json};

use super::admin::{InCompany, not_found, secret_id};
use super::client::{Client, encode};
use super::exit::{CliError, DONE, FAILED};
use super::output::{Column, Output, plain};
use super::progress;

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
    /// The secret that holds the key's passphrase, by name or id
    #[arg(long, value_name = "SECRET")]
    passphrase: Option<String>,
    /// A host key's fingerprint that is trusted (repeat for more); `env host-key` shows it
    #[arg(long = "fingerprint", value_name = "SHA256:…")]
    fingerprints: Vec<String>,
    /// A known_hosts file whose keys are trusted
    #[arg(long, value_name = "FILE")]
    known_hosts: Option<PathBuf>,
    /// Absolute directory on the machine below which leases get their workspaces
    #[arg(long, value_name = "PATH")]
    workspace: Option<String>,
    /// Allow more than one lease at a time on the account, which then see each other's files and processes; =false
    /// forbids it again
    #[arg(
        long,
        value_name = "true|false",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true"
    )]
    allow_shared_account: Option<bool>,
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
        /// Remove a variable (repeat for more)
        #[arg(long = "unset-var", value_name = "NAME")]
        unset_vars: Vec<String>,
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
        /// The machine's name or address, or HOST:PORT; an IPv6 address with a port is [ADDRESS]:PORT
        host: String,
        /// Its port [default: 22]
        #[arg(long)]
        port: Option<u16>,
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
            EnvCommand::Create(draft) => {
                draft.whole()?;
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
            EnvCommand::Update {
                env,
                status,
                unset_vars,
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
                (format!("/api/environments/{}/probe", encode(&id)), None)
            }
            None => {
                self.draft.whole()?;
                let company = self.draft.company.id(client).await?;
                let body = self.draft.body(client, None).await?;
                let path = format!(
                    "/api/companies/{}/environments/probe-config",
                    encode(&company)
                );
                (path, Some(body))
            }
        };
        let work = progress::name()?;
        let path = format!("{path}?progressId={work}");
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
    /// The JSON that the API takes; only what was given stands in it. The API merges a configuration one level
    /// deep, so flags for one field of a target go over the `target` that there is.
    async fn body(
        &self,
        client: &Client,
        target: Option<&Map<String, Value>>,
    ) -> Result<Value, CliError> {
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
        if !vars.is_empty() {
            body.insert("envVars".into(), vars.into());
        }
        Ok(body.into())
    }

    /// Whether it describes an environment by itself.
    fn whole(&self) -> Result<(), CliError> {
        if self.driver.is_some() || self.ssh.host.is_some() {
            return Ok(());
        }
        Err(CliError::Usage(
            "nothing says what kind of environment it is; give --host for a machine that SSH reaches, or --driver"
                .into(),
        ))
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
        if let Some(allowed) = ssh.allow_shared_account {
            config.insert("allowSharedAccount".into(), allowed.into());
        }
        Ok(config)
    }
}

/// The host and port of `HOST`, `HOST:PORT`, `[V6]` or `[V6]:PORT`, with a port that may stand beside it.
fn place(text: &str, beside: Option<u16>) -> Result<(&str, u16), CliError> {
    let wrong = |why: &str| {
        CliError::Usage(format!(
            "`{text}` {why}; write HOST, HOST:PORT or [ADDRESS]:PORT"
        ))
    };
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => {
            let (host, rest) = rest
                .split_once(']')
                .ok_or_else(|| wrong("has no closing bracket"))?;
            match rest.strip_prefix(':') {
                None if rest.is_empty() => (host, None),
                Some(port) => (host, Some(port)),
                None => return Err(wrong("goes on after its bracket")),
            }
        }
        // More than one colon is an IPv6 address without a port.
        None => match text.split_once(':') {
            Some((host, port)) if !port.contains(':') => (host, Some(port)),
            _ => (text, None),
        },
    };
    if host.is_empty() {
        return Err(wrong("names no host"));
    }
    let port = port
        .map(|port| port.parse::<u16>().ok().filter(|port| *port > 0))
        .map(|port| port.ok_or_else(|| wrong("has a port that is not between 1 and 65535")))
        .transpose()?;
    match (port, beside) {
        (Some(port), Some(beside)) if port != beside => {
            Err(wrong(&format!("and --port {beside} name different ports")))
        }
        (port, beside) => Ok((host, port.or(beside).unwrap_or(22))),
    }
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

#[cfg(test)]
mod tests {
    use super::place;

    #[test]
    fn a_machine_is_named_with_its_port_or_without() {
        for (text, beside, host, port) in [
            ("box", None, "box", 22),
            ("box", Some(2222), "box", 2222),
            ("box:2222", None, "box", 2222),
            ("box:2222", Some(2222), "box", 2222),
            ("::1", None, "::1", 22),
            ("fe80::1", Some(7), "fe80::1", 7),
            ("[::1]", None, "::1", 22),
            ("[::1]:2222", None, "::1", 2222),
        ] {
            assert_eq!(place(text, beside).unwrap(), (host, port), "{text}");
        }
        for text in [
            "",
            ":22",
            "box:",
            "box:0",
            "box:65536",
            "box:ssh",
            "[::1",
            "[::1]22",
            "[]:22",
            "[::1]:",
        ] {
            assert!(place(text, None).is_err(), "{text}");
        }
        assert!(place("box:22", Some(23)).is_err());
    }
}

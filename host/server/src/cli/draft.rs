//! An environment in flags or in a file: what the API is sent for it.
//!
//! Values of secrets come from files or standard input, never from an argument.

use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::{Map, Value, json};

use super::admin::InCompany;
use super::client::Client;
use super::exit::CliError;
use super::secret::{secret_id, value_of};

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
    /// Yours to use, as a JSON object; it replaces what there is
    #[arg(long, value_name = "JSON", conflicts_with = "metadata_file")]
    metadata: Option<String>,
    /// File with the metadata as a JSON object; - is standard input
    #[arg(long, value_name = "FILE")]
    metadata_file: Option<PathBuf>,
    /// A label, by which `select` and `lease acquire` find it; other labels stay (repeat for more)
    #[arg(long = "label", value_name = "NAME=VALUE")]
    labels: Vec<String>,
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
    pub company: InCompany,
}

/// What was described.
pub struct Described {
    /// As the API takes it.
    pub body: Value,
    /// Whether it stands on what was read: then it is true of that alone.
    pub over: bool,
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

impl DraftArgs {
    /// Refuses that two values are asked of standard input: the second would be empty.
    fn one_from_standard_input(&self) -> Result<(), CliError> {
        let files = [
            &self.config_file,
            &self.metadata_file,
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
    /// deep, so flags for one field of a target go over the `target` that there is, and labels over the metadata.
    pub async fn described(
        &self,
        client: &Client,
        before: Option<&Value>,
    ) -> Result<Described, CliError> {
        self.one_from_standard_input()?;
        let mut body = Map::new();
        let target = before.and_then(|before| before["config"]["target"].as_object());
        let (config, over_target) = self.config(client, target).await?;
        let metadata = before.and_then(|before| before["metadata"].as_object());
        let (metadata, over_metadata) = self.metadata(metadata)?;
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
        if let Some(metadata) = metadata {
            body.insert("metadata".into(), metadata.into());
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
        Ok(Described {
            body: body.into(),
            over: over_target || over_metadata,
        })
    }

    /// The metadata, where something is said of it, and whether it stands on what was there.
    fn metadata(
        &self,
        before: Option<&Map<String, Value>>,
    ) -> Result<(Option<Map<String, Value>>, bool), CliError> {
        let given = match (&self.metadata, &self.metadata_file) {
            (Some(text), _) => Some(object("--metadata", text)?),
            (None, Some(path)) => Some(object("--metadata-file", &read(path)?)?),
            (None, None) => None,
        };
        if self.labels.is_empty() {
            return Ok((given, false));
        }
        let over = given.is_none();
        let mut metadata = given.or_else(|| before.cloned()).unwrap_or_default();
        let labels = metadata.entry("labels").or_insert_with(|| json!({}));
        let Value::Object(labels) = labels else {
            return Err(CliError::Usage(
                "--label: `labels` of the metadata is no object; give the metadata anew with --metadata".into(),
            ));
        };
        for label in &self.labels {
            let (name, value) = pair("--label", label)?;
            labels.insert(name.into(), value.into());
        }
        Ok((Some(metadata), over))
    }

    /// Whether it describes an environment by itself.
    pub fn whole(&self) -> Result<(), CliError> {
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

    /// The configuration, and whether its target stands on the one that was there.
    async fn config(
        &self,
        client: &Client,
        before: Option<&Map<String, Value>>,
    ) -> Result<(Map<String, Value>, bool), CliError> {
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
        let mut over = false;
        if config.contains_key("target") || target.len() > given {
            if let (Some(before), 0) = (before, given) {
                over = true;
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
        Ok((config, over))
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

/// The host and port of `HOST`, `HOST:PORT`, `[V6]` or `[V6]:PORT`, with a port that may stand beside it.
pub fn place(text: &str, beside: Option<u16>) -> Result<(&str, u16), CliError> {
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

//! The configuration: what an administrator types, and what of it the component is given.
//!
//! The target's key, passphrase, certificate and host keys are the host's own matter and never come here.

use std::fmt;

use leasehold_provider::{Value, json};
use serde::Deserialize;

/// The configuration as the component is given it.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Config {
    /// The machine.
    pub target: Target,
    /// The directory below which each lease has its workspace; absolute.
    pub remote_workspace_path: String,
    /// Whether several leases may use the account at once.
    #[serde(default)]
    pub allow_shared_account: bool,
}

/// What of an `ssh-target` a component may know.
#[derive(Debug, Deserialize)]
pub struct Target {
    host: String,
    #[serde(default = "default_port")]
    port: u16,
    username: Option<String>,
}

fn default_port() -> u16 {
    22
}

/// `user@host:port`, as messages name it.
impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(username) = &self.username {
            write!(f, "{username}@")?;
        }
        match self.host.contains(':') {
            true => write!(f, "[{}]:{}", self.host, self.port),
            false => write!(f, "{}:{}", self.host, self.port),
        }
    }
}

/// The schema of what an administrator types.
pub fn schema() -> Value {
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "required": ["target", "remoteWorkspacePath"],
        "additionalProperties": false,
        "properties": {
            "target": {
                "type": "object",
                "format": "ssh-target",
                "title": "Machine",
                "description": "Host, port, account, private key and the host keys to be trusted; `jump` \
                    lists the machines to go through, each with its own."
            },
            "remoteWorkspacePath": {
                "type": "string",
                "title": "Workspace path",
                "description": "An absolute directory on the machine. Each lease gets a directory of its own \
                    below it, which is removed when the lease is released. It is made if it does not exist.",
                "pattern": "^/[^\\u0000-\\u001f\\u007f]*$",
                "maxLength": 1024,
                "examples": ["/srv/leases"]
            },
            "allowSharedAccount": {
                "type": "boolean",
                "title": "Allow several leases on this account at once",
                "description": "Leases on one account are not isolated from each other. Whoever runs commands \
                    in one of them can read and change the files of the others, see and end their processes, \
                    read their environment variables, and use whatever the account can use: its home directory, \
                    credential files, a running ssh-agent, cloud logins, and its scheduled jobs. When a lease \
                    ends only its own processes and directory are removed. Leave this off to have one lease \
                    at a time.",
                "default": false
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(json: Value) -> String {
        serde_json_read::<Target>(json).to_string()
    }

    fn serde_json_read<T: serde::de::DeserializeOwned>(json: Value) -> T {
        T::deserialize(json).expect("reads")
    }

    #[test]
    fn a_target_is_named_by_account_host_and_port() {
        assert_eq!(
            target(json!({ "host": "10.0.0.5", "username": "ci" })),
            "ci@10.0.0.5:22"
        );
        assert_eq!(
            target(json!({ "host": "fd00::5", "port": 2222, "username": "ci", "jump": [] })),
            "ci@[fd00::5]:2222"
        );
        assert_eq!(target(json!({ "host": "h", "port": 22 })), "h:22");
    }

    #[test]
    fn sharing_is_off_unless_it_is_said() {
        let config: Config = serde_json_read(json!({
            "target": { "host": "h" }, "remoteWorkspacePath": "/srv"
        }));
        assert!(!config.allow_shared_account);
    }
}

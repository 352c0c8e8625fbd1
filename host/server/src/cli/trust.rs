//! A host key, from what a machine shows to what an environment trusts, with a person's word in between.
//!
//! Nothing is trusted because it was shown: somebody at a terminal says so, or names the fingerprint beforehand, and then
//! the machine has to show that one.

use std::io::IsTerminal;

use clap::Args;
use hyper::Method;
use serde_json::{Value, json};

use super::admin::InCompany;
use super::client::{Client, encode};
use super::environment::environment_id;
use super::exit::{CliError, DONE, FAILED};
use super::output::{Output, plain};
use super::plugin::confirmed;
use super::progress;

/// `env trust …`
#[derive(Debug, Args)]
pub struct TrustArgs {
    /// The environment, by id or name
    env: String,
    /// The fingerprint that the machine has to show; without it, you are shown what it shows and asked
    #[arg(long, value_name = "SHA256:…")]
    fingerprint: Option<String>,
    #[command(flatten)]
    company: InCompany,
}

/// What a machine shows.
struct Shown {
    fingerprint: String,
    algorithm: String,
}

async fn shown(client: &Client, target: &Value) -> Result<Shown, CliError> {
    let Some(host) = target["host"].as_str() else {
        return Err(CliError::Usage(
            "the environment has no machine that SSH reaches, so there is no host key to trust"
                .into(),
        ));
    };
    if target["jump"]
        .as_array()
        .is_some_and(|hops| !hops.is_empty())
    {
        return Err(CliError::Usage(
            "the machine is reached over others; ask each for its key with `ssh-keyscan` from where it can be reached, \
             and give it with --known-hosts"
                .into(),
        ));
    }
    let port = target["port"].as_u64().unwrap_or(22);
    let body = json!({"host": host, "port": port});
    let asking = client.post("/api/ssh/host-key", Some(body));
    let answer = progress::during("asking for the host key", asking).await?;
    let text = |key: &str| answer[key].as_str().unwrap_or_default().to_owned();
    let shown = Shown {
        fingerprint: text("fingerprint"),
        algorithm: text("algorithm"),
    };
    eprintln!(
        "{}:{port} shows the host key {} ({}); compare it with what you know of the machine",
        plain(host),
        plain(&shown.fingerprint),
        plain(&shown.algorithm)
    );
    Ok(shown)
}

/// The target with one more key that is trusted.
fn trusting(target: &Value, fingerprint: &str) -> Value {
    let mut target = target.clone();
    let mut keys = match target["hostKeys"].take() {
        Value::Object(keys) => Value::Object(keys),
        _ => json!({}),
    };
    let mut all = keys["fingerprints"].as_array().cloned().unwrap_or_default();
    all.push(fingerprint.into());
    keys["fingerprints"] = all.into();
    target["hostKeys"] = keys;
    target
}

fn trusts(target: &Value) -> bool {
    let keys = &target["hostKeys"];
    keys["fingerprints"]
        .as_array()
        .is_some_and(|all| !all.is_empty())
        || keys["knownHosts"]
            .as_str()
            .is_some_and(|text| !text.trim().is_empty())
}

/// Where a new environment trusts no host key yet and somebody is here to ask, shows the machine's and asks.
pub async fn ask(client: &Client, body: &mut Value) -> Result<(), CliError> {
    let target = &body["config"]["target"];
    let here = std::io::stdin().is_terminal() && std::io::stderr().is_terminal();
    if !here || target["host"].is_null() || trusts(target) {
        return Ok(());
    }
    let shown = shown(client, target).await?;
    if !confirmed("Trust it?")? {
        return Err(CliError::Usage(
            "without a host key that is trusted nothing can be leased there; give one with --fingerprint".into(),
        ));
    }
    body["config"]["target"] = trusting(target, &shown.fingerprint);
    Ok(())
}

impl TrustArgs {
    /// Does it: 0 when the key is trusted now, 1 when it is not.
    pub async fn run(self, client: &Client, out: &Output) -> Result<u8, CliError> {
        let id = environment_id(client, &self.company, &self.env).await?;
        let path = format!("/api/environments/{}", encode(&id));
        let (before, tag) = client.read(&path).await?;
        let target = &before["config"]["target"];
        if self.fingerprint.is_none() && !std::io::stdin().is_terminal() {
            return Err(CliError::Usage(
                "nobody is here to ask; name the key that the machine has to show with --fingerprint".into(),
            ));
        }
        let shown = shown(client, target).await?;
        match &self.fingerprint {
            Some(wanted) if *wanted != shown.fingerprint => {
                eprintln!("it is not {}, and is not trusted", plain(wanted));
                return Ok(FAILED);
            }
            Some(_) => {}
            None if confirmed("Trust it?")? => {}
            None => {
                eprintln!("it is not trusted");
                return Ok(FAILED);
            }
        }
        let known = target["hostKeys"]["fingerprints"].as_array();
        if known.is_some_and(|all| all.iter().any(|one| *one == shown.fingerprint)) {
            out.told(&before, "trusted it already")?;
            return Ok(DONE);
        }
        let body = json!({"config": {"target": trusting(target, &shown.fingerprint)}});
        // The key is that of the machine that was named when it was read, and of no other.
        let now = client.change(Method::PATCH, &path, tag, Some(body)).await?;
        out.told(&now, "trusted")?;
        Ok(DONE)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{trusting, trusts};

    #[test]
    fn a_key_is_trusted_beside_those_that_are() {
        let target =
            json!({"host": "h", "hostKeys": {"fingerprints": ["SHA256:a"], "knownHosts": "x"}});
        assert_eq!(
            trusting(&target, "SHA256:b"),
            json!({"host": "h", "hostKeys": {"fingerprints": ["SHA256:a", "SHA256:b"], "knownHosts": "x"}})
        );
        let bare = json!({"host": "h"});
        assert!(!trusts(&bare) && trusts(&trusting(&bare, "SHA256:b")));
        assert!(!trusts(
            &json!({"hostKeys": {"fingerprints": [], "knownHosts": " "}})
        ));
    }
}

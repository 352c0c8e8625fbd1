//! `lease …`

use clap::Subcommand;
use clap::builder::NonEmptyStringValueParser;
use serde_json::{Map, Value};

use super::admin::InCompany;
use super::client::{Client, encode};
use super::environment::leasable_id;
use super::exit::{CliError, DONE, FAILED};
use super::output::{Column, Output};
use super::progress;
use super::select::Needs;

const LEASE: &[Column] = &[
    ("ID", "id"),
    ("STATUS", "status"),
    ("REASON", "statusReason"),
    ("FAILURE", "failureReason"),
    ("PROVIDER", "provider"),
    ("PROOF", "proof"),
    ("WORKSPACE", "workspace"),
    ("RESOURCE", "providerLeaseId"),
    ("NOT ISOLATED", "notIsolated"),
    ("ACQUIRED", "acquiredAt"),
    ("EXPIRES", "expiresAt"),
    ("RELEASED", "releasedAt"),
    ("ENVIRONMENT", "environmentId"),
];
const LIST: &[Column] = &[
    ("ID", "id"),
    ("STATUS", "status"),
    ("PROVIDER", "provider"),
    ("ENVIRONMENT", "environmentId"),
    ("CREATED", "createdAt"),
    ("EXPIRES", "expiresAt"),
    ("REASON", "statusReason"),
];

const SEEN: &[Column] = &[
    ("CONDITION", "condition"),
    ("IMAGE", "image"),
    ("MESSAGE", "message"),
];

/// `lease …`
#[derive(Debug, Subcommand)]
pub enum LeaseCommand {
    /// Lease an environment: the one that is named, the best that can do what is needed, or the one that is assigned
    Acquire {
        /// The environment, by id or name
        env: Option<String>,
        #[command(flatten)]
        needs: Box<Needs>,
        /// The environment that is assigned to the agent, run, workspace or issue
        #[arg(long, conflicts_with = "env")]
        assigned: bool,
        /// When it ends at the latest, as 90s, 30m or 8h; without, when it is released
        #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
        ttl: Option<String>,
        /// Yours, to find it again
        #[arg(long, value_name = "ID")]
        agent: Option<String>,
        /// Yours, to find it again
        #[arg(long, value_name = "ID")]
        run: Option<String>,
        /// Yours, to find it again
        #[arg(long, value_name = "ID")]
        workspace: Option<String>,
        /// Yours, to find it again
        #[arg(long, value_name = "ID")]
        issue: Option<String>,
        #[command(flatten)]
        company: InCompany,
    },
    /// List leases, newest first
    List {
        /// Only those of this environment, by id or name
        #[arg(long)]
        env: Option<String>,
        /// Only those in this state
        #[arg(long)]
        status: Option<String>,
        #[command(flatten)]
        company: InCompany,
    },
    /// Show a lease
    Get {
        /// The lease's id
        #[arg(value_parser = NonEmptyStringValueParser::new())]
        lease: String,
    },
    /// Look at what is leased as its provider sees it now
    Observe {
        /// The lease's id
        #[arg(value_parser = NonEmptyStringValueParser::new())]
        lease: String,
    },
    /// Renew a lease before it expires
    Renew {
        /// The lease's id
        #[arg(value_parser = NonEmptyStringValueParser::new())]
        lease: String,
        /// From now, as 90s, 30m or 8h
        #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
        ttl: String,
    },
    /// Release a lease, and wait until nothing is left
    Release {
        /// The lease's id
        #[arg(value_parser = NonEmptyStringValueParser::new())]
        lease: String,
    },
    /// Stop waiting for a cleanup that cannot succeed; what may be left is yours to remove
    Abandon {
        /// The lease's id
        #[arg(value_parser = NonEmptyStringValueParser::new())]
        lease: String,
        /// For whoever finds what was left
        #[arg(long)]
        reason: String,
    },
    /// List the commands of a lease
    Executions {
        /// The lease's id
        #[arg(value_parser = NonEmptyStringValueParser::new())]
        lease: String,
    },
}

impl LeaseCommand {
    /// Does it.
    pub async fn run(self, client: &Client, out: &Output) -> Result<u8, CliError> {
        match self {
            LeaseCommand::Acquire {
                env,
                needs,
                assigned,
                ttl,
                agent,
                run,
                workspace,
                issue,
                company,
            } => {
                let mut body = Map::new();
                let (base, chosen) = match (env, needs.any(), assigned) {
                    (Some(env), false, _) => {
                        let id = leasable_id(client, &company, &env).await?;
                        (format!("/api/environments/{}/leases", encode(&id)), false)
                    }
                    (None, true, false) => {
                        body.insert("requirement".into(), needs.body()?);
                        (of_company(client, &company).await?, true)
                    }
                    (None, false, true) => (of_company(client, &company).await?, true),
                    _ => {
                        return Err(CliError::Usage(
                            "name an environment, or say what is needed (--require, --prefer, …), or --assigned: one of them"
                                .into(),
                        ));
                    }
                };
                if let Some(ttl) = ttl {
                    body.insert("ttlSeconds".into(), (seconds("--ttl", &ttl)?).into());
                }
                for (key, value) in [
                    ("agentId", agent),
                    ("runId", run),
                    ("workspaceId", workspace),
                    ("issueId", issue),
                ] {
                    if let Some(value) = value {
                        body.insert(key.into(), value.into());
                    }
                }
                // Of what is chosen the path says it.
                if company.is_named() && !chosen {
                    body.insert("companyId".into(), company.id(client).await?.into());
                }
                let work = progress::name()?;
                let path = format!("{base}?progressId={work}");
                let asking = client.create(&path, Value::Object(body));
                let told = format!("/api/progress/{work}");
                let made = progress::during_told("acquiring", client, &told, asking).await?;
                match chosen && !out.is_json() {
                    true => out.one(&made["lease"], LEASE)?,
                    false => out.one(&made, LEASE)?,
                }
            }
            LeaseCommand::List {
                env,
                status,
                company,
            } => {
                let mut path = match env {
                    Some(env) => {
                        let id = leasable_id(client, &company, &env).await?;
                        format!("/api/environments/{}/leases", encode(&id))
                    }
                    None => {
                        let id = company.id(client).await?;
                        format!("/api/companies/{}/environment-leases", encode(&id))
                    }
                };
                if let Some(status) = status {
                    path.push_str(&format!("?status={}", encode(&status)));
                }
                out.list(&all_pages(client, &path).await?, LIST)?;
            }
            LeaseCommand::Get { lease } => out.one(&client.get(&of(&lease, "")).await?, LEASE)?,
            LeaseCommand::Observe { lease } => {
                let path = of(&lease, "/observation");
                let seen = progress::during("looking", client.get(&path)).await?;
                out.one(&seen, SEEN)?;
            }
            LeaseCommand::Renew { lease, ttl } => {
                let body = serde_json::json!({"ttlSeconds": seconds("--ttl", &ttl)?});
                out.one(
                    &client.post(&of(&lease, "/renew"), Some(body)).await?,
                    LEASE,
                )?;
            }
            LeaseCommand::Release { lease } => {
                let path = of(&lease, "/release");
                let asking = client.post(&path, None);
                let told = of(&lease, "");
                let now = progress::during_told("releasing", client, &told, asking).await?;
                out.one(&now, LEASE)?;
                if now["status"] != "released" {
                    let status = now["status"].as_str().unwrap_or("?").to_owned();
                    super::exit::complain(
                        &format!(
                            "the release is not confirmed: the lease is {status}, and the server tries again"
                        ),
                        FAILED,
                    );
                    return Ok(FAILED);
                }
            }
            LeaseCommand::Abandon { lease, reason } => {
                let body = serde_json::json!({"reason": reason});
                out.one(
                    &client.post(&of(&lease, "/abandon"), Some(body)).await?,
                    LEASE,
                )?;
            }
            LeaseCommand::Executions { lease } => {
                let rows = client.list(&of(&lease, "/executions")).await?;
                out.list(
                    &rows,
                    &[
                        ("ID", "id"),
                        ("OUTCOME", "outcome"),
                        ("CODE", "exitCode"),
                        ("SIGNAL", "signal"),
                        ("STARTED", "startedAt"),
                        ("ENDED", "endedAt"),
                        ("COMMAND", "argv"),
                    ],
                )?;
            }
        }
        Ok(DONE)
    }
}

async fn of_company(client: &Client, company: &InCompany) -> Result<String, CliError> {
    let id = company.id(client).await?;
    Ok(format!("/api/companies/{}/environment-leases", encode(&id)))
}

fn of(lease: &str, what: &str) -> String {
    format!("/api/environment-leases/{}{what}", encode(lease))
}

/// Every page of a list, as one array.
pub async fn all_pages(client: &Client, path: &str) -> Result<Value, CliError> {
    let mut all = Vec::new();
    let mut after: Option<String> = None;
    loop {
        let mark = if path.contains('?') { '&' } else { '?' };
        let page = match &after {
            Some(cursor) => {
                client
                    .get(&format!("{path}{mark}cursor={}", encode(cursor)))
                    .await?
            }
            None => client.get(path).await?,
        };
        all.extend(page["items"].as_array().into_iter().flatten().cloned());
        match page["next"].as_str() {
            Some(next) => after = Some(next.to_owned()),
            None => return Ok(Value::Array(all)),
        }
    }
}

/// A time in seconds: a number with s, m, h or d, or without a unit.
pub fn seconds(flag: &str, text: &str) -> Result<u32, CliError> {
    let (number, unit) = match text.find(|c: char| !c.is_ascii_digit()) {
        Some(at) => text.split_at(at),
        None => (text, "s"),
    };
    let factor = match unit {
        "s" => Some(1u32),
        "m" => Some(60),
        "h" => Some(3600),
        "d" => Some(86400),
        _ => None,
    };
    number
        .parse::<u32>()
        .ok()
        .zip(factor)
        .and_then(|(n, f)| n.checked_mul(f))
        .filter(|s| *s > 0)
        .ok_or_else(|| {
            CliError::Usage(format!(
                "{flag}: `{text}` is not a time; write it like 90s, 30m or 8h"
            ))
        })
}

#[cfg(test)]
mod tests {
    use super::seconds;

    #[test]
    fn times_have_units() {
        assert_eq!(seconds("--ttl", "90").unwrap(), 90);
        assert_eq!(seconds("--ttl", "8h").unwrap(), 28_800);
        for bad in ["", "0s", "-1s", "1w", "99999999d", "s"] {
            assert!(seconds("--ttl", bad).is_err(), "{bad}");
        }
    }
}

//! `plugin …`: look at a component, show what it asks for, install and grant it, go back, see how it does, publish it.

use std::io::{BufRead, IsTerminal, Write};
use std::path::PathBuf;

use clap::builder::NonEmptyStringValueParser;
use clap::{Args, Subcommand};
use hyper::Method;
use serde_json::{Value, json};

use super::client::{Client, encode, refusal_of};
use super::component::{Component, ComponentArgs};
use super::exit::{CliError, DONE};
use super::output::{Column, Output, plain, write_all};
use super::plugin_text::{details, offer};
use super::progress::during;
use super::push::PushArgs;
use crate::api::errors::ApiError;
use crate::api::plugin_views::OfferView;
use crate::service::{self, PluginOffer, ServiceError};

const PLUGIN: &[Column] = &[
    ("KEY", "key"),
    ("VERSION", "version"),
    ("DRIVER", "driver"),
    ("STATUS", "status"),
    ("REVISION", "revision"),
    ("CAPABILITIES", "capabilities"),
    ("DIGEST", "digest"),
];

/// `plugin …`
#[derive(Debug, Subcommand)]
pub enum PluginCommand {
    /// Show what a component is and asks for, and install nothing; of a file this needs no server
    Inspect(InspectArgs),
    /// Show what a component asks for, and install it: granted where you say so, else it waits for its grant
    Install(InstallArgs),
    /// Publish a component in a registry; needs no server, and prints the name with its digest
    Push(PushArgs),
    /// Grant a revision that waits, once you have read what it asks for
    Grant(GrantArgs),
    /// Turn down a revision that waits; what served goes on serving
    Deny {
        /// The provider's key
        #[arg(value_parser = NonEmptyStringValueParser::new())]
        key: String,
    },
    /// Go back to the revision that served before; leases keep the one that they were made with
    Rollback {
        /// The provider's key
        #[arg(value_parser = NonEmptyStringValueParser::new())]
        key: String,
    },
    /// Let a plugin that failed again and again take new leases now
    Reset {
        /// The provider's key
        #[arg(value_parser = NonEmptyStringValueParser::new())]
        key: String,
    },
    /// List plugins
    List,
    /// Show a plugin: its grant, its revisions, what waits, how it does
    Show {
        /// The provider's key
        #[arg(value_parser = NonEmptyStringValueParser::new())]
        key: String,
    },
    /// Let a plugin take new leases
    Enable {
        /// The provider's key
        #[arg(value_parser = NonEmptyStringValueParser::new())]
        key: String,
    },
    /// Let a plugin take no new leases; those that exist go on and can be released
    Disable {
        /// The provider's key
        #[arg(value_parser = NonEmptyStringValueParser::new())]
        key: String,
    },
    /// Remove a plugin that nothing uses
    Remove {
        /// The provider's key
        #[arg(value_parser = NonEmptyStringValueParser::new())]
        key: String,
    },
}

/// `plugin inspect`
#[derive(Debug, Args)]
pub struct InspectArgs {
    #[command(flatten)]
    component: ComponentArgs,
    /// A file with the public key, in PEM, whose signature over the file it must be
    #[arg(long, value_name = "FILE", requires = "signature")]
    key: Option<PathBuf>,
}

/// `plugin install`
#[derive(Debug, Args)]
pub struct InstallArgs {
    #[command(flatten)]
    component: ComponentArgs,
    /// Grant what is shown without asking
    #[arg(long, short, conflicts_with = "grant")]
    yes: bool,
    /// Grant what was shown before, by the request digest that `plugin inspect` printed
    #[arg(long, value_name = "DIGEST")]
    grant: Option<String>,
    /// Leave this out of the grant: ssh, streams, origins, operations, credentials (repeat for more)
    #[arg(long, value_name = "PART", value_delimiter = ',')]
    without: Vec<String>,
}

/// `plugin grant`
#[derive(Debug, Args)]
pub struct GrantArgs {
    /// The provider's key
    #[arg(value_parser = NonEmptyStringValueParser::new())]
    key: String,
    /// The revision, by its digest: the one that waits, or the one that serves [default: the one that waits]
    #[arg(long, value_name = "DIGEST")]
    revision: Option<String>,
    /// Leave this out of the grant: ssh, streams, origins, operations, credentials (repeat for more)
    #[arg(long, value_name = "PART", value_delimiter = ',')]
    without: Vec<String>,
    /// Grant what is shown without asking
    #[arg(long, short)]
    yes: bool,
}

impl PluginCommand {
    /// Does it. A client is asked for where a server is needed.
    pub async fn run(
        self,
        client: impl FnOnce() -> Result<Client, CliError>,
        out: &Output,
    ) -> Result<u8, CliError> {
        match self {
            PluginCommand::Inspect(args) => {
                args.run(client, out).await?;
                Ok(DONE)
            }
            PluginCommand::Push(args) => {
                args.run(out).await?;
                Ok(DONE)
            }
            other => other.with_server(&client()?, out).await,
        }
    }

    async fn with_server(self, client: &Client, out: &Output) -> Result<u8, CliError> {
        match self {
            PluginCommand::Inspect(_) | PluginCommand::Push(_) => {}
            PluginCommand::Install(args) => args.run(client, out).await?,
            PluginCommand::Grant(args) => args.run(client, out).await?,
            PluginCommand::Deny { key } => {
                let now = client.post(&path(&key, "/deny"), None).await?;
                out.told(&now, "denied")?;
            }
            PluginCommand::Rollback { key } => {
                let now = client.post(&path(&key, "/rollback"), None).await?;
                out.one(&now, PLUGIN)?;
            }
            PluginCommand::Reset { key } => {
                let now = client.post(&path(&key, "/reset"), None).await?;
                out.one(&now, PLUGIN)?;
            }
            PluginCommand::List => out.list(&client.get("/api/plugins").await?, PLUGIN)?,
            PluginCommand::Show { key } => {
                let now = client.get(&path(&key, "")).await?;
                if out.is_json() {
                    out.value(&now)?;
                } else {
                    write_all(details(&now).as_bytes())?;
                }
            }
            PluginCommand::Enable { key } => {
                let now = client.post(&path(&key, "/enable"), None).await?;
                out.one(&now, PLUGIN)?;
            }
            PluginCommand::Disable { key } => {
                let now = client.post(&path(&key, "/disable"), None).await?;
                out.one(&now, PLUGIN)?;
            }
            PluginCommand::Remove { key } => {
                let gone = client.json(Method::DELETE, &path(&key, ""), None).await?;
                out.told(&gone, "removed")?;
            }
        }
        Ok(DONE)
    }
}

fn path(key: &str, what: &str) -> String {
    format!("/api/plugins/{}{what}", encode(key))
}

/// An error of what is done without a server, as a server would tell it.
pub fn refused(error: ServiceError) -> CliError {
    let refused = ApiError::from(error);
    refusal_of(refused.code.status().as_u16(), &refused.to_json())
}

/// Looks at a component without a server.
pub async fn during_local(
    looking: impl Future<Output = Result<PluginOffer, ServiceError>>,
) -> Result<PluginOffer, CliError> {
    during("compiling the component", looking)
        .await
        .map_err(refused)
}

impl InspectArgs {
    async fn run(
        self,
        client: impl FnOnce() -> Result<Client, CliError>,
        out: &Output,
    ) -> Result<(), CliError> {
        let looked = match self.component.find()? {
            Component::File { bytes, signature } => {
                let signed = match (self.key, signature) {
                    (None, None) => None,
                    (Some(file), Some(signature)) => {
                        let name = file.display().to_string();
                        let key = service::signing_key("--key", &name, &file)
                            .map_err(|e| CliError::Usage(e.to_string()))?;
                        Some((key, signature))
                    }
                    _ => {
                        return Err(CliError::Usage(
                            "--signature and --key belong together: a signature is by somebody; give both or neither"
                                .into(),
                        ));
                    }
                };
                let looked = during_local(service::inspect(bytes, signed)).await?;
                serde_json::to_value(OfferView::from(looked))
                    .map_err(|e| CliError::Local(e.to_string()))?
            }
            Component::Named(_) if self.key.is_some() => {
                return Err(CliError::Usage(
                    "--key belongs to a file; of a registry the server's settings say which keys count"
                        .into(),
                ));
            }
            named @ Component::Named(_) => {
                let client = client()?;
                let looking = named.post(&client, "/api/plugins/inspect", &[]);
                during("fetching and compiling the component", looking).await?
            }
        };
        if out.is_json() {
            return out.value(&looked);
        }
        write_all(offer(&looked, true).as_bytes())
    }
}

impl InstallArgs {
    async fn run(self, client: &Client, out: &Output) -> Result<(), CliError> {
        let component = self.component.find()?;
        let looking = component.post(client, "/api/plugins/inspect", &[]);
        let shown = during("compiling the component", looking).await?;
        // What is installed is what was shown, whatever its name stands for by then.
        let component = component.pinned_to(&shown);
        tell(&offer(&shown, false));
        let enough = shown["wider"].as_array().is_some_and(Vec::is_empty);
        let granted = match &self.grant {
            Some(grant) => Some(grant.clone()),
            None if self.yes || (self.asks_for_it(enough) && confirmed("Grant this?")?) => {
                Some(shown["requestDigest"].as_str().unwrap_or("").to_owned())
            }
            None => None,
        };
        if granted.is_none() && !self.without.is_empty() {
            return Err(CliError::Usage(
                "--without leaves something out of a grant, and nothing is granted; give --yes or --grant too"
                    .into(),
            ));
        }
        let mut query = Vec::new();
        if let Some(grant) = granted {
            query.push(("grant", grant));
            if !self.without.is_empty() {
                query.push(("without", self.without.join(",")));
            }
        }
        let installing = component.post(client, "/api/plugins", &query);
        let made = during("installing", installing).await?;
        if made["pending"].is_object() {
            let key = plain(made["key"].as_str().unwrap_or(""));
            tell(&format!(
                "\nIt waits for its grant: `leasehold plugin grant {key}`, or `leasehold plugin deny {key}`.\n"
            ));
        }
        out.one(&made, PLUGIN)
    }

    /// Whether there is something to ask, and somebody to ask it.
    fn asks_for_it(&self, enough: bool) -> bool {
        !enough && std::io::stdin().is_terminal()
    }
}

impl GrantArgs {
    async fn run(self, client: &Client, out: &Output) -> Result<(), CliError> {
        let plugin = client.get(&path(&self.key, "")).await?;
        let pending = &plugin["pending"];
        let is_named = |of: &Value| match &self.revision {
            // As it is shown, and as JSON has it.
            Some(digest) => of["digest"] == digest.strip_prefix("sha256:").unwrap_or(digest),
            None => of.is_object(),
        };
        let request_digest = if is_named(pending) {
            tell(&super::plugin_text::pending(&plugin));
            pending["requestDigest"].clone()
        } else if self.revision.is_some() && is_named(&plugin) {
            tell(&details(&plugin));
            plugin["requestDigest"].clone()
        } else {
            return Err(super::admin::not_found(&format!(
                "revision of plugin `{}` that waits for its grant",
                self.key
            )));
        };
        if !self.yes && !std::io::stdin().is_terminal() {
            return Err(CliError::Usage(
                "nobody is here to ask; read what is shown and grant it with --yes".into(),
            ));
        }
        if !self.yes && !confirmed("Grant this?")? {
            return Err(CliError::Local("not granted; it goes on waiting".into()));
        }
        let body = json!({
            "requestDigest": request_digest,
            "revision": self.revision,
            "without": self.without,
        });
        let now = client.post(&path(&self.key, "/grant"), Some(body)).await?;
        out.one(&now, PLUGIN)
    }
}

/// To people, beside the result.
fn tell(text: &str) {
    let _ = std::io::stderr().write_all(text.as_bytes());
}

pub fn confirmed(question: &str) -> Result<bool, CliError> {
    let _ = write!(std::io::stderr(), "\n{question} [y/N] ");
    let _ = std::io::stderr().flush();
    let mut line = String::new();
    std::io::stdin()
        .lock()
        .read_line(&mut line)
        .map_err(|e| CliError::Local(e.to_string()))?;
    Ok(matches!(line.trim(), "y" | "Y" | "yes"))
}

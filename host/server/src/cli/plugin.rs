//! `plugin …`: look at a component, show what it asks for, install it.

use std::io::{BufRead, IsTerminal, Write};
use std::path::{Path, PathBuf};

use bytes::Bytes;
use clap::Subcommand;
use clap::builder::NonEmptyStringValueParser;
use hyper::Method;
use serde_json::Value;

use super::client::{Client, encode};
use super::exit::{CliError, DONE};
use super::output::{Column, Output, plain};
use super::progress::during;

const PLUGIN: &[Column] = &[
    ("KEY", "key"),
    ("VERSION", "version"),
    ("DRIVER", "driver"),
    ("ENABLED", "enabled"),
    ("REVISION", "revision"),
    ("CAPABILITIES", "capabilities"),
    ("DIGEST", "digest"),
];

/// `plugin …`
#[derive(Debug, Subcommand)]
pub enum PluginCommand {
    /// Show what a component is and asks for; installs nothing
    Inspect {
        /// The component, a .wasm file
        file: PathBuf,
    },
    /// Show what a component asks for, ask, and install it
    Install {
        /// The component, a .wasm file
        file: PathBuf,
        /// Grant what is shown without asking
        #[arg(long, short)]
        yes: bool,
    },
    /// List plugins
    List,
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

impl PluginCommand {
    /// Does it.
    pub async fn run(self, client: &Client, out: &Output) -> Result<u8, CliError> {
        match self {
            PluginCommand::Inspect { file } => {
                let (_, offer) = inspect(client, &file).await?;
                if out.is_json() {
                    out.value(&offer)?;
                } else {
                    super::output::write_all(describe(&offer).as_bytes())?;
                }
            }
            PluginCommand::Install { file, yes } => {
                let (bytes, offer) = inspect(client, &file).await?;
                let text = describe(&offer);
                let _ = std::io::stderr().write_all(text.as_bytes());
                if !yes {
                    confirm()?;
                }
                let grant = encode(offer["requestDigest"].as_str().unwrap_or(""));
                let path = format!("/api/plugins?grant={grant}");
                let installing = client.post_component(&path, bytes);
                let made = during("installing", installing).await?;
                out.one(&made, PLUGIN)?;
            }
            PluginCommand::List => out.list(&client.get("/api/plugins").await?, PLUGIN)?,
            PluginCommand::Enable { key } => {
                let path = format!("/api/plugins/{}/enable", encode(&key));
                out.one(&client.post(&path, None).await?, PLUGIN)?;
            }
            PluginCommand::Disable { key } => {
                let path = format!("/api/plugins/{}/disable", encode(&key));
                out.one(&client.post(&path, None).await?, PLUGIN)?;
            }
            PluginCommand::Remove { key } => {
                let path = format!("/api/plugins/{}", encode(&key));
                let gone = client.json(Method::DELETE, &path, None).await?;
                out.told(&gone, "removed")?;
            }
        }
        Ok(DONE)
    }
}

async fn inspect(client: &Client, file: &Path) -> Result<(Bytes, Value), CliError> {
    let bytes =
        std::fs::read(file).map_err(|e| CliError::Usage(format!("{}: {e}", file.display())))?;
    let bytes = Bytes::from(bytes);
    let looking = client.post_component("/api/plugins/inspect", bytes.clone());
    let offer = during("compiling the component", looking).await?;
    Ok((bytes, offer))
}

fn describe(offer: &Value) -> String {
    let text = |key: &str| plain(offer[key].as_str().unwrap_or(""));
    let mut out = format!(
        "{} {} ({} driver)\n{}\n{}\nsha256:{}\n\nInstalling it grants:\n",
        text("key"),
        text("version"),
        text("driver"),
        text("title"),
        text("summary"),
        text("digest"),
    );
    let asks = offer["asks"].as_array().map_or(&[][..], Vec::as_slice);
    if asks.is_empty() {
        out.push_str("  nothing beyond computing\n");
    }
    for ask in asks {
        out.push_str(&format!("  - {}\n", plain(ask.as_str().unwrap_or(""))));
    }
    if offer["installed"] == true {
        out.push_str("\nThis very component is installed already.\n");
    }
    out
}

fn confirm() -> Result<(), CliError> {
    if !std::io::stdin().is_terminal() {
        return Err(CliError::Usage(
            "nobody is here to ask; read what is shown and grant it with --yes".into(),
        ));
    }
    let _ = write!(std::io::stderr(), "\nInstall and grant this? [y/N] ");
    let _ = std::io::stderr().flush();
    let mut line = String::new();
    std::io::stdin()
        .lock()
        .read_line(&mut line)
        .map_err(|e| CliError::Local(e.to_string()))?;
    if matches!(line.trim(), "y" | "Y" | "yes") {
        return Ok(());
    }
    Err(CliError::Local("not installed".into()))
}

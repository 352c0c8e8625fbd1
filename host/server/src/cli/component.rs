//! A component as commands name it: a file of this machine, with its signature, or a name in a registry, which the server
//! resolves.

use std::ffi::OsString;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use clap::Args;
use leasehold_authority::spelled_signature;
use leasehold_egress::{BadReference, Reference};
use serde_json::{Value, json};

use super::client::{Client, encode};
use super::exit::CliError;

/// The largest file with a key, a signature, a password or certificates.
const LARGEST_TEXT: u64 = 1 << 20;

/// Which component.
#[derive(Debug, Args)]
pub struct ComponentArgs {
    /// The component: a .wasm file, or its name in a registry, as oci://host/name:tag
    #[arg(value_name = "FILE|REFERENCE")]
    component: OsString,
    /// A file with a detached signature over the component, as `cosign sign-blob` writes one
    #[arg(long, value_name = "FILE")]
    signature: Option<PathBuf>,
}

/// A component, found.
#[derive(Clone, Debug)]
pub enum Component {
    /// Its bytes, and a signature over them.
    File {
        /// The component.
        bytes: Bytes,
        /// In base64.
        signature: Option<String>,
    },
    /// Its name in a registry.
    Named(String),
}

/// Reads a file that a flag or an argument names.
pub fn read(file: &Path) -> Result<Bytes, CliError> {
    std::fs::read(file)
        .map(Bytes::from)
        .map_err(|e| CliError::Usage(format!("{}: {e}", file.display())))
}

/// Reads a file with a little text, without the white space around it.
pub fn read_text(file: &Path) -> Result<String, CliError> {
    let refused =
        |what: &dyn std::fmt::Display| CliError::Usage(format!("{}: {what}", file.display()));
    let mut text = String::new();
    std::fs::File::open(file)
        .and_then(|file| file.take(LARGEST_TEXT + 1).read_to_string(&mut text))
        .map_err(|e| refused(&e))?;
    if text.len() as u64 > LARGEST_TEXT {
        return Err(refused(&format_args!(
            "has more than {LARGEST_TEXT} bytes, and no such file has; is it another?"
        )));
    }
    Ok(text.trim().to_owned())
}

/// The signature of a file, in its one spelling: one that is none is told before anything is sent.
pub fn signature(file: &Path) -> Result<String, CliError> {
    spelled_signature(&read_text(file)?)
        .map_err(|e| CliError::Usage(format!("--signature {}: {e}", file.display())))
}

/// Whether a name is that of something elsewhere, by a scheme as every URL has it.
fn is_elsewhere(name: &str) -> bool {
    name.trim_start()
        .split_once("://")
        .is_some_and(|(scheme, _)| {
            !scheme.is_empty() && scheme.bytes().all(|b| b.is_ascii_alphanumeric())
        })
}

impl ComponentArgs {
    /// Reads the file, or takes the name as it is.
    pub fn find(&self) -> Result<Component, CliError> {
        let name = self.component.to_str().filter(|name| is_elsewhere(name));
        match (name, &self.signature) {
            (Some(name), None) => match name.parse::<Reference>() {
                Ok(_) => Ok(Component::Named(name.to_owned())),
                Err(wrong) => {
                    let wrong: BadReference = wrong;
                    Err(CliError::Usage(wrong.to_string()))
                }
            },
            (Some(_), Some(_)) => Err(CliError::Usage(
                "--signature belongs to a file; in a registry the signature lies beside the component".into(),
            )),
            (None, signature) => Ok(Component::File {
                bytes: read(Path::new(&self.component))?,
                signature: signature.as_deref().map(self::signature).transpose()?,
            }),
        }
    }
}

impl Component {
    /// Sends it, or its name, with a query.
    pub async fn post(
        &self,
        client: &Client,
        path: &str,
        query: &[(&str, String)],
    ) -> Result<Value, CliError> {
        let mut query = query.to_vec();
        if let Component::File {
            signature: Some(signature),
            ..
        } = self
        {
            query.push(("signature", signature.clone()));
        }
        let query: Vec<String> = query
            .iter()
            .map(|(name, value)| format!("{name}={}", encode(value)))
            .collect();
        let path = match query.is_empty() {
            true => path.to_owned(),
            false => format!("{path}?{}", query.join("&")),
        };
        match self {
            Component::File { bytes, .. } => client.post_component(&path, bytes.clone()).await,
            Component::Named(name) => client.post(&path, Some(json!({ "reference": name }))).await,
        }
    }

    /// The same as it was shown: a name with the digest that it stood for then.
    pub fn pinned_to(self, offer: &Value) -> Component {
        match (self, offer["source"]["reference"].as_str()) {
            (Component::Named(_), Some(reference)) => Component::Named(reference.to_owned()),
            (other, _) => other,
        }
    }
}

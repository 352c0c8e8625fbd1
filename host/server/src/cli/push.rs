//! `plugin push`: a component into a registry, without a server.
//!
//! The account comes from flags and the environment, or from where Docker keeps it; a password is never an argument.

use std::io::Write as _;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use clap::Args;
use leasehold_egress::{
    BadReference, Origin, Parsed, Publication, Reference, Registries, RegistryCredential,
    RegistrySettings, RegistrySource, Secret, TlsSettings, publication, signing_payload,
};
use serde_json::{Value, json};
use zeroize::Zeroizing;

use super::component::{read, read_text, signature};
use super::exit::CliError;
use super::output::Output;
use super::plugin::{during_local, refused};
use super::progress::during;
use crate::service::{self, ServiceError};

/// Where a password is read from where no file is named.
const PASSWORD: &str = "LEASEHOLD_REGISTRY_PASSWORD";

/// `plugin push`
#[derive(Debug, Args)]
pub struct PushArgs {
    /// The component, a .wasm file
    file: PathBuf,
    /// Where to, as oci://host/name:tag
    reference: String,
    /// A file with a signature, in base64, over what --payload writes; it is put beside the component
    #[arg(long, value_name = "FILE", conflicts_with = "payload")]
    signature: Option<PathBuf>,
    /// Write what is to be signed for this component at this place to a file, and push nothing
    #[arg(long, value_name = "FILE")]
    payload: Option<PathBuf>,
    /// The account's name [default: the account that `docker login` kept for the registry, if there is one]
    #[arg(long, value_name = "NAME")]
    username: Option<String>,
    /// A file with the account's password [default: the variable LEASEHOLD_REGISTRY_PASSWORD]
    #[arg(long, value_name = "FILE", requires = "username")]
    password_file: Option<PathBuf>,
    /// The origin that gives tokens for the registry, where that is another one, as https://auth.example.org
    #[arg(long, value_name = "ORIGIN")]
    realm: Option<String>,
    /// A file with the certificate authorities of the registry, in PEM [default: the system's]
    #[arg(long, value_name = "FILE")]
    ca: Option<PathBuf>,
    /// Speak http:// to the registry, which is an address of this machine
    #[arg(long)]
    plain_http: bool,
}

fn usage(e: impl std::fmt::Display) -> CliError {
    CliError::Usage(e.to_string())
}

impl PushArgs {
    /// Does it.
    pub async fn run(self, out: &Output) -> Result<(), CliError> {
        let reference: Reference = self.reference.parse().map_err(|e: BadReference| usage(e))?;
        let bytes = read(&self.file)?;
        // What no server would install is not published.
        let looked = during_local(service::inspect(bytes.clone(), None)).await?;
        let publication = publication(bytes, &looked.imports, &looked.exports);
        if let Some(file) = &self.payload {
            return payload(file, &reference, &publication, out);
        }
        let signature = self.signature.as_deref().map(signature).transpose()?;
        let source = self.source(&reference)?;
        let registries = Registries::new(RegistrySettings::default());
        let pushing = registries.push(&source, &reference, &publication, signature.as_deref());
        let pushed = during("pushing", pushing)
            .await
            .map_err(|e| refused(ServiceError::from(e)))?;
        let told = json!({
            "reference": pushed.reference.to_string(),
            "manifestDigest": publication.digest.to_string(),
            "componentDigest": pushed.component.to_string(),
            "blobsSent": pushed.sent,
        });
        out.told(&told, &pushed.reference.to_string())
    }

    fn source(&self, reference: &Reference) -> Result<RegistrySource, CliError> {
        let registry = reference.registry();
        if self.plain_http && !registry.is_loopback_address() {
            let port = registry.port().map(|port| format!(":{port}"));
            return Err(usage(format!(
                "--plain-http is only for an address of this machine that is written as one, as 127.0.0.1{}; {registry} is not",
                port.unwrap_or_default()
            )));
        }
        let tls = match &self.ca {
            Some(file) => {
                let pem = read_text(file)?;
                let tls = TlsSettings::new(Some(&pem), None);
                Some(tls.map_err(|e| usage(format!("{}: {}", file.display(), e.message)))?)
            }
            None => None,
        };
        Ok(RegistrySource {
            plain: self.plain_http,
            tls,
            credential: self.credential(&registry.to_string())?,
            realm: self.realm.as_deref().map(realm).transpose()?,
            ..RegistrySource::new(registry.clone())
        })
    }

    fn credential(&self, registry: &str) -> Result<Option<RegistryCredential>, CliError> {
        let Some(username) = &self.username else {
            return match docker_config() {
                Some(file) => kept_by_docker(&file, registry),
                None => Ok(None),
            };
        };
        if username.is_empty() || username.contains(':') {
            return Err(usage("--username: a name is not empty and has no colon"));
        }
        let password = match &self.password_file {
            Some(file) => Zeroizing::new(read_text(file)?),
            None => Zeroizing::new(std::env::var(PASSWORD).map_err(|_| {
                usage(format!(
                    "--username: there is no password; name its file with --password-file, or set {PASSWORD}"
                ))
            })?),
        };
        Ok(Some(credential(username, &password)))
    }
}

fn credential(username: &str, password: &str) -> RegistryCredential {
    RegistryCredential {
        username: username.to_owned(),
        password: Secret::new(password.to_owned()),
        version: String::new(),
    }
}

fn realm(text: &str) -> Result<Origin, CliError> {
    let parsed = Parsed::of(text).map_err(|e| usage(format!("--realm: {}", e.message)))?;
    if parsed.path != "/" || parsed.query.is_some() {
        return Err(usage(
            "--realm: write an origin, as https://auth.example.org, without a path",
        ));
    }
    Ok(parsed.origin)
}

/// Writes what is to be signed.
fn payload(
    file: &Path,
    reference: &Reference,
    publication: &Publication,
    out: &Output,
) -> Result<(), CliError> {
    let payload = signing_payload(reference, &publication.digest);
    std::fs::File::create(file)
        .and_then(|mut file| file.write_all(&payload))
        .map_err(|e| CliError::Local(format!("{}: {e}", file.display())))?;
    let reference = reference.pinned(publication.digest).to_string();
    let told = json!({
        "reference": reference,
        "manifestDigest": publication.digest.to_string(),
        "payload": file,
    });
    out.told(&told, &reference)
}

/// Where Docker keeps the accounts that somebody logged in with.
fn docker_config() -> Option<PathBuf> {
    let folder = match std::env::var_os("DOCKER_CONFIG") {
        Some(folder) => PathBuf::from(folder),
        None => PathBuf::from(std::env::var_os("HOME")?).join(".docker"),
    };
    let file = folder.join("config.json");
    file.is_file().then_some(file)
}

/// The account of a registry in Docker's file: `auths.REGISTRY.auth`, the name and the password in base64.
fn kept_by_docker(file: &Path, registry: &str) -> Result<Option<RegistryCredential>, CliError> {
    let wrong = |what: &str| usage(format!("{}: {what}", file.display()));
    let text = Zeroizing::new(std::fs::read(file).map_err(|e| wrong(&e.to_string()))?);
    let kept: Value = serde_json::from_slice(&text).map_err(|_| wrong("is not JSON"))?;
    // Docker keeps the name as it was typed, with the port of https or without.
    let with_port = format!("{registry}:443");
    let auth = [registry, &with_port]
        .into_iter()
        .find_map(|name| kept["auths"][name]["auth"].as_str());
    let Some(auth) = auth else {
        return Ok(None);
    };
    let unreadable = || {
        wrong(&format!(
            "the account of {registry} cannot be read; log in again"
        ))
    };
    let pair = Zeroizing::new(STANDARD.decode(auth).map_err(|_| unreadable())?);
    let pair = std::str::from_utf8(&pair).map_err(|_| unreadable())?;
    let (username, password) = pair.split_once(':').ok_or_else(unreadable)?;
    Ok(Some(credential(username, password)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_account_is_found_for_its_own_registry_alone_and_not_told_where_it_cannot_be_read() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("config.json");
        let auth = STANDARD.encode("ci:pass:word");
        let kept = json!({ "auths": {
            "r.example:5000": { "auth": auth },
            "whole.example:443": { "auth": auth },
            "broken.example": { "auth": "canary!" },
            "empty.example": {},
        }});
        std::fs::write(&file, kept.to_string()).unwrap();
        let found = kept_by_docker(&file, "r.example:5000").unwrap().unwrap();
        assert_eq!(found.username, "ci");
        assert_eq!(found.password.expose(), "pass:word");
        assert!(kept_by_docker(&file, "whole.example").unwrap().is_some());
        for none in ["r.example", "example", "empty.example"] {
            assert!(kept_by_docker(&file, none).unwrap().is_none(), "{none}");
        }
        let refused = kept_by_docker(&file, "broken.example").unwrap_err();
        assert!(!refused.to_string().contains("canary"), "{refused}");
        std::fs::write(&file, "canary").unwrap();
        let refused = kept_by_docker(&file, "r.example").unwrap_err();
        assert!(!refused.to_string().contains("canary"), "{refused}");
    }
}

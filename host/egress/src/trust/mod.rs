//! Whether a host key is the one that was configured (deny unless proven).
//!
//! A policy is pinned SHA-256 fingerprints, the text of a `known_hosts` file, or both: one of them must say
//! yes, and `@revoked` says no over everything. A policy of nothing refuses, and tells the fingerprint that was shown.
//! Nothing is ever learned or deleted here.

mod certificate;
mod known_hosts;

use russh::keys::{Algorithm, EcdsaCurve, HashAlg, PublicKey, PublicKeyOrCertificate};

use known_hosts::{KnownHosts, Marker};

/// The policy for one host.
#[derive(Debug)]
pub(crate) struct HostTrust {
    fingerprints: Vec<String>,
    known_hosts: KnownHosts,
    text: String,
}

/// A host key as a server showed it.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ShownKey {
    /// `ssh-ed25519` and so on; the key inside the certificate, where one was shown.
    pub algorithm: String,
    /// `SHA256:…`, as `ssh-keygen -l` prints it.
    pub fingerprint: String,
    /// A line for `known_hosts`.
    pub line: String,
}

impl ShownKey {
    pub(crate) fn of(host: &str, port: u16, key: &PublicKey) -> ShownKey {
        let mut bare = key.clone();
        bare.set_comment("");
        ShownKey {
            algorithm: key.algorithm().to_string(),
            fingerprint: key.fingerprint(HashAlg::Sha256).to_string(),
            line: format!(
                "{} {}",
                known_hosts::name(host, port),
                bare.to_openssh().unwrap_or_default().trim()
            ),
        }
    }
}

/// Why a key is not trusted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Distrust {
    /// Nothing is configured.
    Unconfigured,
    /// Fingerprints are pinned, and this is none of them.
    Unpinned(Vec<String>),
    /// `known_hosts` has no line for this host.
    Unlisted,
    /// `known_hosts` has other keys for this host.
    Changed(Vec<String>),
    /// `known_hosts` revokes it.
    Revoked,
    /// An authority of this host signed it, and the certificate does not hold.
    Certificate(String),
}

impl Distrust {
    /// For a person: what was configured, what was shown, how to mend it.
    pub(crate) fn message(&self, host: &str, shown: &ShownKey) -> String {
        let ShownKey {
            algorithm,
            fingerprint,
            ..
        } = shown;
        let shows = format!("{host} shows the {algorithm} host key {fingerprint}");
        match self {
            Distrust::Unconfigured => format!(
                "no host key is configured for {host}, which shows the {algorithm} key {fingerprint}; compare it with the server's own and pin it in hostKeys.fingerprints"
            ),
            Distrust::Unpinned(pins) => format!(
                "{shows}, which is none of the pinned ({}); either this is another machine, or its key was changed and the pin must be",
                pins.join(", ")
            ),
            Distrust::Unlisted => format!(
                "{shows}, and hostKeys.knownHosts has no line for this host; compare the key with the server's own and add one (`[host]:port` where the port is not 22)"
            ),
            Distrust::Changed(known) => format!(
                "the host key of {host} has changed: it shows the {algorithm} key {fingerprint}, hostKeys.knownHosts has {}; nothing was sent. If the change is meant, replace the line",
                known.join(", ")
            ),
            Distrust::Revoked => {
                format!("{shows}, which hostKeys.knownHosts marks @revoked; nothing was sent")
            }
            Distrust::Certificate(why) => {
                format!("{shows} in a certificate that does not hold: {why}")
            }
        }
    }
}

impl HostTrust {
    pub(crate) fn none() -> HostTrust {
        HostTrust {
            fingerprints: Vec::new(),
            known_hosts: KnownHosts::default(),
            text: String::new(),
        }
    }

    /// Reads a policy; violations are (key below `hostKeys`, message).
    pub(crate) fn new(
        fingerprints: Vec<String>,
        text: String,
    ) -> Result<HostTrust, Vec<(String, String)>> {
        let mut wrong = Vec::new();
        let mut pins = Vec::new();
        for (i, print) in fingerprints.into_iter().enumerate() {
            match normal(&print) {
                Some(pin) => pins.push(pin),
                None => wrong.push((
                    format!("fingerprints/{i}"),
                    "a fingerprint is SHA256: and 43 characters of base64, as `ssh-keygen -lf` prints it".to_owned(),
                )),
            }
        }
        let known_hosts = match KnownHosts::parse(&text) {
            Ok(known) => known,
            Err(message) => {
                wrong.push(("knownHosts".into(), message));
                KnownHosts::default()
            }
        };
        if wrong.is_empty() {
            Ok(HostTrust {
                fingerprints: pins,
                known_hosts,
                text,
            })
        } else {
            Err(wrong)
        }
    }

    pub(crate) fn fingerprints(&self) -> &[String] {
        &self.fingerprints
    }

    pub(crate) fn known_hosts_text(&self) -> &str {
        &self.text
    }

    /// Whether to ask the server for a certificate at all.
    pub(crate) fn wants_certificates(&self, host: &str, port: u16) -> bool {
        self.known_hosts
            .matching(host, port)
            .any(|l| l.marker == Marker::Authority)
    }

    /// The algorithms to ask for, those of known keys first, so that a server with several shows one that is known.
    pub(crate) fn preference(&self, host: &str, port: u16) -> Vec<Algorithm> {
        let known: Vec<Algorithm> = self
            .known_hosts
            .matching(host, port)
            .filter(|l| l.marker == Marker::None)
            .map(|l| l.key.algorithm())
            .collect();
        let is_known = |a: &Algorithm| match a {
            Algorithm::Rsa { .. } => known.iter().any(|k| matches!(k, Algorithm::Rsa { .. })),
            a => known.contains(a),
        };
        let (mut first, rest): (Vec<Algorithm>, Vec<Algorithm>) =
            algorithms().into_iter().partition(is_known);
        first.extend(rest);
        first
    }

    /// Decides about what a server proved to hold.
    pub(crate) fn judge(
        &self,
        host: &str,
        port: u16,
        shown: &PublicKeyOrCertificate,
        now: u64,
    ) -> Result<(), Distrust> {
        let key = shown.public_key();
        let revoked = |k: &russh::keys::ssh_key::public::KeyData| {
            self.known_hosts
                .matching(host, port)
                .any(|l| l.marker == Marker::Revoked && l.key.key_data() == k)
        };
        if revoked(key.key_data()) {
            return Err(Distrust::Revoked);
        }
        if let Some(cert) = shown.certificate() {
            if revoked(cert.signature_key()) {
                return Err(Distrust::Revoked);
            }
            let authority = self
                .known_hosts
                .matching(host, port)
                .any(|l| l.marker == Marker::Authority && l.key.key_data() == cert.signature_key());
            if authority {
                return certificate::holds(cert, host, now).map_err(Distrust::Certificate);
            }
            // Signed by nobody that is known here: the key in it may still be known itself.
        }
        let print = key.fingerprint(HashAlg::Sha256).to_string();
        if self.fingerprints.contains(&print) {
            return Ok(());
        }
        let known: Vec<&PublicKey> = self
            .known_hosts
            .matching(host, port)
            .filter(|l| l.marker == Marker::None)
            .map(|l| &l.key)
            .collect();
        if known.iter().any(|k| k.key_data() == key.key_data()) {
            return Ok(());
        }
        let prints = |keys: &[&PublicKey]| {
            keys.iter()
                .map(|k| k.fingerprint(HashAlg::Sha256).to_string())
                .collect()
        };
        Err(if !known.is_empty() {
            Distrust::Changed(prints(&known))
        } else if !self.fingerprints.is_empty() {
            Distrust::Unpinned(self.fingerprints.clone())
        } else if self.known_hosts.is_empty() {
            Distrust::Unconfigured
        } else {
            Distrust::Unlisted
        })
    }
}

/// Host key algorithms in our order; SHA-1 signatures (`ssh-rsa`) are not among them.
pub(crate) fn algorithms() -> Vec<Algorithm> {
    vec![
        Algorithm::Ed25519,
        Algorithm::Ecdsa {
            curve: EcdsaCurve::NistP256,
        },
        Algorithm::Ecdsa {
            curve: EcdsaCurve::NistP384,
        },
        Algorithm::Ecdsa {
            curve: EcdsaCurve::NistP521,
        },
        Algorithm::Rsa {
            hash: Some(HashAlg::Sha512),
        },
        Algorithm::Rsa {
            hash: Some(HashAlg::Sha256),
        },
    ]
}

/// `SHA256:` and unpadded base64 of 32 bytes.
fn normal(print: &str) -> Option<String> {
    use base64::Engine;
    let body = print.strip_prefix("SHA256:")?.trim_end_matches('=');
    let bytes = base64::engine::general_purpose::STANDARD_NO_PAD
        .decode(body)
        .ok()?;
    (bytes.len() == 32).then(|| format!("SHA256:{body}"))
}

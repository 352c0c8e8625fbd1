//! A resolved `ssh-target`: where, as whom, with which key, trusting which host keys, through which hops.
//!
//! Built from the configuration's field after the server has put the secrets in. It never reaches a
//! component: what a component may know is [`SshTarget::reduced`].

mod config;
mod key;

use std::sync::{Arc, OnceLock};

use leasehold_contract::{Code, Error, FieldViolation};
use russh::keys::{Certificate, PrivateKey};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::secret::Secret;
use crate::trust::HostTrust;

/// The most hops before the target.
pub const MAX_JUMPS: usize = 4;

/// One host of the way: the target itself, or a jump before it.
pub(crate) struct Hop {
    pub(crate) host: String,
    pub(crate) port: u16,
    pub(crate) username: String,
    pub(crate) private_key: Secret,
    pub(crate) passphrase: Option<Secret>,
    pub(crate) certificate: Option<String>,
    pub(crate) trust: Arc<HostTrust>,
    /// The key once it was decrypted: `bcrypt` takes a tenth of a second.
    pub(crate) opened: OnceLock<Arc<Identity>>,
}

/// What the host proves itself with.
pub(crate) struct Identity {
    pub(crate) key: Arc<PrivateKey>,
    pub(crate) certificate: Option<Certificate>,
}

/// A key before it is opened.
pub(crate) struct Locked {
    private_key: Secret,
    passphrase: Option<Secret>,
    certificate: Option<String>,
}

impl Locked {
    /// Decrypts and reads it; takes a tenth of a second of CPU where it is encrypted.
    pub(crate) fn open(&self) -> Result<Identity, FieldViolation> {
        key::open(
            &self.private_key,
            self.passphrase.as_ref(),
            self.certificate.as_deref(),
        )
    }
}

impl Hop {
    /// `user@host:port`, as every message names it.
    pub(crate) fn name(&self) -> String {
        format!("{}@{}", self.username, self.address())
    }

    /// `host:port`, IPv6 in brackets.
    pub(crate) fn address(&self) -> String {
        if self.host.contains(':') {
            format!("[{}]:{}", self.host, self.port)
        } else {
            format!("{}:{}", self.host, self.port)
        }
    }

    /// The key and certificate, decrypted at most once; blocks while it does.
    pub(crate) fn identity(&self) -> Result<Arc<Identity>, Error> {
        match self.opened.get() {
            Some(open) => Ok(open.clone()),
            None => self.keep(self.locked().open()),
        }
    }

    /// What opens the key on another thread.
    pub(crate) fn locked(&self) -> Locked {
        Locked {
            private_key: self.private_key.clone(),
            passphrase: self.passphrase.clone(),
            certificate: self.certificate.clone(),
        }
    }

    /// Keeps what [`Locked::open`] gave.
    pub(crate) fn keep(
        &self,
        opened: Result<Identity, FieldViolation>,
    ) -> Result<Arc<Identity>, Error> {
        match opened {
            Ok(identity) => Ok(self.opened.get_or_init(|| Arc::new(identity)).clone()),
            Err(v) => {
                let text = format!("the key for {} cannot be used: {}", self.name(), v.message);
                let mut error = Error::new(Code::InvalidConfig, text);
                error.violations = Some(vec![v]);
                Err(error)
            }
        }
    }

    fn digest(&self, hash: &mut Sha256) {
        let mut part = |bytes: &[u8]| {
            hash.update((bytes.len() as u64).to_be_bytes());
            hash.update(bytes);
        };
        part(self.host.as_bytes());
        part(&self.port.to_be_bytes());
        part(self.username.as_bytes());
        part(self.private_key.expose().as_bytes());
        part(
            self.passphrase
                .as_ref()
                .map_or(&b""[..], |p| p.expose().as_bytes()),
        );
        part(self.certificate.as_deref().unwrap_or("").as_bytes());
        for print in self.trust.fingerprints() {
            part(print.as_bytes());
        }
        part(self.trust.known_hosts_text().as_bytes());
    }
}

/// A target as egress uses it. `Debug` shows nothing secret.
pub struct SshTarget {
    /// Jumps in the order they are passed, the target last; never empty.
    pub(crate) hops: Vec<Hop>,
}

impl SshTarget {
    /// Reads the resolved value of an `ssh-target` field.
    ///
    /// ```json
    /// { "host": "10.0.0.5", "port": 22, "username": "ci", "privateKey": "-----BEGIN …",
    ///   "passphrase": "…", "certificate": "ssh-ed25519-cert-v01@openssh.com …",
    ///   "hostKeys": { "fingerprints": ["SHA256:…"], "knownHosts": "" }, "jump": [] }
    /// ```
    ///
    /// `port` is 22 unless said; `passphrase`, `certificate`, `hostKeys` and `jump` may be left out; each of `jump` has
    /// the same shape without a `jump` of its own. Unknown keys are violations.
    ///
    /// # Errors
    /// Every violation at once, by pointers relative to the field. Keys are only looked at, not decrypted:
    /// see [`SshTarget::check_keys`].
    pub fn from_config(value: &Value) -> Result<SshTarget, Vec<FieldViolation>> {
        config::read(value)
    }

    /// Decrypts and reads the private keys and certificates: what to call before such a value is saved. It
    /// takes a tenth of a second of CPU for an encrypted key, and the result is kept.
    ///
    /// # Errors
    /// Every key that cannot be used, by pointers relative to the field.
    pub fn check_keys(&self) -> Result<(), Vec<FieldViolation>> {
        let last = self.hops.len().saturating_sub(1);
        let mut wrong = Vec::new();
        for (i, hop) in self.hops.iter().enumerate() {
            if let Err(e) = hop.identity() {
                for mut v in e.violations.unwrap_or_default() {
                    if i < last {
                        v.pointer = format!("/jump/{i}{}", v.pointer);
                    }
                    wrong.push(v);
                }
            }
        }
        if wrong.is_empty() { Ok(()) } else { Err(wrong) }
    }

    pub(crate) fn last(&self) -> &Hop {
        // `hops` is never empty: `config::read` pushes the target last.
        &self.hops[self.hops.len() - 1]
    }

    /// `user@host:port` as resolved: what one lease at a time (`exclusive-target`) is counted by, and how messages name it.
    pub fn identity(&self) -> String {
        self.last().name()
    }

    /// Whose account it is, for counting: user, address, port. The address is what the name resolves to here, the least
    /// of several, so that two names of one machine count as one; a name behind a jump, or one that does not resolve,
    /// counts as it is written.
    pub async fn account(&self) -> String {
        let last = self.last();
        if self.hops.len() > 1 {
            return format!("{} via {}", self.identity(), self.hops[0].address());
        }
        let least = match tokio::net::lookup_host((last.host.as_str(), last.port)).await {
            Ok(found) => found.map(|address| address.ip().to_canonical()).min(),
            Err(_) => None,
        };
        match least {
            Some(ip) => format!("{}@{ip}:{}", last.username, last.port),
            None => self.identity(),
        }
    }

    /// What a component may know: `host`, `port` and `username`, of the jumps too.
    pub fn reduced(&self) -> Value {
        let plain = |h: &Hop| json!({ "host": h.host, "port": h.port, "username": h.username });
        let mut value = plain(self.last());
        let jumps: Vec<Value> = self.hops[..self.hops.len() - 1].iter().map(plain).collect();
        value["jump"] = Value::Array(jumps);
        value
    }

    /// A digest over everything that makes a connection this one: addresses, users, keys, trust, jumps. Hex.
    pub fn fingerprint(&self) -> String {
        let mut hash = Sha256::new();
        for hop in &self.hops {
            hop.digest(&mut hash);
        }
        crate::hex(&hash.finalize())
    }

    /// The secret texts in it, for redaction: keys line by line, and passphrases.
    pub fn secrets(&self) -> Vec<String> {
        let mut all = Vec::new();
        for hop in &self.hops {
            if let Some(p) = &hop.passphrase {
                all.push(p.expose().clone());
            }
            let body = hop.private_key.expose().lines().map(str::trim);
            all.extend(
                body.filter(|l| l.len() >= 8 && !l.starts_with("-----"))
                    .map(str::to_owned),
            );
        }
        all
    }
}

impl std::fmt::Debug for SshTarget {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names: Vec<String> = self.hops.iter().map(Hop::name).collect();
        write!(f, "SshTarget({})", names.join(" → "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn account(host: &str) -> String {
        let target = SshTarget::from_config(&json!({
            "host": host, "port": 22, "username": "ci",
            "privateKey": "-----BEGIN OPENSSH PRIVATE KEY-----",
        }))
        .unwrap();
        target.account().await
    }

    #[tokio::test]
    async fn every_spelling_of_one_address_is_one_account() {
        assert_eq!(
            account("127.0.0.1").await,
            account("::ffff:127.0.0.1").await
        );
        assert_ne!(account("127.0.0.1").await, account("127.0.0.2").await);
    }
}

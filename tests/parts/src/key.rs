//! Keys and certificates, made by `ssh-keygen` as people make them.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

/// Type of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Ed25519.
    Ed25519,
    /// ECDSA on NIST P-256.
    Ecdsa256,
    /// ECDSA on NIST P-384.
    Ecdsa384,
    /// ECDSA on NIST P-521.
    Ecdsa521,
    /// RSA of 2048 bits.
    Rsa,
}

impl Kind {
    fn arguments(self) -> [&'static str; 4] {
        match self {
            Kind::Ed25519 => ["-t", "ed25519", "-b", "256"],
            Kind::Ecdsa256 => ["-t", "ecdsa", "-b", "256"],
            Kind::Ecdsa384 => ["-t", "ecdsa", "-b", "384"],
            Kind::Ecdsa521 => ["-t", "ecdsa", "-b", "521"],
            Kind::Rsa => ["-t", "rsa", "-b", "2048"],
        }
    }
}

/// How the private half is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// OpenSSH's own.
    OpenSsh,
    /// PKCS#8.
    Pkcs8,
    /// The older PEM (PKCS#1, SEC1).
    Pem,
}

/// Both halves as text.
#[derive(Clone, Debug)]
pub struct KeyPair {
    /// The private key's file.
    pub private: String,
    /// The public key's line.
    pub public: String,
    /// `SHA256:…`.
    pub fingerprint: String,
}

pub(crate) fn keygen(arguments: &[&str]) -> Result<String> {
    let out = Command::new("ssh-keygen")
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .context("ssh-keygen cannot be run; install openssh-client")?;
    if !out.status.success() {
        bail!(
            "ssh-keygen {}: {}",
            arguments.join(" "),
            String::from_utf8_lossy(&out.stderr)
        );
    }
    Ok(String::from_utf8(out.stdout)?)
}

fn path(p: &Path) -> Result<&str> {
    p.to_str()
        .context("the temporary directory's name is not UTF-8")
}

impl KeyPair {
    /// Makes a pair; `passphrase` encrypts the private half.
    ///
    /// # Errors
    /// When `ssh-keygen` is missing or refuses.
    pub fn generate(kind: Kind, format: Format, passphrase: &str) -> Result<KeyPair> {
        let dir = tempfile::tempdir()?;
        let file = dir.path().join("key");
        let mut arguments = vec!["-q", "-N", passphrase, "-C", "test", "-f", path(&file)?];
        arguments.extend(kind.arguments());
        match format {
            Format::OpenSsh => {}
            Format::Pkcs8 => arguments.extend(["-m", "PKCS8"]),
            Format::Pem => arguments.extend(["-m", "PEM"]),
        }
        keygen(&arguments)?;
        KeyPair::read(&file)
    }

    pub(crate) fn read(file: &Path) -> Result<KeyPair> {
        let public_file = file.with_extension("pub");
        let printed = keygen(&["-l", "-E", "sha256", "-f", path(&public_file)?])?;
        let fingerprint = printed.split(' ').nth(1).unwrap_or_default().to_owned();
        Ok(KeyPair {
            private: std::fs::read_to_string(file)?,
            public: std::fs::read_to_string(&public_file)?.trim().to_owned(),
            fingerprint,
        })
    }

    /// Signs the public key `of` as a certificate: `arguments` are ssh-keygen's (`-I id`, `-n principals`, `-V validity`,
    /// `-h` for a host). Gives the certificate's line. This pair is the authority and must not be encrypted.
    ///
    /// # Errors
    /// When `ssh-keygen` refuses.
    pub fn sign(&self, of: &str, arguments: &[&str]) -> Result<String> {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir()?;
        let (authority, subject) = (dir.path().join("ca"), dir.path().join("subject.pub"));
        std::fs::write(&authority, &self.private)?;
        std::fs::set_permissions(&authority, std::fs::Permissions::from_mode(0o600))?;
        std::fs::write(&subject, format!("{of}\n"))?;
        let mut all = vec!["-q", "-s", path(&authority)?];
        all.extend(arguments);
        all.push(path(&subject)?);
        keygen(&all)?;
        let line = std::fs::read_to_string(dir.path().join("subject-cert.pub"))?;
        Ok(line.trim().to_owned())
    }
}

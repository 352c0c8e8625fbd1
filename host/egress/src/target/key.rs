//! Opens a private key and its certificate, and says what is wrong with either in words that mend it.

use std::sync::Arc;

use leasehold_contract::FieldViolation;
use russh::keys::ssh_key::certificate::CertType;
use russh::keys::{Algorithm, Certificate, Error as KeyError, decode_secret_key};

use super::Identity;
use crate::secret::Secret;

fn violation(pointer: &str, message: impl Into<String>) -> FieldViolation {
    FieldViolation {
        pointer: pointer.into(),
        message: message.into(),
    }
}

pub(super) fn open(
    private_key: &Secret,
    passphrase: Option<&Secret>,
    certificate: Option<&str>,
) -> Result<Identity, FieldViolation> {
    let text = private_key.expose();
    let encrypted = text.contains("ENCRYPTED") || is_encrypted_openssh(text);
    if encrypted && passphrase.is_none() {
        return Err(violation(
            "/passphrase",
            "privateKey is encrypted and there is no passphrase; give it, or a key without one",
        ));
    }
    let phrase = passphrase
        .filter(|_| encrypted)
        .map(|p| p.expose().as_str());
    let key = decode_secret_key(text, phrase).map_err(|e| match e {
        // A wrong passphrase shows as garbage wherever the format first notices.
        _ if encrypted => violation(
            "/passphrase",
            "the passphrase does not open privateKey; give the one it was encrypted with",
        ),
        KeyError::UnsupportedKeyType { .. } | KeyError::UnknownAlgorithm(_) => violation(
            "/privateKey",
            "privateKey is of a type that is not used here; give an Ed25519, ECDSA or RSA key",
        ),
        _ => violation(
            "/privateKey",
            "privateKey cannot be read; give the whole text of an OpenSSH, PKCS#8 or PEM key, every line of it",
        ),
    })?;
    if matches!(key.algorithm(), Algorithm::Dsa) {
        return Err(violation(
            "/privateKey",
            "privateKey is a DSA key, which servers no longer accept; give an Ed25519, ECDSA or RSA key",
        ));
    }
    let certificate = match certificate {
        None => None,
        Some(text) => {
            let cert = Certificate::from_openssh(text.trim()).map_err(|_| {
                violation(
                    "/certificate",
                    "certificate cannot be read; give the one line of a -cert.pub file",
                )
            })?;
            if cert.cert_type() != CertType::User {
                return Err(violation(
                    "/certificate",
                    "certificate is a host certificate; give a user certificate",
                ));
            }
            if cert.public_key() != key.public_key().key_data() {
                return Err(violation(
                    "/certificate",
                    "certificate is for another key than privateKey; give the pair",
                ));
            }
            Some(cert)
        }
    };
    Ok(Identity {
        key: Arc::new(key),
        certificate,
    })
}

/// An OpenSSH key names its cipher in the clear, right after the magic.
fn is_encrypted_openssh(text: &str) -> bool {
    use base64::Engine;
    if !text.contains("-----BEGIN OPENSSH PRIVATE KEY-----") {
        return false;
    }
    let body: String = text
        .lines()
        .filter(|l| !l.starts_with("-----"))
        .flat_map(|l| l.trim().chars())
        .take(64)
        .collect();
    let whole = body.len() - body.len() % 4;
    let Ok(bytes) = base64::engine::general_purpose::STANDARD.decode(&body[..whole]) else {
        return false;
    };
    const MAGIC: &[u8] = b"openssh-key-v1\0";
    bytes
        .strip_prefix(MAGIC)
        .is_some_and(|rest| !rest.starts_with(b"\0\0\0\x04none"))
}

//! Whether a component is signed as it must be.
//!
//! Pure: bytes, keys and signatures in, a verdict out. The format is cosign's with a key pair: ECDSA over P-256 with
//! SHA-256, public keys in PEM, signatures in DER and base64. Of what was sent, the component's bytes are signed
//! (`cosign sign-blob`); in a registry a payload that names the manifest by its digest (`cosign sign`), and the manifest
//! names the component. Invariant: a [`Signed`] is made here alone, of bytes that one of the keys signed.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use p256::ecdsa::signature::Verifier as _;
use p256::ecdsa::{Signature, VerifyingKey};
use p256::pkcs8::DecodePublicKey as _;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::hex;

/// The longest signature, in base64: DER of P-256 has 72 bytes at most.
const LONGEST: usize = 1024;
/// What a payload says that it is.
const TYPE: &str = "cosign container image signature";

/// A public key with the name that it is shown by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SigningKey {
    name: String,
    key: VerifyingKey,
}

/// A key that is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "is no public key of ECDSA P-256 in PEM; `cosign generate-key-pair` writes one to cosign.pub, which begins with -----BEGIN PUBLIC KEY-----"
)]
pub struct NoKey;

impl SigningKey {
    /// Reads a public key in PEM (`SubjectPublicKeyInfo`, RFC 5480).
    ///
    /// # Errors
    /// What it is not.
    pub fn read(name: &str, pem: &str) -> Result<SigningKey, NoKey> {
        let key = VerifyingKey::from_public_key_pem(pem.trim()).map_err(|_| NoKey)?;
        Ok(SigningKey {
            name: name.to_owned(),
            key,
        })
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }
}

/// What is asked of what comes from one place.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum SignaturePolicy {
    /// Nothing.
    #[default]
    Anyone,
    /// A signature by one of these.
    SignedBy(Vec<SigningKey>),
}

/// Whose signature over what was verified.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Signed {
    key: String,
    digest: String,
}

impl Signed {
    /// The key's name.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// `sha256:…` of what was signed: the component, or its manifest.
    pub fn digest(&self) -> &str {
        &self.digest
    }
}

/// A signature that lies beside a manifest.
#[derive(Clone, Copy, Debug)]
pub struct Beside<'a> {
    /// What was signed.
    pub payload: &'a [u8],
    /// The signature, in base64.
    pub signature: &'a str,
}

/// Why a component is not taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unsigned {
    /// There is no signature at all.
    #[error("it is not signed, and must be by {0}")]
    Missing(String),
    /// What lies where the signature should is none.
    #[error(
        "what was given as its signature is none: that is base64 of the DER that `cosign sign-blob` writes, or \
         `openssl dgst -sha256 -sign … | base64`"
    )]
    NotOne,
    /// None of the keys made a signature that is there.
    #[error(
        "none of its signatures is by {0}: another key made them, or what was signed was changed"
    )]
    Stranger(String),
    /// A key that counts signed something else.
    #[error(
        "{key} signed {signed}, and this is {digest}: the signature belongs to another version"
    )]
    OtherDigest {
        /// The key's name.
        key: String,
        /// What was signed.
        signed: String,
        /// What this is.
        digest: String,
    },
    /// A key that counts signed it for another place.
    #[error("{key} signed it as {signed}, and this is {place}: it was moved here from there")]
    OtherPlace {
        /// The key's name.
        key: String,
        /// The place that was signed.
        signed: String,
        /// Where this lies.
        place: String,
    },
    /// A key that counts signed something of another kind.
    #[error("{0} signed something that is not a payload of cosign for a manifest")]
    OtherKind(String),
}

#[derive(Deserialize)]
struct Payload {
    critical: Critical,
}

#[derive(Deserialize)]
struct Critical {
    #[serde(default)]
    identity: Identity,
    image: Image,
    #[serde(rename = "type")]
    kind: String,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Identity {
    #[serde(default)]
    docker_reference: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Image {
    docker_manifest_digest: String,
}

impl SignaturePolicy {
    /// Whether there is anything to ask for.
    pub fn asks(&self) -> bool {
        matches!(self, SignaturePolicy::SignedBy(_))
    }

    /// Looks at a component that was sent, and the signature that was sent with it. Where nothing is asked for nothing is
    /// looked at, so that no signature is shown that nobody checked.
    ///
    /// # Errors
    /// It is not signed by a key that counts.
    pub fn sent(
        &self,
        component: &[u8],
        signature: Option<&str>,
    ) -> Result<Option<Signed>, Unsigned> {
        let SignaturePolicy::SignedBy(keys) = self else {
            return Ok(None);
        };
        let signature = signature.ok_or_else(|| Unsigned::Missing(names(keys)))?;
        match signer(keys, component, &read(signature)?) {
            Some(key) => Ok(Some(Signed {
                key: key.name.clone(),
                digest: format!("sha256:{}", hex(&Sha256::digest(component))),
            })),
            None => Err(Unsigned::Stranger(names(keys))),
        }
    }

    /// Looks at a manifest in a registry: its digest (`sha256:…`), its place (`registry/repository`), and the signatures
    /// that lie beside it. One that is good is enough.
    ///
    /// # Errors
    /// None is; of those by keys that count, what is wrong with the first.
    pub fn pulled(
        &self,
        digest: &str,
        place: &str,
        beside: &[Beside<'_>],
    ) -> Result<Option<Signed>, Unsigned> {
        let SignaturePolicy::SignedBy(keys) = self else {
            return Ok(None);
        };
        let mut nearest = None;
        for one in beside {
            // One that is none hides no good one beside it.
            let signature = match read(one.signature) {
                Ok(signature) => signature,
                Err(why) => {
                    nearest = nearest.or(Some(why));
                    continue;
                }
            };
            let Some(key) = signer(keys, one.payload, &signature) else {
                continue;
            };
            match names_it(key, one.payload, digest, place) {
                Ok(()) => {
                    return Ok(Some(Signed {
                        key: key.name.clone(),
                        digest: digest.to_owned(),
                    }));
                }
                Err(why) => nearest = nearest.or(Some(why)),
            }
        }
        Err(match nearest {
            Some(why) => why,
            None if beside.is_empty() => Unsigned::Missing(names(keys)),
            None => Unsigned::Stranger(names(keys)),
        })
    }
}

/// A signature in its one spelling, base64 on one line, of one as it is written; whose it is is not looked at.
///
/// # Errors
/// It is none.
pub fn spelled(signature: &str) -> Result<String, Unsigned> {
    read(signature).map(|signature| STANDARD.encode(signature.to_der()))
}

/// A signature as it is written: base64, wrapped in lines or not.
fn read(signature: &str) -> Result<Signature, Unsigned> {
    if signature.len() > LONGEST {
        return Err(Unsigned::NotOne);
    }
    let text: String = signature.split_ascii_whitespace().collect();
    let der = STANDARD.decode(text).map_err(|_| Unsigned::NotOne)?;
    Signature::from_der(&der).map_err(|_| Unsigned::NotOne)
}

/// The key that made this signature, if one of these did.
fn signer<'k>(
    keys: &'k [SigningKey],
    signed: &[u8],
    signature: &Signature,
) -> Option<&'k SigningKey> {
    keys.iter()
        .find(|key| key.key.verify(signed, signature).is_ok())
}

/// Whether a payload that was signed names this manifest in this place.
fn names_it(key: &SigningKey, payload: &[u8], digest: &str, place: &str) -> Result<(), Unsigned> {
    let name = || key.name.clone();
    let Ok(Payload { critical }) = serde_json::from_slice(payload) else {
        return Err(Unsigned::OtherKind(name()));
    };
    if critical.kind != TYPE {
        return Err(Unsigned::OtherKind(name()));
    }
    let signed = critical.image.docker_manifest_digest;
    if signed != digest {
        return Err(Unsigned::OtherDigest {
            key: name(),
            signed: shown(&signed),
            digest: digest.to_owned(),
        });
    }
    // Signers may leave the place out; where they name one, with a tag or without, it must be this.
    let signed = critical.identity.docker_reference;
    let here = |rest: &str| rest.is_empty() || rest.starts_with([':', '@']);
    if !signed.is_empty() && !signed.strip_prefix(place).is_some_and(here) {
        return Err(Unsigned::OtherPlace {
            key: name(),
            signed: shown(&signed),
            place: place.to_owned(),
        });
    }
    Ok(())
}

/// Text of a payload for a message: bounded, without control characters.
fn shown(text: &str) -> String {
    text.chars()
        .take(200)
        .map(|c| if c.is_control() { '\u{fffd}' } else { c })
        .collect()
}

fn names(keys: &[SigningKey]) -> String {
    let all: Vec<&str> = keys.iter().map(SigningKey::name).collect();
    format!("the key {}", all.join(" or "))
}

#[cfg(test)]
#[path = "signature_tests.rs"]
mod tests;

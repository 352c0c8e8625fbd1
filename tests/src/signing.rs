//! A key pair of the format that cosign has, and what it signs.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use p256::ecdsa::signature::Signer as _;
use p256::ecdsa::{Signature, SigningKey};
use p256::elliptic_curve::Generate as _;
use p256::pkcs8::{EncodePublicKey as _, LineEnding};

/// A key pair of ECDSA P-256.
pub struct KeyPair(SigningKey);

impl std::fmt::Debug for KeyPair {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("KeyPair")
    }
}

impl KeyPair {
    /// A new one.
    pub fn generate() -> KeyPair {
        KeyPair(SigningKey::generate())
    }

    /// The public key, in PEM.
    ///
    /// # Panics
    /// Never: a key that was generated can be written.
    pub fn public(&self) -> String {
        let key = self.0.verifying_key();
        key.to_public_key_pem(LineEnding::LF).expect("PEM")
    }

    /// A signature over these bytes: DER, in base64, as `cosign sign-blob` writes it.
    pub fn sign(&self, bytes: &[u8]) -> String {
        let signature: Signature = self.0.sign(bytes);
        STANDARD.encode(signature.to_der())
    }
}

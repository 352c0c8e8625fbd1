//! Keys: one master key in a file, and a subkey for each purpose.
//!
//! The master key never leaves [`master`] but to derive; subkeys are HKDF-SHA256 of it, salted with the
//! database's own salt, so that a row or a token of one database means nothing in another. Every subkey is
//! wiped when the authority goes.

mod mac;
mod master;

use hkdf::Hkdf;
use sha2::Sha256;
use zeroize::Zeroizing;

pub(crate) use mac::{Mac, same};
pub use master::MasterKeyError;
pub(crate) use master::{MasterKey, default_path};

/// A derived key.
pub(crate) type Key = Zeroizing<[u8; 32]>;

/// The subkeys, by purpose.
pub(crate) struct Keys {
    /// Proves that the master key belongs to this database, and authenticates its instance row.
    pub instance: Key,
    /// Hashes of bearer tokens, and their rows.
    pub tokens: Key,
    /// Plugins' grants.
    pub grants: Key,
    /// Installed digests, manifests, request fingerprints.
    pub digests: Key,
    /// Wraps the data keys of secrets.
    pub secrets: Key,
    /// Environments' rows and the intents of leases: where a credential goes.
    pub targets: Key,
    /// The activity chain.
    pub activity: Key,
    /// Owner labels on what leases create.
    pub owner: Key,
    /// The runtime's cache of compiled components.
    pub aot: Key,
}

impl Keys {
    /// All subkeys of `master` for the database with this salt.
    pub fn derive(master: &MasterKey, salt: &[u8]) -> Keys {
        let kdf = Hkdf::<Sha256>::new(Some(salt), master.bytes());
        let key = |purpose: &str| {
            let mut key = Zeroizing::new([0u8; 32]);
            // 32 bytes are far below HKDF's limit of 255 blocks, the only error there is.
            let expanded = kdf.expand(format!("leasehold/1/{purpose}").as_bytes(), &mut key[..]);
            debug_assert!(expanded.is_ok());
            key
        };
        Keys {
            instance: key("instance"),
            tokens: key("tokens"),
            grants: key("grants"),
            digests: key("digests"),
            secrets: key("secrets-kek"),
            targets: key("targets"),
            activity: key("activity"),
            owner: key("owner-label"),
            aot: key("aot-cache"),
        }
    }
}

impl std::fmt::Debug for Keys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Keys")
    }
}

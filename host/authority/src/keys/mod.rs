//! Keys: one master key in a file, and a subkey for each purpose.
//!
//! The master key never leaves [`master`] but to derive; subkeys are HKDF-SHA256 of it, salted with the
//! database's own salt, so that a row or a token of one database means nothing in another. Every subkey is
//! wiped when the authority goes.
//!
//! Three subkeys make what stands outside the database or cannot be made again: hashes of bearer tokens, digests of
//! requests, owner labels on targets. They are carried over to another master key, sealed; every other is derived anew.

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
    /// Seals the subkeys that are carried over.
    pub carry: Key,
    /// Rows of bearer tokens.
    pub tokens: Key,
    /// Hashes of bearer tokens. Carried over.
    pub bearers: Key,
    /// Plugins' grants.
    pub grants: Key,
    /// Installed digests and manifests.
    pub digests: Key,
    /// Digests of requests, for idempotency and for the labels of leases. Carried over.
    pub requests: Key,
    /// Wraps the data keys of secrets.
    pub secrets: Key,
    /// Environments' rows and the intents of leases: where a credential goes.
    pub targets: Key,
    /// The activity chain.
    pub activity: Key,
    /// Owner labels on what leases create. Carried over.
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
            carry: key("carry"),
            tokens: key("tokens"),
            bearers: key("bearers"),
            grants: key("grants"),
            digests: key("digests"),
            requests: key("requests"),
            secrets: key("secrets-kek"),
            targets: key("targets"),
            activity: key("activity"),
            owner: key("owner-label"),
            aot: key("aot-cache"),
        }
    }

    /// The subkeys that another master key takes over.
    pub fn carried(&self) -> Zeroizing<Vec<u8>> {
        let mut all = Zeroizing::new(Vec::with_capacity(96));
        for key in [&self.bearers, &self.requests, &self.owner] {
            all.extend_from_slice(&key[..]);
        }
        all
    }

    /// Takes over what [`Keys::carried`] gave; false where it is something else.
    pub fn take_over(&mut self, carried: &[u8]) -> bool {
        if carried.len() != 96 {
            return false;
        }
        let keys = [&mut self.bearers, &mut self.requests, &mut self.owner];
        for (key, bytes) in keys.into_iter().zip(carried.chunks_exact(32)) {
            key.copy_from_slice(bytes);
        }
        true
    }
}

impl std::fmt::Debug for Keys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Keys")
    }
}

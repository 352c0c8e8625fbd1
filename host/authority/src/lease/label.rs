//! The labels that stand on everything a lease creates, and the proof that they are ours.
//!
//! The owner label is a MAC over host, incarnation, lease and acquisition: nobody without the master key
//! makes one, and one that was copied names another lease. Values are at most 63 of `A-Za-z0-9._-`.

use leasehold_contract::Label;

use crate::id::base32;
use crate::keys::{Keys, Mac, same};

/// Which host.
pub const HOST: &str = "leasehold-host";
/// Which lease.
pub const LEASE: &str = "leasehold-lease";
/// Which acquisition.
pub const ACQUISITION: &str = "leasehold-acquisition";
/// The proof.
pub const OWNER: &str = "leasehold-owner";
/// Fingerprint of the request.
pub const REQUEST: &str = "leasehold-request";

/// Whose labels they are.
#[derive(Clone, Copy)]
pub(crate) struct Owner<'a> {
    pub host: &'a str,
    pub incarnation: &'a str,
    pub lease: &'a str,
    pub acquisition: &'a str,
}

impl Owner<'_> {
    /// The owner label's value: 52 characters.
    pub fn label(&self, keys: &Keys) -> String {
        base32(
            &Mac::new(&keys.owner, "owner")
                .text(self.host)
                .text(self.incarnation)
                .text(self.lease)
                .text(self.acquisition)
                .done(),
        )
    }

    /// All labels of a lease whose request has this fingerprint.
    pub fn labels(&self, keys: &Keys, fingerprint: &str) -> Vec<Label> {
        let owner = self.label(keys);
        [
            (HOST, self.host),
            (LEASE, self.lease),
            (ACQUISITION, self.acquisition),
            (OWNER, &owner),
            (REQUEST, fingerprint),
        ]
        .into_iter()
        .map(|(key, value)| Label {
            key: key.to_owned(),
            value: value.to_owned(),
        })
        .collect()
    }

    /// Whether `value` is this lease's owner label.
    pub fn owns(&self, keys: &Keys, value: &str) -> bool {
        same(self.label(keys).as_bytes(), value.as_bytes())
    }
}

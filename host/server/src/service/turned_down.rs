//! Components that are not let in, told to the activity: whoever looks for how somebody tried finds it there.
//!
//! What counts is what this server's rules refuse (where a component may come from, who must have signed it, what a
//! registry leads to, what was granted), not what a registry does not have or does not give. Noting waits for nothing; the
//! authority bounds what is written.

use bytes::Bytes;
use leasehold_authority::{Actor, Entry, Operation};
use leasehold_contract::Code;
use leasehold_egress::{Reference, RegistryFault};
use serde_json::json;
use sha2::{Digest as _, Sha256};

use super::Service;
use super::error::ServiceError;
use super::sources::Offered;

/// The most of a reason that is kept.
const REASON: usize = 300;

/// What is to be let in, as the activity names it.
pub(super) enum Candidate {
    /// A component of a registry.
    Named(Reference),
    /// One that was sent.
    Sent(Bytes),
    /// A plugin that is installed, by its key.
    Installed(String),
    /// Nothing that could be told apart: its name is none.
    Nothing,
}

impl Candidate {
    pub(super) fn of(offered: &Offered) -> Candidate {
        match offered {
            Offered::Named(name) => name.parse().map_or(Candidate::Nothing, Candidate::Named),
            Offered::Sent { component, .. } => Candidate::Sent(component.clone()),
        }
    }
}

/// The rule that refuses; none where it is no rule of this server's.
fn rule(error: &ServiceError) -> Option<&'static str> {
    match error {
        ServiceError::Unsigned { .. } => Some("signature"),
        ServiceError::Refused { code, .. } if *code == "grant_mismatch" => Some("grant"),
        // A name that is read is refused for what the settings say alone.
        ServiceError::Invalid { violations } => violations
            .iter()
            .any(|one| one.pointer == "/reference")
            .then_some("source"),
        ServiceError::Registry(error) => match &error.why {
            RegistryFault::Wire(error) if error.code == Code::PermissionDenied => Some("address"),
            RegistryFault::Wire(error) if error.code == Code::UntrustedPeer => Some("trust"),
            RegistryFault::Realm(_) => Some("realm"),
            RegistryFault::Redirect(_) => Some("redirect"),
            RegistryFault::Digest { .. } | RegistryFault::DigestHeader { .. } => Some("digest"),
            _ => None,
        },
        _ => None,
    }
}

impl Service {
    /// The same result; where a rule refused, it is noted.
    pub(super) fn turned_down<T>(
        &self,
        actor: &Actor,
        operation: Operation,
        candidate: &Candidate,
        result: Result<T, ServiceError>,
    ) -> Result<T, ServiceError> {
        if let Err(error) = &result
            && let Some(rule) = rule(error)
            && let Some(entry) = entry(operation, candidate, rule, error)
        {
            self.authority().activity().deny(actor, entry);
        }
        result
    }
}

fn entry(
    operation: Operation,
    candidate: &Candidate,
    rule: &'static str,
    error: &ServiceError,
) -> Option<Entry> {
    let (action, kind, id) = match candidate {
        Candidate::Named(name) => (
            "registry.denied",
            "registry",
            format!("{}/{}", name.registry(), name.repository()),
        ),
        Candidate::Sent(component) => {
            let digest = Sha256::digest(component);
            let hex = digest.iter().map(|byte| format!("{byte:02x}"));
            ("component.refused", "component", hex.collect())
        }
        Candidate::Installed(key) => ("plugin.refused", "plugin", key.clone()),
        Candidate::Nothing => return None,
    };
    let reason = error.to_string();
    let reason: String = reason
        .chars()
        .filter(|c| !c.is_control())
        .take(REASON)
        .collect();
    let mut details = json!({ "operation": operation.name(), "rule": rule, "reason": reason });
    if let Candidate::Named(name) = candidate {
        let name: String = name.to_string().chars().take(REASON).collect();
        details["reference"] = name.into();
    }
    Some(Entry::new(action, None, kind, &id, details))
}

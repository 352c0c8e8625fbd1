//! Where egress saw a lease's workspace being made: the journal's own word, whatever a provider answered.

use leasehold_authority::Authority;
use leasehold_contract::Thing;
use serde::Deserialize;

use super::error::ServiceError;

/// A directory on a target of the configuration.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub(crate) struct Place {
    /// Pointer of the `ssh-target` field.
    pub(crate) target: String,
    /// The directory that the workspace is in.
    pub(crate) parent: String,
}

impl Place {
    /// Every place of a lease's journal, each once.
    pub(crate) async fn of(authority: &Authority, lease: &str) -> Result<Vec<Place>, ServiceError> {
        let mut places: Vec<Place> = Vec::new();
        for entry in authority.leases().journalled(lease).await? {
            if entry.thing != Thing::Environment {
                continue;
            }
            let place = entry
                .reference
                .as_deref()
                .and_then(|text| serde_json::from_str(text).ok());
            if let Some(place) = place
                && !places.contains(&place)
            {
                places.push(place);
            }
        }
        Ok(places)
    }
}

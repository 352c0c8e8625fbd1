//! Where a component came from, as it is kept with its revision.
//!
//! A record, and nothing that decides later: what was installed stays what it is when a tag moves or a key is taken out
//! of the settings.

use serde::{Deserialize, Serialize};

use super::signature::Signed;

/// Where a component came from, and who signed it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Source {
    /// The place in a registry; none for bytes that were sent.
    pub registry: Option<RegistryPlace>,
    /// Whose signature was verified; none where none was asked for.
    pub signed: Option<Signed>,
}

/// A place in a registry, as it was when the component was pulled.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RegistryPlace {
    /// Host, and port where it has one of its own.
    pub registry: String,
    /// The name in it.
    pub repository: String,
    /// The tag that was asked for; none where a digest alone was.
    pub tag: Option<String>,
    /// `sha256:…` of the manifest that this stood for.
    pub manifest: String,
}

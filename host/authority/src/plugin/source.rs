//! Where a component came from, as it is kept with its revision.
//!
//! A record, and nothing that decides later: what was installed stays what it is when a tag moves or a key is taken out
//! of the settings. The same component can come again, from elsewhere or signed: the newest record stands, but no unsigned
//! one takes the place of one whose signature was verified.

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

impl Source {
    /// Whether the same component, come again from `new`, is said to come from there.
    pub(super) fn gives_way_to(&self, new: &Source) -> bool {
        self != new && (new.signed.is_some() || self.signed.is_none())
    }
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_newest_source_stands_but_none_that_takes_a_verified_signature_away() {
        let source = |tag: Option<&str>, key: Option<&str>| -> Source {
            let place = tag.map(|tag| {
                json!({ "registry": "r.example", "repository": "acme/ssh", "tag": tag, "manifest": "sha256:00" })
            });
            let signed = key.map(|key| json!({ "key": key, "digest": "sha256:00" }));
            serde_json::from_value(json!({ "registry": place, "signed": signed })).unwrap()
        };
        let file = source(None, None);
        let signed = source(None, Some("acme"));
        let pulled = source(Some("1.0"), None);
        let both = source(Some("1.0"), Some("acme"));
        for (kept, new, gives_way) in [
            (&file, &file, false),
            (&file, &pulled, true),
            (&pulled, &file, true),
            (&file, &signed, true),
            (&pulled, &both, true),
            (&signed, &both, true),
            (&both, &signed, true),
            (&both, &source(Some("1.0"), Some("other")), true),
            (&both, &file, false),
            (&both, &source(Some("2.0"), None), false),
        ] {
            assert_eq!(kept.gives_way_to(new), gives_way, "{kept:?} {new:?}");
        }
    }
}

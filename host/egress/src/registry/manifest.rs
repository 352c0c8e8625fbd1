//! Manifests: what of an OCI image manifest is a plugin, and the one that a plugin is published with.
//!
//! Pure. The WebAssembly OCI artifact convention (CNCF TAG Runtime, "Wasm OCI Artifact layout"): a config of
//! [`CONFIG`], and the component as the one layer of [`LAYER`]. The layer types that came before it are read, never
//! written. The config decides nothing here: what a component is, is read from the component.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::json;

use super::error::RegistryFault;
use super::reference::ContentDigest;

/// Media type of an image manifest.
pub(super) const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
/// Media type of an image index.
pub(super) const INDEX: &str = "application/vnd.oci.image.index.v1+json";
/// Media type of a component's config.
pub(super) const CONFIG: &str = "application/vnd.wasm.config.v0+json";
/// Media type of a component.
pub(super) const LAYER: &str = "application/wasm";
/// What it was before the convention: by `wasm-to-oci`, and by the image specification of solo.io.
const LEGACY_LAYERS: [&str; 2] = [
    "application/vnd.wasm.content.layer.v1+wasm",
    "application/vnd.module.wasm.content.layer.v1+wasm",
];
/// Media type of a signed payload, as cosign writes it.
pub(super) const SIMPLE_SIGNING: &str = "application/vnd.dev.cosign.simplesigning.v1+json";
/// The annotation of its layer that has the signature.
pub(super) const SIGNATURE: &str = "dev.cosignproject.cosign/signature";
/// Media type of an image's config, which a signature's manifest has too.
const IMAGE_CONFIG: &str = "application/vnd.oci.image.config.v1+json";

/// Names bytes: what they are, which, and how many.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Descriptor {
    pub(super) media_type: String,
    #[serde(with = "digest")]
    pub(super) digest: ContentDigest,
    pub(super) size: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) artifact_type: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) platform: Option<Platform>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) annotations: BTreeMap<String, String>,
}

impl Descriptor {
    /// Names these bytes.
    pub(super) fn of(media_type: &str, bytes: &[u8]) -> Descriptor {
        Descriptor {
            media_type: media_type.to_owned(),
            digest: ContentDigest::of(bytes),
            size: bytes.len() as u64,
            artifact_type: None,
            platform: None,
            annotations: BTreeMap::new(),
        }
    }
}

/// What a manifest of an index is for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Platform {
    pub(super) architecture: String,
    pub(super) os: String,
}

mod digest {
    //! Digests as they stand in JSON.

    use serde::{Deserialize, Deserializer, Serializer};

    use super::ContentDigest;

    pub(super) fn serialize<S: Serializer>(of: &ContentDigest, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(of)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<ContentDigest, D::Error> {
        let text = String::deserialize(from)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

/// An image manifest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Manifest {
    schema_version: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    media_type: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    artifact_type: Option<String>,
    config: Descriptor,
    pub(super) layers: Vec<Descriptor>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Index {
    schema_version: u32,
    manifests: Vec<Descriptor>,
}

/// What a reference led to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// A plugin: its component.
    Component(Descriptor),
    /// One of several: the manifest of the one that is a component.
    Among(Descriptor),
}

/// What stands in a manifest first: which kind it is.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Kind {
    media_type: Option<String>,
}

fn malformed(error: &serde_json::Error) -> RegistryFault {
    // Where, and never what: it is somebody else's text.
    RegistryFault::Malformed(format!(
        "it is not the JSON of the specification, at line {} column {}",
        error.line(),
        error.column()
    ))
}

/// Which kind it is: by its own word and the answer's, which must not differ.
fn kind(bytes: &[u8], content_type: Option<&str>) -> Result<String, RegistryFault> {
    let Kind { media_type } = serde_json::from_slice(bytes).map_err(|e| malformed(&e))?;
    let answered = content_type
        .map(|text| text.split(';').next().unwrap_or_default().trim())
        .filter(|text| !text.is_empty());
    match (media_type, answered) {
        (Some(own), Some(answered)) if own != answered => Err(RegistryFault::Malformed(format!(
            "it says that it is {:?}, and the registry that it is {:?}",
            shown(&own),
            shown(answered)
        ))),
        (Some(own), _) => Ok(own),
        (None, Some(answered)) => Ok(answered.to_owned()),
        (None, None) => Ok(MANIFEST.to_owned()),
    }
}

fn shown(text: &str) -> String {
    crate::error::quote(text.as_bytes())
        .chars()
        .take(100)
        .collect()
}

/// Reads a manifest, and finds the component in it.
///
/// # Errors
/// `Malformed` or `NotAComponent`.
pub(super) fn find(bytes: &[u8], content_type: Option<&str>) -> Result<Found, RegistryFault> {
    match kind(bytes, content_type)?.as_str() {
        MANIFEST => component(&read(bytes)?).map(Found::Component),
        INDEX => among(bytes).map(Found::Among),
        other => Err(RegistryFault::NotAComponent(format!(
            "it is of type {:?}; a plugin is an OCI image manifest, or the one component of an index",
            shown(other)
        ))),
    }
}

/// Reads an image manifest.
///
/// # Errors
/// `Malformed`.
pub(super) fn read(bytes: &[u8]) -> Result<Manifest, RegistryFault> {
    let manifest: Manifest = serde_json::from_slice(bytes).map_err(|e| malformed(&e))?;
    version(manifest.schema_version)?;
    Ok(manifest)
}

fn version(version: u32) -> Result<(), RegistryFault> {
    if version == 2 {
        return Ok(());
    }
    Err(RegistryFault::Malformed(format!(
        "its schemaVersion is {version}, and there is only 2"
    )))
}

fn component(manifest: &Manifest) -> Result<Descriptor, RegistryFault> {
    let is_wasm = |layer: &&Descriptor| {
        layer.media_type == LAYER || LEGACY_LAYERS.contains(&layer.media_type.as_str())
    };
    match manifest.layers.as_slice() {
        [layer] if is_wasm(&layer) => Ok(layer.clone()),
        [layer] => Err(RegistryFault::NotAComponent(format!(
            "its layer is of type {:?}, not {LAYER}",
            shown(&layer.media_type)
        ))),
        layers => Err(RegistryFault::NotAComponent(format!(
            "it has {} layers, {} of them of type {LAYER}; a plugin has this one alone",
            layers.len(),
            layers.iter().filter(is_wasm).count()
        ))),
    }
}

/// The one manifest of an index that is for WebAssembly.
fn among(bytes: &[u8]) -> Result<Descriptor, RegistryFault> {
    let index: Index = serde_json::from_slice(bytes).map_err(|e| malformed(&e))?;
    version(index.schema_version)?;
    let is_wasm = |entry: &Descriptor| {
        entry.media_type == MANIFEST
            && (entry.artifact_type.as_deref() == Some(CONFIG)
                || (entry.platform.as_ref()).is_some_and(|p| p.architecture == "wasm"))
    };
    let all = index.manifests.len();
    let mut found: Vec<Descriptor> = index.manifests.into_iter().filter(is_wasm).collect();
    match (found.pop(), found.len()) {
        (Some(one), 0) => Ok(one),
        (_, more) => Err(RegistryFault::NotAComponent(format!(
            "it is an index of {all} manifests, {} of them for the architecture wasm; name the one that is meant by its digest",
            if more == 0 { 0 } else { more + 1 }
        ))),
    }
}

/// Everything that publishes a component, as bytes: the same component gives the same bytes.
pub(super) struct Published {
    pub(super) config: Vec<u8>,
    pub(super) manifest: Vec<u8>,
}

/// The config and the manifest of a component. Its imports and exports stand in the config for whoever looks there.
pub(super) fn publish(component: &[u8], imports: &[String], exports: &[String]) -> Published {
    let layer = Descriptor::of(LAYER, component);
    let config = json!({
        "architecture": "wasm",
        "os": "wasip2",
        "layerDigests": [layer.digest.to_string()],
        "component": { "exports": exports, "imports": imports, "target": null },
    })
    .to_string()
    .into_bytes();
    let manifest = json!({
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "artifactType": CONFIG,
        "config": Descriptor::of(CONFIG, &config),
        "layers": [layer],
    })
    .to_string()
    .into_bytes();
    Published { config, manifest }
}

/// The tag at which the signatures of a manifest lie, as cosign has it.
pub(super) fn signatures_tag(of: &ContentDigest) -> String {
    format!("sha256-{}.sig", of.hex())
}

/// A signature over this payload, as it stands in a manifest of signatures.
pub(super) fn signature(payload: &[u8], signature: &str) -> Descriptor {
    let mut layer = Descriptor::of(SIMPLE_SIGNING, payload);
    layer
        .annotations
        .insert(SIGNATURE.to_owned(), signature.to_owned());
    layer
}

/// The config that a manifest of signatures has.
pub(super) const SIGNATURES_CONFIG: &[u8] =
    br#"{"architecture":"","os":"","config":{},"rootfs":{"type":"layers","diff_ids":[]}}"#;

/// A manifest of signatures: those that are there, and one more. The same one twice stands there once.
pub(super) fn with_signature(mut there: Vec<Descriptor>, signature: &Descriptor) -> Vec<u8> {
    if !there.contains(signature) {
        there.push(signature.clone());
    }
    json!({
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": Descriptor::of(IMAGE_CONFIG, SIGNATURES_CONFIG),
        "layers": there,
    })
    .to_string()
    .into_bytes()
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn descriptor(media_type: &str) -> Value {
        json!({ "mediaType": media_type, "digest": ContentDigest::of(b"x").to_string(), "size": 1 })
    }

    fn manifest(config: &str, layers: &[&str]) -> Value {
        let layers: Vec<Value> = layers.iter().map(|layer| descriptor(layer)).collect();
        json!({ "schemaVersion": 2, "mediaType": MANIFEST, "config": descriptor(config), "layers": layers })
    }

    fn found(manifest: &Value) -> Result<Found, RegistryFault> {
        find(manifest.to_string().as_bytes(), Some(MANIFEST))
    }

    #[test]
    fn a_component_is_found_by_the_convention_and_by_what_came_before_it() {
        for (config, layer) in [
            (CONFIG, LAYER),
            ("application/vnd.wasm.config.v1+json", LEGACY_LAYERS[0]),
            ("application/vnd.unknown.config.v1+json", LEGACY_LAYERS[1]),
        ] {
            let found = found(&manifest(config, &[layer])).unwrap();
            assert!(matches!(found, Found::Component(one) if one.media_type == layer));
        }
        let mut plain = manifest(CONFIG, &[LAYER]);
        plain.as_object_mut().unwrap().remove("mediaType");
        assert!(find(plain.to_string().as_bytes(), None).is_ok());
        let answered = format!("{MANIFEST}; charset=utf-8");
        assert!(find(plain.to_string().as_bytes(), Some(&answered)).is_ok());
    }

    #[test]
    fn what_is_no_component_is_told_as_what_it_is() {
        let tar = "application/vnd.oci.image.layer.v1.tar+gzip";
        for (layers, words) in [
            (&[tar][..], "tar+gzip"),
            (&[], "0 layers, 0 of them"),
            (&[LAYER, LAYER], "2 layers, 2 of them"),
            (&[LAYER, tar], "2 layers, 1 of them"),
        ] {
            let refused = found(&manifest(CONFIG, layers)).unwrap_err();
            assert_eq!(refused.reason(), "not-a-component");
            assert!(refused.to_string().contains(words), "{refused}");
        }
        let docker = "application/vnd.docker.distribution.manifest.v2+json";
        let mut other = manifest(CONFIG, &[LAYER]);
        other["mediaType"] = json!(docker);
        let refused = find(other.to_string().as_bytes(), Some(docker)).unwrap_err();
        assert_eq!(refused.reason(), "not-a-component");
    }

    #[test]
    fn a_manifest_that_is_not_by_the_specification_is_malformed() {
        let mut version = manifest(CONFIG, &[LAYER]);
        version["schemaVersion"] = json!(1);
        let mut digest = manifest(CONFIG, &[LAYER]);
        digest["layers"][0]["digest"] = json!("sha512:00");
        let mut size = manifest(CONFIG, &[LAYER]);
        size["layers"][0]["size"] = json!(-1);
        let twice = manifest(CONFIG, &[LAYER])
            .to_string()
            .replacen('{', r#"{"layers":[],"#, 1);
        for text in [
            String::new(),
            "[]".to_owned(),
            "<html>".to_owned(),
            json!({ "schemaVersion": 2 }).to_string(),
            version.to_string(),
            digest.to_string(),
            size.to_string(),
            twice,
        ] {
            let refused = find(text.as_bytes(), Some(MANIFEST)).unwrap_err();
            assert_eq!(refused.reason(), "malformed", "{text}");
        }
        let lied = find(
            manifest(CONFIG, &[LAYER]).to_string().as_bytes(),
            Some(INDEX),
        );
        assert_eq!(lied.unwrap_err().reason(), "malformed");
    }

    #[test]
    fn an_index_leads_to_its_one_component_or_nowhere() {
        let entry = |architecture: &str| {
            let mut entry = descriptor(MANIFEST);
            entry["platform"] = json!({ "architecture": architecture, "os": "wasip2" });
            entry
        };
        let index = |entries: &[Value]| {
            let text = json!({ "schemaVersion": 2, "mediaType": INDEX, "manifests": entries });
            find(text.to_string().as_bytes(), Some(INDEX))
        };
        let among = index(&[entry("amd64"), entry("wasm")]).unwrap();
        assert!(matches!(among, Found::Among(_)));
        let mut by_type = descriptor(MANIFEST);
        by_type["artifactType"] = json!(CONFIG);
        assert!(index(&[by_type]).is_ok());
        for (entries, words) in [
            (vec![], "index of 0 manifests, 0 of them"),
            (vec![entry("amd64")], "index of 1 manifests, 0 of them"),
            (vec![entry("wasm"), entry("wasm")], "2 of them"),
        ] {
            let refused = index(&entries).unwrap_err().to_string();
            assert!(refused.contains(words), "{refused}");
        }
        // An index in an index leads nowhere.
        let mut nested = entry("wasm");
        nested["mediaType"] = json!(INDEX);
        assert!(index(&[nested]).is_err());
    }

    #[test]
    fn what_is_published_is_found_again_and_is_the_same_each_time() {
        let names = ["a:b/c@1.0.0".to_owned()];
        let one = publish(b"component", &names, &names);
        let again = publish(b"component", &names, &names);
        assert_eq!(
            (&one.manifest, &one.config),
            (&again.manifest, &again.config)
        );
        let Found::Component(layer) = find(&one.manifest, Some(MANIFEST)).unwrap() else {
            panic!("no component");
        };
        assert_eq!(layer.digest, ContentDigest::of(b"component"));
        assert_eq!(layer.size, 9);
    }

    #[test]
    fn a_signature_is_added_to_those_that_are_there_and_never_twice() {
        let (one, two) = (signature(b"payload", "one"), signature(b"payload", "two"));
        let first = read(&with_signature(Vec::new(), &one)).unwrap();
        let second = read(&with_signature(first.layers, &two)).unwrap();
        let third = read(&with_signature(second.layers, &one)).unwrap();
        let signatures: Vec<&str> = third
            .layers
            .iter()
            .map(|layer| layer.annotations[SIGNATURE].as_str())
            .collect();
        assert_eq!(signatures, ["one", "two"]);
    }
}

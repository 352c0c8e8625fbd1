//! A plugin into a registry, by the convention, and its signature beside it.
//!
//! Blobs first, then the manifest that names them: whoever reads meanwhile finds what was there before. What the registry
//! sends an upload to must be the registry itself, because our credential goes along.

use bytes::Bytes;
use http::header::LOCATION;
use serde_json::json;

use super::error::{RegistryError, RegistryFault, Stage};
use super::manifest::{self, Descriptor, MANIFEST};
use super::redirect;
use super::reference::{ContentDigest, Reference};
use super::session::{Access, Ask, Session, header_of, target_of};
use super::{Registries, RegistrySource};
use crate::http::Parsed;

/// How often a signature is put beside others that come at the same time.
const TRIES: usize = 5;

/// What is published of a component: the same component gives the same bytes and digests.
#[derive(Clone, Debug)]
pub struct Publication {
    component: Bytes,
    config: Bytes,
    manifest: Bytes,
    /// Digest of the manifest: what is signed.
    pub digest: ContentDigest,
}

/// What was published.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pushed {
    /// Its name, with the digest of its manifest.
    pub reference: Reference,
    /// Digest of the component.
    pub component: ContentDigest,
    /// Blobs that had to be sent; the registry had the others.
    pub sent: usize,
}

/// Config and manifest of a component with these imports and exports.
pub fn publication(component: Bytes, imports: &[String], exports: &[String]) -> Publication {
    let published = manifest::publish(&component, imports, exports);
    Publication {
        digest: ContentDigest::of(&published.manifest),
        component,
        config: published.config.into(),
        manifest: published.manifest.into(),
    }
}

/// What is signed for a manifest in this place: cosign's "simple signing" payload.
pub fn signing_payload(reference: &Reference, manifest: &ContentDigest) -> Vec<u8> {
    json!({
        "critical": {
            "identity": { "docker-reference": reference.place() },
            "image": { "docker-manifest-digest": manifest.to_string() },
            "type": "cosign container image signature",
        },
        "optional": null,
    })
    .to_string()
    .into_bytes()
}

impl Registries {
    /// Publishes at a reference: at its tag, or where it has a digest, which must be that of the manifest, by that alone.
    /// `signature` is one of [`signing_payload`], in base64; it is put beside those that are there.
    ///
    /// # Errors
    /// Everything that a registry may answer. Nothing names what was sent so far then.
    pub async fn push(
        &self,
        source: &RegistrySource,
        reference: &Reference,
        publication: &Publication,
        signature: Option<&str>,
    ) -> Result<Pushed, RegistryError> {
        let mut session = Session::new(self, source, reference.repository(), Access::Push);
        if let Some(named) = reference.digest()
            && named != publication.digest
        {
            let is = publication.digest;
            return Err(session.fail(Stage::Upload, RegistryFault::OtherDigest { named, is }));
        }
        if reference.is_beside_another() {
            let tag = reference.tag().unwrap_or_default().to_owned();
            return Err(session.fail(Stage::Upload, RegistryFault::Beside(tag)));
        }
        let mut sent = 0;
        for blob in [&publication.component, &publication.config] {
            sent += usize::from(session.put_blob(blob).await?);
        }
        let name = match reference.tag() {
            Some(tag) => tag.to_owned(),
            None => publication.digest.to_string(),
        };
        if let Some(signature) = signature {
            // Before the tag: who resolves it finds a signature.
            session
                .put_signature(reference, publication, signature)
                .await?;
        }
        session.put_manifest(&name, &publication.manifest).await?;
        Ok(Pushed {
            reference: reference.pinned(publication.digest),
            component: ContentDigest::of(&publication.component),
            sent,
        })
    }
}

impl Session {
    /// Sends a blob, unless the registry has it.
    async fn put_blob(&mut self, bytes: &Bytes) -> Result<bool, RegistryError> {
        let digest = ContentDigest::of(bytes);
        let there = Ask::new("HEAD", self.path(&format!("blobs/{digest}")));
        let there = self.ask(Stage::Upload, &there).await?;
        match there.head.status {
            200 => return Ok(false),
            404 => {}
            _ => return Err(self.refused(Stage::Upload, there, "such blob").await),
        }
        let begin = Ask::new("POST", self.path("blobs/uploads/"));
        let begun = self.ask(Stage::Upload, &begin).await?;
        if begun.head.status != 202 {
            let missing = "such repository that could be written";
            return Err(self.refused(Stage::Upload, begun, missing).await);
        }
        let own = self.own().origin;
        let from = Parsed {
            origin: own.clone(),
            path: self.path("blobs/uploads/"),
            query: None,
        };
        let mut to = redirect::read(&from, header_of(&begun, &LOCATION))
            .map_err(|why| self.fail(Stage::Upload, why))?;
        if to.origin != own {
            let why = format!(
                "an upload goes to the registry itself, not to {}",
                to.origin
            );
            return Err(self.fail(Stage::Upload, RegistryFault::Redirect(why)));
        }
        let digest = format!("digest={digest}");
        to.query = Some(match to.query {
            Some(query) if !query.is_empty() => format!("{query}&{digest}"),
            _ => digest,
        });
        let mut put =
            Ask::new("PUT", target_of(&to)).with("content-type", "application/octet-stream");
        put.body = bytes.clone();
        let put = self.ask(Stage::Upload, &put).await?;
        if put.head.status != 201 {
            return Err(self.refused(Stage::Upload, put, "such upload").await);
        }
        Ok(true)
    }

    async fn put_manifest(&mut self, name: &str, bytes: &Bytes) -> Result<(), RegistryError> {
        let mut put =
            Ask::new("PUT", self.path(&format!("manifests/{name}"))).with("content-type", MANIFEST);
        put.body = bytes.clone();
        let put = self.ask(Stage::Upload, &put).await?;
        if put.head.status != 201 {
            let missing = "such repository that could be written";
            return Err(self.refused(Stage::Upload, put, missing).await);
        }
        Ok(())
    }

    /// Puts a signature beside those that are there. The protocol knows no "only if it is still that", so that somebody
    /// who does the same meanwhile may have put a manifest without it in the place of this: it is looked at afterwards, and
    /// put there again. What is left is the moment between their look and ours.
    async fn put_signature(
        &mut self,
        reference: &Reference,
        publication: &Publication,
        signature: &str,
    ) -> Result<(), RegistryError> {
        let tag = manifest::signatures_tag(&publication.digest);
        let payload = Bytes::from(signing_payload(reference, &publication.digest));
        let signature = manifest::signature(&payload, signature);
        // What takes time comes before the look at what is there.
        self.put_blob(&payload).await?;
        self.put_blob(&Bytes::from_static(manifest::SIGNATURES_CONFIG))
            .await?;
        for _ in 0..TRIES {
            let there = self.signatures_at(&tag).await?;
            if there.contains(&signature) {
                return Ok(());
            }
            let manifest = manifest::with_signature(there, &signature);
            self.put_manifest(&tag, &Bytes::from(manifest)).await?;
        }
        if self.signatures_at(&tag).await?.contains(&signature) {
            return Ok(());
        }
        Err(self.fail(Stage::Signature, RegistryFault::Contended(TRIES)))
    }

    /// The signatures that lie at a tag.
    async fn signatures_at(&mut self, tag: &str) -> Result<Vec<Descriptor>, RegistryError> {
        match self.manifest(tag, None, Stage::Signature).await? {
            Ok((bytes, ..)) => manifest::read(&bytes)
                .map(|found| found.layers)
                .map_err(|why| self.fail(Stage::Signature, why)),
            Err(_) => Ok(Vec::new()),
        }
    }
}

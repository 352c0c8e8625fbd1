//! A plugin from a registry: its name is resolved once, and everything after goes by digests.
//!
//! In three steps, so that the caller decides between them: the manifest, what it was signed with, the component. Of a
//! component that is not wanted no byte is fetched.

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderName, LOCATION};

use super::error::{RegistryError, RegistryFault, Stage};
use super::manifest::{self, Descriptor, Found, INDEX, MANIFEST, SIGNATURE, SIMPLE_SIGNING};
use super::redirect;
use super::reference::{ContentDigest, Reference};
use super::session::{Access, Ask, Session, header_of};
use super::{Registries, RegistrySource};
use crate::http::{Answer, Parsed};

/// The largest manifest: what registries take at least (distribution specification, "Pushing Manifests").
const LARGEST_MANIFEST: u64 = 4 << 20;
/// The largest payload of a signature, and the most of them that are looked at, the newest.
const LARGEST_PAYLOAD: u64 = 64 * 1024;
const MOST_SIGNATURES: usize = 32;

/// The header by which a registry names what it sends.
static DOCKER_CONTENT_DIGEST: HeaderName = HeaderName::from_static("docker-content-digest");

/// What a reference stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resolved {
    /// Digest of the manifest that the reference names: what is signed, and what `@sha256:…` takes.
    pub manifest: ContentDigest,
    /// Digest of the component.
    pub component: ContentDigest,
    /// Its size in bytes.
    pub size: u64,
}

/// A signature that lies beside a manifest. Nothing of it was checked but that it is what its own manifest names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SignatureFound {
    /// What was signed.
    pub payload: Bytes,
    /// The signature, in base64.
    pub signature: String,
}

/// A pull that is under way.
pub struct Pull {
    session: Session,
    resolved: Resolved,
}

impl std::fmt::Debug for Pull {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Pull").field(&self.resolved).finish()
    }
}

impl Registries {
    /// Resolves a reference: fetches its manifest, checks it against its digest, and finds the component in it.
    ///
    /// # Errors
    /// The reference is not of this source; everything that a registry may answer.
    pub async fn pull(
        &self,
        source: &RegistrySource,
        reference: &Reference,
    ) -> Result<Pull, RegistryError> {
        let mut session = Session::new(self, source, reference.repository(), Access::Pull);
        if !source.is_named(reference.registry()) {
            let why = format!(
                "{} is asked for something of {}",
                source.registry,
                reference.place()
            );
            return Err(session.fail(Stage::Manifest, RegistryFault::Malformed(why)));
        }
        let name = match (reference.digest(), reference.tag()) {
            (Some(digest), _) => digest.to_string(),
            (None, tag) => tag.unwrap_or_default().to_owned(),
        };
        let (bytes, content_type, manifest) = session
            .manifest(&name, reference.digest(), Stage::Manifest)
            .await?
            .map_err(|missing| session.fail(Stage::Manifest, missing))?;
        let fail = |session: &Session, why| session.fail(Stage::Manifest, why);
        let found = manifest::find(&bytes, content_type.as_deref());
        let component = match found.map_err(|why| fail(&session, why))? {
            Found::Component(component) => component,
            Found::Among(one) => {
                let (bytes, content_type, _) = session
                    .manifest(&one.digest.to_string(), Some(one.digest), Stage::Manifest)
                    .await?
                    .map_err(|missing| session.fail(Stage::Manifest, missing))?;
                match manifest::find(&bytes, content_type.as_deref()) {
                    Ok(Found::Component(component)) => component,
                    Ok(Found::Among(_)) => {
                        let why = "it is an index in an index".to_owned();
                        return Err(fail(&session, RegistryFault::NotAComponent(why)));
                    }
                    Err(why) => return Err(fail(&session, why)),
                }
            }
        };
        let limit = session.component_limit();
        if component.size > limit {
            return Err(session.fail(Stage::Component, RegistryFault::TooLarge { limit }));
        }
        Ok(Pull {
            session,
            resolved: Resolved {
                manifest,
                component: component.digest,
                size: component.size,
            },
        })
    }
}

impl Pull {
    /// What the reference stands for.
    pub fn resolved(&self) -> &Resolved {
        &self.resolved
    }

    /// What lies beside the manifest as its signatures, where cosign puts them: at the tag `sha256-….sig`.
    ///
    /// # Errors
    /// Everything that a registry may answer but that there are none, which is an empty list.
    pub async fn signatures(&mut self) -> Result<Vec<SignatureFound>, RegistryError> {
        let tag = manifest::signatures_tag(&self.resolved.manifest);
        let session = &mut self.session;
        let (bytes, _, _) = match session.manifest(&tag, None, Stage::Signature).await? {
            Ok(found) => found,
            Err(_) => return Ok(Vec::new()),
        };
        let layers = manifest::read(&bytes)
            .map_err(|why| session.fail(Stage::Signature, why))?
            .layers;
        let signed: Vec<(&Descriptor, &String)> = layers
            .iter()
            .filter(|layer| layer.media_type == SIMPLE_SIGNING)
            .filter_map(|layer| Some((layer, layer.annotations.get(SIGNATURE)?)))
            .collect();
        // The newest stand last: whoever signs the same again and again keeps nobody from installing it.
        let old = signed.len().saturating_sub(MOST_SIGNATURES);
        let mut found = Vec::new();
        for (layer, signature) in &signed[old..] {
            let payload = session
                .blob(layer, LARGEST_PAYLOAD, Stage::Signature)
                .await?;
            found.push(SignatureFound {
                payload,
                signature: (*signature).clone(),
            });
        }
        Ok(found)
    }

    /// The component's bytes: exactly those that the manifest names.
    ///
    /// # Errors
    /// Everything that a registry may answer, and any other bytes.
    pub async fn component(mut self) -> Result<Bytes, RegistryError> {
        let wanted = Descriptor {
            digest: self.resolved.component,
            size: self.resolved.size,
            ..Descriptor::of(manifest::LAYER, &[])
        };
        let limit = self.session.component_limit();
        self.session.blob(&wanted, limit, Stage::Component).await
    }
}

/// A manifest's bytes, its type as it was answered, and its digest.
type ManifestFound = (Vec<u8>, Option<String>, ContentDigest);

impl Session {
    /// A manifest by its tag or digest; the inner error is that there is none.
    pub(super) async fn manifest(
        &mut self,
        name: &str,
        wanted: Option<ContentDigest>,
        stage: Stage,
    ) -> Result<Result<ManifestFound, RegistryFault>, RegistryError> {
        let ask = Ask::new("GET", self.path(&format!("manifests/{name}")))
            .with("accept", format!("{MANIFEST}, {INDEX}"));
        let answer = self.ask(stage, &ask).await?;
        if answer.head.status != 200 {
            let missing = format!("manifest {name} in {}", self.repository());
            let refused = self.refused(stage, answer, &missing).await;
            return match refused.why {
                missing @ RegistryFault::NotFound { .. } => Ok(Err(missing)),
                _ => Err(refused),
            };
        }
        let content_type = header_of(&answer, &CONTENT_TYPE).map(str::to_owned);
        let said = header_of(&answer, &DOCKER_CONTENT_DIGEST).map(str::to_owned);
        let (bytes, got) = self.read(stage, answer, LARGEST_MANIFEST, None).await?;
        if let Some(wanted) = wanted
            && wanted != got
        {
            return Err(self.fail(stage, RegistryFault::Digest { wanted, got }));
        }
        // Of another algorithm it says nothing that could be compared.
        if let Some(said) = said.filter(|said| said.starts_with("sha256:"))
            && said != got.to_string()
        {
            let said = crate::error::quote(said.as_bytes());
            return Err(self.fail(stage, RegistryFault::DigestHeader { said, got }));
        }
        Ok(Ok((bytes, content_type, got)))
    }

    /// A blob by its digest, wherever the registry keeps it.
    async fn blob(
        &mut self,
        wanted: &Descriptor,
        most: u64,
        stage: Stage,
    ) -> Result<Bytes, RegistryError> {
        if wanted.size > most {
            return Err(self.fail(stage, RegistryFault::TooLarge { limit: most }));
        }
        let answer = self.blob_answer(&wanted.digest, stage).await?;
        let (bytes, got) = self.read(stage, answer, most, Some(wanted.size)).await?;
        if got != wanted.digest {
            let wanted = wanted.digest;
            return Err(self.fail(stage, RegistryFault::Digest { wanted, got }));
        }
        Ok(Bytes::from(bytes))
    }

    /// The answer that has the blob, behind the redirects to it.
    async fn blob_answer(
        &mut self,
        digest: &ContentDigest,
        stage: Stage,
    ) -> Result<Answer, RegistryError> {
        let target = self.path(&format!("blobs/{digest}"));
        let registry = self.own().origin;
        let mut from = Parsed {
            origin: registry.clone(),
            path: target.clone(),
            query: None,
        };
        let mut answer = self.ask(stage, &Ask::new("GET", target)).await?;
        for _ in 0..redirect::MOST {
            match answer.head.status {
                200 => return Ok(answer),
                301 | 302 | 303 | 307 | 308 => {}
                _ => {
                    let missing = format!("blob {digest}");
                    return Err(self.refused(stage, answer, &missing).await);
                }
            }
            let to = redirect::read(&from, header_of(&answer, &LOCATION))
                .and_then(|to| redirect::may(&registry, &to.origin).map(|()| to))
                .map_err(|why| self.fail(stage, why))?;
            answer = self.ask_elsewhere(stage, &to).await?;
            from = to;
        }
        match answer.head.status {
            200 => Ok(answer),
            300..=399 => {
                let why = format!("there are more than {} in a row", redirect::MOST);
                Err(self.fail(stage, RegistryFault::Redirect(why)))
            }
            _ => Err(self.refused(stage, answer, &format!("blob {digest}")).await),
        }
    }
}

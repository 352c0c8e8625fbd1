//! What the API shows of a component and of a plugin.
//!
//! Plain values that are written as JSON; texts of a provider are its own words, bounded at install.

use leasehold_authority::{Granted, Revision, RevisionStanding, Source};
use leasehold_contract::{Grant, Part};
use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

use super::capabilities::NarrowingView;
use super::time::Time;
use crate::service::{Health, PendingOffer, PluginDetails, PluginOffer};

/// Where a component came from, and who signed it. Of one that came more than once it is the newest; one whose signature was
/// verified gives way to such a one only.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = ComponentSource)]
pub struct SourceView {
    /// The registry, as `host` or `host:port`; null for a component that was sent.
    registry: Option<String>,
    /// The name in it.
    repository: Option<String>,
    /// The tag that was asked for; what it stands for now is another question.
    tag: Option<String>,
    /// `sha256:…` of the manifest, which names the component.
    manifest_digest: Option<String>,
    /// The same as one reference, with the digest.
    reference: Option<String>,
    /// The key whose signature was verified; null where none was given, or the settings ask for none from there.
    signed_by: Option<String>,
    /// `sha256:…` of what that key signed: the component, or its manifest.
    signed_digest: Option<String>,
}

impl From<Source> for SourceView {
    fn from(source: Source) -> SourceView {
        let place = source.registry;
        let signed = source.signed.as_ref();
        SourceView {
            signed_by: signed.map(|signed| signed.key().to_owned()),
            signed_digest: signed.map(|signed| signed.digest().to_owned()),
            reference: place.as_ref().map(|place| {
                let tag = place.tag.as_ref().map(|tag| format!(":{tag}"));
                format!(
                    "oci://{}/{}{}@{}",
                    place.registry,
                    place.repository,
                    tag.unwrap_or_default(),
                    place.manifest
                )
            }),
            registry: place.as_ref().map(|place| place.registry.clone()),
            repository: place.as_ref().map(|place| place.repository.clone()),
            tag: place.as_ref().and_then(|place| place.tag.clone()),
            manifest_digest: place.map(|place| place.manifest),
        }
    }
}

/// What a component is and asks for; nothing of it was stored.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct OfferView {
    /// SHA-256 of the component, in hex.
    digest: String,
    /// Bytes.
    size: u64,
    source: SourceView,
    /// The provider's key.
    key: String,
    /// The provider's version.
    version: String,
    /// `ssh`, `sandbox` or `plugin`
    driver: &'static str,
    /// For people; the provider's own words.
    title: String,
    /// For people; the provider's own words.
    summary: String,
    /// The interfaces it exports beyond `lifecycle`.
    capabilities: Vec<String>,
    /// Everything that it imports, by name.
    imports: Vec<String>,
    /// Everything that it exports, by name.
    exports: Vec<String>,
    /// What granting it allows, each a sentence.
    asks: Vec<String>,
    /// The parts of that which a grant can leave out.
    parts: Vec<&'static str>,
    /// Names what was shown here; `grant` of the installation.
    request_digest: String,
    /// JSON Schema of an environment's configuration.
    #[schema(value_type = Object)]
    config_schema: Value,
    /// Whether this very component is installed.
    installed: bool,
    /// What it asks for beyond the revision that serves now, each a sentence: empty where that one's grant is enough, null
    /// where none serves.
    wider: Option<Vec<String>>,
}

impl From<PluginOffer> for OfferView {
    fn from(offer: PluginOffer) -> OfferView {
        let manifest = offer.manifest;
        OfferView {
            digest: offer.digest,
            size: offer.size,
            source: offer.source.into(),
            key: manifest.key,
            version: manifest.version,
            driver: manifest.driver.as_str(),
            title: manifest.title,
            summary: manifest.summary,
            capabilities: offer.capabilities,
            imports: offer.imports,
            exports: offer.exports,
            asks: offer.asks,
            parts: offer.parts.into_iter().map(Part::as_str).collect(),
            request_digest: offer.request_digest,
            config_schema: manifest.config_schema,
            installed: offer.installed,
            wider: offer.wider,
        }
    }
}

/// What a call may do beyond computing.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Grant)]
pub struct GrantView {
    /// `ssh`, `streams`, `origins`, `operations`, `credentials`
    parts: Vec<&'static str>,
    /// The origins that it may send requests without credentials to.
    origins: Vec<String>,
    /// Memory of one call.
    memory_mib: u32,
    /// CPU time of one call.
    cpu_ms: u32,
    /// Requests of one call.
    exchanges: u32,
    /// The largest buffered body.
    body_mib: u32,
}

impl From<&Grant> for GrantView {
    fn from(grant: &Grant) -> GrantView {
        GrantView {
            parts: Part::ALL
                .into_iter()
                .filter(|part| grant.has(*part))
                .map(Part::as_str)
                .collect(),
            origins: grant.origins.clone(),
            memory_mib: grant.limits.memory_mib,
            cpu_ms: grant.limits.cpu,
            exchanges: grant.limits.exchanges,
            body_mib: grant.limits.body_mib,
        }
    }
}

/// A component that is or was installed.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = PluginRevision)]
pub struct RevisionView {
    /// Counts the components of this key, from 1.
    revision: i64,
    /// SHA-256 of the component.
    digest: String,
    /// The provider's version.
    version: String,
    /// `pending`, `current`, `previous`, `retiring` (leases need it) or `collected` (its component is deleted)
    state: &'static str,
    /// Leases of it that have not ended.
    leases: i64,
    /// Bytes.
    size: i64,
    source: SourceView,
    installed_at: Time,
    collected_at: Option<Time>,
    /// What it was granted; null while it waits.
    granted: Option<GrantView>,
    /// Who granted it, or installed it where the grant was carried over.
    granted_by: Option<String>,
    granted_at: Option<Time>,
    /// Whether the grant is that of the revision before, because this one asks for no more.
    carried: bool,
}

impl From<RevisionStanding> for RevisionView {
    fn from(standing: RevisionStanding) -> RevisionView {
        let revision = standing.revision;
        let grant = revision.grant;
        RevisionView {
            revision: revision.number,
            digest: revision.digest,
            version: revision.version,
            state: standing.state.as_str(),
            leases: standing.leases,
            size: revision.size,
            source: revision.source.into(),
            installed_at: revision.installed_at.into(),
            collected_at: revision.removed_at.map(Into::into),
            granted: grant.as_ref().map(|granted| (&granted.grant).into()),
            granted_at: grant.as_ref().map(|granted| granted.at.into()),
            carried: grant
                .as_ref()
                .is_some_and(|granted| granted.carried_from.is_some()),
            granted_by: grant.map(|granted| granted.by),
        }
    }
}

/// A revision that waits for its grant.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = PendingRevision)]
pub struct PendingView {
    /// SHA-256 of the component.
    digest: String,
    /// Counts the components of this key, from 1.
    revision: i64,
    /// The provider's version.
    version: String,
    source: SourceView,
    /// What granting it allows, each a sentence.
    asks: Vec<String>,
    /// The parts of that which a grant can leave out.
    parts: Vec<&'static str>,
    /// Names what is shown; `requestDigest` of the grant.
    request_digest: String,
    /// What it asks for beyond the revision that serves, each a sentence; null where none serves.
    wider: Option<Vec<String>>,
}

impl PendingView {
    fn of(revision: &Revision, offer: PendingOffer) -> PendingView {
        PendingView {
            digest: revision.digest.clone(),
            revision: revision.number,
            version: revision.version.clone(),
            source: revision.source.clone().into(),
            asks: offer.asks,
            parts: offer.parts.into_iter().map(Part::as_str).collect(),
            request_digest: offer.request_digest,
            wider: offer.wider,
        }
    }
}

/// How the revision that serves does. It is in the server's memory: a start begins anew.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = PluginHealth)]
pub struct HealthView {
    /// `working`, `tripped` (no new leases for now) or `trial` (the next lease decides)
    state: &'static str,
    /// How it failed last, where it is tripped.
    reason: Option<String>,
    /// In how many seconds it is tried again.
    retry_after_seconds: Option<u64>,
    /// Failed calls that count now.
    failures: u32,
    /// How often it tripped since the server started.
    trips: u64,
}

impl From<Health> for HealthView {
    fn from(health: Health) -> HealthView {
        HealthView {
            state: match (health.tripped, health.trial) {
                (false, _) => "working",
                (true, true) => "trial",
                (true, false) => "tripped",
            },
            reason: health.reason,
            retry_after_seconds: health
                .retry_after
                .map(|left| left.as_millis().div_ceil(1000) as u64),
            failures: health.failures,
            trips: health.trips_total,
        }
    }
}

/// An installed provider. What stands of a component at its top is of the revision that serves, or of the one that waits
/// where none was granted yet.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Plugin)]
pub struct PluginView {
    /// The provider's key, which is the plugin's id.
    key: String,
    /// `working`, `pending` (nothing was granted yet), `disabled`, or `tripped` (it failed again and again: no new leases
    /// for now)
    status: &'static str,
    /// Whether it is switched on.
    enabled: bool,
    /// The provider's version.
    version: String,
    /// `ssh`, `sandbox` or `plugin`
    driver: &'static str,
    /// For people; the provider's own words.
    title: String,
    /// For people; the provider's own words.
    summary: String,
    /// SHA-256 of the component.
    digest: String,
    /// Counts the components that were installed under this key, from 1.
    revision: i64,
    /// Bytes.
    size: i64,
    source: SourceView,
    /// The interfaces it exports beyond `lifecycle`.
    capabilities: Vec<String>,
    /// What it was granted or asks for, as it was shown.
    #[schema(value_type = Vec<String>)]
    asks: Value,
    /// Names what was shown.
    request_digest: Option<String>,
    /// Who granted it; null while nothing is.
    granted_by: Option<String>,
    granted_at: Option<Time>,
    /// What its calls may do: what was granted, below the server's own settings.
    granted: Option<GrantView>,
    /// What of its request is not there, and by what.
    narrowed: Vec<NarrowingView>,
    /// The revision that waits for its grant.
    pending: Option<PendingView>,
    /// Its latest revisions, newest first.
    revisions: Vec<RevisionView>,
    /// How it does; null where nothing of it is loaded.
    health: Option<HealthView>,
    installed_at: Time,
    updated_at: Time,
    /// JSON Schema of an environment's configuration.
    #[schema(value_type = Object)]
    config_schema: Value,
}

impl From<PluginDetails> for PluginView {
    fn from(details: PluginDetails) -> PluginView {
        let shown = details.shown;
        let plugin = details.plugin;
        let tripped = details.health.as_ref().is_some_and(|health| health.tripped);
        let status = if !plugin.enabled {
            "disabled"
        } else if plugin.current.is_none() {
            "pending"
        } else if tripped {
            "tripped"
        } else {
            "working"
        };
        let granted: Option<Granted> = plugin.current.and_then(|current| current.grant);
        let waits = details.pending.as_ref();
        let (asks, request_digest) = match (&granted, waits) {
            (Some(granted), _) => (granted.asks.clone(), Some(granted.request_digest.clone())),
            (None, Some(offer)) => (
                Value::from(offer.asks.clone()),
                Some(offer.request_digest.clone()),
            ),
            (None, None) => (Value::Array(Vec::new()), None),
        };
        PluginView {
            key: plugin.key,
            status,
            enabled: plugin.enabled,
            version: shown.version,
            driver: shown.driver.as_str(),
            title: shown.manifest.title,
            summary: shown.manifest.summary,
            digest: shown.digest,
            revision: shown.number,
            size: shown.size,
            source: shown.source.into(),
            capabilities: shown.capabilities,
            asks,
            request_digest,
            granted_at: granted.as_ref().map(|granted| granted.at.into()),
            granted_by: granted.map(|granted| granted.by),
            granted: details.effective.as_ref().map(Into::into),
            narrowed: details.narrowed.into_iter().map(Into::into).collect(),
            pending: plugin
                .pending
                .as_ref()
                .zip(details.pending)
                .map(|(revision, offer)| PendingView::of(revision, offer)),
            revisions: details.revisions.into_iter().map(Into::into).collect(),
            health: details.health.map(Into::into),
            installed_at: shown.installed_at.into(),
            updated_at: plugin.updated_at.into(),
            config_schema: shown.manifest.config_schema,
        }
    }
}

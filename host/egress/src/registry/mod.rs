//! Registries: the host's own client of the OCI distribution specification 1.1, to pull plugins and to publish them.
//!
//! Everything goes over the wire of [`crate::http`], so that its addresses, deadlines and caps hold here too; that is why
//! no client of somebody else's is used, which would resolve and dial by itself. The map:
//!
//! - [`Reference`] is a name, [`RegistrySource`] a registry that may be used, as an administrator typed it.
//! - `challenge` reads what a registry asks of who asks; `session` answers it, and is one conversation;
//!   `redirect` says where a blob may be fetched elsewhere.
//! - `manifest` knows the formats; `pull` and `push` are the two directions.
//!
//! Invariants: a credential goes to its registry, and to the realm that was typed beside it, and nowhere else; what is not
//! that registry, that realm or a redirect of a blob by its digest is neither resolved nor dialled; bytes that do not have
//! the digest and the size that named them are never handed on. Whether bytes are *believed* is not decided here.

mod challenge;
mod error;
mod manifest;
mod pull;
mod push;
mod redirect;
mod reference;
mod session;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::http::{Dialler, HttpSettings, Origin, Resolver, Scheme, TlsSettings, Transport};
use crate::secret::Secret;

pub use error::{RegistryError, RegistryFault, Stage};
pub use pull::{Pull, Resolved, SignatureFound};
pub use push::{Publication, Pushed, publication, signing_payload};
pub use reference::{BadReference, ContentDigest, Reference, RegistryName};

/// How long a registry may take, and how much it may send.
#[derive(Clone, Debug)]
pub struct RegistrySettings {
    /// Of each connection and request.
    pub http: HttpSettings,
    /// Of everything that one pull or push asks.
    pub total: Duration,
    /// The largest component, in bytes.
    pub component: u64,
}

impl Default for RegistrySettings {
    fn default() -> RegistrySettings {
        RegistrySettings {
            http: HttpSettings {
                first_byte: Duration::from_secs(30),
                idle: Duration::from_secs(30),
                ..HttpSettings::default()
            },
            total: Duration::from_secs(5 * 60),
            component: 64 << 20,
        }
    }
}

/// A registry as an administrator typed it: any address, as of an endpoint.
#[derive(Clone, Debug)]
pub struct RegistrySource {
    /// Which.
    pub registry: RegistryName,
    /// Spoken to in plain; only of an address of this machine.
    pub plain: bool,
    /// Trust of the registry and its realm; none: the system's roots.
    pub tls: Option<Arc<TlsSettings>>,
    /// Who we are to it; none: anybody.
    pub credential: Option<RegistryCredential>,
    /// The origin, beside its own, that may give tokens for it.
    pub realm: Option<Origin>,
}

impl RegistrySource {
    /// One that asks nobody who they are.
    pub fn new(registry: RegistryName) -> RegistrySource {
        RegistrySource {
            registry,
            plain: false,
            tls: None,
            credential: None,
            realm: None,
        }
    }

    /// Whether this names it, with its port written or not.
    pub fn is_named(&self, name: &RegistryName) -> bool {
        is_one_registry(&self.registry, name, self.plain)
    }

    fn origin(&self) -> Origin {
        Origin {
            scheme: match self.plain {
                true => Scheme::Http,
                false => Scheme::Https,
            },
            host: self.registry.host().clone(),
            port: self.registry.port_over(self.plain),
        }
    }
}

/// Whether two names are those of one registry, spoken to in plain or not.
pub fn is_one_registry(one: &RegistryName, other: &RegistryName, plain: bool) -> bool {
    one.host() == other.host() && one.port_over(plain) == other.port_over(plain)
}

/// A user name and a password.
#[derive(Clone, Debug)]
pub struct RegistryCredential {
    /// The user name.
    pub username: String,
    /// The password, or a token in its place.
    pub password: Secret,
    /// Changes with the password: connections are not shared over a rotation.
    pub version: String,
}

/// The client, with its connections. Cheap to clone; must live inside a tokio runtime.
#[derive(Clone)]
pub struct Registries {
    transport: Transport,
    settings: Arc<RegistrySettings>,
}

impl fmt::Debug for Registries {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Registries")
    }
}

impl Registries {
    /// A client on the operating system's resolver and sockets.
    pub fn new(settings: RegistrySettings) -> Registries {
        Registries {
            transport: Transport::new(settings.http.clone()),
            settings: Arc::new(settings),
        }
    }

    /// A client on a resolver and a dialler of the caller's.
    pub fn over(
        settings: RegistrySettings,
        resolver: Arc<dyn Resolver>,
        dialler: Arc<dyn Dialler>,
    ) -> Registries {
        Registries {
            transport: Transport::over(settings.http.clone(), resolver, dialler),
            settings: Arc::new(settings),
        }
    }
}

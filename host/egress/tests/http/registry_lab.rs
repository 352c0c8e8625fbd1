//! A client of registries that writes down what it resolves and dials, and a false registry to ask.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use leasehold_egress::{
    Dialler, Publication, Pull, Pushed, Reference, Registries, RegistryCredential, RegistryError,
    RegistrySettings, RegistrySource, Resolver, Secret, SignatureFound, Stream, System, UnixPeer,
};
use leasehold_parts::{FalseRegistry, Reply};

use crate::server::{LONG, settings, within};

pub const COMPONENT: &[u8] = b"\0asm and what else a component is made of";
pub const USER: &str = "ci";
pub const PASSWORD: &str = "canary:password";
/// `ci:canary:password`
pub const BASIC: &str = "Basic Y2k6Y2FuYXJ5OnBhc3N3b3Jk";
const REPOSITORY: &str = "acme/tool";

/// Every name has this address; only loopback is really dialled.
pub struct Ledger {
    address: IpAddr,
    resolved: Mutex<Vec<String>>,
    dialled: Mutex<Vec<SocketAddr>>,
}

#[async_trait]
impl Resolver for Ledger {
    async fn resolve(&self, name: &str) -> io::Result<Vec<IpAddr>> {
        self.resolved.lock().unwrap().push(name.to_owned());
        Ok(vec![self.address])
    }
}

#[async_trait]
impl Dialler for Ledger {
    async fn tcp(&self, address: SocketAddr) -> io::Result<Box<dyn Stream>> {
        self.dialled.lock().unwrap().push(address);
        match address.ip().is_loopback() {
            true => System.tcp(address).await,
            false => Err(io::ErrorKind::ConnectionRefused.into()),
        }
    }

    async fn unix(&self, _socket: &Path) -> io::Result<UnixPeer> {
        Err(io::ErrorKind::NotFound.into())
    }
}

/// A false registry, its source, and a client.
pub struct Lab {
    pub registry: FalseRegistry,
    pub source: RegistrySource,
    pub settings: RegistrySettings,
    ledger: Arc<Ledger>,
}

impl Lab {
    pub fn new() -> Lab {
        let registry = FalseRegistry::start().unwrap();
        let name = registry.authority().parse().unwrap();
        Lab {
            source: RegistrySource {
                plain: true,
                ..RegistrySource::new(name)
            },
            registry,
            settings: RegistrySettings {
                http: settings(),
                total: LONG,
                component: 1 << 20,
            },
            ledger: Arc::new(Ledger {
                address: "10.0.0.1".parse().unwrap(),
                resolved: Mutex::default(),
                dialled: Mutex::default(),
            }),
        }
    }

    /// One in which the component is published as it should be.
    pub fn published() -> Lab {
        let lab = Lab::new();
        lab.registry.publish(REPOSITORY, "1.0", COMPONENT);
        lab
    }

    /// One whose source has an account.
    pub fn with_account() -> Lab {
        let mut lab = Lab::published();
        lab.source.credential = Some(RegistryCredential {
            username: USER.to_owned(),
            password: Secret::new(PASSWORD.to_owned()),
            version: "1".to_owned(),
        });
        lab
    }

    pub fn client(&self) -> Registries {
        Registries::over(
            self.settings.clone(),
            self.ledger.clone(),
            self.ledger.clone(),
        )
    }

    /// The path of something in the repository.
    pub fn path(&self, rest: &str) -> String {
        format!("/v2/{REPOSITORY}/{rest}")
    }

    pub fn component_path(&self) -> String {
        self.path(&format!("blobs/{}", leasehold_parts::digest_of(COMPONENT)))
    }

    pub fn reference(&self, end: &str) -> Reference {
        let text = format!("oci://{}/{REPOSITORY}{end}", self.registry.authority());
        text.parse().unwrap()
    }

    /// Publishes this at the end of a reference.
    pub async fn push(&self, end: &str, what: &Publication) -> Result<Pushed, RegistryError> {
        let (client, reference) = (self.client(), self.reference(end));
        within(client.push(&self.source, &reference, what, None)).await
    }

    pub async fn begin(&self, end: &str) -> Result<Pull, RegistryError> {
        self.client().pull(&self.source, &self.reference(end)).await
    }

    /// The component at the tag, with the signatures beside it.
    pub async fn pull(&self) -> Result<(Bytes, Vec<SignatureFound>), RegistryError> {
        let mut pull = self.begin(":1.0").await?;
        let signatures = pull.signatures().await?;
        Ok((pull.component().await?, signatures))
    }

    /// The reason for which there is no component, and the whole message.
    pub async fn refused(&self) -> (&'static str, String) {
        let error = self.pull().await.expect_err("it was pulled");
        (error.why.reason(), error.to_string())
    }

    pub fn resolved(&self) -> Vec<String> {
        self.ledger.resolved.lock().unwrap().clone()
    }

    /// Everything that was dialled and is not the registry.
    pub fn dialled_elsewhere(&self) -> Vec<SocketAddr> {
        let own = self.registry.port();
        let dialled = self.ledger.dialled.lock().unwrap();
        dialled
            .iter()
            .filter(|at| !at.ip().is_loopback() || at.port() != own)
            .copied()
            .collect()
    }

    /// Everything of the account that the registry heard, by the path that it came to.
    pub fn shown(&self) -> Vec<(String, String)> {
        self.registry
            .heard()
            .iter()
            .filter(|heard| !heard.header("authorization").is_empty())
            .map(|heard| (heard.path.clone(), heard.header("authorization").to_owned()))
            .collect()
    }
}

/// An answer that asks for credentials by this challenge.
pub fn challenge(text: &str) -> Reply {
    Reply::refusal(401, "UNAUTHORIZED").with("www-authenticate", text)
}

/// Milliseconds.
pub fn ms(count: u64) -> Duration {
    Duration::from_millis(count)
}

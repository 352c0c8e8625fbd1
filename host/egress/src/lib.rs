//! Egress: the only way from a component, or from the host's own checks, to anything outside.
//!
//! It implements the door of `leasehold-contract` ([`Egress`](leasehold_contract::Egress),
//! [`SshSession`](leasehold_contract::SshSession), the halves of a process and a duplex) over russh, hyper and rustls.
//! The map:
//!
//! - [`SshTarget`] is a resolved `ssh-target`; [`CallScope`] is what one call may do, for whom, and where it is recorded.
//! - `trust` decides about host keys, `dial` and `connect` make an authenticated connection through every hop,
//!   `pool` shares them within one (company, plugin revision, secret version, target, trust).
//! - `remote` is what runs on the target: a constant bootstrap, scripts, the supervisor of commands, the finder
//!   of processes. `files` moves trees. `call` and `session` are the door itself, `traced` tells a
//!   collector of traces.
//! - `rules` says what of a request goes out and what of its answer comes back; `web` is the door to it.
//! - `engine` is the policy that stands in front of container engines, and says which of them are reached.
//! - `http` is the wire of requests ([`Transport`]): which origins and addresses there are, connections and their pools,
//!   one exchange. `duplex` makes processes of forwarded ports, upgraded connections and WebSockets.
//! - `registry` is the host's own client of registries ([`Registries`]), over the same wire and under the same rules of
//!   addresses.
//!
//! Every operation keeps one order: authorise, record, act. Nothing here knows WebAssembly or a database.

mod call;
mod channel;
mod connect;
mod dial;
mod duplex;
mod engine;
mod error;
mod files;
mod gate;
mod handler;
mod http;
mod pool;
mod registry;
mod remote;
mod rules;
mod scope;
mod secret;
mod session;
mod settings;
mod stream;
mod target;
mod traced;
mod trust;
mod verify;
mod web;

use std::sync::Arc;

use leasehold_contract::{Egress, Error};

pub use engine::{HostRoots, ROOT};
pub use http::{
    Answer, AnswerBody, Body, Bounds, Destination, Dialler, Host, HttpSettings, Lines, Origin,
    OriginPattern, Parsed, PoolKey, Resolver, Scheme, Stream, System, TlsSettings, Transport,
    UnixPeer, Wire,
};
pub use pool::PoolScope;
pub use registry::{
    BadReference, ContentDigest, Publication, Pull, Pushed, Reference, Registries,
    RegistryCredential, RegistryError, RegistryFault, RegistryName, RegistrySettings,
    RegistrySource, Resolved, SignatureFound, Stage, is_one_registry, publication, signing_payload,
};
pub use rules::{
    CredentialValue, Endpoint, HttpAsked, HttpFacts, Kept, KeptValue, MintPlace, Sink, Value,
    placeholder,
};
pub use scope::{
    Action, CallScope, EgressRecord, HttpScope, LeaseScope, Payloads, Reach, Recorder,
};
pub use secret::Secret;
pub use settings::SshSettings;
pub use target::{MAX_JUMPS, SshTarget};
pub use trust::ShownKey;
pub use verify::{Gone, LeaseMark, Ownership};

/// SSH egress with its pools. Cheap to clone; must live inside a tokio runtime.
#[derive(Clone)]
pub struct Ssh {
    pools: Arc<pool::Pools>,
}

impl std::fmt::Debug for Ssh {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Ssh({} connections)", self.connections())
    }
}

impl Ssh {
    /// Egress with these deadlines and caps, and empty pools.
    pub fn new(settings: SshSettings) -> Ssh {
        Ssh {
            pools: pool::Pools::new(settings),
        }
    }

    /// The way out for one call of a component.
    pub fn call(&self, scope: CallScope) -> Arc<dyn Egress> {
        Arc::new(call::Call::new(self.pools.clone(), scope))
    }

    /// The host's own check that nothing of a lease is left, on a fresh connection: no process with its mark, no
    /// workspace below `parent`. What remains is told; nothing is changed.
    ///
    /// # Errors
    /// Whatever keeps it from looking: then nothing is confirmed.
    pub async fn verify_gone(
        &self,
        target: &Arc<SshTarget>,
        mark: &LeaseMark,
        parent: &str,
    ) -> Result<Gone, Error> {
        verify::gone(&self.pools, target, mark, parent).await
    }

    /// The host's own check, on a fresh connection, that the workspace below `parent` carries this owner's marker.
    ///
    /// # Errors
    /// Whatever keeps it from looking.
    pub async fn verify_owned(
        &self,
        target: &Arc<SshTarget>,
        mark: &LeaseMark,
        parent: &str,
    ) -> Result<Ownership, Error> {
        verify::owned(&self.pools, target, mark, parent).await
    }

    /// The host key that `host:port` shows now, for a person to compare and pin. Nobody is authenticated. The address is
    /// one that an administrator typed, so every range is dialled.
    ///
    /// # Errors
    /// [`Code::Unavailable`](leasehold_contract::Code::Unavailable) when no server answers there.
    pub async fn fetch_host_key(&self, host: &str, port: u16) -> Result<ShownKey, Error> {
        connect::fetch_host_key(self.pools.settings(), host, port).await
    }

    /// Takes connections out of the pools: idle ones close now, those in use when their work ends. For rotation,
    /// revocation and a changed grant; streams of a lease end by [`LeaseScope::closed`].
    pub fn close_scope(&self, scope: &PoolScope) {
        self.pools.close_scope(scope);
    }

    /// How many pooled connections stand.
    pub fn connections(&self) -> usize {
        self.pools.connections()
    }
}

/// Lower-case hexadecimal.
fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes.iter().fold(String::new(), |mut s, b| {
        let _ = write!(s, "{b:02x}");
        s
    })
}

/// Random bytes as lower-case hexadecimal, twice as many characters.
fn random_hex<const N: usize>() -> String {
    let mut bytes = [0u8; N];
    // The operating system's source does not fail once it was seeded; a constant would only weaken a nonce, never a key.
    let _ = getrandom::fill(&mut bytes);
    hex(&bytes)
}

//! Makes an authenticated connection to a target, through every jump, each hop verified by its own policy.
//!
//! One connection owns its whole way: hops are not shared, so that cutting one stream cuts nothing else.
//! Only the configured key is offered; RSA signs with SHA-2 or not at all.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use leasehold_contract::{Code, Error};
use russh::client::{AuthResult, Config, Handle};
use russh::keys::agent::AgentIdentity;
use russh::keys::signature::Signer as _;
use russh::keys::ssh_key::private::KeypairData;
use russh::keys::{Algorithm, HashAlg, PrivateKey, PrivateKeyWithHashAlg};
use russh::{Preferred, SshId};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::timeout;

use crate::error::{failed, quote, unavailable};
use crate::handler::{Client, Shared};
use crate::settings::SshSettings;
use crate::target::{Hop, Identity, SshTarget};
use crate::trust::{Distrust, HostTrust, ShownKey};
use crate::{dial::dial, trust};

/// Bytes that a server may send on a channel before we must take them; russh gives a new window at half.
pub(crate) const WINDOW: u32 = 2 * 1024 * 1024;
/// Packets of a channel that wait for their reader before the connection stops reading.
const WAITING: usize = 32;
/// A server that drops us before its banner is over its `MaxStartups`: nothing happened, so it is tried again.
const TRIES: u32 = 5;

/// An authenticated connection.
pub(crate) struct Connection {
    pub(crate) handle: Handle<Client>,
    /// The jumps before it; kept because the connection runs inside them.
    _via: Vec<Handle<Client>>,
    pub(crate) shared: Arc<Shared>,
    /// The first hop's socket: shutting it down ends everything at once, whatever the tasks wait for.
    socket: std::net::TcpStream,
}

impl Connection {
    /// Whether it can still be used.
    pub(crate) fn is_alive(&self) -> bool {
        !self.handle.is_closed() && !self.shared.ended.is_cancelled()
    }

    /// Ends it now; streams on it end as lost for this reason.
    pub(crate) fn cut(&self, why: &str) {
        self.shared.because(why);
        let _ = self.socket.shutdown(std::net::Shutdown::Both);
    }
}

fn config(settings: &SshSettings, keys: Vec<Algorithm>, certificates: bool) -> Arc<Config> {
    let certificates = if certificates {
        trust::algorithms()
    } else {
        Vec::new()
    };
    Arc::new(Config {
        client_id: SshId::Standard(Cow::Borrowed(concat!(
            "SSH-2.0-Leasehold_",
            env!("CARGO_PKG_VERSION")
        ))),
        window_size: WINDOW,
        maximum_packet_size: 65535,
        channel_buffer_size: WAITING,
        preferred: Preferred {
            key: Cow::Owned(keys),
            host_key_certificates: Cow::Owned(certificates),
            // AES-GCM runs on the processor's own instructions: several times faster than ChaCha20 where they are.
            cipher: Cow::Borrowed(&[
                russh::cipher::AES_256_GCM,
                russh::cipher::CHACHA20_POLY1305,
                russh::cipher::AES_256_CTR,
                russh::cipher::AES_192_CTR,
                russh::cipher::AES_128_CTR,
            ]),
            compression: Cow::Borrowed(&[russh::compression::NONE]),
            ..Preferred::default()
        },
        keepalive_interval: Some(settings.keepalive),
        keepalive_max: settings.keepalive_max,
        inactivity_timeout: None,
        nodelay: true,
        ..Config::default()
    })
}

/// Why a handshake did not come to an authenticated connection.
enum Refused {
    /// Closed before the server said anything: again.
    TooMany(Error),
    /// A pinned key may be of another type than this one.
    OtherKey(Algorithm, Error),
    Final(Error),
}

/// Connects and authenticates.
///
/// # Errors
/// `unavailable` (not reached), `untrusted-peer`, `unauthenticated`, `invalid-config` (the key), `unsupported` (no
/// common algorithm); each names the hop it happened at.
pub(crate) async fn connect(
    settings: &SshSettings,
    target: &SshTarget,
) -> Result<Connection, Error> {
    // Keys first: a key that does not open reaches no server. Decrypting takes time, so not on this thread.
    let last = target.hops.len().saturating_sub(1);
    for (at, hop) in target.hops.iter().enumerate() {
        if hop.opened.get().is_none() {
            let locked = hop.locked();
            let opened = tokio::task::spawn_blocking(move || locked.open())
                .await
                .map_err(|_| Error::new(Code::Internal, "opening a key did not end"))?;
            hop.keep(opened.map_err(|mut wrong| {
                if at < last {
                    wrong.pointer.insert_str(0, &format!("/jump/{at}"));
                }
                wrong
            }))?;
        }
    }
    let mut way = Way::default();
    for hop in &target.hops {
        pass(settings, hop, &mut way).await?;
    }
    match (way.handles.pop(), way.socket, way.shared) {
        (Some(handle), Some(socket), Some(shared)) => Ok(Connection {
            handle,
            _via: way.handles,
            shared,
            socket,
        }),
        _ => Err(Error::new(Code::Internal, "a target without a host")),
    }
}

/// What has been passed so far.
#[derive(Default)]
struct Way {
    handles: Vec<Handle<Client>>,
    shared: Option<Arc<Shared>>,
    socket: Option<std::net::TcpStream>,
}

/// One hop: reach, verify, authenticate; with other host key types where a pinned key may be one of them.
async fn pass(settings: &SshSettings, hop: &Hop, way: &mut Way) -> Result<(), Error> {
    let mut keys = hop.trust.preference(&hop.host, hop.port);
    let certificates = hop.trust.wants_certificates(&hop.host, hop.port);
    let mut first: Option<Error> = None;
    let mut tries = 0;
    loop {
        match handshake(settings, hop, way, keys.clone(), certificates).await {
            Ok((mut handle, shared)) => {
                authenticate(settings, hop, &mut handle, &shared).await?;
                way.handles.push(handle);
                way.shared = Some(shared);
                return Ok(());
            }
            Err(Refused::TooMany(_)) if tries + 1 < TRIES => {
                tries += 1;
                // Apart from the others that were dropped with us.
                let mut byte = [0u8; 1];
                let _ = getrandom::fill(&mut byte);
                let pause = 40 * (1 << tries) + u64::from(byte[0]);
                tokio::time::sleep(Duration::from_millis(pause)).await;
            }
            Err(Refused::OtherKey(shown, error)) => {
                let family = std::mem::discriminant(&shown);
                keys.retain(|k| match (k, &shown) {
                    (Algorithm::Ecdsa { curve: a }, Algorithm::Ecdsa { curve: b }) => a != b,
                    _ => std::mem::discriminant(k) != family,
                });
                let told = first.get_or_insert(error);
                if keys.is_empty() {
                    return Err(told.clone());
                }
            }
            Err(Refused::TooMany(e) | Refused::Final(e)) => return Err(first.unwrap_or(e)),
        }
    }
}

async fn handshake(
    settings: &SshSettings,
    hop: &Hop,
    way: &mut Way,
    keys: Vec<Algorithm>,
    certificates: bool,
) -> Result<(Handle<Client>, Arc<Shared>), Refused> {
    let name = hop.name();
    let shared = Arc::new(Shared::default());
    let client = Client {
        host: hop.host.clone(),
        port: hop.port,
        trust: hop.trust.clone(),
        shared: shared.clone(),
    };
    let config = config(settings, keys, certificates);
    let reached = Reached::default();
    let going = async {
        match way.handles.last() {
            None => {
                let stream = dial(&name, &hop.host, hop.port)
                    .await
                    .map_err(Refused::Final)?;
                let (stream, socket) = twin(stream).map_err(|e| {
                    Refused::Final(unavailable(&name, format_args!("no socket ({e})")))
                })?;
                way.socket = Some(socket);
                reached.mark();
                start(config, stream, client, &name, &shared).await
            }
            Some(before) => {
                let channel = before
                    .channel_open_direct_tcpip(hop.host.clone(), hop.port.into(), "127.0.0.1", 0)
                    .await
                    .map_err(|e| {
                        Refused::Final(unavailable(
                            &name,
                            format_args!("the jump before it cannot reach {} ({e}); check host and port, and that the jump allows forwarding", hop.address()),
                        ))
                    })?;
                reached.mark();
                start(config, channel.into_stream(), client, &name, &shared).await
            }
        }
    };
    match timeout(settings.connect, going).await {
        Ok(Ok(handle)) => Ok((handle, shared)),
        Ok(Err(refused)) => Err(refused),
        Err(_) if reached.get() => Err(Refused::Final(unavailable(
            &name,
            format_args!(
                "the port is open and nothing finished the SSH handshake within {} s; check that sshd listens there",
                settings.connect.as_secs()
            ),
        ))),
        Err(_) => Err(Refused::Final(unavailable(
            &name,
            format_args!(
                "no connection within {} s; check host, port and the network between",
                settings.connect.as_secs()
            ),
        ))),
    }
}

/// Whether TCP stood when the deadline came.
#[derive(Default)]
struct Reached(std::sync::atomic::AtomicBool);

impl Reached {
    fn mark(&self) {
        self.0.store(true, std::sync::atomic::Ordering::Relaxed);
    }

    fn get(&self) -> bool {
        self.0.load(std::sync::atomic::Ordering::Relaxed)
    }
}

/// The stream, and a second handle of its socket to shut it down by.
fn twin(
    stream: tokio::net::TcpStream,
) -> std::io::Result<(tokio::net::TcpStream, std::net::TcpStream)> {
    let std = stream.into_std()?;
    let other = std.try_clone()?;
    Ok((tokio::net::TcpStream::from_std(std)?, other))
}

async fn start<S>(
    config: Arc<Config>,
    stream: S,
    client: Client,
    name: &str,
    shared: &Shared,
) -> Result<Handle<Client>, Refused>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let error = match russh::client::connect_stream(config, stream, client).await {
        Ok(handle) => return Ok(handle),
        Err(e) => e,
    };
    if let Some((shown, Some(distrust))) = shared.shown() {
        let told = failed(Code::UntrustedPeer, name, distrust.message(name, &shown));
        let other = matches!(distrust, Distrust::Unpinned(_));
        return Err(match Algorithm::new(&shown.algorithm) {
            Ok(algorithm) if other => Refused::OtherKey(algorithm, told),
            _ => Refused::Final(told),
        });
    }
    Err(match error {
        russh::Error::NoCommonAlgo { kind, theirs, .. } => Refused::Final(failed(
            Code::Unsupported,
            name,
            format_args!(
                "the server offers no {kind:?} algorithm that is used here, only {}",
                quote(theirs.join(", ").as_bytes())
            ),
        )),
        russh::Error::Version => Refused::Final(unavailable(
            name,
            "what answers on this port is not an SSH-2 server; check port",
        )),
        russh::Error::WrongServerSig => Refused::Final(failed(
            Code::UntrustedPeer,
            name,
            "the server does not hold the host key that it shows",
        )),
        russh::Error::Disconnect | russh::Error::HUP | russh::Error::IO(_) => {
            Refused::TooMany(unavailable(
                name,
                format_args!(
                    "the server closed the connection during the handshake ({error}); it may be over its MaxStartups, or refuse this address"
                ),
            ))
        }
        other => Refused::Final(unavailable(
            name,
            format_args!("the SSH handshake failed ({other})"),
        )),
    })
}

async fn authenticate(
    settings: &SshSettings,
    hop: &Hop,
    handle: &mut Handle<Client>,
    shared: &Shared,
) -> Result<(), Error> {
    let name = hop.name();
    let identity = hop.identity()?;
    let offered = timeout(settings.authenticate, offer(handle, hop, &identity))
        .await
        .map_err(|_| {
            unavailable(
                &name,
                format_args!(
                    "the server did not answer the authentication within {} s",
                    settings.authenticate.as_secs()
                ),
            )
        })??;
    let AuthResult::Failure {
        remaining_methods,
        partial_success,
    } = offered
    else {
        return Ok(());
    };
    if shared.ended.is_cancelled() || handle.is_closed() {
        return Err(unavailable(
            &name,
            format_args!("lost during authentication: {}", shared.reason()),
        ));
    }
    let offers: Vec<&str> = remaining_methods.iter().map(Into::into).collect();
    let offers = if offers.is_empty() {
        "nothing more".to_owned()
    } else {
        offers.join(", ")
    };
    let banner = match shared.banner() {
        b if b.is_empty() => String::new(),
        b => format!("; its banner: {b}"),
    };
    let key = match &identity.certificate {
        Some(c) => format!(
            "the certificate {:?} of key {}",
            quote(c.key_id().as_bytes()),
            identity.key.fingerprint(HashAlg::Sha256)
        ),
        None => format!("the key {}", identity.key.fingerprint(HashAlg::Sha256)),
    };
    Err(failed(
        Code::Unauthenticated,
        &name,
        if partial_success {
            format!(
                "{key} was accepted and the server wants more ({offers}), which cannot be given here{banner}"
            )
        } else {
            format!(
                "{key} was not accepted; the server offers {offers}; check username and that the key's public half is in authorized_keys{banner}"
            )
        },
    ))
}

async fn offer(
    handle: &mut Handle<Client>,
    hop: &Hop,
    identity: &Identity,
) -> Result<AuthResult, Error> {
    let name = hop.name();
    let broke =
        |e: russh::Error| unavailable(&name, format_args!("authentication broke off ({e})"));
    let rsa = matches!(identity.key.algorithm(), Algorithm::Rsa { .. });
    let hash = if rsa {
        match handle.best_supported_rsa_hash().await.map_err(broke)? {
            Some(Some(hash)) => Some(hash),
            // No list: the server is older than RFC 8308, and SHA-256 is what the oldest of RFC 8332 have.
            None => Some(HashAlg::Sha256),
            Some(None) => {
                return Err(failed(
                    Code::Unsupported,
                    &name,
                    "the server takes RSA keys with SHA-1 signatures only, which are not made here; use an Ed25519 or ECDSA key",
                ));
            }
        }
    } else {
        None
    };
    let user = hop.username.clone();
    match &identity.certificate {
        None => handle
            .authenticate_publickey(user, PrivateKeyWithHashAlg::new(identity.key.clone(), hash))
            .await
            .map_err(broke),
        Some(certificate) => handle
            .authenticate_certificate_with(
                user,
                certificate.clone(),
                hash,
                &mut Holder(identity.key.clone()),
            )
            .await
            .map_err(|SignError| broke(russh::Error::SendError)),
    }
}

/// The key did not sign, or the connection is gone.
#[derive(Debug)]
struct SignError;

impl From<russh::SendError> for SignError {
    fn from(_: russh::SendError) -> SignError {
        SignError
    }
}

/// Signs with a key that is in memory, by the hash that was negotiated.
struct Holder(Arc<PrivateKey>);

impl russh::Signer for Holder {
    type Error = SignError;

    async fn auth_sign(
        &mut self,
        _: &AgentIdentity,
        hash: Option<HashAlg>,
        mut data: Vec<u8>,
    ) -> Result<Vec<u8>, SignError> {
        let signature = match self.0.key_data() {
            KeypairData::Rsa(rsa) => (rsa, hash).try_sign(&data),
            keypair => keypair.try_sign(&data),
        };
        let signature: Vec<u8> = signature
            .map_err(|_| SignError)?
            .try_into()
            .map_err(|_| SignError)?;
        let length = u32::try_from(signature.len()).map_err(|_| SignError)?;
        data.extend_from_slice(&length.to_be_bytes());
        data.extend_from_slice(&signature);
        Ok(data)
    }
}

/// See [`crate::Ssh::fetch_host_key`].
pub(crate) async fn fetch_host_key(
    settings: &SshSettings,
    host: &str,
    port: u16,
) -> Result<ShownKey, Error> {
    let name = if host.contains(':') {
        format!("[{host}]:{port}")
    } else {
        format!("{host}:{port}")
    };
    let shared = Arc::new(Shared::default());
    let client = Client {
        host: host.to_owned(),
        port,
        trust: Arc::new(HostTrust::none()),
        shared: shared.clone(),
    };
    let config = config(settings, trust::algorithms(), false);
    let going = async {
        let stream = dial(&name, host, port).await?;
        match start(config, stream, client, &name, &shared).await {
            Err(Refused::TooMany(e) | Refused::OtherKey(_, e) | Refused::Final(e)) => Err(e),
            Ok(_) => Ok(()),
        }
    };
    let end = timeout(settings.connect, going).await.unwrap_or_else(|_| {
        Err(unavailable(
            &name,
            format_args!(
                "no SSH server answered within {} s",
                settings.connect.as_secs()
            ),
        ))
    });
    match (shared.shown(), end) {
        (Some((shown, _)), _) => Ok(shown),
        (None, Err(e)) => Err(e),
        (None, Ok(())) => Err(unavailable(&name, "the server showed no host key")),
    }
}

//! A TLS server before one that speaks in plain: it shows a certificate of an authority of its own, demands one of its
//! clients where it is told to, and counts whom it let in and whom it did not.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

/// A certificate authority.
pub struct Authority(CertifiedIssuer<'static, KeyPair>);

impl std::fmt::Debug for Authority {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Authority")
    }
}

/// A certificate and its key, in PEM.
#[derive(Clone, Debug)]
pub struct Identity {
    /// The certificate.
    pub certificate: String,
    /// The private key.
    pub key: String,
}

impl Authority {
    /// A new one.
    ///
    /// # Panics
    /// Without randomness.
    pub fn new() -> Authority {
        let mut params = CertificateParams::new(Vec::new()).expect("no names");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key");
        Authority(CertifiedIssuer::self_signed(params, key).expect("an authority"))
    }

    /// Its certificate in PEM.
    pub fn pem(&self) -> String {
        self.0.pem()
    }

    fn signed(&self, name: &str) -> (rcgen::Certificate, KeyPair) {
        let key = KeyPair::generate().expect("a key");
        let params = CertificateParams::new(vec![name.to_owned()]).expect("a name");
        (params.signed_by(&key, &self.0).expect("a certificate"), key)
    }

    /// A certificate for somebody of this name.
    ///
    /// # Panics
    /// Without randomness.
    pub fn identity(&self, name: &str) -> Identity {
        let (certificate, key) = self.signed(name);
        Identity {
            certificate: certificate.pem(),
            key: key.serialize_pem(),
        }
    }

    fn roots(&self) -> Arc<RootCertStore> {
        let mut roots = RootCertStore::empty();
        roots.add(self.0.der().clone()).expect("a root");
        Arc::new(roots)
    }
}

impl Default for Authority {
    fn default() -> Authority {
        Authority::new()
    }
}

#[derive(Debug, Default)]
struct Counts {
    admitted: AtomicUsize,
    refused: AtomicUsize,
}

/// The TLS server; dropped, it and its connections end.
#[derive(Debug)]
pub struct Front {
    address: SocketAddr,
    counts: Arc<Counts>,
    _runtime: tokio::runtime::Runtime,
}

impl Front {
    /// One on a free port of 127.0.0.1, with a certificate of `ours` for that address, for clients of `clients`, before what
    /// listens at `port`.
    ///
    /// # Panics
    /// Without a free port.
    pub fn before(port: u16, ours: &Authority, clients: &Authority) -> Front {
        Front::with(port, ours, Some(clients))
    }

    /// The same for all clients.
    ///
    /// # Panics
    /// Without a free port.
    pub fn open_before(port: u16, ours: &Authority) -> Front {
        Front::with(port, ours, None)
    }

    fn with(port: u16, ours: &Authority, clients: Option<&Authority>) -> Front {
        let (certificate, key) = ours.signed("127.0.0.1");
        let chain: Vec<CertificateDer<'static>> = vec![certificate.der().clone()];
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .expect("versions");
        let config = match clients {
            None => config.with_no_client_auth(),
            Some(clients) => {
                let verifier =
                    WebPkiClientVerifier::builder_with_provider(clients.roots(), provider);
                config.with_client_cert_verifier(verifier.build().expect("a verifier"))
            }
        };
        let config = config.with_single_cert(chain, key).expect("a certificate");
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .expect("a runtime");
        let counts = Arc::new(Counts::default());
        let listener = runtime
            .block_on(TcpListener::bind("127.0.0.1:0"))
            .expect("a port");
        let address = listener.local_addr().expect("an address");
        let counting = counts.clone();
        runtime.spawn(async move {
            while let Ok((near, _)) = listener.accept().await {
                let (acceptor, counting) = (acceptor.clone(), counting.clone());
                tokio::spawn(async move {
                    let Ok(mut near) = acceptor.accept(near).await else {
                        counting.refused.fetch_add(1, Ordering::SeqCst);
                        return;
                    };
                    counting.admitted.fetch_add(1, Ordering::SeqCst);
                    if let Ok(mut far) = TcpStream::connect(("127.0.0.1", port)).await {
                        // Whichever side ends first ends it.
                        let _ = tokio::io::copy_bidirectional(&mut near, &mut far).await;
                    }
                });
            }
        });
        Front {
            address,
            counts,
            _runtime: runtime,
        }
    }

    /// Where it listens.
    pub fn url(&self) -> String {
        format!("https://{}", self.address)
    }

    /// How many handshakes it ended well, and how many it did not.
    pub fn handshakes(&self) -> (usize, usize) {
        let count = |of: &AtomicUsize| of.load(Ordering::SeqCst);
        (count(&self.counts.admitted), count(&self.counts.refused))
    }
}

//! TLS: whom we trust, who we are, and what is said when either does not hold.

use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use async_trait::async_trait;
use leasehold_contract::Code;
use leasehold_egress::{Resolver, Secret, System, TlsSettings, Transport, Wire};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use tokio_rustls::TlsAcceptor;

use crate::server::{Server, ask, fails, raw, reply, settings, speak, transport, wire};

pub type Authority = CertifiedIssuer<'static, KeyPair>;

/// A certificate authority.
pub fn authority() -> Authority {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

/// A certificate for `name`, and its key.
pub fn signed(authority: &Authority, name: &str) -> (rcgen::Certificate, KeyPair) {
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(vec![name.to_owned()]).unwrap();
    let certificate = params.signed_by(&key, authority).unwrap();
    (certificate, key)
}

fn roots(authority: &Authority) -> Arc<RootCertStore> {
    let mut roots = RootCertStore::empty();
    roots.add(authority.der().clone()).unwrap();
    Arc::new(roots)
}

/// A TLS server with a certificate for `name`; asks for a client certificate of `clients` where there is one.
pub async fn server(authority: &Authority, name: &str, clients: Option<&Authority>) -> Server {
    let (certificate, key) = signed(authority, name);
    let chain: Vec<CertificateDer<'static>> = vec![certificate.der().clone()];
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .unwrap();
    let builder = match clients {
        None => builder.with_no_client_auth(),
        Some(clients) => builder.with_client_cert_verifier(
            WebPkiClientVerifier::builder_with_provider(roots(clients), provider)
                .build()
                .unwrap(),
        ),
    };
    let acceptor = TlsAcceptor::from(Arc::new(builder.with_single_cert(chain, key).unwrap()));
    raw(move |stream| {
        let acceptor = acceptor.clone();
        async move {
            if let Ok(stream) = acceptor.accept(stream).await {
                speak(stream, |request| async move {
                    reply(200, request.uri().path().to_owned())
                })
                .await;
            }
        }
    })
    .await
}

fn secure(server: &Server, method: &str, tls: Option<Arc<TlsSettings>>) -> Wire {
    let mut request = wire(method, &format!("https://{}/secret", server.at));
    request.destination.tls = tls;
    request.carries_secret = true;
    request
}

fn trusting(authority: &Authority) -> Option<Arc<TlsSettings>> {
    Some(TlsSettings::new(Some(&authority.pem()), None).unwrap())
}

#[tokio::test]
async fn a_server_is_trusted_by_the_authority_of_its_endpoint_and_by_no_other() {
    let (ours, theirs) = (authority(), authority());
    let server = server(&ours, "127.0.0.1", None).await;
    let transport = transport();
    let answer = ask(&transport, secure(&server, "GET", trusting(&ours)))
        .await
        .unwrap();
    assert_eq!(answer, (200, "/secret".to_owned()));
    for other in [trusting(&theirs), None] {
        let error = fails(&transport, secure(&server, "POST", other)).await;
        assert_eq!(error.code, Code::UntrustedPeer, "{error}");
        assert!(error.message.contains("signed by no authority"), "{error}");
    }
}

/// Every name is this machine's: a system that was just bootstrapped knows none, not even `localhost`.
struct Here;

#[async_trait]
impl Resolver for Here {
    async fn resolve(&self, _name: &str) -> io::Result<Vec<IpAddr>> {
        Ok(vec![Ipv4Addr::LOCALHOST.into()])
    }
}

#[tokio::test]
async fn a_certificate_for_another_name_is_not_trusted() {
    let ours = authority();
    let server = server(&ours, "localhost", None).await;
    let transport = Transport::over(settings(), Arc::new(Here), Arc::new(System));
    let error = fails(&transport, secure(&server, "POST", trusting(&ours))).await;
    assert_eq!(error.code, Code::UntrustedPeer, "{error}");
    assert!(error.message.contains("for another name"), "{error}");
    let mut named = wire("GET", &format!("https://localhost:{}/x", server.at.port()));
    named.destination.tls = trusting(&ours);
    assert_eq!(
        ask(&transport, named).await.unwrap(),
        (200, "/x".to_owned())
    );
}

#[tokio::test]
async fn a_certificate_that_has_expired_is_not_trusted() {
    let ours = authority();
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
    params.not_after = rcgen::date_time_ymd(2001, 1, 1);
    let certificate = params.signed_by(&key, &ours).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], key)
        .unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let server = raw(move |stream| {
        let acceptor = acceptor.clone();
        async move { drop(acceptor.accept(stream).await) }
    })
    .await;
    let error = fails(&transport(), secure(&server, "GET", trusting(&ours))).await;
    assert_eq!(error.code, Code::UntrustedPeer, "{error}");
    assert!(error.message.contains("expired"), "{error}");
}

#[tokio::test]
async fn a_client_certificate_is_shown_and_its_refusal_is_told() {
    let (ours, clients, strangers) = (authority(), authority(), authority());
    let server = server(&ours, "127.0.0.1", Some(&clients)).await;
    let transport = transport();
    let identity = |authority: &Authority| {
        let (certificate, key) = signed(authority, "client");
        let key = Secret::new(key.serialize_pem());
        Some(TlsSettings::new(Some(&ours.pem()), Some((&certificate.pem(), &key))).unwrap())
    };
    let answer = ask(&transport, secure(&server, "POST", identity(&clients)))
        .await
        .unwrap();
    assert_eq!(answer.0, 200);
    for wrong in [trusting(&ours), identity(&strangers)] {
        let error = fails(&transport, secure(&server, "POST", wrong)).await;
        assert_eq!(error.code, Code::Unauthenticated, "{error}");
        assert!(error.message.contains("clientCertificate"), "{error}");
    }
    // The right identity still goes through after the wrong ones, and over no connection of theirs.
    let answer = ask(&transport, secure(&server, "POST", identity(&clients)))
        .await
        .unwrap();
    assert_eq!(answer.0, 200);
}

#[test]
fn what_is_no_certificate_or_key_is_refused_by_the_name_of_its_field() {
    let ours = authority();
    let (certificate, key) = signed(&ours, "client");
    let (_, other) = signed(&ours, "other");
    let secret = |pem: String| Secret::new(pem);
    let refused = |ca: Option<&str>, identity: Option<(&str, &Secret)>| {
        let error = TlsSettings::new(ca, identity).unwrap_err();
        assert_eq!(error.code, Code::InvalidConfig);
        assert!(!error.message.contains("BEGIN PRIVATE"), "{error}");
        error.message
    };
    assert!(refused(Some("x"), None).starts_with("ca "));
    assert!(refused(Some(&key.serialize_pem()), None).starts_with("ca "));
    let key = secret(key.serialize_pem());
    assert!(refused(None, Some(("x", &key))).starts_with("clientCertificate "));
    assert!(
        refused(None, Some((&certificate.pem(), &secret("x".into())))).starts_with("clientKey ")
    );
    let other = secret(other.serialize_pem());
    assert!(refused(None, Some((&certificate.pem(), &other))).starts_with("clientKey "));
}

#[tokio::test]
async fn a_server_that_speaks_no_tls_is_told_as_that() {
    let server = crate::server::serve(|_| async { reply(200, "plain") }).await;
    let error = fails(
        &transport(),
        secure(&server, "POST", trusting(&authority())),
    )
    .await;
    assert_eq!(error.code, Code::Unavailable, "{error}");
    assert!(error.message.contains("TLS failed"), "{error}");
}

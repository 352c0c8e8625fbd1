//! Whom a TLS server must prove to be, and who we are to it.
//!
//! A CA that an endpoint names replaces the system's: an endpoint that pins its own is not reached over somebody else's
//! certificate. Sessions are not resumed: what one company negotiated is nothing to the next, and pools make handshakes
//! rare.

use std::sync::{Arc, OnceLock};

use leasehold_contract::{Code, Error};
use rustls::client::Resumption;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{AlertDescription, CertificateError, ClientConfig, RootCertStore};
use sha2::{Digest, Sha256};

use crate::error::{failed, quote, unavailable};
use crate::secret::Secret;

/// Trust and identity of one endpoint.
#[derive(Clone)]
pub struct TlsSettings {
    pub(super) config: Arc<ClientConfig>,
    /// Tells two of them apart in the pools.
    pub(super) fingerprint: String,
}

impl std::fmt::Debug for TlsSettings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "TlsSettings({})", self.fingerprint)
    }
}

impl TlsSettings {
    /// Tells two of them apart.
    pub(crate) fn fingerprint(&self) -> &str {
        &self.fingerprint
    }

    /// Trusts `ca` (PEM, one or more certificates; none: the system's) and shows `identity`: a certificate chain and its
    /// key, both PEM.
    ///
    /// # Errors
    /// `invalid-config` naming what is not as it must be.
    pub fn new(
        ca: Option<&str>,
        identity: Option<(&str, &Secret)>,
    ) -> Result<Arc<TlsSettings>, Error> {
        let mut digest = Sha256::new();
        let roots = match ca {
            Some(pem) => {
                part(&mut digest, pem.as_bytes());
                Arc::new(authorities(pem)?)
            }
            None => system_roots()?,
        };
        let provider = Arc::new(ring::default_provider());
        let builder = builder(provider)?.with_root_certificates(roots);
        let mut config = match identity {
            None => builder.with_no_client_auth(),
            Some((chain, key)) => {
                part(&mut digest, chain.as_bytes());
                part(&mut digest, key.expose().as_bytes());
                let chain = certificates(chain, "clientCertificate")?;
                let key = PrivateKeyDer::from_pem_slice(key.expose().as_bytes()).map_err(|_| {
                    invalid(
                        "clientKey is no PEM private key (PKCS#8, PKCS#1 or SEC1, not encrypted)",
                    )
                })?;
                builder.with_client_auth_cert(chain, key).map_err(|e| {
                    invalid(format!(
                        "clientKey does not fit clientCertificate ({e}); give the key of the first certificate"
                    ))
                })?
            }
        };
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        config.resumption = Resumption::disabled();
        Ok(Arc::new(TlsSettings {
            config: Arc::new(config),
            fingerprint: crate::hex(&digest.finalize()),
        }))
    }
}

fn builder(
    provider: Arc<CryptoProvider>,
) -> Result<rustls::ConfigBuilder<ClientConfig, rustls::WantsVerifier>, Error> {
    ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|e| {
            Error::new(
                Code::Internal,
                format!("TLS has no usable protocol version ({e})"),
            )
        })
}

fn part(digest: &mut Sha256, bytes: &[u8]) {
    digest.update((bytes.len() as u64).to_be_bytes());
    digest.update(bytes);
}

fn invalid(what: impl Into<String>) -> Error {
    Error::new(Code::InvalidConfig, what.into())
}

fn certificates(pem: &str, field: &str) -> Result<Vec<CertificateDer<'static>>, Error> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem.as_bytes()).collect();
    match found {
        Ok(found) if !found.is_empty() => Ok(found),
        _ => Err(invalid(format!(
            "{field} holds no PEM certificate; paste from -----BEGIN CERTIFICATE----- to its END line"
        ))),
    }
}

fn authorities(pem: &str) -> Result<RootCertStore, Error> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(pem, "ca")? {
        roots.add(certificate).map_err(|e| {
            invalid(format!(
                "ca holds a certificate that cannot be an authority ({e})"
            ))
        })?;
    }
    Ok(roots)
}

/// The system's roots, read once.
fn system_roots() -> Result<Arc<RootCertStore>, Error> {
    static ROOTS: OnceLock<Arc<RootCertStore>> = OnceLock::new();
    let roots = ROOTS.get_or_init(|| {
        let mut roots = RootCertStore::empty();
        let found = rustls_native_certs::load_native_certs();
        let (added, ignored) = roots.add_parsable_certificates(found.certs);
        tracing::debug!(
            added,
            ignored,
            errors = found.errors.len(),
            "read the system's certificate authorities"
        );
        Arc::new(roots)
    });
    if roots.is_empty() {
        return Err(Error::new(
            Code::FailedPrecondition,
            "the system has no certificate authorities; install ca-certificates or name its authority as ca",
        ));
    }
    Ok(roots.clone())
}

/// What a failed handshake, or an alert after it, means. Nothing of a request took effect.
pub(super) fn refused(name: &str, error: &rustls::Error) -> Error {
    use rustls::Error as E;
    match error {
        E::InvalidCertificate(why) => failed(
            Code::UntrustedPeer,
            name,
            format_args!(
                "{}; {}",
                certificate(why),
                "check the address, and the authority that is named as its ca"
            ),
        ),
        E::AlertReceived(alert) if wants_identity(*alert) => failed(
            Code::Unauthenticated,
            name,
            format_args!(
                "the server refuses our TLS identity ({alert:?}); check clientCertificate and clientKey"
            ),
        ),
        other => unavailable(
            name,
            format_args!("TLS failed ({})", quote(other.to_string().as_bytes())),
        ),
    }
}

/// Whether this alert says that our certificate is missing or not good enough.
fn wants_identity(alert: AlertDescription) -> bool {
    matches!(
        alert,
        AlertDescription::CertificateRequired
            | AlertDescription::BadCertificate
            | AlertDescription::UnsupportedCertificate
            | AlertDescription::CertificateRevoked
            | AlertDescription::CertificateExpired
            | AlertDescription::CertificateUnknown
            | AlertDescription::UnknownCA
            | AlertDescription::AccessDenied
            // Its authority has the name of ours, and another key.
            | AlertDescription::DecryptError
    )
}

fn certificate(why: &CertificateError) -> String {
    match why {
        // A bad signature: an authority of the same name is trusted, with another key.
        CertificateError::UnknownIssuer | CertificateError::BadSignature => {
            "its certificate is signed by no authority that is trusted here".to_owned()
        }
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            "its certificate is for another name".to_owned()
        }
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            "its certificate has expired".to_owned()
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            "its certificate is not valid yet".to_owned()
        }
        other => format!(
            "its certificate is not accepted ({})",
            quote(other.to_string().as_bytes())
        ),
    }
}

/// The TLS error inside another, where there is one.
pub(super) fn inside<'a>(
    error: &'a (dyn std::error::Error + 'static),
) -> Option<&'a rustls::Error> {
    let mut at = Some(error);
    while let Some(e) = at {
        if let Some(found) = e.downcast_ref::<rustls::Error>() {
            return Some(found);
        }
        if let Some(io) = e.downcast_ref::<std::io::Error>()
            && let Some(found) = io.get_ref().and_then(|e| e.downcast_ref::<rustls::Error>())
        {
            return Some(found);
        }
        at = e.source();
    }
    None
}

//! Whether a host certificate of a known authority holds: type, principals, validity, critical options, signature.

use russh::keys::ssh_key::certificate::CertType;
use russh::keys::{Algorithm, Certificate, HashAlg};

use super::known_hosts::wildcard;

/// `now` in seconds since 1970. The authority was found before; here the rest is checked, and the reason told.
pub(super) fn holds(cert: &Certificate, host: &str, now: u64) -> Result<(), String> {
    if cert.cert_type() != CertType::Host {
        return Err("it is a user certificate".into());
    }
    if matches!(
        cert.signature().algorithm(),
        Algorithm::Dsa | Algorithm::Rsa { hash: None }
    ) {
        return Err("its authority signed it with SHA-1; sign it anew with rsa-sha2-512".into());
    }
    // Also checks the signature, the validity and that no critical option stands in it.
    if !cert.critical_options().is_empty() {
        let names: Vec<&str> = cert.critical_options().keys().map(String::as_str).collect();
        return Err(format!(
            "it has critical options that are not known here ({})",
            names.join(", ")
        ));
    }
    if now < cert.valid_after() {
        return Err("it is not valid yet; compare the clocks".into());
    }
    if now >= cert.valid_before() {
        return Err("it has expired; sign a new one".into());
    }
    if cert.valid_principals().is_empty() {
        return Err("it names no principal; sign one for this host's name".into());
    }
    let host = host.to_lowercase();
    if !cert
        .valid_principals()
        .iter()
        .any(|p| wildcard(&p.to_lowercase(), &host))
    {
        return Err(format!(
            "it is for {}, not for {host}",
            cert.valid_principals().join(", ")
        ));
    }
    let authority = cert.signature_key().fingerprint(HashAlg::Sha256);
    cert.validate_at(now, [&authority])
        .map_err(|_| "its signature does not hold".to_owned())
}

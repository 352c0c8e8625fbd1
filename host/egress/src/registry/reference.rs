//! Names of things in registries: `oci://host[:port]/name[:tag][@sha256:…]`, read by the grammar of the OCI distribution
//! specification 1.1 ("Pulling manifests") and in one spelling. Nothing is resolved.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use sha2::{Digest as _, Sha256};

use crate::error::quote;
use crate::http::{Host, Parsed};

/// How a reference begins.
const SCHEME: &str = "oci://";
/// The longest repository with its registry that clients agree on.
const LONGEST: usize = 255;
/// The port of `https`.
const HTTPS: u16 = 443;
/// How tags begin that hold what belongs to another manifest, with its digest behind it: signatures and attestations of
/// cosign, and referrers (distribution specification, "Referrers Tag Schema").
const BESIDE: &str = "sha256-";
/// The longest tag.
const LONGEST_TAG: usize = 128;
/// What is meant where neither tag nor digest is written.
const DEFAULT_TAG: &str = "latest";

/// A reference, or a part of one, that is none.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct BadReference(String);

fn bad<T>(what: impl Into<String>) -> Result<T, BadReference> {
    Err(BadReference(what.into()))
}

/// The SHA-256 of something, as registries write it: `sha256:` and 64 lower-case hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct ContentDigest([u8; 32]);

impl ContentDigest {
    /// Of these bytes.
    pub fn of(bytes: &[u8]) -> ContentDigest {
        ContentDigest(Sha256::digest(bytes).into())
    }

    pub(super) fn from_hash(hash: Sha256) -> ContentDigest {
        ContentDigest(hash.finalize().into())
    }

    /// The 64 digits.
    pub fn hex(&self) -> String {
        crate::hex(&self.0)
    }
}

impl fmt::Display for ContentDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sha256:{}", self.hex())
    }
}

impl fmt::Debug for ContentDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for ContentDigest {
    type Err = BadReference;

    fn from_str(text: &str) -> Result<ContentDigest, BadReference> {
        let wrong = || {
            BadReference(format!(
                "the digest {:?} is not sha256: and 64 lower-case hexadecimal digits",
                quote(text.as_bytes())
            ))
        };
        let hex = text.strip_prefix("sha256:").ok_or_else(wrong)?;
        if hex.len() != 64 || !hex.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f')) {
            return Err(wrong());
        }
        let mut digest = [0; 32];
        for (byte, pair) in digest.iter_mut().zip(hex.as_bytes().chunks(2)) {
            *byte = std::str::from_utf8(pair)
                .ok()
                .and_then(|pair| u8::from_str_radix(pair, 16).ok())
                .ok_or_else(wrong)?;
        }
        Ok(ContentDigest(digest))
    }
}

/// A registry as it is typed: a host, and a port where it has one of its own.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RegistryName {
    host: Host,
    port: Option<u16>,
}

impl RegistryName {
    /// Where it is.
    pub fn host(&self) -> &Host {
        &self.host
    }

    /// Its port, where it is not that of the scheme.
    pub fn port(&self) -> Option<u16> {
        self.port
    }

    /// Its port, over `http://` where it is spoken to in plain.
    pub(super) fn port_over(&self, plain: bool) -> u16 {
        self.port.unwrap_or(if plain { 80 } else { HTTPS })
    }

    /// Whether it is an address of this machine, typed as one.
    pub fn is_loopback_address(&self) -> bool {
        match &self.host {
            Host::Ip(IpAddr::V4(ip)) => ip.is_loopback(),
            Host::Ip(IpAddr::V6(ip)) => ip.is_loopback(),
            Host::Name(_) => false,
        }
    }
}

impl fmt::Display for RegistryName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.port {
            Some(port) => write!(f, "{}:{port}", self.host),
            None => fmt::Display::fmt(&self.host, f),
        }
    }
}

impl FromStr for RegistryName {
    type Err = BadReference;

    fn from_str(text: &str) -> Result<RegistryName, BadReference> {
        if text.is_empty() || text.contains(['/', '?', '#']) {
            return bad(format!(
                "the registry {:?} is not a host, or a host and its port, as registry.example.org or 127.0.0.1:5000",
                quote(text.as_bytes())
            ));
        }
        if let Some((_, host)) = text.rsplit_once('@') {
            return bad(format!(
                "the registry {:?} has user-info before it; leave it out: an account is never part of a name",
                quote(host.as_bytes())
            ));
        }
        // The parser of origins refuses dots at the end and whatever else fools a reader.
        let parsed = Parsed::read(&format!("https://{text}/")).map_err(|what| {
            BadReference(format!("the registry {:?} {what}", quote(text.as_bytes())))
        })?;
        let written = match text.rsplit_once(':') {
            Some((_, port)) => !port.contains(']'),
            None => false,
        };
        let name = RegistryName {
            host: parsed.origin.host,
            port: written.then_some(parsed.origin.port),
        };
        // One spelling: the port of https is not written, but of an address of this machine, which http may be spoken to.
        Ok(match name.port {
            Some(HTTPS) if !name.is_loopback_address() => RegistryName { port: None, ..name },
            _ => name,
        })
    }
}

/// A thing in a registry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reference {
    registry: RegistryName,
    repository: String,
    tag: Option<String>,
    digest: Option<ContentDigest>,
}

impl Reference {
    /// Where it is kept.
    pub fn registry(&self) -> &RegistryName {
        &self.registry
    }

    /// The name of the repository in it.
    pub fn repository(&self) -> &str {
        &self.repository
    }

    /// The tag that was written, or meant.
    pub fn tag(&self) -> Option<&str> {
        self.tag.as_deref()
    }

    /// The manifest's digest, where it was written: then the tag decides nothing.
    pub fn digest(&self) -> Option<ContentDigest> {
        self.digest
    }

    /// The same, with this digest: what it stands for from now on.
    pub fn pinned(&self, digest: ContentDigest) -> Reference {
        Reference {
            digest: Some(digest),
            ..self.clone()
        }
    }

    /// The same, with the registry in this spelling of it.
    pub fn at(self, registry: &RegistryName) -> Reference {
        Reference {
            registry: registry.clone(),
            ..self
        }
    }

    /// Whether its tag is a place for what belongs to another manifest, such as its signatures.
    pub(super) fn is_beside_another(&self) -> bool {
        self.tag
            .as_deref()
            .and_then(|tag| tag.strip_prefix(BESIDE)?.get(..64))
            .is_some_and(|digest| digest.bytes().all(|b| b.is_ascii_hexdigit()))
    }

    /// Registry and repository, as a signature names them.
    pub fn place(&self) -> String {
        format!("{}/{}", self.registry, self.repository)
    }
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{SCHEME}{}/{}", self.registry, self.repository)?;
        if let Some(tag) = &self.tag {
            write!(f, ":{tag}")?;
        }
        if let Some(digest) = &self.digest {
            write!(f, "@{digest}")?;
        }
        Ok(())
    }
}

impl FromStr for Reference {
    type Err = BadReference;

    fn from_str(text: &str) -> Result<Reference, BadReference> {
        let shown = || quote(text.as_bytes());
        if text.trim() != text {
            return bad(format!(
                "{:?} has white space around it; leave it out",
                shown()
            ));
        }
        let begins = text.get(..SCHEME.len());
        if begins.is_some_and(|begins| begins != SCHEME && begins.eq_ignore_ascii_case(SCHEME)) {
            return bad(format!(
                "{:?} is not a reference; write {SCHEME} in lower case",
                shown()
            ));
        }
        let Some(rest) = text.strip_prefix(SCHEME) else {
            return bad(format!(
                "{:?} is not a reference; write oci://host/name:tag or oci://host/name@sha256:…",
                shown()
            ));
        };
        let Some((registry, rest)) = rest.split_once('/') else {
            return bad(format!(
                "{:?} names no repository; write oci://host/name:tag",
                shown()
            ));
        };
        let registry: RegistryName = registry.parse()?;
        let (rest, digest) = match rest.split_once('@') {
            Some((rest, digest)) => (rest, Some(digest.parse()?)),
            None => (rest, None),
        };
        let (repository, tag) = match rest.split_once(':') {
            Some((repository, tag)) => (repository, Some(tag)),
            None => (rest, None),
        };
        if !is_repository(repository) {
            return bad(format!(
                "the repository {:?} is not parts of a-z and 0-9 with single ., _, __ or any - between them, and / between the parts",
                quote(repository.as_bytes())
            ));
        }
        if let Some(tag) = tag
            && !is_tag(tag)
        {
            return bad(format!(
                "the tag {:?} is not 1 to {LONGEST_TAG} letters, digits, _, . and -, the first of them no . and no -",
                quote(tag.as_bytes())
            ));
        }
        let tag = match (tag, digest) {
            (Some(tag), _) => Some(tag.to_owned()),
            (None, Some(_)) => None,
            (None, None) => Some(DEFAULT_TAG.to_owned()),
        };
        let reference = Reference {
            registry,
            repository: repository.to_owned(),
            tag,
            digest,
        };
        if reference.place().len() > LONGEST {
            return bad(format!(
                "registry and repository have {} characters, and at most {LONGEST} are understood everywhere",
                reference.place().len()
            ));
        }
        Ok(reference)
    }
}

/// `[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*(\/[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*)*`
fn is_repository(name: &str) -> bool {
    name.split('/').all(is_component)
}

fn is_component(part: &str) -> bool {
    let is_word = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let bytes = part.as_bytes();
    if !bytes.first().copied().is_some_and(is_word) || !bytes.last().copied().is_some_and(is_word) {
        return false;
    }
    part.split(|c: char| c.is_ascii() && is_word(c as u8))
        .all(|between| {
            matches!(between, "" | "." | "_" | "__") || between.bytes().all(|b| b == b'-')
        })
}

/// `[a-zA-Z0-9_][a-zA-Z0-9._-]{0,127}`
fn is_tag(tag: &str) -> bool {
    let is_word = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
    tag.len() <= LONGEST_TAG
        && tag.bytes().next().is_some_and(is_word)
        && tag.bytes().all(|b| is_word(b) || matches!(b, b'.' | b'-'))
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIGEST: &str = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

    #[test]
    fn a_reference_is_read_into_its_parts_and_written_in_one_spelling() {
        for (text, place, tag, digest) in [
            (
                "oci://r.example/ssh",
                "r.example/ssh",
                Some("latest"),
                false,
            ),
            (
                "oci://R.Example/ssh:1.0",
                "r.example/ssh",
                Some("1.0"),
                false,
            ),
            (
                "oci://127.0.0.1:5000/a/b__c:_x",
                "127.0.0.1:5000/a/b__c",
                Some("_x"),
                false,
            ),
            (
                "oci://[::1]:5000/a-----b",
                "[::1]:5000/a-----b",
                Some("latest"),
                false,
            ),
            (
                "oci://r.example:443/a.b",
                "r.example/a.b",
                Some("latest"),
                false,
            ),
            (
                "oci://127.0.0.1:443/a",
                "127.0.0.1:443/a",
                Some("latest"),
                false,
            ),
            (
                &format!("oci://r.example/ssh@{DIGEST}"),
                "r.example/ssh",
                None,
                true,
            ),
            (
                &format!("oci://r.example/ssh:V-1@{DIGEST}"),
                "r.example/ssh",
                Some("V-1"),
                true,
            ),
        ] {
            let reference: Reference = text.parse().unwrap();
            assert_eq!(reference.place(), place, "{text}");
            assert_eq!(reference.tag(), tag, "{text}");
            assert_eq!(reference.digest().is_some(), digest, "{text}");
            let again: Reference = reference.to_string().parse().unwrap();
            assert_eq!(again, reference, "{text}");
        }
        assert_eq!(ContentDigest::of(b"").to_string(), DIGEST);
        assert_eq!(DIGEST.parse(), Ok(ContentDigest::of(b"")));
    }

    #[test]
    fn what_is_no_reference_is_refused_by_its_part() {
        let long = format!("oci://r.example/{}", "a/".repeat(130) + "a");
        let long_tag = format!("oci://r.example/a:{}", "t".repeat(129));
        for (text, words) in [
            ("", "is not a reference"),
            ("r.example/ssh:1", "is not a reference"),
            ("docker://r.example/ssh", "is not a reference"),
            ("OCI://r.example/ssh", "is not a reference"),
            ("OCI://r.example/ssh", "in lower case"),
            (" oci://r.example/ssh", "white space around it"),
            ("oci://r.example/ssh:1 ", "white space around it"),
            ("https://r.example/ssh", "write oci://"),
            ("oci://r.example", "names no repository"),
            ("oci:///ssh", "the registry"),
            ("oci://user@r.example/ssh", "user-info"),
            ("oci://user:pw@r.example/ssh", "user-info"),
            ("oci://r.example./ssh", "ends with a dot"),
            ("oci://r.example:0/ssh", "port 0"),
            ("oci://r.example:x/ssh", "port"),
            ("oci://r.example?x/ssh", "the registry"),
            ("oci://r.example/", "the repository"),
            ("oci://r.example//ssh", "the repository"),
            ("oci://r.example/ssh/", "the repository"),
            ("oci://r.example/../ssh", "the repository"),
            ("oci://r.example/Ssh", "the repository"),
            ("oci://r.example/-ssh", "the repository"),
            ("oci://r.example/ssh-", "the repository"),
            ("oci://r.example/s..sh", "the repository"),
            ("oci://r.example/s___sh", "the repository"),
            ("oci://r.example/s._sh", "the repository"),
            ("oci://r.example/s%2fsh", "the repository"),
            ("oci://r.example/ssé", "the repository"),
            ("oci://r.example/ssh?x=y", "the repository"),
            ("oci://r.example/ssh#x", "the repository"),
            ("oci://r.example/ssh:", "the tag"),
            ("oci://r.example/ssh:.a", "the tag"),
            ("oci://r.example/ssh:-a", "the tag"),
            ("oci://r.example/ssh:a b", "the tag"),
            ("oci://r.example/ssh:a:b", "the tag"),
            ("oci://r.example/ssh:a/b", "the tag"),
            (&long_tag, "the tag"),
            (&long, "characters"),
            ("oci://r.example/ssh@sha256:00", "the digest"),
            ("oci://r.example/ssh@sha512:00", "the digest"),
            (
                &format!("oci://r.example/ssh@{}", DIGEST.to_uppercase()),
                "the digest",
            ),
            (
                &format!("oci://r.example/ssh@{DIGEST}@{DIGEST}"),
                "the digest",
            ),
            (&format!("oci://r.example/ssh@{DIGEST}:tag"), "the digest"),
        ] {
            let refused = text.parse::<Reference>().unwrap_err().to_string();
            assert!(refused.contains(words), "{text}: {refused}");
            // It is a registry, and no endpoint or site, and nobody wrote a URL.
            for other in ["pw", "endpoint", "site", "the URL", "https://r"] {
                let own = text.contains(other) && other == "https://r";
                assert!(own || !refused.contains(other), "{text}: {refused}");
            }
        }
    }

    #[test]
    fn a_tag_that_belongs_to_another_manifest_is_known_by_the_digest_in_it() {
        let digits = "0a".repeat(32);
        for (tag, is) in [
            (format!("sha256-{digits}.sig"), true),
            (format!("sha256-{digits}.att"), true),
            (format!("sha256-{digits}"), true),
            (format!("sha256-{}.sig", digits.to_uppercase()), true),
            (format!("sha256-{}", &digits[1..]), false),
            (format!("v-sha256-{digits}"), false),
            ("1.0".to_owned(), false),
        ] {
            let reference: Reference = format!("oci://r.example/a:{tag}").parse().unwrap();
            assert_eq!(reference.is_beside_another(), is, "{tag}");
        }
        let pinned: Reference = format!("oci://r.example/a@{DIGEST}").parse().unwrap();
        assert!(!pinned.is_beside_another());
    }

    #[test]
    fn only_an_address_of_this_machine_counts_as_loopback() {
        for (name, is) in [
            ("127.0.0.1:5000", true),
            ("127.8.8.8", true),
            ("2130706433", true),
            ("[::1]:5000", true),
            ("localhost:5000", false),
            ("10.0.0.1", false),
            ("[::ffff:127.0.0.1]", false),
        ] {
            let name: RegistryName = name.parse().unwrap();
            assert_eq!(name.is_loopback_address(), is, "{name}");
        }
    }
}

//! An origin in its one spelling: scheme, host and port, read by the URL standard and refused where a reader could be
//! fooled about it.
//!
//! The standard's parser forgives much (backslashes, tabs, missing slashes, user-info). What it forgives is refused here
//! before it sees it, so that what is compared with a grant is what a person would read. Decimal, octal and hexadecimal
//! IPv4 become dotted, IDN becomes its A-labels. Nothing is resolved.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;

use leasehold_contract::{Code, Error};
use sha2::{Digest, Sha256};
use url::Url;

use crate::error::quote;

/// The longest URL, without the query that egress appends.
const LONGEST: usize = 8 * 1024;
/// The host of an origin that stands in for a Unix socket; `.invalid` never resolves (RFC 6761, 6.4).
const SOCKET: &str = "socket.invalid";

/// How a destination is spoken to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scheme {
    /// In plain.
    Http,
    /// Over TLS.
    Https,
}

impl Scheme {
    /// As in a URL.
    pub fn as_str(self) -> &'static str {
        match self {
            Scheme::Http => "http",
            Scheme::Https => "https",
        }
    }

    fn port(self) -> u16 {
        match self {
            Scheme::Http => 80,
            Scheme::Https => 443,
        }
    }
}

/// A host in its one spelling.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Host {
    /// A name in lower-case A-labels, without a trailing dot.
    Name(String),
    /// An address that was written as one, in whatever notation.
    Ip(IpAddr),
}

/// Scheme, host and port.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Origin {
    /// How it is spoken to.
    pub scheme: Scheme,
    /// Where.
    pub host: Host,
    /// Never 0.
    pub port: u16,
}

/// What an absolute URL says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parsed {
    /// Scheme, host and port.
    pub origin: Origin,
    /// Begins with `/`; dot segments are resolved, escapes as they were.
    pub path: String,
    /// Without the `?`.
    pub query: Option<String>,
}

impl Parsed {
    /// Reads an absolute `http` or `https` URL.
    ///
    /// # Errors
    /// `invalid-config`, naming what a URL must not have.
    pub fn of(text: &str) -> Result<Parsed, Error> {
        Parsed::read(text).map_err(|what| {
            Error::new(
                Code::InvalidConfig,
                format!("the URL {:?} {what}", shown(text)),
            )
        })
    }

    /// The same, for what a person did not write as a URL.
    ///
    /// # Errors
    /// What it must not have, as the end of a sentence.
    pub(crate) fn read(text: &str) -> Result<Parsed, String> {
        let refuse = |what: &str| Err(what.to_owned());
        if text.len() > LONGEST {
            return refuse("is longer than 8 KiB");
        }
        if let Some(c) = text
            .chars()
            .find(|c| c.is_control() || c.is_whitespace() || *c == '\\')
        {
            return refuse(&format!(
                "has the character {c:?}; percent-encode it where it belongs"
            ));
        }
        let Some((scheme, rest)) = text.split_once("://") else {
            return refuse("is not absolute; write http://host/ or https://host/");
        };
        if !matches!(scheme, "http" | "https") {
            return refuse("has another scheme than http and https, in lower case");
        }
        let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
        if let Err(what) = check_authority(authority) {
            return refuse(&what);
        }
        let Ok(url) = Url::parse(text) else {
            return refuse("has no valid host or port");
        };
        if url.fragment().is_some() {
            return refuse("has a fragment, which is never sent; leave it out");
        }
        let scheme = match url.scheme() {
            "http" => Scheme::Http,
            _ => Scheme::Https,
        };
        let host = match url.host() {
            Some(url::Host::Domain(name)) => {
                if !is_name(name) {
                    return refuse("has a host that is not a name of the DNS");
                }
                Host::Name(name.to_owned())
            }
            Some(url::Host::Ipv4(ip)) => Host::Ip(IpAddr::V4(ip)),
            Some(url::Host::Ipv6(ip)) => Host::Ip(IpAddr::V6(ip)),
            None => return refuse("has no host"),
        };
        let port = url.port().unwrap_or(scheme.port());
        if port == 0 {
            return refuse("has port 0; give one from 1 to 65535");
        }
        Ok(Parsed {
            origin: Origin { scheme, host, port },
            path: url.path().to_owned(),
            query: url.query().map(str::to_owned),
        })
    }
}

impl Origin {
    /// The origin that stands in, on a component's side, for this Unix socket.
    pub fn stand_in(socket: &Path) -> Origin {
        let digest = Sha256::digest(socket.as_os_str().as_encoded_bytes());
        Origin {
            scheme: Scheme::Http,
            host: Host::Name(format!("{}.{SOCKET}", crate::hex(&digest[..8]))),
            port: Scheme::Http.port(),
        }
    }

    /// Whether it is written as one of this machine: what a name leads to is looked at when it is dialled.
    pub(crate) fn may_be_loopback(&self) -> bool {
        match &self.host {
            Host::Ip(ip) => ip.to_canonical().is_loopback(),
            Host::Name(name) => name == "localhost" || name.ends_with(".localhost"),
        }
    }

    /// Host, and port where it is not the scheme's own: the Host header.
    pub fn authority(&self) -> String {
        self.after_scheme().to_string()
    }

    fn after_scheme(&self) -> impl fmt::Display {
        fmt::from_fn(|f| match self.port {
            port if port == self.scheme.port() => fmt::Display::fmt(&self.host, f),
            port => write!(f, "{}:{port}", self.host),
        })
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Host::Name(name) => f.write_str(name),
            Host::Ip(IpAddr::V4(ip)) => fmt::Display::fmt(ip, f),
            Host::Ip(IpAddr::V6(ip)) => write!(f, "[{ip}]"),
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}", self.scheme.as_str(), self.after_scheme())
    }
}

/// Origins that a plugin may be granted: exact, or all below a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OriginPattern {
    /// Whether one or more labels stand before the host.
    below: bool,
    origin: Origin,
}

impl OriginPattern {
    /// Reads `scheme://host` or `scheme://host:port`, where the host may begin with `*.` for one or more labels.
    ///
    /// # Errors
    /// `invalid-config`: nothing that a pattern says and egress does not enforce is accepted.
    pub fn of(text: &str) -> Result<OriginPattern, Error> {
        let refuse = |what: &str| {
            Err(Error::new(
                Code::InvalidConfig,
                format!("the origin pattern {:?} {what}", shown(text)),
            ))
        };
        let (below, plain) = match text.split_once("://*.") {
            Some((scheme, rest)) => (true, format!("{scheme}://{rest}")),
            None => (false, text.to_owned()),
        };
        if plain.contains('*') {
            return refuse("has a * elsewhere than as the first label");
        }
        let after = plain.split_once("://").map_or("", |(_, rest)| rest);
        if after.contains(['/', '?', '#']) {
            return refuse("has a path; write scheme://host or scheme://host:port");
        }
        let Parsed { origin, .. } = Parsed::of(&plain)?;
        match &origin.host {
            Host::Ip(_) if below => return refuse("has a * before an address"),
            Host::Name(name) if below && !name.contains('.') => {
                return refuse("covers a whole top-level domain; name at least two labels");
            }
            _ => {}
        }
        Ok(OriginPattern { below, origin })
    }

    /// Whether it covers this origin.
    pub fn covers(&self, origin: &Origin) -> bool {
        if self.origin.scheme != origin.scheme || self.origin.port != origin.port {
            return false;
        }
        match (&self.origin.host, &origin.host) {
            (Host::Name(suffix), Host::Name(name)) if self.below => name
                .strip_suffix(suffix.as_str())
                .is_some_and(|before| before.len() > 1 && before.ends_with('.')),
            (own, other) => own == other,
        }
    }
}

/// What an authority must not have, before the forgiving parser sees it.
fn check_authority(authority: &str) -> Result<(), String> {
    if authority.is_empty() {
        return Err("has no host".to_owned());
    }
    if authority.contains('@') {
        return Err(
            "has user-info before the host; leave it out, a credential is never part of an address"
                .to_owned(),
        );
    }
    if authority.contains('%') {
        return Err("has a percent-encoded host; write it plainly".to_owned());
    }
    if authority.contains(['\u{3002}', '\u{ff0e}', '\u{ff61}']) {
        return Err("has a full stop of another script in the host; write `.`".to_owned());
    }
    let host = match authority.rsplit_once(':') {
        Some((host, port)) if !port.contains(']') => host,
        _ => authority,
    };
    if host.ends_with('.') {
        return Err("has a host that ends with a dot; leave the dot out".to_owned());
    }
    Ok(())
}

/// Whether this is a name that DNS can carry.
fn is_name(name: &str) -> bool {
    let label = |l: &str| {
        (1..=63).contains(&l.len())
            && l.bytes()
                .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'-' | b'_'))
    };
    name.len() <= 253 && name.split('.').all(label)
}

/// A URL for a message: bounded, and without what may be a password.
fn shown(text: &str) -> String {
    let text = quote(text.as_bytes());
    match text.split_once("://") {
        Some((scheme, rest)) => {
            let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
            let authority = &rest[..end];
            let host = authority.rsplit_once('@').map_or(authority, |(_, h)| h);
            let path = &rest[end..];
            // A query may hold what should not be shown; the path says enough.
            let path = path.split(['?', '#']).next().unwrap_or_default();
            format!("{scheme}://{host}{path}")
        }
        None => text,
    }
}

/// The address of an IPv4-mapped IPv6 address is its IPv4 address: they are one peer.
pub(super) fn unmapped(ip: IpAddr) -> IpAddr {
    match ip {
        IpAddr::V6(v6) => v6.to_ipv4_mapped().map_or(ip, IpAddr::V4),
        IpAddr::V4(_) => ip,
    }
}

/// The IPv4 address that an IPv6 address of a translation or a tunnel leads to.
pub(super) fn embedded(ip: Ipv6Addr) -> Option<Ipv4Addr> {
    let s = ip.segments();
    let v4 = |high: u16, low: u16| {
        let [a, b] = high.to_be_bytes();
        let [c, d] = low.to_be_bytes();
        Some(Ipv4Addr::new(a, b, c, d))
    };
    match s {
        // Mapped, compatible, and SIIT's translated.
        [0, 0, 0, 0, 0, 0xffff | 0, high, low] => v4(high, low),
        [0, 0, 0, 0, 0xffff, 0, high, low] => v4(high, low),
        // NAT64, well-known and local-use prefix.
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] => v4(high, low),
        [0x64, 0xff9b, 1, _, _, _, high, low] => v4(high, low),
        // 6to4.
        [0x2002, high, low, ..] => v4(high, low),
        // Teredo: the client's address, inverted.
        [0x2001, 0, _, _, _, _, high, low] => v4(!high, !low),
        // ISATAP.
        [_, _, _, _, 0 | 0x200, 0x5efe, high, low] => v4(high, low),
        _ => None,
    }
}

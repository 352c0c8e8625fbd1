//! Which addresses are public, and which may be dialled for which destination.
//!
//! The tables are IANA's registries of special-purpose IPv4 and IPv6 addresses (RFC 6890 and its updates), read
//! strictly: what they call global only in part counts as reserved. Of IPv6 only 2000::/3 is handed out at all, so that
//! everything else is reserved, mapped and translated forms among it.
//!
//! An approved pattern reaches public addresses only. An endpoint that an administrator typed reaches any, with one
//! exception: a *name* never leads to link-local or a cloud's metadata service. Who runs a name's zone points it where
//! they like, and there the answer is credentials of the machine that we run on; whoever means that address types it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::origin::{Host, embedded, unmapped};

/// What kind of address it is, for the decision and the message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Public,
    Loopback,
    LinkLocal,
    Metadata,
    Reserved(&'static str),
}

const V4: &[(Ipv4Addr, u32, &str)] = &[
    (Ipv4Addr::new(0, 0, 0, 0), 8, "this network"),
    (Ipv4Addr::new(10, 0, 0, 0), 8, "private"),
    (Ipv4Addr::new(100, 64, 0, 0), 10, "carrier-grade NAT"),
    (Ipv4Addr::new(172, 16, 0, 0), 12, "private"),
    (Ipv4Addr::new(192, 0, 0, 0), 24, "IETF protocols"),
    (Ipv4Addr::new(192, 0, 2, 0), 24, "documentation"),
    (Ipv4Addr::new(192, 31, 196, 0), 24, "AS112"),
    (Ipv4Addr::new(192, 52, 193, 0), 24, "multicast tunnels"),
    (Ipv4Addr::new(192, 88, 99, 0), 24, "6to4 relays"),
    (Ipv4Addr::new(192, 168, 0, 0), 16, "private"),
    (Ipv4Addr::new(192, 175, 48, 0), 24, "AS112"),
    (Ipv4Addr::new(198, 18, 0, 0), 15, "benchmarking"),
    (Ipv4Addr::new(198, 51, 100, 0), 24, "documentation"),
    (Ipv4Addr::new(203, 0, 113, 0), 24, "documentation"),
    (Ipv4Addr::new(224, 0, 0, 0), 4, "multicast"),
    (Ipv4Addr::new(240, 0, 0, 0), 4, "reserved"),
];

/// Reserved ranges, those inside 2000::/3 and those that deserve a name; the rest outside it is "not handed out".
const V6: &[(Ipv6Addr, u32, &str)] = &[
    (v6(&[0, 0, 0, 0, 0, 0xffff]), 96, "IPv4-mapped"),
    (v6(&[]), 96, "IPv4-compatible or unspecified"),
    (v6(&[0, 0, 0, 0, 0xffff]), 96, "IPv4-translated"),
    (v6(&[0x64, 0xff9b]), 96, "NAT64"),
    (v6(&[0x64, 0xff9b, 1]), 48, "NAT64 of a network"),
    (v6(&[0x100]), 64, "discard-only"),
    (v6(&[0x100, 0, 0, 1]), 64, "dummy"),
    (v6(&[0x2001, 0]), 32, "Teredo"),
    (v6(&[0x2001, 0]), 23, "IETF protocols"),
    (v6(&[0x2001, 0xdb8]), 32, "documentation"),
    (v6(&[0x2002]), 16, "6to4"),
    (v6(&[0x2620, 0x4f, 0x8000]), 48, "AS112"),
    (v6(&[0x3fff]), 20, "documentation"),
    (v6(&[0x5f00]), 16, "segment routing"),
    (v6(&[0xfc00]), 7, "unique local"),
    (v6(&[0xfec0]), 10, "site-local"),
    (v6(&[0xff00]), 8, "multicast"),
];

/// Where clouds answer their machines' questions, outside link-local: Alibaba, Oracle, Amazon by IPv6.
const METADATA: &[IpAddr] = &[
    IpAddr::V4(Ipv4Addr::new(100, 100, 100, 200)),
    IpAddr::V4(Ipv4Addr::new(192, 0, 0, 192)),
    IpAddr::V4(Ipv4Addr::new(169, 254, 169, 254)),
    IpAddr::V4(Ipv4Addr::new(168, 63, 129, 16)),
    IpAddr::V6(v6(&[0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254])),
    IpAddr::V6(v6(&[0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254])),
];

const fn v6(first: &[u16]) -> Ipv6Addr {
    let mut s = [0u16; 8];
    let mut i = 0;
    while i < first.len() {
        s[i] = first[i];
        i += 1;
    }
    Ipv6Addr::new(s[0], s[1], s[2], s[3], s[4], s[5], s[6], s[7])
}

/// What kind of address this is.
pub(super) fn kind(ip: IpAddr) -> Kind {
    if METADATA.contains(&ip) {
        return Kind::Metadata;
    }
    match ip {
        IpAddr::V4(ip) => {
            if ip.is_loopback() {
                return Kind::Loopback;
            }
            if ip.is_link_local() {
                return Kind::LinkLocal;
            }
            let bits = ip.to_bits();
            V4.iter()
                .find(|(net, len, _)| (bits ^ net.to_bits()) >> (32 - len) == 0)
                .map_or(Kind::Public, |(_, _, name)| Kind::Reserved(name))
        }
        IpAddr::V6(ip) => {
            if ip.is_loopback() {
                return Kind::Loopback;
            }
            let bits = ip.to_bits();
            if ip.segments()[0] & 0xffc0 == 0xfe80 {
                return Kind::LinkLocal;
            }
            if let Some((_, _, name)) = V6
                .iter()
                .find(|(net, len, _)| (bits ^ net.to_bits()) >> (128 - len) == 0)
            {
                return Kind::Reserved(name);
            }
            if ip.segments()[0] & 0xe000 != 0x2000 {
                return Kind::Reserved("not handed out");
            }
            // ISATAP hides an IPv4 address behind any prefix.
            match embedded(ip) {
                Some(_) => Kind::Reserved("ISATAP"),
                None => Kind::Public,
            }
        }
    }
}

/// Whether bytes to this address stay on this machine.
pub(super) fn is_loopback(ip: IpAddr) -> bool {
    kind(unmapped(ip)) == Kind::Loopback
}

/// Why this address may not be dialled for that destination; none where it may.
pub(super) fn refusal(host: &Host, typed: bool, ip: IpAddr) -> Option<String> {
    if !typed {
        return match kind(ip) {
            Kind::Public => None,
            kind => Some(format!(
                "{ip} is {}, and only a public address is reached where no administrator typed this very destination",
                named(kind)
            )),
        };
    }
    if matches!(host, Host::Ip(_)) {
        return None;
    }
    let leads_to = [Some(ip), inner(ip)];
    leads_to
        .into_iter()
        .flatten()
        .map(kind)
        .find(|k| matches!(k, Kind::LinkLocal | Kind::Metadata))
        .map(|kind| {
            format!(
                "the name leads to {ip}, which is {}; a name must not lead there, type the address itself if it is meant",
                named(kind)
            )
        })
}

fn inner(ip: IpAddr) -> Option<IpAddr> {
    match ip {
        IpAddr::V6(ip) => embedded(ip).map(IpAddr::V4),
        IpAddr::V4(_) => None,
    }
}

fn named(kind: Kind) -> String {
    match kind {
        Kind::Public => "public".to_owned(),
        Kind::Loopback => "loopback".to_owned(),
        Kind::LinkLocal => "link-local".to_owned(),
        Kind::Metadata => "a cloud's metadata service".to_owned(),
        Kind::Reserved(name) => format!("a reserved address ({name})"),
    }
}

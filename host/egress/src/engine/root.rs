//! Which container engines are root on this machine, and which of those the server was told to let through.
//!
//! Whoever commands an engine that root runs can have the engine's machine: a container may be given its disk. The engine
//! policy takes that away from a component; what is left is trust in this policy, so that such an engine is reached only
//! where whoever starts the server names it (`--allow-host-root`). Of an engine that this server's own user runs the same
//! holds: it could be given the master key.
//!
//! Over a socket the kernel says whose it is. Over TCP nobody does, so that any engine on this machine counts. Nothing
//! here opens a connection.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};

use crate::http::{Destination, Host, Origin, Parsed, Scheme};

/// How a grant or an environment is called that leads to such an engine, wherever it is shown.
pub const ROOT: &str = "root on this machine";

/// The longest path that a Unix socket has on Linux, without its closing NUL (unix(7)).
const LONGEST: usize = 107;

/// The engines that may be root on this machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostRoots(Vec<HostRoot>);

/// One engine that may be.
#[derive(Clone, Debug, PartialEq, Eq)]
enum HostRoot {
    /// Behind this socket.
    Socket(PathBuf),
    /// At this origin.
    Origin(Origin),
}

impl HostRoots {
    /// Reads them: each the path of a socket, with or without `unix://`, or the `http://host:port` or
    /// `https://host:port` of an engine on this machine. Where a name leads is not asked here.
    ///
    /// # Errors
    /// The first that is neither, and how to mend it.
    pub fn of<T: AsRef<str>>(all: &[T]) -> Result<HostRoots, String> {
        all.iter()
            .map(|text| {
                let text = text.as_ref();
                let one = HostRoot::of(text)?;
                match &one {
                    HostRoot::Origin(Origin {
                        host: Host::Ip(ip), ..
                    }) if !is_this_machine(*ip) => Err(format!(
                        "`{text}` is not on this machine: {ip} is no address of it; an engine elsewhere needs no such word"
                    )),
                    _ => Ok(one),
                }
            })
            .collect::<Result<_, _>>()
            .map(HostRoots)
    }

    /// Whether an engine there may be root on this machine.
    pub(crate) fn allow(&self, to: &Destination) -> bool {
        self.0.iter().any(|one| match (one, &to.unix) {
            (HostRoot::Socket(path), Some(socket)) => path == socket,
            (HostRoot::Origin(origin), None) => *origin == to.origin,
            _ => false,
        })
    }

    /// Whether the URL of an engine, as an administrator writes it, is that of one of these.
    pub fn allow_url(&self, url: &str) -> bool {
        HostRoot::of(url).is_ok_and(|one| self.0.contains(&one))
    }

    /// Each as it is shown.
    pub fn names(&self) -> impl Iterator<Item = String> {
        self.0.iter().map(ToString::to_string)
    }
}

impl HostRoot {
    fn of(text: &str) -> Result<HostRoot, String> {
        if text.is_empty() {
            return Err(
                "is empty; name an engine, or leave it out: LEASEHOLD_ALLOW_HOST_ROOT is unset then, not empty"
                    .to_owned(),
            );
        }
        if let Some(mend) = misspelt(text) {
            return Err(format!("`{text}` {mend}"));
        }
        if text.starts_with("http://") || text.starts_with("https://") {
            let parsed = Parsed::of(text.trim_end_matches('/')).map_err(|error| error.message)?;
            if parsed.path != "/" || parsed.query.is_some() {
                return Err(format!(
                    "`{text}` has a path; write http://127.0.0.1:2375 or https://127.0.0.1:2376"
                ));
            }
            return Ok(HostRoot::Origin(parsed.origin));
        }
        socket_path(text.strip_prefix("unix://").unwrap_or(text))
            .map(HostRoot::Socket)
            .map_err(|what| format!("`{text}` {what}"))
    }
}

impl fmt::Display for HostRoot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HostRoot::Socket(path) => write!(f, "unix://{}", path.display()),
            HostRoot::Origin(origin) => fmt::Display::fmt(origin, f),
        }
    }
}

/// What is wrong with the scheme of an engine's URL, as the end of a sentence; none where there is nothing, or no scheme.
fn misspelt(url: &str) -> Option<String> {
    let (scheme, rest) = url.split_once(':')?;
    if scheme.is_empty() || !scheme.bytes().all(|b| b.is_ascii_alphanumeric()) {
        return None;
    }
    let lower = scheme.to_ascii_lowercase();
    let slashes = rest.starts_with("//");
    match lower.as_str() {
        "unix" if scheme == lower && !slashes => {
            Some("has too few slashes; write it like unix:///run/podman/podman.sock".to_owned())
        }
        "unix" | "http" | "https" if scheme != lower => {
            Some(format!("has {scheme}: in capitals; write {lower}://"))
        }
        "tcp" if slashes => Some(format!(
            "is Docker's spelling; write http:{rest}, or https:{rest} where the engine speaks TLS"
        )),
        "unix" | "http" | "https" => None,
        _ if slashes => Some(format!(
            "has the scheme {scheme}, and an engine is reached by unix://, http:// or https://"
        )),
        _ => None,
    }
}

/// The path of a Unix socket in its one spelling.
///
/// # Errors
/// What is wrong with it, as the end of a sentence.
pub(crate) fn socket_path(text: &str) -> Result<PathBuf, &'static str> {
    if !text.starts_with('/') {
        return Err("is not the whole path of a socket; write it like /run/podman/podman.sock");
    }
    if text.len() > LONGEST {
        return Err("is longer than the 107 bytes that a socket's path can have");
    }
    if text.contains(['%', '?', '#', '\\']) || text.chars().any(char::is_control) {
        return Err("has a character that a URL reads otherwise (`%`, `?`, `#`, a backslash)");
    }
    if text[1..]
        .split('/')
        .any(|part| matches!(part, "" | "." | ".."))
    {
        return Err("has an empty, `.` or `..` part; write the real path");
    }
    Ok(PathBuf::from(text))
}

/// Whose a socket is, by the kernel's word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Owners {
    /// The user that the file belongs to: who may replace it.
    pub(crate) file: u32,
    /// The user whose process listens.
    pub(crate) peer: u32,
}

/// The user that every user is shown as who has no name in this process's user namespace (user_namespaces(7)).
const UNMAPPED: u32 = 65_534;

impl Owners {
    /// Whose it is, where that makes it root on this machine for a process of the user `own`.
    pub(crate) fn host_root(self, own: u32) -> Option<&'static str> {
        let either = |user: u32| self.file == user || self.peer == user;
        if either(0) {
            Some("root")
        } else if either(own) {
            Some("the user that this server runs as")
        } else if either(UNMAPPED) {
            // In a container, root of the machine around it looks like this.
            Some("a user that this server cannot see, who may be root outside of its container")
        } else {
            None
        }
    }
}

/// The refusal of an engine that is root on this machine.
pub(crate) fn refusal(to: &Destination, whose: &str) -> String {
    let named = match &to.unix {
        Some(path) => path.display().to_string(),
        None => to.origin.to_string(),
    };
    format!(
        "the container engine belongs to {whose}: that is {ROOT}, which is refused; start the server with \
         --allow-host-root={named} if that is meant"
    )
}

/// Whether this address is one of this machine's own: what it sends there it sends from there (nothing is sent).
pub(crate) fn is_this_machine(ip: IpAddr) -> bool {
    let ip = ip.to_canonical();
    if ip.is_loopback() || ip.is_unspecified() {
        return true;
    }
    let any: IpAddr = match ip {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    // Where nobody can tell, it counts as this machine; where nothing leads, it is none.
    let Ok(socket) = UdpSocket::bind(SocketAddr::new(any, 0)) else {
        return true;
    };
    socket
        .connect(SocketAddr::new(ip, 9))
        .is_ok_and(|()| socket.local_addr().is_ok_and(|local| local.ip() == ip))
}

/// Reads where an engine is: `unix:///path`, or an origin.
///
/// # Errors
/// What is wrong with it, as the end of a sentence.
pub(crate) fn engine_url(url: &str) -> Result<EngineUrl, String> {
    if let Some(mend) = misspelt(url) {
        return Err(mend);
    }
    if let Some(path) = url.strip_prefix("unix://") {
        return socket_path(path)
            .map(EngineUrl::Socket)
            .map_err(str::to_owned);
    }
    let parsed = Parsed::of(url.trim_end_matches('/'))
        .map_err(|error| format!("is no engine's: {}", error.message))?;
    if parsed.path != "/" || parsed.query.is_some() {
        return Err("has a path; an engine's URL is unix:///path or https://host:port".to_owned());
    }
    if parsed.origin.scheme == Scheme::Http && !parsed.origin.may_be_loopback() {
        return Err(
            "is plain http:// to another machine: whoever is between commands the engine; use https:// with ca, \
             clientCertificate and clientKey"
                .to_owned(),
        );
    }
    Ok(EngineUrl::Origin(parsed.origin))
}

/// Where an engine is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum EngineUrl {
    Socket(PathBuf),
    Origin(Origin),
}

impl EngineUrl {
    /// The socket, and the origin that a component has.
    pub(crate) fn into_parts(self) -> (Option<PathBuf>, Origin) {
        match self {
            EngineUrl::Socket(path) => {
                let origin = Origin::stand_in(Path::new(&path));
                (Some(path), origin)
            }
            EngineUrl::Origin(origin) => (None, origin),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn to(url: &str) -> Destination {
        let (unix, origin) = engine_url(url).expect("an engine's URL").into_parts();
        Destination {
            origin,
            typed: true,
            tls: None,
            unix,
            engine: true,
        }
    }

    #[test]
    fn a_socket_of_root_or_of_our_own_user_or_of_nobody_we_see_is_root_on_this_machine() {
        for (file, peer, own, is) in [
            (0, 0, 1000, true),
            (0, 1001, 1000, true),
            (1001, 0, 1000, true),
            (1000, 1000, 1000, true),
            (1001, 1000, 1000, true),
            (1000, 1001, 1000, true),
            (65_534, 65_534, 1000, true),
            (1001, 65_534, 1000, true),
            (0, 0, 0, true),
            (1001, 1001, 1000, false),
            (1001, 1002, 0, false),
        ] {
            let owners = Owners { file, peer };
            assert_eq!(owners.host_root(own).is_some(), is, "{owners:?} of {own}");
        }
    }

    #[test]
    fn what_is_allowed_is_one_socket_or_one_origin_and_nothing_beside_it() {
        let roots = HostRoots::of(&["/run/podman/podman.sock", "https://127.0.0.1:2376/"])
            .expect("two engines");
        for (url, is) in [
            ("unix:///run/podman/podman.sock", true),
            ("https://127.0.0.1:2376", true),
            ("unix:///run/podman/podman.sock2", false),
            ("unix:///run/podman", false),
            ("https://127.0.0.1:2377", false),
            ("http://127.0.0.1:2376", false),
            ("https://127.0.0.2:2376", false),
        ] {
            assert_eq!(roots.allow(&to(url)), is, "{url}");
            assert_eq!(roots.allow_url(url), is, "{url}");
        }
        assert!(!HostRoots::default().allow(&to("unix:///run/podman/podman.sock")));
    }

    #[test]
    fn a_path_has_one_spelling() {
        for path in [
            "",
            "run/x.sock",
            "/",
            "/run//x.sock",
            "/run/./x.sock",
            "/run/../x.sock",
            "/run/x.sock/",
            "/run/%78.sock",
            "/run/x.sock?y",
            "/run/x\n.sock",
            &format!("/{}", "x".repeat(107)),
        ] {
            assert!(socket_path(path).is_err(), "{path:?}");
            assert!(HostRoots::of(&[path]).is_err(), "{path:?}");
            assert!(engine_url(&format!("unix://{path}")).is_err(), "{path:?}");
        }
    }

    #[test]
    fn what_is_no_engine_of_this_machine_is_refused_with_its_mend() {
        for (text, mend) in [
            ("", "is empty; name an engine"),
            ("tcp://127.0.0.1:2375", "write http://127.0.0.1:2375"),
            ("TCP://127.0.0.1:2375", "write http://127.0.0.1:2375"),
            ("HTTPS://127.0.0.1:2376", "write https://"),
            ("Unix:///run/docker.sock", "write unix://"),
            ("unix:/run/docker.sock", "write it like unix:///"),
            ("ssh://root@engine.example", "unix://, http:// or https://"),
            ("run/docker.sock", "is not the whole path of a socket"),
            ("https://192.0.2.1:2376", "192.0.2.1 is no address of it"),
            (
                "http://[2001:db8::1]:2375",
                "2001:db8::1 is no address of it",
            ),
        ] {
            let refused = HostRoots::of(&[text]).expect_err(text);
            assert!(refused.contains(mend), "{text}: {refused}");
            // The same is said of the URL in an environment, but of where it is.
            if !mend.contains("no address of it") && text.contains(':') {
                let refused = engine_url(text).err().unwrap_or_default();
                assert!(refused.contains(mend), "{text}: {refused}");
            }
        }
        for text in [
            "http://127.0.0.1:2375",
            "https://[::1]:2376",
            "https://localhost:2376",
        ] {
            assert!(HostRoots::of(&[text]).is_ok(), "{text}");
        }
    }

    #[test]
    fn an_engine_of_another_machine_is_reached_over_tls_alone() {
        for url in [
            "https://engine.example:2376",
            "https://10.0.0.5:2376/",
            "http://127.0.0.1:2375",
            "http://[::1]:2375",
            "http://localhost:2375",
        ] {
            assert!(engine_url(url).is_ok(), "{url}");
        }
        for url in [
            "http://engine.example:2375",
            "http://10.0.0.5:2375",
            "https://engine.example/docker",
            "https://engine.example/?x",
            "https://user:pw@engine.example",
            "tcp://127.0.0.1:2375",
            "npipe:////./pipe/docker",
            "engine.example",
        ] {
            assert!(engine_url(url).is_err(), "{url}");
        }
    }

    #[test]
    fn this_machine_knows_its_own_addresses() {
        for ip in [
            "127.0.0.1",
            "127.9.9.9",
            "::1",
            "::ffff:127.0.0.1",
            "::ffff:0.0.0.0",
            "::",
            "0.0.0.0",
        ] {
            assert!(is_this_machine(ip.parse().expect("an address")), "{ip}");
        }
        for ip in ["192.0.2.1", "2001:db8::1"] {
            assert!(!is_this_machine(ip.parse().expect("an address")), "{ip}");
        }
    }
}

//! Under which names this server may be addressed, and which origins are its own.
//!
//! A page in a browser can make any name resolve to this machine and send requests to it; what it cannot do
//! is lie in `Host`, `Origin` and `Sec-Fetch-Site`. So a request under a foreign name is refused whatever it
//! wants, and one that writes or opens a WebSocket must come from a page of this server or from no page.

use axum::http::{HeaderMap, Method, Uri, header};

use crate::api::errors::{ApiError, ErrorCode, shown};

/// The names.
#[derive(Clone, Debug)]
pub struct HostRules {
    /// `name` (any port) or `name:port`, lower-case.
    allowed: Vec<String>,
    /// The port that is listened on, if TCP is.
    port: Option<u16>,
}

const LOOPBACK_NAMES: [&str; 3] = ["localhost", "127.0.0.1", "[::1]"];

impl HostRules {
    /// The loopback names with `port`, and the configured ones.
    pub fn new(allowed: &[String], port: Option<u16>) -> HostRules {
        HostRules {
            allowed: allowed.iter().map(|h| h.to_ascii_lowercase()).collect(),
            port,
        }
    }

    /// Whether an authority (`name` or `name:port`) is one of ours.
    fn knows(&self, authority: &str, on_socket: bool) -> bool {
        let authority = authority.to_ascii_lowercase();
        let (name, port) = split(&authority);
        if LOOPBACK_NAMES.contains(&name) {
            // A client of the Unix socket has no port to name; curl writes plain `localhost`.
            return match port {
                Some(port) => Some(port) == self.port,
                None => on_socket || self.port == Some(80),
            };
        }
        self.allowed
            .iter()
            .any(|entry| *entry == authority || entry == name)
    }

    /// Whether the request is addressed to this server. `on_socket`: it came by the Unix socket.
    pub fn check_host(
        &self,
        uri: &Uri,
        headers: &HeaderMap,
        on_socket: bool,
    ) -> Result<(), ApiError> {
        let mut hosts = headers.get_all(header::HOST).iter();
        let (Some(host), None) = (hosts.next(), hosts.next()) else {
            return Err(ApiError::new(
                ErrorCode::HostNotAllowed,
                "the request must carry exactly one Host header",
            ));
        };
        let host = host.to_str().unwrap_or("");
        let in_uri = uri.authority().map(|a| a.as_str());
        for authority in std::iter::once(host).chain(in_uri) {
            if !self.knows(authority, on_socket) {
                return Err(ApiError::new(
                    ErrorCode::HostNotAllowed,
                    format!(
                        "`{}` is not a name of this server; use localhost with its port, or start the server \
                         with --allowed-host",
                        shown(authority)
                    ),
                ));
            }
        }
        Ok(())
    }

    /// Whether the request may write or open a WebSocket: it comes from no page, or from one of this server.
    pub fn check_origin(&self, headers: &HeaderMap) -> Result<(), ApiError> {
        let refused = |what: String| Err(ApiError::new(ErrorCode::OriginNotAllowed, what));
        for site in headers.get_all("sec-fetch-site") {
            let site = site.to_str().unwrap_or("");
            if !matches!(site, "same-origin" | "none") {
                return refused(format!(
                    "a page of another site sent this request (Sec-Fetch-Site: {})",
                    shown(site)
                ));
            }
        }
        for origin in headers.get_all(header::ORIGIN) {
            let origin = origin.to_str().unwrap_or("");
            let authority = origin
                .strip_prefix("http://")
                .or_else(|| origin.strip_prefix("https://"));
            let host = headers.get(header::HOST).and_then(|h| h.to_str().ok());
            let same = match (authority, host) {
                (Some(authority), Some(host)) => authority.eq_ignore_ascii_case(host),
                _ => false,
            };
            if !same {
                return refused(format!(
                    "a page of `{}` sent this request; only pages of this server may",
                    shown(origin)
                ));
            }
        }
        Ok(())
    }
}

/// Whether a request of this method can change something.
pub fn is_unsafe(method: &Method) -> bool {
    !matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS)
}

/// Whether it asks for another protocol, whatever the method.
pub fn is_upgrade(headers: &HeaderMap) -> bool {
    headers.contains_key(header::UPGRADE) || headers.contains_key(header::SEC_WEBSOCKET_KEY)
}

fn split(authority: &str) -> (&str, Option<u16>) {
    match authority.rsplit_once(':') {
        Some((name, port)) if !authority.ends_with(']') => match port.parse() {
            Ok(port) if port_is_plain(name) => (name, Some(port)),
            _ => (authority, None),
        },
        _ => (authority, None),
    }
}

/// A bare IPv6 address without brackets has colons of its own and is not a valid authority.
fn port_is_plain(name: &str) -> bool {
    name.ends_with(']') || !name.contains(':')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules() -> HostRules {
        HostRules::new(
            &["Box.Example".into(), "proxy.example:8443".into()],
            Some(7717),
        )
    }

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        let mut map = HeaderMap::new();
        for (name, value) in pairs {
            map.append(*name, value.parse().unwrap());
        }
        map
    }

    fn host_passes(host: &str) -> bool {
        rules()
            .check_host(&Uri::from_static("/"), &headers(&[("host", host)]), false)
            .is_ok()
    }

    #[test]
    fn only_names_of_this_server_pass() {
        for good in [
            "localhost:7717",
            "LOCALHOST:7717",
            "127.0.0.1:7717",
            "[::1]:7717",
            "box.example",
            "box.example:1234",
            "proxy.example:8443",
        ] {
            assert!(host_passes(good), "{good}");
        }
        for bad in [
            "",
            "localhost",
            "localhost:80",
            "localhost:7718",
            "evil.example",
            "evil.example:7717",
            "localhost.evil.example:7717",
            "127.0.0.1.nip.io:7717",
            "proxy.example",
            "::1:7717",
            "box.example.",
            "box.example@evil.example",
        ] {
            assert!(!host_passes(bad), "{bad}");
        }
    }

    #[test]
    fn a_request_needs_one_host_and_a_uri_that_agrees() {
        let rules = rules();
        let plain = Uri::from_static("/");
        assert!(rules.check_host(&plain, &headers(&[]), false).is_err());
        let two = headers(&[("host", "localhost:7717"), ("host", "localhost:7717")]);
        assert!(rules.check_host(&plain, &two, false).is_err());
        let foreign = Uri::from_static("http://evil.example/");
        let ours = headers(&[("host", "localhost:7717")]);
        assert!(rules.check_host(&foreign, &ours, false).is_err());
    }

    #[test]
    fn on_the_socket_localhost_needs_no_port_and_foreign_names_are_still_refused() {
        let rules = HostRules::new(&[], None);
        let plain = Uri::from_static("/");
        let local = headers(&[("host", "localhost")]);
        assert!(rules.check_host(&plain, &local, true).is_ok());
        let foreign = headers(&[("host", "evil.example")]);
        assert!(rules.check_host(&plain, &foreign, true).is_err());
    }

    #[test]
    fn writing_takes_no_page_or_a_page_of_this_server() {
        let rules = rules();
        let host = ("host", "localhost:7717");
        for good in [
            vec![host],
            vec![host, ("origin", "http://localhost:7717")],
            vec![host, ("sec-fetch-site", "none")],
            vec![
                host,
                ("origin", "http://localhost:7717"),
                ("sec-fetch-site", "same-origin"),
            ],
        ] {
            assert!(rules.check_origin(&headers(&good)).is_ok(), "{good:?}");
        }
        for bad in [
            vec![host, ("origin", "http://localhost:3000")],
            vec![host, ("origin", "http://evil.example")],
            vec![host, ("origin", "null")],
            vec![host, ("origin", "")],
            vec![host, ("sec-fetch-site", "cross-site")],
            vec![host, ("sec-fetch-site", "same-site")],
            vec![
                host,
                ("origin", "http://localhost:7717"),
                ("sec-fetch-site", "cross-site"),
            ],
        ] {
            assert!(rules.check_origin(&headers(&bad)).is_err(), "{bad:?}");
        }
    }
}

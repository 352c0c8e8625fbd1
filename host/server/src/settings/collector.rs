//! The collector of traces and metrics: where it is, whom it must prove to be, and who we say we are.
//!
//! The names are those of the OpenTelemetry specification (Protocol Exporter). What says who we are is a key: it comes from
//! a file of the server's user alone or from the environment, never from the command line, and is in no message.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use axum::http::{HeaderName, HeaderValue};
use leasehold_egress::{Origin, Parsed, Scheme, Secret, TlsSettings};

use super::SettingsError;

/// The largest file with certificates or headers.
const LARGEST: u64 = 1 << 20;

/// The variable that the specification names for headers.
pub(super) const HEADERS: &str = "OTEL_EXPORTER_OTLP_HEADERS";

/// Headers that the exporter or the wire writes.
const NOT_GIVEN: [&str; 11] = [
    "accept-encoding",
    "connection",
    "content-encoding",
    "content-length",
    "content-type",
    "expect",
    "host",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// Who takes traces and metrics, as flags, environment and file say it.
#[derive(Clone, Debug)]
pub struct Collector {
    origin: Origin,
    path: String,
    ca: Option<PathBuf>,
    headers: Option<HeadersFrom>,
}

/// Where headers come from.
#[derive(Clone, Debug)]
pub(super) enum HeadersFrom {
    File(PathBuf),
    Variable(Secret),
}

/// The same, with what its files say.
#[derive(Clone, Debug)]
pub struct CollectorAccess {
    /// Where.
    pub origin: Origin,
    /// The path below which its signals have theirs; without a slash at its end.
    pub path: String,
    /// Whom it must prove to be, over `https://`; none: whom the system trusts.
    pub tls: Option<Arc<TlsSettings>>,
    /// What is sent with each export; names in lower case.
    pub headers: Vec<(String, Secret)>,
}

impl Collector {
    /// One at this URL.
    ///
    /// # Errors
    /// What it cannot be, by the setting's name.
    pub(super) fn at(
        url: &str,
        ca: Option<PathBuf>,
        headers: Option<HeadersFrom>,
    ) -> Result<Collector, SettingsError> {
        let (origin, path) =
            endpoint_of(url).map_err(|message| SettingsError::invalid("otlp-endpoint", message))?;
        if ca.is_some() && origin.scheme == Scheme::Http {
            return Err(SettingsError::invalid(
                "otlp-ca",
                format!(
                    "{origin} is not spoken to by TLS; write https:// in otlp-endpoint, or leave otlp-ca out"
                ),
            ));
        }
        Ok(Collector {
            origin,
            path,
            ca,
            headers,
        })
    }

    /// Reads its files. Only the server does: whoever types a command need not be able to.
    ///
    /// # Errors
    /// One cannot be read, or is not what it should be.
    pub fn access(&self) -> Result<CollectorAccess, SettingsError> {
        let tls = match &self.ca {
            None => None,
            Some(path) => {
                let wrong = |message| at("otlp-ca", path, message);
                let pem = read(path).map_err(wrong)?;
                let tls = TlsSettings::new(Some(&pem), None);
                Some(tls.map_err(|e| wrong(e.message))?)
            }
        };
        let headers = match &self.headers {
            None => Vec::new(),
            Some(HeadersFrom::Variable(text)) => headers_of(text.expose())
                .map_err(|message| SettingsError::invalid(HEADERS, message))?,
            Some(HeadersFrom::File(path)) => {
                let wrong = |message| at("otlp-headers-file", path, message);
                let text = Secret::new(read_own(path).map_err(wrong)?);
                headers_of(text.expose()).map_err(wrong)?
            }
        };
        Ok(CollectorAccess {
            origin: self.origin.clone(),
            path: self.path.clone(),
            tls,
            headers,
        })
    }
}

fn at(name: &'static str, path: &Path, message: String) -> SettingsError {
    SettingsError::invalid(name, format!("{}: {message}", path.display()))
}

fn endpoint_of(url: &str) -> Result<(Origin, String), String> {
    let mend = "write it like http://127.0.0.1:4318 or https://otel.example.org";
    let parsed = Parsed::of(url).map_err(|e| format!("{}; {mend}", e.message))?;
    if parsed.query.is_some() {
        return Err(format!(
            "{} has more than a host, a port and a path; {mend}",
            parsed.origin
        ));
    }
    let path = parsed.path.trim_end_matches('/').to_owned();
    Ok((parsed.origin, path))
}

fn read(path: &Path) -> Result<String, String> {
    let found = std::fs::metadata(path).map_err(|e| e.to_string())?;
    // A device or a pipe says no length, and may have no end.
    if !found.is_file() {
        return Err("is no file".to_owned());
    }
    if found.len() > LARGEST {
        return Err(format!(
            "has {} bytes, and no such file has more than {LARGEST}",
            found.len()
        ));
    }
    std::fs::read_to_string(path).map_err(|e| e.to_string())
}

/// Reads what nobody else may read.
fn read_own(path: &Path) -> Result<String, String> {
    let found = std::fs::metadata(path).map_err(|e| e.to_string())?;
    let mode = found.mode() & 0o777;
    if mode & 0o077 != 0 {
        return Err(format!(
            "has mode {mode:04o}, so others can reach it; run `chmod 600` on it"
        ));
    }
    read(path)
}

/// Reads `NAME=VALUE,NAME=VALUE`; a line's end is as good as a comma. Values are percent-decoded. Messages tell the place
/// of an entry alone: any of it may be the key.
fn headers_of(text: &str) -> Result<Vec<(String, Secret)>, String> {
    let mut headers: Vec<(String, Secret)> = Vec::new();
    let entries = text.split([',', '\n']).map(str::trim);
    for (place, entry) in entries.filter(|entry| !entry.is_empty()).enumerate() {
        let place = place + 1;
        let (name, value) = entry.split_once('=').ok_or_else(|| {
            format!("entry {place} has no `=`; write NAME=VALUE, with commas between, and a comma in a value as %2C")
        })?;
        let name: HeaderName = name
            .trim()
            .parse()
            .map_err(|_| format!("entry {place} has no name of a header before its `=`"))?;
        let value = decoded(value.trim()).ok_or_else(|| {
            format!("the value of entry {place} has a % that two hexadecimal digits do not follow; write %25")
        })?;
        if HeaderValue::from_str(value.expose()).is_err() {
            return Err(format!(
                "the value of entry {place} has what no header can carry"
            ));
        }
        if NOT_GIVEN.contains(&name.as_str()) || name.as_str().starts_with("proxy-") {
            return Err(format!(
                "entry {place} is {name}, which the server writes itself; leave it out"
            ));
        }
        if headers.iter().any(|(known, _)| known == name.as_str()) {
            return Err(format!("entry {place} is {name}, which stands there twice"));
        }
        headers.push((name.as_str().to_owned(), value));
    }
    Ok(headers)
}

fn decoded(text: &str) -> Option<Secret> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        rest = after;
        if *first != b'%' {
            bytes.push(*first);
            continue;
        }
        let [high, low, after @ ..] = rest else {
            return None;
        };
        let digit = |byte: &u8| char::from(*byte).to_digit(16);
        bytes.push(u8::try_from(digit(high)? * 16 + digit(low)?).ok()?);
        rest = after;
    }
    String::from_utf8(bytes).ok().map(Secret::new)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn collector(url: &str) -> Result<Collector, String> {
        Collector::at(url, None, None).map_err(|e| e.to_string())
    }

    #[test]
    fn a_collector_is_a_plain_url_and_nothing_else_and_no_password_of_one_is_told() {
        for (good, path) in [
            ("http://127.0.0.1:4318", ""),
            ("http://[::1]:4318/", ""),
            ("https://otel.example/x/", "/x"),
        ] {
            assert_eq!(collector(good).unwrap().path, path, "{good}");
        }
        for bad in [
            "127.0.0.1:4318",
            "http://u:hunter2@otel",
            "http://otel?key=hunter2",
            "ftp://x",
            "https://",
        ] {
            let error = collector(bad).unwrap_err();
            assert!(error.starts_with("otlp-endpoint: "), "{error}");
            assert!(error.contains("write it like"), "{error}");
            assert!(!error.contains("hunter2"), "{error}");
        }
    }

    #[test]
    fn headers_are_read_as_the_specification_writes_them() {
        let read = headers_of("Api-Key=a=b, authorization=Basic%20YTpi%2C\nx=\n,").unwrap();
        let read: Vec<(&str, &str)> = read
            .iter()
            .map(|(name, value)| (name.as_str(), value.expose().as_str()))
            .collect();
        let wanted = [
            ("api-key", "a=b"),
            ("authorization", "Basic YTpi,"),
            ("x", ""),
        ];
        assert_eq!(read, wanted);
    }

    #[test]
    fn headers_that_cannot_be_are_refused_by_their_place_and_what_stands_there_is_not_told() {
        for (text, words) in [
            ("hunter2", "entry 1 has no `=`"),
            ("a=1,hunter2 hunter2=x", "entry 2 has no name"),
            ("a=hunter2%2", "entry 1"),
            ("a=hunter2%zz", "entry 1"),
            ("a=hunter2%0Ax: y", "no header can carry"),
            ("a=hunter2%ff", "entry 1"),
            ("Host=hunter2", "host"),
            ("a=hunter2,A=hunter2", "twice"),
        ] {
            let refused = headers_of(text).unwrap_err();
            assert!(refused.contains(words), "{text}: {refused}");
            assert!(!refused.contains("hunter2"), "{refused}");
        }
    }

    #[test]
    fn a_file_with_headers_that_others_can_read_is_refused_and_shows_nothing_in_debug() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("headers");
        std::fs::write(&path, "api-key=hunter2\n").unwrap();
        let read = |mode| {
            std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
            let headers = Some(HeadersFrom::File(path.clone()));
            let collector = Collector::at("https://otel.example", None, headers).unwrap();
            collector.access()
        };
        let refused = read(0o640).unwrap_err().to_string();
        assert!(refused.starts_with("otlp-headers-file: "), "{refused}");
        assert!(refused.contains("0640"), "{refused}");
        let collector = read(0o600).unwrap();
        assert_eq!(collector.headers[0].1.expose(), "hunter2");
        let shown = format!("{collector:?}");
        assert!(
            shown.contains("api-key") && !shown.contains("hunter2"),
            "{shown}"
        );
    }

    #[test]
    fn an_authority_is_for_tls_alone_and_must_be_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ca.pem");
        std::fs::write(&path, "no certificate").unwrap();
        let refused = |url: &str| {
            let collector = Collector::at(url, Some(path.clone()), None);
            let refused = collector.and_then(|collector| collector.access());
            refused.unwrap_err().to_string()
        };
        let plain = refused("http://127.0.0.1:4318");
        assert!(plain.starts_with("otlp-ca: ") && plain.contains("https://"));
        let none = refused("https://127.0.0.1:4318");
        assert!(none.contains("no PEM certificate"), "{none}");
    }
}

//! The names of images, in the grammar that registries and engines share
//! ([distribution/reference](https://pkg.go.dev/github.com/distribution/reference)): `host:port/path:tag@sha256:…`, or an id.
//!
//! What begins like one of the transports that Podman reads images by (a directory, an archive, another store of its own
//! machine) is none.

/// The longest name (of the grammar), and the longest tag.
const LONGEST: usize = 255;
const TAG: usize = 128;

/// The transports of containers/image, each of which would be read before `:`.
const TRANSPORTS: [&str; 11] = [
    "atomic",
    "containers-storage",
    "dir",
    "docker",
    "docker-archive",
    "docker-daemon",
    "oci",
    "oci-archive",
    "ostree",
    "sif",
    "tarball",
];

/// What of an image its name fixes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Named {
    /// It has a tag or a digest.
    pub(super) one: bool,
}

/// Looks at a name, or the id of an image.
pub(super) fn check(text: &str) -> Result<(), &'static str> {
    if is_digest(text) || super::is_whole_id(text) {
        return Ok(());
    }
    read(text).map(drop)
}

/// Looks at a name.
pub(super) fn read(text: &str) -> Result<Named, &'static str> {
    if TRANSPORTS.contains(&text.split(':').next().unwrap_or_default()) && text.contains(':') {
        return Err("begins like a transport, by which an engine reads files of its own machine");
    }
    if text.starts_with("sha256:") {
        return Err("is the beginning of an id; give the whole one");
    }
    let (rest, digest) = match text.split_once('@') {
        Some((rest, digest)) if is_digest(digest) => (rest, true),
        Some(_) => return Err("has a digest that is not sha256: and 64 hexadecimal digits"),
        None => (text, false),
    };
    // A colon behind the last slash is of the tag, one before it of the port.
    let (name, tag) = match rest.rsplit_once(':') {
        Some((name, tag)) if !tag.contains('/') => (name, Some(tag)),
        _ => (rest, None),
    };
    if let Some(tag) = tag
        && !is_tag(tag)
    {
        return Err("has a tag that is not 1 to 128 of A-Za-z0-9_.-");
    }
    if name.is_empty() || name.len() > LONGEST {
        return Err("is empty, or longer than 255 characters");
    }
    let (host, path) = match name.split_once('/') {
        Some((host, path)) if is_host(host) => (Some(host), path),
        _ => (None, name),
    };
    if host.is_none() && name.contains(':') {
        return Err("has a colon where no port or tag is");
    }
    if !path.split('/').all(is_component) {
        return Err("is not host:port/path:tag or host:port/path@sha256:…, in lower case");
    }
    Ok(Named {
        one: digest || tag.is_some(),
    })
}

/// `sha256:` and 64 hexadecimal digits.
pub(super) fn is_digest(text: &str) -> bool {
    text.strip_prefix("sha256:").is_some_and(super::is_whole_id)
}

/// A tag.
pub(super) fn is_tag(text: &str) -> bool {
    (1..=TAG).contains(&text.len())
        && !text.starts_with(['.', '-'])
        && text
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"_.-".contains(&b))
}

/// The part before the first slash, where it is a registry and not the beginning of the path.
fn is_host(text: &str) -> bool {
    let (name, port) = match text.rsplit_once(':') {
        Some((name, port)) => (name, Some(port)),
        None => (text, None),
    };
    if port.is_some_and(|p| p.parse::<u16>().is_err() || p.starts_with('+')) {
        return false;
    }
    let v6 = name
        .strip_prefix('[')
        .and_then(|n| n.strip_suffix(']'))
        .is_some_and(|n| n.parse::<std::net::Ipv6Addr>().is_ok());
    let dns = !name.is_empty()
        && name.split('.').all(|label| {
            !label.is_empty()
                && !label.starts_with('-')
                && !label.ends_with('-')
                && label
                    .bytes()
                    .all(|b| b.is_ascii_alphanumeric() || b == b'-')
        });
    v6 || dns && (port.is_some() || name == "localhost" || name.contains('.'))
}

/// Lower-case letters and digits, apart by one of `.`, `_`, `__` or any number of `-`.
fn is_component(text: &str) -> bool {
    let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let ends = |b: Option<&u8>| b.is_some_and(|b| plain(*b));
    ends(text.as_bytes().first())
        && ends(text.as_bytes().last())
        && text.bytes().all(|b| plain(b) || b"._-".contains(&b))
        && !["..", "___", "._", "_.", "-.", ".-", "-_", "_-"]
            .iter()
            .any(|two| text.contains(two))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_one_that_every_engine_reads_alike() {
        let digest = format!("sha256:{}", "a".repeat(64));
        for (name, one) in [
            ("busybox", false),
            ("busybox:1.36", true),
            ("library/busybox", false),
            ("docker.io/library/busybox:latest", true),
            ("registry.example:5000/a/b-c/d__e:v1", true),
            ("localhost/box", false),
            ("localhost:5000/box", false),
            ("[::1]:5000/box:1", true),
            (&format!("box@{digest}"), true),
            (&format!("host.example/box:1@{digest}"), true),
        ] {
            assert_eq!(read(name), Ok(Named { one }), "{name}");
            assert_eq!(check(name), Ok(()), "{name}");
        }
        for id in [&digest, &"0".repeat(64)] {
            assert_eq!(check(id), Ok(()), "{id}");
        }
    }

    #[test]
    fn a_transport_an_escape_and_a_path_are_no_names() {
        for name in [
            "",
            "/etc/passwd",
            "../x",
            "a/../b",
            "a//b",
            "a/",
            "Box",
            "box:",
            "box:a b",
            "box:-x",
            "box@sha256:abc",
            "box@md5:00",
            "dir:/etc",
            "dir:5000/x",
            "oci:etc",
            "oci-archive:/tmp/x.tar",
            "docker-archive:x.tar",
            "docker://x",
            "docker-daemon:x:1",
            "containers-storage:x",
            "tarball:x",
            "http://registry.example/x",
            "host.example:x/y",
            "host.example:99999/y",
            "a:b/c:d",
            "x?y",
            "x#y",
            "x%2fy",
            &"a/".repeat(200),
            "sha256:zz",
        ] {
            assert!(check(name).is_err(), "{name}");
        }
    }
}

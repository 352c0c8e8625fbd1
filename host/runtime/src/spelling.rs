//! How the texts of a manifest are spelled: segments of paths, tokens, origins.
//!
//! Pure. Nothing is mended here: what is not spelled as it must be is refused by whoever asks.

/// A value for a message: quoted, and not longer than is of use.
pub(crate) fn shape(text: &str) -> String {
    if text.len() > 80 {
        format!("{} bytes long", text.len())
    } else {
        format!("{text:?}")
    }
}

/// Whether a segment means what it says to every server: no escape that one undoes and another does not, and no
/// parameters that one strips.
pub(crate) fn is_plain(segment: &str) -> bool {
    !segment.contains(['%', ';', '\\'])
}

/// What is wrong with a segment that is not plain.
pub(crate) fn not_plain(segment: &str) -> String {
    format!(
        "has {}, with `%`, `;` or a backslash, which servers read differently; write the characters themselves",
        shape(segment)
    )
}

/// RFC 9110 token.
pub(crate) fn is_token(text: &str) -> bool {
    (1..=64).contains(&text.len())
        && text
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b))
}

/// `scheme://host-pattern:port`, the host in lower case, `*.` at its begin for one or more labels.
pub(crate) fn is_origin(origin: &str) -> bool {
    let Some(rest) = origin
        .strip_prefix("https://")
        .or_else(|| origin.strip_prefix("http://"))
    else {
        return false;
    };
    let Some((host, port)) = rest.rsplit_once(':') else {
        return false;
    };
    let host = host.strip_prefix("*.").unwrap_or(host);
    let label = |l: &str| {
        (1..=63).contains(&l.len())
            && !l.starts_with('-')
            && !l.ends_with('-')
            && l.bytes()
                .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
    };
    host.len() <= 253
        && host.split('.').all(label)
        && !port.starts_with('0')
        && port.bytes().all(|b| b.is_ascii_digit())
        && port.parse::<u16>().is_ok()
}

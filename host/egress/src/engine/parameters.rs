//! What stands in a query to an engine: parameters that its call has, each once, each of its kind, written anew.

use leasehold_contract::Error;

use super::calls::Call;
use super::{Owner, deny, image};
use crate::rules::{encode, unescape};

/// What the value of a parameter may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// `0`, `1`, `true` or `false`.
    Flag,
    /// Digits.
    Number,
    /// The name of a container: the acquisition, so that nobody takes a name that another goes by.
    Acquisition,
    /// The name of an image to pull.
    Image,
    /// A tag, or a digest.
    Tag,
    /// `os/architecture/variant`.
    Platform,
    /// A path inside of the container.
    Path,
    /// A signal's name or number.
    Signal,
    /// What is waited for.
    Condition,
    /// Seconds, with a fraction.
    Time,
    /// `all`, or how many lines.
    Tail,
}

/// The longest path.
const PATH: usize = 4096;

/// The pairs of a query, decoded, each of which the call knows.
///
/// # Errors
/// `permission-denied`, naming the parameter.
pub(super) fn read(
    call: &Call,
    query: Option<&str>,
    owner: Option<&Owner>,
) -> Result<Vec<(String, String)>, Error> {
    let mut pairs: Vec<(String, String)> = Vec::new();
    let query = query.unwrap_or_default();
    if query.contains(';') {
        return deny("the query has a `;`, which some servers part it at");
    }
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let (Some(name), Some(value)) = (decoded(name), decoded(value)) else {
            return deny("the query is not UTF-8 once decoded");
        };
        let Some((known, kind)) = call.query.iter().find(|(known, _)| *known == name) else {
            let known: Vec<&str> = call.query.iter().map(|(known, _)| *known).collect();
            return deny(format_args!(
                "{call} has no parameter {name:?} here; there are: {}",
                if known.is_empty() {
                    "none".to_owned()
                } else {
                    known.join(", ")
                }
            ));
        };
        if pairs.iter().any(|(seen, _)| seen == known) {
            return deny(format_args!("{call}: the parameter {known} stands twice"));
        }
        if let Err(what) = check(*kind, &value, owner) {
            return deny(format_args!("{call}: the parameter {known} {what}"));
        }
        pairs.push((name, value));
    }
    if call.pulls() {
        check_pull(call, &pairs)?;
    }
    Ok(pairs)
}

/// As a server of HTTP forms reads it.
fn decoded(text: &str) -> Option<String> {
    String::from_utf8(unescape(&text.replace('+', " "))).ok()
}

/// One image is pulled: without a tag an engine takes all there are.
fn check_pull(call: &Call, pairs: &[(String, String)]) -> Result<(), Error> {
    let of = |name: &str| pairs.iter().find(|(n, _)| n == name).map(|(_, v)| v);
    let Some(from) = of("fromImage") else {
        return deny(format_args!("{call} names the image by fromImage"));
    };
    let one = image::read(from).is_ok_and(|named| named.one);
    let whole = match (one, of("tag")) {
        (true, None) => return Ok(()),
        (false, Some(digest)) if image::is_digest(digest) => format!("{from}@{digest}"),
        (false, Some(tag)) => format!("{from}:{tag}"),
        (true, Some(_)) => {
            return deny(format_args!(
                "{call}: fromImage has a tag or digest, and there is a tag beside; say it once"
            ));
        }
        (false, None) => {
            return deny(format_args!(
                "{call}: without a tag or digest every tag would be pulled; name one"
            ));
        }
    };
    // As engines put the two together before they read them.
    image::read(&whole)
        .map(drop)
        .or_else(|what| deny(format_args!("{call}: the name {whole:?} {what}")))
}

fn check(kind: Kind, value: &str, owner: Option<&Owner>) -> Result<(), String> {
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let good = match kind {
        Kind::Flag => matches!(value, "0" | "1" | "true" | "false"),
        Kind::Number => value.len() <= 9 && digits(value),
        Kind::Acquisition => {
            let own = owner.map(|owner| owner.acquisition.as_str());
            if own != Some(value) {
                return Err(match own {
                    Some(own) => format!("is the acquisition, {own}, or is left out"),
                    None => "is left out".to_owned(),
                });
            }
            true
        }
        Kind::Image => return image::read(value).map(drop).map_err(str::to_owned),
        Kind::Tag => image::is_tag(value) || image::is_digest(value),
        Kind::Platform => {
            let part = |part: &str| {
                !part.is_empty()
                    && part
                        .bytes()
                        .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'.')
            };
            value.len() <= 64
                && (1..=3).contains(&value.split('/').count())
                && value.split('/').all(part)
        }
        Kind::Path => {
            value.starts_with('/') && value.len() <= PATH && !value.chars().any(char::is_control)
        }
        Kind::Signal => {
            (1..=16).contains(&value.len())
                && value
                    .bytes()
                    .all(|b| b.is_ascii_uppercase() || b.is_ascii_digit() || b"+-".contains(&b))
        }
        Kind::Condition => matches!(value, "not-running" | "next-exit" | "removed"),
        Kind::Time => {
            let (whole, rest) = value.split_once('.').unwrap_or((value, "0"));
            value.len() <= 32 && digits(whole) && digits(rest)
        }
        Kind::Tail => value == "all" || value.len() <= 9 && digits(value),
    };
    match good {
        true => Ok(()),
        false => Err(format!("is {value:?}; it is {}", kind.told())),
    }
}

impl Kind {
    fn told(self) -> &'static str {
        match self {
            Kind::Flag => "0, 1, true or false",
            Kind::Number => "a number of at most 9 digits",
            Kind::Acquisition => "the acquisition",
            Kind::Image => "the name of an image",
            Kind::Tag => "a tag, or sha256: and 64 hexadecimal digits",
            Kind::Platform => "os, os/architecture or os/architecture/variant",
            Kind::Path => "a whole path of at most 4096 bytes without control characters",
            Kind::Signal => "the name of a signal, in upper case, or its number",
            Kind::Condition => "not-running, next-exit or removed",
            Kind::Time => "seconds, as 1700000000.5",
            Kind::Tail => "all, or a number of at most 9 digits",
        }
    }
}

/// The query as it is sent; none where it is empty.
pub(super) fn written(pairs: &[(String, String)]) -> Option<String> {
    let mut out = String::new();
    for (name, value) in pairs {
        if !out.is_empty() {
            out.push('&');
        }
        encode(name, b"-._~", &mut out);
        out.push('=');
        encode(value, b"-._~", &mut out);
    }
    (!out.is_empty()).then_some(out)
}

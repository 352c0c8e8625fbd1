//! Paths of requests as segments, each decoded once, and the templates of a manifest that they are held against.
//!
//! A path on which two servers could differ is refused: an encoded slash, a segment `.` or `..` in any spelling, an
//! empty segment, a parameter behind `;`, a backslash, a control character, an escape inside an escape. What is sent is
//! written anew from the segments that were judged, so that the other side reads the same.

use std::collections::BTreeSet;

/// The longest path, and the most segments.
const LONGEST: usize = 8 << 10;
const SEGMENTS: usize = 256;

/// A path, decoded. A slash at its end is a last segment that is empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Path(Vec<String>);

impl Path {
    /// The path of a URL; what is wrong with it, as the end of a sentence.
    pub(crate) fn parse(raw: &str) -> Result<Path, &'static str> {
        if raw.len() > LONGEST {
            return Err("is longer than 8 KiB");
        }
        let Some(rest) = raw.strip_prefix('/') else {
            return if raw.is_empty() {
                Ok(Path(Vec::new()))
            } else {
                Err("does not begin with a slash")
            };
        };
        let raw: Vec<&str> = rest.split('/').collect();
        if raw.len() > SEGMENTS {
            return Err("has more than 256 segments");
        }
        let last = raw.len() - 1;
        raw.iter()
            .enumerate()
            .map(|(i, segment)| {
                if segment.is_empty() && i < last {
                    return Err("has an empty segment");
                }
                decode(segment)
            })
            .collect::<Result<_, _>>()
            .map(Path)
    }

    /// The segments behind those of `base`; none where it does not lie below.
    pub(crate) fn below(&self, base: &Path) -> Option<&[String]> {
        let base = match base.0.as_slice() {
            [head @ .., last] if last.is_empty() => head,
            whole => whole,
        };
        self.0.strip_prefix(base)
    }

    /// How many segments it has.
    pub(crate) fn length(&self) -> usize {
        self.0.len()
    }

    /// As it is sent.
    pub(crate) fn written(&self) -> String {
        if self.0.is_empty() {
            return "/".to_owned();
        }
        self.0.iter().fold(String::new(), |mut out, segment| {
            out.push('/');
            encode(segment, b"-._~!$&'()*+,=:@", &mut out);
            out
        })
    }
}

/// Percent-encodes all but letters, digits and `kept`.
pub(crate) fn encode(text: &str, kept: &[u8], out: &mut String) {
    const HEX: &[u8; 16] = b"0123456789ABCDEF";
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || kept.contains(&byte) {
            out.push(char::from(byte));
        } else {
            out.push('%');
            out.push(char::from(HEX[usize::from(byte >> 4)]));
            out.push(char::from(HEX[usize::from(byte & 15)]));
        }
    }
}

/// Percent-escapes undone, whatever comes of it.
pub(crate) fn unescape(text: &str) -> Vec<u8> {
    let raw = text.as_bytes();
    let mut out = Vec::with_capacity(raw.len());
    let mut at = 0;
    while at < raw.len() {
        let escaped = escape(&raw[at..]);
        out.push(escaped.unwrap_or(raw[at]));
        at += if escaped.is_some() { 3 } else { 1 };
    }
    out
}

/// Where an escape stands: a percent sign with two hexadecimal digits.
fn escape(text: &[u8]) -> Option<u8> {
    match text {
        [b'%', high, low, ..] => {
            let digit = |b: u8| char::from(b).to_digit(16);
            u8::try_from(digit(*high)? * 16 + digit(*low)?).ok()
        }
        _ => None,
    }
}

fn decode(segment: &str) -> Result<String, &'static str> {
    let is_whole = |(at, _)| escape(&segment.as_bytes()[at..]).is_some();
    if !segment.match_indices('%').all(is_whole) {
        return Err("has a `%` without two hexadecimal digits");
    }
    let text = String::from_utf8(unescape(segment)).map_err(|_| "is not UTF-8 once decoded")?;
    if text.contains(['/', '\\']) {
        return Err("has an encoded slash, or a backslash");
    }
    if text.contains(';') {
        return Err("has a `;`, which some servers cut a path at");
    }
    if text.chars().any(char::is_control) {
        return Err("has a control character");
    }
    if text == "." || text == ".." {
        return Err("has a segment `.` or `..`");
    }
    if (0..text.len()).any(|i| escape(&text.as_bytes()[i..]).is_some()) {
        return Err("is encoded twice");
    }
    Ok(text)
}

/// What of a lease a path may name.
#[derive(Clone, Debug, Default)]
pub(crate) struct Names {
    /// The backend's id of the environment, once egress saw it.
    pub(crate) resource: Option<String>,
    /// Ids of what operations of the lease made.
    pub(crate) children: BTreeSet<String>,
    /// The acquisition.
    pub(crate) acquisition: Option<String>,
}

/// The path of an operation or a mint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Template(Vec<Part>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Text(String),
    Resource,
    Child,
    Acquisition,
    Any,
}

impl Template {
    /// The template of this text; none where no path can match it.
    pub(crate) fn parse(text: &str) -> Option<Template> {
        let Path(segments) = Path::parse(text).ok()?;
        Some(Template(
            segments
                .into_iter()
                .map(|segment| match segment.as_str() {
                    "{resource}" => Part::Resource,
                    "{child}" => Part::Child,
                    "{acquisition}" => Part::Acquisition,
                    "*" => Part::Any,
                    _ => Part::Text(segment),
                })
                .collect(),
        ))
    }

    /// Whether a path below its endpoint is one of these, for a lease of these names.
    pub(crate) fn matches(&self, path: &[String], names: &Names) -> bool {
        self.fits(path, |part, segment| match part {
            Part::Resource => names.resource.as_deref() == Some(segment),
            Part::Child => names.children.contains(segment),
            Part::Acquisition => names.acquisition.as_deref() == Some(segment),
            Part::Text(_) | Part::Any => true,
        })
    }

    /// Whether a server that reads paths with less care could take it for one of these: any names, any case of
    /// letters, a slash at the end or none.
    pub(crate) fn resembles(&self, path: &[String]) -> bool {
        let trimmed = |last: Option<&String>| usize::from(last.is_some_and(String::is_empty));
        let path = &path[..path.len() - trimmed(path.last())];
        let own = match self.0.as_slice() {
            [head @ .., Part::Text(last)] if last.is_empty() => head,
            whole => whole,
        };
        own.len() == path.len()
            && own.iter().zip(path).all(|(part, segment)| match part {
                Part::Text(text) => text.eq_ignore_ascii_case(segment),
                _ => !segment.is_empty(),
            })
    }

    fn fits(&self, path: &[String], named: impl Fn(&Part, &str) -> bool) -> bool {
        // The endpoint itself, with or without the slash.
        let root = [Part::Text(String::new())];
        if self.0 == root {
            return matches!(path, []) || matches!(path, [only] if only.is_empty());
        }
        self.0.len() == path.len()
            && self.0.iter().zip(path).all(|(part, segment)| match part {
                Part::Text(text) => text == segment,
                _ => !segment.is_empty() && named(part, segment),
            })
    }

    /// Whether it names something of the lease.
    pub(crate) fn names_the_lease(&self) -> bool {
        self.0
            .iter()
            .any(|part| matches!(part, Part::Resource | Part::Child | Part::Acquisition))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn below(base: &str, path: &str) -> Option<String> {
        let base = Path::parse(base).expect("a base");
        let path = Path::parse(path).expect("a path");
        path.below(&base).map(|rest| rest.join("|"))
    }

    #[test]
    fn every_spelling_of_another_path_is_refused() {
        for path in [
            "/a/../b",
            "/a/./b",
            "/a/%2e%2e/b",
            "/a/.%2E/b",
            "/a/%2e/b",
            "/..",
            "/a//b",
            "//a",
            "/a%2fb",
            "/a%2Fb",
            "/a%5cb",
            "/a\\b",
            "/a;x/b",
            "/a%3bx/b",
            "/..;/b",
            "/a%252e/b",
            "/a%252f..%252fb",
            "/a%00b",
            "/a%0d%0ab",
            "/a%/b",
            "/a%zz",
            "/a%ff",
            "a/b",
        ] {
            assert!(Path::parse(path).is_err(), "{path} was taken");
        }
    }

    #[test]
    fn a_base_path_ends_at_a_segment() {
        assert_eq!(below("/api", "/api/x"), Some("x".into()));
        assert_eq!(below("/api/", "/api/x/"), Some("x|".into()));
        assert_eq!(below("/api", "/api"), Some(String::new()));
        assert_eq!(below("/api", "/apix"), None);
        assert_eq!(below("/api", "/ap%69/x"), Some("x".into()));
        assert_eq!(below("/api", "/API/x"), None);
        assert_eq!(below("", "/x"), Some("x".into()));
    }

    #[test]
    fn what_is_sent_is_written_from_what_was_judged() {
        let path = Path::parse("/im%61ges/alpine:3@x/a b%3F").map(|p| p.written());
        assert_eq!(path.as_deref(), Ok("/images/alpine:3@x/a%20b%3F"));
    }

    #[test]
    fn a_template_matches_whole_segments_of_this_lease_alone() {
        let names = Names {
            resource: Some("box-1".into()),
            children: ["exec-1".to_owned()].into(),
            acquisition: Some("acq".into()),
        };
        let matches = |template: &str, path: &str| {
            let template = Template::parse(template).expect("a template");
            let path = Path::parse(path).expect("a path");
            template.matches(path.below(&Path(Vec::new())).expect("below"), &names)
        };
        assert!(matches("/boxes/{resource}", "/boxes/box-1"));
        assert!(matches("/boxes/{resource}/stop", "/boxes/box%2D1/stop"));
        assert!(matches("/boxes/{acquisition}", "/boxes/acq"));
        assert!(matches(
            "/boxes/{resource}/x/{child}",
            "/boxes/box-1/x/exec-1"
        ));
        assert!(matches("/boxes/*", "/boxes/anything"));
        for (template, path) in [
            ("/boxes/{resource}", "/boxes/box-2"),
            ("/boxes/{resource}", "/boxes/box-1/"),
            ("/boxes/{resource}", "/boxes/box-1/more"),
            ("/boxes/{resource}", "/boxes/"),
            ("/boxes/{resource}", "/boxes/BOX-1"),
            ("/boxes/{resource}", "/boxes/{resource}"),
            ("/boxes/{child}", "/boxes/box-1"),
            ("/boxes/*", "/boxes/"),
            ("/boxes/*", "/boxes/a/b"),
        ] {
            assert!(!matches(template, path), "{path} is no {template}");
        }
        for path in ["/boxes/box-2", "/Boxes/box-1/", "/BOXES/box-1"] {
            let template = Template::parse("/boxes/{resource}").expect("a template");
            let path = Path::parse(path).expect("a path");
            assert!(template.resembles(&path.0), "{path:?}");
        }
        let nameless = Names::default();
        let template = Template::parse("/boxes/{resource}").expect("a template");
        assert!(!template.matches(&["boxes".into(), String::new()], &nameless));
    }
}

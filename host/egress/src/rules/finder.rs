//! Finds values in bytes, as they are and in the encodings in which a server gives back what it got.
//!
//! Known are: the value itself, and in one case of letters; base64 of both alphabets at every offset (so behind a user name
//! of Basic too, and wrapped in lines), hexadecimal, percent-encoding, and the escapes of JSON and of HTML, mixed in any
//! way. Not known are, among others: a value backwards, with something between its characters, in one encoding inside of
//! another, or packed. The time is linear in the bytes, whatever they are. This is the second net: whoever holds a value
//! can always write it in a way that nobody knows, so a value goes only to whom it is meant for in the first place.

use std::sync::Arc;

use aho_corasick::{AhoCorasick, AhoCorasickKind, MatchKind};
use base64::Engine;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};

/// The shortest value that is looked for: shorter ones would take words out of texts.
pub(crate) const SHORTEST: usize = 8;

/// What stands where a value was.
pub(crate) const REMOVED: &str = "[redacted]";

/// The shortest beginning of a value that is held back until it is known how it goes on.
const BEGINNING: usize = 4;

/// Values to look for.
#[derive(Clone, Default)]
pub(crate) struct Finder {
    automaton: Option<AhoCorasick>,
    patterns: Arc<[Vec<u8>]>,
    longest: usize,
}

impl std::fmt::Debug for Finder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Finder")
    }
}

impl Finder {
    /// Looks for these values and, of those of several lines, for each line.
    pub(crate) fn new<'a>(values: impl IntoIterator<Item = &'a str>) -> Finder {
        let mut patterns: Vec<Vec<u8>> = Vec::new();
        let mut add = |text: &str| {
            if text.len() >= SHORTEST {
                variants(text, &mut patterns);
            }
        };
        for value in values {
            add(value);
            if value.contains(['\n', '\r']) {
                value.lines().for_each(|line| add(line.trim()));
            }
        }
        Finder::of(patterns)
    }

    /// Looks for what begins with `prefix`, which may be short: it finds too much, never too little.
    pub(crate) fn beginning(prefix: &str) -> Finder {
        let mut patterns = Vec::new();
        variants(prefix, &mut patterns);
        Finder::of(patterns)
    }

    fn of(mut patterns: Vec<Vec<u8>>) -> Finder {
        patterns.sort();
        patterns.dedup();
        if patterns.is_empty() {
            return Finder::default();
        }
        let longest = patterns.iter().map(Vec::len).max().unwrap_or_default();
        // Quickly made: it is for one call, and most of a text is passed over before an automaton sees it.
        // It fails only beyond 2^31 patterns or states; bodies and values are bounded far below.
        let automaton = AhoCorasick::builder()
            .match_kind(MatchKind::LeftmostLongest)
            .kind(Some(AhoCorasickKind::NoncontiguousNFA))
            .build(&patterns)
            .ok();
        Finder {
            automaton,
            patterns: patterns.into(),
            longest,
        }
    }

    /// The most bytes that a value is spread over: six for one where all of it is escaped, and line ends between.
    pub(crate) fn reach(&self) -> usize {
        8 * self.longest
    }

    /// The most bytes that a value as it is written, or the end of a line between two characters, is spread over.
    pub(crate) fn span(&self) -> usize {
        self.longest.max(4)
    }

    /// Whether there is nothing to remove from `hay`, told by one look at the bytes as they are: where something may be
    /// hidden, it says no.
    pub(crate) fn is_surely_not_in(&self, hay: &[u8]) -> bool {
        match &self.automaton {
            None => true,
            Some(automaton) => views(hay).is_empty() && !automaton.is_match(hay),
        }
    }

    /// Whether any of the values stands in `hay`.
    pub(crate) fn hits(&self, hay: &[u8]) -> bool {
        let Some(automaton) = &self.automaton else {
            return false;
        };
        automaton.is_match(hay)
            || views(hay)
                .into_iter()
                .any(|view| automaton.is_match(&decoded(hay, view)))
    }

    /// Whether `hay` ends in what may be the beginning of a value, which only what comes next can tell.
    pub(crate) fn goes_on(&self, hay: &[u8]) -> bool {
        // An escape that is cut off where this begins is none of the value's.
        let tail = &hay[hay.len().saturating_sub(self.reach())..];
        let begins = |text: &[u8]| {
            let begun = |pattern: &Vec<u8>| {
                (BEGINNING..pattern.len()).any(|length| text.ends_with(&pattern[..length]))
            };
            self.patterns.iter().any(begun)
        };
        let decodes = [View::Unescaped, View::Joined];
        begins(tail) || decodes.into_iter().any(|view| begins(&decoded(tail, view)))
    }

    /// `hay` without the values; none where there are none in it.
    pub(crate) fn remove(&self, hay: &[u8]) -> Option<Vec<u8>> {
        let automaton = self.automaton.as_ref()?;
        let mut out: Option<Vec<u8>> = None;
        if automaton.is_match(hay) {
            let mut clean = Vec::with_capacity(hay.len());
            automaton.replace_all_with_bytes(hay, &mut clean, |_, _, to| {
                to.extend_from_slice(REMOVED.as_bytes());
                true
            });
            out = Some(clean);
        }
        for view in views(hay) {
            let here = out.as_deref().unwrap_or(hay);
            if let Some(clean) = without(automaton, here, view) {
                out = Some(clean);
            }
        }
        out
    }

    /// As [`Finder::remove`], of a text.
    pub(crate) fn clean(&self, text: String) -> String {
        match self.remove(text.as_bytes()) {
            None => text,
            Some(clean) => String::from_utf8(clean)
                .unwrap_or_else(|e| String::from_utf8_lossy(e.as_bytes()).into_owned()),
        }
    }
}

/// A value and its encodings that are not a matter of escapes.
fn variants(value: &str, patterns: &mut Vec<Vec<u8>>) {
    let bytes = value.as_bytes();
    let hex = crate::hex(bytes);
    patterns.push(hex.to_ascii_uppercase().into_bytes());
    patterns.push(hex.into_bytes());
    patterns.push(bytes.to_vec());
    patterns.push(bytes.to_ascii_lowercase());
    patterns.push(bytes.to_ascii_uppercase());
    if value.contains(' ') {
        patterns.push(value.replace(' ', "+").into_bytes());
    }
    // With a `%` in it, the value and its escaped form read differently once unescaped.
    if let Ok(escaped) = serde_json::to_string(value)
        && let Some(escaped) = escaped.get(1..escaped.len() - 1)
        && escaped != value
    {
        patterns.push(escaped.as_bytes().to_vec());
    }
    for before in 0..3 {
        let mut shifted = vec![0; before];
        shifted.extend_from_slice(bytes);
        // Only the characters that the value alone decides.
        let from = (before * 8).div_ceil(6);
        let to = shifted.len() * 8 / 6;
        for text in [
            STANDARD_NO_PAD.encode(&shifted),
            URL_SAFE_NO_PAD.encode(&shifted),
        ] {
            patterns.extend(text.get(from..to).map(|t| t.as_bytes().to_vec()));
        }
    }
}

/// How bytes are read besides as they are.
#[derive(Clone, Copy)]
enum View {
    /// Escapes of JSON, of URLs and of HTML undone.
    Unescaped,
    /// The same, without line ends: wrapped base64.
    Joined,
}

fn views(hay: &[u8]) -> Vec<View> {
    let escapes = memchr::memchr3(b'%', b'\\', b'&', hay).is_some();
    let mut views = Vec::new();
    if escapes {
        views.push(View::Unescaped);
    }
    if escapes || wraps(hay) {
        views.push(View::Joined);
    }
    views
}

/// Whether a line ends between two characters of base64 or hexadecimal.
fn wraps(hay: &[u8]) -> bool {
    let digit =
        |b: Option<&u8>| b.is_some_and(|b| b.is_ascii_alphanumeric() || b"+/-_".contains(b));
    memchr::memchr_iter(b'\n', hay).any(|at| {
        let before = hay[..at].strip_suffix(b"\r").unwrap_or(&hay[..at]);
        digit(before.last()) && digit(hay.get(at + 1))
    })
}

/// The bytes that `hay` begins with stand for, how many these are, and how many were read.
fn step(hay: &[u8], view: View) -> ([u8; 4], usize, usize) {
    let (mut out, len, read) = unescape(hay);
    if matches!(view, View::Joined) && len == 1 && matches!(out[0], b'\n' | b'\r') {
        out[0] = 0;
        return (out, 0, read);
    }
    (out, len, read)
}

fn unescape(hay: &[u8]) -> ([u8; 4], usize, usize) {
    let mut out = [0; 4];
    let one = |byte: u8, read: usize| ([byte, 0, 0, 0], 1, read);
    match hay {
        [b'%', rest @ ..] => match number(rest, 2) {
            Some(byte) => one(u8::try_from(byte).unwrap_or_default(), 3),
            None => one(b'%', 1),
        },
        [b'\\', b'u', rest @ ..] => {
            let Some(first) = number(rest, 4) else {
                return one(b'\\', 1);
            };
            let (code, read) = match rest.get(4..) {
                Some([b'\\', b'u', more @ ..]) if (0xd800..0xdc00).contains(&first) => {
                    match number(more, 4) {
                        Some(second) if (0xdc00..0xe000).contains(&second) => {
                            (0x1_0000 + ((first - 0xd800) << 10) + (second - 0xdc00), 12)
                        }
                        _ => (first, 6),
                    }
                }
                _ => (first, 6),
            };
            let c = char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER);
            let len = c.encode_utf8(&mut out).len();
            (out, len, read)
        }
        [b'\\', kind, ..] => match kind {
            b'"' | b'\\' | b'/' => one(*kind, 2),
            b'n' => one(b'\n', 2),
            b'r' => one(b'\r', 2),
            b't' => one(b'\t', 2),
            b'b' => one(8, 2),
            b'f' => one(12, 2),
            _ => one(b'\\', 1),
        },
        [b'&', rest @ ..] => match entity(rest) {
            Some((c, read)) => {
                let len = c.encode_utf8(&mut out).len();
                (out, len, 1 + read)
            }
            None => one(b'&', 1),
        },
        [byte, ..] => one(*byte, 1),
        [] => (out, 0, 0),
    }
}

/// The character that an HTML escape stands for, and how long it is behind its `&`: those that servers write so that a
/// text is none of the page's own.
fn entity(rest: &[u8]) -> Option<(char, usize)> {
    const NAMED: [(&[u8], char); 5] = [
        (b"amp;", '&'),
        (b"lt;", '<'),
        (b"gt;", '>'),
        (b"quot;", '"'),
        (b"apos;", '\''),
    ];
    let named = NAMED.iter().find(|(name, _)| rest.starts_with(name));
    if let Some((name, c)) = named {
        return Some((*c, name.len()));
    }
    let number = rest.strip_prefix(b"#")?;
    let (digits, radix, before) = match number {
        [b'x' | b'X', digits @ ..] => (digits, 16, 2),
        digits => (digits, 10, 1),
    };
    let end = digits.iter().take(8).position(|byte| *byte == b';')?;
    let text = std::str::from_utf8(&digits[..end]).ok()?;
    let c = char::from_u32(u32::from_str_radix(text, radix).ok()?)?;
    Some((c, before + end + 1))
}

fn number(hay: &[u8], digits: usize) -> Option<u32> {
    hay.get(..digits)?.iter().try_fold(0, |number, digit| {
        Some(number * 16 + char::from(*digit).to_digit(16)?)
    })
}

fn decoded(hay: &[u8], view: View) -> Vec<u8> {
    let mut out = Vec::with_capacity(hay.len());
    let mut at = 0;
    while at < hay.len() {
        // What stands for itself, at once.
        let plain = hay[at..]
            .iter()
            .position(|b| matches!(b, b'%' | b'\\' | b'&' | b'\n' | b'\r'))
            .unwrap_or(hay.len() - at);
        out.extend_from_slice(&hay[at..at + plain]);
        at += plain;
        let (bytes, len, read) = step(&hay[at..], view);
        out.extend_from_slice(&bytes[..len]);
        at += read;
    }
    out
}

/// `hay` without what matches in a view of it.
fn without(automaton: &AhoCorasick, hay: &[u8], view: View) -> Option<Vec<u8>> {
    let text = decoded(hay, view);
    let mut spans = automaton.find_iter(&text).map(|m| m.range()).peekable();
    spans.peek()?;
    let mut out = Vec::with_capacity(hay.len());
    let (mut at, mut seen) = (0, 0);
    while at < hay.len() {
        let (_, len, read) = step(&hay[at..], view);
        while spans.peek().is_some_and(|span| span.end <= seen) {
            spans.next();
        }
        match spans.peek() {
            // Also what stands for nothing inside of a span.
            Some(span) if seen + len > span.start && seen < span.end => {
                if (seen..seen + len).contains(&span.start) {
                    out.extend_from_slice(REMOVED.as_bytes());
                }
            }
            _ => out.extend_from_slice(&hay[at..at + read]),
        }
        seen += len;
        at += read;
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use base64::engine::general_purpose::{STANDARD, URL_SAFE};

    const KEY: &str = "s3cr3t/Key+with?odd\"chars~";

    /// As template engines write a text into a page: names, decimal, hexadecimal.
    fn html(text: &str, of: impl Fn(char) -> String) -> String {
        let plain = |c: char| c.is_ascii_alphanumeric() || "?~".contains(c);
        text.chars()
            .map(|c| if plain(c) { c.to_string() } else { of(c) })
            .collect()
    }

    fn percent(text: &str) -> String {
        text.bytes().map(|b| format!("%{b:02x}")).collect()
    }

    fn cleaned(text: &str) -> String {
        Finder::new([KEY]).clean(text.to_owned())
    }

    #[test]
    fn a_value_is_removed_in_every_encoding_that_servers_echo() {
        let json = serde_json::to_string(KEY).expect("a string");
        let units: String = KEY.encode_utf16().map(|u| format!("\\u{u:04X}")).collect();
        let mixed: String = KEY
            .chars()
            .enumerate()
            .map(|(i, c)| match i % 3 {
                0 => format!("%{:02X}", u32::from(c)),
                1 if c != '"' => c.to_string(),
                _ => format!("\\u{:04x}", u32::from(c)),
            })
            .collect();
        let basic = |user: &str| STANDARD.encode(format!("{user}:{KEY}"));
        let wrapped: String = STANDARD
            .encode(KEY)
            .as_bytes()
            .chunks(10)
            .map(|c| format!("{}\r\n", String::from_utf8_lossy(c)))
            .collect();
        for (name, echo) in [
            ("plain", KEY.to_owned()),
            ("upper", KEY.to_ascii_uppercase()),
            ("json", json),
            ("units", units),
            ("percent", percent(KEY)),
            ("upper percent", percent(KEY).to_ascii_uppercase()),
            ("mixed", mixed),
            ("base64", STANDARD.encode(KEY)),
            ("base64url", URL_SAFE.encode(KEY)),
            ("basic 0", basic("ab")),
            ("basic 1", basic("abc")),
            ("basic 2", basic("abcd")),
            ("hex", crate::hex(KEY.as_bytes())),
            ("wrapped in JSON", wrapped.replace("\r\n", "\\n")),
            ("wrapped", wrapped),
            ("lower", KEY.to_ascii_lowercase()),
            ("upper hex", crate::hex(KEY.as_bytes()).to_ascii_uppercase()),
            ("slash", KEY.replace('/', "\\/")),
            ("html", KEY.replace('"', "&quot;")),
            (
                "html decimal",
                html(KEY, |c| format!("&#{};", u32::from(c))),
            ),
            ("html hex", html(KEY, |c| format!("&#x{:X};", u32::from(c)))),
        ] {
            let text = format!("before {echo} after");
            let clean = cleaned(&text);
            assert!(clean.contains(REMOVED), "{name}: {clean}");
            assert!(
                clean.starts_with("before ") && clean.ends_with(" after"),
                "{name}: {clean}"
            );
            // Of base64 the outermost characters belong to the neighbours too.
            assert!(clean.len() < 50, "{name}: {clean}");
        }
    }

    #[test]
    fn no_mixture_of_escapes_hides_a_value() {
        let finder = Finder::new([KEY]);
        let mut seed = 7_u32;
        let mut next = || {
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            seed >> 24
        };
        for _ in 0..2000 {
            let echo: String = KEY
                .chars()
                .map(|c| match next() % 4 {
                    0 => format!("%{:02x}", u32::from(c)),
                    1 => format!("\\u{:04X}", u32::from(c)),
                    2 if matches!(c, '"' | '/') => format!("\\{c}"),
                    _ => c.to_string(),
                })
                .collect();
            assert_eq!(
                finder.clean(format!("<{echo}>")),
                format!("<{REMOVED}>"),
                "{echo}"
            );
        }
    }

    #[test]
    fn a_beginning_of_a_value_is_known_as_one_however_it_is_written() {
        let finder = Finder::new([KEY]);
        let lines = |text: String| format!("it said {text}\n");
        for begun in [
            KEY[..4].to_owned(),
            KEY[..20].to_owned(),
            percent(&KEY[..9]),
            STANDARD.encode(KEY)[..12].to_owned(),
            format!("{}\n{}", &KEY[..3], &KEY[3..7]),
        ] {
            assert!(finder.goes_on(lines(begun.clone()).as_bytes()), "{begun}");
        }
        for whole in ["", "pulling the image", "s3c", "s3cr3t/Key and more"] {
            assert!(
                !finder.goes_on(lines(whole.to_owned()).as_bytes()),
                "{whole}"
            );
        }
    }

    #[test]
    fn texts_without_the_value_are_not_touched() {
        let finder = Finder::new([KEY, "short"]);
        for text in [
            "",
            "short",
            "100% \\ \\u12 %4",
            "s3cr3t/Key",
            "{\"a\":\"\\n\"}",
            "a & b &amp; c &#; &#x110000; &#9999999999; &",
        ] {
            assert_eq!(finder.remove(text.as_bytes()), None, "{text:?}");
        }
    }

    #[test]
    fn several_values_beside_each_other_are_all_removed() {
        let finder = Finder::new(["password-one", "password-two", "password-one-longer"]);
        let hay = format!("password-one-longer{}x", percent("password-two"));
        assert_eq!(finder.clean(hay), format!("{REMOVED}{REMOVED}x"));
    }

    #[test]
    fn a_value_of_several_lines_goes_whole_and_by_line() {
        let finder = Finder::new(["first-line-x\nsecond-line-y\n"]);
        assert_eq!(
            finder.clean("a second-line-y b".into()),
            format!("a {REMOVED} b")
        );
        let json = serde_json::to_string("first-line-x\nsecond-line-y").expect("a string");
        assert!(!finder.clean(json).contains("line"));
        // Its lines are too short to be looked for, the whole is not.
        let short = Finder::new(["one\ntwo\nthree"]);
        assert_eq!(
            short.clean("x one%0Atwo%0athree".into()),
            format!("x {REMOVED}")
        );
    }
}

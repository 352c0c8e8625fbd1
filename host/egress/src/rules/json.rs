//! JSON read strictly and written again with nothing changed but the strings that were asked for.
//!
//! What egress checks in a body must be what the other side reads, so everything on which parsers differ is refused: a
//! key that stands twice, a lone surrogate, a control character in a string, anything after the value. Numbers, spaces
//! and the order of members stay as they are, byte for byte. No tree is built, so memory does not grow with the number
//! of values.

use std::collections::HashSet;
use std::ops::Range;

use leasehold_contract::Error;

use crate::secret::Secret;

/// How deep arrays and objects may nest.
const DEPTH: usize = 64;

/// Where a value stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// The member of this name.
    Key(String),
    /// The item of this number.
    Index(usize),
}

/// What the reader has come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Token<'a> {
    /// The name of a member, unescaped.
    Key(&'a str),
    /// A string value, unescaped.
    Text(&'a str),
    /// A number as it is written.
    Number(&'a str),
    /// `true`, `false` or `null`.
    Word(&'a str),
}

/// An RFC 6901 pointer, ready to be compared with places.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pointer(Vec<String>);

impl Pointer {
    /// The pointer of this text; none where it is not one.
    pub(crate) fn parse(text: &str) -> Option<Pointer> {
        if text.is_empty() {
            return Some(Pointer(Vec::new()));
        }
        text.strip_prefix('/')?
            .split('/')
            .map(|token| {
                let plain = token.replace("~1", "").replace("~0", "");
                (!plain.contains('~')).then(|| token.replace("~1", "/").replace("~0", "~"))
            })
            .collect::<Option<Vec<String>>>()
            .map(Pointer)
    }

    /// The member `key` of what it points to.
    pub(crate) fn member(mut self, key: &str) -> Pointer {
        self.0.push(key.to_owned());
        self
    }

    /// Whether this is the place.
    pub(crate) fn is(&self, place: &[Step]) -> bool {
        self.0.len() == place.len() && self.holds(place)
    }

    /// Whether the place is this one or inside of it.
    pub(crate) fn holds(&self, place: &[Step]) -> bool {
        self.0.len() <= place.len()
            && self.0.iter().zip(place).all(|(token, step)| match step {
                Step::Key(key) => key == token,
                Step::Index(index) => *token == index.to_string(),
            })
    }
}

/// A scalar that is written otherwise: its place in the text, with its quotes, and the string that stands there instead.
pub(crate) type Edit = (Range<usize>, Secret);

/// Why a text was not read to its end.
#[derive(Debug)]
pub(crate) enum Stopped {
    /// It is not JSON as it is taken here; what, and at which byte.
    Broken(&'static str, usize),
    /// Whoever looked at its values refused.
    Refused(Error),
}

/// Reads `text` and shows `see` every key and every scalar with its place; what `see` answers to a scalar becomes an
/// edit.
pub(crate) fn read<F>(text: &str, see: F) -> Result<Vec<Edit>, Stopped>
where
    F: FnMut(&[Step], Token<'_>) -> Result<Option<Secret>, Error>,
{
    let mut reader = Reader {
        text,
        at: 0,
        place: Vec::new(),
        edits: Vec::new(),
        see,
    };
    reader.space();
    reader.value()?;
    reader.space();
    if reader.at < text.len() {
        return reader.broken("something follows the value");
    }
    Ok(reader.edits)
}

/// `text` with its edits, in one allocation that is wiped when it is dropped.
pub(crate) fn apply(text: &str, edits: &[Edit]) -> Secret<Vec<u8>> {
    let grown: usize = edits
        .iter()
        .map(|(_, new)| 6 * new.expose().len() + 2)
        .sum();
    let mut out = Vec::with_capacity(text.len() + grown);
    let mut from = 0;
    for (range, new) in edits {
        out.extend_from_slice(&text.as_bytes()[from..range.start]);
        write(&mut out, new.expose());
        from = range.end;
    }
    out.extend_from_slice(&text.as_bytes()[from..]);
    Secret::new(out)
}

/// A JSON string, quoted; at most six bytes for one.
fn write(out: &mut Vec<u8>, text: &str) {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    out.push(b'"');
    for byte in text.bytes() {
        match byte {
            b'"' | b'\\' => out.extend_from_slice(&[b'\\', byte]),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            b'\t' => out.extend_from_slice(b"\\t"),
            0..0x20 => {
                out.extend_from_slice(b"\\u00");
                out.push(HEX[usize::from(byte >> 4)]);
                out.push(HEX[usize::from(byte & 15)]);
            }
            _ => out.push(byte),
        }
    }
    out.push(b'"');
}

struct Reader<'a, F> {
    text: &'a str,
    at: usize,
    place: Vec<Step>,
    edits: Vec<Edit>,
    see: F,
}

impl<'a, F> Reader<'a, F>
where
    F: FnMut(&[Step], Token<'_>) -> Result<Option<Secret>, Error>,
{
    fn broken<T>(&self, what: &'static str) -> Result<T, Stopped> {
        Err(Stopped::Broken(what, self.at))
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    fn take(&mut self, byte: u8) -> bool {
        let is = self.peek() == Some(byte);
        if is {
            self.at += 1;
        }
        is
    }

    fn value(&mut self) -> Result<(), Stopped> {
        match self.peek() {
            Some(b'{') => self.object(),
            Some(b'[') => self.array(),
            Some(b'"') => {
                let from = self.at;
                let text = self.string()?;
                self.tell(from, Token::Text(&text))
            }
            Some(b'-' | b'0'..=b'9') => {
                let from = self.at;
                let number = self.number()?;
                self.tell(from, Token::Number(number))
            }
            _ => {
                for word in ["true", "false", "null"] {
                    if self.text[self.at..].starts_with(word) {
                        let from = self.at;
                        self.at += word.len();
                        return self.tell(from, Token::Word(word));
                    }
                }
                self.broken("a value is missing")
            }
        }
    }

    /// Shows a token that began at `from`.
    fn tell(&mut self, from: usize, token: Token<'_>) -> Result<(), Stopped> {
        let new = (self.see)(&self.place, token).map_err(Stopped::Refused)?;
        // The name of a member stays what it is.
        if let (Some(new), false) = (new, matches!(token, Token::Key(_))) {
            self.edits.push((from..self.at, new));
        }
        Ok(())
    }

    fn enter(&mut self, step: Step) -> Result<(), Stopped> {
        if self.place.len() == DEPTH {
            return self.broken("nests deeper than 64");
        }
        self.place.push(step);
        Ok(())
    }

    fn object(&mut self) -> Result<(), Stopped> {
        self.at += 1;
        self.space();
        if self.take(b'}') {
            return Ok(());
        }
        let mut seen = HashSet::new();
        loop {
            self.space();
            if self.peek() != Some(b'"') {
                return self.broken("a member's name is missing");
            }
            let from = self.at;
            let key = self.string()?;
            self.tell(from, Token::Key(&key))?;
            self.space();
            if !self.take(b':') {
                return self.broken("a colon is missing");
            }
            self.space();
            if !seen.insert(key.clone()) {
                return self.broken("a key stands twice in one object");
            }
            self.enter(Step::Key(key))?;
            self.value()?;
            self.place.pop();
            self.space();
            if self.take(b'}') {
                return Ok(());
            }
            if !self.take(b',') {
                return self.broken("a comma or the end of an object is missing");
            }
        }
    }

    fn array(&mut self) -> Result<(), Stopped> {
        self.at += 1;
        self.space();
        if self.take(b']') {
            return Ok(());
        }
        let mut index = 0;
        loop {
            self.space();
            self.enter(Step::Index(index))?;
            self.value()?;
            self.place.pop();
            index += 1;
            self.space();
            if self.take(b']') {
                return Ok(());
            }
            if !self.take(b',') {
                return self.broken("a comma or the end of an array is missing");
            }
        }
    }

    fn digits(&mut self) -> Result<(), Stopped> {
        let from = self.at;
        while matches!(self.peek(), Some(b'0'..=b'9')) {
            self.at += 1;
        }
        if from == self.at {
            return self.broken("a digit is missing");
        }
        Ok(())
    }

    fn number(&mut self) -> Result<&'a str, Stopped> {
        let from = self.at;
        self.take(b'-');
        if !self.take(b'0') {
            self.digits()?;
        }
        if self.take(b'.') {
            self.digits()?;
        }
        if self.take(b'e') || self.take(b'E') {
            let _ = self.take(b'+') || self.take(b'-');
            self.digits()?;
        }
        Ok(&self.text[from..self.at])
    }

    fn string(&mut self) -> Result<String, Stopped> {
        self.at += 1;
        let mut out = String::new();
        loop {
            let from = self.at;
            while !matches!(self.peek(), None | Some(b'"' | b'\\' | 0..0x20)) {
                self.at += 1;
            }
            out.push_str(&self.text[from..self.at]);
            match self.peek() {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(out);
                }
                Some(b'\\') => {
                    self.at += 1;
                    let escaped = self.escape()?;
                    out.push(escaped);
                }
                Some(_) => return self.broken("a control character stands in a string"),
                None => return self.broken("a string does not end"),
            }
        }
    }

    fn escape(&mut self) -> Result<char, Stopped> {
        let Some(kind) = self.peek() else {
            return self.broken("a string does not end");
        };
        self.at += 1;
        Ok(match kind {
            b'"' | b'\\' | b'/' => char::from(kind),
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            b'n' => '\n',
            b'r' => '\r',
            b't' => '\t',
            b'u' => {
                let first = self.unit()?;
                let code = if (0xd800..0xdc00).contains(&first) {
                    if !(self.take(b'\\') && self.take(b'u')) {
                        return self.broken("half of a surrogate pair stands alone");
                    }
                    let second = self.unit()?;
                    if !(0xdc00..0xe000).contains(&second) {
                        return self.broken("half of a surrogate pair stands alone");
                    }
                    0x1_0000 + ((first - 0xd800) << 10) + (second - 0xdc00)
                } else {
                    first
                };
                match char::from_u32(code) {
                    Some(c) => c,
                    None => return self.broken("half of a surrogate pair stands alone"),
                }
            }
            _ => return self.broken("an escape is none of JSON's"),
        })
    }

    fn unit(&mut self) -> Result<u32, Stopped> {
        let digits = self.text.as_bytes().get(self.at..self.at + 4);
        let mut unit = 0;
        for digit in digits.unwrap_or_default() {
            let Some(value) = char::from(*digit).to_digit(16) else {
                return self.broken("an escape is none of JSON's");
            };
            unit = unit * 16 + value;
        }
        if digits.is_none() {
            return self.broken("a string does not end");
        }
        self.at += 4;
        Ok(unit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn accepts(text: &str) -> bool {
        read(text, |_, _| Ok(None)).is_ok()
    }

    #[test]
    fn what_parsers_differ_on_is_refused() {
        for text in [
            r#"{"a":1,"a":2}"#,
            r#"{"a":1,"\u0061":2}"#,
            r#"{"x":{"a":1,"b":2,"a":3}}"#,
            r#""\ud800""#,
            r#""\ud800\u0041""#,
            r#""\udc00""#,
            "\"a\nb\"",
            "1 2",
            "{} x",
            "01",
            "1.",
            "+1",
            "NaN",
            "[1,]",
            r#"{"a":1,}"#,
            "{'a':1}",
            "// x\n1",
            "",
            "\u{feff}1",
            r#""\x""#,
            r#""\u00"#,
            "\"",
        ] {
            assert!(!accepts(text), "{text:?} was taken");
        }
        let deep = format!("{}1{}", "[".repeat(DEPTH + 1), "]".repeat(DEPTH + 1));
        assert!(!accepts(&deep));
        let nearly = format!("{}1{}", "[".repeat(DEPTH), "]".repeat(DEPTH));
        assert!(accepts(&nearly));
    }

    #[test]
    fn every_byte_but_the_replaced_strings_is_kept() {
        let text = "{ \"n\" : 1.50e+10,\t\"big\":123456789012345678901234567890 ,\"s\":\"\\u0061\\/\", \"x\" :[ \"put\" , true,null ]}\n";
        let edits = read(text, |_, token| {
            Ok((token == Token::Text("put")).then(|| Secret::new("a\"\\\n\u{1}é".to_owned())))
        })
        .expect("JSON");
        let out = apply(text, &edits);
        let want = text.replace("\"put\"", r#""a\"\\\n\u0001é""#);
        assert_eq!(String::from_utf8_lossy(out.expose()), want);
    }

    #[test]
    fn places_are_those_of_rfc_6901() {
        let text = r#"{"a/b":[{"~":"x"},7],"k":"x"}"#;
        let found = |pointer: &str| {
            let pointer = Pointer::parse(pointer).expect("a pointer");
            let mut found = None;
            read(text, |place, token| {
                if pointer.is(place) && !matches!(token, Token::Key(_)) {
                    found = Some(format!("{token:?}"));
                }
                Ok(None)
            })
            .expect("JSON");
            found
        };
        assert_eq!(found("/a~1b/0/~0").as_deref(), Some("Text(\"x\")"));
        assert_eq!(found("/a~1b/1").as_deref(), Some("Number(\"7\")"));
        assert_eq!(found("/a~1b/01"), None);
        assert_eq!(Pointer::parse("a"), None);
        assert_eq!(Pointer::parse("/~2"), None);
    }

    #[test]
    fn whatever_is_taken_reads_the_same_elsewhere() {
        const PIECES: &[&str] = &[
            "{",
            "}",
            "[",
            "]",
            ",",
            ":",
            "\"a\"",
            "\"b\"",
            "\"\\u0061\"",
            "\"\\ud83d\\ude00\"",
            "\"\\ud83d\"",
            "\"\\n\\/\"",
            "\"x",
            "\\",
            "0",
            "-",
            "1",
            "1.5",
            "1e9",
            ".5",
            "e",
            "true",
            "false",
            "null",
            " ",
            "\n",
            "\t",
            "nul",
            "\u{a0}",
        ];
        let mut seed = 0x2545_f491_4f6c_dd1d_u64;
        let mut next = |below: usize| {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            usize::try_from(seed % u64::try_from(below).expect("small")).expect("small")
        };
        let mut taken = 0;
        for _ in 0..200_000 {
            let text: String = (0..=next(9)).map(|_| PIECES[next(PIECES.len())]).collect();
            let elsewhere = serde_json::from_str::<serde_json::Value>(&text);
            match read(&text, |_, _| Ok(None)) {
                Ok(edits) => {
                    taken += 1;
                    // A number that is none there is written as it came.
                    let same = elsewhere
                        .as_ref()
                        .map_or_else(|e| e.to_string().contains("out of range"), |_| true);
                    assert!(same, "{text:?} is taken here alone");
                    assert_eq!(apply(&text, &edits).expose(), text.as_bytes());
                }
                Err(Stopped::Broken("a key stands twice in one object", _)) => {}
                Err(why) => assert!(
                    elsewhere.is_err(),
                    "{text:?} is refused here alone: {why:?}"
                ),
            }
        }
        assert!(taken > 1000, "{taken}");
    }

    #[test]
    fn surrogate_pairs_are_one_character() {
        let mut seen = String::new();
        read(r#""\ud83d\ude00""#, |_, token| {
            if let Token::Text(text) = token {
                seen = text.to_owned();
            }
            Ok(None)
        })
        .expect("JSON");
        assert_eq!(seen, "😀");
    }
}

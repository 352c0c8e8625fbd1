//! Text of components and backends, made fit to show: no control characters, redacted, bounded.

use crate::setup::Redactor;

/// The most that is looked at of a text that is shown in part.
const LOOKED_AT: usize = 64 << 10;

/// The most that is kept of an error's message, in bytes.
pub(crate) const MESSAGE: usize = 4 << 10;

/// `text` without control characters and direction overrides (line feed and tab stay), redacted, and
/// cut to at most `limit` bytes at a character's border, with `…` where something was cut.
///
/// Characters are removed before the redactor looks, so that none can hide a secret from it, and the
/// cut comes last, so that no part of a secret is left at the end.
pub fn clean(text: &str, limit: usize, redactor: &Redactor) -> String {
    let mut stripped = String::with_capacity(text.len().min(LOOKED_AT));
    for c in text.chars() {
        if stripped.len() >= LOOKED_AT {
            break;
        }
        if shown(c) {
            stripped.push(c);
        }
    }
    cut(redactor(&stripped), limit)
}

/// As [`clean`], of the end of `text` instead of its beginning.
pub(crate) fn clean_tail(text: &str, limit: usize, redactor: &Redactor) -> String {
    let stripped: String = text.chars().filter(|c| shown(*c)).collect();
    let redacted = redactor(stripped.trim());
    if redacted.len() <= limit {
        return redacted;
    }
    let mut from = redacted.len() - limit;
    while !redacted.is_char_boundary(from) {
        from += 1;
    }
    format!("…{}", &redacted[from..])
}

fn shown(c: char) -> bool {
    if c == '\n' || c == '\t' {
        return true;
    }
    // Bidirectional overrides and isolates reorder what a person reads.
    !c.is_control() && !matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

fn cut(mut text: String, limit: usize) -> String {
    if text.len() > limit {
        let mut end = limit;
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        text.truncate(end);
        text.push('…');
    }
    text
}

/// Bytes as lower-case hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut text = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        text.push(char::from(DIGITS[usize::from(byte >> 4)]));
        text.push(char::from(DIGITS[usize::from(byte & 15)]));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn a_secret_split_by_a_control_character_is_still_redacted() {
        let redactor: Redactor = Arc::new(|t: &str| t.replace("hunter2", "[redacted]"));
        assert_eq!(clean("is hun\0ter2\x1b", 100, &redactor), "is [redacted]");
        assert_eq!(
            clean_tail("is hun\0ter2\n", 100, &redactor),
            "is [redacted]"
        );
    }

    #[test]
    fn a_cut_never_splits_a_character() {
        let redactor: Redactor = Arc::new(str::to_owned);
        assert_eq!(clean("ääää", 3, &redactor), "ä…");
        assert_eq!(clean_tail("ääää", 3, &redactor), "…ä");
    }
}

//! What a name that people give may be.

use crate::error::{Error, Result};

/// Characters in a name at most.
const NAME: usize = 100;
/// Characters in a description at most.
const DESCRIPTION: usize = 2000;

/// Whether a character shows a person another text than there is: controls, what separates lines, what is written in
/// another direction (UAX #9), and what has no width. Joiners stay, as scripts need them (RFC 5892, appendix A).
fn misleads(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{ad}' | '\u{61c}' | '\u{200b}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

/// A name: trimmed, 1 to 100 characters, no control characters. `pointer` is the field's.
pub(crate) fn checked(pointer: &str, name: &str) -> Result<String> {
    let name = name.trim();
    if name.is_empty() || name.chars().count() > NAME || name.chars().any(misleads) {
        return Err(Error::invalid(
            pointer,
            format!(
                "must be 1 to {NAME} characters, without control characters and those that nobody sees"
            ),
        ));
    }
    Ok(name.to_owned())
}

/// A description: at most 2000 characters, no control characters but line feeds and tabs; empty is none.
pub(crate) fn description(pointer: &str, text: Option<&str>) -> Result<Option<String>> {
    let Some(text) = text.map(str::trim).filter(|t| !t.is_empty()) else {
        return Ok(None);
    };
    if text.chars().count() > DESCRIPTION
        || text
            .chars()
            .any(|c| c.is_control() && c != '\n' && c != '\t')
    {
        return Err(Error::invalid(
            pointer,
            format!("must be at most {DESCRIPTION} characters without control characters"),
        ));
    }
    Ok(Some(text.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::checked;

    #[test]
    fn a_name_shows_what_it_is() {
        for name in [
            "\u{200b}",
            "a\u{202e}b",
            "a\u{2066}b",
            "a\u{2028}b",
            "a\u{7}",
            "",
        ] {
            assert!(checked("/name", name).is_err(), "{name:?}");
        }
        // Joiners, other scripts and spaces at the ends are no reason.
        for name in ["build box", "क\u{94d}\u{200d}ष", "  箱 "] {
            assert!(checked("/name", name).is_ok(), "{name:?}");
        }
    }
}

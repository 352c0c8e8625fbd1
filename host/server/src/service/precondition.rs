//! What a client says of the environment that it wants to change: `If-Match` of RFC 9110, section 13.1.1.
//!
//! An environment's entity tag is `"REVISION-TARGET"`, which changes with every change of its row. A client may also name
//! the revision alone, which only saves raise: it then does not mind that a secret was rotated meanwhile. Invariant: a tag
//! that was not understood is never taken for one that holds.

use leasehold_authority::{Environment, Error as AuthorityError, code};
use serde_json::json;

use super::error::ServiceError;

/// What must hold for a change to be made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Precondition {
    /// Nothing.
    #[default]
    None,
    /// `*`: that the environment is there.
    Exists,
    /// That it is one of these.
    OneOf(Vec<Tag>),
}

/// An entity tag, without its quotes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Tag {
    /// A revision, and the revision of its target where that was said.
    Revision(i64, Option<i64>),
    /// One that no environment ever has.
    Other,
}

/// The entity tag of an environment, with its quotes.
pub fn entity_tag(environment: &Environment) -> String {
    format!(
        "\"{}-{}\"",
        environment.revision, environment.target_revision
    )
}

impl Precondition {
    /// Reads the field's value; several lines of it are one list.
    ///
    /// # Errors
    /// What is wrong, for a message: a weak tag too, as it holds of nothing that is to be changed.
    pub fn parse(lines: &[&str]) -> Result<Precondition, &'static str> {
        let text = lines.join(",");
        let text = text.trim();
        match (lines.is_empty(), text) {
            (true, _) => return Ok(Precondition::None),
            (false, "*") => return Ok(Precondition::Exists),
            _ => {}
        }
        let mut tags = Vec::new();
        let mut rest = text;
        loop {
            rest = rest.trim_start();
            if rest.starts_with("W/") {
                return Err("holds a weak entity tag, which says too little for a change");
            }
            let tag = rest.strip_prefix('"').and_then(|r| r.split_once('"'));
            let (tag, after) = tag.ok_or("is neither * nor entity tags in quotes")?;
            if !tag.bytes().all(|b| b == b'!' || (b > b'"' && b != 0x7f)) {
                return Err("holds an entity tag with a character that none has");
            }
            tags.push(Tag::parse(tag));
            rest = after.trim_start();
            match rest.strip_prefix(',') {
                Some(next) => rest = next,
                None if rest.is_empty() => return Ok(Precondition::OneOf(tags)),
                None => return Err("has something between its entity tags that is no comma"),
            }
        }
    }

    /// Whether it was said of the target too: then a rotated secret between the look and the change is a change.
    pub fn minds_target(&self) -> bool {
        let minds = |tag: &Tag| matches!(tag, Tag::Revision(_, Some(_)));
        matches!(self, Precondition::OneOf(tags) if tags.iter().any(minds))
    }

    /// Whether it holds of an environment.
    ///
    /// # Errors
    /// `revision_mismatch`.
    pub fn check(&self, now: &Environment) -> Result<(), ServiceError> {
        match self {
            Precondition::None | Precondition::Exists => Ok(()),
            Precondition::OneOf(tags) if tags.iter().any(|tag| tag.is_of(now)) => Ok(()),
            Precondition::OneOf(_) => Err(Precondition::changed(now)),
        }
    }

    /// The refusal that tells what is there now.
    pub fn changed(now: &Environment) -> ServiceError {
        ServiceError::Authority(AuthorityError::Conflict {
            code: code::REVISION_MISMATCH,
            message: format!(
                "environment {} is at revision {} (its target at {}) and not what If-Match names: read it again",
                now.id, now.revision, now.target_revision
            ),
            details: json!({ "revision": now.revision, "targetRevision": now.target_revision }),
        })
    }
}

impl Tag {
    fn parse(text: &str) -> Tag {
        let number = |text: &str| {
            let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
            text.parse()
                .ok()
                .filter(|_| digits && !text.starts_with('0'))
        };
        match text.split_once('-') {
            None => number(text).map(|revision| Tag::Revision(revision, None)),
            Some((revision, target)) => number(revision)
                .zip(number(target))
                .map(|(revision, target)| Tag::Revision(revision, Some(target))),
        }
        .unwrap_or(Tag::Other)
    }

    fn is_of(&self, now: &Environment) -> bool {
        match self {
            Tag::Revision(revision, target) => {
                *revision == now.revision && target.is_none_or(|t| t == now.target_revision)
            }
            Tag::Other => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entity_tags_are_read_and_what_is_none_is_refused() {
        let read = |text: &str| Precondition::parse(&[text]);
        let one = |tag: Tag| Ok(Precondition::OneOf(vec![tag]));
        assert_eq!(Precondition::parse(&[]), Ok(Precondition::None));
        assert_eq!(read(" * "), Ok(Precondition::Exists));
        assert_eq!(read("\"7-3\""), one(Tag::Revision(7, Some(3))));
        assert_eq!(read("\"7\""), one(Tag::Revision(7, None)));
        for other in [
            "\"\"",
            "\"x,y\"",
            "\"07\"",
            "\"+7\"",
            "\"7-\"",
            "\"7-3-1\"",
            "\"99999999999999999999\"",
        ] {
            assert_eq!(read(other), one(Tag::Other), "{other}");
        }
        let two = Precondition::OneOf(vec![Tag::Revision(1, None), Tag::Revision(2, Some(1))]);
        assert_eq!(read("\"1\" , \"2-1\""), Ok(two.clone()));
        assert_eq!(Precondition::parse(&["\"1\"", "\"2-1\""]), Ok(two));
        for wrong in [
            "",
            "7",
            "W/\"7\"",
            "\"7",
            "\"7\" \"8\"",
            "\"7\",",
            "*, \"7\"",
            "\"a b\"",
            "\"a\u{7f}\"",
        ] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }
}

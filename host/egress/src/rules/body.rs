//! Bodies of requests: payloads into the string values of buffered JSON, and the owner label that a creation carries.
//!
//! Nothing else is replaced anywhere: a placeholder in a key, in another media type, in an encoding or in a body that is
//! streamed is refused. Numbers and everything around the replaced strings go out as they came.

use std::sync::Arc;

use bytes::Bytes;
use leasehold_contract::{Code, Content, Error, Piece};

use super::facts::Value;
use super::json::{self, Pointer, Stopped};
use super::sites::Headers;
use super::tokens::{Part, Purpose, Tokens, misplaced};
use super::watch::Watch;
use crate::http::Body;
use crate::secret::Secret;

/// The largest buffered body.
pub(crate) const LARGEST: usize = 8 << 20;

/// The label that must stand in a creation's body.
pub(crate) struct OwnerLabel<'a> {
    /// Where the labels are.
    pub(crate) labels: &'a str,
    pub(crate) key: &'a str,
    pub(crate) value: &'a str,
}

/// A body as it goes out, and whether a payload stands in it.
pub(crate) struct Filled {
    pub(crate) body: Body,
    pub(crate) secret: bool,
}

impl Filled {
    /// No body.
    pub(crate) fn empty() -> Filled {
        Filled {
            body: Body::Empty,
            secret: false,
        }
    }
}

fn deny<T>(what: impl Into<String>) -> Result<T, Error> {
    Err(Error::new(Code::PermissionDenied, what))
}

/// Judges and fills a buffered body; `payloads`: whether they may stand in it. Adds the content type that text has
/// where none is said.
pub(crate) fn buffered(
    content: &Content,
    headers: &mut Headers,
    tokens: &Tokens,
    payloads: bool,
    owner: Option<&OwnerLabel<'_>>,
) -> Result<Filled, Error> {
    let bytes = content.as_bytes();
    if bytes.len() > LARGEST {
        return deny(format!(
            "the body has {} bytes; a buffered one has at most 8 MiB, larger ones go by http.upload",
            bytes.len()
        ));
    }
    if matches!(content, Content::Text(_)) && headers.get("content-type").is_none() {
        let json = Secret::new("application/json".to_owned());
        headers.all.push(("content-type".to_owned(), json));
    }
    let stands = tokens.stands_in(bytes);
    if !stands && owner.is_none() {
        return Ok(Filled {
            body: if bytes.is_empty() {
                Body::Empty
            } else {
                Body::Full(Bytes::copy_from_slice(bytes))
            },
            secret: false,
        });
    }
    let text = match std::str::from_utf8(bytes) {
        Ok(text) if is_json(headers) => text,
        _ if stands => {
            return Err(misplaced(
                "a body that is not `application/json` in UTF-8 without Content-Encoding",
            ));
        }
        _ => {
            return deny(
                "the owner label is looked for in the body, which is not `application/json` without Content-Encoding",
            );
        }
    };
    filled(text, tokens, payloads, owner)
}

fn filled(
    text: &str,
    tokens: &Tokens,
    payloads: bool,
    owner: Option<&OwnerLabel<'_>>,
) -> Result<Filled, Error> {
    let label = match owner {
        None => None,
        Some(owner) => match Pointer::parse(owner.labels) {
            Some(labels) => Some((labels.member(owner.key), owner.value)),
            None => return deny(format!("{:?} is no JSON pointer", owner.labels)),
        },
    };
    let mut owned = label.is_none();
    let edits = json::read(text, |place, token| {
        match token {
            json::Token::Key(key) => tokens.refuse(key.as_bytes(), "a key of the body")?,
            json::Token::Text(value) => {
                if let Some((pointer, owner)) = &label
                    && pointer.is(place)
                {
                    owned = value == *owner;
                }
                return fill(value, tokens, payloads);
            }
            json::Token::Number(_) | json::Token::Word(_) => {}
        }
        Ok(None)
    })
    .map_err(|stopped| match stopped {
        Stopped::Refused(error) => error,
        Stopped::Broken(what, at) => Error::new(
            Code::PermissionDenied,
            format!("the body is not JSON as it is taken here: {what}, at byte {at}"),
        ),
    })?;
    if let (false, Some(owner)) = (owned, owner) {
        return deny(format!(
            "the labels at {:?} of the body have no {} of this lease; put all labels of the context on what is created",
            owner.labels, owner.key
        ));
    }
    let body = if edits.is_empty() {
        Bytes::copy_from_slice(text.as_bytes())
    } else {
        Bytes::from_owner(Wiped(json::apply(text, &edits)))
    };
    Ok(Filled {
        body: Body::Full(body),
        secret: !edits.is_empty(),
    })
}

/// A string with its payloads; none where no placeholder stands in it.
fn fill(text: &str, tokens: &Tokens, payloads: bool) -> Result<Option<Secret>, Error> {
    if !tokens.stands_in(text.as_bytes()) {
        return Ok(None);
    }
    let parts = tokens.split(text);
    let mut length = 0;
    let mut between = String::with_capacity(text.len());
    for part in &parts {
        match part {
            Part::Text(text) => {
                length += text.len();
                between.push_str(text);
            }
            Part::Token(token) => match (&token.purpose, &token.value) {
                (Purpose::Payload, Value::Text(_)) if !payloads => {
                    return deny(
                        "a payload's placeholder stands in the body of a request that is not for the lease's own environment; it goes into operations of role create, create-child and act",
                    );
                }
                (Purpose::Payload, Value::Text(value)) => length += value.expose().len(),
                _ => return Err(misplaced("a body")),
            },
        }
    }
    // What is left must not hold one in another spelling, or in pieces around one.
    tokens.refuse(
        between.as_bytes(),
        "a string of the body, encoded or in another case",
    )?;
    let mut out = String::with_capacity(length);
    for part in &parts {
        match part {
            Part::Text(text) => out.push_str(text),
            Part::Token(token) => {
                if let Value::Text(value) = &token.value {
                    out.push_str(value.expose());
                }
            }
        }
    }
    Ok(Some(Secret::new(out)))
}

/// Whether the headers say that the body is JSON that nothing was done to.
fn is_json(headers: &Headers) -> bool {
    let plain = headers.get("content-encoding").is_none();
    let said = headers.get("content-type").unwrap_or_default();
    let mut parts = said.split(';').map(str::trim);
    let essence = parts.next().unwrap_or_default();
    plain
        && essence.eq_ignore_ascii_case("application/json")
        && parts.all(|p| {
            let p = p.to_ascii_lowercase();
            p.is_empty() || p == "charset=utf-8" || p == "charset=\"utf-8\""
        })
}

/// Judges a body in pieces: nothing is replaced in it, and no credential passes in the streams.
pub(crate) fn pieces(pieces: Vec<Piece>, tokens: &Tokens) -> Result<Body, Error> {
    let mut inline = Vec::new();
    for piece in &pieces {
        if let Piece::Inline(content) = piece {
            inline.extend_from_slice(content.as_bytes());
            if inline.len() > LARGEST {
                return deny("the inline pieces of the body have more than 8 MiB together");
            }
        }
    }
    tokens.refuse(&inline, "a body in pieces")?;
    let watch = tokens.credentials();
    let pieces = pieces
        .into_iter()
        .map(|piece| match (piece, &watch) {
            (Piece::Bytes(stream), Some(finder)) => {
                Piece::Bytes(Box::pin(Watch::new(stream, Arc::clone(finder))))
            }
            (piece, _) => piece,
        })
        .collect();
    Ok(Body::Pieces(pieces))
}

/// Bytes that are wiped when the last reader of them is done.
struct Wiped(Secret<Vec<u8>>);

impl AsRef<[u8]> for Wiped {
    fn as_ref(&self) -> &[u8] {
        self.0.expose()
    }
}

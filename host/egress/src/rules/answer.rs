//! What of an answer a component sees: ids are taken out of it, minted values become placeholders, and what is left of
//! any secret is removed.
//!
//! Invariants: an id or a kept value is reported before the component has the answer (whoever calls does that); a
//! minted value is in no text that leaves here; the answer to a creation that cannot be read is not a success.

use std::sync::Arc;

use leasehold_contract::{Code, Content, Error, HttpHead, HttpResponse};

use super::facts::{Kept, MintPlace, Value, placeholder};
use super::finder::{REMOVED, SHORTEST};
use super::glance::Glance;
use super::json::{self, Pointer, Step, Stopped, Token as Json};
use super::lines::{Caught, LineNet};
use super::operations::Effect;
use super::tokens::{Purpose, Token, Tokens};
use super::{Expects, Minting, Rules};
use crate::engine::{self, Answer};
use crate::error::quote;
use crate::secret::Secret;

/// The most values that one answer mints, and the most placeholders of a call.
const MINTED: usize = 64;
const TOKENS: usize = 1024;

/// What the host must know before the component sees the answer.
#[derive(Debug)]
pub(crate) enum Found {
    /// The lease's environment was made.
    Created(String),
    /// Something of it was made.
    Child(String),
    /// A value to give to later calls.
    Kept(Kept),
}

/// An answer as the component gets it, and what to report first.
#[derive(Debug)]
pub(crate) struct Seen {
    pub(crate) response: HttpResponse,
    pub(crate) found: Vec<Found>,
}

/// A value that an answer minted.
struct Minted {
    mint: usize,
    pointer: String,
    at: Pointer,
    /// It stands at the pointer, not inside of what does.
    whole: bool,
    value: Secret,
}

/// What one reading of an answer's body found.
#[derive(Default)]
struct Reading {
    /// As it is written, and whether it is a number.
    id: Option<(String, bool)>,
    minted: Vec<Minted>,
}

impl Rules {
    /// Looks at a body while it comes, for [`Rules::answered`].
    pub(crate) fn glance(&self) -> Glance {
        Glance::of(self.known().tokens.values().clone())
    }

    /// A whole answer, as the component may see it; `glance` looked at its body while it came.
    ///
    /// # Errors
    /// `outcome-unknown` (of a read: `unavailable`) where the answer cannot be read as the manifest says.
    pub(crate) fn answered(
        &self,
        expects: &Expects,
        response: HttpResponse,
        glance: Option<&Glance>,
    ) -> Result<Seen, Error> {
        let HttpResponse { head, body } = response;
        self.identity(expects, &head)?;
        let good = (200..300).contains(&head.status);
        let body = match &expects.answer {
            Answer::Owned(key, value) if good => own(expects, &body, key, value)?,
            Answer::Owned(..) | Answer::AsItIs | Answer::WholeId => body,
        };
        let mut reading = Reading::default();
        if expects.reads_the_body() {
            let text = match &body {
                Content::None => Some(""),
                Content::Text(text) => Some(text.as_str()),
                Content::Bytes(_) => None,
            };
            match text {
                Some("") => {}
                Some(text) => match self.read(expects, text) {
                    Ok(read) => reading = read,
                    // An error page of a proxy before the backend holds nothing that was minted.
                    Err(_) if !good => {}
                    Err(what) => return Err(unreadable(expects, &what)),
                },
                None if good => return Err(unreadable(expects, "it is not text")),
                None => {}
            }
        }
        let mut found = Vec::new();
        if good {
            found.extend(made(expects, reading.id, &self.chosen)?);
        }
        let mut known = self.known();
        if reading.minted.len() > MINTED || known.tokens.count() + reading.minted.len() > TOKENS {
            return Err(unreadable(
                expects,
                &format!(
                    "it mints {} values; an answer has at most {MINTED} and a call {TOKENS}",
                    reading.minted.len()
                ),
            ));
        }
        let fresh = tokens_for(&reading.minted, &self.mints, &known.tokens)?;
        for (minted, token) in reading.minted.iter().zip(&fresh) {
            found.extend(self.keep(expects, minted, token));
        }
        if !fresh.is_empty() {
            known.tokens = Arc::new(known.tokens.with(fresh.iter().cloned()));
        }
        for found in &found {
            match found {
                Found::Created(id) => known.names.resource = Some(id.clone()),
                Found::Child(id) => {
                    known.names.children.insert(id.clone());
                }
                Found::Kept(_) => {}
            }
        }
        let tokens = known.tokens.clone();
        drop(known);
        let same = matches!(expects.answer, Answer::AsItIs | Answer::WholeId);
        let passes = |glance: &Glance| glance.passes(body.as_bytes(), tokens.values());
        let body = match glance {
            Some(glance) if same && reading.minted.is_empty() && passes(glance) => body,
            _ => shown(body, &reading.minted, &fresh, &tokens),
        };
        let head = shown_head(head, &reading.minted, &fresh, &tokens);
        Ok(Seen {
            response: HttpResponse { head, body },
            found,
        })
    }

    /// The beginning of an answer whose body comes later.
    ///
    /// # Errors
    /// As [`Rules::answered`].
    pub(crate) fn began(&self, expects: &Expects, head: HttpHead) -> Result<HttpHead, Error> {
        self.identity(expects, &head)?;
        let tokens = self.known().tokens.clone();
        Ok(shown_head(head, &[], &[], &tokens))
    }

    /// The beginning of what a server said instead of switching: where it was cut, a value may be cut with it.
    pub(crate) fn refusal(&self, body: String, cut: bool) -> String {
        let tokens = self.known().tokens.clone();
        let mut body = tokens.values().clean(body);
        if cut {
            let mut end = body.len().saturating_sub(tokens.values().reach());
            while !body.is_char_boundary(end) {
                end -= 1;
            }
            body.truncate(end);
        }
        body
    }

    /// A text that comes from the other side, whole.
    pub(crate) fn text(&self, text: String) -> String {
        let tokens = self.known().tokens.clone();
        tokens.values().clean(text)
    }

    /// The next line of an answer that is read by lines; none at its end.
    pub(crate) fn line(&self, net: &mut LineNet, line: Option<String>) -> Caught {
        let tokens = self.known().tokens.clone();
        net.take(line, tokens.values())
    }

    /// An error on the way, without values in its text.
    pub(crate) fn error(&self, mut error: Error) -> Error {
        error.message = self.text(error.message);
        error
    }

    /// What is packed cannot be looked into, and identity was asked for.
    ///
    /// # Errors
    /// As [`Rules::answered`], for an answer in any other encoding.
    pub(crate) fn identity(&self, expects: &Expects, head: &HttpHead) -> Result<(), Error> {
        let packed = head.headers.iter().find(|(name, value)| {
            name.eq_ignore_ascii_case("content-encoding")
                && !value.trim().is_empty()
                && !value.trim().eq_ignore_ascii_case("identity")
        });
        match packed {
            None => Ok(()),
            Some((_, coding)) => Err(unreadable(
                expects,
                &format!(
                    "it is encoded ({:?}), and no encoding was asked for",
                    quote(self.text(coding.clone()).as_bytes())
                ),
            )),
        }
    }

    fn read(&self, expects: &Expects, text: &str) -> Result<Reading, String> {
        let id = match &expects.effect {
            Effect::Creates(made) | Effect::CreatesChild(made) => Pointer::parse(&made.id),
            Effect::Reads | Effect::Acts | Effect::Shared => None,
        };
        let wanted: Vec<(usize, &str, Pointer)> = expects
            .mints
            .iter()
            .flat_map(|i| self.mints[*i].mint.pointers.iter().map(|p| (*i, p)))
            .filter_map(|(i, p)| Some((i, p.as_str(), Pointer::parse(p)?)))
            .collect();
        let mut reading = Reading::default();
        json::read(text, |place, token| {
            let (Json::Text(value) | Json::Number(value)) = token else {
                return Ok(None);
            };
            if id.as_ref().is_some_and(|id| id.is(place)) {
                reading.id = Some((value.to_owned(), matches!(token, Json::Number(_))));
            }
            for (mint, pointer, at) in &wanted {
                if at.holds(place) && !value.is_empty() {
                    reading.minted.push(Minted {
                        mint: *mint,
                        pointer: (*pointer).to_owned(),
                        at: at.clone(),
                        whole: at.is(place),
                        value: Secret::new(value.to_owned()),
                    });
                }
            }
            Ok(None)
        })
        .map_err(|stopped| match stopped {
            Stopped::Broken(what, at) => format!("{what}, at byte {at}"),
            Stopped::Refused(error) => error.message,
        })?;
        Ok(reading)
    }

    fn keep(&self, expects: &Expects, minted: &Minted, token: &Token) -> Option<Found> {
        let (_, name) = expects
            .keep
            .iter()
            .find(|(p, _)| minted.whole && *p == minted.pointer)?;
        let Value::Text(value) = &token.value else {
            return None;
        };
        let mint = &self.mints[minted.mint].mint;
        Some(Found::Kept(Kept {
            name: name.clone(),
            mint: MintPlace {
                endpoint: mint.endpoint.clone(),
                method: mint.method.clone(),
                path: mint.path.clone(),
                pointer: minted.pointer.clone(),
            },
            value: value.clone(),
        }))
    }
}

/// Of a list of containers, those that are the lease's.
fn own(expects: &Expects, body: &Content, key: &str, value: &str) -> Result<Content, Error> {
    let text = match body {
        Content::Text(text) => text.as_str(),
        Content::None | Content::Bytes(_) => "",
    };
    engine::owned_containers(text, key, value)
        .map(Content::Text)
        .map_err(|what| unreadable(expects, &what))
}

fn unreadable(expects: &Expects, what: &str) -> Error {
    let code = if expects.effect.acts() {
        Code::OutcomeUnknown
    } else {
        Code::Unavailable
    };
    Error::new(
        code,
        format!("{}: the answer cannot be read: {what}", expects.name),
    )
}

/// The id of what a creation made.
fn made(
    expects: &Expects,
    id: Option<(String, bool)>,
    chosen: &[String],
) -> Result<Option<Found>, Error> {
    let (made, found): (_, fn(String) -> Found) = match &expects.effect {
        Effect::Creates(made) => (made, Found::Created),
        Effect::CreatesChild(made) => (made, Found::Child),
        Effect::Reads | Effect::Acts | Effect::Shared => return Ok(None),
    };
    match id {
        Some((id, number)) if expects.said.chose(&id, number, chosen) => Err(unreadable(
            expects,
            &format!(
                "what stands at {:?} is what the request said itself; name things by the acquisition or the command's id, or take an id that the backend chose",
                made.id
            ),
        )),
        Some((id, _)) if expects.answer == Answer::WholeId && !engine::is_whole_id(&id) => Err(
            unreadable(expects, "the engine's id is not 64 hexadecimal digits"),
        ),
        Some((id, _)) if is_resource_id(&id) => Ok(Some(found(id))),
        Some(_) => Err(unreadable(
            expects,
            &format!(
                "what stands at {:?} is no id of 1 to 128 of A-Za-z0-9._-",
                made.id
            ),
        )),
        None => Err(unreadable(
            expects,
            &format!("it has no id at {:?}", made.id),
        )),
    }
}

/// `types.resource-id` of the contract; `.` and `..` name no resource in a path.
pub(crate) fn is_resource_id(id: &str) -> bool {
    (1..=128).contains(&id.len())
        && id != "."
        && id != ".."
        && id
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b))
}

/// A token for each minted value: one that is known already where it may do the same.
fn tokens_for(
    minted: &[Minted],
    mints: &[Minting],
    known: &Tokens,
) -> Result<Vec<Arc<Token>>, Error> {
    let mut fresh: Vec<Arc<Token>> = Vec::with_capacity(minted.len());
    for value in minted {
        let mint = &mints[value.mint].mint;
        let same = |token: &Token| match &token.purpose {
            Purpose::Credential { sites, to } => *sites == mint.sites && *to == mint.to,
            Purpose::Payload => false,
        };
        let text = value.value.expose();
        let twin = known.of_value(text, same).or_else(|| {
            fresh
                .iter()
                .find(|t| same(t) && matches!(&t.value, Value::Text(v) if v.expose() == text))
        });
        let token = match twin {
            Some(token) => token.clone(),
            None => Arc::new(Token {
                placeholder: placeholder()?,
                value: Value::Text(value.value.clone()),
                purpose: Purpose::Credential {
                    sites: mint.sites.clone(),
                    to: mint.to.clone(),
                },
            }),
        };
        fresh.push(token);
    }
    Ok(fresh)
}

/// `text` with minted values replaced by their placeholders. One that is too short to be looked for is replaced where
/// it was minted.
fn replaced(
    place: Option<&[Step]>,
    text: &str,
    minted: &[Minted],
    tokens: &[Arc<Token>],
) -> Option<String> {
    let mut out: Option<String> = None;
    for (minted, token) in minted.iter().zip(tokens) {
        let value = minted.value.expose().as_str();
        if text == value && place.is_some_and(|place| minted.at.holds(place)) {
            return Some(token.placeholder.clone());
        }
        let here = out.as_deref().unwrap_or(text);
        if value.len() >= SHORTEST && here.contains(value) {
            out = Some(here.replace(value, &token.placeholder));
        }
    }
    out
}

fn shown(body: Content, minted: &[Minted], fresh: &[Arc<Token>], tokens: &Tokens) -> Content {
    let body = match body {
        Content::Text(text) if !minted.is_empty() => {
            let edits = json::read(&text, |place, token| {
                Ok(match token {
                    Json::Text(value) | Json::Number(value) => {
                        replaced(Some(place), value, minted, fresh).map(Secret::new)
                    }
                    Json::Key(_) | Json::Word(_) => None,
                })
            });
            match edits {
                Ok(edits) => {
                    let out = json::apply(&text, &edits);
                    drop(Secret::new(text));
                    Content::of(out.take())
                }
                // It was read a moment ago; nothing of it is shown rather than too much.
                Err(_) => Content::Text(REMOVED.to_owned()),
            }
        }
        other => other,
    };
    match tokens.values().remove(body.as_bytes()) {
        Some(clean) => Content::of(clean),
        None => body,
    }
}

fn shown_head(
    head: HttpHead,
    minted: &[Minted],
    fresh: &[Arc<Token>],
    tokens: &Tokens,
) -> HttpHead {
    let headers = head
        .headers
        .into_iter()
        .map(|(name, value)| {
            let value = replaced(None, &value, minted, fresh).unwrap_or(value);
            (tokens.values().clean(name), tokens.values().clean(value))
        })
        .collect();
    HttpHead {
        status: head.status,
        headers,
    }
}

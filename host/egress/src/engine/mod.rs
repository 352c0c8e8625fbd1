//! The engine policy: what of a container engine's API a component may use, whatever its manifest declares.
//!
//! It stands behind the rules of HTTP egress and sees a request last, with every payload in its place. What it does not
//! know is refused: a method and path, a parameter, a header, a member of a body. What goes out is what it wrote itself
//! from what it read, so that the engine sees exactly what was checked. The map:
//!
//! - `calls` is the list of methods and paths; `parameters` the kinds of what stands in a query; `image` the names of images;
//! - `bodies` are the bodies that are read and written anew: a container's, a command's;
//! - `list` takes out of a list of containers those that are not the lease's;
//! - `likeness` asks a plain endpoint whether an engine is behind it;
//! - `root` says which engines are root on this machine.
//!
//! Invariants: what acts names a container that egress saw being made for this lease, or a command in it, by its whole id;
//! a container that is made carries the owner label, and has nothing of the engine's machine (P9).

mod bodies;
mod calls;
mod image;
mod likeness;
mod list;
mod parameters;
mod root;

use bytes::Bytes;
use leasehold_contract::{Code, Content, Error};

use crate::http::Body;
use crate::rules::{Effect, Form, Headers, Names};
use crate::scope::LeaseScope;
use crate::secret::Secret;

use calls::{Call, Gives, Takes};

pub use root::{HostRoots, ROOT};

pub(crate) use likeness::Likeness;
pub(crate) use list::owned as owned_containers;
pub(crate) use root::{Owners, engine_url, is_this_machine, refusal};

fn deny<T>(what: impl std::fmt::Display) -> Result<T, Error> {
    Err(Error::new(
        Code::PermissionDenied,
        format!("the engine policy: {what}"),
    ))
}

/// A request to an engine as the rules let it through.
pub(crate) struct Asked<'a> {
    pub(crate) method: &'a str,
    /// The segments of its path, decoded.
    pub(crate) path: &'a [String],
    /// As it would be sent.
    pub(crate) query: Option<&'a str>,
    pub(crate) form: Form,
    /// What the operation that matched does.
    pub(crate) effect: &'a Effect,
    pub(crate) names: &'a Names,
}

/// Whose containers are made and listed.
#[derive(Clone, Debug)]
pub(crate) struct Owner {
    acquisition: String,
    /// The label that proves it, and the others that the lease gives to what it makes.
    label: (String, String),
    labels: Vec<(String, String)>,
}

impl Owner {
    pub(crate) fn of(lease: &LeaseScope, label: &str) -> Owner {
        Owner {
            acquisition: lease.acquisition.clone(),
            label: (label.to_owned(), lease.owner_label.clone()),
            labels: lease.labels.clone(),
        }
    }

    /// The owner label, and its value.
    pub(crate) fn label(&self) -> (&str, &str) {
        (&self.label.0, &self.label.1)
    }
}

/// A request that the policy lets through, with the body still to be looked at.
pub(crate) struct Allowed<'a> {
    call: &'static Call,
    owner: Option<&'a Owner>,
    /// Path and query as they are sent.
    pub(crate) target: String,
}

/// What of an answer the host takes out or looks at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// It is given on as the rules have it.
    AsItIs,
    /// Of a list of containers, those that carry this label with this value.
    Owned(String, String),
    /// The id of what was made is one that nothing else is called by.
    WholeId,
}

/// Judges method, path and query, and what the operation does.
///
/// # Errors
/// `permission-denied`, naming what is not let through and what is.
pub(crate) fn judge<'a>(asked: &Asked<'_>, owner: Option<&'a Owner>) -> Result<Allowed<'a>, Error> {
    let (call, path) = calls::find(asked.method, asked.path, asked.names)?;
    call.check_effect(asked.effect)?;
    if !call.forms.contains(&asked.form) {
        return deny(format_args!(
            "{call} is not sent by {}; use {}",
            asked.form.as_str(),
            calls::forms(call.forms)
        ));
    }
    let mut query = parameters::read(call, asked.query, owner)?;
    if call.gives == Gives::Containers {
        let Some(owner) = owner else {
            return deny("containers are listed for a lease alone, and this call has none");
        };
        query.push(("filters".to_owned(), list::filters(owner)));
    }
    let target = match parameters::written(&query) {
        Some(query) => format!("{path}?{query}"),
        None => path,
    };
    Ok(Allowed {
        call,
        owner,
        target,
    })
}

impl Allowed<'_> {
    /// Judges a body as the component wrote it, before anything secret stands in it: the message may say what is wrong.
    ///
    /// # Errors
    /// `permission-denied`, naming the member.
    pub(crate) fn look(&self, body: &Content, pieces: bool) -> Result<(), Error> {
        match self.call.takes {
            Takes::Nothing if pieces || !body.as_bytes().is_empty() => {
                deny(format_args!("{} has no body; leave it out", self.call))
            }
            Takes::Nothing | Takes::Archive => Ok(()),
            Takes::Container | Takes::Command | Takes::Start if pieces => deny(format_args!(
                "{} takes a buffered body; use http.send",
                self.call
            )),
            Takes::Container | Takes::Command | Takes::Start => self
                .rewritten(body.as_bytes())
                .map(drop)
                .or_else(|what| deny(format_args!("{}: {what}", self.call))),
        }
    }

    /// The body as it goes out, of one whose payloads stand in it.
    ///
    /// # Errors
    /// `permission-denied`, without a word of the body.
    pub(crate) fn body(&self, filled: Body) -> Result<Body, Error> {
        match (self.call.takes, filled) {
            (Takes::Nothing, _) => Ok(Body::Empty),
            (Takes::Archive, body) => Ok(body),
            (Takes::Container | Takes::Command | Takes::Start, Body::Full(bytes)) => self
                .rewritten(&bytes)
                .map(|written| Body::Full(Bytes::from_owner(Wiped(written))))
                .or_else(|_| {
                    deny("a payload stands in the body where the policy lets none of its kind through")
                }),
            (Takes::Container | Takes::Command | Takes::Start, _) => {
                deny(format_args!("{} has a body of JSON", self.call))
            }
        }
    }

    fn rewritten(&self, bytes: &[u8]) -> Result<Secret<Vec<u8>>, String> {
        match self.call.takes {
            Takes::Container => {
                let owner = self.owner.ok_or("this call has no lease")?;
                bodies::container(bytes, owner)
            }
            Takes::Command => bodies::command(bytes),
            Takes::Start => bodies::start(bytes),
            Takes::Nothing | Takes::Archive => Err("there is no JSON to read".to_owned()),
        }
    }

    /// The headers as they go out: those that an engine needs, and the kind of body that the policy says it is.
    ///
    /// # Errors
    /// `permission-denied`, naming the header.
    pub(crate) fn headers(&self, mut headers: Headers) -> Result<Headers, Error> {
        for (name, _) in &headers.all {
            match name.as_str() {
                "accept" | "authorization" | "content-type" | "cookie" | "user-agent" => {}
                "x-registry-auth" if self.call.pulls() => {}
                _ => {
                    return deny(format_args!(
                        "the header {name} is not sent with {}",
                        self.call
                    ));
                }
            }
        }
        // An engine reads a form in place of its query where the body is said to be one.
        headers.all.retain(|(name, _)| name != "content-type");
        let kind = match self.call.takes {
            Takes::Nothing => None,
            Takes::Archive => Some("application/x-tar"),
            Takes::Container | Takes::Command | Takes::Start => Some("application/json"),
        };
        if let Some(kind) = kind {
            let kind = Secret::new(kind.to_owned());
            headers.all.push(("content-type".to_owned(), kind));
        }
        Ok(headers)
    }

    /// What of the answer is looked at.
    pub(crate) fn answer(&self) -> Answer {
        match (self.call.gives, self.owner) {
            (Gives::Containers, Some(owner)) => {
                Answer::Owned(owner.label.0.clone(), owner.label.1.clone())
            }
            (Gives::Id, _) => Answer::WholeId,
            _ => Answer::AsItIs,
        }
    }
}

/// Whether this is a whole id, as engines make them: no name, no beginning of one, and nothing that is either to another
/// engine.
pub(crate) fn is_whole_id(id: &str) -> bool {
    id.len() == 64 && id.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
}

/// Bytes that are wiped when the last reader of them is done.
struct Wiped(Secret<Vec<u8>>);

impl AsRef<[u8]> for Wiped {
    fn as_ref(&self) -> &[u8] {
        self.0.expose()
    }
}

#[cfg(test)]
mod tests;

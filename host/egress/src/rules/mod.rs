//! The rules of HTTP egress: what a component's request becomes on the wire, or why not, and what of the answer the
//! component sees.
//!
//! Nothing here does I/O, waits, or knows a clock. [`Rules`] is made for one call from its [`HttpFacts`]; whoever holds
//! it keeps the order: judge, record, send, report what was found, answer. The map:
//!
//! - `request` judges, by `path` and `operations`, which say what is let through; `sites` puts credentials into headers, `body` payloads
//!   into JSON, `watch` keeps credentials out of streams;
//! - what goes to a container engine is judged by its policy (`crate::engine`) last;
//! - `answer` takes ids and minted values out of answers, ids that `said` knows from the request not among them; `finder`
//!   removes what is left of any value, `lines` where it is told over several, `glance` tells while it comes that there is none;
//! - `tokens` is the table of placeholders, `finders` keeps what looks for its values, `json` the reader of both directions, `facts` what comes from outside.
//!
//! Invariants (P8): a credential's value stands in its site toward its destinations, a payload's in a JSON string of a
//! request for the lease's own environment, and neither anywhere else. What is judged is what is written.

mod answer;
mod body;
mod facts;
mod finder;
mod finders;
mod glance;
pub(crate) mod json;
mod lines;
mod operations;
mod path;
mod request;
mod said;
mod sites;
mod tokens;
mod watch;

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use leasehold_contract::{Code, Error, Mint};

use crate::engine;
use crate::http::{Destination, OriginPattern, Wire};
use crate::scope::{LeaseScope, Payloads, Reach};

use operations::Declared;
use path::{Path, Template};
use said::Said;
use tokens::{Purpose, Token, Tokens};

pub use facts::{
    CredentialValue, Endpoint, HttpAsked, HttpFacts, Kept, KeptValue, MintPlace, Sink, Value,
    placeholder,
};

pub(crate) use answer::{Found, Seen};
pub(crate) use finders::Finders;
pub(crate) use lines::{Caught, LineNet};
pub(crate) use operations::{Effect, Form};
pub(crate) use path::{Names, encode, unescape};
pub(crate) use sites::Headers;

/// The label by which the host knows what is its own.
pub(crate) const OWNER: &str = "leasehold-owner";

/// See the module.
pub(crate) struct Rules {
    reach: Reach,
    facts: Arc<HttpFacts>,
    /// What was granted of what the manifest asks for.
    asked: Arc<HttpAsked>,
    /// Made for the first request that needs one: most read.
    operations: OnceLock<Vec<Declared>>,
    mints: Vec<Minting>,
    /// As they were written, and ready to be compared.
    origins: Vec<(String, OriginPattern)>,
    /// Those with the longest path first.
    endpoints: Vec<Place>,
    lease: bool,
    owner: Option<engine::Owner>,
    /// Names that the host chose: the acquisition, the command's id.
    chosen: Vec<String>,
    known: Mutex<Known>,
}

/// What grows while a call works.
#[derive(Default)]
struct Known {
    names: Names,
    tokens: Arc<Tokens>,
}

/// A mint of the manifest, ready to be compared.
struct Minting {
    mint: Mint,
    template: Template,
}

/// An endpoint, ready to be compared.
struct Place {
    pointer: String,
    base: Path,
    destination: Destination,
}

/// What a request is for, as it is recorded whether it is let through or not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct About {
    /// The origin; what was asked for where that is none.
    pub(crate) target: String,
    /// Pointer of the endpoint; empty for an approved origin and where nothing allowed is meant.
    pub(crate) pointer: String,
    /// Method and path.
    pub(crate) what: String,
}

/// A request that is let through.
pub(crate) struct Judged {
    pub(crate) wire: Wire,
    pub(crate) expects: Expects,
    /// Of a plain endpoint, the path that it begins at: no container engine may be there.
    pub(crate) plain: Option<String>,
}

/// What the answer to a request is read for.
#[derive(Clone, Debug)]
pub(crate) struct Expects {
    /// What the request does.
    pub(crate) effect: Effect,
    /// Which mints the answer is of.
    mints: Vec<usize>,
    /// What of them is kept: pointer and name.
    keep: Vec<(String, String)>,
    /// What of it the engine policy takes out or looks at.
    answer: engine::Answer,
    /// What the request says itself, where it makes something.
    said: Said,
    /// Method and URL, for messages.
    name: String,
}

impl Expects {
    fn reads_the_body(&self) -> bool {
        !self.mints.is_empty()
            || matches!(self.effect, Effect::Creates(_) | Effect::CreatesChild(_))
    }
}

impl Rules {
    /// The rules of one call, to which `asked` was granted; what looks for its values is shared by `finders`.
    ///
    /// # Errors
    /// `internal` where the facts contradict what was checked when they were saved.
    pub(crate) fn new(
        facts: Arc<HttpFacts>,
        asked: Arc<HttpAsked>,
        payloads: &Payloads,
        reach: Reach,
        lease: Option<&LeaseScope>,
        execution: Option<&str>,
        finders: &Arc<Finders>,
    ) -> Result<Rules, Error> {
        let wrong = |what: String| Error::new(Code::Internal, what);
        let mut endpoints = Vec::with_capacity(facts.endpoints.len());
        for (pointer, endpoint) in &facts.endpoints {
            let (path, query) = split(&endpoint.url);
            let base = Path::parse(path).map_err(|what| {
                wrong(format!("the endpoint at {pointer} has a path that {what}"))
            })?;
            if query.is_some() {
                return Err(wrong(format!(
                    "the endpoint at {pointer} has a query; give the URL without it"
                )));
            }
            endpoints.push(Place {
                pointer: pointer.clone(),
                base,
                destination: endpoint.destination.clone(),
            });
        }
        endpoints.sort_by_key(|place| std::cmp::Reverse(place.base.length()));
        let mints = asked
            .mints
            .iter()
            .map(|mint| match Template::parse(&mint.path) {
                Some(template) => Ok(Minting {
                    mint: mint.clone(),
                    template,
                }),
                None => Err(wrong(format!(
                    "the path {:?} of a mint is one that no request has",
                    mint.path
                ))),
            })
            .collect::<Result<Vec<_>, _>>()?;
        let origins = asked
            .origins
            .iter()
            .map(|text| Ok((text.clone(), OriginPattern::of(text)?)))
            .collect::<Result<_, Error>>()?;
        let tokens = Tokens::new(tokens(&facts, &asked, payloads), finders.clone());
        Ok(Rules {
            reach,
            operations: OnceLock::new(),
            mints,
            origins,
            endpoints,
            lease: lease.is_some(),
            owner: lease.map(|lease| engine::Owner::of(lease, OWNER)),
            chosen: lease
                .map(|lease| lease.acquisition.as_str())
                .into_iter()
                .chain(execution)
                .map(str::to_owned)
                .collect(),
            known: Mutex::new(Known {
                names: Names {
                    resource: facts.resource.clone(),
                    children: facts.children.clone(),
                    acquisition: lease.map(|lease| lease.acquisition.clone()),
                },
                tokens: Arc::new(tokens),
            }),
            facts,
            asked,
        })
    }

    fn operations(&self) -> &[Declared] {
        self.operations
            .get_or_init(|| Declared::all(&self.asked.operations))
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The placeholders of a call.
fn tokens(facts: &HttpFacts, asked: &HttpAsked, payloads: &Payloads) -> Vec<Arc<Token>> {
    let mut all = Vec::new();
    for value in &facts.values {
        // Without a credential that was granted, a placeholder works nowhere, and is looked for all the same.
        let granted = asked
            .credentials
            .iter()
            .find(|c| c.pointer == value.pointer);
        all.push(Arc::new(Token {
            placeholder: value.placeholder.clone(),
            value: value.value.clone(),
            purpose: Purpose::Credential {
                sites: granted.map(|c| c.sites.clone()).unwrap_or_default(),
                to: granted.map(|c| c.to.clone()).unwrap_or_default(),
            },
        }));
    }
    for KeptValue { placeholder, kept } in &facts.kept {
        let mint = asked.mints.iter().find(|m| {
            m.endpoint == kept.mint.endpoint
                && m.method == kept.mint.method
                && m.path == kept.mint.path
                && m.pointers.contains(&kept.mint.pointer)
        });
        all.push(Arc::new(Token {
            placeholder: placeholder.clone(),
            value: Value::Text(kept.value.clone()),
            purpose: Purpose::Credential {
                sites: mint.map(|m| m.sites.clone()).unwrap_or_default(),
                to: mint.map(|m| m.to.clone()).unwrap_or_default(),
            },
        }));
    }
    for (placeholder, value) in payloads.iter() {
        all.push(Arc::new(Token {
            placeholder: placeholder.to_owned(),
            value: Value::Text(value.clone()),
            purpose: Purpose::Payload,
        }));
    }
    all
}

/// The path of a URL and its query, as they are written.
fn split(url: &str) -> (&str, Option<&str>) {
    let rest = url.split_once("://").map_or("", |(_, rest)| rest);
    let from = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let rest = rest[from..].split('#').next().unwrap_or_default();
    match rest.split_once('?') {
        Some((path, query)) => (path, Some(query)),
        None => (rest, None),
    }
}

#[cfg(test)]
mod tests;

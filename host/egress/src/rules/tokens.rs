//! The placeholders that mean something in a call, and what each may be used for.
//!
//! Invariant: a value leaves this table only into the one place that asked for it by its use (a site toward a
//! destination, or a string of a body); whatever else contains a placeholder, however it is written, is refused.

use std::sync::{Arc, LazyLock, OnceLock};

use leasehold_contract::{Code, Error, Site};

use super::facts::{LENGTH, PREFIX, Value};
use super::finder::Finder;
use super::finders::Finders;
use crate::secret::Secret;

/// Looks for how every placeholder begins.
static BEGINNING: LazyLock<Finder> = LazyLock::new(|| Finder::beginning(PREFIX));

/// A placeholder and what it stands for.
#[derive(Debug)]
pub(crate) struct Token {
    pub(crate) placeholder: String,
    pub(crate) value: Value,
    pub(crate) purpose: Purpose,
}

/// What a value is for.
#[derive(Debug)]
pub(crate) enum Purpose {
    /// To show who asks: in these sites, toward the fields at these pointers.
    Credential { sites: Vec<Site>, to: Vec<String> },
    /// For the lease's own environment.
    Payload,
}

impl Token {
    /// What redaction looks for.
    fn text(&self) -> &str {
        match &self.value {
            Value::Text(text) => text.expose(),
            Value::Registry { password, .. } => password.expose(),
        }
    }

    /// Whether it is a credential.
    pub(crate) fn is_credential(&self) -> bool {
        matches!(self.purpose, Purpose::Credential { .. })
    }
}

/// All tokens of a call as they stand now.
#[derive(Debug, Default)]
pub(crate) struct Tokens {
    all: Vec<Arc<Token>>,
    finders: Arc<Finders>,
    // Each is looked up or made when it is first asked for: most calls send nothing over HTTP.
    placeholders: OnceLock<Finder>,
    values: OnceLock<Arc<Finder>>,
    credentials: OnceLock<Arc<Finder>>,
}

impl Tokens {
    /// These; what looks for their values is shared with other calls.
    pub(crate) fn new(all: Vec<Arc<Token>>, finders: Arc<Finders>) -> Tokens {
        Tokens {
            all,
            finders,
            ..Tokens::default()
        }
    }

    /// These and more.
    pub(crate) fn with(&self, more: impl IntoIterator<Item = Arc<Token>>) -> Tokens {
        let all = self.all.iter().cloned().chain(more).collect();
        Tokens::new(all, self.finders.clone())
    }

    /// How many there are.
    pub(crate) fn count(&self) -> usize {
        self.all.len()
    }

    /// The token of exactly this placeholder.
    pub(crate) fn get(&self, placeholder: &str) -> Option<&Arc<Token>> {
        self.all.iter().find(|t| t.placeholder == placeholder)
    }

    /// The token that stands for this value, among those that `usable` accepts.
    pub(crate) fn of_value(
        &self,
        value: &str,
        usable: impl Fn(&Token) -> bool,
    ) -> Option<&Arc<Token>> {
        self.all.iter().find(|t| usable(t) && t.text() == value)
    }

    /// Removes values from what a component or a person sees.
    pub(crate) fn values(&self) -> &Arc<Finder> {
        self.values.get_or_init(|| {
            let values: Vec<&str> = self.all.iter().map(|t| t.text()).collect();
            self.finders.of(&values)
        })
    }

    /// Looks for the values of credentials in streams; none where there are no credentials.
    pub(crate) fn credentials(&self) -> Option<Arc<Finder>> {
        let mut credentials = self.all.iter().filter(|t| t.is_credential()).peekable();
        credentials.peek()?;
        let finder = self.credentials.get_or_init(|| {
            let values: Vec<&str> = credentials.map(|t| t.text()).collect();
            self.finders.of(&values)
        });
        Some(finder.clone())
    }

    /// Whether a placeholder stands in it, however it is written.
    pub(crate) fn stands_in(&self, text: &[u8]) -> bool {
        // Hardly any text has one: what looks for all of them is made for those that may.
        if self.all.is_empty() || !BEGINNING.hits(text) {
            return false;
        }
        self.placeholders
            .get_or_init(|| Finder::new(self.all.iter().map(|t| t.placeholder.as_str())))
            .hits(text)
    }

    /// Refuses placeholders where none may stand; `place` names it (`the URL`).
    pub(crate) fn refuse(&self, text: &[u8], place: &str) -> Result<(), Error> {
        if self.stands_in(text) {
            return Err(misplaced(place));
        }
        Ok(())
    }

    /// `text` cut at the placeholders that stand in it exactly.
    pub(crate) fn split<'a>(&self, text: &'a str) -> Vec<Part<'a>> {
        let mut parts = Vec::new();
        let (mut from, mut at) = (0, 0);
        while let Some(found) = text[at..].find(PREFIX) {
            let start = at + found;
            let end = start + LENGTH;
            match text.get(start..end).and_then(|p| self.get(p)) {
                Some(token) => {
                    parts.push(Part::Text(&text[from..start]));
                    parts.push(Part::Token(token.clone()));
                    from = end;
                    at = end;
                }
                None => at = start + PREFIX.len(),
            }
        }
        parts.push(Part::Text(&text[from..]));
        parts
    }
}

/// A piece of a text.
pub(crate) enum Part<'a> {
    Text(&'a str),
    Token(Arc<Token>),
}

/// The refusal of a placeholder in the wrong place.
pub(crate) fn misplaced(place: &str) -> Error {
    Error::new(
        Code::PermissionDenied,
        format!(
            "a placeholder stands in {place}; a credential's goes whole into the site that the manifest names, a payload's into string values of an `application/json` body"
        ),
    )
}

/// A credential's value as a header can carry it.
pub(crate) fn header_value(value: &Secret) -> Result<&str, Error> {
    let text = value.expose().as_str();
    if text.bytes().any(|b| b < 0x20 || b == 0x7f) {
        return Err(Error::new(
            Code::PermissionDenied,
            "the credential's value has a line end or another control character, which no header carries; store it again without",
        ));
    }
    Ok(text)
}

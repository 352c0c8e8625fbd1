//! What a request that makes something says itself: an id that only repeats it is no word of the backend's.
//!
//! A backend that lets names be chosen answers the name as an id. What a component chose so could be the id of somebody
//! else's thing, which it could then act on as its own. So an id that the request itself said counts only where it holds
//! a name that the host chose: the lease's acquisition, or the command's id. Pure; nothing is decided before the answer.

use std::collections::BTreeSet;

use leasehold_contract::{Content, Creation, HttpRequest};

use super::json::{self, Step, Token};
use super::path;

/// Texts and numbers that stand in a request, each whole.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Said {
    texts: BTreeSet<String>,
    /// Of members that are called like the id in the answer: other numbers are like any id sooner or later.
    numbers: BTreeSet<String>,
}

impl Said {
    /// What a request says; `path` is its path, decoded.
    pub(crate) fn of(request: &HttpRequest, path: &[String], creation: &Creation) -> Said {
        let mut said = Said::default();
        said.texts.extend(path.iter().cloned());
        let (_, query) = super::split(&request.url);
        for part in query.unwrap_or_default().split(['&', '=']) {
            said.text(&String::from_utf8_lossy(&path::unescape(part)));
        }
        for (name, value) in request.query.iter().chain(&request.headers) {
            said.text(name);
            said.text(value);
        }
        said.body(&request.body, creation);
        said.texts
            .retain(|text| super::answer::is_resource_id(text));
        said
    }

    fn text(&mut self, text: &str) {
        self.texts.insert(text.to_owned());
    }

    fn body(&mut self, body: &Content, creation: &Creation) {
        let text = String::from_utf8_lossy(body.as_bytes());
        let name = creation.id.rsplit('/').next().unwrap_or_default();
        let read = json::read(&text, |place, token| {
            match token {
                Token::Key(text) | Token::Text(text) => self.text(text),
                Token::Number(number) => {
                    if matches!(place.last(), Some(Step::Key(key)) if key == name) {
                        self.numbers.insert(number.to_owned());
                    }
                }
                Token::Word(_) => {}
            }
            Ok(None)
        });
        if read.is_err() {
            // A form, or anything else that a backend could read names from.
            let of_id = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
            text.split(|c| !of_id(c)).for_each(|part| self.text(part));
        }
    }

    /// Whether an id of an answer is only what the request said, without a name that the host chose.
    pub(crate) fn chose(&self, id: &str, number: bool, hosts: &[String]) -> bool {
        let said = match number {
            true => self.numbers.contains(id),
            false => self.texts.contains(id),
        };
        let of_the_host = |name: &String| !name.is_empty() && id.contains(name.as_str());
        said && !hosts.iter().any(of_the_host)
    }
}

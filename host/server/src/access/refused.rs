//! What the policy refused, and what the door did not let in, told to the activity.
//!
//! A refusal carries who asked for what with it to the gate, which notes it once it is an answer: a list that leaves out
//! what its caller may not see refuses nobody. Noting waits for nothing; the authority bounds what is written.

use axum::RequestExt;
use axum::extract::{RawPathParams, Request};
use axum::http::{HeaderMap, HeaderName, header};
use leasehold_authority::{Actor, Authority, Entry, Operation, Scope};
use serde_json::json;

use crate::api::errors::{ErrorCode, shown};

/// Somebody was refused something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    actor: Actor,
    operation: Operation,
    /// The row that was asked for: its kind and its id.
    subject: Option<(&'static str, String)>,
    /// Whose it is, where it was hidden.
    owner: Option<String>,
}

/// What a parameter of a path names.
fn kind(parameter: &str) -> &'static str {
    match parameter {
        "companyId" => "company",
        "environmentId" => "environment",
        "leaseId" => "lease",
        "executionId" => "execution",
        "secretId" | "version" => "secret",
        "tokenId" => "token",
        "key" => "plugin",
        _ => "row",
    }
}

impl Refused {
    /// Of an actor that may not ask for this at all.
    pub fn to_ask(actor: Actor, operation: Operation) -> Refused {
        Refused {
            actor,
            operation,
            subject: None,
            owner: None,
        }
    }

    /// Of a row.
    pub fn row(
        actor: &Actor,
        operation: Operation,
        scope: Scope<'_>,
        what: &'static str,
        id: &str,
    ) -> Refused {
        let owner = match scope {
            Scope::Company(company) | Scope::Run { company, .. } => Some(company.to_owned()),
            Scope::Unseen | Scope::Instance | Scope::Shared => None,
        };
        Refused {
            actor: actor.clone(),
            operation,
            subject: Some((what, shown(id))),
            owner,
        }
    }

    /// The same of the row that the request's path names, where none is known yet.
    pub async fn of(mut self, request: &mut Request) -> Refused {
        if self.subject.is_none()
            && let Ok(named) = request.extract_parts::<RawPathParams>().await
        {
            let last = named.iter().last();
            self.subject = last.map(|(name, id)| (kind(name), shown(id)));
        }
        self
    }

    /// Notes it.
    pub fn note(self, authority: &Authority, code: ErrorCode) {
        let (kind, id) = self
            .subject
            .unwrap_or(("operation", self.operation.name().to_owned()));
        // What somebody of one company tried with another's is for those who see all; what one's own people may not do,
        // for their company too.
        let hidden = code == ErrorCode::NotFound;
        let company = match self.actor.companies().as_deref() {
            Some(&[company]) if !hidden => Some(company.to_owned()),
            _ => None,
        };
        let mut details = json!({ "operation": self.operation.name(), "code": code.as_str() });
        if let Some(owner) = self.owner {
            details["owner"] = owner.into();
        }
        let entry = Entry::new("access.denied", company.as_deref(), kind, &id, details);
        authority.activity().deny(&self.actor, entry);
    }
}

/// A request that was not addressed to this server, or came from a page of another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Door {
    code: ErrorCode,
    /// What the request itself says: the name that it was sent to, or the origin of the page.
    said: String,
}

impl Door {
    /// Of a refusal of this code; none where it is another.
    pub fn refusing(code: ErrorCode, headers: &HeaderMap) -> Option<Door> {
        let said = |name: HeaderName| {
            let value = headers.get(name).and_then(|value| value.to_str().ok());
            shown(value.unwrap_or("unknown"))
        };
        let said = match code {
            ErrorCode::HostNotAllowed => said(header::HOST),
            ErrorCode::OriginNotAllowed => said(header::ORIGIN),
            _ => return None,
        };
        Some(Door { code, said })
    }

    /// Notes it.
    pub fn note(self, authority: &Authority, method: &'static str, route: &str) {
        let (by, kind) = match self.code {
            ErrorCode::HostNotAllowed => ("a foreign name", "host"),
            _ => ("a foreign page", "origin"),
        };
        let details = json!({ "code": self.code.as_str(), "method": method, "route": route });
        let entry = Entry::new("door.refused", None, kind, &self.said, details);
        authority.activity().deny_nobody_like(by, entry);
    }
}

//! What a provider answers, in the provider's own types, and short ways to say it.
//!
//! Every function here only builds a value; nothing reaches the host before the call returns.

use crate::bindings::base::exports::leasehold::provider::lifecycle::{
    self, Condition, Observation, Query, Severity,
};
use crate::bindings::base::leasehold::provider::streams::Process;
use crate::bindings::base::leasehold::provider::types::{Error, Label, Moment};

pub use crate::bindings::base::exports::leasehold::provider::lifecycle::Finding;

/// One step of a probe: what succeeded is told as information, what failed as a failure. `step` is stable and
/// `kebab-case` (`reach`, `authenticate`).
pub fn finding<M: Into<String>>(step: &str, outcome: Result<M, Error>) -> Finding {
    let (severity, message) = match outcome {
        Ok(message) => (Severity::Info, message.into()),
        Err(error) => (Severity::Failure, error.message),
    };
    Finding {
        step: step.to_owned(),
        severity,
        message,
        duration: None,
    }
}

/// A step that is good.
pub fn info(step: &str, message: impl Into<String>) -> Finding {
    finding(step, Ok(message))
}

/// A step that does not stop anything and that a person should know of.
pub fn warning(step: &str, message: impl Into<String>) -> Finding {
    Finding {
        severity: Severity::Warning,
        ..info(step, message)
    }
}

/// What `acquire` made.
#[derive(Clone, Debug)]
pub struct Acquired<H> {
    /// The backend's own id, 1 to 128 of `A-Za-z0-9._-`.
    pub resource: String,
    /// What the provider wants to be told again; at most 16 KiB of JSON, no secret.
    pub handle: H,
    /// Where commands start, inside the environment.
    pub workspace: String,
    /// How long the backend will keep it, in seconds, if it said.
    pub ttl: Option<u32>,
}

/// What was made: its id, its handle, and where commands start in it.
pub fn acquired<H>(
    resource: impl Into<String>,
    handle: H,
    workspace: impl Into<String>,
) -> Acquired<H> {
    Acquired {
        resource: resource.into(),
        handle,
        workspace: workspace.into(),
        ttl: None,
    }
}

impl<H> Acquired<H> {
    /// The backend will keep it for so many seconds.
    pub fn ttl(self, seconds: u32) -> Acquired<H> {
        Acquired {
            ttl: Some(seconds),
            ..self
        }
    }
}

/// An environment in this condition.
pub fn observation(condition: Condition) -> Observation {
    Observation {
        condition,
        image: None,
        message: None,
    }
}

/// An environment in this condition, with words for a person.
pub fn condition_message(condition: Condition, message: impl Into<String>) -> Observation {
    Observation {
        message: Some(message.into()),
        ..observation(condition)
    }
}

/// The environment does not exist: proven, not guessed.
pub fn gone() -> Observation {
    observation(Condition::Gone)
}

/// One environment of a list.
#[derive(Clone, Debug)]
pub struct Listed<H> {
    /// The backend's own id.
    pub resource: String,
    /// The handle, as `acquire` would have answered it.
    pub handle: H,
    /// The labels that stand on it.
    pub labels: Vec<Label>,
    /// What condition it is in.
    pub condition: Condition,
    /// When it was made, as the backend tells it.
    pub created: Option<Moment>,
}

/// An environment that the backend has.
pub fn listed<H>(resource: impl Into<String>, handle: H, condition: Condition) -> Listed<H> {
    Listed {
        resource: resource.into(),
        handle,
        labels: Vec::new(),
        condition,
        created: None,
    }
}

impl<H> Listed<H> {
    /// The labels that stand on it.
    pub fn labels<K: Into<String>, V: Into<String>>(
        self,
        labels: impl IntoIterator<Item = (K, V)>,
    ) -> Listed<H> {
        let labels = labels
            .into_iter()
            .map(|(key, value)| Label {
                key: key.into(),
                value: value.into(),
            })
            .collect();
        Listed { labels, ..self }
    }

    /// When it was made.
    pub fn created(self, moment: Moment) -> Listed<H> {
        Listed {
            created: Some(moment),
            ..self
        }
    }
}

/// A page of a list.
#[derive(Clone, Debug)]
pub struct Page<H> {
    /// The environments, in any order.
    pub items: Vec<Listed<H>>,
    /// Where the next page begins; none at the end.
    pub next: Option<String>,
}

impl<H> FromIterator<Listed<H>> for Page<H> {
    /// The only page.
    fn from_iter<I: IntoIterator<Item = Listed<H>>>(items: I) -> Page<H> {
        Page {
            items: items.into_iter().collect(),
            next: None,
        }
    }
}

impl<H> Page<H> {
    /// There is more, from this cursor on.
    pub fn next(self, cursor: Option<String>) -> Page<H> {
        Page {
            next: cursor,
            ..self
        }
    }
}

impl Query {
    /// Whether the host asked for a thing of this id that carries these labels: all of the query's, or its id
    /// was journalled.
    pub fn wants<K: AsRef<str>, V: AsRef<str>>(&self, resource: &str, labels: &[(K, V)]) -> bool {
        let carries = |wanted: &Label| {
            labels
                .iter()
                .any(|(k, v)| k.as_ref() == wanted.key && v.as_ref() == wanted.value)
        };
        self.journalled.iter().any(|j| j == resource) || self.labels.iter().all(carries)
    }
}

/// A command that was started.
#[derive(Debug)]
pub struct Started<R> {
    /// The host's own handle of its streams.
    pub process: Process,
    /// What finds the command again after the stream is lost.
    pub reference: R,
}

/// A command that was started: its streams, and what finds it again.
pub fn started<R>(process: Process, reference: R) -> Started<R> {
    Started { process, reference }
}

/// What became of a suspended environment.
#[derive(Clone, Debug)]
pub enum Resumed<H> {
    /// It is back, under this handle.
    Same(H),
    /// Proven gone; everything that is not a proof is an error.
    Lost,
}

impl<H: serde::Serialize> Acquired<H> {
    pub(crate) fn lower(self) -> Result<lifecycle::Acquired, Error> {
        Ok(lifecycle::Acquired {
            handle: crate::call::write_own("handle", &self.handle)?,
            resource: self.resource,
            workspace: self.workspace,
            ttl: self.ttl,
        })
    }
}

impl<H: serde::Serialize> Page<H> {
    pub(crate) fn lower(self) -> Result<lifecycle::Page, Error> {
        let lower = |item: Listed<H>| {
            Ok(lifecycle::Listed {
                handle: crate::call::write_own("handle", &item.handle)?,
                resource: item.resource,
                labels: item.labels,
                condition: item.condition,
                created: item.created,
            })
        };
        Ok(lifecycle::Page {
            items: self
                .items
                .into_iter()
                .map(lower)
                .collect::<Result<_, Error>>()?,
            next: self.next,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn query(labels: &[(&str, &str)], journalled: &[&str]) -> Query {
        Query {
            labels: labels
                .iter()
                .map(|(k, v)| Label {
                    key: (*k).into(),
                    value: (*v).into(),
                })
                .collect(),
            journalled: journalled.iter().map(|j| (*j).into()).collect(),
            cursor: None,
        }
    }

    #[test]
    fn a_query_wants_what_carries_every_label_or_was_journalled() {
        let q = query(&[("owner", "a"), ("run", "1")], &["box-7"]);
        assert!(q.wants("box-1", &[("run", "1"), ("owner", "a"), ("x", "y")]));
        assert!(!q.wants("box-1", &[("owner", "a")]));
        assert!(!q.wants("box-1", &[("owner", "b"), ("run", "1")]));
        assert!(q.wants::<&str, &str>("box-7", &[]));
    }

    #[test]
    fn a_failed_step_is_a_failure_with_the_errors_own_words() {
        let bad = finding("reach", Err::<String, _>(Error::unavailable("refused")));
        assert_eq!(bad.severity, Severity::Failure);
        assert_eq!(bad.message, "refused");
        assert_eq!(finding("reach", Ok("answers")).severity, Severity::Info);
    }
}

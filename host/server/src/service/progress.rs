//! What work that goes on says of itself, for people who wait for it.
//!
//! In memory only, the latest line alone, and only while the work goes on: with its end the line is gone. The text is
//! bounded, stripped and redacted before it comes here (`calls`). Nothing is decided by it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use leasehold_authority::{Actor, ActorKind};

use super::Service;

/// The latest line of work that goes on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Progress {
    /// One line for a person.
    pub text: String,
    /// When it was said, in milliseconds since the epoch.
    pub at: i64,
}

/// Work that a caller named, as it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Watched {
    /// The lease that it works on, once there is one.
    pub lease: Option<String>,
    /// What it said last, if it said anything.
    pub progress: Option<Progress>,
}

/// The work that goes on, by name: a lease's id, or what a caller calls it.
#[derive(Clone, Default)]
pub(crate) struct Board {
    works: Arc<Mutex<HashMap<String, Entry>>>,
}

#[derive(Default)]
struct Entry {
    going: usize,
    said: Option<Progress>,
    lease: Option<String>,
}

/// Work that goes on until this is dropped.
pub(crate) struct Work {
    board: Board,
    name: String,
}

impl Board {
    fn lock(&self) -> MutexGuard<'_, HashMap<String, Entry>> {
        self.works.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Work of this name begins. Where some goes on already, they share the line.
    pub(crate) fn begin(&self, name: impl Into<String>) -> Work {
        let name = name.into();
        self.lock().entry(name.clone()).or_default().going += 1;
        Work {
            board: self.clone(),
            name,
        }
    }

    /// Puts a line in the place of the one before. Of work that does not go on nothing is kept.
    pub(crate) fn tell(&self, name: &str, text: String) {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        let at = since.map_or(0, |since| {
            i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
        });
        if let Some(entry) = self.lock().get_mut(name) {
            entry.said = Some(Progress { text, at });
        }
    }

    fn said(&self, name: &str) -> Option<Progress> {
        self.lock().get(name)?.said.clone()
    }

    /// How work stands; what is said of its lease is said of it. None: it does not go on.
    fn watched(&self, name: &str) -> Option<Watched> {
        let works = self.lock();
        let entry = works.get(name)?;
        let of_lease = entry.lease.as_ref().and_then(|lease| works.get(lease));
        Some(Watched {
            lease: entry.lease.clone(),
            progress: of_lease.unwrap_or(entry).said.clone(),
        })
    }
}

impl Work {
    /// From here on it works on this lease.
    pub(crate) fn works_on(&self, lease: &str) {
        if let Some(entry) = self.board.lock().get_mut(&self.name) {
            entry.lease = Some(lease.to_owned());
        }
    }

    /// The name that it is told by.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        let mut works = self.board.lock();
        if let Some(entry) = works.get_mut(&self.name) {
            entry.going -= 1;
            if entry.going == 0 {
                works.remove(&self.name);
            }
        }
    }
}

/// What a caller calls work, apart from what any other caller does.
fn named_by(actor: &Actor, id: &str) -> String {
    match &actor.kind {
        ActorKind::Token { id: token, .. } => format!("{token}/{id}"),
        ActorKind::LocalOperator => format!("operator/{id}"),
        ActorKind::System => format!("system/{id}"),
    }
}

impl Service {
    /// What the work that goes on on a lease said last.
    pub fn lease_progress(&self, lease: &str) -> Option<Progress> {
        self.board().said(lease)
    }

    /// How work stands that this caller gave a name to; none where none of this name goes on.
    pub fn watched(&self, actor: &Actor, id: &str) -> Option<Watched> {
        self.board().watched(&named_by(actor, id))
    }

    /// Work that its caller may have given a name begins.
    pub(crate) fn watch(&self, actor: &Actor, id: Option<&str>) -> Option<Work> {
        id.map(|id| self.board().begin(named_by(actor, id)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_kept_while_its_work_goes_on_and_no_longer() {
        let board = Board::default();
        board.tell("lease_a", "too early".to_owned());
        assert_eq!(board.said("lease_a"), None);
        let (first, second) = (board.begin("lease_a"), board.begin("lease_a"));
        board.tell("lease_a", "one".to_owned());
        board.tell("lease_a", "two".to_owned());
        drop(first);
        assert_eq!(board.said("lease_a").map(|p| p.text), Some("two".into()));
        drop(second);
        assert_eq!(board.said("lease_a"), None);
        assert!(board.lock().is_empty());
    }

    #[test]
    fn work_that_has_a_name_shows_what_its_lease_says_and_only_to_who_named_it() {
        let board = Board::default();
        let named = board.begin(named_by(&Actor::local_operator(), "x"));
        board.tell(named.name(), "looking".to_owned());
        let seen = board.watched("operator/x").expect("it goes on");
        assert_eq!(seen.progress.map(|p| p.text), Some("looking".into()));
        named.works_on("lease_a");
        let _lease = board.begin("lease_a");
        board.tell("lease_a", "making".to_owned());
        let seen = board.watched("operator/x").expect("it goes on");
        assert_eq!(seen.lease.as_deref(), Some("lease_a"));
        assert_eq!(seen.progress.map(|p| p.text), Some("making".into()));
        assert_eq!(board.watched("tok_1/x"), None);
    }
}

//! What happened, in an order that cannot be rewritten.
//!
//! Every change of the authority adds its row in the same transaction; what was refused is added behind (`denials`). The
//! rows of one replica are a chain (`chain`): an edited, moved or removed row is found by [`Activity::verify`]; a removed
//! end by comparing with a [`Head`] that was kept elsewhere. `read` lists them in the order of commits, `export` gives
//! them away so that they can be checked again. Details hold names, ids and counts, never a secret's value.

mod chain;
mod denials;
mod export;
mod read;

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::sync::watch;

use crate::actor::Actor;
use crate::error::Result;
use crate::keys::Keys;
use crate::store::{Store, Tx};

pub(crate) use chain::{By, Link, append, sign_again, stored_head};
pub use chain::{Head, Verified};
pub(crate) use denials::Denials;
pub use export::{ExportCheck, ExportChecked, ExportedChain, ExportedRow};
pub use read::ActivityFilter;

/// How something ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ActivityOutcome {
    /// It was done.
    #[default]
    Done,
    /// It was refused, and nothing was done.
    Denied,
    /// It was tried, and failed.
    Failed,
    /// Nobody can tell.
    Unknown,
}

impl ActivityOutcome {
    /// Each of them.
    pub const ALL: [ActivityOutcome; 4] = [
        ActivityOutcome::Done,
        ActivityOutcome::Denied,
        ActivityOutcome::Failed,
        ActivityOutcome::Unknown,
    ];

    /// As it is stored and written.
    pub fn as_str(self) -> &'static str {
        match self {
            ActivityOutcome::Done => "done",
            ActivityOutcome::Denied => "denied",
            ActivityOutcome::Failed => "failed",
            ActivityOutcome::Unknown => "unknown",
        }
    }

    /// The outcome that is spelled so.
    pub fn named(text: &str) -> Option<ActivityOutcome> {
        Self::ALL.into_iter().find(|o| o.as_str() == text)
    }
}

/// Something that happened, to be recorded.
#[derive(Clone, Debug)]
pub struct Entry {
    /// `environment.created`, `lease.active`, …
    pub action: &'static str,
    /// The company that it belongs to; none for what belongs to the instance.
    pub company: Option<String>,
    /// The kind of thing, such as `environment`.
    pub subject_kind: &'static str,
    /// Its id.
    pub subject: String,
    /// How it ended.
    pub outcome: ActivityOutcome,
    /// A JSON object: names, ids, counts.
    pub details: Value,
}

impl Entry {
    /// What was done to which thing; `details` is a JSON object of names, ids and counts, never a secret.
    pub fn new(
        action: &'static str,
        company: Option<&str>,
        subject_kind: &'static str,
        subject: &str,
        details: Value,
    ) -> Entry {
        Entry {
            action,
            company: company.map(str::to_owned),
            subject_kind,
            subject: subject.to_owned(),
            outcome: ActivityOutcome::Done,
            details,
        }
    }

    /// The same with another end.
    pub fn ended(mut self, outcome: ActivityOutcome) -> Entry {
        self.outcome = outcome;
        self
    }
}

/// A recorded row.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ActivityRow {
    /// Grows in the order of commits: the cursor of a reader.
    pub position: i64,
    /// Whose chain.
    pub replica: String,
    /// Its place in the chain, from 1.
    pub sequence: i64,
    /// When, in milliseconds since the epoch.
    pub at: i64,
    /// The company; none for the instance.
    pub company_id: Option<String>,
    /// `local-operator`, `token`, `system`, or `nobody` where none was proven.
    pub actor_kind: String,
    /// The token's id.
    pub actor_id: Option<String>,
    /// For a person.
    pub actor: String,
    /// What happened.
    pub action: String,
    /// To what kind of thing.
    pub subject_kind: String,
    /// To which.
    pub subject: String,
    /// How it ended: see [`ActivityOutcome`].
    pub outcome: String,
    /// How often the same happened, of which this one row tells.
    pub times: i64,
    /// Names, ids, counts.
    pub details: Value,
}

/// The activity.
#[derive(Clone)]
pub struct Activity {
    pub(crate) store: Arc<Store>,
    pub(crate) keys: Arc<Keys>,
    pub(crate) replica: Arc<str>,
    pub(crate) denials: Arc<Denials>,
}

impl Tx {
    /// Adds a row to the activity of this transaction.
    pub async fn record(&mut self, actor: &Actor, entry: Entry) -> Result<()> {
        self.record_times(&chain::By::of(actor), entry, 1).await
    }

    /// Adds one row for what was the same several times.
    async fn record_times(&mut self, by: &chain::By, entry: Entry, times: i64) -> Result<()> {
        let (at, keys, replica) = (
            self.now(),
            Arc::clone(&self.keys),
            Arc::clone(&self.replica),
        );
        let link = chain::Link { at, by, times };
        self.head = append(&mut self.db, &keys, &replica, &self.head, &link, entry).await?;
        Ok(())
    }
}

impl Activity {
    /// Records something that the server did by itself, such as a probe.
    pub async fn record(&self, actor: &Actor, entry: Entry) -> Result<()> {
        let actor = actor.clone();
        self.store
            .write(move |tx| Box::pin(async move { tx.record(&actor, entry).await }))
            .await
    }

    /// Notes that `actor` was refused, to be recorded soon: within a second, and before whoever lists the activity sees
    /// it. The same refusal again within a minute is counted, not written. Never waits, and never fails: see `denials`
    /// for what is written of how many.
    pub fn deny(&self, actor: &Actor, entry: Entry) {
        self.denials.note(&self.store, chain::By::of(actor), entry);
    }

    /// Notes that somebody was refused whom nothing proves: there was no token, or none that is known.
    pub fn deny_nobody(&self, entry: Entry) {
        self.denials.note(&self.store, chain::By::nobody(), entry);
    }

    /// The same of one kind of nobody, in words of this program's own: each has places of its own, so that none pushes the
    /// others out.
    pub fn deny_nobody_like(&self, kind: &'static str, entry: Entry) {
        let by = chain::By::nobody_like(kind);
        self.denials.note(&self.store, by, entry);
    }

    /// Tells when rows were added by this process.
    pub fn changes(&self) -> watch::Receiver<i64> {
        self.store.recorded()
    }
}

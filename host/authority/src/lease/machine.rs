//! The life of a lease as a pure function: no clock, no database, no I/O. Times are data of the events.
//!
//! ```text
//! acquiring ──> active ──> releasing ──> released
//!     │  │                     │  ▲
//!     │  └──> pending_cleanup <┘  └── retained
//!     │              └──> released | failed | abandoned
//!     └──> failed
//! ```
//!
//! Keeps: P2, a lease becomes active once, with the one resource that was adopted or created; P4, whatever
//! ends use or hands the work to somebody else raises the epoch; P5, a release that is not confirmed waits in
//! `pending_cleanup` and leaves it only confirmed, proven absent, or abandoned by a person.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Where a lease stands. Expiry is a reason, not a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// The intent is durable; something may exist.
    Acquiring,
    /// In use.
    Active,
    /// Being torn down.
    Releasing,
    /// Kept without a user.
    Retained,
    /// Not proven gone; asked again until it is.
    PendingCleanup,
    /// Proven gone.
    Released,
    /// Never came to be.
    Failed,
    /// A person took the responsibility.
    Abandoned,
}

impl Status {
    /// All of them.
    pub const ALL: [Status; 8] = [
        Status::Acquiring,
        Status::Active,
        Status::Releasing,
        Status::Retained,
        Status::PendingCleanup,
        Status::Released,
        Status::Failed,
        Status::Abandoned,
    ];

    /// As it is stored and written.
    pub fn as_str(self) -> &'static str {
        match self {
            Status::Acquiring => "acquiring",
            Status::Active => "active",
            Status::Releasing => "releasing",
            Status::Retained => "retained",
            Status::PendingCleanup => "pending_cleanup",
            Status::Released => "released",
            Status::Failed => "failed",
            Status::Abandoned => "abandoned",
        }
    }

    /// The status of this name; none for any other word.
    pub fn parse(text: &str) -> Option<Status> {
        Status::ALL.into_iter().find(|s| s.as_str() == text)
    }

    /// Whether nothing follows.
    pub fn is_terminal(self) -> bool {
        matches!(self, Status::Released | Status::Failed | Status::Abandoned)
    }
}

/// What the machine knows of a lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    /// Where it stands.
    pub status: Status,
    /// Fencing token, from 1.
    pub epoch: u32,
    /// Whether egress recorded a request that may have created something.
    pub unsafe_sent: bool,
    /// The backend's id of what was adopted or created.
    pub resource: Option<String>,
    /// When a list first showed nothing of the acquisition.
    pub absent_since: Option<i64>,
    /// How often a release, or a reconciliation, was tried in vain.
    pub attempts: u32,
    /// Why it is being, or was, ended.
    pub reason: Option<String>,
    /// What went wrong last.
    pub failure: Option<String>,
}

impl State {
    /// A lease whose intent has just become durable.
    pub fn begun() -> State {
        State {
            status: Status::Acquiring,
            epoch: 1,
            unsafe_sent: false,
            resource: None,
            absent_since: None,
            attempts: 0,
            reason: None,
            failure: None,
        }
    }
}

/// A number from 0 to 1000 that spreads retries; the caller draws it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Jitter(pub u16);

/// How far the host has proven that the resource is this lease's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Proof {
    /// The host's own check found this lease's owner label at it.
    Owned,
    /// The provider says so: usable, never qualified.
    Claimed,
}

/// What a lease becomes active with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Activation {
    /// The backend's own id.
    pub resource: String,
    /// The provider's handle: JSON, at most 16 KiB.
    pub handle: String,
    /// Where commands start.
    pub workspace: String,
    /// How long the backend said that it will keep it.
    pub attested_ttl: Option<Duration>,
    /// How far it is proven.
    pub proof: Proof,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// Egress is about to send a request that may create something.
    UnsafeSent,
    /// The provider answered and the owned check held, or the provider has none.
    Activated(Activation),
    /// A list of everything that carries this acquisition's labels, each confirmed by the owned check.
    Candidates {
        /// Their ids.
        owned: Vec<String>,
        /// The ids that this lease's journal has; where a step is stored, read from it again.
        journalled: Vec<String>,
        /// When the list was asked, in milliseconds.
        at: i64,
        /// How far apart two empty lists must be to prove absence, in milliseconds: the deadline of the request that
        /// creates, or the lag of the backend's lists, whichever is more.
        apart: i64,
    },
    /// The acquire is given up.
    AcquireFailed {
        /// What went wrong, for a person.
        reason: String,
    },
    /// What an acquire left behind could not be asked for.
    ReconcileFailed {
        /// What went wrong, for a person.
        reason: String,
        /// Spreads the next try.
        jitter: Jitter,
    },
    /// Somebody, expiry or a proven loss ends it.
    Release {
        /// `requested`, `expired`, `lost`, …
        reason: String,
    },
    /// The host itself found nothing left.
    ReleaseConfirmed,
    /// The release failed, or could not be confirmed.
    ReleaseUnconfirmed {
        /// What went wrong, for a person.
        reason: String,
        /// Spreads the next try.
        jitter: Jitter,
    },
    /// A person gives up on the cleanup.
    Abandon {
        /// In their words.
        reason: String,
    },
    /// Somebody else works on it from here.
    Takeover,
}

impl Event {
    /// Its name, for messages.
    pub fn name(&self) -> &'static str {
        match self {
            Event::UnsafeSent => "unsafe-sent",
            Event::Activated(_) => "activated",
            Event::Candidates { .. } => "candidates",
            Event::AcquireFailed { .. } => "acquire-failed",
            Event::ReconcileFailed { .. } => "reconcile-failed",
            Event::Release { .. } => "release",
            Event::ReleaseConfirmed => "release-confirmed",
            Event::ReleaseUnconfirmed { .. } => "release-unconfirmed",
            Event::Abandon { .. } => "abandon",
            Event::Takeover => "takeover",
        }
    }
}

/// What has to follow. Those marked *stored* are done in the transaction of the step; the others are the
/// caller's.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Effect {
    /// *Stored.* The epoch rose; calls and requests of the old one are refused from here.
    RaiseEpoch,
    /// Close everything that is tagged with an older epoch.
    CloseStreams,
    /// *Stored.* Time to live begins.
    StartClock,
    /// Somebody has to release it.
    QueueRelease,
    /// *Stored.* The next try, and when.
    Retry {
        /// How many were in vain.
        attempt: u32,
        /// From now, in milliseconds.
        after: u64,
    },
    /// *Stored.* Ask for a list again, this much later, before concluding anything.
    AskAgain {
        /// From now, in milliseconds.
        after: i64,
    },
    /// This one is the lease's: verify it, inspect it, activate with it.
    Adopt {
        /// The backend's own id.
        resource: String,
    },
    /// These must go; they are recorded.
    Destroy {
        /// The backend's own ids.
        resources: Vec<String>,
    },
    /// *Stored.* Its executions without an outcome become unknown.
    SettleExecutions,
    /// *Stored.* The exclusive target, the resource claims and the pinned secrets are given back.
    FreeTarget,
}

/// The event cannot happen to a lease in this state; nothing changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{event} is not possible while the lease is {}{}", status.as_str(), why.map(|w| format!(": {w}")).unwrap_or_default())]
pub struct Refused {
    /// Where it stands.
    pub status: Status,
    /// The event's name.
    pub event: &'static str,
    /// More, if there is more to say.
    pub why: Option<&'static str>,
}

/// How long after the `attempt`th try in vain the next one comes: 1 s doubling to 5 min, of which the upper
/// half is spread by `jitter`.
pub fn backoff(attempt: u32, jitter: Jitter) -> Duration {
    const FIRST: u64 = 1_000;
    const CAP: u64 = 300_000;
    let whole = FIRST
        .saturating_mul(1u64 << attempt.saturating_sub(1).min(20))
        .min(CAP);
    let half = whole / 2;
    Duration::from_millis(half + half * u64::from(jitter.0.min(1000)) / 1000)
}

/// The step.
pub fn step(state: &State, event: &Event) -> Result<(State, Vec<Effect>), Refused> {
    let mut step = Step {
        next: state.clone(),
        effects: Vec::new(),
        event,
    };
    step.run()?;
    Ok((step.next, step.effects))
}

struct Step<'e> {
    next: State,
    effects: Vec<Effect>,
    event: &'e Event,
}

impl Step<'_> {
    fn run(&mut self) -> Result<(), Refused> {
        use Status::{
            Abandoned, Acquiring, Active, Failed, PendingCleanup, Released, Releasing, Retained,
        };
        match (self.next.status, self.event) {
            // Asking again for what is done already changes nothing.
            (Releasing | Released | Failed | Abandoned, Event::Release { .. }) => Ok(()),
            (Released | Failed | Abandoned, _) => Err(self.refused(None)),

            (Acquiring, Event::UnsafeSent) => {
                self.next.unsafe_sent = true;
                Ok(())
            }
            (_, Event::UnsafeSent) => Ok(()),

            (Acquiring, Event::Activated(with)) => self.activate(&with.resource),
            (_, Event::Activated(_)) => Err(self.refused(None)),

            (
                _,
                Event::Candidates {
                    owned,
                    journalled,
                    at,
                    apart,
                },
            ) => self.candidates(owned, journalled, *at, *apart),

            (Acquiring, Event::AcquireFailed { reason }) => {
                self.next.failure = Some(reason.clone());
                if self.next.unsafe_sent {
                    self.end_use()?;
                    self.pend();
                    Ok(())
                } else {
                    self.end(Failed)
                }
            }
            (_, Event::AcquireFailed { .. }) => Err(self.refused(None)),

            (Acquiring, Event::ReconcileFailed { reason, jitter }) => {
                self.next.failure = Some(reason.clone());
                self.retry(*jitter);
                Ok(())
            }
            (_, Event::ReconcileFailed { .. }) => Err(self.refused(None)),

            (Acquiring, Event::Release { reason }) if !self.next.unsafe_sent => {
                self.next.reason = Some(reason.clone());
                self.end(Failed)
            }
            (Acquiring | Active | Retained, Event::Release { reason }) => {
                self.next.reason = Some(reason.clone());
                self.end_use()?;
                self.next.status = Releasing;
                self.next.attempts = 0;
                self.effects.push(Effect::QueueRelease);
                Ok(())
            }
            (PendingCleanup, Event::Release { .. }) => {
                // Whoever asks takes it over from a try that is under way.
                self.end_use()?;
                self.effects.push(Effect::Retry {
                    attempt: self.next.attempts,
                    after: 0,
                });
                self.effects.push(Effect::QueueRelease);
                Ok(())
            }

            (Releasing | PendingCleanup, Event::ReleaseConfirmed) => {
                // What a try in vain said is over; why an acquire failed stays said.
                if self.next.attempts > 0 {
                    self.next.failure = None;
                }
                self.end(Released)
            }
            (_, Event::ReleaseConfirmed) => Err(self.refused(None)),

            (Releasing | PendingCleanup, Event::ReleaseUnconfirmed { reason, jitter }) => {
                self.next.failure = Some(reason.clone());
                self.next.status = PendingCleanup;
                self.retry(*jitter);
                Ok(())
            }
            (_, Event::ReleaseUnconfirmed { .. }) => Err(self.refused(None)),

            (Releasing | PendingCleanup, Event::Abandon { reason }) => {
                if reason.trim().is_empty() {
                    return Err(self.refused(Some("give a reason")));
                }
                self.next.reason = Some(reason.clone());
                self.end(Abandoned)
            }
            (_, Event::Abandon { .. }) => Err(self.refused(Some("release it first"))),

            (_, Event::Takeover) => self.end_use(),
        }
    }

    fn refused(&self, why: Option<&'static str>) -> Refused {
        Refused {
            status: self.next.status,
            event: self.event.name(),
            why,
        }
    }

    fn activate(&mut self, resource: &str) -> Result<(), Refused> {
        // What was adopted is what becomes active: another one would be a second environment.
        if self.next.resource.as_deref().is_some_and(|r| r != resource) {
            return Err(self.refused(Some("another resource was adopted")));
        }
        self.next.status = Status::Active;
        self.next.resource = Some(resource.to_owned());
        self.next.absent_since = None;
        self.next.attempts = 0;
        self.next.failure = None;
        self.effects.push(Effect::StartClock);
        Ok(())
    }

    /// Use, and whatever works on it, ends here.
    fn end_use(&mut self) -> Result<(), Refused> {
        self.next.epoch = self
            .next
            .epoch
            .checked_add(1)
            .ok_or_else(|| self.refused(Some("its epochs are used up")))?;
        self.effects.push(Effect::RaiseEpoch);
        self.effects.push(Effect::CloseStreams);
        Ok(())
    }

    fn end(&mut self, status: Status) -> Result<(), Refused> {
        self.end_use()?;
        self.next.status = status;
        self.effects.push(Effect::SettleExecutions);
        self.effects.push(Effect::FreeTarget);
        Ok(())
    }

    /// Waits for cleanup, which is due at once.
    fn pend(&mut self) {
        self.next.status = Status::PendingCleanup;
        self.next.attempts = 0;
        self.effects.push(Effect::Retry {
            attempt: 0,
            after: 0,
        });
    }

    fn retry(&mut self, jitter: Jitter) {
        self.next.attempts = self.next.attempts.saturating_add(1);
        let after = backoff(self.next.attempts, jitter).as_millis();
        self.effects.push(Effect::Retry {
            attempt: self.next.attempts,
            after: u64::try_from(after).unwrap_or(u64::MAX),
        });
    }

    fn candidates(
        &mut self,
        owned: &[String],
        journalled: &[String],
        at: i64,
        apart: i64,
    ) -> Result<(), Refused> {
        let destroy = |effects: &mut Vec<Effect>, resources: Vec<String>| {
            if !resources.is_empty() {
                effects.push(Effect::Destroy { resources });
            }
        };
        match self.next.status {
            Status::Acquiring if owned.is_empty() => self.absent(at, apart),
            Status::Acquiring => {
                self.next.absent_since = None;
                match self.chosen(owned, journalled) {
                    Some(kept) => {
                        let rest = owned.iter().filter(|o| **o != kept).cloned().collect();
                        destroy(&mut self.effects, rest);
                        self.next.resource = Some(kept.clone());
                        self.effects.push(Effect::Adopt { resource: kept });
                    }
                    None => {
                        self.next.failure = Some(format!(
                            "{} environments of one acquisition were found and none is the journalled one",
                            owned.len()
                        ));
                        self.end_use()?;
                        self.pend();
                        destroy(&mut self.effects, owned.to_vec());
                    }
                }
                Ok(())
            }
            Status::Active | Status::Retained => {
                let own = self.next.resource.as_deref();
                let others = owned.iter().filter(|o| Some(o.as_str()) != own);
                destroy(&mut self.effects, others.cloned().collect());
                Ok(())
            }
            Status::Releasing | Status::PendingCleanup if owned.is_empty() => {
                // What had a resource is proven gone by the check of that resource, not by a list.
                if self.next.resource.is_none() {
                    self.absent(at, apart)
                } else {
                    Ok(())
                }
            }
            Status::Releasing | Status::PendingCleanup => {
                self.next.absent_since = None;
                destroy(&mut self.effects, owned.to_vec());
                Ok(())
            }
            Status::Released | Status::Failed | Status::Abandoned => Err(self.refused(None)),
        }
    }

    /// The one to adopt: the only one, the one adopted before, or the only one that the journal names.
    fn chosen(&self, owned: &[String], journalled: &[String]) -> Option<String> {
        if let Some(before) = &self.next.resource
            && owned.contains(before)
        {
            return Some(before.clone());
        }
        let mut candidates = owned
            .iter()
            .filter(|o| owned.len() == 1 || journalled.contains(o));
        match (candidates.next(), candidates.next()) {
            (Some(one), None) => Some(one.clone()),
            _ => None,
        }
    }

    /// A list had nothing. Twice, far enough apart, proves that there is nothing; once is enough where
    /// nothing was ever sent.
    fn absent(&mut self, at: i64, apart: i64) -> Result<(), Refused> {
        if !self.next.unsafe_sent && self.next.status == Status::Acquiring {
            return self.end(Status::Failed);
        }
        match self.next.absent_since {
            Some(since) if at.saturating_sub(since) >= apart => self.end(Status::Failed),
            Some(since) => {
                self.effects.push(Effect::AskAgain {
                    after: apart.saturating_sub(at.saturating_sub(since)),
                });
                Ok(())
            }
            None => {
                self.next.absent_since = Some(at);
                self.effects.push(Effect::AskAgain { after: apart });
                Ok(())
            }
        }
    }
}

#[cfg(test)]
#[path = "machine_tests.rs"]
mod tests;

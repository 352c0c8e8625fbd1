//! What was refused, recorded behind: whoever is refused waits for no commit, and can neither fill the disk nor push
//! others out.
//!
//! A refusal is written within [`DELAY`]; the same one again (same actor, action, row and details) within [`AGAIN`] is
//! counted, and told of by one row after that. A row costs its actor a place: [`OF_ACTOR`] at once and one in a minute
//! after that, and [`OF_ALL`] at once and one in ten seconds for all actors together. What finds no place is counted for
//! its actor, and told of by one row in an hour. So a day has fewer than 11,000 rows, whatever is tried. An end in order
//! writes everything; a process that is killed loses what was counted and not yet written.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde_json::json;

use super::chain::By;
use super::{ActivityOutcome, Entry};
use crate::error::{Error, Result};
use crate::store::Store;

/// How long a refusal waits for others to be written with.
const DELAY: Duration = Duration::from_secs(1);
/// How long the same refusal is only counted after it was written.
const AGAIN: Duration = Duration::from_secs(60);
/// How long what found no place is only counted.
const COUNTED: Duration = Duration::from_secs(60 * 60);
/// Places of one actor at once, and how long a used one takes to come back.
const OF_ACTOR: (u32, Duration) = (20, Duration::from_secs(60));
/// Places of all actors together.
const OF_ALL: (u32, Duration) = (200, Duration::from_secs(10));
/// Actors that are told apart; the rest are the others.
const ACTORS: usize = 64;
/// Bytes of a subject's id, and of details, that a row may have.
const SUBJECT: usize = 200;
const DETAILS: usize = 1024;

/// Refusals that are the same.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Same {
    by: By,
    action: &'static str,
    company: Option<String>,
    subject_kind: &'static str,
    subject: String,
    /// JSON text.
    details: String,
}

impl Same {
    fn entry(&self, times: u64, since: i64) -> Entry {
        let mut details: serde_json::Value =
            serde_json::from_str(&self.details).unwrap_or_else(|_| json!({}));
        if times > 1 {
            details["since"] = json!(since);
        }
        Entry::new(
            self.action,
            self.company.as_deref(),
            self.subject_kind,
            &self.subject,
            details,
        )
        .ended(ActivityOutcome::Denied)
    }
}

/// How often since when, and not yet written.
struct Count {
    times: u64,
    since: Instant,
    written: Option<Instant>,
}

/// Places that come back with time.
struct Places {
    left: u32,
    most: u32,
    each: Duration,
    at: Instant,
}

impl Places {
    fn new((most, each): (u32, Duration), now: Instant) -> Places {
        Places {
            left: most,
            most,
            each,
            at: now,
        }
    }

    fn fill(&mut self, now: Instant) {
        let back = now.saturating_duration_since(self.at).as_millis() / self.each.as_millis();
        let back = u32::try_from(back).unwrap_or(u32::MAX);
        if back >= self.most - self.left {
            (self.left, self.at) = (self.most, now);
        } else {
            self.left += back;
            self.at += self.each * back;
        }
    }

    fn is_full(&self) -> bool {
        self.left == self.most
    }
}

struct State {
    seen: HashMap<Same, Count>,
    places: HashMap<By, Places>,
    all: Places,
    beyond: HashMap<By, Count>,
    /// Whether a task is there that will write.
    scheduled: bool,
}

/// A row that is due.
enum Due {
    Same(Same, u64, Instant),
    Beyond(By, u64, Instant),
}

impl State {
    fn new(now: Instant) -> State {
        State {
            seen: HashMap::new(),
            places: HashMap::new(),
            all: Places::new(OF_ALL, now),
            beyond: HashMap::new(),
            scheduled: false,
        }
    }

    /// The actor as it is told apart from others.
    fn known(&mut self, by: By, now: Instant) -> By {
        if self.places.contains_key(&by) {
            return by;
        }
        if self.places.len() >= ACTORS {
            self.places.retain(|_, places| {
                places.fill(now);
                !places.is_full()
            });
        }
        let by = if self.places.len() >= ACTORS {
            By::others()
        } else {
            by
        };
        self.places
            .entry(by.clone())
            .or_insert_with(|| Places::new(OF_ACTOR, now));
        by
    }

    /// Takes a place for a row of this actor, if there is one.
    fn place(&mut self, by: &By, now: Instant) -> bool {
        self.all.fill(now);
        let Some(own) = self.places.get_mut(by) else {
            return false;
        };
        own.fill(now);
        if own.left == 0 || self.all.left == 0 {
            return false;
        }
        own.left -= 1;
        self.all.left -= 1;
        true
    }

    fn count_beyond(&mut self, by: By, times: u64, now: Instant) {
        let by = if self.beyond.len() >= ACTORS && !self.beyond.contains_key(&by) {
            By::others()
        } else {
            by
        };
        let count = self.beyond.entry(by).or_insert(Count {
            times: 0,
            since: now,
            written: None,
        });
        count.times += times;
    }

    fn note(&mut self, mut same: Same, now: Instant) {
        same.by = self.known(same.by, now);
        if let Some(count) = self.seen.get_mut(&same) {
            if count.times == 0 {
                count.since = now;
            }
            count.times += 1;
            return;
        }
        if self.place(&same.by, now) {
            let count = self.seen.entry(same).or_insert(Count {
                times: 0,
                since: now,
                written: None,
            });
            count.times += 1;
        } else {
            self.count_beyond(same.by, 1, now);
        }
    }

    /// Takes what is due; everything, where `all`.
    fn due(&mut self, now: Instant, all: bool) -> Vec<Due> {
        let old = |at: Instant, than: Duration| now.saturating_duration_since(at) >= than;
        let mut due = Vec::new();
        let ready: Vec<Same> = self
            .seen
            .iter()
            .filter(|(_, count)| count.times > 0)
            .filter(|(_, count)| all || count.written.is_none_or(|at| old(at, AGAIN)))
            .map(|(same, _)| same.clone())
            .collect();
        for same in ready {
            let Some(count) = self.seen.get_mut(&same) else {
                continue;
            };
            let (times, since) = (std::mem::take(&mut count.times), count.since);
            let again = count.written.replace(now).is_some();
            // The first row's place was taken when it was noted.
            if again && !all && !self.place(&same.by, now) {
                self.count_beyond(same.by.clone(), times, since);
            } else {
                due.push(Due::Same(same, times, since));
            }
        }
        self.seen
            .retain(|_, count| count.times > 0 || count.written.is_none_or(|at| !old(at, AGAIN)));
        let (told, rest): (HashMap<By, Count>, _) = std::mem::take(&mut self.beyond)
            .into_iter()
            .partition(|(_, count)| all || old(count.since, COUNTED));
        self.beyond = rest;
        due.extend(
            told.into_iter()
                .map(|(by, count)| Due::Beyond(by, count.times, count.since)),
        );
        due
    }

    /// Takes back what could not be written.
    fn put_back(&mut self, due: &[Due]) {
        for due in due {
            match due {
                Due::Same(same, times, since) => {
                    let count = self.seen.entry(same.clone()).or_insert(Count {
                        times: 0,
                        since: *since,
                        written: None,
                    });
                    count.times += times;
                    (count.since, count.written) = (*since, None);
                }
                Due::Beyond(by, times, since) => self.count_beyond(by.clone(), *times, *since),
            }
        }
    }

    fn is_idle(&self) -> bool {
        self.beyond.is_empty() && self.seen.values().all(|count| count.times == 0)
    }
}

/// The refusals that are not written yet.
pub(crate) struct Denials {
    state: Mutex<State>,
    /// One at a time writes, so that whoever reads waits for what another took out.
    writing: tokio::sync::Mutex<()>,
}

impl Default for Denials {
    fn default() -> Denials {
        Denials {
            state: Mutex::new(State::new(Instant::now())),
            writing: tokio::sync::Mutex::default(),
        }
    }
}

fn bounded(mut text: String, most: usize) -> String {
    if text.len() > most {
        let mut end = most;
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        text.truncate(end);
    }
    text
}

impl Denials {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes a refusal, to be written soon.
    pub(super) fn note(self: &Arc<Self>, store: &Arc<Store>, by: By, entry: Entry) {
        let details = entry.details.to_string();
        let same = Same {
            by,
            action: entry.action,
            company: entry.company,
            subject_kind: entry.subject_kind,
            subject: bounded(entry.subject, SUBJECT),
            details: if details.len() > DETAILS {
                "{}".to_owned()
            } else {
                details
            },
        };
        {
            let mut state = self.lock();
            state.note(same, Instant::now());
            if std::mem::replace(&mut state.scheduled, true) {
                return;
            }
        }
        let (denials, store) = (Arc::clone(self), Arc::downgrade(store));
        tokio::spawn(async move {
            loop {
                tokio::time::sleep(DELAY).await;
                let Some(store) = store.upgrade() else { return };
                match denials.flush(&store, false).await {
                    Ok(()) => {}
                    Err(Error::Closed) => return,
                    Err(error) => tracing::warn!(%error, "refusals wait to be recorded"),
                }
                let mut state = denials.lock();
                if state.is_idle() {
                    state.scheduled = false;
                    return;
                }
            }
        });
    }

    /// Writes what is due before somebody reads; who reads is not refused because it could not be written.
    pub(super) async fn before_reading(&self, store: &Store) {
        match self.flush(store, false).await {
            Ok(()) | Err(Error::Closed) => {}
            Err(error) => tracing::warn!(%error, "refusals wait to be recorded"),
        }
    }

    /// Writes what is due; everything, where `all`. What cannot be written goes on waiting.
    pub(crate) async fn flush(&self, store: &Store, all: bool) -> Result<()> {
        if self.lock().is_idle() && !all {
            // Another may be writing what it took out.
            drop(self.writing.lock().await);
            return Ok(());
        }
        let _turn = self.writing.lock().await;
        let now = Instant::now();
        let due = Arc::new(self.lock().due(now, all));
        if due.is_empty() {
            return Ok(());
        }
        let batch = Arc::clone(&due);
        let written = store
            .write(move |tx| {
                Box::pin(async move {
                    let ago = |since: Instant| {
                        let age = now.saturating_duration_since(since).as_millis();
                        i64::try_from(age).unwrap_or(i64::MAX)
                    };
                    for due in &*batch {
                        let (by, times, entry) = match due {
                            Due::Same(same, times, since) => {
                                let since = tx.now().saturating_sub(ago(*since));
                                (&same.by, *times, same.entry(*times, since))
                            }
                            Due::Beyond(by, times, since) => {
                                let since = tx.now().saturating_sub(ago(*since));
                                let details = json!({ "since": since });
                                let entry = Entry::new(
                                    "denials.counted",
                                    None,
                                    "actor",
                                    by.name(),
                                    details,
                                );
                                (by, *times, entry.ended(ActivityOutcome::Denied))
                            }
                        };
                        let times = i64::try_from(times).unwrap_or(i64::MAX);
                        tx.record_times(by, entry, times).await?;
                    }
                    Ok(())
                })
            })
            .await;
        if written.is_err() {
            self.lock().put_back(&due);
        }
        written
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::actor::Actor;

    fn refusal(actor: &str, subject: &str) -> Same {
        Same {
            by: By::of(&Actor::system(actor)),
            action: "access.denied",
            company: None,
            subject_kind: "lease",
            subject: subject.into(),
            details: "{}".into(),
        }
    }

    fn told(due: &[Due]) -> (usize, u64) {
        let times = due.iter().map(|due| match due {
            Due::Same(_, times, _) | Due::Beyond(_, times, _) => *times,
        });
        (due.len(), times.sum())
    }

    #[test]
    fn the_same_refusal_is_one_row_a_minute_that_says_how_often() {
        let begun = Instant::now();
        let mut state = State::new(begun);
        state.note(refusal("a", "x"), begun);
        assert_eq!(told(&state.due(begun, false)), (1, 1));
        for _ in 0..1000 {
            state.note(refusal("a", "x"), begun);
        }
        assert_eq!(told(&state.due(begun + DELAY, false)), (0, 0));
        assert_eq!(told(&state.due(begun + AGAIN, false)), (1, 1000));
        assert!(state.is_idle());
        state.due(begun + AGAIN * 2, false);
        assert!(state.seen.is_empty(), "and is forgotten after a quiet one");
    }

    #[test]
    fn no_actor_gets_more_than_its_places_and_none_pushes_another_out() {
        let begun = Instant::now();
        let mut state = State::new(begun);
        for n in 0..10_000 {
            state.note(refusal("loud", &n.to_string()), begun);
        }
        state.note(refusal("quiet", "y"), begun);
        let (rows, times) = told(&state.due(begun, false));
        assert_eq!((rows, times), (21, 21), "twenty, and the other's one");
        assert_eq!(told(&state.due(begun + COUNTED, false)), (1, 9_980));
    }

    #[test]
    fn a_day_of_every_refusal_there_is_has_fewer_than_eleven_thousand_rows() {
        let begun = Instant::now();
        let mut state = State::new(begun);
        let (mut rows, mut times, mut noted) = (0, 0, 0);
        for minute in 0..24 * 60 {
            let now = begun + Duration::from_secs(60 * minute);
            for n in 0..600 {
                let actor = format!("{}", n % 300);
                state.note(refusal(&actor, &format!("{minute}-{n}")), now);
                noted += 1;
            }
            let due = told(&state.due(now, false));
            (rows, times) = (rows + due.0, times + due.1);
        }
        let counted = state.beyond.len();
        assert!(counted <= ACTORS + 1, "{counted}");
        assert!(rows < 11_000, "{rows}");
        assert!(rows > 5_000, "{rows}: places come back");
        let last = told(&state.due(begun + Duration::from_secs(86_400), true));
        assert_eq!(times + last.1, noted, "and each is in a count");
    }

    #[test]
    fn what_could_not_be_written_is_written_with_what_came_after() {
        let begun = Instant::now();
        let mut state = State::new(begun);
        state.note(refusal("a", "x"), begun);
        let due = state.due(begun, false);
        state.note(refusal("a", "x"), begun);
        state.put_back(&due);
        assert_eq!(told(&state.due(begun, false)), (1, 2));
    }
}

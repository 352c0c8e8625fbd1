//! Places of those who follow or take away the activity: so many at once, and so many of one actor.
//!
//! Each may be slow and holds a page of rows in memory; an actor that fills its own places leaves the others' free.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use leasehold_authority::{Actor, ActorKind};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Places altogether.
const ALL: usize = 64;
/// Places of one token.
const OF_ONE: usize = 16;

/// The places.
pub struct Watchers {
    all: Arc<Semaphore>,
    of: Mutex<HashMap<String, Arc<Semaphore>>>,
}

/// A place that is taken until this is dropped.
#[derive(Debug)]
pub struct Place {
    _one: OwnedSemaphorePermit,
    _own: Option<OwnedSemaphorePermit>,
}

impl Default for Watchers {
    fn default() -> Watchers {
        Watchers {
            all: Arc::new(Semaphore::new(ALL)),
            of: Mutex::default(),
        }
    }
}

impl Watchers {
    /// A place for this actor; none where all are taken, or all of its own.
    pub fn place(&self, actor: &Actor) -> Option<Place> {
        let own = match &actor.kind {
            ActorKind::Token { id, .. } => Some(self.own(id).try_acquire_owned().ok()?),
            ActorKind::LocalOperator | ActorKind::System => None,
        };
        let one = Arc::clone(&self.all).try_acquire_owned().ok()?;
        Some(Place {
            _one: one,
            _own: own,
        })
    }

    fn own(&self, token: &str) -> Arc<Semaphore> {
        let mut of = self.of.lock().unwrap_or_else(PoisonError::into_inner);
        of.retain(|_, places| places.available_permits() < OF_ONE);
        let places = of
            .entry(token.to_owned())
            .or_insert_with(|| Arc::new(Semaphore::new(OF_ONE)));
        Arc::clone(places)
    }
}

#[cfg(test)]
mod tests {
    use leasehold_authority::Role;

    use super::*;

    #[test]
    fn one_actor_never_takes_the_places_of_all() {
        let watchers = Watchers::default();
        let actor = |id: &str| Actor {
            kind: ActorKind::Token {
                id: id.into(),
                role: Role::Admin,
            },
            display: id.into(),
        };
        let mut held: Vec<Place> = (0..OF_ONE)
            .map(|_| watchers.place(&actor("a")).unwrap())
            .collect();
        assert!(watchers.place(&actor("a")).is_none());
        assert!(watchers.place(&actor("b")).is_some());
        held.pop();
        held.push(watchers.place(&actor("a")).unwrap());
        let operator = Actor::local_operator();
        while let Some(place) = watchers.place(&operator) {
            held.push(place);
        }
        assert_eq!(held.len(), ALL);
        assert!(watchers.place(&actor("b")).is_none());
    }
}

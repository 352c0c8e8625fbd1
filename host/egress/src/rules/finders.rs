//! Finders that were made already: calls of one configuration look for the same values, and making a finder takes longer than
//! looking through a small answer.
//!
//! A finder is known by a digest of the values that it was made for, so that no call is given one of other values. It keeps
//! them in memory: there are only so many, and all of them go at a rotation, a revocation or a change of grant
//! ([`Finders::forget`]); what comes after is of calls that have the values still.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sha2::{Digest, Sha256};

use super::finder::Finder;

/// So many are kept; the one that was not asked for the longest makes room.
const MOST: usize = 64;

/// See the module.
#[derive(Default)]
pub(crate) struct Finders {
    /// The one that was asked for last stands at the end.
    made: Mutex<Vec<([u8; 32], Arc<Finder>)>>,
}

impl std::fmt::Debug for Finders {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Finders({})", self.made().len())
    }
}

impl Finders {
    /// The finder of exactly these values.
    pub(crate) fn of(&self, values: &[&str]) -> Arc<Finder> {
        let digest = digest_of(values);
        if let Some(known) = self.take(&digest) {
            self.put(digest, known.clone());
            return known;
        }
        // Nobody waits meanwhile; whoever makes the same beside this puts it in the same place.
        let made = Arc::new(Finder::new(values.iter().copied()));
        self.take(&digest);
        self.put(digest, made.clone());
        made
    }

    /// Keeps none of them.
    pub(crate) fn forget(&self) {
        self.made().clear();
    }

    fn take(&self, digest: &[u8; 32]) -> Option<Arc<Finder>> {
        let mut made = self.made();
        let at = made.iter().position(|(of, _)| of == digest)?;
        Some(made.remove(at).1)
    }

    fn put(&self, digest: [u8; 32], finder: Arc<Finder>) {
        let mut made = self.made();
        if made.len() >= MOST {
            made.remove(0);
        }
        made.push((digest, finder));
    }

    fn made(&self) -> MutexGuard<'_, Vec<([u8; 32], Arc<Finder>)>> {
        self.made.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Of the values and where each ends.
fn digest_of(values: &[&str]) -> [u8; 32] {
    let mut digest = Sha256::new();
    for value in values {
        digest.update(value.len().to_le_bytes());
        digest.update(value);
    }
    digest.finalize().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_values_have_the_same_finder_and_others_have_another() {
        let finders = Finders::default();
        let first = finders.of(&["value-number-one", "value-number-two"]);
        let same = finders.of(&["value-number-one", "value-number-two"]);
        assert!(Arc::ptr_eq(&first, &same));
        // The same bytes in other pieces, fewer of them, none.
        for other in [
            &["value-number-onevalue-number-two"][..],
            &["value-number-one"],
            &["value-number-two", "value-number-one"],
            &[],
        ] {
            assert!(!Arc::ptr_eq(&first, &finders.of(other)), "{other:?}");
        }
        assert!(!finders.of(&["value-number-one"]).hits(b"value-number-two"));
        assert!(finders.of(&["value-number-two"]).hits(b"value-number-two"));
    }

    #[test]
    fn there_are_only_so_many_and_none_once_they_are_forgotten() {
        let finders = Finders::default();
        let first = finders.of(&["value-number-one"]);
        for n in 0..MOST {
            // What is asked for again and again stays.
            assert!(
                Arc::ptr_eq(&first, &finders.of(&["value-number-one"])),
                "{n}"
            );
            finders.of(&[&format!("another-value-{n}")]);
        }
        assert_eq!(finders.made().len(), MOST);
        assert!(Arc::ptr_eq(&first, &finders.of(&["value-number-one"])));
        finders.forget();
        assert_eq!(finders.made().len(), 0);
    }
}

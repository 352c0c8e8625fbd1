//! A look at an answer's body while it comes: what was looked through while the rest was on its way need not be again.
//!
//! It only ever says that there is nothing to remove. Whatever could be a value, or hide one, is left to the finder and the
//! whole body; so is a body that was changed since, and one that other values are looked for in.

use std::sync::Arc;

use super::finder::Finder;

/// See the module.
pub(crate) struct Glance {
    finder: Arc<Finder>,
    /// How much of the body was looked through.
    seen: usize,
    plain: bool,
}

impl Glance {
    /// One for the values of this finder.
    pub(crate) fn of(finder: Arc<Finder>) -> Glance {
        Glance {
            finder,
            seen: 0,
            plain: true,
        }
    }

    /// Looks through what came since; `body` is all of it so far.
    pub(crate) fn look(&mut self, body: &[u8]) {
        if self.plain {
            // With so much of what went before that nothing hides between two looks.
            let from = self.seen.saturating_sub(self.finder.span());
            self.plain = self.finder.is_surely_not_in(&body[from..]);
        }
        self.seen = body.len();
    }

    /// Whether `finder` would remove nothing from this body, which is the one that was looked through.
    pub(crate) fn passes(&self, body: &[u8], finder: &Arc<Finder>) -> bool {
        self.plain && self.seen == body.len() && Arc::ptr_eq(&self.finder, finder)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "s3cr3t/Key+with?odd\"chars~";

    /// Whether a body passes that came in pieces of these lengths.
    fn passes(finder: &Arc<Finder>, body: &[u8], pieces: [usize; 2]) -> bool {
        let mut glance = Glance::of(finder.clone());
        let mut at = 0;
        for n in (0..).map(|n: usize| pieces[n % 2]) {
            at = (at + n).min(body.len());
            glance.look(&body[..at]);
            if at == body.len() {
                break;
            }
        }
        glance.passes(body, finder)
    }

    #[test]
    fn what_passes_is_what_nothing_would_be_removed_from_however_it_is_cut() {
        use base64::Engine;
        let finder = Arc::new(Finder::new([KEY]));
        let wrapped = base64::engine::general_purpose::STANDARD.encode(KEY);
        let wrapped = format!("{}\r\n{}", &wrapped[..10], &wrapped[10..]);
        let percent: String = KEY.bytes().map(|b| format!("%{b:02x}")).collect();
        let hex = crate::hex(KEY.as_bytes());
        for hidden in [KEY, &wrapped, &percent, &hex] {
            for before in 0..40 {
                let body = format!("{}{hidden} after", "-".repeat(before));
                assert!(finder.remove(body.as_bytes()).is_some(), "{body}");
                for pieces in [[1, 1], [2, 7], [16, 3], [40, 1], [1000, 1]] {
                    let passed = passes(&finder, body.as_bytes(), pieces);
                    assert!(!passed, "{body} in pieces of {pieces:?}");
                }
            }
        }
        for plain in ["", "nothing", "line\n  line\n", "s3cr3t/Key+with?odd"] {
            assert_eq!(finder.remove(plain.as_bytes()), None);
            assert!(passes(&finder, plain.as_bytes(), [1, 5]), "{plain}");
        }
    }

    #[test]
    fn only_the_body_that_was_looked_through_passes_and_for_its_finder_alone() {
        let finder = Arc::new(Finder::new([KEY]));
        let mut glance = Glance::of(finder.clone());
        glance.look(b"nothing");
        assert!(glance.passes(b"nothing", &finder));
        assert!(!glance.passes(b"nothing more", &finder));
        assert!(!glance.passes(b"nothing", &Arc::new(Finder::new([KEY]))));
        // Once something may be hidden, no end makes it good.
        glance.look(b"nothing%20");
        glance.look(b"nothing%20more");
        assert!(!glance.passes(b"nothing%20more", &finder));
    }
}

//! Waiting for what happens elsewhere: asked again until it is there, with a deadline that only a fault reaches.

use std::path::Path;
use std::time::{Duration, Instant};

/// The deadline of everything that does not name its own.
pub const LONG: Duration = Duration::from_secs(60);

/// Asks until there is an answer.
///
/// # Panics
/// After [`LONG`] without one, naming `what`.
pub fn until<T>(what: &str, look: impl FnMut() -> Option<T>) -> T {
    until_within(LONG, what, look)
}

/// As [`until`], where it would come by itself later.
///
/// # Panics
/// After `span` without an answer, naming `what`.
pub fn until_within<T>(span: Duration, what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + span;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < deadline, "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Lets a command that waits for this file go on when it goes, whatever failed meanwhile.
#[derive(Debug)]
pub struct Go<'a>(pub &'a Path);

impl Drop for Go<'_> {
    fn drop(&mut self) {
        let _ = std::fs::write(self.0, "");
    }
}

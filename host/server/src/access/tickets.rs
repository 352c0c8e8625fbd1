//! One-use tickets: how a page in a browser, which cannot send an `Authorization` header with a WebSocket,
//! says who it is without keeping its token in a frame.
//!
//! A ticket is random, lives 30 seconds in memory, opens one stream on one lease, and is gone at the first
//! try, whether that was right or wrong. Only its digest is kept.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use leasehold_authority::Actor;
use sha2::{Digest, Sha256};

/// How long a ticket lives.
pub const TICKET_LIFE: Duration = Duration::from_secs(30);

const PREFIX: &str = "lhk_";
const MOST: usize = 4096;

/// The tickets that were handed out and not yet used.
#[derive(Debug, Default)]
pub struct Tickets {
    open: Mutex<HashMap<[u8; 32], Ticket>>,
}

#[derive(Debug)]
struct Ticket {
    actor: Actor,
    lease: String,
    until: Instant,
}

impl Tickets {
    /// A ticket for `actor` on `lease`; none when the system has no random bytes or too many are open.
    pub fn issue(&self, actor: &Actor, lease: &str, now: Instant) -> Option<String> {
        let mut random = [0u8; 24];
        getrandom::fill(&mut random).ok()?;
        let mut text = String::from(PREFIX);
        for byte in random {
            use std::fmt::Write as _;
            let _ = write!(text, "{byte:02x}");
        }
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.retain(|_, ticket| ticket.until > now);
        if open.len() >= MOST {
            return None;
        }
        open.insert(
            digest(&text),
            Ticket {
                actor: actor.clone(),
                lease: lease.to_owned(),
                until: now + TICKET_LIFE,
            },
        );
        Some(text)
    }

    /// Whether `text` looks like a ticket.
    pub fn looks_like_one(text: &str) -> bool {
        text.starts_with(PREFIX)
    }

    /// Takes the ticket away and answers whose it was, if it was for this lease and still lived.
    pub fn redeem(&self, text: &str, lease: &str, now: Instant) -> Option<Actor> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let ticket = open.remove(&digest(text))?;
        (ticket.lease == lease && ticket.until > now).then_some(ticket.actor)
    }
}

fn digest(text: &str) -> [u8; 32] {
    Sha256::digest(text.as_bytes()).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ticket_opens_its_lease_once_within_its_life() {
        let tickets = Tickets::default();
        let now = Instant::now();
        let actor = Actor::local_operator();
        let ticket = tickets.issue(&actor, "lease_1", now).unwrap();
        assert!(Tickets::looks_like_one(&ticket));
        assert!(tickets.redeem(&ticket, "lease_1", now).is_some());
        assert!(tickets.redeem(&ticket, "lease_1", now).is_none());

        let other = tickets.issue(&actor, "lease_1", now).unwrap();
        assert!(tickets.redeem(&other, "lease_2", now).is_none());
        assert!(tickets.redeem(&other, "lease_1", now).is_none());

        let late = tickets.issue(&actor, "lease_1", now).unwrap();
        assert!(
            tickets
                .redeem(&late, "lease_1", now + TICKET_LIFE)
                .is_none()
        );
        assert!(tickets.redeem("lhk_guess", "lease_1", now).is_none());
    }
}

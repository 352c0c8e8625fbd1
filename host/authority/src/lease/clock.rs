//! Whether the wall clock can be believed, and when a lease expires by it. Pure.
//!
//! The wall clock decides expiry and can be set; the monotonic clock cannot. When they part by more than a
//! minute, nothing expires until they have agreed again for a minute, measured on the monotonic clock.

use std::time::Duration;

/// How far the two may part.
const PARTED: i64 = 60_000;
/// How far they may part and still agree while agreement is being waited for.
const AGREEING: i64 = 2_000;
/// How long they must agree again.
const SETTLED: i64 = 60_000;
/// What is taken off a backend's own expiry at most.
const MARGIN: i64 = 30_000;

/// Whether expiry may go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trust {
    /// The clocks agree.
    Good,
    /// They parted by this many milliseconds; expiry halts, and somebody should look.
    Parted(i64),
}

/// Watches the two clocks.
#[derive(Clone, Debug, Default)]
pub struct ClockGuard {
    /// Wall minus monotonic, as last believed.
    believed: Option<i64>,
    /// While halted: the new difference, and since when it has held.
    waiting: Option<(i64, i64)>,
}

impl ClockGuard {
    /// One reading of both clocks: milliseconds since the epoch, and time since any fixed moment.
    pub fn observe(&mut self, wall: i64, monotonic: Duration) -> Trust {
        let mono = i64::try_from(monotonic.as_millis()).unwrap_or(i64::MAX);
        let difference = wall.saturating_sub(mono);
        let Some(believed) = self.believed else {
            self.believed = Some(difference);
            return Trust::Good;
        };
        let drift = difference.saturating_sub(believed);
        match self.waiting {
            None if drift.abs() <= PARTED => {
                // Slow drift is the clock being disciplined: follow it, so that it does not add up to an alarm.
                self.believed = Some(difference);
                Trust::Good
            }
            None => {
                self.waiting = Some((difference, mono));
                Trust::Parted(drift)
            }
            Some((new, since)) => {
                if difference.saturating_sub(new).abs() > AGREEING {
                    self.waiting = Some((difference, mono));
                    return Trust::Parted(drift);
                }
                if mono.saturating_sub(since) < SETTLED {
                    return Trust::Parted(drift);
                }
                self.waiting = None;
                self.believed = Some(difference);
                Trust::Good
            }
        }
    }
}

/// What of a backend's own time to live a lease may use: less a margin, so that release comes first.
pub fn usable(attested: Duration) -> Duration {
    let attested = i64::try_from(attested.as_millis()).unwrap_or(i64::MAX);
    let usable = attested - (attested / 10).min(MARGIN);
    Duration::from_millis(u64::try_from(usable).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Duration {
        Duration::from_secs(seconds as u64)
    }

    #[test]
    fn a_clock_that_is_set_halts_expiry_until_a_minute_of_agreement() {
        let mut guard = ClockGuard::default();
        let wall = 1_700_000_000_000;
        assert_eq!(guard.observe(wall, at(0)), Trust::Good);
        assert_eq!(guard.observe(wall + 10_000, at(10)), Trust::Good);
        // An hour ahead.
        let set = wall + 3_600_000;
        assert_eq!(
            guard.observe(set + 20_000, at(20)),
            Trust::Parted(3_600_000)
        );
        assert_eq!(
            guard.observe(set + 50_000, at(50)),
            Trust::Parted(3_600_000)
        );
        // Set again: the minute begins anew.
        let set = wall + 7_200_000;
        assert_eq!(
            guard.observe(set + 70_000, at(70)),
            Trust::Parted(7_200_000)
        );
        assert_eq!(
            guard.observe(set + 129_000, at(129)),
            Trust::Parted(7_200_000)
        );
        assert_eq!(guard.observe(set + 130_000, at(130)), Trust::Good);
        assert_eq!(guard.observe(set + 140_000, at(140)), Trust::Good);
        // And back.
        assert_eq!(
            guard.observe(wall + 150_000, at(150)),
            Trust::Parted(-7_200_000)
        );
    }

    #[test]
    fn a_small_step_and_slow_drift_do_not_halt() {
        let mut guard = ClockGuard::default();
        let mut wall = 1_700_000_000_000;
        assert_eq!(guard.observe(wall, at(0)), Trust::Good);
        for minute in 1..=600 {
            wall += 61_000;
            assert_eq!(guard.observe(wall, at(minute * 60)), Trust::Good);
        }
        wall += 120_000;
        assert_eq!(
            guard.observe(wall, at(601 * 60)),
            Trust::Good,
            "60 s are allowed"
        );
    }

    #[test]
    fn the_margin_is_a_tenth_and_thirty_seconds_at_most() {
        assert_eq!(usable(Duration::from_secs(100)), Duration::from_secs(90));
        assert_eq!(usable(Duration::from_secs(3600)), Duration::from_secs(3570));
        assert_eq!(usable(Duration::ZERO), Duration::ZERO);
    }
}

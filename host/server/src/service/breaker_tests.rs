//! Tests of the breaker, with a clock of the test's own.

use leasehold_runtime::{Limit, TrapCode};

use super::*;

const SECOND: Duration = Duration::from_secs(1);

fn breaker() -> Arc<Breaker> {
    Arc::new(Breaker::new(BreakerSettings {
        failures: 3,
        window: 10 * SECOND,
        backoff: 4 * SECOND,
        longest: 10 * SECOND,
    }))
}

fn trap() -> Verdict {
    told(
        Err(&Failure::Trap {
            code: TrapCode::Unreachable,
            message: "a secret of one company".to_owned(),
        }),
        true,
        true,
    )
}

fn told(result: Result<(), &Failure>, went_out: bool, deadline_is_ours: bool) -> Verdict {
    Verdict::of(Outcome { result, went_out }, deadline_is_ours)
}

fn trip(breaker: &Breaker, now: Instant) -> Option<Change> {
    (0..3)
        .filter_map(|_| breaker.ended(now, trap(), false))
        .last()
}

fn is_open(breaker: &Arc<Breaker>, now: Instant) -> bool {
    breaker.admit(now).is_err()
}

#[test]
fn enough_failures_in_the_window_trip_it_and_fewer_or_older_ones_do_not() {
    let (b, t) = (breaker(), Instant::now());
    assert_eq!(b.ended(t, trap(), false), None);
    assert_eq!(b.ended(t + SECOND, trap(), false), None);
    // The first two are too old by now.
    assert_eq!(b.ended(t + 20 * SECOND, trap(), false), None);
    assert_eq!(b.ended(t + 21 * SECOND, trap(), false), None);
    assert!(b.admit(t + 21 * SECOND).unwrap().is_none());
    let change = b.ended(t + 22 * SECOND, trap(), false).unwrap();
    assert_eq!(
        change,
        Change::Tripped {
            reason: "it crashed (unreachable)".to_owned(),
            backoff: 4 * SECOND,
            trips: 1
        }
    );
    let stopped = b.admit(t + 23 * SECOND).err().unwrap();
    assert_eq!(stopped.retry_after, 3 * SECOND);
    assert_eq!(stopped.reason, "it crashed (unreachable)");
}

#[test]
fn failures_among_many_answers_do_not_trip_it() {
    let (b, t) = (breaker(), Instant::now());
    for _ in 0..20 {
        for _ in 0..5 {
            b.ended(t, Verdict::Answered, false);
        }
        assert_eq!(b.ended(t, trap(), false), None);
    }
    assert!(!is_open(&b, t));
}

#[test]
fn after_the_backoff_one_trial_is_let_through_and_its_answer_closes_it() {
    let (b, t) = (breaker(), Instant::now());
    assert!(trip(&b, t).is_some());
    assert!(is_open(&b, t + 3 * SECOND));
    let trial = b.admit(t + 4 * SECOND).unwrap();
    assert!(trial.is_some());
    assert!(is_open(&b, t + 4 * SECOND), "one at a time");
    // What is torn down meanwhile decides nothing, either way.
    assert_eq!(b.ended(t + 4 * SECOND, Verdict::Answered, false), None);
    assert_eq!(b.ended(t + 4 * SECOND, trap(), false), None);
    assert!(is_open(&b, t + 4 * SECOND));
    assert_eq!(
        b.ended(t + 5 * SECOND, Verdict::Answered, true),
        Some(Change::Recovered)
    );
    drop(trial);
    assert!(b.admit(t + 5 * SECOND).unwrap().is_none());
    assert_eq!(b.health(t + 5 * SECOND).trips_total, 1);
}

#[test]
fn a_trial_that_fails_doubles_the_backoff_up_to_its_cap() {
    let (b, mut t) = (breaker(), Instant::now());
    trip(&b, t);
    for backoff in [8, 10, 10] {
        t += 10 * SECOND;
        let trial = b.admit(t).unwrap();
        assert!(trial.is_some());
        let change = b.ended(t, trap(), true).unwrap();
        assert!(
            matches!(change, Change::Tripped { backoff: was, .. } if was == backoff * SECOND),
            "{change:?}"
        );
    }
}

#[test]
fn a_trial_that_comes_to_nothing_leaves_its_place_to_the_next() {
    let (b, t) = (breaker(), Instant::now());
    trip(&b, t);
    let later = t + 4 * SECOND;
    let trial = b.admit(later).unwrap();
    assert_eq!(b.ended(later, Verdict::Silent, true), None);
    drop(trial);
    assert!(b.admit(later).unwrap().is_some());
}

#[test]
fn a_person_resets_it_and_an_older_trial_has_no_say_any_more() {
    let (b, t) = (breaker(), Instant::now());
    assert!(!b.reset());
    trip(&b, t);
    let old = b.admit(t + 4 * SECOND).unwrap();
    assert!(b.reset());
    assert!(!is_open(&b, t + 4 * SECOND));
    trip(&b, t + 5 * SECOND);
    let new = b.admit(t + 20 * SECOND).unwrap();
    drop(old);
    assert!(is_open(&b, t + 20 * SECOND), "the new trial has the place");
    drop(new);
}

#[test]
fn what_is_not_the_components_doing_says_nothing() {
    let queue = Failure::Timeout {
        phase: CallPhase::Queue,
        waits_for: None,
    };
    let call = Failure::Timeout {
        phase: CallPhase::Call,
        waits_for: None,
    };
    let limit = Failure::Limit {
        which: Limit::Cpu,
        message: String::new(),
    };
    assert_eq!(told(Err(&call), true, true), Verdict::Silent, "a target's");
    for (failure, ours, verdict) in [
        (&queue, true, Verdict::Silent),
        (&call, false, Verdict::Silent),
        (&Failure::Busy("full".to_owned()), true, Verdict::Silent),
        (&Failure::Host("disk".to_owned()), true, Verdict::Silent),
        (
            &call,
            true,
            Verdict::Failed("it did not answer in time (call)".to_owned()),
        ),
        (
            &limit,
            false,
            Verdict::Failed("it ran into its limit (cpu)".to_owned()),
        ),
    ] {
        assert_eq!(told(Err(failure), false, ours), verdict, "{failure:?}");
    }
    assert_eq!(told(Ok(()), false, true), Verdict::Answered);
}

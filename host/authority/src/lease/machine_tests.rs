//! The machine against its invariants: every state with every event, and long random lives.

use super::*;

/// A small generator, so that a failing life can be run again by its seed.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % sides as u64) as usize
    }
}

fn strings(names: &[&str]) -> Vec<String> {
    names.iter().map(|n| (*n).to_owned()).collect()
}

fn candidates(owned: &[&str], journalled: &[&str], at: i64) -> Event {
    Event::Candidates {
        owned: strings(owned),
        journalled: strings(journalled),
        at,
        apart: 100,
    }
}

fn activated(resource: &str) -> Event {
    Event::Activated(Activation {
        resource: resource.into(),
        handle: "{}".into(),
        workspace: "/w".into(),
        attested_ttl: None,
        proof: Proof::Owned,
    })
}

fn events(at: i64) -> Vec<Event> {
    let reason = || "x".to_owned();
    vec![
        Event::UnsafeSent,
        activated("a"),
        activated("b"),
        candidates(&[], &[], at),
        candidates(&["a"], &[], at),
        candidates(&["b"], &["a"], at),
        candidates(&["a", "b"], &[], at),
        candidates(&["a", "b"], &["b"], at),
        candidates(&["a", "b"], &["a", "b"], at),
        Event::AcquireFailed { reason: reason() },
        Event::ReconcileFailed {
            reason: reason(),
            jitter: Jitter(0),
        },
        Event::Release { reason: reason() },
        Event::ReleaseConfirmed,
        Event::ReleaseUnconfirmed {
            reason: reason(),
            jitter: Jitter(1000),
        },
        Event::Abandon { reason: reason() },
        Event::Abandon { reason: " ".into() },
        Event::Takeover,
    ]
}

fn states() -> Vec<State> {
    let mut all = Vec::new();
    for status in Status::ALL {
        for unsafe_sent in [false, true] {
            for resource in [None, Some("a".to_owned())] {
                for absent_since in [None, Some(0), Some(500)] {
                    all.push(State {
                        status,
                        epoch: 7,
                        unsafe_sent,
                        resource: resource.clone(),
                        absent_since,
                        attempts: 3,
                        reason: None,
                        failure: None,
                    });
                }
            }
        }
    }
    all
}

/// What must hold of every single step.
fn check(before: &State, event: &Event, after: &State, effects: &[Effect]) {
    let context = format!("{before:?} + {event:?} -> {after:?} {effects:?}");
    let has = |f: fn(&Effect) -> bool| effects.iter().any(f);
    // P4: the epoch never falls, and whatever raised it closes the streams of the old one.
    assert!(after.epoch >= before.epoch, "{context}");
    assert_eq!(
        after.epoch > before.epoch,
        has(|e| matches!(e, Effect::RaiseEpoch)),
        "{context}"
    );
    if after.epoch > before.epoch {
        assert!(has(|e| matches!(e, Effect::CloseStreams)), "{context}");
    }
    // P4: whoever worked before an end of use cannot go on at the same epoch.
    let uses = |s: Status| matches!(s, Status::Acquiring | Status::Active | Status::Retained);
    if uses(before.status) && !uses(after.status) {
        assert!(after.epoch > before.epoch, "{context}");
    }
    // Nothing follows an end.
    if before.status.is_terminal() {
        assert_eq!(before, after, "{context}");
        assert!(effects.is_empty(), "{context}");
    }
    // P2: active once, from acquiring, with one resource that never changes.
    if after.status == Status::Active && before.status != Status::Active {
        assert_eq!(before.status, Status::Acquiring, "{context}");
        assert!(matches!(event, Event::Activated(_)), "{context}");
        assert!(after.resource.is_some(), "{context}");
        assert!(
            before.resource.is_none() || before.resource == after.resource,
            "{context}"
        );
    }
    if before.status != Status::Acquiring {
        assert_eq!(before.resource, after.resource, "{context}");
    }
    // P2, P9: what is destroyed is never the one that is in use or adopted.
    for effect in effects {
        if let Effect::Destroy { resources } = effect {
            assert!(!resources.is_empty(), "{context}");
            if matches!(
                after.status,
                Status::Acquiring | Status::Active | Status::Retained
            ) {
                assert!(
                    resources.iter().all(|r| Some(r) != after.resource.as_ref()),
                    "{context}"
                );
            }
        }
    }
    // P5: an end is confirmed, proven absent, never begun, or a person's.
    if after.status.is_terminal() && !before.status.is_terminal() {
        assert!(has(|e| matches!(e, Effect::FreeTarget)), "{context}");
        assert!(has(|e| matches!(e, Effect::SettleExecutions)), "{context}");
        match after.status {
            Status::Released => assert_eq!(*event, Event::ReleaseConfirmed, "{context}"),
            Status::Abandoned => {
                assert!(
                    matches!(event, Event::Abandon { reason } if !reason.trim().is_empty()),
                    "{context}"
                );
            }
            _ => {
                let nothing_sent = before.status == Status::Acquiring && !before.unsafe_sent;
                let twice_empty = matches!(
                    event,
                    Event::Candidates { owned, at, apart, .. }
                        if owned.is_empty() && before.absent_since.is_some_and(|s| at - s >= *apart)
                );
                assert!(nothing_sent || twice_empty, "{context}");
            }
        }
    }
    // P5: what waits for cleanup has a next try.
    if after.status == Status::PendingCleanup && before.status != Status::PendingCleanup {
        assert!(has(|e| matches!(e, Effect::Retry { .. })), "{context}");
    }
    // Absence is forgotten as soon as something is seen.
    if let Event::Candidates { owned, .. } = event
        && !owned.is_empty()
        && matches!(
            after.status,
            Status::Acquiring | Status::Releasing | Status::PendingCleanup
        )
    {
        assert_eq!(after.absent_since, None, "{context}");
    }
}

#[test]
fn every_state_with_every_event_keeps_the_invariants() {
    let mut steps = 0;
    for state in states() {
        for event in events(550) {
            match step(&state, &event) {
                Ok((after, effects)) => check(&state, &event, &after, &effects),
                Err(refused) => assert_eq!(refused.status, state.status),
            }
            steps += 1;
        }
    }
    assert_eq!(steps, 8 * 2 * 2 * 3 * 17);
}

#[test]
fn random_lives_keep_the_invariants_and_can_always_end() {
    for seed in 1..=20_000u64 {
        let mut dice = Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let mut state = State::begun();
        let mut active = 0;
        for at in 0..40 {
            let events = events(at * 30);
            let event = &events[dice.roll(events.len())];
            if let Ok((after, effects)) = step(&state, event) {
                check(&state, event, &after, &effects);
                active +=
                    i32::from(after.status == Status::Active && state.status != Status::Active);
                state = after;
            }
        }
        assert!(active <= 1, "seed {seed}: active {active} times");
        // Wherever it got to, a release that is confirmed ends it.
        for event in [
            Event::Release {
                reason: "end".into(),
            },
            Event::ReleaseConfirmed,
        ] {
            if let Ok((after, effects)) = step(&state, &event) {
                check(&state, &event, &after, &effects);
                state = after;
            }
        }
        assert!(state.status.is_terminal(), "seed {seed}: {state:?}");
    }
}

fn run(events: &[Event]) -> (State, Vec<Effect>) {
    events
        .iter()
        .fold((State::begun(), Vec::new()), |(s, _), e| {
            step(&s, e).unwrap_or_else(|r| panic!("{r}"))
        })
}

#[test]
fn of_one_candidate_that_one_is_adopted_and_only_it_can_become_active() {
    let (state, effects) = run(&[Event::UnsafeSent, candidates(&["a"], &[], 0)]);
    assert_eq!(
        effects,
        [Effect::Adopt {
            resource: "a".into()
        }]
    );
    assert!(step(&state, &activated("b")).is_err());
    let (state, _) = step(&state, &activated("a")).unwrap();
    assert_eq!(state.status, Status::Active);
}

#[test]
fn of_several_candidates_the_journalled_one_is_kept_and_the_rest_destroyed() {
    let (state, effects) = run(&[Event::UnsafeSent, candidates(&["a", "b", "c"], &["b"], 0)]);
    assert_eq!(state.status, Status::Acquiring);
    assert_eq!(
        effects,
        [
            Effect::Destroy {
                resources: strings(&["a", "c"])
            },
            Effect::Adopt {
                resource: "b".into()
            }
        ]
    );
}

#[test]
fn of_several_candidates_without_a_journalled_one_none_is_adopted() {
    let (state, effects) = run(&[Event::UnsafeSent, candidates(&["a", "b"], &[], 0)]);
    assert_eq!(state.status, Status::PendingCleanup);
    assert!(effects.contains(&Effect::Destroy {
        resources: strings(&["a", "b"])
    }));
}

#[test]
fn of_several_candidates_that_are_all_journalled_none_is_adopted() {
    let (state, effects) = run(&[Event::UnsafeSent, candidates(&["a", "b"], &["a", "b"], 0)]);
    assert_eq!(state.status, Status::PendingCleanup);
    assert!(effects.contains(&Effect::Destroy {
        resources: strings(&["a", "b"])
    }));
}

#[test]
fn a_candidate_found_after_the_release_was_asked_is_destroyed_and_never_adopted() {
    let (state, effects) = run(&[
        Event::UnsafeSent,
        Event::Release {
            reason: "requested".into(),
        },
        candidates(&["a"], &["a"], 0),
    ]);
    assert_eq!(state.status, Status::Releasing);
    assert_eq!(
        effects,
        [Effect::Destroy {
            resources: strings(&["a"])
        }]
    );
}

#[test]
fn a_failed_acquire_is_failed_only_where_nothing_was_sent() {
    let failed = || Event::AcquireFailed { reason: "x".into() };
    assert_eq!(run(&[failed()]).0.status, Status::Failed);
    let (state, _) = run(&[Event::UnsafeSent, failed()]);
    assert_eq!(state.status, Status::PendingCleanup);
    // One empty list proves nothing, and neither do two that are too close.
    let (state, effects) = step(&state, &candidates(&[], &[], 1000)).unwrap();
    assert_eq!(effects, [Effect::AskAgain { after: 100 }]);
    let (state, effects) = step(&state, &candidates(&[], &[], 1040)).unwrap();
    assert_eq!(state.status, Status::PendingCleanup);
    assert_eq!(effects, [Effect::AskAgain { after: 60 }]);
    // Something seen in between begins the proof anew.
    let (state, _) = step(&state, &candidates(&["a"], &[], 1050)).unwrap();
    let (state, _) = step(&state, &candidates(&[], &[], 1200)).unwrap();
    assert_eq!(state.status, Status::PendingCleanup);
    let (state, _) = step(&state, &candidates(&[], &[], 1300)).unwrap();
    assert_eq!(state.status, Status::Failed);
}

#[test]
fn an_unconfirmed_release_waits_for_ever_with_capped_backoff_until_it_is_confirmed() {
    let (mut state, _) = run(&[
        Event::UnsafeSent,
        activated("a"),
        Event::Release {
            reason: "requested".into(),
        },
    ]);
    let mut last = 0;
    for attempt in 1..=100 {
        let (next, effects) = step(
            &state,
            &Event::ReleaseUnconfirmed {
                reason: "down".into(),
                jitter: Jitter(1000),
            },
        )
        .unwrap();
        let [
            Effect::Retry {
                attempt: counted,
                after,
            },
        ] = effects[..]
        else {
            panic!("{effects:?}");
        };
        assert_eq!(counted, attempt);
        assert!(after >= last && after <= 300_000);
        last = after;
        state = next;
        assert_eq!(state.status, Status::PendingCleanup);
    }
    assert_eq!(last, 300_000);
    let (state, _) = step(&state, &Event::ReleaseConfirmed).unwrap();
    assert_eq!(state.status, Status::Released);
}

#[test]
fn backoff_begins_at_a_second_and_jitter_spreads_its_upper_half() {
    assert_eq!(backoff(1, Jitter(1000)), Duration::from_secs(1));
    assert_eq!(backoff(1, Jitter(0)), Duration::from_millis(500));
    assert_eq!(backoff(4, Jitter(1000)), Duration::from_secs(8));
    assert_eq!(
        backoff(u32::MAX, Jitter(u16::MAX)),
        Duration::from_secs(300)
    );
}

#[test]
fn a_confirmed_release_forgets_what_a_try_in_vain_said_and_keeps_why_an_acquire_failed() {
    let waiting = |attempts, failure: &str| State {
        status: Status::PendingCleanup,
        epoch: 3,
        unsafe_sent: true,
        resource: Some("a".to_owned()),
        absent_since: None,
        attempts,
        reason: None,
        failure: Some(failure.to_owned()),
    };
    let (released, _) = step(&waiting(2, "unreachable"), &Event::ReleaseConfirmed).unwrap();
    assert_eq!(
        (released.status, released.failure),
        (Status::Released, None)
    );
    let (released, _) = step(&waiting(0, "no such image"), &Event::ReleaseConfirmed).unwrap();
    assert_eq!(released.failure.as_deref(), Some("no such image"));
}

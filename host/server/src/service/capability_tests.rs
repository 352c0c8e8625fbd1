//! Every set against every kind of bound: what the narrowing promises, without an example chosen to fit.

use super::*;

const TERMS: [Term; 6] = [
    Term::Exports,
    Term::Features,
    Term::Host,
    Term::Grant,
    Term::Configuration,
    Term::Health,
];

/// Numbers that look random and are the same in every run (SplitMix64).
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Bounds that mostly leave something, so that later ones have what to take.
    fn bound(&mut self, at: usize) -> Bound {
        let taken = (self.next() & self.next() & self.next()) as u16;
        Bound {
            by: TERMS[at % TERMS.len()],
            leaves: Set(!taken),
            reason: format!("bound {at}").into(),
        }
    }
}

#[test]
fn each_term_only_narrows_and_what_is_gone_names_the_first_that_took_it() {
    let mut numbers = Numbers(4);
    for _ in 0..20_000 {
        let count = (numbers.next() % 8) as usize;
        let bounds: Vec<Bound> = (0..count).map(|at| numbers.bound(at)).collect();
        let mut before = Effective::of([]);
        assert_eq!(before.has().len() as usize, Capability::ALL.len());
        for (at, bound) in bounds.iter().enumerate() {
            let after = Effective::of(&bounds[..=at]);
            assert!(after.has().but(before.has()).is_empty(), "{bounds:?}");
            assert!(after.has().but(bound.leaves).is_empty(), "{bounds:?}");
            for one in Capability::ALL {
                let took = after.taken(*one);
                assert_eq!(took.is_none(), after.has().has(*one), "{one:?} {bounds:?}");
                if before.has().has(*one) && !after.has().has(*one) {
                    let took = took.unwrap();
                    assert_eq!((took.by, &took.reason), (bound.by, &bound.reason));
                } else if let Some(earlier) = before.taken(*one) {
                    assert_eq!(earlier.reason, took.unwrap().reason, "who took it stays");
                }
            }
            before = after;
        }
    }
}

#[test]
fn a_bound_that_leaves_less_never_comes_to_more() {
    let mut numbers = Numbers(5);
    for _ in 0..20_000 {
        let bounds: Vec<Bound> = (0..4).map(|at| numbers.bound(at)).collect();
        let whole = Effective::of(&bounds).has();
        for at in 0..bounds.len() {
            let mut tighter = bounds.clone();
            tighter[at].leaves = tighter[at].leaves.and(Set(numbers.next() as u16));
            let less = Effective::of(&tighter).has();
            assert!(less.but(whole).is_empty(), "{bounds:?} {tighter:?}");
        }
    }
}

#[test]
fn nothing_is_there_without_the_lease_and_no_terminal_without_commands() {
    let leaves = |taken: Capability| {
        Effective::of([&Bound::without(
            Term::Grant,
            Set::EMPTY.with(taken),
            "taken",
        )])
    };
    assert!(leaves(Capability::Lifecycle).has().is_empty());
    let silent = leaves(Capability::Execution);
    assert!(silent.has().has(Capability::Files));
    for of_commands in OF_COMMANDS.iter() {
        assert_eq!(&*silent.taken(of_commands).unwrap().reason, "taken");
    }
}

#[test]
fn words_are_found_by_their_names_and_each_is_an_interface_or_a_feature() {
    for one in Capability::ALL {
        assert_eq!(Capability::parse(one.as_str()), Some(*one));
        let kinds = [INTERFACES, FEATURES]
            .iter()
            .filter(|set| set.has(*one))
            .count();
        assert_eq!(kinds, usize::from(*one != Capability::Lifecycle), "{one:?}");
    }
    assert_eq!(Capability::parse("Execution"), None);
    assert_eq!(Capability::parse(""), None);
}

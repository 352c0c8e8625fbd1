//! What can be asked of a lease, as a set of the contract's words, and what took the others away.
//!
//! Pure: no I/O and no state. An effective set begins as all words and is narrowed by one bound after another, each with
//! the term that it stands for: exports ∩ features ∩ what this host does ∩ grant ∩ configuration ∩ health. Invariants: no
//! bound adds a word, whatever it allows; every word that is gone names the first term that took it, and why.

use std::sync::Arc;

macro_rules! capabilities {
    ($($variant:ident $name:literal,)*) => {
        /// A word of the contract: an interface that a component may export, or a feature that a provider may declare.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub(crate) enum Capability {
            $($variant,)*
        }

        impl Capability {
            /// Each of them, in the contract's order.
            pub(crate) const ALL: &[Capability] = &[$(Capability::$variant,)*];

            /// As the contract spells it.
            pub(crate) fn as_str(self) -> &'static str {
                match self { $(Capability::$variant => $name,)* }
            }
        }
    };
}

capabilities! {
    // To be leased at all.
    Lifecycle "lifecycle",
    Execution "execution",
    Files "files",
    Suspension "suspension",
    Images "images",
    Setup "setup",
    Tasks "tasks",
    Ports "ports",
    Accounts "accounts",
    Stdin "stdin",
    Tty "tty",
    SeparateStderr "separate-stderr",
    Attach "attach",
    SignalGroup "signal-group",
    ExclusiveTarget "exclusive-target",
    Reuse "reuse",
}

impl Capability {
    /// The capability of this name; none for any other word.
    pub(crate) fn parse(text: &str) -> Option<Capability> {
        Capability::ALL
            .iter()
            .copied()
            .find(|capability| capability.as_str() == text)
    }
}

/// Some of the words.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Set(u16);

/// What means nothing without commands.
pub(crate) const OF_COMMANDS: Set = Set::EMPTY
    .with(Capability::Stdin)
    .with(Capability::Tty)
    .with(Capability::SeparateStderr)
    .with(Capability::Attach)
    .with(Capability::SignalGroup);

/// The interfaces beyond `lifecycle`.
pub(crate) const INTERFACES: Set = Set::EMPTY
    .with(Capability::Execution)
    .with(Capability::Files)
    .with(Capability::Suspension)
    .with(Capability::Images)
    .with(Capability::Setup)
    .with(Capability::Tasks)
    .with(Capability::Ports)
    .with(Capability::Accounts);

/// The features.
pub(crate) const FEATURES: Set = OF_COMMANDS
    .with(Capability::ExclusiveTarget)
    .with(Capability::Reuse);

/// What this version of the host serves. The contract has more words.
pub(crate) const SERVED: Set = Set::EMPTY
    .with(Capability::Lifecycle)
    .with(Capability::Execution)
    .with(Capability::Files)
    .with(Capability::Stdin)
    .with(Capability::Tty)
    .with(Capability::SeparateStderr)
    .with(Capability::SignalGroup)
    .with(Capability::ExclusiveTarget);

impl Set {
    pub(crate) const EMPTY: Set = Set(0);
    pub(crate) const ALL: Set = Set(u16::MAX);

    pub(crate) const fn with(self, capability: Capability) -> Set {
        Set(self.0 | 1 << capability as u16)
    }

    pub(crate) const fn has(self, capability: Capability) -> bool {
        self.0 & (1 << capability as u16) != 0
    }

    pub(crate) const fn and(self, other: Set) -> Set {
        Set(self.0 & other.0)
    }

    pub(crate) const fn or(self, other: Set) -> Set {
        Set(self.0 | other.0)
    }

    pub(crate) const fn but(self, other: Set) -> Set {
        Set(self.0 & !other.0)
    }

    pub(crate) const fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub(crate) const fn len(self) -> u32 {
        self.0.count_ones()
    }

    /// Those in it, in the contract's order.
    pub(crate) fn iter(self) -> impl Iterator<Item = Capability> {
        Capability::ALL
            .iter()
            .copied()
            .filter(move |capability| self.has(*capability))
    }

    /// What of these words still means something where only these are there.
    const fn meaningful(self) -> Set {
        if !self.has(Capability::Lifecycle) {
            return Set::EMPTY;
        }
        if self.has(Capability::Execution) {
            return self;
        }
        self.but(OF_COMMANDS)
    }
}

impl FromIterator<Capability> for Set {
    fn from_iter<I: IntoIterator<Item = Capability>>(all: I) -> Set {
        all.into_iter().fold(Set::EMPTY, Set::with)
    }
}

/// What a bound stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Term {
    /// The interfaces that the component exports.
    Exports,
    /// The features that it declares.
    Features,
    /// What this version of the host does.
    Host,
    /// What was granted, and whether it may be leased at all.
    Grant,
    /// The server's settings and the environment's own row.
    Configuration,
    /// Whether it works.
    Health,
}

impl Term {
    /// As answers spell it.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Term::Exports => "exports",
            Term::Features => "features",
            Term::Host => "host",
            Term::Grant => "grant",
            Term::Configuration => "configuration",
            Term::Health => "health",
        }
    }
}

/// What one term leaves, and why it takes the rest.
#[derive(Clone, Debug)]
pub(crate) struct Bound {
    pub(crate) by: Term,
    pub(crate) leaves: Set,
    pub(crate) reason: Arc<str>,
}

impl Bound {
    /// One that takes everything.
    pub(crate) fn nothing(by: Term, reason: impl Into<Arc<str>>) -> Bound {
        Bound {
            by,
            leaves: Set::EMPTY,
            reason: reason.into(),
        }
    }

    /// One that takes these.
    pub(crate) fn without(by: Term, taken: Set, reason: impl Into<Arc<str>>) -> Bound {
        Bound {
            by,
            leaves: Set::ALL.but(taken),
            reason: reason.into(),
        }
    }
}

/// Words that one bound took.
#[derive(Clone, Debug)]
pub(crate) struct Taken {
    pub(crate) what: Set,
    pub(crate) by: Term,
    pub(crate) reason: Arc<str>,
}

/// What is there, and what took the rest.
#[derive(Clone, Debug)]
pub(crate) struct Effective {
    has: Set,
    taken: Vec<Taken>,
}

impl Effective {
    /// All words, narrowed by each of these in turn.
    pub(crate) fn of<'a>(bounds: impl IntoIterator<Item = &'a Bound>) -> Effective {
        let all = Capability::ALL.iter().copied().collect();
        let begun = Effective {
            has: all,
            taken: Vec::new(),
        };
        bounds.into_iter().fold(begun, Effective::narrowed)
    }

    /// The same below one bound more.
    #[must_use]
    pub(crate) fn narrowed(mut self, bound: &Bound) -> Effective {
        let left = self.has.and(bound.leaves).meaningful();
        let what = self.has.but(left);
        if !what.is_empty() {
            self.taken.push(Taken {
                what,
                by: bound.by,
                reason: Arc::clone(&bound.reason),
            });
            self.has = left;
        }
        self
    }

    /// What is there.
    pub(crate) fn has(&self) -> Set {
        self.has
    }

    /// What took a word; none where it is there.
    pub(crate) fn taken(&self, capability: Capability) -> Option<&Taken> {
        self.taken.iter().find(|taken| taken.what.has(capability))
    }

    /// Every word that is gone with what took it, in the contract's order.
    pub(crate) fn missing(&self) -> impl Iterator<Item = (Capability, &Taken)> {
        Capability::ALL
            .iter()
            .filter_map(|one| self.taken(*one).map(|taken| (*one, taken)))
    }
}

#[cfg(test)]
#[path = "capability_tests.rs"]
mod tests;

//! The one outcome of a call that did not answer, and how wasmtime's errors become it.
//!
//! Told apart by type (downcast), never by the words of a message. Which failures speak against a
//! provider, and which only against the moment, is [`Failure::blames_provider`].

use std::fmt;

use leasehold_contract::{Code, Error};
use serde::{Deserialize, Serialize};

/// Where a call was when its time ran out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Phase {
    /// It waited for its turn; the component was not reached.
    Queue,
    /// Its instance was being made; no export was called.
    Instantiate,
    /// The component was at work.
    Call,
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Phase::Queue => "queue",
            Phase::Instantiate => "instantiate",
            Phase::Call => "call",
        })
    }
}

/// Which limit a call ran into.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Limit {
    /// CPU time, without waiting.
    Cpu,
    /// All memories together.
    Memory,
    /// Elements of all tables together.
    Tables,
    /// Bytes copied in one call between component and host.
    CopiedBytes,
    /// Host resources held at once.
    Resources,
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Limit::Cpu => "cpu",
            Limit::Memory => "memory",
            Limit::Tables => "tables",
            Limit::CopiedBytes => "copied-bytes",
            Limit::Resources => "resources",
        })
    }
}

/// Why a component trapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TrapCode {
    /// A panic, an abort, an uncaught exception of its language.
    Unreachable,
    /// Its stack was used up.
    StackOverflow,
    /// It reached outside its memory or a table.
    OutOfBounds,
    /// Integer overflow, division by zero, a conversion that has no result.
    Arithmetic,
    /// A call through a pointer that is none.
    BadCall,
    /// It broke the component model's rules, or gave a value that its type does not have.
    Abi,
    /// It called `exit`, with this status.
    Exit(i32),
    /// Anything else.
    Other,
}

impl fmt::Display for TrapCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            TrapCode::Unreachable => "unreachable",
            TrapCode::StackOverflow => "stack-overflow",
            TrapCode::OutOfBounds => "out-of-bounds",
            TrapCode::Arithmetic => "arithmetic",
            TrapCode::BadCall => "bad-call",
            TrapCode::Abi => "abi",
            TrapCode::Exit(status) => return write!(f, "exit {status}"),
            TrapCode::Other => "other",
        })
    }
}

impl TrapCode {
    pub(crate) fn of(trap: wasmtime::Trap) -> TrapCode {
        use wasmtime::Trap as T;
        match trap {
            T::UnreachableCodeReached | T::UncaughtException => TrapCode::Unreachable,
            T::StackOverflow => TrapCode::StackOverflow,
            T::MemoryOutOfBounds
            | T::HeapMisaligned
            | T::TableOutOfBounds
            | T::ArrayOutOfBounds => TrapCode::OutOfBounds,
            T::IntegerOverflow | T::IntegerDivisionByZero | T::BadConversionToInteger => {
                TrapCode::Arithmetic
            }
            T::IndirectCallToNull | T::BadSignature | T::NullReference | T::CastFailure => {
                TrapCode::BadCall
            }
            T::CannotEnterComponent
            | T::CannotLeaveComponent
            | T::InvalidChar
            | T::StringOutOfBounds
            | T::ListOutOfBounds
            | T::InvalidDiscriminant
            | T::UnalignedPointer => TrapCode::Abi,
            _ => TrapCode::Other,
        }
    }
}

/// A component that wants what this host does not have, or has otherwise.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Incompatible {
    /// The import, or the export that is missing, as the component or the contract names it.
    pub import: String,
    /// What the component wants of it.
    pub wanted: String,
    /// What this host has.
    pub have: String,
    /// How to mend it.
    pub hint: Option<String>,
    /// The whole cause, outermost first; empty where there is nothing to add.
    pub causes: Vec<String>,
}

impl fmt::Display for Incompatible {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}: the component wants {}, this host has {}",
            self.import, self.wanted, self.have
        )?;
        for cause in &self.causes {
            write!(f, ": {cause}")?;
        }
        if let Some(hint) = &self.hint {
            write!(f, " ({hint})")?;
        }
        Ok(())
    }
}

impl std::error::Error for Incompatible {}

/// Why a call of a component did not answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// The provider's own error, bounded, without control characters, redacted.
    #[error(transparent)]
    Provider(Error),
    /// The component broke off.
    #[error("provider trapped ({code}){}", after_colon(message))]
    Trap {
        /// Why.
        code: TrapCode,
        /// The end of what it wrote to stderr, bounded, without control characters, redacted; may be empty.
        message: String,
    },
    /// The call's time ran out.
    #[error("time ran out ({phase}){}", unanswered(waits_for.as_deref()))]
    Timeout {
        /// Where it was.
        phase: Phase,
        /// Whom it had asked, who had not answered.
        waits_for: Option<String>,
    },
    /// The call ran into one of its limits.
    #[error("provider ran into its limit ({which}){}", after_colon(message))]
    Limit {
        /// Which.
        which: Limit,
        /// As in [`Failure::Trap`].
        message: String,
    },
    /// There was no slot for another instance, also after some tries: try again later.
    #[error("no instance is free: {0}")]
    Busy(String),
    /// The component and this host do not fit.
    #[error(transparent)]
    Incompatible(Incompatible),
    /// The component's answer breaks the contract.
    #[error("provider's answer breaks the contract: {field} {message}")]
    Answer {
        /// Which function and field, as `acquire.handle`.
        field: &'static str,
        /// What it is and what it may be.
        message: String,
    },
    /// What the host was about to pass breaks the contract; the component was not called.
    #[error("call breaks the contract: {field} {message}")]
    Argument {
        /// Which argument.
        field: &'static str,
        /// What it is and what it may be.
        message: String,
    },
    /// The host's own fault.
    #[error("host failed: {0}")]
    Host(String),
}

fn unanswered(by: Option<&str>) -> String {
    by.map_or_else(String::new, |by| {
        format!(": {by} had been asked and had not answered")
    })
}

fn after_colon(message: &str) -> String {
    if message.is_empty() {
        String::new()
    } else {
        format!(": {message}")
    }
}

impl Failure {
    /// Whether an export of the component may have run, so that something may have happened outside.
    pub fn reached_component(&self) -> bool {
        match self {
            Failure::Provider(_)
            | Failure::Trap { .. }
            | Failure::Limit { .. }
            | Failure::Answer { .. }
            | Failure::Host(_) => true,
            Failure::Timeout { phase, .. } => *phase == Phase::Call,
            Failure::Busy(_) | Failure::Incompatible(_) | Failure::Argument { .. } => false,
        }
    }

    /// Whether it is the provider's fault, and not the host's or the moment's.
    pub fn blames_provider(&self) -> bool {
        match self {
            Failure::Trap { .. } | Failure::Limit { .. } | Failure::Answer { .. } => true,
            Failure::Timeout { phase, .. } => *phase != Phase::Queue,
            Failure::Provider(e) => e.code == Code::Internal,
            Failure::Busy(_)
            | Failure::Incompatible(_)
            | Failure::Argument { .. }
            | Failure::Host(_) => false,
        }
    }

    /// Its kind in one word, for logs and metrics.
    pub fn kind(&self) -> &'static str {
        match self {
            Failure::Provider(_) => "provider",
            Failure::Trap { .. } => "trap",
            Failure::Timeout { .. } => "timeout",
            Failure::Limit { .. } => "limit",
            Failure::Busy(_) => "busy",
            Failure::Incompatible(_) => "incompatible",
            Failure::Answer { .. } => "answer",
            Failure::Argument { .. } => "argument",
            Failure::Host(_) => "host",
        }
    }
}

/// What wasmtime's error says, before the limits that the store kept are asked.
pub(crate) enum Cause {
    Trap(TrapCode),
    Limit(Limit),
    PoolFull(String),
}

/// Reads an error of an instantiation or a call.
pub(crate) fn cause_of(error: &wasmtime::Error) -> Cause {
    use wasmtime::component::ResourceTableError;

    if let Some(full) = error.downcast_ref::<wasmtime::PoolConcurrencyLimitError>() {
        return Cause::PoolFull(full.to_string());
    }
    if let Some(exit) = error.downcast_ref::<wasmtime_wasi::I32Exit>() {
        return Cause::Trap(TrapCode::Exit(exit.0));
    }
    if let Some(table) = error.downcast_ref::<ResourceTableError>() {
        return match table {
            ResourceTableError::Full => Cause::Limit(Limit::Resources),
            _ => Cause::Trap(TrapCode::Abi),
        };
    }
    if let Some(trap) = error.downcast_ref::<wasmtime::Trap>() {
        return Cause::Trap(TrapCode::of(*trap));
    }
    // wasmtime keeps this type to itself: its name, not its message, is what is left to ask. A test
    // (a list too long for a host call) fails when that changes.
    if format!("{:?}", error.root_cause()) == "HostcallFuelExhausted" {
        return Cause::Limit(Limit::CopiedBytes);
    }
    // What remains is raised while a value of the component is read: text that is not UTF-8, a
    // random buffer that is too large, a handle that it does not own.
    Cause::Trap(TrapCode::Abi)
}

/// The error and its causes, outermost first, each once.
pub(crate) fn chain(error: &wasmtime::Error) -> Vec<String> {
    let mut causes: Vec<String> = Vec::new();
    for cause in error.chain() {
        let text = cause.to_string();
        if causes.last() != Some(&text) {
            causes.push(text);
        }
    }
    causes
}

//! What only the host may decide and write: companies, tokens, plugins, secrets, environments, leases,
//! executions, activity.
//!
//! An [`Authority`] is a database and the keys that authenticate it. It runs no component and opens no
//! connection: it reaches neither wasmtime nor the network, and a test holds that. Every change is one
//! durable transaction with its activity row. Every decision by time takes the database's time in the same
//! statement. A row that decides something is authenticated by a key that lies outside the database.
//!
//! The doors are the areas: [`Authority::companies`], [`Authority::tokens`], [`Authority::plugins`],
//! [`Authority::secrets`], [`Authority::environments`], [`Authority::assignees`], [`Authority::leases`],
//! [`Authority::executions`], [`Authority::activity`], [`Authority::idempotency`].

mod activity;
mod actor;
mod assignment;
mod company;
mod environment;
mod error;
mod execution;
mod id;
mod idempotency;
mod instance;
mod keys;
mod lease;
mod name;
mod open;
mod plugin;
mod policy;
mod rekey;
mod secret;
mod store;
mod token;

pub use activity::{
    Activity, ActivityFilter, ActivityOutcome, ActivityRow, Entry, ExportCheck, ExportChecked,
    ExportedChain, ExportedRow, Head, Verified,
};
pub use actor::{Actor, ActorKind, Role};
pub use assignment::{
    Assignee, AssigneeKind, AssigneePage, AssigneePatch, Assignees, AssignmentCounts, Level, Links,
    NewAssignee, Resolution, Said, WhoseAssignment,
};
pub use company::{Companies, Company};
pub use environment::{
    ActiveRuntimeUse, BlastRadius, Defaults, Environment, EnvironmentDraft, EnvironmentDriver,
    EnvironmentFilter, EnvironmentPatch, EnvironmentSecrets, EnvironmentStatus, Environments,
    HOLDERS, LOCAL, LeaseHolder, Managed, OthersUse, SecretRef, SecretUse, StaticReferences,
};
pub use error::{Error, Result, code};
pub use execution::{Execution, ExecutionStatus, Executions, NewExecution, Outcome, Settled};
pub use idempotency::{Begun as BegunRequest, Claim, Ended, Idempotency};
pub use keys::MasterKeyError;
pub use lease::machine::{
    Activation, Effect, Event, Jitter, Proof, Refused, State, Status, backoff, step,
};
pub use lease::{
    AcquireIntent, AskedBefore, Begun, CLAIM, CallerRefs, ClockGuard, Expiry, Handling,
    JournalEntry, KeptPlace, KeptSecret, LABEL_ACQUISITION, LABEL_HOST, LABEL_LEASE, LABEL_OWNER,
    LABEL_REQUEST, Lease, LeaseFilter, LeasePage, Leases, Made, PinnedVersion, ResourceClaim,
    RunEnd, Standing, Transition, Trust, usable,
};
pub use open::{Authority, OpenError, Options};
pub use plugin::{
    Beside, Decision, Granted, NewRevision, NoKey, Plugin, Plugins, RegistryPlace, Revision,
    RevisionStanding, RevisionState, SignaturePolicy, Signed, SigningKey, Source, Unsigned,
    spelled_signature, wider,
};
pub use policy::{Denial, Operation, Scope, View, decide};
pub use rekey::Rekeyed;
pub use secret::{
    Access, AccessFilter, Accessor, EnvironmentUse, LeaseUse, MAX_VALUE, NamedSecret, NewSecret,
    PastedSecret, Pin, Resolved, Secret, SecretPurpose, SecretUses, SecretVersion, Secrets,
    Selector, UnknownPurpose, VersionStatus, env_pointer, take_pasted,
};
pub use token::{NewToken, TRUSTED, Token, Tokens};

//! The contract's words as Rust values, and the small door between components and egress.
//!
//! Everything that crosses between the crates of the host is spoken in these types: `runtime` turns
//! a component's values into them, `egress` answers in them, `authority` stores them. They mirror
//! `wit/` item by item, whose comments are the specification.
//!
//! This crate never runs a component, opens a connection or touches a database: it reaches neither
//! wasmtime, russh nor sqlx, and a test holds that.

mod call;
mod egress;
mod error;
mod formats;
mod grant;
mod http;
mod manifest;
mod observe;
mod process;
mod words;

pub use call::{Call, Command, Content, Label, LeaseRef, Purpose};
pub use egress::{CallHost, Egress, Level, Output, SshSession, Thing, Workspace};
pub use error::{Code, Error, FieldViolation};
pub use formats::{FORMATS, Formats};
pub use grant::{Ceiling, Grant, Part, covers};
pub use http::{
    Duplex, ExitSource, Framing, HttpHead, HttpLines, HttpRequest, HttpResponse, InputEnd,
    NoStream, Piece, Wiring,
};
pub use manifest::{
    Check, Claim, Creation, Credential, Driver, Expectation, Features, ImageBinding, ImageKind,
    Limits, Manifest, Mint, Operation, Request, Role, Site,
};
pub use observe::{
    Acquired, CommandState, Condition, Finding, KeptAlive, Listed, Moment, Observation, Page,
    Query, Resumed, Severity, Started,
};
pub use process::{ByteStream, Ended, Process, ProcessEvent, ProcessInput, ProcessOutput, Size};

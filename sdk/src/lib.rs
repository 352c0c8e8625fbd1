//! Write a Leasehold provider in Rust: implement [`Provider`], name what else you can do, and
//! [`provider!`] exports it as a component.
//!
//! A provider says how one kind of execution environment is made, looked at and ended. It runs as a
//! WebAssembly component with no file system, no network and no clock of its own: what it reaches, it
//! reaches through the host ([`ask`] for HTTP, [`ssh::open`] for machines), which decides, records and
//! then acts. Every call gets a fresh instance, so statics remember nothing; what a later call must be
//! told stands in the provider's *handle*.
//!
//! This crate parses configuration, handle and reference, turns statuses into errors, and writes JSON.
//! It never holds a credential: where the configuration has a field of format `secret`, the component
//! sees a placeholder, which works only where the [manifest](crate::manifest()) says.
//!
//! # The whole of a small provider
//!
//! ```
//! use leasehold_provider::*;
//! use serde::{Deserialize, Serialize};
//!
//! struct Boxes;
//!
//! #[derive(Deserialize)]
//! struct Config { endpoint: String, token: Option<String> }
//! #[derive(Serialize, Deserialize)]
//! struct Handle { id: String }
//! #[derive(Deserialize)]
//! struct Machine { id: String, state: String, #[serde(default)] labels: Vec<(String, String)> }
//!
//! fn api(c: &Call<Config>, method: &str, path: &str) -> Ask {
//!     ask(method, format!("{}/boxes{path}", c.endpoint)).bearer(c.token.as_deref())
//! }
//! fn state(name: &str) -> Condition {
//!     match name {
//!         "running" => Condition::Ready,
//!         "booting" => Condition::Starting,
//!         _ => Condition::Failed,
//!     }
//! }
//!
//! impl Provider for Boxes {
//!     type Config = Config;
//!     type Handle = Handle;
//!
//!     fn describe() -> Manifest {
//!         manifest("boxes", env!("CARGO_PKG_VERSION"))
//!             .title("Boxes")
//!             .summary("A box of boxes.example, made for each lease.")
//!             .schema(json!({
//!                 "type": "object",
//!                 "required": ["endpoint"],
//!                 "additionalProperties": false,
//!                 "properties": {
//!                     "endpoint": { "type": "string", "format": "endpoint" },
//!                     "token": { "type": "string", "format": "secret" }
//!                 }
//!             }))
//!             .credential("/token", [header("authorization", "Bearer {}")], ["/endpoint"])
//!             .operation("/endpoint", "POST", "/boxes", create("/id", Some("/labels")))
//!             .operation("/endpoint", "DELETE", "/boxes/{resource}", act())
//!             .build()
//!     }
//!
//!     fn probe(c: Call<Config>) -> Result<Vec<Finding>> {
//!         Ok(vec![finding("reach", api(&c, "GET", "").send(&[200]).map(|_| "answers"))])
//!     }
//!
//!     fn acquire(c: Call<Config>, _ttl: Option<u32>) -> Result<Acquired<Handle>> {
//!         let body = json!({ "name": c.acquisition()?, "labels": c.labels() });
//!         let made: Machine = api(&c, "POST", "").json(body).send(&[201])?.json()?;
//!         Ok(acquired(made.id.clone(), Handle { id: made.id }, "/home/box"))
//!     }
//!
//!     fn inspect(c: Call<Config>, h: Handle) -> Result<Observation> {
//!         match api(&c, "GET", &format!("/{}", h.id)).send(&[200, 404])?.found::<Machine>()? {
//!             Some(machine) => Ok(observation(state(&machine.state))),
//!             None => Ok(gone()),
//!         }
//!     }
//!
//!     fn release(c: Call<Config>, h: Handle) -> Result<()> {
//!         api(&c, "DELETE", &format!("/{}", h.id)).send(&[204, 404]).map(drop)
//!     }
//!
//!     fn list(c: Call<Config>, query: Query) -> Result<Page<Handle>> {
//!         let all: Vec<Machine> = api(&c, "GET", "").send(&[200])?.json()?;
//!         Ok(all
//!             .into_iter()
//!             .filter(|m| query.wants(&m.id, &m.labels))
//!             .map(|m| listed(m.id.clone(), Handle { id: m.id }, state(&m.state)).labels(m.labels))
//!             .collect())
//!     }
//! }
//!
//! provider!(Boxes);
//! # fn main() {}
//! ```
//!
//! Commands, files and suspension are further traits: [`Execution`], [`Files`], [`Suspension`]; name them
//! in the macro (`provider!(Boxes: execution, files)`), and only those are exported: an exported interface
//! is what the host calls a capability.
//!
//! Build with `cargo build --target wasm32-wasip2` and `crate-type = ["cdylib"]`: what comes out is the
//! component. `std::time` and the like compile and find nothing; [`host::sleep`] and [`host::remaining`]
//! are the clock.

mod answer;
pub mod bindings;
mod call;
mod error;
mod export;
pub mod host;
mod http;
mod manifest;
mod provider;
pub mod ssh;
mod streams;

pub use answer::{
    Acquired, Finding, Listed, Page, Resumed, Started, acquired, condition_message, finding, gone,
    info, listed, observation, started, warning,
};
pub use bindings::base::exports::leasehold::provider::lifecycle::{
    Claim, Condition, Driver, Features, ImageKind, KeptAlive, Limits, Manifest, Mint, Observation,
    Query, Severity,
};
pub use bindings::base::leasehold::provider::http::{Bytes, Lines, Piece};
pub use bindings::base::leasehold::provider::types::{
    Code, Content, Error, FieldViolation, Label, LeaseRef, Moment, Purpose,
};
pub use bindings::execution::exports::leasehold::provider::execution::{Command, State};
pub use call::Call;
pub use error::{Result, violation};
pub use http::{Answer, Ask, ask};
pub use manifest::{
    CheckBuilder, ManifestBuilder, absent_from, act, basic, check, create, create_child, header,
    manifest, owner_label, read, registry_auth, shared, ssh_username, status, value,
};
pub use provider::{Execution, Files, Provider, Suspension};
pub use serde_json::{Value, json};
pub use streams::{Duplex, ExitSource, Framing, InputEnd, Marks, Process, Size};

//! Done with each way in which a plugin could get at its key, at a key that is not its own, or at somebody else's room: one
//! hostile sample for each, through a whole server, over a real backend on loopback. It gets nothing.
//!
//! In each the key is a canary, and is looked for in the component's own memory in every export, its handle, its findings,
//! the log at its most talkative, every answer of the API, the database with its journal, all other files of the server,
//! the arguments and the environment of every process, and on the wire, where it stands in its header toward its endpoint and
//! nowhere else. Where commands run it is looked for while they do, on a machine reached by SSH also in all that stands there.
//!
//! | way | sample | what it got |
//! | --- | --- | --- |
//! | a server that echoes | `echo-plain` | `[redacted]`; bytes that it may not read, nor send on |
//! | the same, encoded | `echo-encoded` | `[redacted]` for each encoding that servers echo in; backwards, spaced and doubly encoded it is not recognised |
//! | split over chunks and lines | `echo-chunks` | `[redacted]`, read whole or line by line |
//! | in a trailer | `echo-trailer` | no trailer |
//! | in a status line, a header, an error, what is no HTTP | `echo-error` | `[redacted]`, or an error without it |
//! | a command that prints it | `command-teller`, `machine-teller` | refused; a payload is for the lease's own commands |
//! | a label or a variable of a room | `label-writer` | refused |
//! | another origin | `elsewhere-caller` | refused, nobody was asked |
//! | another header | `header-writer` | refused |
//! | a URL | `url-writer` | refused |
//! | an endpoint that it normalises, adds, or has by default | `endpoint-mover` | not saved; refused |
//! | somebody else's room | `room-thief`, `neighbour-thief` | refused |
//! | a schema that changes its mind | `turncoat` | refused until somebody saves the field again |
//! | a row edited in the database | `echo-plain` | detected, nothing sent |
//! | a key that the backend mints | `mint-keeper` | a placeholder, which ends with the lease |
//! | a registry's password | `registry-reader` | a placeholder; refused elsewhere |

#![allow(
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking, also in what it calls"
)]

mod den;
mod echoed;
mod edited;
mod kept;
mod machine;
mod misplaced;
mod moved;
mod neighbours;

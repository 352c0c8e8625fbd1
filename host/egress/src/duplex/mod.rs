//! Bytes both ways as processes: forwarded ports, upgraded connections and WebSockets, in every wiring that each can
//! carry.
//!
//! What a wiring asks and a transport cannot do is refused before a byte flows. Bytes go from the transport to the
//! reader with no queue between: who does not read holds the other side back. A stream under a lease ends with it,
//! whether anybody reads or not.

mod cut;
mod exit;
mod framing;
mod output;
mod port;
mod raw;
mod socket;

use std::io;

use bytes::Bytes;
use leasehold_contract::{Code, Error, InputEnd};

pub(crate) use port::Port;
pub(crate) use raw::Raw;
pub(crate) use socket::Socket;

/// Why a stream ends when its lease does.
pub(crate) const OVER: &str = "the lease is no longer active under this epoch";
/// The most bytes that a wiring may send to say that input ended.
const END_BYTES: usize = 64;

/// How a process's input is ended.
enum End {
    HalfClose,
    Bytes(Bytes),
    None,
}

impl End {
    fn of(wiring: InputEnd) -> Result<End, Error> {
        match wiring {
            InputEnd::HalfClose => Ok(End::HalfClose),
            InputEnd::None => Ok(End::None),
            InputEnd::Bytes(bytes) if (1..=END_BYTES).contains(&bytes.len()) => {
                Ok(End::Bytes(bytes.into()))
            }
            InputEnd::Bytes(_) => Err(unsupported("the bytes that end the input are 1 to 64")),
        }
    }
}

fn unsupported(what: &str) -> Error {
    Error::new(Code::Unsupported, what)
}

/// The answer to ending an input that cannot be ended.
fn endless() -> io::Error {
    io::Error::new(
        io::ErrorKind::Unsupported,
        "the input of this command cannot be ended",
    )
}

fn ended_before() -> io::Error {
    io::Error::new(io::ErrorKind::BrokenPipe, "the input was ended before")
}

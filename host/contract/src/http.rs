//! HTTP as a component asks for it and egress answers: requests, answers and upgraded connections.
//!
//! Texts are as the component gave them: nothing here is checked, decided or sent. What stands in these values on the
//! component's side of the door is placeholders, never what they stand for (invariant P8).

use std::time::Duration;

use async_trait::async_trait;

use crate::call::Content;
use crate::error::Error;
use crate::process::{ByteStream, Process};

/// A request as the component wants it (`http.request`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpRequest {
    /// In upper case.
    pub method: String,
    /// Absolute.
    pub url: String,
    /// Appended to the URL, percent-encoded by egress.
    pub query: Vec<(String, String)>,
    /// Name and value; a name may stand more than once.
    pub headers: Vec<(String, String)>,
    /// At most 8 MiB.
    pub body: Content,
    /// None: what is left of the call's time.
    pub timeout: Option<Duration>,
    /// Pointer into the answer, and the name under which later calls of the lease have the value.
    pub keep: Vec<(String, String)>,
}

/// The beginning of an answer (`http.head`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpHead {
    /// Status code, 100 to 599.
    pub status: u16,
    /// Names in lower case.
    pub headers: Vec<(String, String)>,
}

/// A whole answer (`http.response`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpResponse {
    /// Its beginning.
    pub head: HttpHead,
    /// At most 8 MiB.
    pub body: Content,
}

/// An answer that is read while it comes (`http.lines`).
#[async_trait]
pub trait HttpLines: Send {
    /// Its beginning.
    fn head(&self) -> &HttpHead;
    /// The next line, without its end; none at the end. At most 1 MiB a line.
    async fn next(&mut self) -> Result<Option<String>, Error>;
}

/// A part of a request's body (`http.piece`).
pub enum Piece {
    /// These bytes.
    Inline(Content),
    /// Bytes that the host has.
    Bytes(ByteStream),
}

impl std::fmt::Debug for Piece {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Piece::Inline(content) => f.debug_tuple("Inline").field(content).finish(),
            Piece::Bytes(_) => f.write_str("Bytes"),
        }
    }
}

/// Why there is no stream (`streams.no-stream`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoStream {
    /// The server answered something else instead of switching.
    Refused {
        /// HTTP status.
        status: u16,
        /// The beginning of the body, as text.
        body: String,
    },
    /// There was no answer, or egress lets none through.
    Failed(Error),
}

/// How a duplex carries what the process writes (`streams.framing`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Framing {
    /// One stream, of bytes or of a WebSocket's binary messages.
    Merged,
    /// Docker's 8-byte header: type and big-endian length.
    Docker,
    /// WebSocket messages whose first byte is a channel, as Kubernetes does: 0 in, 1 out, 2 err, 3 status, 4 size.
    Channels,
    /// In-band marks that switch between the two.
    Marks {
        /// What follows is standard output.
        stdout: Vec<u8>,
        /// What follows is standard error.
        stderr: Vec<u8>,
    },
}

/// How egress says that input ended (`streams.input-end`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InputEnd {
    /// Half-close; the peer goes on sending.
    HalfClose,
    /// These bytes.
    Bytes(Vec<u8>),
    /// It cannot.
    None,
}

/// Where the exit code is (`streams.exit-source`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExitSource {
    /// `execution.state-of`.
    Ask,
    /// JSON pointer into the reason of the WebSocket close frame.
    CloseReason(String),
    /// The status message of `channels`.
    StatusChannel,
}

/// What a host cannot see from outside (`streams.wiring`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wiring {
    /// How output is carried.
    pub framing: Framing,
    /// How input ends.
    pub input_end: InputEnd,
    /// Where the exit code is.
    pub exit: ExitSource,
}

/// Bytes both ways: an upgraded connection, a WebSocket or a forwarded port (`streams.duplex`).
pub trait Duplex: Send {
    /// Makes a process of it.
    ///
    /// # Errors
    /// [`crate::Code::Unsupported`] where this transport cannot carry that wiring.
    fn wire(self: Box<Self>, wiring: Wiring) -> Result<Process, Error>;
}

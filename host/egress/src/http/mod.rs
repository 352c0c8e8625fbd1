//! The wire of HTTP egress: a client of our own on hyper and rustls, HTTP/1.1 only.
//!
//! What stands in a [`Wire`] was decided before: which destination, which operation, which secrets in their sites. Here
//! it is dialled, sent and read, within deadlines and caps. The map:
//!
//! - [`Origin`] is a scheme, host and port in their one spelling; `pattern` says which origins a grant covers.
//! - `address` says which addresses are public; `reach` resolves once, checks every address and dials those checked.
//! - `tls` has trust and client identity; `pool` shares connections within one (company, plugin revision, secret
//!   version, destination, trust, identity).
//! - `exchange` sends one request and reads the answer; `body` and `answer` are the two directions of bytes; `upgrade`
//!   and `websocket` make a [`Duplex`](leasehold_contract::Duplex) of a connection.
//!
//! No redirect is followed, no proxy is taken from the environment, nothing is resolved that no `Wire` names.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use leasehold_contract::Piece;
use tokio_util::sync::CancellationToken;

use crate::secret::Secret;

pub use origin::{Host, Origin, Scheme};
pub use tls::TlsSettings;

/// A request as it goes out: checked, with every secret in its place.
pub struct Wire {
    /// Where to.
    pub destination: Destination,
    /// A token in upper case; never CONNECT or TRACE.
    pub method: String,
    /// Path and query as on the request line; begins with `/`.
    pub target: String,
    /// Name in lower case, and value. Host, Connection, Upgrade, Content-Length, Transfer-Encoding, TE and
    /// Accept-Encoding are the wire's own: given here, the request fails.
    pub headers: Vec<(String, Secret)>,
    /// What follows the head.
    pub body: Body,
    /// A header or the body holds a secret: refused over plain `http://` to anything but loopback and a Unix socket.
    pub carries_secret: bool,
}

/// Where a request goes.
#[derive(Clone)]
pub struct Destination {
    /// Scheme, host and port.
    pub origin: Origin,
    /// An endpoint that an administrator typed: any address. Else (an approved pattern): public addresses only.
    pub typed: bool,
    /// Trust and client identity of the endpoint; none: the system's roots and no identity.
    pub tls: Option<Arc<TlsSettings>>,
    /// The socket that `origin` stands in for ([`Origin::stand_in`]).
    pub unix: Option<PathBuf>,
}

/// A request's body.
#[derive(Default)]
pub enum Body {
    /// None: no Content-Length for GET, HEAD and DELETE, 0 for others.
    #[default]
    Empty,
    /// Buffered.
    Full(Bytes),
    /// Streamed in order: with Content-Length when all are inline, else chunked.
    Pieces(Vec<Piece>),
}

/// What must be equal for a connection to be shared, besides the destination, its trust and its identity.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PoolKey {
    /// Pools are never shared between companies.
    pub company: String,
    /// The installed digest with its grant.
    pub plugin_revision: String,
    /// Changes when a secret of the environment was rotated.
    pub secret_version: String,
    /// Use a connection of its own: a probe sees the destination as it is now.
    pub fresh: bool,
}

/// Bounds of one exchange, beside those of [`HttpSettings`].
#[derive(Clone, Debug, Default)]
pub struct Bounds {
    /// For everything up to the answer's head, and for the body of `send`, `upload` and `open`: what is left of the call.
    pub total: Option<Duration>,
    /// The largest body that is buffered, in bytes; none: 8 MiB.
    pub body: Option<u64>,
    /// The lease's gate: when it fires, whatever is under way ends with `cancelled`.
    pub closed: Option<CancellationToken>,
}

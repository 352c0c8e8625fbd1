//! The wire of HTTP egress: a client of our own on hyper and rustls, HTTP/1.1 only.
//!
//! What stands in a [`Wire`] was decided before: which destination, which operation, which secrets in their sites. Here
//! it is dialled, sent and read, within deadlines and caps. The map:
//!
//! - [`Origin`] is a scheme, host and port in their one spelling; [`OriginPattern`] says which origins a grant covers.
//! - `address` says which addresses are public; `reach` resolves once, checks every address and dials those checked.
//! - `tls` has trust and client identity; `pool` shares connections within one (company, plugin revision, secret
//!   version, destination, trust, identity).
//! - `exchange` sends one request; `body` and `answer` are the two directions of bytes; `upgrade` makes a
//!   [`Duplex`](leasehold_contract::Duplex) of a connection.
//!
//! No redirect is followed, no proxy is taken from the environment, nothing is resolved that no `Wire` names.

mod address;
mod answer;
mod body;
mod exchange;
mod gathered;
mod origin;
mod pool;
mod reach;
mod settings;
mod tls;
mod upgrade;

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use leasehold_contract::{Code, Duplex, Error, NoStream, Piece};
use tokio_util::sync::CancellationToken;

use crate::engine::Likeness;
use crate::pool::PoolScope;
use crate::rules::Finders;
use crate::secret::Secret;

pub use answer::{Answer, AnswerBody, Lines};
pub use origin::{Host, Origin, OriginPattern, Parsed, Scheme};
pub use reach::{Dialler, Resolver, Stream, System, UnixPeer};
pub use settings::HttpSettings;
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
#[derive(Clone, Debug)]
pub struct Destination {
    /// Scheme, host and port.
    pub origin: Origin,
    /// An endpoint that an administrator typed: any address. Else (an approved pattern): public addresses only.
    pub typed: bool,
    /// Trust and client identity of the endpoint; none: the system's roots and no identity.
    pub tls: Option<Arc<TlsSettings>>,
    /// The socket that `origin` stands in for ([`Origin::stand_in`]).
    pub unix: Option<PathBuf>,
    /// A container engine: whose it is decides whether it is reached at all ([`HostRoots`](crate::HostRoots)).
    pub engine: bool,
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
    pub body: Option<usize>,
    /// The answer's body is read after the call, as of a download: it takes no request's place meanwhile.
    pub lasting: bool,
    /// The lease's gate: when it fires, whatever is under way ends with `cancelled`.
    pub closed: Option<CancellationToken>,
}

impl fmt::Display for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.unix {
            Some(socket) => write!(f, "unix://{}", socket.display()),
            None => fmt::Display::fmt(&self.origin, f),
        }
    }
}

/// The wire with its pools. Cheap to clone; must live inside a tokio runtime.
#[derive(Clone)]
pub struct Transport {
    pools: Arc<pool::Pools>,
    likeness: Arc<Likeness>,
    finders: Arc<Finders>,
}

impl fmt::Debug for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Transport({} idle)", self.idle())
    }
}

impl Transport {
    /// A wire with these deadlines and caps, on the operating system's resolver and sockets.
    pub fn new(settings: HttpSettings) -> Transport {
        Transport::over(settings, Arc::new(System), Arc::new(System))
    }

    /// A wire on a resolver and a dialler of the caller's.
    pub fn over(
        settings: HttpSettings,
        resolver: Arc<dyn Resolver>,
        dialler: Arc<dyn Dialler>,
    ) -> Transport {
        Transport {
            pools: pool::Pools::new(settings, reach::Reach { resolver, dialler }),
            likeness: Arc::default(),
            finders: Arc::default(),
        }
    }

    /// One request; returns when the answer begins.
    ///
    /// # Errors
    /// `unavailable` when nothing was sent, `outcome-unknown` when something was and no answer came (of a GET or HEAD:
    /// `unavailable`); `permission-denied` for an address that the destination may not have; `untrusted-peer`;
    /// `unauthenticated` when the server refuses our TLS identity; `busy`; `cancelled`.
    pub async fn exchange(
        &self,
        pool: &PoolKey,
        wire: Wire,
        bounds: &Bounds,
    ) -> Result<Answer, Error> {
        let manner = exchange::Manner {
            want: match bounds.lasting {
                true => pool::Want::Stream,
                false => pool::Want::Request,
            },
            switching: Vec::new(),
        };
        let begun = exchange::begin(&self.pools, pool, wire, manner, bounds).await?;
        if begun.response.status() == http::StatusCode::SWITCHING_PROTOCOLS {
            let what = "the server switched protocols, which nobody asked for";
            return Err(crate::error::failed(
                Code::OutcomeUnknown,
                &begun.course.name,
                what,
            ));
        }
        Ok(Answer::of(begun, &self.pools, bounds))
    }

    /// Refuses a plain endpoint behind which a container engine is: asked once for each destination and identity, and again
    /// after a while. `base` is the path that the endpoint begins at; `record` writes down that it is asked, before.
    ///
    /// # Errors
    /// `permission-denied`, or that of `record`; that nobody answers is none.
    pub(crate) async fn refuse_engine(
        &self,
        pool: &PoolKey,
        to: &Destination,
        base: &str,
        bounds: &Bounds,
        record: impl Future<Output = Result<(), Error>> + Send,
    ) -> Result<(), Error> {
        self.likeness
            .check(self, pool, to, base, bounds, record)
            .await
    }

    /// HTTP/1.1 Upgrade to `protocol`, on a connection of its own.
    ///
    /// # Errors
    /// What the server answered instead of switching, or an error of [`Self::exchange`].
    pub async fn upgrade(
        &self,
        pool: &PoolKey,
        wire: Wire,
        protocol: &str,
        bounds: &Bounds,
    ) -> Result<Box<dyn Duplex>, NoStream> {
        upgrade::upgrade(&self.pools, pool, wire, protocol, bounds).await
    }

    /// A WebSocket, on a connection of its own; the wire's method and body are not used.
    ///
    /// # Errors
    /// Those of [`Self::upgrade`].
    pub async fn websocket(
        &self,
        pool: &PoolKey,
        wire: Wire,
        protocols: &[String],
        bounds: &Bounds,
    ) -> Result<Box<dyn Duplex>, NoStream> {
        upgrade::websocket(&self.pools, pool, wire, protocols, bounds).await
    }

    /// Takes connections out of the pools: idle ones close now, those in use when their work ends. For rotation,
    /// revocation and a changed grant; streams of a lease end by [`Bounds::closed`]. What looked for values is forgotten.
    pub fn close_scope(&self, scope: &PoolScope) {
        self.finders.forget();
        self.pools.close_scope(scope);
    }

    /// What looks for the values of calls, made once.
    pub(crate) fn finders(&self) -> &Arc<Finders> {
        &self.finders
    }

    /// How many connections lie idle.
    pub fn idle(&self) -> usize {
        self.pools.idle()
    }
}

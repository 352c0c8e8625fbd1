//! Deadlines and caps of HTTP, each with its reason, and the engines that may be root on this machine.

use std::time::Duration;

use crate::engine::HostRoots;

/// The largest body that is buffered, either way.
pub const BUFFERED: usize = 8 * 1024 * 1024;
/// The longest line of an answer that is read by lines.
pub const LINE: usize = 1024 * 1024;

/// How long the wire waits, how much it takes, and which engines it reaches.
#[derive(Clone, Debug)]
pub struct HttpSettings {
    /// For looking a name up and reaching an address, all of them together.
    pub connect: Duration,
    /// For the TLS handshake, which no other deadline covers: a server may take the connection and never speak.
    pub tls: Duration,
    /// From the last byte of the request to the last of the answer's head: whoever drips a head is cut off by it too.
    pub first_byte: Duration,
    /// The longest silence while a body is sent or read; waiting for our own reader or source does not count.
    pub idle: Duration,
    /// For a whole exchange whose caller gave no time.
    pub total: Duration,
    /// How long a download may keep its reader waiting, summed up: a drip of bytes escapes `idle`.
    pub transfer: Duration,
    /// Bytes of an answer's head.
    pub head_bytes: usize,
    /// Headers of a request or an answer.
    pub headers: usize,
    /// Requests under way over one pool at a time, each with its connection; others wait, and are then `busy`.
    pub connections: usize,
    /// Downloads, upgraded connections and WebSockets of one pool at a time, which may last.
    pub streams: usize,
    /// A connection that nobody used for so long is closed.
    pub keep: Duration,
    /// A request that must not be sent twice takes no connection that was idle for longer: servers close theirs after
    /// seconds (Node after 5), and who asks just then cannot know what became of it.
    pub trusted: Duration,
    /// Between pings of a WebSocket; after three without a word back it is lost.
    pub ping: Duration,
    /// The container engines that may be root on this machine: no other one is reached.
    pub host_roots: HostRoots,
}

impl Default for HttpSettings {
    fn default() -> HttpSettings {
        HttpSettings {
            connect: Duration::from_secs(10),
            tls: Duration::from_secs(10),
            first_byte: Duration::from_secs(120),
            idle: Duration::from_secs(60),
            total: Duration::from_secs(10 * 60),
            transfer: Duration::from_secs(60 * 60),
            head_bytes: 64 * 1024,
            headers: 100,
            connections: 32,
            streams: 256,
            keep: Duration::from_secs(60),
            trusted: Duration::from_secs(3),
            ping: Duration::from_secs(20),
            host_roots: HostRoots::default(),
        }
    }
}

//! Deadlines and caps of SSH, each with its reason.

use std::time::Duration;

/// How long egress waits and how much it opens.
#[derive(Clone, Debug)]
pub struct SshSettings {
    /// For the way to the server: name, TCP, banner and key exchange of all hops together.
    pub connect: Duration,
    /// For the authentication of one hop, after the key exchange.
    pub authenticate: Duration,
    /// For the answer to an opened channel or an exec request on a connection that stands.
    pub channel: Duration,
    /// A keepalive is sent after so much silence, once authenticated.
    pub keepalive: Duration,
    /// After so many unanswered keepalives the connection is lost.
    pub keepalive_max: usize,
    /// A pooled connection that nobody used for so long is closed.
    pub idle: Duration,
    /// For one of the host's own scripts (workspaces, signals, states).
    pub script: Duration,
    /// Handshakes with one target at a time: servers drop unauthenticated connections by chance from the tenth on
    /// (`MaxStartups 10:30:100`).
    pub handshakes: usize,
    /// Connections to one target at a time, of one pool; beyond it a call waits and is then `busy`.
    pub connections: usize,
}

impl Default for SshSettings {
    fn default() -> SshSettings {
        SshSettings {
            connect: Duration::from_secs(10),
            authenticate: Duration::from_secs(15),
            channel: Duration::from_secs(15),
            keepalive: Duration::from_secs(15),
            keepalive_max: 3,
            idle: Duration::from_secs(5 * 60),
            script: Duration::from_secs(60),
            handshakes: 8,
            connections: 128,
        }
    }
}

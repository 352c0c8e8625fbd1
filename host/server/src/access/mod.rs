//! Who is asking, and whether the request may be answered at all.
//!
//! Order: is it addressed to this server, does it come from a page that may, is its body of a type that a
//! page cannot send unasked, who is it. Where a connection comes from proves nothing, with one exception:
//! the kernel's word on the uid at the other end of the Unix socket. What a known caller may do is the policy's to say,
//! in `leasehold_authority`; `operations` tells it what is asked for.

mod caller;
mod dismissed;
pub mod features;
pub mod gate;
mod guarded;
pub mod hosts;
pub mod operations;
pub mod operator;
mod refused;
pub mod tickets;
pub mod watchers;

pub use caller::Caller;
pub use dismissed::Dismissed;
pub use guarded::guarded;
pub use refused::Refused;

/// What a connection says about its other end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peer {
    /// TCP, from anywhere: says nothing.
    Tcp,
    /// The Unix socket, from a process of this user, as the kernel says; none when it did not.
    Unix {
        /// The peer's effective uid when it connected.
        uid: Option<u32>,
    },
}

impl Peer {
    /// Whether the peer is a process of the server's own user, or of root.
    pub fn is_operator(self) -> bool {
        match self {
            Peer::Unix { uid: Some(uid) } => uid == 0 || uid == rustix::process::geteuid().as_raw(),
            _ => false,
        }
    }
}

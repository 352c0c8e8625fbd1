//! What russh tells us of one connection: the host key to judge, channels that closed, and why it ended.
//!
//! It refuses every channel that a server wants to open, and learns no host key that a server announces.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use russh::client::{ChannelOpenHandle, DisconnectReason, Handler, Msg, Session};
use russh::keys::PublicKeyOrCertificate;
use russh::{Channel, ChannelId, ChannelOpenFailure};
use tokio_util::sync::CancellationToken;

use crate::error::quote;
use crate::trust::{Distrust, HostTrust, ShownKey};

/// What the connection's task leaves for those who use it.
#[derive(Default)]
pub(crate) struct Shared {
    /// The key that was shown, and why it is not trusted.
    shown: Mutex<Option<(ShownKey, Option<Distrust>)>>,
    /// Why the connection ended.
    reason: Mutex<Option<String>>,
    /// Cancelled when it has ended.
    pub(crate) ended: CancellationToken,
    /// Tokens to cancel when a channel closes.
    channels: Mutex<HashMap<ChannelId, CancellationToken>>,
    banner: Mutex<String>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    pub(crate) fn shown(&self) -> Option<(ShownKey, Option<Distrust>)> {
        lock(&self.shown).clone()
    }

    /// Why the connection ended, for a person.
    pub(crate) fn reason(&self) -> String {
        lock(&self.reason)
            .clone()
            .unwrap_or_else(|| "the connection was closed".into())
    }

    /// Says why before it happens; the first to say it wins.
    pub(crate) fn because(&self, why: &str) {
        lock(&self.reason).get_or_insert_with(|| why.to_owned());
    }

    /// What the server said before authentication, bounded.
    pub(crate) fn banner(&self) -> String {
        lock(&self.banner).clone()
    }

    /// A token that is cancelled when this channel closes or the connection ends.
    pub(crate) fn watch(&self, channel: ChannelId) -> CancellationToken {
        lock(&self.channels)
            .entry(channel)
            .or_insert_with(|| self.ended.child_token())
            .clone()
    }
}

/// russh's handler of one hop.
pub(crate) struct Client {
    pub(crate) host: String,
    pub(crate) port: u16,
    pub(crate) trust: Arc<HostTrust>,
    pub(crate) shared: Arc<Shared>,
}

impl Drop for Client {
    fn drop(&mut self) {
        // The task owns the handler: when it goes, however it goes, nothing of the connection is left.
        self.shared.ended.cancel();
    }
}

async fn refuse(reply: ChannelOpenHandle) -> Result<(), russh::Error> {
    reply
        .reject(ChannelOpenFailure::AdministrativelyProhibited)
        .await;
    Ok(())
}

impl Handler for Client {
    type Error = russh::Error;

    async fn auth_banner(&mut self, banner: &str, _: &mut Session) -> Result<(), Self::Error> {
        let mut kept = lock(&self.shared.banner);
        if kept.is_empty() {
            *kept = quote(banner.as_bytes());
        }
        Ok(())
    }

    async fn check_server_key(
        &mut self,
        key: &PublicKeyOrCertificate,
    ) -> Result<bool, Self::Error> {
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |d| d.as_secs());
        let shown = ShownKey::of(&self.host, self.port, &key.public_key());
        let distrust = self.trust.judge(&self.host, self.port, key, now).err();
        let trusted = distrust.is_none();
        *lock(&self.shared.shown) = Some((shown, distrust));
        Ok(trusted)
    }

    async fn channel_close(
        &mut self,
        channel: ChannelId,
        _: &mut Session,
    ) -> Result<(), Self::Error> {
        if let Some(token) = lock(&self.shared.channels).remove(&channel) {
            token.cancel();
        }
        Ok(())
    }

    async fn disconnected(
        &mut self,
        reason: DisconnectReason<Self::Error>,
    ) -> Result<(), Self::Error> {
        let (why, result) = match reason {
            DisconnectReason::ReceivedDisconnect(info) => (
                format!(
                    "the server disconnected: {}",
                    quote(info.message.as_bytes())
                ),
                Ok(()),
            ),
            DisconnectReason::Error(e) => {
                let why = match &e {
                    russh::Error::KeepaliveTimeout => {
                        "the server stopped answering keepalives".to_owned()
                    }
                    russh::Error::HUP | russh::Error::Disconnect => {
                        "the server closed the connection".to_owned()
                    }
                    other => format!("the connection broke ({other})"),
                };
                (why, Err(e))
            }
        };
        tracing::debug!(host = %self.host, port = self.port, %why, "disconnected");
        self.shared.because(&why);
        result
    }

    async fn server_channel_open_forwarded_tcpip(
        &mut self,
        _: Channel<Msg>,
        _: &str,
        _: u32,
        _: &str,
        _: u32,
        reply: ChannelOpenHandle,
        _: &mut Session,
    ) -> Result<(), Self::Error> {
        refuse(reply).await
    }

    async fn server_channel_open_forwarded_streamlocal(
        &mut self,
        _: Channel<Msg>,
        _: &str,
        reply: ChannelOpenHandle,
        _: &mut Session,
    ) -> Result<(), Self::Error> {
        refuse(reply).await
    }

    async fn server_channel_open_agent_forward(
        &mut self,
        _: Channel<Msg>,
        reply: ChannelOpenHandle,
        _: &mut Session,
    ) -> Result<(), Self::Error> {
        refuse(reply).await
    }

    async fn server_channel_open_session(
        &mut self,
        _: Channel<Msg>,
        reply: ChannelOpenHandle,
        _: &mut Session,
    ) -> Result<(), Self::Error> {
        refuse(reply).await
    }

    async fn server_channel_open_direct_tcpip(
        &mut self,
        _: Channel<Msg>,
        _: &str,
        _: u32,
        _: &str,
        _: u32,
        reply: ChannelOpenHandle,
        _: &mut Session,
    ) -> Result<(), Self::Error> {
        refuse(reply).await
    }

    async fn server_channel_open_direct_streamlocal(
        &mut self,
        _: Channel<Msg>,
        _: &str,
        reply: ChannelOpenHandle,
        _: &mut Session,
    ) -> Result<(), Self::Error> {
        refuse(reply).await
    }

    async fn server_channel_open_x11(
        &mut self,
        _: Channel<Msg>,
        _: &str,
        _: u32,
        reply: ChannelOpenHandle,
        _: &mut Session,
    ) -> Result<(), Self::Error> {
        refuse(reply).await
    }
}

//! The end of a token, for what goes on longer than a request.
//!
//! It is watched by a task of its own: whoever waits for it may stop looking for as long as it likes, such as while a client
//! does not read, and holds nothing of the database meanwhile.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use leasehold_authority::{Actor, ActorKind};
use tokio_util::task::AbortOnDropHandle;

use super::gate;
use crate::api::errors::ApiError;
use crate::app::App;

/// Ready once the caller is nobody any more, with the refusal; never where it has no token.
pub struct Dismissed(AbortOnDropHandle<()>);

impl Dismissed {
    /// Watches from now on. What is `held` is let go once the token has ended, or this is dropped.
    pub fn watch(app: &App, actor: &Actor, held: impl Send + 'static) -> Dismissed {
        let token = match (&actor.kind, app.service_if_open()) {
            (ActorKind::Token { id, .. }, Some(service)) => {
                Some((service.authority().tokens(), id.clone()))
            }
            _ => None,
        };
        let task = tokio::spawn(async move {
            let _held = held;
            match token {
                Some((tokens, id)) => tokens.until_revoked(&id).await,
                None => std::future::pending().await,
            }
        });
        Dismissed(AbortOnDropHandle::new(task))
    }

    /// Whether it has come to that.
    pub fn is_over(&self) -> bool {
        self.0.is_finished()
    }
}

impl Future for Dismissed {
    type Output = ApiError;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<ApiError> {
        let _ = ready!(Pin::new(&mut self.0).poll(cx));
        Poll::Ready(gate::revoked())
    }
}

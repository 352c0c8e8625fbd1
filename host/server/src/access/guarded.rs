//! A body that ends with the token that it came or goes with.
//!
//! A request is admitted by its head, and its body may take as long as its sender likes: whoever is nobody in the meantime has
//! nothing done by it. Invariant: no handler sees the end of a request's body whose token was not good when it ended, and
//! nothing of an answer that streams leaves after the token ended.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use axum::BoxError;
use axum::body::{Body, Bytes};
use hyper::body::{Body as _, Frame, SizeHint};
use leasehold_authority::{Actor, ActorKind};

use super::{Dismissed, gate};
use crate::api::errors::ApiError;
use crate::app::App;

type Waiting<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// A body, and whose it is.
struct Guarded {
    body: Body,
    app: App,
    actor: Actor,
    /// Ready once the token has ended; watched from the second piece on, as most bodies have one.
    dismissed: Option<Dismissed>,
    begun: bool,
    /// The last question, once the body has ended.
    last: Option<Waiting<Result<(), ApiError>>>,
    over: bool,
}

/// The same body, for as long as the actor's token is good. What has none, and what is empty, stays as it is.
pub fn guarded(app: &App, actor: &Actor, body: Body) -> Body {
    if !matches!(actor.kind, ActorKind::Token { .. }) || body.is_end_stream() {
        return body;
    }
    Body::new(Guarded {
        body,
        app: app.clone(),
        actor: actor.clone(),
        dismissed: None,
        begun: false,
        last: None,
        over: false,
    })
}

impl hyper::body::Body for Guarded {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = &mut *self;
        if this.over {
            return Poll::Ready(None);
        }
        if let Some(last) = &mut this.last {
            let known = ready!(last.as_mut().poll(cx));
            this.over = true;
            return Poll::Ready(known.err().map(|refusal| Err(refusal.into())));
        }
        let piece = Pin::new(&mut this.body).poll_frame(cx);
        let piece = piece.map_err(axum::Error::into_inner);
        let piece = match piece {
            Poll::Ready(Some(piece)) if !this.begun => {
                this.begun = true;
                return Poll::Ready(Some(piece));
            }
            Poll::Ready(None) => Poll::Ready(None),
            other => {
                let (app, actor) = (&this.app, &this.actor);
                let dismissed = this
                    .dismissed
                    .get_or_insert_with(|| Dismissed::watch(app, actor, ()));
                if let Poll::Ready(refusal) = Pin::new(dismissed).poll(cx) {
                    this.over = true;
                    return Poll::Ready(Some(Err(refusal.into())));
                }
                other
            }
        };
        match ready!(piece) {
            None => {
                let (app, actor) = (this.app.clone(), this.actor.clone());
                this.last = Some(Box::pin(
                    async move { gate::still_known(&app, &actor).await },
                ));
                self.poll_frame(cx)
            }
            other => Poll::Ready(other),
        }
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

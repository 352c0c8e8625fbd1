//! A connection that leaves HTTP/1.1: by Upgrade to a protocol of the backend's, or to a WebSocket.
//!
//! It is new, nobody else's, and not a request's place in the pool: commands that run for hours hold no request back.

use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use hyper::upgrade::Upgraded;
use leasehold_contract::{Code, Duplex, Error, NoStream};
use sha1::{Digest, Sha1};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::timeout_at;

use super::answer::Answer;
use super::exchange::{Manner, begin};
use super::pool::{Pools, Want};
use super::{Body, Bounds, PoolKey, Wire};
use crate::duplex::{Raw, Socket};
use crate::error::{failed, quote};

/// How much of a refusal's body is told.
const REFUSAL: usize = 4 * 1024;
/// Of RFC 6455, 1.3.
const MAGIC: &[u8] = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

/// What a container engine's connection is switched to: the bare bytes of a command.
const ENGINES: &str = "tcp";

/// A connection that was switched.
struct Switched {
    io: Upgraded,
    headers: HeaderMap,
    permit: OwnedSemaphorePermit,
    name: String,
}

/// HTTP/1.1 Upgrade to `protocol`.
///
/// # Errors
/// What the server answered instead, or why there was no answer.
pub(super) async fn upgrade(
    pools: &Arc<Pools>,
    pool: &PoolKey,
    wire: Wire,
    protocol: &str,
    bounds: &Bounds,
) -> Result<Box<dyn Duplex>, NoStream> {
    if !is_token(protocol, "/") {
        return Err(NoStream::Failed(Error::new(
            Code::InvalidConfig,
            format!(
                "the protocol {:?} is not one name, or name/version",
                quote(protocol.as_bytes())
            ),
        )));
    }
    if wire.destination.engine && protocol != ENGINES {
        return Err(NoStream::Failed(failed(
            Code::PermissionDenied,
            &wire.name(),
            format_args!(
                "the engine policy: a stream is an upgrade to {ENGINES}; another protocol could carry requests past the policy"
            ),
        )));
    }
    let switching = vec![
        (header::CONNECTION, HeaderValue::from_static("Upgrade")),
        (header::UPGRADE, value(protocol)?),
    ];
    let switched = switch(pools, pool, wire, switching, protocol, bounds).await?;
    Ok(Box::new(Raw::new(
        switched.io,
        switched.permit,
        bounds.closed.clone(),
    )))
}

/// A WebSocket in one of `protocols`, or in none where none are given.
///
/// # Errors
/// Those of [`upgrade`].
pub(super) async fn websocket(
    pools: &Arc<Pools>,
    pool: &PoolKey,
    mut wire: Wire,
    protocols: &[String],
    bounds: &Bounds,
) -> Result<Box<dyn Duplex>, NoStream> {
    if let Some(bad) = protocols.iter().find(|p| !is_token(p, "")) {
        return Err(NoStream::Failed(Error::new(
            Code::InvalidConfig,
            format!("the protocol {:?} is not a name", quote(bad.as_bytes())),
        )));
    }
    wire.method = "GET".to_owned();
    wire.body = Body::Empty;
    let mut nonce = [0u8; 16];
    getrandom::fill(&mut nonce).map_err(|e| {
        NoStream::Failed(Error::new(Code::Internal, format!("no random bytes ({e})")))
    })?;
    let key = STANDARD.encode(nonce);
    let mut switching = vec![
        (header::CONNECTION, HeaderValue::from_static("Upgrade")),
        (header::UPGRADE, HeaderValue::from_static("websocket")),
        (
            header::SEC_WEBSOCKET_VERSION,
            HeaderValue::from_static("13"),
        ),
        (header::SEC_WEBSOCKET_KEY, value(&key)?),
    ];
    if !protocols.is_empty() {
        switching.push((
            header::SEC_WEBSOCKET_PROTOCOL,
            value(&protocols.join(", "))?,
        ));
    }
    let switched = switch(pools, pool, wire, switching, "websocket", bounds).await?;
    let wrong =
        |what: &str| NoStream::Failed(failed(Code::FailedPrecondition, &switched.name, what));
    let told = |name: HeaderName| switched.headers.get(name).map(HeaderValue::as_bytes);
    let mut digest = Sha1::new();
    digest.update(key.as_bytes());
    digest.update(MAGIC);
    let expected = STANDARD.encode(digest.finalize());
    if told(header::SEC_WEBSOCKET_ACCEPT) != Some(expected.as_bytes()) {
        return Err(wrong(
            "the server accepted another WebSocket than was asked for",
        ));
    }
    if told(header::SEC_WEBSOCKET_EXTENSIONS).is_some_and(|e| !e.is_empty()) {
        return Err(wrong(
            "the server uses WebSocket extensions that nobody offered",
        ));
    }
    let chosen = match told(header::SEC_WEBSOCKET_PROTOCOL) {
        None => None,
        Some(chosen) => match protocols.iter().find(|p| p.as_bytes() == chosen) {
            Some(chosen) => Some(chosen.clone()),
            None => {
                return Err(wrong(
                    "the server chose a WebSocket protocol that nobody offered",
                ));
            }
        },
    };
    let ping = pools.settings.ping;
    let closed = bounds.closed.clone();
    let socket = Socket::new(switched.io, switched.permit, chosen, ping, closed).await;
    Ok(Box::new(socket))
}

async fn switch(
    pools: &Arc<Pools>,
    pool: &PoolKey,
    wire: Wire,
    switching: Vec<(HeaderName, HeaderValue)>,
    protocol: &str,
    bounds: &Bounds,
) -> Result<Switched, NoStream> {
    let manner = Manner {
        want: Want::Stream,
        switching,
    };
    let mut begun = begin(pools, pool, wire, manner, bounds)
        .await
        .map_err(NoStream::Failed)?;
    if begun.response.status() != http::StatusCode::SWITCHING_PROTOCOLS {
        let mut answer = Answer::of(begun, pools, bounds);
        let mut body = Vec::new();
        while body.len() < REFUSAL {
            // What came of it is told, also where the rest does not come.
            match answer.body.next().await {
                Ok(Some(bytes)) => body.extend_from_slice(&bytes),
                Ok(None) | Err(_) => break,
            }
        }
        body.truncate(REFUSAL);
        return Err(NoStream::Refused {
            status: answer.head.status,
            body: String::from_utf8_lossy(&body).into_owned(),
        });
    }
    let headers = begun.response.headers().clone();
    let agreed = headers
        .get(header::UPGRADE)
        .is_some_and(|u| u.as_bytes().eq_ignore_ascii_case(protocol.as_bytes()));
    if !agreed {
        return Err(NoStream::Failed(begun.course.lost(format_args!(
            "the server switched to another protocol than {protocol}"
        ))));
    }
    let io = timeout_at(
        begun.course.until.into(),
        hyper::upgrade::on(&mut begun.response),
    )
    .await
    .ok()
    .and_then(Result::ok)
    .ok_or_else(|| {
        NoStream::Failed(
            begun
                .course
                .lost("the connection was lost while it switched"),
        )
    })?;
    let (_link, permit) = begun.turn.into_parts();
    Ok(Switched {
        io,
        headers,
        permit,
        name: begun.course.name,
    })
}

/// A token of RFC 9110, in which these may stand too.
fn is_token(text: &str, also: &str) -> bool {
    !text.is_empty()
        && text.len() <= 256
        && text.bytes().all(|b| {
            b.is_ascii_alphanumeric()
                || b"!#$%&'*+-.^_`|~".contains(&b)
                || also.as_bytes().contains(&b)
        })
}

fn value(text: &str) -> Result<HeaderValue, NoStream> {
    HeaderValue::try_from(text).map_err(|_| {
        NoStream::Failed(Error::new(
            Code::InvalidConfig,
            "a protocol's name is no value of a header",
        ))
    })
}

//! The way to the collector, over egress's own wire: its trust, its deadlines, and no redirect.
//!
//! The SDK exports on threads of its own, which wait here for what tokio does. Of what it would send go on the body, its
//! type and the exporter's name; what says who we are is put in here, from the settings alone.

use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use axum::http::header::{CONTENT_TYPE, USER_AGENT};
use bytes::Bytes;
use leasehold_egress::{
    Body, Bounds, Destination, HttpSettings, PoolKey, Secret, Transport, Wire as Sending,
};
use opentelemetry_http::{HttpClient, HttpError, Request, Response};
use tokio::sync::oneshot;

use super::EXPORT;
use crate::settings::CollectorAccess;

/// The most of a collector's answer that is read, in bytes.
const ANSWER: usize = 64 << 10;

/// The way to one collector.
#[derive(Debug)]
pub(super) struct Wire {
    runtime: tokio::runtime::Handle,
    transport: Transport,
    collector: CollectorAccess,
    failing: AtomicBool,
}

impl Wire {
    /// Must be called where tokio runs.
    pub(super) fn new(collector: CollectorAccess) -> Wire {
        Wire {
            runtime: tokio::runtime::Handle::current(),
            transport: Transport::new(HttpSettings {
                total: EXPORT,
                connections: 2,
                ..HttpSettings::default()
            }),
            collector,
            failing: AtomicBool::new(false),
        }
    }

    fn sending(&self, request: Request<Bytes>) -> Sending {
        let of_sdk = [CONTENT_TYPE, USER_AGENT].into_iter().filter_map(|name| {
            let value = request.headers().get(&name)?.to_str().ok()?;
            Some((name.as_str().to_owned(), Secret::new(value.to_owned())))
        });
        let own = &self.collector.headers;
        let named = |name: &str| own.iter().any(|(own, _)| own == name);
        let headers = of_sdk.filter(|(name, _)| !named(name));
        Sending {
            destination: Destination {
                origin: self.collector.origin.clone(),
                typed: true,
                tls: self.collector.tls.clone(),
                unix: None,
                engine: false,
            },
            method: "POST".to_owned(),
            target: request.uri().path().to_owned(),
            headers: headers.chain(own.iter().cloned()).collect(),
            body: Body::Full(request.into_body()),
            carries_secret: !own.is_empty(),
        }
    }

    /// Says in the log when it begins to fail, and when it works again.
    fn tell(&self, why: Option<String>) {
        match why {
            Some(why) => {
                if !self.failing.swap(true, Ordering::AcqRel) {
                    tracing::warn!(
                        why,
                        "the collector takes no telemetry; what it misses is lost, and nothing else is"
                    );
                }
            }
            None => {
                if self.failing.swap(false, Ordering::AcqRel) {
                    tracing::info!("the collector takes telemetry again");
                }
            }
        }
    }
}

#[async_trait]
impl HttpClient for Wire {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let (answer, answered) = oneshot::channel();
        let (transport, sending) = (self.transport.clone(), self.sending(request));
        self.runtime.spawn(async move {
            let sent = tokio::time::timeout(EXPORT, send(&transport, sending)).await;
            let _ = answer.send(sent.unwrap_or_else(|_| Err("it did not answer in time".into())));
        });
        let sent = answered
            .await
            .unwrap_or_else(|_| Err("the server has ended".into()));
        self.tell(match &sent {
            Ok(response) if response.status().is_success() => None,
            Ok(response) => Some(format!("it answered {}", response.status())),
            Err(error) => Some(error.to_string()),
        });
        sent
    }
}

async fn send(transport: &Transport, sending: Sending) -> Result<Response<Bytes>, HttpError> {
    let pool = PoolKey {
        company: "telemetry".to_owned(),
        plugin_revision: String::new(),
        secret_version: String::new(),
        fresh: false,
    };
    let bounds = Bounds {
        total: Some(EXPORT),
        body: Some(ANSWER),
        ..Bounds::default()
    };
    let answer = transport.exchange(&pool, sending, &bounds).await;
    let answer = answer.map_err(|error| error.message)?.whole().await;
    let answer = answer.map_err(|error| error.message)?;
    let body = Bytes::copy_from_slice(answer.body.as_bytes());
    let mut response = Response::new(body);
    *response.status_mut() = axum::http::StatusCode::from_u16(answer.head.status)?;
    Ok(response)
}

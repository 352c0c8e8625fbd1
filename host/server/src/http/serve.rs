//! Serves a router on the open doors until told to stop.
//!
//! A connection has a time for each request's head and for idling, and there are only so many of them per
//! door, so that a crowd on TCP never shuts the operator's socket. Told to stop, it takes no new connection,
//! lets running requests end for the grace, then drops what is left.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower::Service;

use super::linger::Lingering;
use super::listen::{Doors, tune};
use super::metrics::Metrics;
use crate::access::Peer;
use crate::settings::Limits;

/// Serves until `closing` fires and every connection has ended, or `hard` fires. Removes the socket's file.
pub async fn serve(
    doors: Doors,
    router: Router,
    limits: &Limits,
    metrics: &Metrics,
    closing: &CancellationToken,
    hard: &CancellationToken,
) {
    let tasks = TaskTracker::new();
    let connections = Connections {
        router,
        head_timeout: limits.head_timeout,
        tasks: tasks.clone(),
        metrics: metrics.clone(),
        closing: closing.clone(),
        hard: hard.clone(),
    };
    let places = |most| Arc::new(Semaphore::new(most));
    let tcp = async {
        if let Some(listener) = doors.tcp {
            accept_tcp(listener, &connections, places(limits.connections)).await;
        }
    };
    let unix = accept_unix(doors.unix, &connections, places(limits.connections));
    tokio::join!(tcp, unix);
    // The listeners are closed: a new server can take the doors while this one ends.
    if let Err(e) = std::fs::remove_file(&doors.path) {
        tracing::debug!(error = %e, "the socket's file was not there to remove");
    }
    tasks.close();
    tokio::select! {
        () = tasks.wait() => {}
        () = hard.cancelled() => {}
    }
}

#[derive(Clone)]
struct Connections {
    router: Router,
    head_timeout: Duration,
    tasks: TaskTracker,
    metrics: Metrics,
    closing: CancellationToken,
    hard: CancellationToken,
}

/// How long to wait when the kernel has no file descriptor to give.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

async fn accept_tcp(listener: TcpListener, connections: &Connections, places: Arc<Semaphore>) {
    loop {
        let accepted = async {
            let place = places.clone().acquire_owned().await;
            (place, listener.accept().await)
        };
        let (place, accepted) = tokio::select! {
            biased;
            () = connections.closing.cancelled() => return,
            both = accepted => both,
        };
        match accepted {
            Ok((stream, _)) => {
                tune(&stream);
                connections.spawn(stream, Peer::Tcp, place);
            }
            Err(e) => pause(&e).await,
        }
    }
}

async fn accept_unix(listener: UnixListener, connections: &Connections, places: Arc<Semaphore>) {
    loop {
        let accepted = async {
            let place = places.clone().acquire_owned().await;
            (place, listener.accept().await)
        };
        let (place, accepted) = tokio::select! {
            biased;
            () = connections.closing.cancelled() => return,
            both = accepted => both,
        };
        match accepted {
            Ok((stream, _)) => {
                let uid = stream.peer_cred().ok().map(|cred| cred.uid());
                connections.spawn(stream, Peer::Unix { uid }, place);
            }
            Err(e) => pause(&e).await,
        }
    }
}

async fn pause(error: &std::io::Error) {
    tracing::warn!(%error, "a connection could not be accepted");
    tokio::time::sleep(ACCEPT_PAUSE).await;
}

impl Connections {
    fn spawn<S, P>(&self, stream: S, peer: Peer, place: P)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
        P: Send + 'static,
    {
        let this = self.clone();
        self.tasks.spawn(async move {
            let _place = place;
            let _counted = this.metrics.connection();
            let router = this.router;
            let service = service_fn(move |request: hyper::Request<Incoming>| {
                let mut request: Request = request.map(Body::new);
                request.extensions_mut().insert(peer);
                let mut router = router.clone();
                async move {
                    let response: Result<_, Infallible> = router.call(request).await;
                    response
                }
            });
            let connection = http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(this.head_timeout)
                .max_buf_size(64 << 10)
                .serve_connection(TokioIo::new(Lingering::new(stream)), service)
                .with_upgrades();
            let mut connection = std::pin::pin!(connection);
            let mut told = false;
            loop {
                tokio::select! {
                    ended = connection.as_mut() => {
                        if let Err(e) = ended {
                            tracing::debug!(error = %e, "a connection ended early");
                        }
                        return;
                    }
                    () = this.closing.cancelled(), if !told => {
                        told = true;
                        connection.as_mut().graceful_shutdown();
                    }
                    () = this.hard.cancelled() => return,
                }
            }
        });
    }
}

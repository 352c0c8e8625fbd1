//! What every request can reach: the service once it is open, and the little that is there before it.
//!
//! The server answers `/healthz` as soon as it listens, while the service is still opening; until then
//! everything else that needs it is refused as *not ready*.

use std::sync::{Arc, OnceLock};

use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::access::features::Features;
use crate::access::hosts::HostRules;
use crate::access::operations::Operations;
use crate::access::operator::OperatorToken;
use crate::access::tickets::Tickets;
use crate::access::watchers::Watchers;
use crate::api::errors::{ApiError, ErrorCode};
use crate::http::metrics::Metrics;
use crate::service::Service;
use crate::settings::Limits;

/// Shared by all requests; cheap to clone.
#[derive(Clone)]
pub struct App(Arc<Inner>);

struct Inner {
    limits: Limits,
    hosts: HostRules,
    operator: OperatorToken,
    operations: Operations,
    features: Features,
    tickets: Tickets,
    service: OnceLock<Service>,
    metrics: Metrics,
    closing: CancellationToken,
    streams: TaskTracker,
    strangers: Arc<Semaphore>,
    watchers: Watchers,
    listening: Option<std::net::SocketAddr>,
}

/// What a request is admitted by.
pub struct Admission {
    /// The local operator's token.
    pub operator: OperatorToken,
    /// What each route is to the policy.
    pub operations: Operations,
    /// What is switched on.
    pub features: Features,
}

impl App {
    /// An application without a service yet. `listening` is the TCP address that was bound, if any.
    pub fn new(
        limits: Limits,
        allowed_hosts: &[String],
        listening: Option<std::net::SocketAddr>,
        admission: Admission,
        closing: CancellationToken,
    ) -> App {
        let Admission {
            operator,
            operations,
            features,
        } = admission;
        let strangers = Arc::new(Semaphore::new(limits.unauthenticated_streams));
        App(Arc::new(Inner {
            hosts: HostRules::new(allowed_hosts, listening.map(|a| a.port())),
            limits,
            operator,
            operations,
            features,
            tickets: Tickets::default(),
            service: OnceLock::new(),
            metrics: Metrics::new(),
            closing,
            streams: TaskTracker::new(),
            strangers,
            watchers: Watchers::default(),
            listening,
        }))
    }

    /// The service is open from here on.
    pub fn set_service(&self, service: Service) {
        // A second one would be a mistake of the caller; the first stays.
        let _ = self.0.service.set(service);
    }

    /// The service, or that it is not there yet or no longer.
    pub fn service(&self) -> Result<&Service, ApiError> {
        if self.0.closing.is_cancelled() {
            return Err(ApiError::new(
                ErrorCode::ShuttingDown,
                "the server is being stopped",
            ));
        }
        self.0.service.get().ok_or_else(|| {
            let mut error = ApiError::new(
                ErrorCode::NotReady,
                "the server is still starting; ask /readyz until it answers 200",
            );
            error.retry_after = Some(1);
            error
        })
    }

    /// The service whatever the server is doing, for health and metrics.
    pub fn service_if_open(&self) -> Option<&Service> {
        self.0.service.get()
    }

    /// How much the server takes.
    pub fn limits(&self) -> &Limits {
        &self.0.limits
    }

    /// Its names.
    pub fn hosts(&self) -> &HostRules {
        &self.0.hosts
    }

    /// The local operator's token.
    pub fn operator(&self) -> &OperatorToken {
        &self.0.operator
    }

    /// What each route is to the policy.
    pub fn operations(&self) -> &Operations {
        &self.0.operations
    }

    /// What is switched on.
    pub fn features(&self) -> Features {
        self.0.features
    }

    /// One-use tickets.
    pub fn tickets(&self) -> &Tickets {
        &self.0.tickets
    }

    /// What is counted.
    pub fn metrics(&self) -> &Metrics {
        &self.0.metrics
    }

    /// Fires when the server was told to stop.
    pub fn closing(&self) -> &CancellationToken {
        &self.0.closing
    }

    /// The streams that outlive their request; the server waits for them when it stops.
    pub fn streams(&self) -> &TaskTracker {
        &self.0.streams
    }

    /// Places for WebSockets that have not yet said who they are.
    pub fn strangers(&self) -> &Arc<Semaphore> {
        &self.0.strangers
    }

    /// Places for those who follow the activity.
    pub fn watchers(&self) -> &Watchers {
        &self.0.watchers
    }

    /// The TCP address that is listened on.
    pub fn listening(&self) -> Option<std::net::SocketAddr> {
        self.0.listening
    }
}

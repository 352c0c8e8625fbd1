//! Alive, ready, and what is counted.

use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::errors::ApiError;
use crate::access::Caller;
use crate::app::App;
use crate::figures::{self, Reading};

/// How the server is.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Health {
    /// `alive`, `ready`, `starting` or `stopping`
    status: &'static str,
    /// The server's version.
    version: &'static str,
    /// The TCP address that it listens on, if it does.
    listen: Option<String>,
}

impl Health {
    fn new(status: &'static str, app: &App) -> Health {
        Health {
            status,
            version: env!("CARGO_PKG_VERSION"),
            listen: app.listening().map(|address| address.to_string()),
        }
    }
}

/// The routes.
pub fn router() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(healthz))
        .routes(routes!(readyz))
        .routes(routes!(metrics))
}

/// Tell that the server is alive
///
/// 200 as soon as it listens.
#[utoipa::path(get, path = "/healthz", operation_id = "healthz", tag = "health", security(()),
    responses((status = 200, description = "It is alive", body = Health)))]
async fn healthz(State(app): State<App>) -> axum::Json<Health> {
    axum::Json(Health::new("alive", &app))
}

/// Tell whether the server is ready
///
/// 200 once everything that was stored is loaded and what was interrupted is taken up again; 503 before, and
/// while it is being stopped.
#[utoipa::path(get, path = "/readyz", operation_id = "readyz", tag = "health", security(()),
    responses(
        (status = 200, description = "It is ready", body = Health),
        (status = 503, description = "It is starting or being stopped", body = Health)))]
async fn readyz(State(app): State<App>) -> (StatusCode, axum::Json<Health>) {
    let (status, word) = if app.closing().is_cancelled() {
        (StatusCode::SERVICE_UNAVAILABLE, "stopping")
    } else if app
        .service_if_open()
        .is_some_and(|service| service.is_ready())
    {
        (StatusCode::OK, "ready")
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, "starting")
    };
    (status, axum::Json(Health::new(word, &app)))
}

/// Read the metrics
///
/// In the text format that Prometheus reads.
#[utoipa::path(get, path = "/metrics", operation_id = "metrics", tag = "health",
    responses((status = 200, description = "The metrics", body = String, content_type = "application/openmetrics-text")))]
async fn metrics(State(app): State<App>, caller: Caller) -> Result<Response, ApiError> {
    caller.sees_all()?;
    let service = Some(app.service()?.stats().await?);
    let http = app.metrics().read();
    let mut text = String::with_capacity(32 << 10);
    figures::write(&Reading { http, service }, &mut text);
    let head = [(
        header::CONTENT_TYPE,
        "application/openmetrics-text; version=1.0.0; charset=utf-8",
    )];
    Ok((head, text).into_response())
}

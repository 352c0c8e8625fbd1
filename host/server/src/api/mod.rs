//! The HTTP API: a file per subject, one shape of errors, one OpenAPI description that is made of the routes.
//!
//! Handlers read a request, ask `access` whether the caller may, and the authority or the service to do it.
//! They decide nothing about leases and hold no state.

pub mod accesses;
pub mod activity;
pub mod activity_chain;
pub mod activity_stream;
pub mod assignments;
pub mod body;
pub mod capabilities;
pub mod choosing;
pub mod companies;
pub mod deletion;
pub mod environments;
pub mod errors;
pub mod executions;
pub mod files;
pub mod health;
pub mod ids;
pub mod if_match;
pub mod instance;
pub mod leases;
pub mod names;
pub mod once;
pub mod openapi;
pub mod pages;
pub mod plugin_views;
pub mod plugins;
pub mod probe;
pub mod progress;
pub mod refusal;
pub mod secrets;
pub mod select;
pub mod stream;
pub mod time;
pub mod tokens;

use axum::Router;
use axum::http::Uri;
use axum::middleware;
use axum::routing::get;

use crate::access::gate;
use crate::access::operations::{NoRule, Operations};
use crate::app::App;
use errors::{ApiError, ErrorCode, shown};

/// What each route is to the policy.
///
/// # Errors
/// A route without a rule.
pub fn operations() -> Result<Operations, NoRule> {
    Operations::of(openapi::routes().get_openapi())
}

/// Every route behind the gate.
pub fn router(app: App) -> Router {
    let (routes, document) = openapi::routes().split_for_parts();
    let document = openapi::finish(document);
    routes
        .route(
            "/api/openapi.json",
            get(move || openapi::serve(document.clone())),
        )
        .fallback(no_route)
        .method_not_allowed_fallback(no_method)
        .layer(middleware::from_fn_with_state(app.clone(), once::pass))
        .layer(middleware::from_fn(if_match::pass))
        .layer(middleware::from_fn_with_state(app.clone(), gate::pass))
        .with_state(app)
}

async fn no_route(uri: Uri) -> ApiError {
    ApiError::new(
        ErrorCode::RouteNotFound,
        format!("the API has no path `{}`", shown(uri.path())),
    )
}

async fn no_method() -> ApiError {
    ApiError::new(
        ErrorCode::MethodNotAllowed,
        "this path does not know the method; the Allow header lists those it knows",
    )
}

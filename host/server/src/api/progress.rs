//! What work that goes on says of itself: on a lease, and of whatever a caller gave a name to.
//!
//! Only ever the last line, only while the work goes on, and of named work only to the caller that named it.

use axum::extract::State;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::body::Id;
use super::errors::{ApiError, shown};
use super::time::Time;
use crate::access::Caller;
use crate::app::App;
use crate::service::Progress;

/// The latest line of work that goes on.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Progress)]
pub struct ProgressView {
    /// One line for people; the provider's own words, or the server's.
    text: String,
    /// When it was said.
    at: Time,
}

impl From<Progress> for ProgressView {
    fn from(progress: Progress) -> ProgressView {
        ProgressView {
            text: progress.text,
            at: progress.at.into(),
        }
    }
}

/// Work that goes on.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Work)]
pub struct WorkView {
    /// The lease that it works on, once there is one.
    lease_id: Option<String>,
    /// What it said last.
    progress: Option<ProgressView>,
}

/// What the caller calls the work that it asks for.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
#[into_params(parameter_in = Query)]
pub struct ProgressQuery {
    /// A name of your choice, 1 to 64 of `A-Za-z0-9._-`: while the work goes on, `GET /api/progress/{progressId}` says how
    /// it stands.
    progress_id: Option<String>,
}

impl ProgressQuery {
    /// Of a route that has more in its query.
    pub fn of(progress_id: Option<String>) -> ProgressQuery {
        ProgressQuery { progress_id }
    }

    /// The name, if one was given.
    pub fn checked(self) -> Result<Option<String>, ApiError> {
        let good = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
        match self.progress_id {
            Some(id) if id.is_empty() || id.len() > 64 || !id.chars().all(good) => {
                Err(ApiError::field(
                    "?progressId",
                    format!(
                        "`{}` is not a name for work; give 1 to 64 of A-Za-z0-9._-",
                        shown(&id)
                    ),
                ))
            }
            given => Ok(given),
        }
    }
}

/// The routes.
pub fn router() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(get))
}

/// Tell how work stands that goes on
///
/// Of an acquire or a probe that this very caller gave a `progressId`. 404 before it begins and after it ends.
#[utoipa::path(get, path = "/api/progress/{progressId}", operation_id = "getProgress", tag = "leases",
    params(("progressId" = String, Path, description = "The name that the caller gave the work")),
    responses((status = 200, description = "The work", body = WorkView)))]
async fn get(
    State(app): State<App>,
    caller: Caller,
    Id(id): Id,
) -> Result<axum::Json<WorkView>, ApiError> {
    let watched = app
        .service()?
        .watched(&caller, &id)
        .ok_or_else(|| ApiError::not_found("work that goes on of the name", &id))?;
    Ok(axum::Json(WorkView {
        lease_id: watched.lease,
        progress: watched.progress.map(Into::into),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_for_work_is_short_and_plain() {
        let checked = |id: &str| {
            ProgressQuery {
                progress_id: Some(id.to_owned()),
            }
            .checked()
        };
        assert!(checked("a.B-3_").is_ok());
        for bad in ["", "a/b", "é", &"x".repeat(65)] {
            assert!(checked(bad).is_err(), "{bad}");
        }
    }
}

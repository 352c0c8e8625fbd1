//! Selection: what can do what a lease needs, the best first, and of every other why not. Reads, and decides nothing of
//! its own; nothing is leased, started or reached by it.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::State;
use leasehold_authority::{EnvironmentDriver, View};
use leasehold_contract::FieldViolation;
use serde::{Deserialize, Serialize, Serializer};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::body::{Id, Json, Query};
use super::errors::{ApiError, shown};
use crate::access::Caller;
use crate::app::App;
use crate::service::{
    Candidate, Capability, Excluded, Lack, Platform, Requirement, Selection, Set,
};

/// Capabilities in one list at most: more than there are.
const NAMES: usize = 64;
/// Labels at most.
const LABELS: usize = 64;
/// Bytes of a text at most.
const TEXT: usize = 200;
/// Candidates that are listed where nothing else was asked for.
const LISTED: u32 = 100;

/// What is needed of an environment.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct RequirementBody {
    /// Capabilities without which it is none, such as `execution` or `files`.
    #[serde(default)]
    required: Vec<String>,
    /// Capabilities with more of which it is the better.
    #[serde(default)]
    preferred: Vec<String>,
    /// What it must have been measured to be. No probe of this version records it, so nothing has one.
    platform: Option<PlatformBody>,
    /// That a lease of it can be had again: the capability `reuse`.
    #[serde(default)]
    reuse: bool,
    /// What the environment's `metadata.labels` must say, each letter by letter.
    #[serde(default)]
    labels: BTreeMap<String, String>,
    /// `local`, `ssh`, `sandbox` or `plugin`
    driver: Option<String>,
    /// The provider's key.
    provider: Option<String>,
}

/// A platform; what is not said is any.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
#[schema(as = Platform)]
pub struct PlatformBody {
    /// Such as `linux`.
    os: Option<String>,
    /// Such as `x86_64`.
    architecture: Option<String>,
    /// Such as `glibc`.
    libc: Option<String>,
}

/// How much of the answer.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
#[into_params(parameter_in = Query)]
pub struct SelectQuery {
    /// At most this many candidates, 1 to 10000; 100 without. All of them are counted.
    limit: Option<u32>,
}

/// Something that an environment does not have.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Lack)]
pub struct LackView {
    /// A capability; or `platform`, `label`, `driver`, `provider`: a condition
    what: &'static str,
    /// The term that took it: `exports`, `features`, `host`, `grant`, `configuration`, `health`; of a condition
    /// `qualification`, `labels`, `driver`, `provider`
    by: &'static str,
    /// For a person. Not told to agents.
    #[serde(serialize_with = "as_text")]
    #[schema(value_type = Option<String>)]
    reason: Option<Arc<str>>,
}

/// A reason that thousands of environments share is written, not copied.
fn as_text<S: Serializer>(reason: &Option<Arc<str>>, to: S) -> Result<S::Ok, S::Error> {
    reason.as_deref().serialize(to)
}

/// An environment that can do it.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Candidate)]
pub struct CandidateView {
    /// `env_…`
    environment_id: String,
    /// Not told to agents.
    name: Option<String>,
    /// `ssh`, `sandbox` or `plugin`. Not told to agents.
    driver: Option<&'static str>,
    /// The provider's key. Not told to agents.
    provider: Option<String>,
    /// All that it can do.
    capabilities: Vec<&'static str>,
    /// Which of the preferred.
    preferred: Vec<&'static str>,
    /// Which of the preferred not, and why.
    lacks: Vec<LackView>,
    /// Whether a lease has it for itself now: it comes after those that are free.
    in_use: bool,
}

/// An environment that cannot.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Excluded)]
pub struct ExcludedView {
    /// `env_…`
    environment_id: String,
    /// Not told to agents.
    name: Option<String>,
    /// One at least.
    lacks: Vec<LackView>,
}

/// Every environment of the company, in one of two lists.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Selection)]
pub struct SelectionView {
    /// The best first: those that no lease has for itself, those with more of the preferred capabilities, by name.
    candidates: Vec<CandidateView>,
    /// How many candidates there are, listed or not.
    candidate_count: usize,
    /// All others, by name.
    excluded: Vec<ExcludedView>,
}

/// The routes.
pub fn router() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(select))
}

fn names(set: Set) -> Vec<&'static str> {
    set.iter().map(Capability::as_str).collect()
}

/// As far as the caller sees it.
pub(crate) fn lacks(all: Vec<Lack>, view: View) -> Vec<LackView> {
    let all = all.into_iter().map(|lack| LackView {
        what: lack.what,
        by: lack.by,
        reason: (view != View::Safe).then_some(lack.reason),
    });
    all.collect()
}

impl CandidateView {
    fn seen(one: Candidate, view: View) -> CandidateView {
        let told = view != View::Safe;
        CandidateView {
            environment_id: one.environment_id,
            name: told.then_some(one.name),
            driver: told.then_some(one.driver.as_str()),
            provider: told.then_some(one.provider),
            capabilities: names(one.capabilities),
            preferred: names(one.preferred),
            lacks: lacks(one.lacks, view),
            in_use: one.in_use,
        }
    }
}

impl ExcludedView {
    /// Each as far as the caller sees it: who is told what is safe hears of what may be assigned alone.
    pub(crate) fn seen(all: Vec<Excluded>, view: View) -> Vec<ExcludedView> {
        all.into_iter()
            .filter(|one| view != View::Safe || one.assignable)
            .map(|one| ExcludedView {
                environment_id: one.environment_id,
                name: (view != View::Safe).then_some(one.name),
                lacks: lacks(one.lacks, view),
            })
            .collect()
    }
}

impl SelectionView {
    fn seen(selection: Selection, view: View, limit: u32) -> SelectionView {
        let candidates = selection.candidates.into_iter();
        SelectionView {
            candidate_count: candidates.len(),
            candidates: candidates
                .take(limit as usize)
                .map(|one| CandidateView::seen(one, view))
                .collect(),
            excluded: ExcludedView::seen(selection.excluded, view),
        }
    }
}

/// What is wrong with a requirement, all at once.
struct Reading<'a> {
    at: &'a str,
    violations: Vec<FieldViolation>,
}

impl Reading<'_> {
    fn wrong(&mut self, field: &str, message: impl Into<String>) {
        self.violations.push(FieldViolation {
            pointer: format!("{}/{field}", self.at),
            message: message.into(),
        });
    }

    fn set(&mut self, field: &str, names: &[String]) -> Set {
        if names.len() > NAMES {
            self.wrong(
                field,
                format!("has {} names; give at most {NAMES}", names.len()),
            );
            return Set::EMPTY;
        }
        let mut set = Set::EMPTY;
        for (at, name) in names.iter().enumerate() {
            match Capability::parse(name) {
                Some(capability) => set = set.with(capability),
                None => {
                    let known: Vec<&str> = Capability::ALL.iter().map(|c| c.as_str()).collect();
                    let message = format!(
                        "`{}` is no capability; those are {}",
                        shown(name),
                        known.join(", ")
                    );
                    self.wrong(&format!("{field}/{at}"), message);
                }
            }
        }
        set
    }

    fn text(&mut self, field: &str, text: Option<&String>) {
        if let Some(text) = text
            && (text.is_empty() || text.len() > TEXT || text.chars().any(char::is_control))
        {
            let message = format!("must be 1 to {TEXT} bytes without control characters");
            self.wrong(field, message);
        }
    }
}

impl RequirementBody {
    /// What it says. `at` is where it stands in what was sent.
    ///
    /// # Errors
    /// 422 with every field that is wrong.
    pub(crate) fn requirement(self, at: &str) -> Result<Requirement, ApiError> {
        let mut reading = Reading {
            at,
            violations: Vec::new(),
        };
        let required = reading.set("required", &self.required);
        let preferred = reading.set("preferred", &self.preferred);
        let driver = self.driver.as_deref().and_then(EnvironmentDriver::parse);
        if let (Some(named), None) = (&self.driver, driver) {
            let message = format!(
                "`{}` is not known; it is one of local, ssh, sandbox, plugin",
                shown(named)
            );
            reading.wrong("driver", message);
        }
        reading.text("provider", self.provider.as_ref());
        if self.labels.len() > LABELS {
            let message = format!("has {} labels; give at most {LABELS}", self.labels.len());
            reading.wrong("labels", message);
        }
        for (name, value) in &self.labels {
            let field = format!("labels/{}", name.replace('~', "~0").replace('/', "~1"));
            reading.text(&field, Some(name));
            if value.len() > TEXT {
                reading.wrong(&field, format!("must be at most {TEXT} bytes"));
            }
        }
        let platform = self.platform.map(|platform| {
            reading.text("platform/os", platform.os.as_ref());
            reading.text("platform/architecture", platform.architecture.as_ref());
            reading.text("platform/libc", platform.libc.as_ref());
            Platform {
                os: platform.os,
                architecture: platform.architecture,
                libc: platform.libc,
            }
        });
        // What is not said is any, and nothing is said here.
        let platform = platform.filter(|platform| *platform != Platform::default());
        if !reading.violations.is_empty() {
            return Err(ApiError::violations(reading.violations));
        }
        Ok(Requirement {
            required,
            preferred,
            platform,
            reuse: self.reuse,
            labels: self.labels,
            driver,
            provider: self.provider,
        })
    }
}

/// Choose environments by what they can do
///
/// Nothing is leased, started or reached by asking. Agents are told ids, capabilities and terms alone.
#[utoipa::path(post, path = "/api/companies/{companyId}/environments/select", operation_id = "selectEnvironment", tag = "environments",
    params(("companyId" = String, Path, description = "The company's id"), SelectQuery),
    request_body = RequirementBody,
    responses((status = 200, description = "Candidates, the best first, and why each other is none", body = SelectionView)))]
async fn select(
    State(app): State<App>,
    caller: Caller,
    Id(company): Id,
    Query(query): Query<SelectQuery>,
    Json(body): Json<RequirementBody>,
) -> Result<axum::Json<SelectionView>, ApiError> {
    let view = caller.sees_company(&company)?;
    let limit = match query.limit {
        None => LISTED,
        Some(limit @ 1..=10_000) => limit,
        Some(other) => {
            let message = format!("is {other}; it is a number from 1 to 10000");
            return Err(ApiError::field("?limit", message));
        }
    };
    let requirement = body.requirement("")?;
    let selection = app.service()?.select(&company, &requirement).await?;
    Ok(axum::Json(SelectionView::seen(selection, view, limit)))
}

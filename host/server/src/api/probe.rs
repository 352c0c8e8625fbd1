//! Probes: does this environment work? Of a saved one, of a draft, and the host key that a machine shows.

use axum::extract::State;
use leasehold_contract::Severity;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::body::{Id, Json, Query};
use super::environments::EnvironmentDraftBody;
use super::errors::ApiError;
use super::progress::ProgressQuery;
use crate::access::Caller;
use crate::app::App;
use crate::service::{HostKeyShown, ProbeReport};

/// What a probe found. A probe that fails is an answer too: `ok` says it, and a finding says why.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = ProbeReport)]
pub struct ProbeView {
    /// Whether leases would work, as far as a probe can tell.
    ok: bool,
    /// For which company it was.
    company_id: String,
    /// `local`, `ssh`, `sandbox` or `plugin`
    driver: String,
    /// The provider's key.
    provider: String,
    /// One sentence that names the target.
    summary: String,
    details: ProbeDetails,
    /// Whether this probe wrote a platform qualification.
    platform_qualification_recorded: bool,
    /// Why, or why not.
    platform_qualification_note: String,
}

/// The probe, step by step.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProbeDetails {
    findings: Vec<FindingView>,
    /// The whole probe.
    duration_ms: u64,
    /// The lease that the probe of a sandbox took and released.
    lease_id: Option<String>,
}

/// One step of a probe.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Finding)]
pub struct FindingView {
    /// Stable, such as `host-key`.
    step: String,
    /// `info`, `warning` or `failure`
    severity: &'static str,
    message: String,
    duration_ms: Option<u32>,
}

impl From<ProbeReport> for ProbeView {
    fn from(report: ProbeReport) -> ProbeView {
        let findings = report.findings.into_iter().map(|finding| FindingView {
            step: finding.step,
            severity: match finding.severity {
                Severity::Info => "info",
                Severity::Warning => "warning",
                Severity::Failure => "failure",
            },
            message: finding.message,
            duration_ms: finding.duration,
        });
        ProbeView {
            ok: report.ok,
            company_id: report.company,
            driver: report.driver,
            provider: report.provider,
            summary: report.summary,
            details: ProbeDetails {
                findings: findings.collect(),
                duration_ms: report.duration_ms,
                lease_id: report.lease,
            },
            platform_qualification_recorded: report.platform_qualification_recorded,
            platform_qualification_note: report.qualification_note,
        }
    }
}

/// For which company a saved environment is probed.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
#[into_params(parameter_in = Query)]
pub struct ProbeQuery {
    /// Of one that all companies share: which; left out where there is only one. Of a company's own: that company.
    company_id: Option<String>,
    /// What you call this work, to ask `/api/progress/…` how it stands.
    progress_id: Option<String>,
}

/// A machine.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct HostKeyQuestion {
    /// Name or address.
    host: String,
    #[serde(default = "ssh_port")]
    #[schema(default = 22)]
    port: u16,
}

fn ssh_port() -> u16 {
    22
}

/// The key that an SSH server shows now. Nothing says that it is the right one: compare the fingerprint.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = HostKey)]
pub struct HostKeyView {
    /// `SHA256:…`, for `hostKeys.fingerprints`
    fingerprint: String,
    /// Such as `ssh-ed25519`.
    algorithm: String,
    /// For `hostKeys.knownHosts`.
    known_hosts_line: String,
}

impl From<HostKeyShown> for HostKeyView {
    fn from(shown: HostKeyShown) -> HostKeyView {
        HostKeyView {
            fingerprint: shown.fingerprint,
            algorithm: shown.algorithm,
            known_hosts_line: shown.known_hosts_line,
        }
    }
}

/// The routes.
pub fn router() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(saved))
        .routes(routes!(draft))
        .routes(routes!(host_key))
}

/// Probe a saved environment
///
/// For one company. Over a fresh connection; changes nothing on an SSH target. 200 whether it works or not.
#[utoipa::path(post, path = "/api/environments/{environmentId}/probe", operation_id = "probeEnvironment", tag = "probes",
    params(("environmentId" = String, Path, description = "The environment's id"), ProbeQuery),
    responses((status = 200, description = "What was found", body = ProbeView)))]
async fn saved(
    State(app): State<App>,
    caller: Caller,
    Id(id): Id,
    Query(named): Query<ProbeQuery>,
) -> Result<axum::Json<ProbeView>, ApiError> {
    let company = named.company_id;
    let progress_id = ProgressQuery::of(named.progress_id).checked()?;
    let report = app
        .service()?
        .probe(&caller, &id, company.as_deref(), progress_id.as_deref())
        .await?;
    Ok(axum::Json(report.into()))
}

/// Probe an environment before it is saved
///
/// Never leases and never qualifies. 200 whether it works or not.
#[utoipa::path(post, path = "/api/companies/{companyId}/environments/probe-config", operation_id = "probeDraft", tag = "probes",
    params(("companyId" = String, Path, description = "The company's id"), ProgressQuery),
    request_body = EnvironmentDraftBody,
    responses((status = 200, description = "What was found", body = ProbeView)))]
async fn draft(
    State(app): State<App>,
    caller: Caller,
    Id(company): Id,
    Query(named): Query<ProgressQuery>,
    Json(body): Json<EnvironmentDraftBody>,
) -> Result<axum::Json<ProbeView>, ApiError> {
    let progress_id = named.checked()?;
    let service = app.service()?;
    let report = service
        .probe_draft(&caller, &company, body.try_into()?, progress_id.as_deref())
        .await?;
    Ok(axum::Json(report.into()))
}

/// Ask a machine for its host key
///
/// The key is shown, not trusted: a person compares the fingerprint before it is put into an environment.
#[utoipa::path(post, path = "/api/ssh/host-key", operation_id = "fetchHostKey", tag = "probes",
    request_body = HostKeyQuestion,
    responses((status = 200, description = "The key that it shows", body = HostKeyView)))]
async fn host_key(
    State(app): State<App>,
    caller: Caller,
    Json(body): Json<HostKeyQuestion>,
) -> Result<axum::Json<HostKeyView>, ApiError> {
    if body.port == 0 {
        return Err(ApiError::field(
            "/port",
            "is 0; give a port from 1 to 65535",
        ));
    }
    let shown = app
        .service()?
        .ssh_host_key(&caller, &body.host, body.port)
        .await?;
    Ok(axum::Json(shown.into()))
}

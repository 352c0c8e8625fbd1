//! Commands in a lease: short ones in one request, the record of all, and signals.
//!
//! Live ones are `stream`.

use std::collections::BTreeMap;
use std::time::Instant;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::Bytes;
use leasehold_authority::{Execution, Outcome};
use leasehold_contract::Size;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::body::{Id, Json, Query};
use super::errors::{ApiError, ErrorCode};
use super::leases::usable;
use super::pages::{self, PageQuery, Place};
use super::time::Time;
use crate::access::Caller;
use crate::access::tickets::TICKET_LIFE;
use crate::app::App;
use crate::service::{ExecRequest, OneShot};

/// The most that a one-shot command gets as its input and gives per stream, in bytes.
pub const ONE_SHOT_LIMIT: usize = 1 << 20;

/// A command that was run.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Execution)]
pub struct ExecutionView {
    /// `exe-…`
    id: String,
    lease_id: String,
    argv: Vec<String>,
    /// Names of the variables that were given; never their values.
    env_names: Vec<String>,
    /// None: the lease's workspace.
    cwd: Option<String>,
    /// `running`, `exited`, `signalled`, `out_of_memory`, `not_started` or `unknown`
    outcome: &'static str,
    /// Of `exited`, 0 to 255.
    exit_code: Option<i32>,
    /// Of `signalled`: a POSIX name without SIG.
    signal: Option<String>,
    /// Of `not_started` and `unknown`.
    reason: Option<String>,
    /// Whether someone asked for its end.
    cancelled: bool,
    created_at: Time,
    started_at: Option<Time>,
    ended_at: Option<Time>,
}

impl From<Execution> for ExecutionView {
    fn from(row: Execution) -> ExecutionView {
        let (outcome, exit_code, signal, reason) = match row.outcome {
            None => ("running", None, None, None),
            Some(Outcome::Exited(code)) => ("exited", Some(code), None, None),
            Some(Outcome::Signalled(name)) => ("signalled", None, Some(name), None),
            Some(Outcome::OutOfMemory) => ("out_of_memory", None, None, None),
            Some(Outcome::NotStarted(reason)) => ("not_started", None, None, Some(reason)),
            Some(Outcome::Unknown(reason)) => ("unknown", None, None, Some(reason)),
        };
        ExecutionView {
            id: row.id,
            lease_id: row.lease_id,
            argv: row.argv,
            env_names: row.env_names,
            cwd: row.cwd,
            outcome,
            exit_code,
            signal,
            reason,
            cancelled: row.cancelled,
            created_at: row.begun_at.into(),
            started_at: row.started_at.map(Into::into),
            ended_at: row.settled_at.map(Into::into),
        }
    }
}

/// A terminal's size.
#[derive(Clone, Copy, Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SizeBody {
    /// 1 to 9999
    pub cols: u16,
    /// 1 to 9999
    pub rows: u16,
}

impl SizeBody {
    /// The size, if it is one.
    pub fn checked(self) -> Result<Size, ApiError> {
        for (name, value) in [("cols", self.cols), ("rows", self.rows)] {
            if !(1..=9999).contains(&value) {
                return Err(ApiError::field(
                    format!("/tty/{name}"),
                    format!("is {value}; it is a number from 1 to 9999"),
                ));
            }
        }
        Ok(Size {
            cols: self.cols,
            rows: self.rows,
        })
    }
}

/// A short command and its input.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct OneShotBody {
    /// Program and arguments; no shell takes them apart.
    argv: Vec<String>,
    /// Variables, over those of the environment.
    #[serde(default)]
    env: BTreeMap<String, String>,
    /// Where it starts; without, the lease's workspace.
    cwd: Option<String>,
    /// Its input as text, at most 1 MiB.
    stdin: Option<String>,
    /// Its input in Base64, at most 1 MiB of bytes; instead of `stdin`.
    stdin_base64: Option<String>,
    /// When it is ended: TERM, and KILL five seconds later. It outlives a client that goes away.
    timeout_ms: Option<u64>,
}

/// A short command's whole answer.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = OneShot)]
pub struct OneShotView {
    execution: ExecutionView,
    /// Output as text; none when it is not UTF-8.
    stdout: Option<String>,
    /// Output in Base64, when it is not UTF-8.
    stdout_base64: Option<String>,
    /// Error output as text; none when it is not UTF-8.
    stderr: Option<String>,
    /// Error output in Base64, when it is not UTF-8.
    stderr_base64: Option<String>,
    /// Whether output beyond 1 MiB was dropped.
    stdout_truncated: bool,
    /// Whether error output beyond 1 MiB was dropped.
    stderr_truncated: bool,
    /// Whether `timeoutMs` ended it.
    timed_out: bool,
}

impl From<OneShot> for OneShotView {
    fn from(done: OneShot) -> OneShotView {
        let (stdout, stdout_base64) = text_or_base64(done.stdout);
        let (stderr, stderr_base64) = text_or_base64(done.stderr);
        OneShotView {
            execution: done.execution.into(),
            stdout,
            stdout_base64,
            stderr,
            stderr_base64,
            stdout_truncated: done.stdout_truncated,
            stderr_truncated: done.stderr_truncated,
            timed_out: done.timed_out,
        }
    }
}

fn text_or_base64(bytes: Vec<u8>) -> (Option<String>, Option<String>) {
    match String::from_utf8(bytes) {
        Ok(text) => (Some(text), None),
        Err(e) => (None, Some(BASE64.encode(e.as_bytes()))),
    }
}

/// A signal.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
#[schema(example = json!({ "signal": "TERM" }))]
pub struct SignalBody {
    /// A POSIX name without SIG, such as `TERM`.
    signal: String,
}

/// Whether to look again.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
#[into_params(parameter_in = Query)]
pub struct ExecutionQuery {
    /// Ask the target what became of it, when that is not known.
    #[serde(default)]
    refresh: bool,
}

/// A one-use ticket.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct TicketView {
    /// `lhk_…`: the `token` of the first frame of a stream on this lease.
    ticket: String,
    expires_in_seconds: u64,
}

/// The routes.
pub fn router() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(list, run))
        .routes(routes!(ticket))
        .routes(routes!(get))
        .routes(routes!(signal))
}

/// Refuses what no command can be.
pub fn check_command(argv: &[String], env: &BTreeMap<String, String>) -> Result<(), ApiError> {
    if argv.first().is_none_or(String::is_empty) {
        return Err(ApiError::field(
            "/argv",
            "names no program; give the program and its arguments, as [\"ls\", \"-l\"]",
        ));
    }
    for (at, argument) in argv.iter().enumerate() {
        if argument.contains('\0') {
            return Err(ApiError::field(format!("/argv/{at}"), "holds a NUL"));
        }
    }
    for (name, value) in env {
        let good = name
            .bytes()
            .enumerate()
            .all(|(at, b)| b == b'_' || b.is_ascii_alphabetic() || (at > 0 && b.is_ascii_digit()));
        if name.is_empty() || !good {
            return Err(ApiError::field(
                "/env",
                format!(
                    "`{}` is not a variable's name; it is letters, digits and _, and does not begin with a digit",
                    super::errors::shown(name)
                ),
            ));
        }
        if value.contains('\0') {
            return Err(ApiError::field(format!("/env/{name}"), "holds a NUL"));
        }
    }
    Ok(())
}

fn input(body: &mut OneShotBody) -> Result<Bytes, ApiError> {
    let bytes = match (body.stdin.take(), body.stdin_base64.take()) {
        (None, None) => return Ok(Bytes::new()),
        (Some(text), None) => text.into_bytes(),
        (None, Some(text)) => BASE64
            .decode(text)
            .map_err(|e| ApiError::field("/stdinBase64", format!("is not Base64: {e}")))?,
        (Some(_), Some(_)) => {
            return Err(ApiError::field(
                "/stdinBase64",
                "is given beside stdin; give one of the two",
            ));
        }
    };
    if bytes.len() > ONE_SHOT_LIMIT {
        return Err(ApiError::field(
            "/stdin",
            format!(
                "has {} bytes and at most {ONE_SHOT_LIMIT} go this way; use the stream for more",
                bytes.len()
            ),
        ));
    }
    Ok(bytes.into())
}

/// Run a short command
///
/// Answers when it has ended. Input and each output are at most 1 MiB; more goes by the stream.
#[utoipa::path(post, path = "/api/environment-leases/{leaseId}/executions", operation_id = "runCommand", tag = "executions",
    params(("leaseId" = String, Path, description = "The lease's id")),
    request_body = OneShotBody,
    responses((status = 200, description = "It has ended, or nobody can tell: see `execution.outcome`", body = OneShotView)))]
async fn run(
    State(app): State<App>,
    caller: Caller,
    Id(lease): Id,
    Json(mut body): Json<OneShotBody>,
) -> Result<axum::Json<OneShotView>, ApiError> {
    usable(&app, &caller, &lease).await?;
    check_command(&body.argv, &body.env)?;
    let stdin = input(&mut body)?;
    let request = ExecRequest {
        argv: body.argv,
        env: body.env.into_iter().collect(),
        cwd: body.cwd,
        stdin: !stdin.is_empty(),
        tty: None,
        timeout_ms: body.timeout_ms,
    };
    let service = app.service()?;
    let done = service
        .run_execution(&caller, &lease, request, stdin, ONE_SHOT_LIMIT)
        .await?;
    Ok(axum::Json(done.into()))
}

/// List the commands of a lease
#[utoipa::path(get, path = "/api/environment-leases/{leaseId}/executions", operation_id = "listExecutions", tag = "executions",
    params(("leaseId" = String, Path, description = "The lease's id"), PageQuery),
    responses((status = 200, description = "A page of its commands, newest first", body = Vec<ExecutionView>)))]
async fn list(
    State(app): State<App>,
    caller: Caller,
    Id(lease): Id,
    place: Place,
    Query(query): Query<PageQuery>,
) -> Result<Response, ApiError> {
    usable(&app, &caller, &lease).await?;
    let limit = pages::limit(query.limit)?;
    let behind = query.cursor.as_deref().map(pages::read).transpose()?;
    let executions = app.service()?.authority().executions();
    let (rows, more) = executions.page(&lease, behind.as_deref(), limit).await?;
    let next = rows
        .last()
        .filter(|_| more)
        .map(|row| pages::cursor(&row.id));
    let views: Vec<ExecutionView> = rows.into_iter().map(Into::into).collect();
    Ok(place.answer(views, next.as_deref()))
}

/// Get a ticket for a stream
///
/// For pages in a browser, which cannot send an Authorization header with a WebSocket. It opens one stream on
/// this lease, as the caller, within 30 seconds.
#[utoipa::path(post, path = "/api/environment-leases/{leaseId}/executions/ticket", operation_id = "createStreamTicket", tag = "executions",
    params(("leaseId" = String, Path, description = "The lease's id")),
    responses((status = 201, description = "The ticket", body = TicketView)))]
async fn ticket(
    State(app): State<App>,
    caller: Caller,
    Id(lease): Id,
) -> Result<(StatusCode, axum::Json<TicketView>), ApiError> {
    usable(&app, &caller, &lease).await?;
    let ticket = app
        .tickets()
        .issue(&caller, &lease, Instant::now())
        .ok_or_else(|| {
            let text = "too many tickets are open; try again in half a minute";
            ApiError::new(ErrorCode::TooManyConnections, text)
        })?;
    let answer = TicketView {
        ticket,
        expires_in_seconds: TICKET_LIFE.as_secs(),
    };
    Ok((StatusCode::CREATED, axum::Json(answer)))
}

async fn usable_execution(app: &App, caller: &Caller, id: &str) -> Result<Execution, ApiError> {
    let authority = app.service()?.authority();
    let row = authority.executions().get(id).await?;
    let lease = authority.leases().get(&row.lease_id).await?;
    caller.sees(lease.scope(), "execution", id)?;
    Ok(row)
}

/// Get a command
#[utoipa::path(get, path = "/api/executions/{executionId}", operation_id = "getExecution", tag = "executions",
    params(("executionId" = String, Path, description = "The command's id"), ExecutionQuery),
    responses((status = 200, description = "The command", body = ExecutionView)))]
async fn get(
    State(app): State<App>,
    caller: Caller,
    Id(id): Id,
    Query(query): Query<ExecutionQuery>,
) -> Result<axum::Json<ExecutionView>, ApiError> {
    let mut row = usable_execution(&app, &caller, &id).await?;
    let unsettled = matches!(row.outcome, None | Some(Outcome::Unknown(_)));
    if query.refresh && unsettled {
        row = app.service()?.refresh_execution(&caller, &id).await?;
    }
    Ok(axum::Json(row.into()))
}

/// Send a signal to a command
///
/// To everything that it started, where the provider can.
#[utoipa::path(post, path = "/api/executions/{executionId}/signal", operation_id = "signalExecution", tag = "executions",
    params(("executionId" = String, Path, description = "The command's id")),
    request_body = SignalBody,
    responses((status = 204, description = "It was sent")))]
async fn signal(
    State(app): State<App>,
    caller: Caller,
    Id(id): Id,
    Json(body): Json<SignalBody>,
) -> Result<StatusCode, ApiError> {
    usable_execution(&app, &caller, &id).await?;
    let name = checked_signal(&body.signal)?;
    app.service()?.signal_execution(&caller, &id, name).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// A signal's name, without SIG.
pub fn checked_signal(text: &str) -> Result<&str, ApiError> {
    let name = text.strip_prefix("SIG").unwrap_or(text);
    let known = [
        "HUP", "INT", "QUIT", "KILL", "USR1", "USR2", "PIPE", "ALRM", "TERM", "CONT", "STOP",
        "TSTP", "TTIN", "TTOU", "WINCH", "ABRT",
    ];
    if known.contains(&name) {
        return Ok(name);
    }
    Err(ApiError::field(
        "/signal",
        format!(
            "`{}` is not known; it is one of {}",
            super::errors::shown(text),
            known.join(", ")
        ),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn env(name: &str, value: &str) -> BTreeMap<String, String> {
        BTreeMap::from([(name.to_owned(), value.to_owned())])
    }

    #[test]
    fn a_command_needs_a_program_and_sound_names_of_variables() {
        let argv = ["ls".to_owned()];
        assert!(check_command(&argv, &env("A_1", "x")).is_ok());
        assert!(check_command(&[], &env("A", "x")).is_err());
        assert!(check_command(&["a\0".into()], &env("A", "x")).is_err());
        for bad in ["", "1A", "A=B", "a-b", "é"] {
            assert!(check_command(&argv, &env(bad, "x")).is_err(), "{bad}");
        }
        assert!(check_command(&argv, &env("A", "x\0")).is_err());
    }

    #[test]
    fn signals_are_named_with_or_without_sig() {
        assert_eq!(checked_signal("SIGTERM").unwrap(), "TERM");
        assert_eq!(checked_signal("INT").unwrap(), "INT");
        assert!(checked_signal("9").is_err());
        assert!(checked_signal("TERM; rm").is_err());
    }

    #[test]
    fn output_that_is_not_text_is_answered_in_base64() {
        assert_eq!(text_or_base64(b"a".to_vec()), (Some("a".into()), None));
        assert_eq!(text_or_base64(vec![0xff]), (None, Some("/w==".into())));
    }
}

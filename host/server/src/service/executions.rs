//! Commands: journalled before they start, streamed live, settled once.
//!
//! A command outlives its client: when nobody reads any more, its output is drained and its end still written.
//! Invariants: nothing starts but what is journalled (P1, P3); an outcome is written before it is told, and *unknown*
//! changes only on the word of `state-of` (P7).

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use leasehold_authority::{
    Actor, Execution, ExecutionStatus, Lease, NewExecution, Outcome, Status,
};
use leasehold_contract::{
    Code, Command, CommandState, Ended, Error, Process, ProcessEvent, ProcessInput, ProcessOutput,
    Purpose,
};
use leasehold_egress::Reach;
use leasehold_runtime::Failure;
use tokio::time::Instant;

use super::Service;
use super::calls::{ForLease, Kind};
use super::configuration::is_hosts_variable;
use super::context::Context;
use super::error::ServiceError;
use super::leasing::{READ, handle_of};
use super::model::{ExecEvent, ExecRequest, OneShot};

/// Time for `execution.start` to answer.
const START: Duration = Duration::from_secs(60);
/// How long after TERM a command that ran out of time gets KILL.
const GRACE: Duration = Duration::from_secs(5);
/// How long a stream that was lost is asked about before *unknown* is told; the question goes on after that.
const ASK: Duration = Duration::from_secs(5);

/// A command that runs.
pub struct RunningExecution {
    /// The host's id of it.
    pub id: String,
    /// What it writes, and its end.
    pub output: ExecOutput,
    /// What it reads.
    pub input: Box<dyn ProcessInput>,
}

/// The output of a running command. Dropped before the end, it is drained in the background and the end is journalled
/// all the same.
pub struct ExecOutput {
    inner: Option<Pump>,
    timed_out: bool,
}

/// Reads a command to its end and settles it.
struct Pump {
    service: Service,
    execution: Execution,
    output: Box<dyn ProcessOutput>,
    deadline: Option<Instant>,
    /// TERM was sent, KILL comes next.
    terminated: bool,
    timed_out: bool,
}

impl ExecOutput {
    /// The next thing that happened; `None` after the end. Not reading holds the command back.
    pub async fn next(&mut self) -> Option<ExecEvent> {
        let pump = self.inner.as_mut()?;
        let event = pump.next().await;
        self.timed_out = pump.timed_out;
        if matches!(event, ExecEvent::Ended(_)) {
            self.inner = None;
        }
        Some(event)
    }

    /// Whether its own timeout ended it.
    pub fn timed_out(&self) -> bool {
        self.timed_out
    }
}

impl Drop for ExecOutput {
    fn drop(&mut self) {
        if let Some(mut pump) = self.inner.take() {
            let service = pump.service.clone();
            service.background(async move {
                while !matches!(pump.next().await, ExecEvent::Ended(_)) {}
            });
        }
    }
}

impl Pump {
    async fn next(&mut self) -> ExecEvent {
        loop {
            let event = match self.deadline {
                Some(deadline) => {
                    tokio::select! {
                        biased;
                        event = self.output.next() => event,
                        () = tokio::time::sleep_until(deadline) => {
                            self.time_is_up().await;
                            continue;
                        }
                    }
                }
                None => self.output.next().await,
            };
            return match event {
                Some(ProcessEvent::Stdout(bytes)) => ExecEvent::Stdout(bytes),
                Some(ProcessEvent::Stderr(bytes)) => ExecEvent::Stderr(bytes),
                Some(ProcessEvent::Ended(ended)) => self.end(ended).await,
                None => {
                    self.end(Ended::Lost("the stream ended without an end".to_owned()))
                        .await
                }
            };
        }
    }

    async fn time_is_up(&mut self) {
        self.timed_out = true;
        let signal = if self.terminated { "KILL" } else { "TERM" };
        let service = self.service.clone();
        let id = self.execution.id.clone();
        // Output goes on being read meanwhile: a command that ends must not wait for a reader.
        service.clone().background(async move {
            let actor = Actor::system("timeout");
            if let Err(error) = service.signal_execution(&actor, &id, signal).await {
                tracing::info!(execution = id, signal, %error, "a command that ran out of time was not signalled");
            }
        });
        self.deadline = (!self.terminated).then(|| Instant::now() + GRACE);
        self.terminated = true;
    }

    async fn end(&mut self, ended: Ended) -> ExecEvent {
        let service = self.service.clone();
        let id = self.execution.id.clone();
        let outcome = match ended {
            Ended::Exited(code) => Some(Outcome::Exited(code)),
            Ended::Signalled(signal) => Some(Outcome::Signalled(signal)),
            Ended::Ask => None,
            Ended::Lost(reason) => {
                tracing::info!(execution = id, reason, "stream lost");
                None
            }
        };
        let settled = match outcome {
            Some(outcome) => service.settle(&id, outcome).await,
            None => service.ask_until_settled(&id, Instant::now() + ASK).await,
        };
        service.detached(&id);
        ExecEvent::Ended(Box::new(settled.unwrap_or_else(|error| {
            tracing::error!(execution = id, %error, "an outcome was not written");
            let mut execution = self.execution.clone();
            execution.outcome = Some(Outcome::Unknown(format!(
                "the outcome was not written: {error}"
            )));
            execution
        })))
    }
}

impl Service {
    /// Starts a command and hands its stream over.
    ///
    /// # Errors
    /// Nothing ran, where the error says so by its code; else the execution is *unknown* and asked about.
    pub async fn start_execution(
        &self,
        actor: &Actor,
        lease: &str,
        request: ExecRequest,
    ) -> Result<RunningExecution, ServiceError> {
        self.accepting()?;
        check(&request)?;
        let lease = self.active(lease).await?;
        let context = self.context_of(&lease).await?;
        let service = self.clone();
        let actor = actor.clone();
        self.finish(async move { service.start_on(&actor, lease, &context, request).await })
            .await
    }

    async fn start_on(
        &self,
        actor: &Actor,
        lease: Lease,
        context: &Arc<Context>,
        request: ExecRequest,
    ) -> Result<RunningExecution, ServiceError> {
        narrowed(context, &request)?;
        let (env, payloads) = context.variables(&request.env)?;
        let execution = self
            .authority()
            .executions()
            .begin(
                actor,
                &lease.id,
                lease.epoch,
                NewExecution {
                    argv: request.argv.clone(),
                    env_names: env.iter().map(|(name, _)| name.clone()).collect(),
                    cwd: request.cwd.clone(),
                    stdin: request.stdin,
                    tty: request.tty.is_some(),
                },
            )
            .await?;
        self.attached(&execution.id);
        let for_lease = self.for_lease(&lease);
        let mut kind = Kind::new(Purpose::Run, Reach::Act, START);
        kind.execution = Some(execution.id.clone());
        kind.payloads = payloads;
        let call = match self.call(context, Some(&for_lease), kind).await {
            Ok(call) => call,
            Err(error) => {
                let failure = Failure::Provider(Error::new(Code::Unavailable, error.to_string()));
                return Err(self.not_started(&execution, failure).await);
            }
        };
        let command = Command {
            id: execution.id.clone(),
            argv: request.argv,
            env,
            cwd: directory(&lease, request.cwd.as_deref()),
            stdin: request.stdin,
            tty: request.tty,
        };
        let started = context
            .plugin
            .start(&call.setup, &call.config, handle_of(&lease), &command)
            .await;
        let started = match started {
            Ok(started) => started,
            Err(failure) => return Err(self.not_started(&execution, failure).await),
        };
        let execution = match self
            .authority()
            .executions()
            .started(&execution.id, &started.reference)
            .await
        {
            Ok(execution) => execution,
            Err(error) => {
                tracing::error!(execution = execution.id, %error, "a start was not written");
                execution
            }
        };
        let Process { output, mut input } = started.process;
        if !request.stdin && request.tty.is_none() {
            // A command that gets no input sees the end of it at once. One that has ended by now needs none.
            let _ = input.end().await;
        }
        Ok(RunningExecution {
            id: execution.id.clone(),
            output: ExecOutput {
                timed_out: false,
                inner: Some(Pump {
                    service: self.clone(),
                    execution,
                    output,
                    deadline: request
                        .timeout_ms
                        .map(|ms| Instant::now() + Duration::from_millis(ms)),
                    terminated: false,
                    timed_out: false,
                }),
            },
            input,
        })
    }

    /// Settles a start that failed: *not started* where nothing can have run, else as `state-of` says.
    async fn not_started(&self, execution: &Execution, failure: Failure) -> ServiceError {
        let nothing_ran = match &failure {
            Failure::Provider(error) => !matches!(
                error.code,
                Code::OutcomeUnknown | Code::Internal | Code::Cancelled
            ),
            other => !other.reached_component(),
        };
        let error = ServiceError::of(format!("starting {}", execution.id), failure);
        let outcome = if nothing_ran {
            self.settle(&execution.id, Outcome::NotStarted(error.to_string()))
                .await
        } else {
            let unknown = Outcome::Unknown(error.to_string());
            match self.settle(&execution.id, unknown).await {
                Ok(_) => {
                    self.ask_until_settled(&execution.id, Instant::now() + ASK)
                        .await
                }
                Err(error) => Err(error),
            }
        };
        if let Err(error) = outcome {
            tracing::error!(execution = execution.id, %error, "an outcome was not written");
        }
        self.detached(&execution.id);
        error
    }

    async fn settle(&self, id: &str, outcome: Outcome) -> Result<Execution, ServiceError> {
        let actor = Actor::system("execution");
        Ok(self
            .authority()
            .executions()
            .settle_unknown(&actor, id, outcome)
            .await?)
    }

    /// Asks the provider what became of a command until it says, or the time is over: then it is *unknown*, and the
    /// question goes on in the background while the lease is active.
    async fn ask_until_settled(&self, id: &str, until: Instant) -> Result<Execution, ServiceError> {
        let mut pause = Duration::from_millis(50);
        // A server that stops does not wait for an answer: the next start asks.
        let until = if self.stopping().is_cancelled() {
            Instant::now()
        } else {
            until
        };
        loop {
            let reason = match self.ask(id).await {
                Ok(Some(execution)) => return Ok(execution),
                Ok(None) => "the stream ended before the command did".to_owned(),
                Err(error) => format!("the stream was lost: {error}"),
            };
            if Instant::now() + pause >= until {
                let execution = self.settle(id, Outcome::Unknown(reason)).await?;
                self.wake();
                return Ok(execution);
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(Duration::from_secs(1));
        }
    }

    /// Asks the provider once. None: it runs, or nobody can tell yet.
    pub(crate) async fn ask(&self, id: &str) -> Result<Option<Execution>, ServiceError> {
        let execution = self.authority().executions().get(id).await?;
        if is_settled(&execution) {
            return Ok(Some(execution));
        }
        let lease = self.authority().leases().get(&execution.lease_id).await?;
        if lease.status != Status::Active {
            // Its lease is being ended; what became of it is written when that is done.
            let settled = execution.status == ExecutionStatus::Settled;
            return Ok(settled.then_some(execution));
        }
        let context = self.context_of(&lease).await?;
        let for_lease = self.for_lease(&lease);
        self.ask_with(&execution, &lease, &context, &for_lease)
            .await
    }

    pub(crate) async fn ask_with(
        &self,
        execution: &Execution,
        lease: &Lease,
        context: &Context,
        for_lease: &ForLease,
    ) -> Result<Option<Execution>, ServiceError> {
        let call = self
            .call(
                context,
                Some(for_lease),
                Kind::new(Purpose::Reconcile, Reach::Read, READ),
            )
            .await?;
        let state = context
            .plugin
            .state_of(
                &call.setup,
                &call.config,
                handle_of(lease),
                &execution.id,
                execution.reference.as_deref(),
            )
            .await
            .map_err(|failure| ServiceError::of(format!("asking for {}", execution.id), failure))?;
        let outcome = match state {
            CommandState::Running => return Ok(None),
            CommandState::Exited(code) => Outcome::Exited(code),
            CommandState::Signalled(signal) => Outcome::Signalled(signal),
            CommandState::OutOfMemory => Outcome::OutOfMemory,
            CommandState::NotStarted(reason) => Outcome::NotStarted(reason),
            CommandState::Unknown => Outcome::Unknown(
                "the target has no record of its end: it was restarted, or the record was removed"
                    .to_owned(),
            ),
        };
        Ok(Some(self.settle(&execution.id, outcome).await?))
    }

    /// Runs a short command to its end.
    ///
    /// # Errors
    /// As [`Service::start_execution`]. A command that fails is no error: its outcome says so.
    pub async fn run_execution(
        &self,
        actor: &Actor,
        lease: &str,
        mut request: ExecRequest,
        stdin: Bytes,
        limit: usize,
    ) -> Result<OneShot, ServiceError> {
        request.stdin = !stdin.is_empty();
        let RunningExecution {
            id,
            mut output,
            mut input,
        } = self.start_execution(actor, lease, request).await?;
        self.background(async move {
            // A command need not read its input; what it does not read is not an error.
            let written = async {
                if stdin.is_empty() {
                    return Ok(());
                }
                input.write(stdin).await?;
                input.end().await
            };
            if let Err(error) = written.await {
                tracing::debug!(execution = id, %error, "input not taken");
            }
        });
        let (mut stdout, mut stderr) = (Kept::new(limit), Kept::new(limit));
        loop {
            match output.next().await {
                Some(ExecEvent::Stdout(bytes)) => stdout.keep(&bytes),
                Some(ExecEvent::Stderr(bytes)) => stderr.keep(&bytes),
                Some(ExecEvent::Ended(execution)) => {
                    return Ok(OneShot {
                        execution: *execution,
                        stdout: stdout.bytes,
                        stderr: stderr.bytes,
                        stdout_truncated: stdout.truncated,
                        stderr_truncated: stderr.truncated,
                        timed_out: output.timed_out(),
                    });
                }
                None => {
                    return Err(ServiceError::refused(
                        "outcome_unknown",
                        "the stream ended without an end",
                    ));
                }
            }
        }
    }

    /// Sends a signal to everything that a command started.
    ///
    /// # Errors
    /// A command that has ended; a provider without signals.
    pub async fn signal_execution(
        &self,
        actor: &Actor,
        execution: &str,
        signal: &str,
    ) -> Result<(), ServiceError> {
        self.accepting()?;
        let execution = self.authority().executions().get(execution).await?;
        if is_settled(&execution) {
            return Err(ServiceError::refused(
                "execution_ended",
                format!("execution {} has ended", execution.id),
            ));
        }
        let lease = self.active(&execution.lease_id).await?;
        let context = self.context_of(&lease).await?;
        if matches!(signal, "TERM" | "KILL" | "INT" | "HUP" | "QUIT") {
            self.authority()
                .executions()
                .cancel(actor, &execution.id)
                .await?;
        }
        let for_lease = self.for_lease(&lease);
        let call = self
            .call(
                &context,
                Some(&for_lease),
                Kind::new(Purpose::Run, Reach::Act, READ),
            )
            .await?;
        context
            .plugin
            .signal(
                &call.setup,
                &call.config,
                handle_of(&lease),
                &reference_of(&execution),
                signal,
            )
            .await
            .map_err(|failure| match failure {
                Failure::Provider(Error {
                    code: Code::NotFound,
                    ..
                }) => ServiceError::refused(
                    "execution_ended",
                    format!("nothing of execution {} is left to signal", execution.id),
                ),
                failure => ServiceError::of(format!("signalling {}", execution.id), failure),
            })
    }

    /// The execution, after asking the provider where its outcome is not known.
    ///
    /// # Errors
    /// An execution that nobody knows. A provider that does not answer is no error: *unknown* stays.
    pub async fn refresh_execution(
        &self,
        _actor: &Actor,
        execution: &str,
    ) -> Result<Execution, ServiceError> {
        let known = self.authority().executions().get(execution).await?;
        if is_settled(&known) || self.is_attached(execution) {
            return Ok(known);
        }
        match self.ask(execution).await {
            Ok(Some(settled)) => Ok(settled),
            Ok(None) => Ok(known),
            Err(error) => {
                tracing::info!(execution, %error, "state not known");
                Ok(known)
            }
        }
    }
}

/// Whether its true outcome is known.
pub(crate) fn is_settled(execution: &Execution) -> bool {
    execution.status == ExecutionStatus::Settled
        && execution
            .outcome
            .as_ref()
            .is_some_and(|outcome| !outcome.is_unknown())
}

/// What the provider finds a command by: what it journalled, or the host's own id where nothing was journalled yet.
pub(crate) fn reference_of(execution: &Execution) -> String {
    execution
        .reference
        .clone()
        .unwrap_or_else(|| serde_json::json!({ "id": execution.id }).to_string())
}

/// The first bytes of a stream.
struct Kept {
    bytes: Vec<u8>,
    limit: usize,
    truncated: bool,
}

impl Kept {
    fn new(limit: usize) -> Kept {
        Kept {
            bytes: Vec::new(),
            limit,
            truncated: false,
        }
    }

    fn keep(&mut self, more: &[u8]) {
        let room = self.limit - self.bytes.len();
        self.truncated |= more.len() > room;
        self.bytes.extend_from_slice(&more[..more.len().min(room)]);
    }
}

/// Where a command starts: relative paths are the workspace's.
fn directory(lease: &Lease, cwd: Option<&str>) -> String {
    let workspace = lease.workspace.as_deref().unwrap_or("/");
    match cwd {
        None => workspace.to_owned(),
        Some(cwd) if cwd.starts_with('/') => cwd.to_owned(),
        Some(cwd) => format!("{}/{cwd}", workspace.trim_end_matches('/')),
    }
}

/// What the authority does not check: names that are the host's, values that no process can have.
fn check(request: &ExecRequest) -> Result<(), ServiceError> {
    let mut violations = Vec::new();
    let mut add = |pointer: String, message: &str| {
        violations.push(leasehold_contract::FieldViolation {
            pointer,
            message: message.to_owned(),
        });
    };
    for (name, value) in &request.env {
        let mut letters = name.bytes();
        let good = letters
            .next()
            .is_some_and(|b| b.is_ascii_alphabetic() || b == b'_')
            && letters.all(|b| b.is_ascii_alphanumeric() || b == b'_')
            && name.len() <= 256;
        if !good {
            add(
                format!("/env/{name}"),
                "a variable's name is 1 to 256 of A-Z, a-z, 0-9 and _, not beginning with a digit",
            );
        } else if is_hosts_variable(name) {
            add(
                format!("/env/{name}"),
                "variables that begin with LEASEHOLD_ are the host's own; choose another name",
            );
        }
        if value.contains('\0') {
            add(
                format!("/env/{name}"),
                "a variable's value may not contain NUL",
            );
        }
    }
    if let Some(size) = request.tty
        && (size.cols == 0 || size.rows == 0)
    {
        add("/tty".to_owned(), "must have at least 1 column and 1 row");
    }
    if violations.is_empty() {
        Ok(())
    } else {
        Err(ServiceError::Invalid { violations })
    }
}

/// What the provider does not have is refused before anything is journalled.
fn narrowed(context: &Context, request: &ExecRequest) -> Result<(), ServiceError> {
    let features = context.plugin.manifest().features;
    let key = &context.plugin.manifest().key;
    if !context.plugin.capabilities().execution {
        return Err(ServiceError::refused(
            "unsupported",
            format!("the provider {key} runs no commands"),
        ));
    }
    if request.stdin && !features.stdin {
        return Err(ServiceError::refused(
            "unsupported",
            format!("the provider {key} gives commands no input"),
        ));
    }
    if request.tty.is_some() && !features.tty {
        return Err(ServiceError::refused(
            "unsupported",
            format!("the provider {key} gives commands no terminal"),
        ));
    }
    Ok(())
}

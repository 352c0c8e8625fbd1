//! One call of a component: for whom, what it may reach, where its journal and its egress records go.
//!
//! Everything that a component can do to the host passes the two objects made here, [`Listener`] and the egress of a
//! [`CallScope`]. Invariants: what egress is about to make is in the lease's row before it is made (P1); a call of a
//! superseded epoch is told `cancelled` (P4).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use leasehold_authority::{Actor, Authority, Entry, Error as AuthorityError, LABEL_OWNER, Lease};
use leasehold_contract::{Call, CallHost, Code, Error, Label, LeaseRef, Level, Purpose, Thing};
use leasehold_egress::{
    Action, CallScope, EgressRecord, LeaseScope, Payloads, Reach, Recorder, Ssh, Transport,
};
use leasehold_runtime::{CallSetup, Redactor};
use tokio_util::sync::CancellationToken;

use super::context::Context;
use super::error::ServiceError;
use super::progress::Board;
use super::web::Placeholders;

/// What of a lease a call acts for, and until when.
#[derive(Clone)]
pub(crate) struct ForLease {
    pub(crate) id: String,
    pub(crate) acquisition: String,
    pub(crate) epoch: u32,
    pub(crate) labels: Vec<Label>,
    pub(crate) owner_label: String,
    pub(crate) closed: CancellationToken,
}

impl ForLease {
    /// The lease as it stands now, and the token of its gate.
    pub(crate) fn of(lease: &Lease, closed: CancellationToken) -> ForLease {
        ForLease {
            id: lease.id.clone(),
            acquisition: lease.acquisition.clone(),
            epoch: lease.epoch,
            labels: lease.labels.clone(),
            owner_label: owner_label(lease),
            closed,
        }
    }
}

/// The label that proves whose something is.
pub(crate) fn owner_label(lease: &Lease) -> String {
    lease
        .labels
        .iter()
        .find(|label| label.key == LABEL_OWNER)
        .map(|label| label.value.clone())
        .unwrap_or_default()
}

/// How a call differs from others.
pub(crate) struct Kind {
    pub(crate) purpose: Purpose,
    pub(crate) reach: Reach,
    pub(crate) fresh: bool,
    /// Whether this is `acquire`: the first act may create the lease's environment.
    pub(crate) acquiring: bool,
    pub(crate) deadline: Duration,
    /// Whether running out of time is the component's doing: not where a client chose the time, or uses it up.
    pub(crate) deadline_is_ours: bool,
    /// Whether this is the acquire by which a tripped breaker decides.
    pub(crate) trial: bool,
    /// The host's id of the command, in `execution.start`.
    pub(crate) execution: Option<String>,
    /// The backend's id of what the host itself looks at, in a check.
    pub(crate) looked_at: Option<String>,
    /// The work that is told of as this call's progress, where it is not that of its lease.
    pub(crate) told_as: Option<String>,
    pub(crate) payloads: Payloads,
}

impl Kind {
    pub(crate) fn new(purpose: Purpose, reach: Reach, deadline: Duration) -> Kind {
        Kind {
            purpose,
            reach,
            fresh: false,
            acquiring: false,
            deadline,
            deadline_is_ours: true,
            trial: false,
            execution: None,
            looked_at: None,
            told_as: None,
            payloads: Payloads::none(),
        }
    }
}

/// The ways out that calls share.
pub(crate) struct Ways {
    pub(crate) ssh: Ssh,
    pub(crate) http: Transport,
}

/// One call, ready to be made.
pub(crate) struct Prepared {
    pub(crate) setup: CallSetup,
    /// The configuration as this call's component sees it.
    pub(crate) config: String,
    /// The placeholders in it, by the pointer of their field.
    pub(crate) placeholders: Placeholders,
}

/// Builds what one call needs.
///
/// # Errors
/// The authority's; the system's source of randomness failing.
pub(crate) async fn prepare(
    authority: &Authority,
    ways: &Ways,
    board: &Board,
    context: &Context,
    lease: Option<&ForLease>,
    kind: Kind,
) -> Result<Prepared, ServiceError> {
    let (config, placeholders) = context.config()?;
    let (http, kept) = match &context.web {
        None => (None, Vec::new()),
        Some(web) => {
            let (http, kept) = web
                .scope(
                    &ways.http,
                    authority,
                    lease,
                    kind.acquiring,
                    kind.looked_at.as_deref(),
                    &placeholders,
                )
                .await?;
            (Some(http), kept)
        }
    };
    let mut payloads = kind.payloads;
    for (_, placeholder) in placeholders.iter().chain(&kept) {
        payloads.forbid(placeholder);
    }
    let listener = Arc::new(Listener {
        authority: authority.clone(),
        provider: context.plugin.manifest().key.clone(),
        digest: context.plugin.digest_hex(),
        company: context.company.clone(),
        environment: context.environment.clone(),
        lease: lease.cloned(),
        execution: kind.execution.clone(),
        redactor: context.redactor.clone(),
        board: board.clone(),
        told_as: kind.told_as.or_else(|| lease.map(|lease| lease.id.clone())),
        acted: AtomicBool::new(!kind.acquiring),
    });
    let scope = CallScope {
        company: context.company.clone(),
        plugin_revision: context.plugin.digest_hex(),
        grant: context.plugin.grant_for(kind.purpose),
        secret_version: context.secret_version.clone(),
        targets: context.targets.clone(),
        reach: kind.reach,
        lease: lease.map(|lease| LeaseScope {
            lease: lease.id.clone(),
            acquisition: lease.acquisition.clone(),
            epoch: lease.epoch,
            owner_label: lease.owner_label.clone(),
            labels: lease
                .labels
                .iter()
                .map(|l| (l.key.clone(), l.value.clone()))
                .collect(),
            closed: lease.closed.clone(),
        }),
        execution: kind.execution,
        fresh: kind.fresh,
        http,
        payloads: Arc::new(payloads),
        recorder: listener.clone(),
    };
    let setup = CallSetup {
        call: Call {
            company: context.company.clone(),
            environment: context.environment.clone(),
            lease: lease.map(|lease| LeaseRef {
                id: lease.id.clone(),
                acquisition: lease.acquisition.clone(),
                epoch: lease.epoch,
            }),
            labels: lease.map(|lease| lease.labels.clone()).unwrap_or_default(),
            purpose: kind.purpose,
            kept,
        },
        host: listener,
        egress: ways.ssh.call(scope),
        deadline: kind.deadline,
        redactor: context.redactor.clone(),
        watch: Some(
            context
                .plugin
                .watch(kind.purpose, kind.deadline_is_ours, kind.trial),
        ),
    };
    Ok(Prepared {
        setup,
        config,
        placeholders,
    })
}

/// The host's ear in one call.
struct Listener {
    authority: Authority,
    provider: String,
    digest: String,
    /// Whose environment it is; empty for the instance itself.
    company: String,
    /// None for a draft.
    environment: Option<String>,
    lease: Option<ForLease>,
    execution: Option<String>,
    redactor: Redactor,
    board: Board,
    /// The work that progress is told of.
    told_as: Option<String>,
    /// Whether it is on record that something may exist; true from the start where nothing can be created.
    acted: AtomicBool,
}

/// Text for the log: bounded, without control characters, redacted.
const LOGGED: usize = 2048;

impl Listener {
    fn text(&self, text: &str) -> String {
        leasehold_runtime::clean(text, LOGGED, &self.redactor)
    }

    /// Tells the activity what egress refused to whom, and why: never a header or a body.
    fn refused(&self, record: &EgressRecord, reason: &str) {
        let text = |text: &str| leasehold_runtime::clean(text, RECORDED, &self.redactor);
        let (kind, id) = match (&self.lease, &self.environment) {
            (Some(lease), _) => ("lease", lease.id.as_str()),
            (None, Some(environment)) => ("environment", environment.as_str()),
            (None, None) => ("plugin", self.provider.as_str()),
        };
        let details = serde_json::json!({
            "plugin": self.provider, "digest": self.digest, "environment": self.environment,
            "act": record.action.as_str(), "target": text(&record.target), "reason": text(reason),
        });
        let company = (!self.company.is_empty()).then_some(self.company.as_str());
        let plugin = Actor::system(format!("plugin {}", self.provider));
        let entry = Entry::new("egress.denied", company, kind, id, details);
        self.authority.activity().deny(&plugin, entry);
    }
}

/// Text for the activity, which keeps it.
const RECORDED: usize = 300;

/// Progress as people who wait are shown it: bounded, and one line.
const SHOWN: usize = 400;

/// What is done, as one line for a person: the message, or the step where there is none, and how much of it is done.
fn line(step: &str, message: &str, done: Option<f64>, total: Option<f64>) -> String {
    let said = if message.trim().is_empty() {
        step
    } else {
        message
    };
    let mut line = said.split_whitespace().collect::<Vec<_>>().join(" ");
    match (done, total) {
        (Some(done), Some(total)) => line.push_str(&format!(" ({done} of {total})")),
        (Some(done), None) => line.push_str(&format!(" ({done})")),
        (None, _) => {}
    }
    line
}

/// An answer of the authority, as a component may know it.
pub(crate) fn refused(error: &AuthorityError) -> Error {
    match error {
        AuthorityError::Stale { .. } => Error::new(
            Code::Cancelled,
            "this epoch of the lease is over; create nothing more",
        ),
        AuthorityError::Conflict { .. } => Error::new(Code::FailedPrecondition, error.to_string()),
        AuthorityError::Invalid { .. } => Error::new(Code::Internal, error.to_string()),
        _ => Error::new(
            Code::Unavailable,
            "the host could not write it down; nothing was done",
        ),
    }
}

#[async_trait]
impl CallHost for Listener {
    fn log(&self, level: Level, message: String, fields: Vec<(String, String)>) {
        let message = self.text(&message);
        let fields: Vec<String> = fields
            .iter()
            .take(16)
            .map(|(name, value)| format!("{}={}", self.text(name), self.text(value)))
            .collect();
        let fields = fields.join(" ");
        let provider = self.provider.as_str();
        let lease = self.lease.as_ref().map(|lease| lease.id.as_str());
        match level {
            Level::Trace => {
                tracing::trace!(target: "provider", provider, lease, fields, "{message}")
            }
            Level::Debug => {
                tracing::debug!(target: "provider", provider, lease, fields, "{message}")
            }
            Level::Info => tracing::info!(target: "provider", provider, lease, fields, "{message}"),
            Level::Warn => tracing::warn!(target: "provider", provider, lease, fields, "{message}"),
            Level::Error => {
                tracing::error!(target: "provider", provider, lease, fields, "{message}")
            }
        }
    }

    fn progress(&self, step: String, message: String, done: Option<f64>, total: Option<f64>) {
        let (step, message) = (self.text(&step), self.text(&message));
        let lease = self.lease.as_ref().map(|lease| lease.id.as_str());
        tracing::debug!(target: "provider", provider = self.provider, lease, step, done, total, "{message}");
        if let Some(work) = &self.told_as {
            let line = line(&step, &message, done, total);
            self.board
                .tell(work, leasehold_runtime::clean(&line, SHOWN, &self.redactor));
        }
    }

    async fn journal(
        &self,
        thing: Thing,
        resource: String,
        reference: Option<String>,
    ) -> Result<(), Error> {
        let Some(lease) = &self.lease else {
            return Err(Error::new(
                Code::FailedPrecondition,
                "there is no lease to journal for; only calls on a lease create anything",
            ));
        };
        if lease.closed.is_cancelled() {
            return Err(Error::new(
                Code::Cancelled,
                "this epoch of the lease is over; create nothing more",
            ));
        }
        if let (Thing::Command, Some(execution)) = (thing, &self.execution) {
            let reference = reference.unwrap_or_else(|| "null".to_owned());
            return self
                .authority
                .executions()
                .started(execution, &reference)
                .await
                .map(drop)
                .map_err(|error| refused(&error));
        }
        self.authority
            .leases()
            .journal(
                &lease.id,
                lease.epoch,
                thing,
                &resource,
                reference.as_deref(),
            )
            .await
            .map_err(|error| refused(&error))
    }

    async fn cancelled(&self) {
        match &self.lease {
            Some(lease) => lease.closed.cancelled().await,
            None => std::future::pending().await,
        }
    }
}

#[async_trait]
impl Recorder for Listener {
    async fn record(&self, record: EgressRecord) -> Result<(), Error> {
        let lease = self.lease.as_ref();
        if let Some(reason) = &record.denied {
            tracing::warn!(
                target: "egress",
                provider = self.provider,
                lease = lease.map(|lease| lease.id.as_str()),
                target = record.target,
                action = record.action.as_str(),
                reason,
                "refused"
            );
            self.refused(&record, reason);
            return Ok(());
        }
        tracing::debug!(
            target: "egress",
            provider = self.provider,
            lease = lease.map(|lease| lease.id.as_str()),
            target = record.target,
            action = record.action.as_str(),
            "let through"
        );
        let Some(lease) = lease else { return Ok(()) };
        if record.action == Action::MakeWorkspace {
            // Where it will be: what finds it again after a crash, whatever the component answers.
            let place = serde_json::json!({ "target": record.pointer, "parent": record.place });
            self.authority
                .leases()
                .journal(
                    &lease.id,
                    lease.epoch,
                    Thing::Environment,
                    &lease.acquisition,
                    Some(&place.to_string()),
                )
                .await
                .map_err(|error| refused(&error))?;
        }
        if record.action.acts() && !self.acted.swap(true, Ordering::AcqRel) {
            self.authority
                .leases()
                .unsafe_sent(&lease.id, lease.epoch)
                .await
                .map_err(|error| refused(&error))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::line;

    #[test]
    fn progress_is_one_line_with_how_much_is_done() {
        assert_eq!(
            line("pull", "pulling\n the  image", Some(3.0), Some(10.0)),
            "pulling the image (3 of 10)"
        );
        assert_eq!(line("pull", " ", Some(2.5), None), "pull (2.5)");
        assert_eq!(line("pull", "pulling", None, Some(10.0)), "pulling");
    }
}

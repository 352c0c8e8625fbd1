//! Probing: can this environment be used? Of what is saved, and of a draft.
//!
//! A probe of driver `sandbox` takes a lease and releases it; every other is the provider's own probe, over fresh
//! connections, and changes nothing. A draft never leases. A report is a diagnostic: no qualification is written here.

use std::time::{Duration, Instant};

use leasehold_authority::{
    Accessor, ActivityOutcome, Actor, Entry, Environment, EnvironmentDraft, EnvironmentDriver,
    LOCAL, Lease, Operation, Status, take_pasted,
};
use leasehold_contract::{Code, FieldViolation, Finding, Purpose, Severity};
use leasehold_egress::Reach;
use leasehold_runtime::Failure;
use serde_json::{Map, Value, json};

use super::Service;
use super::calls::Kind;
use super::context::{Context, Source};
use super::environments::Checked;
use super::error::ServiceError;
use super::model::{AcquireRequest, HostKeyShown, ProbeReport};
use super::progress::Work;
use super::values::Holder;

/// Time for one probe.
const PROBE: Duration = Duration::from_secs(120);
/// Characters of a host's name at most, as the activity tells of it.
const HOST: usize = 253;
/// Findings of one probe that are kept.
const FINDINGS: usize = 50;

/// How a probe ended, for the activity.
fn ended(report: &ProbeReport) -> ActivityOutcome {
    if report.ok {
        ActivityOutcome::Done
    } else {
        ActivityOutcome::Failed
    }
}

impl Service {
    /// Probes a saved environment for a company: where it is shared, the one that is named.
    ///
    /// # Errors
    /// An environment that nobody knows, or a provider that is not there. What is wrong with the target is a finding.
    pub async fn probe(
        &self,
        actor: &Actor,
        environment: &str,
        company: Option<&str>,
        progress_id: Option<&str>,
    ) -> Result<ProbeReport, ServiceError> {
        self.accepting()?;
        actor.may(Operation::ProbeEnvironment)?;
        let begun = Instant::now();
        let watched = self.watch(actor, progress_id);
        let environment = self.authority().environments().get(environment).await?;
        let company = self
            .company_for(actor, &environment, company, "?companyId")
            .await?;
        // Whose secrets these are is asked before any of them is opened, and before anything is leased.
        self.serves(actor, Operation::ProbeEnvironment, &environment, &company)
            .await?;
        let report = if environment.is_local() {
            local_report(&company, begun)
        } else if environment.driver == EnvironmentDriver::Sandbox {
            self.probe_by_lease(actor, &environment, &company, progress_id, begun)
                .await?
        } else {
            let plugin = self.catalog().current(&environment.provider).await?;
            let by = Accessor {
                company: Some(company.clone()),
                ..Accessor::of(actor, "probe")
            };
            let context = Context::resolve(
                self.authority(),
                plugin,
                Holder::Environment {
                    id: &environment.id,
                    by,
                },
                Source {
                    company: &company,
                    environment: Some(&environment.id),
                    config: &environment.config,
                    env_vars: &environment.env_vars,
                    typed: &environment.endpoints,
                },
            )
            .await?;
            self.authority().secrets().record_accesses().await?;
            let warnings = self.root_warnings(&environment.config, &environment.endpoints);
            self.probe_target(&context, watched.as_ref(), warnings, begun)
                .await
        };
        self.authority()
            .activity()
            .record(
                actor,
                Entry::new(
                    "environment.probed",
                    Some(&company),
                    "environment",
                    &environment.id,
                    json!({ "ok": report.ok, "findings": report.findings.len(), "durationMs": report.duration_ms }),
                )
                .ended(ended(&report)),
            )
            .await?;
        Ok(report)
    }

    /// Probes a draft: checked like one that is saved, and never leased.
    ///
    /// # Errors
    /// As saving it would fail.
    pub async fn probe_draft(
        &self,
        actor: &Actor,
        company: &str,
        mut draft: EnvironmentDraft,
        progress_id: Option<&str>,
    ) -> Result<ProbeReport, ServiceError> {
        self.accepting()?;
        actor.may(Operation::ProbeDraft)?;
        if draft.driver == EnvironmentDriver::Local {
            return Err(ServiceError::refused(
                "environment_local",
                "the server's own machine is one environment, which is there already: probe that",
            ));
        }
        let begun = Instant::now();
        let pasted = take_pasted(Some(&mut draft.config), Some(&mut draft.env_vars))?;
        let watched = self.watch(actor, progress_id);
        let Checked {
            draft, endpoints, ..
        } = self.checked(company, draft).await?;
        let plugin = self.catalog().current(&draft.provider).await?;
        let context = Context::resolve(
            self.authority(),
            plugin,
            Holder::Draft {
                actor,
                company,
                pasted: &pasted,
            },
            Source {
                company,
                environment: None,
                config: &draft.config,
                env_vars: &draft.env_vars,
                typed: &endpoints,
            },
        )
        .await?;
        self.authority().secrets().record_accesses().await?;
        let warnings = self.root_warnings(&draft.config, &endpoints);
        let report = self
            .probe_target(&context, watched.as_ref(), warnings, begun)
            .await;
        self.authority()
            .activity()
            .record(
                actor,
                Entry::new(
                    "environment.probed_unsaved",
                    Some(company),
                    "environment",
                    "unsaved",
                    json!({ "ok": report.ok, "keys": draft.config.len() }),
                )
                .ended(ended(&report)),
            )
            .await?;
        Ok(report)
    }

    async fn probe_target(
        &self,
        context: &Context,
        watched: Option<&Work>,
        warnings: Vec<Finding>,
        begun: Instant,
    ) -> ProbeReport {
        let findings = match keys_of(context).await {
            Some(findings) => Ok(findings),
            None => {
                let mut kind = Kind::new(Purpose::Probe, Reach::Read, PROBE);
                kind.fresh = true;
                kind.told_as = watched.map(|work| work.name().to_owned());
                let call = async {
                    // As a command of a lease would have them.
                    let (variables, mut payloads) = context.variables(&[])?;
                    payloads.give_scripts(variables);
                    kind.payloads = payloads;
                    self.call(context, None, kind).await
                };
                match call.await {
                    Ok(call) => context.plugin.probe(&call.setup, &call.config).await,
                    Err(error) => Err(Failure::Host(error.to_string())),
                }
            }
        };
        let findings = match findings {
            Ok(findings) => findings,
            Err(failure) => vec![finding_of(failure)],
        };
        report(context, warnings, findings, begun)
    }

    async fn probe_by_lease(
        &self,
        actor: &Actor,
        environment: &Environment,
        company: &str,
        progress_id: Option<&str>,
        begun: Instant,
    ) -> Result<ProbeReport, ServiceError> {
        let request = AcquireRequest {
            company_id: Some(company.to_owned()),
            ttl_seconds: Some(600),
            progress_id: progress_id.map(str::to_owned),
            ..AcquireRequest::default()
        };
        let acquired = self
            .acquire_for(actor, &environment.id, request, Purpose::Probe, None)
            .await;
        let (lease, mut findings) = match acquired {
            Ok(lease) => (Some(lease), Vec::new()),
            Err(ServiceError::Provider { error, .. }) => {
                (None, vec![finding_of_lease(Failure::Provider(error))])
            }
            Err(ServiceError::Component { failure, .. }) => {
                (None, vec![finding_of_lease(*failure)])
            }
            Err(error) => return Err(error),
        };
        let warnings = self.root_warnings(&environment.config, &environment.endpoints);
        findings.splice(0..0, warnings);
        let mut released: Option<Lease> = None;
        if let Some(lease) = &lease {
            findings.push(Finding {
                step: "acquire".to_owned(),
                severity: Severity::Info,
                message: format!("a lease was acquired in {} ms", begun.elapsed().as_millis()),
                duration: u32::try_from(begun.elapsed().as_millis()).ok(),
            });
            let since = Instant::now();
            let lease = self.release_for(actor, &lease.id, "probe").await?;
            let gone = lease.status == Status::Released;
            findings.push(Finding {
                step: "release".to_owned(),
                severity: if gone {
                    Severity::Info
                } else {
                    Severity::Failure
                },
                message: if gone {
                    "its release is confirmed".to_owned()
                } else {
                    format!(
                        "its release is not confirmed, and is tried again: {}",
                        lease.failure.as_deref().unwrap_or("no reason was given")
                    )
                },
                duration: u32::try_from(since.elapsed().as_millis()).ok(),
            });
            released = Some(lease);
        }
        let ok = findings
            .iter()
            .all(|finding| finding.severity != Severity::Failure);
        Ok(ProbeReport {
            ok,
            company: company.to_owned(),
            driver: environment.driver.as_str().to_owned(),
            provider: environment.provider.clone(),
            summary: summary(&environment.provider, &findings),
            findings,
            duration_ms: u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX),
            lease: released.map(|lease| lease.id),
            platform_qualification_recorded: false,
            qualification_note: NOT_QUALIFIED.to_owned(),
        })
    }

    fn root_warnings(&self, config: &Map<String, Value>, endpoints: &[String]) -> Vec<Finding> {
        let told = |message| Finding {
            step: "root-on-this-machine".to_owned(),
            severity: Severity::Warning,
            message,
            duration: None,
        };
        let warnings = self.warnings(config, endpoints);
        warnings.into_iter().map(told).collect()
    }

    /// The key that an SSH server shows, for a person to compare. Nobody is authenticated and nothing is trusted.
    ///
    /// # Errors
    /// No server there.
    pub async fn ssh_host_key(
        &self,
        actor: &Actor,
        host: &str,
        port: u16,
    ) -> Result<HostKeyShown, ServiceError> {
        self.accepting()?;
        actor.may(Operation::FetchHostKey)?;
        let shown = self.ssh().fetch_host_key(host, port).await;
        let outcome = match &shown {
            Ok(_) => ActivityOutcome::Done,
            Err(_) => ActivityOutcome::Failed,
        };
        let named: String = host.chars().take(HOST).collect();
        let place = match host.contains(':') {
            true => format!("[{named}]:{port}"),
            false => format!("{named}:{port}"),
        };
        let asked = Entry::new(
            "ssh.host_key_fetched",
            None,
            "machine",
            &place,
            json!({ "host": named, "port": port, "fingerprints": u8::from(shown.is_ok()) }),
        );
        let activity = self.authority().activity();
        activity.record(actor, asked.ended(outcome)).await?;
        let shown = shown.map_err(|error| ServiceError::Provider {
            what: format!("asking {host}:{port} for its key"),
            error,
        })?;
        Ok(HostKeyShown {
            fingerprint: shown.fingerprint,
            algorithm: shown.algorithm,
            known_hosts_line: shown.line,
        })
    }
}

/// Why no probe of this version writes a qualification.
const NOT_QUALIFIED: &str = "this version records no platform qualification";

/// What there is to tell of the server's own machine: that it is there, and where the server stands on it. Nothing is
/// leased there, so nothing more can be promised.
fn local_report(company: &str, begun: Instant) -> ProbeReport {
    let told = |step: &str, message| Finding {
        step: step.to_owned(),
        severity: Severity::Info,
        message,
        duration: None,
    };
    let found = |step: &str, found: std::io::Result<String>| match found {
        Ok(text) => told(step, text.trim().to_owned()),
        Err(error) => Finding {
            severity: Severity::Failure,
            ..told(step, format!("cannot be told: {error}"))
        },
    };
    // The kernel's own word, without a resolver.
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname");
    let directory = std::env::current_dir().map(|path| path.display().to_string());
    let findings = vec![found("host", host), found("working-directory", directory)];
    ProbeReport {
        ok: findings.iter().all(|f| f.severity != Severity::Failure),
        company: company.to_owned(),
        driver: EnvironmentDriver::Local.as_str().to_owned(),
        provider: LOCAL.to_owned(),
        summary: format!(
            "the server's own machine, {:?}, is there, and is never leased",
            findings[0].message
        ),
        findings,
        duration_ms: u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX),
        lease: None,
        platform_qualification_recorded: false,
        qualification_note: NOT_QUALIFIED.to_owned(),
    }
}

/// Keys are decrypted off the async threads, once; one that cannot be used is the first finding.
async fn keys_of(context: &Context) -> Option<Vec<Finding>> {
    for (field, target) in &context.targets {
        let checked = {
            let target = target.clone();
            tokio::task::spawn_blocking(move || target.check_keys()).await
        };
        if let Ok(Err(violations)) = checked {
            return Some(
                violations
                    .into_iter()
                    .map(|FieldViolation { pointer, message }| Finding {
                        step: "key".to_owned(),
                        severity: Severity::Failure,
                        message: (context.redactor)(&format!(
                            "{}: /config{field}{pointer} {message}",
                            target.identity()
                        )),
                        duration: None,
                    })
                    .collect(),
            );
        }
    }
    None
}

/// A call that failed, as a step of the probe.
fn finding_of(failure: Failure) -> Finding {
    let step = match &failure {
        Failure::Provider(error) => match error.code {
            Code::UntrustedPeer => "host-key",
            Code::Unauthenticated => "authenticate",
            Code::Unavailable => "reach",
            Code::InvalidConfig => "configuration",
            _ => "probe",
        },
        _ => "provider",
    };
    let message = match failure {
        Failure::Provider(error) => error.message,
        other => other.to_string(),
    };
    Finding {
        step: step.to_owned(),
        severity: Severity::Failure,
        message,
        duration: None,
    }
}

/// The same where the call was the acquire of the probe's own lease: of a lease whose end cut it short, whoever probed asked
/// for none.
fn finding_of_lease(failure: Failure) -> Finding {
    let cut = matches!(&failure, Failure::Provider(error) if error.code == Code::Cancelled);
    let mut finding = finding_of(failure);
    if cut {
        finding.step = "acquire".to_owned();
        finding.message = "the probe made a lease to try the environment, and that lease was ended before the provider was done: by \
                           somebody's release, or because the server stops; probe again"
            .to_owned();
    }
    finding
}

fn report(
    context: &Context,
    warnings: Vec<Finding>,
    mut findings: Vec<Finding>,
    begun: Instant,
) -> ProbeReport {
    if findings.len() > FINDINGS {
        findings.truncate(FINDINGS);
        findings.push(Finding {
            step: "findings-truncated".to_owned(),
            severity: Severity::Warning,
            message: format!("the provider gave more than {FINDINGS} findings"),
            duration: None,
        });
    }
    if findings.is_empty() {
        findings.push(Finding {
            step: "provider".to_owned(),
            severity: Severity::Failure,
            message: "the provider found nothing at all, which proves nothing".to_owned(),
            duration: None,
        });
    }
    findings.splice(0..0, warnings);
    ProbeReport {
        ok: findings
            .iter()
            .all(|finding| finding.severity != Severity::Failure),
        company: context.company.clone(),
        driver: context.plugin.manifest().driver.as_str().to_owned(),
        provider: context.plugin.manifest().key.clone(),
        summary: summary(&context.name(), &findings),
        findings,
        duration_ms: u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX),
        lease: None,
        platform_qualification_recorded: false,
        qualification_note: NOT_QUALIFIED.to_owned(),
    }
}

/// One sentence that names the target and the first thing that is wrong.
fn summary(target: &str, findings: &[Finding]) -> String {
    let of = |severity| {
        findings
            .iter()
            .filter(move |finding| finding.severity == severity)
    };
    if let Some(failure) = of(Severity::Failure).next() {
        return format!(
            "{target} cannot be used: {}: {}",
            failure.step, failure.message
        );
    }
    match of(Severity::Warning).count() {
        0 => format!("{target} can be used"),
        1 => format!("{target} can be used, with one warning"),
        n => format!("{target} can be used, with {n} warnings"),
    }
}

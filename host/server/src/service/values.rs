//! One value for one place: a secret is had through a binding, and used only as that binding says.
//!
//! A binding is the right to use a secret in certain sites, toward certain destinations, which an administrator gives by
//! saving a configuration. Invariant (P8): where what is wanted now is not what was bound then, no value is had, however the
//! two came apart: another revision of the provider, or an edited row.

use leasehold_authority::{
    Accessor, Actor, Authority, Environment, PastedSecret, Resolved, SecretUse, Selector,
};
use leasehold_contract::FieldViolation;
use serde_json::Value;
use zeroize::Zeroizing;

use super::error::ServiceError;

/// Whose right to use a secret is used, and on whose behalf: that is recorded.
pub(crate) enum Holder<'a> {
    /// An administrator's word, for a draft that is not saved; what was pasted into it is nobody's secret yet.
    Draft {
        actor: &'a Actor,
        company: &'a str,
        pasted: &'a [PastedSecret],
    },
    /// An environment's bindings.
    Environment { id: &'a str, by: Accessor },
    /// What a lease pinned when it was acquired.
    Lease { id: &'a str, by: Accessor },
}

/// Where in the environment that a client sends a place lies that secrets are bound to.
fn in_request(pointer: &str) -> String {
    match pointer.strip_prefix("env:") {
        Some(name) => format!("/envVars/{name}"),
        None => format!("/config{pointer}"),
    }
}

/// The value for one place of a configuration.
///
/// # Errors
/// A place that is not bound, or bound for other sites or another destination; a secret that is gone.
pub(crate) async fn open(
    authority: &Authority,
    holder: &Holder<'_>,
    used: &SecretUse,
    reference: &Value,
) -> Result<Resolved, ServiceError> {
    let secrets = authority.secrets();
    let SecretUse {
        pointer,
        sites,
        destinations,
    } = used;
    let resolved = match holder {
        Holder::Environment { id, by } => match secrets.resolve(id, pointer, by).await {
            Err(leasehold_authority::Error::NotFound { .. }) => {
                // Without its binding the environment was deleted or saved anew since it was read, or its secret is gone.
                let now = authority.environments().get(id).await?;
                return Err(if !is_reference(reference) {
                    wrong(
                        pointer,
                        "was saved before the provider had a secret here, as a plain value; put a secret reference there and save the environment",
                    )
                } else if place_in(&now, pointer) == Some(reference) {
                    missing(
                        pointer,
                        "put another reference there and save the environment",
                    )
                } else {
                    ServiceError::refused(
                        "environment_changed",
                        format!(
                            "the environment {:?} was changed meanwhile; try again",
                            now.name
                        ),
                    )
                });
            }
            resolved => resolved?,
        },
        Holder::Lease { id, by } => match secrets.resolve_pinned(id, pointer, by).await {
            Err(leasehold_authority::Error::NotFound { .. }) => {
                return Err(missing(
                    pointer,
                    "the lease cannot be used any more; where it cannot be released either, clean its target up by hand and abandon it",
                ));
            }
            resolved => resolved?,
        },
        Holder::Draft {
            actor,
            company,
            pasted,
        } => {
            let id = reference
                .get("secretId")
                .and_then(Value::as_str)
                .filter(|_| is_reference(reference))
                .ok_or_else(|| wrong(pointer, "must be a secret reference {\"type\":\"secret_ref\",\"secretId\":\"sec_…\",\"version\":\"latest\"}"))?;
            let selector = match reference.get("version") {
                None => Selector::Latest,
                Some(version) => serde_json::from_value(version.clone())
                    .map_err(|_| wrong(pointer, "a version is \"latest\" or a number from 1"))?,
            };
            if let Some(value) = pasted.iter().find(|p| p.id() == id) {
                return Ok(value.resolved(pointer, destinations));
            }
            secrets
                .resolve_draft(actor, company, id, selector, pointer, destinations)
                .await
                .map_err(|error| match error {
                    leasehold_authority::Error::Invalid { violations } => ServiceError::Invalid {
                        violations: violations
                            .into_iter()
                            .map(|v| FieldViolation {
                                pointer: in_request(&v.pointer),
                                message: v.message,
                            })
                            .collect(),
                    },
                    other => other.into(),
                })?
        }
    };
    // A binding is the right to use a secret in these sites, toward these destinations. Of a draft both are what an
    // administrator says now; what a lease pinned is for the revision and the configuration that it pinned.
    let fits = match holder {
        Holder::Draft { .. } => resolved.pin.destinations == *destinations,
        _ => resolved.pin.sites == *sites && resolved.pin.destinations == *destinations,
    };
    if fits {
        return Ok(resolved);
    }
    match holder {
        // Another revision of the provider wants it elsewhere than the one that it was bound for.
        Holder::Environment { .. } => Err(wrong(
            pointer,
            format!(
                "is bound as {} toward {}, and this revision of the provider wants it as {} toward {}; save the environment's config again to bind it there",
                listed(&resolved.pin.sites),
                listed(&resolved.pin.destinations),
                listed(sites),
                listed(destinations),
            ),
        )),
        Holder::Lease { .. } | Holder::Draft { .. } => Err(leasehold_authority::Error::Corrupt {
            what: format!("the binding of {pointer}: it is for another site or destination"),
        }
        .into()),
    }
}

/// Something that is wrong with one place of an environment.
fn wrong(pointer: &str, message: impl Into<String>) -> ServiceError {
    ServiceError::Invalid {
        violations: vec![FieldViolation {
            pointer: in_request(pointer),
            message: message.into(),
        }],
    }
}

/// Sites or destinations in words.
fn listed(all: &[String]) -> String {
    match all {
        [] => "nothing".to_owned(),
        some => some.join(", "),
    }
}

fn is_reference(value: &Value) -> bool {
    value.get("type").and_then(Value::as_str) == Some("secret_ref")
}

/// What stands at a pointer of an environment now.
fn place_in<'a>(environment: &'a Environment, pointer: &str) -> Option<&'a Value> {
    if let Some(name) = pointer.strip_prefix("env:") {
        return environment.env_vars.get(name);
    }
    let (first, rest) = match pointer.strip_prefix('/')?.split_once('/') {
        Some((first, rest)) => (first, format!("/{rest}")),
        None => (pointer.strip_prefix('/')?, String::new()),
    };
    let first = first.replace("~1", "/").replace("~0", "~");
    environment.config.get(&first)?.pointer(&rest)
}

/// A reference whose secret is gone, in words.
fn missing(pointer: &str, mend: &str) -> ServiceError {
    ServiceError::refused(
        "secret_missing",
        format!("the secret at {pointer} was deleted while it was in use; {mend}"),
    )
}

/// A value as text.
///
/// # Errors
/// One that is none.
pub(crate) fn text_of(secret: &Resolved, pointer: &str) -> Result<Zeroizing<String>, ServiceError> {
    match std::str::from_utf8(&secret.value) {
        Ok(text) if !text.contains('\0') => Ok(Zeroizing::new(text.to_owned())),
        _ => Err(wrong(
            pointer,
            "the secret's value must be UTF-8 text without NUL here",
        )),
    }
}

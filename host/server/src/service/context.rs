//! What a configuration resolves to for calls: the component's view of it, the targets, the variables, and what must
//! never be shown.
//!
//! Secrets are resolved here, through a binding that names place and destination, and go into targets and payloads
//! only. Invariant (P8): the text that a component is given holds none of them.

use std::collections::BTreeMap;
use std::sync::Arc;

use leasehold_authority::{Accessor, Actor, Authority, Lease, SecretUse};
use leasehold_contract::FieldViolation;
use leasehold_egress::{Endpoint, Payloads, Secret, SshTarget, Value as Held};
use leasehold_runtime::Redactor;
use serde_json::{Map, Value};
use zeroize::Zeroizing;

use super::configuration::{self, Field, Format};
use super::endpoints;
use super::error::ServiceError;
use super::loaded::Loaded;
use super::values::{Holder, open, text_of};
use super::web::{self, Placeholders, Web, placeholder};

/// How a version of a secret is named in what a connection was made with.
pub(crate) fn version_of(secret: &str, version: i64) -> String {
    format!("{secret}@{version}")
}

/// A variable of every command of an environment.
enum Variable {
    Plain(String),
    Secret(Zeroizing<String>),
}

/// A configuration, resolved.
pub(crate) struct Context {
    pub(crate) company: String,
    pub(crate) environment: Option<String>,
    pub(crate) plugin: Loaded,
    /// The configuration as a component may see it, but for its placeholders.
    view: Value,
    /// The same as text, where there is no placeholder in it.
    fixed: Option<String>,
    /// The `ssh-target` fields by pointer.
    pub(crate) targets: BTreeMap<String, Arc<SshTarget>>,
    /// HTTP, where there is something to reach.
    pub(crate) web: Option<Web>,
    /// Names the versions of the secrets of the configuration.
    pub(crate) secret_version: String,
    variables: Vec<(String, Variable)>,
    /// Removes what must not be shown.
    pub(crate) redactor: Redactor,
}

impl std::fmt::Debug for Context {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Context")
            .field("company", &self.company)
            .field("environment", &self.environment)
            .field("targets", &self.targets)
            .finish_non_exhaustive()
    }
}

/// The configuration and variables that a context is made from.
pub(crate) struct Source<'a> {
    pub(crate) company: &'a str,
    pub(crate) environment: Option<&'a str>,
    pub(crate) config: &'a Map<String, Value>,
    pub(crate) env_vars: &'a Map<String, Value>,
    /// Pointers of the endpoints that somebody typed: no other is reached.
    pub(crate) typed: &'a [String],
}

impl Context {
    /// Resolves a configuration for calls of `plugin`.
    ///
    /// # Errors
    /// A secret that is not bound, or bound for another place or destination; a target that is not one.
    pub(crate) async fn resolve(
        authority: &Authority,
        plugin: Loaded,
        holder: Holder<'_>,
        source: Source<'_>,
    ) -> Result<Context, ServiceError> {
        let config = Value::Object(source.config.clone());
        let schema = &plugin.manifest().config_schema;
        let asked = web::asked(&plugin);
        let uses = configuration::secret_uses(schema, &asked.http.credentials, &config)
            .map_err(of_config)?;
        let mut resolved = config.clone();
        let mut versions = Vec::new();
        let mut going = Vec::new();
        let mut hidden = Vec::new();
        for used in &uses {
            let Some(reference) = config.pointer(&used.pointer) else {
                continue;
            };
            let secret = open(authority, &holder, used, reference).await?;
            let to = used.destinations.iter();
            going.extend(to.map(|to| (to.clone(), secret.pin.secret_id.clone())));
            versions.push(version_of(&secret.pin.secret_id, secret.pin.version));
            let text = text_of(&secret, &used.pointer)?;
            if let Some(place) = resolved.pointer_mut(&used.pointer) {
                *place = Value::String(text.to_string());
            }
        }
        let fields = configuration::fields(schema, &config);
        let found = Found::of(&fields, &mut resolved, source.typed);
        drop_secrets(resolved);
        let Found {
            targets,
            endpoints,
            values,
            hidden: mut found_hidden,
            violations,
        } = found;
        hidden.append(&mut found_hidden);
        if !violations.is_empty() {
            return Err(of_config(violations));
        }
        let mut variables = Vec::with_capacity(source.env_vars.len());
        for (name, value) in source.env_vars {
            let variable = match value {
                Value::String(text) => Variable::Plain(text.clone()),
                reference => {
                    let used = SecretUse::of_variable(name);
                    let secret = open(authority, &holder, &used, reference).await?;
                    let text = text_of(&secret, &used.pointer)?;
                    hidden.push(text.to_string());
                    Variable::Secret(text)
                }
            };
            variables.push((name.clone(), variable));
        }
        versions.sort();
        versions.dedup();
        let view = component_view(schema, &config, &targets)?;
        let has_secret = fields
            .iter()
            .any(|field| place_of_placeholder(field, &view).is_some());
        let web = Web::of(asked, &config, endpoints, values, &going);
        Ok(Context {
            company: source.company.to_owned(),
            environment: source.environment.map(str::to_owned),
            fixed: (!has_secret).then(|| view.to_string()),
            view,
            targets,
            web,
            secret_version: versions.join(","),
            variables,
            redactor: redactor(hidden),
            plugin,
        })
    }

    /// As [`Context::resolve`], for what a lease pinned; `purpose` says for what of its life.
    pub(crate) async fn of_lease(
        authority: &Authority,
        plugin: Loaded,
        lease: &Lease,
        purpose: &'static str,
    ) -> Result<Context, ServiceError> {
        let by = Accessor {
            lease: Some(lease.id.clone()),
            run: lease.caller.run.clone(),
            ..Accessor::of(&Actor::system("lease"), purpose)
        };
        Context::resolve(
            authority,
            plugin,
            Holder::Lease { id: &lease.id, by },
            Source {
                company: &lease.company_id,
                environment: Some(&lease.environment_id),
                config: &lease.config,
                env_vars: &lease.env_vars,
                typed: &lease.endpoints,
            },
        )
        .await
    }

    /// The configuration for one call, and its placeholders. Each call has its own, which mean nothing in any other.
    ///
    /// # Errors
    /// The system's source of randomness failing.
    pub(crate) fn config(&self) -> Result<(String, Placeholders), ServiceError> {
        if let Some(text) = &self.fixed {
            return Ok((text.clone(), Vec::new()));
        }
        let schema = &self.plugin.manifest().config_schema;
        let mut view = self.view.clone();
        let placeholders = renew_placeholders(schema, &mut view)?;
        Ok((view.to_string(), placeholders))
    }

    /// The target of an environment, as people call it; the provider's key where it has none.
    pub(crate) fn name(&self) -> String {
        let target = self.targets.values().next().map(|target| target.identity());
        target
            .or_else(|| self.web.as_ref()?.name())
            .unwrap_or_else(|| self.plugin.manifest().key.clone())
    }

    /// Whether one lease at a time may have the target: the provider says that it is one account, and the
    /// configuration does not say that sharing it is wanted.
    pub(crate) fn is_exclusive(&self, config: &Map<String, Value>) -> bool {
        self.plugin.manifest().features.exclusive_target
            && config.get("allowSharedAccount").and_then(Value::as_bool) != Some(true)
    }

    /// The variables of one command: the environment's, then the command's own over them. Secrets stand in it as
    /// placeholders that mean something in this call alone.
    ///
    /// # Errors
    /// The system's source of randomness failing.
    pub(crate) fn variables(
        &self,
        own: &[(String, String)],
    ) -> Result<(Vec<(String, String)>, Payloads), ServiceError> {
        let mut all: Vec<(String, String)> = Vec::with_capacity(self.variables.len() + own.len());
        let mut payloads = Payloads::none();
        for (name, variable) in &self.variables {
            if own.iter().any(|(o, _)| o == name) {
                continue;
            }
            match variable {
                Variable::Plain(text) => all.push((name.clone(), text.clone())),
                Variable::Secret(text) => {
                    let placeholder = placeholder()?;
                    payloads.insert(placeholder.clone(), text.to_string());
                    all.push((name.clone(), placeholder));
                }
            }
        }
        all.extend(own.iter().cloned());
        Ok((all, payloads))
    }
}

/// The configuration as a component may see it in one call: targets reduced, credentials as fresh placeholders.
///
/// # Errors
/// The system's source of randomness failing.
pub(crate) fn component_view(
    schema: &Value,
    config: &Value,
    targets: &BTreeMap<String, Arc<SshTarget>>,
) -> Result<Value, ServiceError> {
    let mut view =
        configuration::stand_ins(schema, config, |field: &Field, value| match field.format {
            Format::SshTarget => targets
                .get(&field.pointer)
                .map_or(Value::Null, |target| target.reduced()),
            Format::Secret => Value::String(String::new()),
            Format::Endpoint => endpoints::reduced(value),
            Format::Registry => endpoints::reduced_registry(value),
            Format::EngineEndpoint => endpoints::reduced_engine(value),
        });
    renew_placeholders(schema, &mut view)?;
    Ok(view)
}

/// Where in a component's view the placeholder of a field stands, if it has one.
fn place_of_placeholder(field: &Field, view: &Value) -> Option<String> {
    match field.format {
        Format::Secret => Some(field.pointer.clone()),
        Format::Registry => {
            let place = format!("{}/password", field.pointer);
            view.pointer(&place).map(|_| place)
        }
        Format::SshTarget | Format::Endpoint | Format::EngineEndpoint => None,
    }
}

/// Puts a new placeholder into every field that has one, and tells which stands in which.
fn renew_placeholders(schema: &Value, view: &mut Value) -> Result<Placeholders, ServiceError> {
    let mut all = Vec::new();
    for field in configuration::fields(schema, view) {
        let Some(place) = place_of_placeholder(&field, view) else {
            continue;
        };
        if let Some(place) = view.pointer_mut(&place) {
            let fresh = placeholder()?;
            *place = Value::String(fresh.clone());
            all.push((field.pointer, fresh));
        }
    }
    Ok(all)
}

/// What a configuration whose secrets were put in their places leads to.
#[derive(Default)]
struct Found {
    targets: BTreeMap<String, Arc<SshTarget>>,
    endpoints: BTreeMap<String, Endpoint>,
    values: Vec<(String, Held)>,
    hidden: Vec<String>,
    violations: Vec<FieldViolation>,
}

impl Found {
    /// Takes the host's own fields out of a configuration.
    fn of(fields: &[Field], resolved: &mut Value, typed: &[String]) -> Found {
        let mut found = Found::default();
        for field in fields {
            let Some(value) = resolved.pointer_mut(&field.pointer).map(Value::take) else {
                continue;
            };
            let wrong = found.take(field, &value, typed);
            drop_secrets(value);
            found
                .violations
                .extend(wrong.into_iter().map(|v| FieldViolation {
                    pointer: format!("{}{}", field.pointer, v.pointer),
                    message: v.message,
                }));
        }
        found
    }

    fn take(&mut self, field: &Field, value: &Value, typed: &[String]) -> Vec<FieldViolation> {
        let pointer = field.pointer.clone();
        match field.format {
            Format::SshTarget => match SshTarget::from_config(value) {
                Ok(target) => {
                    self.hidden.extend(target.secrets());
                    self.targets.insert(pointer, Arc::new(target));
                }
                Err(wrong) => return wrong,
            },
            Format::Endpoint | Format::EngineEndpoint => {
                let resolve = match field.format {
                    Format::EngineEndpoint => endpoints::resolve_engine,
                    _ => endpoints::resolve,
                };
                match resolve(value, typed.contains(&pointer)) {
                    Ok(endpoint) => {
                        let key = value.get("clientKey").and_then(Value::as_str);
                        self.hidden.extend(key.map(str::to_owned));
                        self.endpoints.insert(pointer, endpoint);
                    }
                    Err(wrong) => return vec![wrong],
                }
            }
            Format::Registry => {
                if let Some(credential) = endpoints::resolve_registry(value) {
                    let password = value.get("password").and_then(Value::as_str);
                    self.hidden.extend(password.map(str::to_owned));
                    self.values.push((pointer, credential));
                }
            }
            Format::Secret => {
                if let Some(text) = value.as_str() {
                    self.hidden.push(text.to_owned());
                    self.values
                        .push((pointer, Held::Text(Secret::new(text.to_owned()))));
                }
            }
        }
        Vec::new()
    }
}

/// Violations of a stored or drafted configuration, as pointers into the environment that a client sends.
fn of_config(violations: Vec<FieldViolation>) -> ServiceError {
    let violations = violations.into_iter().map(|v| FieldViolation {
        pointer: format!("/config{}", v.pointer),
        message: v.message,
    });
    ServiceError::Invalid {
        violations: violations.collect(),
    }
}

/// Wipes the strings of a resolved configuration before it is freed.
fn drop_secrets(value: Value) {
    match value {
        Value::String(text) => drop(Zeroizing::new(text)),
        Value::Array(items) => items.into_iter().for_each(drop_secrets),
        Value::Object(object) => object
            .into_iter()
            .for_each(|(_, value)| drop_secrets(value)),
        _ => {}
    }
}

/// The shortest value that is looked for in texts: shorter ones would take words out of them.
const SHORTEST: usize = 8;

/// Replaces each of these values, longest first. The second net, not the boundary.
fn redactor(values: Vec<String>) -> Redactor {
    let mut values: Vec<Zeroizing<String>> = values
        .into_iter()
        .flat_map(|value| {
            let lines: Vec<String> = value.lines().map(|l| l.trim().to_owned()).collect();
            drop(Zeroizing::new(value));
            lines
        })
        .filter(|line| line.len() >= SHORTEST)
        .map(Zeroizing::new)
        .collect();
    values.sort_by_key(|value| std::cmp::Reverse(value.len()));
    Arc::new(move |text: &str| {
        let mut text = text.to_owned();
        for value in &values {
            if text.contains(value.as_str()) {
                text = text.replace(value.as_str(), "[redacted]");
            }
        }
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_loses_every_secret_of_eight_bytes_line_by_line() {
        let redact = redactor(vec![
            "first-line-x\nsecond-line-y".to_owned(),
            "short".to_owned(),
        ]);
        assert_eq!(
            redact("a second-line-y b first-line-x short"),
            "a [redacted] b [redacted] short"
        );
    }

    #[test]
    fn a_component_is_given_another_placeholder_in_every_call_and_nothing_of_the_reference() {
        let schema = serde_json::json!({
            "type": "object",
            "properties": {
                "token": { "type": "string", "format": "secret" },
                "size": { "type": "integer" }
            }
        });
        let config = serde_json::json!({
            "token": { "type": "secret_ref", "secretId": "sec_1", "version": "latest" }, "size": 3
        });
        let view = || component_view(&schema, &config, &BTreeMap::new()).expect("randomness");
        let (first, mut again) = (view(), view());
        assert_ne!(first["token"], again["token"]);
        let before = again["token"].clone();
        renew_placeholders(&schema, &mut again).expect("randomness");
        assert_ne!(again["token"], before);
        assert!(first["token"].as_str().is_some_and(|t| t.len() >= 32));
        assert_eq!(first["size"], 3);
        assert!(!first.to_string().contains("sec_1"), "{first}");
    }

    #[test]
    fn a_longer_secret_is_removed_before_its_prefix() {
        let redact = redactor(vec!["password".to_owned(), "password-longer".to_owned()]);
        assert_eq!(redact("password-longer"), "[redacted]");
    }
}

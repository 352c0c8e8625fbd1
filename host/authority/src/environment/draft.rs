//! What an environment may be, as a client writes it. Pure: no clock, no database.
//!
//! Keeps the rule that every secret in a configuration is a reference that the host knows the use of: a
//! reference where the provider's schema has no secret is refused, and so is a use without a reference.

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};

use super::{Environment, LOCAL, reserved};
use crate::error::{Result, Violations};
use crate::name;
use crate::secret::{self, PastedSecret, Reference, Wanted, env_pointer};

/// Bytes of a configuration's JSON at most.
const CONFIG: usize = 256 * 1024;
/// Bytes of all variables' JSON at most.
const ENV_VARS: usize = 128 * 1024;
/// Bytes of metadata's JSON at most.
const METADATA: usize = 16 * 1024;

/// The kind of environment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EnvironmentDriver {
    /// The server's own machine: one row, which is never leased.
    Local,
    /// A machine reached by SSH.
    Ssh,
    /// Made for each lease by a backend with an API.
    Sandbox,
    /// Whatever else a plugin leases.
    Plugin,
}

impl EnvironmentDriver {
    /// As it is stored and written.
    pub fn as_str(self) -> &'static str {
        match self {
            EnvironmentDriver::Local => "local",
            EnvironmentDriver::Ssh => "ssh",
            EnvironmentDriver::Sandbox => "sandbox",
            EnvironmentDriver::Plugin => "plugin",
        }
    }

    /// The driver of this name; none for any other word.
    pub fn parse(text: &str) -> Option<EnvironmentDriver> {
        [
            EnvironmentDriver::Local,
            EnvironmentDriver::Ssh,
            EnvironmentDriver::Sandbox,
            EnvironmentDriver::Plugin,
        ]
        .into_iter()
        .find(|d| d.as_str() == text)
    }
}

/// Whether new leases may be made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EnvironmentStatus {
    /// They may.
    #[default]
    Active,
    /// They may not.
    Archived,
}

impl EnvironmentStatus {
    /// As it is stored and written.
    pub fn as_str(self) -> &'static str {
        match self {
            EnvironmentStatus::Active => "active",
            EnvironmentStatus::Archived => "archived",
        }
    }

    /// The status of this name; none for any other word.
    pub fn parse(text: &str) -> Option<EnvironmentStatus> {
        match text {
            "active" => Some(EnvironmentStatus::Active),
            "archived" => Some(EnvironmentStatus::Archived),
            _ => None,
        }
    }
}

/// An environment whole, as it shall be.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct EnvironmentDraft {
    /// 1 to 100 characters, unique in what any company sees.
    pub name: String,
    /// For a person.
    #[serde(default)]
    pub description: Option<String>,
    /// The kind of environment.
    pub driver: EnvironmentDriver,
    /// The key of an installed plugin of this driver.
    pub provider: String,
    /// A JSON object that the provider's schema describes; secrets are references.
    #[serde(default)]
    pub config: Map<String, Value>,
    /// Variables of every command: a string or a secret reference each.
    #[serde(default)]
    pub env_vars: Map<String, Value>,
    /// The client's own; keys that are the server's are refused at every depth.
    #[serde(default)]
    pub metadata: Option<Map<String, Value>>,
    /// Whether new leases may be made.
    #[serde(default)]
    pub status: EnvironmentStatus,
}

/// What of an environment shall change; absent fields stay.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct EnvironmentPatch {
    /// Another company whose own it is to be; `null` for one that all companies share.
    #[serde(deserialize_with = "present")]
    pub company_id: Option<Option<String>>,
    /// Another name.
    pub name: Option<String>,
    /// Another description; `null` removes it.
    #[serde(deserialize_with = "present")]
    pub description: Option<Option<String>>,
    /// Another driver: the configuration is then replaced, not merged.
    pub driver: Option<EnvironmentDriver>,
    /// Another provider: the configuration is then replaced, not merged.
    pub provider: Option<String>,
    /// Merged into the configuration field by field at the top level; `null` removes a field.
    pub config: Option<Map<String, Value>>,
    /// Merged into the variables by name; `null` removes one.
    pub env_vars: Option<Map<String, Value>>,
    /// Replaces the metadata; `null` removes it.
    #[serde(deserialize_with = "present")]
    pub metadata: Option<Option<Map<String, Value>>>,
    /// Another status.
    pub status: Option<EnvironmentStatus>,
}

fn present<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    from: D,
) -> Result<Option<Option<T>>, D::Error> {
    Option::<T>::deserialize(from).map(Some)
}

/// Where a secret of the configuration may be used; from whoever walked the provider's schema.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SecretUse {
    /// RFC 6901 pointer of the reference in the configuration, such as `/target/privateKey`.
    pub pointer: String,
    /// Where in a message, as the grant approved: in the server's own words.
    pub sites: Vec<String>,
    /// Toward whom, such as `ssh://ci@10.0.0.5:22`.
    pub destinations: Vec<String>,
}

impl SecretUse {
    /// The use of a secret as a variable of commands: a payload, which goes into the lease's own environment and nowhere
    /// else.
    pub fn of_variable(name: &str) -> SecretUse {
        SecretUse {
            pointer: env_pointer(name),
            sites: vec!["payload".to_owned()],
            destinations: vec!["lease".to_owned()],
        }
    }
}

/// What in a configuration that is saved is the host's own: its secrets and its endpoints.
#[derive(Debug, Default)]
pub struct EnvironmentSecrets {
    /// Where each that its configuration refers to may be used.
    pub uses: Vec<SecretUse>,
    /// Those that are to be kept with it, which [`take_pasted`](crate::take_pasted) took out of it.
    pub pasted: Vec<PastedSecret>,
    /// Pointers of the fields of format `endpoint` that were typed into it.
    pub endpoints: Vec<String>,
}

impl From<Vec<SecretUse>> for EnvironmentSecrets {
    fn from(uses: Vec<SecretUse>) -> EnvironmentSecrets {
        EnvironmentSecrets {
            uses,
            ..EnvironmentSecrets::default()
        }
    }
}

impl Environment {
    /// The environment as `patch` would have it. Nothing is stored.
    pub fn patched(&self, patch: EnvironmentPatch) -> EnvironmentDraft {
        let driver = patch.driver.unwrap_or(self.driver);
        let provider = patch.provider.unwrap_or_else(|| self.provider.clone());
        let elsewhere = driver != self.driver || provider != self.provider;
        let config = if elsewhere {
            Map::new()
        } else {
            self.config.clone()
        };
        EnvironmentDraft {
            name: patch.name.unwrap_or_else(|| self.name.clone()),
            description: patch
                .description
                .unwrap_or_else(|| self.description.clone()),
            driver,
            provider,
            config: merged(config, patch.config),
            env_vars: merged(self.env_vars.clone(), patch.env_vars),
            metadata: patch.metadata.unwrap_or_else(|| self.metadata.clone()),
            status: patch.status.unwrap_or(self.status),
        }
    }
}

/// An object with a patch laid over it, key by key, one level deep; `null` removes a key.
fn merged(mut into: Map<String, Value>, patch: Option<Map<String, Value>>) -> Map<String, Value> {
    for (key, value) in patch.unwrap_or_default() {
        if value.is_null() {
            into.shift_remove(&key);
        } else {
            into.insert(key, value);
        }
    }
    into
}

/// A draft that may be stored, and the bindings that it needs.
pub(super) struct Checked {
    pub draft: EnvironmentDraft,
    pub wanted: Vec<Wanted>,
}

/// Checks a draft whole: every violation at once.
pub(super) fn check(mut draft: EnvironmentDraft, uses: Vec<SecretUse>) -> Result<Checked> {
    let mut bad = Violations::default();
    match name::checked("/name", &draft.name) {
        Ok(name) => draft.name = name,
        Err(e) => bad.take(e)?,
    }
    match name::description("/description", draft.description.as_deref()) {
        Ok(description) => draft.description = description,
        Err(e) => bad.take(e)?,
    }
    if draft.driver == EnvironmentDriver::Local {
        for (pointer, is_right) in [
            ("/provider", draft.provider == LOCAL),
            ("/config", draft.config.is_empty()),
            ("/envVars", draft.env_vars.is_empty()),
        ] {
            if !is_right {
                bad.add(
                    pointer,
                    "is nothing that the server's own machine has: it is never leased, so it has no provider but local, \
                     no configuration and no variables",
                );
            }
        }
    }
    let key = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    if draft.provider.is_empty()
        || draft.provider.len() > 63
        || draft.provider.starts_with('-')
        || !draft.provider.chars().all(key)
    {
        bad.add(
            "/provider",
            "must be the key of an installed plugin: 1 to 63 of a-z, 0-9 and -",
        );
    }
    let wanted = config(&draft, uses, &mut bad)
        .into_iter()
        .chain(env_vars(&draft, &mut bad))
        .collect();
    metadata(&draft, &mut bad);
    bad.done()?;
    Ok(Checked { draft, wanted })
}

fn config(draft: &EnvironmentDraft, uses: Vec<SecretUse>, bad: &mut Violations) -> Vec<Wanted> {
    let value = Value::Object(draft.config.clone());
    if value.to_string().len() > CONFIG {
        bad.add("/config", format!("must be at most {CONFIG} bytes of JSON"));
    }
    let mut references = secret::find_references(&value, bad);
    let mut wanted = Vec::new();
    for used in uses {
        match references.iter().position(|r| r.pointer == used.pointer) {
            Some(at) => {
                let reference = references.swap_remove(at);
                wanted.push(want(
                    format!("/config{}", used.pointer),
                    reference,
                    used.sites,
                    used.destinations,
                ));
            }
            None => bad.add(
                format!("/config{}", used.pointer),
                "must be a secret reference that is used once",
            ),
        }
    }
    for unused in references {
        bad.add(
            format!("/config{}", unused.pointer),
            "the provider has no secret here: a reference may stand only in a field of format secret, or in the secret fields of a target, endpoint or registry",
        );
    }
    wanted
}

fn want(
    at: String,
    reference: Reference,
    mut sites: Vec<String>,
    mut destinations: Vec<String>,
) -> Wanted {
    sites.sort();
    sites.dedup();
    destinations.sort();
    destinations.dedup();
    Wanted {
        pointer: reference.pointer,
        secret_id: reference.secret_id,
        selector: reference.selector,
        sites,
        destinations,
        at,
    }
}

fn env_vars(draft: &EnvironmentDraft, bad: &mut Violations) -> Vec<Wanted> {
    let mut wanted = Vec::new();
    let mut size = 0;
    for (name, value) in &draft.env_vars {
        let at = format!("/envVars/{}", name.replace('~', "~0").replace('/', "~1"));
        size += name.len() + value.to_string().len();
        let good = |c: char| c.is_ascii_alphanumeric() || c == '_';
        if name.is_empty()
            || name.len() > 256
            || name.starts_with(|c: char| c.is_ascii_digit())
            || !name.chars().all(good)
        {
            bad.add(
                &at,
                "a variable's name is 1 to 256 of A-Z, a-z, 0-9 and _, not beginning with a digit",
            );
        }
        match value {
            Value::String(text) if text.contains('\0') => {
                bad.add(&at, "a variable's value may not contain NUL");
            }
            Value::String(_) => {}
            other => match secret::read_reference(other, &env_pointer(name), &at, bad) {
                Some(reference) => {
                    let used = SecretUse::of_variable(name);
                    wanted.push(want(at, reference, used.sites, used.destinations));
                }
                None if other.get("type").and_then(Value::as_str) == Some("secret_ref") => {}
                None => bad.add(
                    &at,
                    "a variable is a string or a secret reference {\"type\":\"secret_ref\",\"secretId\":\"sec_…\",\"version\":\"latest\" or a number}",
                ),
            },
        }
    }
    if size > ENV_VARS {
        bad.add(
            "/envVars",
            format!("must be at most {ENV_VARS} bytes of JSON together"),
        );
    }
    wanted
}

/// The bindings that variables which were saved before need.
pub(super) fn variables(env_vars: &Map<String, Value>) -> Result<Vec<Wanted>> {
    let mut bad = Violations::default();
    let mut wanted = Vec::new();
    for (name, value) in env_vars {
        let at = format!("/envVars/{}", name.replace('~', "~0").replace('/', "~1"));
        let reference = secret::read_reference(value, &env_pointer(name), &at, &mut bad);
        let used = SecretUse::of_variable(name);
        wanted.extend(reference.map(|r| want(at, r, used.sites, used.destinations)));
    }
    bad.done()?;
    Ok(wanted)
}

fn metadata(draft: &EnvironmentDraft, bad: &mut Violations) {
    let Some(metadata) = &draft.metadata else {
        return;
    };
    let metadata = Value::Object(metadata.clone());
    reserved::check(&metadata, "/metadata", bad);
    if metadata.to_string().len() > METADATA {
        bad.add(
            "/metadata",
            format!("must be at most {METADATA} bytes of JSON"),
        );
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::Error;

    fn draft(value: Value) -> EnvironmentDraft {
        serde_json::from_value(value).unwrap()
    }

    fn refused(draft: EnvironmentDraft, uses: Vec<SecretUse>) -> Vec<String> {
        match check(draft, uses) {
            Err(Error::Invalid { violations }) => {
                violations.into_iter().map(|v| v.pointer).collect()
            }
            Err(e) => panic!("{e}"),
            Ok(_) => Vec::new(),
        }
    }

    #[test]
    fn every_violation_of_a_draft_is_named_at_once() {
        let at = refused(
            draft(json!({
                "name": " ", "driver": "ssh", "provider": "No",
                "config": { "key": { "type": "secret_ref", "secretId": "sec_a" } },
                "envVars": { "1A": "x", "NUL": "a\u{0}b", "N": 1, "R": { "type": "secret_ref" } },
                "metadata": {
                    "leaseholdThing": 1, "platformQualification": 1, "mine": [{ "managed_by/x": 1 }],
                },
            })),
            vec![SecretUse {
                pointer: "/other".into(),
                sites: vec![],
                destinations: vec![],
            }],
        );
        assert_eq!(
            at,
            [
                "/name",
                "/provider",
                "/config/other",
                "/config/key",
                "/envVars/1A",
                "/envVars/NUL",
                "/envVars/N",
                "/envVars/R",
                "/metadata/leaseholdThing",
                "/metadata/platformQualification",
                "/metadata/mine/0/managed_by~1x",
            ]
        );
    }

    #[test]
    fn a_patch_is_strict_and_tells_null_from_absent() {
        assert!(serde_json::from_value::<EnvironmentPatch>(json!({ "nam": "x" })).is_err());
        let patch: EnvironmentPatch =
            serde_json::from_value(json!({ "description": null })).unwrap();
        assert_eq!(patch.description, Some(None));
        assert_eq!(patch.metadata, None);
    }
}

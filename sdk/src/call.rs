//! What the host said with a call: the configuration, and for whom and what it calls.
//!
//! A [`Call`] is made anew for each call from what the host passed, and never outlives it.

use std::ops::Deref;

use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::bindings::base::leasehold::provider::types::{Context, Error, LeaseRef, Purpose};
use crate::error::{Result, violation};

/// One call: the parsed configuration (which it dereferences to) and the host's context.
#[derive(Clone, Debug)]
pub struct Call<C> {
    config: C,
    context: Context,
}

impl<C> Deref for Call<C> {
    type Target = C;

    fn deref(&self) -> &C {
        &self.config
    }
}

impl<C> Call<C> {
    /// The configuration as the provider's own type.
    pub fn config(&self) -> &C {
        &self.config
    }

    /// All that the host said, as the contract has it.
    pub fn context(&self) -> &Context {
        &self.context
    }

    /// The company that the call is made for.
    pub fn company(&self) -> &str {
        &self.context.company
    }

    /// Why the host calls.
    pub fn purpose(&self) -> Purpose {
        self.context.purpose
    }

    /// The lease that the call acts for; the host gives one with `acquire`, `release` and every call on a
    /// handle.
    ///
    /// # Errors
    /// `failed-precondition` where there is none.
    pub fn lease(&self) -> Result<&LeaseRef> {
        self.context
            .lease
            .as_ref()
            .ok_or_else(|| Error::failed_precondition("this call has no lease"))
    }

    /// The idempotency key of what is to be created, `[a-z][a-z0-9-]{0,39}`: the same on every retry. Use it
    /// as the name wherever the backend's names are unique.
    ///
    /// # Errors
    /// As [`Call::lease`].
    pub fn acquisition(&self) -> Result<&str> {
        Ok(&self.lease()?.acquisition)
    }

    /// The labels to be put on everything that is created, as a JSON object.
    pub fn labels(&self) -> Value {
        self.context
            .labels
            .iter()
            .map(|label| (label.key.clone(), Value::from(label.value.as_str())))
            .collect::<serde_json::Map<_, _>>()
            .into()
    }

    /// The labels as pairs, in the host's order.
    pub fn label_pairs(&self) -> impl Iterator<Item = (&str, &str)> {
        self.context
            .labels
            .iter()
            .map(|label| (label.key.as_str(), label.value.as_str()))
    }

    /// The placeholder of a value that an earlier call of this lease kept under this name.
    pub fn kept(&self, name: &str) -> Option<&str> {
        self.context
            .kept
            .iter()
            .find(|(kept, _)| kept == name)
            .map(|(_, placeholder)| placeholder.as_str())
    }
}

impl<C: DeserializeOwned> Call<C> {
    /// Reads the configuration. The host has checked it against the schema: what fails here is a schema
    /// that promises less than the type wants.
    pub(crate) fn read(context: Context, config: &str) -> Result<Call<C>> {
        match serde_json::from_str(config) {
            Ok(config) => Ok(Call { config, context }),
            Err(e) => Err(Error::invalid_config(vec![violation("", e.to_string())])),
        }
    }
}

/// Reads what this provider wrote earlier (a handle or a reference).
pub(crate) fn read_own<T: DeserializeOwned>(what: &str, json: &str) -> Result<T> {
    serde_json::from_str(json).map_err(|e| {
        Error::internal(format!(
            "the {what} does not read as this version of the provider writes it: {e}"
        ))
    })
}

/// Writes a handle or a reference.
pub(crate) fn write_own<T: serde::Serialize>(what: &str, value: &T) -> Result<String> {
    serde_json::to_string(value)
        .map_err(|e| Error::internal(format!("the {what} cannot be written as JSON: {e}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bindings::base::leasehold::provider::types::{Code, Label};

    fn context() -> Context {
        Context {
            company: "acme".into(),
            environment: None,
            lease: None,
            labels: vec![Label {
                key: "leasehold-owner".into(),
                value: "a1".into(),
            }],
            purpose: Purpose::Run,
            timeout: 1000,
            kept: vec![("session".into(), "ph-1".into())],
        }
    }

    #[test]
    fn a_configuration_that_does_not_fit_the_type_is_an_invalid_configuration() {
        let error = Call::<Vec<String>>::read(context(), "{}").expect_err("an object is no list");
        assert_eq!(error.code, Code::InvalidConfig);
    }

    #[test]
    fn labels_and_kept_values_are_found_by_name() {
        let call = Call::<Value>::read(context(), r#"{"a":1}"#).expect("reads");
        assert_eq!(call["a"], 1);
        assert_eq!(
            call.labels(),
            serde_json::json!({ "leasehold-owner": "a1" })
        );
        assert_eq!(call.kept("session"), Some("ph-1"));
        assert_eq!(call.kept("other"), None);
        assert!(call.acquisition().is_err());
    }
}

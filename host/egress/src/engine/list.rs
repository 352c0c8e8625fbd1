//! Lists of containers: an engine is asked for the lease's own, and whatever else it answers is left out.
//!
//! What others run there, its names, commands and labels, is nothing that a component of this lease is told.

use serde_json::Value;

use super::Owner;

/// The value of `filters` that asks for what carries the owner label.
pub(super) fn filters(owner: &Owner) -> String {
    let (key, value) = owner.label();
    serde_json::json!({ "label": [format!("{key}={value}")] }).to_string()
}

/// Of a list of containers, those whose label `key` is `value`.
///
/// # Errors
/// An answer that is no list of containers, in words.
pub(crate) fn owned(body: &str, key: &str, value: &str) -> Result<String, String> {
    let all: Vec<Value> =
        serde_json::from_str(body).map_err(|_| "it is no list of containers".to_owned())?;
    let own: Vec<Value> = all
        .into_iter()
        .filter(|one| !value.is_empty() && one["Labels"][key] == *value)
        .collect();
    serde_json::to_string(&own).map_err(|e| e.to_string())
}

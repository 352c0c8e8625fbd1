//! Values that stand in an environment where a reference belongs:
//! `{"type":"secret_value","value":"…","name":"…","purpose":"…"}`.
//!
//! They are taken out before anything else looks at the environment, and a reference to a secret that does not exist yet
//! stands in their place. That secret is kept in the transaction that saves the environment, or not at all.

use serde_json::{Map, Value, json};
use zeroize::{Zeroize as _, Zeroizing};

use super::{NewSecret, Pin, Resolved, SecretPurpose, check_value, env_pointer, insert};
use crate::actor::Actor;
use crate::error::{Error, Result, Violations};
use crate::pointer::Pointer;
use crate::store::Tx;
use crate::{id, name};

/// Characters of a name that is made up at most, so that it stays one with what is added to it.
const MADE_UP: usize = 80;

/// A value that was taken out of an environment, to be kept with it.
#[derive(Clone)]
pub struct PastedSecret {
    id: String,
    name: Option<String>,
    /// The last word of its place, for a name.
    field: String,
    purpose: SecretPurpose,
    value: Zeroizing<Vec<u8>>,
}

impl PastedSecret {
    /// The id that the secret will have; the reference in its place names it.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The value for the probe of the draft that it was taken out of: whoever sent it knows it.
    pub fn resolved(&self, pointer: &str, destinations: &[String]) -> Resolved {
        Resolved {
            value: self.value.clone(),
            pin: Pin {
                pointer: pointer.to_owned(),
                secret_id: self.id.clone(),
                version: 1,
                sites: Vec::new(),
                destinations: destinations.to_vec(),
            },
        }
    }
}

impl std::fmt::Debug for PastedSecret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PastedSecret")
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}

/// What is wrong with a value in place of a reference; the value is not repeated.
const SHAPE: &str = "a value to be kept is {\"type\":\"secret_value\",\"value\":\"…\"} with \"name\" and \"purpose\" \
                     (key, password, token, certificate or other) beside it at will";

/// Takes every value out of a configuration and variables, and puts references in.
///
/// # Errors
/// Every one that is not well-formed, at once.
pub fn take_pasted(
    config: Option<&mut Map<String, Value>>,
    env_vars: Option<&mut Map<String, Value>>,
) -> Result<Vec<PastedSecret>> {
    let mut bad = Violations::default();
    let mut taken = Vec::new();
    for (of, map) in [("/config", config), ("/envVars", env_vars)] {
        let mut at = Pointer::at(of);
        for (name, value) in map.into_iter().flatten() {
            let above = at.enter(name);
            // Of a variable the binding's pointer is its name; of the configuration, what follows `/config`.
            let place = match of {
                "/envVars" => Place::Variable(name, at.as_str().len()),
                _ => Place::Config(of.len()),
            };
            walk(value, place, &mut at, &mut taken, &mut bad)?;
            at.leave(above);
        }
    }
    bad.done()?;
    Ok(taken)
}

/// How a binding's pointer is made of a pointer into the body.
#[derive(Clone, Copy)]
enum Place<'a> {
    /// Without so many bytes at its head.
    Config(usize),
    /// This variable, and what follows so many bytes.
    Variable(&'a str, usize),
}

impl Place<'_> {
    fn pointer(self, at: &str) -> String {
        match self {
            Place::Config(head) => at[head..].to_owned(),
            Place::Variable(name, head) => env_pointer(name) + &at[head..],
        }
    }
}

fn walk(
    value: &mut Value,
    place: Place<'_>,
    at: &mut Pointer,
    taken: &mut Vec<PastedSecret>,
    bad: &mut Violations,
) -> Result<()> {
    match value {
        Value::Object(object)
            if object.get("type").and_then(Value::as_str) == Some("secret_value") =>
        {
            let object = std::mem::take(object);
            match read(object, &place.pointer(at.as_str()), at.as_str())? {
                Ok(pasted) => {
                    *value =
                        json!({ "type": "secret_ref", "secretId": pasted.id, "version": "latest" });
                    taken.push(pasted);
                }
                Err((at, message)) => {
                    *value = Value::Null;
                    bad.add(at, message);
                }
            }
        }
        Value::Object(object) => {
            for (key, value) in object {
                let above = at.enter(key);
                walk(value, place, at, taken, bad)?;
                at.leave(above);
            }
        }
        Value::Array(items) => {
            for (i, value) in items.iter_mut().enumerate() {
                let above = at.enter(&i.to_string());
                walk(value, place, at, taken, bad)?;
                at.leave(above);
            }
        }
        _ => {}
    }
    Ok(())
}

/// A value, or where and what is wrong with it.
fn read(
    mut object: Map<String, Value>,
    pointer: &str,
    at: &str,
) -> Result<std::result::Result<PastedSecret, (String, String)>> {
    let value = match object.remove("value") {
        Some(Value::String(value)) => Zeroizing::new(value.into_bytes()),
        other => {
            wipe(other.unwrap_or_default());
            wipe(Value::Object(object));
            return Ok(Err((at.to_owned(), SHAPE.to_owned())));
        }
    };
    let known = object
        .keys()
        .all(|k| matches!(k.as_str(), "type" | "name" | "purpose"));
    let optional = |key: &str| match object.get(key) {
        None | Some(Value::Null) => Some(None),
        Some(Value::String(text)) => Some(Some(text.clone())),
        Some(_) => None,
    };
    let (true, Some(given), Some(purpose)) = (known, optional("name"), optional("purpose")) else {
        wipe(Value::Object(object));
        return Ok(Err((at.to_owned(), SHAPE.to_owned())));
    };
    if let Err(Error::Invalid { violations }) = check_value(&format!("{at}/value"), &value) {
        return Ok(Err(first(violations)));
    }
    let name = match given
        .map(|given| name::checked(&format!("{at}/name"), &given))
        .transpose()
    {
        Ok(name) => name,
        Err(Error::Invalid { violations }) => return Ok(Err(first(violations))),
        Err(other) => return Err(other),
    };
    let field = pointer
        .rsplit(['/', ':'])
        .next()
        .unwrap_or_default()
        .replace("~1", "/")
        .replace("~0", "~");
    let purpose = match purpose.as_deref().map(str::parse::<SecretPurpose>) {
        None => guess(&field),
        Some(Ok(purpose)) => purpose,
        Some(Err(unknown)) => {
            return Ok(Err((format!("{at}/purpose"), unknown.to_string())));
        }
    };
    Ok(Ok(PastedSecret {
        id: id::fresh("sec_")?,
        name,
        field,
        purpose,
        value,
    }))
}

fn first(violations: Vec<leasehold_contract::FieldViolation>) -> (String, String) {
    violations
        .into_iter()
        .next()
        .map(|v| (v.pointer, v.message))
        .unwrap_or_default()
}

/// What a field of this name usually holds.
fn guess(field: &str) -> SecretPurpose {
    let field = field.to_ascii_lowercase();
    let has = |word: &str| field.contains(word);
    if has("certificate") {
        SecretPurpose::Certificate
    } else if has("password") || has("passphrase") {
        SecretPurpose::Password
    } else if has("token") {
        SecretPurpose::Token
    } else if has("key") {
        SecretPurpose::Key
    } else {
        SecretPurpose::Other
    }
}

/// Wipes the texts of what was refused.
fn wipe(value: Value) {
    match value {
        Value::String(mut text) => text.zeroize(),
        Value::Array(items) => items.into_iter().for_each(wipe),
        Value::Object(object) => object.into_iter().for_each(|(_, value)| wipe(value)),
        _ => {}
    }
}

/// Keeps what was taken out of an environment, as secrets of its company, or of the instance where it
/// is shared.
pub(crate) async fn put(
    tx: &mut Tx,
    actor: &Actor,
    company: Option<&str>,
    environment: &str,
    pasted: Vec<PastedSecret>,
) -> Result<()> {
    for one in pasted {
        let name = match one.name {
            Some(name) => name,
            None => free_name(tx, company, environment, &one.field, &one.id).await?,
        };
        insert(
            tx,
            actor,
            one.id,
            NewSecret {
                company: company.map(str::to_owned),
                name,
                purpose: one.purpose,
                description: None,
                value: one.value,
            },
        )
        .await?;
    }
    Ok(())
}

/// The environment's name and the field's; with a part of the id where that is taken.
async fn free_name(
    tx: &mut Tx,
    company: Option<&str>,
    environment: &str,
    field: &str,
    id: &str,
) -> Result<String> {
    let plain: String = format!("{environment} {field}")
        .chars()
        .filter(|c| !c.is_control())
        .take(MADE_UP)
        .collect();
    let taken: bool = sqlx::query_scalar(
        "SELECT EXISTS (SELECT 1 FROM secrets WHERE company_id IS NOT DISTINCT FROM $1 AND name = $2)",
    )
    .bind(company)
    .bind(&plain)
    .fetch_one(&mut tx.db)
    .await?;
    if !taken {
        return Ok(plain);
    }
    let part: String = id.trim_start_matches("sec_").chars().take(8).collect();
    Ok(format!("{plain} {part}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(value: Value) -> Map<String, Value> {
        match value {
            Value::Object(map) => map,
            _ => Map::new(),
        }
    }

    #[test]
    fn a_value_goes_out_wherever_it_stands_and_a_reference_takes_its_place() {
        let mut config = map(json!({
            "target": { "host": "h", "privateKey": { "type": "secret_value", "value": "canary-1", "name": "mine" } },
            "hops": [{ "passphrase": { "type": "secret_value", "value": "canary-2" } }],
        }));
        let mut vars = map(json!({
            "A_TOKEN": { "type": "secret_value", "value": "canary-3" },
            "B": { "type": "secret_value", "value": "canary-4", "purpose": "certificate" },
            "PLAIN": "x",
        }));
        let taken = take_pasted(Some(&mut config), Some(&mut vars)).unwrap();
        let found: Vec<_> = taken
            .iter()
            .map(|p| (p.field.as_str(), p.purpose, &p.value[..]))
            .collect();
        assert_eq!(
            found,
            [
                ("privateKey", SecretPurpose::Key, &b"canary-1"[..]),
                ("passphrase", SecretPurpose::Password, &b"canary-2"[..]),
                ("A_TOKEN", SecretPurpose::Token, &b"canary-3"[..]),
                ("B", SecretPurpose::Certificate, &b"canary-4"[..]),
            ]
        );
        assert_eq!(config["target"]["privateKey"]["secretId"], taken[0].id());
        assert_eq!(config["hops"][0]["passphrase"]["type"], "secret_ref");
        assert_eq!(vars["A_TOKEN"]["secretId"], taken[2].id());
        let left = format!("{config:?} {vars:?} {taken:?}");
        assert!(!left.contains("canary"), "{left}");
    }

    #[test]
    fn what_is_no_value_is_named_without_being_repeated() {
        let mut config = map(json!({
            "a": { "type": "secret_value" },
            "b": { "type": "secret_value", "value": { "x": "canary" } },
            "c": { "type": "secret_value", "value": "canary", "extra": "canary" },
            "d": { "type": "secret_value", "value": "" },
            "e": { "type": "secret_value", "value": "canary", "purpose": "canary" },
            "f": { "type": "secret_value", "value": "canary", "name": " " },
        }));
        let Err(Error::Invalid { violations }) = take_pasted(Some(&mut config), None) else {
            panic!("not a violation");
        };
        let at: Vec<_> = violations.iter().map(|v| v.pointer.as_str()).collect();
        assert_eq!(
            at,
            [
                "/config/a",
                "/config/b",
                "/config/c",
                "/config/d/value",
                "/config/e/purpose",
                "/config/f/name",
            ]
        );
        assert!(!format!("{violations:?}").contains("canary"));
    }
}

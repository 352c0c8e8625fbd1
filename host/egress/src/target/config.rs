//! Reads an `ssh-target` strictly: every violation at once, each with the field, the value's shape and the mend.

use std::sync::{Arc, OnceLock};

use leasehold_contract::FieldViolation;
use serde_json::{Map, Value};

use super::{Hop, MAX_JUMPS, SshTarget};
use crate::secret::Secret;
use crate::trust::HostTrust;

const KEYS: [&str; 8] = [
    "host",
    "port",
    "username",
    "privateKey",
    "passphrase",
    "certificate",
    "hostKeys",
    "jump",
];

/// Collects violations below one pointer.
struct Reader<'a> {
    base: String,
    wrong: &'a mut Vec<FieldViolation>,
}

impl Reader<'_> {
    fn say(&mut self, key: &str, message: impl Into<String>) {
        let pointer = if key.is_empty() {
            self.base.clone()
        } else {
            format!("{}/{key}", self.base)
        };
        self.wrong.push(FieldViolation {
            pointer,
            message: message.into(),
        });
    }

    fn text(&mut self, map: &Map<String, Value>, key: &str) -> Option<String> {
        match map.get(key) {
            None | Some(Value::Null) => None,
            Some(Value::String(s)) => Some(s.clone()),
            Some(other) => {
                self.say(key, format!("{key} is {}; give a string", shape(other)));
                None
            }
        }
    }

    fn required(&mut self, map: &Map<String, Value>, key: &str) -> Option<String> {
        let was = self.wrong.len();
        let text = self.text(map, key);
        if text.is_none() && self.wrong.len() == was {
            self.say(key, format!("{key} is missing; give a string"));
        }
        text
    }

    fn unknown(&mut self, map: &Map<String, Value>, known: &[&str]) {
        for key in map.keys().filter(|k| !known.contains(&k.as_str())) {
            self.say(
                key,
                format!("{key:?} is not known here; known are {}", known.join(", ")),
            );
        }
    }
}

/// What a value is, in words, never the value itself: it may be a secret.
fn shape(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

pub(super) fn read(value: &Value) -> Result<SshTarget, Vec<FieldViolation>> {
    let mut wrong = Vec::new();
    let mut hops = Vec::new();
    let last = hop(value, String::new(), &mut wrong, true);
    if let Some(jumps) = value.get("jump").filter(|j| !j.is_null()) {
        match jumps {
            Value::Array(list) => {
                if list.len() > MAX_JUMPS {
                    wrong.push(FieldViolation {
                        pointer: "/jump".into(),
                        message: format!(
                            "jump has {} entries; at most {MAX_JUMPS} are passed",
                            list.len()
                        ),
                    });
                }
                for (i, one) in list.iter().enumerate().take(MAX_JUMPS) {
                    hops.extend(hop(one, format!("/jump/{i}"), &mut wrong, false));
                }
            }
            other => wrong.push(FieldViolation {
                pointer: "/jump".into(),
                message: format!("jump is {}; give a list of hosts", shape(other)),
            }),
        }
    }
    match last {
        Some(last) if wrong.is_empty() => {
            hops.push(last);
            Ok(SshTarget { hops })
        }
        _ => Err(wrong),
    }
}

fn hop(value: &Value, base: String, wrong: &mut Vec<FieldViolation>, jumps: bool) -> Option<Hop> {
    let before = wrong.len();
    let mut r = Reader { base, wrong };
    let Value::Object(map) = value else {
        r.say(
            "",
            format!(
                "an ssh-target is an object with {}; this is {}",
                KEYS.join(", "),
                shape(value)
            ),
        );
        return None;
    };
    let known = if jumps {
        &KEYS[..]
    } else {
        &KEYS[..KEYS.len() - 1]
    };
    r.unknown(map, known);
    let host = r.required(map, "host").and_then(|h| {
        let host = h
            .strip_prefix('[')
            .and_then(|h| h.strip_suffix(']'))
            .unwrap_or(&h)
            .to_owned();
        if host_is_sane(&host) {
            Some(host)
        } else {
            r.say("host", "host is not a host name or an address; give one such as build.example.org, 10.0.0.5 or fd00::5");
            None
        }
    });
    let port = match map.get("port") {
        None | Some(Value::Null) => Some(22),
        Some(p) => match p
            .as_u64()
            .and_then(|p| u16::try_from(p).ok())
            .filter(|p| *p > 0)
        {
            Some(p) => Some(p),
            None => {
                r.say(
                    "port",
                    format!(
                        "port is {}; give a whole number from 1 to 65535",
                        if p.is_number() {
                            "out of range"
                        } else {
                            shape(p)
                        }
                    ),
                );
                None
            }
        },
    };
    let username = r.required(map, "username").filter(|u| {
        let sane = !u.is_empty()
            && u.len() <= 256
            && !u.starts_with('-')
            && !u.chars().any(|c| c.is_control() || c.is_whitespace());
        if !sane {
            r.say("username", "username is empty, too long, begins with '-' or has a space or a control character; give the account's name");
        }
        sane
    });
    let private_key = r.required(map, "privateKey").filter(|k| {
        let sane = k.contains("-----BEGIN ") || k.trim_start().starts_with("PuTTY-User-Key-File-");
        if !sane {
            r.say("privateKey", "privateKey is not a private key; give the text of an OpenSSH, PKCS#8 or PEM key, from -----BEGIN to the end");
        }
        sane
    });
    let passphrase = r.text(map, "passphrase").filter(|p| !p.is_empty());
    let certificate = r.text(map, "certificate").filter(|c| !c.trim().is_empty());
    let trust = host_keys(&mut r, map);
    if r.wrong.len() > before {
        return None;
    }
    Some(Hop {
        host: host?,
        port: port?,
        username: username?,
        private_key: Secret::new(private_key?),
        passphrase: passphrase.map(Secret::new),
        certificate,
        trust: Arc::new(trust?),
        opened: OnceLock::new(),
    })
}

fn host_is_sane(host: &str) -> bool {
    if host.parse::<std::net::IpAddr>().is_ok() {
        return true;
    }
    // A scoped IPv6 address (fe80::1%eth0) or a name.
    if let Some((address, scope)) = host.split_once('%') {
        return address.parse::<std::net::Ipv6Addr>().is_ok()
            && !scope.is_empty()
            && scope
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || "._-".contains(c));
    }
    !host.is_empty()
        && host.len() <= 253
        && !host.starts_with(['-', '.'])
        && host
            .chars()
            .all(|c| c.is_alphanumeric() || "._-".contains(c))
}

fn host_keys(r: &mut Reader<'_>, map: &Map<String, Value>) -> Option<HostTrust> {
    let keys = match map.get("hostKeys") {
        None | Some(Value::Null) => return Some(HostTrust::none()),
        Some(Value::Object(keys)) => keys,
        Some(other) => {
            r.say(
                "hostKeys",
                format!(
                    "hostKeys is {}; give an object with fingerprints and knownHosts",
                    shape(other)
                ),
            );
            return None;
        }
    };
    let mut below = Reader {
        base: format!("{}/hostKeys", r.base),
        wrong: &mut *r.wrong,
    };
    below.unknown(keys, &["fingerprints", "knownHosts"]);
    let known_hosts = below.text(keys, "knownHosts").unwrap_or_default();
    let mut prints = Vec::new();
    match keys.get("fingerprints") {
        None | Some(Value::Null) => {}
        Some(Value::Array(list)) => {
            for (i, one) in list.iter().enumerate() {
                match one.as_str() {
                    Some(text) => prints.push(text.trim().to_owned()),
                    None => below.say(
                        &format!("fingerprints/{i}"),
                        format!(
                            "a fingerprint is {}; give a string such as SHA256:…",
                            shape(one)
                        ),
                    ),
                }
            }
        }
        Some(other) => below.say(
            "fingerprints",
            format!("fingerprints is {}; give a list of strings", shape(other)),
        ),
    }
    match HostTrust::new(prints, known_hosts) {
        Ok(trust) => Some(trust),
        Err(wrong) => {
            for (key, message) in wrong {
                below.say(&key, message);
            }
            None
        }
    }
}

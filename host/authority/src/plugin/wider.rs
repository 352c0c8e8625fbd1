//! Whether a new revision asks for more than the current one, by structure and never by text, and the difference in words.
//!
//! Pure. More reach is wider: SSH, streams, an origin that no pattern covered, an interface, a limit. Of what decides whose
//! a thing is and where a credential goes (checks, operations, credentials, mints, the fields that mean something to the
//! host, the image) every change is wider, also one that takes something away. Order never counts.

use leasehold_contract::{
    Check, Credential, Formats, ImageBinding, Manifest, Mint, Operation, covers,
};

use super::Revision;

/// What `manifest` asks for beyond `current`, each in a sentence; empty where the current grant is enough for it.
pub fn wider(current: &Revision, manifest: &Manifest, capabilities: &[String]) -> Vec<String> {
    let old = &current.manifest;
    let mut found = Vec::new();
    reach(old, manifest, &mut found);
    for interface in capabilities {
        if !current.capabilities.contains(interface) {
            found.push(format!(
                "exports {interface}, which it did not: it serves that in its leases"
            ));
        }
    }
    limits(old, manifest, &mut found);
    fields(old, manifest, &mut found);
    changes(
        &old.credentials,
        &manifest.credentials,
        Credential::in_words,
        &mut found,
    );
    changes(&old.mints, &manifest.mints, Mint::in_words, &mut found);
    changes(
        &old.operations,
        &manifest.operations,
        Operation::in_words,
        &mut found,
    );
    changes(&old.checks, &manifest.checks, Check::in_words, &mut found);
    if old.image != manifest.image {
        found.push(format!(
            "names its image otherwise: {}, which was {}",
            image(manifest.image.as_ref()),
            image(old.image.as_ref())
        ));
    }
    found
}

fn reach(old: &Manifest, new: &Manifest, found: &mut Vec<String>) {
    if old.driver != new.driver {
        found.push(format!(
            "leases {} environments instead of {}",
            new.driver.as_str(),
            old.driver.as_str()
        ));
    }
    if new.request.ssh && !old.request.ssh {
        found.push("asks to run scripts over SSH, which it did not".to_owned());
    }
    if new.request.streams && !old.request.streams {
        found.push("asks to open byte streams, which it did not".to_owned());
    }
    for origin in &new.request.origins {
        if !old.request.origins.iter().any(|wide| covers(wide, origin)) {
            found.push(format!("asks to send requests to {origin} too"));
        }
    }
    if old.features.exclusive_target && !new.features.exclusive_target {
        found.push(
            "no longer asks that a target is leased to one at a time: leases may share an account"
                .to_owned(),
        );
    }
}

fn limits(old: &Manifest, new: &Manifest, found: &mut Vec<String>) {
    let (old, new) = (old.request.limits, new.request.limits);
    for (what, before, now) in [
        ("MiB of memory", old.memory_mib, new.memory_mib),
        ("ms of CPU time", old.cpu, new.cpu),
        ("requests", old.exchanges, new.exchanges),
        ("MiB of a buffered body", old.body_mib, new.body_mib),
    ] {
        if now > before {
            found.push(format!(
                "asks for {now} {what} in one call instead of {before}"
            ));
        }
    }
}

fn fields(old: &Manifest, new: &Manifest, found: &mut Vec<String>) {
    let before = Formats::of(&old.config_schema);
    let now = Formats::of(&new.config_schema);
    if now.cut || before.cut {
        if old.config_schema != new.config_schema {
            found.push("has another configuration schema, too large to be compared".to_owned());
        }
        return;
    }
    for (field, format) in &now.fields {
        match before.fields.get(field) {
            Some(same) if same == format => {}
            Some(other) => found.push(format!("makes the field {field} {format}; it was {other}")),
            None => found.push(format!(
                "has the field {field} of format {format}, which was not there or was a plain value"
            )),
        }
    }
    for (field, format) in &before.fields {
        if !now.fields.contains_key(field) {
            found.push(format!(
                "no longer has the field {field} of format {format}, or makes it a plain value"
            ));
        }
    }
}

/// Everything that is in one list and not in the other, both ways.
fn changes<T: PartialEq>(old: &[T], new: &[T], say: fn(&T) -> String, found: &mut Vec<String>) {
    for item in new.iter().filter(|item| !old.contains(item)) {
        found.push(format!("adds: {}", say(item)));
    }
    for item in old.iter().filter(|item| !new.contains(item)) {
        found.push(format!("takes away: {}", say(item)));
    }
}

fn image(image: Option<&ImageBinding>) -> String {
    image.map_or_else(
        || "no image".to_owned(),
        |image| format!("by {}", image.field),
    )
}

#[cfg(test)]
#[path = "wider_tests.rs"]
mod tests;

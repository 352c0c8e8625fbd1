//! Whether a new revision asks for more than the current one, by structure and never by text, and the difference in words.
//!
//! Pure. More reach is wider: SSH, streams, an origin that no pattern covered, an interface, a limit. Of what decides whose
//! a thing is and where a credential goes (checks, operations, credentials, mints, the fields that mean something to the
//! host, the image) every change is wider, also one that takes something away. Order never counts.

use leasehold_contract::{
    Check, Claim, Credential, Expectation, Formats, ImageBinding, Manifest, Mint, Operation, Role,
    Site, covers,
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
        credential,
        &mut found,
    );
    changes(&old.mints, &manifest.mints, mint, &mut found);
    changes(&old.operations, &manifest.operations, operation, &mut found);
    changes(&old.checks, &manifest.checks, check, &mut found);
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

fn site(site: &Site) -> String {
    match site {
        Site::Header(name, template) => format!("header {name}: {template}"),
        Site::Basic(user) => format!("Basic authentication with the user name of {user}"),
        Site::RegistryAuth => "registry authentication".to_owned(),
        Site::SshUsername => "SSH user name".to_owned(),
    }
}

fn sites(all: &[Site]) -> String {
    all.iter().map(site).collect::<Vec<_>>().join(" or ")
}

fn credential(credential: &Credential) -> String {
    format!(
        "the credential in {} toward {}, as {}",
        credential.pointer,
        credential.to.join(" and "),
        sites(&credential.sites)
    )
}

fn mint(mint: &Mint) -> String {
    format!(
        "credentials that {} {} at {} answers in {}, toward {}, as {}",
        mint.method,
        mint.path,
        mint.endpoint,
        mint.pointers.join(" and "),
        mint.to.join(" and "),
        sites(&mint.sites)
    )
}

fn operation(operation: &Operation) -> String {
    let role = match &operation.role {
        Role::Create(made) => format!("create, with the id in {}", made.id),
        Role::CreateChild(made) => format!("create a child, with the id in {}", made.id),
        Role::Act => "act".to_owned(),
        Role::Read => "read".to_owned(),
        Role::Shared => "change something that no lease owns".to_owned(),
    };
    format!(
        "the operation {} {} at {} ({role})",
        operation.method, operation.path, operation.endpoint
    )
}

fn check(check: &Check) -> String {
    let claim = match check.claim {
        Claim::Owned => "owned",
        Claim::ImageIdentity => "image-identity",
        Claim::Platform => "platform",
        Claim::Gone => "gone",
    };
    let expected: Vec<String> = check
        .expect
        .iter()
        .map(|expectation| match expectation {
            Expectation::Status(status) => format!("status {status}"),
            Expectation::Value(pointer) => format!("the value of {pointer}"),
            Expectation::OwnerLabel(pointer) => format!("the owner label in {pointer}"),
            Expectation::AbsentFrom(list, id) => format!("no {id} of it in {list}"),
            Expectation::File => "a file".to_owned(),
            Expectation::Tar => "an archive".to_owned(),
        })
        .collect();
    format!(
        "the check of `{claim}` by GET {} at {}, which expects {}",
        check.path,
        check.endpoint,
        expected.join(" and ")
    )
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

//! What the contract has words for and this host does not do yet. A manifest that says it is refused at install, by
//! field: nobody is to believe in a check that is never made, or in a site that is never filled.
//!
//! Pure. What a host learns to do is taken out of here.

use leasehold_contract::{Claim, FieldViolation, Manifest, Site};

/// Every field of a manifest that would have no effect here.
pub(crate) fn violations(manifest: &Manifest) -> Vec<FieldViolation> {
    let mut all = Vec::new();
    let mut say = |pointer: String, message: &str| {
        all.push(FieldViolation {
            pointer,
            message: message.to_owned(),
        });
    };
    if manifest.image.is_some() {
        say(
            "/image".to_owned(),
            "binds an image, and this host looks at none yet; leave it out",
        );
    }
    for (index, check) in manifest.checks.iter().enumerate() {
        if matches!(check.claim, Claim::ImageIdentity | Claim::Platform) {
            say(
                format!("/checks/{index}/claim"),
                "is a claim that this host verifies nowhere yet; it makes checks of `owned` and `gone`; leave it out",
            );
        }
    }
    let credentials = manifest.credentials.iter().map(|c| &c.sites);
    let mints = manifest.mints.iter().map(|m| &m.sites);
    for (list, sites) in (credentials.map(|sites| ("credentials", sites)).enumerate())
        .chain(mints.map(|sites| ("mints", sites)).enumerate())
        .map(|(index, (list, sites))| (format!("{list}/{index}"), sites))
    {
        for (index, site) in sites.iter().enumerate() {
            if *site == Site::SshUsername {
                say(
                    format!("/{list}/sites/{index}"),
                    "is the user name of an SSH session, which this host takes from the `ssh-target` alone; let the \
                     administrator write it there",
                );
            }
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use leasehold_contract::{
        Check, Credential, Driver, Features, ImageBinding, ImageKind, Limits, Mint, Request,
    };

    use super::*;

    #[test]
    fn what_is_not_done_here_is_refused_by_its_field() {
        let sites = vec![Site::RegistryAuth, Site::SshUsername];
        let manifest = Manifest {
            key: "acme".into(),
            version: "1.0.0".into(),
            title: "Acme".into(),
            summary: String::new(),
            driver: Driver::Sandbox,
            config_schema: serde_json::json!({}),
            image: Some(ImageBinding {
                kind: ImageKind::Opaque,
                field: "/image".into(),
                excludes: vec![],
                identity_fields: vec![],
            }),
            request: Request {
                origins: vec![],
                ssh: false,
                streams: false,
                limits: Limits {
                    memory_mib: 1,
                    cpu: 1,
                    exchanges: 1,
                    body_mib: 1,
                },
            },
            credentials: vec![Credential {
                pointer: "/key".into(),
                sites: sites.clone(),
                to: vec![],
            }],
            mints: vec![Mint {
                endpoint: "/api".into(),
                method: "POST".into(),
                path: "/".into(),
                pointers: vec![],
                sites,
                to: vec![],
            }],
            operations: vec![],
            checks: vec![Check {
                claim: Claim::Platform,
                endpoint: "/api".into(),
                path: "/".into(),
                credential: None,
                expect: vec![],
                apart: 0,
            }],
            features: Features::default(),
            acquire_timeout: 1,
        };
        let found = violations(&manifest);
        let pointers: Vec<&str> = found.iter().map(|v| v.pointer.as_str()).collect();
        assert_eq!(
            pointers,
            [
                "/image",
                "/checks/0/claim",
                "/credentials/0/sites/1",
                "/mints/0/sites/1"
            ]
        );
    }
}

//! What the contract has words for and this host does not do yet. A manifest that says it is refused at install, by
//! field: nobody is to believe in a check that is never made, or in a site that is never filled.
//!
//! Pure. What a host learns to do is taken out of here.

use leasehold_contract::{Claim, FieldViolation, Manifest, Site};

use crate::schema;

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
    let credentials = manifest.credentials.iter().map(|c| &c.to);
    let mints = manifest.mints.iter().map(|m| &m.to);
    for (list, to) in (credentials.map(|to| ("credentials", to)).enumerate())
        .chain(mints.map(|to| ("mints", to)).enumerate())
        .map(|(index, (list, to))| (format!("{list}/{index}"), to))
    {
        for (index, pointer) in to.iter().enumerate() {
            let fields = schema::fields_at(&manifest.config_schema, pointer);
            if schema::has_format(&fields, &["ssh-target"]) {
                say(
                    format!("/{list}/to/{index}"),
                    "is an `ssh-target`, where no placeholder works: its keys stand in the target itself; name endpoints",
                );
            }
        }
    }
    let features = &manifest.features;
    for (has, message) in [
        (
            features.attach,
            "has `attach`, and this host takes no lost stream up again yet; leave it out",
        ),
        (
            features.reuse,
            "has `reuse`, and this host makes a new environment for each lease; leave it out",
        ),
        (
            features.exclusive_target && !manifest.request.ssh,
            "has `exclusive-target`, by which this host guards accounts reached by SSH alone, and `request.ssh` is not asked for; \
             leave it out",
        ),
    ] {
        if has {
            say("/features".to_owned(), message);
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

    fn manifest(sites: Vec<Site>) -> Manifest {
        Manifest {
            key: "acme".into(),
            version: "1.0.0".into(),
            title: "Acme".into(),
            summary: String::new(),
            driver: Driver::Sandbox,
            config_schema: serde_json::json!({ "properties": {
                "box": { "format": "ssh-target" },
                "api": { "format": "endpoint" },
            } }),
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
                to: vec!["/api".into(), "/box".into()],
            }],
            mints: vec![Mint {
                endpoint: "/api".into(),
                method: "POST".into(),
                path: "/".into(),
                pointers: vec![],
                sites,
                to: vec!["/box".into()],
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
            features: Features {
                attach: true,
                reuse: true,
                exclusive_target: true,
                ..Features::default()
            },
            acquire_timeout: 1,
        }
    }

    fn pointers(manifest: &Manifest) -> Vec<String> {
        let found = violations(manifest).into_iter();
        found.map(|violation| violation.pointer).collect()
    }

    #[test]
    fn what_is_not_done_here_is_refused_by_its_field() {
        let manifest = manifest(vec![Site::RegistryAuth, Site::SshUsername]);
        assert_eq!(
            pointers(&manifest),
            [
                "/image",
                "/checks/0/claim",
                "/credentials/0/sites/1",
                "/mints/0/sites/1",
                "/credentials/0/to/1",
                "/mints/0/to/0",
                "/features",
                "/features",
                "/features",
            ]
        );
    }

    #[test]
    fn an_account_reached_by_ssh_may_be_had_by_one_lease_alone() {
        let mut manifest = manifest(vec![]);
        manifest.features = Features {
            exclusive_target: true,
            ..Features::default()
        };
        let of_features = |manifest: &Manifest| {
            let all = pointers(manifest);
            all.iter().filter(|at| *at == "/features").count()
        };
        assert_eq!(of_features(&manifest), 1);
        manifest.request.ssh = true;
        assert_eq!(of_features(&manifest), 0);
    }
}

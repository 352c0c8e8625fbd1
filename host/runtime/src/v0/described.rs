//! What `describe` answered, from the bindings' types to the contract's. Checked in `manifest`.

use leasehold_contract as c;

use super::exported::lifecycle as l;

/// The manifest; the configuration's schema is given parsed.
pub(crate) fn manifest(m: l::Manifest, config_schema: serde_json::Value) -> c::Manifest {
    c::Manifest {
        key: m.key,
        version: m.version,
        title: m.title,
        summary: m.summary,
        driver: match m.driver {
            l::Driver::Ssh => c::Driver::Ssh,
            l::Driver::Sandbox => c::Driver::Sandbox,
            l::Driver::Plugin => c::Driver::Plugin,
        },
        config_schema,
        image: m.image.map(|image| c::ImageBinding {
            kind: match image.kind {
                l::ImageKind::OciImage => c::ImageKind::OciImage,
                l::ImageKind::Snapshot => c::ImageKind::Snapshot,
                l::ImageKind::Opaque => c::ImageKind::Opaque,
            },
            field: image.field,
            excludes: image.excludes,
            identity_fields: image.identity_fields,
        }),
        request: c::Request {
            origins: m.request.origins,
            ssh: m.request.ssh,
            streams: m.request.streams,
            limits: c::Limits {
                memory_mib: m.request.limits.memory_mib,
                cpu: m.request.limits.cpu,
                exchanges: m.request.limits.exchanges,
                body_mib: m.request.limits.body_mib,
            },
        },
        credentials: m
            .credentials
            .into_iter()
            .map(|credential| c::Credential {
                pointer: credential.pointer,
                sites: sites(credential.sites),
                to: credential.to,
            })
            .collect(),
        mints: m
            .mints
            .into_iter()
            .map(|mint| c::Mint {
                endpoint: mint.endpoint,
                method: mint.method,
                path: mint.path,
                pointers: mint.pointers,
                sites: sites(mint.sites),
                to: mint.to,
            })
            .collect(),
        operations: m.operations.into_iter().map(operation).collect(),
        checks: m.checks.into_iter().map(check).collect(),
        features: c::Features {
            stdin: m.features.contains(l::Features::STDIN),
            tty: m.features.contains(l::Features::TTY),
            separate_stderr: m.features.contains(l::Features::SEPARATE_STDERR),
            attach: m.features.contains(l::Features::ATTACH),
            signal_group: m.features.contains(l::Features::SIGNAL_GROUP),
            exclusive_target: m.features.contains(l::Features::EXCLUSIVE_TARGET),
            reuse: m.features.contains(l::Features::REUSE),
        },
        acquire_timeout: m.acquire_timeout,
    }
}

fn sites(sites: Vec<l::Site>) -> Vec<c::Site> {
    sites
        .into_iter()
        .map(|site| match site {
            l::Site::Header((name, template)) => c::Site::Header(name, template),
            l::Site::Basic(pointer) => c::Site::Basic(pointer),
            l::Site::RegistryAuth => c::Site::RegistryAuth,
            l::Site::SshUsername => c::Site::SshUsername,
        })
        .collect()
}

fn operation(o: l::Operation) -> c::Operation {
    let creation = |made: l::Creation| c::Creation {
        id: made.id,
        labels: made.labels,
    };
    c::Operation {
        endpoint: o.endpoint,
        method: o.method,
        path: o.path,
        role: match o.role {
            l::Role::Create(made) => c::Role::Create(creation(made)),
            l::Role::CreateChild(made) => c::Role::CreateChild(creation(made)),
            l::Role::Act => c::Role::Act,
            l::Role::Read => c::Role::Read,
            l::Role::Shared => c::Role::Shared,
        },
    }
}

fn check(check: l::Check) -> c::Check {
    c::Check {
        claim: match check.claim {
            l::Claim::Owned => c::Claim::Owned,
            l::Claim::ImageIdentity => c::Claim::ImageIdentity,
            l::Claim::Platform => c::Claim::Platform,
            l::Claim::Gone => c::Claim::Gone,
        },
        endpoint: check.endpoint,
        path: check.path,
        credential: check.credential,
        expect: check
            .expect
            .into_iter()
            .map(|expectation| match expectation {
                l::Expectation::Status(status) => c::Expectation::Status(status),
                l::Expectation::Value(pointer) => c::Expectation::Value(pointer),
                l::Expectation::OwnerLabel(pointer) => c::Expectation::OwnerLabel(pointer),
                l::Expectation::AbsentFrom((list, id)) => c::Expectation::AbsentFrom(list, id),
                l::Expectation::File => c::Expectation::File,
                l::Expectation::Tar => c::Expectation::Tar,
            })
            .collect(),
        apart: check.apart,
    }
}

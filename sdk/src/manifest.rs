//! Building the manifest: what a provider is, and what it asks an administrator to allow.
//!
//! The manifest is a request, not a grant. The host checks every part of it at install, shows it, and
//! freezes it with the component's digest.

use serde_json::Value;

use crate::bindings::base::exports::leasehold::provider::lifecycle::{
    Check, Claim, Creation, Credential, Driver, Expectation, Features, ImageBinding, ImageKind,
    Limits, Manifest, Mint, Operation, Request, Role, Site,
};

/// Builds a [`Manifest`]; begin with [`manifest`].
#[derive(Clone, Debug)]
#[must_use = "a manifest is made by `build`"]
pub struct ManifestBuilder(Manifest);

/// A manifest of this key (`[a-z0-9][a-z0-9-]{0,62}`) and semantic version; driver `sandbox`, nothing asked for,
/// 64 MiB and one second of CPU time a call.
pub fn manifest(key: &str, version: &str) -> ManifestBuilder {
    ManifestBuilder(Manifest {
        key: key.to_owned(),
        version: version.to_owned(),
        title: key.to_owned(),
        summary: String::new(),
        driver: Driver::Sandbox,
        config_schema: r#"{"type":"object"}"#.to_owned(),
        image: None,
        request: Request {
            origins: Vec::new(),
            ssh: false,
            streams: false,
            limits: Limits {
                memory_mib: 64,
                cpu: 1000,
                exchanges: 64,
                body_mib: 8,
            },
        },
        credentials: Vec::new(),
        mints: Vec::new(),
        operations: Vec::new(),
        checks: Vec::new(),
        features: Features::empty(),
        acquire_timeout: 60_000,
    })
}

impl ManifestBuilder {
    /// Its name for a person.
    pub fn title(mut self, title: &str) -> Self {
        self.0.title = title.to_owned();
        self
    }

    /// What it leases, in a sentence or two.
    pub fn summary(mut self, summary: &str) -> Self {
        self.0.summary = summary.to_owned();
        self
    }

    /// What kind of environment it leases.
    pub fn driver(mut self, driver: Driver) -> Self {
        self.0.driver = driver;
        self
    }

    /// JSON Schema 2020-12 of the configuration. The formats `secret`, `endpoint`, `engine-endpoint`, `registry`
    /// and `ssh-target` mean something to the host.
    pub fn schema(mut self, schema: Value) -> Self {
        self.0.config_schema = schema.to_string();
        self
    }

    /// How an image is named: its kind, its field, the fields that it excludes, and further fields that change
    /// what boots. A host that looks at no image yet refuses the manifest at install.
    pub fn image(
        mut self,
        kind: ImageKind,
        field: &str,
        excludes: &[&str],
        identity_fields: &[&str],
    ) -> Self {
        self.0.image = Some(ImageBinding {
            kind,
            field: field.to_owned(),
            excludes: owned(excludes),
            identity_fields: owned(identity_fields),
        });
        self
    }

    /// Asks for an origin beyond the endpoints of the configuration: `scheme://host-pattern:port`. No credential
    /// goes there.
    pub fn origin(mut self, pattern: &str) -> Self {
        self.0.request.origins.push(pattern.to_owned());
        self
    }

    /// Asks to run scripts on the SSH targets of the configuration.
    pub fn ssh(mut self) -> Self {
        self.0.request.ssh = true;
        self
    }

    /// Asks for streams: HTTP upgrades and WebSockets.
    pub fn streams(mut self) -> Self {
        self.0.request.streams = true;
        self
    }

    /// The most that one call needs, where it is other than 64 MiB, 1,000 ms, 64 exchanges and bodies of 8 MiB.
    pub fn limits(mut self, limits: Limits) -> Self {
        self.0.request.limits = limits;
        self
    }

    /// A configuration field of format `secret`: where in a message its placeholder works, and toward which
    /// fields of format `endpoint` or `ssh-target`.
    pub fn credential<'a>(
        mut self,
        pointer: &str,
        sites: impl IntoIterator<Item = Site>,
        to: impl IntoIterator<Item = &'a str>,
    ) -> Self {
        self.0.credentials.push(Credential {
            pointer: pointer.to_owned(),
            sites: sites.into_iter().collect(),
            to: to.into_iter().map(str::to_owned).collect(),
        });
        self
    }

    /// Values in an answer that are secrets: the component sees placeholders in their place.
    pub fn mint(mut self, mint: Mint) -> Self {
        self.0.mints.push(mint);
        self
    }

    /// A request other than GET and HEAD. `path` is a template of whole segments: `{resource}`, `{child}`,
    /// `{acquisition}` or `*`.
    pub fn operation(mut self, endpoint: &str, method: &str, path: &str, role: Role) -> Self {
        self.0.operations.push(Operation {
            endpoint: endpoint.to_owned(),
            method: method.to_owned(),
            path: path.to_owned(),
            role,
        });
        self
    }

    /// A GET that the host makes by itself to verify a claim; see [`check`]. A host that makes none yet refuses the
    /// manifest at install.
    pub fn check(mut self, check: CheckBuilder) -> Self {
        self.0.checks.push(check.0);
        self
    }

    /// What it can do beyond its exports.
    pub fn features(mut self, features: Features) -> Self {
        self.0.features = features;
        self
    }

    /// How long an acquire may take when nothing else is configured, in milliseconds.
    pub fn acquire_timeout(mut self, millis: u32) -> Self {
        self.0.acquire_timeout = millis;
        self
    }

    /// The manifest.
    pub fn build(self) -> Manifest {
        self.0
    }
}

/// Builds a check; begin with [`check`].
#[derive(Clone, Debug)]
#[must_use = "a check belongs into a manifest"]
pub struct CheckBuilder(Check);

/// A GET of the host's at a configured endpoint, with `{resource}`, `{lease}` or, for `platform`, `{path}` filled in.
pub fn check(claim: Claim, endpoint: &str, path: &str) -> CheckBuilder {
    CheckBuilder(Check {
        claim,
        endpoint: endpoint.to_owned(),
        path: path.to_owned(),
        credential: None,
        expect: Vec::new(),
        apart: 0,
    })
}

impl CheckBuilder {
    /// Presents the credential at this pointer, in its site.
    pub fn credential(mut self, pointer: &str) -> Self {
        self.0.credential = Some(pointer.to_owned());
        self
    }

    /// What the answer must be; all of them.
    pub fn expect(mut self, expectation: Expectation) -> Self {
        self.0.expect.push(expectation);
        self
    }

    /// For `gone`: the least time between the two asks that must agree, in milliseconds.
    pub fn apart(mut self, millis: u32) -> Self {
        self.0.apart = millis;
        self
    }
}

/// A site: a header, by a template with one `{}`.
pub fn header(name: &str, template: &str) -> Site {
    Site::Header((name.to_owned(), template.to_owned()))
}

/// A site: Basic credentials, whose user name is the field at this pointer.
pub fn basic(username: &str) -> Site {
    Site::Basic(username.to_owned())
}

/// A site: Docker's `X-Registry-Auth`.
pub fn registry_auth() -> Site {
    Site::RegistryAuth
}

/// A site: the user name of an SSH session. A host that takes it from the `ssh-target` alone refuses the manifest.
pub fn ssh_username() -> Site {
    Site::SshUsername
}

/// A role: makes the environment; where its id stands in the answer, and where the labels stand in the request.
pub fn create(id: &str, labels: Option<&str>) -> Role {
    Role::Create(creation(id, labels))
}

/// A role: makes something that belongs to the environment.
pub fn create_child(id: &str, labels: Option<&str>) -> Role {
    Role::CreateChild(creation(id, labels))
}

/// A role: acts on what the path names.
pub fn act() -> Role {
    Role::Act
}

/// A role: changes nothing.
pub fn read() -> Role {
    Role::Read
}

/// A role: changes something that no lease owns.
pub fn shared() -> Role {
    Role::Shared
}

/// An expectation: this status.
pub fn status(status: u16) -> Expectation {
    Expectation::Status(status)
}

/// An expectation: the host reads the claim's value at this pointer.
pub fn value(pointer: &str) -> Expectation {
    Expectation::Value(pointer.to_owned())
}

/// An expectation: this lease's owner label among the labels at this pointer.
pub fn owner_label(pointer: &str) -> Expectation {
    Expectation::OwnerLabel(pointer.to_owned())
}

/// An expectation: the resource is not among the ids of the list at this pointer.
pub fn absent_from(list: &str, id: &str) -> Expectation {
    Expectation::AbsentFrom((list.to_owned(), id.to_owned()))
}

fn creation(id: &str, labels: Option<&str>) -> Creation {
    Creation {
        id: id.to_owned(),
        labels: labels.map(str::to_owned),
    }
}

fn owned(list: &[&str]) -> Vec<String> {
    list.iter().map(|s| (*s).to_owned()).collect()
}
